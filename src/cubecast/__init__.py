"""cubecast: causally ordered publish/subscribe without a broker.

async with cubecast.join("127.0.0.1:7400") as node:
    async with node.subscribe("chat/room1") as messages:
        await node.publish("chat/room1", "hello")
        async for message in messages:
            print(message.source, message.seq, message.payload)
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from cubecast.errors import (
    AttachError,
    Closed,
    ConfigError,
    CubecastError,
    JoinError,
    NotSent,
    Overflow,
    TooManyTopics,
    Unknown,
)
from cubecast.net.callbacks import Listener
from cubecast.net.client import Client
from cubecast.net.config import NodeConfig
from cubecast.net.events import (
    CallbackFailed,
    ConnectionLost,
    Event,
    Gap,
    MemberJoined,
    MemberLeft,
    PublisherBlocked,
    SlowSubscriber,
)
from cubecast.net.faults import LinkFaults
from cubecast.net.node import Node
from cubecast.net.pipeline import ClientReceipt
from cubecast.net.receipt import Receipt
from cubecast.net.remote import RemoteSubscription
from cubecast.net.settings import load_config
from cubecast.net.subscription import Message, Policy, Subscription
from cubecast.net.transport import Network
from cubecast.trace import Record

__version__ = "0.1.0"

logging.getLogger("cubecast").addHandler(logging.NullHandler())  # the application decides

__all__ = [
    "AttachError",
    "CallbackFailed",
    "Client",
    "ClientReceipt",
    "Closed",
    "ConfigError",
    "ConnectionLost",
    "CubecastError",
    "Event",
    "Gap",
    "JoinError",
    "Listener",
    "MemberJoined",
    "MemberLeft",
    "Message",
    "Node",
    "NodeConfig",
    "NotSent",
    "Overflow",
    "Policy",
    "PublisherBlocked",
    "Receipt",
    "RemoteSubscription",
    "SlowSubscriber",
    "Subscription",
    "TooManyTopics",
    "Unknown",
    "__version__",
    "connect",
    "join",
    "load_config",
    "start",
]


@asynccontextmanager
async def join(
    seed: str | None,
    *,
    listen: str = "127.0.0.1:0",
    secret: str = "",
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AsyncIterator[Node]:
    """Join the cluster that `seed` ("host:port" of any member) belongs to; leave it at the end.

    `config` replaces `listen` and `secret` where more is to be set; `trace` collects what the
    application at this node did, for the checkers.  `network` carries the bytes (default: TCP),
    `faults` are done to them on purpose.
    """
    config = config or NodeConfig(listen=listen, secret=secret)
    node = Node(config, trace=trace, network=network, faults=faults)
    await node.start(seed)
    try:
        yield node
    finally:
        await node.close()


def start(
    listen: str = "127.0.0.1:7400",
    *,
    secret: str = "",
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AbstractAsyncContextManager[Node]:
    """Begin a cluster: the first node, for others to join."""
    return join(
        None,
        listen=listen,
        secret=secret,
        config=config,
        trace=trace,
        network=network,
        faults=faults,
    )


@asynccontextmanager
async def connect(
    addresses: str = "127.0.0.1:7400",
    *,
    secret: str = "",
    timeout_s: float = 10.0,
    network: Network | None = None,
) -> AsyncIterator[Client]:
    """Use a cluster through one of its nodes, without becoming a member.

    `addresses` are tried in turn, as in "host:port,host:port", `timeout_s` seconds each.
    """
    client = Client(secret, network)
    await client.attach(addresses, timeout_s)
    try:
        yield client
    except BaseException:
        await client.close(flush=False)
        raise
    await client.close()
