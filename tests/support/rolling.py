"""A rolling restart of real nodes, and clients that publish and read through it.

Every client publishes numbered messages to one topic and reads all of them.  A message names how
far its publisher had read each other client, so a reader can judge the order of causes as well.

The judge believes no client.  `Truth` has what happened: which process was at which address when,
how it ended, and which process had which message.  By it:

1. A message that its publisher knows to be stable is read, or an event names it as missed, or *it
   was there, and no process that lived had it* when the reader said that it may have missed more
   (`exact` False).
2. A reader may say so only when a node that it was at, or was about to go to, has crashed (or its
   connection broke and it went on elsewhere), and the processes that lived knew no stream of that
   node, or not all that the reader had read of.  Else it must be exact.  A process that the others
   excluded does not count with what it knew before.
3. Nothing is read twice, and no cause is read after its effect.  What its publisher does not know
   to be sent (`Unknown`) may come late.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf

import cubecast
from cubecast.net.client.shell import client_shell_of
from cubecast.protocol.port import Stream

Name = tuple[int, int]
"""A message: the number of its client, and its own."""

TOPIC = "rolling"
ENVIRONMENT = {**os.environ, "CUBECAST_LEAVE_TIMEOUT_S": "100", "CUBECAST_JOIN_TIMEOUT_S": "100"}
"""On a busy machine, too, there is time for each step."""


def free_ports(count: int) -> list[int]:
    """Ports without a listener, as long as no other process takes them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@dataclass(eq=False)
class Life:
    """A process at an address, from its start to its end."""

    address: str
    began: float
    ended: float = inf
    crashed: bool = False
    uid: str = ""
    """As which it is in the cluster; empty if it is in none."""
    epoch: int = -1
    """The view that it entered the cluster with."""
    excluded: list[float] = field(default_factory=list)
    """When views without it were installed: with its place it lost what it knew."""

    def is_up(self, at: float) -> bool:
        return self.began <= at < self.ended

    def knows(self, since: float, at: float) -> bool:
        """Whether it knows at a time what it knew before, as a member."""
        lost = any(since < excluded <= at for excluded in self.excluded)
        return self.is_up(at) and since <= at and not lost


class Truth:
    """What happened in a run, whatever clients say of it."""

    def __init__(self) -> None:
        self._lives: dict[str, list[Life]] = {}
        self._holders: dict[Name, dict[Life, float]] = {}
        self._said: dict[Name, float] = {}
        self._known: dict[Stream, dict[Life, float]] = {}
        self._streams: dict[Life, set[Stream]] = {}

    def begins(self, address: str) -> None:
        """A process is about to start at an address."""
        self._lives.setdefault(address, []).append(Life(address, _now()))

    def ends(self, address: str, crashed: bool) -> None:
        """The process at an address has crashed, or has left."""
        life = self.at(address)
        life.ended, life.crashed = _now(), crashed

    def knows(self, address: str) -> bool:
        """Whether a process has started at an address."""
        return address in self._lives

    def at(self, address: str) -> Life:
        """The process that started last at an address."""
        return self._lives[address][-1]

    def installed(self, life: Life, uid: str, epoch: int, members: Collection[str]) -> None:
        """A process installed a view, in which it has this name."""
        if life.uid != uid:
            life.uid, life.epoch = uid, epoch
        for other in chain.from_iterable(self._lives.values()):
            if other.uid and other.uid not in members and other.epoch < epoch:
                other.uid = ""
                other.excluded.append(_now())

    def said(self, name: Name) -> None:
        """A client is about to publish a message."""
        self._said[name] = _now()

    def had(self, life: Life, stream: Stream, name: Name) -> None:
        """A process delivered a message."""
        self.held(life, name)
        self._known.setdefault(stream, {}).setdefault(life, _now())

    def held(self, life: Life, name: Name) -> None:
        """A process delivered a message of another topic than `TOPIC`."""
        self._holders.setdefault(name, {}).setdefault(life, _now())

    def published(self, life: Life, stream: Stream) -> None:
        """A process published in a stream of its own."""
        self._streams.setdefault(life, set()).add(stream)

    def survives(self, name: Name, at: float) -> bool:
        """Whether a process that lived at a time had a message then."""
        return any(life.is_up(at) and t <= at for life, t in self._holders.get(name, {}).items())

    def began(self, name: Name) -> float:
        """When the first process had a message; if none ever had it, when it was said."""
        return min(self._holders.get(name, {}).values(), default=self._said.get(name, inf))

    def excuses(self, name: Name, moves: Iterable[Move]) -> bool:
        """Rule 1: whether a reader said that it may have missed a message when that was gone.

        What comes into being later is no part of what it missed on the way.
        """
        return any(
            self.began(name) <= move.at and not self.survives(name, move.at)
            for move in moves
            if not move.exact
        )

    def is_known(self, stream: Stream, at: float) -> bool:
        """Whether a member of the cluster had delivered some of a stream, at a time."""
        return any(life.knows(since, at) for life, since in self._known.get(stream, {}).items())

    def may_be_inexact(self, move: Move) -> bool:
        """Rule 2."""
        lost = self._crashed_between(move.began, move.at)
        elsewhere = move.torn and move.node is not move.former
        if elsewhere or (move.former.crashed and move.former.ended <= move.at):
            lost.append(move.former)
        return any(
            not any(self.is_known(one, move.at) for one in self._streams.get(life, ()))
            for life in lost
        ) or (bool(lost) and not all(self.is_known(one, move.at) for one in move.read))

    def _crashed_between(self, start: float, end: float) -> list[Life]:
        lives = [life for lives in self._lives.values() for life in lives]
        return [life for life in lives if life.crashed and start <= life.ended <= end]


