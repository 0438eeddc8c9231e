"""Traces written by hand, one call per record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from cubecast.trace import (
    ALL,
    MessageId,
    Property,
    Record,
    Report,
    check,
)

A, B, C, D = 0, 1, 2, 3


class Story:
    """Writes a trace, one call per record, with a clock that ticks at each."""

    def __init__(self, *, topic: str = "news", joined: Iterable[int] = ()) -> None:
        self.records: list[Record] = []
        self.topic = topic
        for node in joined:
            self.subscribe(node).join(node)

    def _add(self, kind: Any, node: int, **fields: Any) -> Self:
        fields.setdefault("topic", self.topic)
        self.records.append(Record(kind, len(self.records), node, **fields))
        return self

    def subscribe(self, node: int, **fields: Any) -> Self:
        return self._add("subscribe", node, **fields)

    def join(self, node: int, **fields: Any) -> Self:
        return self._add("join", node, **fields)

    def leave(self, node: int, **fields: Any) -> Self:
        return self._add("leave", node, **fields)

    def publish(self, node: int, id: MessageId | None, **fields: Any) -> Self:
        return self._add("publish", node, id=id, **fields)

    def deliver(self, id: MessageId | None, *nodes: int, **fields: Any) -> Self:
        for node in nodes:
            self._add("deliver", node, id=id, **fields)
        return self

    def state(self, node: int, **fields: Any) -> Self:
        return self._add("state", node, **fields)

    def gap(self, node: int, **fields: Any) -> Self:
        return self._add("gap", node, **fields)

    def discard(self, node: int, **fields: Any) -> Self:
        return self._add("discard", node, **fields)

    def check(self, *properties: Property) -> Report:
        return check(self.records, properties or ALL)

    def broken(self, *properties: Property) -> list[tuple[Property, int, MessageId | None]]:
        return [(v.property, v.node, v.id) for v in self.check(*properties).violations]


class Drama(Story):
    """A story in which nodes crash, restart and install views."""

    def crash(self, *nodes: int) -> Self:
        for node in nodes:
            self._add("crash", node, topic="")
        return self

    def restart(self, node: int) -> Self:
        self._add("restart", node, topic="")
        return self

    def view(self, epoch: int, members: int, *nodes: int) -> Self:
        for node in nodes:
            self._add("view", node, topic="", seq=epoch, members=members)
        return self

    def then(self, kind: Any, node: int, **fields: Any) -> Self:
        self._add(kind, node, **fields)
        return self

    def survivors(self) -> Self:
        """A is gone; B and C agree on that."""
        return self.crash(A).view(1, 0b110, B, C)
