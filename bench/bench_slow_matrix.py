"""Does a publisher keep the pace of a slow reader, whatever the messages, the pace and the queue?

A cell is one publisher, as fast as it may, and one reader that takes a fixed time for each message:
two nodes, or two light clients of two nodes, in a process of their own over TCP, with the default
window of 4 MiB.  Reported are the pace of both once the queues are full, what was lost or raised,
the most that was unread at a time against its bound, and the longest stall of the publisher: how
many messages were read between two of its publications, and how long that took.

A stall is judged by the messages: the reader is in the same process, so a machine that has other
work holds up both, and what the publisher alone waits for is what the reader got done meanwhile.

    python bench/bench_slow_matrix.py --quick          # 3 s a cell
    python bench/bench_slow_matrix.py --seconds 120    # the whole matrix, some 72 cells
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from bisect import bisect_left, bisect_right
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import cubecast
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import BATCH_BYTES, DELIVER_WINDOW, PUBLISH_WINDOW
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, frame_overhead

TOPIC = "slow"
SIZES = (100, 1024, 8 * 1024, 64 * 1024)
PACES_MS = (1, 10, 100)
QUEUES = (16 * 1024, 256 * 1024, 4 * 1024 * 1024)
BUSY_MS = 1
"""Cells with this pace cost CPU: few of them run side by side."""
STALL_MESSAGES = 12
"""A stall is a failure if more messages than this are read meanwhile."""
PACE = 0.9
"""The publisher is too slow if it publishes less than this part of what is read, once the queues
are full ..."""
PACE_READS = 100
"""... and so many messages have been read since."""
FULL_MESSAGES = 8
"""The queues are full when this many messages or fewer are missing to the most that was unread."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One publisher and one reader."""

    size: int
    each_ms: int
    kind: str
    queue_bytes: int
    seconds: float

    @property
    def bound(self) -> int:
        """What may be accepted and unread: the windows and queues on the way."""
        one = self.size + MESSAGE_OVERHEAD + frame_overhead(0)
        bound = self.queue_bytes + NodeConfig().protocol.window + 2 * one
        if self.kind == "client":
            bound += min(self.queue_bytes, DELIVER_WINDOW) + PUBLISH_WINDOW
            bound += 3 * max(BATCH_BYTES, one)
        return bound


# -- one cell -------------------------------------------------------------------------------------


class Run:
    """What happens in one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.published: list[float] = []
        self.read: list[float] = []
        self.behind: list[int] = []
        self.out_of_order = 0
        self.errors: list[str] = []

    async def publish(self, writer: Any) -> None:
        filler = bytes(self.cell.size - 8)
        try:
            while True:
                number = len(self.published)
                await writer.publish(TOPIC, number.to_bytes(8) + filler)
                self.published.append(time.monotonic())
                self.behind.append(number + 1 - len(self.read))
        except cubecast.CubecastError as error:
            self.errors.append(repr(error))

    async def take(self, messages: Any) -> None:
        try:
            async for message in messages:
                self.out_of_order += int.from_bytes(message.payload[:8]) != len(self.read)
                await asyncio.sleep(self.cell.each_ms / 1000)
                self.read.append(time.monotonic())
        except cubecast.CubecastError as error:
            self.errors.append(repr(error))

    def figures(self, began: float, ended: float) -> dict[str, Any]:
        """The cell's figures; those of paces and stalls from the moment the queues are full."""
        most = max(self.behind, default=0)
        enough = (at for at, behind in zip(self.published, self.behind, strict=True)
                  if behind >= most - FULL_MESSAGES)  # fmt: skip
        full = next(enough, began)
        published = [moment for moment in self.published if moment > full]
        read = [moment for moment in self.read if moment > full]
        stalls = list(pairwise([full, *published, ended]))
        return {
            **asdict(self.cell),
            "bound": self.cell.bound,
            "full_s": full - began,
            "published": len(published),
            "read": len(read),
            "read_in_all": len(self.read),
            "published_per_s": len(published) / max(1e-9, ended - full),
            "read_per_s": len(read) / max(1e-9, ended - full),
            "out_of_order": self.out_of_order,
            "errors": self.errors,
            "most_unread": most * (self.cell.size + MESSAGE_OVERHEAD),
            "stall_s": max(later - earlier for earlier, later in stalls),
            "stall_messages": max(
                bisect_left(read, later) - bisect_right(read, earlier) for earlier, later in stalls
            ),
        }


