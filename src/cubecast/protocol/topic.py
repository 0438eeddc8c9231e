"""One topic at one node: frames in, frames on, frames out.  The production protocol's hot path.

Theory of operation.  A publisher numbers its frames without holes and sends each down the tree of
its current *route* (the members it knows).  Every receiver passes a frame on when it first sees
it, holds it until its turn and its barrier allow delivery, and keeps it until it is *stable*:
consumed by everyone it was addressed to.  Acknowledgements climb the same tree, cumulative and
gathered for a moment; a silent child is sent what it lacks.  What is stable is told with the next
frame, or by itself when the publisher falls idle, and forgotten.

Invariants:

1. Delivery is in sequence per stream and after the barrier, from the cut on (`CausalFront`).
2. A frame is relayed once per node, to children computed from its own route, never from the
   relay's opinion; so a tree reaches exactly the members the publisher addressed.
3. `Ack.covered` never exceeds what the node and all below it have consumed, so what a publisher
   calls stable nobody can need again.
4. Sent and not stable is at most `Config.window` per stream, at the publisher by its credit and
   at each receiver because a frame's number and its `stable` are at most a window apart.
5. What a receiver keeps of one stream is at most `Config.room` whatever its publisher claims, and
   a message that a peer made up raises `ProtocolError` or is dropped before anything changes.
6. The state of an idle stream is two numbers, delivered and stable, and perhaps its entry in the
   frontier.
"""

from __future__ import annotations

from collections.abc import Collection

from cubecast.protocol.causal import CausalFront
from cubecast.protocol.config import Config
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.guard import Guard
from cubecast.protocol.laggards import Laggards
from cubecast.protocol.links import Links
from cubecast.protocol.messages import (
    Ack,
    Direct,
    Frame,
    Probe,
    Release,
    Route,
    Stable,
    Suspended,
)
from cubecast.protocol.pacing import AckPace
from cubecast.protocol.port import Load, NodeId, Port, Seq, Stream, Time, Topic
from cubecast.protocol.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import MAX_DIMENSION, children, cluster, members_of

REMEMBERED_TREES = 256
"""How many (members, height) a node remembers its children for."""


