"""The systems that are measured, each through its ordinary API and in a lossless setting."""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, TypeAlias, cast

from cubecast.bench.workloads import Task

TOPIC = "bench"
Receive: TypeAlias = Callable[[bytes], bytes | None]
"""Called with each message; what it returns is to be published at once."""

SYSTEMS = {
    "cubecast": "cubecast",
    "sealed": "cubecast, sealed",
    "tls": "cubecast, TLS",
    "zmq": "ZeroMQ",
    "curve": "ZeroMQ, CURVE",
    "zenoh": "Zenoh",
    "nats": "NATS",
}
PEERS = tuple(name for name in SYSTEMS if name != "cubecast")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "cubecast": (),
    "sealed": (),
    "tls": (),
    "zmq": ("zmq",),
    "curve": ("zmq",),
    "zenoh": ("zenoh",),
    "nats": ("nats",),
}


class AsyncClient(abc.ABC):
    """One process's end of a system with an asyncio API."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.delayed_bytes = 0
        """Bytes that this end has held back itself, in mode `delayed`."""

    @abc.abstractmethod
    async def open(self, publishes: bool, subscribes: bool) -> None:
        """Connect, and subscribe to `TOPIC` if asked to."""

    @abc.abstractmethod
    async def publish(self, payload: bytes) -> None:
        """Publish one message."""

    @abc.abstractmethod
    async def read(self, receive: Receive) -> None:
        """Hand over messages until cancelled."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class BlockingClient(abc.ABC):
    """One process's end of a system with an API that blocks."""

    delayed_bytes = 0

    def __init__(self, task: Task) -> None:
        self.task = task

    @abc.abstractmethod
    def open(self, publishes: bool, subscribes: bool, receive: Receive) -> None:
        """Connect, and subscribe to `TOPIC` if asked to."""

    @abc.abstractmethod
    def publish(self, payload: bytes) -> None:
        """Publish one message."""

    @abc.abstractmethod
    def poll(self, timeout: float) -> None:
        """Hand over what has arrived; wait up to `timeout` seconds if nothing has."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect."""


class Servers(Protocol):
    """What a system needs beside the processes that use it."""

    @property
    def pids(self) -> list[int]:
        """The processes of its servers."""

    @property
    def delayed_bytes(self) -> int:
        """Bytes that its relay, if there is one, has passed on late."""


class System(Protocol):
    """What a module of this package has."""

    def client(self, task: Task) -> AsyncClient | BlockingClient: ...
    def servers(self, task: Task) -> AbstractContextManager[Servers]: ...


def missing(system: str) -> str | None:
    """The module that is needed to measure a system and not installed."""
    return next((name for name in _REQUIRED[system] if find_spec(name) is None), None)


def load(system: str) -> System:
    """The module of a system."""
    return cast(System, import_module(f"{__name__}.{system}"))


def open_client(task: Task) -> AsyncClient | BlockingClient:
    """A process's end of the system it measures."""
    return load(task.system).client(task)
