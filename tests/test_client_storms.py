"""Clients with patience through nodes that leave, die and come back, on virtual time; by seed.

Every client publishes, waits until everyone has it, and reads everything.  A failure is replayed by
its seed.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from rolling import Talker, Tally, count

from cubecast import Rule
from cubecast.net.client.shell import client_shell_of
from cubecast.net.node.shell import shell_of
from cubecast.testing import Cluster, run

NODES, CLIENTS, FAULTS = 3, 4, 5


async def storm(seed: int) -> Tally:
    chance, tally = Random(seed), Tally()
    async with Cluster(NODES, seed=seed, trace=False) as cluster:
        addresses = [node.address for node in cluster.nodes]
        slow = Rule(delay_s=chance.choice((0, 0.02)), jitter_s=chance.choice((0.05, 0.3)))
        cluster.on_every_link(slow)  # so that nodes are not equally far
        talkers = [Talker(number, CLIENTS, tally) for number in range(CLIENTS)]
        ready = asyncio.Barrier(CLIENTS + 1)
        async with asyncio.TaskGroup() as group:
            for talker in talkers:
                known = chance.sample(addresses, chance.randint(2, NODES))
                pause_s = chance.choice((0.05, 0.2, 0.5))
                network = shell_of(cluster.nodes[0]).network
                group.create_task(talker.run(",".join(known), ready, pause_s, network))
            await ready.wait()
            for _ in range(FAULTS):
                await asyncio.sleep(chance.uniform(0, 1))
                await fault(cluster, talkers, chance)
            await asyncio.sleep(1)
            for talker in talkers:
                talker.stop()
            await ready.wait()
    count(talkers, tally)
    return tally


async def fault(cluster: Cluster, talkers: list[Talker], chance: Random) -> None:
    """One node leaves or dies and comes back at its address, or a client's cable is pulled."""
    slot = chance.choice(sorted(cluster.places))
    match chance.choice(("leave", "leave", "kill", "cable")):
        case "leave":
            cluster._killed[slot] = cluster[slot].address  # it comes back there
            await cluster.shrink(slot)
            await asyncio.sleep(chance.choice((0, 0.2, 3)))
            await cluster.restart(slot)
        case "kill":
            cluster.kill(slot)
            await asyncio.sleep(chance.choice((0, 0.2, 3)))
            await cluster.restart(slot)
        case "cable":
            client = chance.choice(talkers).client
            assert client is not None
            client_shell_of(client).lose_node("the cable")


def judge(seed: int) -> Tally:
    tally = run(storm(seed))
    assert not tally.errors, f"seed {seed}: {tally}"
    wrong = (tally.silent, tally.repeated, tally.disordered)
    assert wrong == (0, 0, 0), f"seed {seed}: {tally}"
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
