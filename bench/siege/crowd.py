"""Light clients that come and go, several a second; some read slowly, some hang up in mid-air.

The clients of a crowd that its parent stops now and then have policies that drop: a stopped client
with the policy `block` stalls its publishers, and is meant to.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from random import Random
from typing import Literal

from cubecast.errors import AttachError, CubecastError
from cubecast.net.client.client import Client
from cubecast.net.client.shell import ClientShell
from cubecast.processes.function import be_child
from siege.honest import Warnings
from siege.terms import BURST, GUESTS, STEADY, TALK, Terms
from siege.witness import Witness

CLIENTS = 8
"""At a time, in one crowd; each stays for two seconds or so."""
ATTACH_S = 15.0


class Crowd:
    """The clients of one process."""

    def __init__(self, number: int, addresses: Sequence[str], terms: Terms, may_stop: bool) -> None:
        self._addresses = addresses
        self._terms = terms
        self._may_stop = may_stop
        self._random = Random(f"{terms.seed}/crowd/{number}")
        self.counts: Counter[str] = Counter()

    async def one_after_the_other(self) -> None:
        """A client comes, does something, goes; then the next."""
        while True:
            address = self._random.choice(self._addresses)
            try:
                await self._come_and_go(address)
                self.counts["gone"] += 1
            except AttachError:
                self.counts["not attached"] += 1
                await asyncio.sleep(0.5)
            except CubecastError:  # its node is busy, or was excluded for a while
                self.counts["cut off"] += 1
            except Exception as error:  # nothing else may be raised into an application
                self.counts["faults"] += 1
                self.counts[f"fault: {type(error).__name__}"] += 1

    async def _come_and_go(self, address: str) -> None:
        shell = ClientShell(self._terms.client_secret)
        await shell.attach(address, ATTACH_S)
        client = shell.client
        self.counts["attached"] += 1
        polite = self._random.random() < 0.7
        try:
            async with asyncio.timeout(self._random.uniform(0.5, 4.0)):
                await self._use(client)
        except TimeoutError:
            pass
        finally:
            with suppress(CubecastError, TimeoutError):
                async with asyncio.timeout(5.0):
                    await client.close(flush=polite)

    async def _use(self, client: Client) -> None:
        topic = self._random.choice((STEADY, BURST, TALK))
        slow = self._random.random() < 0.25
        policy: Literal["block", "drop-oldest"] = (
            "drop-oldest" if slow or self._may_stop else "block"
        )
        witness = Witness(self._random, lossless=False)
        queue = 16 * 1024 if slow else None
        try:
            async with client.subscribe(topic, policy=policy, queue_bytes=queue) as messages:
                await client.publish(GUESTS, b"here I am")
                async for message in messages:
                    witness.delivered(topic, message.payload, time.monotonic())
                    if slow:
                        await asyncio.sleep(0.05)
        finally:
            self.counts["deliveries"] += witness.deliveries
            self.counts["disorder"] += witness.disorder + witness.inversions


def run_crowd(
    number: int, addresses: Sequence[str], terms: Terms, may_stop: bool, pipe: Connection
) -> None:
    """One process."""
    be_child(_live(Crowd(number, addresses, terms, may_stop), pipe), pipe)


async def _live(crowd: Crowd, pipe: Connection) -> None:
    Warnings.installed()
    tasks = [asyncio.create_task(crowd.one_after_the_other()) for _ in range(CLIENTS)]
    while await asyncio.to_thread(pipe.recv) != "close":
        pipe.send(("crowd", dict(crowd.counts)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
