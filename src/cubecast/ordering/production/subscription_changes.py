"""Changes of a subscription: one at a time, with versions (hole T8).

| state | what happens | next |
|---|---|---|
| *at rest* | the application wants other topics | `Register` to managers: *registering* |
| *registering* | all managers and their successors have answered | *naming* |
| *naming* | events that may not name new topics were notified, or given up | `Begin`: *beginning* |
| *beginning* | the managers of new topics have answered | the topics are ours: *at rest* |
| any | a new layout | *registering*, there; *at rest* if all was known |

*Why in this order.*  A stamp that is numbered when all managers know the subscription names each
pair of its topics.  Events of our present topics that were numbered before, and may not name a new
topic, come first: a new topic begins only when they were notified here.  So every event that we are
notified of names the higher topics that we are notified of, except topics that begin after it.
[T] Figure 7 asks managers one after the other, lowest topic last; a swap in between breaks that
(T15).  Here order does not matter: all are asked at once, and no answer is used before all came.

The service gets the subscription before that, so no event above the number where the topic begins
is missed (T7).
"""

from __future__ import annotations

from enum import Enum

from cubecast.ordering.effects import Effect, SendToModule, Time, WakeAt
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Timing, WaitingBounds
from cubecast.ordering.production.front import Front
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import (
    Begin,
    Begun,
    Register,
    Registered,
    Source,
    SubscriptionVersion,
    Version,
)
from cubecast.ordering.timestamps import Number, Topic


class ChangeState(Enum):
    """The state of a change of the subscription."""

    AT_REST = "at rest"
    REGISTERING = "registering"
    NAMING = "naming"
    BEGINNING = "beginning"


