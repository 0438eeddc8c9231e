"""Logical and physical view sizes ([N] 3.4)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cubecast.overlay.physical import improvement, view_sizes


def test_a_link_that_two_topics_share_is_one_physical_link() -> None:
    """Node 7 has views {1, 2} and {2, 3}; node 9 has {1} and an empty one."""
    owners, lengths = np.array([7, 9, 7, 9]), np.array([2, 1, 2, 0])
    sizes = view_sizes(owners, lengths, np.array([1, 2, 1, 3, 2]))
    assert sizes.users.tolist() == [7, 9]
    assert sizes.logical.tolist() == [4, 1]
    assert sizes.physical.tolist() == [3, 1]


def test_nodes_without_links_are_counted_with_none() -> None:
    sizes = view_sizes(np.array([4, 4]), np.array([0, 0]), np.array([], np.int64))
    assert (sizes.users.tolist(), sizes.logical.tolist()) == ([4], [0])
    assert sizes.physical.tolist() == [0]
    assert view_sizes(*(np.array([], np.int64),) * 3).users.tolist() == []


@given(st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(0, 2**40), max_size=4))))
def test_sizes_are_those_of_sets(views: list[tuple[int, set[int]]]) -> None:
    owners = np.array([owner for owner, _ in views], np.int64)
    lengths = np.array([len(view) for _, view in views], np.int64)
    ids = np.array([one for _, view in views for one in sorted(view)], np.int64)
    sizes = view_sizes(owners, lengths, ids)
    for user, logical, physical in zip(sizes.users, sizes.logical, sizes.physical, strict=True):
        mine = [view for owner, view in views if owner == user]
        assert logical == sum(map(len, mine))
        assert physical == len(set().union(*mine))


def test_improvement_is_a_share_of_the_initial_size() -> None:
    shares = improvement(np.array([20, 10, 10, 0]), np.array([10, 10, 11, 0]))
    assert shares.tolist() == [0.5, 0.0, 1.0 - 1.1, 0.0]
