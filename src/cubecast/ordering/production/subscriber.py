"""The subscriber's part: which events are in order, which wait, and how a subscription changes.

Theory of operation.  An event is *in order* if its number is above the clock of its own topic, and
its numbers of higher topics are not below the clock of those ([T] Figure 6 asks for one number
above any of them, hole T1).  The clock is the maximum of the stamps that were notified in order.

*Safety.*  Let two subscribers notify e of topic a and f of b, a before b, both in order.  The stamp
of f has a number v of a (invariant 3 of the managers).  If v is at least e's number, whoever
notifies f first has a clock of a that is not below e's number, and e is not in order there.  If v
is below, whoever notifies e first has a clock above v, and f is not in order there.  So both notify
them in the same order.  Nothing else is asked of numbers, links or the service.

*Waiting.*  An event waits until all that comes before it was notified here or given up: the event
before it in its topic, higher topics up to the numbers in its stamp, lower ones up to those that
passed its manager.  Every two events of our topics have one order, and no three of them a circle
(invariant 4 of the managers), so where the service loses nothing nobody waits in vain.

*Changes.*  One at a time.  A topic is asked for at the service first; what arrives waits.  The new
subscription visits the managers from the highest topic to the lowest, so that an event which we are
to be notified of has no number of a higher topic below the clock that we got there.  Events of the
topics we have that passed the new one's manager before, or whose stamps do not name it, come before
all of its events (`Earlier`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cubecast.ordering.effects import (
    Arrived,
    Effect,
    Notify,
    Send,
    ServiceSubscribe,
    ServiceUnsubscribe,
    Time,
    WakeAt,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.production.messages import Register, Registered
from cubecast.ordering.production.room import Guest, Place, WaitingRoom
from cubecast.ordering.ranking import Ranking
from cubecast.ordering.timestamps import Number, Stamp, Topic

NEVER: Number = sys.maxsize
"""A number that is reached only when our topics change."""
MAX_MISSING = 4096


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long events may wait, and how many."""

    events: int | None = None
    """None: as many as come."""
    wait_for: Time | None = None
    """None: for ever."""


