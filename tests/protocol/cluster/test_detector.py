"""VCube's failure detector: [B]'s bounds in synchronous rounds, and no haste elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.net.settings.presets import PRESETS, detector_for
from cubecast.protocol.cluster import detector as wire
from cubecast.protocol.cluster.detector import Detector, DetectorConfig, targets
from cubecast.protocol.cluster.knowledge import MAX_NEWS, MAX_STAMP, Knowledge
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.crashes.detector_world import Detection, Rounds
from cubecast.topology import (
    cluster_members,
    dimension_for,
    everyone,
    first_member,
    mask_of,
    members_of,
)
from support.lone_detector import LAN, Alone
from support.paths import ROOT

MS = 1_000


def square(n: int) -> int:
    """[B] 5.1: everyone knows within log2² n rounds."""
    return max(1, dimension_for(n) ** 2)


def most_tests(n: int) -> int:
    """A round: one tester per node and cluster."""
    return n * dimension_for(n)


# -- which node tests which -----------------------------------------------------------------------


def test_the_first_round_of_the_papers_example() -> None:
    """[B] Figure 2: p0 tests p1, p2 and p4."""
    assert targets(0, everyone(3), everyone(3)) == (1, 2, 4)


@given(members=st.integers(1, 2**20 - 1), alive=st.integers(0, 2**20 - 1))
def test_a_node_tests_those_whose_first_correct_tester_it_is(members: int, alive: int) -> None:
    alive &= members
    testers: dict[tuple[NodeId, int], list[NodeId]] = {}
    for i in members_of(alive):
        expected = {
            j
            for s in range(1, 6)
            for j in cluster_members(i, s)
            if members >> j & 1 and first_member(j, s, alive) == i
        }
        found = targets(i, members, alive)
        assert set(found) == expected
        assert len(found) == len(expected)
        for j in found:
            testers.setdefault((j, (i ^ j).bit_length()), []).append(i)
    assert all(len(of_one_cluster) == 1 for of_one_cluster in testers.values())


# -- synchronous rounds ---------------------------------------------------------------------------


def crash_and_recover(
    n: int, crashed: int, make: type[Detector] = Detector, members: int | None = None
) -> tuple[int, int]:
    """Rounds until the crashes, then the recoveries, are known to all; checks the bounds."""
    members = (1 << n) - 1 if members is None else members
    world = Rounds(members, make)
    assert world.round() <= most_tests(n)
    world.crash(members_of(crashed))
    rounds = 0
    while world.ignorant(crashed):
        assert rounds < square(n), f"crash of {crashed:#b} of {n}: {world.suspects()}"
        assert world.round() <= most_tests(n)
        assert not any(suspects & ~crashed for suspects in world.suspects().values())
        rounds += 1
    world.check_invariants()
    world.start(members_of(crashed), members)
    back = 0
    while world.ignorant(0):
        assert back < square(n), f"return of {crashed:#b} of {n}: {world.suspects()}"
        world.round()
        back += 1
    assert world.round() <= most_tests(n)
    world.check_invariants()
    return rounds, back


def test_every_crash_pattern_of_eight_is_known_within_nine_rounds() -> None:
    """All 255 sets that leave a node; then all of them come back at once."""
    worst = max(crash_and_recover(8, crashed) for crashed in range(255))
    assert worst[0] <= 3 * (3 + 1) // 2, "the bound of the module's theory of operation"


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_every_crash_pattern_of_a_small_cube(n: int) -> None:
    for crashed in range(1, (1 << n) - 1):
        crash_and_recover(n, crashed)


@pytest.mark.parametrize("n", [9, 16, 23, 64, 100])
def test_random_crash_patterns_of_larger_cubes(n: int) -> None:
    rng = Random(n)
    for _ in range(3 if n > 32 else 20):
        crash_and_recover(n, mask_of(rng.sample(range(n), rng.randint(1, n - 1))))


@pytest.mark.parametrize("n", [9, 16, 23, 64])
def test_whole_clusters_that_crash(n: int) -> None:
    """The worst case: one node is left of a half and has to take over for all the others."""
    d = dimension_for(n)
    half = mask_of(range(1 << (d - 1), n))
    for lonely in (1 << (d - 1), n - 1):
        crash_and_recover(n, half & ~(1 << lonely))
    crash_and_recover(n, half)
    crash_and_recover(n, mask_of(range(1 << (d - 1))))
    crash_and_recover(n, mask_of(range(1, n)))


def test_slots_may_be_missing() -> None:
    rng = Random(5)
    for _ in range(30):
        members = mask_of(rng.sample(range(32), rng.randint(2, 20)))
        living = list(members_of(members))
        crashed = mask_of(rng.sample(living, rng.randint(1, len(living) - 1)))
        crash_and_recover(32, crashed, members=members)


def test_a_thousand_nodes() -> None:
    rng = Random(1024)
    world = Rounds(everyone(10))
    crashed = mask_of(rng.sample(range(1024), 40))
    world.crash(members_of(crashed))
    assert world.rounds_until_known(crashed, square(1024)) <= square(1024)
    assert world.round() <= most_tests(1024)


@pytest.mark.soak
@pytest.mark.parametrize("n", [256, 500, 700, 1024])
def test_large_cubes(n: int) -> None:
    rng = Random(n)
    for share in (0.01, 0.1, 0.5, 0.9):
        crash_and_recover(n, mask_of(rng.sample(range(n), max(1, int(share * n)))))


def test_crashes_and_returns_that_overlap() -> None:
    """The bound counts from the last event on."""
    for seed in range(40):
        rng = Random(seed)
        n = rng.choice([4, 8, 11, 16])
        world = Rounds((1 << n) - 1)
        crashed = 0
        for _ in range(rng.randint(2, 6)):
            node = rng.randrange(1, n)  # 0 stays
            if crashed >> node & 1:
                world.start([node], (1 << n) - 1)
            else:
                world.crash([node])
            crashed ^= 1 << node
            for _ in range(rng.randint(0, 3)):
                world.round()
        # One round more: a test may fail while older news of the same node are on their way.
        assert world.rounds_until_known(crashed, square(n) + 1) <= square(n) + 1, seed
        world.check_invariants()


def test_newcomers_are_tested_and_told() -> None:
    for seed in range(40):
        rng = Random(seed)
        n = rng.randint(3, 12)
        before, after = (1 << n) - 1, (1 << 2 * n) - 1
        world = Rounds(before)
        crashed = mask_of(rng.sample(range(n), rng.randint(0, n - 1)))
        world.crash(members_of(crashed))
        for _ in range(rng.randint(0, 4)):
            world.round()
        for node in world.nodes.values():
            node.set_members(after, world.now)
        world.start(range(n, 2 * n), after)
        late = mask_of(rng.sample(range(n, 2 * n), rng.randint(0, n - 1)))
        world.round()
        world.crash(members_of(late))
        assert world.rounds_until_known(crashed | late, square(2 * n)) <= square(2 * n), seed


def test_news_of_a_node_is_told_with_the_next_rounds() -> None:
    """[B] 5.2: changes of a topic's members travel with the tests, and reach everyone as fast."""
    world = Rounds(everyone(4))
    world.nodes[5].announce(("chat",), world.now)
    world.crash([1, 4, 7])
    for _ in range(square(16)):
        world.round()
    told = {node for _, node, source, news in world.news if (source, news) == (5, ("chat",))}
    assert told == set(world.nodes) - {5}
    world.news.clear()
    world.nodes[5].announce((), world.now)
    for _ in range(square(16)):
        world.round()
    assert sorted(node for _, node, _, news in world.news if news == ()) == sorted(told)


