"""``cubecast.ordered``: order across topics on an existing node, connection or client."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from cubecast.errors import CubecastError
from cubecast.net.client.client import Client
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.security.tls import Tls, tls_keys
from cubecast.net.settings.config import NodeConfig
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.live import Ordered
from cubecast.ordering.messages import Member
from cubecast.ordering.service import EventService
from cubecast.ordering.services.cubecast import CubecastService, members_at
from cubecast.ordering.services.nats import NatsService
from cubecast.ordering.services.redis import RedisService
from cubecast.ordering.timestamps import Topic
from cubecast.ordering.unread import Policy

log = logging.getLogger(__name__)

CONNECT_S = 10.0
EXPECTED = "a cubecast node, a nats-py connection, a client of redis.asyncio, or an EventService"
PARTS = tuple(name for name in dir(EventService) if not name.startswith("_"))


def ordered(
    service: Any,
    *,
    managers: Sequence[Member],
    name: Member | None = None,
    first: Sequence[Topic] = (),
    policy: Policy = "tagged",
    config: OrderedConfig | None = None,
) -> Ordered:
    """Order across topics: ``async with cubecast.ordered(node, managers=[...]) as ordered``.

    `service` is a cubecast `Node`, a connection of nats-py, a client of `redis.asyncio`, or an
    `EventService` of your own.  It stays yours: close it after this.

    `managers` are the names of the members that number events, and `first` the topics with the
    most events; both have to be the same at every member.  `name` is this member's: the address of
    a node if None, and elsewhere one that no other has, which is enough for members that manage
    nothing.

    `policy` says what happens to an event that is out of order: "tagged" notifies it with
    `in_order` False, "drop" drops it and counts it in `dropped`.  `config` bounds what waits.

    Entering raises the error of the service if it cannot be reached.  TypeError or ValueError, in
    one line, if an argument is invalid.
    """
    return Ordered(
        service_of(service, name), managers=managers, first=first, policy=policy, config=config
    )


def total(node: Node, topics: Topic | Sequence[Topic], managers: Sequence[Member]) -> Ordered:
    """The result of ``node.subscribe(topics, order="total", managers=...)``: a member of its own.

    If the node's address is among `managers`, the first member there takes it as its name.
    """
    wanted = [topics] if isinstance(topics, str) else list(topics)
    if not wanted:
        raise ValueError("subscribe to at least one topic")
    name: Member = node.address
    if name not in managers or name in members_at(node):
        name = f"{node.address}~{secrets.token_hex(4)}"
    return Ordered(CubecastService(name, node), managers=managers, topics=wanted)


def service_of(service: Any, name: Member | None) -> EventService:
    """The event service for a member of that name."""
    if isinstance(service, Node):
        return CubecastService(service.address if name is None else name, service)
    if all(hasattr(service, part) for part in PARTS):
        if name not in (None, service.name):
            raise ValueError(f"the service calls this member {service.name!r}, not {name!r}")
        found: EventService = service
        return found
    name = f"member-{secrets.token_hex(8)}" if name is None else name
    if _is_from(service, "nats.aio.client"):
        return NatsService(name, service)
    if _is_from(service, "redis.asyncio.client"):
        return RedisService(name, service)
    raise TypeError(f"order across topics needs {EXPECTED}, not {_described(service)}")


@asynccontextmanager
async def connected(
    address: str, *, secret: str = "", tls: Tls | None = None, listen: str = "127.0.0.1:0"
) -> AsyncIterator[Any]:
    """A service for `ordered`, by an address: nats://..., redis://..., or host:port of a node.

    A new node, which listens on `listen`, joins that node with the cluster's `secret` or `tls`.
    `CubecastError`, in one line, if there is no answer or the client's package is not installed.
    """
    if address.startswith(("nats://", "tls://")):
        connection = await _nats(address)
        try:
            yield connection
        finally:
            await connection.close()
    elif address.startswith(("redis://", "rediss://")):
        client = await _redis(address)
        try:
            yield client
        finally:
            await client.aclose()
    elif "://" in address:
        raise ValueError(f"an address is nats://..., redis://... or host:port, not {address!r}")
    else:
        shell = Shell(NodeConfig(listen=listen, secret=secret, **tls_keys(tls)))
        await shell.start(address)
        try:
            yield shell.node
        finally:
            await shell.node.close()


async def _nats(address: str) -> Any:
    async def on_error(error: Exception) -> None:
        log.info("NATS at %s: %r", address, error)

    connect = _imported("nats", "nats").connect
    try:
        return await asyncio.wait_for(connect(address, error_cb=on_error), CONNECT_S)
    except TimeoutError:
        raise CubecastError(f"no answer from {address} in {CONNECT_S:g} s") from None


async def _redis(address: str) -> Any:
    client = _imported("redis.asyncio", "redis").from_url(address)
    try:
        await asyncio.wait_for(client.ping(), CONNECT_S)
    except Exception as error:
        await client.aclose()
        raise CubecastError(f"no answer from {address}: {error}") from None
    return client


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        advice = f"pip install 'cubecast[{extra}]'"
        raise CubecastError(f"{extra}:// needs a package that is not here: {advice}") from None


def _is_from(service: Any, module: str) -> bool:
    """Whether an object's class, or a base of it, is from a module, which is not imported."""
    return any(kind.__module__ == module for kind in type(service).__mro__)


def _described(service: Any) -> str:
    """The type of the argument, with advice if it is near to what is needed."""
    kind = type(service)
    if isinstance(service, Client):
        return "a light client, which is no member: join the cluster with cubecast.join"
    if kind.__module__.startswith("redis"):
        return f"{kind.__module__}.{kind.__name__}: make it with redis.asyncio.from_url"
    if isinstance(service, str):
        return f"the address {service!r}: connect to it first"
    return f"{kind.__module__}.{kind.__name__}"
