"""A user's own tests: a small chat application, tested on a cluster in memory.

    pytest examples/test_my_chat.py

`Chat` is the application; it takes any cubecast node.  The tests need no sockets and no time.
"""

import asyncio
from contextlib import AsyncExitStack, suppress

import cubecast
from cubecast.testing import Cluster, on_virtual_time


class Chat:
    """One user in one room: says things, answers questions, remembers what the screen showed."""

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
    chats = [Chat(node, name) for node, name in zip(cluster.nodes, names, strict=True)]
    return [await stack.enter_async_context(chat) for chat in chats]


@on_virtual_time
async def test_everyone_reads_the_question_before_any_answer() -> None:
    async with Cluster(3) as cluster, AsyncExitStack() as stack:
        ann, bob, cem = await meeting(cluster, stack, "ann", "bob", "cem")
        cluster.delay(0, 2, seconds=1)  # Cem is far from Ann: Bob's answer overtakes her question
        await ann.say("does it work?")
        await cluster.settle()
        for chat in (ann, bob, cem):
            assert chat.screen[0] == "ann: does it work?"
            assert sorted(chat.screen[1:]) == [
                "bob: I do not know either, ann.",
                "cem: I do not know either, ann.",
            ]
        cluster.check()


@on_virtual_time
async def test_nothing_said_during_a_short_partition_is_lost() -> None:
    async with Cluster(4) as cluster, AsyncExitStack() as stack:
        chats = await meeting(cluster, stack, "ann", "bob", "cem", "dee")
        cluster.partition({0, 1}, {2, 3})
        await chats[0].say("the others are gone")
        await chats[3].say("it is quiet here")
        await asyncio.sleep(0.5)
        assert "dee: it is quiet here" not in chats[0].screen
        cluster.heal()
        await cluster.settle()
        for chat in chats:
            assert sorted(chat.screen) == ["ann: the others are gone", "dee: it is quiet here"]
        cluster.check()


@on_virtual_time
async def test_the_others_go_on_when_one_is_killed() -> None:
    async with Cluster(4) as cluster, AsyncExitStack() as stack:
        chats = await meeting(cluster, stack, "ann", "bob", "cem", "dee")
        await chats[3].say("I feel unwell")
        await cluster.settle()
        cluster.kill(3)
        await chats[0].say("where did she go")
        await cluster.settle()
        for chat in chats[:3]:
            assert chat.screen == ["dee: I feel unwell", "ann: where did she go"]
        cluster.check()
