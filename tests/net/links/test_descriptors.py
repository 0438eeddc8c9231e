"""A process with few file descriptors: members come before clients, clients before strangers."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import cubecast
from cubecast.errors import AttachError
from cubecast.net.links import descriptors
from cubecast.net.links.descriptors import Places, Shortage, find_places, places
from cubecast.net.links.transport import Factory, TcpNetwork
from cubecast.net.node.shell import shell_of
from cubecast.testing.dialler import Dialler
from support.clients import raw_client
from support.live import TOPIC, cluster, live, until
from support.terminal import in_front

FEW = 96


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (20_000, 10, Places(256, 1000)),
        (2522, 10, Places(256, 1000)),
        (2520, 10, Places(256, 999)),
        (1024, 24, Places(125, 375)),
        (96, 16, Places(16, 24)),
        (64, 16, Places(16, 8)),
        (16, 16, Places(16, 0)),
        (sys.maxsize, 0, Places(256, 1000)),
    ],
)
def test_clients_and_strangers_share_half_of_the_descriptors(
    limit: int, used: int, expected: Places
) -> None:
    assert places(256, 1000, limit, used) == expected


def test_a_low_limit_is_told_with_what_to_raise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "descriptors_in_use", lambda: 16)
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 96)
    with caplog.at_level(logging.INFO, "cubecast"):
        assert find_places(256, 1000) == Places(16, 24)
        assert find_places(16, 24) == Places(16, 24)
        monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 1024)
        find_places(256, 1000)
    low, common = caplog.records
    assert low.levelname == "WARNING"
    assert "may open 96 files and has 16: the node takes 24 clients" in low.getMessage()
    assert "raise the limit to 2528" in low.getMessage()
    assert common.levelname == "INFO", "which the defaults are too large for on many systems"


def test_a_shortage_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    shortage = Shortage(lambda: now)
    error = OSError(errno.EMFILE, "Too many open files")
    for _ in range(1000):
        shortage.notice("accept a connection", error)
    now += 10.0
    shortage.notice("accept a connection", error)
    first, second = (record.getMessage() for record in caplog.records)
    assert "cannot accept a connection: Too many open files (1 times" in first
    assert "(1001 times so far" in second


# -- a process of its own --------------------------------------------------------------------------


@contextmanager
def node_with_few_descriptors(log: Path) -> Iterator[str]:
    """The address of a node in a process that may open `FEW` files."""
    command = [sys.executable, "-m", "cubecast.cli.main", "node", "--listen", "127.0.0.1:0"]
    with log.open("w", encoding="utf-8") as errors, in_front():
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW)),
        )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rsplit(" ", 1)[1]
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


class Flood:
    """Strangers that dial, say nothing and stay."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._open: list[asyncio.StreamWriter] = []
        self.count = 0

    async def __aenter__(self) -> Flood:
        self._task = asyncio.create_task(self._dial())
        return self

    async def _dial(self) -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, int(self._port))
                self._open.append(writer)
                self.count += 1
            await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        for writer in self._open:
            writer.transport.abort()


def test_a_flood_of_strangers_keeps_no_member_out(tmp_path: Path) -> None:
    """Members join and deliver meanwhile and after; the log says why strangers are turned away."""
    log = tmp_path / "log"

    @live
    async def story(address: str) -> None:
        async with cubecast.join(address) as first, Flood(address) as flood:
            await until(lambda: flood.count > 3 * FEW)
            async with cubecast.join(address) as second, second.subscribe(TOPIC) as messages:
                await first.publish(TOPIC, "hello")
                assert (await anext(messages)).payload == b"hello"
                async with cubecast.connect(address) as client:
                    assert sorted(await client.members()) == [0, 1, 2]
            count = flood.count
            await until(lambda: flood.count > count + FEW)
            assert sorted(first.members) == [0, 1]

    with node_with_few_descriptors(log) as address:
        story(address)
    said = log.read_text()
    assert f"the process may open {FEW} files" in said
    assert "strangers at a time" in said
    assert said.count("Too many open files") <= 3


def test_clients_that_take_all_their_places_keep_no_member_out(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @live
    async def story(address: str) -> None:
        async with AsyncExitStack() as stack:
            reason = ""
            while not reason:
                try:
                    await stack.enter_async_context(cubecast.connect(address))
                except AttachError as error:
                    reason = str(error)
            assert "24 clients already, all it may open files for" in reason
            node = await stack.enter_async_context(cubecast.join(address))
            messages = await stack.enter_async_context(node.subscribe(TOPIC))
            other = await stack.enter_async_context(cubecast.join(address))
            await other.publish(TOPIC, "hello")
            assert (await anext(messages)).payload == b"hello"

    with node_with_few_descriptors(log) as address:
        story(address)


# -- descriptors that run out all the same ---------------------------------------------------------


class Exhausted(TcpNetwork):
    """Cannot dial for want of a descriptor as long as `is_full` says so."""

    def __init__(self) -> None:
        self.full = False

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        await super().dial(factory, host, port)


@live
async def test_a_member_is_dialled_with_the_descriptor_of_a_stranger_or_a_client() -> None:
    async with cluster(1) as nodes:
        network = Exhausted()
        async with cubecast.join(nodes[0].address, network=network) as node, AsyncExitStack() as st:
            clients = [await st.enter_async_context(raw_client(node)) for _ in range(2)]
            stranger = await Dialler.dial(node.address)
            st.push_async_callback(stranger.close)
            await until(lambda: len(shell_of(node).mesh._strangers) == 1)
            network.full = True
            shell_of(node).mesh._connections[0].abort()
            await stranger.ended()
            assert len(shell_of(node).guests._sessions) == 2, "strangers go first"
            shell_of(node).mesh._make_room_for(0, OSError(errno.EMFILE, "Too many open files"))
            await clients[1].ended()
            assert len(shell_of(node).guests._sessions) == 1, "then the client that came last"
            network.full = False
            async with node.subscribe(TOPIC) as messages:
                await nodes[0].publish(TOPIC, "hello")
                assert (await anext(messages)).payload == b"hello"


@live
async def test_a_node_that_cannot_accept_goes_on_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(1) as nodes:
        strangers = [await Dialler.dial(nodes[0].address) for _ in range(9)]
        await until(lambda: len(shell_of(nodes[0]).mesh._strangers) == 9)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        host, _, port = nodes[0].address.rpartition(":")
        loop = asyncio.get_running_loop()
        with socket.socket() as late:
            late.setblocking(False)
            low = descriptors.descriptors_in_use() - 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
            try:
                await loop.sock_connect(late, (host, int(port)))
                await until(lambda: len(shell_of(nodes[0]).mesh._strangers) < 9)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await until(lambda: any("Too many open files" in one for one in caplog.messages))
        for one in strangers:
            await one.close()
        async with cubecast.join(nodes[0].address) as node:
            assert sorted(node.members) == [0, 1]
