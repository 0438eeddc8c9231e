"""A conversation between real nodes, each a process of its own, over links made slow on purpose."""

from __future__ import annotations

import queue
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

from cubecast.cli.demo_worker import (
    DemoFinished,
    DemoJoin,
    DemoLeave,
    DemoReady,
    DemoTalk,
    Left,
    Order,
    Report,
)
from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.processes.child import started
from cubecast.processes.command import CommandChild
from cubecast.topology import Tree, cluster, dimension_for, mask_of
from cubecast.trace import Record, merge

QUICK = Rule(delay_s=0.002, jitter_s=0.004)
SLOW = Rule(delay_s=0.05, jitter_s=0.03)
SLOW_SHARE = 0.3
"""The share of links that are slow, in one direction each."""
DEADLINE_S = 16.0
"""The demo ends by then, complete or not."""
GRACE_S = 1.0

R = TypeVar("R", DemoReady, DemoFinished, Left)


class DemoFailed(Exception):
    """The conversation was not completed."""


class DemoConversation(NamedTuple):
    """The record of a conversation."""

    trace: list[Record]
    members: list[int]
    slow: list[tuple[int, int]]


class DemoProcess(CommandChild):
    """One member's process; its reports wait in a queue, so that waiting has an end."""

    def __init__(self, number: int) -> None:
        self._reports: queue.Queue[bytes] = queue.Queue()
        super().__init__(
            number,
            [sys.executable, "-m", "cubecast.cli.demo_worker"],
            heard=self._reports.put,
            silent=lambda: self._reports.put(b""),
        )

    def order(self, what: Order) -> None:
        """Send an order."""
        if not self.say(msgspec.json.encode(what)):
            raise DemoFailed(self._last_words())

    def report(self, kind: type[R], deadline: float) -> R:
        """The next report, which must be of this kind."""
        try:
            line = self._reports.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise DemoFailed(f"not at an end after {DEADLINE_S:g} s") from None
        if not line:
            raise DemoFailed(self._last_words())
        said = msgspec.json.decode(line, type=Report)
        assert isinstance(said, kind)
        return said

    def _last_words(self) -> str:
        return f"a member ended by itself: {self.last_line() or 'without a word'}"


@contextmanager
def crew(count: int) -> Iterator[list[DemoProcess]]:
    """`count` processes; those that do not end by themselves within `GRACE_S` are ended."""
    with started([partial(DemoProcess, number) for number in range(count)]) as workers:
        try:
            yield workers
        except BaseException:
            for worker in workers:
                worker.signal(signal.SIGTERM)
            raise
        finally:
            deadline = time.monotonic() + GRACE_S
            for worker in workers:
                worker.wait(max(0.0, deadline - time.monotonic()))


def converse(count: int, rounds: int, seed: int = 0) -> DemoConversation:
    """Hold the conversation; raise `DemoFailed` with the reason if it is not completed."""
    deadline = time.monotonic() + DEADLINE_S
    with crew(count) as workers:
        workers[0].order(DemoJoin(None))
        ready = [workers[0].report(DemoReady, deadline)]
        for worker in workers[1:]:
            worker.order(DemoJoin(ready[0].address))
        ready += [worker.report(DemoReady, deadline) for worker in workers[1:]]
        members = sorted(one.slot for one in ready)
        slow = _slow_links(members, Random(seed))
        for worker, one in zip(workers, ready, strict=True):
            worker.order(DemoTalk(_faults_of(one.slot, members, slow), members, rounds))
        for worker in workers:
            worker.report(DemoFinished, deadline)
        for worker in workers:
            worker.order(DemoLeave())
        traces = [worker.report(Left, deadline).trace for worker in workers]
    return DemoConversation(list(merge(traces)), members, slow)


def _slow_links(members: list[int], chance: Random) -> list[tuple[int, int]]:
    links = [(a, b) for a in members for b in members if a != b]
    return sorted(chance.sample(links, round(len(links) * SLOW_SHARE)))


def _faults_of(slot: int, members: list[int], slow: list[tuple[int, int]]) -> str:
    rules = {peer: SLOW if (slot, peer) in slow else QUICK for peer in members if peer != slot}
    return str(LinkFaults(rules))


def as_it_arrived(trace: list[Record]) -> list[Record]:
    """The same run as best effort would have shown it: each message when it first arrived.

    A member's own messages are shown when it publishes them, under both.
    """
    shown: set[tuple[int, object]] = set()
    arrived: list[Record] = []
    for record in trace:
        if record.kind in ("deliver", "receive"):
            own = record.kind == "deliver" and record.source == record.node
            if (own or record.kind == "receive") and (record.node, record.id) not in shown:
                shown.add((record.node, record.id))
                arrived.append(
                    Record(
                        "deliver",
                        record.time,
                        record.node,
                        record.topic,
                        record.id,
                        record.source,
                        record.seq,
                    )
                )
        else:
            arrived.append(record)
    return arrived


def tree_taken(trace: list[Record], members: list[int]) -> Tree:
    """The tree that the first publication took, from the node that each first got it from."""
    first = next(record for record in trace if record.kind == "publish")
    parent: dict[int, int] = {}
    for record in trace:
        if record.kind == "receive" and record.id == first.id:
            parent.setdefault(record.node, record.peer)
    children: dict[int, tuple[int, ...]] = {}
    layer = [first.node]
    while layer:
        for node in layer:
            below = [child for child, above in parent.items() if above == node]
            children[node] = tuple(sorted(below, key=partial(cluster, node)))
        layer = [child for node in layer for child in children[node]]
    ordered = {child: parent[child] for child in children if child != first.node}
    dimension = dimension_for(max(members) + 1)
    return Tree(first.node, mask_of(members), dimension, children, ordered)
