"""Spark's ``master``: where Spark runs, and whether that answers."""

from __future__ import annotations

import re
import socket

from cubecast.spark.errors import LabError, SparkFailedError

MOST_ATTEMPTS = 8
"""How often Spark starts a task that was lost with its process."""
ANSWERS_WITHIN_S = 5.0
"""How long the port of a standalone master may take to accept a connection."""
DEFAULT_PORT = 7077

_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")
_IN_THIS_PROCESS = re.compile(r"local(\[|$)")
_ON_THIS_MACHINE = re.compile(r"local(\[|$)|local-cluster\[")


def in_this_process(master: str) -> bool:
    """Whether tasks run in the driver's Java process."""
    return _IN_THIS_PROCESS.match(master) is not None


def on_this_machine(master: str) -> bool:
    """Whether all of Spark's processes are children of ours."""
    return _ON_THIS_MACHINE.match(master) is not None


def with_retries(master: str) -> str:
    """The master with retries of lost tasks, which Spark makes on local cores only if told so."""
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match.group(1) or 1},{MOST_ATTEMPTS}]"


def refuse_connect(master: str) -> None:
    """Refuse a server of Spark Connect, which has no `SparkContext`."""
    if master.startswith("sc://"):
        raise LabError(
            f"{master} is a server of Spark Connect, on which the lab does not run: "
            "name the cluster itself, as in spark://host:7077"
        )


def refuse_unreachable(master: str) -> None:
    """Refuse a standalone master that accepts no connection; Spark itself tries for a minute."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host:
            host, port = place, str(DEFAULT_PORT)
        if not port.isdigit():
            raise LabError(f"{master}: {place} is not host:port")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
        except (OSError, OverflowError) as error:
            reasons.append(getattr(error, "strerror", None) or str(error))
        else:
            return
    raise SparkFailedError(
        f"Spark does not start on {master}: no master answers there ({'; '.join(reasons)})"
    )
