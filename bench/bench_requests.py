"""How long does a request take until it is answered, and how many are answered in a second?

One process answers requests with what they say in capitals, another asks, over TCP on one machine:

* ``nodes``: both are nodes of a cluster of two;
* ``clients``: both are light clients of one node, which is a third process;
* ``nats``: both are clients of one NATS server, with ``nats-py``'s own request and reply.

Each asks one request after the other for ``--seconds`` (time of each: p50, p99), then ``--at-once``
at a time for as long (rate).  ``cpu_us`` is the processor time of one request in all processes
together, servers included, which others on the machine disturb least.  Systems take turns; the
median of ``--rounds`` is printed, with the least and the most.

    python bench/bench_requests.py --seconds 2 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import cubecast
from cubecast.bench.event_servers import free_ports, nats_program
from cubecast.bench.usage import cpu_seconds_of
from cubecast.processes.child import started
from cubecast.processes.command import ServerChild
from cubecast.processes.function import FunctionChild, be_child, closing_children

SYSTEMS = ("nodes", "clients", "nats")
TOPIC = "service.upper"
PATIENCE_S = 30.0
Ask = Callable[[bytes], Awaitable[Any]]


# -- the processes ---------------------------------------------------------------------------------


def serve(system: str, address: str, pipe: Connection) -> None:
    """The process that answers, or for `hub` the node of the light clients."""
    be_child(_serve(system, address, pipe), pipe)


async def _serve(system: str, address: str, pipe: Connection) -> None:
    async with AsyncExitStack() as stack:
        if system == "nats":
            client: Any = await import_module("nats").connect(address, connect_timeout=PATIENCE_S)
            stack.push_async_callback(client.close)

            async def answer(message: Any) -> None:
                await message.respond(message.data.upper())

            await client.subscribe(TOPIC, cb=answer)
            await client.flush()
        elif system == "hub":
            node = await stack.enter_async_context(cubecast.start("127.0.0.1:0"))
            address = node.address
        elif system == "clients":
            light = await stack.enter_async_context(cubecast.connect(address))
            await stack.enter_async_context(light.on(TOPIC, lambda one: one.payload.upper()))
        else:
            node = await stack.enter_async_context(cubecast.start("127.0.0.1:0"))
            address = node.address
            await stack.enter_async_context(node.on(TOPIC, lambda one: one.payload.upper()))
        pipe.send(("ready", address))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


def ask(
    system: str, address: str, pids: list[int], options: argparse.Namespace, pipe: Connection
) -> None:
    """The process that asks; `pids` are the others."""
    be_child(_ask(system, address, [*pids, os.getpid()], options, pipe), pipe)


async def _ask(
    system: str, address: str, pids: list[int], options: argparse.Namespace, pipe: Connection
) -> None:
    async with AsyncExitStack() as stack:
        request: Ask
        if system == "nats":
            client: Any = await import_module("nats").connect(address)
            stack.push_async_callback(client.close)

            async def request(payload: bytes) -> bytes:
                answer: bytes = (await client.request(TOPIC, payload, timeout=PATIENCE_S)).data
                return answer
        else:
            entering = cubecast.join if system == "nodes" else cubecast.connect
            host: Any = await stack.enter_async_context(entering(address))

            async def request(payload: bytes) -> bytes:
                answer = await host.request(TOPIC, payload, timeout=PATIENCE_S)
                return bytes(answer.payload)

        pipe.send(("measured", await measure(request, pids, options)))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


async def measure(request: Ask, pids: list[int], options: argparse.Namespace) -> dict[str, float]:
    """Times of single requests, and the rate of many at once."""
    payload = b"x" * options.size
    for _ in range(100):
        assert await request(payload) == payload.upper()
    used = [cpu_seconds_of(pids) or 0.0]
    times, until = [], time.perf_counter() + options.seconds
    while (began := time.perf_counter()) < until:
        await request(payload)
        times.append(time.perf_counter() - began)
    used.append(cpu_seconds_of(pids) or 0.0)
    answered = 0

    async def go_on() -> None:
        nonlocal answered
        while time.perf_counter() < until:
            await request(payload)
            answered += 1

    began = time.perf_counter()
    until = began + options.seconds
    await asyncio.gather(*(go_on() for _ in range(options.at_once)))
    taken = time.perf_counter() - began
    used.append(cpu_seconds_of(pids) or 0.0)
    times.sort()
    return {
        "p50_us": 1e6 * statistics.median(times),
        "p99_us": 1e6 * times[len(times) * 99 // 100],
        "one_by_one_per_s": len(times) / sum(times),
        "cpu_us": 1e6 * (used[1] - used[0]) / len(times),
        "at_once_per_s": answered / taken,
        "at_once_cpu_us": 1e6 * (used[2] - used[1]) / answered,
    }


# -- the parent ------------------------------------------------------------------------------------


@contextmanager
def nats_server() -> Iterator[tuple[str, int]]:
    """One NATS server: its address and process."""
    (port,) = free_ports(1)
    command = [nats_program(), "-a", "127.0.0.1", "-p", str(port)]
    with started([partial(ServerChild, 0, command)]) as (server,):
        yield f"nats://127.0.0.1:{port}", server.pid


@contextmanager
def serving(system: str) -> Iterator[tuple[str, list[int]]]:
    """Start the answering processes: the address to ask at, and the ids of all of them."""
    with ExitStack() as stack:
        address, pids = "", []
        if system == "nats":
            address, pid = stack.enter_context(nats_server())
            pids.append(pid)
        elif system == "clients":
            (hub,) = stack.enter_context(
                closing_children([lambda: FunctionChild(0, serve, "hub", "")])
            )
            address = hub.receive("ready")
            pids.append(hub.pid)
        (server,) = stack.enter_context(
            closing_children([lambda: FunctionChild(1, serve, system, address)])
        )
        yield server.receive("ready"), [*pids, server.pid]


def one_run(system: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure one system once."""
    with (
        serving(system) as (address, pids),
        closing_children([lambda: FunctionChild(2, ask, system, address, pids, options)]) as (
            asker,
        ),
    ):
        measured: dict[str, float] = asker.receive("measured")
        return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each of the two parts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--size", type=int, default=100, help="bytes of a request and its answer")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    systems = options.systems.split(",")
    if not set(systems) <= set(SYSTEMS) or options.rounds < 1 or options.seconds <= 0:
        parser.error(f"systems are of {', '.join(SYSTEMS)}; rounds and seconds are positive")
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    for number in range(options.rounds):
        for system in systems if number % 2 == 0 else reversed(systems):
            runs[system].append(one_run(system, options))
            print(f"round {number + 1}, {system}: {runs[system][-1]}", file=sys.stderr, flush=True)
    if options.json:
        json.dump(runs, sys.stdout)
        return
    for system, found in runs.items():
        print(f"{system:8}", *(_shown(name, [one[name] for one in found]) for name in found[0]))


def _shown(name: str, values: list[float]) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f" {name} {middle:,.0f} ({least:,.0f}-{most:,.0f})"


if __name__ == "__main__":
    main()
