"""Clients with patience through nodes that leave, die and come back, on virtual time; by seed.

Every client publishes, waits until everyone has it, and reads everything.  In every third storm one
client has several topics whose readers lag.  A failure is replayed by its seed.  `rolling` has the
rules of the judge; here it knows what each node delivered, and that no node refuses a client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count as count_from
from random import Random
from unittest import mock

import pytest

import cubecast
from cubecast import Rule
from cubecast.net.client.read_positions import Floors
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.gateway.attached import Guests
from cubecast.net.gateway.publications import PublicationPacket, Publications
from cubecast.net.links.connection import Connection
from cubecast.net.node.recorder import Recorder
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import Deliver, Taking
from cubecast.net.wire.packets import OutgoingFrame, Payloads, WireError
from cubecast.protocol.cluster.views import View
from cubecast.protocol.port import NodeId, Publication, Seq, Stream, Topic
from cubecast.testing import Cluster, run
from support.live import small_window
from support.rolling import Move, Name, Talker, Tally, Truth, count

NODES, CLIENTS, FAULTS = 3, 4, 5
STUCK = "stuck"
SLOW = tuple(f"slow/{number}" for number in range(4))
"""Topics of one client whose readers lag behind."""
SLOW_S = 0.05
"""What a message of theirs takes to read."""
FILLED, FILLING_BYTES, WINDOW_BYTES = 60, 8000, 32 * 1024
"""More than the windows of node and client have room for."""
QUIET_S = 60.0
"""When nothing has come for so long, there is nothing more."""


class Watch(Recorder):
    """The recorder of a node that also tells the truth which messages it delivers."""

    truth: Truth

    def view(self, view: View, before: NodeId) -> None:
        assert isinstance(self._node, Shell)
        address = self._node.address
        if not self.truth.knows(address):  # it is one of the first
            self.truth.begins(address)
        life = self.truth.at(address)
        self.truth.installed(life, self._node.uid, view.epoch, view.slots)
        super().view(view, before)

    def published(
        self, topic: Topic, stream: Stream, first: Seq, count: int, position: int
    ) -> None:
        assert isinstance(self._node, Shell)
        self.truth.published(self.truth.at(self._node.address), stream)
        super().published(topic, stream, first, count, position)

    def delivered(self, publication: Publication) -> None:
        body, node = publication.body, self._node
        assert isinstance(body, OutgoingFrame | Payloads)
        assert isinstance(node, Shell)
        if publication.topic == STUCK or publication.topic in SLOW:
            return
        for payload in body.payloads if isinstance(body, OutgoingFrame) else body.cut():
            source, number, _, _ = json.loads(payload)
            self.truth.had(self.truth.at(node.address), publication.stream, (source, number))
        super().delivered(publication)


class Filled:
    """Topics whose reader stops until the storm is over, or lags; and clients that fill them up.

    They publish to other topics besides: a topic without credit holds up no other.
    """

    def __init__(self, topics: Sequence[Topic], pause_s: float = 0) -> None:
        self._topics = topics
        self._pause_s = pause_s
        self.read: list[tuple[int, int, Stream]] = []
        self.unknown: set[Name] = set()
        self.not_sent: set[Name] = set()
        self.reading = asyncio.Event()

    async def fill(self, number: int, client: cubecast.Client, topic: Topic) -> None:
        """Publish numbered messages, most of which wait for credit."""
        receipts: dict[int, cubecast.ClientReceipt] = {}
        for turn in range(FILLED):
            body = b"%d %d %0*d" % (number, turn, FILLING_BYTES, 0)
            try:
                receipts[turn] = await client.publish(topic, body, receipt=True)
            except cubecast.Unknown:
                self.unknown.add((number, turn))
            except cubecast.NotSent:
                self.not_sent.add((number, turn))
        for turn, receipt in receipts.items():
            try:
                await receipt.stable()
            except cubecast.Unknown:
                self.unknown.add((number, turn))
            except cubecast.NotSent:
                self.not_sent.add((number, turn))

    async def fill_all(self, addresses: str, cluster: Cluster) -> None:
        """Fill all topics at once, by one client."""
        async with (
            cubecast.connect(addresses, patience_s=120, network=cluster.network) as client,
            asyncio.TaskGroup() as group,
        ):
            for number, topic in enumerate(self._topics):
                group.create_task(self.fill(number, client, topic))

    async def run(self, addresses: str, cluster: Cluster) -> None:
        """Subscribe, read nothing until told to, then everything that comes."""
        async with (
            cubecast.connect(addresses, patience_s=120, network=cluster.network) as client,
            asyncio.TaskGroup() as group,
        ):
            for topic in self._topics:
                group.create_task(self._read(client, topic))

    async def _read(self, client: cubecast.Client, topic: Topic) -> None:
        async with client.subscribe(topic, queue_bytes=FILLING_BYTES) as messages:
            await self.reading.wait()
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(QUIET_S):
                        message = await anext(messages)
                    number, turn, _ = message.payload.split()
                    self.read.append((int(number), int(turn), message.frame.stream))
                    await asyncio.sleep(self._pause_s)

    def count(self, tally: Tally) -> None:
        """Each message comes once, and what was not sent never comes.

        Those of a client through one node come in order, but for what it does not know to be sent.
        """
        names = [(number, turn) for number, turn, _ in self.read]
        tally.stuck += len(names)
        tally.repeated += len(names) - len(set(names)) + len(self.not_sent & set(names))
        latest: dict[tuple[int, Stream], int] = {}
        for number, turn, stream in self.read:
            if (number, turn) not in self.unknown:
                tally.disordered += turn < latest.get((number, stream), -1)
                latest[number, stream] = turn


class Doorkeeper(Guests):
    """The clients of a node; the tally has those that it refused, though none broke a rule."""

    tally: Tally

    def received(self, connection: Connection, raw: bytes) -> None:
        try:
            super().received(connection, raw)
        except WireError as error:
            self.tally.errors[f"a node refused a client: {error}"] += 1
            raise


async def storm(seed: int) -> Tally:
    chance, tally, truth = Random(seed), Tally(), Truth()
    watch = type("Watch", (Watch,), {"truth": truth})
    doorkeeper = type("Doorkeeper", (Doorkeeper,), {"tally": tally})
    with (
        mock.patch("cubecast.net.node.shell.Recorder", watch),
        mock.patch("cubecast.net.node.shell.Guests", doorkeeper),
    ):
        config = NodeConfig(protocol=small_window(WINDOW_BYTES))
        async with Cluster(NODES, seed=seed, config=config) as cluster:
            await weather(cluster, chance, tally, truth, seed % 3 == 2)
    return tally


async def weather(
    cluster: Cluster, chance: Random, tally: Tally, truth: Truth, lagging: bool
) -> None:
    """Faults, and talkers; if `lagging`, a client has several topics with slow readers besides."""
    addresses = [node.address for node in cluster.nodes]
    slow = Rule(delay_s=chance.choice((0, 0.02)), jitter_s=chance.choice((0.05, 0.3)))
    cluster.on_every_link(slow)  # so that nodes are not equally far
    talkers = [Talker(number, CLIENTS, tally, truth) for number in range(CLIENTS)]
    ready = asyncio.Barrier(CLIENTS + 1)
    stuck, slow = Filled([STUCK]), Filled(SLOW, SLOW_S)
    slow.reading.set()
    everywhere = ",".join(addresses)
    async with asyncio.TaskGroup() as group:
        used = [stuck, slow] if lagging else [stuck]
        reading = [group.create_task(one.run(everywhere, cluster)) for one in used]
        for talker in talkers:
            known = chance.sample(addresses, chance.randint(2, NODES))
            pause_s = chance.choice((0.05, 0.2, 0.5))
            group.create_task(talker.run(",".join(known), ready, pause_s, cluster.network))
        await ready.wait()
        filling = [
            group.create_task(stuck.fill(number, talker.client, STUCK))
            for number, talker in enumerate(talkers)
            if talker.client is not None
        ]
        if lagging:
            filling.append(group.create_task(slow.fill_all(everywhere, cluster)))
        for _ in range(FAULTS):
            await asyncio.sleep(chance.uniform(0, 1))
            await fault(cluster, talkers, chance, truth)
        await asyncio.sleep(1)
        stuck.reading.set()
        await asyncio.gather(*reading, *filling)
        for talker in talkers:
            talker.stop()
        await ready.wait()
    count(talkers, tally, truth)
    stuck.count(tally)
    slow.count(tally)


async def fault(cluster: Cluster, talkers: list[Talker], chance: Random, truth: Truth) -> None:
    """One node leaves or dies and comes back at its address, or a client's cable is pulled."""
    slot = chance.choice(sorted(cluster.places))
    address = cluster[slot].address
    match chance.choice(("leave", "leave", "kill", "cable")):
        case "leave":
            cluster._killed[slot] = address  # it comes back there
            with suppress(cubecast.NotSent, cubecast.Unknown):  # for unread messages
                await cluster.shrink(slot)
            truth.ends(address, crashed=False)
        case "kill":
            cluster.kill(slot)
            truth.ends(address, crashed=True)
        case "cable":
            chance.choice(talkers).pull_cable()
            return
    await asyncio.sleep(chance.choice((0, 0.2, 3)))
    truth.begins(address)
    await cluster.restart(slot)


