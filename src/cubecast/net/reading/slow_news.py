"""Events about slow subscribers: one at once, then one a second, however often a policy acts.

Invariants: an event is told in the step in which a policy first acts; later drops are in an event
at most `TELL_EVERY_S` later, or when the subscription ends.  The only state is one timer for each
subscription that dropped something in the last `TELL_EVERY_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from cubecast.net.events import SlowSubscriber

TELL_EVERY_S = 1.0


class Dropping(Protocol):
    """A subscription whose policy may drop messages."""

    @property
    def topic(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def dropped(self) -> int: ...


class SlowNews:
    """Tells `SlowSubscriber` events of the subscriptions of one node or client."""

    def __init__(self, tell: Callable[[SlowSubscriber], None]) -> None:
        self._tell = tell
        self._told: dict[Dropping, tuple[int, asyncio.TimerHandle]] = {}

    def acted(self, subscription: Dropping) -> None:
        """Tell that a policy acted; for `block` nothing is told, as a `Gap` says what it missed."""
        if subscription.policy != "block" and subscription not in self._told:
            self._say(subscription)

    def _say(self, subscription: Dropping) -> None:
        dropped = subscription.dropped
        timer = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._look, subscription)
        self._told[subscription] = dropped, timer
        self._tell(SlowSubscriber(subscription.topic, subscription.policy, dropped))

    def _look(self, subscription: Dropping) -> None:
        dropped, _ = self._told.pop(subscription)
        if subscription.dropped != dropped:
            self._say(subscription)

    def ended(self, subscription: Dropping) -> None:
        """Tell the drops of a subscription that has ended, if they are not told yet."""
        if subscription in self._told:
            dropped, timer = self._told.pop(subscription)
            timer.cancel()
            if subscription.dropped != dropped:
                now = subscription.dropped
                self._tell(SlowSubscriber(subscription.topic, subscription.policy, now))

    def close(self) -> None:
        """Tell nothing more."""
        for _, timer in self._told.values():
            timer.cancel()
        self._told.clear()
