"""Live nodes for tests: small clusters on real sockets, and what tests wait for and judge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import wraps
from typing import Any

from cubecast.errors import NotSent, Unknown
from cubecast.net.events import Events
from cubecast.net.links.faults import Rule
from cubecast.net.message import Message
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.config import Config
from cubecast.testing.dialler import Dialler
from cubecast.trace import Record, check

PATIENCE_S = 30.0
TOPIC = "chat/room1"
AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def live(test: AsyncTest) -> Callable[..., None]:
    """Run a test in a fresh loop; fail if it takes too long or a callback of the loop failed."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(guarded(test(*args, **kwargs)))

    return run


async def guarded(work: Awaitable[None], patience_s: float = PATIENCE_S) -> None:
    failures: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    async with asyncio.timeout(patience_s):
        await work
    assert not failures


def small_window(window: int = 4096) -> Config:
    """The delays of one machine with little credit."""
    return Config(
        window=window,
        ack_delay=1_000,
        stable_delay=20_000,
        resend_after=500_000,
        resend_max=8_000_000,
    )


@asynccontextmanager
async def cluster(
    count: int, *, trace: list[Record] | None = None, **config: Any
) -> AsyncIterator[list[Node]]:
    """`count` nodes; each joins through the one before it, so most are redirected."""
    nodes: list[Node] = []
    try:
        for _ in range(count):
            await join(nodes, trace=trace, **config)
        yield nodes
    finally:
        for node in reversed(nodes):
            with suppress(NotSent, Unknown):  # what is left is for the tests that look at it
                await node.close()


async def join(nodes: list[Node], *, trace: list[Record] | None = None, **config: Any) -> Node:
    """Start one more node, through the last of `nodes`."""
    node = Shell(NodeConfig(**config), trace=trace).node
    await shell_of(node).start(nodes[-1].address if nodes else None)
    nodes.append(node)
    return node


@asynccontextmanager
async def subscribed(nodes: list[Node], topic: str = TOPIC) -> AsyncIterator[list[Subscription]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(node.subscribe(topic)) for node in nodes]


async def take(subscription: Subscription, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages.append(await anext(subscription))
    return messages


def judge(records: list[Record], publications: int) -> None:
    report = check(records)
    assert report.ok, report.violations[:3]
    assert report.gaps == report.discards == 0
    assert report.publications == publications


@asynccontextmanager
async def raw(node: Node) -> AsyncIterator[Dialler]:
    """A connection spoken by hand: as much of the protocol as a test wants it to."""
    client = await Dialler.dial(node.address)
    try:
        yield client
    finally:
        await client.close()


CUT = Rule(cut=True)


def quick_repair() -> Config:
    """The delays of one machine, with repairs soon enough for a test."""
    return Config(
        window=64 * 1024,
        ack_delay=1_000,
        stable_delay=5_000,
        resend_after=20_000,
        resend_max=160_000,
    )


async def talk(node: Node, count: int) -> None:
    """Publish so that messages do not share a frame."""
    for number in range(count):
        await node.publish(TOPIC, f"{node.slot}:{number}")
        await asyncio.sleep(0.0005)


async def still_works(nodes: list[Node], subscriptions: list[Subscription]) -> None:
    for node in nodes:
        await node.publish(TOPIC, b"still here")
    for one in subscriptions:
        messages = await take(one, len(nodes))
        assert [message.payload for message in messages] == [b"still here"] * len(nodes)
        assert {message.source for message in messages} == {node.slot for node in nodes}


PATIENT_US = 500_000


def quick() -> NodeConfig:
    """The delays of one machine, but a wave is waited for half a second."""
    protocol = Config(
        window=64 * 1024,
        ack_delay=1_000,
        stable_delay=20_000,
        resend_after=50_000,
        resend_max=200_000,
        mute_after=PATIENT_US,
    )
    return NodeConfig(protocol=protocol, leave_timeout_s=0.2)


async def told(events: Events, kind: type[Any]) -> Any:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fail if it does not come about within the patience of a test."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
