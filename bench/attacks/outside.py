"""Attacks of strangers and of clients: relays, forged frames, another cluster, and hoards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from siege.clients import hoard as hoard_queues
from siege.clients import many_topics
from siege.grounds import Grounds
from siege.outsiders import enter_for_another, invented_beacon, invented_install
from siege.strangers import flood, relay_of_the_dead
from siege.terms import STEADY

import cubecast
from attacks.bystander import PRIVATE, joined
from attacks.scene import Scene
from cubecast.errors import CubecastError
from cubecast.net.links.address import parse_address
from cubecast.net.node.shell import Shell
from cubecast.net.wire.hello import Hello, encode_greeting
from cubecast.net.wire.packets import HELLO, SEALED, VERSION, OutgoingFrame, encode_frame
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream
from cubecast.testing.relay import relay

PAUSE_S = 0.5
JOIN_S = 2.0
FORGED = b"FORGED"


async def died(scene: Scene) -> str:
    """Let a fifth honest node join and die; its address."""
    node = await joined(scene.terms.config(), scene.addresses[0])
    await scene.until_all_know(node.address)
    node.kill()
    return node.address


async def death(scene: Scene) -> None:
    """No attack: a fifth node dies, as it does in attacks that take its port."""
    await died(scene)
    scene.begun()
    await asyncio.Event().wait()


async def relay_of_members(scene: Scene) -> None:
    """Take the port of a node that died, and relay its diallers to a live node."""
    grounds = scene.grounds
    address = await died(scene)
    scene.begun()
    try:
        while True:
            grounds.dead.append(address)
            await relay_of_the_dead(grounds)
    finally:
        scene.notes.append(f"{grounds.counts['relayed connections']} connections relayed")
        if any(PRIVATE in one for one in grounds.recordings):
            scene.breaches["read by a relay"] += 1


async def relay_of_clients(scene: Scene) -> None:
    """Ask for a member's place with the packets of a client that dialled us."""
    member = encode_greeting(Hello(VERSION, "0" * 32, purpose="member", sealed=True))

    def as_a_member(number: int, packet: bytes) -> list[bytes]:
        return [member] if packet[4] == HELLO and b'"Hello"' in packet else [packet]

    tried = 0
    async with relay(scene.addresses[1], change=as_a_member) as (address, one):
        scene.begun()
        try:
            while True:
                tried += 1
                with suppress(CubecastError):
                    async with cubecast.connect(address, secret=scene.terms.client_secret):
                        scene.breaches["client as a member"] += 1
                await asyncio.sleep(PAUSE_S)
        finally:
            scene.notes.append(f"{tried} clients dialled the relay")
            if PRIVATE in one.heard:
                scene.breaches["read by a relay"] += 1


async def forged_source(scene: Scene) -> None:
    """Add frames in the name of node 0 to the packets between an honest newcomer and a node."""
    life = (await scene.reports())[0]["life"]
    stream = Stream(0, life)
    everyone = (1 << len(scene.nodes) + 1) - 1
    frames = [
        encode_frame(
            Frame(
                STEADY,
                stream,
                seq,
                (),
                Route(1, 0, everyone),
                seq - 1,
                OutgoingFrame([FORGED], 0),
                0,
            )
        )
        for seq in (0, 1000)
    ]

    def with_frames(number: int, packet: bytes) -> list[bytes]:
        return [packet, *frames] if packet[4] == SEALED else [packet]

    tried = joined = 0
    async with relay(scene.addresses[1], change=with_frames) as (address, one):
        scene.begun()
        try:
            while True:
                tried += 1
                newcomer = Shell(scene.terms.config())
                with suppress(CubecastError, TimeoutError):
                    async with asyncio.timeout(JOIN_S):
                        await newcomer.start(address)
                        joined += 1
                with suppress(CubecastError):
                    scene.expected.add(newcomer.address)
                    await newcomer.shut_down()
                await asyncio.sleep(PAUSE_S)
        finally:
            scene.notes.append(f"{tried} newcomers dialled the relay, {joined} joined")
            if PRIVATE in one.heard:
                scene.breaches["read by a relay"] += 1


async def merge(scene: Scene) -> None:
    """Another cluster with the same secret begins at the port of a node that died."""
    name = (await scene.reports())[0]["cluster"]
    address = await died(scene)
    other = Shell(replace(scene.terms.config(), listen=address))
    await other.start(None)
    scene.begun()
    try:
        while True:
            await asyncio.sleep(PAUSE_S)
            if len(other.node.members) > 1 or other.node.cluster == name:
                scene.breaches["clusters that merged"] = 1
    finally:
        scene.notes.append(f"the other cluster has {len(other.node.members)} member")
        other.kill()


async def over_and_over(scene: Scene, *attacks: Callable[[Grounds], Awaitable[None]]) -> None:
    """Attacks of a siege, all at once, on as many nodes as there are, again and again."""
    grounds = scene.grounds
    begun = 0
    scene.begun()
    try:
        while True:
            works = [attack(grounds) for attack in attacks for _ in scene.nodes]
            begun += len(works)
            await asyncio.gather(*works, return_exceptions=True)
            await asyncio.sleep(PAUSE_S)
    finally:
        scene.notes.append(f"done {begun} times")


async def beacon(scene: Scene) -> None:
    """An outsider with the members' key sends a beacon of a view of 300 that outranks ours."""
    await over_and_over(scene, invented_beacon)


async def install(scene: Scene) -> None:
    """An outsider with the members' key installs views that lack the receiver or another node."""
    await over_and_over(scene, invented_install)


async def enter(scene: Scene) -> None:
    """An outsider with the members' key asks for places at another's address, in another's name."""
    await over_and_over(scene, enter_for_another)


async def hoard(scene: Scene) -> None:
    """Clients take queues and topics that they do not read, strangers take connections."""
    async with AsyncExitStack() as stack:
        for address in scene.addresses:  # what is open stays open until the end
            host, port = parse_address(address)
            for _ in range(50):
                _, writer = await asyncio.open_connection(host, port)
                stack.callback(writer.transport.abort)
        await over_and_over(scene, hoard_queues, many_topics, flood)
