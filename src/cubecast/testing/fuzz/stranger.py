"""An attacker that holds no key."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from random import Random

from cubecast.net.security.keys import Keys
from cubecast.net.wire.hello import Hello, encode_greeting
from cubecast.net.wire.packets import HELLO, PREFIX, SEALED, VERSION
from cubecast.testing.dialler import DiallerParty
from cubecast.testing.fuzz.grammar import EDGES
from cubecast.testing.fuzz.liar import Liar
from cubecast.testing.fuzz.packets import MEMBERS_SAY, packet
from cubecast.testing.fuzz.session import HostileSession


class Stranger(Liar):
    """Knows no secret: noise, broken handshakes, and handshakes that stop half-way."""

    def __init__(self, random: Random, addresses: Sequence[str]) -> None:
        super().__init__(random, addresses)
        self._keys = Keys("not the secret of a cluster")

    async def once(self) -> None:
        session = await self.dial()
        try:
            await self.random.choice(
                (self._noise, self._noise, self._greeting, self._greeting, self._handshake)
            )(session)
            await session.finish()
        finally:
            session.hang_up()

    def clear(self, session: HostileSession, data: bytes) -> None:
        self.sent += 1
        self.latest.append(data)
        session.write_clear(data)

    async def _noise(self, session: HostileSession) -> None:
        random = self.random
        self.clear(session, random.choice((
            random.randbytes(random.randrange(1, 200)),
            self.maker.noise(),
            PREFIX.pack(random.choice(EDGES) & 0xFFFFFFFF, random.randrange(12)) + b"x" * 20,
            packet(SEALED, random.randbytes(60)),
            self.maker.make(random.choice(MEMBERS_SAY)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        )))  # fmt: skip

    async def _greeting(self, session: HostileSession) -> None:
        """Greetings in any order, changed or not; each may be answered or refused."""
        for _ in range(self.random.choice((1, 2, 3))):
            raw = self.maker.greeting()
            self.clear(session, raw if self.random.random() < 0.5 else self.changed(raw))

    async def _handshake(self, session: HostileSession) -> None:
        """Begin an honest handshake, read the salt, and continue with invalid messages."""
        hello = Hello(VERSION, nonce=f"{self.random.getrandbits(128):032x}", sealed=True)
        raw = encode_greeting(hello)
        if self.random.random() < 0.5:
            session.write_clear(raw)
            await session.answer()
            opening = self.maker.greeting() if self.random.random() < 0.5 else self._opening()
            self.clear(session, opening)
        elif self.random.random() < 0.5:
            self.clear(session, self.changed(raw))
        else:
            self.sent += 1
            await session.shake_hands(DiallerParty(self._keys, "fuzz"))

    def _opening(self) -> bytes:
        """The first message of Noise, of the right size and without the key."""
        size = self.random.choice((0, 31, 32, 48, 96, 1024, 1025))
        data = self.random.randbytes(size)
        return packet(HELLO, b'{"type":"Opening","data":"' + b64encode(data) + b'"}')
