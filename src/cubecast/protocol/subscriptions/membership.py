"""The subscribers of a topic as one node knows them, and the node's own standing in it.

Theory of operation.  Joining, leaving and registering as a publisher are *waves* through all nodes
(`cubecast.protocol.subscriptions.waves`).  A node that applies a JOIN addresses the newcomer from
then on and answers with everything it has delivered; the maximum of all answers is the newcomer's
*cut*.  The cut is causally closed, everything above it is addressed to the newcomer, and everything
at or below it the newcomer discards (hole 8 and its cure, docs/deviations.md).

Invariants:

1. One operation of this node runs at a time, so each node sees our operations in order.
2. A node that never joined nor registered publishes nothing before its first wave is complete.
   From then on it sees every operation and so stays `informed`, subscribed or not.  One that
   only adopted a topic (`cubecast.protocol.subscriptions.discovery`) subscribes uninformed.
3. An operation of a peer that arrives while our first wave runs overrides the membership that
   the wave gathers: the answers may be older than it.
4. A leaver passes frames on until every publisher that addressed it says `Release`, and keeps
   what it has of dead streams until they are settled.  What a relay says of a LEAVE, the leaver
   confirms (`cubecast.protocol.subscriptions.leaves`).
5. A suspended subscriber (`Suspended`) delivers nothing before it has joined again; the jump from
   what it had delivered to the new cut is reported as a gap, exactly.
6. Once `is_lossy` is false, everything that is published is delivered.  If a publisher suspended us
   before it knew, we have caught up with it or jumped; its notices of that suspension are old.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from cubecast.protocol.errors import MAX_STREAMS, ProtocolError
from cubecast.protocol.messages import Op, Release, Suspended, Wave
from cubecast.protocol.port import NodeId, Port, Seq, Stream, Time
from cubecast.protocol.subscriptions.leaves import Leaves
from cubecast.protocol.subscriptions.questions import Question, Questions
from cubecast.protocol.subscriptions.waves import Contribution, Gathering, Waves
from cubecast.protocol.topic.retained_values import NOTHING_KEPT, ValueKeeper
from cubecast.protocol.topic.topic import TopicCore
from cubecast.topology import members_of

STARTED_AGAIN = {
    Op.JOIN: "join started again",
    Op.LEAVE: "leave started again",
    Op.REGISTER: "register started again",
}
NO_MEMBER = "acknowledgements of a node that is no subscriber"


class Standing(Enum):
    """Where this node stands with a topic."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"


