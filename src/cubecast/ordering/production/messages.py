"""What ordering modules of the production mode say to each other."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Number, Numbers, Topic


class Source(msgspec.Struct, frozen=True, array_like=True):
    """Who publishes: a node in one of its lives."""

    member: Member
    life: int


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """A stamp is the `count`-th that goes from the manager of `low` to that of `high`."""

    low: Topic
    high: Topic
    count: int


class Earlier(msgspec.Struct, frozen=True, array_like=True):
    """Events of a topic up to `number` come before those of a higher one that have no number yet.

    They passed its manager, or their stamps do not name it.
    """

    topic: Topic
    higher: Topic
    number: Number


class Request(msgspec.Struct, frozen=True, tag=True):
    """A publisher asks for the numbers of `count` events, its `first` and those after it.

    It needs nothing any more of those below `done`.
    """

    kind: ClassVar[str] = "request"
    topic: Topic
    source: Source
    first: int
    count: int
    done: int


class Fill(msgspec.Struct, frozen=True, tag=True):
    """Stamps on their way through the managers of higher topics, the lowest of them first."""

    kind: ClassVar[str] = "fill"
    request: Request
    at: Topic
    number: Number
    left: tuple[Topic, ...]
    """The topics that are still to be visited, the next one last."""
    higher: Numbers
    passed: Numbers
    turns: tuple[Turn, ...]


class Stamped(msgspec.Struct, frozen=True, tag=True):
    """The stamps are complete: numbers from `number` on."""

    kind: ClassVar[str] = "stamped"
    topic: Topic
    life: int
    first: int
    count: int
    number: Number
    higher: Numbers
    passed: Numbers


class Register(msgspec.Struct, frozen=True, tag=True):
    """A subscriber's new subscription, on its way through the managers, the highest topic first.

    It visits the topics that it has or had.  Each manager that it passes adds its clock.
    """

    kind: ClassVar[str] = "register"
    subscriber: Member
    version: int
    topics: tuple[Topic, ...]
    at: Topic
    left: tuple[Topic, ...]
    """The topics that are still to be visited, the next one last."""
    clocks: Numbers
    earlier: tuple[Earlier, ...] = ()


class Registered(msgspec.Struct, frozen=True, tag=True):
    """All managers know the subscription; their clocks as it passed them."""

    kind: ClassVar[str] = "registered"
    version: int
    clocks: Numbers
    earlier: tuple[Earlier, ...]


ProductionMessage: TypeAlias = Request | Fill | Stamped | Register | Registered
