"""cubecast: one `await publish` per message, `async for` over the subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from cubecast.bench.peers import TOPIC, AsyncClient, Receive
from cubecast.bench.peers.brokerless import nothing as servers
from cubecast.bench.workloads import ANSWERER, ASKER, Task
from cubecast.net.node.shell import Shell
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.port import NodeId
from cubecast.topology import dimension_for, tree

__all__ = ["client", "delay_link", "delayed_edge", "servers"]


def delayed_edge(processes: int) -> tuple[NodeId, NodeId]:
    """The link that mode `delayed` makes late: the last hop of a question to the last process.

    With 3 processes it is that from the asker, with 8 that from process 6 (the way is 0, 4, 6, 7):
    the tree decides.  Answers must reach the last process another way, or they would be as late.
    """
    last, everyone, dimension = processes - 1, (1 << processes) - 1, dimension_for(processes)
    parent = tree(ASKER, everyone, dimension).parent[last]
    assert tree(ANSWERER, everyone, dimension).parent[last] != parent, "answers would be late, too"
    return parent, last


def delay_link(
    shell: Shell,
    peer_address: str,
    seconds: float,
    count: Callable[[int], None] = lambda size: None,
) -> None:
    """Send everything to one peer late, in order; to be replaced by a link fault of the node's.

    `count` is told the size of each packet that is held back.
    """
    mesh = shell.mesh
    send = mesh.send
    loop = asyncio.get_running_loop()
    late: deque[tuple[NodeId, bytes]] = deque()

    def send_oldest() -> None:  # by this queue, as equal times of the loop need not keep order
        peer, packet = late.popleft()
        if not shell.closed:
            send(peer, packet)

    def send_late(peer: NodeId, packet: bytes) -> None:
        if shell.node.members.get(peer) == peer_address:
            count(len(packet))
            late.append((peer, packet))
            loop.call_later(seconds, send_oldest)
        else:
            send(peer, packet)

    mesh.send = send_late  # type: ignore[method-assign]


class CubecastClient(AsyncClient):
    """A node of a cluster; process 0 begins it, and as they open in turn, slots are indices."""

    async def open(self, publishes: bool, subscribes: bool) -> None:
        task = self.task
        addresses = [f"127.0.0.1:{port}" for port in task.ports]
        shell = Shell(self.config(addresses[task.index]))
        await shell.start(addresses[0] if task.index else None)
        self._node = shell.node
        if self._node.slot != task.index:
            raise RuntimeError(f"slot {self._node.slot} was given to process {task.index}")
        if task.mode == "delayed":
            parent, late = delayed_edge(task.processes)
            if task.index == parent:
                delay_link(shell, addresses[late], task.delay_s, self._count)
        self._subscription: Subscription | None = None
        if subscribes:
            self._subscription = await self._node.subscribe(TOPIC).__aenter__()

    def config(self, listen: str) -> NodeConfig:
        """How the node is set up."""
        return NodeConfig(listen=listen)

    def _count(self, size: int) -> None:
        self.delayed_bytes += size

    async def publish(self, payload: bytes) -> None:
        await self._node.publish(TOPIC, payload)

    async def read(self, receive: Receive) -> None:
        assert self._subscription is not None
        async for message in self._subscription:
            answer = receive(message.payload)
            if answer is not None:
                await self._node.publish(TOPIC, answer)

    async def close(self) -> None:
        await self._node.close()


def client(task: Task) -> AsyncClient:
    """A process's end."""
    return CubecastClient(task)
