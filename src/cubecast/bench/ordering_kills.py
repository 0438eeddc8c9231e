"""Members with order across topics that are killed, stopped and restarted under load.

Each member is a process of its own on a real service (`cubecast.bench.ordering_worker`).  `judged`
holds the files of all against what ordering promises:

- no two subscribers saw two untagged events in opposite orders, and none saw an event twice;
- what the service brought to a subscriber was notified there;
- what was published reached every subscriber that lived and was subscribed before, if neither it
  nor the publisher was killed or stopped.  A killed publisher may take events with it whose
  `publish` returned.  The service may take a stopped one for dead, with the same consequence.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cubecast.bench.errors import BenchError
from cubecast.bench.event_servers import nats_servers, redis_server
from cubecast.bench.ordering_members import Kind
from cubecast.bench.ordering_worker import (
    TOPICS,
    Brought,
    LifeTask,
    Part,
    PublishedEvent,
    SeenEvent,
    main,
)
from cubecast.interrupts import held
from cubecast.ordering.config import OrderedConfig
from cubecast.ordering.judge import (
    Notification,
    inversions,
    needless_tags,
    repeated,
    shared_numbers,
)
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.messages import Source
from cubecast.processes.function import FunctionChild

SETS = (TOPICS[:3], TOPICS[1:], TOPICS, (*TOPICS[:2], *TOPICS[3:]))
"""What subscribers subscribe to: no two the same, any two overlap."""
LOOK_S = 0.2
RATE = 25.0
"""Events per second of each publisher."""


@contextmanager
def server(kind: Kind) -> Iterator[str | None]:
    """The address of a server, where the service has one.  `NoServer` if it is not installed."""
    if kind == "cubecast":
        yield None
        return
    with nats_servers() if kind == "nats" else redis_server() as (address,):
        yield address


def desks(count: int = 4, rate: float = RATE) -> list[Part]:
    """Members that publish in all topics and subscribe to overlapping sets of them."""
    return [Part(f"d{number}", SETS[number], rate) for number in range(count)]


def manager_of(topic: str, managers: Sequence[str], config: OrderedConfig) -> str:
    """The manager of a topic while all of them live: others may only stand by."""
    sources = tuple(Source(name, 0) for name in managers)
    return Layout(0, managers[0], sources, spread=config.spread).manager_of(topic)


@dataclass
class MemberLife:
    """A member's process, and what became of it."""

    task: LifeTask
    child: FunctionChild
    address: str = ""
    subscribed_at: float = 0.0
    ended: bool = False
    """Whether it ends before the run does, and so does not read everything."""
    killed: bool = False
    stopped: bool = False

    def signal(self, number: signal.Signals) -> None:
        self.child.signal(number)

    def receive(self, kind: str, timeout: float) -> Any:
        if not self.child.pipe.poll(timeout):
            raise BenchError(f"no {kind!r} from {self.task.title} in {timeout:g} s")
        return self.child.receive(kind)


