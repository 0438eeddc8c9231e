"""What a node knows of a topic (`Node.explain`), in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

_STANDING = {
    "out": "not subscribed",
    "joining": "about to be subscribed",
    "in": "subscribed",
    "leaving": "about to be unsubscribed",
}


class _Wait(msgspec.Struct):
    stream: str
    seq: int
    for_stream: str
    for_seq: int
    delivered: int
    waited: int


class _Facts(msgspec.Struct):
    standing: str
    informed: bool
    members: list[int] = []
    next: int = 0
    in_flight: int = 0
    held: int = 0
    waiting: list[_Wait] = []
    missing: dict[str, int] = {}
    behind: dict[int, int] = {}


def explained(topic: str, node: int, answer: dict[str, Any]) -> Iterator[str]:
    """The facts of one node and topic, a line each; the last line is the verdict."""
    facts = msgspec.convert(answer, _Facts)
    standing = _STANDING.get(facts.standing, facts.standing)
    others = ", ".join(str(slot) for slot in facts.members if slot != node) or "nobody"
    known = f"others subscribed: {others}" if facts.informed else "it does not know who else is"
    yield f"{topic} at node {node}: {standing}; {known}"
    if facts.next:
        yield f"published here: {facts.next} messages, {facts.in_flight} bytes not consumed by all"
    for slot, count in sorted(facts.behind.items()):
        who = "readers at this node are" if slot == node else f"node {slot} or those below it are"
        yield f"  {who} {count} messages behind"
    for wait in facts.waiting:
        yield (
            f"waits: message {wait.seq} of node {_node(wait.stream)} for message {wait.for_seq} of "
            f"node {_node(wait.for_stream)} (here up to {wait.delivered}), "
            f"for {wait.waited / 1e6:.3f} s"
        )
    for stream, seq in facts.missing.items():
        yield f"missing: message {seq} of node {_node(stream)}; later ones are here"
    if facts.held:
        yield f"held back: {facts.held} bytes"
    if not (facts.waiting or facts.missing or facts.behind):
        yield "nothing waits"


def _node(stream: str) -> str:
    return stream.partition(".")[0]
