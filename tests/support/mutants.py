"""Broken versions of the production protocol, to see that the checkers notice.

Each mutant is the production node with one idea of it removed, and names the symptom by which a
storm must give it away.  A symptom is a property of `cubecast.trace`, or

``crash``     a process raised: an assertion inside the protocol was broken
``restless``  the run was not at rest at the horizon, or a publication was never accepted
``kept``      everything is at rest and some process still keeps frames
``gap``       a node skipped messages that had not said that it would rather do so
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.messages import Frame, Op, Wave
from cubecast.protocol.port import NodeId, Port, Seq, Stream, Time
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.subscriptions.membership import Membership, Standing
from cubecast.protocol.subscriptions.waves import Contribution, Gathering
from cubecast.protocol.topic.acks import Acks
from cubecast.protocol.topic.causal import CausalFront
from cubecast.protocol.topic.incoming import Incoming
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.protocol.topic.topic import TopicCore
from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS, Scenario
from cubecast.sim.workloads.storm import is_lossy
from cubecast.topology import MAX_DIMENSION

STORM = SCENARIOS["storm"]


def symptoms_of(node_class: type[CubecastNode], seed: int, scenario: Scenario = STORM) -> set[str]:
    """What goes wrong when nodes of this class go through storm number `seed`."""
    params = Params().with_({**scenario.defaults, "horizon": 200_000})
    drawn: list[Params] = []

    def draw(params: Params, rng: Random) -> Params:
        assert scenario.draw is not None
        drawn.append(scenario.draw(params, rng))
        return drawn[0]

    def make(node: NodeId, port: Port) -> CubecastNode:
        cluster = (1 << drawn[0].nodes) - 1
        return node_class(node, port, cluster=cluster, config=drawn[0].config())

    try:
        outcome = run(
            replace(scenario, draw=draw), "cubecast", params, seed, make=make, keep_trace=True
        )
    except (AssertionError, LookupError, TypeError, ValueError):
        return {"crash"}
    assert outcome.report is not None
    counts = outcome.report.counts
    found = {name for name, count in counts.items() if count}
    assert outcome.trace is not None
    if any(record.kind == "gap" and not is_lossy(record.node) for record in outcome.trace):
        found.add("gap")
    if outcome.metrics["violations"] > sum(counts.values()):
        found.add("restless")
    elif outcome.metrics["kept"]:
        found.add("kept")
    return found


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken node and the symptom that must show within so many storms."""

    node_class: type[CubecastNode]
    symptom: str
    within: int

    @property
    def name(self) -> str:
        return self.node_class.__name__

    @property
    def about(self) -> str:
        return (self.node_class.__doc__ or "").strip()


MUTANTS: list[Mutant] = []


def mutant(symptom: str, within: int) -> Callable[[type[CubecastNode]], type[CubecastNode]]:
    """Register a class of nodes that must show `symptom` within `within` storms."""

    def register(node_class: type[CubecastNode]) -> type[CubecastNode]:
        MUTANTS.append(Mutant(node_class, symptom, within))
        return node_class

    return register


def of_parts(**parts: type) -> type[TopicCore]:
    """Topics with these parts in the place of sound ones, as ``outgoing_class=Spendthrift``."""
    assert all(hasattr(TopicCore, name) for name in parts), parts
    return _named(TopicCore, parts)


def of_fronts(front_class: type[CausalFront]) -> type[TopicCore]:
    """Topics whose idea of causal order is `front_class`."""
    return of_parts(streams_class=_named(StreamTable, {"front_class": front_class}))


def _named(base: type, parts: dict[str, type]) -> Any:
    """A class with other parts; the explorer pickles its objects, and so has to find it by name."""
    name = "".join([base.__name__, "Of", *(part.__name__ for part in parts.values())])
    globals()[name] = kind = type(name, (base,), {**parts, "__module__": __name__})
    return kind


# -- causal order ---------------------------------------------------------------------------------


class NoBarriers(CausalFront):
    __slots__ = ()

    def ready(self, inbox: Inbox, barrier: Any) -> bool:
        return True


