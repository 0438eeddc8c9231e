"""Retained values: the newest message of a topic, kept for later subscribers.

The core does not look into a value and keeps none.  The world has a `ValueKeeper`; the answer to a
JOIN carries the value that it keeps of the topic, and of two values the one with the higher `stamp`
goes on.

1. A node answers a JOIN with its vector and its value in one step.  So the value is at or below the
   newcomer's cut: everything that is delivered to the newcomer afterwards is above it, and no cause
   of the value.
2. An answer goes on with a value only if the keeper of the node that receives it `believes` it.
   So a value that no newcomer would keep hides no other value.
3. `learn` is called before `Port.joined`, so the value can be handed out before the first message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic


class RetainedValue(msgspec.Struct, frozen=True):
    """A message that is kept: its place in its stream, its time, and its bytes."""

    source: NodeId
    incarnation: int
    seq: Seq
    time: Time
    blob: bytes

    @property
    def stream(self) -> Stream:
        """The stream that it was published in."""
        return Stream(self.source, self.incarnation)

    @property
    def stamp(self) -> tuple[Time, NodeId, int, Seq]:
        """Its place in the order of values, which is total: no two messages have the same."""
        return self.time, self.source, self.incarnation, self.seq


class ValueKeeper(Protocol):
    """The store of the retained values of one node."""

    def kept(self, topic: Topic) -> RetainedValue | None: ...
    def topics(self) -> Iterable[Topic]: ...
    def believes(self, value: RetainedValue) -> bool: ...
    def learn(self, topic: Topic, value: RetainedValue) -> None: ...


class _NothingKept:
    """The keeper of a world without retained values."""

    def kept(self, topic: Topic) -> RetainedValue | None:
        return None

    def topics(self) -> Iterable[Topic]:
        return ()

    def believes(self, value: RetainedValue) -> bool:
        return False

    def learn(self, topic: Topic, value: RetainedValue) -> None:
        pass


NOTHING_KEPT: ValueKeeper = _NothingKept()


def newer(one: RetainedValue | None, other: RetainedValue | None) -> RetainedValue | None:
    """The value with the higher stamp."""
    if one is None or other is None:
        return other if one is None else one
    return one if one.stamp >= other.stamp else other
