"""The two-dimensional grid of [N] 3.2 and the streams that all generators draw from."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cubecast.overlay import chance
from cubecast.overlay.universes.grid import GridParameters, copies, grid, places
from cubecast.overlay.universes.streams import draws, mixed, named, units
from cubecast.overlay.view_sizes import view_size


def test_streams_of_arrays_give_the_bits_of_single_streams() -> None:
    ids = np.array([0, 1, 2**40], dtype=np.int64)
    assert mixed(ids.astype(np.uint64)).tolist() == [chance.mix(int(one)) for one in ids]
    streams = named(5, 7, ids)
    assert streams.tolist() == [chance.stream(5, 7, int(one), 0) for one in ids]
    expected = [chance.draw(chance.stream(5, 7, int(one), 0), 3) for one in ids]
    assert draws(streams, 3).tolist() == expected


def test_units_lie_from_0_to_below_1() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert units(ends).tolist() == [0.0, 1.0 - 2.0**-53]


def test_a_node_subscribes_where_a_place_lies_within_its_radius() -> None:
    """Against a dumb twin: every node, every place of every topic, in plain Python."""
    run, nodes = 3, 40
    topics, offsets, members = grid(run, nodes, 12)
    seen = {
        (int(topics[i]), int(node))
        for i in range(len(topics))
        for node in members[offsets[i] : offsets[i + 1]]
    }
    x, y, radii = places(run, nodes)
    expected = set()
    for topic in range(12):
        stream = chance.stream(run, 2, topic, 0)
        at = [(chance.draw(stream, number) >> 11) / 2**53 for number in range(11)]
        for copy in range(int(copies(run, np.array([topic], dtype=np.int64))[0])):
            for node in range(nodes):
                dx, dy = abs(x[node] - at[2 * copy + 1]), abs(y[node] - at[2 * copy + 2])
                dx, dy = min(dx, 1 - dx), min(dy, 1 - dy)
                if dx * dx + dy * dy <= radii[node] ** 2:
                    expected.add((topic, node))
    assert seen == expected
    assert len(members) == len(seen)


def test_ranges_of_topics_are_parts_of_the_whole() -> None:
    whole = grid(1, 60, 10)
    parts = [grid(1, 60, 10, first=first, last=first + 3) for first in range(0, 10, 3)]
    assert np.concatenate([part[0] for part in parts]).tolist() == whole[0].tolist()
    assert np.concatenate([part[2] for part in parts]).tolist() == whole[2].tolist()


def test_members_are_sorted_and_no_topic_is_empty() -> None:
    topics, offsets, members = grid(2, 30, 40, GridParameters(least_radius=0.02, most_radius=0.1))
    assert len(topics) < 40
    assert (np.diff(topics) > 0).all()
    assert (np.diff(offsets) > 0).all()
    assert all((np.diff(members[a:b]) > 0).all() for a, b in pairwise(offsets))
    assert (topics.dtype, offsets.dtype, members.dtype) == (np.int64, np.int64, np.int64)


def test_numbers_of_places_and_radii_follow_their_power_laws() -> None:
    counts = np.bincount(copies(0, np.arange(20_000, dtype=np.int64)))
    shares = np.array([c**-3.0 for c in range(1, 6)])
    expected = 20_000 * shares / shares.sum()
    assert (np.abs(counts[1:] - expected) < 4 * np.sqrt(expected)).all()
    radii = places(0, 20_000)[2]
    assert radii.min() >= 0.08
    assert radii.max() == 0.8
    assert (radii >= 0.16).mean() == pytest.approx(1 / 2, abs=0.015)
    assert (radii == 0.8).mean() == pytest.approx(1 / 10, abs=0.01)


def test_the_default_grid_starts_with_about_25_physical_links() -> None:
    """[N] Figure 6(a): 25.  Expected links of random overlays, mean over nodes with a topic."""
    links = []
    for run in range(40):
        _, offsets, members = grid(run)
        missed = np.ones((100, 100))
        for a, b in pairwise(offsets):
            if b - a > 1:
                those = members[a:b]
                missed[np.ix_(those, those)] *= 1 - view_size(int(b - a)) / (b - a - 1)
        np.fill_diagonal(missed, 1)
        links.append((1 - missed).sum(axis=1)[np.unique(members)].mean())
    assert np.mean(links) == pytest.approx(25, abs=1.5)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"most_copies": 0}, "at least 1 place"),
        ({"least_radius": 0.0}, "0 < least"),
        ({"least_radius": 0.9}, "0 < least"),
        ({"radius_exponent": 1.0}, "above 1"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        GridParameters(**wrong)  # type: ignore[arg-type]


def test_a_grid_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="needs nodes"):
        grid(0, nodes=0)
