"""One process of a benchmark: its part of the work, on an event loop or without one.

The processes coordinate over their pipes to the parent:

1. The parent says "open" to one after the other, in the order of their numbers, so that a cluster
   grows the same way every time.
2. They publish hellos until each hears every publisher, and say "ready"; the parent says "go".
3. They publish, and say how much; the parent tells all processes the totals.
4. They read until they have everything, or nothing comes any more, and report.
5. The parent says "close" to one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

from cubecast.bench.peers import AsyncClient, BlockingClient, open_client
from cubecast.bench.usage import cpu_seconds
from cubecast.bench.workloads import BenchWorkload, Task, Totals, make_workload
from cubecast.net.loop import run_loop

HELLO_PAUSE_S = 0.02
LOOK_PAUSE_S = 0.005
STALL_S = 5.0
"""Nothing received for this long: what is missing is lost."""
BETWEEN_READS = 32
"""Messages published between two looks for incoming ones, without an event loop."""


def main(task: Task, stop: Event, pipe: Connection) -> None:
    """Run one process's part; the parent reads what it needs from the other end of `pipe`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    os.dup2(2, 1)  # what a peer's library prints is not among our results
    logging.basicConfig(level=logging.ERROR)
    workload = make_workload(task)
    workload.told_to_stop = stop.is_set
    try:
        client = open_client(task)
        pipe.recv()
        if isinstance(client, AsyncClient):
            run_loop(_run_async(client, workload, pipe))
        else:
            _run_blocking(client, workload, pipe)
    except (EOFError, BrokenPipeError):
        pass  # the parent has given up
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


class UsageTally:
    """What a process used from "go" to its last message."""

    def __init__(self, workload: BenchWorkload, client: AsyncClient | BlockingClient) -> None:
        self._workload = workload
        self._client = client
        self._delayed = client.delayed_bytes
        self._cpu = cpu_seconds()
        self._seen = -1
        self._progress_at = time.monotonic()

    def finished(self, totals: Totals) -> bool:
        """Whether everything is here, or nothing will come any more."""
        seen = self._workload.received()
        now = time.monotonic()
        if seen != self._seen:
            self._seen = seen
            self._progress_at = now
        return seen >= self._workload.expected(totals) or now > self._progress_at + STALL_S

    def report(self, totals: Totals) -> dict[str, Any]:
        """The result, with processor time and when the last message was here."""
        complete = self._workload.received() >= self._workload.expected(totals)
        end = time.monotonic() if complete else self._progress_at
        used = cpu_seconds() - self._cpu
        return {
            **self._workload.result(totals),
            "cpu_s": used,
            "end": [end],
            "delayed_bytes": self._client.delayed_bytes - self._delayed,
        }


# -- on an event loop -----------------------------------------------------------------------------


async def _run_async(client: AsyncClient, workload: BenchWorkload, pipe: Connection) -> None:
    await client.open(workload.publishes, workload.subscribes)
    reader = asyncio.create_task(client.read(workload.receive)) if workload.subscribes else None
    pipe.send(("open", None))
    order = asyncio.create_task(asyncio.to_thread(pipe.recv))
    await _find_everyone(client, workload, pipe, order)
    tally = UsageTally(workload, client)
    for item in workload.outgoing():
        if isinstance(item, float):
            await asyncio.sleep(max(0.0, item - time.monotonic()))
        else:
            await client.publish(item)
    pipe.send(("sent", workload.sent))
    totals = await asyncio.to_thread(pipe.recv)
    while not tally.finished(totals) and not (reader is not None and reader.done()):
        await asyncio.sleep(LOOK_PAUSE_S)
    pipe.send(("result", tally.report(totals)))
    await asyncio.to_thread(pipe.recv)
    if reader is not None:
        reader.cancel()
        (error,) = await asyncio.gather(reader, return_exceptions=True)
        if isinstance(error, Exception):
            raise error
    await client.close()


async def _find_everyone(
    client: AsyncClient, workload: BenchWorkload, pipe: Connection, order: asyncio.Task[Any]
) -> None:
    ready = False
    while not order.done():
        if workload.publishes:
            await client.publish(workload.hello())
        if workload.hears_everyone and not ready:
            ready = True
            pipe.send(("ready", None))
        await asyncio.sleep(HELLO_PAUSE_S)
    order.result()


# -- without one ----------------------------------------------------------------------------------


def _run_blocking(client: BlockingClient, workload: BenchWorkload, pipe: Connection) -> None:
    client.open(workload.publishes, workload.subscribes, workload.receive)
    pipe.send(("open", None))
    ready = False
    while not pipe.poll():
        if workload.publishes:
            client.publish(workload.hello())
        if workload.hears_everyone and not ready:
            ready = True
            pipe.send(("ready", None))
        client.poll(HELLO_PAUSE_S)
    pipe.recv()
    tally = UsageTally(workload, client)
    _publish_all(client, workload)
    pipe.send(("sent", workload.sent))
    while not pipe.poll():
        client.poll(LOOK_PAUSE_S)
    totals = pipe.recv()
    while not tally.finished(totals):
        client.poll(LOOK_PAUSE_S)
    pipe.send(("result", tally.report(totals)))
    pipe.recv()
    client.close()


def _publish_all(client: BlockingClient, workload: BenchWorkload) -> None:
    left = BETWEEN_READS
    for item in workload.outgoing():
        if isinstance(item, float):
            while (pause := item - time.monotonic()) > 0:
                client.poll(pause)
            continue
        client.publish(item)
        left -= 1
        if not left:
            left = BETWEEN_READS
            client.poll(0.0)
