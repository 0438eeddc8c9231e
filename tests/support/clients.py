"""Light clients for tests: on real sockets, some spoken by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import cubecast
from cubecast.errors import CubecastError
from cubecast.net.client.client import Client
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.node.node import Node
from cubecast.net.wire.clients import (
    FromClient,
    FromNode,
    decode_from_node,
    encode,
)
from cubecast.net.wire.hello import Attached, AttachRequest
from cubecast.net.wire.packets import CLIENT
from cubecast.testing.dialler import Dialler


async def read_to_the_end(messages: RemoteSubscription) -> tuple[list[bytes], Exception]:
    """What can still be read, and what is raised then."""
    read: list[bytes] = []
    try:
        while True:
            read.append((await anext(messages)).payload)
    except CubecastError as error:
        return read, error


async def settle() -> None:
    """Let everything happen that can happen without a reader."""
    for _ in range(200):
        await asyncio.sleep(0.001)


@asynccontextmanager
async def connected(nodes: list[Node]) -> AsyncIterator[list[Client]]:
    """One client on each node."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(cubecast.connect(node.address)) for node in nodes]


class RawClient(Dialler):
    """A client that says what a test wants it to say, and reads only when told to."""

    async def attach(self, secret: str = "") -> None:
        await self.authenticate(secret, purpose="client")
        self.greet(AttachRequest())
        assert isinstance(await self.greeting(), Attached)

    def say(self, message: FromClient) -> None:
        self.write(encode(message))

    async def hear(self) -> FromNode:
        packet = await self.packet()
        assert packet is not None
        kind, body = packet
        assert kind == CLIENT
        return decode_from_node(body)


@asynccontextmanager
async def raw_client(node: Node, secret: str = "") -> AsyncIterator[RawClient]:
    client = await RawClient.dial(node.address)
    assert isinstance(client, RawClient)
    try:
        await client.attach(secret)
        yield client
    finally:
        await client.close()