def judge(seed: int) -> Tally:
    tally = run(storm(seed))
    assert not tally.errors, f"seed {seed}: {tally}"
    wrong = (tally.silent, tally.repeated, tally.disordered, tally.needlessly_inexact)
    assert wrong == (0, 0, 0, 0), f"seed {seed}: {tally}"
    return tally


@pytest.mark.parametrize("block", range(2))
def test_three_storms_repeat_nothing_and_lose_nothing_in_silence(block: int) -> None:
    tallies = [judge(seed) for seed in range(3 * block, 3 * block + 3)]
    moves = sum(tally.moves for tally in tallies)
    assert moves > 10
    assert sum(tally.exact for tally in tallies) * 10 >= 8 * moves, "most moves are exact"
    assert all(tally.published > CLIENTS for tally in tallies)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(2, 42))
def test_a_hundred_and_twenty_storms_repeat_nothing_and_lose_nothing_in_silence(
    block: int,
) -> None:
    for seed in range(3 * block, 3 * block + 3):
        judge(seed)


@pytest.mark.parametrize(("excluded", "excused"), [(True, True), (False, False)])
def test_only_a_process_that_others_exclude_loses_what_it_knew(
    excluded: bool, excused: bool
) -> None:
    """A crash of the client's node is no excuse as long as a member knows its streams."""

    async def tell() -> bool:
        truth, of_dead = Truth(), Stream(0, 1)
        for address in ("dead", "other", "next"):
            truth.begins(address)
        dead, other, next_ = (truth.at(address) for address in ("dead", "other", "next"))
        members = ["d", "o", "n"]
        for life, uid in zip((dead, other, next_), members, strict=True):
            truth.installed(life, uid, 1, members)
        truth.published(dead, of_dead)
        truth.had(other, of_dead, (0, 0))
        await asyncio.sleep(1)
        truth.ends("dead", crashed=True)
        rest = ["n"] if excluded else ["o", "n"]
        truth.installed(next_, "n", 2, rest)
        if excluded:
            truth.installed(other, "o.1", 3, ["o.1", "n"])
        now = asyncio.get_running_loop().time()
        move = Move(now, now, dead, next_, False, 0, False, frozenset({of_dead}))
        return truth.may_be_inexact(move)

    assert run(tell()) is excused


