"""The virtual networks and services of order across topics ([T] 6), and what runs in them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from cubecast.ordering.judge import inversions, needless_tags
from cubecast.ordering.sim.dynamic import DrawnPublications, Swaps, in_turn
from cubecast.ordering.sim.links import EMULATED, SIMULATED, Ints, LinkDelays
from cubecast.ordering.sim.pastry import BITS, DIGIT, Pastry
from cubecast.ordering.sim.patterns import detected, in_a_row, one_by_one
from cubecast.ordering.sim.popularity import shared, shares, subscriptions
from cubecast.ordering.sim.protocols import PROTOCOLS, Options, make_of, subscribe_all
from cubecast.ordering.sim.services import Cube, Scribe
from cubecast.ordering.sim.static import Routes, sample, visited
from cubecast.ordering.sim.swapping import Traffic
from cubecast.ordering.sim.world import MILLISECOND, SECOND, TimedWorld

# -- links ----------------------------------------------------------------------------------------


def test_links_are_fast_or_slow_in_the_shares_of_the_paper() -> None:
    """[T] 6.1: 80 % N(21, 10.85), 20 % N(240, 129.27) ms, none below 0."""
    nodes = np.arange(40_000)
    delays = LinkDelays(1).delays(nodes, nodes + 1)
    assert (delays >= 0).all()
    fast = delays[delays < 21 + 4 * 10.85]
    mean = sum(kind.share * kind.mean for kind in SIMULATED)
    assert delays.mean() == pytest.approx(mean, rel=0.03)
    assert np.median(fast) == pytest.approx(22, abs=1.5)


def test_a_link_has_one_delay_both_ways_or_one_for_each_message() -> None:
    fixed, fresh = LinkDelays(3), LinkDelays(3, fresh=True)
    assert fixed.delay(4, 9) == fixed.delay(9, 4, 17) == LinkDelays(3).delay(4, 9)
    assert len({fresh.delay(4, 9, draw) for draw in range(20)}) > 10
    assert fresh.delay(4, 9, 5) == fresh.delay(9, 4, 5)
    assert fixed.delay(4, 4) == fresh.delay(4, 4, 1) == 0
    assert {LinkDelays(1, EMULATED).delay(0, node) for node in range(1, 9)} == {21.0}


# -- Pastry ---------------------------------------------------------------------------------------


def digits_in_common(one: int, other: int) -> int:
    return (BITS - (one ^ other).bit_length()) // DIGIT


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 10, 500])
def test_a_route_gains_a_digit_with_every_hop_and_ends_at_the_closest_node(
    nodes: int, near: bool
) -> None:
    pastry = Pastry(nodes, 20, LinkDelays(2), 2, near=near)
    ids = pastry.ids.tolist()
    for topic, key in enumerate(pastry.keys.tolist()):
        root = int(pastry.managers[topic])
        gaps = [min(abs(one - key), (1 << BITS) - abs(one - key)) for one in ids]
        assert gaps[root] == min(gaps)
        for source in range(0, nodes, max(1, nodes // 7)):
            route = pastry.route(source, key, root)
            assert (route or [source])[-1] == root
            common = [digits_in_common(ids[node], key) for node in (source, *route[:-1])]
            assert common == sorted(set(common)), "every hop but the last has a longer prefix"


def test_routes_have_the_length_of_pastry_with_b_4() -> None:
    pastry = Pastry(2000, 30, LinkDelays(5), 5, near=False)
    hops = [
        len(pastry.route(source, key, root))
        for source in range(0, 2000, 97)
        for key, root in zip(pastry.keys.tolist(), pastry.managers.tolist(), strict=True)
    ]
    assert sum(hops) / len(hops) == pytest.approx(math.log(2000, 16), abs=0.5)


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_delays_of_many_routes_are_those_of_each_link(near: bool, fresh: bool) -> None:
    links = LinkDelays(7, fresh=fresh)
    pastry = Pastry(300, 5, links, 7, near=near)
    sources, topics = np.arange(0, 300, 11), np.arange(28) % 5
    found = pastry.delays(sources, pastry.keys[topics], 6)
    for source, topic, delay in zip(sources.tolist(), topics.tolist(), found, strict=True):
        route = pastry.route(source, int(pastry.keys[topic]), int(pastry.managers[topic]))
        steps = zip([source, *route], route, strict=False)
        assert delay == pytest.approx(sum(links.delay(one, other, 6) for one, other in steps))


def test_near_entries_make_routes_faster_not_shorter() -> None:
    means = []
    for near in (False, True):
        pastry = Pastry(1000, 1, LinkDelays(4), 4, near=near)
        means.append(pastry.delays(np.arange(1000), np.repeat(pastry.keys, 1000)).mean())
    assert means[1] < 0.7 * means[0]


# -- popularity -----------------------------------------------------------------------------------


def test_pareto_gives_the_shares_that_the_paper_prints() -> None:
    """[T] 6.1: at 0.901 0.5 % of the topics, at 0.269 40 % of them have 80 %."""
    assert shares(1000, 0.901, "clipped")[:5].sum() == pytest.approx(0.80, abs=0.005)
    assert shares(1000, 0.901)[:5].sum() == pytest.approx(0.80, abs=0.005)
    assert shares(1000, 0.269, "clipped")[:396].sum() == pytest.approx(0.80, abs=0.005)
    assert shares(1000, 0.269)[:396].sum() > 0.9, "the tail is a fifth of all: redrawn, it matters"
    assert shares(7, 0.0).tolist() == [1 / 7] * 7


@pytest.mark.parametrize("draws", ["distinct", "repeated"])
def test_subscriptions_are_distinct_or_repeat(draws: str) -> None:
    table = subscriptions(np.random.default_rng(1), 400, 10, shares(50, 0.901), draws)
    counts = table.sum(axis=1)
    assert (counts == 10).all() if draws == "distinct" else (counts < 10).any()
    assert table[:, 0].mean() > table[:, 30].mean(), "popular topics are chosen more often"


def test_a_pair_needs_two_subscriptions() -> None:
    table = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1]], dtype=bool)
    assert shared(table).tolist() == [
        [True, True, False],
        [True, True, False],
        [False, False, True],
    ]


# -- services -------------------------------------------------------------------------------------


def test_an_event_reaches_every_subscriber_once() -> None:
    links = LinkDelays(3)
    scribe, cube = Scribe(Pastry(60, 4, links, 3, near=False)), Cube(64, 4, 3)
    wanted = [3, 9, 27, 50, 59]
    for service, source in ((scribe, 8), (cube, 8), (cube, 9)):
        for topic in range(4):
            way = service.way_in(source, topic)
            root = way[-1] if way else source
            reached = {root}
            for branch in service.branches(root, topic, wanted):
                assert branch.source in reached
                assert branch.target not in reached
                reached.add(branch.target)
            assert reached >= set(wanted)
            if service is cube:
                assert reached == {source, *wanted}, "no node of the cube passes on in vain"


# -- the world of objects, and the computation without them ---------------------------------------


def world_of(
    protocol: str, nodes: int, topics: int, seed: int, options: Options | None = None
) -> TimedWorld:
    links = LinkDelays(seed)
    service = Scribe(Pastry(nodes, topics, links, seed, near=False))
    members = list(range(nodes))
    make = make_of(protocol, options or Options(), members)
    return TimedWorld(make, service, links, list(range(topics)), members)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("draws", ["distinct", "repeated"])
def test_computed_latencies_are_those_of_the_objects(seed: int, draws: str) -> None:
    """Nothing queues and links have fixed delays: each event by itself, ordering and diffusion."""
    nodes, topics, rng = 30, 8, np.random.default_rng(seed)
    chances = shares(topics, 0.901)
    subscribed = subscriptions(rng, nodes, 3, chances, draws)
    world = world_of("faithful", nodes, topics, seed)
    wanted = {node: np.flatnonzero(subscribed[node]).tolist() for node in range(nodes)}
    subscribe_all(world, wanted, in_place=True)
    published = DrawnPublications.drawn(rng, np.full(topics, 1 / topics), nodes, 40)
    pairs = list(zip(published.publishers.tolist(), published.topics.tolist(), strict=True))
    for event, (publisher, topic) in enumerate(pairs):
        world.publish_at(event * 60 * SECOND, publisher, topic, event)
    world.run()
    links = LinkDelays(seed)
    routes = Routes(Pastry(nodes, topics, links, seed, near=False), links, subscribed)
    found = sample(
        routes, np.arange(topics), shared(subscribed), published.topics, published.publishers
    )
    last = world.last_seen()
    for event, (_, topic) in enumerate(pairs):
        ordering = (world.stamped[event] - world.published[event]) / MILLISECOND
        assert ordering == pytest.approx(found.ordering[event], abs=0.1)
        assert len(world.stamps[event]) == found.entries[event]
        if subscribed[:, topic].any():
            latency = (last[event] - world.published[event]) / MILLISECOND
            assert latency == pytest.approx(found.latency[event], abs=0.1)


def test_messages_for_others_are_counted_by_manager() -> None:
    """All subscribe to all of three topics at three nodes: the highest manager sees everything."""
    links = LinkDelays(1)
    pastry = Pastry(50, 3, links, 1, near=False)
    assert len(set(pastry.managers.tolist())) == 3
    everything = np.ones((50, 3), dtype=bool)
    found = sample(
        Routes(pastry, links, everything), np.arange(3), shared(everything), np.array([0, 1, 1, 2]),
        np.zeros(4, np.int64),
    )  # fmt: skip
    assert found.own.tolist() == [1, 2, 1]
    assert found.foreign.tolist() == [3, 1, 0]
    assert found.foreign_share() == pytest.approx((3 / 4 + 1 / 3 + 0) / 3)


def publish_crossing(world: TimedWorld, events: int, spacing_us: int, seed: int) -> None:
    """Two nodes subscribe to all topics, and events of different topics follow each other soon."""
    rng = np.random.default_rng(seed)
    subscribe_all(world, {0: world.order, 1: world.order}, in_place=True)
    begun = world.now
    for event in range(events):
        topic = int(rng.integers(len(world.order)))
        publisher = int(rng.integers(2, len(world.nodes)))
        world.publish_at(begun + event * spacing_us, publisher, topic, event)
    world.run(until=begun + events * spacing_us + 60 * SECOND)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_keeps_the_order_it_promises(protocol: str) -> None:
    """The bare service and sequencers per topic do not order events of two topics."""
    kept = 0
    for seed in range(6):
        world = world_of(protocol, 20, 4, seed, Options(buffer=None))
        publish_crossing(world, 80, 20 * MILLISECOND, seed)
        notes = world.notifications()
        kept += not inversions(notes)
        if protocol == "per topic":
            for topic in {one.topic for seen in notes.values() for one in seen}:
                mine = {name: [one for one in seen if one.topic == topic]
                        for name, seen in notes.items()}  # fmt: skip
                assert not inversions(mine)
        if protocol in ("production", "one sequencer"):
            assert {len(seen) for seen in notes.values()} == {80}
            assert all(one.in_order for seen in notes.values() for one in seen)
    assert kept == (0 if protocol in ("bare", "per topic") else 6)


def test_production_without_a_buffer_tags_only_what_it_must() -> None:
    world = world_of("production", 20, 4, 3)
    publish_crossing(world, 80, 20 * MILLISECOND, 3)
    notes = world.notifications()
    assert any(not one.in_order for seen in notes.values() for one in seen)
    assert not needless_tags(notes)
    assert not inversions(notes)


def test_an_event_that_waits_is_woken_when_its_time_is_over() -> None:
    """Hole T7: the second subscription takes a number that the first subscriber never hears of."""
    wait = 3 * SECOND
    world = world_of("faithful", 10, 1, 1, Options(buffer=5, wait_us=wait))
    subscribe_all(world, {0: [0], 1: [0]}, in_place=False)
    world.publish_at(world.now, 5, 0, 0)
    world.run()
    first, second = world.seen[0][0].time, world.seen[1][0].time
    assert first - second > wait - SECOND
    assert first - world.stamped[0] > wait


def test_a_node_sends_one_message_at_a_time() -> None:
    links = LinkDelays(1, EMULATED)
    make = make_of("one sequencer", Options(), list(range(5)))
    service = Scribe(Pastry(5, 1, links, 1, near=False), direct=True)
    world = TimedWorld(make, service, links, [0], list(range(5)), send_us=7 * MILLISECOND)
    for node in range(5):
        world.subscribe(node, [0])
    world.publish_at(0, 0, 0, 0)
    world.run()
    times = sorted(seen[0].time for seen in world.seen.values())
    assert times == [0, *(21 * MILLISECOND + k * 7 * MILLISECOND for k in (1, 2, 3, 4))]


def test_links_keep_the_order_of_messages_with_fresh_delays() -> None:
    links = LinkDelays(2, fresh=True)
    service = Scribe(Pastry(2, 1, links, 2, near=False), direct=True)
    world = TimedWorld(make_of("bare", Options(), [0, 1]), service, links, [0], [0, 1])
    publisher, other = service.manager(0), 1 - service.manager(0)
    world.subscribe(other, [0])
    for event in range(50):
        world.publish_at(event * MILLISECOND, publisher, 0, event)
    world.run()
    assert [one.notification.event for one in world.seen[other]] == list(range(50))


# -- topics that change places --------------------------------------------------------------------


def test_swaps_wanted_depend_on_the_rule_and_the_threshold() -> None:
    """Topic 3 has 9 events and passes 2, 1, 0 with none: f(9) = 0.37 at α = 0.1, f(0) is 0."""
    group, numbers = np.array([3, 2, 1, 0]), np.array([0, 0, 0, 9])
    assert Swaps(0.1, 0.2, "topmost").wanted(group, numbers) == [(0, 3)]
    assert Swaps(0.1, 0.2, "nearest").wanted(group, numbers) == [(2, 3)]
    assert Swaps(0.1, 0.2, "every").wanted(group, numbers) == [(2, 3), (1, 3), (0, 3)]
    assert Swaps(0.1, 0.4, "every").wanted(group, numbers) == []
    assert Swaps(0.1, 0.2, "every").wanted(group[:1], numbers) == []


@pytest.mark.parametrize(("beta", "least"), [(0.1, 4), (0.2, 6), (0.3, 8)])
def test_events_that_a_topic_needs_to_pass_one_without_any(beta: float, least: int) -> None:
    swaps = Swaps(0.1, beta)
    needed = next(
        count for count in range(100) if swaps.wanted(np.array([1, 0]), np.array([0, count]))
    )
    assert needed == least


def test_a_popular_topic_never_yields() -> None:
    """With α = 0.1 and β = 0.2, 44 events are so near to f = 1 that no number is enough."""
    swaps = Swaps(0.1, 0.2)
    assert swaps.wanted(np.array([1, 0]), np.array([43, 10**9]))
    assert not swaps.wanted(np.array([1, 0]), np.array([44, 10**9]))


def setting(
    seed: int, events: int
) -> tuple[Routes, Ints, npt.NDArray[np.bool_], DrawnPublications]:
    rng = np.random.default_rng(seed)
    nodes, topics = 40, 12
    chances = shares(topics, 0.901)
    subscribed = subscriptions(rng, nodes, 6, chances, "repeated")
    links = LinkDelays(seed)
    routes = Routes(Pastry(nodes, topics, links, seed, near=False), links, subscribed)
    published = DrawnPublications.drawn(rng, chances, nodes, events)
    return routes, rng.permutation(topics), shared(subscribed), published


def test_swaps_bring_popular_topics_to_the_front() -> None:
    routes, _, pairs, published = setting(2, 300)
    ranks, none = np.arange(12)[::-1], np.zeros(12, np.int64)
    fixed = in_turn(routes, ranks, pairs, published, None, none)
    moved = in_turn(routes, ranks, pairs, published, Swaps(0.1, 0.2), none)
    sizes = [course.mean(course.bytes(), 200, 300) for course in (fixed, moved)]
    assert moved.swaps > 0
    assert sizes[1] < sizes[0]
    best = in_turn(routes, np.arange(12), pairs, published, None, none)
    assert best.entries == {
        event: len(visited(topic, np.arange(12), pairs))
        for event, topic in enumerate(published.topics.tolist())
    }


def test_travelling_timestamps_take_as_long_as_those_in_turn() -> None:
    """Where nothing is swapped (β = 1) and events are far apart, both give the same latencies."""
    routes, ranks, pairs, published = setting(5, 30)
    none, never = np.zeros(12, np.int64), Swaps(0.1, 1.0)
    alone = in_turn(routes, ranks, pairs, published, never, none)
    traffic = Traffic(
        routes, pairs, published, never, none, [ranks], every_ms=1e6, retry_ms=9e5
    ).run(1e9)
    assert traffic.entries == alone.entries
    for event, latency in alone.latency.items():
        assert traffic.latency[event] == pytest.approx(latency)


def test_timestamps_of_an_older_epoch_are_discarded_and_asked_for_again() -> None:
    routes, ranks, pairs, published = setting(1, 300)
    run = Traffic(
        routes, pairs, published, Swaps(0.1, 0.2, "every"), np.zeros(12, np.int64), [ranks],
        every_ms=100.0, retry_ms=2000.0,
    )  # fmt: skip
    course = run.run(1e6)
    assert course.swaps == len(run.orders) - 1 > 0
    assert course.discarded > 0
    assert len(course.latency) == 300, "every event has its timestamp in the end"
    assert max(course.ordering.values()) > 2000


def test_a_shuffle_gives_popularity_to_other_topics() -> None:
    rng = np.random.default_rng(3)
    published = DrawnPublications.drawn(rng, shares(100, 2.0), 10, 2000, shuffle_at=1000)
    before, after = np.bincount(published.topics[:1000]), np.bincount(published.topics[1000:])
    assert before.argmax() == 0
    assert after.argmax() != 0


# -- patterns -------------------------------------------------------------------------------------


def test_patterns_in_a_row_and_one_by_one() -> None:
    kinds = dict(enumerate([0, 1, 2, 0, 0, 1, 1, 2]))
    events = list(kinds)
    assert in_a_row(events, kinds) == {(0, 1, 2)}
    assert one_by_one(events, kinds) == {(0, 1, 2), (3, 5, 7)}
    assert in_a_row([0, 2, 1], kinds) == set()


def test_detected_is_the_share_that_all_found() -> None:
    one, other = {(1, 2, 3), (4, 5, 6)}, {(1, 2, 3), (7, 8, 9)}
    assert detected([one, other]) == pytest.approx(1 / 3)
    assert detected([one, one]) == 1
    assert detected([set(), set()]) == 0