@mutant("causal-order", 10)
class SkipsTheBarrier(CubecastNode):
    """Delivers in sequence per stream and looks at no barrier."""

    core_class = of_fronts(NoBarriers)


class EmptyFrontier(CausalFront):
    __slots__ = ()

    def barrier(self) -> Any:
        return ()


@mutant("causal-order", 10)
class SendsNoBarrier(CubecastNode):
    """Publishes as if it had delivered nothing since its last message."""

    core_class = of_fronts(EmptyFrontier)


class LastOnly(CausalFront):
    __slots__ = ()

    def deliver(self, frame: Frame) -> None:
        self.frontier.clear()
        super().deliver(frame)


@mutant("causal-order", 10)
class DependsOnTheLastDeliveryOnly(CubecastNode):
    """Takes whatever it delivered last for the only direct predecessor."""

    core_class = of_fronts(LastOnly)


class Overreduced(CausalFront):
    __slots__ = ()

    def deliver(self, frame: Frame) -> None:
        for stream, _ in frame.barrier:
            self.frontier.pop(stream, None)
        super().deliver(frame)


@mutant("causal-order", 100)
class ReducesTheFrontierTooFar(CubecastNode):
    """Drops a stream from the frontier although its entry is newer than the barrier's."""

    core_class = of_fronts(Overreduced)


# -- joining --------------------------------------------------------------------------------------


class AnswersForItself(Membership):
    def apply(self, wave: Wave, sender: NodeId, now: Time) -> Contribution:
        answer = super().apply(wave, sender, now)
        if wave.op is not Op.JOIN:
            return answer
        own = {
            stream: seq for stream, seq in answer.vector.items() if stream == self.core.outgoing.own
        }
        return answer._replace(vector=own)


@mutant("causal-order", 500)
class CutsPerPublisher(CubecastNode):
    """The naive cure of hole 1, which is hole 8: answers a JOIN with its own publications only."""

    membership_class = AnswersForItself


class BeginsAtZero(TopicCore):
    def begin(self, cut: dict[Stream, Seq], now: int) -> None:
        super().begin({}, now)


@mutant("completeness", 20)
class ForgetsTheCut(CubecastNode):
    """A newcomer expects every message from the first on, and waits for what is long gone."""

    core_class = BeginsAtZero


class BeginsAnywhere(TopicCore):
    def begin(self, cut: dict[Stream, Seq], now: int) -> None:
        super().begin(
            {s: min(i.frames) - 1 for s, i in self.streams.inboxes.items() if i.frames}, now
        )


@mutant("completeness", 20)
class BeginsWithWhateverArrivedFirst(CubecastNode):
    """``first_rec`` of [J], line 92, in the place of the cut: what never comes blocks the rest."""

    core_class = BeginsAnywhere


class Deaf(Membership):
    def _note(self, peer: NodeId, joined: bool = False, lossy: bool = False) -> None:
        if not joined:
            super()._note(peer, joined, lossy)


@mutant("completeness", 20)
class DoesNotAddressTheNewcomer(CubecastNode):
    """Answers a JOIN, and goes on addressing those it knew before."""

    membership_class = Deaf


class Hasty(Membership):
    def subscribe(self, now: int, lossy: bool = False, followed: bool = False) -> None:
        super().subscribe(now, lossy, followed)
        if self.standing is Standing.JOINING:
            self._port.joined(self.core.topic)


@mutant("completeness", 20)
class ReturnsBeforeTheWave(CubecastNode):
    """``subscribe()`` returns when no other node has heard of it yet."""

    membership_class = Hasty


class Newsless(Membership):
    def _learn_members(self, members: int, lossy: int) -> None:
        self._meanwhile.clear()
        super()._learn_members(members, lossy)


@mutant("completeness", 100)
class TrustsOldAnswers(CubecastNode):
    """Takes the members its first wave found, ignoring what it heard while the wave ran."""

    membership_class = Newsless


class Amnesiac(CausalFront):
    __slots__ = ()

    def raise_to(self, cut: dict[Stream, Seq]) -> None:
        self.delivered.update(cut)


