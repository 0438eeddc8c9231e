"""The manager of one topic in one epoch, with the holes of [T] closed.

Theory of operation.  A manager numbers the events of its topic.  The stamp of an event then visits
the managers of the higher topics that share a subscription with it, the lowest first.  Each of them
writes its clock into the stamp, and notes the event's number: its own next event says that this
number passed before it.  So of two events whose topics share a subscription the manager of the
higher topic decides which comes first, and says so in the stamp of the later one.

Invariants:

1. *One stamp per request.*  A request that is repeated gets the same stamps (hole T13).
2. *Numbers only rise*, and only with events: a subscription takes none (T7).
3. *A pair of topics is named from the first subscription on* that has both (T2, T3).  A manager
   knows a subscription before the subscriber is notified of anything that it numbers afterwards.
4. *Stamps that pass two managers pass them in one order*, whatever lies between them (T11): the
   lower one counts what goes to the higher one (`Turn`), which takes them in turn.  Stamps take
   different ways, so that some may be before each other in a circle; no subscriber has all their
   topics.  The manager where they meet takes them all at once: what matters is that it numbers no
   event of its own between two of them.

Bounds: a manager lives for one epoch.  `kept` has one entry per topic and publisher's life, with
its unconfirmed requests, until the publisher was silent for a lease; `early` has stamps before
their turn; `passed` and the counts have one entry per topic; `void` has the numbers of dead
publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from cubecast.ordering.effects import Effect, SendToModule, Time
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import (
    Confirm,
    Confirmed,
    Fill,
    Range,
    Repeat,
    Request,
    Source,
    Stamped,
    Turn,
)
from cubecast.ordering.timestamps import Number, Topic

Label: TypeAlias = tuple[Topic, Source, int]


class Sent(NamedTuple):
    """The stamps sent for a request, and the numbers of its events."""

    effect: SendToModule
    numbers: Range
    turns: tuple[Turn, ...]


class Kept:
    """The requests that a publisher, in one of its lives, may repeat in one topic."""

    __slots__ = ("at", "done", "sent")

    def __init__(self, at: Time) -> None:
        self.at = at
        """When the publisher was last heard."""
        self.done = 0
        """The publisher has the answers for all events below this."""
        self.sent: dict[int, Sent] = {}
        """The answers by the first event of each request."""


class Manager:
    """The state of one topic in one epoch."""

    def __init__(self, topic: Topic, layout: Layout) -> None:
        self.topic = topic
        self._layout = layout
        self.clock: Number = 0
        self.higher: tuple[Topic, ...] = ()
        """Topics that our stamps name, the highest first."""
        self.passed: dict[Topic, Number] = {}
        """Numbers of lower topics that passed since our last event."""
        self.seen: dict[Topic, Number] = {}
        """The highest numbers of lower topics that ever passed."""
        self.kept: dict[tuple[Topic, Source], Kept] = {}
        self._sent: dict[Topic, int] = {}  # stamps that went to each higher topic
        self._taken: dict[Topic, int] = {}  # stamps that came from each lower topic
        self.early: dict[tuple[Topic, int], Fill] = {}
        """Stamps before their turn, by a turn that they wait for."""
        self._held: dict[tuple[Topic, int], Fill] = {}
        """The same stamps by each of their turns."""
        self.void: list[Range] = []
        """Numbers that no event has or will have."""

    def name(self, shared: Iterable[Topic]) -> None:
        """Set the topics before ours that share a subscription with it."""
        ranking = self._layout.ranking
        before = (one for one in shared if ranking.precedes(one, self.topic))
        self.higher = tuple(ranking.sort(before))

    # -- stamps ----------------------------------------------------------------------------------

    def on_request(self, request: Request, now: Time) -> list[Effect]:
        """Number events, and send their stamp to the next higher topic."""
        again = self._again(request, now)
        if again is not None:
            return again
        number = self.clock + 1
        self.clock += request.count
        passed, self.passed = tuple(sorted(self.passed.items())), {}
        return self._pass_on(request, number, self.higher, (), passed, ())

    def on_request_alone(
        self, request: Request, manager_of: Callable[[Topic], Manager], now: Time
    ) -> list[Effect]:
        """Number events where the managers of all topics live here: stamps are complete at once.

        No other stamp is half-way, so there are no turns to keep.
        """
        again = self._again(request, now)
        if again is not None:
            return again
        number = self.clock + 1
        self.clock += request.count
        passed, self.passed = tuple(sorted(self.passed.items())), {}
        higher = tuple(manager_of(topic).pass_by(self.topic, self.clock) for topic in self.higher)
        return self._pass_on(request, number, (), higher, passed, ())

    def pass_by(self, topic: Topic, number: Number) -> tuple[Topic, Number]:
        """Return our clock for a stamp of a lower topic that passes, up to this number."""
        self.passed[topic] = self.seen[topic] = max(number, self.seen.get(topic, 0))
        return self.topic, self.clock

    def on_fill(self, fill: Fill, now: Time) -> list[Effect]:
        """Write our clock into a stamp that passes, when its turn has come."""
        again = self._again(fill.request, now)
        if again is not None:
            return again
        awaited = self._awaited(fill.turns)
        if awaited is None:
            return self._take(fill, now)
        place = awaited.low, awaited.count - 1
        missing = self.early.get(place) == fill  # repeated: those before it were lost
        self.early[place] = fill
        self._held.update({(turn.low, turn.count): fill for turn in self._mine(fill)})
        if missing:
            return [self._ask_for_earlier(awaited)]
        return self._take_circle(fill, now)

    def _mine(self, fill: Fill) -> list[Turn]:
        return [turn for turn in fill.turns if turn.high == self.topic]

    def _let_go(self, fill: Fill) -> None:
        for turn in self._mine(fill):
            self._held.pop((turn.low, turn.count), None)

    def _take_circle(self, fill: Fill, now: Time) -> list[Effect]:
        """Take a stamp and those that it waits for if all of them wait only for each other."""
        circle: dict[Label, Fill] = {}
        to_see = [fill]
        while to_see:
            one = to_see.pop()
            if _label(one) in circle:
                continue
            circle[_label(one)] = one
            for turn in self._mine(one):
                for count in range(self._taken.get(turn.low, 0) + 1, turn.count):
                    before = self._held.get((turn.low, count))
                    if before is None:
                        return []  # it has not arrived
                    to_see.append(before)
        for awaited in [at for at, early in self.early.items() if _label(early) in circle]:
            del self.early[awaited]
        for one in circle.values():  # first: others may look for circles, too
            self._let_go(one)
        return [effect for one in circle.values() for effect in self._take(one, now)]

    def _ask_for_earlier(self, awaited: Turn) -> SendToModule:
        taken = self._taken.get(awaited.low, 0)
        to = self._layout.manager_of(awaited.low)
        return SendToModule(to, Repeat(self._layout.epoch, awaited, taken))

    def on_repeat(self, repeat: Repeat) -> list[Effect]:
        """Send stamps again that were lost between us and a higher topic."""
        high, wanted = repeat.turn.high, range(repeat.taken + 1, repeat.turn.count)
        return [
            sent.effect
            for kept in self.kept.values()
            for sent in kept.sent.values()
            if any(turn.high == high and turn.count in wanted for turn in sent.turns)
        ]

    def _awaited(self, turns: Iterable[Turn]) -> Turn | None:
        """A turn of a stamp that has not come yet; None if all have."""
        mine = (turn for turn in turns if turn.high == self.topic)
        return next((turn for turn in mine if turn.count > self._taken.get(turn.low, 0) + 1), None)

    def _take(self, fill: Fill, now: Time) -> list[Effect]:
        request = fill.request
        mine = self._mine(fill)
        for turn in mine:
            self._taken[turn.low] = max(turn.count, self._taken.get(turn.low, 0))
        self._let_go(fill)
        mark = self.pass_by(request.topic, fill.number + request.count - 1)
        higher = (mark, *fill.higher)
        turns = tuple(turn for turn in fill.turns if turn.high != self.topic)
        effects = self._pass_on(request, fill.number, fill.left, higher, fill.passed, turns)
        for turn in mine:
            early = self.early.pop((turn.low, turn.count), None)
            if early is not None:
                effects += self.on_fill(early, now)
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
        own: tuple[Turn, ...] = ()
        if left:
            *rest, at = left
            own = tuple(self._turn(one) for one in left)
            fill = Fill(request, at, number, tuple(rest), higher, passed, (*turns, *own))
            effect = SendToModule(self._layout.manager_of(at), fill)
        else:
            effect = SendToModule(request.source.member, _stamped(request, number, higher, passed))
        numbers = Range(request.topic, number, number + request.count - 1)
        self._keep(request, Sent(effect, numbers, own))
        return [effect]

    def _turn(self, high: Topic) -> Turn:
        self._sent[high] = self._sent.get(high, 0) + 1
        return Turn(self.topic, high, self._sent[high])

    # -- requests that may come again ------------------------------------------------------------

    def _keep(self, request: Request, sent: Sent) -> None:
        self.kept[request.topic, request.source].sent[request.first] = sent

    def _again(self, request: Request, now: Time) -> list[Effect] | None:
        """The answer that we sent for the same request before; None if it is new.

        Answers that its publisher has confirmed since are dropped.
        """
        key = request.topic, request.source
        kept = self.kept.get(key)
        if kept is None:
            self._end_earlier_lives(request.source, request.topic)
            kept = self.kept[key] = Kept(now)
        kept.at = now
        kept.done = max(request.done, kept.done)
        for first in [one for one in kept.sent if one < kept.done]:
            del kept.sent[first]
        if request.first < kept.done:
            return []
        sent = kept.sent.get(request.first)
        return None if sent is None else [sent.effect]

    def _end_earlier_lives(self, source: Source, topic: Topic) -> None:
        """Declare unconfirmed numbers of earlier lives of a publisher void (T7)."""
        if topic != self.topic:
            return
        for (_, other), kept in self._own():
            if other.member == source.member and other.life < source.life:
                self.void += [sent.numbers for sent in kept.sent.values()]

    def _own(self) -> Iterator[tuple[tuple[Topic, Source], Kept]]:
        return (item for item in self.kept.items() if item[0][0] == self.topic)

    def open_requests(self) -> Iterator[tuple[Source, int, Sent]]:
        """Requests of our topic that their publishers have not confirmed."""
        void = set(self.void)
        for (_, source), kept in self._own():
            for first, sent in kept.sent.items():
                if sent.numbers not in void:
                    yield source, first, sent

    def ask_to_confirm(self, numbers: Range) -> list[Effect]:
        """Ask the publishers of these numbers whether their events are published."""
        epoch, me = self._layout.epoch, self._layout.manager_of(self.topic)
        return [
            SendToModule(source.member, Confirm(me, epoch, self.topic, source.life, first))
            for source, first, sent in self.open_requests()
            if sent.numbers.first <= numbers.last and numbers.first <= sent.numbers.last
        ]

    def on_confirmed(self, message: Confirmed) -> None:
        """Note that a publisher has published the events of a request, or never will."""
        kept = self.kept.get((self.topic, message.source))
        sent = None if kept is None else kept.sent.get(message.first)
        if kept is None or sent is None:
            return
        if message.used:
            kept.done = max(kept.done, message.first + 1)
            del kept.sent[message.first]
        else:
            self.give_up(sent)

    def give_up(self, sent: Sent) -> None:
        """Declare the numbers of a request void; their stamps may be needed for a turn."""
        if sent.numbers not in self.void:
            self.void.append(sent.numbers)

    def drop_silent(self, since: Time) -> None:
        """Forget publishers that were silent since then; their open numbers are void."""
        for key in [key for key, kept in self.kept.items() if kept.at <= since]:
            kept = self.kept.pop(key)
            if key[0] == self.topic:
                self.void += [sent.numbers for sent in kept.sent.values()]


def _label(fill: Fill) -> Label:
    """The label that identifies a stamp."""
    return fill.request.topic, fill.request.source, fill.request.first


def _stamped(
    request: Request,
    number: Number,
    higher: tuple[tuple[Topic, Number], ...],
    passed: tuple[tuple[Topic, Number], ...],
) -> Stamped:
    source = request.source
    return Stamped(
        request.epoch,
        request.topic,
        source.life,
        request.first,
        request.count,
        number,
        higher,
        passed,
    )
