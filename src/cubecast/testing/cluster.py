"""A cluster of real nodes in one process, on a network in memory with faults on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from itertools import combinations
from random import Random
from types import TracebackType
from typing import Any

from cubecast import connect
from cubecast.errors import NotSent, Unknown
from cubecast.net.client.client import Client
from cubecast.net.links.faults import CLEAR, LinkFaults, Rule
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.cluster.views import process_of
from cubecast.protocol.port import Stream
from cubecast.testing.memory import MemoryNetwork
from cubecast.testing.unsettled import reasons
from cubecast.trace import Record, Report, check

POLL_S = 0.005
SETTLE_S = 60.0


class Cluster:
    """``async with Cluster(8) as cluster``: eight nodes, to talk to by ``cluster[slot]``.

    With a `secret` every connection is authenticated and sealed, as over TCP; `client_secret` is
    that of light clients.  On a `VirtualLoop` two runs of one program with one `seed` leave the
    same trace.
    """

    def __init__(
        self,
        count: int,
        *,
        seed: int = 0,
        trace: bool = True,
        config: NodeConfig | None = None,
        secret: str = "",
        client_secret: str = "",
    ) -> None:
        if count < 1:
            raise ValueError(f"a cluster has at least one node, not {count}")
        self._count = count
        self._seed = seed
        config = config or NodeConfig()
        self._config = replace(
            config,
            secret=secret or config.secret,
            client_secret=client_secret or config.client_secret,
        )
        self._network = MemoryNetwork()
        self._nodes: dict[int, Node] = {}
        self._started = 0
        self._killed: dict[int, str] = {}
        self._used: set[int] = set()
        self._owners: dict[Stream, int] = {}
        self._ended: set[str] = set()
        self._places: dict[str, int] = {}
        """Process -> its name, here and in the trace, whatever its slot is."""
        self._everywhere = CLEAR
        self.trace: list[Record] | None = [] if trace else None
        """What the applications at all nodes did, in order; nodes are named as in ``cluster[0]``
        and keep their names."""

    async def __aenter__(self) -> Cluster:
        try:
            for _ in range(self._count):
                await self.grow()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self.heal()
        for node in reversed(self.nodes):
            with suppress(NotSent, Unknown):  # receipts tell the application
                await node.close()
        self._nodes.clear()

    # -- the nodes -------------------------------------------------------------------------------

    @property
    def places(self) -> dict[int, Node]:
        """The nodes by name."""
        return dict(self._nodes)

    @property
    def nodes(self) -> list[Node]:
        """The nodes, by slot."""
        return [node for _, node in sorted(self._nodes.items())]

    def __getitem__(self, slot: int) -> Node:
        try:
            return self._nodes[slot]
        except KeyError:
            raise KeyError(f"no node {slot}; there are {sorted(self._nodes)}") from None

    def __len__(self) -> int:
        return len(self._nodes)

    async def grow(self) -> Node:
        """One more node joins; it gets the lowest free slot."""
        return await self._start(self._config)

    async def _start(self, config: NodeConfig, place: int | None = None) -> Node:
        random = Random(f"{self._seed}/{self._started}")
        self._started += 1
        shell = Shell(
            config,
            trace=self.trace,
            network=self._network,
            faults=LinkFaults(default=self._everywhere, random=Random(random.random())),
            random=random,
        )
        shell.recorder.former_slots = self._used
        shell.recorder.places = self._place
        shell.recorder.owners = self._owners
        if place is not None:
            self._places[process_of(shell.uid)] = place
        seed = self.nodes[0].address if self._nodes else None
        await shell.start(seed)
        self._nodes[self._place(process_of(shell.uid), shell.slot)] = shell.node
        return shell.node

    def _place(self, process: str, slot: int) -> int:
        """The name of a process: at first its slot, or the next number if that name is taken."""
        place = self._places.get(process)
        if place is None:
            taken = {*self._nodes, *(self._places[one] for one in self._starting())}
            while slot in taken:
                slot += 1
            place = self._places[process] = slot
        return place

    def _starting(self) -> list[str]:
        """Processes that have a name and are not yet among the nodes: they are starting."""
        running = {process_of(node.uid) for node in self._nodes.values()}
        return [one for one in self._places if one not in running and one not in self._ended]

    @property
    def network(self) -> MemoryNetwork:
        """The network of the nodes, for `cubecast.connect(..., network=cluster.network)`."""
        return self._network

    def connect(
        self, *slots: int, secret: str | None = None, name: str = "", **options: Any
    ) -> AbstractAsyncContextManager[Client]:
        """A light client: ``async with cluster.connect(0) as client``.

        The nodes in `slots` are tried in turn, all nodes if there are none.  `secret` is that of
        the cluster's clients if None; with a `name` it is the token of that client.  `options`
        are those of `cubecast.connect`.
        """
        nodes = [self[slot] for slot in slots] if slots else self.nodes
        if secret is None:
            secret = "" if name else self._config.client_secret or self._config.secret
        addresses = ",".join(node.address for node in nodes)
        options = {"network": self._network, **options}
        return connect(addresses, secret=secret, name=name, **options)

    def kill(self, slot: int) -> None:
        """A node ends at once, as its process would by SIGKILL; the others find out."""
        node = self[slot]
        del self._nodes[slot]
        self._killed[slot] = node.address
        self._ended.add(process_of(node.uid))
        shell_of(node).kill()

    async def restart(self, slot: int) -> Node:
        """A node that was killed begins again at its address, without its former state."""
        if slot not in self._killed:
            raise KeyError(
                f"node {slot} was not killed; killed are {sorted(self._killed)}, and a node that "
                "left by shrink() comes back by grow()"
            )
        address = self._killed.pop(slot)
        return await self._start(replace(self._config, listen=address), slot)

    async def begin(self, place: int) -> Node:
        """Start a process with this name, at the address of the killed one with it, if any."""
        if place in self._killed:
            return await self.restart(place)
        return await self._start(self._config, place)

    async def shrink(self, slot: int) -> None:
        """A node leaves gracefully; raises what `Node.close` does."""
        node = self[slot]
        try:
            await node.close()
        finally:
            self._ended.add(process_of(node.uid))
            del self._nodes[slot]

    # -- faults ----------------------------------------------------------------------------------

    def delay(
        self, a: int, b: int, seconds: float, *, jitter: float = 0.0, one_way: bool = False
    ) -> None:
        """Packets between `a` and `b` (`one_way`: from `a` to `b`) take this much longer."""
        self._set(a, b, one_way, delay_s=seconds, jitter_s=jitter)

    def lose(self, a: int, b: int, probability: float, *, one_way: bool = False) -> None:
        """Packets between `a` and `b` are lost with this probability."""
        self._set(a, b, one_way, loss=probability)

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        """Nothing passes between `a` and `b` any more."""
        if one_way:
            self._set(a, b, True, cut_outgoing=True)
        else:
            self._set(a, b, False, cut=True)

    def hinder(self, a: int, b: int, cut: bool) -> None:
        """Nothing gets from `a` to `b`, or it does again; other faults of the link stay."""
        self._set(a, b, True, cut_outgoing=cut)

    def partition(self, *groups: Collection[int]) -> None:
        """Cut all links between the groups; nodes in none of them form one more."""
        named = [slot for group in groups for slot in group]
        if len(named) != len(set(named)):
            raise ValueError(f"a node is in two groups of {groups}")
        unknown = set(named) - self._nodes.keys()
        if unknown:
            raise ValueError(f"no nodes {sorted(unknown)}; there are {sorted(self._nodes)}")
        rest = [slot for slot in self._nodes if slot not in named]
        for one, other in combinations([*groups, rest], 2):
            for a in one:
                for b in other:
                    self.cut(a, b)

    def on_every_link(self, rule: Rule) -> None:
        """`rule` is for every link without faults of its own, and for nodes to come."""
        self._everywhere = rule
        for node in self.nodes:
            node.faults.set(None, rule)

    def heal(self) -> None:
        """End all faults; packets that are delayed arrive when they would have."""
        self._everywhere = CLEAR
        for node in self.nodes:
            node.faults.clear()

    def _set(self, a: int, b: int, one_way: bool, **change: Any) -> None:
        if a == b:
            raise ValueError(f"a link has two ends, not node {a} twice")
        first, second = self[a], self[b]
        for one, other in [(first, second)] if one_way else [(first, second), (second, first)]:
            rule = one.faults.rule(other.slot, other.uid)
            one.faults.set(process_of(other.uid), replace(rule, **change))  # whatever its slot

    # -- time and judgement ----------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    async def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until nothing is in flight and, if no link is cut, all nodes agree on the members.

        What a subscription has not read yet, within its bound, is not in flight.  `TimeoutError`
        says which nodes wait, in which topics and for which nodes, and which subscriptions are
        full.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while busy := self._busy():
                    await asyncio.sleep(POLL_S)
                return
        raise TimeoutError(f"not settled after {timeout_s:g} s: {reasons(self.nodes, busy)}")

    def _busy(self) -> list[Node]:
        apart = any(node.faults.cuts for node in self.nodes)
        slots = sorted(node.slot for node in self.nodes)
        newest = max((node.epoch for node in self.nodes), default=-1)
        return [
            node
            for node in self.nodes
            if not shell_of(node).at_rest()
            or (not apart and (node.epoch != newest or sorted(node.members) != slots))
        ]

    def check(self) -> Report:
        """Judge everything so far; `AssertionError` with a report if something is wrong.

        Messages that are in flight count as missing: `settle` first.  Gaps are counted in the
        report and are right where all subscriptions of the node drop, and where nodes were killed
        or excluded; anywhere else they are wrong.
        """
        if self.trace is None:
            raise ValueError("nothing was recorded: the cluster was made with trace=False")
        report = check(self.trace)
        if not report.ok:
            raise AssertionError(f"the trace breaks what cubecast promises\n{report}")
        return report
