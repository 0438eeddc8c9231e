"""The ordering module of one member in production: causes in, effects out.

A module has a publisher and a subscriber.  A member that manages topics has an office, with the
managers of its topics, and takes part in making layouts (`coordinator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from cubecast.ordering.effects import (
    Cause,
    Effect,
    LeaveCall,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    Start,
    SubscribeCall,
    Time,
    UnsubscribeCall,
    Wake,
    WakeAt,
)
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Reranking, Timing, WaitingBounds
from cubecast.ordering.production.coordinator import Coordinator
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.local_managers import ForManagers, Office
from cubecast.ordering.production.messages import (
    Begin,
    Begun,
    Confirm,
    Confirmed,
    Fill,
    Inquire,
    Register,
    Registered,
    Repeat,
    Request,
    Source,
    Stamped,
    Version,
    Void,
)
from cubecast.ordering.production.notices import (
    UNKNOWN,
    AnyMessage,
    AskLayout,
    Beat,
    Close,
    EpochClosed,
    Open,
    Rerank,
)
from cubecast.ordering.production.publisher import Publisher
from cubecast.ordering.production.subscriber import Subscriber
from cubecast.ordering.timestamps import Topic


class OrderingModule:
    """Publisher and subscriber of one member, and its managers, if it has any."""

    def __init__(
        self,
        name: Member,
        managers: Sequence[Member],
        *,
        life: int = 0,
        manages: bool | None = None,
        first: Sequence[Topic] = (),
        pinned: Sequence[tuple[Topic, Member]] = (),
        waiting: WaitingBounds | None = None,
        timing: Timing | None = None,
        reranking: Reranking | None = None,
        copies: int = 1,
        spread: int = 0,
        layout: Layout | None = None,
    ) -> None:
        """`managers`: members that are known to manage, the same list everywhere.

        A member that is not listed may manage, too (`manages`).  `life`: the time in milliseconds.
        `first`: topics in the order of their rank, before all others.  `pinned`: topics and the
        managers that they have as long as these live.  `copies`: successors of a manager that know
        its subscriptions.  `spread`: how many managers share the topics, 0 for all.  `layout`: a
        layout that is open from the start, where all members begin together.
        """
        if not managers:
            raise ValueError("managers must name at least one member")
        self.me = Source(name, life)
        timing = timing if timing is not None else Timing()
        waiting = waiting if waiting is not None else WaitingBounds()
        self._timing = timing
        self._managers = tuple(managers)
        self._asked: int = -1
        self._ask_again_at: Time | None = None
        self.layout: Layout | None = None
        self.publisher = Publisher(self.me, timing.retry_after, self._ask_for_layout)
        self.subscriber = Subscriber(self.me, waiting, timing, copies, self._ask_for_layout)
        self.office: Office | None = None
        self.coordinator: Coordinator | None = None
        if name in managers if manages is None else manages:
            self.office = Office(self.me, timing, reranking)
            self.coordinator = Coordinator(self.me, managers, first, pinned, spread, timing)
        if layout is not None:
            self._on_open(Open(layout, (), UNKNOWN), 0)

    @property
    def is_needed(self) -> bool:
        """Whether topics are managed here, and another manager could take them over."""
        if self.office is None or self.coordinator is None or not self.coordinator.has_successors:
            return False
        return self.office.layout is None or self.me in self.office.layout.managers

    @property
    def unheard(self) -> tuple[Member, ...]:
        """Managers that have not answered this member."""
        if self.layout is None:
            return self._managers
        waiting = self.publisher.waiting_for | self.subscriber.changes.waiting_for
        return tuple(sorted(waiting))

    # -- the door --------------------------------------------------------------------------------

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        """Return the effects of a cause."""
        match cause:
            case PublishCall():
                return self.publisher.publish(cause, now)
            case SubscribeCall():
                return self.subscriber.subscribe(cause.topic, now)
            case UnsubscribeCall():
                return self.subscriber.unsubscribe(cause.topic, now)
            case ServiceNotified():
                return self.subscriber.on_arrived(cause, now)
            case ReceivedFromModule():
                return self._receive(cast(AnyMessage, cause.message), now)
            case Start():
                return [] if self.coordinator is None else self.coordinator.start(now)
            case LeaveCall():
                return [] if self.coordinator is None else self.coordinator.leave(now)
            case Wake():
                return self._on_wake(now)

    def _receive(self, message: AnyMessage, now: Time) -> list[Effect]:
        match message:
            case Stamped():
                return self.publisher.on_stamped(message, now)
            case Confirm():
                return self.publisher.on_confirm(message)
            case Registered():
                return self.subscriber.on_registered(message, now)
            case Begun():
                return self.subscriber.on_begun(message, now)
            case Void():
                return self.subscriber.on_void(message, now)
            case Open():
                return self._on_open(message, now)
            case (
                Request()
                | Fill()
                | Repeat()
                | Confirmed()
                | Inquire()
                | Register()
                | Begin()
                | AskLayout()
            ):
                return self._for_managers(message, now)
            case Beat() | Rerank() | Close() | EpochClosed():
                return self._on_notice(message, now)

    def _for_managers(self, message: ForManagers, now: Time) -> list[Effect]:
        if self.office is None or self.coordinator is None:
            return []
        epoch = message.request.epoch if isinstance(message, Fill) else message.epoch
        self.coordinator.hear_of_layout(epoch)
        return self.office.receive(message, now)

    def _on_notice(self, message: Beat | Rerank | Close | EpochClosed, now: Time) -> list[Effect]:
        if self.office is None or self.coordinator is None:
            return []
        match message:
            case Beat():
                return self.coordinator.on_beat(message, now)
            case Rerank():
                return self.coordinator.on_rerank(message, now)
            case Close():
                self.coordinator.hear_of(message.epoch)
                return self.office.on_close(message, now)
            case EpochClosed():
                return self.coordinator.on_closed(message, now)

    # -- layouts ---------------------------------------------------------------------------------

    def _on_open(self, message: Open, now: Time) -> list[Effect]:
        """Hand a layout to managers, publisher and subscriber, in this order."""
        layout = message.layout
        effects: list[Effect] = []
        if self.office is not None and self.coordinator is not None:
            effects += self.office.on_open(message, now)
            self.coordinator.on_open(message)
        if self.layout is None or layout.epoch > self.layout.epoch:
            self.layout = layout
            self._ask_again_at = None
            effects += self.publisher.on_layout(layout, now)
        known = self._known(message)
        return [*effects, *self.subscriber.on_layout(layout, message.closings, known, now)]

    def _known(self, message: Open) -> Version:
        """The version of our subscription that the managers know."""
        mine = (one for one in message.subscriptions if one.subscriber == self.me.member)
        return next((one.version for one in mine), message.known)

    def _ask_for_layout(self, now: Time) -> list[Effect]:
        """Ask one manager after the other: some may be dead."""
        if self._ask_again_at is not None and self._ask_again_at > now:
            return []
        effects: list[Effect] = []
        if self._timing.retry_after is not None:
            self._ask_again_at = now + self._timing.retry_after
            effects.append(WakeAt(self._ask_again_at))
        known = self._managers if self.layout is None else self.layout.names
        managers = [*known, *(one for one in self._managers if one not in known)]
        self._asked += 1
        epoch = -1 if self.layout is None else self.layout.epoch
        member = managers[self._asked % len(managers)]
        return [*effects, SendToModule(member, AskLayout(self.me.member, epoch))]

    # -- time ------------------------------------------------------------------------------------

    def next_wake(self) -> Time | None:
        """When `Wake` is wanted next."""
        wanted = [self.publisher.next_wake(), self.subscriber.next_wake(), self._ask_again_at]
        if self.office is not None and self.coordinator is not None:
            wanted += [self.office.next_wake(), self.coordinator.next_wake()]
        return min((at for at in wanted if at is not None), default=None)

    def _on_wake(self, now: Time) -> list[Effect]:
        effects: list[Effect] = []
        if self._ask_again_at is not None and self._ask_again_at <= now:
            self._ask_again_at = None
            if self.layout is None or self.subscriber.later:
                effects += self._ask_for_layout(now)
        effects += self.publisher.on_wake(now)
        effects += self.subscriber.on_wake(now)
        if self.office is not None and self.coordinator is not None:
            effects += self.office.on_wake(now)
            effects += self.coordinator.on_wake(now)
        return effects
