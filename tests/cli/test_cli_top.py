"""``cubecast top``: nodes, topics and slow readers of a cluster on a screen, or as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console

import cubecast
from cubecast.cli.config import Credentials
from cubecast.cli.top import ClusterWatch, Round, SilentNode
from cubecast.cli.top_screen import rate, screen, size
from support.paths import SOURCE

LIMIT_S = 60.0


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cubecast", "top", *arguments],
        capture_output=True, text=True, timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
    )  # fmt: skip


def drawn(
    found: Round, width: int = 80, height: int | None = None, *, replies: bool = False
) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(screen(found, None, width, height, replies))
    console.file.close()
    return console.export_text()


def test_one_look_shows_every_node_of_the_cluster() -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            cubecast.start("127.0.0.1:0") as first,
            cubecast.join(first.address),
            cubecast.join(first.address) as third,
            third.subscribe("t"),
        ):
            await first.publish("t", "hello")
            shown = await asyncio.to_thread(top, "--at", first.address, "--once")
            told = await asyncio.to_thread(
                top, "--at", third.address, "--once", "--json", "--node", "0"
            )
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "3 nodes" in shown.stdout
        assert max(map(len, shown.stdout.splitlines())) <= 80
        rows = [line.split() for line in shown.stdout.splitlines()]
        assert [row[0] for row in rows if row[-1:] == ["ok"]] == ["0", "1", "2"]
        found = json.loads(told.stdout)
        assert [one["node"] for one in found["nodes"]] == [0]
        assert found["nodes"][0]["published"] == 1

    asyncio.run(scenario())


def test_a_node_that_is_not_there_is_said_in_one_line() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), cubecast.start("127.0.0.1:0") as node:
            done = await asyncio.to_thread(top, "--at", node.address, "--once", "--node", "7")
            assert (done.returncode, done.stderr) == (2, "cubecast top: there is no node 7\n")

    asyncio.run(scenario())


def test_a_node_that_went_is_not_shown_and_one_that_came_is() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), cubecast.start("127.0.0.1:0") as first:
            watch = ClusterWatch(Credentials("", None), None)
            await watch.begin(first.address)
            async with cubecast.join(first.address):
                assert [one.node for one in (await watch.look()).nodes] == [0, 1]
            while (found := await watch.look()).silent:  # a reading may be a moment old
                await asyncio.sleep(0.01)
            assert [one.node for one in found.nodes] == [0]
            await watch.close()

    asyncio.run(scenario())


def test_a_node_that_does_not_answer_is_shown_with_the_reason() -> None:
    found = Round([], [SilentNode("10.0.0.1:7400", "no answer in 3 s", 4)])
    assert "no node answers" in drawn(found)
    assert "no answer in 3 s" in drawn(found)


def test_the_screen_fits_a_terminal_however_many_topics_there_are() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), cubecast.start("127.0.0.1:0") as node:
            for number in range(100):
                await node.publish(f"topic/{number}/\x1b[31m{'long' * 20}", "x")
            while node.stats().topic_count < 100:
                await asyncio.sleep(0.01)
            text = drawn(Round([node.stats()], []), height=24)
        assert len(text.splitlines()) <= 24
        assert "topics more" in text
        assert "\x1b[31m" not in text

    asyncio.run(scenario())


def test_topics_for_replies_are_shown_on_request() -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            cubecast.start("127.0.0.1:0") as node,
            node.on("echo", lambda message: message.payload),
        ):
            await node.request("echo", "hello")
            found = Round([node.stats()], [])
            shown = await asyncio.to_thread(top, "--at", node.address, "--once", "--all")
        assert any(one.topic.startswith("$replies/") for one in found.nodes[0].topics)
        assert "echo" in drawn(found)
        assert "$replies" not in drawn(found)
        assert "$replies" in drawn(found, replies=True)
        assert "$replies" in shown.stdout

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (950, "950 B"), (1536, "1.5 KiB"), (12 << 20, "12 MiB"), (5000 << 30, "5000 GiB")],
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0/s"), (0.25, "0.2/s"), (1234.5, "1,234/s")])
def test_rates_have_units(value: float, text: str) -> None:
    assert rate(value) == text
