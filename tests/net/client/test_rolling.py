"""Rolling restarts of real processes under load: nothing is lost in silence or repeated."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

import cubecast
from support.rolling import TOPIC, Fleet, Tally, rolling_restart


def run(nodes: int, clients: int, how: signal.Signals = signal.SIGTERM) -> Tally:
    async def bounded() -> Tally:
        async with asyncio.timeout(300):
            return await rolling_restart(nodes, clients, 0.05, how)

    tally = asyncio.run(bounded())
    print(f"\n{nodes} nodes, {clients} clients, {how.name}: {tally}")
    return tally


def check_graceful(tally: Tally, clients: int) -> None:
    assert not tally.errors
    assert (tally.lost, tally.told, tally.repeated, tally.disordered) == (0, 0, 0, 0)
    assert tally.unknown == 0
    assert tally.delivered == tally.published * clients
    assert tally.moves >= clients, "every client has lost its node at least once"


def test_three_nodes_are_restarted_under_six_clients_that_miss_nothing() -> None:
    check_graceful(run(3, 6), 6)


def test_nodes_that_are_killed_one_by_one_cost_nothing_that_is_not_told() -> None:
    tally = run(3, 4, signal.SIGKILL)
    assert not tally.errors
    assert (tally.silent, tally.repeated, tally.disordered) == (0, 0, 0)


def test_a_command_that_reads_with_patience_outlives_its_node() -> None:
    async def read() -> tuple[str, str]:
        fleet = Fleet(2)
        try:
            await fleet.start(0, first=True)
            await fleet.start(1)
            words = ["-m", "cubecast.cli.main", "sub", TOPIC, "--patience", "100", "--count", "2"]
            reader = await asyncio.create_subprocess_exec(
                sys.executable, *words, "--at", ",".join(fleet.addresses),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert reader.stdout is not None
            assert reader.stderr is not None
            assert (await reader.stderr.readline()).startswith(b"subscribed to")
            async with cubecast.connect(fleet.addresses[1]) as client:
                await client.publish(TOPIC, "before")
                first = await reader.stdout.readline()
                await fleet.stop(0)
                await client.publish(TOPIC, "after")
                second = await reader.stdout.readline()
            assert await reader.wait() == 0
            return first.decode(), second.decode()
        finally:
            fleet.close()

    async def bounded() -> tuple[str, str]:
        async with asyncio.timeout(120):
            return await read()

    assert asyncio.run(bounded()) == ("before\n", "after\n")


@pytest.mark.soak
def test_eight_nodes_are_restarted_under_twenty_clients_that_miss_nothing() -> None:
    check_graceful(run(8, 20), 20)
