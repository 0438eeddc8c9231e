"""Attackers that become members: each joins, lies in one way, and is killed after some seconds.

A mole runs the protocol, so that it has a place in every tree; its lie is added to that.  `Moles`
is the parent's side: one mole at a time, and after a pause the next one, with the next lie.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import msgspec

from cubecast.errors import CubecastError
from cubecast.net.node.shell import Shell
from cubecast.net.wire.packets import (
    PREFIX,
    OutgoingFrame,
    encode_ack,
    encode_control,
    encode_frame,
)
from cubecast.net.wire.views import encode_forward, encode_view
from cubecast.processes.function import FunctionChild, be_child
from cubecast.protocol.cluster.views import Ballot, Install, Prepare, Stuck, View, ViewId
from cubecast.protocol.messages import Ack, Answer, Frame, Parcel, ParcelAck, Route, Stable
from cubecast.protocol.port import LIFE_BITS, Stream
from siege.churn import heard
from siege.honest import Warnings
from siege.terms import LIES, Terms

KINDS = ("epoch", "ballot", "mute", "cut", "route", "garbage")
LIFE_S = (4.0, 12.0)
PAUSE_S = (4.0, 12.0)
PATIENCE_S = 60.0
EVERY_S = 0.5
FAR = 10**9


class Mole(Shell):
    """A member that lies."""

    lie = ""

    def control(self, peer: int, message: Any) -> None:
        """Send the protocol's message, changed by the lie."""
        if isinstance(message, Parcel) and isinstance(answer := message.message, Answer):
            if self.lie == "mute":
                return
            if self.lie == "cut":
                message = Parcel(message.number, self._false(answer))
        super().control(peer, message)

    def _false(self, answer: Answer) -> Answer:
        """A false answer: all members have published a great deal to the topic."""
        view = self.member.view
        assert view is not None
        lives = {
            Stream(slot, generation << LIFE_BITS | who.incarnation): FAR
            for slot, who in view.members.items()
            for generation in (0, 1)
            if slot != self.slot
        }
        vector = tuple({**dict(answer.vector), **lives}.items())
        return msgspec.structs.replace(answer, vector=vector)

    def lies(self, random: Random) -> list[bytes]:
        """Packets that it also sends to every member, again and again."""
        view = self.member.view
        if view is None:
            return []
        match self.lie:
            case "epoch" | "last epoch":
                epochs = [1 << 61, (1 << 62) - 1, view.epoch + 2]
                epoch = epochs[0] if self.lie == "last epoch" else random.choice(epochs)
                ballot = Ballot(view.id.ballot.round + 1, self.slot)
                far = View(ViewId(epoch, ballot), view.members, view.cluster)
                return [encode_view(Install(far.id.ballot, view.id, far, {}, {}))]
            case "ballot":
                last = Ballot((1 << 62) - random.randint(1, 3), self.slot)
                return [
                    encode_view(Prepare(last, view.id, view.mask)),
                    encode_view(Stuck(ViewId(view.epoch, last))),
                ]
            case "route":
                return self._routes(view, random)
            case "garbage":
                kind = random.randrange(12)
                return [
                    PREFIX.pack(1 + 64, kind) + random.randbytes(64),
                    encode_control(ParcelAck(random.getrandbits(61))),
                    encode_forward(0, self.slot, (1 << 63) - 1, encode_control(ParcelAck(1))),
                ]
        return []

    def _routes(self, view: View, random: Random) -> list[bytes]:
        """Frames, and messages about them, with the largest numbers that can be written."""
        stream = Stream(self.slot, 1 << LIFE_BITS | self.member.incarnation)
        number = random.choice([(1 << 62) - 1, (1 << 63) - 1, 1 << 61])
        route = Route(number, 0, view.mask & ~(1 << self.slot))
        seq = random.choice([0, 1 << 61])
        frame = Frame(LIES, stream, seq, (), route, seq - 1, OutgoingFrame([b"lie"], 0), 500)
        made: list[Callable[[], bytes]] = [
            lambda: encode_frame(frame),
            lambda: encode_ack(Ack(LIES, stream, number, seq, seq, 0, False)),
            lambda: encode_control(Parcel(number, Stable(LIES, stream, number, 0, seq, view.mask))),
        ]
        packets = []
        for make in made:
            try:
                packets.append(make())
            except Exception:  # a number that cannot be written cannot be sent either
                continue
        return packets


def run_mole(seed: str, number: int, kind: str, terms: Terms, pipe: Connection) -> None:
    """One process; its parent kills it."""
    be_child(_live(seed, number, kind, terms, pipe), pipe)


async def _live(seed: str, number: int, kind: str, terms: Terms, pipe: Connection) -> None:
    random = Random(f"{terms.seed}/mole/{number}")
    Warnings.installed()
    mole = Mole(terms.config())
    try:
        await mole.start(seed)
    except CubecastError as error:
        pipe.send(("refused", str(error)))
        return
    pipe.send(("joined", None))
    mole.lie = kind
    await lie_on(mole, random)


async def lie_on(mole: Mole, random: Random) -> None:
    """Take part in the topic of lies, and tell every member the mole's lies, until cancelled."""
    subscribing = asyncio.create_task(mole.node.subscribe(LIES, policy="drop-oldest").__aenter__())
    while True:
        for packet in mole.lies(random):
            for peer in mole.node.members:
                if peer != mole.slot:
                    mole.mesh.send(peer, packet)
        await asyncio.sleep(EVERY_S)
        if subscribing.done() and mole.lie not in ("mute", "cut"):
            await asyncio.wait([asyncio.create_task(_gossip(mole))], timeout=0.2)


async def _gossip(mole: Mole) -> None:
    try:
        await mole.node.publish(LIES, b"gossip", timeout=0.1)
    except CubecastError:
        return


class Moles:
    """One mole after the other."""

    def __init__(self, terms: Terms, seeds: Sequence[str]) -> None:
        self._terms = terms
        self._seeds = seeds
        self._random = Random(f"{terms.seed}/moles")
        self._child: FunctionChild | None = None
        self._due = time.monotonic() + self._random.uniform(*PAUSE_S)
        self._number = 0
        self.kind = ""
        self.counts: Counter[str] = Counter()
        self.reasons: list[str] = []

    def tick(self, now: float) -> None:
        """Whatever is due."""
        if self._child is None:
            if now >= self._due:
                self._send_one(now)
            return
        match heard(self._child):
            case ("joined", _):
                self.counts[f"mole: {self.kind}"] += 1
                self._due = now + self._random.uniform(*LIFE_S)
            case (_, reason):
                self.counts["moles that could not join, or ended"] += 1
                self.reasons = [*self.reasons[-4:], f"{self.kind}: {reason}"]
                self._due = now
        if now >= self._due:
            self.end()
            self._due = now + self._random.uniform(*PAUSE_S)

    def end(self) -> None:
        """Kill the mole, if there is one."""
        if self._child is not None:
            self._child.end()
        self._child, self.kind = None, ""

    def _send_one(self, now: float) -> None:
        self.kind = KINDS[self._number % len(KINDS)]
        self._number += 1
        seed = self._random.choice(self._seeds)
        self._child = FunctionChild(
            self._number, run_mole, seed, self._number, self.kind, self._terms
        )
        self._due = now + PATIENCE_S
