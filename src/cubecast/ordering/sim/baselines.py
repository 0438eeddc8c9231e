"""Baselines for order across topics, as modules of the same world.

*Bare*: the event service alone.  *Per topic*: each topic's manager numbers its events, and
subscribers notify them in that order; nothing orders events of two topics.  *One sequencer*: all
events of all topics go through one member, as in one group of JGroups with SEQUENCER over TCP
([T] 6.2): it numbers them and sends each to every member, which drops unwanted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

import msgspec

from cubecast.ordering.effects import (
    Cause,
    Effect,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    SubscribeCall,
    Time,
    UnsubscribeCall,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Number, Timestamp, Topic


class ToSequencer(msgspec.Struct, frozen=True, tag="Forward"):
    """An event on its way to the node that numbers it."""

    kind: ClassVar[str] = "forward"
    topic: Topic
    payload: object


class Numbered(msgspec.Struct, frozen=True, tag=True):
    """An event of the single sequencer, on its way to a member."""

    kind: ClassVar[str] = "numbered"
    topic: Topic
    payload: object
    number: Number


class BareModule:
    """Events in the order of the service."""

    def __init__(
        self,
        name: Member,
        topics: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
    ) -> None:
        self._manager_of = manager_of

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        match cause:
            case PublishCall():
                return [ServicePublish(cause.topic, cause.payload, Timestamp({}))]
            case SubscribeCall():
                return [ServiceSubscribe(cause.topic)]
            case UnsubscribeCall():
                return [ServiceUnsubscribe(cause.topic)]
            case ServiceNotified():
                return [Notify(cause.topic, cause.payload, cause.timestamp, True)]
            case _:
                return []


class TopicSequencerModule(BareModule):
    """One sequencer for each topic: its manager."""

    def __init__(
        self,
        name: Member,
        topics: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
    ) -> None:
        super().__init__(name, topics, manager_of, managed)
        self._numbers: dict[Topic, Number] = {}
        self._next: dict[Topic, Number] = {}
        self._early: dict[tuple[Topic, Number], ServiceNotified] = {}

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        match cause:
            case PublishCall():
                forward = ToSequencer(cause.topic, cause.payload)
                return [SendToModule(self._manager_of(cause.topic), forward)]
            case ReceivedFromModule(message=ToSequencer() as forward):
                number = self._numbers[forward.topic] = self._numbers.get(forward.topic, 0) + 1
                stamp = Timestamp({forward.topic: number})
                return [ServicePublish(forward.topic, forward.payload, stamp)]
            case ServiceNotified():
                return self._arrive(cause)
        return super().step(cause, now)

    def _arrive(self, event: ServiceNotified) -> list[Effect]:
        """Notify events of a topic by their numbers; an early one waits."""
        assert isinstance(event.timestamp, Timestamp)
        topic = event.topic
        self._early[topic, event.timestamp[topic]] = event
        due = self._next.get(topic, 1)
        effects: list[Effect] = []
        while (one := self._early.pop((topic, due), None)) is not None:
            effects.append(Notify(topic, one.payload, one.timestamp, True))
            due += 1
        self._next[topic] = due
        return effects


class SequencerModule(BareModule):
    """One sequencer for all topics; events do not use the service."""

    def __init__(
        self,
        name: Member,
        topics: Sequence[Topic],
        manager_of: Callable[[Topic], Member],
        managed: Collection[Topic] = (),
        *,
        members: Sequence[Member],
    ) -> None:
        """The first of `members` is the sequencer; all of them get every event."""
        super().__init__(name, topics, manager_of, managed)
        self._members = members
        self._number: Number = 0
        self._wanted: set[Topic] = set()
        self._due: Number = 1
        self._early: dict[Number, Numbered] = {}

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        match cause:
            case PublishCall():
                return [SendToModule(self._members[0], ToSequencer(cause.topic, cause.payload))]
            case ReceivedFromModule(message=ToSequencer() as forward):
                self._number += 1
                numbered = Numbered(forward.topic, forward.payload, self._number)
                return [SendToModule(one, numbered) for one in self._members]
            case ReceivedFromModule(message=Numbered() as numbered):
                return self._arrive(numbered)
            case SubscribeCall():
                self._wanted.add(cause.topic)
                return []
            case UnsubscribeCall():
                self._wanted.discard(cause.topic)
                return []
        return []

    def _arrive(self, event: Numbered) -> list[Effect]:
        self._early[event.number] = event
        effects: list[Effect] = []
        while (one := self._early.pop(self._due, None)) is not None:
            self._due += 1
            if one.topic in self._wanted:
                stamp = Timestamp({"*": one.number})
                effects.append(Notify(one.topic, one.payload, stamp, True))
        return effects
