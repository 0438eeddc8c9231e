"""Broken recoveries, to see that chaos notices.

Each is the production protocol with one idea of its recovery removed, and states by which property,
and at which seed or by which file, a schedule gives it away; the properties are those of
`cubecast.chaos.simulated.driver.SimulatedVerdict`.

``python -m support.chaos_mutants [NAME …]``, in ``tests/``, looks for the seeds anew, which is due
when schedules are drawn in another way.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cubecast.chaos.schedule import read_schedule
from cubecast.chaos.simulated.driver import (
    Population,
    SimulatedVerdict,
    draw_schedule,
    run_schedule,
)
from cubecast.protocol.cluster.agreement import ViewAgreement
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import (
    TO_ANYONE,
    Depart,
    Final,
    Finals,
    Install,
    Prepare,
    Report,
    Reports,
    View,
)
from cubecast.protocol.messages import Op, Wave
from cubecast.protocol.port import Message, NodeId, Seq, Stream, Time
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.protocol.subscriptions.waves import Contribution
from cubecast.protocol.topic import stream_ends as finals
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.inheritance import Inheritance
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.recovery import Recovery
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.protocol.topic.topic import TopicCore
from cubecast.sim.protocols import members
from support.mutants import of_parts
from support.paths import ROOT

SEEDS = 500
SCENARIOS = ROOT / "scenarios" / "chaos"


class Caught(NamedTuple):
    """The first schedule that a mutant does not survive, and what it breaks there."""

    seed: int
    properties: frozenset[str]


def catch(
    mutant: Population | type[Member],
    seeds: int = SEEDS,
    first: int = 0,
    by: frozenset[str] = frozenset(),
) -> Caught | None:
    """Run seeds until one gives the mutant away, `by` one of these properties or by any.

    ``catch(lambda params: members(params, Broken))``, or ``catch(Broken)`` for a class of members.
    None if no seed does.
    """
    people = people_of(mutant) if isinstance(mutant, type) else mutant
    for seed in range(first, first + seeds):
        verdict = run_schedule(draw_schedule(seed), people)
        if not verdict.ok and (not by or by & verdict.failures.keys()):
            return Caught(seed, frozenset(verdict.failures))
    return None


def people_of(kind: type[Member]) -> Population:
    """Nodes of this class of members."""
    return lambda params: members(params, kind)


def run_file(kind: type[Member], name: str) -> SimulatedVerdict:
    """What comes of a schedule of the repository."""
    return run_schedule(read_schedule(SCENARIOS / f"{name}.toml"), people_of(kind))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken member, the property that it breaks, and where: a seed or a schedule file."""

    kind: type[Member]
    symptom: str
    where: int | str

    @property
    def name(self) -> str:
        return self.kind.__name__


MUTANTS: list[Mutant] = []


def mutant(symptom: str, where: int | str) -> Callable[[type[Member]], type[Member]]:
    """Register a class of members that must break this property there."""

    def register(kind: type[Member]) -> type[Member]:
        MUTANTS.append(Mutant(kind, symptom, where))
        return kind

    return register


def of_topics(topic_class: type[TopicCore]) -> type[CubecastNode]:
    """A core whose topics are of this class."""
    return type("Core", (CubecastNode,), {"core_class": topic_class})


def of_memberships(membership_class: type[Membership]) -> type[CubecastNode]:
    """A core whose memberships are of this class."""
    return type("Core", (CubecastNode,), {"membership_class": membership_class})


def with_parts(**parts: type) -> type[CubecastNode]:
    """A core whose topics have these parts in the place of sound ones."""
    return of_topics(of_parts(**parts))


# -- suspicion -------------------------------------------------------------------------------------


@mutant("liveness", 10)
class NeverSuspects(Member):
    """Waits for the dead for ever."""

    def _on_suspects(self, suspects: int, now: Time) -> None:
        pass


@mutant("liveness", 3)
class NeverReturns(Member):
    """Learns that it was excluded and stays where it is."""

    def _return_to(self, view: View, now: Time) -> None:
        pass


