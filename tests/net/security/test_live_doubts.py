"""Live nodes against requests in another's name, late requests, and other clusters."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.views import encode_forward, encode_view
from cubecast.protocol.cluster.views import Depart, Enter, Who
from cubecast.testing import Cluster, on_virtual_time
from support.insider import SECRET
from support.live import cluster, live, raw, until


@live
async def test_a_hostile_member_cannot_have_others_let_go() -> None:
    """It asks in the leader's name, in another's, and as if it passed their requests on."""
    async with cluster(4, secret=SECRET) as nodes, raw(nodes[0]) as client:
        before = [node.epoch for node in nodes]
        mole = nodes[3]
        await client.authenticate(SECRET, mole.uid, 3)
        for victim in nodes[:3]:
            for proof in ("", "0" * 32):
                depart = encode_view(Depart(victim.uid, proof))
                client.write(depart)
                client.write(encode_forward(0, victim.slot, nodes[0].epoch, depart))
        await until(lambda: shell_of(nodes[0]).member.marks["asked whether a member leaves"] == 8)
        await nodes[0].publish("t", b"still here")
        assert [node.epoch for node in nodes] == before
        assert all(len(node.members) == 4 for node in nodes)


@live
async def test_a_late_request_does_not_evict_who_is_at_the_address_now() -> None:
    async with cluster(3, secret=SECRET) as nodes, raw(nodes[0]) as client:
        before = [node.epoch for node in nodes]
        await client.authenticate(SECRET, "ghost")
        for node in nodes[:2]:
            client.write(encode_view(Enter(Who("ghost", node.address, 1), node.slot)))
        await until(lambda: shell_of(nodes[1]).member.marks["asked about another life"] == 1)
        assert [node.epoch for node in nodes] == before
        assert shell_of(nodes[0]).core is not None


@on_virtual_time
async def test_a_process_restarted_at_once_is_back_before_any_suspicion() -> None:
    async with Cluster(4) as cluster:
        began = cluster.time
        cluster.kill(2)
        node = await cluster.restart(2)
        suspect_min_s = shell_of(node).config.detector.suspect_min / 1e6
        assert cluster.time - began < suspect_min_s
        assert all(len(one.members) == 4 for one in cluster.nodes)


@pytest.mark.parametrize("secret", ["", SECRET])
@on_virtual_time
async def test_a_cluster_that_begins_where_a_node_of_another_was_stays_by_itself(
    secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with Cluster(3, config=NodeConfig(secret=secret)) as cluster:
        address = cluster[2].address
        cluster.kill(2)
        config = replace(NodeConfig(secret=secret), listen=address)
        other = Shell(config, network=cluster._network).node
        await shell_of(other).start(None)
        await asyncio.sleep(60)  # detection, exclusion, beacons, all in virtual time
        names = {
            shell_of(one).member.view.cluster
            for one in cluster.nodes
            if shell_of(one).member.view is not None
        }
        assert len(names) == 1
        assert shell_of(other).member.view is not None
        assert shell_of(other).member.view.cluster not in names
        assert [one.epoch for one in (other,)] == [0]
        assert [sorted(one.members) for one in cluster.nodes] == [[0, 1], [0, 1]]
        said = [one for one in caplog.messages if "another cluster" in one]
        assert len(said) == 2  # each of the two nodes that are left says it once
        await other.close()
