"""``/metrics`` and ``/healthz``: what they answer, to which peers, and how much these can take."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

import cubecast
from cubecast.errors import ConfigError
from cubecast.net.node import metrics
from cubecast.net.node.shell import shell_of
from cubecast.net.settings.config import NodeConfig

TOPIC = "numbers"
LIMIT_S = 60.0


@asynccontextmanager
async def scraped() -> AsyncIterator[cubecast.Node]:
    """A node that serves its numbers on a free port of the loopback."""
    config = NodeConfig(metrics="127.0.0.1:0")
    async with asyncio.timeout(LIMIT_S), cubecast.start(config=config) as node:
        yield node


async def exchange(node: cubecast.Node, request: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    assert shell_of(node).metrics is not None
    host, port = shell_of(node).metrics.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def get(node: cubecast.Node, path: str) -> tuple[str, str]:
    answer = await exchange(node, f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body.encode())}" in head
    return head.split("\r\n")[0], body


def values(text: str) -> dict[str, float]:
    """Every sample that has no labels."""
    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return {sample.name: sample.value for sample in samples if not sample.labels}


def test_metrics_are_the_numbers_of_the_node() -> None:
    async def scenario() -> None:
        async with scraped() as node, node.subscribe(TOPIC) as messages:
            for _ in range(5):
                await node.publish(TOPIC, b"", retain=True)
            await anext(messages)
            status, body = await get(node, "/metrics")
            assert status == "HTTP/1.1 200 OK"
            found = values(body)
            assert found["cubecast_retained_values"] == 1
            assert 0 < found["cubecast_retained_bytes"] < 100
            assert "Retained values kept, at most 1024." in body
            assert found["cubecast_published_messages_total"] == 5
            assert found["cubecast_delivered_messages_total"] == 5
            assert found["cubecast_unread_messages"] == 4
            assert found["cubecast_inside"] == 1
            assert TOPIC not in body, "a label per topic would never end"

    asyncio.run(scenario())


def test_lags_are_told_for_each_other_node() -> None:
    async def scenario() -> None:
        async with scraped() as node, cubecast.join(node.address) as other:
            _, body = await get(node, "/metrics")
            assert f'cubecast_behind_messages{{node="{other.slot}"}} 0.0' in body

    asyncio.run(scenario())


def test_health_is_being_in_a_cluster() -> None:
    async def scenario() -> None:
        async with scraped() as node:
            assert await get(node, "/healthz?now") == ("HTTP/1.1 200 OK", "ok\n")
            shell_of(node).presence.core = None  # as between two views that we are in
            status, body = await get(node, "/healthz")
            assert (status, body) == (
                "HTTP/1.1 503 Service Unavailable",
                "the node is in no cluster\n",
            )
            shell_of(node).presence.core = shell_of(node).presence.last_core

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"hello\r\n\r\n", b"400 Bad Request"),
        (b"\xff\xfe\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, b"431 "),
    ],
    ids=["another path", "POST", "no HTTP", "no text", "too large"],
)
def test_an_unknown_request_is_answered_in_one_line(request_line: bytes, status: bytes) -> None:
    async def scenario() -> None:
        async with scraped() as node:
            answer = await exchange(node, request_line)
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert (await get(node, "/healthz"))[1] == "ok\n"

    asyncio.run(scenario())


def test_a_head_has_no_body() -> None:
    async def scenario() -> None:
        async with scraped() as node:
            answer = await exchange(node, b"HEAD /healthz HTTP/1.0\r\n\r\n")
            assert answer.endswith(b"\r\n\r\n")
            assert b"Content-Length: 3" in answer

    asyncio.run(scenario())


def test_peers_that_say_nothing_are_few_and_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 1.0)

    async def scenario() -> None:
        async with scraped() as node:
            assert shell_of(node).metrics is not None
            host, port = shell_of(node).metrics.address.split(":")
            silent = [
                await asyncio.open_connection(host, int(port)) for _ in range(3 * metrics.MOST_OPEN)
            ]
            while not shell_of(node).metrics._open:
                await asyncio.sleep(0)
            assert len(shell_of(node).metrics._open) <= metrics.MOST_OPEN
            for reader, writer in silent:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            assert (await get(node, "/healthz"))[1] == "ok\n"

    asyncio.run(scenario())


def test_nothing_is_served_after_the_node_has_left() -> None:
    async def scenario() -> None:
        async with scraped() as node:
            assert shell_of(node).metrics is not None
            host, port = shell_of(node).metrics.address.split(":")
        with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
            pass

    asyncio.run(scenario())


def test_a_port_alone_is_on_the_loopback() -> None:
    async def scenario() -> None:
        async with cubecast.start(config=NodeConfig(metrics=":0")) as node:
            assert shell_of(node).metrics is not None
            assert shell_of(node).metrics.address.startswith("127.0.0.1:")

    asyncio.run(scenario())


def test_a_taken_address_is_named() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ConfigError, match=f"metrics cannot listen on {address}"):
                async with cubecast.start(config=NodeConfig(metrics=address)):
                    pass

    asyncio.run(scenario())


def test_without_prometheus_client_healthz_answers_and_metrics_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    async def scenario() -> None:
        async with scraped() as node:
            assert (await get(node, "/healthz"))[1] == "ok\n"
            head, body = await get(node, "/metrics")
            assert head.startswith("HTTP/1.1 501 ")
            assert "pip install 'cubecast[metrics]'" in body

    asyncio.run(scenario())
    assert "/healthz alone; /metrics needs prometheus-client" in caplog.text
