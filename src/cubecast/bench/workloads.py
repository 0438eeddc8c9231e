"""The work of a benchmark's processes, whatever system carries their messages.

A workload is one process's part: `outgoing` yields the messages to publish (and times to wait for),
`receive` judges a message and may return an answer to publish at once.  Both cost the same
in every system, as source, number and time travel in the payload and are checked there.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Literal, TypeAlias

Scenario = Literal["fanout", "all-to-all", "latency", "causal"]
Mode = Literal["quiet", "busy", "loaded", "delayed"]
Totals: TypeAlias = list[int]
"""How many messages each process published."""

HEADER = Struct("<IQQ")
"""source, number, time of publication (time.monotonic_ns)"""
HELLO = 2**64 - 1
"""The number of a message that only tests whether its publisher is heard."""
BATCH = 64
"""Messages published between two looks at the clock."""
LOOK_EVERY_S = 0.1
"""How often a publisher asks whether it is to stop early."""


@dataclass(frozen=True, slots=True)
class Task:
    """One process's part of a run."""

    system: str
    scenario: Scenario
    mode: Mode
    index: int
    processes: int
    ports: tuple[int, ...]
    """One per process."""
    more_ports: tuple[int, ...]
    """For servers and relays."""
    seconds: float
    size: int
    rate: int
    questions: int
    delay_s: float
    """In mode `delayed`: how late the asker's messages are at the last process."""

    @property
    def last(self) -> int:
        """The process that is busy, or hears the asker late."""
        return self.processes - 1


class BenchWorkload(abc.ABC):
    """One process's part: the messages it publishes, and how it judges those it receives."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.index = task.index
        self.filler = b"x" * (task.size - HEADER.size)
        self.heard: set[int] = set()
        self.sent = 0
        self.told_to_stop: Callable[[], bool] = lambda: False
        """Whether the parent wants an early end, as memory runs out."""

    @property
    def publishes(self) -> bool:
        """Whether this process publishes anything."""
        return True

    @property
    def subscribes(self) -> bool:
        """Whether this process receives anything."""
        return True

    def publishers(self) -> set[int]:
        """The processes that publish."""
        return set(range(self.task.processes))

    def hello(self) -> bytes:
        """A message that counts for nothing."""
        return HEADER.pack(self.index, HELLO, 0) + self.filler

    @property
    def hears_everyone(self) -> bool:
        """Whether every other publisher's messages get here."""
        return not self.subscribes or self.heard >= self.publishers() - {self.index}

    @abc.abstractmethod
    def outgoing(self) -> Iterator[bytes | float]:
        """What to publish; a number is a time.monotonic() to wait for first."""

    @abc.abstractmethod
    def receive(self, payload: bytes) -> bytes | None:
        """Take in a message; what is returned is to be published at once."""

    @abc.abstractmethod
    def received(self) -> int:
        """Messages of others that were taken in."""

    @abc.abstractmethod
    def expected(self, totals: Totals) -> int:
        """How many messages this process is to receive, once all have published."""

    @abc.abstractmethod
    def result(self, totals: Totals) -> dict[str, float | list[float]]:
        """The figures of this process; lists are joined over the processes, numbers added."""


class Throughput(BenchWorkload):
    """As fast as it goes for some seconds; every subscriber checks every number."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._next = [0] * task.processes
        self._gaps = 0
        self._inversions = 0
        self._publishing = 0.0

    @property
    def publishes(self) -> bool:
        return self.index in self.publishers()

    @property
    def subscribes(self) -> bool:
        return self.task.scenario == "all-to-all" or self.index != 0

    def publishers(self) -> set[int]:
        return super().publishers() if self.task.scenario == "all-to-all" else {0}

    def outgoing(self) -> Iterator[bytes | float]:
        if not self.publishes:
            return
        pack, index, filler = HEADER.pack, self.index, self.filler
        start = now = time.monotonic()
        look_at = start
        number = 0
        while now < start + self.task.seconds:
            for number in range(number, number + BATCH):  # noqa: B020 - goes on where it was
                yield pack(index, number, 0) + filler
            number += 1
            self.sent = number
            now = time.monotonic()
            if now > look_at:
                look_at = now + LOOK_EVERY_S
                if self.told_to_stop():
                    break
        self._publishing = now - start

    def receive(self, payload: bytes) -> bytes | None:
        source, number, _ = HEADER.unpack_from(payload)
        if number == self._next[source]:
            self._next[source] = number + 1
        else:
            self._out_of_turn(source, number)
        return None

    def _out_of_turn(self, source: int, number: int) -> None:
        if number == HELLO:
            self.heard.add(source)
        elif number > self._next[source]:
            self._gaps += number - self._next[source]
            self._next[source] = number + 1
        else:
            self._inversions += 1
            self._gaps -= 1

    def received(self) -> int:
        others = sum(self._next) - self._next[self.index]
        return others - self._gaps

    def expected(self, totals: Totals) -> int:
        return sum(totals) - totals[self.index] if self.subscribes else 0

    def result(self, totals: Totals) -> dict[str, float | list[float]]:
        received = self.received() if self.subscribes else 0
        return {
            "received": received,
            "lost": self.expected(totals) - received,
            "inversions": self._inversions,
            "publishing_s": [self._publishing] if self.publishes else [],
        }


class Latency(Throughput):
    """One publishes at a steady rate; the others note how long each message took."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._delays: list[float] = []

    def publishers(self) -> set[int]:
        return {0}

    @property
    def subscribes(self) -> bool:
        return self.index != 0

    def outgoing(self) -> Iterator[bytes | float]:
        if not self.publishes:
            return
        start = time.monotonic()
        for number in range(int(self.task.seconds * self.task.rate)):
            yield start + number / self.task.rate
            self.sent = number + 1
            yield HEADER.pack(self.index, number, time.monotonic_ns()) + self.filler

    def receive(self, payload: bytes) -> bytes | None:
        source, number, sent_at = HEADER.unpack_from(payload)
        if number == self._next[source]:
            self._next[source] = number + 1
            self._delays.append((time.monotonic_ns() - sent_at) / 1e3)
        else:
            self._out_of_turn(source, number)
        return None

    def result(self, totals: Totals) -> dict[str, float | list[float]]:
        return {**super().result(totals), "delays_us": self._delays}