@dataclass
class Members:
    """The members of one run; at the end of the block every process is ended."""

    kind: Kind
    address: str | None
    managers: tuple[str, ...]
    folder: Path
    config: OrderedConfig
    timeout: float
    lives: list[MemberLife] = field(default_factory=list)

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for life in self.lives:
            life.child.end()

    @property
    def living(self) -> list[MemberLife]:
        return [life for life in self.lives if not life.ended]

    def __getitem__(self, name: str) -> MemberLife:
        """The present life of a member."""
        return next(life for life in self.living if life.task.part.name == name)

    def start(self, parts: Sequence[Part]) -> None:
        """Start members; when all are there, subscribe and publish."""
        added = []
        if self.kind == "cubecast" and not self.living:
            added.append(self._open(self._spawn(parts[0])))
            parts = parts[1:]
        added += [self._open(life) for life in [self._spawn(part) for part in parts]]
        for life in added:
            life.child.tell("begin")
        for life in added:
            life.subscribed_at = life.receive("ready", self.timeout)

    def _spawn(self, part: Part) -> MemberLife:
        earlier = sum(one.task.part.name == part.name for one in self.lives)
        seed = next((one.address for one in self.living), self.address)
        address = seed if self.kind == "cubecast" else self.address
        task = LifeTask(self.kind, address, part, earlier, self.managers, self.folder, self.config)
        resource_tracker.ensure_running()
        with held():
            life = MemberLife(task, FunctionChild(len(self.lives), main, task))
            self.lives.append(life)
        return life

    def _open(self, life: MemberLife) -> MemberLife:
        life.address = life.receive("open", self.timeout)
        return life

    def kill(self, name: str) -> None:
        life = self[name]
        life.signal(signal.SIGKILL)
        life.killed = life.ended = True
        life.child.wait()

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A member that does nothing for a while, and then goes on."""
        life = self[name]
        life.stopped = True
        life.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            life.signal(signal.SIGCONT)

    def close(self, name: str) -> None:
        """Let a member close: it hands over its topics, and its publications are sent."""
        life = self[name]
        life.child.tell("quiet")
        life.receive("quiet", self.timeout)
        life.child.tell("close")
        life.receive("closed", self.timeout)
        life.ended = True
        life.child.wait()

    def restart(self, name: str) -> None:
        part = self[name].task.part
        self.close(name)
        self.start([part])

    def wait_until_resumed(self, since: float) -> float:
        """Seconds from `since` until every remaining subscriber saw an event of a later epoch."""
        subscribers = {one.task.title for one in self.living if one.task.part.topics}
        until = time.monotonic() + self.timeout
        while not subscribers <= (found := resumed(self, since)).keys():
            if time.monotonic() > until:
                silent = sorted(subscribers - found.keys())
                raise BenchError(f"no event of a new epoch at {silent} in {self.timeout:g} s")
            time.sleep(LOOK_S)
        return max(found.values())

    def come_to_rest(self) -> None:
        """Publish nothing more; return when everything has arrived, or nothing comes any more."""
        for life in self.living:
            life.child.tell("quiet")
        for life in self.living:
            life.receive("quiet", self.timeout)
        until = time.monotonic() + self.timeout
        while not self.is_complete() and time.monotonic() < until:
            time.sleep(LOOK_S)

    def is_complete(self) -> bool:
        published = self.published()
        return all(not missing(life, published) for life in self.living)

    def published(self) -> list[PublishedEvent]:
        """Events of publishers that were neither killed nor stopped."""
        lives = (life for life in self.lives if not life.killed and not life.stopped)
        return [one for life in lives for one in read(life.task.published, PublishedEvent)]

    def seen(self) -> dict[str, list[SeenEvent]]:
        return {life.task.title: read(life.task.seen, SeenEvent) for life in self.lives}


def read(file: Path, kind: type[Any]) -> list[Any]:
    """The lines of a file, without one that a killed process did not finish."""
    if not file.exists():
        return []
    whole, _, _ = file.read_bytes().rpartition(b"\n")
    return [msgspec.json.decode(line, type=kind) for line in whole.splitlines()]


def missing(life: MemberLife, published: Sequence[PublishedEvent]) -> list[str]:
    """Events that are due to a subscriber since it was subscribed, and that it has not got.

    What the service brought is due, and what was published.  If the subscriber was stopped, only
    the first: the service may have taken it for dead.
    """
    topics = set(life.task.part.topics)
    due: dict[str, float] = {one.event: one.called_at for one in read(life.task.brought, Brought)}
    if not life.stopped:
        due |= {one.event: one.called_at for one in published if one.topic in topics}
    for one in read(life.task.seen, SeenEvent):
        due.pop(one.event, None)
    return [event for event, called_at in due.items() if called_at > life.subscribed_at]


# -- verdict ---------------------------------------------------------------------------------------


class KillsVerdict(NamedTuple):
    """What was wrong, and what it cost."""

    wrong: list[str]
    events: int
    notified: int
    tagged: int
    longest_s: float
    """The longest time from a call of `publish` to the application, at the remaining members."""
    epochs: int

    def __str__(self) -> str:
        return (
            f"{self.events:,} events, {self.notified:,} notified, {self.tagged:,} tagged, "
            f"{self.epochs} epochs, the longest took {self.longest_s:.2f} s"
        )


def judged(members: Members) -> KillsVerdict:
    seen = members.seen()
    sequences = {title: as_notified(ones) for title, ones in seen.items()}
    published = members.published()
    wrong = [f"opposite orders: {one}" for one in inversions(sequences)]
    wrong += [f"seen twice: {one}" for one in repeated(sequences)]
    wrong += [f"one number for several: {one}" for one in shared_numbers(sequences)]
    wrong += [f"tagged without a reason: {one}" for one in needless_tags(sequences)]
    for life in members.living:
        wrong += [f"not notified at {life.task.title}: {one}" for one in missing(life, published)]
    notified = [one for ones in seen.values() for one in ones]
    left = [one for life in members.living for one in seen[life.task.title]]
    return KillsVerdict(
        wrong,
        len(published),
        len(notified),
        sum(not one.in_order for one in notified),
        max((one.at - one.called_at for one in left), default=0.0),
        len({one.stamp.epoch for one in notified}),
    )


def as_notified(seen: Sequence[SeenEvent]) -> list[Notification]:
    return [Notification(one.event, one.topic, one.stamp, one.in_order) for one in seen]


def resumed(members: Members, since: float) -> Mapping[str, float]:
    """How long after a time subscribers saw an event of a later epoch."""
    found = {}
    for title, ones in members.seen().items():
        before = max((one.stamp.epoch for one in ones if one.at < since), default=-1)
        after = [one.at - since for one in ones if one.stamp.epoch > before]
        if after:
            found[title] = min(after)
    return found
