"""``cubecast bench``: cubecast measured on this machine, and others beside it in the same run.

A command is a scenario and the names of its options; every option is declared once, in `OPTIONS`.
Options that take a list give one row per value.
"""

from __future__ import annotations

import inspect
import time
from itertools import product
from typing import Annotated, Any, NamedTuple, get_args

import typer

from cubecast.bench.errors import BenchError
from cubecast.bench.harness import BenchPlan, Metrics, measure
from cubecast.bench.peers import PEERS, SYSTEMS, missing
from cubecast.bench.workloads import Mode
from cubecast.cli.bench_report import BenchCell, params_of, print_cells, print_tables
from cubecast.cli.output import refuse
from cubecast.processes.child import ChildError
from cubecast.processes.signals import unwinding

MODES: tuple[Mode, ...] = get_args(Mode)
LARGEST = {"processes": 64, "size": 1 << 20}
BETWEEN_RUNS_S = 3.0
"""A guess at the time of a run besides publishing, until the first one has ended."""

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure cubecast on this machine, and others beside it.",
)


class Option(NamedTuple):
    """One option, for every command that has it."""

    kind: type
    default: Any
    declaration: Any


OPTIONS = {
    "questions": Option(int, 1000, typer.Option(help="Questions asked.", min=1, max=10**7)),
    "mode": Option(
        str,
        "quiet",
        typer.Option(
            help="quiet: nothing else happens; busy: the last watcher computes between messages; "
            "loaded: watchers publish, too; delayed: the link by which the last watcher gets "
            "questions is late; several, separated by commas; all."
        ),
    ),
    "delay_ms": Option(
        float, 5.0, typer.Option(help="How late, in mode delayed.", min=0.1, max=1000)
    ),
    "processes": Option(str, "8", typer.Option(help="How many processes take part; several: 3,8.")),
    "seconds": Option(float, 5.0, typer.Option(help="How long to publish.", min=0.1, max=3600)),
    "size": Option(str, "100", typer.Option(help="Bytes per message; several: 100,1024.")),
    "rate": Option(
        int, 1000, typer.Option(help="Messages or questions per second.", min=1, max=10**6)
    ),
    "repeat": Option(int, 1, typer.Option(help="How many runs of each system.", min=1, max=1000)),
    "peers": Option(
        str,
        "",
        typer.Option(help=f"Measure these as well, separated by commas: {', '.join(PEERS)}."),
    ),
    "as_json": Option(bool, False, typer.Option("--json", help="Print JSON instead of a table.")),
}
EVERYWHERE = ("processes", "size", "repeat", "peers", "as_json")


def _command(scenario: str, text: str, *options: str) -> None:
    """Add the command of a scenario; Typer learns its options from the signature."""

    def run(**given: Any) -> None:
        _bench(scenario, **given)

    names = [name for name in OPTIONS if name in (*options, *EVERYWHERE)]
    annotations = {name: Annotated[OPTIONS[name].kind, OPTIONS[name].declaration] for name in names}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=OPTIONS[name].default,
                annotation=annotations[name],
            )
            for name in names
        ]
    )
    run.__annotations__ = annotations
    bench.command(scenario, help=text)(run)


_command(
    "fanout",
    """One process publishes as fast as it can, all others subscribe.

    Every process is a Python of its own; every subscriber checks every number.

    \b
      cubecast bench fanout --peers zmq,zenoh,nats --seconds 60 --repeat 5 --size 100,1024
    """,
    "seconds",
)
_command(
    "all-to-all",
    """Every process publishes to one topic as fast as it can, and subscribes to it.

    Messages that come back to their own publisher are not counted.
    """,
    "seconds",
)
_command(
    "latency",
    "One process publishes at a steady rate; how long until each subscriber has the message.",
    "seconds",
    "rate",
)
_command(
    "causal",
    """One process asks, another answers at once, the others watch.

    An inversion is an answer that a watcher saw before its question.

    \b
      cubecast bench causal --mode all --processes 3,8 --peers zmq,zenoh,nats
    """,
    "questions",
    "mode",
    "delay_ms",
    "rate",
)


