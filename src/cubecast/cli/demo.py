"""``cubecast demo``: see an answer arrive before its question, and see it prevented."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cubecast.cli.demo_chat import in_words
from cubecast.cli.demo_live import (
    QUICK,
    SLOW,
    DemoConversation,
    DemoFailed,
    as_it_arrived,
    converse,
    tree_taken,
)
from cubecast.cli.demo_screens import (
    InversionCounts,
    Screens,
    say,
    show_screens,
    show_tree,
    tell_counts,
    tell_next,
)
from cubecast.cli.demo_simulated import demo_simulated
from cubecast.cli.output import console, refuse
from cubecast.net.links.faults import Rule
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


def demo(
    nodes: Annotated[
        int | None,
        typer.Option(help="Friends in the chat [default: 8; 16 simulated].", min=3, max=256),
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
        bool, typer.Option("--simulated", help="Simulate many chats instead.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many chats to simulate [default: 20].", min=1, max=1000),
    ] = None,
) -> None:
    """See an answer arrive before its question, and see it prevented.

    Friends chat; each is a real node in a process of its own. One asks, the
    others answer after reading. Some links are slow, so messages overtake
    each other. The demo shows one friend's screen as messages arrived, which
    is what best effort would have shown, beside what cubecast showed. Then
    it tells how often that happened, draws the tree that a question took,
    and leaves the trace of the run, judged by the checkers.

    With --simulated, chats are simulated over best-effort trees and over
    cubecast.
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
    questions = "one question" if rounds == 1 else f"{in_words(rounds)} questions"
    say(
        console,
        f"[bold]{in_words(nodes).capitalize()} friends chat.[/bold] Each is a real node, a process "
        f"on this machine. They ask {questions}, and all others answer each. Every link is slowed "
        f"down on purpose, most by {_hop(QUICK)} ms, some by {_hop(SLOW)} ms, so messages overtake "
        "each other.",
    )
    began = time.monotonic()
    try:
        conversation = converse(nodes, rounds)
    except DemoFailed as failure:
        typer.echo(f"cubecast demo: {failure}", err=True)
        raise typer.Exit(1) from None
    took = time.monotonic() - began
    views = {"best effort": as_it_arrived(conversation.trace), "cubecast": conversation.trace}
    reports = {name: check(records) for name, records in views.items()}
    _show_screens({name: Screens(records) for name, records in views.items()})
    say(
        console,
        "\nBest effort is the same run, with each message shown when it first came off the "
        "network.",
    )
    best, ours = (_counts(views[name], reports[name]) for name in views)
    tell_counts(console, best, ours)
    show_tree(console, tree_taken(conversation.trace, conversation.members))
    _leave_trace(conversation, path, rounds)
    verdict = reports["cubecast"]
    say(
        console,
        f"\nAll of it took {took:.1f} seconds. The trace is in {path}: "
        + ("the checkers found nothing wrong." if verdict.ok else "the checkers object."),
    )
    if not verdict.ok:
        typer.echo(f"cubecast demo: {verdict.violations[0]}", err=True)
        raise typer.Exit(1)
    tell_next(console)


def _hop(rule: Rule) -> str:
    return f"{rule.delay_s * 1000:g} to {(rule.delay_s + rule.jitter_s) * 1000:g}"


def _counts(trace: list[Record], report: Report) -> InversionCounts:
    answers = answers_before_questions(trace)
    violations = sum(report.counts.values())
    return InversionCounts(report.deliveries, answers.pairs, answers.inverted, violations)


def _show_screens(screens: dict[str, Screens]) -> None:
    window = screens["best effort"].find_early()
    if window is None:
        say(console, "\nNo answer overtook its question this time; try again.")
    else:
        show_screens(console, screens, window)


def _leave_trace(conversation: DemoConversation, path: Path, rounds: int) -> None:
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
