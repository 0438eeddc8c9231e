"""How far a light client has read each stream, so that it can go on at another node.

The floors of a subscription are a causally closed cut: what its nodes delivered, and what lay
before the beginnings of its subscriptions there.  Hence, where the subscription begins anew:

1. Messages below the floors are not handed out again: they were, or their effects were.
2. Messages between the floors and the new beginning were missed; they are exactly known, because a
   node names all its streams, each with the next message (`Subscribed.positions`).
3. Each later message has all its causes below the floors, or handed out before it.

The missed messages are *exactly* known, except in these cases:

a. The former node ended without a word, the next one is not the same life of it, and it names no
   stream of the former one's slot, or not every stream that was read (`are_known`): the dead node
   may have had messages that no other node has.
b. The next node has more than `MAX_POSITIONS` streams: it does not name all (`Subscribed.whole`).
c. The subscription has read more than `MAX_FLOORS` streams: the oldest floors are forgotten.
d. The next node is in another cluster: the streams of the former one are not there (`Moving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from cubecast.net.wire.clients import MAX_POSITIONS, Position
from cubecast.protocol.port import NodeId, Seq, Stream, Topic

MAX_FLOORS = 65_536
"""Streams of one subscription that are remembered; of more, the oldest are forgotten."""


class Floors:
    """The next message of each stream that one subscription has not handed out."""

    def __init__(self) -> None:
        self._next: dict[tuple[Topic, Stream], Seq] = {}
        self.exact = True
        """Whether no floor was forgotten."""

    def __getitem__(self, key: tuple[Topic, Stream]) -> Seq:
        return self._next.get(key, 0)

    def __setitem__(self, key: tuple[Topic, Stream], first: Seq) -> None:
        self._next[key] = first
        if len(self._next) > MAX_FLOORS:
            self.exact = False
            del self._next[next(iter(self._next))]

    def covers(self, positions: Iterable[Position]) -> bool:
        """Whether everything before these positions was handed out."""
        return all(self[_key(position)] >= position[3] for position in positions)

    def are_known(self, positions: Iterable[Position], slot: NodeId) -> bool:
        """Whether positions name all streams that were read, and one of the node in `slot`.

        No node names a stream that only a dead node had: the end of that stream is not known.
        """
        named = {_key(position) for position in positions}
        of_node = any(stream.source == slot for _, stream in named)
        return of_node and self._next.keys() <= named

    def raise_to(self, positions: Iterable[Position]) -> dict[Topic, dict[Stream, tuple[Seq, Seq]]]:
        """Go on at these positions; return what was missed, as first and last of each stream."""
        missed: dict[Topic, dict[Stream, tuple[Seq, Seq]]] = {}
        for position in positions:
            key, first = _key(position), position[3]
            floor = self[key]
            if floor < first:
                missed.setdefault(key[0], {})[key[1]] = floor, first - 1
            self[key] = max(floor, first)
        return missed

    def positions(self) -> Iterator[Position]:
        """The latest floors, as many as one packet takes."""
        latest = islice(reversed(self._next.items()), MAX_POSITIONS)
        return ((topic, *stream, first) for (topic, stream), first in latest)


def _key(position: Position) -> tuple[Topic, Stream]:
    topic, source, incarnation, _ = position
    return topic, Stream(source, incarnation)
