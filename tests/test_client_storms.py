"""Clients with patience through nodes that leave, die and come back, on virtual time; by seed.

Every client publishes, waits until everyone has it, and reads everything.  A failure is replayed by
its seed.  `rolling` has the rules of the judge; here it knows what each node delivered.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from unittest import mock

import pytest
from rolling import Talker, Tally, Truth, count

from cubecast import Rule
from cubecast.net.node.node import Node
from cubecast.net.node.recorder import Recorder
from cubecast.net.wire.packets import Outgoing, Payloads
from cubecast.protocol.port import Publication
from cubecast.testing import Cluster, run

NODES, CLIENTS, FAULTS = 3, 4, 5


class Watch(Recorder):
    """The recorder of a node that also tells the truth which messages it delivers."""

    truth: Truth

    def delivered(self, publication: Publication) -> None:
        body, node = publication.body, self._node
        assert isinstance(body, Outgoing | Payloads)
        assert isinstance(node, Node)
        for payload in body.payloads if isinstance(body, Outgoing) else body.cut():
            source, number, _, _ = json.loads(payload)
            self.truth.had(self.truth.at(node.address), publication.stream, (source, number))
        super().delivered(publication)


async def storm(seed: int) -> Tally:
    chance, tally, truth = Random(seed), Tally(), Truth()
    watch = type("Watch", (Watch,), {"truth": truth})
    with mock.patch("cubecast.net.node.node.Recorder", watch):
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
            client = chance.choice(talkers).client
            assert client is not None
            client._lost("the cable")
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
    assert sum(tally.moves for tally in tallies) > 0
    assert all(tally.published > CLIENTS for tally in tallies)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(2, 42))
def test_a_hundred_and_twenty_storms_repeat_nothing_and_lose_nothing_in_silence(
    block: int,
) -> None:
    for seed in range(3 * block, 3 * block + 3):
        judge(seed)
