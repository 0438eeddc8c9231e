"""Attacks of a member: it joins, has a place in every tree, and lies in one way."""

from __future__ import annotations

from siege.moles import Mole, lie_on

from attacks.bystander import joined
from attacks.scene import Scene


async def _lie(scene: Scene, kind: str) -> None:
    mole = await joined(scene.terms.config(), scene.addresses[0], Mole)
    try:
        await scene.until_all_know(mole.address)
        mole.lie = kind
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
