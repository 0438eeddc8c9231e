"""Order across topics on a real NATS server, and on a cluster of three."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cubecast.errors import Closed
from cubecast.ordering.codec import OrderingError, decode_event, decode_message
from cubecast.ordering.judge import Notification, inversions, repeated
from cubecast.ordering.live import Ordered, OrderedConfig
from cubecast.ordering.services.nats import INBOX, NatsService

nats: Any = pytest.importorskip("nats", reason="nats-py is not installed")

TOPICS = [f"t{number}" for number in range(5)]
SETS = {"s0": TOPICS[:3], "s1": TOPICS[1:], "s2": TOPICS, "s3": [*TOPICS[:2], *TOPICS[3:]]}
PUBLISHERS = [f"p{number}" for number in range(4)]
EVENTS = 400
START_S = 30.0
PATIENT = OrderedConfig(wait_s=60)


def server_program() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server is not installed")
    return found


def free_ports(count: int) -> list[int]:
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in with_ports]
    for one in with_ports:
        one.close()
    return ports


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def servers(count: int) -> Iterator[list[int]]:
    """Servers of one cluster; the ports of their clients."""
    program, ports, routes = server_program(), free_ports(count), free_ports(count)
    peers = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
    running = []
    try:
        for port, route in zip(ports, routes, strict=True):
            command = [program, "-a", "127.0.0.1", "-p", str(port)]
            if count > 1:
                cluster = f"nats://127.0.0.1:{route}"
                command += ["--cluster_name", "c", "--cluster", cluster, "--routes", peers]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        until = time.monotonic() + START_S
        while not all(map(answers, ports)):
            assert time.monotonic() < until, "the servers do not start"
            time.sleep(0.05)
        yield ports
    finally:
        for process in running:
            process.kill()
            process.wait()


class Members:
    """Members of one event service, and what the subscribers among them saw."""

    def __init__(self, ports: list[int], stack: AsyncExitStack) -> None:
        self._ports = ports
        self._stack = stack
        self.ordered: dict[str, Ordered] = {}
        self.seen: dict[str, list[Notification]] = {}

    async def connect(self) -> Any:
        port = self._ports[len(self.ordered) % len(self._ports)]
        connection = await nats.connect(f"nats://127.0.0.1:{port}")
        self._stack.push_async_callback(connection.close)
        return connection

    async def add(self, name: str, managers: list[str]) -> Ordered:
        service = NatsService(name, await self.connect())
        ordered = Ordered(service, managers=managers, first=TOPICS, config=PATIENT)
        self.ordered[name] = await self._stack.enter_async_context(ordered)
        return ordered

    async def read(self, name: str, count: int) -> None:
        """Read so many events."""
        seen = self.seen.setdefault(name, [])
        async for one in self.ordered[name]:
            seen.append(Notification(one.payload, one.topic, one.stamp, one.in_order))
            if len(seen) == count:
                return


async def hold_a_conversation(ports: list[int]) -> Members:
    """Four publishers, five topics, four subscribers of overlapping sets."""
    rng = Random(1)
    events = [(rng.choice(PUBLISHERS), rng.choice(TOPICS)) for _ in range(EVENTS)]
    async with AsyncExitStack() as stack:
        members = Members(ports, stack)
        for name in (*SETS, *PUBLISHERS):
            await members.add(name, PUBLISHERS[:2])
        await asyncio.gather(*(members.ordered[name].subscribe(*SETS[name]) for name in SETS))
        if len(ports) > 1:
            await asyncio.sleep(1)  # the servers tell each other who subscribes, in their own time
        due = {name: sum(topic in SETS[name] for _, topic in events) for name in SETS}
        readers = [asyncio.create_task(members.read(name, due[name])) for name in SETS]
        for number, (publisher, topic) in enumerate(events):
            await members.ordered[publisher].publish(topic, str(number).encode())
        await asyncio.wait_for(asyncio.gather(*readers), 120)
    return members


def run(test: Callable[[list[int]], Awaitable[Members]], ports: list[int]) -> Members:
    async def main() -> Members:
        return await test(ports)

    return asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3], ids=["one server", "a cluster"])
def test_all_subscribers_see_the_same_order_and_nothing_is_tagged_or_lost(count: int) -> None:
    with servers(count) as ports:
        members = run(hold_a_conversation, ports)
    assert inversions(members.seen) == []
    assert repeated(members.seen) == []
    assert len(members.seen["s2"]) == EVENTS
    assert all(one.in_order for seen in members.seen.values() for one in seen)


def test_what_no_ordering_module_sent_is_dropped_and_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def disturbed(ports: list[int]) -> Members:
        async with AsyncExitStack() as stack:
            members = Members(ports, stack)
            reader = await members.add("reader", ["writer"])
            writer = await members.add("writer", ["writer"])
            await reader.subscribe("t0")
            stranger = await members.connect()
            for damaged in (b"", b"no stamp", bytes(range(256)), b"\x92\x91\xa2t0\xc0"):
                await stranger.publish("t0", damaged)
                await stranger.publish(INBOX + "writer", damaged)
            await stranger.flush()
            await writer.publish("t0", b"one")
            await asyncio.wait_for(members.read("reader", 1), 60)
        return members

    with servers(1) as ports:
        members = run(disturbed, ports)
    assert [one.event for one in members.seen["reader"]] == [b"one"]
    assert "an event without a stamp" in caplog.text
    assert "invalid message" in caplog.text


def test_a_service_that_fails_is_told_to_who_publishes_and_who_reads() -> None:
    async def cut(ports: list[int]) -> Members:
        async with AsyncExitStack() as stack:
            members = Members(ports, stack)
            connection = await members.connect()
            ordered = Ordered(NatsService("a", connection), managers=["a"], config=PATIENT)
            await ordered.__aenter__()
            await ordered.subscribe("t0")
            await connection.close()
            await ordered.publish("t0", b"lost")
            with pytest.raises(Closed, match="the event service failed"):
                await asyncio.wait_for(anext(aiter(ordered)), 60)
            with pytest.raises(Closed, match="the event service failed"):
                await ordered.publish("t0", b"refused")
        return members

    with servers(1) as ports:
        run(cut, ports)


@pytest.mark.parametrize("decode", [decode_event, decode_message])
def test_damaged_bytes_are_an_error_with_a_reason(decode: Callable[[bytes], object]) -> None:
    for damaged in (b"", b"\xc1", b"\x93\x01\x02\x03", bytes(64)):
        with pytest.raises(OrderingError):
            decode(damaged)


def test_nobody_to_manage_topics_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        Ordered(NatsService("a", None), managers=[])


def test_a_negative_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="wait_s must not be negative, but is -1"):
        OrderedConfig(wait_s=-1)
