"""A conversation that tests of order across topics hold on a real event service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random

from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.judge import Notification, inversions, repeated
from cubecast.ordering.live import Ordered
from cubecast.ordering.service import EventService

TOPICS = [f"t{number}" for number in range(5)]
SETS = {"s0": TOPICS[:3], "s1": TOPICS[1:], "s2": TOPICS, "s3": [*TOPICS[:2], *TOPICS[3:]]}
PUBLISHERS = [f"p{number}" for number in range(4)]
EVENTS = 400
PATIENT = OrderedConfig(wait_s=60)
GENEROUS_S = 120
"""Against hanging."""

Connect = Callable[[str, AsyncExitStack], Awaitable[EventService]]
"""Makes the service as a new member of that name sees it; the stack closes its connection."""


class Members:
    """Members of one event service, and what the subscribers among them saw."""

    def __init__(self, connect: Connect, stack: AsyncExitStack) -> None:
        self._connect = connect
        self._stack = stack
        self.ordered: dict[str, Ordered] = {}
        self.seen: dict[str, list[Notification]] = {}

    async def add(self, name: str, managers: list[str]) -> Ordered:
        service = await self._connect(name, self._stack)
        ordered = Ordered(service, managers=managers, first=TOPICS, config=PATIENT)
        self.ordered[name] = await self._stack.enter_async_context(ordered)
        return ordered

    async def read(self, name: str, count: int) -> None:
        """Read so many events."""
        seen = self.seen.setdefault(name, [])
        async for one in self.ordered[name]:
            seen.append(Notification(one.payload, one.topic, one.stamp, one.in_order))
            if len(seen) == count:
                return


async def hold_a_conversation(connect: Connect, settle_s: float = 0) -> Members:
    """Four publishers, five topics, four subscribers of overlapping sets."""
    rng = Random(1)
    events = [(rng.choice(PUBLISHERS), rng.choice(TOPICS)) for _ in range(EVENTS)]
    async with AsyncExitStack() as stack:
        members = Members(connect, stack)
        for name in (*SETS, *PUBLISHERS):
            await members.add(name, PUBLISHERS[:2])
        await asyncio.gather(*(members.ordered[name].subscribe(*SETS[name]) for name in SETS))
        await asyncio.sleep(settle_s)
        due = {name: sum(topic in SETS[name] for _, topic in events) for name in SETS}
        readers = [asyncio.create_task(members.read(name, due[name])) for name in SETS]
        for number, (publisher, topic) in enumerate(events):
            await members.ordered[publisher].publish(topic, str(number).encode())
        await asyncio.wait_for(asyncio.gather(*readers), GENEROUS_S)
    return members


def check_order(members: Members) -> None:
    """All subscribers saw the same order; nothing was tagged, repeated or lost."""
    assert inversions(members.seen) == []
    assert repeated(members.seen) == []
    assert len(members.seen["s2"]) == EVENTS
    assert all(one.in_order for seen in members.seen.values() for one in seen)
