"""Metrics of overlays, physical views, optimum and estimates against versions without tricks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import exp
from random import Random

import numpy as np
import pytest

from cubecast.kernel.errors import KernelError
from cubecast.kernel.rounds import (
    Played,
    Subscribers,
    coverage,
    covering_links,
    estimates,
    in_degrees,
    optimal_views,
    overlay_metrics,
    physical_view_sizes,
    play_overlays,
    played_view_sizes,
)
from cubecast.kernel.rounds.optimum import default_share, sampled
from cubecast.overlay.rounds import RoundConfig
from cubecast.overlay.view_sizes import view_size
from cubecast.overlay.weights import HASHES, weight

Links = dict[int, list[int]]


def overlay(links: Links) -> Played:
    """One topic whose node ids are their places; all views have the same size."""
    n, k = len(links), len(links[0])
    places = np.array([[other for place in range(n) for other in links[place]]], np.int32)
    return Played(
        np.array([4]), np.array([0, n]), np.arange(n), np.array([k]), np.array([0, n * k]), (0,),
        places,
    )  # fmt: skip


def some_links(seed: int) -> Links:
    """Overlays that are often in several parts: few links among neighbours on a line."""
    random = Random(seed)
    n, k = random.randint(4, 30), random.randint(1, 3)
    near = random.choice([3, n])
    return {
        place: random.sample(
            sorted({(place + step) % n for step in range(-near, near + 1)} - {place}), k
        )
        for place in range(n)
    }


def reached(links: Links, source: int) -> dict[int, int]:
    """Distances by repeated widening."""
    found, edge = {source: 0}, [source]
    while edge:
        edge = [other for at in edge for other in links[at] if found.setdefault(other, -1) < 0]
        far = max(found.values()) + 1
        found.update(dict.fromkeys(edge, far))
        edge = sorted(set(edge))
    return found


def parts(neighbours: dict[int, set[int]]) -> list[set[int]]:
    left, found = set(neighbours), []
    while left:
        part, edge = set(), {min(left)}
        while edge:
            part |= edge
            edge = {other for at in edge for other in neighbours[at]} - part
        found.append(part)
        left -= part
    return found


@pytest.mark.parametrize("seed", range(40))
def test_metrics_are_those_of_a_version_without_tricks(seed: int) -> None:
    links = some_links(seed)
    n, k = len(links), len(links[0])
    named = Counter(other for view in links.values() for other in view)
    both = {at: set(links[at]) | {p for p in links if at in links[p]} for at in links}
    far = {at: reached(links, at) for at in links}
    mutual = {at: {other for other in far[at] if at in far[other]} for at in links}
    inner = [
        sum(b in links[p] for a in links[p] for b in links[a]) / (k * (k - 1)) if k > 1 else 0.0
        for p in links
    ]
    distances = [d for at in far for other, d in far[at].items() if other != at]

    found = overlay_metrics(overlay(links), 0)

    assert found.unknown[0] == n - len(named)
    assert found.in_degree_max[0] == max(named.values())
    assert found.in_degree_sd[0] == pytest.approx(np.std([named[at] for at in links]))
    assert found.weak_components[0] == len(parts(both))
    assert found.strong_components[0] == len(parts(mutual))
    assert found.outside[0] == n - max(map(len, parts(mutual)))
    assert found.clustering[0] == pytest.approx(np.mean(inner))
    assert found.diameter[0] == max(distances)
    assert found.distance[0] == pytest.approx(np.mean(distances))
    assert found.unreached[0] == pytest.approx(1 - len(distances) / (n * (n - 1)))
    assert (found.sources[0], found.distance_error[0]) == (n, 0)


def test_the_overlays_of_these_tests_are_not_all_whole() -> None:
    found = [overlay_metrics(overlay(some_links(seed)), 0) for seed in range(40)]
    assert {1, 2} <= {int(metrics.weak_components[0]) for metrics in found}
    assert max(int(metrics.unknown[0]) for metrics in found) > 0
    assert max(int(metrics.strong_components[0]) for metrics in found) > 2


def universe(seed: int, users: int = 60, topics: int = 6) -> Subscribers:
    random = Random(seed)
    pairs = {
        (user, topic)
        for topic in range(topics)
        for user in random.sample(range(users), random.randint(2, users // 2))
    }
    table = np.array(sorted(pairs))
    return Subscribers.of_pairs(table[:, 0], table[:, 1])


def members_of(subscribers: Subscribers) -> dict[int, list[int]]:
    ends = subscribers.offsets.tolist()
    return {
        topic: subscribers.members[begin:end].tolist()
        for topic, (begin, end) in zip(subscribers.topics.tolist(), pairwise(ends), strict=True)
    }


def test_sampled_distances_tell_their_error() -> None:
    """Of 40 samples, most have the true mean within their error; the diameter is a lower bound."""
    subscribers = Subscribers.of_pairs(np.arange(300), np.zeros(300, np.int64))
    played = play_overlays(subscribers, RoundConfig(), (8,))
    exact = overlay_metrics(played, 8)
    inside = 0
    for run in range(40):
        found = overlay_metrics(played, 8, run=run, exact_up_to=100, sources=20)
        assert found.sources[0] == 20
        assert found.diameter[0] <= exact.diameter[0]
        assert found.distance_error[0] > 0
        inside += abs(found.distance[0] - exact.distance[0]) <= found.distance_error[0]
    assert inside >= 34


def test_distances_of_large_overlays_can_be_left_out() -> None:
    subscribers = Subscribers.of_pairs(np.arange(300), np.zeros(300, np.int64))
    found = overlay_metrics(
        play_overlays(subscribers, RoundConfig(), (0,)), 0, exact_up_to=100, sources=0
    )
    assert (found.sources[0], found.diameter[0]) == (0, 0)
    assert found.weak_components[0] == 1


def test_in_degrees_count_views_of_the_topic() -> None:
    played = play_overlays(universe(1), RoundConfig(), (8,))
    named = Counter((topic, other) for topic, _, view in played.views(8) for other in view)
    keys = zip(played.subscription_topics().tolist(), played.members.tolist(), strict=True)
    assert in_degrees(played, 8).tolist() == [named[key] for key in keys]


def test_physical_views_are_the_different_ids_of_all_topics() -> None:
    played = play_overlays(universe(2), RoundConfig(), (8,))
    links: dict[int, list[int]] = {}
    for _, user, view in played.views(8):
        links.setdefault(user, []).extend(view)
    found = played_view_sizes(played, 8)
    assert found.users.tolist() == sorted(links)
    assert found.logical.tolist() == [len(links[user]) for user in sorted(links)]
    assert found.physical.tolist() == [len(set(links[user])) for user in sorted(links)]
    assert (found.physical < found.logical).any()


def test_rounds_of_a_user_are_counted_apart_in_any_order_of_rows() -> None:
    found = physical_view_sizes(
        np.array([5, 3, 5, 5]), np.array([8, 0, 0, 8]), np.array([2, 0, 1, 2]),
        np.array([1, 2, 9, 2, 4]),
    )  # fmt: skip
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        (3, 0, 0, 0), (5, 0, 1, 1), (5, 8, 4, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("hashing", HASHES)
def test_the_optimum_is_the_lightest_co_subscribers(hashing: str) -> None:
    subscribers = universe(3)
    config = RoundConfig(hashing=hashing)  # type: ignore[arg-type]
    found = optimal_views(subscribers, config)
    at = 0
    for number, (topic, user) in enumerate(
        (topic, user) for topic, members in members_of(subscribers).items() for user in members
    ):
        members = members_of(subscribers)[topic]
        others = sorted(
            set(members) - {user},
            key=lambda other: (weight(user, other, config.hashing), other),
        )
        size = view_size(len(members))
        assert (found.topics[number], found.users[number], found.sizes[number]) == (
            topic, user, size,
        )  # fmt: skip
        assert found.ids[at : at + size].tolist() == others[:size]
        at += size
    assert at == len(found.ids)


def test_a_sample_has_all_topics_of_its_users() -> None:
    subscribers = universe(4)
    whole, some = (optimal_views(subscribers, RoundConfig(), share) for share in (1.0, 0.3))
    chosen = set(some.users.tolist())
    assert 0 < len(chosen) < len(set(whole.users.tolist()))
    expected = [
        pair
        for pair in zip(whole.topics.tolist(), whole.users.tolist(), strict=True)
        if pair[1] in chosen
    ]
    assert list(zip(some.topics.tolist(), some.users.tolist(), strict=True)) == expected


def test_samples_have_the_size_that_was_asked_for() -> None:
    assert sampled(np.arange(100_000), 0.1).sum() == pytest.approx(10_000, rel=0.05)
    assert sampled(np.arange(100), 1.0).all()
    assert (default_share(20_000), default_share(200_000)) == (1.0, 0.1)
    with pytest.raises(KernelError, match="share of users"):
        sampled(np.arange(3), 0.0)


def test_coverage_follows_the_formula() -> None:
    """PAPERS: 1 - (1 - k/(n-1)) exp(-r'(TTL+1)(k+1)/(n-1)), r' = r (1-loss)^(TTL+2)."""
    nodes, sizes = np.array([1000]), np.array([12])
    config = RoundConfig(ttl=5, loss=0.1)
    expected = 1 - (1 - 12 / 999) * exp(-8 * 0.9**7 * 0.8**6 * 6 * 13 / 999)
    assert coverage(nodes, sizes, 8, config, dead=0.2)[0] == pytest.approx(expected)
    assert coverage(nodes, sizes, 0, config)[0] == pytest.approx(12 / 999)
    assert coverage(np.array([10**9]), np.array([25]), 0, config)[0] < 1e-7


def test_estimates_are_the_sums_and_the_integral() -> None:
    """Start: sum of 1 - product(1 - k/(n-1)).  Optimum: sum of the largest k/(n-1)."""
    subscribers, config = universe(5), RoundConfig(ttl=1)
    members = members_of(subscribers)
    n = {topic: len(found) for topic, found in members.items()}
    k = {topic: view_size(count) for topic, count in n.items()}
    f = {t: float(coverage(np.array([n[t]]), np.array([k[t]]), 2, config)[0]) for t in n}
    grid = (np.arange(20_000) + 0.5) / 20_000
    found = estimates(subscribers, config, rounds=2)
    for user in found.users.tolist()[:12]:
        shared: dict[int, list[int]] = {}
        for topic, users in members.items():
            if user in users:
                for other in set(users) - {user}:
                    shared.setdefault(other, []).append(topic)
        start = optimum = integral = 0.0
        for topics in shared.values():
            missed, unseen = 1.0, np.ones_like(grid)
            for t in topics:
                missed *= 1 - k[t] / (n[t] - 1)
                unseen *= 1 - f[t] * (grid < min(1.0, k[t] / (f[t] * (n[t] - 1))))
            start += 1 - missed
            optimum += max(k[t] / (n[t] - 1) for t in topics)
            integral += float(np.mean(1 - unseen))
        at = found.users.tolist().index(user)
        assert found.start[at] == pytest.approx(start)
        assert found.optimum[at] == pytest.approx(optimum)
        assert found.played[at] == pytest.approx(integral, rel=2e-3)


def test_estimates_come_near_what_is_played() -> None:
    """Means over 60 users and 8 runs, within 3 %."""
    subscribers, config = universe(6), RoundConfig()
    expected = estimates(subscribers, config)
    start, end = [], []
    for run in range(8):
        played = play_overlays(subscribers, config, (0, 8), run=run)
        start.append(played_view_sizes(played, 0).physical.mean())
        end.append(played_view_sizes(played, 8).physical.mean())
    best = optimal_views(subscribers, config)
    optimum = physical_view_sizes(best.users, best.users * 0, best.sizes, best.ids)
    assert np.mean(start) == pytest.approx(expected.start.mean(), rel=0.03)
    assert np.mean(end) == pytest.approx(expected.played.mean(), rel=0.03)
    assert optimum.physical.mean() == pytest.approx(expected.optimum.mean(), rel=0.03)


def greedy_links(members: dict[int, list[int]], user: int) -> int:
    """Take who covers most of the topics that lack neighbours, the lightest of several."""
    lacking = {t: view_size(len(users)) for t, users in members.items() if user in users}
    left = {other for topic in lacking for other in members[topic]} - {user}
    links = 0
    while any(lacking.values()):
        covers = {q: [t for t in lacking if lacking[t] and q in members[t]] for q in left}
        best = min(left, key=lambda q: (-len(covers[q]), weight(user, q), q))
        left.remove(best)
        links += 1
        for topic in covers[best]:
            lacking[topic] -= 1
    return links


def test_the_covering_rule_takes_the_widest_neighbour_first() -> None:
    subscribers = universe(8)
    members = members_of(subscribers)
    users, links = covering_links(subscribers, RoundConfig())
    assert links.tolist() == [greedy_links(members, user) for user in users.tolist()]
