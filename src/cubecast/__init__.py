"""cubecast: causally ordered publish/subscribe without a broker.

async with cubecast.join("127.0.0.1:7400") as node:
    async with node.subscribe("chat/room1") as messages:
        await node.publish("chat/room1", "hello")
        async for message in messages:
            print(message.source, message.seq, message.payload)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cubecast.errors import (
    AttachError,
    Closed,
    ConfigError,
    CubecastError,
    JoinError,
    NameTaken,
    NotAllowed,
    NotSent,
    NotSubscribed,
    Overflow,
    TooManyTopics,
    Unknown,
)

if TYPE_CHECKING:
    from cubecast import logs
    from cubecast.net.callbacks import Listener
    from cubecast.net.client import Client
    from cubecast.net.config import NodeConfig
    from cubecast.net.events import (
        CallbackFailed,
        ConnectionLost,
        CutDenied,
        Discarded,
        Event,
        Excluded,
        Gap,
        MemberJoined,
        MemberLeft,
        MemberMute,
        PublisherBlocked,
        Returned,
        SlowSubscriber,
    )
    from cubecast.net.faults import LinkFaults, Rule
    from cubecast.net.node import Node
    from cubecast.net.pipeline import ClientReceipt
    from cubecast.net.receipt import Receipt
    from cubecast.net.remote import RemoteSubscription
    from cubecast.net.settings import load_config
    from cubecast.net.stats import Stats
    from cubecast.net.subscription import Message, Policy, Subscription
    from cubecast.net.tls import Tls
    from cubecast.net.transport import Network
    from cubecast.ordering.config import OrderedConfig
    from cubecast.ordering.library import ordered
    from cubecast.ordering.live import Ordered
    from cubecast.ordering.unread import OrderedMessage
    from cubecast.trace import Record

__version__ = "0.1.0"

__all__ = [
    "AttachError",
    "CallbackFailed",
    "Client",
    "ClientReceipt",
    "Closed",
    "ConfigError",
    "ConnectionLost",
    "CubecastError",
    "CutDenied",
    "Discarded",
    "Event",
    "Excluded",
    "Gap",
    "JoinError",
    "LinkFaults",
    "Listener",
    "MemberJoined",
    "MemberLeft",
    "MemberMute",
    "Message",
    "NameTaken",
    "Network",
    "Node",
    "NodeConfig",
    "NotAllowed",
    "NotSent",
    "NotSubscribed",
    "Ordered",
    "OrderedConfig",
    "OrderedMessage",
    "Overflow",
    "Policy",
    "PublisherBlocked",
    "Receipt",
    "RemoteSubscription",
    "Returned",
    "Rule",
    "SlowSubscriber",
    "Stats",
    "Subscription",
    "Tls",
    "TooManyTopics",
    "Unknown",
    "__version__",
    "connect",
    "join",
    "load_config",
    "logs",
    "ordered",
    "start",
]


_PLACES = {
    "CallbackFailed": "cubecast.net.events",
    "Client": "cubecast.net.client",
    "ClientReceipt": "cubecast.net.pipeline",
    "ConnectionLost": "cubecast.net.events",
    "CutDenied": "cubecast.net.events",
    "Discarded": "cubecast.net.events",
    "Event": "cubecast.net.events",
    "Excluded": "cubecast.net.events",
    "Gap": "cubecast.net.events",
    "LinkFaults": "cubecast.net.faults",
    "Listener": "cubecast.net.callbacks",
    "MemberJoined": "cubecast.net.events",
    "MemberLeft": "cubecast.net.events",
    "MemberMute": "cubecast.net.events",
    "Message": "cubecast.net.subscription",
    "Network": "cubecast.net.transport",
    "Node": "cubecast.net.node",
    "NodeConfig": "cubecast.net.config",
    "Ordered": "cubecast.ordering.live",
    "OrderedConfig": "cubecast.ordering.config",
    "OrderedMessage": "cubecast.ordering.unread",
    "Policy": "cubecast.net.subscription",
    "PublisherBlocked": "cubecast.net.events",
    "Receipt": "cubecast.net.receipt",
    "RemoteSubscription": "cubecast.net.remote",
    "Returned": "cubecast.net.events",
    "Rule": "cubecast.net.faults",
    "SlowSubscriber": "cubecast.net.events",
    "Stats": "cubecast.net.stats",
    "Subscription": "cubecast.net.subscription",
    "Tls": "cubecast.net.tls",
    "load_config": "cubecast.net.settings",
    "ordered": "cubecast.ordering.library",
}
"""Where the names are that are imported when they are asked for.

