"""Ports that write down what the protocol says to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cubecast.protocol.config import Config
from cubecast.protocol.port import (
    Message,
    NodeId,
    Publication,
    Seq,
    Stream,
    Time,
    Topic,
)


class Page:
    """A port that writes down what its node says."""

    def __init__(self) -> None:
        self.delivered: list[Any] = []
        self.sent: list[tuple[NodeId, Any]] = []
        self.gaps: list[dict[Stream, tuple[Seq, Seq]]] = []
        self.discarded: list[dict[Stream, tuple[Seq, Seq]]] = []

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        self.sent += [(peer, message) for peer in peers]

    def control(self, peer: NodeId, message: Message) -> None:
        self.sent.append((peer, message))

    def deliver(self, publication: Publication) -> bool:
        self.delivered += publication.body
        return True

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self.gaps.append(dict(skipped))

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self.discarded.append(dict(dropped))

    def joined(self, topic: Topic) -> None: ...
    def left(self, topic: Topic) -> None: ...
    def writable(self, topic: Topic) -> None: ...
    def wake(self, at: Time) -> None: ...


CONFIG = Config(resend_after=100, resend_max=350, resend_burst=3)


class Wire:
    """A port that keeps what goes out, and the times asked for."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Message]] = []
        self.wakes: list[Time] = []

    def control(self, peer: NodeId, message: Message) -> None:
        self.sent.append((peer, message))

    def wake(self, at: Time) -> None:
        self.wakes.append(at)

    def take(self) -> list[tuple[NodeId, Message]]:
        sent, self.sent = self.sent, []
        return sent
