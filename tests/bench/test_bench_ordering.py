"""The parts of the benchmark of order across topics that count."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.bench.ordering_members import OrderingWorkload, opposite

TOPICS = ("a", "b", "c")


@given(st.permutations(range(8)), st.permutations(range(2, 10)), st.integers(0, 8))
def test_opposite_pairs_are_those_that_a_plain_count_finds(
    mine: list[int], theirs: list[int], missing: int
) -> None:
    theirs = theirs[missing:]
    common = [event for event in mine if event in theirs]
    plain = sum(theirs.index(a) > theirs.index(b) for a, b in combinations(common, 2))
    assert opposite(mine, theirs) == plain


def test_a_workload_is_the_same_in_every_process_and_says_what_is_due() -> None:
    workload = OrderingWorkload(2, (("a",), ("b", "c"), TOPICS), TOPICS, (4, 2, 1), 1000, seed=3)
    again = OrderingWorkload(2, (("a",), ("b", "c"), TOPICS), TOPICS, (4, 2, 1), 1000, seed=3)
    assert workload.plan == again.plan
    assert workload.due(0) + workload.due(1) == workload.due(2) == 1000
    assert workload.due(0) > workload.due(1)
    assert workload.members == ["s0", "s1", "s2", "p0", "p1"]
