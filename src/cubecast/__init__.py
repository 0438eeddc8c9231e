"""cubecast: causally ordered publish/subscribe without a broker.

async with cubecast.join("127.0.0.1:7400") as node:
    async with node.subscribe("chat/room1") as messages:
        await node.publish("chat/room1", "hello")
        async for message in messages:
            print(message.source, message.seq, message.payload)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cubecast.errors import (
    AttachError,
    Closed,
    ConfigError,
    CubecastError,
    DecodeError,
    JoinError,
    NameTaken,
    NoAnswer,
    NotAllowed,
    NotSent,
    NotSubscribed,
    Overflow,
    RequestFailed,
    TooManyTopics,
    Unknown,
)
from cubecast.opening import OpeningContext, opening
from cubecast.version import __version__

if TYPE_CHECKING:
    from cubecast import codecs, logs, sync, tracing
    from cubecast.net.client.client import Client
    from cubecast.net.client.publishing import ClientReceipt
    from cubecast.net.client.subscription import RemoteSubscription
    from cubecast.net.events import (
        CallbackFailed,
        ConnectionLost,
        CutDenied,
        Detached,
        Discarded,
        Event,
        Excluded,
        Gap,
        MemberJoined,
        MemberLeft,
        MemberMute,
        PublisherBlocked,
        Reattached,
        Returned,
        SlowSubscriber,
    )
    from cubecast.net.links.faults import LinkFaults, Rule
    from cubecast.net.links.transport import Network
    from cubecast.net.message import Message
    from cubecast.net.node.node import Node
    from cubecast.net.node.stats import Stats
    from cubecast.net.publishing.receipt import Receipt
    from cubecast.net.reading.callbacks import Callback, Listener
    from cubecast.net.reading.subscription import Policy, Subscription
    from cubecast.net.requests.answers import Answers
    from cubecast.net.security.tls import Tls
    from cubecast.net.settings.config import NodeConfig
    from cubecast.net.settings.sources import load_config
    from cubecast.net.topics import Payload
    from cubecast.net.wire.headers import Headers
    from cubecast.ordering.config import OrderedConfig
    from cubecast.ordering.library import ordered
    from cubecast.ordering.live import Ordered
    from cubecast.ordering.unread import OrderedMessage
    from cubecast.trace import Record
    from cubecast.typed import TypedTopic


__all__ = [
    "Answers",
    "AttachError",
    "Callback",
    "CallbackFailed",
    "Client",
    "ClientReceipt",
    "Closed",
    "ConfigError",
    "ConnectionLost",
    "CubecastError",
    "CutDenied",
    "DecodeError",
    "Detached",
    "Discarded",
    "Event",
    "Excluded",
    "Gap",
    "Headers",
    "JoinError",
    "LinkFaults",
    "Listener",
    "MemberJoined",
    "MemberLeft",
    "MemberMute",
    "Message",
    "NameTaken",
    "Network",
    "NoAnswer",
    "Node",
    "NodeConfig",
    "NotAllowed",
    "NotSent",
    "NotSubscribed",
    "Ordered",
    "OrderedConfig",
    "OrderedMessage",
    "Overflow",
    "Payload",
    "Policy",
    "PublisherBlocked",
    "Reattached",
    "Receipt",
    "RemoteSubscription",
    "RequestFailed",
    "Returned",
    "Rule",
    "SlowSubscriber",
    "Stats",
    "Subscription",
    "Tls",
    "TooManyTopics",
    "TypedTopic",
    "Unknown",
    "__version__",
    "codecs",
    "connect",
    "join",
    "load_config",
    "logs",
    "ordered",
    "start",
    "sync",
    "tracing",
]


_PLACES = {
    "Answers": "cubecast.net.requests.answers",
    "Callback": "cubecast.net.reading.callbacks",
    "CallbackFailed": "cubecast.net.events",
    "Client": "cubecast.net.client.client",
    "ClientReceipt": "cubecast.net.client.publishing",
    "ConnectionLost": "cubecast.net.events",
    "CutDenied": "cubecast.net.events",
    "Detached": "cubecast.net.events",
    "Discarded": "cubecast.net.events",
    "Event": "cubecast.net.events",
    "Excluded": "cubecast.net.events",
    "Gap": "cubecast.net.events",
    "Headers": "cubecast.net.wire.headers",
    "LinkFaults": "cubecast.net.links.faults",
    "Listener": "cubecast.net.reading.callbacks",
    "MemberJoined": "cubecast.net.events",
    "MemberLeft": "cubecast.net.events",
    "MemberMute": "cubecast.net.events",
    "Message": "cubecast.net.message",
    "Network": "cubecast.net.links.transport",
    "Node": "cubecast.net.node.node",
    "NodeConfig": "cubecast.net.settings.config",
    "Ordered": "cubecast.ordering.live",
    "OrderedConfig": "cubecast.ordering.config",
    "OrderedMessage": "cubecast.ordering.unread",
    "Payload": "cubecast.net.topics",
    "Policy": "cubecast.net.reading.subscription",
    "PublisherBlocked": "cubecast.net.events",
    "Reattached": "cubecast.net.events",
    "Receipt": "cubecast.net.publishing.receipt",
    "RemoteSubscription": "cubecast.net.client.subscription",
    "Returned": "cubecast.net.events",
    "Rule": "cubecast.net.links.faults",
    "SlowSubscriber": "cubecast.net.events",
    "Stats": "cubecast.net.node.stats",
    "Subscription": "cubecast.net.reading.subscription",
    "Tls": "cubecast.net.security.tls",
    "TypedTopic": "cubecast.typed",
    "load_config": "cubecast.net.settings.sources",
    "ordered": "cubecast.ordering.library",
}
"""The modules of names that are imported on first use.

