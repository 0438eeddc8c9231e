"""A rolling restart of real nodes, and clients that publish and read through it.

Every client publishes numbered messages to one topic and reads all of them.  A message names how
far its publisher had read each other client, so a reader can judge the order of causes as well.
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
from collections.abc import Iterator
from dataclasses import dataclass, field

import cubecast

TOPIC = "rolling"
ENVIRONMENT = {**os.environ, "CUBECAST_LEAVE_TIMEOUT_S": "100", "CUBECAST_JOIN_TIMEOUT_S": "100"}
"""On a busy machine, too, there is time for each step."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, as long as nobody else takes them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Fleet:
    """Nodes in processes of their own, each at an address that it keeps."""

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._processes: dict[int, subprocess.Popen[str]] = {}

    async def start(self, number: int, first: bool = False) -> None:
        """Start a node; it joins whoever of the others is there."""
        words = [sys.executable, "-m", "cubecast.cli.main", "node"]
        words += ["--listen", self.addresses[number]]
        words += ["--begin"] if first else ["--join", ",".join(self.addresses)]
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
    """Those of them that their reader was not told of."""
    told: int = 0
    """What readers were told that they missed."""
    repeated: int = 0
    disordered: int = 0
    """Of one publisher out of turn, or before a cause: but for causes that are unknown."""
    moves: int = 0
    finished: int = 0
    """Readers that have heard the last words of all."""
    errors: Counter[str] = field(default_factory=Counter)


class Talker:
    """A client that publishes, reads, and notes what it reads."""

    def __init__(self, number: int, clients: int, tally: Tally) -> None:
        self._number = number
        self._tally = tally
        self.sent = 0
        self.counted = 0
        """Messages before the last words, which some may miss."""
        self.unknown: set[tuple[int, int]] = set()
        self.read = [-1] * clients
        self.seen: set[tuple[int, int]] = set()
        self.missed = 0
        self.places: dict[tuple[int, int], tuple[int, int]] = {}  # by whom and which: slot, number
        self._spans: list[tuple[int, int, int]] = []  # slot, first and last that it was told of
        self.shared: set[tuple[int, int]] = set()
        """What it read at another node than that which published it."""
        self.inexact = False
        """Whether it was told that it may have missed more."""
        self.late: list[set[tuple[int, int]]] = []
        """Messages that came after a later one of their publisher, or after an effect, or never."""
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
            watching = asyncio.create_task(self._watch(client.events()))
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

    async def _watch(self, events: object) -> None:
        async for event in events:  # type: ignore[attr-defined]
            self._tally.moves += isinstance(event, cubecast.Reattached)
            if isinstance(event, cubecast.Reattached) and not event.exact:
                self.inexact = True
            if isinstance(event, cubecast.Gap):
                for slot, spans in event.skipped.items():
                    self._spans += [(slot, first, last) for first, last in spans]

    def was_told_of(self, place: tuple[int, int]) -> bool:
        """Whether an event named a message, by its slot and number, as missed."""
        slot, number = place
        return any(one == slot and a <= number <= b for one, a, b in self._spans)

    def stop(self) -> None:
        self._stopping = True

    async def _publish(self, client: cubecast.Client, pause_s: float) -> None:
        while not self._stopping:
            await self.say(client)
            await asyncio.sleep(pause_s)

    async def say(self, client: cubecast.Client, last: bool = False) -> None:
        """Publish the next message, and wait until everyone has it."""
        number = self.sent
        self.sent += 1
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

    def _missing(self, causes: list[int]) -> Iterator[tuple[int, int]]:
        """The causes of a message that were not read before it."""
        for client, (there, here) in enumerate(zip(causes, self.read, strict=True)):
            yield from ((client, number) for number in range(here + 1, there + 1))

    async def _read(self, messages: cubecast.RemoteSubscription) -> None:
        ended: set[int] = set()
        while len(ended) < len(self.read):
            message = await anext(messages)
            source, number, causes, last = json.loads(message.payload)
            self._tally.delivered += not last
            self._tally.repeated += (source, number) in self.seen
            if number <= self.read[source]:
                self.late.append({(source, number)})
            if not messages.missed and (early := set(self._missing(causes))):
                self.late.append(early)
            self.seen.add((source, number))
            self.places[source, number] = message.source, message.seq
            if self.client is not None and self.client.slot != message.source:
                self.shared.add((source, number))
            self.read[source] = max(number, self.read[source])
            if last:
                ended.add(source)
        self._tally.finished += 1


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
        talkers = [Talker(number, clients, tally) for number in range(clients)]
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
    count(talkers, tally)
    return tally


def count(talkers: list[Talker], tally: Tally) -> None:
    sent = {(talker._number, number) for talker in talkers for number in range(talker.counted)}
    unknown = set().union(*(talker.unknown for talker in talkers))
    tally.published = len(sent)
    shared = set().union(*(talker.shared for talker in talkers))
    places = {one: place for talker in talkers for one, place in talker.places.items()}
    for talker in talkers:
        lost = sent - unknown - talker.seen
        tally.lost += len(lost)
        told = {one for one in lost if one in places and talker.was_told_of(places[one])}
        # Of what only a node had that died, nobody can tell.
        tally.silent += 0 if talker.inexact else len((lost - told) & shared)
        tally.told += talker.missed
        # What only a node had that died is lost for ever, though its clients may have read it.
        gone = unknown | lost if talker.inexact else unknown
        tally.disordered += sum(not late <= gone for late in talker.late)
