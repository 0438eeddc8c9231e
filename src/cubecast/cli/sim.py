"""``cubecast sim``: run a scenario in the simulator and judge it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cubecast.cli.output import (
    console,
    print_json,
    progress_console,
    refuse,
    summarise,
    unit_of,
)
from cubecast.sim.params import NETWORKS, ParamError, Params
from cubecast.sim.protocols import PROTOCOLS, ProtocolChoiceError, protocol_named
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.sim.workloads.replay import ReplayError, read_conversations
from cubecast.sim.workloads.scenario_file import ScriptError, read_script
from cubecast.trace import TraceError, write

DEFAULT_SEEDS = 5
MAX_SEEDS = 10**6
TRACE_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """One run to do."""

    scenario: Scenario
    params: Params
    seed: int


def sim(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="A built-in scenario, a scenario file (.toml), or replay. "
            "Leave it out to list what there is.",
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(help=f"What to run: {', '.join(PROTOCOLS)}, or one of yours: module:object."),
    ] = "cubecast",
    nodes: Annotated[int | None, typer.Option(help="How many nodes there are.")] = None,
    subscribers: Annotated[
        float | None, typer.Option(help="Share of the nodes that subscribe, above 0 up to 1.")
    ] = None,
    publishers: Annotated[
        float | None,
        typer.Option(help="multi-publisher, turnover: share of the subscribers that publish."),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option(
            help="Messages per publisher; question-answer, churn, topics, speakers: in all."
        ),
    ] = None,
    span: Annotated[
        int | None, typer.Option(help="Units of time over which publications are spread.")
    ] = None,
    wait: Annotated[
        int | None, typer.Option(help="discussion: messages to see before answering.")
    ] = None,
    changes: Annotated[int | None, typer.Option(help="churn, exchange: nodes replaced.")] = None,
    topics: Annotated[int | None, typer.Option(help="topics: how many there are.")] = None,
    skew: Annotated[
        float | None, typer.Option(help="topics: exponent of Zipf's law; 0 for equal topics.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(help="topics (of each node), speakers, sessions: time between messages."),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(help="topics: how much --every varies, 0 (not at all) to 1 (up to twice)."),
    ] = None,
    session: Annotated[
        int | None, typer.Option(help="sessions: median time that a node stays subscribed.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="stream: messages handed over together.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help=f"How messages travel: {', '.join(NETWORKS)} (see docs/simulator.md)."),
    ] = None,
    hop: Annotated[
        int | None,
        typer.Option(help="Propagation time in the queue network, median in lognormal."),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="lognormal: how long the tail is (0.5 is much).")
    ] = None,
    latencies: Annotated[
        str | None, typer.Option(help="regions: from each to each, like '1 40; 40 1'.")
    ] = None,
    low: Annotated[
        int | None, typer.Option(help="Shortest hop in the service and uniform networks.")
    ] = None,
    high: Annotated[
        int | None, typer.Option(help="Longest hop in the service and uniform networks.")
    ] = None,
    queue_acks: Annotated[
        bool, typer.Option("--queue-acks", help="ACKs wait in the sending queue too.")
    ] = False,
    loss: Annotated[float | None, typer.Option(help="Probability that a message is lost.")] = None,
    duplicate: Annotated[
        float | None, typer.Option(help="Probability that a message arrives twice.")
    ] = None,
    reorder: Annotated[
        float | None, typer.Option(help="Probability that a message is overtaken by later ones.")
    ] = None,
    spike: Annotated[
        float | None, typer.Option(help="Probability of a delay of many round trips.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="cubecast: messages a publisher may have on their way.")
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(help="srpt-b: how many nodes are brokers (one of sixteen).")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="replay: the conversations (CSV, may be gzipped).")
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="replay: units of time per second of the trace.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=f"How many runs: {DEFAULT_SEEDS} if not said, 1 of a scenario file.",
            min=1,
            max=MAX_SEEDS,
        ),
    ] = None,
    first_seed: Annotated[
        int,
        typer.Option(
            help="Seed of the first run; with --seeds 1 it replays one run.", min=0, max=2**53
        ),
    ] = 0,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Judge each run by the trace checkers.")
    ] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a checker found a violation.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the trace here: .jsonl, .jsonl.gz or .parquet. One run only."),
    ] = None,
    trace_messages: Annotated[
        bool, typer.Option("--trace-messages", help="Record every send and receive as well.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Run a scenario in the simulator and judge it.

    The same seed gives the same run, whatever the protocol, so protocols can
    be compared on equal terms. Time is in units (u.t.); a hop of the papers'
    network takes 100. The scenario chooses parameters that are not given.

    Examples:

    \b
      cubecast sim
          lists scenarios and protocols
      cubecast sim question-answer --protocol best-effort
          how often answers are seen before their question
      cubecast sim single-publisher --nodes 4096 --subscribers 0.25 --protocol srpt --json
          a point of Figure 4 of the VCube-PS paper
      cubecast sim storm --seeds 100 --strict
          a hundred random runs with faults, joins and leaves
      cubecast sim discussion --seeds 1 --trace talk.jsonl
          one run, its trace for your own tools
      cubecast sim replay --file talk.csv --network uniform
          a recorded conversation with its reply links
    """
    if scenario is None:
        _list()
        return
    given: dict[str, Any] = {
        "nodes": nodes, "subscribers": subscribers, "publishers": publishers,
        "messages": messages, "span": span, "wait": wait, "changes": changes,
        "topics": topics, "skew": skew, "every": every, "spread": spread, "session": session,
        "batch": batch, "sigma": sigma, "latencies": latencies,
        "network": network, "hop": hop, "low": low, "high": high,
        "queue_acks": queue_acks or None, "loss": loss, "duplicate": duplicate,
        "reorder": reorder, "spike": spike, "window": window, "scale": scale,
        "brokers": brokers,
    }  # fmt: skip
    changes_made = {name: value for name, value in given.items() if value is not None}
    if strict and not check:
        refuse("sim", "--strict goes by what the checkers find: leave out --no-check")
    if trace_messages and trace is None:
        refuse("sim", "--trace-messages goes with --trace")
    try:
        expect, jobs = _jobs(scenario, protocol, changes_made, file, seeds, first_seed)
        if trace is not None:
            _check_trace(trace, jobs)
        outcomes = list(
            _run_all(jobs, protocol, check, trace is not None, trace_messages, quiet=as_json)
        )
        if trace is not None:
            assert outcomes[0].trace is not None
            write(trace, outcomes[0].header, outcomes[0].trace)
    except (ParamError, ProtocolChoiceError, ScriptError, ReplayError, TraceError) as error:
        refuse("sim", error)
    except OSError as error:
        refuse("sim", f"cannot write {trace}: {error.strerror or error}")
    except MemoryError:
        refuse("sim", "not enough memory for a run of this size")
    metrics = summarise([outcome.metrics for outcome in outcomes])
    if as_json:
        print_json(scenario, protocol, _shown_params(jobs, outcomes), metrics)
    else:
        again = _command(scenario, protocol, changes_made, file)
        _show(scenario, protocol, again, jobs, outcomes, metrics, expect)
    if strict and any(not outcome.ok for outcome in outcomes):
        raise typer.Exit(1)


