"""Attackers with the clients' key: they hoard, use up names, send garbage, pose as members."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

from cubecast.errors import CubecastError
from cubecast.net.client.client import Client
from cubecast.net.client.shell import ClientShell
from cubecast.net.security.handshake import Refusal
from cubecast.net.wire.clients import (
    MAX_QUEUE,
    Ask,
    Ping,
    Publish,
    Read,
    Subscribe,
    Unsubscribe,
    encode,
)
from cubecast.net.wire.hello import Attached, AttachRequest, encode_greeting
from cubecast.net.wire.packets import CLIENT, PREFIX
from siege.grounds import Attack, Grounds
from siege.raw import Raw, dialled
from siege.terms import BURST, STEADY

HOARD = "siege/hoard"
LARGE = b"h" * 32 * 1024
FRESH_TOPICS = 150
PATIENCE_S = 12.0


async def _attached(grounds: Grounds) -> Client:
    shell = ClientShell(grounds.terms.client_secret)
    await shell.attach(grounds.victim(), PATIENCE_S)
    return shell.client


async def hoard(grounds: Grounds) -> None:
    """Many subscriptions with the largest queues, fed with large messages and never read."""
    client = await _attached(grounds)
    try:
        async with AsyncExitStack() as stack:
            for number in range(40):
                topic = (HOARD, STEADY, BURST)[number % 3]
                await stack.enter_async_context(
                    client.subscribe(topic, policy="drop-oldest", queue_bytes=MAX_QUEUE)
                )
            for _ in range(grounds.random.randint(20, 100)):
                await client.publish(HOARD, LARGE)
            await asyncio.sleep(grounds.random.uniform(1.0, 6.0))
    finally:
        await client.close(flush=False)


async def many_topics(grounds: Grounds) -> None:
    """Use fresh topics; attach again, and use more of them."""
    for _ in range(3):
        client = await _attached(grounds)
        try:
            fresh = grounds.random.getrandbits(64)
            async with AsyncExitStack() as stack:
                for number in range(FRESH_TOPICS):
                    topic = f"siege/fresh/{fresh:x}/{number}"
                    if number % 3:
                        await client.publish(topic, b"new")
                    else:
                        await stack.enter_async_context(
                            client.subscribe(topic, policy="drop-newest")
                        )
        finally:
            await client.close(flush=False)


async def client_garbage(grounds: Grounds) -> None:
    """Attach, then send packets that no client sends, or at the wrong time."""
    random = grounds.random
    async with dialled(grounds.victim()) as raw:
        if not await _attach_by_hand(raw, grounds.terms.client_secret):
            return
        number = 0
        with suppress(ConnectionError, TimeoutError):
            for _ in range(random.randint(1, 30)):
                number += 1
                raw.write(_said(grounds, number))
            await asyncio.wait_for(raw.ended(), 3.0)


def _said(grounds: Grounds, number: int) -> bytes:
    random = grounds.random
    good = random.choice(
        [
            encode(Subscribe(number, f"siege/odd/{number % 5}", "drop-oldest", MAX_QUEUE)),
            encode(Unsubscribe(random.randrange(50))),
            encode(Read(random.randrange(50), random.randrange(1 << 40))),
            encode(Publish(number, "siege/odd/#", [b"x"], True)),
            encode(Ask(number, "topics", "")),
            encode(Ping()),
        ]
    )
    if random.random() < 0.8:
        return good
    body = bytearray(good[PREFIX.size :] + random.randbytes(3))
    body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    return PREFIX.pack(1 + len(body), CLIENT) + bytes(body)


async def _attach_by_hand(raw: Raw, secret: str) -> bool:
    await raw.authenticate(secret, "rude", purpose="client")
    raw.write(encode_greeting(AttachRequest()))
    return isinstance(await raw.greeting(), Attached)


async def climb(grounds: Grounds) -> None:
    """The clients' key, used as a member's."""
    async with dialled(grounds.victim()) as raw:
        with suppress(ConnectionError, Refusal):
            await raw.authenticate(grounds.terms.client_secret, "climber")
            grounds.breaches["a client as a member"] += 1


async def gone_at_once(grounds: Grounds) -> None:
    """Attach and hang up, again and again."""
    for _ in range(10):
        async with dialled(grounds.victim()) as raw:
            with suppress(CubecastError):
                await _attach_by_hand(raw, grounds.terms.client_secret)


ATTACKS: dict[str, tuple[float, Attack]] = {
    "hoard": (4.0, hoard),
    "many topics": (3.0, many_topics),
    "client garbage": (1.0, client_garbage),
    "client as member": (2.0, climb),
    "attach and hang up": (2.0, gone_at_once),
}
"""By name: the mean pause in seconds before each, and the attack."""
