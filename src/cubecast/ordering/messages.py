"""Messages between ordering modules, from point to point ([T] Figures 5, 7 and 8)."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from cubecast.ordering.timestamps import Number, Topic

Entries: TypeAlias = tuple[tuple[Topic, Number], ...]
"""A timestamp on its way."""
Member: TypeAlias = str
"""The name of a node: where its ordering module can be reached."""


class CreateTimestamp(msgspec.Struct, frozen=True, tag=True):
    """CREATE_PUB_TS: a publisher asks the manager of a topic for a timestamp of its event."""

    kind: ClassVar[str] = "create"
    topic: Topic
    publisher: Member
    event: int


class FillTimestamp(msgspec.Struct, frozen=True, tag=True):
    """FILL_IN_PUB_TS: a timestamp on its way to the manager of `at`, from low topics to high."""

    kind: ClassVar[str] = "fill"
    topic: Topic
    publisher: Member
    event: int
    at: Topic
    entries: Entries


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The timestamp of an event is complete; the message's name is lost in the paper's text."""

    kind: ClassVar[str] = "completed"
    topic: Topic
    event: int
    entries: Entries


class FillSubscription(msgspec.Struct, frozen=True, tag=True):
    """FILL_IN_SUB_TS: a subscriber's new subscription, on its way through the managers of it."""

    kind: ClassVar[str] = "fill-subscription"
    subscriber: Member
    wanted: Topic
    at: Topic
    topics: tuple[Topic, ...]
    entries: Entries


class SubscriptionCompleted(msgspec.Struct, frozen=True, tag=True):
    """COMPLETED_SUB_VC: all managers know the subscription; carries its first clock."""

    kind: ClassVar[str] = "subscription-completed"
    wanted: Topic
    entries: Entries


class UpdateSubscription(msgspec.Struct, frozen=True, tag=True):
    """UPDATE_SUB: a subscriber's topics from now on; none: it has left `at`."""

    kind: ClassVar[str] = "update-subscription"
    subscriber: Member
    at: Topic
    topics: tuple[Topic, ...]


class Free(msgspec.Struct, frozen=True, tag=True):
    """An event's timestamp is complete: managers it passed need not keep it any more ([T] 5)."""

    kind: ClassVar[str] = "free"
    publisher: Member
    event: int
    at: Topic
    topics: tuple[Topic, ...]


class RequestSwap(msgspec.Struct, frozen=True, tag=True):
    """A manager asks that its topic and a lower one change places ([T] 5, dynamic order)."""

    kind: ClassVar[str] = "request-swap"
    topic: Topic
    lower: Topic


class NewOrder(msgspec.Struct, frozen=True, tag=True):
    """The order of topics from epoch `epoch` on; it visits all managers, the lowest first.

    The lowest of the order that it replaces: the proof of [T] 5 has a swap of T1 and T2 delivered
    at T5, T4, T3, T2, T1.
    """

    kind: ClassVar[str] = "new-order"
    epoch: int
    at: Topic
    order: tuple[Topic, ...]
    left: tuple[Topic, ...] = ()
    """The topics that are still to be visited, the next one last."""


Message: TypeAlias = (
    CreateTimestamp
    | FillTimestamp
    | Completed
    | FillSubscription
    | SubscriptionCompleted
    | UpdateSubscription
    | Free
    | RequestSwap
    | NewOrder
)
