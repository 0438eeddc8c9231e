"""``cubecast sim chaos``: crashes, pauses and partitions in the simulator, drawn from seeds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cubecast.chaos.schedule import Schedule, ScheduleError, read_schedule, schedule_text
from cubecast.chaos.simulated.campaign import (
    CampaignCounts,
    CampaignSettings,
    CountsError,
    campaign,
    schedule_of,
)
from cubecast.chaos.simulated.driver import Population, SimulatedVerdict, population, run_schedule
from cubecast.chaos.simulated.shrink import shrink as shrink_schedule
from cubecast.chaos.simulated.story import happenings, judgement
from cubecast.cli.output import (
    console,
    counted,
    print_json,
    progress_console,
    refuse,
    unit_of,
)
from cubecast.sim.params import ParamError, Params
from cubecast.sim.protocols import MORTAL, ProtocolChoiceError, mortality
from cubecast.trace import TraceError, write

DEFAULT_SEEDS = 20
MAX_SEED = 2**53


def sim_chaos(
    seeds: Annotated[
        int | None,
        typer.Option(help=f"How many schedules to run, {DEFAULT_SEEDS} if not said.", min=1),
    ] = None,
    first: Annotated[int, typer.Option(help="Seed of the first one.", min=0, max=MAX_SEED)] = 0,
    nodes: Annotated[
        int | None,
        typer.Option(help="Nodes of each run; drawn from the seed if not said.", min=1, max=1024),
    ] = None,
    protocol: Annotated[str, typer.Option(help=f"What to run: {', '.join(MORTAL)}.")] = "cubecast",
    schedule: Annotated[
        Path | None, typer.Option(help="Run the schedule of this file instead (TOML).")
    ] = None,
    replay: Annotated[
        int | None,
        typer.Option(help="Run this one seed and tell its story.", min=0, max=MAX_SEED),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Cut a failing schedule down to what it needs.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the schedule here (cut down, with --shrink).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace of the one run here (.jsonl, .jsonl.gz).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to run in; one per core if not said.", min=1)
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="Add the counts up in this file, and skip what it has already."),
    ] = None,
    wire: Annotated[
        bool,
        typer.Option(
            "--wire/--no-wire",
            help="Let every message cross the format of live nodes; slower by half.",
        ),
    ] = True,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Draw only crashes, pauses and faults of links, as always for other protocols.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
) -> None:
    """Let nodes crash, pause and lose each other in the simulator, and judge it.

    A seed draws a schedule: crashes, restarts, pauses, partitions, one-way
    and slow links, bursts, joins and leaves, over links that lose, duplicate
    and reorder; nodes that leave gracefully and slots that change hands,
    patterns, topics that come and go, lossy subscribers. Order is checked
    all the time. When the faults end, all nodes that are up must agree and
    be done within a stated bound. Exits with 1 if anything was broken.

    Examples:

    \b
      cubecast sim chaos --seeds 200
          two hundred schedules, added up
      cubecast sim chaos --replay 17
          one of them, told step by step
      cubecast sim chaos --replay 17 --shrink --save small.toml
          if it fails: the smallest schedule that does
      cubecast sim chaos --schedule small.toml
          a schedule from a file
      cubecast sim chaos --first 5000 --seeds 5000 --counts chaos.json
          a part of a long run; the file adds up the parts
    """
    one = schedule is not None or replay is not None
    _refuse_contradictions(one, seeds, schedule, replay, shrink, save, trace, counts)
    settings = CampaignSettings(protocol, nodes, wire, plain or protocol != "cubecast")
    try:
        people = population(protocol)
        mortality(protocol, Params())  # refuse now what cannot run
        if one:
            chosen = read_schedule(schedule) if schedule else schedule_of(replay or 0, settings)
            good = _run_one(chosen, protocol, people, wire, shrink, save, trace, as_json)
        else:
            span = range(first, first + (seeds or DEFAULT_SEEDS))
            good = _run_many(span, settings, jobs, counts, as_json)
    except (ScheduleError, ParamError, ProtocolChoiceError, CountsError, TraceError) as error:
        refuse("sim chaos", error)
    except OSError as error:
        refuse("sim chaos", f"cannot write {error.filename}: {error.strerror or error}")
    if not good:
        raise typer.Exit(1)


def _refuse_contradictions(
    one: bool,
    seeds: int | None,
    schedule: Path | None,
    replay: int | None,
    shrink: bool,
    save: Path | None,
    trace: Path | None,
    counts: Path | None,
) -> None:
    if schedule is not None and replay is not None:
        refuse("sim chaos", "--schedule and --replay both say what to run: choose one")
    if one and (seeds is not None or counts is not None):
        refuse("sim chaos", "--seeds and --counts go with many runs, not with one")
    if not one and (shrink or save is not None or trace is not None):
        refuse("sim chaos", "--shrink, --save and --trace go with --replay or --schedule")


# -- one run ---------------------------------------------------------------------------------------


def _run_one(
    schedule: Schedule,
    protocol: str,
    people: Population,
    wire: bool,
    shrink: bool,
    save: Path | None,
    trace: Path | None,
    as_json: bool,
) -> bool:
    verdict = run_schedule(schedule, people, keep_trace=True, wire=wire)
    runs = 1
    if shrink and not verdict.ok:
        verdict, runs = _cut_down(verdict, people, wire)
    if save is not None:
        save.write_text(schedule_text(verdict.schedule), encoding="utf-8")
    if trace is not None:
        assert verdict.trace is not None
        write(trace, verdict.header(protocol), verdict.trace)
    if as_json:
        _print_one(verdict, protocol, runs)
        return verdict.ok
    say = console.print
    for line in [*happenings(verdict), "", *judgement(verdict)]:
        say(line, markup=False, highlight=False, soft_wrap=True)
    _say_marks(dict(verdict.marks))
    if runs > 1:
        left = counted(len(verdict.schedule.entries), "entry").replace("entrys", "entries")
        say(f"cut down to {left} in {runs} runs", highlight=False)
    if save is not None:
        say(f"again: cubecast sim chaos --schedule {save}", markup=False, highlight=False)
    return verdict.ok


def _cut_down(
    verdict: SimulatedVerdict, people: Population, wire: bool
) -> tuple[SimulatedVerdict, int]:
    hidden = not progress_console.is_terminal
    columns = (TextColumn("{task.description}"),)
    with Progress(*columns, console=progress_console, transient=True, disable=hidden) as progress:
        task = progress.add_task("cutting down")

        def told(runs: int, entries: int) -> None:
            progress.update(task, description=f"cutting down: {runs} runs, {entries} entries left")

        smaller = shrink_schedule(verdict, people, wire=wire, progress=told)
    return run_schedule(smaller.schedule, people, keep_trace=True, wire=wire), smaller.runs


def _print_one(verdict: SimulatedVerdict, protocol: str, runs: int) -> None:
    metrics = {name: {"mean": value, "sd": 0.0, "n": 1} for name, value in verdict.metrics.items()}
    params: dict[str, Any] = {
        **verdict.schedule.settings().as_json(),
        "seed": verdict.schedule.seed,
        "bound": verdict.bound,
        "runs": runs,
        "marks": dict(verdict.marks),
        "failures": verdict.failures,
    }
    print_json("chaos", protocol, params, metrics)


# -- many runs -------------------------------------------------------------------------------------


def _run_many(
    seeds: range, settings: CampaignSettings, jobs: int | None, path: Path | None, as_json: bool
) -> bool:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    hidden = as_json or not progress_console.is_terminal
    with Progress(*columns, console=progress_console, transient=True, disable=hidden) as progress:
        task = progress.add_task("chaos", total=len(seeds))

        def told(block: CampaignCounts, left: int) -> None:
            progress.update(task, completed=len(seeds) - left)
            for seed, properties in block.failed:
                progress_console.print(
                    f"FAILED ({', '.join(properties)}): {_again(settings, seed)}",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )

        total = campaign(
            seeds, settings, jobs=jobs or os.cpu_count() or 1, path=path, progress=told
        )
    if as_json:
        params = {
            "first": seeds.start,
            "seeds": len(seeds),
            "runs": total.runs,
            "nodes": settings.nodes,
            "wire": settings.wire,
            "plain": settings.plain,
            "failed": total.failures,
            "failed_seeds": [seed for seed, _ in total.failed],
            "marks": dict(total.marks),
        }
        print_json("chaos", settings.protocol, params, total.summary())
    else:
        _show(total, settings)
    return total.failures == 0


def _again(settings: CampaignSettings, seed: int) -> str:
    size = "" if settings.nodes is None else f" --nodes {settings.nodes}"
    plain = " --plain" if settings.plain else ""
    return f"cubecast sim chaos --protocol {settings.protocol}{size}{plain} --replay {seed}"


def _show(total: CampaignCounts, settings: CampaignSettings) -> None:
    named = f"[bold]chaos[/bold] with [bold]{settings.protocol}[/bold]"
    console.print(f"{named}: {total.runs} schedules")
    if total.failures:
        console.print(f"[red]{total.failures} of {total.runs} schedules broke a property[/red]")
    else:
        console.print(
            "[green]every schedule kept every property and converged within its bound[/green]"
        )
    table = Table(show_edge=False)
    table.add_column("metric", overflow="fold")
    for heading in ("in all", "mean", "largest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for name, value in total.summary().items():
        whole = "" if name in ("recovery_time", "nodes") else f"{value['sum']:,.0f}"
        mean, largest = f"{value['mean']:,.2f}", f"{value['max']:,.0f}"
        table.add_row(name, whole, mean, largest, unit_of(name))
    console.print(table)
    _say_marks(dict(total.marks))
    for seed, properties in total.failed[:5]:
        console.print(
            f"{', '.join(properties)}: {_again(settings, seed)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _say_marks(marks: dict[str, int]) -> None:
    if marks:
        told = ", ".join(f"{name} {count}" for name, count in sorted(marks.items()))
        console.print(f"branches taken: {told}", markup=False, highlight=False, soft_wrap=True)
