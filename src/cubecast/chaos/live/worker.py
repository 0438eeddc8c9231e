"""One process of a chaos run: a node, and an application that asks and answers all the time.

    python -m cubecast.chaos.live.worker

Orders come in and reports go out as `cubecast.chaos.live.messages` says.  The process ends with its
orders, and with the process that started it, so it never outlives a run, not even while stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NoReturn

import msgspec

from cubecast.chaos.live.messages import (
    Failed,
    Finish,
    LeaveCluster,
    Live,
    NodeStanding,
    NodeTold,
    Order,
    PublishBatch,
    Quiet,
    Report,
    SetLinks,
    SubscribeTopic,
    TellStanding,
    TraceFinished,
    UnsubscribeTopic,
    Up,
)
from cubecast.chaos.live.tracelog import RecordedWrites, TraceLog
from cubecast.errors import Closed, CubecastError, JoinError, NotSent, Unknown
from cubecast.net.events import (
    ConnectionLost,
    Event,
    Events,
    Gap,
    MemberJoined,
    MemberLeft,
    PublisherBlocked,
)
from cubecast.net.links.address import format_address, parse_address
from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.net.loop import run_loop
from cubecast.net.message import Message
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.trace import Header

DEEPEST = 3
"""The depth of answers to answers."""
PUBLISH_S = 5.0
"""A publication that is not taken within this time is given up, and counted."""
SAVE_EVERY_S = 0.05
PAUSE_S = 0.2
"""Seconds before a failed attempt is repeated."""
MOST_UNANSWERED = 1000
PR_SET_PDEATHSIG = 1


class ChaosMessage(msgspec.Struct):
    """A message: a question (depth 0), or an answer to an answer to one."""

    depth: int
    filler: str = ""


class LoadApplication:
    """Publishes at a steady rate and answers some of the messages it reads, at once."""

    def __init__(self, node: Node, live: Live, log: TraceLog) -> None:
        self._node = node
        self._load = live.load
        self._topics = live.topics
        self._log = log
        self._chance = Random(live.seed)
        self._to_answer: asyncio.Queue[tuple[Message, int]] = asyncio.Queue(MOST_UNANSWERED)
        self._filler = "x" * live.load.size
        self.published = 0
        self.delivered = 0
        self.refused = 0

    async def ask(self) -> None:
        """Publish until cancelled, evenly, so that a hole at the subscribers means something."""
        pause_s = 1.0 / self._load.rate
        await asyncio.sleep(self._chance.random() * pause_s)
        while True:
            began = time.monotonic()
            await self.publish(self._chance.choice(self._topics))
            spent = time.monotonic() - began
            await asyncio.sleep(max(0.0, pause_s * self._chance.uniform(0.9, 1.1) - spent))

    async def read(self, messages: Subscription) -> None:
        """Read until cancelled, and choose the messages to answer."""
        async for message in messages:
            self.delivered += 1
            depth = msgspec.json.decode(message.payload, type=ChaosMessage).depth
            if (
                depth < DEEPEST
                and message.source != self._node.slot
                and self._chance.random() < self._load.answers / (1 + depth)
            ):
                with contextlib.suppress(asyncio.QueueFull):  # too many to answer them all
                    self._to_answer.put_nowait((message, depth))

    async def answer(self) -> None:
        """Answer until cancelled."""
        while True:
            message, depth = await self._to_answer.get()
            await self.publish(message.topic, depth + 1, message)

    async def burst(self, topic: str, count: int) -> None:
        """Publish many messages at once."""
        for _ in range(count):
            await self.publish(topic)

    async def publish(self, topic: str, depth: int = 0, question: Message | None = None) -> None:
        """Publish one message; one that is not taken in time is counted."""
        payload = msgspec.json.encode(ChaosMessage(depth, self._filler))
        try:
            receipt = await self._node.publish(topic, payload, receipt=True, timeout=PUBLISH_S)
        except CubecastError:
            self.refused += 1
            await asyncio.sleep(PAUSE_S)
            return
        self.published += 1
        if question is not None and receipt is not None:
            stream = question.frame.stream
            named = f"{stream.source}.{stream.incarnation:x}.{question.seq}"
            self._log.replies[topic, receipt.seq] = named


class Worker:
    """The process: carries out orders, one after the other."""

    def __init__(self) -> None:
        self._faults = LinkFaults()
        self._tasks: list[asyncio.Task[None]] = []
        self._talking: list[asyncio.Task[None]] = []
        self._node: Node | None = None
        self._log: TraceLog | None = None
        self._application: LoadApplication | None = None
        self._open: dict[str, Subscription] = {}
        self._rules: dict[str, Rule] = {}

    async def obey(self, order: Order) -> bool:
        """Carry out one order; False when that was the last."""
        match order:
            case Live():
                self._spawn(self._live(order))  # orders may come while we join
            case SetLinks():
                self._set_links(order)
            case PublishBatch() if self._application is not None:
                self._spawn(self._application.burst(order.topic, order.count))
            case SubscribeTopic():
                self._spawn(self._subscribe(order.topic))
            case UnsubscribeTopic():
                self._spawn(self._unsubscribe(order.topic))
            case Quiet():
                _cancel(self._talking)
            case TellStanding():
                self._look()
            case Finish():
                self._finish()
            case LeaveCluster():
                await self._leave()
                return False
        return True

    async def _live(self, order: Live) -> None:
        header = Header(scenario="chaos", protocol="cubecast", seed=order.seed, time_unit="us")
        log = self._log = TraceLog(Path(order.trace), header)
        self._set_links(order.links)
        self._spawn(self._save(log))
        node = self._node = await self._joined(order, log)
        self._spawn(self._listen(node.events(), Neighbours(node.members)))
        application = self._application = LoadApplication(node, order, log)
        for topic in order.topics:
            await self._subscribe(topic)
        self._talking = [self._spawn(application.answer())]
        if order.topics:
            self._talking.append(self._spawn(application.ask()))
        report(Up(time.monotonic(), node.slot, node.uid, node.address))

    async def _joined(self, order: Live, log: TraceLog) -> Node:
        """Join by any seed; each attempt is a new node, as others may know the last one."""
        config = NodeConfig.preset(order.preset, listen=order.listen)
        deadline = time.monotonic() + order.patience_s
        attempts = 0
        while True:
            shell = Shell(config, trace=log, faults=self._faults, writes=RecordedWrites(log))
            turn = attempts % max(1, len(order.seeds))
            seeds = (*order.seeds[turn:], *order.seeds[:turn])
            try:
                await shell.start(",".join(seeds) or None)
                return shell.node
            except JoinError:
                attempts += 1
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE_S)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or config.listen.endswith(":0"):
                    raise
                # Another process has the port of our last life; then we listen elsewhere.
                host, _ = parse_address(config.listen)
                config = replace(config, listen=format_address(host, 0))

    async def _subscribe(self, topic: str) -> None:
        if self._node is None or self._application is None or topic in self._open:
            return
        messages = self._open[topic] = self._node.subscribe(topic)
        try:
            await messages.__aenter__()
        except Closed:
            if self._open.get(topic) is messages:
                raise
            return  # it was ended before it began
        self._spawn(self._application.read(messages))

    async def _unsubscribe(self, topic: str) -> None:
        messages = self._open.pop(topic, None)
        if messages is not None:
            await messages.__aexit__(None, None, None)

    def _set_links(self, links: SetLinks) -> None:
        """Set the rules.  A rule for a uid overrides the one for all; an ended one is set to it."""
        usual = Rule(loss=links.loss)
        self._faults.set(None, usual)
        rules = {uid: links.rules.get(uid, usual) for uid in self._rules | links.rules}
        for uid, rule in rules.items():
            if self._rules.get(uid) != rule:
                self._faults.set(uid, rule)
        self._rules = rules

    async def _save(self, log: TraceLog) -> None:
        """Write records that no packet has triggered yet, deliveries mostly."""
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            log.save()

    async def _listen(self, events: Events, neighbours: Neighbours) -> None:
        async for event in events:
            report(neighbours.named(event, said_of(event, time.monotonic())))

    def _look(self) -> None:
        node, application = self._node, self._application
        if node is None or application is None:
            return
        resting, why = False, "closed"
        with contextlib.suppress(Closed):
            resting = shell_of(node).at_rest()
            why = "" if resting else self._reasons(node)
        members = sorted(node.members)
        counts = (application.published, application.delivered, application.refused)
        report(NodeStanding(time.monotonic(), node.slot, members, resting, *counts, why))

    def _reasons(self, node: Node) -> str:
        said = []
        for topic in self._open:
            found: dict[str, object] = {**node.explain(topic)}
            keys = ("standing", "in_flight", "behind", "missing", "waiting", "accepted", "blocked")
            what = {key: found[key] for key in keys if found.get(key)}
            said.append(f"{topic}: {what}")
        return "; ".join(said)

    def _finish(self) -> None:
        if self._log is not None:
            self._log.close()
        report(TraceFinished(time.monotonic()))

    async def _leave(self) -> None:
        _cancel(self._talking)
        for topic in list(self._open):
            await self._unsubscribe(topic)
        if self._node is not None:
            with contextlib.suppress(NotSent, Unknown):  # the trace shows what became of them
                await self._node.close()
        if self._log is not None:
            self._log.close()
        report(TraceFinished(time.monotonic()))

    def _spawn(self, work: object) -> asyncio.Task[None]:
        assert asyncio.iscoroutine(work)
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(_complain)
        self._tasks.append(task)
        return task


class Neighbours:
    """The holders of slots, as one node was told; an event about a slot gets its node's address."""

    def __init__(self, members: Mapping[int, str]) -> None:
        self._addresses = dict(members)

    def named(self, event: Event, told: NodeTold) -> NodeTold:
        """The same, with the address of the node that has the slot, or had it until now."""
        match event:
            case MemberJoined():
                self._addresses[event.slot] = event.address
                address = event.address
            case MemberLeft():
                address = self._addresses.pop(event.slot, "")
            case ConnectionLost():
                address = self._addresses.get(event.slot, "")
            case _:
                return told
        return msgspec.structs.replace(told, address=address)


