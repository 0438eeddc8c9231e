"""The manager of one topic, with the holes of [T] closed.

Theory of operation.  A manager numbers the events of its topic.  The stamp of an event then visits
the managers of the higher topics that share a subscription with it, the lowest first.  Each of them
writes its clock into the stamp, and notes the event's number: its own next event says that this
number passed before it.  So of two events whose topics share a subscription the manager of the
higher topic decides which comes first, and says so in the stamp of the later one.

Invariants:

1. *One number per event.*  A request that is repeated gets the same stamps (hole T13).
2. *Numbers only rise*, and only with events: a subscription takes none (T7).
3. *A pair of topics is named from the first subscription on* that has both (T2, T3).  A manager
   knows a subscription before the subscriber is notified of anything that it numbers afterwards.
4. *Stamps that pass two managers pass them in one order*, whatever lies between them (T11): the
   lower one counts what goes to the higher one (`Turn`), which takes them in turn.
5. A change of a subscription that is older than what is known is ignored (T8).

Bounds: `kept` has one entry per topic and publisher, with the requests that it has not confirmed;
`early` has what came before its turn, `passed` and the counts one entry per topic, `subscriptions`
one per subscriber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cubecast.ordering.effects import Effect, Send
from cubecast.ordering.messages import Member
from cubecast.ordering.production.messages import (
    Earlier,
    Fill,
    Register,
    Registered,
    Request,
    Stamped,
    Turn,
)
from cubecast.ordering.ranking import Ranking
from cubecast.ordering.timestamps import Number, Topic


class Subscription(NamedTuple):
    version: int
    topics: frozenset[Topic]


class Kept:
    """What a publisher may ask for again, in its last life."""

    __slots__ = ("done", "life", "sent")

    def __init__(self, life: int) -> None:
        self.life = life
        self.done = 0
        """It has had the answers for all events below this."""
        self.sent: dict[int, Send] = {}
        """What we sent for others, by the first event of each request."""


class Manager:
    """The state of one topic."""

    def __init__(
        self, topic: Topic, ranking: Ranking, manager_of: Callable[[Topic], Member]
    ) -> None:
        self.topic = topic
        self._ranking = ranking
        self._manager_of = manager_of
        self.clock: Number = 0
        self.subscriptions: dict[Member, Subscription] = {}
        self.higher: dict[Topic, Number] = {}
        """Topics that our stamps name, the highest first, and our last number that may not."""
        self.passed: dict[Topic, Number] = {}
        """Numbers of lower topics that passed since our last event."""
        self._passed_ever: dict[Topic, Number] = {}
        self.kept: dict[tuple[Topic, Member], Kept] = {}
        """What we sent for the events of a publisher in a topic."""
        self._sent: dict[Topic, int] = {}  # stamps that went to each higher topic
        self._taken: dict[Topic, int] = {}  # stamps that came from each lower topic
        self.early: dict[tuple[Topic, int], Fill] = {}
        """Stamps before their turn, by a turn that they wait for."""

    # -- subscriptions ---------------------------------------------------------------------------

    def on_register(self, message: Register) -> list[Effect]:
        """Learn a subscription, and add our clock to it."""
        known = self.subscriptions.get(message.subscriber)
        if known is None or message.version >= known.version:
            if self.topic in message.topics:
                subscription = Subscription(message.version, frozenset(message.topics))
                self.subscriptions[message.subscriber] = subscription
            else:
                self.subscriptions.pop(message.subscriber, None)
            self._name_higher_topics()
        clocks = (*message.clocks, (self.topic, self.clock))
        earlier = (*message.earlier, *self._earlier(message.topics))
        if not message.left:
            return [Send(message.subscriber, Registered(message.version, clocks, earlier))]
        *left, at = message.left
        passed_on = Register(
            message.subscriber, message.version, message.topics, at, tuple(left), clocks, earlier
        )
        return [Send(self._manager_of(at), passed_on)]

    def _earlier(self, topics: Iterable[Topic]) -> Iterator[Earlier]:
        """What of ours comes before new events of higher topics, and of lower ones before ours."""
        for topic in topics:
            if topic in self.higher:
                yield Earlier(self.topic, topic, self.higher[topic])
            elif topic in self._passed_ever:
                yield Earlier(topic, self.topic, self._passed_ever[topic])

    def _name_higher_topics(self) -> None:
        """See which topics before ours share a subscription with it, and from which number on."""
        precedes = self._ranking.precedes
        shared = {one for known in self.subscriptions.values() for one in known.topics}
        names = self._ranking.sort(one for one in shared if precedes(one, self.topic))
        self.higher = {one: self.higher.get(one, self.clock) for one in names}

    # -- stamps ----------------------------------------------------------------------------------

    def on_request(self, request: Request) -> list[Effect]:
        """Number events, and send their stamp to the next higher topic."""
        again = self._again(request)
        if again is not None:
            return again
        number = self.clock + 1
        self.clock += request.count
        passed, self.passed = tuple(sorted(self.passed.items())), {}
        return self._pass_on(request, number, list(self.higher), (), passed, ())

    def on_fill(self, fill: Fill) -> list[Effect]:
        """Write our clock into a stamp that passes, when its turn has come."""
        again = self._again(fill.request)
        if again is not None:
            return again
        awaited = self._awaited(fill.turns)
        if awaited is not None:
            self.early[awaited.low, awaited.count - 1] = fill
            return []
        return self._take(fill)

    def _awaited(self, turns: Iterable[Turn]) -> Turn | None:
        """A turn of a stamp that has not come."""
        mine = (turn for turn in turns if turn.high == self.topic)
        return next((turn for turn in mine if turn.count > self._taken.get(turn.low, 0) + 1), None)

    def _take(self, fill: Fill) -> list[Effect]:
        request = fill.request
        mine = [turn for turn in fill.turns if turn.high == self.topic]
        for turn in mine:
            self._taken[turn.low] = turn.count
        last = fill.number + request.count - 1
        self._passed_ever[request.topic] = max(last, self._passed_ever.get(request.topic, 0))
        self.passed[request.topic] = self._passed_ever[request.topic]
        higher = ((self.topic, self.clock), *fill.higher)
        turns = tuple(turn for turn in fill.turns if turn.high != self.topic)
        effects = self._pass_on(request, fill.number, fill.left, higher, fill.passed, turns)
        for turn in mine:
            early = self.early.pop((turn.low, turn.count), None)
            if early is not None:
                effects += self.on_fill(early)
        return effects

    def _pass_on(
        self,
        request: Request,
        number: Number,
        left: Sequence[Topic],
        higher: tuple[tuple[Topic, Number], ...],
        passed: tuple[tuple[Topic, Number], ...],
        turns: tuple[Turn, ...],
    ) -> list[Effect]:
        """Send stamps to the next higher topic, or back to their publisher."""
        if left:
            *rest, at = left
            turns = (*turns, *(self._turn(one) for one in left))
            fill = Fill(request, at, number, tuple(rest), higher, passed, turns)
            sent = Send(self._manager_of(at), fill)
        else:
            source, first, count = request.source, request.first, request.count
            stamped = Stamped(request.topic, source.life, first, count, number, higher, passed)
            sent = Send(source.member, stamped)
        self.kept[request.topic, request.source.member].sent[request.first] = sent
        return [sent]

    def _turn(self, high: Topic) -> Turn:
        self._sent[high] = self._sent.get(high, 0) + 1
        return Turn(self.topic, high, self._sent[high])

    def _again(self, request: Request) -> list[Effect] | None:
        """What we sent for the same request before; None if it is new.

        Whatever its publisher has got since need not be kept.
        """
        key, life = (request.topic, request.source.member), request.source.life
        kept = self.kept.get(key)
        if kept is None or kept.life < life:
            kept = self.kept[key] = Kept(life)
        elif kept.life > life:
            return []  # a late copy of what a life asked that is over
        kept.done = max(request.done, kept.done)
        for first in [one for one in kept.sent if one < kept.done]:
            del kept.sent[first]
        if request.first < kept.done:
            return []
        sent = kept.sent.get(request.first)
        return None if sent is None else [sent]
