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

from cubecast.errors import Closed, CubecastError, JoinError, NotSent, TooManyTopics
from cubecast.net.config import NodeConfig
from cubecast.net.events import ConnectionLost, Event, MemberJoined, MemberLeft, SlowSubscriber
from cubecast.net.node import Node
from cubecast.net.receipt import Receipt
from cubecast.net.subscription import Message, Policy, Subscription
from cubecast.trace import Record

__version__ = "0.1.0"

logging.getLogger("cubecast").addHandler(logging.NullHandler())  # the application decides

__all__ = [
    "Closed",
    "ConnectionLost",
    "CubecastError",
    "Event",
    "JoinError",
    "MemberJoined",
    "MemberLeft",
    "Message",
    "Node",
    "NodeConfig",
    "NotSent",
    "Policy",
    "Receipt",
    "SlowSubscriber",
    "Subscription",
    "TooManyTopics",
    "__version__",
    "join",
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
) -> AsyncIterator[Node]:
    """Join the cluster that `seed` ("host:port" of any member) belongs to; leave it at the end.

    `config` replaces `listen` and `secret` where more is to be set; `trace` collects what the
    application at this node did, for the checkers.
    """
    node = Node(config or NodeConfig(listen=listen, secret=secret), trace=trace)
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
) -> AbstractAsyncContextManager[Node]:
    """Begin a cluster: the first node, for others to join."""
    return join(None, listen=listen, secret=secret, config=config, trace=trace)
