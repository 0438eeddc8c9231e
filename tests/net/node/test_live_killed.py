"""Processes that are killed or stopped while they talk over TCP, and the traces of those left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cubecast.chaos.live.tracelog import mend
from cubecast.trace import Record, check, merge, read_jsonl

GENEROUS_S = 60.0

WORKER = """
import asyncio, json, sys
from pathlib import Path
import cubecast
from cubecast.chaos.live.tracelog import RecordedWrites, TraceLog
from cubecast.net.node.shell import Shell
from cubecast.trace import Header

async def read(node, counts):
    async with node.subscribe("chat") as messages:
        counts["subscribed"] = True
        async for message in messages:
            counts["read"] += 1

async def talk(node, counts):
    while not counts["quiet"]:
        await asyncio.sleep(0.02)
        try:
            await node.publish("chat", b"x" * 100, timeout=5)
        except cubecast.NotSent:
            pass

async def main(listen, seed, trace):
    log = TraceLog(Path(trace), Header(time_unit="us"))
    config = cubecast.NodeConfig(listen=listen)
    shell = Shell(config, trace=log, writes=RecordedWrites(log))
    await shell.start(seed or None)
    node = shell.node
    counts = {"read": 0, "quiet": False, "subscribed": False}
    tasks = [asyncio.create_task(work(node, counts)) for work in (read, talk)]
    loop = asyncio.get_running_loop()
    print(json.dumps({"slot": node.slot, "address": node.address}), flush=True)
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        counts["quiet"] = counts["quiet"] or line == "quiet"
        log.save()
        state = {"slot": node.slot, "members": list(node.members), "epoch": node.epoch,
                 "rest": shell.at_rest(), **counts}
        print(json.dumps(state), flush=True)
        if line == "end":
            log.close()

asyncio.run(main(*sys.argv[1:]))
"""


class Worker:
    """One node in a process of its own that reads and publishes until it is told to be quiet."""

    def __init__(self, trace: Path, seed: str = "", listen: str = "127.0.0.1:0") -> None:
        self.trace = trace
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, listen, seed, str(trace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self._line()
        self.slot: int = said["slot"]
        self.address: str = said["address"]

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, what: str = "state") -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._line()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        mend(self.trace)


@contextmanager
def cluster(count: int, folder: Path) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for number in range(count):
            seed = workers[0].address if workers else ""
            workers.append(Worker(folder / f"{number}.jsonl", seed))
        until(lambda: all(worker.ask()["read"] > 20 for worker in workers))
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.communicate()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def agree(workers: list[Worker]) -> bool:
    """Whether all know exactly each other."""
    states = [worker.ask() for worker in workers]
    slots = sorted(state["slot"] for state in states)
    return all(sorted(state["members"]) == slots for state in states)


def judge(alive: list[Worker], dead: list[Worker]) -> Any:
    """Let them come to rest, and hold what all did against what is promised."""
    for worker in alive:
        worker.ask("quiet")
    until(lambda: agree(alive) and all(worker.ask()["rest"] for worker in alive))
    for worker in alive:
        worker.ask("end")
    traces: list[list[Record]] = []
    for worker in (*alive, *dead):
        records = list(read_jsonl(worker.trace)[1])
        if worker in dead:
            records.append(Record("crash", records[-1].time, worker.slot))
        traces.append(records)
    report = check(merge(traces))
    assert report.ok, report
    return report


@pytest.mark.parametrize("victims", [(3,), (0,), (1, 2)], ids=str)
def test_the_others_go_on_without_processes_that_are_killed(
    victims: tuple[int, ...], tmp_path: Path
) -> None:
    with cluster(4, tmp_path) as workers:
        dead = [workers[number] for number in victims]
        alive = [worker for worker in workers if worker not in dead]
        for worker in dead:
            worker.kill()
        until(lambda: agree(alive))
        before = [worker.ask()["read"] for worker in alive]
        until(lambda: all(w.ask()["read"] > b + 20 for w, b in zip(alive, before, strict=True)))
        judge(alive, dead)


def test_a_process_that_was_stopped_returns_with_exact_gaps(tmp_path: Path) -> None:
    with cluster(4, tmp_path) as workers:
        paused, others = workers[2], [w for w in workers if w is not workers[2]]
        paused.signal(signal.SIGSTOP)
        until(lambda: agree(others))
        paused.signal(signal.SIGCONT)
        until(lambda: agree(workers))
        before = paused.ask()["read"]
        until(lambda: paused.ask()["read"] > before + 20)
        assert judge(workers, []).gaps > 0
