"""How managers agree on a layout: one of them makes it, the others close and open.

Managers beat: each tells all others that it lives.  The *maker* is the first living manager, in the
order of the configured list, then by name.  It makes a new layout when the managers of the present
one are not those that live and stay, or when ranks are to change:

| state | event | next |
|---|---|---|
| *at rest* | not the maker, or nothing to change | at rest |
| *at rest* | managers or ranks are to change, or others are long above us | `Close`: *closing* |
| *closing* | `EpochClosed` of all that live | `Open` to managers and subscribers: *at rest* |
| *closing* | a manager is suspected, appears, or knows a higher epoch | `Close` of one above |
| *closing* | `retry_after` is over | `Close` again to those that did not answer |
| any | a beat shows an older epoch | the first of the others: `Open` again to that manager |

Two members may make layouts at once if each believes that the other is dead.  Their epochs differ;
subscribers take the order of epochs (`front`), so untagged events stay in one order.

Bounds: one entry per manager that was heard within `suspect_after`; `weights` has the `MAX_RANKED`
busiest topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cubecast.ordering.effects import Effect, SendToModule, Time, WakeAt
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Timing
from cubecast.ordering.production.layout import Layout, next_epoch
from cubecast.ordering.production.messages import Epoch, Source, SubscriptionVersion
from cubecast.ordering.production.notices import (
    UNKNOWN,
    Beat,
    Close,
    EpochClosed,
    EpochEnd,
    Open,
    Rerank,
)
from cubecast.ordering.timestamps import Topic

MAX_RANKED = 1024
MAX_EPOCH = 1 << 62
MAX_CLOSINGS = 8
"""For how many past epochs members are told how they ended."""


class Coordinator:
    """One manager's part in making layouts."""

    def __init__(
        self,
        me: Source,
        listed: Sequence[Member],
        first: Sequence[Topic],
        pinned: Sequence[tuple[Topic, Member]],
        spread: int,
        timing: Timing,
    ) -> None:
        self._me = me
        self._listed = {member: place for place, member in enumerate(listed)}
        self._first = tuple(first)
        self._pinned = tuple(pinned)
        self._spread = spread
        self._timing = timing
        self._heard: dict[Member, tuple[Beat, Time]] = {}
        self._wait_for_listed_until: Time | None = None
        self._beat_at: Time | None = None
        self._leaving = False
        self._highest: Epoch = 0
        """The highest epoch that we have heard of."""
        self.opened: Open | None = None
        """The last layout that we made or were told, with all that managers need."""
        self._close: Close | None = None
        self._closed: dict[Member, EpochClosed] = {}
        self._again_at: Time | None = None
        self._rerank = False
        self._behind_since: Time | None = None
        self._outdated = False
        """Whether others have been in a higher epoch for long."""
        self._weights: dict[Topic, float] = {}

    # -- living managers -------------------------------------------------------------------------

    def start(self, now: Time) -> list[Effect]:
        """Begin to beat; wait for managers of the list only as long as `suspect_after`."""
        if self._timing.beat_every is None:
            return []
        if self._timing.suspect_after is not None:
            self._wait_for_listed_until = now + self._timing.suspect_after
        return self._beat(now)

    def leave(self, now: Time) -> list[Effect]:
        """Ask to be left out of the next layout."""
        self._leaving = True
        return [*self._beat(now), *self._look(now)]

    def _beat(self, now: Time) -> list[Effect]:
        assert self._timing.beat_every is not None
        self._beat_at = now + self._timing.beat_every
        beat = self._my_beat()
        others = (self._listed.keys() | self._heard.keys() | set(self._names)) - {self._me.member}
        return [WakeAt(self._beat_at), *(SendToModule(member, beat) for member in sorted(others))]

    def _my_beat(self) -> Beat:
        return Beat(self._me, self._epoch, self._highest, self._leaving)

    @property
    def _epoch(self) -> Epoch:
        return -1 if self.opened is None else self.opened.layout.epoch

    @property
    def _names(self) -> Sequence[Member]:
        return () if self.opened is None else self.opened.layout.names

    def on_beat(self, beat: Beat, now: Time) -> list[Effect]:
        """Note that a manager lives."""
        known = self._heard.get(beat.manager.member)
        if known is not None and known[0].manager.life > beat.manager.life:
            return []  # of an earlier life
        self._heard[beat.manager.member] = (beat, now)
        self._highest = max(self._highest, beat.promised)
        effects: list[Effect] = []
        if known is None:  # it may not know of us
            effects.append(SendToModule(beat.manager.member, self._my_beat()))
        if self._is_behind(beat):
            assert self.opened is not None
            effects.append(SendToModule(beat.manager.member, self.opened))
        return [*effects, *self._look(now)]

    def _is_behind(self, beat: Beat) -> bool:
        """Whether a manager has not heard of our layout, and we are the one to tell it."""
        if self.opened is None or beat.epoch >= self._epoch or beat.promised > self._epoch:
            return False
        return next(one for one in self._living() if one != beat.manager) == self._me

    def _living(self) -> list[Source]:
        """This manager and those that it heard recently, the maker first."""
        living = [beat.manager for beat, _ in self._heard.values()]
        return sorted([self._me, *living], key=self._place)

    def _place(self, manager: Source) -> tuple[int, Member]:
        return self._listed.get(manager.member, len(self._listed)), manager.member

    def _staying(self) -> list[Source]:
        leaving = {beat.manager for beat, _ in self._heard.values() if beat.leaving}
        if self._leaving:
            leaving.add(self._me)
        return [one for one in self._living() if one not in leaving]

    @property
    def has_successors(self) -> bool:
        """Whether another manager lives and stays."""
        return any(one != self._me for one in self._staying())

    # -- making a layout -------------------------------------------------------------------------

    def on_rerank(self, message: Rerank, now: Time) -> list[Effect]:
        """Note a manager's request for new ranks; one of an older epoch is ignored (T10)."""
        if message.epoch != self._epoch:
            return []
        self._rerank = True
        return self._look(now)

    def hear_of_layout(self, epoch: Epoch) -> None:
        """Note that a member has a layout above ours, and so ignores ours.

        This happens where all managers were lost: their successors know nothing of that epoch.
        """
        if epoch <= MAX_EPOCH:
            self._highest = max(self._highest, epoch)

    def _note_outdated(self, now: Time) -> None:
        """Check whether others have been in a higher epoch for so long that no layout will come."""
        if self._highest <= self._epoch or self._close is not None:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        patience = self._timing.suspect_after
        self._outdated = (
            patience is not None
            and self._behind_since is not None
            and now - self._behind_since >= patience
        )

    def _look(self, now: Time) -> list[Effect]:
        """Begin to make a layout, if we are the maker and there is something to change."""
        living, staying = self._living(), self._staying()
        if living[0] != self._me or not staying or self._waits_for_listed(living, now):
            return []
        names = tuple(one.member for one in living)
        if self._close is not None:
            valid = self._close.living == names and self._close.epoch >= self._highest
            return [] if valid else self._begin(names, now)
        current = () if self.opened is None else self.opened.layout.managers
        if set(current) == set(staying) and not self._rerank and not self._outdated:
            return []
        return self._begin(names, now)

    def _waits_for_listed(self, living: Iterable[Source], now: Time) -> bool:
        until = self._wait_for_listed_until
        if until is None or now >= until:
            return False
        return not self._listed.keys() <= {one.member for one in living}

    def _begin(self, living: tuple[Member, ...], now: Time) -> list[Effect]:
        self._highest = next_epoch(max(self._highest, self._epoch), self._me)
        self._close = Close(self._highest, self._me.member, living)
        self._closed = {}
        return self._ask_to_close(now)

    def _ask_to_close(self, now: Time) -> list[Effect]:
        assert self._close is not None
        missing = [one for one in self._close.living if one not in self._closed]
        effects: list[Effect] = [SendToModule(member, self._close) for member in missing]
        if self._timing.retry_after is not None:
            self._again_at = now + self._timing.retry_after
            effects.append(WakeAt(self._again_at))
        return effects

    def hear_of(self, epoch: Epoch) -> None:
        """Note that another member makes a layout; ours, if it is older, is dropped."""
        self._highest = max(self._highest, epoch)
        if self._close is not None and self._close.epoch < epoch:
            self._close = self._again_at = None

    def on_closed(self, message: EpochClosed, now: Time) -> list[Effect]:
        """Open the layout when all managers have closed."""
        close = self._close
        if close is None or message.epoch != close.epoch:
            return []
        self._closed[message.manager.member] = message
        self._highest = max(self._highest, message.last)
        if not self._closed.keys() >= set(close.living):
            return []
        return self._open(close)

    def _open(self, close: Close) -> list[Effect]:
        answers = [self._closed[member] for member in close.living]
        staying = tuple(one for one in self._staying() if one.member in close.living)
        lives = {one.manager for one in answers}
        staying = tuple(one for one in staying if one in lives)
        closings = self._closings(answers)
        first = self._ranks(answers)
        layout = Layout(close.epoch, self._me.member, staying, first, self._pinned, self._spread)
        subscriptions = newest(one for answer in answers for one in answer.subscriptions)
        opened = Open(layout, closings, UNKNOWN, subscriptions)
        self._close = self._again_at = None
        self._rerank = False
        effects: list[Effect] = [SendToModule(member, opened) for member in close.living]
        for one in subscriptions:
            if one.topics and one.subscriber not in close.living:
                needed = tuple(closing.of(one.topics) for closing in closings)
                effects.append(SendToModule(one.subscriber, Open(layout, needed, one.version)))
        return effects

    def on_open(self, opened: Open) -> None:
        """Note an open layout, ours or another maker's."""
        if opened.layout.epoch <= self._epoch:
            return
        self.opened = opened
        self.hear_of(opened.layout.epoch)
        self._first = opened.layout.first

    def _closings(self, answers: Sequence[EpochClosed]) -> tuple[EpochEnd, ...]:
        """The ends of the last epoch, and of those before it."""
        last = max(answer.last for answer in answers)
        known = {one.epoch: one for answer in answers for one in answer.closings}
        if last >= 0:
            known[last] = _closing(last, answers)
        return tuple(known[epoch] for epoch in sorted(known)[-MAX_CLOSINGS:])

    def _ranks(self, answers: Sequence[EpochClosed]) -> tuple[Topic, ...]:
        """The busiest topics first; counts of earlier epochs are halved each time."""
        weights = {topic: weight / 2 for topic, weight in self._weights.items()}
        for answer in answers:
            for topic, count in answer.counts:
                weights[topic] = weights.get(topic, 0) + count
        busiest = sorted(weights, key=lambda topic: (-weights[topic], topic))[:MAX_RANKED]
        self._weights = {topic: weights[topic] for topic in busiest}
        return tuple(busiest) if self._rerank else self._first

    # -- time ------------------------------------------------------------------------------------

    def next_wake(self) -> Time | None:
        times = (self._beat_at, self._again_at)
        return min((at for at in times if at is not None), default=None)

    def on_wake(self, now: Time) -> list[Effect]:
        effects: list[Effect] = []
        if self._beat_at is not None and self._beat_at <= now:
            self._forget_the_silent(now)
            self._note_outdated(now)
            effects += [*self._beat(now), *self._look(now)]
        if self._again_at is not None and self._again_at <= now:
            effects += self._ask_to_close(now)
        return effects

    def _forget_the_silent(self, now: Time) -> None:
        patience = self._timing.suspect_after
        if patience is not None:
            self._heard = {
                member: (beat, at)
                for member, (beat, at) in self._heard.items()
                if at + patience > now
            }


def _closing(epoch: Epoch, answers: Sequence[EpochClosed]) -> EpochEnd:
    """The last numbers of an epoch; living managers that did not open it had none."""
    had = [answer for answer in answers if answer.last == epoch]
    counts = (one for answer in had for one in answer.counts)
    void = (one for answer in had for one in answer.void)
    living = {answer.manager for answer in answers}
    lost = tuple(one.member for one in had[0].managers if one not in living)
    return EpochEnd(epoch, tuple(sorted(counts)), tuple(void), lost)


def newest(subscriptions: Iterable[SubscriptionVersion]) -> tuple[SubscriptionVersion, ...]:
    """One subscription for each subscriber: the one with the highest version."""
    found: dict[Member, SubscriptionVersion] = {}
    for one in subscriptions:
        known = found.get(one.subscriber)
        if known is None or known.version < one.version:
            found[one.subscriber] = one
    return tuple(found[name] for name in sorted(found))