class Membership:
    """Our standing in one topic and the subscribers we address."""

    def __init__(
        self, core: TopicCore, waves: Waves, port: Port, keeper: ValueKeeper = NOTHING_KEPT
    ) -> None:
        self.core = core
        self._waves = waves
        self._port = port
        self.standing = Standing.OUT
        self.informed = False
        self.members = 0
        self._want_in = False
        self._want_informed = False
        self._running: Op | None = None
        self._meanwhile: dict[NodeId, tuple[bool, bool]] = {}  # joined, lossy
        self._lossy = False
        self._lossy_told = False
        self._lossy_known = False  # whether the last complete JOIN said that we are lossy
        self._owed: dict[Stream, Seq] | None = None  # sent before all knew that we are not lossy
        self._cut_off = False
        self._reached: dict[Stream, Seq] | None = None  # how far we were when we were cut off
        self._leave = 0  # the number of our last LEAVE
        self._unreleased: set[Stream] | None = None
        self._released: set[Stream] = set()
        self._known_before: list[Stream] = []  # what our publications depended on as we asked
        self._followed = False  # in because of a pattern alone
        self._apart: int | None = None  # the first view that we missed, until we have asked
        self._operations = 0  # how many operations of this node began
        self._claims: Gathering | None = None  # what a JOIN gathered, while publishers are asked
        self._view = core.context.view
        self._marks = core.context.marks
        self._questions = Questions(core.topic, core.context.node, waves)
        self._leaves = Leaves(core, self._questions, self._note)
        self.keeper: ValueKeeper = keeper
        core.context.consult(self)

    @property
    def addressed(self) -> int:
        """The subscribers our frames name, ourselves included if we subscribe.

        A tree never leads back to its root.  We name ourselves so that all publishers name the same
        set, for which every node remembers its children.
        """
        members = self.members & ~self.core.outgoing.laggards.suspended
        return members | 1 << self.core.context.node if self.core.reading.taking else members

    @property
    def is_lossy(self) -> bool:
        """Whether we may miss messages: not every node was told otherwise yet, or we were cut off
        and the jump is still to come."""
        if self._cut_off or self._reached is not None or self._still_owed():
            return True
        return self._lossy_told or (self._lossy_known and self._running is Op.JOIN)

    def _still_owed(self) -> bool:
        """Whether a message is still to come that was sent before all knew that we are not lossy.

        It is on its way; or its publisher had suspended us, and `Suspended` is on its way.
        """
        if self._owed:
            delivered = self.core.front.delivered
            self._owed = {s: seq for s, seq in self._owed.items() if delivered.get(s, -1) < seq}
        return bool(self._owed)

    @property
    def is_idle(self) -> bool:
        """Whether this node is out, wants nothing, and all that it published is stable."""
        return (
            self.standing is Standing.OUT
            and not self._want_in
            and self._running is None
            and not self._questions
            and self.informed >= self._want_informed
            and self.core.is_idle
        )

    @property
    def is_watched(self) -> bool:
        """Whether we are in because of a pattern alone, and nothing happens here."""
        return (
            self._followed
            and self.receiving
            and self._running is None
            and not self._questions
            and self._reached is None
            and self.core.is_idle
        )

    def unlearn(self) -> None:
        """Treat the next publish as the first to this topic.

        We ask again for the subscribers.  Our next message does not depend on what we read here:
        everyone has that, as nothing is under way, and a node that forgets the topic cannot wait
        for it.
        """
        self.informed = self._want_informed = False
        self.core.front.depend_on_nothing()

    def begin_anew(self, incarnation: int) -> None:
        """Publish in another stream from now on; this does not change `uses`."""
        self._operations += self.core.outgoing.next_seq
        self.core.outgoing.begin_anew(incarnation)

    @property
    def may_be_let_go(self) -> bool:
        """Whether the topic may become idle, or watched, without an operation of this node."""
        return self._followed or self.standing in (Standing.OUT, Standing.LEAVING)

    @property
    def uses(self) -> int:
        """A number that changes when this node begins an operation, publishes or reads here."""
        core = self.core
        return self._operations + core.outgoing.next_seq + sum(core.front.delivered.values())

    @property
    def operation(self) -> str:
        """The name of our running operation; empty: none."""
        return "" if self._running is None else self._running.value

    # -- commands --------------------------------------------------------------------------------

    def establish(self, members: int) -> None:
        """Begin as one of the subscribers `members`, agreed beforehand."""
        self.standing = Standing.IN
        self._want_in = True
        self.members = members & ~(1 << self.core.context.node)
        self.informed = True
        self.core.begin({}, 0)

    @property
    def wanted(self) -> bool:
        """Whether the application of this node wants it subscribed."""
        return self._want_in

    @property
    def receiving(self) -> bool:
        """Whether we are in, and no leave is due: one may wait for a REGISTER to be complete.

        A stopped subscription leaves before it joins again, or its cut would have a hole.
        """
        return self.standing is Standing.IN and self._want_in and self.core.reading.taking

    def adopt(self) -> None:
        """Subscribe to a topic to which nothing was ever published (`discovery`).

        The cut is empty.  The other subscribers are unknown: we learn them by a REGISTER before we
        publish.
        """
        assert self.standing is Standing.OUT
        assert self._running is None
        self.standing = Standing.IN
        self._want_in = self._followed = True
        self._port.joined(self.core.topic)
        self.core.begin({}, 0)

    def subscribe(self, now: Time, lossy: bool = False, followed: bool = False) -> None:
        """Join; if we are in already, tell everyone whether we are `lossy`, if that is news.

        `followed`: because of a pattern alone.
        """
        self._want_in = True
        self._lossy = lossy
        self._followed = followed
        self._next_operation(now)

    def unsubscribe(self, now: Time) -> None:
        self._want_in = False
        self._cut_off, self._reached, self._owed = False, None, None  # nothing is promised any more
        if self.standing is Standing.IN:
            self.core.delivery.stop(now)
        self._next_operation(now)

    def register(self, now: Time) -> None:
        """Learn the subscribers to address without subscribing; a JOIN teaches them, too."""
        self._want_informed = True
        self._next_operation(now)

    def _next_operation(self, now: Time) -> None:
        """Start the next operation that is wanted, one at a time."""
        if self._running is not None:
            return
        if self._want_in and self.standing is Standing.OUT:
            self.standing = Standing.JOINING
            self.core.reading.expect()
            self._start(Op.JOIN, now)
        elif self.standing is Standing.IN and not self.receiving:
            self.standing = Standing.LEAVING
            self._start(Op.LEAVE, now)
        elif self.standing is Standing.IN and self._cut_off:
            self.standing = Standing.JOINING
            self._cut_off = False
            self._reached = dict(self.core.front.delivered)
            self.core.delivery.pause()
            self._start(Op.JOIN, now)
        elif self.standing is Standing.IN and self._lossy != self._lossy_told:
            self._start(Op.JOIN, now)
        elif self._want_informed and not self.informed:
            self._start(Op.REGISTER, now)

    def _start(self, op: Op, now: Time) -> None:
        self._running = op
        self._claims = None
        self._operations += 1
        self._meanwhile.clear()
        if not self.informed:
            self._known_before = list(self.core.front.frontier)
        own = Contribution({}, False)
        if op is Op.JOIN:
            self._lossy_told = self._lossy
            own = Contribution({}, False, self._lossy)  # `_add_own` adds what we have by then
        elif op is Op.LEAVE:
            self._released.clear()
            self._leave = self._waves.next_number
        since = max(0, self.core.history.forgotten + 1)
        apart = self._apart if self._apart is not None else self._view.epoch + 1
        done = self._waves.start(self.core.topic, op, own, now, since=since, apart=apart)
        if done is not None:
            self.complete(done, now)

    # -- others' operations ----------------------------------------------------------------------

    def apply(self, wave: Wave, sender: NodeId, now: Time) -> Contribution:
        """Apply a peer's operation and answer it, in one step (hole 8's cure)."""
        member = self.standing in (Standing.JOINING, Standing.IN)
        if wave.op is Op.LEAVE:
            missed = self._running is not None or self.members >> wave.origin & 1
            if missed and sender != wave.origin and self._view.cluster >= 0:
                owed = self._leaves.confirm(wave, now)
            else:
                owed = self._leaves.apply(wave.origin, wave.number)
            return Contribution(owed, member, self._lossy)
        if wave.op is Op.JOIN:
            self._leaves.overtake(wave.origin)
            self._note(wave.origin, True, wave.lossy)
        reached = self.core.reached_since(wave.since, wave.apart)
        own = self.core.outgoing.own, self.core.outgoing.last
        return Contribution(reached, member, self._lossy, self.core.history.over_of(reached), own)

    # -- subscribers that do not answer -----------------------------------------------------------

    def ask_members(self, silent: int, now: Time) -> None:
        """Ask nodes that do not acknowledge what we publish whether they subscribe at all.

        A relay may have lied about the nodes below it in its answer to our wave.
        """
        if self._view.cluster >= 0:
            for peer in members_of(silent & self.members):
                self._questions.ask(Question(peer), now)

    def ask_publisher(self, stream: Stream, now: Time) -> None:
        """Ask a publisher how far it has published: what we know of it may be a relay's lie."""
        reached = self.core.front.delivered.get(stream, -1) if self.core.reading.taking else -1
        self._questions.ask(Question(stream.source, stream, reached, now), now)

    def is_question(self, result: Gathering) -> bool:
        """Whether a wave visited one node alone."""
        return self._questions.asked_by(result)

    def _on_reply(self, question: Question, result: Gathering, now: Time) -> None:
        """One node has answered for itself."""
        if question.leave is not None:
            self._leaves.hear(question, result, now)
            return
        if question.stream is None:
            self._hear_member(question.peer, result, now)
            return
        last = question.published(result)
        self.core.claims.void_above(question.stream, last, question.asked, now)
        if question.reached > last and not question.is_earlier(result) and self.core.reading.taking:
            self.core.claims.retract(question.stream, last)
            self.cut_off()
            self._next_operation(now)

    def _hear_member(self, peer: NodeId, result: Gathering, now: Time) -> None:
        """Take in a node's answer whether it subscribes; -1: its own waves have said so since."""
        if peer < 0 or result.members >> peer & 1 or not self.members >> peer & 1:
            return
        self._marks["no member after all"] += 1
        self.core.guard.drop(NO_MEMBER)
        self.members &= ~(1 << peer)
        self.core.outgoing.lose_members(1 << peer, now)

    def _note(self, peer: NodeId, joined: bool = False, lossy: bool = False) -> None:
        self._meanwhile[peer] = joined, lossy
        self._questions.overtake(peer)
        self.core.outgoing.laggards.meet(peer, lossy and joined)
        if joined:
            self.members |= 1 << peer
        else:
            self.members &= ~(1 << peer)

    # -- our own operations complete -------------------------------------------------------------

    def complete(self, result: Gathering, now: Time) -> None:
        """Finish an operation that every node has applied."""
        if self._questions.asked_by(result):
            self._on_reply(self._questions.take(result), result, now)
            return
        op = self._running
        assert result.wave.op is (op if self._claims is None else Op.REGISTER)
        if op is Op.JOIN:
            confirmed = self._confirmed(result, now)
            if confirmed is None:
                return
            result = confirmed
        if op is Op.LEAVE:
            self._unreleased = set(result.vector) - self._released
            self.finish_leaving(now)
            return
        self._running = None
        self.core.drop_unknown(self._known_before, result.vector)
        self._known_before = []
        self._apart = None
        if not self.informed:
            self._learn_members(result.members, result.lossy)
        if op is Op.JOIN:
            if result.wave.lossy:
                self._owed = None
            elif self._lossy_known or self._owed is not None:
                self._owed = dict(result.vector)
            self._lossy_known = result.wave.lossy
            self.core.history.hear_over(result.over, result.vector)
            self._finish_joining(result, now)
        self._next_operation(now)

    def _confirmed(self, result: Gathering, now: Time) -> Gathering | None:
        """The result of a JOIN, confirmed by the publishers; None: they are asked first.

        A claim above what the publisher says of itself was published since the publisher answered,
        or is a lie.  A second wave tells: what was honestly claimed in the first one is published
        by then.
        """
        if self._claims is None:
            if not self.core.claims.above(result.vector, result.own):
                return result
            self._marks["asked publishers to confirm a cut"] += 1
            self._claims = result
            wave, nothing = result.wave, Contribution({}, False)
            answered = self._waves.start(
                wave.topic, Op.REGISTER, nothing, now, since=wave.since, apart=wave.apart
            )
            return None if answered is None else self._confirmed(answered, now)
        claims, self._claims = self._claims, None
        denied = self.core.claims.above(claims.vector, result.own)
        if denied:
            claims.merge(result.vector, 0, 0)  # with the causes of what publishers admit
            for stream in self.core.claims.above(claims.vector, result.own):
                claimed = claims.vector.pop(stream)
                known = self.core.claims.published(stream, result.own)
                if known >= 0:
                    claims.vector[stream] = known
                if stream in denied:
                    self.core.claims.deny(stream, claimed, known, claims.told_by.get(stream, -1))
        return claims

    def _learn_members(self, members: int, lossy: int) -> None:
        """Take over the subscribers that the wave found, corrected by what arrived while it ran.

        From here on we see every operation as it happens, so this is needed once.
        """
        for peer, (joined, is_lossy) in self._meanwhile.items():
            members = members & ~(1 << peer) | joined << peer
            lossy = lossy & ~(1 << peer) | is_lossy << peer
        self.members = members & ~(1 << self.core.context.node)
        self.core.outgoing.laggards.learn_lossy(lossy & self.members)
        self.informed = True
        self._port.writable(self.core.topic)

    def _finish_joining(self, result: Gathering, now: Time) -> None:
        if self.standing is Standing.IN:  # it told only whether we are lossy: we never stopped
            if self.receiving:
                self._port.joined(self.core.topic)
            return
        self.standing = Standing.IN
        self._add_own(result.vector)
        reached, self._reached = self._reached, None
        if not self._want_in:  # unsubscribed meanwhile: nothing was or will be delivered
            self.core.pass_by(result.vector, now)
            return
        if result.kept is not None:
            self.keeper.learn(self.core.topic, result.kept)
        self._port.joined(self.core.topic)
        if reached is not None:
            skipped = self._skipped(reached, result.vector)
            if skipped:
                self._marks["gap by a cut"] += 1
                self._port.gap(self.core.topic, skipped)
        self.core.begin(result.vector, now)

    def _add_own(self, cut: dict[Stream, Seq]) -> None:
        """Raise the cut to what we know by now: ends of streams may have come since we asked."""
        for stream, seq in self.core.vector().items():
            if seq > cut.get(stream, -1):
                self._marks["ends heard while joining"] += 1
                cut[stream] = seq

    def _skipped(
        self, reached: dict[Stream, Seq], cut: dict[Stream, Seq]
    ) -> dict[Stream, tuple[Seq, Seq]]:
        """The messages above `reached` and not above the cut: first and last, per stream.

        Own messages that were published meanwhile are not delivered here, so they count.  Of a
        stream that we do not know, and whose publisher we saw begin anew, we had all.
        """
        self.core.front.raise_to(cut)
        history = self.core.history
        return {
            stream: (reached.get(stream, -1) + 1, seq)
            for stream, seq in self.core.front.delivered.items()
            if seq > reached.get(stream, -1)
            and (stream in reached or not history.is_superseded(stream))
        }

    def on_suspended(self, news: Suspended, now: Time) -> None:
        """Join again after a publisher suspended us, unless we are about to leave.

        Do not if it addresses us again since a JOIN whose cut is above what we missed.  A JOIN that
        only told that we are not lossy had no cut: then what we are still owed will not come.
        """
        addressed_again = self.core.incoming.on_suspended(news.stream, news.route)
        if self.standing is Standing.IN and self._running is Op.JOIN:
            pass  # what it left out is missing here, whether it knows our `lossy` by now or not
        elif self._owed is not None and self.standing is Standing.IN and not self._lossy_told:
            if not (self._still_owed() and news.stream in self._owed):
                return  # all that was sent before it knew that we are not lossy has come
        elif addressed_again:
            return
        if self._want_in and self.standing in (Standing.JOINING, Standing.IN):
            self._cut_off = True
            self._next_operation(now)

    # -- nodes die -------------------------------------------------------------------------------

    def exclude(self, dead: int, is_live: Callable[[Stream], bool], now: Time) -> None:
        """Remove the nodes `dead`: they do not subscribe, and nothing is owed to or by them."""
        self.members &= ~dead
        self._questions.clear()  # with all other waves
        self._leaves.clear()
        for peer in [peer for peer in self._meanwhile if dead >> peer & 1]:
            del self._meanwhile[peer]
        self.core.outgoing.lose_members(dead, now)
        if self._owed:
            self._owed = {stream: seq for stream, seq in self._owed.items() if is_live(stream)}
        if self._unreleased is not None:
            awaited = len(self._unreleased)
            self._unreleased = {stream for stream in self._unreleased if is_live(stream)}
            if len(self._unreleased) < awaited:
                self._marks["released by death"] += 1

    def cut_off(self) -> None:
        """Plan a jump, with the next operation: no node can send us what we lack."""
        self.core.reading.look_again()
        if self._want_in and self.standing in (Standing.JOINING, Standing.IN):
            self._cut_off = True

    def start_again(self, now: Time) -> None:
        """Begin our incomplete wave anew after members were excluded.

        What the dead relayed may have been lies: the publishers of those streams are asked.
        """
        for stream in self.core.recovery.relayed_by_dead():
            self.ask_publisher(stream, now)
        running = self._running
        if running is Op.LEAVE and self._unreleased is not None:
            self.finish_leaving(now)
            if self._running is Op.LEAVE:  # a dead node may have lied that we are needed
                self._unreleased = None
                self._start(Op.LEAVE, now)
        elif running is not None:
            self._marks[STARTED_AGAIN[running]] += 1
            self._start(running, now)
        else:
            self._next_operation(now)

    def return_from(self, former: Membership, apart: int) -> None:
        """Carry over how far we came in another view; join again if subscription is wanted.

        `apart` is the first view that we missed, in this life.
        """
        self.core.return_from(former.core, apart)
        self._lossy = former._lossy
        self._followed = former._followed
        self._apart = apart if former._apart is None else min(apart, former._apart)
        if former._want_in:
            self._want_in = True
            before = former._reached
            self._reached = dict(before if before is not None else former.core.front.delivered)
            if former.standing is Standing.JOINING and before is None:
                self._reached = None  # it never began: nothing was promised
                self._marks["returned before it had joined"] += 1

    @property
    def is_catching_up(self) -> bool:
        """Whether we came from another view, and not every node has told us what we missed."""
        return self._want_in and self._apart is not None

    def give_up(self) -> None:
        """Drop the wish to subscribe: the life is over, and the next one does not take it over."""
        self._want_in = False

    def missed_all(self) -> None:
        """Note that a followed topic began while we were in another view: all of it is a gap."""
        self._marks["topic missed while away"] += 1
        self._reached = {}

    def rejoin(self, now: Time) -> None:
        """Begin what `return_from` prepared."""
        self._next_operation(now)

    def on_release(self, release: Release, now: Time) -> None:
        """Note that a publisher needs us no more; it may say so before our wave is complete.

        A `Release` for a LEAVE that was started again is old: the later one is answered, too.
        """
        if self._running is not Op.LEAVE or release.wave != self._leave:
            return
        if len(self._released) >= MAX_STREAMS:
            raise ProtocolError(f"releases of more than {MAX_STREAMS} streams")
        self._released.add(release.stream)
        if self._unreleased is not None:
            self._unreleased.discard(release.stream)
            self.finish_leaving(now)

    def finish_leaving(self, now: Time) -> None:
        """Be out once no node needs us.

        Until a dead stream is settled we keep it: a subscriber may lack it, and its heir may die.
        """
        if self._running is not Op.LEAVE or self._unreleased is None:
            return
        if self._unreleased or self.core.dead.heirs:
            return
        self._unreleased = None
        self._released.clear()
        self._running = None
        self.standing = Standing.OUT
        self.core.forget_others()
        self.core.context.agenda.disturb(now)
        self._port.left(self.core.topic)
        self._next_operation(now)
