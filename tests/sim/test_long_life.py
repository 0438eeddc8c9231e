"""A cluster that runs for long keeps what lives, and nothing else."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import NamedTuple

import msgspec
import pytest

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Install
from cubecast.protocol.port import Time
from cubecast.sim import census as counting
from cubecast.sim.census import census
from cubecast.sim.long_life import Chronicle, DayEnd, LifePlan, live

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


def judge(chronicle: Chronicle, window: int, per_node: float, warm_up: int = WARM_UP) -> None:
    assert chronicle.report is not None
    assert chronicle.report.ok, str(chronicle.report)
    happened = chronicle.happened
    for what in ("publications", "visits", "replies", "crashes", "leaves", "partitions"):
        assert happened[what] > 0, what
    plan = chronicle.plan
    grown = chronicle.grown(window, warm_up, per_node, per_elder=plan.nodes)
    assert not grown, f"tables that grow, medians of the first days and of the last: {grown}"
    for day in chronicle.days[WARM_UP:]:
        assert day.most <= plan.bound(), f"day {day.day}: {day.most} entries at one node"


MONTH = LifePlan(nodes=12, days=WARM_UP + 28, topics=3, subscribers=6, replies=8)
WINDOW = 10
CHANCE = 4
"""Entries a node: how many lives and streams ended of late differs by the week."""


def test_after_a_month_nodes_keep_what_they_kept_after_some_days() -> None:
    judge(live(MONTH), WINDOW, CHANCE)


@pytest.mark.parametrize("carried", [False, True])
def test_one_entry_for_each_life_that_ended_is_found(
    carried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept by the core of one life, or taken along to the next one."""
    install, carry_over = CubecastNode.install, CubecastNode.carry_over

    def install_and_keep(self: CubecastNode, news: Install, now: Time) -> None:
        before = self.view
        install(self, news, now)
        assert before is not None
        gone = [who.uid for who in before.members.values() if not news.view.has(who.uid)]
        vars(self).setdefault("kept", []).extend(gone)

    def carry_over_all(self: CubecastNode, former: CubecastNode, apart: int) -> None:
        carry_over(self, former, apart)
        vars(self)["kept"] = list(vars(former).get("kept", ()))

    monkeypatch.setattr(CubecastNode, "install", install_and_keep)
    if carried:
        monkeypatch.setattr(CubecastNode, "carry_over", carry_over_all)
    chronicle = live(replace(MONTH, check=False))
    grown = chronicle.grown(WINDOW, WARM_UP, CHANCE, per_elder=MONTH.nodes)
    found = {name for name in grown if name.startswith("CubecastNode.kept")}
    assert "CubecastNode.kept of the eldest" in found
    assert ("CubecastNode.kept of elders" in found) or not carried
    assert len(grown) == len(found), grown


def chronicle_of(days: list[tuple[int, int, int]]) -> Chronicle:
    """One table: at all of ten nodes, at the eldest, at three elders."""
    names = [[Counter({"Table.rows": count}) for count in day] for day in days]
    ends = [DayEnd(day, *tables, most=0, topics=1) for day, tables in enumerate(names)]
    return Chronicle(LifePlan(nodes=10), ends)


def test_medians_are_compared_and_not_peaks() -> None:
    calm = [(100, 10, 30)] * 4
    assert chronicle_of([*calm, (100, 10, 30), (999, 99, 99), (0, 0, 0)]).grown(3, 0, 0, 0) == {}
    assert chronicle_of([*calm, (121, 10, 30), (121, 10, 30), (0, 0, 0)]).grown(3, 0, 2, 0) == {
        "Table.rows": (100, 121)
    }
    assert chronicle_of([*calm, *[(120, 12, 36)] * 3]).grown(3, 0, 2, 2) == {}
    assert chronicle_of([*calm, *[(120, 13, 37)] * 3]).grown(3, 0, 2, 2) == {
        "Table.rows of the eldest": (10, 13),
        "Table.rows of elders": (30, 37),
    }
    assert chronicle_of([(0, 0, 0), *calm]).grown(2, 1, 0, 0) == {}, "after the warm-up"


@pytest.mark.soak
def test_after_a_year_64_nodes_keep_what_they_kept_after_the_first_months() -> None:
    plan = LifePlan()
    quarter = (plan.days - ALL_HAVE_PUBLISHED) // 4
    judge(live(plan), quarter, per_node=2, warm_up=ALL_HAVE_PUBLISHED)
