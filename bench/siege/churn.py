"""Honest nodes that come and go: they leave, are killed, or are stopped for a while.

`run_visitor` is such a node.  `Churn` is the parent's side of all of them: it decides by a seeded
plan how each of them ends, and counts newcomers that could not join.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Literal

from cubecast.errors import CubecastError, NotSent
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.reading.subscription import Subscription
from cubecast.processes.function import FunctionChild, be_child
from siege.honest import Warnings
from siege.terms import CHURN, STEADY, Terms
from siege.witness import Witness

LIFE_S = (5.0, 20.0)
STOP_S = (0.5, 6.0)
PAUSE_S = (1.0, 4.0)
PATIENCE_S = 60.0
"""A visitor that is not up, or not gone, after so long is counted as stuck and killed."""
PAYLOAD = b"x" * 100


def run_visitor(seed: str, number: int, terms: Terms, pipe: Connection) -> None:
    """One process."""
    be_child(_visit(seed, number, terms, pipe), pipe)


async def _visit(seed: str, number: int, terms: Terms, pipe: Connection) -> None:
    random = Random(f"{terms.seed}/visitor/{number}")
    Warnings.installed()
    begun = time.monotonic()
    shell = Shell(terms.config())
    try:
        await shell.start(seed)
    except CubecastError as error:
        pipe.send(("refused", str(error)))
        return
    node = shell.node
    pipe.send(("joined", (node.address, time.monotonic() - begun)))
    witness = Witness(random, lossless=False)
    policy: Literal["block", "drop-oldest"] = "block" if number % 2 else "drop-oldest"
    subscription = await node.subscribe(STEADY, policy=policy).__aenter__()
    reading = asyncio.create_task(_read(subscription, witness))
    talking = asyncio.create_task(_talk(node, random))
    await asyncio.to_thread(pipe.recv)
    talking.cancel()
    with suppress(CubecastError):  # another node may be stopped and not answer
        await node.close()
    reading.cancel()
    pipe.send(("left", {"disorder": witness.disorder, "inversions": witness.inversions}))


async def _read(messages: Subscription, witness: Witness) -> None:
    async for message in messages:
        witness.delivered(STEADY, message.payload, time.monotonic())


async def _talk(node: Node, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.05, 0.15))
        with suppress(NotSent):
            await node.publish(CHURN, PAYLOAD)


def heard(child: FunctionChild) -> tuple[str, Any] | None:
    """A child's next message, if there is one; a process that ended has failed."""
    try:
        return child.pipe.recv() if child.pipe.poll() else None
    except (EOFError, OSError):
        return "failed", "the process ended"


class Visitor:
    """The parent's side of one node that comes and goes."""

    def __init__(self, child: FunctionChild, now: float) -> None:
        self.child = child
        self.address = ""
        self.state: Literal["joining", "living", "stopped", "leaving"] = "joining"
        self.until = now + PATIENCE_S
        self.fate = ""


class Churn:
    """So many visitors at a time; `killed` is called with the address of each that is killed."""

    def __init__(
        self, seats: int, terms: Terms, seeds: Sequence[str], killed: Callable[[str], None]
    ) -> None:
        self._terms = terms
        self._seeds = seeds
        self._killed = killed
        self._random = Random(f"{terms.seed}/churn")
        self._seats: list[Visitor | None] = [None] * seats
        begun = time.monotonic()
        self._free_at = [begun + PAUSE_S[1] * seat for seat in range(seats)]
        self._number = 0
        self.counts: Counter[str] = Counter()
        self.join_s: list[float] = []
        self.refusals: list[str] = []
        self.disorder = 0

    def tick(self, now: float) -> None:
        """Whatever is due."""
        for seat, visitor in enumerate(self._seats):
            if visitor is None:
                if now >= self._free_at[seat]:
                    self._seats[seat] = self._come(now)
            elif not self._goes_on(visitor, now):
                visitor.child.end()
                self._seats[seat] = None
                self._free_at[seat] = now + self._random.uniform(*PAUSE_S)

    def end(self) -> None:
        """End all visitors."""
        for visitor in self._seats:
            if visitor is not None:
                visitor.child.end()
        self._seats = []

    def take_joins(self) -> list[float]:
        """How long joins took since the last call."""
        taken, self.join_s = self.join_s, []
        return taken

    def _come(self, now: float) -> Visitor:
        self._number += 1
        seed = self._random.choice(self._seeds)
        return Visitor(
            FunctionChild(self._number, run_visitor, seed, self._number, self._terms), now
        )

    def _goes_on(self, visitor: Visitor, now: float) -> bool:
        """Handle a visitor's message and do what is due; False once its visit is over."""
        match heard(visitor.child):
            case ("joined", (address, seconds)):
                self.counts["joined"] += 1
                self.join_s.append(seconds)
                visitor.address, visitor.state = address, "living"
                visitor.until = now + self._random.uniform(*LIFE_S)
                visitor.fate = self._random.choice(("leave", "leave", "kill", "stop"))
            case ("refused" | "failed" as kind, reason):
                self.counts["not joined" if kind == "refused" else "failed"] += 1
                self.refusals = [*self.refusals[-9:], str(reason)]
                return False
            case ("left", found):
                self.counts["left"] += 1
                self.disorder += found["disorder"] + found["inversions"]
                return False
        return now < visitor.until or self._due(visitor, now)

    def _due(self, visitor: Visitor, now: float) -> bool:
        if visitor.state in ("joining", "leaving"):
            self.counts[f"stuck {visitor.state}"] += 1
            return False
        if visitor.state == "stopped":
            visitor.child.signal(signal.SIGCONT)
            visitor.state, visitor.fate = "living", "leave"
            visitor.until = now + self._random.uniform(*LIFE_S)
        elif visitor.fate == "kill":
            self.counts["killed"] += 1
            visitor.child.end()
            self._killed(visitor.address)
            return False
        elif visitor.fate == "stop":
            self.counts["stopped"] += 1
            visitor.child.signal(signal.SIGSTOP)
            visitor.state, visitor.until = "stopped", now + self._random.uniform(*STOP_S)
        else:
            visitor.child.tell("leave")
            visitor.state, visitor.until = "leaving", now + PATIENCE_S
        return True
