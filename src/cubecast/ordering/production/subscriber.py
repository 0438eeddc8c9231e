"""The subscriber's part: from epoch to epoch, with one front in each.

All events of an epoch come before those of later ones: an event is out of order if one of a later
epoch was notified in order.  So two subscribers that notify two events of different epochs in order
do so in the same order, whatever the managers did.

A subscriber goes on to the next epoch when it has all events of the present one: managers tell its
last numbers (`EpochEnd`, hole T12).  Last numbers of a lost manager are not known; then, and when
events were lost, it waits as long as an event may wait.

An event of an epoch whose layout no manager tells is notified tagged after a while: its publisher
may have other managers than we have.

Bounds: one front, and `PAST` fronts of past epochs (to recognise late events that it had).
`later` has `MAX_LATER` events and `MAX_LATER_BYTES`, or as much as may wait if the next layout is
known.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.ordering.effects import (
    Effect,
    Notify,
    SendToModule,
    ServiceNotified,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Time,
    WakeAt,
)
from cubecast.ordering.production.config import Timing, WaitingBounds
from cubecast.ordering.production.front import Front, UnrankedFront, stamp_of
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import (
    Begun,
    Epoch,
    Inquire,
    Registered,
    Source,
    Version,
    Void,
)
from cubecast.ordering.production.notices import EpochEnd
from cubecast.ordering.production.subscription_changes import Changes, ChangeState
from cubecast.ordering.production.waiting_events import Backlog
from cubecast.ordering.timestamps import Number, Topic

PAST = 16
MAX_LATER = 4096
MAX_LATER_BYTES = 64 << 20
"""Bounds of the events that wait for the layout of their epoch."""
ASKED = 3
"""How often, at least, managers are asked for the layout of an event before it is tagged."""


class Subscriber:
    """The subscription of one member, and its front."""

    def __init__(
        self,
        me: Source,
        waiting: WaitingBounds,
        timing: Timing,
        copies: int,
        ask_for_layout: Callable[[Time], list[Effect]],
    ) -> None:
        self._me = me
        self._limits = waiting
        self._timing = timing
        self._ask_for_layout = ask_for_layout
        self.changes = Changes(me, timing, waiting, copies)
        self.front: Front | None = None
        self._past: dict[Epoch, Front] = {}
        self._next: dict[Epoch, tuple[Layout, Version]] = {}
        """Layouts after the present one."""
        self._closings: dict[Epoch, EpochEnd] = {}
        self.later = Backlog()
        """Events of epochs that have not begun here."""
        self._tag_later_at: Time | None = None
        """When an event that waits for its layout is notified tagged."""
        self._end_by: Time | None = None
        """When the present epoch ends, even if events are missing."""
        self._ask_at: Time | None = None
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """Events dropped, or that would be, because it is not known whether they were notified."""
        fronts = [*self._past.values(), *([] if self.front is None else [self.front])]
        return self._forgotten + sum(front.forgotten for front in fronts)

    @property
    def topics(self) -> set[Topic]:
        """The topics whose events are notified."""
        return set() if self.front is None else set(self.front.done)

    # -- changes ---------------------------------------------------------------------------------

    def subscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.changes.want(topic)
        return [ServiceSubscribe(topic), *self._go_on(now)]

    def unsubscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.changes.want_no_more(topic)
        self.later.keep(lambda event: event.topic != topic)
        effects = [] if self.front is None else self.front.leave(topic)
        return [ServiceUnsubscribe(topic), *effects, *self._go_on(now)]

    def _go_on(self, now: Time) -> list[Effect]:
        """Continue a change, and go on to the next epoch, after progress."""
        if self.front is None:
            return self._ask_for_layout(now)
        effects = self.changes.look(self.front, now)
        return [*effects, *self._go_to_next_epoch(now)] if self._next else effects

    def on_registered(self, message: Registered, now: Time) -> list[Effect]:
        if self.front is None or message.epoch != self.front.layout.epoch:
            return []
        return [*self.changes.on_registered(message, self.front, now), *self._go_on(now)]

    def on_begun(self, message: Begun, now: Time) -> list[Effect]:
        if self.front is None or message.epoch != self.front.layout.epoch:
            return []
        return [*self.changes.on_begun(message, self.front, now), *self._go_on(now)]

    # -- events ----------------------------------------------------------------------------------

    def on_arrived(self, event: ServiceNotified, now: Time) -> list[Effect]:
        """Notify an event in its epoch; tagged if its epoch is over here."""
        stamp = stamp_of(event)
        if stamp.topic not in self.changes.wanted:
            return []
        if self.front is None or stamp.epoch > self.front.layout.epoch:
            return self._keep_for_later(event, stamp.epoch, now)
        if stamp.epoch < self.front.layout.epoch:
            return self._arrive_late(event, stamp.epoch)
        effects = self.front.arrive(event, stamp, now)
        if self._next or self.changes.state is ChangeState.NAMING:
            effects += self._go_on(now)
        if self.front.room and self._ask_at is None:
            effects += self._inquire_after(now)
        return effects

    def _arrive_late(self, event: ServiceNotified, epoch: Epoch) -> list[Effect]:
        """Notify an event of a past epoch, or of an unknown one below ours."""
        if not self._past or epoch < min(self._past):
            self._forgotten += len(self._past) == PAST
            return []  # it may be from before our first epoch
        assert self.front is not None
        if epoch not in self._past:
            self._remember(epoch, UnrankedFront(self.front.layout, self.front.done, self._limits))
        later = (front for one, front in self._past.items() if one > epoch)
        overtaken = self.front.has_notified or any(front.has_notified for front in later)
        return self._past[epoch].arrive_late(event, stamp_of(event), overtaken)

    def _remember(self, epoch: Epoch, front: Front) -> None:
        self._past[epoch] = front
        if len(self._past) > PAST:
            self._forgotten += self._past.pop(min(self._past)).forgotten

    def _keep_for_later(self, event: ServiceNotified, epoch: Epoch, now: Time) -> list[Effect]:
        """Keep an event of an epoch that has not begun here, within bounds."""
        self.later.append(event)
        effects = [] if epoch in self._next else self._ask_for_layout(now)
        wait_for, retry_after = self._limits.wait_for, self._timing.retry_after
        if self._tag_later_at is None and wait_for is not None and retry_after is not None:
            self._tag_later_at = now + wait_for + ASKED * retry_after
            effects.append(WakeAt(self._tag_later_at))
        too_many = self._limits.exceeded(len(self.later), self.later.size)
        if self._next and too_many:
            return [*effects, *self._end_epoch(now)]
        while len(self.later) > MAX_LATER or self.later.size > MAX_LATER_BYTES:
            effects += self._tag_first_of_later()
        return effects

    def _tag_first_of_later(self) -> list[Effect]:
        """Notify the first event of an unknown layout, tagged, rather than lose it.

        One of a topic that is yet to begin is dropped: it may be from before the topic begins here.
        """
        event = self.later.first()
        if self.front is None or event.topic not in self.front.done:
            return []
        return [Notify(event.topic, event.payload, stamp_of(event), in_order=False)]

    def _tag_unknown_of_later(self) -> list[Effect]:
        """Notify events, tagged, of epochs without a layout, up to that of the first of them.

        Events of topics that are yet to begin are dropped: they may be from before it begins.
        """
        assert self.front is not None
        self._tag_later_at = None
        unknown = [one for one in self.later if _epoch(one) not in self._next]
        if not unknown:
            return []
        last = _epoch(unknown[0])
        over = {one for one in map(_epoch, unknown) if one <= last}
        late = self.later.keep(lambda one: _epoch(one) not in over)
        return [
            Notify(one.topic, one.payload, stamp_of(one), in_order=False)
            for one in late
            if one.topic in self.front.done
        ]

    def on_void(self, message: Void, now: Time) -> list[Effect]:
        if self.front is None or message.epoch != self.front.layout.epoch:
            return []
        return [*self.front.skip(message.numbers), *self._go_on(now)]

    # -- epochs ----------------------------------------------------------------------------------

    def on_layout(
        self, layout: Layout, closings: tuple[EpochEnd, ...], known: Version, now: Time
    ) -> list[Effect]:
        """Note a layout; ours may come again, from managers that do not know us."""
        self._closings.update((one.epoch, one) for one in closings)
        if self.front is None:
            self.front = Front(layout, (), self._limits)
            return [*self.changes.restart(self.front, known, now), *self._replay(now)]
        present = self.front.layout.epoch
        if layout.epoch < present:
            return []
        if layout.epoch == present:
            news = known < 0 or known > self.changes.version
            return self.changes.restart(self.front, known, now) if news else []
        self._next[layout.epoch] = layout, known
        closing = self._closings.get(present)
        skipped = [] if closing is None else self.front.skip(closing.void)
        return [*skipped, *self._go_to_next_epoch(now)]

    def _go_to_next_epoch(self, now: Time) -> list[Effect]:
        effects: list[Effect] = []
        while self._next and self._has_all():
            effects += self._end_epoch(now)
        patience = self._patience()
        if self._next and self._end_by is None and patience is not None:
            self._end_by = now + patience
            effects.append(WakeAt(self._end_by))
        return effects

    def _patience(self) -> Time | None:
        """How long we wait for the rest of an epoch: less if its last numbers are not known."""
        end_for = self._limits.end_for
        return self._limits.wait_for if end_for is None or self._counts() else end_for

    def _counts(self) -> dict[Topic, Number] | None:
        """The last numbers of our topics in this epoch; None if some are not known."""
        front = self.front
        assert front is not None
        closing = self._closings.get(front.layout.epoch)
        if closing is None:
            return None
        lost = set(closing.lost)
        if any(front.layout.manager_of(topic) in lost for topic in front.done):
            return None
        counts = dict(closing.counts)
        return {topic: counts.get(topic, 0) for topic in front.done}

    def _has_all(self) -> bool:
        """Whether all events of the present epoch were notified."""
        counts, front = self._counts(), self.front
        assert front is not None
        if counts is None:
            return self._limits.wait_for is None  # else it would wait for ever
        return all(front.done[topic] >= number for topic, number in counts.items())

    def _end_epoch(self, now: Time) -> list[Effect]:
        """Notify the events that still wait, and begin the next epoch."""
        front = self.front
        assert front is not None
        effects = front.give_up_until(None)
        self._remember(front.layout.epoch, front)
        epoch = min(self._next)
        layout, known = self._next.pop(epoch)
        self._closings = {one: end for one, end in self._closings.items() if one >= epoch}
        self._end_by = self._ask_at = None
        self.front = Front(layout, front.done, self._limits)
        closing = self._closings.get(epoch)
        if closing is not None:
            effects += self.front.skip(closing.void)
        effects += self.changes.restart(self.front, known, now)
        return [*effects, *self._replay(now)]

    def _replay(self, now: Time) -> list[Effect]:
        later, self.later = self.later, Backlog()
        self._tag_later_at = None
        return [effect for event in later for effect in self.on_arrived(event, now)]

    # -- time ------------------------------------------------------------------------------------

    def _inquire_after(self, now: Time) -> list[Effect]:
        """Ask managers, after a while, whether the awaited numbers will come."""
        if self._timing.retry_after is None:
            return []
        self._ask_at = now + self._timing.retry_after
        return [WakeAt(self._ask_at)]

    def _inquire(self, front: Front, now: Time) -> list[Effect]:
        layout, me = front.layout, self._me.member
        self._ask_at = None
        effects: list[Effect] = [
            SendToModule(layout.manager_of(numbers.topic), Inquire(layout.epoch, me, numbers))
            for numbers in front.awaited_numbers()
        ]
        return [*effects, *self._inquire_after(now)] if front.room else effects

    def next_wake(self) -> Time | None:
        """When we ask again, or the time of a waiting event is over."""
        expiry = None if self.front is None else self.front.next_expiry()
        later = None if self.front is None else self._tag_later_at
        times = (self.changes.next_wake(), expiry, self._end_by, self._ask_at, later)
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        """Ask again, and notify the events whose time is over."""
        if self.front is None:
            return []
        effects: list[Effect] = []
        if self._tag_later_at is not None and self._tag_later_at <= now:
            effects += self._tag_unknown_of_later()
        if self._end_by is not None and self._end_by <= now:
            effects += self._end_epoch(now)
        effects += self.changes.on_wake(self.front, now)
        if self._limits.wait_for is not None:
            effects += self.front.give_up_until(now)
        if self._ask_at is not None and self._ask_at <= now:
            effects += self._inquire(self.front, now)
        return [*effects, *self._go_on(now)]


def _epoch(event: ServiceNotified) -> Epoch:
    return stamp_of(event).epoch
