"""Layouts: which member manages which topic, and which of two topics is the higher one.

Every stamp belongs to one layout, by its epoch.  A layout is complete: it ranks all topics, and it
names a manager for each ([T] 5 infers an order from timestamps, hole T9).  Two layouts have
different epochs, also if two members make them at once without knowing of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from zlib import crc32

import msgspec

from cubecast.ordering.messages import Member
from cubecast.ordering.production.messages import Source
from cubecast.ordering.ranking import Ranking
from cubecast.ordering.timestamps import Topic

MAKER_BITS = 31
LIFE_BITS = 10  # a life is a time in milliseconds, a round about as long as a second


class Layout(msgspec.Struct, frozen=True, dict=True):
    """The managers of topics, in one epoch."""

    epoch: int
    maker: Member
    managers: tuple[Source, ...]
    first: tuple[Topic, ...] = ()
    """The topics of the highest ranks; all others follow by their names (`Ranking`)."""
    pinned: tuple[tuple[Topic, Member], ...] = ()
    """Topics with a manager of their own, as long as it lives."""
    spread: int = 0
    """How many managers, from the first on, share the topics; the others stand by.  0: all do."""

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking(self.first)

    @cached_property
    def names(self) -> tuple[Member, ...]:
        return tuple(manager.member for manager in self.managers)

    @cached_property
    def _pins(self) -> dict[Topic, Member]:
        managers = set(self.names)
        return {topic: member for topic, member in self.pinned if member in managers}

    def manager_of(self, topic: Topic) -> Member:
        pinned = self._pins.get(topic)
        return pinned or self._active[crc32(topic.encode()) % len(self._active)]

    @cached_property
    def _active(self) -> tuple[Member, ...]:
        return self.names[: self.spread] if self.spread else self.names

    @cached_property
    def has_one_manager(self) -> bool:
        """Whether all topics have the same manager: then stamps visit no other."""
        return len({*self._active, *self._pins.values()}) == 1

    def managers_of(self, topics: Iterable[Topic]) -> set[Member]:
        return {self.manager_of(topic) for topic in topics}

    def with_successors(self, members: Iterable[Member], copies: int) -> set[Member]:
        """These managers, and after each the next `copies` ones."""
        names = self.names
        found: set[Member] = set()
        for member in members:
            place = names.index(member)
            found.update(names[(place + step) % len(names)] for step in range(copies + 1))
        return found


def next_epoch(known: int, maker: Source) -> int:
    """An epoch above a known one, which no other maker has.

    The life of a maker is a time: so a cluster of which nothing has survived goes on above the
    epoch that it had reached.
    """
    round_number = max((known >> MAKER_BITS) + 1, maker.life >> LIFE_BITS)
    made_by = crc32(f"{maker.member}/{maker.life}".encode()) >> 1
    return round_number << MAKER_BITS | made_by