# -- what was asked for ---------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    """The names in a list, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _numbers(command: str, option: str, text: str) -> list[int]:
    names = _names(text)
    if not names or not all(name.isascii() and name.isdigit() for name in names):
        refuse(command, f"--{option} takes numbers separated by commas, not {text!r}")
    numbers = [int(name) for name in names]
    if max(numbers) > LARGEST[option]:
        refuse(command, f"--{option} is at most {LARGEST[option]}, not {max(numbers)}")
    return numbers


def _modes(command: str, text: str) -> list[str]:
    modes: list[str] = list(MODES) if text == "all" else _names(text)
    for mode in modes:
        if mode not in MODES:
            refuse(command, f"no mode {mode!r}; there are {', '.join(MODES)}, and all")
    return modes or refuse(command, "--mode names no mode")


def _systems(command: str, peers: str) -> list[str]:
    """cubecast and the peers asked for, each once."""
    wanted = _names(peers)
    for name in wanted:
        if name not in PEERS:
            refuse(command, f"no peer {name!r}; there are {', '.join(PEERS)}")
        module = missing(name)
        if module is not None:
            refuse(command, f"{name} needs {module}: pip install 'cubecast[bench]'")
    return ["cubecast", *wanted]


def _plans(
    scenario: str, *, processes: str, size: str, mode: str = "quiet", **params: Any
) -> list[BenchPlan]:
    """One plan per combination of the values in lists."""
    command = f"bench {scenario}"
    choices = product(
        _modes(command, mode),
        _numbers(command, "processes", processes),
        _numbers(command, "size", size),
    )
    try:
        return [
            BenchPlan(scenario, mode=one, processes=count, size=octets, **params)  # type: ignore[arg-type]
            for one, count, octets in choices
        ]
    except ValueError as error:
        refuse(command, error)


# -- doing it -------------------------------------------------------------------------------------


def _bench(scenario: str, *, repeat: int, peers: str, as_json: bool, **params: Any) -> None:
    """Measure every system with every plan, and print the results."""
    plans = _plans(scenario, **params)
    systems = _systems(f"bench {scenario}", peers)
    with unwinding():
        runs = _measure_all(plans, systems, repeat)
    cells = [BenchCell(system, plan, runs[system, plan]) for plan in plans for system in systems]
    if as_json:
        print_cells(cells)
    else:
        print_tables(cells)


def _measure_all(
    plans: list[BenchPlan], systems: list[str], repeat: int
) -> dict[tuple[str, BenchPlan], list[Metrics]]:
    """Measure in turn within each repetition, every second one backwards: equal noise for all."""
    runs: dict[tuple[str, BenchPlan], list[Metrics]] = {
        (system, plan): [] for plan in plans for system in systems
    }
    todo = [
        (plan, system)
        for number in range(repeat)
        for plan in plans
        for system in (systems if number % 2 == 0 else reversed(systems))
    ]
    progress = _Progress(todo)
    for plan, system in todo:
        progress.begin(plan, system)
        try:
            runs[system, plan].append(measure(system, plan))
        except (BenchError, ChildError, OSError) as error:
            typer.echo(f"cubecast bench {plan.scenario}: {system}: {error}", err=True)
            raise typer.Exit(1) from None
    return runs


class _Progress:
    """A line per run, with an estimate of the time left."""

    def __init__(self, todo: list[tuple[BenchPlan, str]]) -> None:
        self._ahead = [plan.duration + BETWEEN_RUNS_S for plan, _ in todo]
        self._planned = sum(self._ahead)
        self._begun = 0
        self._started = time.monotonic()

    def begin(self, plan: BenchPlan, system: str) -> None:
        done = sum(self._ahead[: self._begun])
        took = time.monotonic() - self._started
        left = (self._planned - done) * (took / done if done else 1.0)
        self._begun += 1
        said = ", ".join(f"{name} {value}" for name, value in params_of(plan).items())
        typer.echo(
            f"{plan.scenario} {self._begun} of {len(self._ahead)}: {SYSTEMS[system]}, {said}; "
            f"about {left:.0f} s left",
            err=True,
        )
