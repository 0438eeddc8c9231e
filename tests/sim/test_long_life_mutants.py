"""Broken members and subscriptions that only long lives give away; the true ones pass the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cubecast.chaos.eventful import draw_eventful
from cubecast.chaos.simulated.driver import run_schedule
from cubecast.errors import NotSent
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.cluster.member import Member
from cubecast.testing import Cluster, run
from support import long_life_mutants as mutants
from support import long_life_scenarios as scenarios
from support.chaos_mutants import people_of

BY_HAND: list[tuple[type[Member], Callable[[type[Member]], None]]] = [
    (mutants.KeepsTopicsForEver, scenarios.topics_that_were_used_once_are_forgotten),
    (
        mutants.PrunesTooEarly,
        scenarios.who_was_away_for_long_is_told_what_the_dead_said_meanwhile,
    ),
    (mutants.TellsRoutesWithoutTheirView, scenarios.an_idle_stream_of_a_later_view_is_closed),
    (mutants.TrustsDepartures, scenarios.nobody_has_another_member_let_go),
]


@pytest.mark.parametrize(("kind", "scenario"), BY_HAND, ids=lambda one: one.__name__)
def test_a_broken_member_is_caught_by_hand(
    kind: type[Member], scenario: Callable[[type[Member]], None]
) -> None:
    scenario(Member)
    with pytest.raises(AssertionError):
        scenario(kind)


@pytest.mark.parametrize(
    ("kind", "symptom", "seed"),
    [
        (mutants.FollowsWithoutACut, "completeness", 13),
        (mutants.JumpsAtEveryExclusion, "loss-reasons", 2),
        (mutants.SkipsEveryThird, "loss-reasons", 2),
    ],
)
def test_a_broken_member_is_caught_by_an_eventful_schedule(
    kind: type[Member], symptom: str, seed: int
) -> None:
    schedule = draw_eventful(seed, 4)
    assert run_schedule(schedule, people_of(Member)).ok
    assert symptom in run_schedule(schedule, people_of(kind)).failures


# -- credit ----------------------------------------------------------------------------------------

PACE_S = 0.005
PAYLOAD = bytes(1_000)
WINDOW = 64 * 1024
SMALL = NodeConfig(protocol=replace(NodeConfig().protocol, window=WINDOW), queue_bytes=WINDOW)


async def longest_stall(messages: int) -> float:
    """How long a publisher stands still at most, whose one reader takes `PACE_S` a message."""
    async with Cluster(2, config=SMALL) as cluster:
        async with cluster[1].subscribe("t") as subscription:

            async def read() -> None:
                for _ in range(messages):
                    await anext(subscription)
                    await asyncio.sleep(PACE_S)

            reading = asyncio.create_task(read())
            last, longest = cluster.time, 0.0
            try:
                for _ in range(messages):
                    await cluster[0].publish("t", PAYLOAD)
                    longest = max(longest, cluster.time - last)
                    last = cluster.time
                await reading
            finally:
                reading.cancel()
        cluster.check()
    return longest


def stingy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give credit back only when everything that came was read."""
    tell = Subscription._tell
    held: dict[Any, int] = {}

    def tell_when_empty(self: Subscription, news: dict[Any, int]) -> None:
        held.update(news)
        if not self.unread:
            tell(self, dict(held))
            held.clear()

    monkeypatch.setattr(Subscription, "_tell", tell_when_empty)


def test_credit_that_returns_only_when_all_is_read_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow reader slows its publisher to its pace, message by message."""
    few = 12 * PACE_S
    assert run(longest_stall(400)) <= few
    stingy(monkeypatch)
    try:
        stall = run(longest_stall(400))
    except NotSent:
        return  # it stood still for ever
    assert stall > 3 * few
