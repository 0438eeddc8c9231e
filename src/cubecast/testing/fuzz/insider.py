"""Attackers that hold the members' key: a member that lies, and an outsider with the key alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from cubecast.errors import CubecastError, JoinError
from cubecast.net.links.connection import Connection
from cubecast.net.node.shell import Shell
from cubecast.net.security.envelopes import seal_envelope
from cubecast.net.security.keys import Keys
from cubecast.net.wire.packet_buffer import SEAL_BYTES
from cubecast.net.wire.packets import (
    CLIENT,
    CONTROL,
    ENVELOPE,
    FRAME,
    HELLO,
    MAX_PACKET,
    PREFIX,
    SEALED,
)
from cubecast.net.wire.views import encode_detector
from cubecast.protocol.cluster.detector import Test
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import Parcel
from cubecast.protocol.port import NodeId
from cubecast.testing.dialler import DiallerParty
from cubecast.testing.fuzz.grammar import EDGES
from cubecast.testing.fuzz.liar import KEPT_PACKETS, RUDE, RUDE_PACKETS, SLY, SLY_PACKETS, Liar
from cubecast.testing.fuzz.packets import MEMBERS_SAY
from cubecast.testing.fuzz.scene import ATTACKED, SECRET, config
from cubecast.testing.fuzz.session import HARVEST, HostileSession

MOLE_ATTACKS = 10
"""Attacks of one lying member; then it dies and another enters."""


class Unwelcome(Exception):
    """The victims refuse a newcomer."""


class Insider(Liar):
    """Holds the members' key, and makes up everything else.

    With a `mole`, a node that is a member and keeps to the protocol, it speaks in that member's
    name; without one it makes up a uid and a slot.
    """

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys(SECRET)
        self.mole: Mole | None = None
        self._salt = ""

    def _who(self) -> DiallerParty:
        mole, random = self.mole, self.random
        if mole is not None and mole.member.view is not None:
            return DiallerParty(self._keys, mole.uid, mole.slot, salt=self._salt)
        slot = random.choice((-1, -1, 0, 3, 8191))
        return DiallerParty(self._keys, f"fuzz{random.randrange(50)}", slot, salt=self._salt)

    def _learn(self) -> None:
        """Read about the victims in the mole's view, so that lies fit."""
        mole = self.mole
        view = None if mole is None else mole.member.view
        if mole is None or view is None:
            return
        mole.harvest = self.harvest
        lore = self.lore
        epoch, (attempt, slot) = view.id
        lore.uids = [who.uid for who in view.members.values()]
        lore.addresses = [who.address for who in view.members.values()]
        lore.slots = list(view.members)
        lore.lives = {slot: who.incarnation for slot, who in view.members.items()}
        lore.members = {slot: msgspec.to_builtins(who) for slot, who in view.members.items()}
        lore.own = mole.slot, mole.member.who.incarnation
        lore.epoch = epoch
        lore.numbers = [0, 1, 2, epoch, attempt, slot, view.number, epoch << 32]

    async def once(self) -> None:
        session = await self.dial()
        try:
            party = self._who()
            await session.shake_hands(party)
            self._salt = party.salt
            self._learn()
            if self.random.random() < 0.15:
                self._break_the_seal(session)
                await session.finish()
            else:
                question = encode_detector(Test(self.random.randrange(1000)))
                await self.converse(session, self._lies(session.peer), question)
        finally:
            session.hang_up()

    def _lies(self, peer: str) -> Iterator[bytes]:
        """Rude: a few random packets, soon refused.  Sly: many that a node may well take."""
        rude = self.random.random() < 0.3
        for _ in range(self.random.choice(RUDE_PACKETS) if rude else SLY_PACKETS):
            self.maker.tempers = RUDE if rude else SLY
            yield self._rude() if rude else self._sly(peer)

    def send(self, session: HostileSession, plain: bytes) -> None:
        """Send a packet; every fourth frame goes in an envelope, whatever its size."""
        if plain[4:5] != bytes((FRAME,)) or self.random.random() < 0.75:
            super().send(session, plain)
            return
        self.sent += 1
        self.latest.append(plain)
        session.write_clear(session.envelop(plain))

    def _rude(self) -> bytes:
        random = self.random
        raw = random.choice(self.harvest) if self.harvest and random.random() < 0.5 else None
        if raw is None:
            if random.random() < 0.1:
                return self.maker.noise()
            raw = self.maker.make(random.choice((*MEMBERS_SAY, HELLO, CLIENT, SEALED)))
        return self.changed(raw)

    def _sly(self, peer: str) -> bytes:
        random, mole = self.random, self.mole
        if mole is not None and random.random() < 0.25:
            return self.maker.parcel(mole.next_parcel(peer))
        if self.harvest and random.random() < 0.2:
            raw = random.choice(self.harvest)  # sent by a victim; replayed, perhaps to another
            if raw[4] in MEMBERS_SAY:
                return raw
        return self.maker.make(random.choice(MEMBERS_SAY))

    def _break_the_seal(self, session: HostileSession) -> None:
        """Records and envelopes that do not open, or that do and hold no packets."""
        random = self.random
        self.sent += 1
        if random.random() < 0.5:
            self._break_an_envelope(session)
            return
        good = self.maker.make(CONTROL)
        record = session.seal(good)
        match random.randrange(8):
            case 0:
                session.write_clear(record + record)
            case 1:
                session.write_clear(record[:-1] + bytes([record[-1] ^ 1]))
            case 2:
                session.write_clear(record[:-3])
            case 3:
                session.write_clear(good)
            case 4:
                session.write(good[:-1])
            case 5:
                session.write(good + good[: random.randrange(len(good))])
            case 6:
                session.write(random.randbytes(random.choice((0, 1, 4, 5, 200))))
            case _:
                session.write_clear(PREFIX.pack(random.choice(EDGES) & 0xFFFFFFFF, SEALED) + record)
        self.latest.append(record)

    def _break_an_envelope(self, session: HostileSession) -> None:
        """Envelopes that do not open, that hold no frame, or a frame above the limit."""
        random = self.random
        frame = self.maker.make(FRAME)
        envelope = seal_envelope(frame)
        match random.randrange(9):
            case 0:
                record = session.locked(envelope) * 2
            case 1:
                record = session.locked(envelope)
                place = random.randrange(PREFIX.size, len(record))
                record = record[:place] + bytes([record[place] ^ 1]) + record[place + 1 :]
            case 2:
                record = session.locked(envelope)[:-3]
            case 3:
                other = seal_envelope(frame)
                record = session.locked(envelope._replace(sealed=other.sealed))
            case 4:
                record = session.envelop(self.maker.make(CONTROL))
            case 5:
                record = session.envelop(frame + self.maker.make(FRAME))
            case 6:
                record = session.envelop(random.randbytes(random.choice((0, 1, 4, 5, 200))))
            case 7:
                length = MAX_PACKET + random.choice((0, 1, 63, 64, SEAL_BYTES))
                body = frame[PREFIX.size :] + bytes(length + 4 - len(frame))
                record = session.envelop(PREFIX.pack(length, FRAME) + body)
            case _:
                short = session.seal(envelope.secret[: random.randrange(28)])
                record = PREFIX.pack(len(short) - 4, ENVELOPE) + short[PREFIX.size :]
        session.write_clear(record)
        self.latest.append(record)


