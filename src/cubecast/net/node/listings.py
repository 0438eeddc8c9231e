"""Lists the topics of the cluster and their subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Protocol

from cubecast.errors import CubecastError, TooManyTopics
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.topology import members_of


class ListingsHost(Protocol):
    """What a listing needs of its node."""

    async def inside(self, limit_s: float) -> CubecastNode: ...
    def check_open(self) -> None: ...
    def check_alive(self) -> None: ...
    def now(self) -> Time: ...


Found = tuple[Sequence[tuple[Topic, int]], bool]


class Listings:
    """The unanswered listings of one node."""

    def __init__(self, runtime: ListingsHost, timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._asked: dict[Hashable, asyncio.Future[Found | None]] = {}
        self._tickets = 0

    async def ask(self) -> dict[Topic, list[NodeId]]:
        """Every topic that any node has to do with, and its subscribers."""
        self._runtime.check_open()
        found, complete = await self._answer()
        self._runtime.check_alive()  # it may have been closed meanwhile
        if not complete:
            raise TooManyTopics()
        return {topic: list(members_of(members)) for topic, members in found}

    async def _answer(self) -> Found:
        """Ask all nodes; again if this node is excluded before all have answered."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            left_s = max(deadline - asyncio.get_running_loop().time(), 0.0)
            core = await self._runtime.inside(left_s)
            self._tickets += 1
            ticket = self._tickets
            answer: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
            self._asked[ticket] = answer
            core.list_topics(ticket, self._runtime.now())
            try:
                async with asyncio.timeout_at(deadline):
                    found = await answer
            except TimeoutError:
                reason = f"not every node named its topics in {self._timeout_s:g} s"
                raise CubecastError(reason) from None
            finally:
                self._asked.pop(ticket, None)
            if found is not None:
                return found

    async def subscribers(self, topic: Topic) -> list[NodeId]:
        """The subscribers of a topic; a node that does not know asks the cluster for all topics.

        Asking about this topic alone would make the node take part in it: its subscribers would
        tell us of it from then on.
        """
        core = await self._runtime.inside(self._timeout_s)
        if core.informed(topic):
            return core.members(topic)
        return (await self.ask()).get(topic, [])

    def listed(self, ticket: Hashable, found: Sequence[tuple[Topic, int]], complete: bool) -> None:
        """End a listing: every node has answered."""
        answer = self._asked.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result((found, complete))

    def life_ended(self) -> None:
        """Have open listings asked again: the node was excluded, so no answers will come."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)

    def close(self) -> None:
        """End open listings: no answers will come."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(((), True))
