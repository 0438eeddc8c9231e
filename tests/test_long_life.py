"""A cluster that runs for long keeps what lives, and nothing else."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec
import pytest

from cubecast.sim import census as counting
from cubecast.sim.census import census
from cubecast.sim.longlife import Chronicle, LifePlan, live

WARM_UP = 3
"""Days until what is kept for those who may come back is dropped for the first time."""
ALL_HAVE_PUBLISHED = 60
"""Days until each of 64 nodes has published to each topic, and each slot has changed its life."""


# -- the count -------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: object
    right: object


class Record(msgspec.Struct, frozen=True):
    table: dict[int, int]


class Slotted:
    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue = deque([1, 2, 3])


class Root:
    def __init__(self) -> None:
        self.by_topic = {"a": [1, 2], "b": [3]}
        self.pair = Pair({1, 2}, Slotted())
        self.record = Record({1: 1})
        self.text = "no table"
        self.mask = 0b1111
        self.again = self.by_topic
        self.itself = self


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PACKAGES", (__name__,))


@pytest.mark.usefixtures("followed")
def test_a_census_finds_tables_in_every_kind_of_object_and_counts_each_once() -> None:
    assert census(Root()) == {
        "Root.by_topic": 5,
        "Pair.left": 2,
        "Slotted.queue": 3,
        "Record.table": 1,
    }


def test_a_census_does_not_follow_what_is_not_of_the_protocol() -> None:
    assert census(Root()) == {}


# -- lives -----------------------------------------------------------------------------------------


def judge(chronicle: Chronicle, window: int, allowed: int, warm_up: int = WARM_UP) -> None:
    assert chronicle.report is not None
    assert chronicle.report.ok, str(chronicle.report)
    happened = chronicle.happened
    for what in ("publications", "visits", "replies", "crashes", "leaves", "partitions"):
        assert happened[what] > 0, what
    first = slice(warm_up, warm_up + window)
    grown = chronicle.grown(first, slice(-window, None), allowed)
    assert not grown, f"tables that grow, largest in the first days and in the last: {grown}"
    plan = chronicle.plan
    for day in chronicle.days[WARM_UP:]:
        assert day.most <= plan.bound(), f"day {day.day}: {day.most} entries at one node"


def test_after_two_weeks_nodes_keep_what_they_kept_after_some_days() -> None:
    plan = LifePlan(nodes=12, days=WARM_UP + 14, topics=3, subscribers=6, replies=8)
    judge(live(plan), window=7, allowed=6 * plan.nodes)  # what ended of late differs by the day


@pytest.mark.soak
def test_after_a_year_64_nodes_keep_what_they_kept_after_the_first_months() -> None:
    plan = LifePlan()
    judge(live(plan), window=56, allowed=2 * plan.nodes, warm_up=ALL_HAVE_PUBLISHED)
