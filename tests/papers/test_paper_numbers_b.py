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

from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import Scenario
from cubecast.sim.workloads.subscriber_turnover import plan_turnover
from cubecast.sim.workloads.vcube_pb_figures import LAYOUTS, figure_3, figure_4, subscribers

Copies = dict[tuple[int, int | None], list[int]]
"""{(node, message): times from publishing to the arrival of each copy}."""
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


def copies_while_members_change(protocol: str, nodes: int) -> tuple[Outcome, Copies]:
    """A run as that of Figure 4, and the time of every copy that arrived at a subscriber."""
    scenario = Scenario(
        "copies", "", lambda world, given, rng: plan_turnover(world, given, rng, None)
    )
    params = Params(
        nodes=nodes, publishers=0.25, network="service", free=("ack", "sub", "uns")
    )  # fmt: skip
    outcome = run(
        scenario, protocol, params, 0, checked=False, keep_trace=True, trace_messages=True
    )
    published: dict[int | None, int] = {}
    there: set[int] = set()
    copies: Copies = {}
    for record in outcome.trace:
        match record.kind:
            case "join":
                there.add(record.node)
            case "leave":
                there.discard(record.node)
            case "publish":
                published[record.id] = record.time
            case "receive" if record.message == "pub" and record.node in there:
                taken = record.time - published[record.id]
                copies.setdefault((record.node, record.id), []).append(taken)
    return outcome, copies


def test_second_copies_of_vcube_pb_count_as_receptions() -> None:
    """So its mean reception is above its mean latency; a fixed tree has no second copies."""
    outcome, copies = copies_while_members_change("vcube-pb", 256)
    first = [times[0] for times in copies.values()]
    later = [taken for times in copies.values() for taken in times[1:]]
    assert outcome.metrics["reception_mean"] == pytest.approx(fmean([*first, *later]), rel=1e-3)
    assert fmean(first) < outcome.metrics["latency_mean"] < outcome.metrics["reception_mean"]
    assert len(later) / (len(first) + len(later)) == pytest.approx(0.1, abs=0.02)
    assert fmean(later) / fmean(first) == pytest.approx(3, abs=0.3)
    _, copies = copies_while_members_change("fixed-tree", 64)
    assert all(len(times) == 1 for times in copies.values())


@pytest.mark.soak
def test_figure_4_at_2048_nodes() -> None:
    """[B] 6: 17 %.  Ours is 12 %; docs/deviations.md says what would move it."""
    assert below(2048, seeds=1) == pytest.approx(0.124, abs=0.02)
