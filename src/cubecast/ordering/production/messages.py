"""What ordering modules of the production mode say to each other."""

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
    """What a subscriber has; of two versions the higher one counts."""

    subscriber: Member
    version: Version
    topics: tuple[Topic, ...]


# -- stamps ----------------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True, tag=True):
    """A publisher asks for the numbers of `count` events, its `first` and those after it.

    It needs nothing any more of those below `done`.
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
    """The manager of `high` lacks stamps that went there from `low`, up to a turn."""

    kind: ClassVar[str] = "repeat"
    epoch: Epoch
    turn: Turn
    taken: int
    """The last turn that it has had."""


class Confirm(msgspec.Struct, frozen=True, tag=True):
    """A manager asks a publisher whether the events of a request are published."""

    kind: ClassVar[str] = "confirm"
    by: Member
    epoch: Epoch
    topic: Topic
    life: int
    first: int


class Confirmed(msgspec.Struct, frozen=True, tag=True):
    """They are; or never will be, with these numbers."""

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
    """A subscriber's new subscription, for the managers of what it has and had, and successors."""

    kind: ClassVar[str] = "register"
    epoch: Epoch
    subscription: SubscriptionVersion


class Registered(msgspec.Struct, frozen=True, tag=True):
    """A manager knows the subscription; its clocks since then, of the topics that it manages."""

    kind: ClassVar[str] = "registered"
    epoch: Epoch
    version: Version
    by: Member
    clocks: Numbers


class Begin(msgspec.Struct, frozen=True, tag=True):
    """All managers know a subscription: from which numbers on do new topics begin?"""

    kind: ClassVar[str] = "begin"
    epoch: Epoch
    subscriber: Member
    version: Version
    topics: tuple[Topic, ...]


class Begun(msgspec.Struct, frozen=True, tag=True):
    """They begin above these numbers."""

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
