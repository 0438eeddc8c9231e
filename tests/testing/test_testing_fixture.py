"""The pytest fixture of `cubecast.pytest_plugin`, and light clients and secrets in memory."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cubecast
from cubecast.errors import AttachError, Closed, JoinError, Unknown
from cubecast.net.links.faults import Rule
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.testing import Cluster, on_virtual_time, run
from cubecast.trace import Record

TOPIC = "chat/room1"
SECRET = "a secret that is not guessed"
OTHER = "another secret not guessed"

# -- light clients and secrets in memory -----------------------------------------------------------


@pytest.mark.parametrize("secret", ["", SECRET], ids=["open", "sealed"])
def test_clients_in_memory_talk_in_order_and_one_seed_is_one_trace(secret: str) -> None:
    async def talk() -> list[Record]:
        async with (
            Cluster(3, seed=5, secret=secret) as cluster,
            cluster.connect(0) as alice,
            cluster.connect(2) as bob,
            bob.subscribe("chat/#") as messages,
        ):
            cluster.on_every_link(Rule(delay_s=0.002, jitter_s=0.01, loss=0.1))
            for number in range(50):
                await (alice if number % 2 else cluster[1]).publish(TOPIC, str(number))
            heard = [int((await anext(messages)).payload) for _ in range(50)]
            assert [one for one in heard if one % 2] == list(range(1, 50, 2))
            cluster.heal()
            await cluster.settle()
            cluster.check()
            assert cluster.trace is not None
            return list(cluster.trace)

    first = run(talk())
    assert len(first) >= 100
    assert run(talk()) == first


@on_virtual_time
async def test_sealed_packets_in_memory_are_not_readable_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = listen_in(monkeypatch)
    async with (
        Cluster(2, secret=SECRET) as cluster,
        cluster.connect(0) as client,
        cluster[1].subscribe(TOPIC) as messages,
    ):
        await client.publish(TOPIC, "a private word")
        assert (await anext(messages)).payload == b"a private word"
        assert len(passed) > 10
        assert not [data for data in passed if b"a private word" in data or b"room1" in data]


@on_virtual_time
async def test_without_a_secret_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = listen_in(monkeypatch)
    async with Cluster(1) as cluster, cluster.connect() as client:
        await client.publish(TOPIC, "for everyone")
        await client.flush()
        assert [data for data in passed if b"for everyone" in data]


def listen_in(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect every write on the network in memory."""
    from cubecast.testing.memory import MemoryTransport

    passed: list[bytes] = []
    write = MemoryTransport.write

    def noted(self: MemoryTransport, data: bytes | bytearray | memoryview) -> None:
        passed.append(bytes(data))
        write(self, data)

    monkeypatch.setattr(MemoryTransport, "write", noted)
    return passed


@on_virtual_time
async def test_secrets_in_memory_keep_out_who_does_not_know_them() -> None:
    async with Cluster(2, secret=SECRET, client_secret=OTHER) as cluster:
        async with cluster.connect(1) as client:
            assert sorted(await client.members()) == [0, 1]
        for wrong in ("", SECRET.upper()):
            with pytest.raises(AttachError):
                await cluster.connect(0, secret=wrong).__aenter__()
        stranger = Shell(
            NodeConfig(secret=OTHER), network=cluster.network
        ).node  # the clients' secret
        with pytest.raises(JoinError):
            await shell_of(stranger).start(cluster[0].address)


@on_virtual_time
async def test_a_client_goes_to_the_next_node_of_its_list() -> None:
    async with Cluster(3) as cluster:
        cluster.kill(1)
        addresses = f"127.0.0.1:1,{cluster[2].address}"
        async with cubecast.connect(addresses, network=cluster.network) as client:
            assert client.slot == 2
        async with cluster.connect(2, 0) as client:
            assert client.slot == 2
        async with cluster.connect() as client:
            assert client.slot == 0
        with pytest.raises(KeyError, match="no node 1"):
            cluster.connect(1)


