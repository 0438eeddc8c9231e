"""Messages of managers that change the layout, and that tell members of it."""

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
    """The end of an epoch: its last numbers (hole T12)."""

    epoch: Epoch
    counts: Numbers
    """A topic that is not there has no event, if its manager is not lost."""
    void: tuple[Range, ...]
    lost: tuple[Member, ...]
    """Managers that were lost before they told their last numbers."""

    def of(self, topics: Container[Topic]) -> EpochEnd:
        """The part for a subscriber of these topics."""
        counts = tuple(one for one in self.counts if one[0] in topics)
        void = tuple(one for one in self.void if one.topic in topics)
        return EpochEnd(self.epoch, counts, void, self.lost)


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Tells that a manager lives, and which layout it has open."""

    kind: ClassVar[str] = "beat"
    manager: Source
    epoch: Epoch
    promised: Epoch
    """The manager numbers no events below this epoch."""
    leaving: bool


class Rerank(msgspec.Struct, frozen=True, tag=True):
    """Asks for new ranks: a lower topic than the manager's own has many more events."""

    kind: ClassVar[str] = "rerank"
    epoch: Epoch


class Close(msgspec.Struct, frozen=True, tag=True):
    """Asks managers, for the maker of a layout, to number no events in older epochs."""

    kind: ClassVar[str] = "close"
    epoch: Epoch
    """The epoch of the next layout."""
    maker: Member
    living: tuple[Member, ...]


class EpochClosed(msgspec.Struct, frozen=True, tag="Closed"):
    """Tells that a manager has stopped and its stamps are complete, with its state."""

    kind: ClassVar[str] = "closed"
    epoch: Epoch
    manager: Source
    last: Epoch
    """The epoch that it had open."""
    managers: tuple[Source, ...]
    """The managers of that epoch."""
    counts: Numbers
    void: tuple[Range, ...]
    subscriptions: tuple[SubscriptionVersion, ...]
    closings: tuple[EpochEnd, ...]
    """The ends of earlier epochs, as far as it knows them."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Opens a layout."""

    kind: ClassVar[str] = "open"
    layout: Layout
    closings: tuple[EpochEnd, ...]
    known: Version
    """The version of the receiver's subscription that managers know."""
    subscriptions: tuple[SubscriptionVersion, ...] = ()
    """All subscriptions, for managers."""


class AskLayout(msgspec.Struct, frozen=True, tag="Ask"):
    """Asks a manager for the layout."""

    kind: ClassVar[str] = "ask"
    member: Member
    epoch: Epoch
    """The last epoch that the member knows."""


Notice: TypeAlias = Beat | Rerank | Close | EpochClosed | Open | AskLayout
AnyMessage: TypeAlias = ProductionMessage | Notice
