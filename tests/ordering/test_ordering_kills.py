"""Managers that are killed, stopped and restarted under load, on real processes and sockets.

`cubecast.bench.ordering_kills` says what is judged.  No test asserts how long anything takes: each
asserts that publishing goes on, and prints when it did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pytest

from cubecast.bench.event_servers import NoServer
from cubecast.bench.ordering_kills import (
    TOPICS,
    KillsVerdict,
    MemberLife,
    Members,
    Part,
    desks,
    judged,
    manager_of,
    server,
)
from cubecast.bench.ordering_members import Kind
from cubecast.bench.ordering_worker import Brought, LifeTask, PublishedEvent, SeenEvent
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.live import in_microseconds, timing
from cubecast.ordering.production.config import Timing, WaitingBounds
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.storm import QUIET, TIMING, WAIT_FOR
from cubecast.ordering.timestamps import Stamp
from cubecast.ordering.world import OrderingWorld, manager

GENEROUS_S = 90.0
UNDER_LOAD_S = 1.0
CONFIG = OrderedConfig()
SLOW_S = CONFIG.suspect_s + 3 * CONFIG.beat_s
"""A manager that is stopped for so long is replaced."""


@contextmanager
def running(
    kind: Kind,
    parts: Sequence[Part],
    managers: Sequence[str],
    folder: Path,
    config: OrderedConfig = CONFIG,
) -> Iterator[Members]:
    """Members under load."""
    try:
        with (
            server(kind) as address,
            Members(kind, address, tuple(managers), folder, config, GENEROUS_S) as members,
        ):
            members.start(parts)
            time.sleep(UNDER_LOAD_S)
            yield members
    except NoServer as reason:
        pytest.skip(str(reason))


def check(members: Members, title: str) -> KillsVerdict:
    members.come_to_rest()
    verdict = judged(members)
    print(f"{title}: {verdict}")
    assert verdict.wrong == []
    return verdict


def kill(members: Members, name: str) -> None:
    """Kill a member; when publishing goes on it does so under a new layout."""
    since = time.monotonic()
    members.kill(name)
    print(f"{name} killed: publishing goes on after {members.wait_until_resumed(since):.2f} s")


# -- a manager that dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1, 3], ids=["one numbers, two stand by", "three share"])
def test_nodes_go_on_in_order_when_a_manager_is_killed_under_load(
    spread: int, tmp_path: Path
) -> None:
    managers, config = ("d0", "d1", "d2"), OrderedConfig(spread=spread)
    with running("cubecast", desks(), managers, tmp_path, config) as members:
        kill(members, manager_of("t0", managers, config))
        verdict = check(members, "cubecast")
    assert verdict.epochs >= 2


@pytest.mark.parametrize("kind", ["nats", "redis"])
def test_members_of_a_broker_go_on_in_order_when_a_manager_is_killed(
    kind: Kind, tmp_path: Path
) -> None:
    pytest.importorskip("nats" if kind == "nats" else "redis", reason="no client is installed")
    managers = ("m0", "m1")
    parts = [*(Part(name) for name in managers), *desks()]
    with running(kind, parts, managers, tmp_path) as members:
        kill(members, manager_of("t0", managers, CONFIG))
        verdict = check(members, kind)
    assert verdict.epochs >= 2


def test_a_manager_that_is_stopped_and_goes_on_breaks_no_order(tmp_path: Path) -> None:
    managers = ("d0", "d1", "d2")
    slow = manager_of("t0", managers, CONFIG)
    with running("cubecast", desks(), managers, tmp_path) as members:
        with members.stopped(slow):
            time.sleep(SLOW_S)
        members.wait_until_resumed(time.monotonic())  # the slow one is a manager again
        check(members, "stopped")


def test_a_rolling_restart_loses_nothing_and_breaks_no_order(tmp_path: Path) -> None:
    parts = desks(3)
    with running("cubecast", parts, ("d0", "d1"), tmp_path) as members:
        for part in parts:
            members.restart(part.name)
        verdict = check(members, "rolling restart")
    assert verdict.epochs >= 4, "each manager hands over its topics, and gets some back"


# -- the bound, in virtual time --------------------------------------------------------------------


def resumes_after(times: Timing, wait_for: int) -> int:
    """Others miss the manager, close, and tell members, or wait for what it has numbered."""
    assert times.suspect_after is not None
    assert times.beat_every is not None
    assert times.drain_for is not None
    assert times.retry_after is not None
    noticed = times.suspect_after + times.beat_every
    return noticed + times.drain_for + max(wait_for, 2 * times.retry_after)


def let_time_pass(world: OrderingWorld, until: int) -> None:
    """Messages take no time."""
    while world.now < until:
        world.settle()
        world.tick()
    world.settle()


def time_to_resume(seed: int, wait_for: int) -> int:
    """How long after a manager's crash the last event is notified that was published then.

    Some messages are on their way when it crashes, and what it has not answered is lost with it.
    """
    rng = Random(seed)
    waiting = WaitingBounds(None, wait_for)
    world = OrderingWorld(
        Production(timing=TIMING, waiting=waiting, opened=False), "abc", ["p", "s"]
    )
    world.subscribe("s", *"abc")
    let_time_pass(world, 500 + rng.randrange(100))
    for number in range(6):
        world.publish("p", rng.choice("abc"), f"before {number}")
        for _ in range(rng.randrange(4)):
            if world.moves():
                world.move_by_chance(rng)
    world.crash(manager(rng.choice("abc")))
    since = world.now
    for topic in "abc":
        world.publish("p", topic, f"after in {topic}")
    world.settle()
    awaited = {f"after in {topic}" for topic in "abc"}
    while not awaited <= {one.event for one in world.seen["s"]}:
        assert world.now < since + QUIET, "publishing does not go on"
        world.tick()
        world.settle()
    return world.now - since


@pytest.mark.parametrize("wait_for", [WAIT_FOR, 10], ids=["long waits", "short waits"])
def test_publishing_goes_on_within_the_stated_bound_after_a_crash(wait_for: int) -> None:
    bound = resumes_after(TIMING, wait_for)
    times = [time_to_resume(seed, wait_for) for seed in range(25)]
    print(f"the bound is {bound}, the longest pause {max(times)}")
    assert max(times) <= bound
    assert TIMING.suspect_after is not None
    assert max(times) >= TIMING.suspect_after, "a crash is not noticed sooner"


def test_the_bound_of_a_configuration_is_that_of_its_module() -> None:
    assert CONFIG.resumes_s == resumes_after(timing(CONFIG), in_microseconds(CONFIG.end_s)) / 1e6


# -- longer ----------------------------------------------------------------------------------------


def roles() -> list[Part]:
    """Four publishers and four subscribers, in a process each."""
    publishers = [Part(f"p{number}", (), part.rate) for number, part in enumerate(desks())]
    subscribers = [Part(f"s{number}", part.topics) for number, part in enumerate(desks())]
    return [*subscribers, *publishers]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["cubecast", "nats", "redis"])
def test_soak_managers_are_killed_one_after_the_other(kind: Kind, tmp_path: Path) -> None:
    managers = ("p0", "s0", "p1")
    with running(kind, roles(), managers, tmp_path) as members:
        for name in ("p0", "s0"):
            time.sleep(10)
            kill(members, name)
        time.sleep(10)
        verdict = check(members, f"{kind}, two of three managers killed")
    assert verdict.epochs >= 3


@pytest.mark.soak
@pytest.mark.parametrize("stop_s", [1.0, SLOW_S, 10.0])
def test_soak_a_manager_is_stopped_again_and_again(stop_s: float, tmp_path: Path) -> None:
    with running("cubecast", roles(), ("p0", "p1", "p2"), tmp_path) as members:
        for name in ("p0", "p1", "p2", "p0"):
            with members.stopped(name):
                time.sleep(stop_s)
            time.sleep(5)
        check(members, f"stopped for {stop_s:g} s, four times")


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["cubecast", "nats", "redis"])
def test_soak_a_rolling_restart_of_all(kind: Kind, tmp_path: Path) -> None:
    parts = roles()
    with running(kind, parts, ("p0", "p1", "s0"), tmp_path) as members:
        for part in parts:
            members.restart(part.name)
        check(members, f"{kind}, rolling restart of {len(parts)}")


# -- the judge -------------------------------------------------------------------------------------


def life(name: str, folder: Path, topics: tuple[str, ...] = TOPICS) -> MemberLife:
    """A life without a process."""
    task = LifeTask("cubecast", None, Part(name, topics), 0, (), folder, CONFIG)
    return MemberLife(task, cast(Any, None), subscribed_at=1.0)


def wrote(file: Path, *lines: msgspec.Struct) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def seen(event: str, number: int) -> SeenEvent:
    return SeenEvent(event, "t0", True, Stamp("t0", number), 2.0, 3.0)


@pytest.fixture
def two(tmp_path: Path) -> Members:
    """Two members that have published and seen the same two events."""
    members = Members("cubecast", None, (), tmp_path, CONFIG, 0.0)
    members.lives = [life("a", tmp_path), life("b", tmp_path)]
    for one in members.lives:
        wrote(one.task.seen, seen("x", 1), seen("y", 2))
    wrote(
        members.lives[0].task.published,
        PublishedEvent("x", "t0", 2.0),
        PublishedEvent("y", "t0", 2.0),
    )
    return members


def test_the_victim_is_a_manager_that_numbers_events() -> None:
    managers = ("x", "y", "z")
    numbering = {
        spread: manager_of("t0", managers, OrderedConfig(spread=spread)) for spread in (1, 3)
    }
    assert numbering == {1: "x", 3: "z"}


def test_a_run_in_which_nothing_is_wrong_is_judged_so(two: Members) -> None:
    verdict = judged(two)
    assert verdict == KillsVerdict([], 2, 4, 0, 1.0, 1)


def test_an_event_that_a_living_subscriber_lacks_is_found(two: Members) -> None:
    wrote(two.lives[1].task.seen, seen("x", 1))
    assert judged(two).wrong == ["not notified at b.0: y"]
    two.lives[1].subscribed_at = 2.5
    assert judged(two).wrong == [], "it was published before"


def test_events_of_a_killed_publisher_and_at_a_closed_subscriber_are_not_due(two: Members) -> None:
    wrote(two.lives[1].task.seen, seen("x", 1))
    two.lives[1].ended = True
    assert judged(two).wrong == []
    two.lives[1].ended, two.lives[0].killed = False, True
    assert judged(two).wrong == []


def test_an_event_the_service_brought_is_due_even_after_stops_and_kills(two: Members) -> None:
    publisher, late = two.lives
    late.stopped = publisher.killed = True
    wrote(late.task.seen, seen("x", 1))
    assert judged(two).wrong == []
    wrote(late.task.brought, Brought("x", 2.0), Brought("y", 2.0))
    assert judged(two).wrong == ["not notified at b.0: y"]


def test_opposite_orders_and_repeated_events_are_found(two: Members) -> None:
    wrote(two.lives[1].task.seen, seen("y", 2), seen("x", 1), seen("x", 1))
    wrong = judged(two).wrong
    assert [one.split(":")[0] for one in wrong] == ["opposite orders", "seen twice"]


def test_a_line_that_a_killed_process_did_not_finish_is_left_out(two: Members) -> None:
    file = two.lives[0].task.seen
    file.write_bytes(file.read_bytes() + b'["z","t0",tr')
    assert judged(two).wrong == []
