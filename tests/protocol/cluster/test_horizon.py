"""How far back a node remembers: a few views for everyone, and as far as the absent need it."""

from __future__ import annotations

import pytest

from cubecast.protocol.cluster.horizon import KEPT_VIEWS, Horizon


@pytest.mark.parametrize(
    ("horizon", "first"),
    [
        (Horizon(10), 10 - KEPT_VIEWS),
        (Horizon(10, absent_from=6), 6 - KEPT_VIEWS),
        (Horizon(10, absent_from=11), 10 - KEPT_VIEWS),
    ],
)
def test_lives_that_ended_lately_or_since_a_node_is_absent_are_needed(
    horizon: Horizon, first: int
) -> None:
    assert [horizon.needs_dead(died) for died in (first - 1, first)] == [False, True]


def test_a_superseded_stream_is_needed_by_absent_nodes_alone() -> None:
    first = 6 - KEPT_VIEWS
    horizon = Horizon(10, absent_from=6)
    assert [horizon.needs_superseded(since) for since in (first - 1, first)] == [False, True]
    assert not Horizon(10).needs_superseded(10)
