"""``cubecast chaos``: real processes under faults, and the verdict on the run."""

from __future__ import annotations

import json
import signal
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from cubecast.chaos.live.chaos_run import chaos_run
from cubecast.chaos.live.driver import ChaosFailed, LiveOptions
from cubecast.chaos.live.live_schedules import DRAWN, draw, runnable, split
from cubecast.chaos.live.messages import ApplicationLoad
from cubecast.chaos.live.placement import Loopback, Namespaces, Placement, PlacementError
from cubecast.chaos.live.plot import NoPlot, draw_run, needs_matplotlib
from cubecast.chaos.live.story import happenings, judgement, shares
from cubecast.chaos.live.verdict import LiveVerdict
from cubecast.chaos.schedule import Schedule, ScheduleError, read_schedule
from cubecast.cli.output import console, progress_console, refuse, summarise
from cubecast.cli.running import stop_signals
from cubecast.net.settings.presets import PRESETS
from cubecast.processes.signals import unwinding

DEFAULT_NODES = 8
DEFAULT_SECONDS = 60.0
RATE_OF_ALL = 160.0
ANSWERS_OF_ALL = 0.5
"""The mean number of answers to a message, unless a schedule says so."""
MOST_ROWS = 40
MOST_LINES = 200


def chaos(
    nodes: Annotated[
        int | None, typer.Option("-n", "--nodes", help="How many processes.", min=2, max=64)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long the load lasts, with all faults in it.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds from one random fault to the next.")] = 2.0,
    faults: Annotated[
        str, typer.Option(help=f"Random faults, with commas: {', '.join(DRAWN)}.")
    ] = "crash,pause",
    seed: Annotated[int, typer.Option(help="Draws the faults.")] = 0,
    partition: Annotated[
        str | None, typer.Option(help="No random faults: cut into sides of these sizes, as in 4,4.")
    ] = None,
    lasting: Annotated[
        float, typer.Option("--for", help="How many seconds --partition lasts.")
    ] = 20.0,
    schedule: Annotated[
        Path | None, typer.Option(help="No random faults: those of this file (docs/chaos.md).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help=f"Questions a second of each process; default: {RATE_OF_ALL:g} of all."),
    ] = None,
    topics: Annotated[
        int, typer.Option(help="How many topics everyone has, unless a schedule says.", min=1)
    ] = 1,
    preset: Annotated[str, typer.Option(help=f"{', '.join(PRESETS)}.")] = "local",
    settle: Annotated[
        float, typer.Option(help="Seconds in which everyone must be at rest after the load.")
    ] = 60.0,
    netns: Annotated[
        bool, typer.Option("--netns", help="Each process in a network namespace; needs root.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the traces and the schedule in this directory.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the run into this .png file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Hurt a cluster of real processes on this machine, under load, and check what they did.

    Every process subscribes, asks, and answers what others ask. Meanwhile processes are killed and
    started again, stopped and continued, cut off. At the end the traces of all of them are judged
    by the checkers, and the cost of each fault is told. Exit code 1 if anything was wrong.

    Examples:

    \b
      cubecast chaos -n 16 --seconds 600 --every 2 --seed 7 --plot run.png
          a random SIGKILL or SIGSTOP every 2 s, with restarts
      cubecast chaos --partition 4,4 --for 20
          8 nodes, in two halves for 20 s
      cubecast chaos --schedule examples/chaos.toml --trace run/
          as the file says; run/ can be looked at, and repeated, later
    """
    try:
        plan = _plan(schedule, partition, lasting, nodes, seconds, every, seed, faults)
        plan = _with_topics(plan, topics)
        rate = RATE_OF_ALL / plan.nodes if rate is None else rate
        answers = plan.answers or ANSWERS_OF_ALL / max(1, plan.nodes - 1)
        load = ApplicationLoad(rate, answers, plan.links.get("loss", 0.0))
        _check(rate, settle, preset, plot, trace)
        places: Placement = Namespaces(plan.nodes) if netns else Loopback()
        ends = [number for number in stop_signals() if number != signal.SIGINT]
        with ExitStack() as stack, unwinding(ends):
            directory = trace or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = LiveOptions(directory, load, seed, preset, settle)
            say = (lambda line: None) if as_json else _progress
            verdict = chaos_run(plan, options, say, places)
            if plot is not None:
                draw_run(verdict, plot)
    except (ScheduleError, ChaosFailed, PlacementError, NoPlot) as error:
        refuse("chaos", error)
    if as_json:
        _print_json(verdict)
    else:
        _print_story(verdict)
        if plot is not None:
            console.print(f"plot: {plot}", highlight=False)
    if not verdict.ok:
        raise typer.Exit(1)


def _plan(
    path: Path | None,
    partition: str | None,
    lasting: float,
    nodes: int | None,
    seconds: float | None,
    every: float,
    seed: int,
    faults: str,
) -> Schedule:
    if path is not None and partition is not None:
        raise ScheduleError("--schedule and --partition exclude each other")
    if path is not None:
        found = read_schedule(path)
        if nodes is not None:
            found = msgspec.structs.replace(found, nodes=nodes)
        return _longer(runnable(found), seconds)
    if partition is not None:
        try:
            sizes = tuple(int(size) for size in partition.split(","))
        except ValueError:
            raise ScheduleError(f"--partition takes sizes as in 4,4, not {partition!r}") from None
        if nodes is not None and nodes != sum(sizes):
            raise ScheduleError(f"{nodes} nodes cannot be cut into {partition}")
        return _longer(split(sizes, lasting), seconds)
    acts = tuple(act.strip() for act in faults.split(",") if act.strip())
    return draw(nodes or DEFAULT_NODES, seconds or DEFAULT_SECONDS, every, seed, acts)


def _longer(plan: Schedule, seconds: float | None) -> Schedule:
    if seconds is None:
        return plan
    return runnable(msgspec.structs.replace(plan, length=seconds / plan.seconds(1)))


def _with_topics(plan: Schedule, count: int) -> Schedule:
    if plan.topics or count == 1:
        return plan
    everyone = tuple(range(plan.nodes))
    return msgspec.structs.replace(plan, topics={f"t{one}": everyone for one in range(count)})


def _check(rate: float, settle: float, preset: str, plot: Path | None, trace: Path | None) -> None:
    """Refuse, before a long run, what would fail after it."""
    if not 0 < rate <= 1000:
        raise ScheduleError(f"--rate must be above 0 and at most 1000, not {rate:g}")
    if not settle > 0:
        raise ScheduleError(f"--settle must be above 0, not {settle:g}")
    if preset not in PRESETS:
        raise ScheduleError(f"--preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    if plot is not None:
        if plot.suffix != ".png" or not plot.parent.is_dir():
            raise ScheduleError(f"--plot takes a .png in a directory that exists, not {plot}")
        needs_matplotlib()
    if trace is not None and trace.exists() and (not trace.is_dir() or any(trace.iterdir())):
        raise ScheduleError(f"--trace takes a directory that is new or empty, not {trace}")


def _progress(line: str) -> None:
    progress_console.print(line, highlight=False, markup=False)


def _print_json(verdict: LiveVerdict) -> None:
    run = verdict.run
    params = {
        "nodes": run.schedule.nodes,
        "seconds": run.schedule.seconds(run.schedule.length),
        "about": run.schedule.about,
    }
    said = {
        "scenario": "chaos",
        "protocol": "cubecast",
        "params": params,
        "metrics": summarise([verdict.metrics]),
        "properties": verdict.report.counts,
        "problems": run.problems,
        "events": verdict.events(),
    }
    typer.echo(json.dumps(said))


def _print_story(verdict: LiveVerdict) -> None:
    plan = verdict.run.schedule
    seconds = plan.seconds(plan.length)
    typer.echo(f"{plan.nodes} nodes, {seconds:g} s of load: {plan.about or 'a schedule'}")
    typer.echo("\nWhat was done, and what the nodes told")
    lines = list(happenings(verdict.run))
    for line in lines[:MOST_LINES]:
        typer.echo(line)
    if len(lines) > MOST_LINES:
        typer.echo(f"            ... and {len(lines) - MOST_LINES} lines more: --trace keeps them")
    typer.echo("")
    console.print(_costs(verdict))
    typer.echo("\nWhat was checked")
    for line in judgement(verdict):
        typer.echo(line)


def _costs(verdict: LiveVerdict) -> Table:
    """A table of each action; if there are very many, of their kinds only."""
    costs = verdict.curve.costs
    table = Table(title="What each fault cost", title_justify="left")
    for name in ("at", "action", "dip to", "back at 80 %", "heard by all"):
        table.add_column(name, justify="left" if name == "action" else "right")
    if len(costs) <= MOST_ROWS:
        for cost in costs:
            table.add_row(
                f"{cost.at:.1f} s",
                str(cost.action),
                _percent(cost.dip),
                _seconds(cost.recovered_s),
                _seconds(cost.heard_by_all_s),
            )
    else:
        for kind, number, dips, recovered, heard in shares(costs):
            table.add_row(
                "all",
                f"{number} x {kind} (median, worst)",
                " ".join((_percent(_median(dips)), _percent(min(dips, default=None)))),
                " ".join((_seconds(_median(recovered)), _seconds(max(recovered, default=None)))),
                " ".join((_seconds(_median(heard)), _seconds(max(heard, default=None)))),
            )
    return table


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
