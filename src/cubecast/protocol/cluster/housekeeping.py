"""Which topics a node may forget, and when to look.

A topic that a node has left, and to which it has nothing under way, is *idle*.  An idle topic is
forgotten when nobody had to do with it here for `Config.forget_after`, and nobody who may come back
from another view is owed what was published to it (`Horizon`); or when more than
`Config.idle_topics` are idle: then the oldest goes.

A topic that a node is in for the sake of a pattern alone is *watched* while nothing happens in it.
Such a topic is chosen in the same way, but the node has to ask the others first whether one of them
may still publish to it (`Discovery.release`).

Invariants:

1. Between two rounds lies at least `Config.forget_after`, so a node that comes back has that long
   to ask what it missed before history that was kept for it is given up.
2. Idle topics number at most `Config.idle_topics`, and those that became idle since the last look.
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
        """Idle and watched topics: the uses of each by the last round, and the view of then."""
        self.unused: dict[Topic, int] = {}
        """Watched topics that were chosen, and their uses at that time."""
        self.waits = False
        """Whether another round may find something although nothing happens before it."""
        self._last: Horizon | None = None
        self.horizon = Horizon()
        """What has to be remembered: by the last round and by the one before."""

    def stir(self, now: Time) -> Time | None:
        """There may be something to forget: the time of a round that is planned now."""
        if self._round_at is not None or not self._config.forget_after:
            return None
        self._round_at = now + self._config.forget_after
        return self._round_at

    def is_due(self, topics: int, now: Time) -> bool:
        """Whether to look for what may be forgotten."""
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
        """The oldest of more topics than may be kept."""
        return topics[: max(0, len(topics) - self._config.idle_topics)]

    def _move_horizon(self, horizon: Horizon) -> None:
        last, self._last = self._last or horizon, horizon
        kept = [one.absent_from for one in (last, horizon) if one.absent_from is not None]
        self.horizon = Horizon(last.epoch, min(kept, default=None))

    def _unchanged(self, idle: list[Topic], topics: Mapping[Topic, Tenant]) -> list[Topic]:
        """Those that were so in the last round, were not used since, and are owed to nobody."""
        before, self._uses = self._uses, {}
        chosen = []
        for topic in idle:
            uses = topics[topic].uses
            known, used_in = before.get(topic, (-1, 0))
            if known != uses:
                used_in = self.horizon.epoch
            elif not self.horizon.needs_superseded(used_in):
                chosen.append(topic)  # and again in the next round, if it cannot be let go yet
            self._uses[topic] = uses, used_in
        return chosen