# -- worlds that are not synchronous --------------------------------------------------------------


class Weather:
    """Random delays and loss, and links that are cut."""

    def __init__(self, seed: int, least: Time, most: Time, loss: float = 0.0) -> None:
        self.rng = Random(seed)
        self.least, self.most, self.loss = least, most, loss
        self.cut: set[tuple[NodeId, NodeId]] = set()

    def __call__(self, source: NodeId, destination: NodeId) -> Time | None:
        if (source, destination) in self.cut or self.rng.random() < self.loss:
            return None
        return self.rng.randint(self.least, self.most)

    def isolate(self, side: Iterable[NodeId], others: Iterable[NodeId]) -> None:
        for one in side:
            for other in others:
                self.cut |= {(one, other), (other, one)}


def lan(
    weather: Weather, n: int = 8, config: DetectorConfig = LAN, make: type[Detector] = Detector
) -> Detection:
    """A cluster whose nodes have begun at different times and know each other's round trips."""
    rng = Random(weather.rng.random())
    world = Detection(
        config,
        (1 << n) - 1,
        weather,
        make=make,
        start=lambda node: rng.randrange(config.test_every),
    )
    world.run(8 * config.test_every)
    return world


def run_watching(world: Detection, until: Time) -> None:
    while world.now < until:
        world.run(min(until, world.now + world.config.test_every))
        world.check_invariants()


