"""Attacks of a member: it joins, has a place in every tree, and lies in one way."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from siege.moles import GHOSTS, Mole, ghost_address, lie_on

from attacks.bystander import joined
from attacks.scene import Scene
from cubecast.testing.operator_troubles import free_address

NEWCOMER_S = 120.0
"""A newcomer that a mute leader keeps out waits so long for a place."""


async def _lie(scene: Scene, kind: str) -> None:
    mole = await joined(scene.terms.config(), scene.addresses[0], Mole)
    try:
        await scene.until_all_know(mole.address)
        mole.turn(kind)
        scene.begun()
        await lie_on(mole, scene.random)
    finally:
        mole.kill()


async def epoch(scene: Scene) -> None:
    """Decide on a next view whose epoch, 2^61, has no successor."""
    await _lie(scene, "last epoch")


async def ballot(scene: Scene) -> None:
    """Take a ballot above which there is none."""
    await _lie(scene, "ballot")


async def mute(scene: Scene) -> None:
    """Answer tests, but no waves."""
    await _lie(scene, "mute")


async def liar(scene: Scene) -> None:
    """Answer for every topic that all members have published a great deal to it."""
    await _lie(scene, "cut")


async def mute_leader(scene: Scene) -> None:
    """Lead the cluster, and change no view; an honest node asks for a place."""
    assert scene.leader is not None
    scene.leader.turn("mute leader")
    scene.begun()
    lying = asyncio.create_task(lie_on(scene.leader, scene.random))
    address = free_address()
    scene.expected.add(address)
    config = replace(scene.terms.config(), listen=address, join_timeout_s=NEWCOMER_S)
    began, newcomer = time.monotonic(), None
    try:
        newcomer = await joined(config, scene.addresses[1])
        scene.notes.append(f"a newcomer got a place after {time.monotonic() - began:.1f} s")
        await asyncio.Event().wait()
    finally:
        lying.cancel()
        if newcomer is None:
            scene.notes.append(f"a newcomer got no place in {time.monotonic() - began:.1f} s")
        else:
            newcomer.kill()


async def high_ballot(scene: Scene) -> None:
    """Take ballots, and object, at the line up to which a ballot is believed."""
    await _lie(scene, "high")


async def newcomers(scene: Scene) -> None:
    """Ask for places for nodes that do not exist, one of them with a past as large as a view."""
    scene.expected.update(ghost_address(index) for index in range(GHOSTS))
    await _lie(scene, "newcomers")