@mutant("liveness", 3)
class NeverLooksForOthers(Member):
    """Does not tell excluded nodes where the cluster is."""

    def _shine(self, now: Time) -> None:
        self._beacon_at = None

    def _say_where_we_are(self, address: str, now: Time) -> None:
        pass


@mutant("liveness", 7)
class BothStay(Member):
    """Takes its own view for the better one, whatever the other is like."""

    def elsewhere(self, view: View, uid: str, now: Time, at: str = "") -> None:
        mine = self.view
        if mine is not None and not mine.has(uid):
            return
        super().elsewhere(view, uid, now, at)


@mutant("raised", 117)
class HearsOldLives(Member):
    """Takes a message of a former life for one of the present life."""

    def on_packet(self, message: Message, sender: NodeId, seal: Any, now: Time) -> None:
        if isinstance(message, TO_ANYONE):
            super().on_packet(message, sender, seal, now)
        else:
            self.on_message(message, sender, now)


# -- agreement on views ----------------------------------------------------------------------------


class DecidesAgain(ViewAgreement):
    def on_prepare(self, prepare: Prepare, sender: NodeId, now: Time) -> None:
        install = self._install
        if install is not None and prepare.parent == install.parent:
            self.promised = max(self.promised, prepare.ballot)
            held = self._host.prepare(prepare.survivors)
            self._host.send(sender, Report(prepare.ballot, prepare.ballot, None, held))
        else:
            super().on_prepare(prepare, sender, now)

    def on_install(self, install: Install, now: Time) -> bool:
        if (
            self._install is not None
            and install.parent == self._install.parent
            and install.view.id > self.view.id
            and install.view.has(self.uid)
        ):
            self._go_over(install, now)
            return True
        return super().on_install(install, now)


@mutant("liveness", 1)
class DecidesTwice(Member):
    """Does not tell a successor what was decided before, and lets it decide anew."""

    agreement_class = DecidesAgain


class OldBallots(ViewAgreement):
    def on_install(self, install: Install, now: Time) -> bool:
        if install.parent == self.view.id:
            self.promised = min(self.promised, install.ballot)
        return super().on_install(install, now)


class InstallsOldBallots(Member):
    """Follows a ballot and then installs what an earlier one decided."""

    agreement_class = OldBallots


class Credulous(ViewAgreement):
    def on_depart(self, depart: Depart, now: Time) -> None:
        if self.view.has(depart.uid):
            self._admission.departing[depart.uid] = None
            self.consider(now)


class TrustsDepart(Member):
    """Lets a member go because another node says that it wants to."""

    agreement_class = Credulous


class Unclosed(ViewAgreement):
    def _finals(self, reports: Mapping[NodeId, Reports], view: View) -> Finals:
        bare: dict[NodeId, Reports] = {
            slot: {
                topic: tuple(
                    msgspec.structs.replace(
                        one,
                        unread=tuple(
                            msgspec.structs.replace(frame, barrier=()) for frame in one.unread
                        ),
                    )
                    for one in held
                )
                for topic, held in report.items()
            }
            for slot, report in reports.items()
        }
        return finals.decide(bare, view.has_stream)


@mutant("loss-reasons", "cause-dies-with-its-readers")
class KeepsEffectsWithoutCauses(Member):
    """Ends dead streams at the last message a survivor holds, even if its causes are not held."""

    agreement_class = Unclosed


class LowestHeir(ViewAgreement):
    def _finals(self, reports: Mapping[NodeId, Reports], view: View) -> Finals:
        found = super()._finals(reports, view)
        first: dict[tuple[str, Stream], Final] = {}
        for slot in sorted(reports, reverse=True):
            for topic, held in reports[slot].items():
                for one in held:
                    if not view.has_stream(one.stream):
                        end = Final(one.stream, one.have, slot, min(one.base, one.have))
                        first[topic, one.stream] = end
        return {topic: tuple(first[topic, end.stream] for end in found[topic]) for topic in found}


