"""All interleavings of small worlds: the paper's mode fails without help, production does not."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from cubecast.ordering.effects import PublishCall, ReceivedFromModule
from cubecast.ordering.faithful.module import FaithfulModule as Faithful
from cubecast.ordering.judge import inversions, repeated
from cubecast.ordering.production.config import Timing
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.production.layout import MAKER_BITS
from cubecast.ordering.production.notices import Rerank
from cubecast.ordering.production.subscriber import Subscriber
from cubecast.ordering.world import Make, NodePair, OrderingWorld, manager
from cubecast.testing.explorer.ordering import (
    Act,
    Deeds,
    OrderingExploration,
    SetUp,
    Stand,
    Step,
    Table,
    TooManyStates,
    explore,
    replay,
)
from support.ordering_toys import events, joining, leaving, subscribed


class Case(NamedTuple):
    set_up: SetUp
    deeds: Deeds
    notified: int = 2
    """How many events i is notified of, which has its topics all the time."""

    def explore(self, make: Make, **options: Any) -> OrderingExploration:
        return explore(self.set_up, make, self.deeds, **options)

    def complaints(self, world: OrderingWorld) -> list[object]:
        """What must not be where no event is lost and waiting has no limit."""
        tagged = [one for seen in world.seen.values() for one in seen if not one.in_order]
        missing = [] if len(world.seen["i"]) == self.notified else ["i misses events"]
        return [*inversions(world.seen), *repeated(world.seen), *tagged, *missing]


# -- the explorer itself ---------------------------------------------------------------------------


TINY = {
    "two events": (subscribed("1", i="1"), events(p="1", q="1")),
    "a join": (subscribed("1", nodes="pj", i="1"), {**events(p="1"), "j": [joining("j", "1")]}),
    "a leave": (subscribed("12", i="12"), {**events(p="1"), "i": [leaving("i", "1")]}),
}


@pytest.mark.parametrize("name", TINY)
def test_every_schedule_of_a_small_world_is_covered(name: str) -> None:
    """The dumb twin takes every schedule in a world of real modules, without merging states."""
    case = Case(*TINY[name])
    ends: set[str] = set()

    def note(world: OrderingWorld) -> list[object]:
        ends.add(outcome(world))
        return []

    found = case.explore(Faithful, judge=note)
    schedules = list(all_schedules(case, ()))
    assert {outcome(replay(*case_of(case), one)) for one in schedules} == ends
    assert len(schedules) > found.ends >= len(ends) > 1


def outcome(world: OrderingWorld) -> str:
    return repr(sorted(world.seen.items()))


def case_of(case: Case) -> tuple[SetUp, Make, Deeds]:
    return case.set_up, Faithful, case.deeds


def all_schedules(case: Case, past: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    world = replay(*case_of(case), past)
    acts = [Act(actor, 0) for actor in case.deeds if Act(actor, 0) not in past]
    steps = [*acts, *world.moves()]
    if not steps:
        yield past
    for step in steps:
        yield from all_schedules(case, (*past, step))


def test_a_bound_that_is_reached_is_an_error() -> None:
    case = Case(subscribed("ab", i="ab", j="ab"), events(p="ab", q="ab"))
    with pytest.raises(TooManyStates, match="more than 100 states") as error:
        case.explore(Faithful, max_states=100)
    assert error.value.exploration.states > 100


def test_a_world_that_holds_what_cannot_be_copied_is_refused() -> None:
    def set_up(make: Make) -> OrderingWorld:
        world = subscribed("1", i="1")(make)
        vars(world)["chance"] = Random(0)
        return world

    with pytest.raises(TypeError, match="cannot hold a Random"):
        explore(set_up, Faithful, events(p="1"))


def test_a_stand_takes_steps_without_changing_the_module_it_shows() -> None:
    stand = Table().making(Faithful)("p", ["a"], manager, [])
    assert isinstance(stand, Stand)
    shown = stand.publisher
    twin = Stand(stand.table, stand.number)
    assert stand.step(PublishCall("a", "e")) == twin.step(PublishCall("a", "e"))
    assert stand.number == twin.number
    assert shown.outgoing == {}
    assert stand.publisher.outgoing == {0: PublishCall("a", "e")}


# -- the holes -------------------------------------------------------------------------------------

STATIC = Case(
    subscribed("xcab", i="ab", j="abx", k="abx", l="ac", n="ac", unheard="kln"),
    events(p="a", q="b", r="x"),
)
"""T1 needs four topics: a stamp waits between two managers, another one takes a short cut."""

HOLES = {
    "1": STATIC,
    "2": Case(subscribed("12", i="12", j="2"), {**events(p="1", q="2"), "j": [joining("j", "1")]}),
    "3": Case(subscribed("12", i="12", j="12"), {**events(p="1", q="2"), "j": [leaving("j", "1")]}),
    "4": Case(subscribed("12", i="12", j="1"), {**events(p="1", q="1"), "j": [joining("j", "2")]}),
    "5": Case(
        subscribed("12", i="12", k="12", j="2", unheard="k"),
        {**events(p="1", q="2"), "j": [joining("j", "1")]},
    ),
}


@pytest.mark.parametrize("hole", HOLES)
def test_the_holes_1_to_5_are_found_without_help(hole: str) -> None:
    case = HOLES[hole]
    found = case.explore(Faithful).findings[0]
    again = replay(case.set_up, Faithful, case.deeds, found.schedule)
    assert again.seen == found.world.seen
    assert inversions(again.seen) == found.verdict


@pytest.mark.parametrize("hole", HOLES)
def test_production_has_none_of_the_holes_1_to_5(hole: str) -> None:
    case = HOLES[hole]
    assert case.explore(Production(), judge=case.complaints).findings == []


def small_worlds() -> Iterator[tuple[str, Case]]:
    """Two topics, i has both, j any; two events of any topics; j joins or leaves one."""
    for mine in ("1", "2", "12"):
        for topics in ("11", "12", "22"):
            for changed in "12":
                change = leaving if changed in mine else joining
                deeds = {**events(p=topics[0], q=topics[1]), "j": [change("j", changed)]}
                name = f"{mine} publish {topics} change {changed}"
                yield name, Case(subscribed("12", i="12", j=mine), deeds)


SMALL = dict(small_worlds())


def test_where_one_subscription_changes_the_paper_fails_in_five_of_18_worlds() -> None:
    failed = [name for name, case in SMALL.items() if case.explore(Faithful).findings]
    assert failed == [
        "1 publish 11 change 2",
        "1 publish 12 change 2",
        "2 publish 12 change 1",
        "2 publish 22 change 1",
        "12 publish 12 change 1",
    ]


@pytest.mark.parametrize("name", SMALL)
def test_where_one_subscription_changes_production_does_not_fail(name: str) -> None:
    case = SMALL[name]
    found = case.explore(Production(), judge=case.complaints)
    assert found.findings == []
    assert found.ends


LARGER = {
    "three topics, four events": Case(
        subscribed("abc", i="abc", j="abc"), events(p="ab", q="ca"), 4
    ),
    "three subscribers": Case(subscribed("ab", i="ab", j="ab", k="ab"), events(p="ab", q="b"), 3),
    "a third topic is joined": Case(
        subscribed("abc", i="abc", j="ab"),
        {**events(p="a", q="c", r="b"), "j": [joining("j", "c")]},
        3,
    ),
    "one topic for another": Case(
        subscribed("ab", i="ab", j="a"),
        {**events(p="a", q="b"), "j": [joining("j", "b"), leaving("j", "a")]},
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGER)
def test_production_in_larger_worlds(name: str) -> None:
    case = LARGER[name]
    found = case.explore(Production(), judge=case.complaints, max_states=400_000)
    assert found.findings == []


# -- ranks that change -----------------------------------------------------------------------------

BEATING = Production(timing=Timing(beat_every=10**6))
"""Managers that know of each other from the start.  Time stands still, so they beat no more."""


def two_events_of_the_lower_topic(make: Make) -> OrderingWorld:
    """i and j have topics 1 and 2, and two events of 2: it is the busier one."""
    made = subscribed("12", i="12", j="12")(make)
    for number in range(2):
        made.publish("p", "2", number)
        made.settle()
    return made


def rerank(world: OrderingWorld) -> None:
    """The manager that makes layouts is asked for new ranks."""
    world.tell(manager("1"), ReceivedFromModule(Rerank(1 << MAKER_BITS)))


def reranked(topics: str) -> Case:
    published = events(**dict(zip("pq", topics, strict=False)))
    return Case(two_events_of_the_lower_topic, {**published, "1": [rerank]}, 2 + len(topics))


@pytest.mark.parametrize(
    "topics",
    ["1", "2", *(pytest.param(two, marks=pytest.mark.soak) for two in ("12", "11", "22"))],
)
def test_production_goes_from_rank_to_rank_without_a_tag(topics: str) -> None:
    case = reranked(topics)
    found = case.explore(BEATING, judge=case.complaints)
    assert found.findings == []
    world = replay(case.set_up, BEATING, case.deeds, [])
    rerank(world)
    world.settle()
    layout = vars(world.modules[manager("2")])["layout"]
    assert layout.first[0] == "2", "ranks did change"


class GoesOnAtOnce(Subscriber):
    """Does not wait for the end of an epoch (hole T12)."""

    def _has_all(self) -> bool:
        return True


def test_a_subscriber_that_does_not_wait_for_the_end_of_an_epoch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cubecast.ordering.production.module.Subscriber", GoesOnAtOnce)
    case = reranked("12")
    assert case.explore(BEATING, judge=case.complaints).findings


def test_a_schedule_names_its_steps() -> None:
    schedule = HOLES["4"].explore(Faithful).findings[0].schedule
    assert Act("j", 0) in schedule
    assert NodePair("j", manager("2")) in schedule
