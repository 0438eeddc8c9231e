"""``cubecast demo --simulated``: the same discussions over best effort and over cubecast."""

from __future__ import annotations

from rich.console import Console

from cubecast.cli.demo_screens import Screens, counts_table, show_side_by_side
from cubecast.cli.tree import draw_tree
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS
from cubecast.topology import everyone, tree

SETTING = {"network": "uniform", "low": 20, "high": 180, "span": 300}
"""A hop takes U[low, high], so messages overtake each other; readers think U[0, span]."""


def demo_simulated(console: Console, nodes: int, seeds: int) -> None:
    """Simulate `seeds` discussions twice, and show what differs."""
    discussion = SCENARIOS["discussion"]
    params = Params().with_({**discussion.defaults, **SETTING, "nodes": nodes})
    console.print(
        f"[bold]A discussion group of {nodes}:[/bold] one member asks, everyone else answers up "
        f"to {params.span} units of time after reading. A hop takes {params.low} to "
        f"{params.high} units, so messages overtake each other. "
        f"{seeds} discussion{'' if seeds == 1 else 's'}, the same for both protocols.\n",
        highlight=False,
    )
    outcomes = {
        protocol: [
            run(discussion, protocol, params, seed, keep_trace=True) for seed in range(seeds)
        ]
        for protocol in ("best-effort", "cubecast")
    }
    console.print(counts_table({name: _counts(runs) for name, runs in outcomes.items()}))
    console.print()
    _show_screens(console, outcomes)
    console.print()
    console.print(
        f"[bold]The tree of a publication by member 0 of {nodes}:[/bold] each line is a member, "
        "the cluster in which its parent found it, and its distance from the publisher.",
        highlight=False,
    )
    dimension = (nodes - 1).bit_length()
    members = everyone(dimension) & ((1 << nodes) - 1)
    draw_tree(tree(0, members, dimension))


def _counts(runs: list[Outcome]) -> tuple[float, float, float, float]:
    names = ("deliveries", "answers_seen", "answers_before_questions", "violations")
    totals = [sum(outcome.metrics.get(name, 0.0) for outcome in runs) for name in names]
    return totals[0], totals[1], totals[2], totals[3]


def _screens(outcome: Outcome) -> Screens:
    assert outcome.trace is not None
    return Screens(outcome.trace)


def _show_screens(console: Console, outcomes: dict[str, list[Outcome]]) -> None:
    """The screen of one member who saw an answer first, under both protocols."""
    for seed, outcome in enumerate(outcomes["best-effort"]):
        unlucky = _screens(outcome).first_early()
        if unlucky is not None:
            member, _ = unlucky
            console.print(
                f"[bold]What member {member} saw in discussion {seed}:[/bold] an answer that "
                "came before its question is marked.",
                highlight=False,
            )
            both = {name: _screens(runs[seed]) for name, runs in outcomes.items()}
            show_side_by_side(console, both, member)
            return
    console.print("No discussion went wrong; try more with --seeds.")