ASKER, ANSWERER = 0, 1
QUESTION, ANSWER, CHATTER = 0, 1, 2
KINDS = 3
LOAD_RATE = 500
"""Messages per second that each bystander adds in mode `loaded`."""
LOAD_BURST = 10
BUSY_EVERY = 8
BUSY_S = 0.002
"""In mode `busy` the last process computes for this long after every few messages."""


class Causal(BenchWorkload):
    """Process 0 asks, process 1 answers at once, the others count answers without a question.

    In the modes `busy` and `delayed` the last process alone counts, as it alone is slow to read or
    hears the asker late.  A message's number is KINDS * n + kind.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._asked: set[int] = set()
        self._early = 0
        self._answers = 0
        self._questions = 0
        self._chatter = 0
        self._since_pause = 0
        self._busy = task.mode == "busy" and self.index == task.last
        one_counts = task.mode in ("busy", "delayed")
        self._watches = self.index == task.last if one_counts else self.index > ANSWERER

    def publishers(self) -> set[int]:
        return super().publishers() if self.task.mode == "loaded" else {ASKER, ANSWERER}

    @property
    def publishes(self) -> bool:
        return self.index in self.publishers()

    def _message(self, number: int, kind: int) -> bytes:
        self.sent += 1
        return HEADER.pack(self.index, KINDS * number + kind, 0) + self.filler

    def outgoing(self) -> Iterator[bytes | float]:
        task = self.task
        start = time.monotonic()
        if self.index == ASKER:
            for number in range(task.questions):
                yield start + number / task.rate
                yield self._message(number, QUESTION)
        elif self.publishes and self.index != ANSWERER:
            bursts = int(task.questions / task.rate * LOAD_RATE / LOAD_BURST)
            for burst in range(bursts):
                yield start + burst * LOAD_BURST / LOAD_RATE
                for number in range(LOAD_BURST):
                    yield self._message(burst * LOAD_BURST + number, CHATTER)

    def receive(self, payload: bytes) -> bytes | None:
        source, code, _ = HEADER.unpack_from(payload)
        if code == HELLO:
            self.heard.add(source)
            return None
        if source == self.index:
            return None
        number, kind = divmod(code, KINDS)
        answer = None
        if kind == QUESTION:
            self._questions += 1
            if self.index == ANSWERER:
                answer = self._message(number, ANSWER)
            else:
                self._asked.add(number)
        elif kind == ANSWER:
            self._answers += 1
            if self._watches and number not in self._asked:
                self._early += 1
        else:
            self._chatter += 1
        if self._busy:
            self._compute()
        return answer

    def _compute(self) -> None:
        self._since_pause += 1
        if self._since_pause == BUSY_EVERY:
            self._since_pause = 0
            end = time.monotonic() + BUSY_S
            while time.monotonic() < end:
                pass

    def received(self) -> int:
        return self._questions + self._answers + self._chatter

    def expected(self, totals: Totals) -> int:
        """What the others published; the answerer is not done before the asker is."""
        totals = [*totals]
        totals[ANSWERER] = totals[ASKER]
        return sum(totals) - totals[self.index]

    def result(self, totals: Totals) -> dict[str, float | list[float]]:
        return {
            "received": self.received(),
            "lost": self.expected(totals) - self.received(),
            "inversions": self._early,
            "watched": self._answers if self._watches else 0,
        }


def make_workload(task: Task) -> BenchWorkload:
    """The part of one process."""
    match task.scenario:
        case "latency":
            return Latency(task)
        case "causal":
            return Causal(task)
        case _:
            return Throughput(task)