class Pastless(Membership):
    def _start(self, op: Op, now: int) -> None:
        self._running = op
        self._meanwhile.clear()
        done = self._waves.start(self.core.topic, op, Contribution({}, False), now)
        if done is not None:
            self.complete(done, now)

    def _add_own(self, cut: dict[Stream, Seq]) -> None:
        """What it knows does not count."""


@mutant("no-duplication", 500)
class RejoinsWithoutItsPast(CubecastNode):
    """Coming back, it takes the others' cut even where it was further itself."""

    core_class = of_fronts(Amnesiac)
    membership_class = Pastless


class ConsumesUnseen(Acks):
    def _passed(self, branch: Branch) -> Seq:
        return branch.have


@mutant("completeness", 200)
class AcknowledgesBeforeItsCut(CubecastNode):
    """A newcomer that waits for its cut lets others forget what it has not consumed."""

    core_class = of_parts(acks_class=ConsumesUnseen)


class EarlyOwn(Outgoing):
    def publish(self, members: int, body: tuple[object, ...], size: int, now: int) -> bool:
        if not super().publish(members, body, size, now):
            return False
        if self._reading.expecting:
            self._port.deliver(self._inboxes[self.own].frames[self.next_seq - len(body)])
        return True


@mutant("membership", 200)
class DeliversItsOwnBeforeTheWave(CubecastNode):
    """A node that is about to join delivers what it publishes meanwhile."""

    core_class = of_parts(outgoing_class=EarlyOwn)


# -- leaving --------------------------------------------------------------------------------------


class SlowToStop(Membership):
    def unsubscribe(self, now: int) -> None:
        self._want_in = False
        self._next_operation(now)

    def complete(self, result: Gathering, now: int) -> None:
        if result.wave.op is Op.LEAVE:
            self.core.delivery.stop(now)
        super().complete(result, now)


@mutant("membership", 50)
class DeliversAfterLeaving(CubecastNode):
    """Goes on delivering until everyone knows that it has left."""

    membership_class = SlowToStop


class Quitter(Incoming):
    def on_frame(self, frame: Frame, sender: NodeId, now: int) -> None:
        if not self._reading.absent:
            super().on_frame(frame, sender, now)


@mutant("restless", 50)
class StopsRelayingWhenItLeaves(CubecastNode):
    """A leaver passes nothing on any more."""

    core_class = of_parts(incoming_class=Quitter)


class NoFarewell(Outgoing):
    def bid_farewell(self, leaver: NodeId, wave: int) -> dict[Stream, Seq]:
        super().bid_farewell(leaver, wave)
        self.leavers.pop(leaver, None)
        return {}


@mutant("restless", 200)
class ReleasesLeaversAtOnce(CubecastNode):
    """A publisher lets a leaver go that still has to pass frames on."""

    core_class = of_parts(outgoing_class=NoFarewell)


class KeepsItsRoute(Outgoing):
    def bid_farewell(self, leaver: NodeId, wave: int) -> dict[Stream, Seq]:
        members = self._route_members
        owed = super().bid_farewell(leaver, wave)
        self._route_members = members
        return owed


@mutant("kept", 1000)
class KeepsARouteAcrossADeparture(CubecastNode):
    """One who left and came back is addressed on the route from before."""

    core_class = of_parts(outgoing_class=KeepsItsRoute)


# -- trees and numbers ----------------------------------------------------------------------------


class Pruned(StreamTable):
    def children(self, members: int, height: int) -> tuple[NodeId, ...]:
        return super().children(members, height)[:-1]


@mutant("completeness", 10)
class DropsABranch(CubecastNode):
    """Relays to all its children but the last, and waits for none of that one."""

    core_class = of_parts(streams_class=Pruned)


class Opinionated(StreamTable):
    membership: Membership

    def children(self, members: int, height: int) -> tuple[NodeId, ...]:
        if height < MAX_DIMENSION:
            members = self.membership.members
        return super().children(members, height)


class TellsItsCore(Membership):
    def __init__(self, core: Any, *args: Any) -> None:
        super().__init__(core, *args)
        core.streams.membership = self