def bound(config: DetectorConfig, n: int, most: Time) -> Time:
    """When everyone knows of a crash, if nothing is lost: the round, the trial, the notices."""
    return config.test_every + config.suspect_max + 2 * dimension_for(n) * most


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_answers_in_time_is_never_suspected(seed: int) -> None:
    """Round trips up to nearly `suspect_min` / steps, drawn anew for each message."""
    most = LAN.suspect_min // LAN.steps // 2 - 1
    world = lan(Weather(seed, 1, most), n=Random(seed).choice([2, 3, 8, 13]))
    run_watching(world, 100 * LAN.test_every)
    assert not world.changes


@pytest.mark.parametrize("seed", range(6))
def test_loss_alone_makes_no_node_suspected(seed: int) -> None:
    world = lan(Weather(seed, 1 * MS, 20 * MS, loss=0.1), n=12)
    run_watching(world, 200 * LAN.test_every)
    assert not any(suspects for _, _, suspects in world.changes)
    assert world.sent["vouch"], "some tests were lost five times in a row"


@pytest.mark.parametrize("seed", range(12))
def test_crashes_are_known_to_all_in_time(seed: int) -> None:
    rng = Random(seed)
    n = rng.choice([2, 5, 8, 16, 21])
    world = lan(Weather(seed, 1 * MS, 20 * MS), n)
    world.run(world.now + rng.randrange(LAN.test_every))
    crashed = mask_of(rng.sample(range(n), rng.randint(1, n - 1)))
    world.crash(members_of(crashed))
    # Each level of the cube may have to take over from the one below.
    run_watching(world, world.now + dimension_for(n) * bound(LAN, n, 20 * MS))
    assert not world.ignorant(crashed)
    assert not any(suspects & ~crashed for _, _, suspects in world.changes)


def test_one_crash_is_known_to_all_in_the_stated_time() -> None:
    for seed in range(10):
        world = lan(Weather(seed, 1 * MS, 3 * MS))
        world.crash([seed % 8])
        world.run(world.now + LAN.test_every + LAN.suspect_min + 10 * 3 * MS)
        assert not world.ignorant(1 << seed % 8)


def test_slow_answers_are_waited_for() -> None:
    """Round trips rise to four times `suspect_min`; a node that is slow for long is waited for."""
    weather = Weather(3, 1 * MS, 5 * MS)
    world = lan(weather)
    for step in range(1, 41):
        weather.least = weather.most = step * LAN.suspect_max // 100
        world.run(world.now + 4 * LAN.test_every)
    world.run(world.now + 10 * LAN.suspect_max)
    assert not world.ignorant(0)
    world.changes.clear()
    run_watching(world, world.now + 100 * LAN.test_every)
    assert not any(suspects for _, _, suspects in world.changes)


