"""One life of a member with order across topics, in a process of its own that may be killed.

It publishes at a steady rate, and writes down what it published, what the service brought and what
it was notified of, line by line: so what a killed process did is known, too.
`cubecast.bench.ordering_kills` starts such processes, ends them, and judges the files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from io import FileIO
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

import cubecast
from cubecast.bench.ordering_members import Kind
from cubecast.ordering.batches import decode_arrived
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.library import service_of
from cubecast.ordering.live import Ordered
from cubecast.ordering.service import EventService, OnEvent, OnFailure, OnMessage
from cubecast.ordering.timestamps import Stamp
from cubecast.processes.function import be_child

TOPICS = tuple(f"t{number}" for number in range(5))


class PublishedEvent(msgspec.Struct, array_like=True):
    """An event whose `publish` has returned."""

    event: str
    topic: str
    called_at: float


class SeenEvent(msgspec.Struct, array_like=True):
    """An event as the application got it."""

    event: str
    topic: str
    in_order: bool
    stamp: Stamp
    called_at: float
    at: float


class Brought(msgspec.Struct, array_like=True):
    """An event as the service below brought it."""

    event: str
    called_at: float


class Part(NamedTuple):
    """What one member does."""

    name: str
    topics: tuple[str, ...] = ()
    """The topics it subscribes to."""
    rate: float = 0.0
    """Events that it publishes per second, in all topics; 0: none."""


@dataclass(frozen=True)
class LifeTask:
    """One life of a member."""

    kind: Kind
    address: str | None
    """Of a server, or of a node to join."""
    part: Part
    life: int
    managers: tuple[str, ...]
    folder: Path
    config: OrderedConfig

    @property
    def title(self) -> str:
        return f"{self.part.name}.{self.life}"

    @property
    def published(self) -> Path:
        return self.folder / f"{self.title}.published"

    @property
    def brought(self) -> Path:
        return self.folder / f"{self.title}.brought"

    @property
    def seen(self) -> Path:
        return self.folder / f"{self.title}.seen"


# -- one process -----------------------------------------------------------------------------------


def main(task: LifeTask, pipe: Connection) -> None:
    """Be one member."""
    be_child(_live(task, pipe), pipe)


@asynccontextmanager
async def _connected(task: LifeTask) -> AsyncIterator[tuple[Any, str]]:
    """What `cubecast.ordered` takes, and the address by which others join."""
    async with AsyncExitStack() as stack:
        if task.kind == "cubecast":
            node = await stack.enter_async_context(cubecast.join(task.address))
            yield node, node.address
            return
        assert task.address is not None
        connection: Any
        if task.kind == "nats":
            connection = await import_module("nats").connect(task.address)
            stack.push_async_callback(connection.close)
        else:
            connection = import_module("redis.asyncio").from_url(task.address)
            stack.push_async_callback(connection.aclose)
        yield connection, task.address


class Witness:
    """An event service that writes down what it brings."""

    def __init__(self, service: EventService, file: Path) -> None:
        self._service = service
        self._file = file.open("wb", buffering=0)

    def __getattr__(self, part: str) -> Any:
        return getattr(self._service, part)

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        def take(topic: str, data: bytes) -> Awaitable[None] | None:
            for _, payload in decode_arrived(topic, data).events():
                one = msgspec.json.decode(payload, type=PublishedEvent)
                write(self._file, Brought(one.event, one.called_at))
            return on_event(topic, data)

        await self._service.open(take, on_message, on_failure)


def write(file: FileIO, line: msgspec.Struct) -> None:
    """Write a line at once: what is written stays when the process is killed."""
    file.write(msgspec.json.encode(line) + b"\n")


async def _live(task: LifeTask, pipe: Connection) -> None:
    part = task.part
    async with _connected(task) as (connection, address):
        service = Witness(service_of(connection, part.name), task.brought)
        ordered = cubecast.ordered(
            service, managers=task.managers, first=TOPICS, config=task.config
        )
        async with ordered:
            pipe.send(("open", address))
            await asyncio.to_thread(pipe.recv)
            if part.topics:
                await ordered.subscribe(*part.topics)
            pipe.send(("ready", time.monotonic()))
            reader = asyncio.create_task(_read(task, ordered))
            publisher = asyncio.create_task(_publish(task, ordered))
            await asyncio.to_thread(pipe.recv)
            publisher.cancel()
            with suppress(asyncio.CancelledError):
                await publisher
            await ordered.flush()
            pipe.send(("quiet", None))
            await asyncio.to_thread(pipe.recv)
        with suppress(asyncio.CancelledError):
            await reader
    pipe.send(("closed", None))


async def _publish(task: LifeTask, ordered: Ordered) -> None:
    """Publish at a steady rate; a line is written when `publish` has returned."""
    if not task.part.rate:
        return
    rng = Random(task.title)
    start = time.monotonic()
    with task.published.open("wb", buffering=0) as file:
        for number in range(1_000_000_000):
            await asyncio.sleep(max(0.0, start + number / task.part.rate - time.monotonic()))
            one = PublishedEvent(f"{task.title}/{number}", rng.choice(TOPICS), time.monotonic())
            await ordered.publish(one.topic, msgspec.json.encode(one))
            write(file, one)


async def _read(task: LifeTask, ordered: Ordered) -> None:
    with task.seen.open("wb", buffering=0) as file:
        async for message in ordered:
            one = msgspec.json.decode(message.payload, type=PublishedEvent)
            seen = SeenEvent(
                one.event,
                message.topic,
                message.in_order,
                message.stamp,
                one.called_at,
                time.monotonic(),
            )
            write(file, seen)