@dataclass(frozen=True)
class Move:
    """A client went on at a node; how many messages it says that it missed."""

    began: float
    at: float
    former: Life
    node: Life
    torn: bool
    """Whether its connection broke, and not its node."""
    missed: int
    exact: bool
    read: frozenset[Stream]
    """The streams that it had read of."""


def _now() -> float:
    return asyncio.get_running_loop().time()


class Fleet:
    """Nodes in processes of their own, each at an address that it keeps."""

    def __init__(self, count: int) -> None:
        self.truth = Truth()
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._processes: dict[int, subprocess.Popen[str]] = {}

    async def start(self, number: int, first: bool = False) -> None:
        """Start a node; it joins any of the others that is there."""
        words = [sys.executable, "-m", "cubecast.cli.main", "node"]
        words += ["--listen", self.addresses[number]]
        words += ["--begin"] if first else ["--join", ",".join(self.addresses)]
        self.truth.begins(self.addresses[number])
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
        )
        self._processes[number] = process
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line.startswith("node "), f"node {number} did not start: {line!r}"

    async def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> None:
        process = self._processes.pop(number)
        process.send_signal(how)
        await asyncio.to_thread(process.communicate)
        self.truth.ends(self.addresses[number], crashed=how is signal.SIGKILL)

    async def restart_all(self, how: signal.Signals = signal.SIGTERM) -> None:
        for number in range(len(self.addresses)):
            await self.stop(number, how)
            await self.start(number)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


@dataclass
class Tally:
    """What became of the messages of one run."""

    published: int = 0
    unknown: int = 0
    delivered: int = 0
    lost: int = 0
    """Missed by a reader, whether or not it was told."""
    silent: int = 0
    """Those of them that no event named and that a process which lived had (rule 1)."""
    excused: int = 0
    """Those of them that no event named, as no process which lived had them any more."""
    told: int = 0
    """What readers were told that they missed."""
    repeated: int = 0
    disordered: int = 0
    """Of one publisher out of turn, or before a cause: but for causes that are unknown."""
    late_unknown: int = 0
    """Those that came late and that their publishers do not know to be sent."""
    moves: int = 0
    exact: int = 0
    """Moves whose client says that it knows all that it missed."""
    needlessly_inexact: int = 0
    """Moves whose client might have known it, and says that it does not (rule 2)."""
    stuck: int = 0
    """Messages of topics whose readers stop or lag, if there are any."""
    finished: int = 0
    """Readers that have heard the last words of all."""
    errors: Counter[str] = field(default_factory=Counter)


