"""An honest node that measures how an attack on its cluster affects it.

A process outlives many clusters: its parent tells it to `start` a node, to `watch`, to use a fresh
topic, to `report`, and to `stop`.  The node is in the quiet topic and publishes there all the time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from random import Random
from typing import Any, TypeVar

from siege.terms import STEADY, payload_of
from siege.witness import Witness

from cubecast.errors import CubecastError, JoinError
from cubecast.net.events import Discarded, Gap
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.processes.function import be_child

EVERY_S = 0.02
"""Between two publications of a node to the quiet topic, and between two looks at its view."""
SMALL = 60
"""Bytes of a payload, unless an attack needs larger ones."""
PRIVATE = b"a private word "
"""In every payload: an attacker that finds it on the wire has read an honest message."""
TRIES = 3
"""Attempts to join, before it counts as refused."""
MAX_LINES = 100
"""Different lines of the log that are told apart."""
NAMES = re.compile(r"[0-9a-f]{8,}[.\w]*|\d+")
"""What differs between two log lines of a kind: uids, ports, numbers."""


class Gaps:
    """The longest time without a message, for each publisher that is listened to."""

    def __init__(self, publishers: Iterable[int], now: float) -> None:
        self._last = dict.fromkeys(publishers, now)
        self._longest = 0.0

    def heard(self, publisher: int, now: float) -> None:
        """A message has come."""
        if publisher in self._last:
            self._longest = max(self._longest, now - self._last[publisher])
            self._last[publisher] = now

    def longest(self, now: float) -> float:
        """The longest gap of all publishers, present gaps included."""
        return max(self._longest, *(now - last for last in self._last.values()))


class Absence:
    """How long this node's view lacked each honest node, or it had no view itself."""

    def __init__(self, honest: Iterable[str], now: float) -> None:
        self.honest = set(honest)
        self.seen: set[str] = set()
        """Every address that was in a view of this node."""
        self._since = now
        self._out: Counter[str] = Counter()

    def look(self, members: Iterable[str], excluded: bool, now: float) -> None:
        """Look at the view: an honest node that is not in it was away since the last look."""
        there = set(members)
        self.seen |= there
        away = ["itself"] if excluded else self.honest - there
        for address in away:
            self._out[address] += now - self._since
        self._since = now

    def longest(self) -> float:
        """The absence of the node that was away longest."""
        return max(self._out.values(), default=0.0)


class Lines(logging.Handler):
    """Counts the node's log lines by kind, with one example each, and its audit lines apart."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.log: Counter[str] = Counter()
        self.audit: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Count one record."""
        said = record.getMessage()
        kind = NAMES.sub("#", said)
        if len(self._examples) < MAX_LINES:
            kind = self._examples.setdefault(kind, said)
        else:
            kind = self._examples.get(kind, "others")
        (self.audit if record.name == "cubecast.audit" else self.log)[kind] += 1


