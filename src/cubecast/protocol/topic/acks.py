"""Acknowledgements, stability and repair in one topic: nothing is lost, and nobody starves.

Theory of operation.  Acknowledgements climb the tree a frame came by, cumulative and gathered for
a moment.  A child that is silent for `Config.resend_after` is asked how far it is, and sent what it
lacks.  What everyone has consumed is *stable*: it is told with the next frame, or by itself when
the publisher falls idle, and forgotten.  A member that leaves questions unanswered is taken out of
the trees (`cubecast.protocol.topic.laggards`).

Invariants:

1. `Ack.covered` never exceeds what the node and all below it have consumed, so what a publisher
   calls stable nobody can need again; members that a publisher goes on without are the exception,
   and know it before they deliver anything more.
2. Every frame that is sent and not stable is kept by whoever may have to send it again.
"""

from __future__ import annotations

from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import (
    Ack,
    Direct,
    Inquiry,
    Probe,
    Release,
    Route,
    Stable,
    Suspended,
)
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import MAX_DIMENSION, cluster, members_of

NOT_CONSUMED = "stable without this node, which has not consumed it"


class Reliability(StreamTable):
    """What makes the frames of one topic arrive, and tells when they may be forgotten."""

    # -- acknowledgements --------------------------------------------------------------------------

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
                consumed = max(inbox.consumed, inbox.part)
                covered = branch.cover(consumed if self.taking else self._passed(branch))
                if covered > branch.acked or branch.asked or branch.slow != branch.slow_told:
                    self._acknowledge(inbox, branch, covered)

    def _passed(self, branch: Branch) -> Seq:
        """How far a node that consumes nothing is: all it has, unless it is about to join."""
        return branch.have if self.absent else -1

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
            waits = ack.stream == self.own and self.refused
            if branch.hurries(sender, self.config.ack_pause, now) or waits:
                self.pace.waited_for(now)
                self._hasten(now)
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

    # -- stability ---------------------------------------------------------------------------------

    def _advance(self, inbox: Inbox, now: Time) -> None:
        """Compute how far our own stream is stable, route by route, and forget that.

        Credit comes back message by message, also for a part of a frame; stable are whole frames.
        """
        stable = inbox.stable
        consumed = max(inbox.consumed, inbox.part)
        for number, branch in list(inbox.branches.items()):
            covered = branch.cover(consumed if self.taking else branch.have)
            if branch.end is None:
                stable = max(stable, covered)
            elif covered < branch.end:
                stable = max(stable, covered)
                break
            else:
                stable = max(stable, branch.end)
                del inbox.branches[number]
                self.unacked.pop((inbox.stream, number), None)
        stable, part = inbox.whole(stable)
        if stable == inbox.stable and part == self.in_part:
            return
        self.in_flight += self.in_part - part
        self.in_part = part
        if stable > inbox.stable:
            self.in_flight -= inbox.forget(stable)
            self._release_leavers(stable, now)
        if self.refused:
            self.refused = False
            self.port.writable(self.topic)
        if self.tell_at is None and self.told < inbox.stable:
            self.tell_at = now + self.config.stable_delay
            self._plan(self.tell_at)

    def _release_leavers(self, stable: Seq, now: Time) -> None:
        for leaver, (last, wave) in list(self.leavers.items()):
            if last <= stable:
                del self.leavers[leaver]
                self.links.send(leaver, Release(self.topic, self.own, wave), now)

    def tell_stable(self, now: Time) -> None:
        """Tell receivers what they may forget, if no frame has told them meanwhile."""
        self.tell_at = None
        inbox = self.inboxes.get(self.own)
        if inbox is None or inbox.branch is None:
            return
        route = inbox.branch.route
        number, start = route.number, route.start
        if route.epoch < self.epoch:
            # What is stable without those who are gone concerns nobody who is still with them.
            number, start = self._next_route, self.next_seq
            if inbox.stable < start - 1:
                return  # then all of the route
        if inbox.stable > self.told:
            self.told = inbox.stable
            members = route.members & ~self.gone & ~self.laggards.suspended
            what = self.topic, self.own, number, start, inbox.stable
            self._pass_on(Stable(*what, members & ~route.leaves), MAX_DIMENSION, now)
            for leaf in members_of(members & route.leaves):
                self.links.send(leaf, Stable(*what, 0), now)
        self._close_if_idle(inbox)

    def on_stable(self, news: Stable, sender: NodeId, now: Time) -> None:
        """Pass the news on, whatever we keep of the stream ourselves, and forget."""
        self.guard.check_stable(news, sender)
        inbox = self.inboxes.get(news.stream)
        if inbox is not None and news.seq > inbox.consumed and self._owes(inbox):
            self.guard.drop(NOT_CONSUMED)
            return
        self._pass_on(news, cluster(self.node, sender) - 1, now)
        if inbox is None or self._notice_suspension(inbox, news.seq):
            return
        inbox.hear_from(sender)
        if inbox.stable < news.seq:
            inbox.forget(news.seq)
        self._close_branches(inbox, news.route, news.start)
        self._close_if_idle(inbox)

    def _owes(self, inbox: Inbox) -> bool:
        """Whether nothing above what we have consumed of a stream can be stable: it is live, and we
        take all of it.  A relay that says otherwise would have us forget what we lack."""
        return (
            self.taking
            and not inbox.ended
            and inbox.next != NOT_TAKING
            and self.guard.is_live(inbox.stream)
            and not self.may_be_passed_over()
        )

    def _pass_on(self, news: Stable, height: int, now: Time) -> None:
        for child in self._children(news.members, height):
            self.links.send(child, news, now)

    def expect_news(self, now: Time) -> None:
        """A relay died: ask for what is stable of every stream of which something is kept here.

        The publisher may have told it, and the dead not passed it on.  Who has more to say than
        `Config.resend_after` from now is asked again, ever more seldom.
        """
        for stream in self.inboxes:
            if stream != self.own:
                self.inquire[stream] = self.config.resend_after
        if self.inquire and self.inquire_at is None:
            self.inquire_at = now + self.config.resend_after
            self._plan(self.inquire_at)

    def _inquire_due(self, now: Time) -> None:
        """Ask the publishers of what is still kept; what is closed needs no question."""
        self.inquire_at = None
        pauses = []
        for stream, pause in list(self.inquire.items()):
            if stream not in self.inboxes or not self.guard.is_live(stream):
                del self.inquire[stream]
                continue
            self.port.control(stream.source, Inquiry(self.topic, stream))
            self.inquire[stream] = min(2 * pause, self.config.resend_max)
            pauses.append(pause)
        if pauses:
            self.inquire_at = now + min(pauses)

    def on_inquiry(self, sender: NodeId, now: Time) -> None:
        """A receiver asks what is stable: tell it, or tell everyone as soon as there is news."""
        inbox = self.inboxes.get(self.own)
        if inbox is None:
            stable = self.floor.get(self.own, -1)
            if stable >= 0:
                news = Stable(self.topic, self.own, self._next_route, self.next_seq, stable, 0)
                self.links.send(sender, news, now)
        elif inbox.stable >= 0 and self.tell_at is None:
            self.told = -1
            self.tell_at = now + self.config.stable_delay
            self._plan(self.tell_at)

    def all_stable(self, stream: Stream) -> None:
        """Everyone has all of a stream whose publisher has forgotten the topic."""
        inbox = self.inboxes.get(stream)
        if inbox is not None and stream != self.own:
            self._drop(inbox)

    def stable_seq(self) -> Seq:
        """The last own message that everyone has consumed."""
        inbox = self.inboxes.get(self.own)
        return inbox.stable if inbox is not None else self.floor.get(self.own, -1)

    # -- repair ------------------------------------------------------------------------------------

    def _expect_acks(self, stream: Stream, branch: Branch, now: Time) -> None:
        branch.pause = self.config.resend_after
        branch.resend_at = now + branch.pause
        self.unacked[stream, branch.route.number] = branch
        if self.repair_at is None or branch.resend_at < self.repair_at:
            self.repair_at = branch.resend_at
            self._plan(branch.resend_at)

    def _probe(self, stream: Stream, branch: Branch, now: Time) -> None:
        """Ask each silent child how far it is; its answer tells what to send again."""
        inbox = self.inboxes[stream]
        heir_of = self.epoch if stream in self.inherited else -1
        question = branch.question(self.topic, stream, inbox.stable, heir_of)
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

    # -- members that do not answer ----------------------------------------------------------------

    def _on_slow(self, inbox: Inbox, branch: Branch, slow: int, now: Time) -> None:
        """Members below us do not answer: tell our parent; at the root, do without them."""
        branch.slow |= slow
        if branch.parent is not None:
            self._touch(inbox, now)
            return
        if inbox.stream != self.own:
            return  # what a dead publisher left they will get when they wake up
        members = branch.route.members & ~branch.without & ~(1 << self.node)
        self.on_slow(slow & members, now)
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
            self._plan(self.laggards.check_at)
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
        by_heir = sender != news.stream.source
        here = news.last <= stable or news.route <= self.lost_routes.get(news.stream, -1)
        if here or (by_heir and self.absent):
            if by_heir:  # it knows no more than we tell it; who leaves needs nothing of the dead
                self.marks["heir told that all is here"] += 1
                done = Ack(self.topic, news.stream, news.route, news.last, news.last, 0, False)
                self.port.control(sender, done)
            return  # a late copy
        if self._is_early(news.route):
            return
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
        if self.inquire_at is not None and self.inquire_at <= now:
            self._inquire_due(now)
        planned = (
            self.flush_at,
            self.tell_at,
            self.repair_at,
            self.laggards.check_at,
            self.inquire_at,
        )
        return min((at for at in planned if at is not None), default=None)
