"""Clients with patience through nodes that leave, die and come back, on virtual time; by seed.

Every client publishes, waits until everyone has it, and reads everything.  A failure is replayed by
its seed.  `rolling` has the rules of the judge; here it knows what each node delivered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count as count_from
from random import Random
from unittest import mock

import pytest

from cubecast import Rule
from cubecast.net.client.read_positions import Floors
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.node.recorder import Recorder
from cubecast.net.node.shell import Shell
from cubecast.net.wire.clients import Deliver
from cubecast.net.wire.packets import Outgoing, Payloads
from cubecast.protocol.port import Publication, Seq, Stream, Topic
from cubecast.testing import Cluster, run
from support.rolling import Talker, Tally, Truth, count

NODES, CLIENTS, FAULTS = 3, 4, 5


class Watch(Recorder):
    """The recorder of a node that also tells the truth which messages it delivers."""

    truth: Truth

    def published(
        self, topic: Topic, stream: Stream, first: Seq, count: int, position: int
    ) -> None:
        assert isinstance(self._node, Shell)
        self.truth.published(self.truth.at(self._node.address), stream)
        super().published(topic, stream, first, count, position)

    def delivered(self, publication: Publication) -> None:
        body, node = publication.body, self._node
        assert isinstance(body, Outgoing | Payloads)
        assert isinstance(node, Shell)
        for payload in body.payloads if isinstance(body, Outgoing) else body.cut():
            source, number, _, _ = json.loads(payload)
            self.truth.had(self.truth.at(node.address), publication.stream, (source, number))
        super().delivered(publication)


async def storm(seed: int) -> Tally:
    chance, tally, truth = Random(seed), Tally(), Truth()
    watch = type("Watch", (Watch,), {"truth": truth})
    with mock.patch("cubecast.net.node.shell.Recorder", watch):
        async with Cluster(NODES, seed=seed) as cluster:
            await weather(cluster, chance, tally, truth)
    return tally


async def weather(cluster: Cluster, chance: Random, tally: Tally, truth: Truth) -> None:
    addresses = [node.address for node in cluster.nodes]
    for address in addresses:
        truth.begins(address)
    slow = Rule(delay_s=chance.choice((0, 0.02)), jitter_s=chance.choice((0.05, 0.3)))
    cluster.on_every_link(slow)  # so that nodes are not equally far
    talkers = [Talker(number, CLIENTS, tally, truth) for number in range(CLIENTS)]
    ready = asyncio.Barrier(CLIENTS + 1)
    async with asyncio.TaskGroup() as group:
        for talker in talkers:
            known = chance.sample(addresses, chance.randint(2, NODES))
            pause_s = chance.choice((0.05, 0.2, 0.5))
            group.create_task(talker.run(",".join(known), ready, pause_s, cluster.network))
        await ready.wait()
        for _ in range(FAULTS):
            await asyncio.sleep(chance.uniform(0, 1))
            await fault(cluster, talkers, chance, truth)
        await asyncio.sleep(1)
        for talker in talkers:
            talker.stop()
        await ready.wait()
    count(talkers, tally, truth)


async def fault(cluster: Cluster, talkers: list[Talker], chance: Random, truth: Truth) -> None:
    """One node leaves or dies and comes back at its address, or a client's cable is pulled."""
    slot = chance.choice(sorted(cluster.places))
    address = cluster[slot].address
    match chance.choice(("leave", "leave", "kill", "cable")):
        case "leave":
            cluster._killed[slot] = address  # it comes back there
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
