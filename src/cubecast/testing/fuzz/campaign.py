"""A run of the fuzzer: blocks of packets, a state file to go on from, and what was found.

Invariants:

1. The state is written after every block, whole or not at all: an interrupted run repeats one block
   at most, and no packet is counted that was not looked at.
2. Block k of a mode draws from a seed of its own, `seed/mode/k`: for the decoders that repeats it
   exactly, for live nodes in kind.
3. A finding is kept once for each line that describes it, with how often it was seen, the block and
   the packets before it; `MAX_FINDINGS` at most.
4. Victims that died, hang or do not come together again are started anew, and the run goes on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from cubecast.testing.fuzz.attacks import ATTACKERS, Attacker
from cubecast.testing.fuzz.decoders import Target, fuzz_decoders
from cubecast.testing.fuzz.fleet import COMMAND, LOOPS, Died, Fleet, Hung
from cubecast.testing.fuzz.insider import Unwelcome
from cubecast.testing.fuzz.state import FuzzFinding, FuzzState, VictimSample, growth, progress, save

BLOCKS = {"decoders": 10_000, "stranger": 500, "member": 2_000, "client": 1_000}
"""Packets between two looks at the victims, and two writes of the state."""
BLOCK_S = 120.0
"""A block is over after so long, however few packets were looked at."""
ROUND_TRIP_S = 30.0
"""Honest nodes hear each other on the quiet topic within this, once an attack pauses: it includes
that nodes which were excluded by lies come back."""
SLOW_S = 2.0
"""CPU time that the packets of one read may take; the longest of a life of the victims counts."""
MAX_FINDINGS = 200
MAX_BARREN = 3
"""Lives of the victims, one after the other, in which no block was complete."""
SPOILED: dict[type[Exception], str] = {
    Died: "a victim died",
    Hung: "a victim hangs",
    Unwelcome: "a newcomer is not taken in",
}
"""After which victims are of no more use."""
KEPT_PACKETS = 40
MAX_SAMPLES = 5_000


class Campaign:
    """Runs blocks until there are enough, or the time is over."""

    def __init__(
        self,
        state: FuzzState,
        *,
        path: Path | None = None,
        seconds: float | None = None,
        say: Callable[[str], None] = lambda line: None,
        command: Sequence[str] = COMMAND,
        loops: Sequence[str] = LOOPS,
        decoders: list[Target] | None = None,
        round_trip_s: float = ROUND_TRIP_S,
    ) -> None:
        """`say` gets lines of progress, `loops` are those of the victims.

        `command` runs them and `decoders` are the targets, if they are to be broken ones.
        """
        self.state = state
        self._path = path
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._say = say
        self._command = command
        self._loops = loops
        self._decoders = decoders
        self._round_trip_s = round_trip_s
        self._own_errors: list[str] = []

    @property
    def over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def run(self, goals: dict[str, int]) -> FuzzState:
        """Go on until each mode has its packets."""
        with errors_of("cubecast") as self._own_errors:
            self._run_decoders(goals.get("decoders", 0))
            asyncio.run(self._run_live({one: goals[one] for one in goals if one in ATTACKERS}))
        for line in growth(self.state.samples):
            self._found(line, "all", 0, "", [])
        save(self._path, self.state)
        return self.state

    def _missing(self, mode: str, goal: int) -> int:
        return 0 if self.over else max(0, goal - self.state.packets.get(mode, 0))

    def _seed(self, mode: str) -> str:
        return f"{self.state.seed}/{mode}/{self.state.blocks.get(mode, 0)}"

    # -- decoders ----------------------------------------------------------------------------------

    def _run_decoders(self, goal: int) -> None:
        while missing := self._missing("decoders", goal):
            count = min(BLOCKS["decoders"], missing)
            started = time.monotonic()
            refused, complaints = fuzz_decoders(self._seed("decoders"), count, self._decoders)
            for one in complaints:
                self._found(one.what, "decoders", self._block("decoders"), one.detail, [one.packet])
            self._count("decoders", count, count, 0, refused, time.monotonic() - started)

    # -- live nodes --------------------------------------------------------------------------------

    async def _run_live(self, goals: dict[str, int]) -> None:
        """All modes against the same victims, and against others when those are of no more use."""
        barren = 0
        while any(self._missing(mode, goal) for mode, goal in goals.items()):
            if barren == MAX_BARREN:
                self._found(f"given up after {MAX_BARREN} lives without a block", "all", 0, "", [])
                return
            self.state.lives += 1
            before = self.state.total
            fleet = Fleet(self._command, self._loops)
            mode = ""
            try:
                async with fleet:
                    for mode, goal in goals.items():
                        await self._until_spoiled(fleet, mode, goal)
            except _Spoiled:
                pass
            except (Died, Hung) as error:
                self._say(f"victims do not start: {error}")
            self._look_at_stderr(fleet, mode, [])
            barren = barren + 1 if self.state.total == before else 0

    async def _until_spoiled(self, fleet: Fleet, mode: str, goal: int) -> None:
        """Block after block against one life of the victims."""
        if not self._missing(mode, goal):
            return
        random = Random(self._seed(mode))
        addresses = [victim.address for victim in fleet.victims]
        attacker = ATTACKERS[mode](random, addresses)
        try:
            while missing := self._missing(mode, goal):
                block = min(BLOCKS[mode], missing)
                started = time.monotonic()
                sent, connections = attacker.sent, attacker.connections
                packets = await self._block_of(fleet, attacker, mode, block)
                await self._look(fleet, attacker, mode)
                self._count(
                    mode, packets, attacker.sent - sent, attacker.connections - connections, 0,
                    time.monotonic() - started,
                )  # fmt: skip
        except (Died, Hung, Unwelcome) as error:
            what, latest = SPOILED[type(error)], list(attacker.latest)
            self._found(what, mode, self._block(mode), str(error), latest)
            self._count(mode, 0, 0, 0, 0, 0.0)
            raise _Spoiled from None
        finally:
            await attacker.close()

    async def _block_of(self, fleet: Fleet, attacker: Attacker, mode: str, block: int) -> int:
        """Attack until the victims have looked at a block of packets; how many they were.

        All honest questions are subtracted, though some were not looked at: rather too few than
        too many.  What a stranger sends is no packet to its victim, so each write counts as one.
        """
        sent, earnest = attacker.sent, attacker.earnest
        before = await self._looked_at(fleet)
        seen, ends = 0, time.monotonic() + BLOCK_S
        while seen < block and time.monotonic() < ends and not self.over:
            await self._attack(attacker, max(50, block - seen))
            looked_at = await self._looked_at(fleet) - before - (attacker.earnest - earnest)
            seen = attacker.sent - sent if mode == "stranger" else max(0, looked_at)
        return seen

    async def _looked_at(self, fleet: Fleet) -> int:
        return sum(one["looked_at"] for one in await fleet.reports())

    async def _attack(self, attacker: Attacker, packets: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BLOCK_S):
                await attacker.attack(packets)

    async def _look(self, fleet: Fleet, attacker: Attacker, mode: str) -> None:
        """After a block: do the victims live, hear each other, and are they as small as before?"""
        block, packets = self._block(mode), list(attacker.latest)
        reports = await fleet.reports()
        self._look_at_stderr(fleet, mode, packets)
        slowest = max(reports, key=lambda one: float(one["slowest_s"]))
        if slowest["slowest_s"] > SLOW_S:
            detail = f"{slowest['slowest_s']:.2f} s of CPU time; the last packet of the read is"
            culprit = [bytes.fromhex(slowest["slowest"])]
            self._found("packets of one read are slow", mode, block, detail, culprit)
        round_trip_s = await self._round_trip(fleet, attacker, mode, reports)
        self._tally_reasons(reports)
        samples = self.state.samples
        samples.append(VictimSample(
            mode, self.state.lives, sum(one["looked_at"] for one in reports),
            [one["resident"] for one in reports], [one["descriptors"] for one in reports],
            round(round_trip_s, 4), slowest["slowest_s"],
            sum(one["exclusions"] for one in reports),
        ))  # fmt: skip
        del samples[:-MAX_SAMPLES]

    async def _round_trip(
        self, fleet: Fleet, attacker: Attacker, mode: str, reports: list[dict[str, Any]]
    ) -> float:
        """Seconds of a round trip; without one, see whether it heals once the attacker is gone."""
        try:
            return await fleet.round_trip(self._round_trip_s)
        except TimeoutError:
            await attacker.close()
        try:
            healed_s = await fleet.round_trip(self._round_trip_s)
            what = "the quiet topic was silent until the attacker was gone"
            detail = f"then {healed_s:.1f} s; before, {reports}"
        except TimeoutError:
            what, detail = "the quiet topic stays silent", f"{await fleet.reports()}"
        self._found(what, mode, self._block(mode), detail, list(attacker.latest))
        self._count(mode, 0, 0, 0, 0, 0.0)
        raise _Spoiled

    def _look_at_stderr(self, fleet: Fleet, mode: str, packets: list[bytes]) -> None:
        """Note every text on stderr as a finding, and the errors of the attacker's own node."""
        texts = [text for victim in fleet.victims for text in victim.complaints()]
        texts += [f"the attacker's own node: {text}" for text in self._own_errors]
        self._own_errors.clear()
        for text in texts:
            self._found(_headline(text.splitlines()), mode, self._block(mode), text, packets)

    def _tally_reasons(self, reports: list[dict[str, Any]]) -> None:
        """The most frequent reasons of one life; a later one of the same life replaces it."""
        for one in reports:
            for reason, count in one["reasons"].items():
                self.state.reasons[reason] = max(self.state.reasons.get(reason, 0), count)

    # -- what is known -----------------------------------------------------------------------------

    def _block(self, mode: str) -> int:
        return self.state.blocks.get(mode, 0)

    def _found(
        self, what: str, mode: str, block: int, detail: str, packets: Sequence[bytes]
    ) -> None:
        known = next((one for one in self.state.findings if one.what == what), None)
        if known is not None:
            known.seen += 1
            return
        self._say(f"FOUND in block {block} of {mode}: {what}")
        if len(self.state.findings) < MAX_FINDINGS:
            kept = [raw[:4096].hex() for raw in packets[-KEPT_PACKETS:]]
            self.state.findings.append(FuzzFinding(what, mode, block, detail[-20_000:], kept))

    def _count(
        self, mode: str, packets: int, sent: int, connections: int, refused: int, seconds: float
    ) -> None:
        state = self.state
        for tally, more in (
            (state.blocks, 1), (state.packets, packets), (state.sent, sent),
            (state.connections, connections), (state.refused, refused),
        ):  # fmt: skip
            tally[mode] = tally.get(mode, 0) + more
        state.seconds[mode] = state.seconds.get(mode, 0.0) + seconds
        save(self._path, state)
        if packets:
            self._say(progress(state, mode, packets / max(seconds, 1e-9)))


class _Kept(logging.Handler):
    """Errors that were logged, whole."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.errors) < MAX_FINDINGS:
            self.errors.append(self.format(record))


@contextmanager
def errors_of(name: str) -> Iterator[list[str]]:
    """What a logger says as errors meanwhile; nothing of it is printed."""
    log, kept = logging.getLogger(name), _Kept()
    propagate, log.propagate = log.propagate, False
    log.addHandler(kept)
    try:
        yield kept.errors
    finally:
        log.removeHandler(kept)
        log.propagate = propagate


class _Spoiled(Exception):
    """These victims are of no more use."""


def _headline(lines: list[str]) -> str:
    """What a traceback is about: where it was raised, and the error."""
    error = next((line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception)\b", line)), "")
    places = [line.strip() for line in lines if line.lstrip().startswith("File ")]
    first = re.sub(r"\d+", "#", lines[0])[:120]
    place = re.sub(r'.*/(\w+\.py)", line \d+, in', r"\1", places[-1]) if places else ""
    return " | ".join(part for part in (first, place, re.sub(r"\d+", "#", error)[:120]) if part)