def said_of(event: Event, now: float) -> NodeTold:
    """An event as a line of the story may tell it."""
    match event:
        case MemberJoined():
            return NodeTold(now, "joined", event.slot)
        case MemberLeft():
            return NodeTold(now, "left", event.slot)
        case ConnectionLost():
            return NodeTold(now, "lost connection", event.slot, detail=event.reason)
        case PublisherBlocked():
            return NodeTold(now, "blocked", detail=event.topic)
        case Gap():
            spans = [span for several in event.skipped.values() for span in several]
            count = sum(last - first + 1 for first, last in spans)
            return NodeTold(now, "gap", count=count, detail=event.topic)
    return NodeTold(now, type(event).__name__, getattr(event, "slot", -1))


def report(what: Report) -> None:
    """Send a report; the process that started us always reads."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _complain(task: asyncio.Task[None]) -> None:
    """End the process if a part of the application ends by itself: nothing fails in silence."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _fail(f"{type(error).__name__}: {error}")


def _fail(reason: str) -> NoReturn:
    with contextlib.suppress(OSError):
        report(Failed(time.monotonic(), reason))
    os._exit(1)


async def main() -> None:
    """Carry out orders until there are no more."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    worker = Worker()
    try:
        while line := await reader.readline():
            if not await worker.obey(msgspec.json.decode(line, type=Order)):
                return
    except (CubecastError, OSError) as error:
        _fail(str(error))


def _die_with_parent() -> None:
    """End with the process that started us, even while stopped, where the system offers that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    run_loop(main())
    os._exit(0)  # tasks that never end need no farewell
