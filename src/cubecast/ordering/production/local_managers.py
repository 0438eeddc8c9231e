"""The managers that live at one member: they begin and end with a layout.

| state | `Close` of a later epoch | `Open` of a later epoch | requests, registrations |
|---|---|---|---|
| *no layout* | answer `EpochClosed` | open | held |
| *open* | close | open | served, if they name this epoch |
| *closing* | answer again | open | held; stamps on their way pass on |

*Held* means: the member is told the next layout as soon as it is open, and asks again.  A member
that names an older epoch is told the layout at once.  A message that names a later one is kept
until that epoch is open here.

A member closes at once: it numbers nothing more.  It answers `EpochClosed` when every request that
it has numbered is confirmed by its publisher, or void: its stamps were to pass a manager that is
lost, or `drain_for` is over.  So the counts of `EpochClosed` are the last numbers of the epoch
(hole T12), and no request is left half-way (T10).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from cubecast.ordering.effects import Effect, SendToModule, Time, WakeAt
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Reranking, Timing
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.manager import Manager
from cubecast.ordering.production.messages import (
    Begin,
    Begun,
    Confirmed,
    Epoch,
    Fill,
    Inquire,
    Range,
    Register,
    Registered,
    Repeat,
    Request,
    Source,
    Void,
)
from cubecast.ordering.production.notices import (
    UNKNOWN,
    AskLayout,
    Close,
    EpochClosed,
    EpochEnd,
    Open,
    Rerank,
)
from cubecast.ordering.production.registry import SubscriptionRegistry
from cubecast.ordering.timestamps import Number, Topic

MAX_EARLY = 1024
"""Messages that are kept until their layout is open here, at most."""
MAX_TOPICS = 65_536
"""Above this many topics here a new epoch is asked for, which begins with those in use."""

ForManagers: TypeAlias = (
    Request | Fill | Repeat | Confirmed | Inquire | Register | Begin | AskLayout
)


class Office:
    """The managers of one member in one life."""

    def __init__(self, me: Source, timing: Timing, reranking: Reranking | None) -> None:
        self._me = me
        self._timing = timing
        self._reranking = reranking
        self.layout: Layout | None = None
        self.managers: dict[Topic, Manager] = {}
        self.registry = SubscriptionRegistry(timing.lease_for)
        self.closings: tuple[EpochEnd, ...] = ()
        self._promised: Epoch = -1
        """We number no events in epochs below this."""
        self._close: Close | None = None
        self._drain_until: Time | None = None
        self._held: dict[Member, None] = {}
        self._early: list[ForManagers] = []
        """Messages of a layout that we do not know yet."""
        self._asked_for_ranks = False
        self._confirming: dict[tuple[Topic, Range], Time] = {}
        """The times since which publishers are asked to confirm, as subscribers inquire."""

    @property
    def epoch(self) -> Epoch:
        """The epoch of the last layout that is or was open here."""
        return -1 if self.layout is None else self.layout.epoch

    @property
    def is_open(self) -> bool:
        return self._close is None and self.layout is not None

    def _manages(self) -> bool:
        return self.layout is not None and self._me in self.layout.managers

    def _manager(self, topic: Topic) -> Manager:
        found = self.managers.get(topic)
        if found is None:
            assert self.layout is not None
            found = self.managers[topic] = Manager(topic, self.layout)
            found.name(self.registry.shared_with(topic))
        return found

    # -- what members ask ------------------------------------------------------------------------

    def receive(self, message: ForManagers, now: Time) -> list[Effect]:
        """Handle a message, if we have its layout open."""
        match message:
            case AskLayout():
                return self._tell_or_hold(message.member, message.epoch)
            case Fill() | Repeat() | Confirmed():
                return self._on_the_way(message, now)
            case Request():
                return self._serve(message, message.source.member, now)
            case Register():
                return self._serve(message, message.subscription.subscriber, now)
            case Inquire() | Begin():
                return self._serve(message, message.subscriber, now)

    def _on_the_way(self, message: Fill | Repeat | Confirmed, now: Time) -> list[Effect]:
        """Pass stamps on, also while we close, so that none is left half-way."""
        epoch = message.request.epoch if isinstance(message, Fill) else message.epoch
        if epoch > self.epoch:
            return self._keep_until_open(message)
        if epoch < self.epoch or not self._manages():
            return []
        match message:
            case Fill():
                manager = self._manager(message.at)
                return [*manager.on_fill(message, now), *self._ask_for_ranks(manager, message)]
            case Repeat():
                return self._manager(message.turn.low).on_repeat(message)
            case Confirmed():
                self._manager(message.topic).on_confirmed(message)
                return self._answer_if_drained(now)

    def _serve(
        self, message: Request | Register | Begin | Inquire, member: Member, now: Time
    ) -> list[Effect]:
        if message.epoch > self.epoch:
            return self._keep_until_open(message)
        if not self.is_open or message.epoch < self.epoch:
            return self._tell_or_hold(member, message.epoch)
        if not self._manages():
            return []
        match message:
            case Request():
                effects = self._number(message, now)
                return [*effects, *self._ask_for_ranks_if(len(self.managers) > MAX_TOPICS)]
            case Register():
                return self._on_register(message, now)
            case Begin():
                clocks = self._clocks(message.topics)
                begun = Begun(message.epoch, message.version, self._me.member, clocks)
                return [SendToModule(message.subscriber, begun)]
            case Inquire():
                return self._on_inquire(message, now)

    def _number(self, request: Request, now: Time) -> list[Effect]:
        manager = self._manager(request.topic)
        assert self.layout is not None
        if not self.layout.has_one_manager:
            return manager.on_request(request, now)
        effects = manager.on_request_alone(request, self._manager, now)
        return [*effects, *self._ask_for_ranks_if(self._is_busier(manager))]

    def _is_busier(self, manager: Manager) -> bool:
        """Whether a topic has many more events than one above it."""
        reranking = self._reranking
        if reranking is None or manager.clock < reranking.events or self._asked_for_ranks:
            return False
        return any(reranking.is_due(manager.clock, self._clock(one)) for one in manager.higher)

    def _keep_until_open(self, message: ForManagers) -> list[Effect]:
        """Keep a message of a later layout; if there is no room, its sender repeats it."""
        if len(self._early) < MAX_EARLY:
            self._early.append(message)
        return []

    def _tell_or_hold(self, member: Member, epoch: Epoch) -> list[Effect]:
        if self.is_open and epoch < self.epoch:
            return [self._tell(member)]
        if not self.is_open:
            self._held[member] = None
        return []

    def _tell(self, member: Member) -> SendToModule:
        """Tell a member the layout, and which of its subscriptions we know."""
        assert self.layout is not None
        known = self.registry.known(member)
        if known is None:
            return SendToModule(member, Open(self.layout, self.closings, UNKNOWN))
        closings = tuple(one.of(known.topics) for one in self.closings)
        return SendToModule(member, Open(self.layout, closings, known.version))

    # -- subscriptions ---------------------------------------------------------------------------

    def _on_register(self, message: Register, now: Time) -> list[Effect]:
        """Learn a subscription; our clocks tell from which number on our stamps include it.

        A subscriber whose clock went back between two lives is told the version that we know.
        """
        mine = message.subscription
        known = self.registry.known(mine.subscriber)
        if known is not None and known.version > mine.version:
            return [self._tell(mine.subscriber)]
        self._name(self.registry.note(message.subscription, now))
        clocks = self._clocks(message.subscription.topics)
        version, subscriber = message.subscription.version, message.subscription.subscriber
        return [
            SendToModule(subscriber, Registered(message.epoch, version, self._me.member, clocks))
        ]

    def _name(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            if topic in self.managers:
                self.managers[topic].name(self.registry.shared_with(topic))

    def _clocks(self, topics: Iterable[Topic]) -> tuple[tuple[Topic, Number], ...]:
        assert self.layout is not None
        mine = (one for one in topics if self.layout.manager_of(one) == self._me.member)
        return tuple((topic, self._clock(topic)) for topic in mine)

    def _clock(self, topic: Topic) -> Number:
        return self.managers[topic].clock if topic in self.managers else 0

    # -- numbers that no event has -----------------------------------------------------------------

    def _on_inquire(self, message: Inquire, now: Time) -> list[Effect]:
        """Tell a subscriber which numbers are void; ask publishers of others to confirm them."""
        manager = self._manager(message.numbers.topic)
        effects: list[Effect] = []
        patience = self._timing.drain_for
        unsettled = {(manager.topic, sent.numbers) for _, _, sent in manager.open_requests()}
        self._confirming = {
            key: since
            for key, since in self._confirming.items()
            if key[0] != manager.topic or key in unsettled
        }
        for _, _, sent in list(manager.open_requests()):
            if overlap(sent.numbers, message.numbers):
                since = self._confirming.setdefault((manager.topic, sent.numbers), now)
                if patience is not None and now - since >= patience:
                    manager.give_up(sent)
                    del self._confirming[manager.topic, sent.numbers]
        void = tuple(one for one in manager.void if overlap(one, message.numbers))
        if void:
            effects.append(SendToModule(message.subscriber, Void(message.epoch, void)))
        return [*effects, *manager.ask_to_confirm(message.numbers)]

    # -- ranks -----------------------------------------------------------------------------------

    def _ask_for_ranks(self, manager: Manager, fill: Fill) -> list[Effect]:
        """Ask for new ranks if a lower topic is much busier than ours."""
        reranking = self._reranking
        due = reranking is not None and reranking.is_due(fill.number, manager.clock)
        return self._ask_for_ranks_if(due)

    def _ask_for_ranks_if(self, due: bool) -> list[Effect]:
        """Ask for a new layout, once in an epoch (T10)."""
        if not due or self._asked_for_ranks or not self.is_open:
            return []
        self._asked_for_ranks = True
        assert self.layout is not None
        return [SendToModule(self.layout.maker, Rerank(self.epoch))]

    # -- layouts ---------------------------------------------------------------------------------

    def on_close(self, close: Close, now: Time) -> list[Effect]:
        """Number no more events, and answer when all numbered ones are settled."""
        if close.epoch < self._promised or close.epoch <= self.epoch:
            return []
        again = self._close is not None and self._close.epoch == close.epoch
        self._promised, self._close = close.epoch, close
        effects: list[Effect] = []
        if not again:
            self._give_up_what_passes_the_lost(close.living)
            patience = self._timing.drain_for
            if patience is not None:
                self._drain_until = now + patience
                effects.append(WakeAt(self._drain_until))
            for manager in self.managers.values():
                effects += manager.ask_to_confirm(Range(manager.topic, 0, manager.clock))
        return [*effects, *self._answer_if_drained(now)]

    def _give_up_what_passes_the_lost(self, living: Iterable[Member]) -> None:
        assert self._close is not None
        if self.layout is None:
            return
        lost = set(self.layout.names) - set(living)
        if not lost:
            return
        for manager in self.managers.values():
            through = self.layout.managers_of(manager.higher)
            if through & lost:
                for _, _, sent in list(manager.open_requests()):
                    manager.give_up(sent)

    def _answer_if_drained(self, now: Time) -> list[Effect]:
        if self._close is None:
            return []
        over = self._drain_until is not None and now >= self._drain_until
        for manager in self.managers.values():
            for _, _, sent in list(manager.open_requests()):
                if not over:
                    return []
                manager.give_up(sent)
        return [SendToModule(self._close.maker, self._closed(self._close))]

    def _closed(self, close: Close) -> EpochClosed:
        counts = ((topic, one.clock) for topic, one in self.managers.items() if one.clock)
        void = (numbers for one in self.managers.values() for numbers in one.void)
        return EpochClosed(
            close.epoch,
            self._me,
            self.epoch,
            () if self.layout is None else self.layout.managers,
            tuple(sorted(counts)),
            tuple(void),
            self.registry.all(),
            self.closings,
        )

    def on_open(self, message: Open, now: Time) -> list[Effect]:
        """Begin a layout: every topic from number 1 on."""
        epoch = message.layout.epoch
        if epoch <= self.epoch or epoch < self._promised:
            return []
        self.layout, self.closings = message.layout, message.closings
        self.registry.replace(message.subscriptions, now)
        publishers = {source.member for one in self.managers.values() for _, source in one.kept}
        self._held.update(dict.fromkeys(sorted(publishers)))
        self.managers = {}
        self._close = self._drain_until = None
        self._asked_for_ranks = False
        self._confirming = {}
        held, self._held = self._held, {}
        early, self._early = self._early, []
        effects: list[Effect] = [self._tell(member) for member in held]
        for one in early:
            effects += self.receive(one, now)
        return effects

    # -- time ------------------------------------------------------------------------------------

    def next_wake(self) -> Time | None:
        times = (self._drain_until, self.registry.next_expiry())
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        self._name(self.registry.drop_expired(now))
        if self._timing.lease_for is not None:
            for manager in self.managers.values():
                manager.drop_silent(now - self._timing.lease_for)
        if self._drain_until is None or self._drain_until > now:
            return []
        effects = self._answer_if_drained(now)
        self._drain_until = None
        return effects


def overlap(one: Range, other: Range) -> bool:
    return one.first <= other.last and other.first <= one.last
