"""The common part of attackers of live nodes: what they know, and how they make packets up.

Random choices come from one seed, but what a victim answers, and when, does not: a run can be
repeated in kind, not packet by packet.  So the latest packets are kept.
"""

from __future__ import annotations

import abc
import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random

from cubecast.net.wire.packets import WireError
from cubecast.testing.fuzz.grammar import Lore
from cubecast.testing.fuzz.mutation import Mutator
from cubecast.testing.fuzz.packets import Maker
from cubecast.testing.fuzz.scene import ATTACKED, HOSTILE
from cubecast.testing.fuzz.session import HARVEST, HostileSession

BURST = 8
"""Packets that are sent before an attacker asks something, to see whether it was cut off."""
ANSWER_S = 0.01
"""How long it waits for that answer; an attacker that is no member may get none."""
RUDE = (0.0, 0.01, 0.05, 0.3)
SLY = (0.0, 0.0, 0.0, 0.0, 0.01)
"""How wild packets are: of a connection that is soon cut off, and of one that is to last."""
RUDE_PACKETS = (1, 3, 10)
SLY_PACKETS = 200
"""Of one connection, if its victim takes them all."""
WORKERS = 6
"""Connections of one attacker at a time."""
KEPT_PACKETS = 400
DIAL_AGAIN_S = 0.05
MAX_IN_VAIN = 10
"""Connections one after the other by which nothing could be sent."""


class Liar(abc.ABC):
    """Base of the attackers: what they know, and how they make packets up."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        self.random = random
        self.addresses = list(addresses)
        self.lore = Lore(topics=[ATTACKED], addresses=["127.0.0.1:1", *addresses])
        self.maker = Maker(random, self.lore)
        self.mutator = Mutator(random)
        self.harvest: deque[bytes] = deque(maxlen=HARVEST)
        self.latest: deque[bytes] = deque(maxlen=KEPT_PACKETS)
        self.connections = 0
        self.sent = 0
        self.earnest = 0

    def send(self, session: HostileSession, plain: bytes) -> None:
        self.sent += 1
        self.latest.append(plain)
        session.write(plain)

    def send_in_earnest(self, session: HostileSession, plain: bytes) -> None:
        """Send a packet that an honest node might send; it does not count as an attack."""
        self.earnest += 1
        session.write(plain)

    async def dial(self) -> HostileSession:
        """A connection to one of the victims."""
        self.connections += 1
        address = self.random.choice(self.addresses)
        return await HostileSession.dial_for(address, HOSTILE, self.harvest)

    def changed(self, raw: bytes) -> bytes:
        return self.mutator.mutate(raw, list(self.harvest)[-20:] or [raw])

    async def attack(self, packets: int) -> None:
        """Attack over one connection after the other, a few at a time."""
        goal = self.sent + packets
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._go_on(goal))

    async def _go_on(self, goal: int) -> None:
        """Dial again and again, but not victims that are gone."""
        in_vain = 0
        while self.sent < goal and in_vain < MAX_IN_VAIN:
            before = self.sent
            try:
                await self.once()
            except (OSError, WireError):  # refused, cut off, or too slow
                await asyncio.sleep(DIAL_AGAIN_S)
            in_vain = in_vain + 1 if self.sent == before else 0

    @abc.abstractmethod
    async def once(self) -> None:
        """One connection, from dialling to its end."""

    async def converse(
        self, session: HostileSession, packets: Iterator[bytes], question: bytes
    ) -> None:
        """Send `packets` while the victim listens, and let it look at all of them.

        The `question` is sent now and then: its answer, or none, shows how far the victim is.
        """
        reading = asyncio.ensure_future(session.ended())
        try:
            for index, raw in enumerate(packets):
                if index % BURST == BURST - 1:
                    self.send_in_earnest(session, question)
                    await session.answered(ANSWER_S)
                if reading.done() or session.over:
                    break
                self.send(session, raw)
            if not reading.done():
                session.say_no_more()
            with suppress(ConnectionError, WireError):
                await reading
        finally:
            reading.cancel()

    async def close(self) -> None:  # noqa: B027 - only some liars keep something open
        """Nothing is open between two attacks."""
