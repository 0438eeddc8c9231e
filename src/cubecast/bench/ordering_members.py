"""Members of an event service in processes of their own, with order across topics or without.

A run is determined by its `OrderingWorkload`: the publisher and topic of each event, and the
topics of each subscriber.  An event is its number and the time of its publish call.  The bare
service is the same adapter, used directly.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import time
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Literal, TypeAlias

import cubecast
from cubecast.bench.usage import cpu_seconds
from cubecast.net.settings.config import NodeConfig
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.live import Ordered
from cubecast.ordering.service import EventService
from cubecast.ordering.services.cubecast import CubecastService
from cubecast.ordering.services.nats import NatsService
from cubecast.ordering.services.redis import RedisService
from cubecast.processes.function import be_child

Kind: TypeAlias = Literal["cubecast", "nats", "redis"]
STALL_S = 10.0
"""Nothing came for this long: what is missing is lost."""
LOOK_S = 0.05
YIELD_EVERY = 64
"""A publisher lets its own loop run after so many publications."""
EVENT = struct.Struct("<Id")
PATIENT = NodeConfig.preset(
    "local", suspect_min=60_000_000, suspect_max=60_000_000, deaf_after=60_000_000
)
"""No node is taken for dead because the machine is busy."""


@dataclass(frozen=True)
class OrderingWorkload:
    """What happens in a run."""

    publishers: int
    subscriptions: tuple[tuple[str, ...], ...]
    """The topics of each subscriber."""
    topics: tuple[str, ...]
    """All topics, those with the most events first."""
    weights: tuple[float, ...]
    """How often an event is published in each topic."""
    events: int
    seed: int
    rate: float = 0.0
    """Events per second of all publishers together; 0: as fast as they may."""

    @cached_property
    def plan(self) -> list[tuple[int, str]]:
        """The publisher and the topic of each event."""
        rng = Random(self.seed)
        topics = rng.choices(self.topics, self.weights, k=self.events)
        return [(rng.randrange(self.publishers), topic) for topic in topics]

    @property
    def members(self) -> list[str]:
        subscribers = [f"s{number}" for number in range(len(self.subscriptions))]
        return [*subscribers, *self.managers]

    @property
    def managers(self) -> list[str]:
        return [f"p{number}" for number in range(self.publishers)]

    def due(self, subscriber: int) -> int:
        """The events that a subscriber is to be notified of."""
        topics = set(self.subscriptions[subscriber])
        return sum(topic in topics for _, topic in self.plan)


@dataclass(frozen=True)
class MemberTask:
    """One member's part."""

    kind: Kind
    addresses: tuple[str, ...]
    """Of the servers; with cubecast, of the first node, which is told when it is known."""
    name: str
    ordered: bool
    workload: OrderingWorkload
    config: OrderedConfig

    @property
    def number(self) -> int:
        return int(self.name[1:])

    @property
    def publishes(self) -> bool:
        return self.name.startswith("p")


class NotificationTally:
    """What a subscriber was notified of."""

    def __init__(self, due: int) -> None:
        self._due = due
        self.seen = array("I")
        self.tagged = array("I")
        self.latencies = array("d")
        self.complete = asyncio.Event()

    def take(self, payload: bytes, in_order: bool = True) -> None:
        number, published = EVENT.unpack(payload)
        self.latencies.append(time.monotonic() - published)
        (self.seen if in_order else self.tagged).append(number)
        if len(self.latencies) >= self._due:
            self.complete.set()

    async def end(self) -> float:
        """Wait until every event is here, or none comes any more; the time of the last one."""
        count, at = -1, time.monotonic()
        while not self.complete.is_set():
            if len(self.latencies) != count:
                count, at = len(self.latencies), time.monotonic()
            elif time.monotonic() > at + STALL_S:
                return at
            with suppress(TimeoutError):
                await asyncio.wait_for(self.complete.wait(), LOOK_S)
        return time.monotonic()


