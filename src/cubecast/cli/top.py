"""``cubecast top``: the numbers of all nodes of a cluster, on one screen or for scripts.

It attaches to each node as a light client.  A round asks all of them at the same time; a node
that does not answer within `ANSWER_S` is shown as such and asked again in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import typer
from rich.live import Live

import cubecast
from cubecast.cli.config import (
    DEFAULT_NODE,
    AtOption,
    ConfigOption,
    Credentials,
    NameFlag,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    cluster_access,
)
from cubecast.cli.output import console, refuse
from cubecast.cli.running import run, stop_signal
from cubecast.cli.top_screen import screen

ANSWER_S = 3.0
MOST_NODES = 64
"""Nodes that are asked; of a larger cluster those with the lowest slots."""
ONCE_S = 1.0
"""The time over which --once takes rates."""


class SilentNode(msgspec.Struct, frozen=True):
    """A node that gave no numbers, and why."""

    address: str
    reason: str
    node: int = -1


class Round(msgspec.Struct, frozen=True):
    """The answers of one round, by slot; nodes without an answer come after them."""

    nodes: list[cubecast.Stats]
    silent: list[SilentNode]


def top(
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    node: Annotated[
        int | None, typer.Option(metavar="N", help="Show node N alone, with all its topics.")
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time from one look to the next.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once, for about a second, and end.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the topics for replies to requests, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a look, on one line.")
    ] = False,
) -> None:
    """Show what the nodes of a cluster do: rates, queues, lags, views; until Ctrl-C.

    \b
    published, delivered   messages a second
    unread                 delivered, and not yet read by the slowest readers here
    in flight              published here, and not yet taken in by all subscribers
    waiting                messages that are here before their causes
    behind                 own messages that other nodes have not taken in yet

    At most 64 nodes are asked. Permissions hide topics that you may not see;
    the sums count them.

    Examples:

    \b
      cubecast top
      cubecast top --node 2 --every 0.5
      cubecast top --once
      cubecast top --json | jq '.nodes[].rates.delivered'
    """
    if not 0.1 <= every <= 3600:
        refuse("top", f"--every must be from 0.1 to 3600 s, not {every:g}")
    known = cluster_access("top", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    run("top", _top(at, known, Looking(node, every, once, as_json, everything)))


@dataclass(frozen=True, slots=True)
class Looking:
    """The options of the display."""

    node: int | None
    every_s: float
    once: bool
    as_json: bool
    replies: bool
    """Whether topics for replies to requests are shown; JSON has them always."""


@dataclass(slots=True)
class ClusterWatch:
    """The nodes that we are attached to, by address; at most `MOST_NODES`."""

    access: Credentials
    only: int | None
    clients: dict[str, tuple[AbstractAsyncContextManager[cubecast.Client], cubecast.Client]] = (
        field(default_factory=dict)
    )
    known: dict[str, int] = field(default_factory=dict)
    """Address -> slot, of nodes that answers named."""

    async def begin(self, at: str) -> None:
        """Attach to the first node; `AttachError` if there is none."""
        await self._attach(at)

    async def look(self) -> Round:
        """Ask all nodes: first those that we are attached to, then those that they name."""
        answers = await self._ask(list(self.clients))
        fresh = [one for one in answers if isinstance(one, cubecast.Stats)]
        if fresh:
            self.known = dict(sorted(_places(fresh), key=lambda place: place[1])[:MOST_NODES])
            answers += await self._ask_newcomers()
        stats = {one.node: one for one in answers if isinstance(one, cubecast.Stats)}
        silent = {one.address: one for one in answers if isinstance(one, SilentNode)}
        if self.only is not None:
            stats = {slot: one for slot, one in stats.items() if slot == self.only}
        named = [
            SilentNode(address, one.reason, self.known[address])
            for address, one in silent.items()
            if address in self.known and self.only in (None, self.known[address])
        ]
        return Round([stats[slot] for slot in sorted(stats)], named)

    async def _ask_newcomers(self) -> list[cubecast.Stats | SilentNode]:
        attached = {client.address for _, client in self.clients.values()} | self._own()
        wanted = (
            address
            for address, slot in self.known.items()
            if address not in attached and self.only in (None, slot)
        )
        new = list(wanted)[: max(0, MOST_NODES - len(self.clients))]
        errors = await asyncio.gather(*map(self._attach_quietly, new))
        asked = await self._ask([one for one, error in zip(new, errors, strict=True) if not error])
        failed = [SilentNode(one, error) for one, error in zip(new, errors, strict=True) if error]
        return [*asked, *failed]

    def _own(self) -> set[str]:
        """Cluster addresses of the nodes that we are attached to, perhaps under another address."""
        slots = {client.slot for _, client in self.clients.values()}
        return {address for address, slot in self.known.items() if slot in slots}

    async def _ask(self, addresses: Iterable[str]) -> list[cubecast.Stats | SilentNode]:
        return list(await asyncio.gather(*map(self._read, addresses)))

    async def _read(self, address: str) -> cubecast.Stats | SilentNode:
        _, client = self.clients[address]
        try:
            async with asyncio.timeout(ANSWER_S):
                return await client.stats()
        except TimeoutError:
            reason = f"no answer in {ANSWER_S:g} s"
        except cubecast.CubecastError as error:
            reason = str(error)
        await self._detach(address)
        return SilentNode(address, reason, client.slot)

    async def _attach(self, address: str) -> None:
        attaching = self.access.connect(address)
        client = await attaching.__aenter__()
        self.clients[address] = attaching, client

    async def _attach_quietly(self, address: str) -> str:
        """Attach to a node that others named; return the reason of a failure, or ""."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._attach(address)
        except TimeoutError:
            return f"no answer in {ANSWER_S:g} s"
        except cubecast.AttachError as error:
            return next(iter(error.reasons.values()))
        return ""

    async def _detach(self, address: str) -> None:
        attaching, _ = self.clients.pop(address)
        with suppress(cubecast.CubecastError):
            await attaching.__aexit__(None, None, None)

    async def close(self) -> None:
        """Detach from all nodes."""
        await asyncio.gather(*map(self._detach, list(self.clients)))


