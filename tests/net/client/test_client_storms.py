"""Clients with patience through nodes that leave, die and come back, on virtual time; by seed.

Every client publishes, waits until everyone has it, and reads everything.  In every third storm one
client has several topics whose readers lag.  A failure is replayed by its seed.  `rolling` has the
rules of the judge; here it knows what each node delivered, and that no node refuses a client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
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
from cubecast.net.publishing.publishing import Publishing
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.clients import Deliver, Read, Taking, size_of
from cubecast.net.wire.packets import OutgoingFrame, Payloads, WireError
from cubecast.protocol.cluster.views import View
from cubecast.protocol.port import NodeId, Publication, Seq, Stream, Topic
from cubecast.testing import Cluster, run
from support.live import small_window
from support.rolling import Journey, Move, Name, Talker, Tally, Truth, count, judge_losses

NODES, CLIENTS, FAULTS = 3, 4, 5
MOST_EXCUSED = 2 * CLIENTS
"""Messages of one storm that may be lost with their nodes: a client has one under way."""
STUCK = "stuck"
SLOW = tuple(f"slow/{number}" for number in range(4))
"""Topics of one client whose readers lag behind."""
SLOW_S = 0.05
"""What a message of theirs takes to read."""
FILLED, FILLING_BYTES, WINDOW_BYTES = 60, 8000, 32 * 1024
"""More than the windows of node and client have room for."""
FORGET_US = 60_000_000
"""As nodes have it; no client is away so long that messages that it missed are forgotten."""
QUIET_S = 60.0
"""When nothing has come for so long, there is nothing more."""


class Watch(Recorder):
    """The recorder of a node that also tells the truth which messages it has.

    It has what it delivered, and what it published itself.
    """

    truth: Truth
    sent_as: dict[Name, tuple[int, int]]
    """Slot and number of the messages of the topics that are filled up."""
    body: OutgoingFrame
    """What is being published."""

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
        life = self.truth.at(self._node.address)
        self.truth.published(life, stream)
        for place, payload in enumerate(self.body.payloads, first):
            name = self._name(topic, stream, place, payload)
            self.truth.held(life, name)
        super().published(topic, stream, first, count, position)

    def delivered(self, publication: Publication) -> None:
        body, node = publication.body, self._node
        assert isinstance(body, OutgoingFrame | Payloads)
        assert isinstance(node, Shell)
        life, stream = self.truth.at(node.address), publication.stream
        payloads = body.payloads if isinstance(body, OutgoingFrame) else body.cut()
        for place, payload in enumerate(payloads, publication.first):
            name = self._name(publication.topic, stream, place, payload)
            if is_filled(publication.topic):
                self.truth.held(life, name)
            else:
                self.truth.had(life, stream, name)
        super().delivered(publication)

    def _name(self, topic: Topic, stream: Stream, place: Seq, payload: bytes) -> Name:
        if is_filled(topic):
            name = filling_name(payload)
            self.sent_as[name] = stream.source, place
            return name
        source, number, _, _ = json.loads(payload)
        return source, number


def is_filled(topic: Topic) -> bool:
    return topic == STUCK or topic in SLOW


def filling_name(payload: bytes) -> Name:
    """A message of a topic that is filled up: no talker has the number of its publisher."""
    number, turn, _ = payload.split()
    return CLIENTS + int(number), int(turn)


class Filled:
    """A topic whose reader stops until the storm is over, or lags; and clients that fill it up.

    They publish to other topics besides: a topic without credit holds up no other.
    """

    def __init__(self, truth: Truth, topic: Topic, pause_s: float = 0) -> None:
        self._topic = topic
        self._pause_s = pause_s
        self._truth = truth
        self._journey = Journey(truth)
        self.read: list[tuple[Name, Stream]] = []
        self.stable: set[Name] = set()
        self.unknown: set[Name] = set()
        self.not_sent: set[Name] = set()
        self.reading = asyncio.Event()

    async def fill(self, number: int, client: cubecast.Client) -> None:
        """Publish numbered messages, most of which wait for credit."""
        receipts: dict[Name, cubecast.ClientReceipt] = {}
        for turn in range(FILLED):
            body = b"%d %d %0*d" % (number, turn, FILLING_BYTES, 0)
            name = filling_name(body)
            self._truth.said(name)
            try:
                receipts[name] = await client.publish(self._topic, body, receipt=True)
            except cubecast.Unknown:
                self.unknown.add(name)
            except cubecast.NotSent:
                self.not_sent.add(name)
        for name, receipt in receipts.items():
            try:
                await receipt.stable()
                self.stable.add(name)
            except cubecast.Unknown:
                self.unknown.add(name)
            except cubecast.NotSent:
                self.not_sent.add(name)

    async def run(self, addresses: str, cluster: Cluster) -> None:
        """Subscribe, read nothing until told to, then everything that comes."""
        async with (
            cubecast.connect(addresses, patience_s=120, network=cluster.network) as client,
            client.subscribe(self._topic, queue_bytes=FILLING_BYTES) as messages,
        ):
            self._journey.arrived(client)
            watching = asyncio.create_task(self._journey.watch(client))
            await self.reading.wait()
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(QUIET_S):
                        message = await anext(messages)
                    self.read.append((filling_name(message.payload), message.frame.stream))
                    await asyncio.sleep(self._pause_s)
            watching.cancel()

    def count(self, tally: Tally, places: Mapping[Name, tuple[int, int]]) -> None:
        """Each message comes once, and what was not sent never comes; rule 1 for what is stable.

        Those of a client through one node come in order, but for what it does not know to be sent.
        """
        names = [name for name, _ in self.read]
        tally.stuck += len(names)
        tally.repeated += len(names) - len(set(names)) + len(self.not_sent & set(names))
        judge_losses(self.stable - set(names), places, self._journey, tally, self._truth)
        latest: dict[tuple[int, Stream], int] = {}
        for name, stream in self.read:
            number, turn = name
            if name not in self.unknown:
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
    places: dict[Name, tuple[int, int]] = {}
    watch = type("Watch", (Watch,), {"truth": truth, "sent_as": places})
    doorkeeper = type("Doorkeeper", (Doorkeeper,), {"tally": tally})
    publish_frame = Publishing.publish_frame

    def publish(one: Publishing, topic: Topic, body: OutgoingFrame, size: int) -> bool:
        watch.body = body
        return publish_frame(one, topic, body, size)

    with (
        mock.patch("cubecast.net.node.shell.Recorder", watch),
        mock.patch("cubecast.net.node.shell.Guests", doorkeeper),
        mock.patch.object(Publishing, "publish_frame", publish),
    ):
        config = NodeConfig(protocol=replace(small_window(WINDOW_BYTES), forget_after=FORGET_US))
        async with Cluster(NODES, seed=seed, config=config) as cluster:
            filled = await weather(cluster, chance, tally, truth, lagging=seed % 3 == 2)
    for one in filled:
        one.count(tally, places)
    return tally


async def fill_all(topics: list[Filled], addresses: str, cluster: Cluster) -> None:
    """Fill topics at once, by one client."""
    async with (
        cubecast.connect(addresses, patience_s=120, network=cluster.network) as client,
        asyncio.TaskGroup() as group,
    ):
        for number, topic in enumerate(topics, CLIENTS):
            group.create_task(topic.fill(number, client))


async def weather(
    cluster: Cluster, chance: Random, tally: Tally, truth: Truth, lagging: bool
) -> list[Filled]:
    """Faults, and talkers; if `lagging`, a client has several topics with slow readers besides."""
    addresses = [node.address for node in cluster.nodes]
    slow = Rule(delay_s=chance.choice((0, 0.02)), jitter_s=chance.choice((0.05, 0.3)))
    cluster.on_every_link(slow)  # so that nodes are not equally far
    talkers = [Talker(number, CLIENTS, tally, truth) for number in range(CLIENTS)]
    ready = asyncio.Barrier(CLIENTS + 1)
    stuck = Filled(truth, STUCK)
    lags = [Filled(truth, topic, SLOW_S) for topic in SLOW] if lagging else []
    everywhere = ",".join(addresses)
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(one.run(everywhere, cluster)) for one in (stuck, *lags)]
        for talker in talkers:
            known = chance.sample(addresses, chance.randint(2, NODES))
            pause_s = chance.choice((0.05, 0.2, 0.5))
            group.create_task(talker.run(",".join(known), ready, pause_s, cluster.network))
        await ready.wait()
        filling = [
            group.create_task(stuck.fill(number, talker.client))
            for number, talker in enumerate(talkers)
            if talker.client is not None
        ]
        for one in lags:
            one.reading.set()
        filling.append(group.create_task(fill_all(lags, everywhere, cluster)))
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
    return [stuck, *lags]


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
    assert tally.excused <= MOST_EXCUSED, f"seed {seed}: {tally}"
    assert tally.stuck > 0, f"seed {seed}: {tally}"
    return tally


@pytest.mark.parametrize("block", range(2))
def test_three_storms_repeat_nothing_and_lose_nothing_in_silence(block: int) -> None:
    tallies = [judge(seed) for seed in range(3 * block, 3 * block + 3)]
    moves = sum(tally.moves for tally in tallies)
    assert moves > 10
    assert sum(tally.exact for tally in tallies) * 10 >= 8 * moves, "most moves are exact"
    assert all(tally.published > CLIENTS for tally in tallies)
    assert sum(tally.excused for tally in tallies) * 100 <= sum(
        tally.published for tally in tallies
    )


@pytest.mark.soak
@pytest.mark.parametrize("block", range(2, 42))
def test_a_hundred_and_twenty_storms_repeat_nothing_and_lose_nothing_in_silence(
    block: int,
) -> None:
    for seed in range(3 * block, 3 * block + 3):
        judge(seed)


@pytest.mark.parametrize(
    ("published", "at", "verdict"),
    [
        ("before the move", "crashes", (0, 1)),
        ("before the move", "lives", (1, 0)),
        ("after the move", "lives", (1, 0)),
    ],
)
def test_an_inexact_move_excuses_only_messages_that_were_gone_by_then(
    published: str, at: str, verdict: tuple[int, int]
) -> None:
    """A reader that says once that there may be more has to read what comes later."""

    async def tell() -> tuple[int, int]:
        truth, tally = Truth(), Tally()
        reader, writer = (Talker(number, 2, tally, truth) for number in range(2))
        for address in ("crashes", "lives"):
            truth.begins(address)
        dead, next_ = truth.at("crashes"), truth.at("lives")

        def publish() -> None:
            truth.said((1, 0))
            truth.had(truth.at(at), Stream(1, 1), (1, 0))
            writer.seen[1, 0], writer.counted = 0, 1

        if published == "before the move":
            publish()
        await asyncio.sleep(1)
        truth.ends("crashes", crashed=True)
        now = asyncio.get_running_loop().time()
        reader.journey.moves = [Move(now, now, dead, next_, False, 0, False, frozenset())]
        await asyncio.sleep(100)
        if published == "after the move":
            publish()
        await asyncio.sleep(1)
        count([reader, writer], tally, truth)
        assert tally.lost == 1
        return tally.silent, tally.excused

    assert run(tell()) == verdict


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


def throws_the_stuck_topic_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives its node credit for every message, and hands out none."""
    taken = RemoteSubscription._take

    def take(one: RemoteSubscription, news: Deliver) -> None:
        if news.topic != STUCK:
            taken(one, news)
        elif one.floors is not None and one._source is not None:
            key = news.topic, Stream(news.source, news.incarnation)
            one.floors[key] = news.first + len(news.payloads)
            one._source.say(Read(one._number, size_of(news.payloads)))

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
        (throws_the_stuck_topic_away, "silent"),
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
