"""``cubecast demo --simulated``: the same discussions over best effort and over cubecast."""

from __future__ import annotations

from rich.console import Console

from cubecast.cli.demo_chat import in_words
from cubecast.cli.demo_screens import (
    InversionCounts,
    Screens,
    say,
    show_screens,
    show_tree,
    tell_counts,
    tell_next,
)
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS
from cubecast.topology import everyone, tree

SETTING = {"network": "uniform", "low": 20, "high": 180, "span": 300}
"""A hop takes U[low, high], so messages overtake each other; readers think U[0, span]."""
PROTOCOLS = {"best effort": "best-effort", "cubecast": "cubecast"}


def demo_simulated(console: Console, nodes: int, seeds: int) -> None:
    """Simulate `seeds` discussions twice, and show the differences."""
    discussion = SCENARIOS["discussion"]
    params = Params().with_({**discussion.defaults, **SETTING, "nodes": nodes})
    chats = "one chat" if seeds == 1 else f"{in_words(seeds)} chats"
    say(
        console,
        f"[bold]{in_words(nodes).capitalize()} friends chat,[/bold] simulated. One asks, the "
        f"others answer up to {params.span} units of time after reading. A hop takes "
        f"{params.low} to {params.high} units, so messages overtake each other. "
        f"The same {chats} for both protocols.",
    )
    outcomes = {
        name: [run(discussion, protocol, params, seed, keep_trace=True) for seed in range(seeds)]
        for name, protocol in PROTOCOLS.items()
    }
    _show_screens(console, outcomes)
    best, ours = (_counts(runs) for runs in outcomes.values())
    tell_counts(console, best, ours)
    dimension = (nodes - 1).bit_length()
    members = everyone(dimension) & ((1 << nodes) - 1)
    show_tree(console, tree(0, members, dimension))
    tell_next(console)


def _counts(runs: list[Outcome]) -> InversionCounts:
    names = ("deliveries", "answers_seen", "answers_before_questions", "violations")
    totals = [round(sum(outcome.metrics.get(name, 0.0) for outcome in runs)) for name in names]
    return InversionCounts(*totals)


def _screens(outcome: Outcome) -> Screens:
    assert outcome.trace is not None
    return Screens(outcome.trace)


def _show_screens(console: Console, outcomes: dict[str, list[Outcome]]) -> None:
    """The screen of one person who saw an answer first, under both protocols."""
    for number, outcome in enumerate(outcomes["best effort"]):
        window = _screens(outcome).find_early()
        if window is not None:
            both = {name: _screens(runs[number]) for name, runs in outcomes.items()}
            show_screens(console, both, window)
            return
    say(console, "\nNo chat went wrong; try more with --seeds.")
