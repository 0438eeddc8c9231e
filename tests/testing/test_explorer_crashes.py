"""All interleavings of small cases in which nodes crash, or are wrongly taken for dead."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import msgspec
import pytest

from cubecast.protocol.cluster.agreement import AgreementConfig, ViewAgreement
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Final, Install, Report, Who, genesis
from cubecast.protocol.config import Config
from cubecast.protocol.port import Load, NodeId, Process, Stream, Time
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.recovery import Recovery
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Inbox
from cubecast.protocol.topic.topic import TopicCore
from cubecast.testing.explorer import EXACT, LONG, MEMBERS, Case, Rules, Step, explore

CONFIG = Config(ack_delay=0, stable_delay=0, resend_after=2, patience=0, forget_after=0)
EPOCHS = AgreementConfig(
    answer_after=3 * LONG,
    repeat_after=2,
    beacon_every=2,
    enter_every=2,
    alone_after=12 * LONG,
    absent_for=12 * LONG,
)
"""Lost messages are sent again whenever timers fire; no node is given up before that fails."""
ORDERED = Rules(ordered=frozenset({"parcel"}), urgent=frozenset({"parcel-ack"}))
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
    """What a member at rest still keeps or owes, if anything."""
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
    outside: int = 0,
    restarts: int = 0,
    doubts: int = 0,
    doubted: int = -1,
    rules: Rules = EAGER,
    member_class: type[Member] = Member,
    **more: Any,
) -> Case:
    """A case of members; those `outside` begin in no view and ask the others for a place."""
    people = {slot: Who(f"n{slot}", str(slot), 0) for slot in range(nodes)}
    view = genesis({slot: who for slot, who in people.items() if not outside >> slot & 1})

    def make(node: NodeId, port: Any, again: bool = False) -> Process:
        inside = not again and not outside >> node & 1
        return member_class(
            node,
            port,
            view=view if inside else None,
            who=Who(f"again{node}", str(node), 100) if again else people[node],
            config=CONFIG,
            epochs=EPOCHS,
            seeds=[who.address for who in view.members.values()],
        )

    rules = replace(rules, crashes=crashes, mortal=mortal, doubts=doubts, doubted=doubted)
    rules = replace(rules, restarts=restarts)
    more["reborn"] = partial(make, again=True)
    return Case(nodes, make, steps, {"t": members}, rules, idle, likeness=MEMBERS, **more)


ANYTHING = Rules()
ONE_LOSS = replace(EAGER, drops=1)
A = publish(0, "a")
B = publish(1, "b", "a")
LEADER_DIES: dict[str, Any] = {"members": 0, "crashes": 2, "mortal": 0b1001}
"""3 crashes; 0 leads the change of the view, and crashes while it tells the others."""

# By number of nodes.  Node 0 publishes; of four nodes, 2 is the relay to 3, and 1 the heir of 0.
CASES: dict[str, Case] = {
    "2: any node begins again, one loss": crashing(2, A, members=3, restarts=1, rules=ONE_LOSS),
    "3: one loss, with an answer": crashing(3, A, B, members=7, crashes=0, rules=ONE_LOSS),
    "3: any node, one loss": crashing(3, A, members=7, rules=ONE_LOSS),
    "3: any node, any order": crashing(3, A, members=7, rules=ANYTHING),
    "3: any node, with an answer": crashing(3, A, B, members=7),
    "3: any node, while 2 joins": crashing(3, A, subscribe(2), members=3),
    "3: any node, while 2 leaves": crashing(3, A, unsubscribe(2), members=7),
    "3: two, while 2 joins": crashing(3, A, subscribe(2), members=3, crashes=2),
    "3: any node, while 2 enters the cluster": crashing(3, A, members=3, outside=4),
    "3: any node, while 2 leaves the cluster": crashing(
        3, A, unsubscribe(2), Step(2, "depart"), members=7
    ),
    "3: any node, while 0 leaves the cluster": crashing(
        3, publish(1, "a"), Step(0, "depart"), members=6
    ),
    "3: a doubt": crashing(3, A, members=7, crashes=0, doubts=1),
    "3: 1 takes the leader for dead and crashes": crashing(
        3, members=7, mortal=0b010, doubts=1, doubted=0b001
    ),
    "4: any node": crashing(4, A, members=15),
    "4: the relay, with an answer": crashing(4, A, publish(3, "b", "a"), members=15, mortal=0b0100),
    "4: the newcomer, while 3 joins": crashing(4, A, subscribe(3), members=7, mortal=0b1000),
    "4: the leader of a change": crashing(4, **LEADER_DIES),
    "4: two, without publications": crashing(4, members=15, crashes=2),
    "4: any node, while 3 enters the cluster": crashing(4, members=7, outside=8),
    "4: any node, while 0 leaves the cluster": crashing(4, Step(0, "depart"), members=14),
    "4: a doubt, without publications": crashing(4, members=15, crashes=0, doubts=1),
}

LONG_CASES: dict[str, Case] = {
    "2: any node begins again, one loss, with an answer": crashing(
        2, A, B, members=3, restarts=1, rules=ONE_LOSS
    ),
    "3: two, with an answer": crashing(3, A, B, members=7, crashes=2),
    "4: the publisher, with an answer": crashing(4, A, B, members=15, mortal=0b0001),
    "3: any node begins again": crashing(3, A, members=7, restarts=1),
    "3: the publisher of two, with an answer": crashing(
        3, A, publish(0, "c"), B, members=7, mortal=0b001
    ),
    "4: the leaver, while 2 leaves": crashing(4, A, unsubscribe(2), members=15, mortal=0b0100),
    "3: two, while 2 leaves": crashing(3, A, unsubscribe(2), members=7, crashes=2),
    "3: any node, with an answer, acknowledgements late": crashing(
        3, A, B, members=7, rules=ORDERED
    ),
    "3: any node, while 2 enters the cluster and joins": crashing(
        3, A, subscribe(2), members=3, outside=4
    ),
    "4: publisher and heir": crashing(4, A, members=15, crashes=2, mortal=0b0011),
    "4: publisher and relay": crashing(4, A, members=15, crashes=2, mortal=0b0101),
    "4: two": crashing(4, A, members=15, crashes=2),
    "4: a doubt": crashing(4, A, members=15, crashes=0, doubts=1),
    "4: the publisher, while 3 joins": crashing(4, A, subscribe(3), members=7, mortal=0b0001),
    "4: any node, with an answer": crashing(4, A, B, members=15),
    "4: the relay, while 3 joins": crashing(4, A, subscribe(3), members=7, mortal=0b0100),
    "4: the publisher, while 2 leaves": crashing(4, A, unsubscribe(2), members=15, mortal=0b0001),
}


@pytest.mark.parametrize("name", CASES)
def test_members_survive_every_crash(name: str) -> None:
    result = explore(CASES[name])
    assert result.ok, result


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG_CASES)
def test_members_survive_every_crash_of_a_long_case(name: str) -> None:
    result = explore(LONG_CASES[name], max_states=10_000_000)
    assert result.ok, result


# -- the explorer itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "long",
    [
        crashing(3, A, members=7, rules=ANYTHING),
        replace(crashing(3, A, members=7), likeness=replace(MEMBERS, unordered=frozenset())),
    ],
    ids=["order of arrival", "forms"],
)
def test_short_cuts_lose_no_outcome(long: Case) -> None:
    few, many = explore(crashing(3, A, members=7)), explore(long)
    assert few.ok, few
    assert many.ok, many
    assert few.outcomes == many.outcomes
    assert few.states <= many.states


class Teller:
    """Tells two others what it publishes, and is trusted to: no node notices that it is gone."""

    label: ClassVar[str] = "teller"

    def __init__(self, node: NodeId, port: Any) -> None:
        self.node, self.port = node, port

    def establish(self, topic: str, members: int) -> None: ...

    def publish(self, topic: str, body: tuple[object, ...], size: int, now: Time) -> bool:
        self.port.relay([1, 2], Tale(body))
        return True

    def on_message(self, message: Tale, sender: NodeId, now: Time) -> None:
        self.port.deliver(message)

    def load(self) -> Load:
        return Load(0, 0)


class Tale:
    kind: ClassVar[str] = "tale"
    topic: ClassVar[str] = "t"
    stream: ClassVar[Stream] = Stream(0, 0)
    first: ClassVar[int] = 0

    def __init__(self, body: tuple[object, ...]) -> None:
        self.body = body


def test_a_crash_can_cut_a_broadcast_anywhere() -> None:
    """What was in flight arrives or not, at each receiver apart."""
    case = Case(
        3,
        Teller,
        (A,),
        {"t": 6},
        Rules(crashes=1, mortal=1),
        likeness=EXACT,  # type: ignore[arg-type]
    )
    result = explore(case)
    assert result.complete
    assert result.counts.keys() == {"agreement", "convergence"}
    told = {
        (published, *("deliver" in {e.note.kind for e in outcome[node]} for node in (1, 2)))
        for outcome in result.outcomes
        for published in ["publish" in {e.note.kind for e in outcome[0]}]
        if any(e.note.kind == "crash" for e in outcome[0])
    }
    broken = {(True, first, second) for first in (False, True) for second in (False, True)}
    assert told == {(False, False, False), *broken}
    assert any("crashes; lost: 0 -> " in line for line in result.finding("agreement").schedule)


# -- protocols with flaws ------------------------------------------------------------------------


class OldBallots(ViewAgreement):
    """Takes over whatever view follows its own, though it has promised to follow a later ballot."""

    def on_install(self, install: Install, now: Time) -> bool:
        self.promised = min(self.promised, install.ballot)
        return super().on_install(install, now)


class Obstinate(ViewAgreement):
    """Decides for itself what comes after its view, though a node has gone over to another."""

    def on_report(self, report: Report, sender: NodeId, now: Time) -> None:
        installed = report.installed
        if installed is not None and installed.parent == self.view.id:
            report = msgspec.structs.replace(report, installed=None, promised=report.ballot)
        super().on_report(report, sender, now)


class Thawed(Delivery):
    def freeze(self) -> None:
        pass


class OpensFrozen(StreamTable):
    def open(self, stream: Stream) -> Inbox:
        view = self._context.view
        frozen, view.frozen = view.frozen, set()
        inbox = super().open(stream)
        view.frozen = frozen
        return inbox


class Unfrozen(TopicCore):
    """Goes on delivering what a dead node published after it has reported what it has of it."""

    delivery_class = Thawed
    streams_class = OpensFrozen


class EndsWhereItStands(Recovery):
    """Ends a dead stream where it stands; no node feeds another."""

    def end_stream(self, final: Final, now: Time) -> bool:
        inbox = self._streams.inboxes.get(final.stream)
        mine = self._front.delivered.get(final.stream, -1)
        while inbox is not None and mine + 1 in inbox.frames:
            mine = inbox.frames[mine + 1].last
        self._dead.heirs[final.stream] = self._context.node
        if inbox is not None:
            self.drop_above(inbox, min(mine, final.seq))
        self._delivery.resume(final.stream, now)
        self._inheritance.settle(final.stream, min(mine, final.seq), now)
        return False


class Selfish(TopicCore):
    recovery_class = EndsWhereItStands


class OldBallotsMember(Member):
    agreement_class = OldBallots


class ObstinateMember(Member):
    agreement_class = Obstinate


class UnfrozenNode(CubecastNode):
    core_class = Unfrozen


class UnfrozenMember(Member):
    core_class = UnfrozenNode


class SelfishNode(CubecastNode):
    core_class = Selfish


class SelfishMember(Member):
    core_class = SelfishNode


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
