"""Members that answer tests but not waves, on real sockets: excluded like the silent, and named.

The mute node runs the protocol, so it joins and answers the failure detector.  From some moment on
it sends no control message of the core: no answer to a wave, and (`deaf`) no acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import cubecast
from cubecast.cli.why import explained
from cubecast.errors import NotSent, Unknown
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.protocol.messages import Answer, Parcel, ParcelAck
from cubecast.protocol.port import Accusation
from support.live import PATIENT_US, live, quick, take, told, until

TOPIC = "chat"


class Silence(Shell):
    """A member that stops answering waves when it is told to."""

    deaf = False

    def control(self, peer: int, message: Any) -> None:
        answers = isinstance(message, Parcel) and isinstance(message.message, Answer)
        if self.silent and (answers or (self.deaf and isinstance(message, Parcel | ParcelAck))):
            return
        super().control(peer, message)

    silent = False


@asynccontextmanager
async def party(honest: int, mute: int, deaf: bool = False) -> AsyncIterator[list[Node]]:
    """`honest` nodes, and one in slot `mute` that has fallen silent; slots are in this order."""
    nodes: list[Node] = []
    try:
        for slot in range(honest + 1):
            shell = Silence(quick()) if slot == mute else Shell(quick())
            await shell.start(nodes[0].address if nodes else None)
            nodes.append(shell.node)
        for node in nodes:
            await until(lambda node=node: len(node.members) == len(nodes))
        silence = shell_of(nodes[mute])
        assert isinstance(silence, Silence)
        silence.silent, silence.deaf = True, deaf
        yield nodes
    finally:
        for node in reversed(nodes):
            with suppress(NotSent, Unknown):
                await node.close()


@pytest.mark.parametrize(("mute", "deaf"), [(3, False), (3, True), (2, False), (0, False)])
@live
async def test_a_subscribe_outlives_a_mute_member(
    mute: int, deaf: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Slot 3 is below slot 2 in the tree of slot 0 (or of 1): slot 2 is not blamed for it."""
    caplog.set_level(logging.WARNING, "cubecast")
    async with party(3, mute, deaf) as nodes:
        asker, other = (node for node in nodes if node.slot in ({0, 1} if mute else {1, 2}))
        events = [node.events() for node in (asker, other)]
        async with asker.subscribe(TOPIC) as reader:
            await other.publish(TOPIC, b"after all")
            assert (await anext(reader)).payload == b"after all"
        for heard in events:
            event = await told(heard, cubecast.MemberMute)
            assert event.slot == mute
            assert event.topic == TOPIC
            assert event.seconds >= PATIENT_US / 1e6
            assert event.by != mute
            left = await told(heard, cubecast.MemberLeft)
            assert left == cubecast.MemberLeft(mute, crashed=True)
        named = {record.args[0] for record in caplog.records if "no waves" in record.msg}  # type: ignore[index]
        assert named == {mute}


@live
async def test_explain_names_the_node_a_subscribe_waits_for() -> None:
    async with party(3, 3) as nodes:
        asker = nodes[1]
        entering = asyncio.create_task(asker.subscribe(TOPIC).__aenter__())
        await until(lambda: len(asker.explain(TOPIC).get("unanswered", ())) == 1)
        facts: dict[str, Any] = asker.explain(TOPIC)
        assert facts["operation"] == "join"
        (slot,) = facts["unanswered"]
        seen = json.loads(json.dumps(facts))  # as clients see it
        lines = list(explained(TOPIC, asker.slot, seen))
        assert f"the subscription waits for node {slot}, or a node below it, for" in lines[1]
        assert lines[-1] == "an operation waits for other nodes to answer"
        await entering
        assert not asker.explain(TOPIC)["unanswered"]


@live
async def test_why_names_the_mute_member_and_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it is when the members are told: soon they are in a view without the mute one."""
    noted: list[dict[str, Any]] = []
    tell = Shell.mute

    def note(shell: Shell, accusation: Accusation) -> None:
        tell(shell, accusation)
        if shell.node.slot == 0:
            noted.append(dict(shell.node.explain(TOPIC)))

    monkeypatch.setattr(Shell, "mute", note)
    async with party(3, 3) as nodes, nodes[0].subscribe(TOPIC):
        ((slot, by, waited),) = noted[0]["mute"]
        assert (slot, by) == (3, 2)
        assert waited >= PATIENT_US
        seen = json.loads(json.dumps(noted[0]))  # as clients see it
        told = f"node 3 does not answer: node 2 has waited {waited / 1e6:.3f} s for it"
        assert told in explained(TOPIC, 0, seen)
        assert nodes[0].explain(TOPIC)["mute"] == []


def test_why_says_in_this_order_who_is_waited_for() -> None:
    facts: dict[str, Any] = {
        "standing": "joining",
        "informed": False,
        "operation": "join",
        "unanswered": {"2": 10_700_000},
        "mute": [[3, 2, 10_000_000]],
    }
    assert list(explained("chat", 0, facts)) == [
        "chat at node 0: about to be subscribed; it does not know who else is",
        "the subscription waits for node 2, or a node below it, for 10.700 s",
        "node 3 does not answer: node 2 has waited 10.000 s for it",
        "an operation waits for other nodes to answer",
    ]


@live
async def test_a_first_publish_and_a_pattern_outlive_a_mute_member() -> None:
    async with party(2, 2) as nodes, nodes[0].subscribe("rooms/#") as reader:
        await nodes[1].publish("rooms/1", b"first")
        assert (await take(reader, 1))[0].payload == b"first"


@live
async def test_the_death_of_a_mute_member_ends_the_wait_sooner() -> None:
    """The subscribe does not wait for the bound: the detector finds a closed connection at once."""
    async with party(3, 3) as nodes:
        entering = asyncio.create_task(nodes[0].subscribe(TOPIC).__aenter__())
        await until(lambda: nodes[0].explain(TOPIC).get("unanswered"))
        shell_of(nodes.pop()).kill()
        reader = await entering
        await nodes[1].publish(TOPIC, b"healed")
        assert (await anext(reader)).payload == b"healed"


@live
async def test_a_member_that_is_slow_to_read_is_not_mute() -> None:
    """A subscriber that does not consume holds up publishers, not waves: it stays a member."""
    async with party(3, 3) as nodes:
        shell_of(nodes[3]).silent = False  # type: ignore[attr-defined]
        events = nodes[0].events()
        async with nodes[3].subscribe(TOPIC, queue_bytes=1) as slow:
            for number in range(50):
                await nodes[0].publish(TOPIC, bytes(1000))
                async with nodes[1].subscribe(f"other/{number % 5}"):
                    pass
            await asyncio.sleep(2 * PATIENT_US / 1e6)
            assert len(nodes[0].members) == 4
            await take(slow, 50)
        events.close()
        assert not [one async for one in events if isinstance(one, cubecast.MemberMute)]
