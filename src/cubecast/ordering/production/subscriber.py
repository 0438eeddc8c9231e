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
topics we have may have stamps that do not name the new one: these come before all of its events.
"""

from __future__ import annotations

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
from cubecast.ordering.ranking import Ranking
from cubecast.ordering.timestamps import Number, Stamp, Topic


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
        self._start: dict[Topic, Number] = {}
        """The last numbers before our time: what comes up to there is not for us (T7)."""
        self._after: dict[Topic, dict[Topic, Number]] = {}
        """How far we are to be in other topics before a new one begins."""
        self._left: dict[Topic, dict[Topic, Number]] = {}
        """Topics that we left, and how far we are to be in others to forget their clocks."""
        self.waiting: list[tuple[Time | None, Arrived]] = []

    # -- changes ---------------------------------------------------------------------------------

    def subscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.wanted.add(topic)
        return [ServiceSubscribe(topic), *self._change(now)]

    def unsubscribe(self, topic: Topic, now: Time) -> list[Effect]:
        self.wanted.discard(topic)
        self.topics.discard(topic)
        self._beginning.discard(topic)  # of what is published meanwhile we hear nothing
        self.waiting = [(at, one) for at, one in self.waiting if one.topic != topic]
        return [ServiceUnsubscribe(topic), *self._release(now), *self._change(now)]

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
            self.done[topic] = self._start[topic] = clocks[topic]
            bare = [one for one in message.bare if one.higher == topic and one.topic in known]
            self._after[topic] = {one.topic: one.number for one in bare}
        self.topics |= new
        self._left = {topic: until for topic, until in self._left.items() if topic not in new}
        self.waiting = [(at, one) for at, one in self.waiting if not self._is_before_us(one)]
        for topic in self.clock.keys() - self.registered - self.wanted:
            self._left.setdefault(topic, {one: clocks[one] for one in self.topics})
        self._forget_left()
        return [*self._release(now), *self._change(now)]

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
        """Notify an event, or let it wait."""
        stamp = event.timestamp
        assert isinstance(stamp, Stamp)
        if event.topic not in self.wanted:
            return []
        if event.topic in self.topics:
            if stamp.number <= self._start[event.topic]:
                return []
            if stamp.number <= self.done[event.topic]:
                return self._notify(event)
            if not self._must_wait(stamp):
                return [*self._notify(event), *self._release(now)]
        return self._let_wait(event, now)

    def _let_wait(self, event: Arrived, now: Time) -> list[Effect]:
        limits = self._limits
        effects: list[Effect] = []
        until = None if limits.wait_for is None else now + limits.wait_for
        self.waiting.append((until, event))
        if limits.events is not None and len(self.waiting) > limits.events:
            effects += self._give_up(self.waiting[0][0], now)
        return effects if until is None else [*effects, WakeAt(until)]

    def _must_wait(self, stamp: Stamp) -> bool:
        """Whether something that comes before an event has neither come nor been given up."""
        done = self.done
        if stamp.number > done[stamp.topic] + 1:
            return True
        return any(
            topic in self._beginning or done[topic] < number
            for topic, number in self._before(stamp)
            if topic in self.topics or topic in self._beginning
        )

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
        """Notify an event, tagged if it is not in order."""
        stamp = event.timestamp
        assert isinstance(stamp, Stamp)
        for topic, number in self._after.pop(stamp.topic, {}).items():
            if self.done.get(topic, 0) < number:
                self.clock[topic] = max(number, self.clock.get(topic, 0))
        in_order = self._in_order(stamp)
        if in_order:
            for topic, number in ((stamp.topic, stamp.number), *stamp.higher):
                if topic in self.clock:
                    self.clock[topic] = max(number, self.clock[topic])
        self.done[stamp.topic] = max(stamp.number, self.done[stamp.topic])
        self._forget_left()
        return [Notify(event.topic, event.payload, stamp, in_order)]

    def _release(self, now: Time) -> list[Effect]:
        """Notify those that need not wait any more."""
        effects: list[Effect] = []
        while True:
            place = next((n for n, (_, one) in enumerate(self.waiting) if self._may_go(one)), None)
            if place is None:
                return effects
            effects += self._notify(self.waiting.pop(place)[1])

    def _is_before_us(self, event: Arrived) -> bool:
        """Whether an event was numbered before our subscription."""
        stamp = event.timestamp
        assert isinstance(stamp, Stamp)
        return event.topic in self.topics and stamp.number <= self._start[event.topic]

    def _may_go(self, event: Arrived) -> bool:
        stamp = event.timestamp
        assert isinstance(stamp, Stamp)
        return event.topic in self.topics and not self._must_wait(stamp)

    def _give_up(self, until: Time | None, now: Time) -> list[Effect]:
        """Notify the first that waits, of those whose time is over by `until`.

        Not one of a topic that is yet to begin: whether it is before our time is not known.
        """
        for place, (at, event) in enumerate(self.waiting):
            if until is not None and at is not None and at > until:
                break
            if event.topic in self.topics:
                del self.waiting[place]
                return [*self._notify(event), *self._release(now)]
        return []

    def next_wake(self) -> Time | None:
        """When we ask again, or the time of something that waits is over."""
        times = [at for at, one in self.waiting if one.topic in self.topics]
        return min((at for at in (self._again_at, *times) if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        """Ask again, and notify those whose time is over."""
        effects: list[Effect] = []
        if self._again_at is not None and self._again_at <= now:
            effects += self._register(now)
        while self._limits.wait_for is not None:
            given_up = self._give_up(now, now)
            if not given_up:
                break
            effects += given_up
        return effects
