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

from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.acks import NOT_CONSUMED, Reliability
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import MAX_DIMENSION, cluster, members_of


class TopicCore(Reliability):
    """The data path of one topic; `Membership` says when it takes messages and from where."""

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, members: int, body: Collection[object], size: int, now: Time) -> bool:
        """Number `body` as one frame and send it to `members`; False if there is no credit.

        [J] Algorithm 2, lines 16-28, without the stop-and-wait of line 31: up to `window` may be
        on its way.  The barrier is taken now, so it names everything delivered here so far.
        """
        assert size > 0, "a frame without size would cost no credit"
        assert len(body) > 0, "a frame without messages has no numbers"
        if self.in_flight and self.in_flight + size > self.config.window:
            self.refused = True
            self.pace.waited_for(now)  # acknowledgements may be here, and not looked at yet
            self._hasten(now)
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
        if branch.children:
            self.port.relay(branch.children, frame)  # first: what cannot be encoded changes nothing
        self.next_seq = frame.last + 1
        self.told = inbox.stable
        self.in_flight += size
        if self.pace.passed(size, now):
            self._hasten(now)
        inbox.frames[frame.first] = frame
        inbox.kept += size
        branch.have = frame.last
        front.publish(self.own, frame.last)
        if branch.children and branch.resend_at is None:
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
        route = Route(self._next_route, self.next_seq, members, self.laggards.leaves & members)
        self.routes += 1
        below = self._children(route.interior, MAX_DIMENSION)
        if route.leaves:
            below += tuple(members_of(route.leaves))
        branch = Branch(route, None, below, self.next_seq - 1)
        inbox.add_branch(branch)
        return branch

    # -- frames ------------------------------------------------------------------------------------

    def on_frame(self, frame: Frame, sender: NodeId, now: Time) -> None:
        """Pass on a new frame, deliver what can be delivered, note what to acknowledge."""
        stream = frame.stream
        inbox = self.inboxes.get(stream)
        if self.bequests and self.take_bequest(frame, now):
            return
        if inbox is None:
            if frame.last <= self.floor.get(stream, -1):
                return  # a late copy: everyone has consumed it
            if frame.route.number <= self.lost_routes.get(stream, -1):
                return  # what it belongs to we shall never have
            self.guard.check_route(frame, sender)
            if self._is_early(frame.route.number):
                return
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
            if frame.stable > inbox.consumed and self._owes(inbox):
                self.guard.drop(NOT_CONSUMED)
            elif len(inbox.branches) > 1:
                self._forget_routes(inbox, frame)
            else:
                inbox.forget(frame.stable)
        if stream not in self.dirty:
            self._touch(inbox, now)
        if self.pace.passed(frame.size, now):
            self._hasten(now)
        if self.losses:
            self.skip_losses(now)

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
        if inbox.ended and frame.last > self.finals.get(inbox.stream, -1):
            self.marks["late frame above an end"] += 1
            self.guard.drop("above the end of a dead stream")  # its heir passed it on before
            return None
        branch = inbox.branches.get(route.number)
        if branch is None:
            if not self.guard.may_branch(inbox, frame, sender) or self._is_early(route.number):
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

    # -- delivery ----------------------------------------------------------------------------------

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
                        if self.doubt_at is None and self.cluster >= 0:
                            self.doubt_at = now + self.doubt_after
                            self._plan(self.doubt_at)
                    if self.stranded:
                        self._plan(now)
                    break
                inbox.next = frame.last + 1
                front.deliver(frame)
                if self.port.deliver(frame):
                    inbox.consumed = frame.last
                progress = True
            if progress:
                self._touch(inbox, now)
                work.extend(front.woken_by(inbox.stream))

    def holds(self, frame: Frame) -> bool:
        """Whether a frame was taken in, and waits for its barrier or for those before it."""
        inbox = self.inboxes.get(frame.stream)
        return (
            self.taking
            and inbox is not None
            and inbox.next != NOT_TAKING
            and frame.first >= inbox.next
            and inbox.frames.get(frame.first) is frame
        )

    def _wake_waiters(self, stream: Stream, now: Time) -> None:
        for inbox in self.front.woken_by(stream):
            self._drain(inbox, now)

    def consumed(self, stream: Stream, seq: Seq, now: Time) -> None:
        """The application has taken in what `Port.deliver` left open, up to `seq`.

        Whole frames are consumed; a number in the middle of one is acknowledged as well, so that
        the publisher gets credit for it.  Whoever is told so late may have to wait for credit, so
        that is acknowledged soon.
        """
        inbox = self.inboxes.get(stream)
        if inbox is None:
            return
        before = max(inbox.consumed, inbox.part)
        while (frame := inbox.frames.get(inbox.consumed + 1)) is not None and frame.last <= seq:
            inbox.consumed = frame.last
        if frame is not None and frame.first <= seq:
            inbox.part = seq
        if max(inbox.consumed, inbox.part) > before:
            self.pace.waited_for(now)
            self._touch(inbox, now)
            self._hasten(now)

    def credit(self, wanted: int) -> int:
        """What may be published now; `Port.writable` tells of more if that is less than wanted."""
        credit = self.config.window - self.in_flight
        if credit < wanted:
            self.refused = True
        return credit

    def take_bequest(self, frame: Frame, now: Time) -> bool:
        """Whether a frame is one that we inherit and others held (`recovery`)."""
        return False

    def skip_losses(self, now: Time) -> None:
        """Skip what nobody has and nothing that can come has to come before (`recovery`)."""

    # -- what Membership calls ---------------------------------------------------------------------

    def begin(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Take messages from `cut` on: nothing at or below it, everything above it."""
        delivered = self.front.delivered
        self.front.raise_to(cut)
        self.taking = True
        self.expecting = False
        self.start = dict(delivered)
        for inbox in list(self.inboxes.values()):
            done = delivered.get(inbox.stream, -1)
            inbox.next = done + 1 if inbox.stream.life not in self.frozen else NOT_TAKING
            inbox.consumed = done
            self._drain(inbox, now)
            self._touch(inbox, now)

    def pause(self) -> None:
        """Deliver nothing until `begin`: a new cut is being fixed."""
        self.taking = False
        self.expecting = True
        self.losses.clear()
        self.front.stop_waiting()
        for inbox in self.inboxes.values():
            inbox.next = NOT_TAKING

    def stop(self, now: Time) -> None:
        """Take nothing more; go on passing frames to others."""
        self.taking = False
        self.losses.clear()
        self.front.stop_waiting()
        for inbox in self.inboxes.values():
            inbox.next = NOT_TAKING
            self._touch(inbox, now)

    def bid_farewell(self, leaver: NodeId, wave: int) -> dict[Stream, Seq]:
        """`leaver` is no longer addressed: what it must still help to bring about.

        The next frame begins a new route even if the leaver is back by then, so that no route
        spans a departure.  A LEAVE that was started again owes what the first one did, no more.
        """
        self.gone |= 1 << leaver
        self.route_members = -1
        last = self._last_addressed_to(leaver)
        if last <= self.stable_seq():
            return {}
        self.leavers[leaver] = last, wave
        return {self.own: last}

    def _last_addressed_to(self, member: NodeId) -> Seq:
        """The last own message of a route that leads to `member` and is under way; -1: none."""
        inbox = self.inboxes.get(self.own)
        if inbox is None:
            return -1
        return max(
            (
                self.next_seq - 1 if branch.end is None else branch.end
                for branch in inbox.branches.values()
                if branch.route.members >> member & 1
            ),
            default=-1,
        )

    def forget_others(self) -> None:
        """Nobody relies on this node any more: drop what it kept of others' streams.

        Whatever was addressed to it is here and stable, so the floor is the last it has.
        """
        for inbox in [inbox for inbox in self.inboxes.values() if inbox.stream != self.own]:
            self._drop(inbox)
