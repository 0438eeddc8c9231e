"""Shared by all commands: one-line refusals, one JSON shape, one way to summarise runs."""

from __future__ import annotations

import json
import logging
import statistics
from typing import Any, NoReturn

import typer
from rich.console import Console

from cubecast.logs import Handler, Json, escaped

console = Console()
progress_console = Console(stderr=True)


def refuse(command: str, reason: object, log_format: str | None = None) -> NoReturn:
    """Print in one line what is wrong with the user's input, and exit with 2.

    It is the last line: the log, which has a thread of its own, is written out before.
    """
    _end_log()
    complain(command, reason, log_format)
    raise typer.Exit(2)


def _end_log() -> None:
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, Handler)]:
        root.removeHandler(handler)
        handler.close()


def complain(
    command: str, reason: object, log_format: str | None = None, level: int = logging.ERROR
) -> None:
    """Print one line on stderr; as a line of the log if that is JSON."""
    line = f"cubecast {command}: {' '.join(str(reason).split())}"
    if log_format == "json":
        record = logging.LogRecord("cubecast", level, __file__, 0, "%s", (line,), None)
        typer.echo(Json().format(record), err=True)
    else:
        typer.echo(escaped(line), err=True)  # the reason may be a peer's


def summarise(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """{metric: {mean, sd, n}} over runs; a metric counts the runs that have it."""
    names = dict.fromkeys(name for metrics in runs for name in metrics)
    summary: dict[str, dict[str, float]] = {}
    for name in names:
        values = [metrics[name] for metrics in runs if name in metrics]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        summary[name] = {"mean": statistics.fmean(values), "sd": spread, "n": len(values)}
    return summary


UNITS = {
    "latency": "u.t.",
    "reception": "u.t.",
    "delay": "u.t.",
    "recovery_time": "u.t.",
    "queue_max": "messages",
    "pub_messages": "messages",
    "control_messages": "messages",
    "publications": "messages",
    "deliveries": "messages",
    "false_positives": "messages",
    "answers": "messages",
    "gaps": "messages",
    "discards": "messages",
    "events_per_second": "events/s",
    "events": "events",
    "violations": "violations",
    "nodes": "nodes",
}
"""Units by the beginning of a metric's name; the first match counts.  u.t.: simulated time."""


def unit_of(metric: str) -> str:
    """The unit of a simulator's metric; plain counts have none."""
    return next((unit for start, unit in UNITS.items() if metric.startswith(start)), "")


def print_json(
    scenario: str,
    protocol: str,
    params: dict[str, Any],
    metrics: dict[str, dict[str, float]],
) -> None:
    """The one object that every command with ``--json`` prints."""
    typer.echo(
        json.dumps(
            {"scenario": scenario, "protocol": protocol, "params": params, "metrics": metrics}
        )
    )


def counted(number: int, noun: str) -> str:
    """ "1 message", "2 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(count: int) -> str:
    """Bytes: "0", "950 B", "1.5 KiB", "12 MiB"."""
    if not count:
        return "0"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"