class Changes:
    """The subscription of one member: wanted topics, registered topics, the change under way."""

    def __init__(self, me: Source, timing: Timing, waiting: WaitingBounds, copies: int) -> None:
        self._me = me
        self._timing = timing
        self._wait_for = waiting.wait_for
        self._copies = copies
        self.state = ChangeState.AT_REST
        self.wanted: set[Topic] = set()
        """The topics that the application wants."""
        self.registered: frozenset[Topic] = frozenset()
        """The topics that all managers know."""
        self.version: Version = me.life << 20
        """Above those of earlier lives: a life has fewer changes than that."""
        self._target: frozenset[Topic] = frozenset()
        self._new: frozenset[Topic] = frozenset()
        """Topics that begin with the change under way."""
        self._missing: set[Member] = set()
        """Managers that have not answered."""
        self._clocks: dict[Topic, Number] = {}
        self._until: Time | None = None
        """When we ask again, or stop waiting for events that may not name new topics."""
        self._renew_at: Time | None = None

    @property
    def waiting_for(self) -> set[Member]:
        """Managers that have not answered in the change under way."""
        return (
            self._missing
            if self.state in (ChangeState.REGISTERING, ChangeState.BEGINNING)
            else set()
        )

    def want(self, topic: Topic) -> None:
        self.wanted.add(topic)

    def want_no_more(self, topic: Topic) -> None:
        """Leave a topic; if it is wanted again, it begins again, as some events are not ours."""
        self.wanted.discard(topic)
        self._new -= {topic}

    def look(self, front: Front, now: Time) -> list[Effect]:
        """Begin a change if one is needed, and continue the one under way."""
        if self.state is ChangeState.AT_REST and not self._is_settled(front):
            self.version += 1
            return self._begin_to_register(front, now)
        if self.state is ChangeState.NAMING and self._is_named(front):
            return self._begin_topics(front, now)
        return []

    def _is_settled(self, front: Front) -> bool:
        return self.wanted == self.registered == front.done.keys()

    def restart(self, front: Front, known: Version, now: Time) -> list[Effect]:
        """Register in a new layout, if our subscription is new to its managers.

        They may know a later life of this member, if its clock went back since.
        """
        if known > self.version:
            self.version = known + 1
        if self.state is ChangeState.AT_REST and (known == self.version or not self._has_any()):
            return self.look(front, now)
        self.state = ChangeState.AT_REST
        self.version += 1
        return self._begin_to_register(front, now)

    def _has_any(self) -> bool:
        return bool(self.wanted or self.registered)

    # -- registering -----------------------------------------------------------------------------

    def _begin_to_register(self, front: Front, now: Time) -> list[Effect]:
        self.state = ChangeState.REGISTERING
        self._target = frozenset(self.wanted)
        self._clocks = {}
        topics = self._target | self.registered | front.done.keys()
        if not topics:  # no manager need know us
            self.registered = self._target
            self.state, self._until = ChangeState.AT_REST, None
            return []
        managers = front.layout.managers_of(topics)
        self._missing = front.layout.with_successors(managers, self._copies)
        return self._register(front.layout, now)

    def _register(self, layout: Layout, now: Time) -> list[Effect]:
        mine = SubscriptionVersion(self._me.member, self.version, tuple(sorted(self._target)))
        register = Register(layout.epoch, mine)
        effects: list[Effect] = [SendToModule(member, register) for member in sorted(self._missing)]
        return [*effects, *self._wake_after(self._timing.retry_after, now)]

    def _wake_after(self, time: Time | None, now: Time) -> list[Effect]:
        self._until = None if time is None else now + time
        return [] if self._until is None else [WakeAt(self._until)]

    def on_registered(self, message: Registered, front: Front, now: Time) -> list[Effect]:
        """Note a manager's answer; when all have come, wait for events numbered before."""
        if self.state is not ChangeState.REGISTERING or message.version != self.version:
            return []
        self._missing.discard(message.by)
        self._clocks.update(message.clocks)
        if self._missing:
            return []
        self.registered = self._target
        self.state = ChangeState.NAMING
        effects = front.managers_know(self._clocks)
        effects += self._wake_after(self._wait_for, now)
        self._renew(now)
        if self._renew_at is not None:
            effects.append(WakeAt(self._renew_at))
        return [*effects, *self.look(front, now)]

    # -- naming, beginning -----------------------------------------------------------------------

    def _is_named(self, front: Front) -> bool:
        return all(done >= self._clocks.get(topic, 0) for topic, done in front.done.items())

    def _begin_topics(self, front: Front, now: Time) -> list[Effect]:
        self._new = (self._target & self.wanted) - front.done.keys()
        if not self._new:
            return self._rest(front, now)
        self.state = ChangeState.BEGINNING
        self._clocks = {}
        self._missing = front.layout.managers_of(self._new)
        return [*front.expect(self._new), *self._ask_to_begin(front, now)]

    def _ask_to_begin(self, front: Front, now: Time) -> list[Effect]:
        new = tuple(sorted(self._new))
        begin = Begin(front.layout.epoch, self._me.member, self.version, new)
        effects: list[Effect] = [SendToModule(member, begin) for member in sorted(self._missing)]
        return [*effects, *self._wake_after(self._timing.retry_after, now)]

    def on_begun(self, message: Begun, front: Front, now: Time) -> list[Effect]:
        """Note where a manager's topics begin; when all have answered, the topics are ours."""
        if self.state is not ChangeState.BEGINNING or message.version != self.version:
            return []
        clocks = dict(message.clocks)
        asked = {one for one in self._new if front.layout.manager_of(one) == message.by}
        if not asked <= clocks.keys():
            return []  # not the answer to our question: ask again
        self._missing.discard(message.by)
        self._clocks.update((topic, clocks[topic]) for topic in asked)
        if self._missing:
            return []
        effects = front.begin({topic: self._clocks[topic] for topic in self._new})
        return [*effects, *self._rest(front, now)]

    def _rest(self, front: Front, now: Time) -> list[Effect]:
        self.state, self._until = ChangeState.AT_REST, None
        return self.look(front, now)

    # -- time ------------------------------------------------------------------------------------

    def _renew(self, now: Time) -> None:
        lease = self._timing.lease_for
        self._renew_at = None if lease is None or not self.registered else now + lease // 3

    def next_wake(self) -> Time | None:
        times = (self._until, self._renew_at)
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, front: Front, now: Time) -> list[Effect]:
        effects: list[Effect] = []
        if self._renew_at is not None and self._renew_at <= now:
            effects += self._renew_leases(front.layout, now)
        if self._until is None or self._until > now:
            return effects
        match self.state:
            case ChangeState.REGISTERING:
                effects += self._register(front.layout, now)
            case ChangeState.NAMING:  # events that may lack a name are late from now on
                effects += self._begin_topics(front, now)
            case ChangeState.BEGINNING:
                effects += self._ask_to_begin(front, now)
        return effects

    def _renew_leases(self, layout: Layout, now: Time) -> list[Effect]:
        self._renew(now)
        assert self._renew_at is not None
        effects: list[Effect] = [WakeAt(self._renew_at)]
        if self.state is ChangeState.AT_REST:
            mine = SubscriptionVersion(
                self._me.member, self.version, tuple(sorted(self.registered))
            )
            managers = layout.with_successors(layout.managers_of(self.registered), self._copies)
            register = Register(layout.epoch, mine)
            effects += [SendToModule(member, register) for member in sorted(managers)]
        return effects
