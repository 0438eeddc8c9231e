"""Streams of chance, weights of links and sizes of views: what every world of StaN shares."""

from __future__ import annotations

from collections import Counter

import pytest

from cubecast.overlay.chance import below, combined, draw, mix, stream
from cubecast.overlay.view_sizes import surplus, view_size
from cubecast.overlay.weights import HASHES, weight


def test_mix_gives_the_published_sequence_of_splitmix64() -> None:
    """The first outputs of splitmix64 with seed 1234567: mix of the seed plus k golden steps."""
    golden = 0x9E3779B97F4A7C15
    seen = [mix((1234567 + k * golden) & ((1 << 64) - 1)) for k in range(3)]
    assert seen == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_streams_differ_in_every_part_of_their_name() -> None:
    names = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0)]
    assert len({stream(*name) for name in names}) == len(names)


def test_draws_below_a_limit_are_even() -> None:
    counts = Counter(below(draw(stream(1, 2, 3, 4), i), 10) for i in range(10_000))
    assert set(counts) == set(range(10))
    assert all(900 < count < 1100 for count in counts.values())


def test_the_order_of_two_ids_matters_except_for_a_symmetric_weight() -> None:
    assert combined(1, 2) != combined(2, 1)
    assert weight(1, 2, "mixed") != weight(2, 1, "mixed")
    assert weight(1, 2, "concatenated") != weight(2, 1, "concatenated")
    assert weight(1, 2, "symmetric") == weight(2, 1, "symmetric")


def test_concatenated_keeps_the_ambiguity_of_the_paper() -> None:
    assert weight(1, 23, "concatenated") == weight(12, 3, "concatenated")
    assert weight(1, 23, "mixed") != weight(12, 3, "mixed")


@pytest.mark.parametrize("hashing", HASHES)
def test_weights_of_large_ids_are_64_bits(hashing: str) -> None:
    value = weight(2**40, 2**41 + 1, hashing)  # type: ignore[arg-type]
    assert 0 <= value < 2**64


@pytest.mark.parametrize(
    ("nodes", "size"), [(0, 0), (1, 0), (2, 1), (3, 2), (30, 9), (1000, 12), (15_000, 15)]
)
def test_view_sizes_follow_the_connectivity_rule(nodes: int, size: int) -> None:
    """[N] 3.1 with P = 0.99, rounded up, at most all the others."""
    assert view_size(nodes) == size


def test_rounding_down_takes_one_link_less() -> None:
    assert surplus() == pytest.approx(4.600, abs=5e-4)
    assert view_size(30, rounding="down") == 8
    assert view_size(5, rounding="down") == 4


def test_a_probability_of_one_has_no_view_size() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        view_size(30, connected=1.0)