def test_a_paused_node_is_suspected_objects_and_suspects_no_other() -> None:
    world = lan(Weather(1, 1 * MS, 5 * MS))
    world.pause(5, world.now + 2 * LAN.suspect_max)
    world.run(world.now + 2 * LAN.suspect_max)
    assert {node for node, suspects in world.suspects().items() if suspects == 1 << 5} == (
        set(range(8)) - {5}
    )
    world.run(world.now + 50 * MS)  # less than a round: it was told, and it objected
    assert not world.ignorant(0)
    run_watching(world, world.now + 20 * LAN.test_every)
    assert not world.ignorant(0)
    assert not [one for one in world.changes if one[1] == 5], "its own pause is not our silence"


def told_of_a_wrong_suspicion(make: type[Detector]) -> Detection:
    world = lan(Weather(2, 1 * MS, 2 * MS), make=make)
    world.run(world.now + 20 * MS)
    stamp = world.nodes[3].knowledge.stamp(6) + 1
    for node in (3, 7):
        world.nodes[node].on_message(wire.Notice(0, ((6, stamp),)), 2, world.now)
    return world


def test_a_wrong_suspicion_is_refuted_before_the_next_tests() -> None:
    world = told_of_a_wrong_suspicion(Detector)
    world.run(world.now + 20 * MS)
    assert world.changes
    assert not world.ignorant(0)
    assert world.nodes[6].knowledge.stamp(6) == 2


@pytest.mark.parametrize("lost", [[(0, 1)], [(1, 0)], [(0, 1), (1, 0)]])
def test_a_broken_link_is_no_crash(lost: list[tuple[NodeId, NodeId]]) -> None:
    weather = Weather(4, 1 * MS, 5 * MS)
    world = lan(weather)
    weather.cut |= set(lost)
    run_watching(world, world.now + 40 * LAN.test_every)
    assert not any(suspects for _, _, suspects in world.changes)
    assert world.nodes[0].broken == 1 << 1, "0 gets no answers from 1"
    assert world.nodes[1].broken == 1 << 0, "and 1 none from 0: a round trip needs both ways"
    assert not any(world.nodes[node].broken for node in range(2, 8))
    weather.cut.clear()
    run_watching(world, world.now + 4 * LAN.test_every)
    assert not any(node.broken for node in world.nodes.values())


def test_a_crash_behind_a_broken_link_is_known() -> None:
    weather = Weather(4, 1 * MS, 5 * MS)
    world = lan(weather)
    weather.cut |= {(0, 1), (1, 0)}
    world.run(world.now + 5 * LAN.test_every)
    world.crash([1])
    run_watching(world, world.now + 2 * bound(LAN, 8, 5 * MS))
    assert not world.ignorant(1 << 1)
    assert world.nodes[0].broken == 0


@pytest.mark.parametrize("deaf", [True, False])
def test_a_node_that_only_speaks_or_only_hears_is_out(deaf: bool) -> None:
    weather = Weather(6, 1 * MS, 5 * MS)
    world = lan(weather)
    weather.cut |= {(node, 3) if deaf else (3, node) for node in range(8)}
    run_watching(world, world.now + 2 * LAN.test_every + 2 * LAN.deaf_after)
    assert all(suspects == 1 << 3 for node, suspects in world.suspects().items() if node != 3)
    assert world.nodes[3].suspects == 0xFF & ~(1 << 3)
    weather.cut.clear()
    run_watching(world, world.now + 4 * LAN.test_every)
    assert not world.ignorant(0)