# -- clients that break a promise are caught -------------------------------------------------------

BLOCK = range(3)
"""The storms of the first block, which a true client survives."""


def says_always_that_there_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It excuses whatever it loses; it loses nothing."""
    told = RemoteSubscription._tell_missed
    monkeypatch.setattr(
        RemoteSubscription, "_tell_missed", lambda one, missed, exact: told(one, missed, False)
    )


def says_so_and_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it missed on the way is in no event, but there may be more."""
    told = RemoteSubscription._tell_missed
    monkeypatch.setattr(
        RemoteSubscription, "_tell_missed", lambda one, missed, exact: told(one, {}, False)
    )


def names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = RemoteSubscription._tell_missed
    monkeypatch.setattr(
        RemoteSubscription, "_tell_missed", lambda one, missed, exact: told(one, {}, exact)
    )


def drops_every_fiftieth(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = RemoteSubscription._take
    seen = count_from(1)

    def take(one: RemoteSubscription, news: Deliver) -> None:
        if next(seen) % 50 or len(news.payloads) > 1:
            taken(one, news)
        elif one.floors is not None:
            one.floors[news.topic, Stream(news.source, news.incarnation)] = news.first + 1

    monkeypatch.setattr(RemoteSubscription, "_take", take)


def reads_again_what_it_read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh(one: RemoteSubscription, news: Deliver, floors: Floors) -> Deliver:
        key = news.topic, Stream(news.source, news.incarnation)
        floors[key] = max(floors[key], news.first + len(news.payloads))
        return news

    monkeypatch.setattr(RemoteSubscription, "_fresh", fresh)


def swaps_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = RemoteSubscription._take

    def take(one: RemoteSubscription, news: Deliver) -> None:
        taken(one, news)
        if len(one._frames) > 1:
            one._frames.rotate(1)

    monkeypatch.setattr(RemoteSubscription, "_take", take)


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [
        (says_always_that_there_may_be_more, "needlessly_inexact"),
        (says_so_and_names_nothing, "silent"),
        (names_nothing, "silent"),
        (drops_every_fiftieth, "silent"),
        (reads_again_what_it_read_elsewhere, "repeated"),
        (swaps_neighbours, "disordered"),
    ],
)
def test_a_client_that_breaks_a_promise_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], symptom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(getattr(run(storm(seed)), symptom) for seed in BLOCK)


def test_a_node_that_counts_half_taken_packets_whole_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gives its client credit in words, and refuses a client that uses it."""

    def tell(one: Publications, packet: PublicationPacket, size: int) -> None:
        one._line.send(Taking(packet.number, size))

    monkeypatch.setattr(Publications, "_tell", tell)
    assert any("credit" in error for seed in BLOCK for error in run(storm(seed)).errors)
