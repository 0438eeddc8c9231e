"""``cubecast bench``: cubecast measured on this machine, and others beside it in the same run."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import typer
from rich.table import Table

from cubecast.bench.harness import BenchError, Metrics, Plan, measure
from cubecast.bench.peers import PEERS, SYSTEMS, missing
from cubecast.bench.workloads import Mode
from cubecast.cli.output import console, print_json, progress_console, refuse, summarise

MODES: tuple[Mode, ...] = get_args(Mode)
COMPARED = (
    "deliveries_per_second",
    "cpu_seconds_per_million",
    "latency_p50_us",
    "latency_p99_us",
)
"""What is also given as a ratio to cubecast."""
COLUMNS = {
    "deliveries_per_second": "deliveries/s",
    "cpu_seconds_per_million": "CPU-s per million",
    "latency_p50_us": "p50 µs",
    "latency_p99_us": "p99 µs",
    "lost": "lost",
    "inversions": "inversions",
    "inversions_percent": "% of answers",
    "rss_start_mb": "MB at start",
    "rss_end_mb": "MB at end",
}
SHOWN = {
    "latency": ("latency_p50_us", "latency_p99_us", "cpu_seconds_per_million", "lost"),
    "causal": ("inversions", "inversions_percent", "lost"),
}
SHOWN_ELSE = (
    "deliveries_per_second",
    "cpu_seconds_per_million",
    "lost",
    "inversions",
    "rss_start_mb",
    "rss_end_mb",
)

Processes = Annotated[int, typer.Option(help="How many processes take part.", min=2, max=64)]
Seconds = Annotated[float, typer.Option(help="How long to publish.", min=0.1, max=3600)]
Size = Annotated[int, typer.Option(help="Bytes per message.", min=20, max=1 << 20)]
Rate = Annotated[int, typer.Option(help="Messages per second.", min=1, max=10**6)]
Repeat = Annotated[int, typer.Option(help="How many runs of each system.", min=1, max=1000)]
Peers = Annotated[
    str, typer.Option(help=f"Measure these as well, separated by commas: {', '.join(PEERS)}.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure cubecast on this machine, and others beside it.",
)


@bench.command("fanout")
def fanout(
    processes: Processes = 8,
    seconds: Seconds = 5.0,
    size: Size = 100,
    repeat: Repeat = 1,
    peers: Peers = "",
    as_json: AsJson = False,
) -> None:
    """One process publishes as fast as it can, all others subscribe.

    Every process is a Python of its own; every subscriber checks every number.

    \b
      cubecast bench fanout --peers zmq,zenoh,nats
    """
    _bench(_plan("fanout", processes=processes, seconds=seconds, size=size), repeat, peers, as_json)


@bench.command("all-to-all")
def all_to_all(
    processes: Processes = 8,
    seconds: Seconds = 5.0,
    size: Size = 100,
    repeat: Repeat = 1,
    peers: Peers = "",
    as_json: AsJson = False,
) -> None:
    """Every process publishes to one topic as fast as it can, and subscribes to it.

    Messages that come back to their own publisher are not counted.
    """
    plan = _plan("all-to-all", processes=processes, seconds=seconds, size=size)
    _bench(plan, repeat, peers, as_json)


@bench.command("latency")
def latency(
    processes: Processes = 8,
    seconds: Seconds = 5.0,
    size: Size = 100,
    rate: Rate = 1000,
    repeat: Repeat = 1,
    peers: Peers = "",
    as_json: AsJson = False,
) -> None:
    """One process publishes at a steady rate; how long until each subscriber has the message."""
    plan = _plan("latency", processes=processes, seconds=seconds, size=size, rate=rate)
    _bench(plan, repeat, peers, as_json)


@bench.command("causal")
def causal(
    questions: Annotated[int, typer.Option(help="Questions asked.", min=1, max=10**7)] = 1000,
    mode: Annotated[
        str,
        typer.Option(
            help="quiet: nothing else happens; busy: the last watcher computes between "
            "messages; loaded: watchers publish, too."
        ),
    ] = "quiet",
    processes: Processes = 8,
    size: Size = 100,
    rate: Annotated[int, typer.Option(help="Questions per second.", min=1, max=10**6)] = 1000,
    repeat: Repeat = 1,
    peers: Peers = "",
    as_json: AsJson = False,
) -> None:
    """One process asks, another answers at once, the others watch.

    An inversion is an answer that a watcher saw before its question.
    """
    if mode not in MODES:
        refuse("bench causal", f"no mode {mode!r}; there are {', '.join(MODES)}")
    plan = _plan(
        "causal", processes=processes, size=size, rate=rate, questions=questions, mode=mode
    )
    _bench(plan, repeat, peers, as_json)


# -- doing it -------------------------------------------------------------------------------------


def _plan(scenario: str, **params: Any) -> Plan:
    try:
        return Plan(scenario, **params)  # type: ignore[arg-type]
    except ValueError as error:
        refuse(f"bench {scenario}", error)


def _systems(plan: Plan, peers: str) -> list[str]:
    """cubecast and the peers asked for, each once."""
    wanted = [name.strip() for name in peers.split(",") if name.strip()]
    for name in wanted:
        if name not in PEERS:
            refuse(f"bench {plan.scenario}", f"no peer {name!r}; there are {', '.join(PEERS)}")
        module = missing(name)
        if module is not None:
            reason = f"{name} needs {module}: pip install 'cubecast[bench]'"
            refuse(f"bench {plan.scenario}", reason)
    return list(dict.fromkeys(["cubecast", *wanted]))


def _bench(plan: Plan, repeat: int, peers: str, as_json: bool) -> None:
    """Measure every system, in turn within each repetition so that all meet the same noise."""
    systems = _systems(plan, peers)
    runs: dict[str, list[Metrics]] = {system: [] for system in systems}
    with progress_console.status("") as status:
        for number in range(repeat):
            for system in systems:
                status.update(f"{plan.scenario}: {SYSTEMS[system]} ({number + 1} of {repeat})")
                try:
                    runs[system].append(measure(system, plan))
                except (BenchError, OSError) as error:
                    typer.echo(f"cubecast bench {plan.scenario}: {system}: {error}", err=True)
                    raise typer.Exit(1) from None
    summaries = {system: summarise(metrics) for system, metrics in runs.items()}
    if as_json:
        _print_json(plan, summaries)
    else:
        console.print(_table(plan, summaries))


def _params(plan: Plan) -> dict[str, Any]:
    """What was asked for, without what this scenario does not look at."""
    params: dict[str, Any] = {"processes": plan.processes, "size": plan.size}
    if plan.scenario == "causal":
        return {**params, "questions": plan.questions, "mode": plan.mode, "rate": plan.rate}
    params["seconds"] = plan.seconds
    return {**params, "rate": plan.rate} if plan.scenario == "latency" else params


def _ratios(summaries: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """{peer: {metric: its mean divided by cubecast's}}."""
    ours = summaries["cubecast"]
    return {
        system: {
            name: theirs[name]["mean"] / ours[name]["mean"]
            for name in COMPARED
            if name in theirs and ours.get(name, {}).get("mean")
        }
        for system, theirs in summaries.items()
        if system != "cubecast"
    }


def _print_json(plan: Plan, summaries: dict[str, dict[str, dict[str, float]]]) -> None:
    params = _params(plan)
    if len(summaries) == 1:
        print_json(plan.scenario, "cubecast", params, summaries["cubecast"])
        return
    runs = [
        {"scenario": plan.scenario, "protocol": system, "params": params, "metrics": metrics}
        for system, metrics in summaries.items()
    ]
    typer.echo(json.dumps({"runs": runs, "ratios": _ratios(summaries)}))


def _table(plan: Plan, summaries: dict[str, dict[str, dict[str, float]]]) -> Table:
    said = ", ".join(f"{name} {value}" for name, value in _params(plan).items())
    table = Table(title=f"{plan.scenario}: {said}", title_justify="left")
    table.add_column("system")
    names = [
        name
        for name in SHOWN.get(plan.scenario, SHOWN_ELSE)
        if all(name in metrics for metrics in summaries.values())
    ]
    for name in names:
        table.add_column(COLUMNS[name], justify="right")
    ratios = _ratios(summaries)
    for system, metrics in summaries.items():
        cells = [_cell(metrics[name]["mean"], ratios.get(system, {}).get(name)) for name in names]
        table.add_row(SYSTEMS[system], *cells)
    return table


def _cell(value: float, ratio: float | None) -> str:
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
    return text if ratio is None else f"{text} ({ratio:.2f}x)"
