"""``cubecast demo``: see an answer arrive before its question, and see it prevented."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.columns import Columns
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cubecast.cli.output import console
from cubecast.cli.tree import draw_tree
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS
from cubecast.topology import everyone, tree
from cubecast.trace import Record

SCREEN_LINES = 12
SETTING = {"network": "uniform", "low": 20, "high": 180, "span": 300}
"""A hop takes U[low, high], so messages overtake each other; readers think U[0, span]."""


def demo(
    nodes: Annotated[int, typer.Option(help="Members of the group.", min=3, max=256)] = 16,
    seeds: Annotated[
        int, typer.Option(help="How many discussions to simulate.", min=1, max=1000)
    ] = 20,
) -> None:
    """See answers arrive before their question, and see it prevented.

    A discussion group is simulated: one member asks, everyone else answers
    after reading. Messages take from 20 to 180 units of time per hop, so they
    overtake each other. The same discussions run over best-effort trees and
    over cubecast. The demo counts how often a member saw an answer before
    what it answers, shows one member's screen both ways, and draws the tree a
    publication takes.
    """
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
    console.print(_counts(outcomes))
    console.print()
    _show_screens(outcomes)
    console.print()
    console.print(
        f"[bold]The tree of a publication by member 0 of {nodes}:[/bold] each line is a member, "
        "the cluster in which its parent found it, and its distance from the publisher.",
        highlight=False,
    )
    dimension = (nodes - 1).bit_length()
    members = everyone(dimension) & ((1 << nodes) - 1)
    draw_tree(tree(0, members, dimension))


def _counts(outcomes: dict[str, list[Outcome]]) -> Table:
    table = Table(show_edge=False)
    table.add_column("protocol")
    for heading in ("deliveries", "answers seen", "before question", "violations"):
        table.add_column(heading, justify="right")
    for protocol, runs in outcomes.items():
        inverted = _total(runs, "answers_before_questions")
        table.add_row(
            protocol,
            f"{_total(runs, 'deliveries'):,.0f}",
            f"{_total(runs, 'answers_seen'):,.0f}",
            Text(f"{inverted:,.0f}", style="red" if inverted else "green"),
            f"{_total(runs, 'violations'):,.0f}",
        )
    return table


def _total(runs: list[Outcome], metric: str) -> float:
    return sum(outcome.metrics.get(metric, 0.0) for outcome in runs)


def _show_screens(outcomes: dict[str, list[Outcome]]) -> None:
    """The screen of one member who saw an answer first, under both protocols."""
    for seed, outcome in enumerate(outcomes["best-effort"]):
        assert outcome.trace is not None
        unlucky = _first_inversion(outcome.trace)
        if unlucky is not None:
            _show_screen_of(unlucky, {name: runs[seed] for name, runs in outcomes.items()})
            return
    console.print("No discussion went wrong; try more with --seeds.")


def _show_screen_of(member: int, outcomes: dict[str, Outcome]) -> None:
    seed = next(iter(outcomes.values())).seed
    console.print(
        f"[bold]What member {member} saw in discussion {seed}:[/bold] an answer that came "
        "before its question is marked.",
        highlight=False,
    )
    panels = []
    for protocol, outcome in outcomes.items():
        assert outcome.trace is not None
        screen = _screen(outcome.trace, member)
        panels.append(Panel(screen, title=protocol, expand=False))
    console.print(Columns(panels))


def _parents(trace: list[Record]) -> dict[int | str, tuple[int | str, ...]]:
    return {r.id: r.reply_to for r in trace if r.kind == "publish" and r.id is not None}


def _first_inversion(trace: list[Record]) -> int | None:
    """A member that was shown an answer before what it answers."""
    parents = _parents(trace)
    seen: dict[int, set[int | str]] = {}
    for record in trace:
        if record.kind == "deliver" and record.id is not None:
            before = seen.setdefault(record.node, set())
            if any(parent not in before for parent in parents[record.id]):
                return record.node
            before.add(record.id)
    return None


def _screen(trace: list[Record], member: int) -> Text:
    """What `member` was shown, in order; an answer that came too early is marked."""
    parents = _parents(trace)
    author = {r.id: r.node for r in trace if r.kind == "publish"}
    seen: set[int | str] = set()
    shown = [r for r in trace if r.kind == "deliver" and r.node == member]
    lines = []
    for record in shown[:SCREEN_LINES]:
        assert record.id is not None
        asked = parents[record.id]
        early = any(parent not in seen for parent in asked)
        seen.add(record.id)
        said = f"answers #{asked[0]}" if asked else "asks"
        mark = "  < early" if early else ""
        lines.append(
            Text(
                f"#{record.id:<3} member {author[record.id]:<3} {said}{mark}",
                style="red" if early else "",
            )
        )
    if len(shown) > SCREEN_LINES:
        lines.append(Text(f"and {len(shown) - SCREEN_LINES} more", style="dim"))
    return Text("\n").join(lines)
