"""Asking the cluster for its topics and their subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Protocol

from cubecast.errors import CubecastError, TooManyTopics
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.topology import members_of


class Runtime(Protocol):
    """What a listing needs of its node."""

    @property
    def core(self) -> CubecastNode: ...
    def check_open(self) -> None: ...
    def now(self) -> Time: ...


Found = tuple[Sequence[tuple[Topic, int]], bool]


class Listings:
    """The questions of one node that are not answered."""

    def __init__(self, runtime: Runtime, timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._asked: dict[Hashable, asyncio.Future[Found]] = {}
        self._tickets = 0

    async def ask(self) -> dict[Topic, list[NodeId]]:
        """Every topic that a node has to do with, and who is subscribed to it."""
        self._runtime.check_open()
        core = self._runtime.core
        self._tickets += 1
        ticket = self._tickets
        answer = self._asked[ticket] = asyncio.get_running_loop().create_future()
        core.list_topics(ticket, self._runtime.now())
        try:
            async with asyncio.timeout(self._timeout_s):
                found, complete = await answer
        except TimeoutError:
            reason = f"not every node named its topics in {self._timeout_s:g} s"
            raise CubecastError(reason) from None
        finally:
            self._asked.pop(ticket, None)
        self._runtime.core  # noqa: B018  # raises if the node was closed meanwhile
        if not complete:
            raise TooManyTopics()
        return {topic: list(members_of(members)) for topic, members in found}

    async def subscribers(self, topic: Topic) -> list[NodeId]:
        """The subscribers of a topic; a node that does not know asks the cluster for all topics.

        To ask for this one would be to take part in it: its members would tell us of it from
        then on.
        """
        core = self._runtime.core
        if core.informed(topic):
            return core.members(topic)
        return (await self.ask()).get(topic, [])

    def listed(self, ticket: Hashable, found: Sequence[tuple[Topic, int]], complete: bool) -> None:
        """Every node has answered."""
        answer = self._asked.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result((found, complete))

    def close(self) -> None:
        """Nobody will answer."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(((), True))
