"""Messages between ordering modules in the production mode."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Number, Numbers, Topic

Epoch: TypeAlias = int
Version: TypeAlias = int


class Source(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A member in one of its lives: the time when it began, in milliseconds."""

    member: Member
    life: int


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """A stamp is the `count`-th that goes from the manager of `low` to that of `high`."""

    low: Topic
    high: Topic
    count: int


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of a topic, both ends included."""

    topic: Topic
    first: Number
    last: Number


class SubscriptionVersion(msgspec.Struct, frozen=True, array_like=True):
    """A subscriber's topics; of two versions the higher one counts."""

    subscriber: Member
    version: Version
    topics: tuple[Topic, ...]


# -- stamps ----------------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, tag=True):
    """A publisher asks for the numbers of `count` events, its `first` and those after it.

    It needs no answers any more for those below `done`.
    """

    kind: ClassVar[str] = "request"
    epoch: Epoch
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
    epoch: Epoch
    topic: Topic
    life: int
    first: int
    count: int
    number: Number
    higher: Numbers
    passed: Numbers


class Repeat(msgspec.Struct, frozen=True, tag=True):
    """Asks the manager of `low` for stamps that the one of `high` lacks, up to a turn."""

    kind: ClassVar[str] = "repeat"
    epoch: Epoch
    turn: Turn
    taken: int
    """The last turn that the manager of `high` has had."""


class Confirm(msgspec.Struct, frozen=True, tag=True):
    """A manager asks a publisher whether the events of a request are published."""

    kind: ClassVar[str] = "confirm"
    by: Member
    epoch: Epoch
    topic: Topic
    life: int
    first: int


class Confirmed(msgspec.Struct, frozen=True, tag=True):
    """Tells that the events of a request are published, or never will be with these numbers."""

    kind: ClassVar[str] = "confirmed"
    epoch: Epoch
    topic: Topic
    source: Source
    first: int
    used: bool


class Inquire(msgspec.Struct, frozen=True, tag=True):
    """A subscriber waits for these numbers."""

    kind: ClassVar[str] = "inquire"
    epoch: Epoch
    subscriber: Member
    numbers: Range


class Void(msgspec.Struct, frozen=True, tag=True):
    """No event has these numbers (hole T7)."""

    kind: ClassVar[str] = "void"
    epoch: Epoch
    numbers: tuple[Range, ...]


# -- subscriptions ---------------------------------------------------------------------------------


class Register(msgspec.Struct, frozen=True, tag=True):
    """A new subscription, for the managers of its old and new topics, and their successors."""

    kind: ClassVar[str] = "register"
    epoch: Epoch
    subscription: SubscriptionVersion


class Registered(msgspec.Struct, frozen=True, tag=True):
    """Tells that a manager knows the subscription, with its topics' clocks since then."""

    kind: ClassVar[str] = "registered"
    epoch: Epoch
    version: Version
    by: Member
    clocks: Numbers


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Asks, once all managers know a subscription, for the first numbers of its new topics."""

    kind: ClassVar[str] = "begin"
    epoch: Epoch
    subscriber: Member
    version: Version
    topics: tuple[Topic, ...]


class Begun(msgspec.Struct, frozen=True, tag=True):
    """Tells the numbers above which new topics begin."""

    kind: ClassVar[str] = "begun"
    epoch: Epoch
    version: Version
    by: Member
    clocks: Numbers


ProductionMessage: TypeAlias = (
    Request
    | Fill
    | Stamped
    | Repeat
    | Confirm
    | Confirmed
    | Inquire
    | Void
    | Register
    | Registered
    | Begin
    | Begun
)
