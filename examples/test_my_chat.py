"""A user's own tests: a small chat application, tested on a cluster in memory.

    pytest examples/test_my_chat.py

`Chat` is the application; it takes any cubecast node.  The tests need no sockets and no time: the
fixture `cubecast_cluster` is a cluster of three nodes in memory, on virtual time.  When a test has
passed it waits until nothing is in flight, and checks the order of everything that was delivered.
"""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

import cubecast
from cubecast.testing import Cluster

pytest_plugins = ["cubecast.pytest_plugin"]  # in a project of many files: in conftest.py


class Chat:
    """One user in one room: says things, answers questions, remembers the screen."""

    def __init__(self, node: cubecast.Node, name: str, room: str = "chat/lobby") -> None:
        self.node = node
        self.name = name
        self.room = room
        self.screen: list[str] = []

    async def __aenter__(self) -> "Chat":
        self._messages = await self.node.subscribe(self.room).__aenter__()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._messages.close()
        with suppress(cubecast.Closed):  # its node was killed
            await self._reading

    async def say(self, text: str) -> None:
        await self.node.publish(self.room, f"{self.name}: {text}")

    async def _read(self) -> None:
        async for message in self._messages:
            line = message.payload.decode()
            self.screen.append(line)
            if line.endswith("?") and not line.startswith(self.name):
                await self.say(f"I do not know either, {line.split(':')[0]}.")


async def meeting(cluster: Cluster, stack: AsyncExitStack, *names: str) -> list[Chat]:
    while len(cluster) < len(names):
        await cluster.grow()
    chats = [Chat(node, name) for node, name in zip(cluster.nodes, names, strict=True)]
    return [await stack.enter_async_context(chat) for chat in chats]


async def test_everyone_reads_the_question_before_any_answer(cubecast_cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        ann, bob, cem = await meeting(cubecast_cluster, stack, "ann", "bob", "cem")
        cubecast_cluster.delay(0, 2, seconds=1)  # Bob's answer overtakes Ann's question to Cem
        await ann.say("does it work?")
        await cubecast_cluster.settle()
        for chat in (ann, bob, cem):
            assert chat.screen[0] == "ann: does it work?"
            assert sorted(chat.screen[1:]) == [
                "bob: I do not know either, ann.",
                "cem: I do not know either, ann.",
            ]


async def test_nothing_said_during_a_short_partition_is_lost(cubecast_cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        chats = await meeting(cubecast_cluster, stack, "ann", "bob", "cem", "dee")
        cubecast_cluster.partition({0, 1}, {2, 3})
        await chats[0].say("the others are gone")
        await chats[3].say("it is quiet here")
        await asyncio.sleep(0.5)
        assert "dee: it is quiet here" not in chats[0].screen
        cubecast_cluster.heal()
        await cubecast_cluster.settle()
        for chat in chats:
            assert sorted(chat.screen) == ["ann: the others are gone", "dee: it is quiet here"]


async def test_the_others_go_on_when_one_is_killed(cubecast_cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        chats = await meeting(cubecast_cluster, stack, "ann", "bob", "cem", "dee")
        await chats[3].say("I feel unwell")
        await cubecast_cluster.settle()
        cubecast_cluster.kill(3)
        await chats[0].say("where did she go")
        await cubecast_cluster.settle()
        for chat in chats[:3]:
            assert chat.screen == ["dee: I feel unwell", "ann: where did she go"]


async def test_a_guest_reads_along_through_a_node_and_is_told_of_its_end(
    cubecast_cluster: Cluster,
) -> None:
    async with AsyncExitStack() as stack:
        ann, *_ = await meeting(cubecast_cluster, stack, "ann", "bob", "cem")
        guest = await stack.enter_async_context(cubecast_cluster.connect(1))
        messages = await stack.enter_async_context(guest.subscribe("chat/#"))
        await ann.say("welcome")
        assert (await anext(messages)).payload == b"ann: welcome"
        cubecast_cluster.kill(1)
        with pytest.raises(cubecast.Closed):
            await anext(messages)
