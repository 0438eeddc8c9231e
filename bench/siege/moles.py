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
from cubecast.protocol.cluster.agreement import MAX_SLOTS, ViewAgreement
from cubecast.protocol.cluster.belief import MAX_LEAP
from cubecast.protocol.cluster.views import (
    FIRST,
    Ballot,
    Depart,
    Enter,
    Install,
    Prepare,
    Report,
    Stuck,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Frame,
    Op,
    Parcel,
    ParcelAck,
    Route,
    Stable,
    Wave,
)
from cubecast.protocol.port import LIFE_BITS, Stream
from cubecast.topology import children, cluster
from siege.churn import heard
from siege.honest import Warnings
from siege.terms import LIES, Terms

KINDS = (
    "epoch",
    "ballot",
    "mute",
    "cut",
    "route",
    "garbage",
    "mute leader",
    "high",
    "newcomers",
    "leave",
    "forward",
)
LIFE_S = (4.0, 12.0)
PAUSE_S = (4.0, 12.0)
CYCLE_S = 30.0
"""A mole takes so long from its start to that of the next one; at most, when all goes well."""
TURN_S = 2.0
"""A mole that lies in several ways lies so long in each of them."""
SHORT_PAUSE_S = (1.0, 3.0)
"""Between two such moles."""
PATIENCE_S = 60.0
EVERY_S = 0.5
FAR = 10**9
GHOSTS = 20
"""Newcomers that a mole invents at a time; they get places until they are suspected."""
PAST = 20_000
"""Streams in the past of a newcomer that is too large to be an ordinary one."""
PAST_TOPIC = "siege/past"
"""Their topic, which no honest node is in: each stream of a topic that one reads costs it time."""


def ghost_address(index: int) -> str:
    """Where a newcomer that does not exist says it is."""
    return f"127.0.0.1:{1 + index}"


class Idle(ViewAgreement):
    """An agreement that begins nothing."""

    def consider(self, now: int) -> None:
        """Do nothing."""


class Mole(Shell):
    """A member that lies."""

    lie = ""
    chance = Random(0)

    def turn(self, lie: str) -> None:
        """Lie from now on."""
        self.lie = lie
        agreement = self.member._agreement
        if lie == "mute leader" and agreement is not None:
            agreement.__class__ = Idle
            self.member.agreement_class = Idle  # type: ignore[misc]

    def control(self, peer: int, message: Any) -> None:
        """Send the protocol's message, changed by the lie."""
        if self.lie == "high" and isinstance(message, Report):
            rounds = message.ballot.round + MAX_LEAP + self.chance.choice((-1, 0, 1))
            objection = Ballot(rounds, self.slot)
            message = msgspec.structs.replace(message, promised=objection, held={})
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
            case "mute leader" if min(view.members) != self.slot:
                # It takes the lead, and ends no change.
                return [encode_view(Prepare(self._next_ballot(), view.id, view.mask))]
            case "high":
                lines = MAX_LEAP, MAX_LEAP // 2, 2 * MAX_LEAP
                rounds = view.id.ballot.round + random.choice(lines) + random.choice((-1, 0, 1))
                high = Ballot(rounds, self.slot)
                return [
                    encode_view(Stuck(view.id)),
                    encode_view(Prepare(high, view.id, view.mask)),
                    encode_view(Report(self._next_ballot(), high, None, {})),
                ]
            case "newcomers":
                return self._newcomers(random)
            case "leave":
                return self._leaves(view, random)
            case "forward":
                return self._forwards(view, random)
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

    def _next_ballot(self) -> Ballot:
        """A ballot that the others may well follow."""
        agreement = self.member._agreement
        promised = FIRST if agreement is None else agreement.promised
        return Ballot(promised.round + 1, self.slot)

    def _newcomers(self, random: Random) -> list[bytes]:
        """Requests of nodes that do not exist, now and then one with a past as large as a view."""
        if random.random() < 0.75:
            return []
        names = [f"{random.getrandbits(128):032x}" for _ in range(GHOSTS)]
        asking = [Enter(Who(name, ghost_address(index), 1), -1) for index, name in enumerate(names)]
        past = tuple((Stream(number % MAX_SLOTS, number), 1) for number in range(PAST))
        asking[0] = msgspec.structs.replace(asking[0], reached={PAST_TOPIC: past})
        return [encode_view(enter) for enter in asking]

    def _leaves(self, view: View, random: Random) -> list[bytes]:
        """Leaves in another's name: of the cluster, and of the topic of lies."""
        other = self._other(view, random)
        number = 1 << 40 | random.getrandbits(32)
        leave = Wave(LIES, other, number, Op.LEAVE, view.mask, False, view.epoch)
        for child in children(self.slot, view.mask, cluster(self.slot, other) - 1):
            self.core._links.send(child, leave, self.now())
        return [encode_view(Depart(view.members[other].uid))]

    def _forwards(self, view: View, random: Random) -> list[bytes]:
        """Packets in another's name, as if the link between the two were broken."""
        other = self._other(view, random)
        who = view.members[other]
        stream = Stream(other, 1 << LIFE_BITS | who.incarnation)
        route = Route((1 << 62) - 1, 0, view.mask & ~(1 << other))
        frame = Frame(LIES, stream, 0, (), route, -1, OutgoingFrame([b"lie"], 0), 500)
        packets = [
            encode_control(ParcelAck(random.getrandbits(61))),
            encode_frame(frame),
            encode_view(Stuck(view.id)),
            encode_view(Depart(who.uid)),
        ]
        return [
            encode_forward(to, other, view.epoch, random.choice(packets))
            for to in view.members
            if to not in (self.slot, other)
        ]

    def _other(self, view: View, random: Random) -> int:
        """Another member."""
        return random.choice([slot for slot in view.members if slot != self.slot])

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


