"""The production protocol of one node: topics, membership waves and reliable links together.

The bound on state (docs/guarantees.md, "Bounds"): per topic and stream at most `Config.window` of
frames and as many routes; per topic besides that a few numbers per stream that lives or is
remembered (`cubecast.protocol.cluster.horizon`); per peer the control messages it has not
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import ClassVar

import msgspec

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.agenda import Agenda
from cubecast.protocol.cluster.current_view import CurrentView
from cubecast.protocol.cluster.horizon import Horizon
from cubecast.protocol.cluster.housekeeping import Housekeeping
from cubecast.protocol.cluster.views import Ends, Finals, Install, Reports, View
from cubecast.protocol.config import Config
from cubecast.protocol.errors import ProtocolError, Untimely
from cubecast.protocol.explain import Explanation, explain
from cubecast.protocol.messages import (
    ROUTE_BITS,
    Ack,
    Answer,
    CaughtUp,
    Direct,
    Frame,
    Inquiry,
    Mute,
    Op,
    Parcel,
    ParcelAck,
    Probe,
    Release,
    Settled,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import (
    LIFE_BITS,
    MAX_GENERATION,
    Accusation,
    Denial,
    Load,
    Message,
    NodeId,
    Port,
    Seq,
    Stream,
    Time,
    Topic,
    Wanted,
)
from cubecast.protocol.subscriptions.discovery import Discovery
from cubecast.protocol.subscriptions.links import Carried, Links
from cubecast.protocol.subscriptions.membership import Membership, Standing
from cubecast.protocol.subscriptions.mute_members import MuteMembers
from cubecast.protocol.subscriptions.waves import NOTHING, Contribution, Gathering, Waves
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.retained_values import NOTHING_KEPT, ValueKeeper
from cubecast.protocol.topic.topic import TopicCore
from cubecast.topology import members_of


def _nobody_is_absent(now: Time) -> int | None:
    """Where nodes never die, no node is absent."""
    return None


def _ignore(peer: NodeId, now: Time) -> None:
    """The same: no node has to catch up."""


def _wait_for_ever(accusation: Accusation, now: Time) -> None:
    """The same: no node can be excluded."""


def _untold(accusation: Accusation) -> None:
    """The same: accusations are not reported."""


class CubecastNode:
    """A `Process`: causal publish/subscribe over lossy, reordering links."""

    label: ClassVar[str] = "cubecast"
    core_class: ClassVar[type[TopicCore]] = TopicCore
    membership_class: ClassVar[type[Membership]] = Membership
    discovery_class: ClassVar[type[Discovery]] = Discovery

    def __init__(
        self,
        node: NodeId,
        port: Port,
        *,
        cluster: int,
        config: Config | None = None,
        incarnation: int = 0,
        view: View | None = None,
        born: int = 0,
        marks: BranchCounts | None = None,
        remembered_from: Callable[[Time], int | None] = _nobody_is_absent,
        on_caught_up: Callable[[NodeId, Time], None] = _ignore,
        on_mute: Callable[[Accusation, Time], None] = _wait_for_ever,
        on_accused: Callable[[Accusation], None] = _untold,
        on_denied: Callable[[Denial], None] | None = None,
    ) -> None:
        if not cluster >> node & 1:
            raise ValueError(f"node {node} is not in its own cluster")
        self.node = node
        self.config = config if config is not None else Config()
        self.marks: BranchCounts = marks if marks is not None else BranchCounts()
        """Which branches of recovery were taken, for tests."""
        self._port = port
        self.keeper: ValueKeeper = getattr(port, "keeper", NOTHING_KEPT)
        """The store of retained values; a port may have one."""
        self._incarnation = incarnation
        self._links = Links(port, self.config)
        self._waves = Waves(node, self._links, cluster)
        mute_after = self.config.mute_after
        self._mute_members = MuteMembers(
            node, self._waves, self._links, port, mute_after, on_mute, on_accused
        )
        self._known = cluster  # the slots that were ever in use
        self._cores: dict[Topic, TopicCore] = {}
        self._memberships: dict[Topic, Membership] = {}
        self._discovery = self.discovery_class(self, self._waves, port)
        self._view = CurrentView(view, born)
        self._view.expect_nodes(cluster.bit_count())
        self._excluded_in = 0  # the last epoch that began without a former member
        self._remembered_from = remembered_from
        self._on_caught_up = on_caught_up
        self._on_denied = on_denied
        self.shared: set[int] = set()
        """Epochs whose view all its members have installed: they answered a wave of ours there.
        Kept for the present view, and for the last views that absent nodes were in."""
        self._catching_up: list[Topic] | None = None  # we came back, and have to ask about these
        self._caught_up = False  # we came back, and have asked
        self._agenda = Agenda(port)
        self._housekeeping = Housekeeping(self.config)
        self._generation = 0
        if view is not None:
            self._waves.epoch = view.epoch
            self._links.peers = cluster
            self._mute_members.new_view(view.epoch, cluster)

    # -- commands --------------------------------------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        if members >> self.node & 1:
            self._membership(topic).establish(members)

    def subscribe(
        self, topic: Topic, now: Time, lossy: bool = False, followed: bool = False
    ) -> None:
        """Subscribe; `lossy`: rather miss messages (`Port.gap`) than hold publishers up.

        `followed`: only because of a pattern; the topic may be let go while nothing happens in it.
        """
        self.adopt_if_new(topic)
        membership = self._membership(topic)
        if not membership.wanted and self._discovery.is_owed(topic):
            membership.missed_all()
        membership.subscribe(now, lossy, followed)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self._membership(topic).unsubscribe(now)

    def register(self, topic: Topic, now: Time) -> None:
        self.adopt_if_new(topic)
        self._membership(topic).register(now)

    def follow(self, key: Hashable, wanted: Wanted, now: Time) -> None:
        """Subscribe to every topic that is `wanted`, whenever it comes into being."""
        self._discovery.follow(key, wanted, now)

    def unfollow(self, key: Hashable) -> None:
        """Subscribe to nothing more for `key`; leave the topics with `unsubscribe`."""
        self._discovery.unfollow(key)

    def list_topics(self, ticket: Hashable, now: Time) -> None:
        """Ask all nodes which topics they know; `Port.listed` has the answer."""
        self._discovery.list_topics(ticket, now)

    def publish(self, topic: Topic, body: Collection[object], size: int, now: Time) -> bool:
        """Publish; a node that does not subscribe is registered as a publisher first."""
        membership = self._memberships.get(topic)
        if membership is None or not membership.informed:
            self.register(topic, now)
            membership = self._membership(topic)
            if not membership.informed:
                return False
        return self._cores[topic].outgoing.publish(membership.addressed, body, size, now)

    def is_lossy(self, topic: Topic) -> bool:
        """Whether this node may still miss messages of a topic."""
        membership = self._memberships.get(topic)
        return membership is not None and membership.is_lossy

    def stream_of(self, topic: Topic) -> Stream:
        """The stream in which this node publishes to `topic` next."""
        core = self._cores.get(topic)
        return self._new_stream() if core is None else core.outgoing.own

    def _new_stream(self) -> Stream:
        """The stream of a topic that this node takes up now, and may have forgotten before."""
        return Stream(self.node, self._generation << LIFE_BITS | self._incarnation)

    def next_seq(self, topic: Topic) -> Seq:
        """The number of the next message this node publishes to `topic`."""
        core = self._cores.get(topic)
        return core.outgoing.next_seq if core is not None else 0

    def stable_seq(self, topic: Topic) -> Seq:
        """The last own message of `topic` that all its subscribers have consumed; -1 if none."""
        core = self._cores.get(topic)
        return core.outgoing.stable_seq() if core is not None else -1

    def holds(self, frame: Frame) -> bool:
        """Whether this very frame is here and waits for its turn; a copy of it does not count."""
        core = self._cores.get(frame.topic)
        return core is not None and core.delivery.holds(frame)

    def dependencies(self, topic: Topic) -> int:
        """How many entries the barrier of the next own frame of `topic` has."""
        core = self._cores.get(topic)
        return len(core.front.frontier) if core is not None else 0

    def credit(self, topic: Topic, wanted: int) -> int:
        """What may be published to `topic` now; below `wanted`, `Port.writable` tells of more."""
        core = self._cores.get(topic)
        return core.outgoing.credit(wanted) if core is not None else self.config.window

    def topics(self) -> list[Topic]:
        """The topics this node takes part in, or did."""
        return list(self._memberships)

    def informed(self, topic: Topic) -> bool:
        """Whether this node knows the subscribers of `topic`."""
        membership = self._memberships.get(topic)
        return membership is not None and membership.informed

    def members(self, topic: Topic) -> list[NodeId]:
        """The subscribers of `topic` that this node knows of, itself included."""
        membership = self._memberships.get(topic)
        return [] if membership is None else list(members_of(membership.addressed))

    def explain(self, topic: Topic, now: Time) -> Explanation:
        """What this node knows of a topic: its standing, subscribers, and what waits for what."""
        membership = self._memberships.get(topic)
        if membership is None:
            return {"standing": "out", "informed": False}
        return explain(membership, self._waves, self._mute_members, now)

    def behind(self, topic: Topic) -> dict[NodeId, int]:
        """What holds our credit: own messages that each child, or this node, has yet to take."""
        core = self._cores.get(topic)
        return {} if core is None else core.outgoing.behind()

    def set_cluster(self, cluster: int) -> None:
        """Set the nodes that new waves visit, after nodes came or went.

        A node that comes must be known to all before it starts anything.  A node that goes must
        stay until no wave that began before visits it (`own_waves`) and no control message is on
        its way to it or through it (`unacked_parcels`).
        """
        for newcomer in members_of(cluster & ~self._waves.cluster):
            self._links.forget(newcomer)  # links of its slot's last owner
        self._waves.cluster = cluster
        self._known |= cluster
        self._view.expect_nodes(cluster.bit_count())

    def forget_peer(self, peer: NodeId, now: Time) -> None:
        """Forget a node that left: nothing more will come from it or go to it."""
        self._links.forget(peer)
        for done in self._waves.forget(peer, now):
            self._complete(done, now)
        if self._discovery.joining:
            self._discovery.settle()

    def own_waves(self) -> int:
        """How many operations of this node some node has not answered."""
        return self._waves.own_pending()

    def tell_stable(self, now: Time) -> None:
        """Tell at once what is stable of our streams: there will be no next frame to tell it."""
        for core in self._cores.values():
            core.outgoing.tell_stable(now)

    def unacked_parcels(self, peer: NodeId | None = None) -> int:
        """Control messages that `peer` (None: any peer) has not acknowledged."""
        return self._links.unacked(peer)

    def pending_waves(self) -> int:
        """Waves of any node that wait for an answer to pass through here."""
        return self._waves.pending()

    def consumed(self, topic: Topic, stream: Stream, seq: Seq, now: Time) -> None:
        """The application has taken in what `Port.deliver` left open."""
        self._cores[topic].delivery.consumed(stream, seq, now)

    def unstable(self) -> int:
        """Total size of own messages that some subscriber has not consumed."""
        return sum(core.outgoing.in_flight for core in self._cores.values())

    # -- messages --------------------------------------------------------------------------------

    def refuse(self, frame: Frame, reason: str) -> bool:
        """Count a frame that is not to be taken; False if it has to be, for others depend on it.

        Then a message waits here whose publisher has delivered the frame: without the frame the
        topic would stop.
        """
        core = self._cores.get(frame.topic)
        if core is None:
            return True
        for inbox in core.front.waiting():
            head = inbox.frames.get(inbox.next)
            causes = () if head is None else head.barrier
            if any(stream == frame.stream and seq >= frame.first for stream, seq in causes):
                return False
        core.guard.drop(reason)
        return True

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        kind = type(message)
        if kind is Frame:
            core = self._cores.get(message.topic)  # type: ignore[attr-defined]
            if core is not None:
                try:
                    core.incoming.on_frame(message, sender, now)  # type: ignore[arg-type]
                except Untimely:
                    core.guard.drop("a frame of a node that is gone")
        elif kind is Ack:
            core = self._cores.get(message.topic)  # type: ignore[attr-defined]
            if core is not None:
                core.acks.on_ack(message, sender, now)  # type: ignore[arg-type]
        else:
            self._on_control(message, sender, now)

    def _on_control(self, message: Message, sender: NodeId, now: Time) -> None:
        match message:
            case Parcel():
                if self._is_early(message):
                    self.marks["message of a view to come"] += 1
                    return
                for carried in self._links.on_parcel(message, sender, now):
                    self._on_carried(carried, sender, now)
            case ParcelAck():
                self._links.on_parcel_ack(message, sender, now)
            case Probe():
                core = self._cores.get(message.topic)
                if core is not None:
                    core.acks.on_probe(message, sender, now)
            case Inquiry():
                self._on_inquiry(message, sender, now)
            case Direct():
                core = self._cores.get(message.topic)
                if core is None and message.epoch >= 0:
                    # We are out and have forgotten the topic; an heir knows only what we tell it.
                    done = message.topic, message.stream, message.route, message.last, message.last
                    self._port.control(sender, Ack(*done, 0, False))
                elif core is not None and message.epoch <= self._view.epoch:
                    try:
                        core.incoming.on_direct(message, sender, now)
                    except Untimely:
                        core.guard.drop("the trees of another node given up")
            case _:
                raise TypeError(f"node {self.node} cannot handle {message!r} from {sender}")

    def _on_inquiry(self, inquiry: Inquiry, sender: NodeId, now: Time) -> None:
        """Answer a node that still keeps a frame of ours and asks what is stable.

        Or the sender is the heir of a dead stream, and asks for what it lacks of it.
        """
        core = self._cores.get(inquiry.topic)
        if core is not None and inquiry.stream == core.outgoing.own:
            core.outgoing.on_inquiry(sender, now)
        elif core is not None and not self.is_live(inquiry.stream):
            core.inheritance.bequeath(inquiry.stream, sender, now)
        elif inquiry.stream.life == Stream(self.node, self._incarnation):
            # We have forgotten the topic, so all have everything that we published there.
            self._links.send(
                sender, Settled(inquiry.topic, inquiry.stream, -1, self._view.epoch), now
            )

    def _is_early(self, parcel: Parcel) -> bool:
        """Whether a message belongs to a view we have not heard of; it is sent again when we have.

        What we send to a node before we know it is forgotten in `set_cluster`.
        """
        message = parcel.message
        if type(message) is Settled or type(message) is Mute:
            return message.epoch > self._view.epoch
        if type(message) is Stable:
            return message.route >> ROUTE_BITS > self._view.epoch
        if type(message) is not Wave:
            return False
        return message.epoch > self._view.epoch or bool(message.cluster & ~self._known)

    def _on_carried(self, message: Carried, sender: NodeId, now: Time) -> None:
        match message:
            case Stable():
                core = self._cores.get(message.topic)
                if core is not None:  # else no honest node tells us of this topic
                    try:
                        core.incoming.on_stable(message, sender, now)
                    except Untimely:
                        core.guard.drop("news of a stream that has ended")
                    self._memberships[message.topic].finish_leaving(now)  # no heir any more
            case Settled():
                core = self._cores.get(message.topic)
                if core is None:
                    pass
                elif self.is_live(message.stream):
                    if message.stream.source != sender:
                        raise ProtocolError("settled names a live stream of another node")
                    core.incoming.all_stable(message.stream, core.outgoing.own)
                elif core.inheritance.settle(message.stream, message.seq, now):
                    self._jump(self._memberships[message.topic], now)
                else:
                    self._memberships[message.topic].finish_leaving(now)
            case Answer():
                result = self._waves.on_answer(self._believed(message), sender, now)
                if result is not None:
                    self._complete(result, now)
            case Wave():
                if message.epoch < self._excluded_in and message.op is not Op.PRESENT:
                    # Its origin begins anew when it hears which nodes are gone.
                    self.marks["wave of a view that is over"] += 1
                elif self._waves.admits(message, sender):
                    self._on_wave(message, sender, now)
            case CaughtUp():
                self._on_caught_up(sender, now)
            case Mute():
                self._mute_members.hear(message, sender, now)
            case Release() | Suspended():
                if message.stream.source != sender:
                    raise ProtocolError(f"a {message.kind} of a stream of another node")
                self._on_verdict(message, now)
        if self._discovery.joining:
            self._discovery.settle()
        if self._catching_up is not None:
            self._tell_if_caught_up(now)

    def _on_verdict(self, message: Release | Suspended, now: Time) -> None:
        """Hear that a publisher needs us no more, or goes on without us."""
        membership = self._memberships.get(message.topic)
        if membership is None:
            return  # no honest publisher sends us this
        if isinstance(message, Release):
            membership.on_release(message, now)
        else:
            membership.on_suspended(message, now)

    def _on_wave(self, wave: Wave, sender: NodeId, now: Time) -> None:
        if wave.op is Op.TOPICS:
            self._waves.on_wave(wave, sender, NOTHING, now, self._discovery.known())
            return
        if wave.op is Op.PRESENT:
            self._waves.on_wave(wave, sender, NOTHING, now)
            return
        self._discovery.saw(wave.topic)
        if wave.op is not Op.LEAVE:
            self.adopt_if_new(wave.topic)
        self._waves.on_wave(wave, sender, self._contribution(wave, sender, now), now)

    def _complete(self, result: Gathering, now: Time) -> None:
        """Complete an operation of ours that every node has answered."""
        if result.wave.op is Op.TOPICS:
            self.shared.add(result.wave.epoch)
            self._discovery.complete(result, now)
            return
        if result.wave.op is Op.PRESENT:
            self._mute_members.answered(result, now)
            return
        membership = self._membership(result.wave.topic)
        if not membership.is_question(result):
            self.shared.add(result.wave.epoch)
        membership.complete(result, now)

    def adopt_if_new(self, topic: Topic) -> None:
        """Subscribe to a followed topic from its beginning on, if it is new (`Discovery`)."""
        if self._discovery.is_new(topic):
            self._port.discovered(topic)
            self._membership(topic).adopt()

    def _contribution(self, wave: Wave, sender: NodeId, now: Time) -> Contribution:
        """Apply an operation of another node; our answer, with the retained value for a JOIN."""
        own = self._applied(wave, sender, now)
        kept = self.keeper.kept(wave.topic) if wave.op is Op.JOIN else None
        return own if kept is None else own._replace(kept=kept)

    def _believed(self, answer: Answer) -> Answer:
        """The answer, without its retained value if that is invalid, or from the far future.

        A value that no newcomer would keep must not replace one that it would keep.
        """
        if answer.kept is None or self.keeper.believes(answer.kept):
            return answer
        return msgspec.structs.replace(answer, kept=None)

    def _applied(self, wave: Wave, sender: NodeId, now: Time) -> Contribution:
        membership = self._memberships.get(wave.topic)
        if membership is not None:
            return membership.apply(wave, sender, now)
        if wave.op is Op.LEAVE or not self._generation:
            return NOTHING
        return NOTHING._replace(own=(self._new_stream(), -1))  # others may remember earlier streams

    # -- views -----------------------------------------------------------------------------------

    @property
    def view(self) -> View | None:
        """The view this node is in; None where nodes never die."""
        return self._view.view

    def knows(self, topic: Topic) -> bool:
        """Whether this node keeps state of a topic."""
        return topic in self._cores

    def takes(self, topic: Topic) -> bool:
        """Whether messages of other nodes in a topic are delivered here."""
        return topic in self._cores and self._cores[topic].reading.taking

    def is_live(self, stream: Stream) -> bool:
        """Whether a stream's publisher is in the cluster, in the life that published it."""
        return self._view.is_live(stream)

    def freeze(self, survivors: int) -> None:
        """Stop delivering streams of members that will not be in the next view."""
        unsettled = [one for core in self._cores.values() for one in core.holdings.unsettled()]
        self._view.freeze(survivors, unsettled)
        if self._view.frozen:
            for core in self._cores.values():
                core.delivery.freeze()

    def report(self) -> Reports:
        """What we have of streams that are frozen, or dead and not settled."""
        view = self._view

        def alive(stream: Stream) -> bool:
            return stream.life not in view.frozen and view.is_live(stream)

        if not view.frozen and not view.ended:
            return {}
        reports = {topic: core.holdings.report(alive) for topic, core in self._cores.items()}
        return {topic: held for topic, held in reports.items() if held}

    def install(self, install: Install, now: Time) -> None:
        """Go over to the next view: without the dead, with the newcomers."""
        view = install.view
        gone, came, thawed = self._view.install(view)
        dead = sum(1 << slot for slot in gone)
        self._waves.epoch = view.epoch
        self.shared &= {view.epoch, *(one.epoch - 1 for one in install.absent)}
        for slot in gone:
            self._links.forget(slot)
        self._links.peers = view.mask
        self.set_cluster(view.mask)
        self._mute_members.new_view(view.epoch, view.mask)
        if self._caught_up:
            self._tell_caught_up(sum(1 << slot for slot in came), now)
        for core in self._cores.values():
            core.enter_view(dead)
        if dead:
            self._excluded_in = view.epoch
            unanswered = self._waves.abort(view.mask & ~dead)
            self._mute_members.ask_again(unanswered & ~dead, now)
        for membership in list(self._memberships.values()):
            if dead:
                membership.exclude(dead, self.is_live, now)
            self._end_streams(membership, install.finals, now)
            if thawed:
                membership.core.delivery.thaw(thawed, now)
        self._hear_ends(install, now)
        for core in list(self._cores.values()):
            if dead:
                core.incoming.expect_news(core.outgoing.own, now)
            core.recovery.look_again(now)
        if dead:
            self._start_again(now)
        else:
            self.rejoin(now)  # memberships that were cut off
        self.stir(now)

    def _hear_ends(self, install: Install, now: Time) -> None:
        """Hear how far streams went that were published in another view.

        If we follow a topic that came into being there, we are owed it, too.
        """
        for topic, ends in install.ends.items():
            dead = [(stream, last) for stream, last in ends if not self.is_live(stream)]
            if dead:
                self._discovery.saw(topic)
                self.adopt_if_new(topic)
            core = self._cores.get(topic)
            if core is not None:
                for stream, last in dead:
                    core.recovery.hear_end(stream, last, now, install.apart)

    def _end_streams(self, membership: Membership, finals: Finals, now: Time) -> None:
        recovery, ends = membership.core.recovery, finals.get(membership.core.topic, ())
        for final in ends:
            if recovery.end_stream(final, now):
                self.marks["jump, as no node can feed us"] += 1
                membership.cut_off()
        recovery.drop_unreported({final.stream for final in ends}, now)

    def _start_again(self, now: Time) -> None:
        """Begin our waves anew: those of the view before lead through nodes that are gone."""
        for membership in list(self._memberships.values()):
            membership.start_again(now)
        self._discovery.start_again(now)

    def reached(self, apart: int) -> Ends:
        """How far this node has come in every topic, for the nodes it comes back to.

        It has been apart from them since view `apart`; they know what was over before.
        """
        reached = {
            topic: tuple(core.reached_since(apart, apart).items())
            for topic, core in self._cores.items()
        }
        return {topic: known for topic, known in reached.items() if known}

    def give_up(self, topic: Topic) -> None:
        """Do not carry a subscription to `topic` over to the next life; this one is over."""
        if topic in self._memberships:
            self._memberships[topic].give_up()

    def carry_over(self, former: CubecastNode, apart: int) -> None:
        """Take over what this node wanted and had read in another view, since view `apart`."""
        for topic, membership in former.memberships.items():
            self._membership(topic).return_from(membership, apart)

    def return_from(self, former: CubecastNode, now: Time) -> None:
        """Join again what was carried over and is still wanted."""
        self.rejoin(now)
        for core in self._cores.values():
            core.settlement.tidy_all()
        self._discovery.return_from(former._discovery, now)
        self._catching_up = self.topics()
        self._tell_if_caught_up(now)

    def _tell_if_caught_up(self, now: Time) -> None:
        """Tell all members, once they have told us what we missed, that we have caught up."""
        topics, memberships = self._catching_up, self._memberships
        assert topics is not None
        while topics:
            membership = memberships.get(topics[-1])
            if membership is not None and membership.is_catching_up:
                return
            topics.pop()
        if not self._discovery.is_catching_up:
            self._catching_up = None
            self.marks["caught up"] += 1
            self._caught_up = True
            self._on_caught_up(self.node, now)
            self._tell_caught_up(self._waves.cluster & ~(1 << self.node), now)

    def _tell_caught_up(self, peers: int, now: Time) -> None:
        """Tell peers that we caught up; newcomers, too, as their leader may not have heard it."""
        for peer in members_of(peers):
            self._links.send(peer, CaughtUp(), now)

    def rejoin(self, now: Time) -> None:
        """Begin the operation that each membership wants, if no wave of it runs yet."""
        for membership in list(self._memberships.values()):
            membership.rejoin(now)

    def on_wake(self, now: Time) -> None:
        self._links.on_wake(now)
        for at, topic in self._agenda.due(now):
            core = self._cores.get(topic)
            if core is not None and self._agenda.begin(topic, at):
                self._wake_topic(core, now)
        if self._discovery.joining:
            self._discovery.settle()  # a node that is alone may have joined just now
        if self._catching_up is not None:
            self._tell_if_caught_up(now)
        if self._agenda.take_untidy():
            self.stir(now)
        if self._housekeeping.is_due(len(self._memberships), now):
            self._clean_up(now)
        self._agenda.ask()
        self._mute_members.on_wake(now)  # last: it may lead to another view

    def _wake_topic(self, core: TopicCore, now: Time) -> None:
        due = core.on_wake(now)
        if due is not None:
            self._agenda.plan(core.topic, due)
        membership = self._memberships[core.topic]
        if membership.standing is Standing.LEAVING:
            membership.finish_leaving(now)  # it may have been an heir until now
        elif core.reading.stranded:
            self._jump(membership, now)

    # -- what is not needed any more --------------------------------------------------------------

    def stir(self, now: Time) -> None:
        """Look in a while for state to forget, as something ended."""
        at = self._housekeeping.stir(now)
        if at is not None:
            self._port.wake(at)

    def _clean_up(self, now: Time) -> None:
        """Forget topics that are idle, and history that no node will ask for.

        If a topic is taken up again, it is in a stream of another generation, so that no node takes
        new messages for old ones.
        """
        house = self._housekeeping
        self._forget(house.choose(self._memberships, lambda: self._present_horizon(now), now))
        if house.unused:
            self._unlearn(house.unused)
            self._discovery.release(house.unused, now)
        self._view.forget_lives(house.horizon)
        for core in self._cores.values():
            core.remember(house.horizon)
        if house.waits or self._view.ended or any(core.history for core in self._cores.values()):
            self.stir(now)

    def _forget(self, topics: Collection[Topic]) -> None:
        """Keep nothing of these topics."""
        for topic in self._with_a_next_stream(topics):
            del self._cores[topic], self._memberships[topic]
            self._agenda.forget(topic)
            self.marks["topic forgotten"] += 1
            self._port.forgotten(topic)

    def _unlearn(self, unused: dict[Topic, int]) -> None:
        """Treat watched topics from now on as if they were new.

        A node that asks is told that we would let them go, and may forget them, with what we
        published there, before we do.  So the next publication begins another stream, after a wave.
        """
        kept = self._with_a_next_stream(unused)
        for topic in [topic for topic in unused if topic not in kept]:
            del unused[topic]
        for topic in unused:
            membership = self._memberships[topic]
            if membership.core.outgoing.next_seq:
                membership.begin_anew(self._new_stream().incarnation)
            membership.unlearn()

    def _with_a_next_stream(self, topics: Collection[Topic]) -> list[Topic]:
        """The topics of these in which we can begin another stream from now on.

        That is all of them, unless the generations of this life are used up.
        """
        published = [topic for topic in topics if self._cores[topic].outgoing.next_seq]
        if published and self._generation >= MAX_GENERATION:
            return [topic for topic in topics if topic not in published]
        self._generation += bool(published)
        return list(topics)

    def needs(self, topic: Topic) -> bool:
        """Whether this node needs a topic: False if it only watches it and would let it go."""
        uses = self._housekeeping.unused.get(topic)
        membership = self._memberships[topic]
        return uses is None or not membership.is_watched or membership.uses != uses

    def let_go(self, topics: Collection[Topic]) -> None:
        """Forget these topics, which no other node uses, if we still do not need them."""
        known = sorted(topic for topic in topics if topic in self._memberships)
        self._forget([topic for topic in known if not self.needs(topic)])

    def _present_horizon(self, now: Time) -> Horizon:
        return Horizon(self._view.epoch, self._remembered_from(now))

    def _jump(self, membership: Membership, now: Time) -> None:
        """Join again: a publisher went on without us and died before it could say so.

        Or a relay lied, and the publisher has forgotten what we lack.
        """
        self.marks["jump, as a publisher died that had passed us over"] += 1
        membership.cut_off()
        membership.rejoin(now)

    # -- state -----------------------------------------------------------------------------------

    @property
    def memberships(self) -> dict[Topic, Membership]:
        """This node's membership in every topic of which it keeps state."""
        return self._memberships

    def membership_of(self, topic: Topic) -> Membership:
        """This node's membership in a topic; made if there is none."""
        return self._membership(topic)

    def load(self) -> Load:
        """The sum over topics of what is held, retained, and their bounds."""
        loads = [core.load() for core in self._cores.values()]
        return Load(
            sum(load.held for load in loads),
            sum(load.retained for load in loads),
            sum(load.limit for load in loads),
        )

    def _membership(self, topic: Topic) -> Membership:
        membership = self._memberships.get(topic)
        if membership is None:
            context = Context(
                topic,
                self.node,
                self._port,
                self._links,
                self.config,
                self._agenda,
                self._view,
                self.marks,
                self._on_denied,
            )
            core = self.core_class(context, self._new_stream().incarnation)
            self._cores[topic] = core
            self._agenda.note_end()
            membership = self.membership_class(core, self._waves, self._port, self.keeper)
            self._memberships[topic] = membership
        return membership
