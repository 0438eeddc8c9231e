"""An attacker that holds the clients' key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from cubecast.net.message import ID, REPLY
from cubecast.net.security.keys import Keys
from cubecast.net.wire.clients import Ping, encode
from cubecast.net.wire.headers import pack
from cubecast.net.wire.hello import AttachRequest, encode_greeting
from cubecast.net.wire.packets import PREFIX, VIEW
from cubecast.testing.dialler import DiallerParty
from cubecast.testing.fuzz.liar import RUDE, RUDE_PACKETS, SLY, SLY_PACKETS, Liar
from cubecast.testing.fuzz.packets import packet
from cubecast.testing.fuzz.scene import ATTACKED, CLIENT_SECRET


class LyingClient(Liar):
    """Holds the clients' key, attaches honestly, and sends what no honest client sends."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys("", CLIENT_SECRET)
        self._salt = ""
        self.lore.topics = [ATTACKED, "a/b", "+/b", "#", "", "$x", HEARD]

    async def once(self) -> None:
        session = await self.dial()
        try:
            party = DiallerParty(self._keys, f"fuzz{self.random.randrange(50)}", purpose="client",
                             salt=self._salt)  # fmt: skip
            await session.shake_hands(party)
            self._salt = party.salt
            if self.random.random() < 0.95:
                self.send_in_earnest(session, encode_greeting(AttachRequest()))
            await self.converse(session, self._lies(), encode(Ping()))
        finally:
            session.hang_up()

    def _lies(self) -> Iterator[bytes]:
        """Rude: a few random packets.  Sly: packets that a node may well take, numbered right."""
        rude, numbers = self.random.random() < 0.3, PacketNumbers()
        for _ in range(self.random.choice(RUDE_PACKETS) if rude else SLY_PACKETS):
            self.maker.tempers = RUDE if rude else SLY
            yield self._rude() if rude else self._sly(numbers)

    def _rude(self) -> bytes:
        random = self.random
        shape = random.random()
        if shape < 0.7:
            return self.changed(self.maker.from_client())
        if shape < 0.9 and self.harvest:
            return self.changed(random.choice(self.harvest))
        return random.choice((self.maker.noise, lambda: self.maker.make(VIEW)))()

    def _sly(self, numbers: PacketNumbers) -> bytes:
        raw = self.maker.from_client()
        return raw if self.random.random() < 0.02 else numbers.put_in(raw, self.random)


HEARD = f"$replies/~/{0:032x}"
"""A reply topic that it may be subscribed to."""
HEADERS = (
    {"name": "value"},
    {REPLY: HEARD, ID: "1"},  # a request, which handlers answer if it is subscribed
    {REPLY: f"$replies/~/{1:032x}", ID: "1"},
    {REPLY: ATTACKED, ID: "1"},
)
"""Those of messages with headers."""


class PacketNumbers:
    """The numbers that a client's packets need so that its node does not hang up."""

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
                body[5:] = [[]]
                if body[3] and random.random() < 0.5:  # one with headers, good ones or others
                    blob = pack(random.choice(HEADERS), b"payload")
                    body[3] = [blob[: random.choice((1, 5, len(blob)))], *body[3][1:]]
                    body[5:] = [[0]]
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
