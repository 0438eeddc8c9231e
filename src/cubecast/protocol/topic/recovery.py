"""One topic when nodes die: what becomes of their streams, and of what passed through them.

Theory of operation.  Before a view without some nodes is agreed on, everyone *freezes* the streams
of those nodes: nothing more of them is delivered, and what is here is reported.  The new view
names an end for each such stream and an *heir*, a survivor that holds everything up to it.  What
lies above the end is dropped.  The heir takes the dead publisher's place: it feeds the members
itself (`Direct`), repairs, gathers acknowledgements, and says when all may forget.

Streams of the living do not stop.  A publisher whose route led through a dead node gives up the
tree and feeds what is under way in it to everyone itself, as it does for laggards.

Invariants:

1. Between a report and the next view nothing of a frozen stream is delivered.
2. Everyone who stays in the topic delivers a dead stream up to its end, or skips what no node has
   (`skip_losses`), and no node delivers anything above the end.  A member that its publisher had
   suspended joins again (`Membership.cut_off`).
3. A relay never counts a dead child as served: only the publisher may give up its tree.
4. What a node answers to a JOIN contains the ends of dead streams, whether it has got there or
   not: they are causally closed together with what living publishers answer of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cubecast.protocol.cluster.views import Final, Held, Unread
from cubecast.protocol.messages import Barrier, Frame, Inquiry, Route, Settled, Stable
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.topic.claims import DoubtingTopic
from cubecast.protocol.topic.stream_table import Loss
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox
from cubecast.topology import members_of

MAX_UNREAD = 256
"""Frames of one dead stream that a report names; what lies above is given up."""
UNDATED = -1
"""The view with which a stream ended, if nobody told us and we were not there: before all others.
We have nothing of such a stream, so nobody asks us for it."""


class RecoveringTopic(DoubtingTopic):
    """The data path of one topic, and how it goes on without some of its nodes."""

    def reached_since(self, since: int, apart: int) -> dict[Stream, Seq]:
        """How far we came in streams that concern a node that asks or is told; causally closed.

        Not in those of lives that ended before view `since`, nor those that were superseded while
        the other one was with us, before view `apart`: it had all of them or came later, nothing
        more of them will come, and it may not remember them.
        """
        over, superseded = self.over, self.superseded
        return {
            stream: seq
            for stream, seq in self.vector().items()
            if over.get(stream, since) >= since and superseded.get(stream, apart) >= apart - 1
        }

    def over_of(self, streams: Collection[Stream]) -> Barrier:
        """With which view those of some streams ended that did, for who does not know it.

        Who came later, and was not told yet, says nothing: a guess would pass for the latest word.
        """
        dead = [stream for stream in streams if not self.guard.is_live(stream)]
        ended = [(stream, self._ended_with(stream)) for stream in dead]
        return tuple((stream, epoch) for stream, epoch in ended if epoch is not None)

    def _ended_with(self, stream: Stream) -> int | None:
        """The view with which a dead stream ended: as remembered, as seen, or as we were told."""
        for known, key in (
            (self.over, stream),
            (self.ended, stream.life),
            (self.told_over, stream),
        ):
            if key in known:
                return known[key]
        return None

    def hear_over(self, told: Mapping[Stream, int], cut: Collection[Stream]) -> None:
        """Everyone has answered our JOIN, and said with which views streams of the cut ended.

        Of an end that no node knows, all who did are gone: to returning nodes it is new.  Some
        may have been settled here meanwhile, when that was not known.
        """
        unknown = [stream for stream in cut if not self.guard.is_live(stream)]
        dated = {stream: min(epoch, self.epoch) for stream, epoch in told.items()}
        self.told_over = {**dict.fromkeys(unknown, self.epoch), **dated}  # no end is in the future
        for stream, ended in self.told_over.items():
            if self.over.get(stream) == UNDATED:
                self.marks["settled before it was dated"] += 1
                self.over[stream] = ended

    # -- what is over ------------------------------------------------------------------------------

    def _is_over(self, stream: Stream) -> bool:
        """Whether nothing more will be delivered here of a stream that a frame names.

        What is neither live nor pending is over: there is nothing to wait for.  It cannot be a life
        that we are still to hear of, as a node publishes nothing before its first wave has visited
        everyone, us included, in a view that names it.  If the stream ended while we took messages
        and we lack some of it, that was owed to us, and we have to jump.
        """
        if self.guard.is_live(stream):
            return super()._is_over(stream)
        if self._is_pending(stream):
            return False
        if self.ended.get(stream.life, -1) <= self.began or stream in self.superseded:
            return True
        self.marks["waits for what will not come"] += 1
        self.stranded = True
        return False

    def _is_pending(self, stream: Stream) -> bool:
        """Whether more of a dead stream may be delivered here, or is to be skipped."""
        done = self.front.delivered.get(stream, -1)
        return (
            stream in self.inboxes
            or stream in self.heirs
            or stream in self.losses
            or self.finals.get(stream, -1) > done
            or self.ends.get(stream, -1) > done
        )

    def look_again(self, now: Time) -> None:
        """The view has changed: see whether what waits still has something to wait for.

        Whoever looked while not all of the change was known looked too early.
        """
        self.stranded = False
        for inbox in self.front.waiting():
            self._wake_waiters_of(inbox, now)
        self.skip_losses(now)

    def _wake_waiters_of(self, inbox: Inbox, now: Time) -> None:
        self.front.stop_waiting_of(inbox)
        self._drain(inbox, now)

    # -- before the view changes -------------------------------------------------------------------

    def freeze(self) -> None:
        """Deliver nothing more of the lives that are `frozen` until the next view."""
        for inbox in self.inboxes.values():
            if inbox.stream.life in self.frozen:
                if inbox.next != NOT_TAKING:
                    self.marks["froze"] += 1
                self.front.stop_waiting_of(inbox)
                inbox.next = NOT_TAKING

    def unsettled(self, is_live: Callable[[Stream], bool]) -> set[Stream]:
        """The dead streams that not everyone is known to have up to their end."""
        return {*self.heirs, *(stream for stream in self.inboxes if not is_live(stream))}

    def thaw(self, lives: Collection[Stream], now: Time) -> None:
        """Deliver again what living nodes publish: they were to be excluded, and were not."""
        for stream in [one for one in self.inboxes if one.life in lives]:
            if self.guard.is_live(stream):
                self.marks["frozen and alive after all"] += 1
                self.resume(stream, now)

    def resume(self, stream: Stream, now: Time) -> None:
        """Deliver a stream again from where it was frozen."""
        inbox = self.inboxes.get(stream)
        if inbox is not None and self.taking:
            inbox.next = self.front.delivered.get(stream, -1) + 1
            self._drain(inbox, now)

    def held(self, is_live: Callable[[Stream], bool]) -> tuple[Held, ...]:
        """What we have of every dead stream that is not settled.

        Of what we have nothing of, and only our cut covers, we speak if what we read depends on it:
        others who lack it would wait for it in vain.
        """
        needed = self._needed(is_live)
        reports = [
            self._held(inbox, needed.get(inbox.stream, -1))
            for inbox in self.inboxes.values()
            if not is_live(inbox.stream)
        ]
        found = [one for one in reports if one.have >= 0]
        for stream, seq in needed.items():
            if stream not in self.inboxes:
                self.marks["read what depends on a cut"] += 1
                reached = self._agreed(stream, self.front.delivered.get(stream, -1))
                cut = self._cut_for(stream, reached)
                found.append(Held(stream, reached, seq, reached, reached, self.taking, (), cut))
        return tuple(found)

    def _needed(self, is_live: Callable[[Stream], bool]) -> dict[Stream, Seq]:
        """What the messages depend on that were read or published here and not by everyone.

        Of dead streams alone, as far as it is not known that everyone has it or jumps over it.
        What our cut covers may be a cause of anything that we have read since.
        """
        front = self.front
        causes = list(front.frontier.items())
        if self.taking:
            causes += self.start.items()
        for inbox in self.inboxes.values():
            read = front.delivered.get(inbox.stream, -1)
            for frame in inbox.frames.values():
                if frame.last <= read:
                    causes += frame.barrier
        needed: dict[Stream, Seq] = {}
        for stream, seq in causes:
            if is_live(stream):
                continue
            agreed = self._agreed(stream, seq)
            if agreed > max(needed.get(stream, -1), self._settled_to(stream)):
                needed[stream] = agreed
        return {stream: seq for stream, seq in needed.items() if not self._is_forgotten(stream)}

    def _agreed(self, stream: Stream, seq: Seq) -> Seq:
        """As much of a stream up to `seq` as our views agreed on, if it has an heir.

        What lies above was published in another view: everyone was told of it (`hear_end`) and
        skips it, after what the heir feeds.
        """
        return min(seq, self.finals.get(stream, seq)) if stream in self.heirs else seq

    def _settled_to(self, stream: Stream) -> Seq:
        """How much of a stream everyone is known to have, or to have skipped."""
        if stream in self.over or stream in self.superseded:
            return self.front.delivered.get(stream, -1)
        return -1 if stream in self.heirs else self.floor.get(stream, -1)

    def _is_forgotten(self, stream: Stream) -> bool:
        """Whether a stream was over for everyone so long ago that nothing is kept of it."""
        return not (
            stream.life in self.ended or self.guard.is_live(stream) or self._is_pending(stream)
        )

    def _held(self, inbox: Inbox, needed: Seq) -> Held:
        stream = inbox.stream
        delivered = self._agreed(stream, self.front.delivered.get(stream, -1))
        read = delivered if self.taking else min(needed, delivered)
        if stream in self.losses:
            delivered = read = self.losses[stream].last  # it is agreed that we skip it
        by_last = {frame.last: frame for frame in inbox.frames.values()}
        base = delivered
        if not self.taking and delivered not in by_last and delivered + 1 not in inbox.frames:
            # It only passes frames on, and has none of a route that begins with what is to come.
            ends = [one.have for one in inbox.branches.values() if one.have in by_last]
            base = max(ends, default=inbox.stable)
        have = base
        while base in by_last:
            base = by_last[base].first - 1
        unread: list[Unread] = []
        seq = max(base, delivered) + 1
        while (frame := inbox.frames.get(seq)) is not None and len(unread) < MAX_UNREAD:
            unread.append(self._unread(frame.first, frame.last, frame.barrier))
            have, seq = frame.last, frame.last + 1
        if self.expecting and base > max(delivered, inbox.stable):
            # We are about to join, and lack what nobody may have: from us nobody can go on.
            self.marks["has only what follows a loss"] += 1
            return Held(stream, delivered, read, delivered, delivered, False)
        return Held(
            stream,
            delivered,
            read,
            base,
            have,
            self.taking,
            tuple(unread),
            self._cut_for(stream, base),
        )

    def _cut_for(self, stream: Stream, base: Seq) -> Barrier:
        """Where we joined, if we lack what lies up to `base` for that reason alone."""
        if not 0 <= base <= self.start.get(stream, -1):
            return ()
        return tuple(
            (cause, seq)
            for cause, seq in self.start.items()
            if cause == stream or seq > self._settled_to(cause)
        )

    def _unread(self, first: Seq, last: Seq, barrier: tuple[tuple[Stream, Seq], ...]) -> Unread:
        """A frame with those of its causes that not everyone is known to have."""
        open_causes = tuple(
            (stream, seq)
            for stream, seq in barrier
            if seq > self._settled_to(stream) and not self._is_forgotten(stream)
        )
        return Unread(first, last, open_causes)

    # -- when the view has changed -----------------------------------------------------------------

    def end_stream(self, final: Final, now: Time) -> bool:
        """Take over the end of a dead stream; True if this node has to jump."""
        stream = final.stream
        if stream in self.over:  # not yet for everyone; when it ended is known all the same
            self.told_over[stream] = self.over.pop(stream)
        self.inherited.pop(stream, None)
        self.bequests.pop(stream, None)
        if self.heirs.get(stream, final.heir) != final.heir:
            self.marks["heir died"] += 1
        if self._needs_nothing_of(stream):
            self.marks["end of what we had forgotten"] += 1
            self.front.delivered[stream] = self.floor[stream] = final.seq
        if self._lost_elsewhere(final):
            self.marks["end known from another view"] += 1
            done = self.front.delivered.get(stream, -1)
            final = Final(stream, done, final.heir, done)
        self.finals[stream] = final.seq
        self.heirs[stream] = final.heir
        inbox = self.inboxes.get(stream)
        if inbox is not None:
            inbox.ended, inbox.branch = True, None
            self._drop_above(inbox, final.seq)
        lacking = self.taking and self._counted(stream) < final.base
        if final.base >= final.seq and not (lacking and final.after):
            return self.settle(stream, final.seq, now)  # nobody has anything to send
        if final.heir == self.node:
            self._inherit(final, now)
            self.resume(stream, now)
            return False
        if inbox is not None:
            for branch in inbox.branches.values():
                branch.parent = final.heir
                self._release_children(stream, branch)
        self.inherited.pop(stream, None)
        if lacking and not final.after:
            return True
        if lacking:
            self._expect_loss(final)
        self.resume(stream, now)
        return False

    def _counted(self, stream: Stream) -> Seq:
        """How far we are, what we are to skip included."""
        done = self.front.delivered.get(stream, -1)
        return self.losses[stream].last if stream in self.losses else done

    # -- what nobody has ---------------------------------------------------------------------------

    def _expect_loss(self, final: Final) -> None:
        """Nobody has what we lack up to `Final.base`: skip it when its turn has come."""
        stream = final.stream
        self.marks["skips what nobody has"] += 1
        inbox = self.inboxes.get(stream)
        if inbox is None:
            inbox = self._open(stream)
        for number in [one for one in inbox.frames if one <= final.base]:
            del inbox.frames[number]
        inbox.kept = inbox.size()
        inbox.stable, inbox.oldest, inbox.ended = final.base, final.base + 1, True
        for branch in inbox.branches.values():
            branch.have = max(branch.have, final.base)
        after = tuple((cause, seq) for cause, seq in final.after if cause != stream)
        self.losses[stream] = Loss(final.base, after)
        if final.base >= final.seq:
            del self.heirs[stream]  # nobody feeds it

    def skip_losses(self, now: Time) -> None:
        """Skip what nobody has, as far as no cause of it can still come.

        Its causes lie at or below the cut where somebody joined who has what follows it.  Of these,
        those that need nothing that is lost come by themselves.  When the next message of every
        stream below the cut is here, or delivered, what is not delivered waits for something lost,
        and the first lost message depends on none of it.
        """
        progress = True
        while progress and self.taking:
            progress = False
            for stream in sorted(self.losses):
                if stream in self.losses and self._may_skip(stream):
                    self._skip(stream, now)
                    progress = True

    def _may_skip(self, stream: Stream) -> bool:
        return stream.life not in self.frozen and all(
            self._is_here(cause, seq) for cause, seq in self.losses[stream].after
        )

    def _is_here(self, cause: Stream, seq: Seq) -> bool:
        """Whether nothing more of `cause` up to `seq` has to come before something is skipped."""
        done = self.front.delivered.get(cause, -1)
        if done >= seq or cause in self.losses:
            return True
        inbox = self.inboxes.get(cause)
        if inbox is not None and done + 1 in inbox.frames:
            return inbox.next == done + 1
        return not self.guard.is_live(cause) and not self._is_pending(cause)

    def _skip(self, stream: Stream, now: Time) -> None:
        """Skip lost messages up to the next one that something waits for."""
        last = self.losses[stream].last
        first = self.front.delivered.get(stream, -1) + 1
        if self.front.is_awaited(stream):
            last = first
        if last == self.losses[stream].last:
            del self.losses[stream]
        inbox = self.inboxes[stream]
        self.front.delivered[stream] = last
        inbox.skip(first, last)
        self.port.gap(self.topic, {stream: (first, last)})
        self._wake_waiters(stream, now)
        if stream in self.losses or stream not in self.inboxes:
            return
        if stream in self.heirs:
            self._drain(inbox, now)
        else:
            self.settle(stream, last, now)

    def _needs_nothing_of(self, stream: Stream) -> bool:
        """Whether a dead stream was over here, or before we came, and others do not know it yet."""
        known = self.front.delivered.get(stream, -1), self.floor.get(stream, -1)
        if max(known) >= 0 or stream in self.inboxes or stream in self.heirs:
            return False
        if self.latest.get(stream.life, 0) > stream.generation:
            return True
        return self.ended.get(stream.life, -1) <= max(self.began, self.forgotten)

    def _lost_elsewhere(self, final: Final) -> bool:
        """Whether nobody holds what we lack, and all of it was published in another view.

        Somebody's cut covers it, so it counts as read there.  We have what our own views agreed on
        and were told how far the other one went (`hear_end`): we skip that, and need no jump.
        """
        stream, done = final.stream, self.front.delivered.get(final.stream, -1)
        agreed = self.finals.get(stream)
        return (
            agreed is not None
            and agreed <= done < final.seq <= final.base
            and final.seq <= self.ends.get(stream, -1)
        )

    def drop_unreported(
        self, ended: set[Stream], is_live: Callable[[Stream], bool], now: Time
    ) -> None:
        """Discard what came of a dead stream after we had reported that we have nothing of it.

        Nobody reported anything, so everyone has all of it that anyone has delivered.
        """
        for stream in [stream for stream in self.inboxes if not is_live(stream)]:
            if stream not in ended:
                inbox = self.inboxes[stream]
                self.marks["unreported dropped"] += 1
                self._drop_above(inbox, self.front.delivered.get(stream, -1))
                floor = inbox.stable
                self._drop(inbox)
                self.floor[stream] = floor
        for stream in [stream for stream in self.heirs if stream not in ended]:
            # Its heir died with what we were to get: nobody who is left has any of it.
            self.marks["heir died with the rest"] += 1
            del self.heirs[stream]
            self.inherited.pop(stream, None)
            self.finals[stream] = self.front.delivered.get(stream, -1)
            self._skip_lost(stream, now)
        self.tidy()

    def _release_children(self, stream: Stream, branch: Branch) -> None:
        branch.feed(())
        branch.resend_at = None
        self.unacked.pop((stream, branch.route.number), None)

    def _drop_above(self, inbox: Inbox, end: Seq) -> None:
        """Discard what lies above the end of a dead stream, and say so."""
        dropped = [frame for frame in inbox.frames.values() if frame.first > end]
        if dropped:
            self.marks["dropped above an end"] += 1
        for frame in dropped:
            del inbox.frames[frame.first]
        inbox.kept = inbox.size()
        for number, branch in list(inbox.branches.items()):
            if branch.route.start > end:  # else it would claim what lies before its first frame
                del inbox.branches[number]
                self.unacked.pop((inbox.stream, number), None)
                continue
            branch.have = min(branch.have, end)
            branch.covered = min(branch.covered, branch.have)  # it only passed frames on
            branch.early = {first: last for first, last in branch.early.items() if last <= end}
        if dropped and self.taking:
            first = min(frame.first for frame in dropped)
            last = max(frame.last for frame in dropped)
            self.port.discard(self.topic, {inbox.stream: (first, last)})

    def _inherit(self, final: Final, now: Time) -> None:
        """Be the root of a dead stream: feed every member what we hold, up to its end.

        What we lack of that, as our cut covers it, others hold: ask them for it first.
        """
        stream, end = final.stream, final.seq
        inbox = self.inboxes.get(stream)
        if inbox is None:  # we have heard since we reported that everyone has it
            self._tell_settled(stream, end, now)
            return
        self.marks["inherited"] += 1
        self.inherited[stream] = end
        if self._lacks(inbox, final.base):
            self.marks["heir asks for what others hold"] += 1
            self.bequests[stream] = final.base
            self._ask_holders(now)
        else:
            self._feed_as_heir(inbox, now)

    def _lacks(self, inbox: Inbox, base: Seq) -> bool:
        """Whether we do not hold all of what follows `base` and not everyone has."""
        return self._held(inbox, -1).base > max(base, inbox.stable)

    def _ask_holders(self, now: Time) -> None:
        """Ask everyone for what we inherit and lack, until it is here."""
        self.ask_at = None
        for stream in [one for one in self.bequests if one not in self.inboxes]:
            del self.bequests[stream]  # everyone has it
        for stream in self.bequests:
            for peer in members_of(self.cluster & ~(1 << self.node)):
                self.port.control(peer, Inquiry(self.topic, stream))
        if self.bequests:
            self.ask_at = now + self.config.resend_after
            self._plan(self.ask_at)

    def bequeath(self, stream: Stream, heir: NodeId, now: Time) -> None:
        """The heir of a dead stream asks for what it lacks: send it all that we hold."""
        if self.heirs.get(stream) != heir:
            return
        inbox = self.inboxes.get(stream)
        known = self.floor if stream not in self.lost_routes else {}
        stable = known.get(stream, -1) if inbox is None else inbox.stable
        if stable >= 0:  # we may have heard so since we reported
            self.links.send(heir, Stable(self.topic, stream, 0, 0, stable, 0), now)
        if inbox is not None:
            for first in sorted(inbox.frames):
                self.marks["left frames to an heir"] += 1
                self.port.relay((heir,), inbox.frames[first])

    def take_bequest(self, frame: Frame, now: Time) -> bool:
        stream = frame.stream
        if stream not in self.bequests or stream not in self.inboxes:
            return False
        inbox = self.inboxes[stream]
        lacks = max(self.bequests[stream], inbox.stable) < frame.first
        if lacks and frame.last <= self._held(inbox, -1).base:
            inbox.frames[frame.first] = frame
            inbox.kept += frame.size
            self._feed_if_complete(inbox, now)
        return True

    def _feed_if_complete(self, inbox: Inbox, now: Time) -> None:
        if not self._lacks(inbox, self.bequests[inbox.stream]):
            del self.bequests[inbox.stream]
            self._feed_as_heir(inbox, now)

    def on_wake(self, now: Time) -> Time | None:
        if self.ask_at is not None and self.ask_at <= now:
            self._ask_holders(now)
        due = super().on_wake(now)
        if due is None or (self.ask_at is not None and self.ask_at < due):
            return self.ask_at
        return due

    def _feed_as_heir(self, inbox: Inbox, now: Time) -> None:
        """Feed every member, by the routes of the dead publisher, what we hold."""
        stream = inbox.stream
        for number in inbox.branches:
            self.unacked.pop((stream, number), None)
        inbox.branches.clear()
        inbox.branch = None
        routes: dict[int, Route] = {}
        ends: dict[int, Seq] = {}
        for first in sorted(inbox.frames):
            frame = inbox.frames[first]
            if frame.last <= inbox.stable:
                continue  # everyone has it
            routes.setdefault(frame.route.number, frame.route)
            ends[frame.route.number] = frame.last
        for number, route in sorted(routes.items()):
            fed = route.members & self.cluster & ~self.guard.not_in(route) & ~(1 << self.node)
            branch = Branch(route, None, (), ends[number])
            branch.covered = branch.acked = route.start - 1
            branch.end = ends[number]
            branch.direct = True
            branch.feed(tuple(members_of(fed)))
            inbox.add_branch(branch)
            if branch.children:
                self.marks["fed as an heir"] += 1
                self._expect_acks(stream, branch, now)
                self._probe(stream, branch, now)
        inbox.oldest = min(inbox.frames, default=inbox.stable + 1)  # we keep what the routes had
        self._touch(inbox, now)

    def on_stable(self, news: Stable, sender: NodeId, now: Time) -> None:
        """An heir may learn from what its publisher said last that everyone has the stream."""
        inbox = self.inboxes.get(news.stream)
        if news.stream in self.bequests and inbox is not None:
            if news.seq > inbox.stable:
                inbox.forget(news.seq)
            self._feed_if_complete(inbox, now)
            return
        super().on_stable(news, sender, now)
        if news.stream in self.inherited:
            inbox = self.inboxes.get(news.stream)
            if inbox is not None:
                self._touch(inbox, now)
            else:
                self._tell_settled(news.stream, self.inherited.pop(news.stream), now)

    def flush(self, now: Time) -> None:
        """See how far those are whom we feed in a dead publisher's place; then as ever."""
        if self.inherited:
            for stream in [stream for stream in self.inherited if stream in self.dirty]:
                self._advance_inherited(self.dirty.pop(stream), now)
        super().flush(now)

    def _advance_inherited(self, inbox: Inbox, now: Time) -> None:
        """See whether everyone has what we inherited; then all may forget it."""
        if inbox.stream in self.bequests:
            return
        for number, branch in sorted(inbox.branches.items()):
            covered = branch.cover(inbox.consumed if self.taking else branch.have)
            covered = max(covered, inbox.stable)
            assert branch.end is not None
            if covered < branch.end:
                return
            del inbox.branches[number]
            self.unacked.pop((inbox.stream, number), None)
        self.marks["settled an inheritance"] += 1
        self._tell_settled(inbox.stream, self.inherited.pop(inbox.stream), now)

    def _tell_settled(self, stream: Stream, end: Seq, now: Time) -> None:
        """Everyone has what we inherited: tell them, and forget it."""
        self.inherited[stream] = end
        self.settle(stream, end, now)

    def settle(self, stream: Stream, end: Seq, now: Time) -> bool:
        """Everyone has a dead stream up to its end: keep two numbers of it.

        True if we have not: its publisher had gone on without us, and nobody can tell us any more.
        """
        self.bequests.pop(stream, None)
        if self.inherited.pop(stream, None) is not None:  # also if the heir before us says so
            news = Settled(self.topic, stream, end, self.epoch)
            for peer in members_of(self.cluster & ~(1 << self.node)):
                self.links.send(peer, news, now)
        inbox = self.inboxes.get(stream)
        if stream in self.losses:
            self.heirs.pop(stream, None)
            return False  # as soon as that is skipped
        if inbox is not None:
            self._drop(inbox)
        self.floor[stream] = max(end, self.floor.get(stream, -1))
        self.heirs.pop(stream, None)
        self._skip_lost(stream, now)
        self._tidy(stream)
        self._wake_waiters(stream, now)
        return self.taking and self.front.delivered.get(stream, -1) < end

    def _tidy(self, stream: Stream) -> None:
        """Of a dead stream of which no more will come, keep how far it went, as long as needed.

        Its end is then at or below what is delivered here; who reads nothing counts it as such.
        """
        if stream in self.inboxes or stream in self.heirs:
            return
        delivered = self.front.delivered
        if self.absent:
            end = max(self.finals.get(stream, -1), self.ends.get(stream, -1))
            if end > delivered.get(stream, -1):
                delivered[stream] = end
        done = delivered.get(stream, -1)
        for ends in (self.finals, self.ends):
            if stream in ends and ends[stream] <= done:
                end = max(ends.pop(stream), self.floor.get(stream, -1))
                if end >= 0:
                    self.floor[stream] = end
        if stream not in self.finals and stream not in self.ends:
            self.lost_routes.pop(stream, None)
            if stream not in self.superseded and stream not in self.over:
                told = self.told_over.pop(stream, UNDATED)
                self.over[stream] = self.ended.get(stream.life, told)

    def tidy(self) -> None:
        """Keep no more than is needed of every dead stream of which no more will come."""
        known = {
            **self.front.delivered,
            **self.floor,
            **self.finals,
            **self.ends,
            **self.lost_routes,
        }
        for stream in known:
            if not self.guard.is_live(stream):
                self._tidy(stream)

    def forget_others(self) -> None:
        super().forget_others()
        self.tidy()

    def lose_children(self, dead: int) -> None:
        """Pass nothing on to nodes that are gone; whoever was below them their publisher feeds."""
        for inbox in self.inboxes.values():
            for branch in inbox.branches.values():
                if branch.parent is not None and branch.route.epoch < self.epoch:
                    branch.lose(dead)  # a later route means the next owner of the slot
                    if branch.lost:
                        self.marks["lost a child"] += 1
                    if dead >> branch.parent & 1 and self.guard.is_live(inbox.stream):
                        self._drop_early(inbox, branch)
                        self.relayed[inbox.stream] = None

    def _drop_early(self, inbox: Inbox, branch: Branch) -> None:
        """Keep nothing that a dead parent sent ahead of its turn: it may have made that up.

        The publisher sends what is true of it again.
        """
        for first in [one for one in branch.early if one >= inbox.next]:
            del branch.early[first]
            inbox.frames.pop(first, None)
            self.marks["dropped what a dead relay sent early"] += 1
        inbox.kept = inbox.size()

    def lose_members(self, dead: int, now: Time) -> None:
        """Go on without some members: feed what was under way in trees with them directly."""
        for leaver in members_of(dead):
            self.laggards.forget(leaver)
            self.leavers.pop(leaver, None)
        self.route_members = -1
        self.gone |= dead
        inbox = self.inboxes.get(self.own)
        if inbox is None:
            return  # whoever did not hear what is stable asks (`expect_news`)
        for branch in list(inbox.branches.values()):
            if branch.route.members & dead:
                branch.without |= dead
                if branch.low_covered < branch.have:
                    self.marks["fed directly"] += 1
                self._feed_directly(inbox, branch, now)
        self._touch(inbox, now)

    def begin(self, cut: dict[Stream, Seq], now: Time) -> None:
        self.began = self.epoch
        super().begin(cut, now)
        for stream in [one for one in cut if one.generation]:
            self._supersede(stream)  # somebody may not have forgotten the one before
        self.tidy()
        self.told_over = {one: at for one, at in self.told_over.items() if self._is_pending(one)}
        for stream, end in self.finals.items():
            over = self.front.delivered.get(stream, -1) >= end
            if over and stream in self.heirs and stream not in self.inherited:
                if stream in self.inboxes:
                    self.marks["began above an inheritance"] += 1
                    self._drop(self.inboxes[stream])
                self.floor[stream] = max(end, self.floor.get(stream, -1))

    def pass_by(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Do not begin after all: nothing that the cut covers was promised, or will come."""
        self.front.raise_to(cut)
        self.expecting = False
        self.stop(now)
        self.tidy()

    # -- what others published in a view that we were not in ---------------------------------------

    def hear_end(self, stream: Stream, last: Seq, now: Time, apart: int) -> None:
        """A node that comes back says how far a stream of its view went: what we lack is lost.

        It has been apart since view `apart`.  If we remember less than that, a stream that we do
        not know may be one that we have read and forgotten: nothing can be said of it.  Of one
        whose publisher has begun anew since we had everything.
        """
        superseded = self.latest.get(stream.life, 0) > stream.generation
        if stream not in self.front.delivered and (superseded or apart <= self.forgotten):
            self.marks["end of a stream that may be forgotten"] += 1
            self.front.delivered[stream] = self.floor[stream] = last
        elif last > max(self.ends.get(stream, -1), self.front.delivered.get(stream, -1)):
            self.ends[stream] = last
            self._skip_lost(stream, now)
        self.over.pop(stream, None)
        self._tidy(stream)
        if stream in self.over:
            self.over[stream] = self.epoch  # since now it is known here how far it went

    def _skip_lost(self, stream: Stream, now: Time) -> None:
        """Report what was published in another view, once we have what our own view agreed on."""
        last = self.ends.get(stream, -1)
        done = self.front.delivered.get(stream, -1)
        if last <= done:
            return
        if done < self.finals.get(stream, -1) or stream in self.inboxes:
            self.marks["end of another view waits"] += 1
            return
        self.front.delivered[stream] = last
        if self.taking:
            self.marks["gap by the end of another view"] += 1
            self.port.gap(self.topic, {stream: (done + 1, last)})
        self._wake_waiters(stream, now)

    def return_from(self, former: RecoveringTopic, apart: int) -> None:
        """Carry over what was read in another view, and what was known to be lost there.

        We have been apart since view `apart`: how far streams went that ended since, the others
        learn as we come back.

        What we publish from now on comes after all of that.  Nobody waits for it in vain: what the
        dead published was announced when we were admitted (`hear_end`), the living have the rest.
        """
        delivered = {s: seq for s, seq in former.front.delivered.items() if seq >= 0}
        if former.next_seq:
            delivered[former.own] = former.next_seq - 1
        self.front.delivered = delivered
        self.front.frontier = dict(delivered)
        self.latest = dict(former.latest)
        self.superseded = dict(former.superseded)
        for stream, seq in delivered.items():
            if not self.guard.is_live(stream):  # all were told as we came back, and jump over it
                self.floor[stream] = seq
                ended = former.over.get(stream, apart)
                self.over[stream] = ended if ended < apart else self.epoch
        self.forgotten = former.forgotten
        for known in (former.finals, former.ends):
            for stream, seq in known.items():
                if seq >= 0 and not self.guard.is_live(stream):  # a publisher that lives is asked
                    self.marks["brought an end along"] += 1
                    self.ends[stream] = max(seq, self.ends.get(stream, -1))

    def drop_unknown(self, before: Collection[Stream], known: Collection[Stream]) -> None:
        """Every node has said what it has of the topic: what none of them has is over for everyone.

        `before` is what our publications depended on when we asked.  A publisher names its stream
        while anything of it is under way, and whoever has read of it does, until it forgets the
        topic.  So nothing needs to come after such a stream, and nobody could wait for it.
        """
        for stream in before:
            here = stream in self.inboxes or stream == self.own
            if stream not in known and not here and self.guard.is_live(stream):
                self.marks["depends no more on what is forgotten"] += 1
                self._forget_stream(stream)

    def vector(self) -> dict[Stream, Seq]:
        """All that is delivered here or will be: own publications and the ends of dead streams."""
        vector = super().vector()
        for known in (self.finals, self.ends):
            for stream, seq in known.items():
                if seq > vector.get(stream, -1):
                    vector[stream] = seq
        return vector
