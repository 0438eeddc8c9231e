"""Live nodes in trouble: a member that does not answer, connections that break in traffic."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import cubecast
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.config import Config
from cubecast.trace import Record
from support.live import TOPIC, cluster, judge, live, subscribed, take

IMPATIENT = Config(
    window=65536, ack_delay=1_000, stable_delay=20_000, resend_after=50_000, resend_max=200_000
)


@asynccontextmanager
async def process_that_joins(seed: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A node in a process of its own, so that it can be stopped as a whole."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cubecast.cli.main", "node"),
        *("--listen", "127.0.0.1:0", "--join", seed),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"node 2 on ")
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        await process.communicate()


async def members(node: Node, slots: set[int]) -> None:
    """Wait until `node` knows exactly these; `live` bounds it."""
    while set(node.members) != slots:
        await asyncio.sleep(0.005)


@live
async def test_a_node_leaves_although_a_member_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It goes after `leave_timeout_s`, and says so; the others go on when the member is back."""
    async with cluster(1) as nodes:
        leaver = Shell(NodeConfig(leave_timeout_s=0.5)).node
        await shell_of(leaver).start(nodes[0].address)
        async with process_that_joins(nodes[0].address) as silent:
            await members(leaver, {0, 1, 2})
            silent.send_signal(signal.SIGSTOP)
            with caplog.at_level(logging.WARNING, "cubecast"):
                await leaver.close()
            assert leaver.closed
            assert "node 1 left without an answer from everyone" in caplog.text
            silent.send_signal(signal.SIGCONT)
            await members(nodes[0], {0, 2})
            async with nodes[0].subscribe(TOPIC) as messages:  # needs an answer of every member
                await nodes[0].publish(TOPIC, b"on we go")
                assert (await anext(messages)).payload == b"on we go"
        await members(nodes[0], {0})


class Cable:
    """A relay in front of a node; cutting it breaks every connection, with what is in them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._ends.add(target)
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(4096):
                target.write(data)
        except ConnectionError:
            pass
        target.close()
        self._ends.discard(target)

    def cut(self) -> None:
        for end in list(self._ends):
            end.transport.abort()
        self._ends.clear()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def cabled(count: int, trace: list[Record]) -> AsyncIterator[tuple[list[Node], Cable]]:
    """Nodes of which the first is known, and reached, only by its cable."""
    port = free_port()
    cable = Cable(port)
    async with (
        await asyncio.start_server(cable.connect, "127.0.0.1", 0) as relay,
        AsyncExitStack() as stack,
    ):
        seen = f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        nodes: list[Node] = []
        for slot in range(count):
            config = NodeConfig(
                protocol=IMPATIENT,
                frame_messages=8,
                listen="127.0.0.1:0" if slot else f"127.0.0.1:{port}",
                advertise="" if slot else seen,
            )
            node = cubecast.join(seen if slot else None, config=config, trace=trace)
            nodes.append(await stack.enter_async_context(node))
        yield nodes, cable


@live
async def test_packets_lost_with_a_connection_are_repaired() -> None:
    """Cut five times in the middle of traffic: told, dialled again, and nothing is missing."""
    trace: list[Record] = []
    each, count, cuts = 400, 4, 5
    async with cabled(count, trace) as (nodes, cable), subscribed(nodes) as subscriptions:
        events = nodes[0].events()

        async def talk(node: Node) -> None:
            for number in range(each):
                await node.publish(TOPIC, f"{node.slot}:{number}")
                await asyncio.sleep(0)

        async def listen(at: int) -> None:
            for number in range(count * each):
                await anext(subscriptions[at])
                if at == 1 and number % (count * each // (cuts + 1)) == 100:
                    cable.cut()

        await asyncio.gather(*map(talk, nodes), *map(listen, range(count)))
        lost = await anext(events)
        assert isinstance(lost, cubecast.ConnectionLost)
        assert lost.slot in {1, 2, 3}
        await nodes[0].publish(TOPIC, b"after all")
        for one in subscriptions:
            assert [message.payload for message in await take(one, 1)] == [b"after all"]
    judge(trace, count * each + 1)