def run_mole(seed: str, number: int, kinds: Sequence[str], terms: Terms, pipe: Connection) -> None:
    """One process; its parent kills it."""
    be_child(_live(seed, number, kinds, terms, pipe), pipe)


async def _live(
    seed: str, number: int, kinds: Sequence[str], terms: Terms, pipe: Connection
) -> None:
    random = Random(f"{terms.seed}/mole/{number}")
    Warnings.installed()
    mole = Mole(terms.config())
    try:
        await mole.start(seed)
    except CubecastError as error:
        pipe.send(("refused", str(error)))
        return
    pipe.send(("joined", None))
    lying = asyncio.create_task(lie_on(mole, random))
    for kind in kinds:
        mole.turn(kind)
        pipe.send(("turned", kind))
        await asyncio.sleep(TURN_S)
    await lying


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
    """One mole after the other; in a short run each has several lies, so that all kinds come."""

    def __init__(self, terms: Terms, seeds: Sequence[str], seconds: float) -> None:
        self._terms = terms
        moles = max(1, min(len(KINDS), int(seconds / CYCLE_S)))
        self._each = -(-len(KINDS) // moles)  # so many kinds each
        self._pause_s = PAUSE_S if self._each == 1 else SHORT_PAUSE_S
        self._seeds = seeds
        self._random = Random(f"{terms.seed}/moles")
        self._child: FunctionChild | None = None
        self._due = time.monotonic() + self._random.uniform(*self._pause_s)
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
                self._due = now + max(self._random.uniform(*LIFE_S), self._each * TURN_S + 1)
            case ("turned", kind):
                self.kind = kind
                self.counts[f"mole: {kind}"] += 1
            case (_, reason):
                self.counts["moles that could not join, or ended"] += 1
                self.reasons = [*self.reasons[-4:], f"{self.kind}: {reason}"]
                self._due = now
        if now >= self._due:
            self.end()
            self._due = now + self._random.uniform(*self._pause_s)

    def end(self) -> None:
        """Kill the mole, if there is one."""
        if self._child is not None:
            self._child.end()
        self._child, self.kind = None, ""

    def _send_one(self, now: float) -> None:
        first = self._number * self._each
        kinds = [KINDS[(first + index) % len(KINDS)] for index in range(self._each)]
        self.kind = kinds[0]
        self._number += 1
        seed = self._random.choice(self._seeds)
        self._child = FunctionChild(self._number, run_mole, seed, self._number, kinds, self._terms)
        self._due = now + PATIENCE_S