def _jobs(
    name: str,
    protocol: str,
    changes: dict[str, Any],
    file: Path | None,
    seeds: int | None,
    first_seed: int,
) -> tuple[list[str] | None, list[SimulationJob]]:
    """The runs asked for, and the violations that a scenario file expects."""
    protocol_named(protocol)
    expect = None
    if name == "replay":
        if file is None:
            raise ReplayError("replay needs --file, a CSV of conversations")
        scenarios = [conversation.scenario() for conversation in read_conversations(file)]
    elif name in SCENARIOS:
        scenarios = [SCENARIOS[name]]
    elif name.endswith(".toml"):
        script = read_script(Path(name))
        scenarios = [script.scenario]
        expect = script.expect.get(protocol)
        seeds = seeds or 1
    else:
        raise ScriptError(
            f"unknown scenario {name!r}; there are: {', '.join([*SCENARIOS, 'replay'])}, "
            "or name a .toml file"
        )
    if file is not None and name != "replay":
        raise ReplayError("--file goes with replay")
    _refuse_ignored(name, scenarios[0], changes)
    jobs = [
        SimulationJob(scenario, Params().with_(scenario.defaults).with_(changes), seed)
        for scenario in scenarios
        for seed in range(first_seed, first_seed + (seeds or DEFAULT_SEEDS))
    ]
    return expect, jobs


def _refuse_ignored(name: str, scenario: Scenario, changes: dict[str, Any]) -> None:
    """Refuse an option that would change nothing."""
    ignored = scenario.ignores()
    for option in changes:
        if option in ignored:
            takes = ", ".join(_option(other) for other in scenario.takes) or "none of its kind"
            raise ParamError(f"{_option(option)} means nothing to {name}, which takes {takes}")


def _option(param: str) -> str:
    return "--" + param.replace("_", "-")


def _command(name: str, protocol: str, changes: dict[str, Any], file: Path | None) -> str:
    """The command that repeats the runs, without the seeds."""
    words = ["cubecast sim", name, "--protocol", protocol]
    for param, value in changes.items():
        words += [_option(param)] if value is True else [_option(param), str(value)]
    return " ".join(words if file is None else [*words, "--file", str(file)])