class Mole(Shell):
    """A member that keeps to the protocol, and records the packets it gets."""

    def __init__(self) -> None:
        super().__init__(config())
        self.harvest: deque[bytes] = deque(maxlen=HARVEST)
        self._parcels: dict[NodeId, int] = {}

    def control(self, peer: NodeId, message: Any) -> None:
        if isinstance(message, Parcel):
            self._parcels[peer] = max(self._parcels.get(peer, 0), message.number + 1)
        super().control(peer, message)

    def next_parcel(self, address: str) -> int:
        """Take the parcel number that a victim expects of us next."""
        view = self.member.view
        peer = -1 if view is None else view.places.get(address, -1)
        number = self._parcels.get(peer, 0)
        self._parcels[peer] = number + 1
        return number

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Ignore protocol errors: victims answer lies that were told in our name."""
        self.harvest.extend(raw for _, raw in packets)
        with suppress(ProtocolError):
            super().received(connection, packets)


class LyingMember:
    """Enters honestly, then lies: in its own name, and under made-up uids."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        self._random = random
        self._addresses = addresses
        self._mole: Mole | None = None
        self._attacks = 0
        self._liars = [Insider(Random(random.getrandbits(64)), addresses) for _ in range(2)]

    @property
    def connections(self) -> int:
        """Connections in the member's name and under made-up uids."""
        return sum(one.connections for one in self._liars)

    @property
    def sent(self) -> int:
        """Hostile packets of both liars."""
        return sum(one.sent for one in self._liars)

    @property
    def latest(self) -> deque[bytes]:
        """The latest packets of both liars; those in the member's name come first."""
        return deque((raw for one in self._liars for raw in one.latest), maxlen=2 * KEPT_PACKETS)

    @property
    def earnest(self) -> int:
        """Honest questions, whose answers show how far a victim is."""
        return sum(one.earnest for one in self._liars)

    async def attack(self, packets: int) -> None:
        """Send three packets in the member's name for each one under a made-up uid."""
        if self._attacks % MOLE_ATTACKS == 0:
            await self._enter()
        self._attacks += 1
        member, key_holder = self._liars
        async with asyncio.TaskGroup() as group:
            group.create_task(member.attack(packets - packets // 4))
            group.create_task(key_holder.attack(packets // 4))
            group.create_task(self._gossip())

    async def _enter(self) -> None:
        """Replace the lying member, which victims may have stopped believing, by a new one."""
        await self.close()
        mole = Mole()
        try:
            await mole.start(self._random.choice(self._addresses))
        except JoinError as error:
            raise Unwelcome(str(error)) from None
        self._mole = mole
        self._liars[0].mole = mole
        with suppress(CubecastError):
            await mole.node.subscribe(ATTACKED, policy="drop-oldest").__aenter__()

    async def _gossip(self) -> None:
        mole = self._mole
        with suppress(CubecastError, TimeoutError):
            async with asyncio.timeout(1.0):
                if mole is not None:
                    await mole.node.publish(ATTACKED, b"earnest")

    async def close(self) -> None:
        """End the member as by SIGKILL: it does not leave."""
        mole, self._mole, self._liars[0].mole = self._mole, None, None
        if mole is not None:
            mole.kill()
