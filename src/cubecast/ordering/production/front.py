"""The front of a subscriber in one epoch: which events are in order, and which wait.

Theory of operation.  An event is *in order* if

- its number is above the clock of its own topic ([T] Figure 6 asks for one number above any, T1),
  and above the number where the topic began here,
- its numbers of higher topics of ours are not below the clocks of those,
- of a higher topic of ours that its stamp does not name, no event was notified in order.

The clock is the maximum of the stamps that were notified in order.

*Safety.*  Let two subscribers notify e of topic a and f of b in order, a the higher one.  Let v be
the number of a in the stamp of f, or 0 if there is none.  If v is at least e's number, a subscriber
that notifies f first has a clock of a that is not below e's number, and e is not in order there.
If v is below, a subscriber that notifies e first has a clock of a above v, or has notified an event
of a, and f is not in order there.  So both notify them in the same order.  The argument assumes
nothing of managers, links or the service: only that both subscribers rank a above b, by the epoch.

*Waiting.*  An event waits until every event before it was notified here or given up: the previous
one of its topic, higher topics up to the numbers in its stamp, lower ones up to those that
passed its manager.  Every two events of our topics have one order, and no three of them a circle
(invariant 4 of `manager`), so where the service loses nothing no event waits in vain.

Bounds: one entry per topic; `WaitingBounds` bounds the room; numbers that were given up are kept as
ranges (`gaps`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping

from cubecast.ordering.effects import Effect, Notify, ServiceNotified, Time, WakeAt
from cubecast.ordering.production.config import WaitingBounds
from cubecast.ordering.production.gaps import Gaps
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import Range
from cubecast.ordering.production.waiting_events import Guest, Place, WaitingRoom
from cubecast.ordering.timestamps import Number, Stamp, Topic

NEVER: Number = sys.maxsize
"""A number that is reached only when our topics change."""


class Front:
    """The clocks of one subscriber in one epoch."""

    def __init__(self, layout: Layout, topics: Iterable[Topic], limits: WaitingBounds) -> None:
        self.layout = layout
        self._limits = limits
        self.done: dict[Topic, Number] = dict.fromkeys(topics, 0)
        """Our topics, and the number up to which all events were notified or given up."""
        self.clock: dict[Topic, Number] = dict.fromkeys(self.done, 0)
        """The highest numbers that were notified in order, also of topics that we left recently."""
        self._start: dict[Topic, Number] = {}
        """First numbers of topics that we joined later: events up to there are not ours."""
        self._notified: set[Topic] = set()
        """Topics of which an event was notified in order."""
        self._higher: dict[Topic, tuple[Topic, ...]] = {}
        """For a topic, the higher ones of `clock`; computed on demand."""
        self.beginning: frozenset[Topic] = frozenset()
        """Topics whose first number for us is not known yet."""
        self._left: dict[Topic, Mapping[Topic, Number] | None] = {}
        """Topics that we left, and how far we must be in others to forget their clocks."""
        self.room = WaitingRoom()
        self._gaps = Gaps()
        """Events that were given up and may still come."""
        self._void: dict[Topic, list[Range]] = {}
        """Numbers ahead of us that no event has."""

    # -- topics ----------------------------------------------------------------------------------

    def expect(self, topics: Iterable[Topic]) -> list[Effect]:
        """Note that the first numbers of these topics are asked for; events that name them wait."""
        self.beginning = frozenset(topics)
        return self._look_at_all()

    def begin(self, starts: Mapping[Topic, Number]) -> list[Effect]:
        """Begin these topics, above these numbers."""
        self.beginning = frozenset()
        for topic, number in starts.items():
            self._left.pop(topic, None)
            self.done[topic] = self._start[topic] = number
            self.clock.setdefault(topic, 0)
        self._higher.clear()
        return self._look_at_all()

    def leave(self, topic: Topic) -> list[Effect]:
        """End a topic's notifications; its clock still counts until managers know that we left."""
        self.beginning -= {topic}
        if self.done.pop(topic, None) is not None:
            self._left[topic] = None
            self._start.pop(topic, None)
            self._gaps.leave(topic)
        self.room.drop(topic)
        return self._look_at_all()

    def managers_know(self, clocks: Mapping[Topic, Number]) -> list[Effect]:
        """Note that all managers know which topics we left, and their numbers at that time."""
        until = {topic: clocks.get(topic, 0) for topic in self.done}
        undecided = any(known is None for known in self._left.values())
        self._left = {topic: until if old is None else old for topic, old in self._left.items()}
        self._forget_left()
        return self._look_at_all() if undecided else []

    def _decides(self, topic: Topic, stamp: Stamp) -> bool:
        """Whether the clock of a topic, which we may have left, counts for an event."""
        if topic not in self._left:
            return True
        until = self._left[topic]
        return until is None or stamp.number <= until.get(stamp.topic, 0)

    def _undecided(self, stamp: Stamp) -> Place | None:
        """A topic that we left and for which it is not known yet whether it counts for an event."""
        named = dict(stamp.higher)
        for topic in self._higher_than(stamp.topic):
            undecided = self._left.get(topic, {}) is None
            if undecided and topic in self._notified and topic not in named:
                return topic, NEVER
        return None

    def _forget_left(self) -> None:
        """Drop the clocks of topics that we left, once they count for no event.

        They count for events that were numbered before all managers knew that we left.  Let f be
        numbered later, and e of the topic that we left have been notified here.  e has its number
        before f, so a stamp of f that names the topic has at least e's number.  And if f does not
        name it, a subscriber of both begins the topic after f was numbered, and is not notified of
        e.
        """
        for topic, until in list(self._left.items()):
            if until is not None and all(
                self.done.get(one, number) >= number for one, number in until.items()
            ):
                del self._left[topic], self.clock[topic]
                self._notified.discard(topic)
                self._higher.clear()

    # -- events ----------------------------------------------------------------------------------

    def arrive(self, event: ServiceNotified, stamp: Stamp, now: Time) -> list[Effect]:
        """Notify an event, or let it wait; drop it if we had it, or if it is not for us."""
        topic, number = place = stamp.topic, stamp.number
        if place in self.room:
            return []
        if topic in self.done and number <= self.done[topic]:
            return self._notify(event, stamp) if self._gaps.take(topic, number) else []
        awaited = self._awaited(stamp)
        if awaited is None:
            return [*self._notify(event, stamp), *self._release([topic])]
        wait_for = self._limits.wait_for
        until = None if wait_for is None else now + wait_for
        self.room.add(place, Guest(until, event, awaited))
        effects: list[Effect] = [] if until is None else [WakeAt(until)]
        while self._limits.exceeded(len(self.room), self.room.size):
            given_up = self._give_up(None)
            if not given_up:  # all, this one too, are of topics yet to begin
                self.room.leave(place)
                break
            effects += given_up
        return effects

    def _awaited(self, stamp: Stamp) -> Place | None:
        """A place before an event that has neither come nor been given up, if there is one."""
        done, topic = self.done, stamp.topic
        if topic not in done:
            return topic, NEVER
        if stamp.number > done[topic] + 1:
            return topic, stamp.number - 1
        for numbers in (stamp.higher, stamp.passed):
            for one, number in numbers:
                if done.get(one, number) < number:
                    return one, number
                if one in self.beginning:
                    return one, NEVER
        return self._undecided(stamp) if self._left else None

    def is_in_order(self, stamp: Stamp) -> bool:
        clock, named = self.clock, 0
        if stamp.number <= max(clock.get(stamp.topic, 0), self._start.get(stamp.topic, 0)):
            return False
        for topic, number in stamp.higher:
            known = clock.get(topic)
            if known is not None:
                if number < known and self._decides(topic, stamp):
                    return False
                named += 1
        higher = self._higher_than(stamp.topic)
        if named == len(higher):
            return True
        names = dict(stamp.higher)
        absent = (topic for topic in higher if topic not in names and topic in self._notified)
        return not any(self._decides(topic, stamp) for topic in absent)

    def _higher_than(self, topic: Topic) -> tuple[Topic, ...]:
        found = self._higher.get(topic)
        if found is None:
            precedes = self.layout.ranking.precedes
            found = self._higher[topic] = tuple(one for one in self.clock if precedes(one, topic))
        return found

    def _notify(self, event: ServiceNotified, stamp: Stamp) -> list[Effect]:
        """Notify an event, tagged if it is not in order; give up those before it."""
        in_order = self.is_in_order(stamp)
        if in_order:
            clock = self.clock
            clock[stamp.topic] = stamp.number
            self._notified.add(stamp.topic)
            for topic, number in stamp.higher:
                if topic in clock:
                    clock[topic] = max(number, clock[topic])
        done = self.done[stamp.topic]
        if stamp.number > done:
            self._gaps.add(stamp.topic, done + 1, stamp.number - 1)
            self._reach(stamp.topic, stamp.number)
        else:
            self._gaps.take(stamp.topic, stamp.number)
        return [Notify(event.topic, event.payload, stamp, in_order)]

    def _reach(self, topic: Topic, number: Number) -> None:
        """Mark all numbers up to this one as done, and the void ones right after it."""
        self.done[topic] = number
        if topic in self._void:
            self._pass_void(topic)
        if self._left:
            self._forget_left()

    def _pass_void(self, topic: Topic) -> None:
        for void in self._void[topic]:
            if void.first <= self.done[topic] + 1 <= void.last:
                self._gaps.add(topic, self.done[topic] + 1, void.last)
                self.done[topic] = void.last
        ahead = [void for void in self._void[topic] if void.last > self.done[topic]]
        if ahead:
            self._void[topic] = ahead
        else:
            del self._void[topic]

    def skip(self, void: Iterable[Range]) -> list[Effect]:
        """Do not wait for these numbers.  An event that still comes with one of them is late."""
        changed = set()
        for one in void:
            if one.topic in self.done and one.last > self.done[one.topic]:
                ranges = {*self._void.get(one.topic, ()), one}
                self._void[one.topic] = sorted(
                    (known for known in ranges if known.last > self.done[one.topic]),
                    key=lambda known: known.first,
                )
                changed.add(one.topic)
        for topic in changed:
            self._reach(topic, self.done[topic])
        return self._release(sorted(changed))

    @property
    def forgotten(self) -> int:
        """Numbers given up and no longer remembered, so that late events with them are dropped."""
        return self._gaps.forgotten

    # -- what waits ------------------------------------------------------------------------------

    def _release(self, topics: Iterable[Topic]) -> list[Effect]:
        """Notify the events that need not wait any more, after progress in some topics."""
        effects: list[Effect] = []
        progress = deque(topics)
        while progress:
            topic = progress.popleft()
            for place in self.room.reached(topic, self.done.get(topic, NEVER)):
                guest = self.room.guest(place)
                stamp = stamp_of(guest.event)
                awaited = self._awaited(stamp)
                if awaited is not None:
                    self.room.add(place, guest._replace(awaited=awaited))
                else:
                    effects += self._notify(self.room.leave(place), stamp)
                    progress.append(place[0])
        return effects

    def _look_at_all(self) -> list[Effect]:
        """Recompute what each event in the room waits for, as our topics have changed."""
        for guest in self.room.all():
            stamp = stamp_of(guest.event)
            place = stamp.topic, stamp.number
            if stamp.number <= self.done.get(stamp.topic, -1) and not self._gaps.has(*place):
                self.room.leave(place)  # from before the topic began here
            else:
                awaited = self._awaited(stamp)
                self.room.add(place, guest._replace(awaited=awaited or (stamp.topic, 0)))
        return self._release(sorted(self.done))

    def _give_up(self, until: Time | None) -> list[Effect]:
        """Notify the first waiting event whose time is over by `until`.

        Not one of a topic that is yet to begin: it may be from before the topic begins here.
        """
        for guest in self.room:
            if until is not None and guest.until is not None and guest.until > until:
                break
            stamp = stamp_of(guest.event)
            if stamp.topic in self.done:
                event = self.room.leave((stamp.topic, stamp.number))
                return [*self._notify(event, stamp), *self._release([stamp.topic])]
        return []

    def give_up_until(self, until: Time | None) -> list[Effect]:
        """Notify all events whose time is over by then; None: all that wait."""
        effects: list[Effect] = []
        while given_up := self._give_up(until):
            effects += given_up
        return effects

    def next_expiry(self) -> Time | None:
        """When the time of the first waiting event is over."""
        return next((one.until for one in self.room if one.event.topic in self.done), None)

    def awaited_numbers(self) -> list[Range]:
        """The numbers that events wait for, one range per topic."""
        found: dict[Topic, Number] = {}
        for guest in self.room:
            topic, number = guest.awaited
            if topic in self.done and number != NEVER:
                found[topic] = max(number, found.get(topic, 0))
        return [
            Range(topic, self.done[topic] + 1, number)
            for topic, number in found.items()
            if number > self.done[topic]
        ]

    # -- afterwards ------------------------------------------------------------------------------

    @property
    def has_notified(self) -> bool:
        """Whether an event of this epoch was notified in order."""
        return bool(self._notified)

    def arrive_late(self, event: ServiceNotified, stamp: Stamp, overtaken: bool) -> list[Effect]:
        """Notify an event of this epoch after a later one has begun, if we did not have it.

        It is tagged if events of later epochs have overtaken it.
        """
        known = self.done.get(stamp.topic)
        place = stamp.topic, stamp.number
        if known is None or (stamp.number <= known and not self._gaps.has(*place)):
            return []
        if not overtaken:
            return self._notify(event, stamp)
        if not self._gaps.take(*place):
            self._gaps.add(stamp.topic, known + 1, stamp.number - 1)
            self.done[stamp.topic] = stamp.number
        return [Notify(event.topic, event.payload, stamp, in_order=False)]


class UnrankedFront(Front):
    """The front of an epoch whose ranks are known only from stamps.

    Any other topic may be higher.  So an event is in order here only if it is so for a subscriber
    that knows the ranks.
    """

    def __init__(self, layout: Layout, topics: Iterable[Topic], limits: WaitingBounds) -> None:
        super().__init__(layout, topics, limits)
        self._lower: dict[Topic, set[Topic]] = {}
        """Topics that are known to be lower."""

    def is_in_order(self, stamp: Stamp) -> bool:
        for topic, _ in stamp.higher:
            self._lower.setdefault(topic, set()).add(stamp.topic)
        lower = self._lower.setdefault(stamp.topic, set())
        lower.update(topic for topic, _ in stamp.passed)
        return super().is_in_order(stamp)

    def _higher_than(self, topic: Topic) -> tuple[Topic, ...]:
        lower = self._lower.get(topic, ())
        return tuple(one for one in self.clock if one != topic and one not in lower)


def stamp_of(event: ServiceNotified) -> Stamp:
    assert isinstance(event.timestamp, Stamp)
    return event.timestamp