class Journey:
    """Where a client was, what it had read when it went on, and what it was told that it missed."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.moves: list[Move] = []
        self.read: set[Stream] = set()
        """The streams that it has read of."""
        self.life: Life | None = None
        self.since = 0.0
        """Since when it is there."""
        self.torn = False
        """Whether its connection broke, and not its node."""
        self._detached = 0.0
        self._spans: list[tuple[int, int, int]] = []  # slot, first and last that it was told of

    def arrived(self, client: cubecast.Client) -> None:
        self.life, self.since = self._truth.at(client.address), _now()

    async def watch(self, client: cubecast.Client) -> None:
        async for event in client.events():
            match event:
                case cubecast.Detached():
                    self._detached = _now()
                case cubecast.Reattached(missed=missed, exact=exact):
                    assert self.life is not None
                    former, torn, self.torn = self.life, self.torn, False
                    self.arrived(client)
                    where = self._detached, _now(), former, self.life, torn
                    self.moves.append(Move(*where, missed, exact, frozenset(self.read)))
                case cubecast.Gap(skipped=skipped):
                    for slot, spans in skipped.items():
                        self._spans += [(slot, first, last) for first, last in spans]

    def was_told_of(self, place: tuple[int, int]) -> bool:
        """Whether an event named a message, by its slot and number, as missed."""
        slot, number = place
        return any(one == slot and a <= number <= b for one, a, b in self._spans)


class Talker:
    """A client that publishes, reads, and notes what it reads."""

    def __init__(self, number: int, clients: int, tally: Tally, truth: Truth) -> None:
        self._number = number
        self._tally = tally
        self._truth = truth
        self.sent = 0
        self.counted = 0
        """Messages before the last words, which some may miss."""
        self.unknown: set[Name] = set()
        self.read = [-1] * clients
        self.seen: dict[Name, int] = {}
        """What it has read, and as which in turn."""
        self.missed = 0
        self.places: dict[Name, tuple[int, int]] = {}
        """Slot and number of what it has read."""
        self.journey = Journey(truth)
        self.late: list[tuple[int, set[Name]]] = []
        """As which in turn it read a message, and the causes of that which it had not read."""
        self._stopping = False
        self.client: cubecast.Client | None = None

    async def run(
        self,
        addresses: str,
        ready: asyncio.Barrier,
        pause_s: float,
        network: cubecast.Network | None = None,
    ) -> None:
        async with (
            cubecast.connect(addresses, patience_s=120, network=network) as client,
            client.subscribe(TOPIC) as messages,
        ):
            self.client = client
            self.journey.arrived(client)
            watching = asyncio.create_task(self.journey.watch(client))
            await ready.wait()
            reading = asyncio.create_task(self._read(messages))
            await self._publish(client, pause_s)
            await ready.wait()  # all have published; last words, until all have heard them
            self.counted = self.sent
            while self._tally.finished < len(self.read):
                await self.say(client, last=True)
                await asyncio.sleep(0.1)
            await reading
            self.missed = messages.missed
            watching.cancel()

    def stop(self) -> None:
        self._stopping = True

    def pull_cable(self) -> None:
        assert self.client is not None
        self.journey.torn = True
        client_shell_of(self.client).lose_node("the cable")

    async def _publish(self, client: cubecast.Client, pause_s: float) -> None:
        while not self._stopping:
            await self.say(client)
            await asyncio.sleep(pause_s)

    async def say(self, client: cubecast.Client, last: bool = False) -> None:
        """Publish the next message, and wait until everyone has it."""
        number = self.sent
        self.sent += 1
        self._truth.said((self._number, number))
        body = json.dumps([self._number, number, self.read, last])
        try:
            receipt = await client.publish(TOPIC, body, receipt=True)
            assert receipt is not None
            await receipt.stable()
        except cubecast.Unknown:
            self._tally.unknown += 1
            self.unknown.add((self._number, number))
        except cubecast.CubecastError as error:
            self._tally.errors[f"{type(error).__name__}: {error}"] += 1

    def _missing(self, causes: list[int]) -> Iterator[Name]:
        """The causes of a message that were not read before it."""
        for client, (there, here) in enumerate(zip(causes, self.read, strict=True)):
            yield from ((client, number) for number in range(here + 1, there + 1))

    async def _read(self, messages: cubecast.RemoteSubscription) -> None:
        ended: set[int] = set()
        while len(ended) < len(self.read):
            message = await anext(messages)
            source, number, causes, last = json.loads(message.payload)
            name, turn = (source, number), len(self.seen)
            self._tally.delivered += not last
            self._tally.repeated += name in self.seen
            late = {name} if number <= self.read[source] else set()
            if late or (late := set(self._missing(causes))):
                self.late.append((turn, late))
            self.seen.setdefault(name, turn)
            self.places[name] = message.source, message.seq
            self.journey.read.add(message.frame.stream)
            self._bear_witness(message.frame.stream, name)
            self.read[source] = max(number, self.read[source])
            if last:
                ended.add(source)
        self._tally.finished += 1

    def _bear_witness(self, stream: Stream, name: Name) -> None:
        """Its node had the message, if the client has not just come there."""
        life, since = self.journey.life, self.journey.since
        if life is not None and life.is_up(_now()) and _now() > since + WITNESS_S:
            self._truth.had(life, stream, name)

    def disorder(self) -> Iterator[Name]:
        """What was read after a later message of its publisher, or after an effect of it.

        A cause that was never read is missed, which is judged as that.
        """
        for turn, late in self.late:
            yield from (name for name in late if self.seen.get(name, -1) >= turn)


WITNESS_S = 1.0
"""What a client reads so long after it has come to a node was not left over from the one before."""


async def rolling_restart(
    nodes: int,
    clients: int,
    pause_s: float,
    how: signal.Signals = signal.SIGTERM,
) -> Tally:
    """Restart every node, one after the other, while all clients talk; then count."""
    fleet, tally = Fleet(nodes), Tally()
    try:
        await fleet.start(0, first=True)
        await asyncio.gather(*(fleet.start(number) for number in range(1, nodes)))
        truth = fleet.truth
        talkers = [Talker(number, clients, tally, truth) for number in range(clients)]
        ready = asyncio.Barrier(clients + 1)
        places = fleet.addresses * 2
        turned = [places[i % nodes : i % nodes + nodes] for i in range(clients)]
        async with asyncio.TaskGroup() as group:
            for talker, addresses in zip(talkers, turned, strict=True):
                group.create_task(talker.run(",".join(addresses), ready, pause_s))
            await ready.wait()
            await fleet.restart_all(how)
            for talker in talkers:
                talker.stop()
            await ready.wait()
    finally:
        fleet.close()
    count(talkers, tally, truth)
    return tally


def judge_losses(
    lost: set[Name],
    places: Mapping[Name, tuple[int, int]],
    journey: Journey,
    tally: Tally,
    truth: Truth,
) -> None:
    """Rule 1, for what a reader has not read although its publishers know it to be stable."""
    told = {one for one in lost if one in places and journey.was_told_of(places[one])}
    gone = {one for one in lost - told if truth.excuses(one, journey.moves)}
    tally.lost += len(lost)
    tally.silent += len(lost - told - gone)
    tally.excused += len(gone)


def count(talkers: list[Talker], tally: Tally, truth: Truth) -> None:
    """Judge what each client read and said by what happened."""
    sent = {(talker._number, number) for talker in talkers for number in range(talker.counted)}
    unknown = set[Name]().union(*(talker.unknown for talker in talkers))
    tally.published = len(sent)
    places = {one: place for talker in talkers for one, place in talker.places.items()}
    for talker in talkers:
        moves = talker.journey.moves
        judge_losses(sent - unknown - talker.seen.keys(), places, talker.journey, tally, truth)
        tally.told += talker.missed
        inexact = [move for move in moves if not move.exact]
        tally.moves += len(moves)
        tally.exact += len(moves) - len(inexact)
        tally.needlessly_inexact += sum(not truth.may_be_inexact(move) for move in inexact)
        disorder = list(talker.disorder())
        tally.disordered += sum(one not in unknown for one in disorder)
        tally.late_unknown += sum(one in unknown for one in disorder)