def _places(fresh: list[cubecast.Stats]) -> list[tuple[str, int]]:
    """(address, slot) of nodes, as they and others report."""
    named = {link.address: link.slot for one in fresh for link in one.links}
    return list({**named, **{one.address: one.node for one in fresh}}.items())


async def _top(at: str, access: Credentials, how: Looking) -> None:
    watch = ClusterWatch(access, how.node)
    await watch.begin(at)
    stopped = asyncio.Event()
    undo = stop_signal(stopped.set)
    try:
        if how.once:
            await watch.look()
            await _sleep(ONCE_S, stopped)
            _print(await watch.look(), how)
        elif how.as_json or not console.is_terminal:
            while not stopped.is_set():
                _print(await _next(watch, at), how)
                await _sleep(how.every_s, stopped)
        else:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while not stopped.is_set():
                    found = await _next(watch, at)
                    shown = screen(found, how.node, *console.size, how.replies)
                    live.update(shown, refresh=True)
                    await _sleep(how.every_s, stopped)
    finally:
        await watch.close()
        undo()


async def _next(watch: ClusterWatch, at: str) -> Round:
    """The next round; if we are attached to no node, begin again at the first address."""
    if not watch.clients:
        for address in [at, *watch.known]:
            if not await watch._attach_quietly(address):
                break
    return await watch.look()


async def _sleep(seconds: float, stopped: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopped.wait()


def _print(found: Round, how: Looking) -> None:
    if how.node is not None and not found.nodes and how.once:
        raise ValueError(f"there is no node {how.node}")
    if how.as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        console.print(screen(found, how.node, console.width, None, how.replies))