async def run_cell(cell: Cell) -> None:
    """Run one cell in this process and print its figures."""
    run = Run(cell)
    async with AsyncExitStack() as stack:
        config = NodeConfig(leave_timeout_s=0.2)  # what is unread is left so on purpose
        first = await stack.enter_async_context(cubecast.start(config=config))
        second = await stack.enter_async_context(cubecast.join(first.address, config=config))
        writer: Any = first
        reader: Any = second
        if cell.kind == "client":
            writer = await stack.enter_async_context(cubecast.connect(first.address))
            reader = await stack.enter_async_context(cubecast.connect(second.address))
        messages = await stack.enter_async_context(
            reader.subscribe(TOPIC, queue_bytes=cell.queue_bytes)
        )
        began = time.monotonic()
        tasks = [asyncio.create_task(run.publish(writer)), asyncio.create_task(run.take(messages))]
        await asyncio.wait(tasks, timeout=cell.seconds)
        figures = run.figures(began, time.monotonic())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(json.dumps(figures), flush=True)


def problems(figures: dict[str, Any]) -> list[str]:
    """What must not be."""
    found = [f"raised {error}" for error in figures["errors"]]
    if figures["out_of_order"]:
        found.append(f"{figures['out_of_order']} messages lost or out of order")
    if figures["most_unread"] > figures["bound"]:
        found.append("more unread than the bound")
    if figures["stall_messages"] > STALL_MESSAGES:
        found.append("a stall")
    if figures["read"] >= PACE_READS and figures["published"] < PACE * figures["read"]:
        found.append("the publisher is slower than the reader")
    return found


# -- the matrix -----------------------------------------------------------------------------------


async def measure(cells: list[Cell], at_a_time: int) -> list[dict[str, Any]]:
    """Run cells side by side, each in a process of its own."""
    turns = asyncio.Semaphore(at_a_time)
    script = [__file__, "--cell"]

    async def one(cell: Cell) -> dict[str, Any]:
        async with turns:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *script,
                json.dumps(asdict(cell)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert process.stdout is not None
            line = await process.stdout.readline()
            await process.wait()
            figures: dict[str, Any] = json.loads(line)
            print_row(figures)
            return figures

    return list(await asyncio.gather(*map(one, cells)))


def child(cell: str) -> None:
    """A cell, as its own process runs it."""
    with suppress(cubecast.NotSent, cubecast.Unknown):
        asyncio.run(run_cell(Cell(**json.loads(cell))))


HEAD = (
    "payload   ms  at         queue  full (s)  published/s  read/s  most unread /      bound"
    "  stall: messages, s"
)


def print_row(f: dict[str, Any]) -> None:
    row = (
        f"{f['size']:7,} {f['each_ms']:4}  {f['kind']:6} {f['queue_bytes']:9,} "
        f"{f['full_s']:9.1f} {f['published_per_s']:12.1f} {f['read_per_s']:7.1f} "
        f"{f['most_unread']:12,} /{f['bound']:11,} {f['stall_messages']:16}, {f['stall_s']:.3f}"
    )
    print(row, *problems(f), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="length of a cell")
    parser.add_argument("--quick", action="store_true", help="3 s a cell")
    parser.add_argument("--at-a-time", type=int, default=12, help="cells side by side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        child(options.cell)
        return
    seconds = 3.0 if options.quick else options.seconds
    cells = [
        Cell(size, each_ms, kind, queue_bytes, seconds)
        for each_ms in PACES_MS
        for size in SIZES
        for kind in ("node", "client")
        for queue_bytes in QUEUES
    ]
    print(HEAD)
    busy = [cell for cell in cells if cell.each_ms <= BUSY_MS]
    calm = [cell for cell in cells if cell.each_ms > BUSY_MS]
    found = asyncio.run(measure(busy, max(1, options.at_a_time // 6)))
    found += asyncio.run(measure(calm, options.at_a_time))
    if options.json:
        print(json.dumps(found))
    failed = sum(bool(problems(figures)) for figures in found)
    print(f"{len(found)} cells, {failed} with problems")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