A process imports only what it uses: Spark's executors and the commands without a network need no
network stack.
"""

_MODULES = {"codecs", "logs", "sync", "tracing"}
"""Modules that are imported on first use."""

if not TYPE_CHECKING:  # type checkers see the imports above

    def __getattr__(name: str) -> Any:
        """Import a name of the table ([PEP 562])."""
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value


def __dir__() -> list[str]:
    """The public names, which docs/api.md lists; not what this module imports for itself."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


@opening("async with cubecast.join(...) as node")
async def join(
    seed: str | None,
    *,
    listen: str | None = None,
    advertise: str = "",
    join_timeout_s: float | None = None,
    secret: str = "",
    tls: Tls | None = None,
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AsyncIterator[Node]:
    """Join a cluster: ``async with cubecast.join("127.0.0.1:7400") as node``; leave it at the end.

    `seed` is "host:port" of any member, several as in "a:7400,b:7400", or None to begin a cluster,
    as `start` does.  Seeds that do not answer yet are asked again, more and more seldom, for
    `join_timeout_s` seconds (None: that of the configuration, 10 s).  Once this node has joined
    it does not need its seed any more.

    `listen` is where this node listens (None: any port of 127.0.0.1).  `advertise` is the address
    that others dial, if it is another: behind a NAT, or in a container.  With the default
    of `listen` and a seed on another machine, the node listens on the address by which it reaches
    the seed.

    `config` replaces `listen`, `advertise`, `secret` and `tls` where more is to be set, and
    excludes them (`ValueError`).  `trace` collects what the application at this node did, for the
    checkers.  `network` carries the bytes (default: TCP, or TLS if `tls` names certificates),
    `faults` are injected into it.

    Entering raises `JoinError` if no seed gives this node a place in time or all refuse it
    (another secret, another version, a certificate, a loopback address towards another machine,
    its own address as the only seed), `ConfigError` if the files of `tls`
    cannot be used, `OSError` if `listen` is taken, and `ValueError` if
    it is no address.
    Leaving waits until all publications are stable, for at most `leave_timeout_s`; if some are left
    then, it raises what `Node.close` does.
    """
    from dataclasses import replace

    from cubecast.net.checks import check_config, check_listen, check_seed
    from cubecast.net.node.shell import Shell
    from cubecast.net.security.tls import tls_keys
    from cubecast.net.settings.config import NodeConfig

    if listen is not None:
        check_listen(listen)
    given = {"listen": listen, "advertise": advertise, "secret": secret, "tls": tls}
    check_config(config, NodeConfig, given)
    check_seed(seed)
    config = config or NodeConfig(
        listen=listen or "127.0.0.1:0", advertise=advertise, secret=secret, **tls_keys(tls)
    )
    if join_timeout_s is not None:
        config = replace(config, join_timeout_s=join_timeout_s)
    shell = Shell(config, trace=trace, network=network, faults=faults)
    await shell.start(seed)
    node = shell.node
    try:
        yield node
    except BaseException:
        with suppress(NotSent, Unknown):  # logged; what went wrong first is what matters
            await node.close()
        raise
    await node.close()


def start(
    listen: str | None = None,
    *,
    advertise: str = "",
    secret: str = "",
    tls: Tls | None = None,
    config: NodeConfig | None = None,
    trace: list[Record] | None = None,
    network: Network | None = None,
    faults: LinkFaults | None = None,
) -> AbstractAsyncContextManager[Node]:
    """Begin a cluster: ``async with cubecast.start() as node``, the first, for others to join.

    The arguments, and what it raises, are those of `join`; but it listens on 127.0.0.1:7400 by
    default, where commands and light clients look for a node.  With a `config` it listens where
    that says.
    """
    node = join(
        None,
        listen="127.0.0.1:7400" if listen is None and config is None else listen,
        advertise=advertise,
        secret=secret,
        tls=tls,
        config=config,
        trace=trace,
        network=network,
        faults=faults,
    )
    return OpeningContext(node, "async with cubecast.start(...) as node")


@opening("async with cubecast.connect(...) as client")
async def connect(
    addresses: str = "127.0.0.1:7400",
    *,
    secret: str = "",
    name: str = "",
    tls: Tls | None = None,
    timeout_s: float = 10.0,
    patience_s: float = 0.0,
    retry_unknown: bool = False,
    network: Network | None = None,
) -> AsyncIterator[Client]:
    """Use a cluster through one of its nodes: ``async with cubecast.connect() as client``.

    The client is no member.  `secret` is that of clients; with a `name`, the token of the client of
    that name.  `addresses` are tried in turn, as in "host:port,host:port",
    `timeout_s` seconds each.  Entering raises `AttachError` if no node accepts it, `ValueError` if
    one is no address; leaving raises `Unknown` if the connection broke with publications under way.

    With `patience_s` above 0 the client looks for a node for so many seconds before it gives up:
    when it begins, and whenever its node is lost or leaves.  It tries a lost node first, then the
    others, and goes on there: subscriptions are resumed without repetitions, events
    (`Detached`, `Gap`, `Reattached`) say what they missed, and publications wait meanwhile.  A
    publication under way that the lost node may have sent raises `Unknown`; with
    `retry_unknown=True` it is sent again, and may be delivered twice.
    """
    from cubecast.net.checks import check_addresses, check_timeout
    from cubecast.net.client.shell import ClientShell

    check_addresses(addresses)
    check_timeout("timeout_s", timeout_s, "above 0")
    shell = ClientShell(
        secret, network, name=name, tls=tls, patience_s=patience_s, retry_unknown=retry_unknown
    )
    await shell.attach(addresses, timeout_s)
    client = shell.client
    try:
        yield client
    except BaseException:
        await client.close(flush=False)
        raise
    await client.close()
