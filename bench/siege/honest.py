"""A long-lived node: publishes steadily and in bursts, asks and answers, checks what it gets.

Its parent asks for a `sample` now and then, tells it to be `quiet` at the end, and asks for the
`account` of what was published, received and told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from random import Random
from statistics import median
from typing import Any, NamedTuple

from cubecast.bench.usage import cpu_seconds, resident_bytes
from cubecast.errors import CubecastError, NotSent
from cubecast.net.events import Discarded, Excluded, Gap, Returned
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.reading.subscription import Subscription
from cubecast.processes.function import be_child
from siege.terms import BURST, JUDGED, LIES, PADDING, STEADY, TALK, Terms, payload_of
from siege.witness import ANSWER, QUESTION, Latencies, Witness

ROOMS = 50
"""Topics that are visited, again and again."""
LAG_S = 0.05
"""How often the loop's lag is measured: how late a timer is on a busy machine."""
LOOK_S = 1.0
"""How often descriptors and tasks are counted; a sample has the median."""
STUCK_S = 30.0
"""A visit that takes longer is given up and counted."""


class Warnings(logging.Handler):
    """Counts what a node logs, instead of writing it; keeps the last errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Count one record."""
        self.counts[record.levelname] += 1
        if record.levelno >= logging.ERROR:
            self.errors = [*self.errors[-2:], self.format(record)[-2000:]]

    @classmethod
    def installed(cls) -> Warnings:
        """In the place of whatever handles the log of this process."""
        handler = cls()
        log = logging.getLogger("cubecast")
        log.addHandler(handler)
        log.propagate = False
        log.setLevel(logging.WARNING)
        return handler


class Look(NamedTuple):
    """What this process has open at one moment."""

    descriptors: int
    sockets: int
    tasks: int


def look() -> Look:
    """Look now; needs a running loop."""
    names = os.listdir("/proc/self/fd")
    sockets = 0
    for name in names:
        with suppress(OSError):  # the one of the listing itself
            sockets += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return Look(len(names), sockets, len(asyncio.all_tasks()))