class Bystander:
    """One node and what its application does."""

    def __init__(self, index: int, count: int, shell: Shell, lines: Lines) -> None:
        self._index = index
        self._publishers = range(count)
        self._shell = shell
        self._node = shell.node
        self._lines = lines
        self._witness = Witness(Random(index), lossless=False)
        self._events: Counter[str] = Counter()
        self._published = 0
        self._padding = PRIVATE + b"x" * SMALL
        self._fresh: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch([])

    async def begin(self) -> None:
        """Subscribe, and do all the rest beside each other."""
        messages = await self._node.subscribe(STEADY).__aenter__()
        self._spawn(self._read(messages))
        self._spawn(self._follow_events())
        self._spawn(self._look())

    def talk(self) -> None:
        """Publish from now on."""
        self._spawn(self._talk())

    def watch(self, honest: Iterable[str]) -> None:
        """Measure from now on, in a cluster of these addresses."""
        now = time.monotonic()
        self._gaps = Gaps(self._publishers, now)
        self._absence = Absence(honest, now)
        self._events.clear()
        self._fresh.clear()
        self._lines.forget()

    def count_in(self, address: str) -> None:
        """Count the node at `address` as honest, too."""
        self._absence.honest.add(address)

    def publish_larger(self, size: int) -> None:
        """From now on payloads have so many bytes."""
        self._padding = PRIVATE + b"x" * size

    def use_fresh_topic(self, what: str, topic: str) -> None:
        """Subscribe or publish to a topic for the first time, and keep how long it takes."""
        self._spawn(self._subscribe(topic) if what == "subscribe" else self._publish(what, topic))

    def report(self) -> dict[str, Any]:
        """What was seen since `watch`."""
        now, witness = time.monotonic(), self._witness
        return {
            "gap_s": self._gaps.longest(now),
            "out_s": self._absence.longest(),
            "seen": sorted(self._absence.seen),
            "members": sorted(self._node.members.values()),
            "life": self._shell.member.incarnation,
            "cluster": self._node.cluster,
            "foreign": witness.foreign,
            "disorder": witness.disorder,
            "lost": max(0, witness.missing[STEADY] - witness.told[STEADY]),
            "fresh": dict(self._fresh),
            "events": dict(self._events),
            "log": dict(self._lines.log),
            "audit": dict(self._lines.audit),
        }

    def end(self) -> None:
        """End the node as by SIGKILL, without waiting."""
        for task in self._tasks:
            task.cancel()
        self._shell.kill()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, messages: Any) -> None:
        async for message in messages:
            now = time.monotonic()
            said = self._witness.delivered(STEADY, message.payload, now)
            if said is not None:
                self._gaps.heard(said.publisher, now)

    async def _talk(self) -> None:
        while True:
            with suppress(CubecastError):  # what was not sent keeps its number
                payload = payload_of(self._index, self._published, self._padding)
                await self._node.publish(STEADY, payload)
                self._published += 1
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> None:
        while True:
            node = self._node
            self._absence.look(node.members.values(), node.epoch < 0, time.monotonic())
            await asyncio.sleep(EVERY_S)

    async def _follow_events(self) -> None:
        async for event in self._node.events():
            self._events[type(event).__name__] += 1
            if isinstance(event, Gap):
                self._witness.skipped(event.topic, event.skipped)
            elif isinstance(event, Discarded):
                self._witness.skipped(event.topic, event.dropped)

    async def _subscribe(self, topic: str) -> None:
        begun = time.monotonic()
        messages = await self._node.subscribe(topic).__aenter__()
        self._fresh["subscribe"] = time.monotonic() - begun
        async for message in messages:
            self._fresh["hear"] = time.monotonic() - float(message.payload)
            return

    async def _publish(self, what: str, topic: str) -> None:
        """Publish the present time; it is done when every subscriber has it."""
        begun = time.monotonic()
        while True:
            with suppress(CubecastError):
                receipt = await self._node.publish(topic, b"%.6f" % begun, receipt=True)
                await receipt.stable()
                self._fresh[what] = time.monotonic() - begun
                return
            await asyncio.sleep(EVERY_S)


ShellT = TypeVar("ShellT", bound=Shell)


async def joined(config: NodeConfig, seed: str | None, kind: type[ShellT] = Shell) -> ShellT:
    """A node in the cluster; on a busy machine a handshake may take longer than it may."""
    for left in reversed(range(TRIES)):
        shell = kind(config)
        try:
            await shell.start(seed)
            return shell
        except JoinError:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def run_bystander(index: int, count: int, pipe: Connection) -> None:
    """One process."""
    be_child(_live(index, count, pipe), pipe)


def _silenced() -> Lines:
    lines = Lines()
    log = logging.getLogger("cubecast")
    log.addHandler(lines)
    log.propagate = False
    log.setLevel(logging.WARNING)
    return lines


async def _live(index: int, count: int, pipe: Connection) -> None:
    lines = _silenced()
    one: Bystander | None = None
    pipe.send(("up", None))
    while (word := await asyncio.to_thread(pipe.recv)) != "close":
        if word[0] == "start":
            terms, seed = word[1:]
            shell = await joined(terms.config(), seed)
            one = Bystander(index, count, shell, lines)
            await one.begin()
            pipe.send(("ready", shell.address))
            continue
        assert one is not None, "it was started"
        match word:
            case ("talk",):
                one.talk()
            case ("watch", honest):
                one.watch(honest)
            case ("count in", address):
                one.count_in(address)
            case ("larger", size):
                one.publish_larger(size)
            case ("fresh", what, topic):
                one.use_fresh_topic(what, topic)
            case ("report",):
                pipe.send(("report", one.report()))
            case ("stop",):
                one.end()
                pipe.send(("stopped", None))
