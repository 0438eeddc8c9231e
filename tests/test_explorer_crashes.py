"""All interleavings of small cases in which nodes crash, or are wrongly taken for dead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cubecast.protocol.config import Config
from cubecast.protocol.epochs import EpochConfig, Epochs
from cubecast.protocol.member import Member, genesis
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import NodeId, Process, Stream, Time
from cubecast.protocol.recovery import RecoveringTopic
from cubecast.protocol.streams import Inbox
from cubecast.protocol.views import Final, Install, Report, Who
from cubecast.sim.explorer import MEMBERS, Case, Rules, Step, explore

CONFIG = Config(ack_delay=0, stable_delay=0, resend_after=2, patience=0)
EPOCHS = EpochConfig(answer_after=6, repeat_after=2, beacon_every=8, enter_every=4, alone_after=100)
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


ANYTHING = Rules()
ORDERED = Rules(ordered=frozenset({"parcel"}), urgent=frozenset({"parcel-ack"}))
CASES: dict[str, Case] = {
    "ANY 3 a": crashing(3, publish(0, "a"), members=7, rules=ANYTHING),
    "ORD 3 ab": crashing(3, publish(0, "a"), publish(1, "b", "a"), members=7, rules=ORDERED),
    "EAG 3 a b c": crashing(3, publish(0, "a"), publish(1, "b", "a"), publish(0, "c"), members=7),
    "EAG 3 a b join": crashing(3, publish(0, "a"), publish(1, "b", "a"), subscribe(2), members=3),
    "EAG 3 a leave": crashing(3, publish(0, "a"), publish(1, "b", "a"), unsubscribe(2), members=7),
    "EAG 3 2crash ab": crashing(3, publish(0, "a"), publish(1, "b", "a"), members=7, crashes=2),
    "EAG 4 2crash a": crashing(4, publish(0, "a"), members=15, crashes=2),
    "EAG 4 ab": crashing(4, publish(0, "a"), publish(1, "b", "a"), members=15),
    "EAG 4 a join": crashing(4, publish(0, "a"), subscribe(3), members=7),
    "EAG 4 a leave": crashing(4, publish(0, "a"), unsubscribe(2), members=15),
    "EAG 3 doubt": crashing(
        3, publish(0, "a"), members=7, crashes=0, rules=replace(EAGER, doubts=1)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_members_survive_every_crash(name: str) -> None:
    result = explore(CASES[name])
    assert result.ok, result


# -- protocols with flaws ------------------------------------------------------------------------


class OldBallots(Epochs):
    """Takes over whatever view follows its own, though it has promised to follow a later ballot."""

    def on_install(self, install: Install, now: Time) -> bool:
        self.promised = min(self.promised, install.ballot)
        return super().on_install(install, now)


class Obstinate(Epochs):
    """Decides for itself what comes after its view, though somebody has gone over to another."""

    def on_report(self, report: Report, sender: NodeId, now: Time) -> None:
        installed = report.installed
        if installed is not None and installed.parent == self.view.id:
            report = msgspec.structs.replace(report, installed=None, promised=report.ballot)
        super().on_report(report, sender, now)


class Unfrozen(RecoveringTopic):
    """Goes on delivering what a dead node published after it has reported what it has of it."""

    def freeze(self, stream: Stream) -> None:
        pass

    def _open(self, stream: Stream) -> Inbox:
        frozen, self.frozen = self.frozen, set()
        inbox = super()._open(stream)
        self.frozen = frozen
        return inbox


class Selfish(RecoveringTopic):
    """Ends a dead stream where it stands; nobody feeds anybody."""

    def end_stream(self, final: Final, now: Time) -> bool:
        inbox = self.inboxes.get(final.stream)
        mine = self.front.delivered.get(final.stream, -1)
        while inbox is not None and mine + 1 in inbox.frames:
            mine = inbox.frames[mine + 1].last
        self.heirs[final.stream] = self.node
        if inbox is not None:
            self._drop_above(inbox, min(mine, final.seq))
        self.resume(final.stream, now)
        self.settle(final.stream, min(mine, final.seq), now)
        return False


class OldBallotsMember(Member):
    epochs_class = OldBallots


class ObstinateMember(Member):
    epochs_class = Obstinate


class UnfrozenNode(CubecastNode):
    core_class = Unfrozen


class UnfrozenMember(Member):
    core_class = UnfrozenNode


class SelfishNode(CubecastNode):
    core_class = Selfish


class SelfishMember(Member):
    core_class = SelfishNode


LEADER_DIES = {"members": 0, "crashes": 2, "mortal": 0b1001}
"""3 crashes; 0 leads the change of the view, and crashes while it tells the others."""


@pytest.mark.parametrize(
    ("case", "symptoms"),
    [
        (crashing(4, member_class=OldBallotsMember, **LEADER_DIES), {"convergence"}),
        (crashing(4, member_class=ObstinateMember, **LEADER_DIES), {"convergence"}),
        (
            crashing(3, publish(0, "a"), members=7, mortal=1, member_class=UnfrozenMember),
            {"agreement"},
        ),
        (
            crashing(3, publish(0, "a"), members=7, mortal=1, member_class=SelfishMember),
            {"agreement"},
        ),
    ],
    ids=["old ballots", "obstinate", "unfrozen", "selfish"],
)
def test_flaws_are_found(case: Case, symptoms: set[str]) -> None:
    result = explore(case)
    assert result.complete
    assert symptoms <= result.counts.keys(), result
