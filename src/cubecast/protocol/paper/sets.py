"""The sets of the listings: message names ⟨s, c⟩, and messages that wait for a predecessor.

The listings go through whole sets.  A large simulation cannot, so these classes find the same
elements with less work; each docstring says why they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeAlias, TypeVar

from cubecast.protocol.port import NodeId, Seq
from cubecast.topology import members_of

Ident: TypeAlias = tuple[NodeId, Seq]
"""⟨s, c⟩: source and counter, the name of a message."""

BOTTOM: NodeId = -1
"""⊥ in the place of a node."""
NEVER: Seq = -1
"""In the place of a counter: the set has no ⟨s, _⟩.  It is below every counter."""


class Idents(dict[Seq, int]):
    """A set of ⟨s, c⟩, kept as {c: bit mask of the sources s}.

    Sources that have published equally often share an entry, so that a barrier of many messages
    costs a few operations on whole numbers.
    """

    __slots__ = ()

    def add(self, source: NodeId, counter: Seq) -> None:
        """This ∪ {⟨source, counter⟩}."""
        self[counter] = self.get(counter, 0) | 1 << source

    def remove(self, sources: int, counter: Seq) -> None:
        """This ∖ {⟨s, counter⟩ : s in sources}; they are all here."""
        rest = self[counter] ^ sources
        if rest:
            self[counter] = rest
        else:
            del self[counter]

    def subtract(self, others: Idents) -> None:
        """This ∖ others."""
        for counter, sources in others.items():
            common = sources & self.get(counter, 0)
            if common:
                self.remove(common, counter)

    def without(self, others: Idents) -> Iterator[Ident]:
        """The elements of this ∖ others."""
        for counter, sources in self.items():
            rest = sources ^ (sources & others.get(counter, 0))
            while rest:
                source = rest.bit_length() - 1
                yield source, counter
                rest ^= 1 << source

    def count(self) -> int:
        """How many messages are in the set."""
        return sum(sources.bit_count() for sources in self.values())

    def idents(self) -> list[Ident]:
        """The messages, in order."""
        return sorted(
            (source, counter) for counter, sources in self.items() for source in members_of(sources)
        )


class MessageWithBarrier(Protocol):
    """A message with a name and a barrier."""

    @property
    def ident(self) -> Ident: ...
    @property
    def cb(self) -> Idents: ...


M = TypeVar("M", bound=MessageWithBarrier)
T = TypeVar("T")


class Held(Generic[M]):
    """Messages that were received and wait for a predecessor: *not_delvs* and *msgs* of [J].

    A message that lacks a predecessor is filed under the source of the predecessor, and is not
    looked at before something changes for that source: until then its barrier cannot be met.  So
    `first` finds a message if and only if a search of the whole set does, and it finds the
    earliest.
    """

    __slots__ = ("_arrivals", "filed", "messages", "ready")

    def __init__(self) -> None:
        self.messages: dict[Ident, M] = {}
        self.ready: list[tuple[int, M]] = []
        """A heap, by arrival, of the messages to look at."""
        self.filed: dict[NodeId, list[tuple[int, M]]] = {}
        self._arrivals = 0

    def add(self, message: M) -> None:
        """Keep a message, after those that are here already."""
        self.messages[message.ident] = message
        self._arrivals += 1
        heappush(self.ready, (self._arrivals, message))

    def first(self, lacking: Callable[[T, Idents], NodeId], topic: T) -> M | None:
        """The earliest arrival whose barrier is met; None if there is no such message.

        `lacking` returns the source of a message that the barrier lacks, or `BOTTOM`.  The caller
        removes the message.
        """
        while self.ready:
            item = heappop(self.ready)
            source = lacking(topic, item[1].cb)
            if source == BOTTOM:
                return item[1]
            self.filed.setdefault(source, []).append(item)
        return None

    def remove(self, message: M) -> None:
        """Remove a message that `first` has found."""
        del self.messages[message.ident]

    def touch(self, source: NodeId) -> None:
        """Look again at messages that waited for `source`: one was delivered, or never comes."""
        for item in self.filed.pop(source, ()):
            heappush(self.ready, item)

    def clear(self) -> None:
        """Drop everything."""
        self.messages.clear()
        self.ready.clear()
        self.filed.clear()
