"""The process of the attackers that are no members: all kinds beside each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from random import Random

from cubecast.errors import CubecastError
from cubecast.net.security.handshake import Refusal
from cubecast.net.wire.packets import WireError
from cubecast.processes.function import be_child
from siege import clients, outsiders, strangers
from siege.grounds import Attack, Grounds
from siege.honest import Warnings
from siege.terms import Terms

LONGEST_S = 30.0
"""An attack that takes longer is given up, and counted as such."""
GROUPS = {
    "strangers": strangers.ATTACKS,
    "clients": clients.ATTACKS,
    "outsiders": outsiders.ATTACKS,
}


def run_attackers(
    groups: Sequence[str], addresses: Sequence[str], terms: Terms, pipe: Connection
) -> None:
    """One process."""
    be_child(_live(groups, Grounds(terms, addresses, Random(f"{terms.seed}/attack")), pipe), pipe)


async def _live(groups: Sequence[str], grounds: Grounds, pipe: Connection) -> None:
    Warnings.installed()
    running = [
        asyncio.create_task(_again_and_again(name, pause_s, attack, grounds))
        for group in groups
        for name, (pause_s, attack) in GROUPS[group].items()
    ]
    while (word := await asyncio.to_thread(pipe.recv)) != "close":
        match word:
            case ("dead", address):
                grounds.dead.append(address)
            case "sample":
                pipe.send(("attacks", grounds.report()))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _again_and_again(name: str, pause_s: float, attack: Attack, grounds: Grounds) -> None:
    """Repeat an attack, however the node ends it."""
    while True:
        await asyncio.sleep(pause_s * grounds.random.uniform(0.5, 1.5))
        grounds.counts[name] += 1
        if name in outsiders.ATTACKS:
            grounds.deeds.append((time.monotonic(), name))
        try:
            async with asyncio.timeout(LONGEST_S):
                await attack(grounds)
        except TimeoutError:
            grounds.counts[f"{name}: given up"] += 1
        except (OSError, Refusal, WireError, CubecastError):
            grounds.counts[f"{name}: turned away"] += 1
        except Exception as error:  # a fault of the attack: it shows, and the siege goes on
            grounds.counts[f"{name}: {type(error).__name__}"] += 1