@mutant("crash", 100)
class RelaysByItsOwnView(CubecastNode):
    """Hole 2: a relay passes a frame to the subscribers it knows; one not addressed objects."""

    core_class = of_parts(streams_class=Opinionated)
    membership_class = TellsItsCore


class Stutters(Outgoing):
    def publish(self, members: int, body: tuple[object, ...], size: int, now: int) -> bool:
        if self.next_seq == 3 and self._routes < 1000:
            self._routes += 1000
            self.next_seq = 2
        return super().publish(members, body, size, now)


@mutant("completeness", 20)
class ReusesANumber(CubecastNode):
    """Gives its fourth message the number of the third."""

    core_class = of_parts(outgoing_class=Stutters)


class Echoing(Incoming):
    def on_frame(self, frame: Frame, sender: NodeId, now: int) -> None:
        super().on_frame(frame, sender, now)
        inbox = self._inboxes.get(frame.stream)
        if inbox is not None and inbox.next > frame.last:
            self._port.deliver(frame)


@mutant("no-duplication", 10)
class DeliversTwice(CubecastNode):
    """Hands a frame that comes when it is its turn to the application twice."""

    core_class = of_parts(incoming_class=Echoing)


class Gullible(Branch):
    __slots__ = ()

    def receive(self, first: Seq, last: Seq) -> bool:
        super().receive(first, last)
        return True


class TakesCopies(Incoming):
    def _branch_for(self, inbox: Inbox, frame: Frame, sender: NodeId) -> Branch | None:
        branch = super()._branch_for(inbox, frame, sender)
        if branch is not None:
            branch.__class__ = Gullible
        return branch


@mutant("kept", 50)
class TakesCopiesForNew(CubecastNode):
    """Keeps and passes on a frame however often it comes."""

    core_class = of_parts(incoming_class=TakesCopies)


# -- repair, stability, credit --------------------------------------------------------------------


class Careless(Repair):
    def due(self, inboxes: Mapping[Stream, Inbox], now: int) -> Iterator[tuple[Inbox, Branch]]:
        self.repair_at = None
        return iter(())


@mutant("completeness", 20)
class NeverRepairs(CubecastNode):
    """Sends everything once and never asks whether it arrived."""

    core_class = of_parts(repair_class=Careless)


class Boastful(Acks):
    def _acknowledge(self, inbox: Inbox, branch: Branch, covered: Seq) -> None:
        super()._acknowledge(inbox, branch, branch.have)


@mutant("completeness", 50)
class AcknowledgesForItsChildren(CubecastNode):
    """Calls covered what it has received itself, so frames are forgotten before all have them."""

    core_class = of_parts(acks_class=Boastful)


class Hoard(Inbox):
    __slots__ = ()

    def forget(self, stable: Seq) -> int:
        self.stable = stable
        return sum(f.size for first, f in self.frames.items() if first <= stable)


class Hoarding(StreamTable):
    def open(self, stream: Stream) -> Inbox:
        inbox = super().open(stream)
        if stream.source != self._context.node:
            inbox.__class__ = Hoard
        return inbox


@mutant("bounded-state", 20)
class NeverForgets(CubecastNode):
    """Receivers keep every frame, stable or not."""

    core_class = of_parts(streams_class=Hoarding)


class Spendthrift(Outgoing):
    def publish(self, members: int, body: tuple[object, ...], size: int, now: int) -> bool:
        self.in_flight = 0
        return super().publish(members, body, size, now)


@mutant("bounded-state", 20)
class IgnoresItsCredit(CubecastNode):
    """Publishes however much is not yet stable."""

    core_class = of_parts(outgoing_class=Spendthrift)


# -- links ----------------------------------------------------------------------------------------


class NoDedup(Links):
    def on_parcel(self, parcel: Any, sender: NodeId, now: int) -> list[Any]:
        ready = super().on_parcel(parcel, sender, now)
        return ready or [parcel.message]


@mutant("crash", 20)
class HandsParcelsUpTwice(CubecastNode):
    """Control messages are handed up as often as they arrive."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._links.__class__ = NoDedup
