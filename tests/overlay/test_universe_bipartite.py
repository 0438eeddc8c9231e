"""The bipartite generator: exact sizes, power laws, correlation, and independence of ranges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from cubecast.overlay import chance
from cubecast.overlay.universes.bipartite import UniversePlan, bipartite, chunks, plan, universe
from cubecast.overlay.universes.laws import _within, degrees, topic_sizes
from cubecast.overlay.universes.presets import (
    L_NODES,
    L_TOPICS,
    PRESETS,
    W_NODES,
    W_TOPICS,
    BipartiteParameters,
    preset,
)
from cubecast.overlay.universes.streams import Universe

SMALL = BipartiteParameters(topics=20, nodes=120, pairs=500, smallest=8, busiest=12)


def check_form(found: Universe, parameters: BipartiteParameters) -> None:
    """Exact sizes, sorted members without doubles, no node without topic."""
    topics, offsets, members = found
    assert topics.tolist() == list(range(parameters.topics))
    assert len(members) == parameters.pairs == offsets[-1]
    assert np.unique(members).tolist() == list(range(parameters.nodes))
    assert all((np.diff(members[a:b]) > 0).all() for a, b in pairwise(offsets))
    smallest = 1 if parameters.small_topics else parameters.smallest
    assert np.diff(offsets).min() == smallest
    assert np.diff(offsets).max() <= parameters.largest


@pytest.mark.parametrize("name", ["L8", "W8", "L7"])
@pytest.mark.parametrize("run", [0, 1])
def test_generated_universes_have_the_sizes_of_table_1(name: str, run: int) -> None:
    """[N] Table 1: L8 has 253 topics and 4,689 nodes, W8 576 and 1,381, L7 1,805 and 23,657."""
    printed = {"L8": (253, 4_689), "W8": (576, 1_381), "L7": (1_805, 23_657)}
    parameters = preset(name)
    assert (parameters.topics, parameters.nodes) == printed[name]
    check_form(universe(name, run), parameters)


def test_presets_have_the_sizes_of_table_1_and_the_chosen_pairs() -> None:
    for i in range(9):
        assert (PRESETS[f"L{i}"].topics, PRESETS[f"L{i}"].nodes) == (L_TOPICS[i], L_NODES[i])
        assert (PRESETS[f"W{i}"].topics, PRESETS[f"W{i}"].nodes) == (W_TOPICS[i], W_NODES[i])
    assert PRESETS["L1"].pairs == 1_200_000
    assert PRESETS["W1"].pairs == 20_000_000
    assert 1_400_000 < PRESETS["L0"].pairs < 1_600_000
    with pytest.raises(ValueError, match="no universe 'X1'"):
        preset("X1")


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_a_range_of_topics_is_part_of_the_whole(correlation: float) -> None:
    parameters = replace(SMALL, correlation=correlation)
    whole = bipartite(4, parameters)
    check_form(whole, parameters)
    dealt = plan(4, parameters)
    for width in (1, 7):
        parts = [
            members
            for first in range(0, 20, width)
            for _, _, members in chunks(dealt, first, min(first + width, 20))
        ]
        assert np.concatenate(parts).tolist() == whole[2].tolist()


def dumb_members(dealt: UniversePlan, topic: int, low: int, high: int) -> list[int]:
    """One topic in plain Python: nodes at home, then draws until there are enough."""
    stream = chance.stream(dealt.run, 13, topic, 0)
    found = list(range(dealt.homes[topic], dealt.homes[topic + 1]))
    bounds = dealt.activity.tolist()
    number = 0
    while len(found) < dealt.sizes[topic]:
        unit = [(chance.draw(stream, 2 * number + i) >> 11) / 2**53 for i in range(2)]
        near = unit[0] < dealt.parameters.correlation
        start, end = (bounds[low], bounds[high]) if near else (0, bounds[-1])
        point = start + int(unit[1] * (end - start))
        at = next(i for i in range(len(dealt.owners)) if point < bounds[i + 1])
        node = int(dealt.owners[at])
        if node not in found:
            found.append(node)
        number += 1
    return sorted(found)


def test_a_topic_takes_the_first_distinct_draws_of_its_stream() -> None:
    """Against a twin in plain Python; a community has some of many interests."""
    dealt = plan(2, replace(SMALL, correlation=0.6, spread=1.0, interest=4))
    interests = len(dealt.owners)
    assert interests > 80
    topics, offsets, members = bipartite(2, dealt.parameters)
    for topic, (a, b) in zip(topics.tolist(), pairwise(offsets), strict=True):
        length = 1
        while length < dealt.sizes[topic]:
            length *= 2
        place = sum(1 for one in dealt.places if one < dealt.homes[topic])
        low = max(0, min(place // length * length, interests - length))
        expected = dumb_members(dealt, topic, low, min(low + length, interests))
        assert members[a:b].tolist() == expected


def test_a_topic_without_active_nodes_takes_those_that_follow_on_the_line() -> None:
    parameters = BipartiteParameters(topics=4, nodes=40, pairs=80, smallest=20, busiest=1)
    found = bipartite(0, parameters)
    check_form(found, parameters)
    assert found[2][:20].tolist() == list(range(20))
    assert found[2][60:].tolist() == [*range(10), *range(30, 40)]


def test_a_node_has_an_interest_at_home_and_one_for_each_so_many_topics() -> None:
    dealt = plan(0, replace(SMALL, interest=4))
    wants = np.diff(dealt.activity)
    assert (np.diff(dealt.places) >= 0).all()
    assert wants.max() == 4
    for node in np.unique(dealt.owners):
        own = dealt.owners == node
        assert node in dealt.places[own]
        assert own.sum() == -(-wants[own].sum() // 4)
    whole = plan(0, SMALL)
    assert whole.owners.tolist() == whole.places.tolist() == np.unique(dealt.owners).tolist()


def test_runs_differ_and_repeat() -> None:
    first, again, other = bipartite(1, SMALL)[2], bipartite(1, SMALL)[2], bipartite(2, SMALL)[2]
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def columns(found: Universe, nodes: int) -> NDArray[np.float64]:
    topics, offsets, members = found
    table = np.zeros((len(topics), nodes))
    table[np.repeat(np.arange(len(topics)), np.diff(offsets)), members] = 1
    return table


def strong_pairs(found: Universe, nodes: int) -> float:
    """The share of pairs of topics with a Pearson correlation above 0.3."""
    pearson = np.corrcoef(columns(found, nodes))
    return float((pearson[np.triu_indices(len(pearson), 1)] > 0.3).mean())


def test_correlation_grows_with_its_parameter() -> None:
    shares = [
        strong_pairs(bipartite(0, replace(preset("W8"), correlation=correlation)), 1_381)
        for correlation in (0.0, 0.75, 1.0)
    ]
    assert shares[0] < 0.03
    assert 0.05 < shares[1] < 0.12
    assert shares[2] > 0.12


def test_subscriptions_of_w_are_more_correlated_than_those_of_l() -> None:
    """[N] Figure 5."""
    assert strong_pairs(universe("W8"), 1_381) > 5 * strong_pairs(universe("L8"), 4_689)


def test_sizes_of_topics_have_the_sum_asked_for_and_their_exponent() -> None:
    sizes, exponent = topic_sizes(2_000, 176_000, 30, 100_000)
    assert sizes.sum() == 176_000
    assert sizes.min() == 30
    assert (np.diff(sizes) <= 1).all()  # largest first, up to the rounding of sums
    # As many as a density of that exponent has beyond twice the least.
    assert (sizes >= 60).mean() == pytest.approx(0.5 ** (exponent - 1), abs=0.01)
    with pytest.raises(ValueError, match="cannot have 10 pairs"):
        topic_sizes(2, 10, 30, 100)


@pytest.mark.parametrize("total", [1_000, 1_001, 30_000, 46_000, 49_000, 49_999, 50_000])
def test_sizes_of_topics_stay_between_their_bounds_up_to_the_largest_sum(total: int) -> None:
    """Near the largest sum no slope is steep enough; 49,000 once had topics of 52."""
    sizes, _ = topic_sizes(1_000, total, 1, 50)
    assert sizes.sum() == total
    assert 1 <= sizes.min() <= sizes.max() <= 50
    assert (np.diff(sizes) <= 1).all()


@pytest.mark.parametrize(
    ("rounded", "total", "expected"),
    [
        ([9, 7, 3, 2], 21, [8, 8, 3, 2]),
        ([9, 9, 7, 7], 32, [8, 8, 8, 8]),
        ([5, 3, 2, 1], 11, [5, 2, 2, 2]),
        ([5, 4, 3, 2], 14, [5, 4, 3, 2]),
    ],
)
def test_sizes_beyond_a_bound_are_made_up_for_by_their_neighbours(
    rounded: list[int], total: int, expected: list[int]
) -> None:
    found = _within(np.array(rounded, dtype=np.int64), total, least=2, most=8)
    assert found.tolist() == expected


def test_a_universe_may_be_almost_full() -> None:
    """Half of all nodes, the most that a topic has, in nearly each topic."""
    parameters = BipartiteParameters(topics=1_000, nodes=100, pairs=49_000, smallest=1)
    sizes = np.diff(bipartite(0, parameters)[1])
    assert (sizes.sum(), sizes.max()) == (49_000, parameters.largest)


def test_degrees_have_the_mean_asked_for_and_their_exponent() -> None:
    wanted, exponent = degrees(100_000, 5.0, 100)
    assert wanted.mean() == pytest.approx(5.0, abs=0.05)
    assert (wanted.min(), wanted.max()) == (1, 100)
    ratio = (wanted == 2).sum() / (wanted == 1).sum()
    assert ratio == pytest.approx(2.0**-exponent, abs=0.001)
    with pytest.raises(ValueError, match="cannot have a mean"):
        degrees(10, 5.0, 4)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"topics": 0}, "topics and nodes"),
        ({"small_topics": 20}, "cannot be small"),
        ({"pairs": 100}, "too few"),
        ({"smallest": 61}, "smallest must be from 1 to 60, not 61"),
        ({"correlation": 1.5}, "between 0 and 1"),
        ({"spread": 0.5}, "start at 1"),
        ({"interest": 0}, "at least 1 topic"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(SMALL, **wrong)  # type: ignore[arg-type]