class Honest:
    """One long-lived node and what its application does."""

    def __init__(self, index: int, nodes: int, terms: Terms, node: Node) -> None:
        self._index = index
        self._nodes = nodes
        self._terms = terms
        self._node = node
        self._random = Random(f"{terms.seed}/{index}")
        self.witness = Witness(self._random)
        self._publishing = Latencies(self._random)
        self._visiting = Latencies(self._random)
        self._published: Counter[str] = Counter()
        self._withdrawn: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._refused = 0
        self._stuck = 0
        self._excluded_at: list[float] = []
        self._lag_s = 0.0
        self._looks: list[Look] = []
        self._slots = {node.slot}  # all that it had
        self._warnings = Warnings.installed()
        self._asked = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._talkers: list[asyncio.Task[None]] = []
        self._turns = {topic: asyncio.Lock() for topic in JUDGED}

    async def begin(self) -> None:
        """Subscribe to everything and read."""
        self._tasks.append(asyncio.create_task(self._watch()))
        self._tasks.append(asyncio.create_task(self._feel_the_lag()))
        self._tasks.append(asyncio.create_task(self._look_around()))
        for topic in JUDGED:
            subscription = await self._node.subscribe(topic).__aenter__()
            self._tasks.append(asyncio.create_task(self._read(topic, subscription)))
        lies = await self._node.subscribe(LIES, policy="drop-oldest").__aenter__()
        self._tasks.append(asyncio.create_task(self._overhear(lies)))

    def talk(self) -> None:
        """Publish from now on."""
        terms = self._terms
        every: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (1 / terms.steady_per_s, self._say),
            (terms.burst_every_s, self._burst),
            (terms.ask_every_s, self._ask),
            (terms.visit_every_s, self._visit),
            (1.0, self._contradict),
        ]
        self._talkers = [asyncio.create_task(self._now_and_then(*one)) for one in every]

    async def hush(self) -> None:
        """Publish nothing more."""
        for task in self._talkers:
            task.cancel()
        await asyncio.gather(*self._talkers, return_exceptions=True)

    def sample(self) -> dict[str, Any]:
        """What the parent asks for now and then; counts are since the beginning."""
        looks, self._looks = self._looks or [look()], []
        excluded, self._excluded_at = self._excluded_at, []
        lag_s, self._lag_s = self._lag_s, 0.0
        witness = self.witness
        ended = [task for task in (*self._tasks, *self._talkers) if task.done()]
        return {
            "deliveries": witness.deliveries,
            "published": sum(self._published.values()),
            "latencies": witness.latencies.take(),
            "publishing": self._publishing.take(),
            "visits": self._visiting.take(),
            "rss": resident_bytes() or 0,
            "cpu_s": cpu_seconds(),
            "lag_ms": round(1e3 * lag_s),
            **{name: int(median(getattr(one, name) for one in looks)) for name in Look._fields},
            "descriptors_most": max(one.descriptors for one in looks),
            "members": len(self._node.members),
            "slot": self._node.slot,
            "epoch": self._node.epoch,
            "disorder": witness.disorder,
            "inversions": witness.inversions,
            "missing": sum(witness.missing.values()),
            "told": sum(witness.told.values()),
            "events": dict(self._events),
            "excluded_at": excluded,
            "refused": self._refused,
            "stuck": self._stuck,
            "log": dict(self._warnings.counts),
            "errors": self._warnings.errors,
            "faults": [_why(task) for task in ended],
        }

    def account(self) -> dict[str, Any]:
        """Messages published and received, and losses reported, by topic."""
        return {
            "published": dict(self._published),
            "withdrawn": dict(self._withdrawn),
            "reached": self.witness.reached(),
            "missing": dict(self.witness.missing),
            "told": dict(self.witness.told),
            "members": self._node.members,
        }

    def end(self) -> None:
        """Read nothing more."""
        for task in self._tasks:
            task.cancel()

    # -- what it does ------------------------------------------------------------------------------

    async def _now_and_then(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(every_s * self._random.uniform(0.5, 1.5))
            try:
                await work()
            except CubecastError:  # what was not sent keeps its number and is said again
                self._refused += 1

    async def _publish(self, topic: str, body: bytes = PADDING) -> None:
        """Publish under the next number; one that was not sent does not count.

        Numbers are given in the order in which the node accepts, so tasks take turns.
        """
        async with self._turns[topic]:
            number = self._published[topic]
            await self._node.publish(topic, payload_of(self._index, number, body))
            self._published[topic] += 1

    async def _say(self) -> None:
        before = time.monotonic()
        await self._publish(STEADY)
        self._publishing.add(time.monotonic() - before)

    async def _burst(self) -> None:
        for _ in range(self._terms.burst_messages):
            await self._publish(BURST)

    async def _ask(self) -> None:
        await self._publish(TALK, b"%b%d" % (QUESTION, self._asked))
        self._asked += 1

    async def _visit(self) -> None:
        """Enter a room, say something, hear it, and leave."""
        room = f"siege/room/{self._random.randrange(ROOMS)}"
        before = time.monotonic()
        try:
            async with asyncio.timeout(STUCK_S), self._node.subscribe(room) as messages:
                await self._node.publish(room, b"hello")
                await anext(messages)
        except TimeoutError:
            self._stuck += 1
        self._visiting.add(time.monotonic() - before)

    async def _contradict(self) -> None:
        """Take part in the topic that liars spoil; whether that works is not judged."""
        with suppress(NotSent):
            await self._node.publish(LIES, b"no", timeout=0.5)

    async def _read(self, topic: str, messages: Subscription) -> None:
        async for message in messages:
            said = self.witness.delivered(topic, message.payload, time.monotonic())
            if said is None or not said.body.startswith(QUESTION):
                continue
            if (said.publisher + 1) % self._nodes == self._index:
                question = said.body[len(QUESTION) :]
                try:
                    await self._publish(TALK, b"%b%d:%b" % (ANSWER, said.publisher, question))
                except CubecastError:
                    self._refused += 1

    async def _overhear(self, messages: Subscription) -> None:
        async for _ in messages:
            pass

    async def _feel_the_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LAG_S)
            self._lag_s = max(self._lag_s, time.monotonic() - before - LAG_S)

    async def _look_around(self) -> None:
        """A client that hoards has many tasks for some seconds: one look could fall in them."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._looks.append(look())

    async def _watch(self) -> None:
        async for event in self._node.events():
            self._events[type(event).__name__] += 1
            match event:
                case Excluded():
                    self._excluded_at.append(time.monotonic())
                case Gap():
                    self.witness.skipped(event.topic, event.skipped)
                case Discarded():
                    self.witness.skipped(event.topic, event.dropped)
                    own = [span for slot in self._slots for span in event.dropped.get(slot, ())]
                    self._withdrawn[event.topic] += sum(last - first + 1 for first, last in own)
                case Returned():
                    self._slots.add(event.slot)


def _why(task: asyncio.Task[None]) -> str:
    """Why a task ended that was to go on; empty: it was cancelled."""
    if task.cancelled():
        return ""
    return repr(task.exception() or "it ended")


def run_honest(index: int, nodes: int, terms: Terms, pipe: Connection) -> None:
    """One process."""
    be_child(_live(index, nodes, terms, pipe), pipe)


async def _live(index: int, nodes: int, terms: Terms, pipe: Connection) -> None:
    pipe.send(("up", None))
    seed = await asyncio.to_thread(pipe.recv)
    shell = Shell(terms.config())
    await shell.start(seed)
    node = shell.node
    honest = Honest(index, nodes, terms, node)
    await honest.begin()
    pipe.send(("ready", node.address))
    while (word := await asyncio.to_thread(pipe.recv)) != "close":
        match word:
            case "talk":
                honest.talk()
            case "sample":
                pipe.send(("sample", honest.sample()))
            case "hush":
                await honest.hush()
                pipe.send(("quiet", None))
            case "account":
                pipe.send(("account", honest.account()))
    honest.end()
    with suppress(CubecastError):
        await node.close()
