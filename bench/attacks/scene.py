"""What an attack sees: the honest processes, the keys it holds, and how it reports its gains.

An attack is a coroutine.  It calls `Scene.begun` once it is in force, goes on until it is
cancelled, and notes everything that it must not get and got as a *breach*.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, TypeAlias

from siege.grounds import Grounds
from siege.moles import Mole
from siege.terms import STEADY, Terms, read_payload

from attacks.bystander import Gaps
from cubecast.bench.errors import BenchError
from cubecast.processes.function import FunctionChild, gather, tell_all

ANSWER_S = 60.0
"""A process that answers nothing for so long has failed."""
LOOK_S = 0.1


class Ended(Exception):
    """A node that was to join ended by itself."""


@dataclass(slots=True)
class Scene:
    """The place of one attack."""

    terms: Terms
    addresses: Sequence[str]
    """Addresses of the honest nodes that are processes of ours."""
    nodes: Sequence[FunctionChild]
    random: Random
    under_way: asyncio.Event = field(default_factory=asyncio.Event)
    expected: set[str] = field(default_factory=set)
    """Addresses that may be in views; any other has broken in."""
    breaches: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    leader: Mole | None = None
    """The attacker that leads, if there is one."""
    readers: list[Gaps] = field(default_factory=list)
    """Gaps of the honest readers that are clients."""

    @property
    def grounds(self) -> Grounds:
        """This scene for attacks of a siege; their breaches count here as well."""
        return Grounds(self.terms, self.addresses, self.random, breaches=self.breaches)

    def begun(self) -> None:
        """The attack is in force."""
        self.under_way.set()

    async def reports(self) -> list[dict[str, Any]]:
        """The reports of all honest processes so far."""
        tell_all(self.nodes, ("report",))
        found: list[dict[str, Any]] = await asyncio.to_thread(
            gather, self.nodes, "report", ANSWER_S
        )
        return found

    async def until_all_know(self, address: str, alive: Callable[[], bool] = lambda: True) -> None:
        """Wait until the live node at `address` is in every honest node's view."""
        self.expected.add(address)
        deadline = time.monotonic() + ANSWER_S
        while not all(address in one["members"] for one in await self.reports()):
            if not alive():
                raise Ended(address)
            if time.monotonic() > deadline:
                raise BenchError(f"{address} does not get into the cluster")
            await asyncio.sleep(LOOK_S)

    async def read(self, client: Any) -> None:
        """Read the quiet topic through a client, as one more honest reader."""
        gaps = Gaps(range(len(self.nodes)), time.monotonic())
        self.readers.append(gaps)
        async with client.subscribe(STEADY, policy="drop-oldest") as messages:
            async for message in messages:
                said = read_payload(message.payload)
                if said is not None:
                    gaps.heard(said.publisher, time.monotonic())


Attack: TypeAlias = Callable[[Scene], Awaitable[None]]


class Staged(NamedTuple):
    """An attack, and how long it goes on at least."""

    attack: Attack
    seconds: float = 4.0
    leads: bool = False
    """Whether the attacker begins the cluster, so that it leads."""


async def control(scene: Scene) -> None:
    """No attack: what the machine does by itself."""
    scene.begun()
    await asyncio.Event().wait()
