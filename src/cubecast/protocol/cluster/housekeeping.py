"""Which topics a node may forget, and when to look.

A topic that a node has left, with nothing of it under way here, is *idle*.  An idle topic is
forgotten when it was not used here for `Config.forget_after`, and no node that may come back from
another view is owed messages of it (`Horizon`).  If more than `Config.idle_topics` are idle, the
oldest are forgotten.

A topic that a node is in because of a pattern alone is *watched* while nothing happens in it.  Such
a topic is chosen in the same way, but the node first asks the others whether one of them may still
publish to it (`Discovery.release`).

Invariants:

1. At least `Config.forget_after` lies between two rounds.  So a node that comes back has that long
   to ask what it missed before its history is dropped.
2. At most `Config.idle_topics` topics are idle, and those that became idle since the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from cubecast.protocol.cluster.horizon import Horizon
from cubecast.protocol.config import Config
from cubecast.protocol.port import Time, Topic


class Tenant(Protocol):
    """What housekeeping asks of a topic."""

    @property
    def may_be_let_go(self) -> bool: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def is_watched(self) -> bool: ...
    @property
    def uses(self) -> int: ...


class Housekeeping:
    """The rounds of one node."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._round_at: Time | None = None
        self._allowed = config.idle_topics
        self._uses: dict[Topic, tuple[int, int]] = {}
        """Idle and watched topics: uses at the last round, and the epoch when they last changed."""
        self.unused: dict[Topic, int] = {}
        """Watched topics that were chosen, with their uses at that time."""
        self.waits = False
        """Whether another round may find topics to forget even if nothing happens before it."""
        self._last: Horizon | None = None
        self.horizon = Horizon()
        """The history to keep, by the last round and the one before."""

    def stir(self, now: Time) -> Time | None:
        """Plan a round, unless one is planned; return its time, or None if nothing was planned."""
        if self._round_at is not None or not self._config.forget_after:
            return None
        self._round_at = now + self._config.forget_after
        return self._round_at

    def is_due(self, topics: int, now: Time) -> bool:
        """Whether to look for topics to forget."""
        if not self._config.forget_after:
            return False
        return topics > self._allowed or (self._round_at is not None and self._round_at <= now)

    def choose(
        self, topics: Mapping[Topic, Tenant], horizon: Callable[[], Horizon], now: Time
    ) -> list[Topic]:
        """The topics to forget now."""
        idle = [topic for topic, tenant in topics.items() if tenant.is_idle]
        watched = [topic for topic, tenant in topics.items() if tenant.is_watched]
        chosen = dict.fromkeys((*self._crowd(idle), *self._crowd(watched)))
        if self._round_at is not None and self._round_at <= now:
            self._round_at = None
            self._move_horizon(horizon())
            chosen.update(dict.fromkeys(self._unchanged([*idle, *watched], topics)))
        self._allowed = len(topics) - len(chosen) + self._config.idle_topics
        self.waits = any(tenant.may_be_let_go for tenant in topics.values())
        self.unused = {topic: topics[topic].uses for topic in watched if topic in chosen}
        return [topic for topic in chosen if topic not in self.unused]

    def _crowd(self, topics: list[Topic]) -> list[Topic]:
        """The oldest topics beyond `Config.idle_topics`."""
        return topics[: max(0, len(topics) - self._config.idle_topics)]

    def _move_horizon(self, horizon: Horizon) -> None:
        last, self._last = self._last or horizon, horizon
        kept = [one.absent_from for one in (last, horizon) if one.absent_from is not None]
        self.horizon = Horizon(last.epoch, min(kept, default=None))

    def _unchanged(self, idle: list[Topic], topics: Mapping[Topic, Tenant]) -> list[Topic]:
        """Topics that were among these in the last round, not used since, and owed to no node."""
        before, self._uses = self._uses, {}
        chosen = []
        for topic in idle:
            uses = topics[topic].uses
            known, used_in = before.get(topic, (-1, 0))
            if known != uses:
                used_in = self.horizon.epoch
            elif not self.horizon.needs_superseded(used_in):
                chosen.append(topic)  # again in the next round if it cannot go yet
            self._uses[topic] = uses, used_in
        return chosen
