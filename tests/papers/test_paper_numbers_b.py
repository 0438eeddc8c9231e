"""Figures 3 and 4 of [B] 6, redrawn by the simulator; bench/bench_figures_b.py prints more.

The text gives of Figure 3 that all curves but "neighbours" are logarithmic and that random
subscribers are nearer than a full cube, and of Figure 4 two numbers: 37 % (8 nodes), which comes
out, and 17 % (2048), which does not.  What the text leaves open and is chosen here: the root of the
fixed tree does not publish; ACKs and news of members cost a node no time.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from cubecast.sim.workloads.vcube_pb_figures import LAYOUTS, figure_3, figure_4, subscribers

SIZES = (8, 16, 32, 64, 128, 256)


def mean_hops(layout: str, nodes: int, seeds: int = 8) -> float:
    return fmean(figure_3(layout, nodes, seed).metrics["latency_mean"] for seed in range(seeds))


def test_figure_3_is_logarithmic_but_for_the_neighbours() -> None:
    """Every doubling of the nodes adds about half a hop."""
    for layout in LAYOUTS:
        hops = [mean_hops(layout, nodes) for nodes in SIZES]
        steps = [after - before for before, after in pairwise(hops)]
        if layout == "neighbours":
            assert hops == [1.0] * len(SIZES)
        else:
            assert all(0.1 < step < 0.9 for step in steps), (layout, hops)
            assert fmean(steps) == pytest.approx(0.47, abs=0.08), (layout, hops)


def test_figure_3_random_subscribers_are_nearer() -> None:
    for nodes in SIZES:
        assert mean_hops("25 %", nodes) < mean_hops("50 %", nodes) < mean_hops("all", nodes)


@pytest.mark.parametrize("nodes", SIZES)
def test_figure_3_of_a_full_cube_and_of_a_chain(nodes: int) -> None:
    """A full cube has C(d, k) nodes k hops away; the chain of levels has one."""
    dimension = nodes.bit_length() - 1
    everyone, chain = (figure_3(layout, nodes, 0).metrics for layout in ("all", "levels"))
    assert everyone["deliveries"] == nodes - 1
    assert everyone["latency_mean"] == pytest.approx(dimension / 2 * nodes / (nodes - 1))
    assert chain["latency_mean"] == (dimension + 1) / 2
    assert everyone["latency_max"] == chain["latency_max"] == dimension


def test_the_layouts() -> None:
    rng = Random(0)
    assert subscribers("neighbours", 5, 8, rng) == [4, 7, 1]
    assert subscribers("levels", 0, 8, rng) == [4, 6, 7]
    assert len(subscribers("25 %", 5, 64, rng)) == 16
    assert 5 not in subscribers("50 %", 5, 8, rng)
    with pytest.raises(ValueError, match="no such layout"):
        subscribers("some", 0, 8, rng)


def below(nodes: int, seeds: int) -> float:
    """By how much VCube-PB's delivery latency is below the fixed tree's."""
    ours, fixed = (
        fmean(figure_4(name, nodes, seed).metrics["latency_mean"] for seed in range(seeds))
        for name in ("vcube-pb", "fixed-tree")
    )
    return 1 - ours / fixed


def test_figure_4_at_8_nodes() -> None:
    """[B] 6: 37 %."""
    assert below(8, seeds=200) == pytest.approx(0.37, abs=0.015)


def test_figure_4_narrows() -> None:
    """The way to the root is one hop of more and more."""
    shares = [below(nodes, seeds) for nodes, seeds in ((8, 100), (32, 20), (128, 5))]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.22, abs=0.03)


@pytest.mark.soak
def test_figure_4_at_2048_nodes() -> None:
    """[B] 6: 17 %.  Ours is 12 %; docs/deviations.md says what would move it."""
    assert below(2048, seeds=1) == pytest.approx(0.124, abs=0.02)