def test_frames_prove_life_while_answers_are_stuck() -> None:
    """A busy peer whose answers wait behind megabytes is heard, and that is enough for a time."""
    weather = Weather(8, 1 * MS, 2 * MS)
    world = lan(weather, n=2)
    weather.cut |= {(0, 1), (1, 0)}
    until = world.now + LAN.deaf_after // 2
    while world.now < until:
        for node in (0, 1):
            world.nodes[node].heard(1 - node, world.now)
        world.run(world.now + LAN.suspect_min // 4)
    assert not world.changes
    world.run(world.now + LAN.suspect_max)
    assert world.suspects() == {0: 2, 1: 1}
    assert all(when <= until + LAN.suspect_max for when, _, _ in world.changes)


def test_a_node_that_is_heard_but_never_answers_is_suspected_in_the_end() -> None:
    weather = Weather(8, 1 * MS, 2 * MS)
    world = lan(weather, n=4)
    weather.cut |= {(node, 3) for node in range(3)}
    begun = world.now
    while world.now < begun + LAN.test_every + LAN.deaf_after:
        for node in range(3):
            world.nodes[node].heard(3, world.now)
        assert not world.nodes[0].suspects or world.now >= begun + LAN.deaf_after
        world.run(world.now + LAN.suspect_min // 4)
    assert all(world.nodes[node].suspects == 1 << 3 for node in range(3))


def test_both_sides_of_a_partition_go_on_and_find_each_other() -> None:
    weather = Weather(7, 1 * MS, 5 * MS)
    world = lan(weather)
    weather.isolate(range(3), range(3, 8))
    run_watching(world, world.now + 3 * bound(LAN, 8, 5 * MS))
    low, high = 0b111, 0b11111000
    assert world.suspects() == {node: high if node < 3 else low for node in range(8)}
    weather.cut.clear()
    run_watching(world, world.now + 2 * LAN.test_every)
    assert not world.ignorant(0)
    assert not any(node.broken for node in world.nodes.values())


def test_a_member_may_be_tested_out_of_turn() -> None:
    world = lan(Weather(9, 1 * MS, 2 * MS), config=replace(LAN, test_every=3_600_000 * MS))
    world.crash([7])
    world.nodes[0].probe(7, world.now)
    world.nodes[0].probe(0, world.now)
    world.nodes[0].probe(99, world.now)
    world.run(world.now + LAN.suspect_max)
    assert not world.ignorant(1 << 7)


def storm(seed: int) -> None:
    """Anything may happen; when it is over, everyone knows the truth within the stated time."""
    rng = Random(seed)
    n = rng.choice([2, 3, 4, 5, 8, 12])
    most = rng.choice([5, 50, 200]) * MS
    weather = Weather(seed, 1 * MS, most, rng.choice([0.0, 0.0, 0.05, 0.2]))
    world = lan(weather, n)
    crashed = 0
    for _ in range(rng.randint(1, 10)):
        node, bit = rng.randrange(n), 1 << rng.randrange(n)
        match rng.choice(["crash", "start", "pause", "part", "heal", "one way"]):
            case "crash" if not crashed & bit and crashed | bit != (1 << n) - 1:
                world.crash(members_of(bit))
                crashed |= bit
            case "start" if crashed & bit:
                world.start(members_of(bit), (1 << n) - 1)
                crashed ^= bit
            case "pause":
                world.pause(node, world.now + rng.randrange(2 * LAN.suspect_max))
            case "part":
                side = set(rng.sample(range(n), rng.randint(1, n)))
                weather.isolate(side, set(range(n)) - side)
            case "heal":
                weather.cut.clear()
            case "one way":
                weather.cut.add((node, rng.randrange(n)))
        run_watching(world, world.now + rng.randrange(LAN.suspect_max))
    weather.cut.clear()
    weather.loss = 0.0
    world.resume()
    run_watching(world, world.now + dimension_for(n) * bound(LAN, n, most) + LAN.test_every)
    assert not world.ignorant(crashed), seed
    assert not any(node.broken for node in world.nodes.values()), seed


def test_storms_end_in_knowledge() -> None:
    for seed in range(20):
        storm(seed)


@pytest.mark.soak
def test_many_storms_end_in_knowledge() -> None:
    for seed in range(20, 2_000):
        storm(seed)


# -- members and views ----------------------------------------------------------------------------


def test_a_new_view_begins_with_everyone_correct() -> None:
    one = Alone(view=4)
    one.detector.on_message(wire.Notice(4, ((3, 7), (2, 1))), 1, 5)
    assert one.detector.suspects == 0b1100
    one.detector.set_members(0b10111, 6, view=5)
    assert one.detector.suspects == 0
    one.detector.on_message(wire.Notice(4, ((4, 9), (2, 3))), 1, 7)
    assert one.detector.suspects == 0, "word of an older view: another node had that slot"
    assert one.changes == [0b1100, 0]
    one.detector.check_invariants()


def test_a_node_that_asks_others_about_a_silent_node_tests_it_again_itself() -> None:
    one = Alone()
    asked: list[set[NodeId]] = []
    now = 0
    while not one.detector.suspects:
        now = one.detector.on_wake(now)
        one.sent.clear()
        one.detector.on_wake(now)
        about = {message.target for message in one.said(wire.IndirectTest)}
        tested = {peer for peer, message in one.sent if isinstance(message, wire.Test)}
        assert about <= tested
        asked.append(about)
    assert any(asked)


def test_a_node_of_another_view_answers_and_is_answered() -> None:
    one = Alone(view=4)
    one.detector.on_message(wire.Notice(4, ((3, 7),)), 1, 5)
    one.detector.on_message(wire.Test(1, view=5), 2, 6)
    assert one.said(wire.TestReply) == [wire.TestReply(1, one.detector.knowledge.version, 4)]
    one.detector.on_wake(7)
    (test,) = [message for peer, message in one.sent if peer == 2 and message.kind == "test"]
    one.detector.on_message(wire.TestReply(test.number, 9, 5, ((1, 1),)), 2, 8)
    assert one.detector.suspects == 1 << 3
    assert 2 not in one.detector._trials


def test_a_slot_that_is_taken_again() -> None:
    """Two members install the view late; what they know of the slot concerns another node."""
    world = lan(Weather(5, 1 * MS, 2 * MS))
    world.crash([5])
    world.run(world.now + bound(LAN, 8, 2 * MS))
    assert not world.ignorant(1 << 5)
    world.start([5], 0xFF, view=1)
    world.changes.clear()
    for node in (0, 2, 3, 6, 7):
        world.nodes[node].set_members(0xFF, world.now, view=1)
    world.run(world.now + LAN.test_every)
    assert not any(suspects for _, node, suspects in world.changes if node not in (1, 4))
    for node in (1, 4):
        world.nodes[node].set_members(0xFF, world.now, view=1)
    world.run(world.now + LAN.test_every)
    assert not world.ignorant(0)


def test_a_node_that_leaves_is_forgotten_and_one_that_stays_keeps_its_state() -> None:
    one = Alone()
    one.detector.on_message(wire.Notice(0, ((3, 7), (2, 1))), 1, 5)
    one.detector.set_members(0b0111, 6)
    assert one.detector.suspects == 0b0100
    one.detector.set_members(0b1111, 7)
    assert one.detector.suspects == 0b0100
    one.detector.set_members(0b0001, 8)
    assert one.detector.on_wake(LAN.test_every) is None
    one.detector.set_members(0b0011, 9)
    assert one.wakes[-1] > 9
    one.detector.check_invariants()


def test_a_node_that_returns_with_nothing_tells_and_hears_all_again() -> None:
    """Versions begin with the incarnation: a new life's first words are not taken for old ones."""
    first, second = Alone(node=1, incarnation=0), Alone(node=1, incarnation=1)
    for _ in range(5):
        first.detector.announce(("a",), 1)
    second.detector.announce(("b",), 1)
    asked = wire.Test(3, since=first.detector.knowledge.version)
    second.detector.on_message(asked, 0, 2)
    (reply,) = second.said(wire.TestReply)
    assert [said for _, _, said in reply.news] == [("b",)]


def test_announcements_are_bounded() -> None:
    with pytest.raises(ValueError, match="at most 64 names can be announced, not 65"):
        Alone().detector.announce(("x",) * (MAX_NEWS + 1), 1)


def test_a_liar_harms_no_more_than_it_says() -> None:
    one = Alone()
    before = one.detector.knowledge.stamps.copy()
    for states in (
        ((0, MAX_STAMP + 2),),
        ((2, -1),),
        ((99, 1),),
        ((-1, 1),),
        ((2, MAX_STAMP + 1),),
    ):
        one.detector.on_message(wire.Notice(0, states), 3, 5)
    one.detector.on_message(wire.IndirectTest(1, 99), 3, 6)
    one.detector.on_message(wire.IndirectTest(1, -1), 3, 6)
    one.detector.on_message(wire.IndirectTest(1, 0), 3, 6)
    one.detector.on_message(wire.Vouch(1, 2), 3, 6)
    one.detector.on_message(wire.TestReply(77, 5), 3, 6)
    one.detector.on_message(wire.Notice(0, ((2, 1),)), 17, 7)  # no member
    one.detector.on_message(wire.Notice(0, (), ((2, 1, ("x",) * (MAX_NEWS + 1)),)), 3, 7)
    one.detector.on_message(wire.Notice(0, (), ((0, 1, ("x",)),)), 3, 7)
    assert one.detector.knowledge.stamps == before
    assert not one.sent
    assert not one.changes
    with pytest.raises(TypeError, match="no message of the detector"):
        one.detector.on_message(msgspec.convert({"kind": "x"}, Odd), 3, 8)
    one.detector.check_invariants()


class Odd(msgspec.Struct):
    kind: str


def test_messages_survive_encoding() -> None:
    messages = [
        wire.Test(3, 2**40, 5),
        wire.TestReply(3, 2**40, 5, ((1, 2), (3, 4)), ((1, 7, ("a", "b")),)),
        wire.IndirectTest(4, 5),
        wire.Vouch(4, 5),
        wire.Notice(5, ((1, 1),), ((2, 3, ()),)),
    ]
    decoder = msgspec.json.Decoder(wire.DetectorMessage)
    for message in messages:
        assert decoder.decode(msgspec.json.encode(message)) == message


# -- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"test_every": 0}, "test_every must be at least 1, not 0"),
        ({"retries": -1}, "retries must not be negative, not -1"),
        ({"suspect_max": 1}, r"suspect_max \(1\) must not be below suspect_min"),
        ({"deaf_after": 1}, r"deaf_after \(1\) must not be below suspect_max"),
    ],
)
def test_values_that_contradict_each_other(changes: dict[str, int], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        replace(DetectorConfig(), **changes)


def test_presets() -> None:
    for name, (round_trip, _) in PRESETS.items():
        config = detector_for(name)
        assert config.suspect_min >= config.steps * 2 * round_trip, "an answer has time to come"
    assert DetectorConfig(500 * MS, 1_000 * MS, 5_000 * MS, 10_000 * MS, 4, 3) == LAN
    assert detector_for("wan").suspect_min == 6_000 * MS
    with pytest.raises(ValueError, match="not 'moon'"):
        detector_for("moon")


def test_the_page_states_the_presets() -> None:
    page = (ROOT / "docs" / "detector.md").read_text(encoding="utf-8")
    configs = [detector_for(name) for name in ("local", "lan", "wan")]
    for name in ("test_every", "suspect_min", "suspect_max", "deaf_after"):
        cells = " | ".join(f"{getattr(config, name) / 1_000_000:g} s" for config in configs)
        assert f"| `{name}` | {cells} |" in page


# -- broken detectors are noticed -----------------------------------------------------------------


class NeverRefuting(Knowledge):
    def refuted(self, stamp: int) -> int:
        return stamp


class TakingAnything(Knowledge):
    def is_newer(self, stamp: int, known: int) -> bool:
        return stamp != known


class NeverRefutes(Detector):
    knowledge_class = NeverRefuting


class TakesSmaller(Detector):
    knowledge_class = TakingAnything


class NeverTakesOver(Detector):
    """Tests its log2 n neighbours and no other node."""

    @property
    def targets(self) -> tuple[NodeId, ...]:
        return targets(self.node, self.members, self.members)


class NeverRecovers(Detector):
    """A suspected node stays suspected."""

    @property
    def targets(self) -> tuple[NodeId, ...]:
        every = targets(self.node, self.members, self.knowledge.alive)
        return tuple(one for one in every if not self.knowledge.is_suspected(one))


class NeverAsksOthers(Detector):
    def relays(self, peer: NodeId) -> list[NodeId]:
        return []


class BlamesOthersForItsPause(Detector):
    def _in_vain(self, trial: wire.Trial, now: Time) -> None:
        trial.excused = True
        super()._in_vain(trial, now)


class BelievesEveryView(Detector):
    def _learn(self, words: wire.TestReply | wire.Notice, sender: NodeId) -> None:
        super()._learn(msgspec.structs.replace(words, view=self.view), sender)


class ForgetsBrokenLinks(Detector):
    """Tests only those whose tester it is."""

    def _round(self, now: Time) -> None:
        broken, self.broken = self.broken, 0
        super()._round(now)
        self.broken = broken


class NeverLearnsToWait(Detector):
    """Takes no notice of round trips."""

    def _patience(self, peer: NodeId) -> Time:
        return self.config.suspect_min


def patterns_of_eight(make: type[Detector]) -> None:
    for crashed in range(1, 255):
        crash_and_recover(8, crashed, make)


def refutation(make: type[Detector]) -> None:
    world = told_of_a_wrong_suspicion(make)
    world.run(world.now + 20 * MS)
    world.check_invariants()
    assert not world.ignorant(0)


def broken_link(make: type[Detector]) -> None:
    weather = Weather(4, 1 * MS, 5 * MS)
    world = lan(weather, make=make)
    weather.cut.add((0, 1))
    world.run(world.now + 40 * LAN.test_every)
    assert not any(suspects for _, _, suspects in world.changes)


def own_pause(make: type[Detector]) -> None:
    """The whole machine sleeps while an answer is on its way; no node asks twice here."""
    world = lan(Weather(1, 1 * MS, 5 * MS), 2, replace(LAN, retries=0, indirect=0), make)
    while not world.nodes[0]._trials:
        world.run(world.now + 1)
    for node in (0, 1):
        world.pause(node, world.now + LAN.deaf_after)
    world.run(world.now + 2 * LAN.deaf_after)
    assert not world.changes


def slow_network(make: type[Detector]) -> None:
    world = lan(Weather(3, LAN.suspect_min // 2, LAN.suspect_min // 2), make=make)
    world.run(world.now + 10 * LAN.suspect_max)
    world.sent.clear()
    world.run(world.now + 10 * LAN.suspect_max)
    assert not world.sent["indirect-test"], "it knows by now how long answers take"


def link_that_heals(make: type[Detector]) -> None:
    """0 is not among the testers of 3, and finds the link to it broken all the same."""
    weather = Weather(4, 1 * MS, 5 * MS)
    world = lan(weather, make=make)
    weather.cut.add((0, 3))
    world.nodes[0].probe(3, world.now)
    world.run(world.now + 4 * LAN.test_every)
    assert world.nodes[0].broken == 1 << 3
    weather.cut.clear()
    world.run(world.now + 4 * LAN.test_every)
    assert not world.nodes[0].broken


def older_view(make: type[Detector]) -> None:
    """Word of an older view is about the node that had the slot before."""
    one = Alone(make=make, view=5)
    one.detector.on_message(wire.Notice(4, ((3, 7),)), 1, 5)
    assert one.detector.suspects == 0


MUTANTS: list[tuple[type[Detector], Callable[[type[Detector]], None]]] = [
    (NeverRefutes, refutation),
    (TakesSmaller, patterns_of_eight),
    (NeverTakesOver, patterns_of_eight),
    (NeverRecovers, patterns_of_eight),
    (NeverAsksOthers, broken_link),
    (BlamesOthersForItsPause, own_pause),
    (NeverLearnsToWait, slow_network),
    (ForgetsBrokenLinks, link_that_heals),
    (BelievesEveryView, older_view),
]


@pytest.mark.parametrize(("make", "ordeal"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_detector_is_caught(
    make: type[Detector], ordeal: Callable[[type[Detector]], None]
) -> None:
    with pytest.raises(AssertionError):
        ordeal(make)


@pytest.mark.parametrize(
    "ordeal",
    sorted({ordeal for _, ordeal in MUTANTS} - {patterns_of_eight}, key=lambda one: one.__name__),
    ids=lambda one: one.__name__,
)
def test_the_detector_passes_what_broken_ones_do_not(
    ordeal: Callable[[type[Detector]], None],
) -> None:
    ordeal(Detector)
