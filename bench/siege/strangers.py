"""Attackers without a key: floods, halves of handshakes, slow bytes, garbage, replays, relays."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import cubecast
from cubecast.errors import CubecastError
from cubecast.net.links.address import parse_address
from cubecast.net.security.handshake import Refusal
from cubecast.net.security.keys import Purpose
from cubecast.net.wire.hello import (
    Door,
    Hello,
    Opening,
    decode_greeting,
    encode_greeting,
    new_nonce,
)
from cubecast.net.wire.packet_buffer import PacketBuffer
from cubecast.net.wire.packets import HELLO, PREFIX, VERSION, WireError
from cubecast.testing.dialler import reset
from siege.grounds import Attack, Grounds
from siege.raw import dialled
from siege.terms import GUESTS

RECORDED_BYTES = 64 * 1024
PATIENCE_S = 12.0
"""Longer than a node waits for a handshake."""


async def flood(grounds: Grounds) -> None:
    """Many connections that say nothing, dropped all at once."""
    async with AsyncExitStack() as stack:
        address = grounds.victim()
        for _ in range(grounds.random.randint(20, 80)):
            await stack.enter_async_context(dialled(address))
        await asyncio.sleep(grounds.random.uniform(0.1, 2.0))


async def half_handshakes(grounds: Grounds) -> None:
    """Handshakes up to the node's `Door`, and no further."""
    async with AsyncExitStack() as stack:
        address = grounds.victim()
        for _ in range(10):
            raw = await stack.enter_async_context(dialled(address))
            raw.write(_hello("member" if grounds.random.random() < 0.5 else "client"))
            await raw.greeting()
        await asyncio.wait_for(raw.ended(), PATIENCE_S)


async def slow_bytes(grounds: Grounds) -> None:
    """A greeting, byte by byte."""
    async with dialled(grounds.victim()) as raw:
        for byte in _hello("member"):
            raw.write(bytes([byte]))
            await raw.drain()
            await asyncio.sleep(grounds.random.uniform(0.05, 0.3))


async def garbage(grounds: Grounds) -> None:
    """Random bytes, giant lengths, broken greetings."""
    random = grounds.random
    hello = bytearray(_hello("client"))
    hello[random.randrange(5, len(hello))] ^= 1 << random.randrange(8)
    said = random.choice(
        [
            random.randbytes(random.randint(1, 5000)),
            PREFIX.pack(random.choice([0, 1 << 20, (1 << 32) - 1]), HELLO),
            PREFIX.pack(4001, HELLO) + b"[" * 4000,
            bytes(hello),
            encode_greeting(Door("ab" * 16, "cd" * 16)),
            encode_greeting(Opening(random.randbytes(96))),
        ]
    )
    async with dialled(grounds.victim()) as raw:
        raw.write(said)
        await asyncio.wait_for(raw.ended(), PATIENCE_S)


async def wrong_secret(grounds: Grounds) -> None:
    """A whole handshake with a secret that is none."""
    purpose: Purpose = grounds.random.choice(("member", "client"))
    async with dialled(grounds.victim()) as raw:
        with suppress(ConnectionError, Refusal):
            await raw.authenticate("not the secret at all", "stranger", purpose=purpose)
            grounds.breaches[f"wrong secret of a {purpose}"] += 1


async def replay(grounds: Grounds) -> None:
    """Send the recording of an honest dialler to any node again."""
    if not grounds.recordings:
        await overhear(grounds)
        return
    async with dialled(grounds.victim()) as raw:
        raw.write(grounds.random.choice(grounds.recordings))
        with suppress(ConnectionError):
            while True:
                if isinstance(await raw.greeting(), Opening):
                    grounds.breaches["replay"] += 1


async def overhear(grounds: Grounds) -> None:
    """Record an honest client that attaches through us."""
    tap = Relay(grounds, grounds.victim())
    server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        with suppress(CubecastError, TimeoutError):
            async with (
                asyncio.timeout(10.0),
                cubecast.connect(f"{host}:{port}", secret=grounds.terms.client_secret) as client,
                client.subscribe(GUESTS, policy="drop-oldest") as messages,
            ):
                await client.publish(GUESTS, b"overheard")
                await anext(messages)
    finally:
        server.close()


async def relay_of_the_dead(grounds: Grounds) -> None:
    """Take the port of a node that was killed, and relay its diallers to a live node."""
    if not grounds.dead:
        return
    host, port = parse_address(grounds.dead.pop())
    relay = Relay(grounds, grounds.victim())
    server = await asyncio.start_server(relay.serve, host, port)
    grounds.counts["ports of the dead taken"] += 1
    try:
        await asyncio.sleep(grounds.random.uniform(4.0, 8.0))
    finally:
        server.close()


class Relay:
    """Carries bytes between its diallers and a node; records the diallers.

    If a dialler named the node it means, another node must not answer with an `Opening`: that
    would be a breach.
    """

    def __init__(self, grounds: Grounds, target: str) -> None:
        self._grounds = grounds
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        host, port = parse_address(self._target)
        spoken = bytearray()
        heard = bytearray()
        try:
            theirs, ours = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(_pump(reader, ours, spoken)),
            asyncio.create_task(_pump(theirs, writer, heard)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for one in (ours, writer):
                reset(one)
        self._grounds.counts["relayed connections"] += 1
        self._grounds.recordings.append(bytes(spoken))
        if _names_its_peer(bytes(spoken)) and _opens(bytes(heard)):
            self._grounds.breaches["relay"] += 1


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            if len(record) < RECORDED_BYTES:
                record += data
            writer.write(data)
            await writer.drain()


def _hello(purpose: Purpose) -> bytes:
    """A greeting that any node takes: it names no node."""
    return encode_greeting(Hello(VERSION, nonce=new_nonce(), purpose=purpose, sealed=True))


def _greetings(data: bytes) -> list[object]:
    """The greetings that a conversation begins with."""
    found: list[object] = []
    with suppress(WireError):
        for kind, raw in PacketBuffer().feed(data):
            if kind != HELLO:
                break
            found.append(decode_greeting(raw))
    return found


def _names_its_peer(data: bytes) -> bool:
    return any(isinstance(one, Hello) and one.peer for one in _greetings(data))


def _opens(data: bytes) -> bool:
    return any(isinstance(one, Opening) for one in _greetings(data))


ATTACKS: dict[str, tuple[float, Attack]] = {
    "flood": (3.0, flood),
    "half handshakes": (4.0, half_handshakes),
    "slow bytes": (2.0, slow_bytes),
    "garbage": (0.3, garbage),
    "wrong secret": (1.0, wrong_secret),
    "replay": (0.5, replay),
    "overhear": (10.0, overhear),
    "relay of the dead": (2.0, relay_of_the_dead),
}
"""By name: the mean pause in seconds before each, and the attack."""