@mutant("loss-reports", 1)
class InheritsByNumber(Member):
    """Makes the lowest slot the heir, however little it holds."""

    agreement_class = LowestHeir


class Hasty(ViewAgreement):
    def _decide_if_complete(self, now: Time) -> None:
        if self.attempt is not None and 2 * len(self.attempt.reports) > self.view.mask.bit_count():
            for slot in self.attempt.missing():
                self.attempt.reports[slot] = {}
        super()._decide_if_complete(now)


@mutant("loss-reports", 161)
class DecidesByMajority(Member):
    """Does not wait for the reports of all who stay."""

    agreement_class = Hasty


# -- the streams of the dead -----------------------------------------------------------------------


class Unfrozen(Delivery):
    def freeze(self) -> None:
        pass


@mutant("loss-reports", 205)
class NeverFreezes(Member):
    """Goes on delivering a dead stream after it has reported what it has of it."""

    core_class = with_parts(delivery_class=Unfrozen)


class OwnEnd(Recovery):
    def end_stream(self, final: Final, now: Time) -> bool:
        reached = min(final.seq, self._front.delivered.get(final.stream, -1))
        return super().end_stream(msgspec.structs.replace(final, seq=reached), now)


@mutant("agreement", 14)
class EndsWhereItIs(Member):
    """Discards locally: a dead stream ends at whatever was delivered here."""

    core_class = with_parts(recovery_class=OwnEnd)


class Hoarder(Recovery):
    def drop_above(self, inbox: Inbox, end: Seq) -> None:
        pass


class KeepsOrphans(Member):
    """Never discards what lies above the end of a dead stream."""

    core_class = with_parts(recovery_class=Hoarder)


class Childless(Inheritance):
    def inherit(self, final: Final, now: Time) -> None:
        pass


@mutant("agreement", 1)
class FeedsNobody(Member):
    """The heir of a dead stream keeps what the others lack to itself."""

    core_class = with_parts(inheritance_class=Childless)


class OpensAll(TopicGuard):
    __slots__ = ()

    def may_open(
        self, stream: Stream, inboxes: dict[Stream, Inbox], floor: dict[Stream, Seq]
    ) -> bool:
        return True


class OpensOldStreams(Member):
    """Takes frames of a node that is gone, if they come late."""

    core_class = with_parts(guard_class=OpensAll)


class Undropped(Recovery):
    def drop_unreported(self, ended: set[Stream], now: Time) -> None:
        pass


class KeepsTheUnreported(Member):
    """Keeps what came of a dead stream after its report, although no other node has it."""

    core_class = with_parts(recovery_class=Undropped)


class EndsUnsaid(TopicCore):
    def vector(self) -> dict[Stream, Seq]:
        vector = dict(self.front.delivered)
        if self.outgoing.next_seq:
            vector[self.outgoing.own] = self.outgoing.last
        return vector


class AnswersWithoutEnds(Member):
    """Does not tell those who join how far dead streams will go."""

    core_class = of_topics(EndsUnsaid)


class Settles(Inheritance):
    def advance(self, inbox: Inbox, now: Time) -> None:
        for branch in inbox.branches.values():
            assert branch.end is not None
            branch.covered = branch.end
        super().advance(inbox, now)


@mutant("loss-reasons", 1)
class SettlesTooEarly(Member):
    """Lets all forget a dead stream before all have it."""

    core_class = with_parts(inheritance_class=Settles)


# -- the streams of the living ---------------------------------------------------------------------


class Unrouted(Outgoing):
    rerouting = False

    def lose_members(self, dead: int, now: Time) -> None:
        self.rerouting = True
        super().lose_members(dead, now)
        self.rerouting = False

    def feed_directly(self, inbox: Inbox, branch: Branch, now: Time) -> None:
        if not self.rerouting:
            super().feed_directly(inbox, branch, now)


@mutant("liveness", 1)
class NeverReroutes(Member):
    """Leaves what was under way in trees with the dead to these trees."""

    core_class = with_parts(outgoing_class=Unrouted)


