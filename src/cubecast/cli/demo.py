"""``cubecast demo``: see an answer arrive before its question, and see it prevented."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cubecast.cli.demo_live import (
    QUICK,
    SLOW,
    Conversation,
    DemoFailed,
    as_it_arrived,
    converse,
    tree_taken,
)
from cubecast.cli.demo_screens import Screens, counts_table, show_side_by_side
from cubecast.cli.demo_simulated import demo_simulated
from cubecast.cli.output import console, refuse
from cubecast.cli.tree import draw_tree
from cubecast.net.faults import Rule
from cubecast.trace import (
    Header,
    Record,
    Report,
    TraceError,
    answers_before_questions,
    check,
    write,
)

LIVE_NODES, MOST_LIVE_NODES = 8, 16
SIMULATED_NODES = 16
DEFAULT_ROUNDS = 6
DEFAULT_SEEDS = 20
DEFAULT_TRACE = Path("demo-trace.jsonl")
LINES_BEFORE = 2


def demo(
    nodes: Annotated[
        int | None,
        typer.Option(help="Members of the group [default: 8; 16 simulated].", min=3, max=256),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Questions that are asked [default: 6].", min=1, max=20),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the trace goes, .jsonl [default: demo-trace.jsonl]."
        ),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Simulate many discussions instead.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many discussions to simulate [default: 20].", min=1, max=1000),
    ] = None,
) -> None:
    """See answers arrive before their question, and see it prevented.

    Real nodes, each a process of its own, hold a conversation: one asks, the
    others answer after reading. Some links are slow, so messages overtake
    each other. The demo shows in which order messages arrived, which is what
    best effort would have shown, beside what cubecast showed; draws the tree
    that a publication took; and leaves the trace of the run, judged by the
    checkers.

    With --simulated, discussions are simulated over best-effort trees and
    over cubecast.
    """
    if simulated:
        if rounds is not None or trace is not None:
            refuse("demo", "--rounds and --trace are for live nodes, not for --simulated")
        demo_simulated(console, nodes or SIMULATED_NODES, seeds or DEFAULT_SEEDS)
        return
    if seeds is not None:
        refuse("demo", "--seeds needs --simulated")
    if nodes is not None and nodes > MOST_LIVE_NODES:
        refuse("demo", f"at most {MOST_LIVE_NODES} live nodes; --simulated takes more")
    path = trace or DEFAULT_TRACE
    if path.suffix != ".jsonl" or not path.parent.is_dir():
        refuse("demo", f"cannot leave a trace at {path}: it must be a .jsonl in a directory")
    _demo_live(nodes or LIVE_NODES, rounds or DEFAULT_ROUNDS, path)


def _demo_live(nodes: int, rounds: int, path: Path) -> None:
    _print(
        f"[bold]A conversation between {nodes} real nodes,[/bold] each a process on this machine. "
        f"In {rounds} round{'' if rounds == 1 else 's'}, one member asks and all others answer "
        f"after reading. A hop takes {_hop(QUICK)} ms more on purpose, over some links "
        f"{_hop(SLOW)}, so messages overtake each other.\n"
    )
    began = time.monotonic()
    try:
        conversation = converse(nodes, rounds)
    except DemoFailed as failure:
        typer.echo(f"cubecast demo: {failure}", err=True)
        raise typer.Exit(1) from None
    took = time.monotonic() - began
    cubecast = conversation.trace
    views = {"best-effort": as_it_arrived(cubecast), "cubecast": cubecast}
    reports = {name: check(records) for name, records in views.items()}
    console.print(counts_table({name: _counts(views[name], reports[name]) for name in views}))
    _print("\nBest-effort is the same run, every message shown when it first came off the network.")
    _show_screens({name: Screens(records) for name, records in views.items()})
    _show_tree(conversation)
    _leave_trace(conversation, path, rounds)
    verdict = reports["cubecast"]
    _print(
        f"\n{took:.1f} s; the trace is in {path}: "
        + ("the checkers found nothing wrong." if verdict.ok else "the checkers object.")
    )
    if not verdict.ok:
        typer.echo(f"cubecast demo: {verdict.violations[0]}", err=True)
        raise typer.Exit(1)


def _print(text: str) -> None:
    console.print(text, highlight=False)


def _hop(rule: Rule) -> str:
    return f"{rule.delay_s * 1000:g} to {(rule.delay_s + rule.jitter_s) * 1000:g}"


def _counts(trace: list[Record], report: Report) -> tuple[float, float, float, float]:
    answers = answers_before_questions(trace)
    return report.deliveries, answers.pairs, answers.inverted, sum(report.counts.values())


def _show_screens(screens: dict[str, Screens]) -> None:
    unlucky = screens["best-effort"].first_early()
    if unlucky is None:
        _print("\nNo answer overtook its question this time; try again.")
        return
    member, line = unlucky
    _print(
        f"\n[bold]What member {member} saw:[/bold] an answer that came before its question is "
        "marked."
    )
    show_side_by_side(console, screens, member, max(0, line - LINES_BEFORE))


def _show_tree(conversation: Conversation) -> None:
    taken = tree_taken(conversation.trace, conversation.members)
    _print(
        f"\n[bold]The tree that the first question took from member {taken.root},[/bold] as the "
        "nodes recorded it: each line is a member, the cluster in which its parent found it, and "
        "its distance from the publisher."
    )
    draw_tree(taken)


def _leave_trace(conversation: Conversation, path: Path, rounds: int) -> None:
    params: dict[str, Any] = {
        "nodes": len(conversation.members),
        "rounds": rounds,
        "slow_links": [f"{a}->{b}" for a, b in conversation.slow],
        "quick": str(QUICK),
        "slow": str(SLOW),
    }
    header = Header(scenario="demo", protocol="cubecast", params=params, time_unit="us")
    try:
        write(path, header, conversation.trace)
    except TraceError as error:
        typer.echo(f"cubecast demo: {error}", err=True)
        raise typer.Exit(1) from None
