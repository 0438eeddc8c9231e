"""Leaders that never change the view, on real sockets: the others go on without them, and say so.

The liar runs the protocol, answers tests and waves, and passes messages on.  From some moment on it
begins no change of the view.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

import pytest

import cubecast
from cubecast.cli.why import explained
from cubecast.errors import NotSent, Unknown
from cubecast.net.links.faults import Rule
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.protocol.cluster.agreement import AgreementConfig, ViewAgreement
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.cluster.leader_watch import LeaderWatch
from cubecast.protocol.cluster.views import Ballot, Enter, Prepare, Stuck, Who
from cubecast.protocol.config import Config
from support.insider import SECRET, all_talk, as_member, view_of
from support.live import CUT, live, told, until

MUTE_AFTER_US = 500_000
SOON_US = 80_000
"""A leader whose messages take 60 ms makes no view in this time."""
EPOCHS = AgreementConfig(
    answer_after=150_000,
    repeat_after=30_000,
    beacon_every=100_000,
    enter_every=50_000,
    alone_after=1_500_000,
    absent_for=60_000_000,
)
BOUND_S = LeaderWatch(MUTE_AFTER_US, EPOCHS.answer_after, EPOCHS.enter_every).bound / 1e6


def hasty(mute_after: int = MUTE_AFTER_US) -> NodeConfig:
    """Nodes that lose patience, and look for others, soon."""
    protocol = Config(
        window=64 * 1024,
        ack_delay=1_000,
        stable_delay=20_000,
        resend_after=50_000,
        resend_max=200_000,
        mute_after=mute_after,
    )
    detector = DetectorConfig(
        test_every=50_000, suspect_min=200_000, suspect_max=400_000, deaf_after=1_000_000
    )
    return NodeConfig(
        secret=SECRET, protocol=protocol, detector=detector, epochs=EPOCHS, leave_timeout_s=0.2
    )


async def started(count: int, mute_after: int = MUTE_AFTER_US) -> list[Node]:
    nodes: list[Node] = []
    for _ in range(count):
        shell = Shell(hasty(mute_after))
        await shell.start(nodes[0].address if nodes else None)
        nodes.append(shell.node)
    await until(lambda: all(len(node.members) == count for node in nodes))
    return nodes


async def ended(nodes: list[Node]) -> None:
    for node in reversed(nodes):
        with suppress(NotSent, Unknown):
            await node.close()


class Idle(ViewAgreement):
    """An agreement that begins nothing."""

    def consider(self, now: int) -> None:
        """Do nothing."""


def fall_idle(node: Node) -> None:
    """From now on the node leads and changes nothing, also in its later lives."""
    member = shell_of(node).member
    assert member._agreement is not None
    member._agreement.__class__ = Idle
    member.agreement_class = Idle  # type: ignore[misc]


@live
async def test_a_leader_that_lets_no_node_in_is_excluded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    nodes = await started(3)
    try:
        events = nodes[1].events()
        fall_idle(nodes[0])
        shell, begun = Shell(hasty()), time.monotonic()
        entering = asyncio.create_task(shell.start(nodes[1].address))
        await until(lambda: shell_of(nodes[1]).member.late_leader(shell_of(nodes[1]).now()))
        lines = list(explained("chat", 1, {**nodes[1].explain("chat")}))
        assert any("node 0 leads the cluster, and it lets no node in" in line for line in lines)
        await entering
        took = time.monotonic() - begun
        assert took <= 2 * BOUND_S + 2
        event = await told(events, cubecast.MemberMute)
        assert (event.slot, event.by) == (0, 1)
        assert event.reason
        left = await told(events, cubecast.MemberLeft)
        assert left == cubecast.MemberLeft(0, crashed=True)
        assert "node 0 leads, and it" in caplog.text
        await all_talk([nodes[1], nodes[2], shell.node])
        await ended([shell.node])
    finally:
        await ended(nodes)


def cut(halves: tuple[list[Node], list[Node]]) -> None:
    for one, other in ((one, other) for one in halves[0] for other in halves[1]):
        one.faults.set(other.uid, CUT)
        other.faults.set(one.uid, CUT)


def alike(nodes: list[Node], members: int) -> bool:
    """Whether these nodes are in one view, of at least so many members."""
    views = [shell_of(node).member.view for node in nodes]
    ids = {None if view is None else view.id for view in views}
    return len(ids) == 1 and all(
        view is not None and len(view.members) >= members for view in views
    )


@live
async def test_a_leader_with_the_lowest_slot_does_not_keep_two_halves_apart() -> None:
    """Of two views of equal size its own outranks the other; it lets no node of that one in."""
    nodes = await started(4)
    try:
        events, halves = nodes[1].events(), (nodes[:2], nodes[2:])
        cut(halves)
        await until(lambda: all(alike(half, 2) and len(half[0].members) == 2 for half in halves))
        fall_idle(nodes[0])
        for node in nodes:
            node.faults.clear()
        begun = time.monotonic()
        await until(lambda: alike(nodes[1:], 3))
        took = time.monotonic() - begun
        assert took <= 2 * BOUND_S + 3
        event = await told(events, cubecast.MemberMute)
        assert (event.slot, event.by) == (0, 1)
        await all_talk(nodes[1:])
    finally:
        await ended(nodes)


def lose_patience_sooner(node: Node) -> None:
    """Let the node ask its leader to lead after a time in which a slow leader makes no view."""
    agreement = shell_of(node).member._agreement
    assert agreement is not None
    agreement.watch = LeaderWatch(SOON_US, EPOCHS.answer_after, EPOCHS.enter_every)


def asked(nodes: list[Node]) -> int:
    return sum(shell_of(node).member.marks["asked the leader to lead"] for node in nodes)


@live
async def test_an_honest_leader_with_slow_links_stays() -> None:
    nodes = await started(3)
    try:
        events = [node.events() for node in nodes]
        uid = nodes[0].uid
        nodes[0].faults.set(None, Rule(delay_s=0.06))
        for node in nodes[1:]:
            lose_patience_sooner(node)
        newcomers: list[Node] = []
        while len(newcomers) < 2 or not asked(nodes):
            shell = Shell(hasty())
            await shell.start(nodes[1].address)
            newcomers.append(shell.node)
        await asyncio.sleep(BOUND_S)
        assert nodes[0].uid == uid
        assert alike(nodes, 3 + len(newcomers))
        nodes += newcomers
        for heard in events:
            heard.close()
            assert not [one async for one in heard if isinstance(one, cubecast.MemberMute)]
    finally:
        await ended(nodes)


@live
async def test_a_member_that_lies_has_no_honest_leader_excluded() -> None:
    """It says that it is stuck, and names nodes that do not exist; the leader it holds up.

    The leader follows its ballots, which the others do not see.
    """
    nodes = await started(4)
    try:
        uids = [node.uid for node in nodes[:3]]
        end, number = time.monotonic() + 2 * BOUND_S, 0
        while time.monotonic() < end:
            number += 1
            async with as_member(nodes[0], nodes[3]) as mole:
                view = view_of(nodes[0])
                ballot = Ballot(view.id.ballot.round + 100 * number, nodes[3].slot)
                mole.say(Prepare(ballot, view.id, view.mask))
                await asyncio.sleep(0.02)
            for victim in nodes[1:3]:
                async with as_member(victim, nodes[3]) as mole:
                    mole.say(Stuck(view_of(victim).id))
                    mole.say(Enter(Who(f"ghost{number}", f"127.0.0.1:{9 + number}", 1), -1))
                    await asyncio.sleep(0.1)
        assert asked(nodes) > 0
        assert [node.uid for node in nodes[:3]] == uids
        assert not any(shell_of(node).member.marks["mute leader"] for node in nodes)
    finally:
        await ended(nodes)
