"""``/metrics`` and ``/healthz`` of a node over HTTP, for Prometheus and for process supervisors.

The numbers are those of `Node.stats`, read on each request.  They name no topics: a label per topic
would make a time series of every topic that ever existed.

A small server, on asyncio alone.  Bounds, whatever its peers do: `MOST_OPEN` connections (one more
is closed at once), `HEAD_BYTES` of a request, `REQUEST_S` for a request and its answer, then the
connection is closed.  Readings are shared (`Numbers.recent`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cubecast.errors import ConfigError
from cubecast.net.links.address import format_address, is_loopback, parse_address
from cubecast.net.node.stats import Stats
from cubecast.net.node.value_keeper import MAX_BYTES, MAX_VALUES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

MOST_OPEN = 16
DEFAULT_PORT = 9464
HEAD_BYTES = 8192
REQUEST_S = 5.0
PLAIN = "text/plain; charset=utf-8"
INSTALL = "/metrics needs prometheus-client: pip install 'cubecast[metrics]'"

Answer = tuple[str, str, bytes]
"""Status, type, body."""


class Collector:
    """The numbers of a node as metrics; an application may register it in a registry of its own."""

    def __init__(self, read: Callable[[], Stats]) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """No metrics in advance: registering must not take a reading."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One reading, as metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stats = self._read()
        for name, text, value in _counters(stats):
            yield CounterMetricFamily(f"cubecast_{name}", text, value=value)
        for name, text, value in _gauges(stats):
            yield GaugeMetricFamily(f"cubecast_{name}", text, value=value)
        behind = GaugeMetricFamily(
            "cubecast_behind_messages",
            "Own messages that the part of the tree below a node has not taken in yet.",
            labels=["node"],
        )
        backlog = GaugeMetricFamily(
            "cubecast_link_backlog_bytes",
            "Sent to a node, and not taken by the network yet.",
            labels=["node"],
        )
        for link in stats.links:
            behind.add_metric([str(link.slot)], link.behind)
            backlog.add_metric([str(link.slot)], link.backlog_bytes)
        yield behind
        yield backlog


def _counters(stats: Stats) -> list[tuple[str, str, float]]:
    return [
        ("published_messages", "Messages published by this node.", stats.published),
        ("delivered_messages", "Messages delivered to this node's subscribers.", stats.delivered),
        ("dropped_messages", "Messages that policies of subscriptions dropped.", stats.dropped),
        ("views", "Views of the cluster that this node has been in.", stats.views),
    ]


def _gauges(stats: Stats) -> list[tuple[str, str, float]]:
    return [
        ("inside", "1 if the node is in a cluster.", float(stats.inside)),
        ("slot", "The node's place in the cube.", stats.node),
        ("epoch", "The number of the node's view of the cluster.", stats.epoch),
        ("members", "Nodes of the cluster.", stats.members),
        ("suspects", "Nodes that this node takes for dead.", len(stats.suspects)),
        ("clients", "Light clients that are attached.", stats.clients),
        ("client_bytes", "What the node holds for light clients.", stats.client_bytes),
        ("topics", "Topics that the node has to do with.", stats.topic_count),
        ("blocked_topics", "Topics in which a publish has to wait.", stats.blocked),
        ("subscriptions", "Subscriptions, of clients too.", stats.subscription_count),
        ("accepted_messages", "Taken by publish, and not sent yet.", stats.accepted),
        ("in_flight_bytes", "Sent, and not yet taken in by all.", stats.in_flight_bytes),
        ("waiting_streams", "Streams whose next message waits for a cause.", stats.waiting),
        ("held_bytes", "Received, and not delivered yet.", stats.held_bytes),
        ("unread_messages", "Delivered, and not read yet.", stats.unread_messages),
        ("unread_bytes", "Delivered, and not read yet.", stats.unread_bytes),
        ("retained_values", f"Retained values kept, at most {MAX_VALUES}.", stats.retained_values),
        ("retained_bytes", f"What these take, at most {MAX_BYTES}.", stats.retained_bytes),
        ("uptime_seconds", "How long the node runs.", stats.uptime_s),
    ]


def _text_of(shell: Shell) -> Callable[[], bytes] | None:
    """A function that makes the text of ``/metrics``; None without prometheus-client."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        return None
    registry = CollectorRegistry()
    registry.register(Collector(shell.recent_stats))
    return lambda: generate_latest(registry)


class MetricsServer:
    """Answers ``GET /metrics`` and ``GET /healthz`` for one node.

    Without prometheus-client ``/metrics`` answers with 501 and says what to install.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._text = _text_of(shell)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen; `ConfigError` if that is not possible."""
        host, port = parse_address(address, DEFAULT_PORT)
        try:
            self._server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"metrics cannot listen on {address}: {reason}") from None
        bound = self._server.sockets[0].getsockname()
        self.address = format_address(bound[0], bound[1])
        if not is_loopback(bound[0]):
            log.warning("metrics on %s: any host that reaches it can read them", self.address)
        if self._text is None:
            log.warning("metrics on %s: /healthz alone; %s", self.address, INSTALL)

    def close(self) -> None:
        """Answer nothing more."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MOST_OPEN:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(REQUEST_S):
                writer.write(await self._response(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the peer is slow or gone, or the node ends: no answer can be sent
        finally:
            writer.transport.abort()
            self._open.discard(task)

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _encode(("431 Request Header Fields Too Large", PLAIN, b"too large\n"), True)
        except asyncio.IncompleteReadError:
            return b""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _encode(("400 Bad Request", PLAIN, b"this is HTTP: GET /metrics\n"), True)
        method, path = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _encode(("405 Method Not Allowed", PLAIN, b"GET and HEAD alone\n"), True)
        return _encode(self._answer(path), method == b"GET")

    def _answer(self, path: bytes) -> Answer:
        if path == b"/healthz":
            if self._shell.is_inside and not self._shell.closing.begun:
                return "200 OK", PLAIN, b"ok\n"
            return "503 Service Unavailable", PLAIN, b"the node is in no cluster\n"
        if path == b"/metrics":
            if self._text is None:
                return "501 Not Implemented", PLAIN, f"{INSTALL}\n".encode()
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", self._text()
        return "404 Not Found", PLAIN, b"/metrics and /healthz alone\n"


def _encode(answer: Answer, with_body: bool) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
