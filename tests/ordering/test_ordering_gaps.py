"""Numbers that were passed over: a twin that keeps every number says the same."""

from __future__ import annotations

from random import Random

import pytest

from cubecast.ordering.production import gaps
from cubecast.ordering.production.gaps import Gaps


@pytest.mark.parametrize("seed", range(20))
def test_gaps_know_what_a_set_of_numbers_knows(seed: int) -> None:
    rng = Random(seed)
    kept, twin = Gaps(), set[tuple[str, int]]()
    reached = dict.fromkeys("ab", 0)
    for _ in range(300):
        topic = rng.choice("ab")
        if rng.random() < 0.4:
            first = reached[topic] + rng.randint(1, 3)
            last = first + rng.randint(-1, 6)
            kept.add(topic, first, last)
            twin |= {(topic, number) for number in range(first, last + 1)}
            reached[topic] = max(last, reached[topic]) + 1
        else:
            number = rng.randint(0, reached[topic] + 2)
            assert kept.has(topic, number) == ((topic, number) in twin)
            assert kept.take(topic, number) == ((topic, number) in twin)
            twin.discard((topic, number))
    kept.leave("a")
    assert {("b", n) for n in range(reached["b"] + 9) if kept.has("b", n)} == {
        one for one in twin if one[0] == "b"
    }
    assert not any(kept.has("a", number) for number in range(reached["a"] + 9))


def test_a_large_gap_is_one_range() -> None:
    kept = Gaps()
    kept.add("a", 1, 1_000_000)
    assert len(kept) == 1
    assert kept.take("a", 500_000)
    assert not kept.take("a", 500_000)
    assert len(kept) == 2


def test_beyond_its_bound_the_oldest_range_is_forgotten_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps, "MAX_RANGES", 3)
    kept = Gaps()
    for number in range(0, 50, 10):
        kept.add("a", number, number + 1)
    assert len(kept) == 3
    assert kept.forgotten == 4
    assert not kept.has("a", 1)
    assert kept.has("a", 41)
