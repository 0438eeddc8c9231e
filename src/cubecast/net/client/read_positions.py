"""How far a light client has read each stream, so that it can go on at another node.

The floors of a subscription are a causally closed cut: what its nodes delivered, and what lay
before the beginnings of its subscriptions there.  Hence, where the subscription begins anew:

1. Messages below the floors are not handed out again: they were, or their effects were.
2. Messages between the floors and the new beginning were missed; they are exactly known, because a
   node names all its streams, each with the next message (`Subscribed.positions`).
3. Each later message has all its causes below the floors, or handed out before it.

A stream that was read is *open* until the node says that it is over, with all of it sent (`Over`).

The missed messages are *exactly* known, except in these cases:

a. The former node ended without a word, the next one is not the same life of it, and it names no
   stream of the former one's slot (`names_one_of`): the dead node may have had messages that no
   other node has.
b. The next node has more than `MAX_POSITIONS` streams: it does not name all (`Subscribed.whole`).
c. The subscription has read more than `MAX_FLOORS` streams: the oldest floors are forgotten.
d. The next node is in another cluster: the streams of the former one are not there (`Moving`).
e. The client had no node for as long as nodes remember (`Subscribed.memory_s`): a node forgets a
   topic without subscribers, whose publisher then begins another stream, and the streams of
   publishers that are gone.  So there may have been streams that are not named now, and even the
   same node need not know how far a stream went.
f. The client had no node for a while, and the next one does not name every open stream
   (`are_named`): no other node had that stream, or it was forgotten sooner, as one of too many
   idle ones (`Config.idle_topics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from cubecast.net.wire.clients import MAX_POSITIONS, Position, StreamName
from cubecast.protocol.port import NodeId, Seq, Stream, Topic

MAX_FLOORS = 65_536
"""Streams of one subscription that are remembered; of more, the oldest are forgotten."""


class Floors:
    """The next message of each stream that one subscription has not handed out."""

    def __init__(self) -> None:
        self._next: dict[tuple[Topic, Stream], Seq] = {}
        self._open: set[tuple[Topic, Stream]] = set()
        self.exact = True
        """Whether no floor was forgotten."""

    def __getitem__(self, key: tuple[Topic, Stream]) -> Seq:
        return self._next.get(key, 0)

    def __setitem__(self, key: tuple[Topic, Stream], first: Seq) -> None:
        self._next[key] = first
        self._open.add(key)
        if len(self._next) > MAX_FLOORS:
            self.exact = False
            oldest = next(iter(self._next))
            del self._next[oldest]
            self._open.discard(oldest)

    def covers(self, positions: Iterable[Position]) -> bool:
        """Whether everything before these positions was handed out."""
        return all(self[_key(position)] >= position[3] for position in positions)

    def are_named(self, positions: Iterable[Position]) -> bool:
        """Whether positions name all open streams: else the end of one is not known."""
        return self._open <= {_key(position) for position in positions}

    def close(self, streams: Iterable[StreamName]) -> None:
        """Note streams of which everything was sent, and no more will come."""
        self._open.difference_update((topic, Stream(*stream)) for topic, *stream in streams)

    def close_all_but(self, positions: Iterable[Position]) -> None:
        """Note that streams without a position are over, or told as not known."""
        self._open &= {_key(position) for position in positions}

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


def names_one_of(positions: Iterable[Position], slot: NodeId) -> bool:
    """Whether positions name a stream of the node in a slot."""
    return any(source == slot for _, source, _, _ in positions)


def _key(position: Position) -> tuple[Topic, Stream]:
    topic, source, incarnation, _ = position
    return topic, Stream(source, incarnation)
