"""Victims in processes of their own, started and watched.

Invariants:

1. Every line that a victim writes on stderr is kept, up to `KEPT_LINES`, and is a finding.
2. No question waits for ever: a victim that does not answer in `ANSWER_S` hangs, and the question
   raises `Hung`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cubecast.testing.fuzz.scene import END_OF_RECORD

ANSWER_S = 30.0
"""A victim that does not answer for so long hangs: the others are busy too, and share its cores."""
START_S = 60.0
"""`ANSWER_S` for a victim that is not yet in the cluster."""
KEPT_LINES = 400
LINE_BYTES = 1 << 20
COMMAND = (sys.executable, "-m", "cubecast.testing.fuzz.victim")
LOOPS = ("uvloop", "asyncio", "uvloop")
"""The loop of each victim."""


class Hung(Exception):
    """A victim does not answer, though its process is there."""


class Died(Exception):
    """The process of a victim ended."""


class VictimProcess:
    """One victim."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self.name = name
        self.address = ""
        self.uid = ""
        self.stderr: deque[str] = deque(maxlen=KEPT_LINES)
        self.heard: set[str] = set()
        self._reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._hangs = False
        self._ready = asyncio.Event()
        self._listening = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._read_stdout()),
            asyncio.create_task(self._read_stderr()),
        ]

    @classmethod
    async def start(
        cls, command: Sequence[str], name: str, loop: str, join: str | None
    ) -> VictimProcess:
        """A victim that is in the cluster and listens."""
        options = ["--loop", loop, *([] if join is None else ["--join", join])]
        process = await asyncio.create_subprocess_exec(
            *command, *options, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=LINE_BYTES,
        )  # fmt: skip
        one = cls(process, name)
        try:
            for event in (one._ready, one._listening):
                await one._wait_for(event)
        except BaseException:
            await one.close(0.0)
            raise
        return one

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def report(self) -> dict[str, Any]:
        """Its report; `Hung` or `Died` if there is none."""
        self._order({"do": "report"})
        answer = asyncio.create_task(self._reports.get())
        try:
            await self._either(answer, ANSWER_S)
        finally:
            answer.cancel()
        return answer.result()

    def tell(self, token: str) -> None:
        """Have it publish a token on the quiet topic."""
        self._order({"do": "tell", "token": token})

    async def hears(self, token: str) -> None:
        """Wait until it has heard a token."""
        while token not in self.heard:
            self._news.clear()
            await self._news.wait()

    async def close(self, limit_s: float = 10.0) -> None:
        """End it, by force if need be."""
        with suppress(Died):
            self._order({"do": "close"})
        try:
            async with asyncio.timeout(0.0 if self._hangs else limit_s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        for task in self._tasks:
            await task

    async def _either(self, answer: asyncio.Future[Any], limit_s: float) -> None:
        """Wait for an answer, or for the end of the process."""
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait(
                (answer, ended), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
        if not answer.done():
            if not self.alive:
                await asyncio.wait(self._tasks, timeout=1)  # what it had to say of that
                said = self.stderr[-1] if self.stderr else "nothing"
                code = self._process.returncode
                raise Died(f"{self.name} ended with {code} and said: {said}")
            self._hangs = True
            raise Hung(f"{self.name} did not answer for {limit_s:g} s")

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiting = asyncio.create_task(event.wait())
        try:
            await self._either(waiting, START_S)
        finally:
            waiting.cancel()

    def _order(self, order: dict[str, Any]) -> None:
        if not self.alive:
            raise Died(f"{self.name} ended with {self._process.returncode}")
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(order).encode() + b"\n")

    async def _read_stdout(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            message = json.loads(line)
            if "report" in message:
                self._reports.put_nowait(message["report"])
            elif "heard" in message:
                self.heard.add(message["heard"])
                self._news.set()
            elif "listening" in message:
                self._listening.set()
            else:
                self.address, self.uid = message["address"], message["uid"]
                self._ready.set()

    def complaints(self) -> list[str]:
        """What it wrote on stderr since this was asked, one text for each error."""
        texts: list[list[str]] = [[]]
        for line in self.stderr:
            if line == END_OF_RECORD:
                texts.append([])
            else:
                texts[-1].append(line)
        self.stderr.clear()
        return ["\n".join(text) for text in texts if text]

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while line := await stderr.readline():
            self.stderr.append(line.decode(errors="replace").rstrip())


class Fleet:
    """A cluster of victims."""

    def __init__(self, command: Sequence[str] = COMMAND, loops: Sequence[str] = LOOPS) -> None:
        self._command = command
        self._loops = loops
        self._tokens = 0
        self.victims: list[VictimProcess] = []

    async def __aenter__(self) -> Fleet:
        try:
            self.victims.append(await self._start(0, None))
            seed = self.victims[0].address
            others = [self._start(index, seed) for index in range(1, len(self._loops))]
            self.victims += await asyncio.gather(*others)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(victim.close() for victim in self.victims))

    async def _start(self, index: int, join: str | None) -> VictimProcess:
        loop = self._loops[index]
        return await VictimProcess.start(self._command, f"victim {index} ({loop})", loop, join)

    async def reports(self) -> list[dict[str, Any]]:
        """How all of them are."""
        return [await victim.report() for victim in self.victims]

    async def round_trip(self, limit_s: float) -> float:
        """Seconds until all have a token of each on the quiet topic; `TimeoutError` beyond.

        Tokens are published again every second: a node that was excluded may have missed one.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.timeout(limit_s):
            while True:
                tokens = [self._tell(victim) for victim in self.victims]
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        for victim in self.victims:
                            for token in tokens:
                                await victim.hears(token)
                        break
        for victim in self.victims:
            victim.heard.clear()
        return loop.time() - started

    def _tell(self, victim: VictimProcess) -> str:
        self._tokens += 1
        token = str(self._tokens)
        victim.tell(token)
        return token
