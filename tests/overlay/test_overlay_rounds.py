"""The rounds of one topic's overlay in plain Python ([N] Algorithm 2), faithful and repairing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.overlay.chance import below, draw, stream
from cubecast.overlay.rounds import (
    MODES,
    ORDERS,
    Overlay,
    RoundConfig,
    Views,
    is_lost,
    pins_limit,
    play,
    start_views,
)
from cubecast.overlay.view_sizes import ROUNDINGS, view_size
from cubecast.overlay.weights import HASHES, weight

configs = st.builds(
    RoundConfig,
    rounds=st.integers(0, 4),
    ttl=st.integers(0, 6),
    mode=st.sampled_from(MODES),
    order=st.sampled_from(ORDERS),
    hashing=st.sampled_from(HASHES),
    rounding=st.sampled_from(ROUNDINGS),
    connected=st.sampled_from((0.5, 0.99)),
    loss=st.sampled_from((0.0, 0.1, 0.9)),
)
ids_of_nodes = st.integers(0, 10_000)
members = st.sets(ids_of_nodes, max_size=9) | st.sets(ids_of_nodes, min_size=20, max_size=60)


def unknown(views: Views) -> set[int]:
    """The nodes that no view holds."""
    return set(views) - {other for view in views.values() for other in view}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), members, configs)
def test_view_sizes_are_preserved_and_no_view_holds_its_node_or_an_outsider(
    run: int, topic: int, ids: set[int], config: RoundConfig
) -> None:
    k = view_size(len(ids), config.connected, config.rounding)
    played = play(run, topic, ids, config)
    assert len(played) == config.rounds + 1
    for views in played:
        assert set(views) == ids
        for node, view in views.items():
            assert len(view) == len(set(view)) == k
            assert node not in view
            assert set(view) <= ids


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), members, configs)
def test_keepers_and_pins_are_two_sides_of_one_relation(
    run: int, ids: set[int], config: RoundConfig
) -> None:
    k = view_size(len(ids), config.connected, config.rounding)
    overlay = Overlay(run, 7, start_views(run, 7, ids, k), config)
    for round_ in range(1, config.rounds + 1):
        before = set(overlay.keepers)
        overlay.advance(round_)
        assert before <= set(overlay.keepers), "a node that had a keeper has none"
        pairs = {(node, at) for at, nodes in overlay.pins.items() for node in nodes}
        assert pairs == set(overlay.keepers.items())
        for keeper, nodes in overlay.pins.items():
            assert nodes <= set(overlay.views[keeper])
            assert len(nodes) <= pins_limit(k)
    if config.mode == "faithful":
        assert not overlay.keepers


def test_start_views_are_distinct_draws_that_pass_over_the_node_itself() -> None:
    ids = [10, 20, 30, 40, 50]
    drawn = [ids[below(draw(stream(3, 4, 20, 0), i), 5)] for i in range(50)]
    wanted = list(dict.fromkeys(other for other in drawn if other != 20))[:2]
    assert start_views(3, 4, ids, 2)[20] == tuple(wanted)


def test_a_view_of_all_others_is_in_the_order_of_ids() -> None:
    assert start_views(0, 0, {3, 1, 2}, 2) == {1: (2, 3), 2: (1, 3), 3: (1, 2)}


def test_a_view_larger_than_the_topic_is_refused() -> None:
    with pytest.raises(ValueError, match="a view of 3 is not possible among 3 members"):
        start_views(0, 0, {1, 2, 3}, 3)
    assert start_views(0, 0, set(), 0) == {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_topic_of_one_or_no_node_stands_still(mode: str, order: str) -> None:
    config = RoundConfig(rounds=2, mode=mode, order=order)  # type: ignore[arg-type]
    assert play(0, 0, [5], config) == [{5: ()}] * 3
    assert play(0, 0, [], config) == [{}] * 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"rounds": -1}, "rounds must be 0 or more, not -1"),
        ({"ttl": -1}, "ttl must be 0 to 997, not -1"),
        ({"loss": 1.5}, "loss must be 0 to 1, not 1.5"),
        ({"mode": "lazy"}, "mode must be one of faithful, repairing, not 'lazy'"),
        ({"order": "random"}, "order must be one of lock step, in turn, not 'random'"),
    ],
)
def test_a_wrong_config_says_what_is_wrong(wrong: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        RoundConfig(**wrong)  # type: ignore[arg-type]


def test_a_walk_visits_ttl_plus_one_nodes_and_collects_them_and_their_views() -> None:
    """A5-A13 with ttl - 1 where A11 prints the constant TTL - 1."""
    views = start_views(1, 2, range(30), 4)
    walk = Overlay(1, 2, views, RoundConfig(ttl=3)).walk(5, 1, views)
    name = stream(1, 2, 5, 1)
    at, wanted = 5, set[int]()
    for hop in range(4):
        at = views[at][below(draw(name, hop), 4)]
        assert walk.hops[hop][1] == at
        wanted |= {at, *views[at]}
    assert len(walk.hops) == 4
    assert walk.replied
    assert walk.collected == wanted - {5}
    assert walk.hops[0][0] == 5
    assert [last for last, _ in walk.hops[1:]] == [at for _, at in walk.hops[:-1]]


def test_a_reply_keeps_the_lightest_of_the_set_and_the_view() -> None:
    """A14-A17; the view is stored by weight."""
    views = start_views(1, 2, range(30), 4)
    overlay = Overlay(1, 2, dict(views), RoundConfig())
    walk = overlay.walk(5, 1, views)
    overlay.advance(1)
    known = sorted(walk.collected | set(views[5]), key=lambda other: weight(5, other))
    assert overlay.views[5] == tuple(known[:4])


def test_lock_step_reads_the_round_before_and_in_turn_what_is_there() -> None:
    """In turn, the first node acts as in lock step; a later one sees what it changed."""
    together, in_turn = (
        play(1, 2, range(40), RoundConfig(rounds=1, order=order))[1] for order in ORDERS
    )
    assert together[0] == in_turn[0]
    assert together != in_turn


def test_a_lost_message_ends_the_walk() -> None:
    config = RoundConfig(loss=0.3)
    views = start_views(1, 2, range(30), 4)
    overlay = Overlay(1, 2, views, config)
    lengths = set()
    for node in views:
        walk = overlay.walk(node, 1, views)
        name = stream(1, 2, node, 1)
        reached = next((i for i in range(7) if is_lost(name, i, 0.3)), 7)
        assert len(walk.hops) == min(reached, 6)
        assert walk.replied == (reached == 7)
        assert walk.replied == bool(walk.collected)
        lengths.add(reached)
    assert {0, 1, 7} <= lengths


def test_nothing_changes_when_all_messages_are_lost() -> None:
    config = RoundConfig(rounds=3, loss=1.0)
    played = play(1, 2, range(30), config)
    assert played == [played[0]] * 4


def without_a_holder(views: Views, lost: int) -> Views:
    """The same views, but `lost` is in none of them."""
    spare = {node: next(o for o in views if o not in (node, lost, *views[node])) for node in views}
    return {
        node: tuple(spare[node] if other == lost else other for other in view)
        for node, view in views.items()
    }


@pytest.mark.parametrize("order", ORDERS)
def test_in_faithful_mode_a_node_that_no_view_holds_is_never_found_again(order: str) -> None:
    config = RoundConfig(order=order)  # type: ignore[arg-type]
    overlay = Overlay(1, 2, without_a_holder(start_views(1, 2, range(60), 9), 7), config)
    for round_ in range(1, 20):
        overlay.advance(round_)
        assert 7 in unknown(overlay.views)


@pytest.mark.parametrize("order", ORDERS)
def test_in_repairing_mode_a_node_that_no_view_holds_returns_and_stays(order: str) -> None:
    config = RoundConfig(mode="repairing", order=order)  # type: ignore[arg-type]
    overlay = Overlay(1, 2, without_a_holder(start_views(1, 2, range(60), 9), 7), config)
    assert 7 in unknown(overlay.views)
    overlay.advance(1)
    for round_ in range(2, 20):
        overlay.advance(round_)
        assert not unknown(overlay.views)


def lightest_views(ids: range, k: int) -> Views:
    """What a node that knew all others would hold."""
    return {
        node: tuple(sorted(set(ids) - {node}, key=lambda other: (weight(node, other), other))[:k])
        for node in ids
    }


@pytest.mark.parametrize("order", ORDERS)
def test_repair_holds_even_those_nodes_that_are_among_the_lightest_of_no_other(order: str) -> None:
    """With small views (connected with probability 0.5) they are frequent, at the start and after.

    Offers cannot help them: each view that they visit has lighter ids.
    """
    config = RoundConfig(rounds=12, mode="repairing", order=order, connected=0.5)  # type: ignore[arg-type]
    heavy = late = 0
    for topic in range(15):
        ids = range(100 * topic, 100 * topic + 30)
        heavy += len(unknown(lightest_views(ids, view_size(30, 0.5))))
        played = play(1, topic, ids, config)
        late += sum(len(unknown(views)) for views in played[8:])
    assert heavy >= 3
    assert late == 0


def test_a_silent_node_without_a_keeper_asks_a_random_member_of_its_view() -> None:
    """Rule 2, and rule 1 before it."""
    views = start_views(1, 2, range(30), 4)
    overlay = Overlay(1, 2, views, RoundConfig(mode="repairing"))
    drawn = views[5][below(draw(stream(1, 2, 5, 3), 2000), 4)]
    assert overlay.wanted_keeper(5, 3, views[5], set()) == drawn
    hops = {8, 9, 10}
    assert overlay.wanted_keeper(5, 3, views[5], hops) == min(hops, key=lambda u: weight(u, 5))
    overlay.keepers[5] = min(hops, key=lambda u: weight(u, 5))
    assert overlay.wanted_keeper(5, 3, views[5], hops) is None
    assert overlay.wanted_keeper(5, 3, views[5], set()) is None


def test_a_keeper_accepts_the_lightest_of_those_that_ask_up_to_its_limit() -> None:
    """Rule 3: node 0 is the last hop of all others, and all that they know."""
    others = tuple(range(1, 12))
    views: Views = {0: others, **dict.fromkeys(others, (0,))}
    overlay = Overlay(1, 2, views, RoundConfig(mode="repairing", ttl=1))
    overlay.advance(1)
    assert pins_limit(len(others)) == 5
    assert overlay.pins[0] == set(sorted(others, key=lambda node: weight(0, node))[:5])
