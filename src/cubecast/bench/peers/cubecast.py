"""cubecast: one `await publish` per message, `async for` over the subscription."""

from __future__ import annotations

import asyncio

from cubecast.bench.peers import TOPIC, AsyncClient, Receive
from cubecast.bench.peers.brokerless import servers
from cubecast.bench.workloads import Task
from cubecast.errors import JoinError
from cubecast.net.config import NodeConfig
from cubecast.net.node import Node
from cubecast.net.subscription import Subscription

__all__ = ["client", "servers"]

JOIN_ATTEMPTS = 200
JOIN_PAUSE_S = 0.05


class Client(AsyncClient):
    """A node of a cluster; process 0 begins it."""

    async def open(self, publishes: bool, subscribes: bool) -> None:
        self._node = await self._start()
        self._subscription: Subscription | None = None
        if subscribes:
            self._subscription = await self._node.subscribe(TOPIC).__aenter__()

    async def _start(self) -> Node:
        ports = self.task.ports
        config = NodeConfig(listen=f"127.0.0.1:{ports[self.task.index]}")
        if self.task.index == 0:
            node = Node(config)
            await node.start(None)
            return node
        for attempt in range(JOIN_ATTEMPTS):
            node = Node(config)
            try:
                await node.start(f"127.0.0.1:{ports[0]}")
                return node
            except JoinError:
                if attempt == JOIN_ATTEMPTS - 1:
                    raise
            await asyncio.sleep(JOIN_PAUSE_S)
        raise AssertionError("unreachable")

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
    return Client(task)