@on_virtual_time
async def test_a_client_in_memory_hears_of_its_nodes_end_by_virtual_time() -> None:
    async with Cluster(2) as cluster:
        attached = cluster.connect(0)
        client = await attached.__aenter__()
        messages = await client.subscribe(TOPIC).__aenter__()
        receipt = await client.publish(TOPIC, "hello", receipt=True)
        assert (await anext(messages)).payload == b"hello"
        assert receipt is not None
        await receipt.stable()
        client.faults.set(None, Rule(delay_s=2))
        began = cluster.time
        await client.publish(TOPIC, "two seconds late")
        assert (await anext(messages)).payload == b"two seconds late"
        assert cluster.time - began == pytest.approx(2, abs=0.1)
        late = await client.publish(TOPIC, "too late", receipt=True)
        await asyncio.sleep(0.1)
        cluster.kill(0)
        with pytest.raises(Closed):
            await anext(messages)
        assert late is not None
        with pytest.raises(Unknown):
            await late.stable()
        with pytest.raises(Unknown):
            await attached.__aexit__(None, None, None)


# -- the fixture -----------------------------------------------------------------------------------


@pytest.fixture
def tests_of(tmp_path: Path) -> Callable[..., str]:
    """Runs a user's tests, with warnings as errors; what pytest prints."""

    def play(body: str, *options: str) -> str:
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["cubecast.pytest_plugin"]\n')
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        (tmp_path / "test_it.py").write_text("import asyncio, sys, pytest\n" + body)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            [*command, "--strict-markers", "test_it.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr == ""
        return done.stdout

    return play


def test_coroutines_get_an_open_cluster_on_virtual_time(tests_of: Callable[..., str]) -> None:
    out = tests_of(
        """
async def test_three_nodes_by_default(cubecast_cluster):
    assert len(cubecast_cluster) == 3
    await asyncio.sleep(600)
    assert cubecast_cluster.time > 600

@pytest.mark.cubecast(2, secret="a secret that is not guessed", seed=9)
class TestMarked:
    async def test_a_method(self, cubecast_cluster, tmp_path):
        async with cubecast_cluster.connect(1) as client:
            assert len(await client.members()) == 2

@pytest.mark.parametrize("cubecast_cluster", [{"nodes": 1}, {"nodes": 4}], indirect=True)
async def test_parameters(cubecast_cluster):
    assert len(cubecast_cluster) in (1, 4)

def test_others_are_left_alone():
    assert True
"""
    )
    assert "5 passed" in out


def test_the_trace_of_the_nodes_is_judged_when_the_test_has_passed(
    tests_of: Callable[..., str],
) -> None:
    body = """
from cubecast.net.node.shell import shell_of
from cubecast.protocol.port import Stream

@pytest.mark.cubecast(check=True)
async def test_broken(cubecast_cluster):
    async with cubecast_cluster[1].subscribe("chat"):
        shell_of(cubecast_cluster[1]).gap("chat", {Stream(0, 1): (0, 4)})  # broken
"""
    out = tests_of(body)
    assert "loss-reports: 5 violations" in out
    assert "1 failed" in out
    assert "1 passed" in tests_of(body.replace("check=True", "check=False"))


def test_a_failing_test_tells_its_own_error_and_not_a_judgement(
    tests_of: Callable[..., str],
) -> None:
    out = tests_of(
        """
async def test_failing(cubecast_cluster):
    cubecast_cluster.partition({0}, {1, 2})
    assert len(cubecast_cluster) == 7
"""
    )
    assert "assert 3 == 7" in out
    assert "not settled" not in out
    assert "1 failed" in out


def test_a_test_that_is_no_coroutine_is_told_what_to_do(tests_of: Callable[..., str]) -> None:
    out = tests_of(
        """
def test_plain(cubecast_cluster):
    cubecast_cluster[0]
"""
    )
    assert "cubecast_cluster is not open: make the test `async def`" in out


def test_the_plugin_imports_no_network_for_tests_that_do_not_use_it(
    tests_of: Callable[..., str],
) -> None:
    out = tests_of(
        """
def test_imports():
    heavy = [name for name in sys.modules if name.startswith(("cubecast.net", "cubecast.testing"))]
    assert heavy == []
"""
    )
    assert "1 passed" in out


def test_a_test_that_waits_for_ever_is_told_its_line_and_the_mark_says_when(
    tests_of: Callable[..., str],
) -> None:
    told = tests_of(
        """
@pytest.mark.cubecast(2, limit_s=60)
async def test_waiting(cubecast_cluster):
    async with cubecast_cluster[0].subscribe("chat") as messages:
        await anext(messages)
"""
    )
    assert "not at an end after 60 s of virtual time" in told
    assert re.search(r"waits in test_waiting \(.*:\d+\), inside _next_frame", told)


def test_the_marker_is_listed(tests_of: Callable[..., str]) -> None:
    assert "@pytest.mark.cubecast(nodes=3" in tests_of("", "--markers")