def opposite(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many pairs of events two subscribers saw in opposite orders, by counting inversions."""
    places = {event: number for number, event in enumerate(mine)}
    numbers = [places[event] for event in theirs if event in places]
    tree = [0] * (len(mine) + 1)
    found = 0
    for count, number in enumerate(numbers):
        before, at = 0, number + 1
        while at:  # those up to this number that came already
            before += tree[at]
            at &= at - 1
        found += count - before
        at = number + 1
        while at < len(tree):
            tree[at] += 1
            at += at & -at
    return found


# -- connections -----------------------------------------------------------------------------------


@asynccontextmanager
async def connected(task: MemberTask, seed: str | None) -> AsyncIterator[tuple[EventService, str]]:
    """The service as a member sees it, and the address by which others may join."""
    async with AsyncExitStack() as stack:
        if task.kind == "cubecast":
            node = await stack.enter_async_context(cubecast.join(seed, config=PATIENT))
            yield CubecastService(task.name, node), node.address
            return
        place = task.workload.members.index(task.name) % len(task.addresses)
        address = task.addresses[place]
        if task.kind == "nats":
            connection: Any = await import_module("nats").connect(address)
            stack.push_async_callback(connection.close)
            yield NatsService(task.name, connection), address
        else:
            client: Any = import_module("redis.asyncio").from_url(address)
            stack.push_async_callback(client.aclose)
            yield RedisService(task.name, client), address


@asynccontextmanager
async def opened(
    task: MemberTask, service: EventService, tally: NotificationTally
) -> AsyncIterator[OrderingMember]:
    """A member that is ready, with its order or without."""
    if not task.ordered:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def take(topic: str, payload: bytes) -> None:
            tally.take(payload)

        await service.open(take, lambda data: None, failed.set_exception)
        yield OrderingMember(service, None)
        await service.close()
        return
    workload = task.workload
    async with Ordered(
        service, managers=workload.managers, first=workload.topics, config=task.config
    ) as ordered:

        async def read() -> None:
            async for message in ordered:
                tally.take(message.payload, message.in_order)

        reader = asyncio.create_task(read())
        yield OrderingMember(service, ordered)
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


class OrderingMember:
    """The same calls with order and without."""

    def __init__(self, service: EventService, ordered: Ordered | None) -> None:
        self._service = service
        self._ordered = ordered
        self.publish = service.publish if ordered is None else ordered.publish
        self.flush = service.flush if ordered is None else ordered.flush

    @property
    def missed(self) -> int:
        """Events that were dropped because this process did not read them in time."""
        return 0 if self._ordered is None else self._ordered.missed

    async def subscribe(self, topics: tuple[str, ...]) -> None:
        if self._ordered is not None:
            await self._ordered.subscribe(*topics)
        else:
            for topic in topics:
                await self._service.subscribe(topic)


# -- one process -----------------------------------------------------------------------------------


def main(task: MemberTask, pipe: Connection) -> None:
    """Be one member."""
    be_child(_live(task, pipe), pipe)


async def _live(task: MemberTask, pipe: Connection) -> None:
    seed = await asyncio.to_thread(pipe.recv)
    tally = NotificationTally(0 if task.publishes else task.workload.due(task.number))
    async with connected(task, seed) as (service, address), opened(task, service, tally) as member:
        pipe.send(("open", address))
        await asyncio.to_thread(pipe.recv)
        if not task.publishes:
            await member.subscribe(task.workload.subscriptions[task.number])
        pipe.send(("ready", None))
        begin = await asyncio.to_thread(pipe.recv)
        gc.collect()
        gc.freeze()
        used = cpu_seconds()
        if task.publishes:
            await _publish(task, member, begin)
            end = time.monotonic()
        else:
            end = await tally.end()
        report = {
            "end": end,
            "cpu_s": cpu_seconds() - used,
            "seen": tally.seen,
            "tagged": tally.tagged,
            "latencies": tally.latencies,
            "missed": member.missed,
        }
        pipe.send(("result", report))
        await asyncio.to_thread(pipe.recv)


async def _publish(task: MemberTask, member: OrderingMember, begin: float) -> None:
    """Publish our events, at our part of the rate, and see that they are on their way."""
    schedule = enumerate(_schedule(task.workload, task.number, begin))
    for count, (at, number, topic) in schedule:
        now = time.monotonic()
        if at > now:
            await asyncio.sleep(at - now)
        elif count % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        await member.publish(topic, EVENT.pack(number, time.monotonic()))
    await member.flush()


def _schedule(
    workload: OrderingWorkload, publisher: int, begin: float
) -> Iterator[tuple[float, int, str]]:
    step = 1 / workload.rate if workload.rate else 0.0
    for number, (mine, topic) in enumerate(workload.plan):
        if mine == publisher:
            yield begin + number * step, number, topic
