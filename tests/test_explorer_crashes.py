"""All interleavings of small cases in which nodes crash, or are wrongly taken for dead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cubecast.protocol.config import Config
from cubecast.protocol.epochs import EpochConfig
from cubecast.protocol.member import Member, genesis
from cubecast.protocol.port import NodeId, Process
from cubecast.protocol.views import Who
from cubecast.sim.explorer import MEMBERS, Case, Rules, Step, explore

CONFIG = Config(ack_delay=0, stable_delay=0, resend_after=2, patience=0)
EPOCHS = EpochConfig(
    answer_after=6, repeat_after=2, beacon_every=8, enter_every=4, alone_after=100
)
EAGER = Rules(
    ordered=frozenset({"parcel"}), urgent=frozenset({"ack", "parcel-ack", "installed", "stable"})
)


def publish(node: NodeId, name: str, *after: str, joined: bool = False) -> Step:
    return Step(node, "publish", name, after, joined)


def subscribe(node: NodeId) -> Step:
    return Step(node, "subscribe")


def unsubscribe(node: NodeId) -> Step:
    return Step(node, "unsubscribe")


def idle(process: Process) -> str | None:
    """A member at rest keeps no frame and owes nobody anything."""
    assert isinstance(process, Member)
    load = process.load()
    if any(load):
        return f"keeps {load}"
    core = process.core
    if core is not None and core.unacked_parcels():
        return f"{core.unacked_parcels()} control messages are not acknowledged"
    return None


def crashing(
    nodes: int,
    *steps: Step,
    members: int,
    crashes: int = 1,
    mortal: int = -1,
    rules: Rules = EAGER,
    member_class: type[Member] = Member,
    **more: Any,
) -> Case:
    view = genesis({slot: Who(f"n{slot}", str(slot), 0) for slot in range(nodes)})

    def make(node: NodeId, port: Any) -> Process:
        return member_class(
            node, port, view=view, who=view.members[node], config=CONFIG, epochs=EPOCHS
        )

    rules = replace(rules, crashes=crashes, mortal=mortal)
    return Case(nodes, make, steps, {"t": members}, rules, idle, likeness=MEMBERS, **more)


CASES: dict[str, Case] = {
    "anybody, a publication": crashing(3, publish(0, "a"), members=7),
    "the publisher, with an answer": crashing(
        3, publish(0, "a"), publish(1, "b", "a"), members=7, mortal=1
    ),
    "anybody, a publication and an answer": crashing(
        3, publish(0, "a"), publish(1, "b", "a"), members=7
    ),
    "two, a publication": crashing(3, publish(0, "a"), members=7, crashes=2),
    "a relay": crashing(4, publish(0, "a"), members=15, mortal=4),
    "anybody of four, a publication": crashing(4, publish(0, "a"), members=15),
}


@pytest.mark.parametrize("name", CASES)
def test_members_survive_every_crash(name: str) -> None:
    result = explore(CASES[name])
    assert result.ok, result