class Forgiving(Recovery):
    def lose_children(self, dead: int) -> None:
        super().lose_children(dead)
        for inbox in self._streams.inboxes.values():
            for branch in inbox.branches.values():
                branch.lost = False


class CountsTheDeadAsServed(Member):
    """A relay acknowledges for a child that is gone, and so for those below it."""

    core_class = with_parts(recovery_class=Forgiving)


class SlotsAreNodes(TopicGuard):
    __slots__ = ()

    def not_in(self, route: Any) -> int:
        return 0

    def check_route(self, frame: Any, sender: NodeId) -> None:
        view = self._view
        born, view.born = view.born, 0
        super().check_route(frame, sender)
        view.born = born


@mutant("completeness", 32)
class TakesSlotsForNodes(Member):
    """Does not tell the next owner of a slot from the last one."""

    core_class = with_parts(guard_class=SlotsAreNodes)


class Once(CubecastNode):
    def _start_again(self, now: Time) -> None:
        pass


@mutant("quiescence", 9)
class AsksOnce(Member):
    """Does not start waves again that led through the dead."""

    core_class = Once


# -- apart and together again ----------------------------------------------------------------------


class Forgetful(Membership):
    def return_from(self, former: Membership, apart: int) -> None:
        super().return_from(former, apart)
        self.core.front.delivered.clear()
        if self._reached is not None:
            self._reached = {}


@mutant("loss-reports", 3)
class ForgetsWhatItRead(Member):
    """Comes back and takes what it had read for missed."""

    core_class = of_memberships(Forgetful)


class Discreet(Membership):
    def return_from(self, former: Membership, apart: int) -> None:
        super().return_from(former, apart)
        self._reached = None


@mutant("agreement", 14)
class ReturnsWithoutAGap(Member):
    """Comes back and does not say what it missed."""

    core_class = of_memberships(Discreet)


class Independent(TopicCore):
    def return_from(self, former: TopicCore, apart: int) -> None:
        super().return_from(former, apart)
        self.front.frontier.clear()


@mutant("causal-order", "answer-after-a-return")
class SpeaksAsIfItHadReadNothing(Member):
    """What it publishes first after its return depends on nothing that it had read before."""

    core_class = of_topics(Independent)


class PerPublisher(Membership):
    def apply(self, wave: Wave, sender: NodeId, now: Time) -> Contribution:
        answer = super().apply(wave, sender, now)
        if wave.op is not Op.JOIN:
            return answer
        own, live = self.core.outgoing.own, self.core.context.view.is_live
        vector = {s: q for s, q in answer.vector.items() if s == own or not live(s)}
        return answer._replace(vector=vector)


class SkipsPerPublisher(Member):
    """Jumps to where each publisher is, and not to a cut."""

    core_class = of_memberships(PerPublisher)


class EndsUnheard(Recovery):
    def hear_end(self, stream: Stream, last: Seq, now: Time, apart: int) -> None:
        pass


@mutant("completeness", 5)
class DoesNotMissTheOthers(Member):
    """Does not report what was published on the other side of a partition."""

    core_class = with_parts(recovery_class=EndsUnheard)


class Unannounced(CubecastNode):
    def reached(self, apart: int) -> dict[str, tuple[tuple[Stream, Seq], ...]]:
        return {}


@mutant("completeness", 5)
class ReturnsInSilence(Member):
    """Does not say how far streams went where it comes from."""

    core_class = Unannounced


def main(names: list[str]) -> None:
    """Print the first seed for each mutant and what shows by then."""
    for one in MUTANTS:
        if names and one.name not in names:
            continue
        seen: Counter[str] = Counter()
        at: dict[str, int] = {}
        found = None
        for seed in range(SEEDS):
            failures = run_schedule(draw_schedule(seed), people_of(one.kind)).failures
            seen.update(failures.keys())
            for name in failures:
                at.setdefault(name, seed)
            if one.symptom in failures:
                found = seed
                break
        others = {name: (at[name], count) for name, count in seen.items()}
        print(one.name, one.symptom, found, others, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