class Subscriber:
    """What one node is subscribed to, and how far it is."""

    def __init__(
        self,
        name: Member,
        ranking: Ranking,
        manager_of: Callable[[Topic], Member],
        waiting: Waiting,
        retry_after: Time | None,
    ) -> None:
        self._name = name
        self._ranking = ranking
        self._manager_of = manager_of
        self._limits = waiting
        self._retry_after = retry_after
        self.wanted: set[Topic] = set()
        """As the application has said."""
        self.topics: set[Topic] = set()
        """Whose events are notified."""
        self.registered: frozenset[Topic] = frozenset()
        """As all managers know it."""
        self._version = 0
        self._changing: frozenset[Topic] | None = None
        self._beginning: set[Topic] = set()
        """Topics that the change under way begins: events of ours may come after some of theirs."""
        self._again_at: Time | None = None
        self.clock: dict[Topic, Number] = {}
        """The highest numbers that were notified in order."""
        self.done: dict[Topic, Number] = {}
        """Up to here everything was notified, or given up."""
        self._after: dict[Topic, dict[Topic, Number]] = {}
        """How far we are to be in other topics before a new one begins."""
        self._left: dict[Topic, dict[Topic, Number]] = {}
        """Topics that we left, and how far we are to be in others to forget their clocks."""
        self.waiting = WaitingRoom()
        self._missing: dict[Place, None] = {}
        """Events that were given up and may still come, at most `MAX_MISSING`."""

    # -- changes ---------------------------------------------------------------------------------

    def subscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.wanted.add(topic)
        return [ServiceSubscribe(topic), *self._change(now)]

    def unsubscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.wanted.discard(topic)
        self.topics.discard(topic)
        self._beginning.discard(topic)  # of what is published meanwhile we hear nothing
        return [ServiceUnsubscribe(topic), *self._look_at_all(), *self._change(now)]

    def _change(self, now: Time) -> list[Effect]:
        """Tell the managers what we want, if no other change is under way."""
        if self._changing is not None or self.wanted == self.registered == self.topics:
            return []
        self._version += 1
        self._changing = frozenset(self.wanted)
        self._beginning = self.wanted - self.topics
        for topic in self._changing:
            self.clock.setdefault(topic, 0)  # stamps may speak of it before we hear its clock (T5)
        return self._register(now)

    def _register(self, now: Time) -> list[Effect]:
        assert self._changing is not None
        *left, at = reversed(self._ranking.sort(self._changing | self.registered))
        topics = tuple(sorted(self._changing))
        register = Register(self._name, self._version, topics, at, tuple(left), ())
        effects: list[Effect] = [Send(self._manager_of(at), register)]
        if self._retry_after is not None:
            self._again_at = now + self._retry_after
            effects.append(WakeAt(self._again_at))
        return effects

    def on_registered(self, message: Registered, now: Time) -> list[Effect]:
        """Begin the topics that are new; an old answer is ignored."""
        if message.version != self._version or self._changing is None:
            return []
        clocks = dict(message.clocks)
        known = set(self.topics)
        new, self._beginning = self._beginning, set()
        self.registered, self._changing, self._again_at = self._changing, None, None
        for topic in new:
            self.done[topic] = clocks[topic]  # what comes up to there is not for us (T7)
            after = self._after[topic] = {}
            for one in message.earlier:
                if one.higher == topic and one.topic in known:
                    after[one.topic] = max(one.number, after.get(one.topic, 0))
        self.topics |= new
        self._left = {topic: until for topic, until in self._left.items() if topic not in new}
        for topic in self.clock.keys() - self.registered - self.wanted:
            self._left.setdefault(topic, {one: clocks[one] for one in self.topics})
        self._forget_left()
        return [*self._look_at_all(), *self._change(now)]

    def _forget_left(self) -> None:
        """Drop the clocks of topics that we left, once they decide nothing any more.

        They concern events whose stamps may name the topic: those that were numbered before all
        managers knew that we left, and are not notified yet.
        """
        for topic, until in list(self._left.items()):
            if all(self.done.get(one, 0) >= number for one, number in until.items()):
                del self._left[topic], self.clock[topic]

    # -- events ----------------------------------------------------------------------------------

    def on_arrived(self, event: Arrived, now: Time) -> list[Effect]:
        """Notify an event, or let it wait; one that we had, or that is not for us, is dropped."""
        stamp = _stamp(event)
        topic, number = place = stamp.topic, stamp.number
        if topic not in self.wanted or place in self.waiting:
            return []
        if topic in self.topics and number <= self.done[topic]:
            return self._notify(event) if self._is_missing(place) else []
        awaited = self._awaited(stamp)
        if awaited is None:
            return [*self._notify(event), *self._release([topic])]
        wait_for, most = self._limits.wait_for, self._limits.events
        until = None if wait_for is None else now + wait_for
        self.waiting.add(place, Guest(until, event, awaited))
        effects: list[Effect] = [] if until is None else [WakeAt(until)]
        if most is not None and len(self.waiting) > most:
            effects += self._give_up(None)
        return effects

    def _awaited(self, stamp: Stamp) -> Place | None:
        """Something that comes before an event and has neither come nor been given up."""
        topics, done = self.topics, self.done
        if stamp.topic not in topics:
            return stamp.topic, NEVER
        if stamp.number > done[stamp.topic] + 1:
            return stamp.topic, stamp.number - 1
        for topic, number in self._before(stamp):
            if topic in self._beginning:
                return topic, NEVER
            if topic in topics and done[topic] < number:
                return topic, number
        return None

    def _before(self, stamp: Stamp) -> Iterable[tuple[Topic, Number]]:
        yield from stamp.higher
        yield from stamp.passed
        yield from self._after.get(stamp.topic, {}).items()

    def _in_order(self, stamp: Stamp) -> bool:
        clock = self.clock
        return stamp.number > clock.get(stamp.topic, 0) and all(
            number >= clock.get(topic, -1) for topic, number in stamp.higher
        )

    def _notify(self, event: Arrived) -> list[Effect]:
        """Notify an event, tagged if it is not in order; those before it are given up."""
        stamp = _stamp(event)
        for topic, number in self._after.pop(stamp.topic, {}).items():
            if self.done.get(topic, 0) < number:
                self.clock[topic] = max(number, self.clock.get(topic, 0))
        in_order = self._in_order(stamp)
        if in_order:
            for topic, number in ((stamp.topic, stamp.number), *stamp.higher):
                if topic in self.clock:
                    self.clock[topic] = max(number, self.clock[topic])
        done = self.done[stamp.topic]
        if stamp.number > done:
            self._miss(stamp.topic, range(done + 1, stamp.number))
            self.done[stamp.topic] = stamp.number
        if self._left:
            self._forget_left()
        return [Notify(event.topic, event.payload, stamp, in_order)]

    def _miss(self, topic: Topic, numbers: range) -> None:
        """These may still come, late."""
        for number in numbers[-MAX_MISSING:]:
            self._missing[topic, number] = None
        while len(self._missing) > MAX_MISSING:
            del self._missing[next(iter(self._missing))]

    def _is_missing(self, place: Place) -> bool:
        """Whether an event was given up and comes now, for the first time."""
        return self._missing.pop(place, self) is None

    def _release(self, topics: Iterable[Topic]) -> list[Effect]:
        """Notify those that need not wait any more, as there is progress in some topics."""
        effects: list[Effect] = []
        progress = deque(topics)
        while progress:
            topic = progress.popleft()
            reached = self.done[topic] if topic in self.topics else NEVER
            for place in self.waiting.reached(topic, reached):
                guest = self.waiting.guest(place)
                awaited = self._awaited(_stamp(guest.event))
                if awaited is not None:
                    self.waiting.add(place, guest._replace(awaited=awaited))
                else:
                    effects += self._notify(self.waiting.leave(place))
                    progress.append(place[0])
        return effects

    def _look_at_all(self) -> list[Effect]:
        """Our topics have changed: see what all that waits is to wait for."""
        for guest in self.waiting.all():
            stamp = _stamp(guest.event)
            place = stamp.topic, stamp.number
            known = stamp.topic in self.topics
            if stamp.topic not in self.wanted or (known and stamp.number <= self.done[stamp.topic]):
                self.waiting.leave(place)
            else:
                awaited = self._awaited(stamp)
                self.waiting.add(place, guest._replace(awaited=awaited or (stamp.topic, 0)))
        return self._release(sorted(self.topics))

    def _give_up(self, until: Time | None) -> list[Effect]:
        """Notify the first that waits, of those whose time is over by `until`.

        Not one of a topic that is yet to begin: whether it is before our time is not known.
        """
        for guest in self.waiting:
            if until is not None and guest.until is not None and guest.until > until:
                break
            stamp = _stamp(guest.event)
            if stamp.topic in self.topics:
                event = self.waiting.leave((stamp.topic, stamp.number))
                return [*self._notify(event), *self._release([stamp.topic])]
        return []

    def next_wake(self) -> Time | None:
        """When we ask again, or the time of something that waits is over."""
        first = next((one.until for one in self.waiting if one.event.topic in self.topics), None)
        return min((at for at in (self._again_at, first) if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        """Ask again, and notify those whose time is over."""
        effects: list[Effect] = []
        if self._again_at is not None and self._again_at <= now:
            effects += self._register(now)
        while self._limits.wait_for is not None:
            given_up = self._give_up(now)
            if not given_up:
                break
            effects += given_up
        return effects


def _stamp(event: Arrived) -> Stamp:
    assert isinstance(event.timestamp, Stamp)
    return event.timestamp
