"""Recovery of one topic when nodes die: their streams, and what passed through them.

Theory of operation.  Before a view without some nodes is agreed on, every survivor *freezes* the
streams of those nodes (`Delivery.freeze`): it delivers nothing more of them and reports what it has
(`Holdings`).  The new view names an end for each such stream and an *heir*, a survivor that holds
everything up to it.  Messages above the end are dropped.  The heir takes the dead publisher's place
(`Inheritance`).  Streams that end are settled (`Settlement`).

Live streams do not stop.  A publisher whose route led through a dead node gives up the tree and
feeds what is under way in it to all its subscribers itself, as it does for laggards
(`Outgoing.lose_members`).

Invariants:

1. Between a report and the next view nothing of a frozen stream is delivered.
2. Every subscriber that stays delivers a dead stream up to its end, or skips what no node has
   (`Settlement.skip_losses`), and no node delivers anything above the end.  A subscriber that the
   publisher had suspended joins again (`Membership.cut_off`).
3. A relay never counts a dead child as served: only the publisher may give up its tree.
4. A node's answer to a JOIN contains the ends of dead streams, whether it has got there or not:
   they are causally closed together with what living publishers answer about themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from cubecast.protocol.cluster.views import Final
from cubecast.protocol.port import Seq, Stream, Time
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.history import History
from cubecast.protocol.topic.inheritance import Inheritance
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.settlement import Settlement
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Inbox


class Recovery:
    """The part of one topic at one node that handles a change of the view."""

    __slots__ = (
        "_context",
        "_dead",
        "_delivery",
        "_front",
        "_history",
        "_inheritance",
        "_reading",
        "_relayed",
        "_repair",
        "_settlement",
        "_streams",
    )

    def __init__(
        self,
        context: Context,
        streams: StreamTable,
        delivery: Delivery,
        reading: Reading,
        dead: DeadStreams,
        history: History,
        repair: Repair,
        settlement: Settlement,
        inheritance: Inheritance,
    ) -> None:
        self._context = context
        self._streams = streams
        self._front = streams.front
        self._delivery = delivery
        self._reading = reading
        self._dead = dead
        self._history = history
        self._repair = repair
        self._settlement = settlement
        self._inheritance = inheritance
        self._relayed: dict[Stream, None] = {}  # live streams whose relay has died

    # -- the ends of dead streams ------------------------------------------------------------------

    def end_stream(self, final: Final, now: Time) -> bool:
        """Take over the end of a dead stream; True if this node has to jump."""
        stream, dead, marks = final.stream, self._dead, self._context.marks
        self._history.reopen(stream)
        self._inheritance.disown(stream)
        if dead.heirs.get(stream, final.heir) != final.heir:
            marks["heir died"] += 1
        if self._needs_nothing_of(stream):
            marks["end of what we had forgotten"] += 1
            self._streams.jump(stream, final.seq)
        if self._lost_elsewhere(final):
            marks["end known from another view"] += 1
            done = self._front.delivered.get(stream, -1)
            final = Final(stream, done, final.heir, done)
        dead.end(stream, final.seq, final.heir)
        inbox = self._streams.inboxes.get(stream)
        if inbox is not None:
            inbox.end()
            self.drop_above(inbox, final.seq)
        lacking = self._reading.taking and self._counted(stream) < final.base
        if final.base >= final.seq and not (lacking and final.after):
            return self._inheritance.settle(stream, final.seq, now)  # no node has anything to send
        if final.heir == self._context.node:
            self._inheritance.inherit(final, now)
            self._delivery.resume(stream, now)
            return False
        if inbox is not None:
            for branch in inbox.branches.values():
                branch.parent = final.heir
                branch.feed(())
                self._repair.give_up(stream, branch)
        if lacking and not final.after:
            return True
        if lacking:
            self._settlement.expect_loss(final)
        self._delivery.resume(stream, now)
        return False

    def _counted(self, stream: Stream) -> Seq:
        """How far we are, counting what we are to skip."""
        loss = self._dead.losses.get(stream)
        return loss.last if loss is not None else self._front.delivered.get(stream, -1)

    def _needs_nothing_of(self, stream: Stream) -> bool:
        """Whether a dead stream was over here, or before we came, and others do not know yet."""
        known = self._front.delivered.get(stream, -1), self._streams.floor.get(stream, -1)
        if max(known) >= 0 or stream in self._streams.inboxes or stream in self._dead.heirs:
            return False
        if self._history.is_superseded(stream):
            return True
        known_from = max(self._reading.began, self._history.forgotten)
        return self._context.view.ended.get(stream.life, -1) <= known_from

    def _lost_elsewhere(self, final: Final) -> bool:
        """Whether no node holds what we lack, and all of it was published in another view.

        The cut of a node covers it, so that node counts it as read.  We have what our own views
        agreed on, and know how far the other view went (`hear_end`): we skip that, and need no
        jump.
        """
        stream, done = final.stream, self._front.delivered.get(final.stream, -1)
        agreed = self._dead.finals.get(stream)
        return (
            agreed is not None
            and agreed <= done < final.seq <= final.base
            and final.seq <= self._dead.ends.get(stream, -1)
        )

    def drop_unreported(self, ended: set[Stream], now: Time) -> None:
        """Discard what came of dead streams after we had reported nothing of them.

        No node reported such a stream, so every node has all of it that any node has delivered.
        """
        streams, is_live = self._streams, self._context.view.is_live
        for stream in [stream for stream in streams.inboxes if not is_live(stream)]:
            if stream not in ended:
                inbox = streams.inboxes[stream]
                self._context.marks["unreported dropped"] += 1
                self.drop_above(inbox, self._front.delivered.get(stream, -1))
                floor = inbox.stable
                streams.drop(inbox)
                streams.close_at(stream, floor)
        for stream in [stream for stream in self._dead.heirs if stream not in ended]:
            # Its heir died with what we were to get: no node that is left has any of it.
            self._context.marks["heir died with the rest"] += 1
            self._dead.end_without_heir(stream, self._front.delivered.get(stream, -1))
            self._settlement.skip_ends(stream, now)
        self._settlement.tidy_all()

    def drop_above(self, inbox: Inbox, end: Seq) -> None:
        """Discard what lies above the end of a dead stream, and say so."""
        dropped = inbox.cut_above(end)
        if dropped:
            self._context.marks["dropped above an end"] += 1
        for number, branch in list(inbox.branches.items()):
            if branch.route.start > end:  # else it would claim what lies before its first frame
                self._streams.close_branch(inbox, number)
            else:
                branch.end_at(end)
        if dropped and self._reading.taking:
            first = min(frame.first for frame in dropped)
            last = max(frame.last for frame in dropped)
            self._context.port.discard(self._context.topic, {inbox.stream: (first, last)})

    # -- what passed through the dead --------------------------------------------------------------

    def lose_children(self, dead: int) -> None:
        """Pass nothing on to nodes that are gone; the publisher feeds the nodes below them.

        Frames that a dead parent sent ahead of their turn are dropped: it may have made them up.
        The publisher sends the true ones again.
        """
        view, marks = self._context.view, self._context.marks
        for inbox in self._streams.inboxes.values():
            for branch in inbox.branches.values():
                if branch.parent is None or branch.route.epoch >= view.epoch:
                    continue  # a later route means the next owner of the slot
                branch.lose(dead)
                if branch.lost:
                    marks["lost a child"] += 1
                if dead >> branch.parent & 1 and view.is_live(inbox.stream):
                    early = inbox.drop_early(branch)
                    if early:
                        marks["dropped what a dead relay sent early"] += early
                    self._relayed[inbox.stream] = None

    def relayed_by_dead(self) -> list[Stream]:
        """The open streams whose relay is gone, if this node takes messages; told once."""
        relayed, self._relayed = self._relayed, {}
        taking = self._reading.taking
        return [stream for stream in relayed if stream in self._streams.inboxes and taking]

    def look_again(self, now: Time) -> None:
        """Check all waiting messages again after a change of the view."""
        self._delivery.look_again(now)
        self._settlement.skip_losses(now)

    # -- a cut, and the dead below it --------------------------------------------------------------

    def begin(self, cut: Collection[Stream]) -> None:
        """Begin to take messages at a cut: what it covers of dead streams is over here."""
        for stream in [one for one in cut if one.generation]:
            self._streams.supersede(stream)  # a node may still know the generation before
        self._settlement.tidy_all()
        history, dead, streams = self._history, self._dead, self._streams
        history.keep_told([one for one in history.told_over if streams.is_pending(one)])
        for stream, end in dead.finals.items():
            over = self._front.delivered.get(stream, -1) >= end
            if over and stream in dead.heirs and stream not in dead.inherited:
                if stream in streams.inboxes:
                    self._context.marks["began above an inheritance"] += 1
                    streams.drop(streams.inboxes[stream])
                streams.raise_floor(stream, end)

    def drop_unknown(
        self, before: Collection[Stream], known: Collection[Stream], own: Stream
    ) -> None:
        """Forget streams that no node named in its answer: they are over for everyone.

        `before` is what our publications depended on when we asked.  A publisher names its stream
        while anything of it is under way, and every node that has read of it names it until it
        forgets the topic.  So our messages need not depend on such a stream, and no node could wait
        for it.
        """
        for stream in before:
            here = stream in self._streams.inboxes or stream == own
            if stream not in known and not here and self._context.view.is_live(stream):
                self._context.marks["depends no more on what is forgotten"] += 1
                self._streams.forget(stream)

    # -- what others published in a view that we were not in ---------------------------------------

    def hear_end(self, stream: Stream, last: Seq, now: Time, apart: int) -> None:
        """Note how far a stream went in the view of a node that comes back: what we lack is lost.

        That node has been apart since view `apart`.  If our memory does not reach back so far, an
        unknown stream may be one that we have read and forgotten: then we report no gap.  Nor do we
        for a stream whose publisher has begun anew since: we had all of it.
        """
        history, delivered = self._history, self._front.delivered
        forgotten = history.is_superseded(stream) or apart <= history.forgotten
        if stream not in delivered and forgotten:
            self._context.marks["end of a stream that may be forgotten"] += 1
            self._streams.jump(stream, last)
        elif last > max(self._dead.ends.get(stream, -1), delivered.get(stream, -1)):
            self._dead.hear_end(stream, last)
            self._settlement.skip_ends(stream, now)
        history.lift(stream)
        self._settlement.tidy(stream)
        history.date_anew(stream)

    def return_with(self, delivered: dict[Stream, Seq], former: Recovery, apart: int) -> None:
        """Carry over what was read in another view, and what was known to be lost there.

        We have been apart since view `apart`: the others learn how far streams went that ended
        since as we come back.

        What we publish from now on depends on all of that.  No node waits for it in vain: the ends
        of dead streams were announced when we were admitted (`hear_end`), living publishers have
        the rest.
        """
        is_live = self._context.view.is_live
        self._front.return_with(delivered)
        gone = [stream for stream in delivered if not is_live(stream)]
        for stream in gone:  # all nodes were told as we came back, and jump over it
            self._streams.close_at(stream, delivered[stream])
        self._history.return_from(former._history, gone, apart)
        for stream, seq in former._dead.promised():
            if seq >= 0 and not is_live(stream):  # a publisher that lives is asked
                self._context.marks["brought an end along"] += 1
                self._dead.hear_end(stream, seq)
