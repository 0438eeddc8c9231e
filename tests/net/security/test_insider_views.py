"""What packets about views do to live nodes: those of a member that lies, and of a key holder.

Each attack once put a cluster out of action, or nodes out of it.  Those that need many steps or
much time are in `tests/protocol/cluster/test_view_lies.py`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.belief import LEAP_LIMIT, MAX_EPOCH, MAX_LEAP, MAX_PUSH
from cubecast.protocol.cluster.detector import DetectorConfig, Notice
from cubecast.protocol.cluster.knowledge import MAX_STAMP
from cubecast.protocol.cluster.view_broadcast import difference
from cubecast.protocol.cluster.views import (
    Ballot,
    Beacon,
    Enter,
    Install,
    Prepare,
    Report,
    View,
    ViewId,
    Who,
)
from support.insider import SECRET, Lives, all_talk, as_member, insider, invented, said_of, view_of
from support.live import cluster, join, live, until

OUT_OF_REACH = [2, LEAP_LIMIT, MAX_EPOCH, 1 << 61]
"""Epochs after a view of epoch 0 or a few more: none of them is the next."""


@pytest.fixture(autouse=True)
def _warnings_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cubecast")


# -- a member that lies ----------------------------------------------------------------------------


def successor(view: View, epoch: int, ballot: int = 1) -> Install:
    """What a leader would say if the next view had this epoch."""
    number = ViewId(epoch, Ballot(view.id.ballot.round + ballot, 0))
    return Install(number.ballot, view.id, View(number, view.members, view.cluster), {}, {})


@pytest.mark.parametrize("ahead", OUT_OF_REACH)
@pytest.mark.parametrize("words", ["install", "change"])
@live
async def test_a_view_of_a_member_that_is_not_the_next_changes_nothing(
    ahead: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(3, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        install = successor(view, view.epoch + ahead)
        lie: Any = install if words == "install" else difference(install, view, ())
        for victim in nodes[:2]:
            async with as_member(victim, nodes[2]) as mole:
                mole.say(lie)
                assert not await mole.heeded(), "its connection is closed"
        before.assert_same()
        assert caplog.text.count("closing connection to node 2 ") == 2
        await all_talk(nodes)
        await join(nodes, secret=SECRET)
        assert view_of(nodes[0]).epoch == view.epoch + 1


@live
async def test_a_view_further_ahead_than_a_node_can_have_missed_changes_nothing() -> None:
    """It names another parent: the victim would have been left behind."""
    async with cluster(3, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        parent = ViewId(view.epoch + MAX_LEAP, Ballot(1, 0))
        later = View(ViewId(parent.epoch + 1, Ballot(2, 0)), view.members, view.cluster)
        for victim in nodes[:2]:
            async with as_member(victim, nodes[2]) as mole:
                mole.say(Install(later.id.ballot, parent, later, {}, {}))
                assert not await mole.heeded()
        before.assert_same()


@live
async def test_a_ballot_with_an_impossible_round_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(3, secret=SECRET) as nodes:
        view = view_of(nodes[0])
        for victim in nodes[:2]:
            async with as_member(victim, nodes[2]) as mole:
                mole.say(Prepare(Ballot((1 << 62) - 1, 2), view.id, view.mask))
                assert await mole.heeded()
            assert shell_of(victim).member.marks["ballot that cannot be meant"] == 1
        assert said_of(caplog.records, nodes[2].uid)
        await join(nodes, secret=SECRET)
        assert [sorted(node.members) for node in nodes] == [[0, 1, 2, 3]] * 4
        assert view_of(nodes[0]).id.ballot.round < 100


@live
async def test_an_objection_with_an_impossible_round_excludes_its_sender() -> None:
    """Else no leader could change the cluster any more, as long as the liar lives."""
    async with cluster(3, secret=SECRET) as nodes:
        mole = shell_of(nodes[2]).member

        def object_always(prepare: Prepare, sender: int, now: int) -> None:
            mole.send(sender, Report(prepare.ballot, Ballot((1 << 62) - 1, 2), None, {}))

        assert mole._agreement is not None
        mole._agreement.on_prepare = object_always  # type: ignore[method-assign]
        newcomer = Shell(NodeConfig(secret=SECRET)).node
        await shell_of(newcomer).start(nodes[0].address)
        try:
            assert shell_of(nodes[0]).member.marks["objection that cannot be meant"] > 0
            assert view_of(newcomer).id.ballot.round < 100
            assert newcomer.slot in nodes[0].members
        finally:
            await newcomer.close()


@live
@pytest.mark.parametrize("push", [MAX_PUSH, MAX_LEAP])
async def test_an_objection_to_the_line_of_what_is_believed_takes_no_node_out(push: int) -> None:
    """The leader took a ballot above it, which no other member believed, and went on alone."""
    async with cluster(4, secret=SECRET) as nodes:
        mole = shell_of(nodes[3]).member
        said: list[Ballot] = []

        def object_once(prepare: Prepare, sender: int, now: int) -> None:
            mine = prepare.ballot
            said.append(mine if said else Ballot(mine.round + push, 3))
            mole.send(sender, Report(mine, said[-1], None, {}))

        assert mole._agreement is not None
        mole._agreement.on_prepare = object_once  # type: ignore[method-assign]
        lives = [node.uid for node in nodes[:3]]
        newcomer = Shell(NodeConfig(secret=SECRET)).node
        await shell_of(newcomer).start(nodes[0].address)
        try:
            honest = [*nodes[:3], newcomer]
            await until(lambda: len({view_of(node).id for node in honest}) == 1)
            assert said
            assert [node.uid for node in nodes[:3]] == lives
            assert set(view_of(newcomer).slots) >= {node.uid for node in honest}
        finally:
            await newcomer.close()


@live
async def test_a_member_that_passes_on_an_invented_view_takes_no_node_out_of_its_view(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It passes on what it says that a stranger said: a view of three hundred."""
    async with cluster(4, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        stranger = Who("stranger", "127.0.0.1:9", 1)
        for victim in nodes[:3]:
            async with as_member(victim, nodes[3]) as mole:
                mole.say(Beacon(stranger.uid, invented(view, stranger)))
                assert await mole.heeded()
            assert shell_of(victim).member.marks["view of strangers"] == 1
        before.assert_same()
        assert "none of which was here before" in caplog.text
        await all_talk(nodes)


@live
async def test_a_member_does_not_make_its_own_view_larger_by_names() -> None:
    """It says that it is in a view of three hundred: the others go on without it, and together."""
    async with cluster(4, secret=SECRET) as nodes:
        view, uids = view_of(nodes[0]), [node.uid for node in nodes[:3]]
        mole, uid = nodes[3], nodes[3].uid
        lie = invented(view, shell_of(mole).member.who)
        async with AsyncExitStack() as stack:
            speakers = [await stack.enter_async_context(as_member(one, mole)) for one in nodes[:3]]
            for speaker in speakers:
                speaker.say(Beacon(mole.uid, lie))
            await until(lambda: shell_of(nodes[0]).member.marks["stayed with the rest"] > 0)
            await until(lambda: mole.uid != uid)
        await until(lambda: all(len(node.members) == 4 for node in nodes))
        await until(lambda: nodes[0].members == nodes[3].members)
        assert [node.uid for node in nodes[:3]] == uids, "no life of another was ended"
        await all_talk(nodes)


@live
async def test_a_member_cannot_make_a_node_that_cannot_be_suspected() -> None:
    async with cluster(3, secret=SECRET) as nodes:
        number = view_of(nodes[0]).number
        for victim in nodes[:2]:
            async with as_member(victim, nodes[2]) as mole:
                mole.say(Notice(number, ((2, MAX_STAMP),)))
                assert await mole.heeded()
            assert shell_of(victim).member.detector is not None
            assert shell_of(victim).member.detector.knowledge.stamp(2) < MAX_STAMP
        shell_of(nodes[2]).kill()
        await until(lambda: all(2 not in node.members for node in nodes[:2]))
        nodes.pop()


@live
async def test_a_member_that_tells_of_a_view_without_others_takes_them_out_for_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That much it can do: what a member decides is believed.  Who was put out is back at once."""
    async with cluster(3, secret=SECRET) as nodes:
        view = view_of(nodes[0])
        members = {0: view.members[0], 2: view.members[2]}
        number = ViewId(view.epoch + 1, Ballot(view.id.ballot.round + 1, 2))
        without = View(number, members, view.cluster)
        install = Install(without.id.ballot, view.id, without, {}, {})
        for victim in nodes[:2]:
            async with as_member(victim, nodes[2]) as mole:
                mole.say(install)
                await asyncio.sleep(0.05)
        await until(lambda: all(len(node.members) == 3 for node in nodes))
        await until(lambda: len({node.epoch for node in nodes}) == 1)
        await all_talk(nodes)


# -- a key holder that is no member ----------------------------------------------------------------


@live
async def test_an_invented_view_of_a_key_holder_takes_no_node_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(4, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        stranger = Who("insider", "127.0.0.1:9", 1)
        for victim in nodes:
            async with insider(victim, "insider") as speaker:
                speaker.say(Beacon("insider", invented(view, stranger)))
                await until(lambda one=victim: shell_of(one).member.marks["view of strangers"] > 0)
        before.assert_same()
        assert any("127.0.0.1:" in line for line in said_of(caplog.records, "insider"))
        await all_talk(nodes)


@live
async def test_an_invented_view_with_known_names_is_asked_about_where_they_are() -> None:
    """The stranger says that a member, too, has gone over: that one knows nothing of it."""
    async with cluster(4, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        lie = invented(view, Who("insider", "127.0.0.1:9", 1))
        lie.members[1] = Who(nodes[1].uid + ".1", nodes[1].address, 5)
        for victim in (nodes[0], nodes[2], nodes[3]):
            async with insider(victim, "insider") as speaker:
                speaker.say(Beacon("insider", lie))
                await until(
                    lambda one=victim: (
                        shell_of(one).member.marks["asked who is in another view"] > 0
                    )
                )
        await all_talk(nodes)
        before.assert_same()


@pytest.mark.parametrize("parent", ["ours", "another"])
@live
async def test_a_view_told_by_who_is_no_member_changes_nothing(
    parent: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(3, secret=SECRET) as nodes:
        before, view = Lives(nodes), view_of(nodes[0])
        after = view.id if parent == "ours" else ViewId(view.epoch + 1, Ballot(7, 1))
        number = ViewId(after.epoch + 1, Ballot(8, 1))
        for members in (view.members, {0: Who("insider", "127.0.0.1:9", 1)}):
            lie = Install(number.ballot, after, View(number, members, view.cluster), {}, {})
            for victim in nodes:
                count = shell_of(victim).member.marks.get("view by a stranger", 0)
                async with insider(victim, "insider") as speaker:
                    speaker.say(lie)
                    await until(
                        lambda one=victim, was=count: (
                            shell_of(one).member.marks["view by a stranger"] == was + 1
                        )
                    )
        before.assert_same()
        assert "it is no member and tells of epoch" in caplog.text


@live
async def test_a_later_life_of_a_member_does_not_enter_from_elsewhere() -> None:
    """It would be in the member's way whenever that has to come back."""
    async with cluster(3, secret=SECRET) as nodes:
        before, victim = Lives(nodes), shell_of(nodes[1]).member.who
        later = Who(victim.uid + ".7", "127.0.0.1:9", victim.incarnation + 7)
        for leader in nodes[:2]:
            async with insider(leader, later.uid) as speaker:
                speaker.say(Enter(later, -1))
                await until(
                    lambda one=leader: (
                        shell_of(one).member.marks["entry from another's address"] == 1
                    )
                )
        before.assert_same()


@live
async def test_a_request_in_a_members_name_does_not_change_where_it_is_dialled() -> None:
    """What is dialled for a member is what the cluster agreed on."""
    dialled = 0

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, cluster(3, secret=SECRET) as nodes:
        elsewhere = Who(
            nodes[2].uid, f"127.0.0.1:{port}", shell_of(nodes[2]).member.who.incarnation
        )
        async with as_member(nodes[0], nodes[2]) as mole:
            mole.say(Enter(elsewhere, 2))
            assert await mole.heeded()
        await all_talk(nodes)
        assert dialled == 0


# -- two clusters ----------------------------------------------------------------------------------

HASTY: dict[str, Any] = {
    "secret": SECRET,
    "detector": DetectorConfig(
        test_every=50_000, suspect_min=200_000, suspect_max=400_000, deaf_after=1_000_000
    ),
    "epochs": AgreementConfig(
        answer_after=300_000,
        repeat_after=50_000,
        beacon_every=200_000,
        enter_every=100_000,
        alone_after=5_000_000,
        absent_for=60_000_000,
    ),
}
"""Nodes that take others for dead, and look for them, soon."""


@live
async def test_a_cluster_at_the_port_of_a_dead_node_of_another_stays_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(3, **HASTY) as nodes:
        name, gone = nodes[0].cluster, nodes.pop()
        shell_of(gone).kill()
        other = Shell(NodeConfig(listen=gone.address, **HASTY)).node
        await shell_of(other).start(None)
        try:
            assert len(name) == len(other.cluster) == 32
            assert name != other.cluster
            await until(lambda: all(len(node.members) == 2 for node in nodes))
            await until(lambda: shell_of(nodes[0]).member.marks["looked for the absent"] >= 2)
            assert {node.cluster for node in nodes} == {name}
            assert list(other.members) == [0]
            assert other.epoch == 0
            said = [one for one in caplog.messages if "another cluster" in one]
            assert len(said) <= 4, said
            assert said
        finally:
            await other.close()
