"""A node that returns with a request larger than a packet: back in seconds, and told why not."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import cubecast
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.packets import MAX_PACKET
from cubecast.net.wire.views import decode_view, encode_view
from cubecast.protocol.cluster import member as member_module
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Ends, Enter, Who
from cubecast.protocol.port import Stream
from cubecast.testing import Cluster, on_virtual_time
from support.live import CUT, TOPIC, guarded
from support.terminal import in_front

TOPICS, STREAMS = 13, 50_000


def much(topics: int, streams: int) -> Ends:
    return {
        f"topic/{number}": tuple(
            (Stream(slot % 4096, 10**13 + slot), slot) for slot in range(streams)
        )
        for number in range(topics)
    }


def test_a_large_message_is_decoded_without_looking_for_garbage() -> None:
    """Which took three quarters of the time, and the node stood still meanwhile."""
    packet = encode_view(Enter(Who("ab", "127.0.0.1:7400", 7), 3, much(1, STREAMS)))
    looked: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        looked.append(info["generation"])

    gc.collect()
    gc.callbacks.append(look)
    try:
        decode_view(packet)
    finally:
        gc.callbacks.remove(look)
    assert looked.count(1) <= 2, "one at the end, when it is on again"
    assert gc.isenabled()


@pytest.mark.parametrize(("streams", "times"), [(0, 1), (99, 1), (100, 2), (1000, 11)])
@on_virtual_time
async def test_a_large_request_waits_longer_for_its_answer(
    streams: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or who reads it is asked anew before it has answered."""
    monkeypatch.setattr(member_module, "PATIENT_ENTRIES", 100)
    async with Cluster(1) as nodes:
        member = shell_of(nodes[0]).member
        request = Enter(member.who, 0, much(1, streams))
        monkeypatch.setattr(member, "_request", lambda: request)
        monkeypatch.setattr(member, "_contacts", ["memory:1"])
        now = shell_of(nodes[0]).now()
        member._ask_to_enter(now)
        assert member._enter_at == now + times * shell_of(nodes[0]).config.epochs.enter_every


@contextmanager
def nodes_of_their_own() -> Iterator[list[str]]:
    """Two nodes, each in its own process, where no other work stops them."""
    command = [sys.executable, "-m", "cubecast.cli.main", "node", "--listen", "127.0.0.1:0"]
    processes: list[subprocess.Popen[str]] = []
    addresses: list[str] = []
    try:
        for _ in range(2):
            join = ["--join", addresses[0]] if addresses else []
            with in_front():
                one = subprocess.Popen([*command, *join], stdout=subprocess.PIPE, text=True)
            processes.append(one)
            assert one.stdout is not None
            addresses.append(one.stdout.readline().strip().rsplit(" ", 1)[1])
        yield addresses
    finally:
        for one in processes:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()


@pytest.mark.soak
def test_a_node_that_reached_half_a_million_streams_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its request of 18 MB took longer to read than it took to be said again."""
    reached = much(TOPICS, STREAMS)
    assert len(encode_view(Enter(Who("ab", "127.0.0.1:7400", 7), 3, reached))) > MAX_PACKET
    said = CubecastNode.reached

    async def story(addresses: list[str]) -> None:
        async with (
            cubecast.join(addresses[0]) as node,
            cubecast.connect(addresses[0]) as client,
            node.subscribe(TOPIC) as messages,
        ):
            core = shell_of(node).core

            def more(self: CubecastNode, apart: int) -> Ends:
                return {**said(self, apart), **(reached if self is core else {})}

            monkeypatch.setattr(CubecastNode, "reached", more)
            node.faults.set(None, CUT)
            while len(await client.members()) == 3:
                await asyncio.sleep(0.05)
            node.faults.clear()
            while len(node.members) < 3 or len(await client.members()) < 3:
                await asyncio.sleep(0.05)
            reading = asyncio.ensure_future(anext(messages))
            while not reading.done():
                await client.publish(TOPIC, "hello")
                await asyncio.sleep(0.2)
            assert reading.result().payload == b"hello"

    with nodes_of_their_own() as addresses:
        asyncio.run(guarded(story(addresses), 40.0))
