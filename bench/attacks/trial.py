"""One attack, measured: a new cluster, the attack, fresh topics while it goes on, and the account.

1. Processes are started once; every trial has a new cluster in them.
2. Everything is measured from before the attack begins until it is called off.
3. The attack goes on for its seconds, and until fresh topics work, or `patience_s` is over.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from siege.moles import Mole
from siege.terms import Terms

from attacks.bystander import TRIES, joined
from attacks.scene import ANSWER_S, Ended, Scene, Staged
from cubecast.bench.errors import BenchError
from cubecast.errors import CubecastError
from cubecast.net.security.keys import new_secret
from cubecast.processes.function import FunctionChild, gather, tell_all
from cubecast.testing.operator_troubles import free_address

CALM_S = 0.5
"""A cluster settles so long before it is measured."""
POLL_S = 0.2
WORK = ("subscribe", "publish", "hear")
ORDINARY = frozenset(("MemberJoined", "MemberLeft"))
"""Events of every trial in which a node joins or dies."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one attack did to honest nodes; None: it was not done when the attack was called off."""

    attack: str
    seconds: float
    gap_s: float
    subscribe_s: float | None
    publish_s: float | None
    hear_s: float | None
    join_s: float | None
    out_s: float
    got: dict[str, int]
    """Breaches: what the attack got, or what was delivered, and must not be."""
    lost: int
    """Messages that honest nodes miss without a report."""
    events: dict[str, int]
    log: dict[str, int]
    audit: dict[str, int]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Trials:
    """Attacks one after the other, on the same processes."""

    def __init__(self, nodes: Sequence[FunctionChild], patience_s: float, seed: int) -> None:
        self._nodes = nodes
        self._patience_s = patience_s
        self._seed = seed

    async def run(self, name: str, staged: Staged) -> Row:
        """One attack on a new cluster."""
        terms = Terms(new_secret(), new_secret(), self._seed, join_timeout_s=30.0)
        leader = await joined(terms.config(), None, Mole) if staged.leads else None
        try:
            first = None if leader is None else leader.address
            addresses = await asyncio.to_thread(self._start, terms, first)
            scene = Scene(terms, addresses, self._nodes, Random(f"{self._seed}/{name}"))
            if leader is not None:
                scene.leader = leader
                scene.expected.add(leader.address)
            await asyncio.sleep(CALM_S)
            return await self._measure(name, staged, scene)
        finally:
            if leader is not None:
                leader.kill()
            await asyncio.to_thread(self._ask, ("stop",), "stopped")

    def _start(self, terms: Terms, first: str | None) -> list[str]:
        """Start all nodes; each joins the first one, or the node at `first` if there is one."""
        addresses: list[str] = []
        for node in self._nodes:
            seed = first or (addresses[0] if addresses else None)
            node.tell(("start", terms, seed))
            addresses += gather([node], "ready", ANSWER_S)
        tell_all(self._nodes, ("talk",))
        return addresses

    def _ask(self, word: tuple[str, ...], answer: str) -> list[Any]:
        tell_all(self._nodes, word)
        return gather(self._nodes, answer, ANSWER_S)

    async def _measure(self, name: str, staged: Staged, scene: Scene) -> Row:
        tell_all(self._nodes, ("watch", scene.addresses))
        begun = time.monotonic()
        attack = asyncio.create_task(_attacked(staged, scene))
        try:
            await _in_force(attack, scene)
            await self._go_on(staged.seconds, scene)
            join_s = await self._join(scene)
            reports = await scene.reports()
            seconds, gaps = time.monotonic() - begun, [one["gap_s"] for one in reports]
            gaps += [one.longest(time.monotonic()) for one in scene.readers]
        finally:
            attack.cancel()
            await asyncio.gather(attack, return_exceptions=True)
        if attack.done() and not attack.cancelled() and (error := attack.exception()):
            raise BenchError(f"{name}: {type(error).__name__}: {error}")
        return _row(name, seconds, max(gaps), join_s, scene, reports)

    async def _join(self, scene: Scene) -> float | None:
        """How long a newcomer takes to get a place while the attack is in force."""
        address = free_address()
        scene.expected.add(address)  # it may get a place and give up before it is told
        limit_s = self._patience_s / TRIES
        config = replace(scene.terms.config(), listen=address, join_timeout_s=limit_s)
        begun = time.monotonic()
        try:
            newcomer = await joined(config, scene.addresses[3])
        except CubecastError:
            return None
        joined_s = time.monotonic() - begun
        await newcomer.node.close()
        return joined_s

    async def _go_on(self, seconds: float, scene: Scene) -> None:
        """Use fresh topics while the attack is in force."""
        reader, writer = self._nodes[2:4]
        topic = f"fresh/{scene.random.getrandbits(32):x}"
        reader.tell(("fresh", "subscribe", topic))
        writer.tell(("fresh", "publish", f"{topic}/alone"))
        begun, asked = time.monotonic(), False
        while True:
            await asyncio.sleep(POLL_S)
            done = {what for one in await scene.reports() for what in one["fresh"]}
            if "subscribe" in done and not asked:
                writer.tell(("fresh", "say", topic))
                asked = True
            passed = time.monotonic() - begun
            if passed >= seconds and (done.issuperset(WORK) or passed >= self._patience_s):
                return


async def _attacked(staged: Staged, scene: Scene) -> None:
    """The attack; the node that it was to harm may have ended before it began."""
    try:
        await staged.attack(scene)
    except Ended:
        scene.begun()


async def _in_force(attack: asyncio.Task[None], scene: Scene) -> None:
    waiting = asyncio.create_task(scene.under_way.wait())
    await asyncio.wait([attack, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=ANSWER_S)
    waiting.cancel()
    if not scene.under_way.is_set():
        if attack.done() and (error := attack.exception()):
            if isinstance(error, CubecastError | OSError):
                scene.notes.append(f"turned away: {error}")
                return
            raise error
        scene.notes.append("it ended before it was in force" if attack.done() else "it never began")


def _row(
    name: str,
    seconds: float,
    gap_s: float,
    join_s: float | None,
    scene: Scene,
    reports: Sequence[dict[str, Any]],
) -> Row:
    fresh = {what: span for one in reports for what, span in one["fresh"].items()}
    return Row(
        name,
        seconds,
        gap_s,
        *(fresh.get(what) for what in WORK),
        join_s,
        max(one["out_s"] for one in reports),
        _got(scene, reports),
        sum(one["lost"] for one in reports),
        _sum(one["events"] for one in reports),
        _sum(one["log"] for one in reports),
        _sum(one["audit"] for one in reports),
        scene.notes,
    )


def _got(scene: Scene, reports: Sequence[dict[str, Any]]) -> dict[str, int]:
    allowed = scene.expected.union(scene.addresses)
    found = scene.breaches + Counter(
        {
            "forged messages": sum(one["foreign"] for one in reports),
            "messages out of order": sum(one["disorder"] for one in reports),
            "intruders": len({who for one in reports for who in one["seen"]} - allowed),
            "clusters too many": len({one["cluster"] for one in reports}) - 1,
        }
    )
    return dict(+found)


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total.most_common())
