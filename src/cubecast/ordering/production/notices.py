"""What managers say to each other to change the layout, and what they tell others of it."""

from __future__ import annotations

from collections.abc import Container
from typing import ClassVar, TypeAlias

import msgspec

from cubecast.ordering.messages import Member
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import (
    Epoch,
    ProductionMessage,
    Range,
    Source,
    SubscriptionVersion,
    Version,
)
from cubecast.ordering.timestamps import Numbers, Topic

UNKNOWN: Version = -1
"""The version of a subscription that a manager does not know."""


class EpochEnd(msgspec.Struct, frozen=True, array_like=True):
    """How an epoch ended: its last numbers (hole T12)."""

    epoch: Epoch
    counts: Numbers
    """A topic that is not there has no event, if its manager is not lost."""
    void: tuple[Range, ...]
    lost: tuple[Member, ...]
    """Managers that did not live to say how far they were."""

    def of(self, topics: Container[Topic]) -> EpochEnd:
        """What a subscriber of these topics needs."""
        counts = tuple(one for one in self.counts if one[0] in topics)
        void = tuple(one for one in self.void if one.topic in topics)
        return EpochEnd(self.epoch, counts, void, self.lost)


class Beat(msgspec.Struct, frozen=True, tag=True):
    """A manager lives, and has a layout open."""

    kind: ClassVar[str] = "beat"
    manager: Source
    epoch: Epoch
    promised: Epoch
    """It numbers nothing below this."""
    leaving: bool


class Rerank(msgspec.Struct, frozen=True, tag=True):
    """A manager asks for new ranks: a lower topic than its own has many more events."""

    kind: ClassVar[str] = "rerank"
    epoch: Epoch


class Close(msgspec.Struct, frozen=True, tag=True):
    """A manager that makes a layout asks others to number nothing more in older epochs."""

    kind: ClassVar[str] = "close"
    epoch: Epoch
    """Of the layout that is to come."""
    maker: Member
    living: tuple[Member, ...]


class EpochClosed(msgspec.Struct, frozen=True, tag="Closed"):
    """A manager has stopped; its stamps are complete, and this is what it knew."""

    kind: ClassVar[str] = "closed"
    epoch: Epoch
    manager: Source
    last: Epoch
    """The epoch that it had open."""
    managers: tuple[Source, ...]
    """Those of that epoch."""
    counts: Numbers
    void: tuple[Range, ...]
    subscriptions: tuple[SubscriptionVersion, ...]
    closings: tuple[EpochEnd, ...]
    """How earlier epochs ended, as far as it knows."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """A layout from now on."""

    kind: ClassVar[str] = "open"
    layout: Layout
    closings: tuple[EpochEnd, ...]
    known: Version
    """The receiver's subscription, as managers know it."""
    subscriptions: tuple[SubscriptionVersion, ...] = ()
    """All of them, for managers."""


class AskLayout(msgspec.Struct, frozen=True, tag="Ask"):
    """A member asks a manager for the layout."""

    kind: ClassVar[str] = "ask"
    member: Member
    epoch: Epoch
    """The last that it knows."""


Notice: TypeAlias = Beat | Rerank | Close | EpochClosed | Open | AskLayout
AnyMessage: TypeAlias = ProductionMessage | Notice
