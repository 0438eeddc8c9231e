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


def demo(
    nodes: Annotated[int, typer.Option(help="Members of the group.", min=3, max=256)] = 16,
    seeds: Annotated[int, typer.Option(help="How many discussions to simulate.", min=1)] = 20,
) -> None:
    """Simulate a discussion group with and without causal order.

    One member asks, everyone answers after reading. The same discussions run
    over best-effort trees and over cubecast. The demo counts how often a
    member saw an answer before what it answers, shows one member's screen
    both ways, and draws the tree a publication takes.
    """
    params = Params().with_({**SCENARIOS["discussion"].defaults, "nodes": nodes})
    console.print(
        f"[bold]A discussion group of {nodes}:[/bold] one member asks, everyone answers "
        f"after reading; {seeds} discussions.\n"
    )
    outcomes = {
        protocol: [
            run(SCENARIOS["discussion"], protocol, params, seed, keep_trace=True)
            for seed in range(seeds)
        ]
        for protocol in ("best-effort", "cubecast")
    }
    console.print(_counts(outcomes))
    console.print()
    _show_screens(outcomes)
    console.print()
    console.print(f"[bold]The tree of a publication by member 0 of {nodes}:[/bold]")
    dimension = (nodes - 1).bit_length()
    members = everyone(dimension) & ((1 << nodes) - 1)
    draw_tree(tree(0, members, dimension))


def _counts(outcomes: dict[str, list[Outcome]]) -> Table:
    table = Table(show_edge=False)
    table.add_column("protocol")
    for heading in ("deliveries", "answers seen", "before their question", "violations"):
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
    for index, outcome in enumerate(outcomes["best-effort"]):
        assert outcome.trace is not None
        unlucky = _first_inversion(outcome.trace)
        if unlucky is not None:
            break
    else:
        console.print("no discussion went wrong; try more with --seeds")
        return
    panels = []
    for protocol, runs in outcomes.items():
        trace = runs[index].trace
        assert trace is not None
        panels.append(Panel(_screen(trace, unlucky), title=f"{protocol}, member {unlucky}"))
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
    text = Text()
    lines = [r for r in trace if r.kind == "deliver" and r.node == member]
    for record in lines[:SCREEN_LINES]:
        assert record.id is not None
        asked = parents[record.id]
        early = any(parent not in seen for parent in asked)
        seen.add(record.id)
        said = f"re: #{asked[0]}" if asked else "a question"
        text.append(
            f"#{record.id:<3} member {author[record.id]:<3} {said:<12}"
            f"{'  <- before its question' if early else ''}\n",
            style="red" if early else "",
        )
    if len(lines) > SCREEN_LINES:
        text.append(f"... {len(lines) - SCREEN_LINES} more")
    return text