def _check_trace(path: Path, jobs: list[SimulationJob]) -> None:
    """Check before a long run whether its trace can be written."""
    if len({job.scenario.name for job in jobs}) > 1:
        raise ReplayError(f"--trace holds one run, but the file has {len(jobs)} to replay")
    if len(jobs) > 1:
        raise ParamError(f"--trace holds one run, not {len(jobs)}: add --seeds 1")
    if not path.name.endswith(TRACE_SUFFIXES):
        raise TraceError(path, None, f"the name of a trace ends in {', '.join(TRACE_SUFFIXES)}")
    if path.is_dir():
        raise TraceError(path, None, "Is a directory")
    if not path.parent.is_dir():
        raise TraceError(path, None, f"there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise TraceError(path, None, "Permission denied")


def _run_all(
    jobs: list[SimulationJob],
    protocol: str,
    check: bool,
    keep_trace: bool,
    trace_messages: bool,
    quiet: bool,
) -> Iterator[Outcome]:
    """Run every job, with a progress bar on a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    hidden = quiet or len(jobs) == 1 or not progress_console.is_terminal
    with Progress(*columns, console=progress_console, transient=True, disable=hidden) as progress:
        task = progress.add_task(protocol, total=len(jobs))
        for job in jobs:
            yield run(
                job.scenario,
                protocol,
                job.params,
                job.seed,
                checked=check,
                keep_trace=keep_trace,
                trace_messages=trace_messages,
            )
            progress.advance(task)


def _shown_params(jobs: list[SimulationJob], outcomes: list[Outcome]) -> dict[str, Any]:
    """The parameters all runs share, and the seeds."""
    shared = outcomes[0].params.as_json()
    for outcome in outcomes[1:]:
        params = outcome.params.as_json()
        shared = {name: value for name, value in shared.items() if params.get(name) == value}
    seeds = [job.seed for job in jobs]
    return {**shared, "first_seed": min(seeds), "seeds": len(set(seeds)), "runs": len(jobs)}


def _show(
    name: str,
    protocol: str,
    again: str,
    jobs: list[SimulationJob],
    outcomes: list[Outcome],
    metrics: dict[str, dict[str, float]],
    expect: list[str] | None,
) -> None:
    """Print the verdict, then the metrics."""
    about = jobs[0].scenario.about
    console.print(
        f"[bold]{escape(name)}[/bold] with [bold]{protocol}[/bold]: {escape(about)}",
        highlight=False,
    )
    broken = [outcome for outcome in outcomes if not outcome.ok]
    if broken:
        console.print(f"[red]{len(broken)} of {len(outcomes)} runs broke a property[/red]")
    elif "violations" in metrics:
        console.print("[green]every run passed every checker[/green]")
    _show_expectation(expect, outcomes)
    table = Table(show_edge=False)
    table.add_column("metric", overflow="fold")
    for heading in ("mean", "sd"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    for metric, value in metrics.items():
        mean, spread = f"{value['mean']:,.2f}", f"{value['sd']:,.2f}"
        table.add_row(metric, mean, spread, unit_of(metric), f"{value['n']:.0f}")
    console.print(table)
    for outcome in broken[:3]:
        report = outcome.report
        found = [str(violation) for violation in report.violations[:2]] if report else []
        run_name = f"{outcome.header.scenario}, seed {outcome.seed}"
        what = "; ".join(found) or "it did not come to rest or did not take every publication"
        console.print(f"{run_name}: {what}", markup=False, highlight=False)
        console.print(
            f"  again: {again} --seeds 1 --first-seed {outcome.seed}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _show_expectation(expect: list[str] | None, outcomes: list[Outcome]) -> None:
    if expect is None or outcomes[0].report is None:
        return
    found = sorted(name for name, count in outcomes[0].report.counts.items() if count)
    if found == sorted(expect):
        console.print(f"as the file expects: {', '.join(found) or 'nothing'} broken")
    else:
        console.print(
            f"[red]the file expects {', '.join(expect) or 'nothing'} to be broken, "
            f"but it was {', '.join(found) or 'nothing'}[/red]"
        )


def _list() -> None:
    table = Table("scenario", "what happens", show_edge=False)
    for scenario in SCENARIOS.values():
        table.add_row(scenario.name, scenario.about)
    table.add_row("replay", "recorded conversations with reply links (--file)")
    table.add_row("FILE.toml", "a run told step by step (see docs/simulator.md)")
    table.add_row("chaos", "crashes, pauses, partitions (see cubecast sim chaos --help)")
    console.print(table)
    console.print()
    protocols = Table("protocol", "what it is", show_edge=False)
    for name, about in PROTOCOLS.items():
        protocols.add_row(name, about)
    console.print(protocols)
