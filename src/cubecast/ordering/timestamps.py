"""Timestamps of events: a number for some topics, in the order of the topics ([T] Definitions 1-3).

A timestamp has an entry for the topic of its event, and for topics before that one which share
subscriptions with it.  Its entries are in the order of the topics, the highest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

Topic: TypeAlias = str
Number: TypeAlias = int

EMPTY: Number = -1
"""An entry that no manager has filled in; the paper's bottom, below every number."""


class Timestamp(Mapping[Topic, Number]):
    """An immutable timestamp."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Mapping[Topic, Number] | Iterable[tuple[Topic, Number]]) -> None:
        self._numbers: dict[Topic, Number] = dict(numbers)

    def __getitem__(self, topic: Topic) -> Number:
        return self._numbers[topic]

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __hash__(self) -> int:
        return hash(tuple(self._numbers.items()))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{topic}:{n}" for topic, n in self._numbers.items()) + "}"

    def filled(self, topic: Topic, number: Number) -> Timestamp:
        """The same with another number for one topic; its place stays."""
        return Timestamp({**self._numbers, topic: number})

    def before(self, topic: Topic) -> Topic | None:
        """The topic in front of `topic`; None if it is the first (`next` of [T] 3.2)."""
        found: Topic | None = None
        for one in self._numbers:
            if one == topic:
                return found
            found = one
        raise KeyError(topic)

    @property
    def last(self) -> Topic:
        """The lowest topic, where filling in begins."""
        return next(reversed(self._numbers))


Numbers: TypeAlias = tuple[tuple[Topic, Number], ...]


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """The place of an event in production: its number, and what comes before it in other topics.

    `higher`: the numbers of topics before its own as the event's stamp passed their managers.
    `passed`: the last numbers of topics after its own that passed its manager since the event
    before it.  A subscriber of those topics gets both before the event, if it can wait.
    """

    topic: Topic
    number: Number
    higher: Numbers = ()
    passed: Numbers = ()
    epoch: int = 0
    """The layout under which it was numbered; numbers begin again with each."""


def comparable(one: Mapping[Topic, Number], other: Mapping[Topic, Number]) -> bool:
    """Whether two timestamps share a topic ([T] Definition 2)."""
    return not one.keys().isdisjoint(other.keys())


def smaller(one: Mapping[Topic, Number], other: Mapping[Topic, Number]) -> bool:
    """Whether no common number of `one` is above that of `other`, and some is below.

    [T] Definition 3, with its condition 2 read as "for all common topics": its own example compares
    timestamps of different topics.  The relation is not transitive.
    """
    common = one.keys() & other.keys()
    return all(one[topic] <= other[topic] for topic in common) and any(
        one[topic] < other[topic] for topic in common
    )
