"""Wrong uses of the library, one a row: each is refused early, in one line that says what to do."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec
import pytest

import cubecast
from cubecast.net.client.client import Client
from cubecast.net.node.node import Node
from cubecast.net.topics import MAX_PAYLOAD
from support.commands import COMMAND, at, seed
from support.live import TOPIC, cluster, live

__all__ = ["seed"]  # the fixture

CHUNK = b"x" * 65536
Use = Callable[[Node, Client], Any]
anything: Any = cubecast
"""The library as code without types sees it."""


class Reading(msgspec.Struct):
    celsius: float


async def entered(manager: Any) -> None:
    async with manager:
        pass


def plain_with(manager: Any) -> None:
    with manager:
        pass


async def plain_call(message: object) -> None:
    pass


async def stable(publisher: Any) -> None:
    receipt = await publisher.publish(TOPIC, "x", receipt=True)
    await receipt.stable(timeout=-1)


TABLE: dict[str, tuple[Use, type[Exception], str]] = {
    # -- beginning, joining, attaching
    "start, secret of bytes": (
        lambda n, c: entered(anything.start("127.0.0.1:0", secret=b"x")),
        TypeError,
        "secret must be a str, not bytes: give secret.decode()",
    ),
    "connect, secret of bytes": (
        lambda n, c: entered(anything.connect(n.address, secret=b"x" * 20)),
        TypeError,
        "give secret.decode()",
    ),
    "a secret that is too short": (
        lambda n, c: entered(anything.start("127.0.0.1:0", secret="x")),
        ValueError,
        "`cubecast secret` makes one",
    ),
    "a secret that is a number": (
        lambda n, c: entered(anything.start("127.0.0.1:0", secret=123456789012)),
        TypeError,
        "secret must be a str, not int",
    ),
    "connect, a list": (
        lambda n, c: entered(anything.connect([n.address])),
        TypeError,
        'not a list: give ",".join(addresses)',
    ),
    "connect, a tuple": (
        lambda n, c: entered(anything.connect(("127.0.0.1", 7400))),
        TypeError,
        "not a tuple",
    ),
    "connect, a port alone": (
        lambda n, c: entered(anything.connect(7400)),
        TypeError,
        'addresses must be "host:port"',
    ),
    "connect, nothing": (
        lambda n, c: entered(anything.connect("")),
        ValueError,
        'give "host:port" of a node',
    ),
    "connect, a URL": (
        lambda n, c: entered(anything.connect("http://127.0.0.1:7400")),
        ValueError,
        'write "host:port" without "://"',
    ),
    "connect, a port that is none": (
        lambda n, c: entered(anything.connect("127.0.0.1:99999")),
        ValueError,
        "a port is 0 to 65535",
    ),
    "connect, a negative timeout": (
        lambda n, c: entered(anything.connect(n.address, timeout_s=-1)),
        ValueError,
        "timeout_s must be above 0 seconds, not -1",
    ),
    "connect, a timeout of text": (
        lambda n, c: entered(anything.connect(n.address, timeout_s="5")),
        TypeError,
        "timeout_s must be seconds, as 2.5",
    ),
    "connect, a name with a space": (
        lambda n, c: entered(anything.connect(n.address, name="a b", secret="x" * 12)),
        ValueError,
        "letters, digits",
    ),
    "start, nowhere": (
        lambda n, c: entered(anything.start("")),
        ValueError,
        'listen is empty: give "host:port"',
    ),
    "start, a port alone": (
        lambda n, c: entered(anything.start(7400)),
        TypeError,
        'listen must be "host:port", as "127.0.0.1:7400"',
    ),
    "start, a list": (
        lambda n, c: entered(anything.start(["127.0.0.1:0"])),
        TypeError,
        'listen must be "host:port"',
    ),
    "start, everywhere": (
        lambda n, c: entered(anything.start("0.0.0.0:0")),
        ValueError,
        "set advertise as well",
    ),
    "join, no node": (
        lambda n, c: entered(anything.join("")),
        ValueError,
        "begin a cluster with cubecast.start()",
    ),
    "join, a list": (
        lambda n, c: entered(anything.join([n.address])),
        TypeError,
        'seed must be "host:port" of a member',
    ),
    "join, one's own address": (
        lambda n, c: entered(anything.join("127.0.0.1:7123", listen="127.0.0.1:7123")),
        cubecast.JoinError,
        "is this node's own address: name another member",
    ),
    "config of a dict": (
        lambda n, c: entered(anything.start(config={"secret": ""})),
        TypeError,
        "config must be a NodeConfig, not dict: NodeConfig(**config)",
    ),
    "config and secret": (
        lambda n, c: entered(anything.start(secret="x" * 12, config=cubecast.NodeConfig())),
        ValueError,
        "secret and config exclude each other: give NodeConfig(secret=...)",
    ),
    "config and an address": (
        lambda n, c: entered(anything.start("127.0.0.1:7777", config=cubecast.NodeConfig())),
        ValueError,
        "listen and config exclude each other: give NodeConfig(listen=...) alone",
    ),
    "config and listen": (
        lambda n, c: entered(
            anything.join(n.address, listen="127.0.0.1:0", config=cubecast.NodeConfig())
        ),
        ValueError,
        "listen and config exclude each other: give NodeConfig(listen=...) alone",
    ),
    "config and an address, without async": (
        lambda n, c: cubecast.sync.start("127.0.0.1:7777", config=cubecast.NodeConfig()),
        ValueError,
        "listen and config exclude each other: give NodeConfig(listen=...) alone",
    ),
    "config with a time of 0": (
        lambda n, c: anything.NodeConfig(publish_timeout_s=0),
        ValueError,
        "publish_timeout_s must be above 0",
    ),
    "config with a time of text": (
        lambda n, c: anything.NodeConfig(publish_timeout_s="5"),
        TypeError,
        "publish_timeout_s must be a number",
    ),
    # -- what is entered
    "await start": (
        lambda n, c: anything.start("127.0.0.1:0"),
        TypeError,
        "entered, not awaited: async with cubecast.start(...) as node",
    ),
    "await connect": (
        lambda n, c: anything.connect(n.address),
        TypeError,
        "async with cubecast.connect(...) as client",
    ),
    "with start": (
        lambda n, c: plain_with(anything.start("127.0.0.1:0")),
        TypeError,
        "`async with` does",
    ),
    "publish before it is entered": (
        lambda n, c: anything.connect(n.address).publish(TOPIC, "x"),
        AttributeError,
        "no 'publish' before it is entered: async with",
    ),
    "await subscribe": (
        lambda n, c: n.subscribe(TOPIC),
        TypeError,
        "entered, not awaited: async with node.subscribe(topic) as messages",
    ),
    "with subscribe": (lambda n, c: plain_with(c.subscribe(TOPIC)), TypeError, "`async with` does"),
    "for over a subscription": (
        lambda n, c: list(anything_of(n.subscribe(TOPIC))),
        TypeError,
        "`async for` does",
    ),
    "read before it is entered": (
        lambda n, c: anext(n.subscribe(TOPIC)),
        RuntimeError,
        "async with ... as messages",
    ),
    "await on": (
        lambda n, c: n.on(TOPIC, print),
        TypeError,
        "async with node.on(topic, callback)",
    ),
    # -- topics
    "publish, a list of topics": (
        lambda n, c: anything_of(n).publish([TOPIC], "x"),
        TypeError,
        "not list: call once for each",
    ),
    "client publishes, a list of topics": (
        lambda n, c: anything_of(c).publish([TOPIC], "x"),
        TypeError,
        "not list: call once for each",
    ),
    "subscribe, a list of topics": (
        lambda n, c: anything_of(c).subscribe(["a", "b"]),
        TypeError,
        "subscribe to a pattern such as 'chat/#'",
    ),
    "publish, a topic of bytes": (
        lambda n, c: anything_of(n).publish(b"chat", "x"),
        TypeError,
        "not bytes: give topic.decode()",
    ),
    "publish, no topic": (
        lambda n, c: anything_of(n).publish(None, "x"),
        TypeError,
        "not NoneType: name it",
    ),
    "publish, an empty topic": (
        lambda n, c: n.publish("", "x"),
        ValueError,
        "must not be empty: name it",
    ),
    "publish to a pattern": (
        lambda n, c: c.publish("chat/#", "x"),
        ValueError,
        "publish to each topic by its name",
    ),
    "publish, an endless topic": (
        lambda n, c: n.publish("x" * 2000, "x"),
        ValueError,
        "at most 1024 bytes, not 2000",
    ),
    # -- payloads
    "publish a dict": (
        lambda n, c: anything_of(n).publish(TOPIC, {"a": 1}),
        TypeError,
        "cubecast.codecs.json().encode(...)",
    ),
    "publish None": (
        lambda n, c: anything_of(c).publish(TOPIC, None),
        TypeError,
        "must be bytes or str, not NoneType: encode it",
    ),
    "publish a list": (
        lambda n, c: anything_of(n).publish(TOPIC, [1]),
        TypeError,
        "must be bytes or str, not list",
    ),
    "publish broken text": (
        lambda n, c: n.publish(TOPIC, "\ud800"),
        ValueError,
        "must be valid Unicode; send bytes",
    ),
    "publish too much": (
        lambda n, c: c.publish(TOPIC, bytes(MAX_PAYLOAD + 1)),
        cubecast.NotSent,
        "the most of one message: send it in parts",
    ),
    "headers of a list": (
        lambda n, c: anything_of(n).publish(TOPIC, "x", headers=["a"]),
        TypeError,
        'must be a mapping like {"kind": "news"}',
    ),
    "headers of numbers": (
        lambda n, c: anything_of(c).publish(TOPIC, "x", headers={"a": 1}),
        TypeError,
        "use str()",
    ),
    # -- waiting
    "publish, a negative timeout": (
        lambda n, c: n.publish("new", "x", timeout=-1),
        ValueError,
        "timeout must be 0 or more seconds, not -1",
    ),
    "client publishes, a negative timeout": (
        lambda n, c: c.publish("new", "x", timeout=-1),
        ValueError,
        "timeout must be 0 or more seconds, not -1",
    ),
    "publish, a timeout of text": (
        lambda n, c: anything_of(n).publish("new", "x", timeout="1"),
        TypeError,
        "timeout must be seconds, as 2.5, not '1'",
    ),
    "stable, a negative timeout": (
        lambda n, c: stable(n),
        ValueError,
        "timeout must be 0 or more seconds",
    ),
    "client, stable, a negative timeout": (
        lambda n, c: stable(c),
        ValueError,
        "timeout must be 0 or more seconds",
    ),
    # -- subscriptions
    "a policy that is none": (
        lambda n, c: anything_of(n).subscribe(TOPIC, policy="drop"),
        ValueError,
        "policy must be one of block, drop-oldest, drop-newest, disconnect, not 'drop'",
    ),
    "a queue of nothing": (
        lambda n, c: n.subscribe(TOPIC, queue_bytes=0),
        ValueError,
        "queue_bytes must be at least 1",
    ),
    "a queue of text": (
        lambda n, c: anything_of(c).subscribe(TOPIC, queue_bytes="4MiB"),
        TypeError,
        "queue_bytes must be an int, not str",
    ),
    "an order that is none": (
        lambda n, c: anything_of(n).subscribe(TOPIC, order="fifo"),
        ValueError,
        'order must be one of causal, none, "total"',
    ),
    "a class for a codec": (
        lambda n, c: anything_of(n).subscribe(TOPIC, codec=Reading),
        TypeError,
        "cubecast.codecs.json(Reading)",
    ),
    "a text for a codec": (
        lambda n, c: anything_of(c).subscribe(TOPIC, codec="json"),
        TypeError,
        "must have encode and decode, as cubecast.codecs.json() has",
    ),
    "a typed topic without a codec": (
        lambda n, c: anything.TypedTopic(TOPIC, dict),
        TypeError,
        "cubecast.codecs.json(dict)",
    ),
    "no callback": (
        lambda n, c: anything_of(n).on(TOPIC, None),
        TypeError,
        "must be callable, not NoneType: give the function itself",
    ),
    "a callback that was called": (
        lambda n, c: anything_of(c).on(TOPIC, plain_call(None)),
        TypeError,
        "not coroutine: give the function itself, without ()",
    ),
    "entered twice": (
        lambda n, c: twice(n.subscribe(TOPIC)),
        RuntimeError,
        "to read again, subscribe again",
    ),
}


async def tried(use: Use, node: Node, client: Client) -> None:
    found = use(node, client)
    if inspect.isawaitable(found):
        await found


def anything_of(thing: Any) -> Any:
    """The same without its type."""
    return thing


async def twice(subscription: Any) -> None:
    async with subscription, subscription:
        pass


@pytest.mark.parametrize(("use", "error", "advice"), TABLE.values(), ids=TABLE.keys())
@live
async def test_a_wrong_use_is_told_in_one_line_with_advice(
    use: Use, error: type[Exception], advice: str
) -> None:
    async with cluster(1) as (node,), cubecast.connect(node.address) as client:
        with pytest.raises(error) as caught:
            await tried(use, node, client)
    said = str(caught.value)
    assert advice in said
    assert "\n" not in said
    assert len(said) < 250


def test_there_are_the_uses_of_the_issue_and_thirty_more() -> None:
    assert len(TABLE) >= 8 + 30


# -- ports where no node is ------------------------------------------------------------------------


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def mail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.org ESMTP\r\n")
    await writer.drain()
    await reader.read()
    writer.close()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


PORTS: list[tuple[Callable[[Any, Any], Awaitable[None]], str]] = [
    (web, "it answers HTTP; it does not speak cubecast"),
    (mail, "it answers b'220 mail.example.org ESMTP"),
    (hangs_up, "without an answer: perhaps it does not speak cubecast"),
    (silence, "no answer in 0.3 s: it takes connections and says nothing, so it does not speak"),
]


@pytest.mark.parametrize(("server", "advice"), PORTS, ids=[one.__name__ for one, _ in PORTS])
@live
async def test_a_port_where_no_node_is_does_not_speak_cubecast(server: Any, advice: str) -> None:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    config = cubecast.NodeConfig(join_timeout_s=0.3)
    ways = (
        cubecast.connect(f"{host}:{port}", timeout_s=0.3),
        cubecast.join(f"{host}:{port}", config=config),
    )
    try:
        for way in ways:
            with pytest.raises((cubecast.AttachError, cubecast.JoinError)) as caught:
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(way)  # type: ignore[arg-type]
            assert advice in str(caught.value)
    finally:
        listening.close()


# -- what is accepted ------------------------------------------------------------------------------


@live
async def test_any_buffer_of_bytes_is_a_payload_and_is_copied() -> None:
    async with (
        cluster(1) as (node,),
        cubecast.connect(node.address) as client,
        node.subscribe(TOPIC) as messages,
    ):
        buffer = bytearray(b"bytes")
        for publisher in (node, client):
            await publisher.publish(TOPIC, buffer)
            await publisher.publish(TOPIC, memoryview(buffer)[1:3])
        buffer[:] = b"later"
        read = [(await anext(messages)).payload for _ in range(4)]
        assert read == [b"bytes", b"yt", b"bytes", b"yt"]
        assert all(type(one) is bytes for one in read)


def test_pub_refuses_a_line_beyond_the_limit_before_it_has_read_it(seed: str) -> None:
    """100 MB in one line are offered; the command ends after little more than a message takes."""
    pub = subprocess.Popen(
        [*COMMAND, "pub", "log", *at(seed)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pub.stdin is not None
    given = 0
    with suppress(BrokenPipeError):
        pub.stdin.write(b"first\n")
        for _ in range(100_000_000 // len(CHUNK)):
            pub.stdin.write(CHUNK)
            pub.stdin.flush()
            given += len(CHUNK)
    with suppress(BrokenPipeError):
        pub.stdin.close()
    assert pub.stderr is not None
    said = pub.stderr.read().decode()
    pub.stderr.close()
    assert pub.wait(30) == 2
    assert given < 2 * MAX_PAYLOAD
    assert said.count("\n") == 1
    assert "line 2 has more than 8388608 bytes, the most of one message: split it" in said