class TopicCore:
    """The data path of one topic; `Membership` says when it takes messages and from where."""

    def __init__(
        self,
        topic: Topic,
        node: NodeId,
        incarnation: int,
        port: Port,
        links: Links,
        config: Config,
    ) -> None:
        self.topic = topic
        self.node = node
        self.own = Stream(node, incarnation)
        self.port = port
        self.links = links
        self.config = config
        self.front = CausalFront()
        self.guard = Guard(topic, node, config.room)
        self._trees: dict[tuple[int, int], tuple[NodeId, ...]] = {}
        self.taking = False
        self.expecting = False  # waits for its cut: it will consume, but not yet from where
        self.inboxes: dict[Stream, Inbox] = {}
        self.floor: dict[Stream, Seq] = {}
        self.lost_routes: dict[Stream, int] = {}  # up to these we were suspended
        self.dirty: dict[Stream, Inbox] = {}
        self.unacked: dict[tuple[Stream, int], Branch] = {}
        self.flush_at: Time | None = None
        self.pace = AckPace(config)
        self.repair_at: Time | None = None  # no later than any `Branch.resend_at`
        # The publisher's side.
        self.next_seq: Seq = 0
        self.route_members = 0
        self.routes = 0
        self.in_flight = 0
        self.refused = False
        self.told: Seq = -1
        self.tell_at: Time | None = None
        self.leavers: dict[NodeId, Seq] = {}
        self.gone = 0  # those who left since the current route began
        self.laggards = Laggards(config)

    # -- publishing ------------------------------------------------------------------------------

    def publish(self, members: int, body: Collection[object], size: int, now: Time) -> bool:
        """Number `body` as one frame and send it to `members`; False if there is no credit.

        [J] Algorithm 2, lines 16-28, without the stop-and-wait of line 31: up to `window` may be
        on its way.  The barrier is taken now, so it names everything delivered here so far.
        """
        assert size > 0, "a frame without size would cost no credit"
        assert len(body) > 0, "a frame without messages has no numbers"
        if self.in_flight and self.in_flight + size > self.config.window:
            self.refused = True
            return False
        inbox = self.inboxes.get(self.own)
        if inbox is None:
            inbox = self._open(self.own)
        branch = inbox.branch
        if branch is None or self.route_members != members:
            branch = self._new_route(inbox, members)
        front = self.front
        frame = Frame(
            self.topic,
            self.own,
            self.next_seq,
            front.barrier(),
            branch.route,
            inbox.stable,
            body,
            size,
        )
        self.next_seq = frame.last + 1
        self.told = inbox.stable
        self.in_flight += size
        if self.pace.passed(size, now):
            self._hasten(now)
        inbox.frames[frame.first] = frame
        inbox.kept += size
        branch.have = frame.last
        front.publish(self.own, frame.last)
        if branch.children:
            self.port.relay(branch.children, frame)
            if branch.resend_at is None:
                self._expect_acks(inbox.stream, branch, now)
        if self.taking:
            inbox.next = frame.last + 1
            if self.port.deliver(frame):
                inbox.consumed = frame.last
            self._wake_waiters(self.own, now)
        if not branch.children:
            self._touch(inbox, now)
        return True

    def _new_route(self, inbox: Inbox, members: int) -> Branch:
        """Address `members` from the next frame on; the route before ends here."""
        if inbox.branch is not None:
            inbox.branch.end = self.next_seq - 1
        self.route_members = members
        self.gone = 0
        route = Route(self.routes, self.next_seq, members, self.laggards.leaves & members)
        self.routes += 1
        below = self._children(route.interior, MAX_DIMENSION)
        if route.leaves:
            below += tuple(members_of(route.leaves))
        branch = Branch(route, None, below, self.next_seq - 1)
        inbox.add_branch(branch)
        return branch

    def _children(self, members: int, height: int) -> tuple[NodeId, ...]:
        """CHILDREN(i, t, h) of [J] 3.3 for a set of members, remembered."""
        found = self._trees.get((members, height))
        if found is None:
            if len(self._trees) >= REMEMBERED_TREES:
                self._trees.clear()
            found = self._trees[members, height] = children(self.node, members, height)
        return found

    # -- frames ----------------------------------------------------------------------------------

    def on_frame(self, frame: Frame, sender: NodeId, now: Time) -> None:
        """Pass on a new frame, deliver what can be delivered, note what to acknowledge."""
        stream = frame.stream
        inbox = self.inboxes.get(stream)
        if inbox is None:
            if frame.last <= self.floor.get(stream, -1):
                return  # a late copy: everyone has consumed it
            if frame.route.number <= self.lost_routes.get(stream, -1):
                return  # what it belongs to we shall never have
            self.guard.check_route(frame, sender)
            if not self.guard.may_open(stream, self.inboxes, self.floor):
                return
            inbox = self._open(stream)
        branch = inbox.branch
        if branch is None or branch.route is not frame.route:
            branch = self._branch_for(inbox, frame, sender)
            if branch is None:
                return
        first = frame.first
        room = self.guard.room - frame.size
        if first == branch.have + 1 and branch.parent == sender and inbox.kept <= room:
            if branch.early:
                branch.receive(first, frame.last)
            else:
                branch.have = frame.last
        elif not self.guard.receive(inbox, branch, frame, sender):
            return  # a copy, or nothing that could be true
        inbox.kept += frame.size
        inbox.frames[first] = frame
        if branch.children:
            self.port.relay(branch.children, frame)
            if branch.resend_at is None:
                self._expect_acks(stream, branch, now)
        if first == inbox.next:
            self._drain(inbox, now)
        if frame.stable > inbox.stable:
            if len(inbox.branches) > 1:
                self._forget_routes(inbox, frame)
            else:
                inbox.forget(frame.stable)
        if stream not in self.dirty:
            self._touch(inbox, now)
        if self.pace.passed(frame.size, now):
            self._hasten(now)

    def _forget_routes(self, inbox: Inbox, frame: Frame) -> None:
        """Forget what is stable, and leave the trees of routes that are complete."""
        self._notice_suspension(inbox, frame.stable)
        if frame.stable > inbox.stable:
            inbox.forget(frame.stable)
        self._close_branches(inbox, frame.route.number, frame.route.start)

    def _branch_for(self, inbox: Inbox, frame: Frame, sender: NodeId) -> Branch | None:
        """Our place in the tree of the frame's route; None if the frame is a late copy."""
        route = frame.route
        if frame.last <= inbox.stable or route.number <= self.lost_routes.get(inbox.stream, -1):
            return None
        branch = inbox.branches.get(route.number)
        if branch is None:
            if not self.guard.may_branch(inbox, frame, sender):
                return None
            below: tuple[NodeId, ...] = ()
            if self.guard.by_tree(frame, sender):
                below = self._children(route.interior, cluster(self.node, sender) - 1)
            branch = self._new_branch(inbox, route, sender, below, frame.stable)
        elif not self.guard.is_route_of(branch, frame, sender):
            return None
        elif branch.parent == sender:
            branch.route = route  # the next frame brings this very object
        return branch

    def _new_branch(
        self, inbox: Inbox, route: Route, parent: NodeId, below: tuple[NodeId, ...], stable: Seq
    ) -> Branch:
        if inbox.stable < stable and not inbox.branches:
            inbox.stable = stable
        branch = Branch(route, parent, below, max(route.start - 1, inbox.stable))
        inbox.add_branch(branch)
        inbox.hear_from(parent)
        return branch

    def _open(self, stream: Stream) -> Inbox:
        """Begin, or resume, to keep state for a stream."""
        done = self.front.delivered.get(stream, -1)
        inbox = Inbox(stream, done + 1 if self.taking else NOT_TAKING, done)
        inbox.stable = self.floor.pop(stream, -1)
        inbox.oldest = inbox.stable + 1
        self.inboxes[stream] = inbox
        return inbox

    # -- delivery --------------------------------------------------------------------------------

    def _drain(self, inbox: Inbox, now: Time) -> None:
        """Deliver whatever `inbox` and those that wait for it allow ([J] lines 83-89)."""
        front = self.front
        work = [inbox]
        while work:
            inbox = work.pop()
            frames = inbox.frames
            progress = False
            while (frame := frames.get(inbox.next)) is not None:
                if frame.barrier and not front.ready(inbox, frame.barrier):
                    if inbox.stuck[0] != frame.first:
                        inbox.stuck = frame.first, now
                    break
                inbox.next = frame.last + 1
                front.deliver(frame)
                if self.port.deliver(frame):
                    inbox.consumed = frame.last
                progress = True
            if progress:
                self._touch(inbox, now)
                work.extend(front.woken_by(inbox.stream))

    def _wake_waiters(self, stream: Stream, now: Time) -> None:
        for inbox in self.front.woken_by(stream):
            self._drain(inbox, now)

    def consumed(self, stream: Stream, seq: Seq, now: Time) -> None:
        """The application has taken in what `Port.deliver` left open, up to `seq`.

        Stability knows whole frames only, so a number in the middle of one counts as the end of
        the frame before it.
        """
        inbox = self.inboxes.get(stream)
        if inbox is None:
            return
        before = inbox.consumed
        while (frame := inbox.frames.get(inbox.consumed + 1)) is not None and frame.last <= seq:
            inbox.consumed = frame.last
        if inbox.consumed > before:
            self._touch(inbox, now)

    # -- acknowledgements and stability ----------------------------------------------------------

    def _touch(self, inbox: Inbox, now: Time) -> None:
        """Something about `inbox` may have to be acknowledged; gather until it is due."""
        self.dirty[inbox.stream] = inbox
        if self.flush_at is None:
            self.flush_at = self.pace.due(now)
            self.port.wake(self.flush_at)

    def _hasten(self, now: Time) -> None:
        """Traffic is heavy: publishers may need credit before the planned flush gives it."""
        due = self.pace.due(now)
        if self.flush_at is not None and due < self.flush_at:
            self.flush_at = due
            self.port.wake(due)

    def flush(self, now: Time) -> None:
        """Acknowledge every stream with news; advance our own stability."""
        self.flush_at = None
        self.pace.flushed(now)
        dirty, self.dirty = self.dirty, {}
        for stream, inbox in dirty.items():
            if stream == self.own:
                self._advance(inbox, now)
                continue
            for branch in inbox.branches.values():
                covered = branch.cover(inbox.consumed if self.taking else self._passed(branch))
                if covered > branch.acked or branch.asked or branch.slow != branch.slow_told:
                    self._acknowledge(inbox, branch, covered)

    def _passed(self, branch: Branch) -> Seq:
        """How far a node that consumes nothing is: all it has, unless it is about to join."""
        return branch.have if self.absent else -1

    @property
    def absent(self) -> bool:
        """Whether this node only passes frames on: it has unsubscribed."""
        return not self.taking and not self.expecting

    def _acknowledge(self, inbox: Inbox, branch: Branch, covered: Seq) -> None:
        assert branch.parent is not None
        absent = branch.absent | (1 << self.node if self.absent else 0)
        self.port.control(
            branch.parent,
            Ack(
                self.topic,
                inbox.stream,
                branch.route.number,
                branch.have,
                covered,
                absent,
                branch.asked,
                branch.slow,
            ),
        )
        branch.asked = False
        branch.slow_told = branch.slow
        branch.acked = covered

    def on_ack(self, ack: Ack, sender: NodeId, now: Time) -> None:
        """A child reports; what its subtree has consumed may let us report, or be stable."""
        inbox = self.inboxes.get(ack.stream)
        branch = inbox.branches.get(ack.route) if inbox is not None else None
        if inbox is None or branch is None or sender not in branch.children:
            return  # a late copy about a route that is complete
        have, covered = ack.have, ack.covered
        if have > branch.have:
            if ack.stream == self.own and not branch.direct:  # else others may have fed it lies
                raise ProtocolError(f"an ACK in {self.topic!r} of what was never sent")
            have, covered = branch.have, min(covered, branch.have)
        branch.absent |= ack.absent
        before = branch.low_covered
        if branch.heard(sender, have, covered):
            branch.pause = self.config.resend_after
            if branch.low_covered >= branch.have:
                branch.resend_at = None
                self.unacked.pop((ack.stream, ack.route), None)
            elif branch.low_covered > before:  # otherwise somebody is silent: do not put it off
                branch.resend_at = now + branch.pause
            if branch.low_covered > branch.covered and ack.stream not in self.dirty:
                self._touch(inbox, now)
        slow = ack.slow & branch.route.members
        if slow & ~branch.slow or (slow and branch.parent is None):
            self._on_slow(inbox, branch, slow, now)
        if ack.asked and have < branch.have and sender in branch.children:
            self._resend(inbox, branch, sender)

    def on_probe(self, probe: Probe, sender: NodeId, now: Time) -> None:
        """The parent has not heard of us in time: say how far we are, even if nowhere."""
        inbox = self.inboxes.get(probe.stream)
        branch = inbox.branches.get(probe.route) if inbox is not None else None
        if inbox is not None and branch is not None:
            branch.asked = True
            self._touch(inbox, now)
        else:
            nothing = Ack(self.topic, probe.stream, probe.route, -1, -1, 0, True)
            self.port.control(sender, nothing)

    def _advance(self, inbox: Inbox, now: Time) -> None:
        """Compute how far our own stream is stable, route by route, and forget that."""
        stable = inbox.stable
        for number, branch in list(inbox.branches.items()):
            covered = branch.cover(inbox.consumed if self.taking else branch.have)
            if branch.end is None:
                stable = max(stable, covered)
            elif covered < branch.end:
                stable = max(stable, covered)
                break
            else:
                stable = max(stable, branch.end)
                del inbox.branches[number]
                self.unacked.pop((inbox.stream, number), None)
        if stable == inbox.stable:
            return
        self.in_flight -= inbox.forget(stable)
        self._release_leavers(stable, now)
        if self.refused:
            self.refused = False
            self.port.writable(self.topic)
        if self.tell_at is None:
            self.tell_at = now + self.config.stable_delay
            self.port.wake(self.tell_at)

    def _release_leavers(self, stable: Seq, now: Time) -> None:
        for leaver, last in list(self.leavers.items()):
            if last <= stable:
                del self.leavers[leaver]
                self.links.send(leaver, Release(self.topic, self.own), now)

    def tell_stable(self, now: Time) -> None:
        """Tell receivers what they may forget, if no frame has told them meanwhile."""
        self.tell_at = None
        inbox = self.inboxes.get(self.own)
        if inbox is None or inbox.branch is None:
            return
        if inbox.stable > self.told:
            self.told = inbox.stable
            route = inbox.branch.route
            members = route.members & ~self.gone & ~self.laggards.suspended
            what = self.topic, self.own, route.number, route.start, inbox.stable
            self._pass_on(Stable(*what, members & ~route.leaves), MAX_DIMENSION, now)
            for leaf in members_of(members & route.leaves):
                self.links.send(leaf, Stable(*what, 0), now)
        self._close_if_idle(inbox)

    def on_stable(self, news: Stable, sender: NodeId, now: Time) -> None:
        """Pass the news on, whatever we keep of the stream ourselves, and forget."""
        self.guard.check_stable(news, sender)
        inbox = self.inboxes.get(news.stream)
        self._pass_on(news, cluster(self.node, sender) - 1, now)
        if inbox is None or self._notice_suspension(inbox, news.seq):
            return
        inbox.hear_from(sender)
        if inbox.stable < news.seq:
            inbox.forget(news.seq)
        self._close_branches(inbox, news.route, news.start)
        self._close_if_idle(inbox)

    def _pass_on(self, news: Stable, height: int, now: Time) -> None:
        for child in self._children(news.members, height):
            self.links.send(child, news, now)

    def _close_branches(self, inbox: Inbox, route: int, start: Seq) -> None:
        """Leave the trees of routes before `route` if all they carried is stable."""
        if inbox.stable >= start - 1:
            for number in [number for number in inbox.branches if number < route]:
                del inbox.branches[number]
                self.unacked.pop((inbox.stream, number), None)

    def _close_if_idle(self, inbox: Inbox) -> None:
        """Keep two numbers of a stream of which everything is stable and known to be."""
        if inbox.frames or len(inbox.branches) > 1:
            return
        if inbox.stream == self.own and (self.told < inbox.stable or self.leavers):
            return
        for number in inbox.branches:
            self.unacked.pop((inbox.stream, number), None)
        del self.inboxes[inbox.stream]
        self.dirty.pop(inbox.stream, None)
        self.floor[inbox.stream] = inbox.stable

    # -- repair ----------------------------------------------------------------------------------

    def _expect_acks(self, stream: Stream, branch: Branch, now: Time) -> None:
        branch.pause = self.config.resend_after
        branch.resend_at = now + branch.pause
        self.unacked[stream, branch.route.number] = branch
        if self.repair_at is None or branch.resend_at < self.repair_at:
            self.repair_at = branch.resend_at
            self.port.wake(branch.resend_at)

    def _probe(self, stream: Stream, branch: Branch, now: Time) -> None:
        """Ask each silent child how far it is; its answer tells what to send again."""
        inbox = self.inboxes[stream]
        question = branch.question(self.topic, stream, inbox.stable)
        for index, child in enumerate(branch.children):
            if branch.their_covered[index] < branch.have:
                self.port.control(child, question)
        branch.pause = min(2 * branch.pause, self.config.resend_max)
        branch.resend_at = now + branch.pause
        if self.config.patience:
            slow = branch.overdue(self.config.patience)
            if slow & ~branch.slow or (slow and branch.parent is None):
                self._on_slow(inbox, branch, slow, now)

    def _resend(self, inbox: Inbox, branch: Branch, child: NodeId) -> None:
        """Send a child the frames of this route that it lacks, a burst at a time."""
        seq = max(branch.their_have[branch.children.index(child)], inbox.stable) + 1
        for _ in range(self.config.resend_burst):
            if seq > branch.have:
                break
            frame = inbox.frames.get(seq)
            if frame is None or frame.route.number != branch.route.number:
                break  # the child claims a part of a frame, or the number is taken twice
            self.port.relay((child,), frame)
            seq = frame.last + 1

    def _repair_due(self, now: Time) -> None:
        """Probe for every branch whose time has come; remember the next one's."""
        self.repair_at = None
        for (stream, number), branch in list(self.unacked.items()):
            if branch.resend_at is None:
                continue  # it was given up while we went through them
            inbox = self.inboxes.get(stream)
            if inbox is None or branch.have <= inbox.stable:
                branch.resend_at = None  # the publisher knows more than our children told us
                self.unacked.pop((stream, number), None)
                continue
            if branch.resend_at <= now:
                self._probe(stream, branch, now)
        deadlines = [branch.resend_at for branch in self.unacked.values()]
        self.repair_at = min((at for at in deadlines if at is not None), default=None)

    # -- laggards --------------------------------------------------------------------------------

    def _on_slow(self, inbox: Inbox, branch: Branch, slow: int, now: Time) -> None:
        """Members below us do not answer: tell our parent; at the root, do without them."""
        branch.slow |= slow
        if branch.parent is not None:
            self._touch(inbox, now)
            return
        members = branch.route.members & ~branch.without & ~(1 << self.node)
        demoted, suspended = self.laggards.judge(slow, members, self.refused, now)
        if not demoted and not suspended:
            return
        self.route_members = -1  # the next frame begins a new route
        assert inbox.branch is not None
        for member in members_of(suspended):
            notice = Suspended(self.topic, self.own, inbox.branch.route.number)
            self.links.send(member, notice, now)
        for old in inbox.branches.values():
            old.without |= suspended
            self._feed_directly(inbox, old, now)
        if self.laggards.check_at is not None:
            self.port.wake(self.laggards.check_at)
        self._touch(inbox, now)

    def _feed_directly(self, inbox: Inbox, branch: Branch, now: Time) -> None:
        """Give up the tree of a route: what is under way in it everyone gets from us."""
        if branch.low_covered >= branch.have:
            return
        fed = branch.route.members & ~branch.without & ~(1 << self.node)
        branch.direct = True
        branch.feed(tuple(members_of(fed)))
        if branch.low_covered < branch.have:
            self._expect_acks(inbox.stream, branch, now)
            self._probe(inbox.stream, branch, now)
        else:
            branch.resend_at = None
            self.unacked.pop((inbox.stream, branch.route.number), None)

    def on_direct(self, news: Direct, sender: NodeId, now: Time) -> None:
        """The publisher feeds us itself from now on; pass nothing of that route on."""
        self.guard.check_direct(news, sender)
        inbox = self.inboxes.get(news.stream)
        stable = inbox.stable if inbox is not None else self.floor.get(news.stream, -1)
        if news.last <= stable or news.route <= self.lost_routes.get(news.stream, -1):
            return  # a late copy
        if inbox is None:
            if not self.guard.may_open(news.stream, self.inboxes, self.floor):
                return
            inbox = self._open(news.stream)
        branch = inbox.branches.get(news.route)
        if branch is None:
            if not self.guard.has_room_for_route(inbox):
                return
            route = Route(news.route, news.start, 0)
            branch = self._new_branch(inbox, route, sender, (), news.stable)
        branch.parent = sender
        inbox.hear_from(sender)
        branch.feed(())
        branch.resend_at = None
        self.unacked.pop((news.stream, news.route), None)
        branch.asked = True
        self._touch(inbox, now)

    def _reconsider_leaves(self, now: Time) -> None:
        """Leaves that have caught up return to the interior with the next frame."""
        inbox = self.inboxes.get(self.own)
        behind = 0
        if inbox is not None and inbox.branch is not None:
            behind = inbox.branch.unanswering()
        if self.laggards.reconsider(behind, now):
            self.route_members = -1

    def _notice_suspension(self, inbox: Inbox, stable: Seq) -> bool:
        """If everyone has what we lack, a publisher went on without us; we have joined again
        since, or it would tell us nothing, and its notice is late.  True if nothing is left.
        """
        torn = inbox.torn(stable)
        return torn >= 0 and not self.on_suspended(inbox.stream, torn)

    def on_suspended(self, stream: Stream, route: int) -> bool:
        """A publisher went on without us: what we have of its old routes leads nowhere.

        True if it addresses us again already.
        """
        if route <= self.lost_routes.get(stream, -1):
            return True  # we found out by ourselves
        if not self.guard.may_lose(stream, self.lost_routes):
            return True
        self.lost_routes[stream] = route
        inbox = self.inboxes.get(stream)
        if inbox is None:
            return False
        for number in [number for number in inbox.branches if number <= route]:
            self.unacked.pop((stream, number), None)
        have = inbox.reached()
        if inbox.tear(route):
            return True
        self._drop(inbox)
        self.floor[stream] = have
        return False

    def _drop(self, inbox: Inbox) -> None:
        """Keep nothing of a stream but how far it came."""
        self.floor[inbox.stream] = inbox.reached()
        del self.inboxes[inbox.stream]
        self.front.stop_waiting_of(inbox)
        self.dirty.pop(inbox.stream, None)
        for number in inbox.branches:
            self.unacked.pop((inbox.stream, number), None)

    def on_wake(self, now: Time) -> Time | None:
        """Do what is due; return the next time something will be."""
        if self.flush_at is not None and self.flush_at <= now:
            self.flush(now)
        if self.tell_at is not None and self.tell_at <= now:
            self.tell_stable(now)
        if self.repair_at is not None and self.repair_at <= now:
            self._repair_due(now)
        if self.laggards.check_at is not None and self.laggards.check_at <= now:
            self._reconsider_leaves(now)
        planned = self.flush_at, self.tell_at, self.repair_at, self.laggards.check_at
        return min((at for at in planned if at is not None), default=None)

    def stable_seq(self) -> Seq:
        """The last own message that everyone has consumed."""
        inbox = self.inboxes.get(self.own)
        return inbox.stable if inbox is not None else self.floor.get(self.own, -1)

    # -- what Membership calls -------------------------------------------------------------------

    def vector(self) -> dict[Stream, Seq]:
        """All that is delivered here, own publications included; causally closed."""
        vector = dict(self.front.delivered)
        if self.next_seq:
            vector[self.own] = self.next_seq - 1
        return vector

    def begin(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Take messages from `cut` on: nothing at or below it, everything above it."""
        self.front.raise_to(cut)
        self.taking = True
        self.expecting = False
        for inbox in list(self.inboxes.values()):
            done = self.front.delivered.get(inbox.stream, -1)
            inbox.next = done + 1
            inbox.consumed = done
            self._drain(inbox, now)
            self._touch(inbox, now)

    def pause(self) -> None:
        """Deliver nothing until `begin`: a new cut is being fixed."""
        self.taking = False
        self.expecting = True
        self.front.stop_waiting()
        for inbox in self.inboxes.values():
            inbox.next = NOT_TAKING

    def stop(self, now: Time) -> None:
        """Take nothing more; go on passing frames to others."""
        self.taking = False
        self.front.stop_waiting()
        for inbox in self.inboxes.values():
            inbox.next = NOT_TAKING
            self._touch(inbox, now)

    def bid_farewell(self, leaver: NodeId) -> dict[Stream, Seq]:
        """`leaver` is no longer addressed: what it must still help to bring about.

        The next frame begins a new route even if the leaver is back by then, so that no route
        spans a departure.
        """
        self.gone |= 1 << leaver
        self.route_members = -1
        inbox = self.inboxes.get(self.own)
        if inbox is None or inbox.stable >= self.next_seq - 1:
            return {}
        self.leavers[leaver] = self.next_seq - 1
        return {self.own: self.next_seq - 1}

    def forget_others(self) -> None:
        """Nobody relies on this node any more: drop what it kept of others' streams.

        Whatever was addressed to it is here and stable, so the floor is the last it has.
        """
        for inbox in [inbox for inbox in self.inboxes.values() if inbox.stream != self.own]:
            self._drop(inbox)

    def load(self) -> Load:
        """Held and retained, and the bound of invariant 4."""
        held = sum(inbox.held() for inbox in self.inboxes.values())
        size = sum(inbox.size() for inbox in self.inboxes.values())
        return Load(held, size - held, self.config.window * len(self.inboxes))