What a process does not use, it does not import: Spark's executors and the commands without a
network need no network stack.
"""

if not TYPE_CHECKING:  # checkers of types see the imports above

    def __getattr__(name: str) -> Any:
        """Import a name of the table ([PEP 562])."""
        if name == "logs":
            return import_module("cubecast.logs")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "logs"})


@asynccontextmanager
async def join(
    seed: str | None,
    *,
    listen: str = "127.0.0.1:0",
    secret: str = "",
    tls: Tls | None = None,
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AsyncIterator[Node]:
    """Join a cluster: ``async with cubecast.join("127.0.0.1:7400") as node``; leave it at the end.

    `seed` is "host:port" of any member, or None to begin a cluster, as `start` does.  `config`
    replaces `listen`, `secret` and `tls` where more is to be set; `trace` collects what the
    application at this node did, for the checkers.  `network` carries the bytes (default: TCP, or
    TLS where `tls` names certificates), `faults` are done to them on purpose.

    Entering raises `JoinError` if there is no answer from `seed` in `join_timeout_s` or we are
    refused (another secret, another version, a certificate), `ConfigError` if the files of `tls`
    cannot be used, `OSError` if `listen` is taken, and `ValueError` if
    it is no address.
    Leaving waits until what was published is with everyone, for at most `leave_timeout_s`; if
    something is left then, it raises what `Node.close` does.
    """
    from cubecast.net.config import NodeConfig
    from cubecast.net.node import Node
    from cubecast.net.tls import tls_keys

    if not (seed is None or isinstance(seed, str)):
        raise TypeError(f'seed must be "host:port" of a member, or None, not {seed!r}')
    config = config or NodeConfig(listen=listen, secret=secret, **tls_keys(tls))
    node = Node(config, trace=trace, network=network, faults=faults)
    await node.start(seed)
    try:
        yield node
    except BaseException:
        with suppress(NotSent, Unknown):  # logged; what went wrong first is what matters
            await node.close()
        raise
    await node.close()


def start(
    listen: str = "127.0.0.1:7400",
    *,
    secret: str = "",
    tls: Tls | None = None,
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AbstractAsyncContextManager[Node]:
    """Begin a cluster: ``async with cubecast.start() as node``, the first, for others to join.

    The arguments, and what it raises, are those of `join`; but it listens on port 7400 by default,
    where commands and light clients look for a node.
    """
    return join(
        None,
        listen=listen,
        secret=secret,
        tls=tls,
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
    name: str = "",
    tls: Tls | None = None,
    timeout_s: float = 10.0,
    network: Network | None = None,
) -> AsyncIterator[Client]:
    """Use a cluster through one of its nodes: ``async with cubecast.connect() as client``.

    The client is no member.  `secret` is that of clients; with a `name`, the token of the client of
    that name.  `addresses` are tried in turn, as in "host:port,host:port",
    `timeout_s` seconds each.  Entering raises `AttachError` if none of them takes us, `ValueError`
    if one is no address; leaving raises `Unknown` if the connection broke with publications under
    way.
    """
    from cubecast.net.client import Client

    client = Client(secret, network, name=name, tls=tls)
    await client.attach(addresses, timeout_s)
    try:
        yield client
    except BaseException:
        await client.close(flush=False)
        raise
    await client.close()
