"""Attackers of live nodes: a stranger, a member that lies, somebody with the key, a client.

Each sends packets until its victims have looked at as many as it was told; one that is cut off
dials again.  Random choices come from one seed, but what a victim answers, and when, does not: a
run can be repeated in kind, not packet by packet.  So the latest packets are kept.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import msgspec

from cubecast.errors import CubecastError
from cubecast.net.client_wire import Ping, encode
from cubecast.net.connection import Connection
from cubecast.net.hello import AttachRequest, Hello, encode_greeting
from cubecast.net.keys import Keys
from cubecast.net.node import Node
from cubecast.net.view_wire import encode_detector
from cubecast.net.wire import PREFIX, SEALED, VERSION, WireError
from cubecast.protocol.detector import Test
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import Parcel
from cubecast.protocol.port import NodeId
from cubecast.testing.fuzz.grammar import EDGES, Lore
from cubecast.testing.fuzz.mutation import Mutator
from cubecast.testing.fuzz.packets import Maker, packet
from cubecast.testing.fuzz.scene import ATTACKED, CLIENT_SECRET, HOSTILE, SECRET, config
from cubecast.testing.fuzz.session import HARVEST, Imposture, Session

MEMBERS_SAY = (1, 1, 1, 2, 2, 3, 3, 3, 6, 6, 7, 7, 8, 9)
"""Kinds that members send, the more often the more there is to say."""
BURST = 8
"""Packets that are sent before an attacker asks something, to see whether it was cut off."""
ANSWER_S = 0.01
"""How long it waits for that answer; somebody without a name may get none."""
RUDE = (0.0, 0.01, 0.05, 0.3)
SLY = (0.0, 0.0, 0.0, 0.0, 0.01)
"""How wild packets are: of a connection that is soon cut off, and of one that is to last."""
MOLE_ATTACKS = 10
"""A member lies so often, then it dies and another enters."""
SLY_PACKETS = 200
"""Of one connection, if its victim takes them all."""
WORKERS = 6
"""Connections of one attacker at a time."""
KEPT_PACKETS = 400
DIAL_AGAIN_S = 0.05
MAX_IN_VAIN = 10
"""Connections one after the other by which nothing could be sent."""


class Attacker(Protocol):
    """Who sends."""

    @property
    def connections(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def latest(self) -> deque[bytes]:
        """What was sent last, as it was before it was sealed."""

    async def attack(self, packets: int) -> None:
        """About so many packets that matter."""

    async def close(self) -> None:
        """Hang up."""


class Liar:
    """What attackers have in common: what they know, and how they make things up."""

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

    def send(self, session: Session, plain: bytes) -> None:
        self.sent += 1
        self.latest.append(plain)
        session.write(plain)

    async def dial(self) -> Session:
        """A connection to one of the victims; the ports of one address might not suffice."""
        self.connections += 1
        address = self.random.choice(self.addresses)
        return await Session.dial(address, HOSTILE, self.harvest)

    def changed(self, raw: bytes) -> bytes:
        return self.mutator.mutate(raw, list(self.harvest)[-20:] or [raw])

    async def attack(self, packets: int) -> None:
        """Connection after connection, a few at a time."""
        goal = self.sent + packets
        await asyncio.gather(*(self._go_on(goal) for _ in range(WORKERS)))

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

    async def once(self) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class Stranger(Liar):
    """Knows no secret: noise, broken handshakes, and handshakes that stop half-way."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys("not the secret of anybody")

    async def once(self) -> None:
        session = await self.dial()
        try:
            await self.random.choice(
                (self._noise, self._noise, self._greeting, self._greeting, self._handshake)
            )(session)
            await session.finish()
        finally:
            session.hang_up()

    def clear(self, session: Session, data: bytes) -> None:
        self.sent += 1
        self.latest.append(data)
        session.write_clear(data)

    async def _noise(self, session: Session) -> None:
        random = self.random
        self.clear(session, random.choice((
            random.randbytes(random.randrange(1, 200)),
            self.maker.noise(),
            PREFIX.pack(random.choice(EDGES) & 0xFFFFFFFF, random.randrange(12)) + b"x" * 20,
            packet(SEALED, random.randbytes(60)),
            self.maker.make(random.choice(MEMBERS_SAY)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        )))  # fmt: skip

    async def _greeting(self, session: Session) -> None:
        """Greetings in any order, changed or not; each may be answered or refused."""
        for _ in range(self.random.choice((1, 2, 3))):
            raw = self.maker.greeting()
            self.clear(session, raw if self.random.random() < 0.5 else self.changed(raw))

    async def _handshake(self, session: Session) -> None:
        """Begin in earnest, read the salt, and go on with something else."""
        hello = Hello(VERSION, nonce=f"{self.random.getrandbits(128):032x}", sealed=True)
        raw = encode_greeting(hello)
        if self.random.random() < 0.5:
            session.write_clear(raw)
            await session.packet()
            opening = self.maker.greeting() if self.random.random() < 0.5 else self._opening()
            self.clear(session, opening)
        elif self.random.random() < 0.5:
            self.clear(session, self.changed(raw))
        else:
            self.sent += 1
            await session.shake_hands(Imposture(self._keys))

    def _opening(self) -> bytes:
        """The first message of Noise, of the right size and without the key."""
        size = self.random.choice((0, 31, 32, 48, 96, 1024, 1025))
        data = self.random.randbytes(size)
        return packet(4, b'{"type":"Opening","data":"' + b64encode(data) + b'"}')


class Insider(Liar):
    """Holds the members' key, and makes up everything else.

    With a `mole`, a node that is a member and keeps to the protocol, it speaks in that member's
    name; without one it is nobody's.
    """

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys(SECRET)
        self.mole: Mole | None = None
        self._salt = ""

    def _who(self) -> Imposture:
        mole, random = self.mole, self.random
        if mole is not None and mole.member.view is not None:
            return Imposture(self._keys, mole.uid, mole.slot, salt=self._salt)
        slot = random.choice((-1, -1, 0, 3, 8191))
        return Imposture(self._keys, f"fuzz{random.randrange(50)}", slot, salt=self._salt)

    def _learn(self) -> None:
        """What the mole's view says of the victims, so that lies fit."""
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
            reading = asyncio.ensure_future(session.ended())
            try:
                await self._lie(session, reading)
                await reading_ends(session, reading)
            finally:
                reading.cancel()
        finally:
            session.hang_up()

    async def _lie(self, session: Session, reading: asyncio.Future[None]) -> None:
        """Rude: a few of anything, soon refused.  Sly: many that a node may well take."""
        random = self.random
        if random.random() < 0.15:
            self._break_the_seal(session)
            return
        rude = random.random() < 0.3
        self.maker.tempers = RUDE if rude else SLY
        for index in range(random.choice((1, 3, 10)) if rude else SLY_PACKETS):
            if index % BURST == BURST - 1:
                session.write(encode_detector(Test(random.randrange(1000))))
                await session.answered(ANSWER_S)
            if reading.done() or session.over:
                return
            self.send(session, self._rude() if rude else self._sly(session.peer))

    def _rude(self) -> bytes:
        random = self.random
        raw = random.choice(self.harvest) if self.harvest and random.random() < 0.5 else None
        if raw is None:
            if random.random() < 0.1:
                return self.maker.noise()
            raw = self.maker.make(random.choice((*MEMBERS_SAY, 4, 5, 10)))
        return self.changed(raw)

    def _sly(self, peer: str) -> bytes:
        random, mole = self.random, self.mole
        if mole is not None and random.random() < 0.25:
            return self.maker.parcel(mole.next_parcel(peer))
        if self.harvest and random.random() < 0.2:
            raw = random.choice(self.harvest)  # what others said, to somebody else
            if raw[4] in MEMBERS_SAY:
                return raw
        return self.maker.make(random.choice(MEMBERS_SAY))

    def _break_the_seal(self, session: Session) -> None:
        """Records that do not open, and records that do and hold no packets."""
        random = self.random
        self.sent += 1
        good = self.maker.make(3)
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


class Mole(Node):
    """A member that keeps to the protocol, and hands on what it hears."""

    def __init__(self) -> None:
        super().__init__(config())
        self.harvest: deque[bytes] = deque(maxlen=HARVEST)
        self._parcels: dict[NodeId, int] = {}

    def control(self, peer: NodeId, message: Any) -> None:
        if isinstance(message, Parcel):
            self._parcels[peer] = max(self._parcels.get(peer, 0), message.number + 1)
        super().control(peer, message)

    def next_parcel(self, address: str) -> int:
        """The number that a victim expects of us next; it is used up."""
        view = self.member.view
        peer = -1 if view is None else view.places.get(address, -1)
        number = self._parcels.get(peer, 0)
        self._parcels[peer] = number + 1
        return number

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        """Take nothing amiss: victims answer lies that were told in our name."""
        self.harvest.extend(raw for _, raw in packets)
        with suppress(ProtocolError):
            super().received(connection, packets)


class Member:
    """Enters honestly, then lies: in its own name, and as somebody without a name."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        self._random = random
        self._addresses = addresses
        self._mole: Mole | None = None
        self._attacks = 0
        self._liars = [Insider(Random(random.getrandbits(64)), addresses) for _ in range(2)]

    @property
    def connections(self) -> int:
        """Those in the member's name and those in nobody's."""
        return sum(one.connections for one in self._liars)

    @property
    def sent(self) -> int:
        """Packets that the member did not send in earnest."""
        return sum(one.sent for one in self._liars)

    @property
    def latest(self) -> deque[bytes]:
        """Of the member; the other one is believed nothing."""
        return deque((raw for one in self._liars for raw in one.latest), maxlen=2 * KEPT_PACKETS)

    async def attack(self, packets: int) -> None:
        """Three packets of the member for each of somebody who only has the key."""
        if self._attacks % MOLE_ATTACKS == 0:
            await self._enter()
        self._attacks += 1
        member, nobody = self._liars
        await asyncio.gather(
            member.attack(packets - packets // 4), nobody.attack(packets // 4), self._gossip()
        )

    async def _enter(self) -> None:
        """A new member takes the place of one that nobody may believe any more."""
        await self.close()
        mole = Mole()
        await mole.start(self._random.choice(self._addresses))
        self._mole = mole
        self._liars[0].mole = mole
        with suppress(CubecastError):
            await mole.subscribe(ATTACKED, policy="drop-oldest").__aenter__()

    async def _gossip(self) -> None:
        assert self._mole is not None
        with suppress(CubecastError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._mole.publish(ATTACKED, b"earnest")

    async def close(self) -> None:
        """The member dies as by SIGKILL: nothing is said of it."""
        mole, self._mole = self._mole, None
        if mole is not None:
            mole.kill()


class Client(Liar):
    """Holds the clients' key, attaches honestly, and says what no client says."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys("", CLIENT_SECRET)
        self._salt = ""
        self.lore.topics = [ATTACKED, "a/b", "+/b", "#", "", "$x"]

    async def once(self) -> None:
        session = await self.dial()
        try:
            party = Imposture(self._keys, f"fuzz{self.random.randrange(50)}", purpose="client",
                              salt=self._salt)  # fmt: skip
            await session.shake_hands(party)
            self._salt = party.salt
            if self.random.random() < 0.95:
                session.write(encode_greeting(AttachRequest()))
            reading = asyncio.ensure_future(session.ended())
            try:
                await self._lie(session, reading)
                await reading_ends(session, reading)
            finally:
                reading.cancel()
        finally:
            session.hang_up()

    async def _lie(self, session: Session, reading: asyncio.Future[None]) -> None:
        """Rude: a few of anything.  Sly: what a node may well take, numbered as it wants it."""
        rude, numbers = self.random.random() < 0.3, Numbers()
        self.maker.tempers = RUDE if rude else SLY
        for index in range(self.random.choice((1, 3, 10)) if rude else SLY_PACKETS):
            if index % BURST == BURST - 1:
                session.write(encode(Ping()))
                await session.answered(ANSWER_S)
            if reading.done() or session.over:
                return
            self.send(session, self._rude() if rude else self._sly(numbers))

    def _rude(self) -> bytes:
        random = self.random
        shape = random.random()
        if shape < 0.7:
            return self.changed(self.maker.from_client())
        if shape < 0.9 and self.harvest:
            return self.changed(random.choice(self.harvest))
        return random.choice((self.maker.noise, lambda: self.maker.make(6)))()

    def _sly(self, numbers: Numbers) -> bytes:
        raw = self.maker.from_client()
        return raw if self.random.random() < 0.02 else numbers.put_in(raw, self.random)


class Numbers:
    """What a client has to keep to for its node to go on listening."""

    def __init__(self) -> None:
        self._publications = 0
        self._subscriptions = 0
        self._listens = False

    def put_in(self, raw: bytes, random: Random) -> bytes:
        """The same packet with the number that its node expects."""
        body = msgspec.msgpack.decode(raw[PREFIX.size :])
        match body:
            case ["Publish", *_]:
                body[1] = self._publications
                self._publications += 1
            case ["Subscribe", *_]:
                body[1] = self._subscriptions
                self._subscriptions += 1
            case ["Unsubscribe", *_] | ["Read", *_]:
                body[1] = random.randrange(self._subscriptions + 1)
                body[2:] = [0] * len(body[2:])
            case ["Listen"] if self._listens:
                body = ["Ping"]
            case ["Listen"]:
                self._listens = True
        return packet(raw[4], msgspec.msgpack.encode(body))


async def reading_ends(session: Session, reading: asyncio.Future[None]) -> None:
    """Say that nothing more will come, and let the victim look at all that was sent."""
    if not reading.done():
        session.say_no_more()
    with suppress(ConnectionError, WireError):
        await reading


ATTACKERS: dict[str, Callable[[Random, Sequence[str]], Attacker]] = {
    "stranger": Stranger,
    "member": Member,
    "client": Client,
}
"""Attackers of live nodes, by mode."""
