"""One topic at one node of the production protocol, put together from its parts.

Theory of operation.  A publisher numbers its frames without holes and sends each down the tree of
its current *route* (`Outgoing`).  Every receiver passes a frame on when it first sees it
(`Incoming`), holds it until its turn and its barrier allow delivery (`Delivery`), and keeps it
until it is *stable*.  Acknowledgements climb the same tree (`Acks`); a silent child is sent what it
lacks (`Repair`).  Stable frames are forgotten.

A part is given the parts that stand before it and knows nothing of those after it:

    Context, TopicGuard                    names, settings, ways out; checks of peers' messages
    Reading, DeadStreams, History          whether to read; dead streams; streams that are over
    AckQueue, Repair                       streams to acknowledge; children to ask again
    StreamTable                            the state of each stream
    Delivery                               order
    Outgoing, Holdings, Settlement         the own stream; reports and ends of dead ones
    Inheritance                            feeding in a dead publisher's place
    Recovery, Incoming, Acks, Claims       views, frames, acknowledgements, doubts

The parts state their invariants.  Of the whole topic these hold:

1. Sent and not stable is at most `Config.window` per stream, at the publisher by its credit and at
   each receiver because a frame's number and its `stable` are at most a window apart.
2. All output goes through the port and the links of `Context`, in the step that causes it.
3. No part changes the attributes of another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from cubecast.protocol.cluster.horizon import Horizon
from cubecast.protocol.port import Load, Seq, Stream, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.acks import Acks
from cubecast.protocol.topic.claims import Claims
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.history import History
from cubecast.protocol.topic.holdings import Holdings
from cubecast.protocol.topic.incoming import Incoming
from cubecast.protocol.topic.inheritance import Inheritance
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.recovery import Recovery
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.settlement import Settlement
from cubecast.protocol.topic.stream_table import StreamTable


class TopicCore:
    """One topic at one node; `Membership` says when it takes messages and from which cut."""

    guard_class: ClassVar[type[TopicGuard]] = TopicGuard
    repair_class: ClassVar[type[Repair]] = Repair
    streams_class: ClassVar[type[StreamTable]] = StreamTable
    delivery_class: ClassVar[type[Delivery]] = Delivery
    outgoing_class: ClassVar[type[Outgoing]] = Outgoing
    inheritance_class: ClassVar[type[Inheritance]] = Inheritance
    recovery_class: ClassVar[type[Recovery]] = Recovery
    incoming_class: ClassVar[type[Incoming]] = Incoming
    acks_class: ClassVar[type[Acks]] = Acks

    __slots__ = (
        "acks",
        "claims",
        "context",
        "dead",
        "delivery",
        "front",
        "guard",
        "history",
        "holdings",
        "incoming",
        "inheritance",
        "outgoing",
        "queue",
        "reading",
        "recovery",
        "repair",
        "settlement",
        "streams",
        "topic",
    )

    def __init__(self, context: Context, incarnation: int) -> None:
        self.context = context
        self.topic = context.topic
        self.reading = reading = Reading()
        self.dead = dead = DeadStreams()
        self.history = history = History(context)
        self.guard = guard = self.guard_class(context, dead.heirs)
        self.queue = queue = AckQueue(context)
        self.repair = repair = self.repair_class(context, dead)
        self.streams = streams = self.streams_class(
            context, guard, reading, dead, history, queue, repair
        )
        self.front = streams.front
        self.delivery = delivery = self.delivery_class(context, streams, reading, dead, queue)
        self.outgoing = outgoing = self.outgoing_class(
            context, incarnation, streams, delivery, reading, queue, repair
        )
        self.holdings = holdings = Holdings(context, streams, reading, dead, history)
        self.settlement = settlement = Settlement(
            context, streams, delivery, reading, dead, history
        )
        self.inheritance = inheritance = self.inheritance_class(
            context, guard, streams, reading, dead, queue, repair, outgoing, holdings, settlement
        )
        self.recovery = self.recovery_class(
            context, streams, delivery, reading, dead, history, repair, settlement, inheritance
        )
        self.incoming = self.incoming_class(
            context, guard, streams, delivery, reading, dead, queue, repair, settlement, inheritance
        )
        self.acks = self.acks_class(
            context, streams, reading, dead, queue, repair, outgoing, inheritance
        )
        self.claims = Claims(context, guard, streams, delivery, outgoing)

    # -- time --------------------------------------------------------------------------------------

    def on_wake(self, now: Time) -> Time | None:
        """Do what is due; return the time of the next due work."""
        inheritance, delivery, queue = self.inheritance, self.delivery, self.queue
        outgoing, repair, incoming = self.outgoing, self.repair, self.incoming
        if inheritance.ask_at is not None and inheritance.ask_at <= now:
            inheritance.ask_holders(now)
        if delivery.doubt_at is not None and delivery.doubt_at <= now:
            self.claims.doubt_waits(now)
        if queue.flush_at is not None and queue.flush_at <= now:
            self.acks.flush(now)
        if outgoing.tell_at is not None and outgoing.tell_at <= now:
            outgoing.tell_stable(now)
        if repair.repair_at is not None and repair.repair_at <= now:
            self.acks.ask_due(now)
        laggards = outgoing.laggards
        if laggards.check_at is not None and laggards.check_at <= now:
            outgoing.reconsider_leaves(now)
        if incoming.inquire_at is not None and incoming.inquire_at <= now:
            incoming.inquire(now)
        planned = (
            inheritance.ask_at,
            delivery.doubt_at,
            queue.flush_at,
            outgoing.tell_at,
            repair.repair_at,
            laggards.check_at,
            incoming.inquire_at,
        )
        return min((at for at in planned if at is not None), default=None)

    # -- calls of the membership -------------------------------------------------------------------

    def begin(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Take messages from `cut` on: nothing at or below it, everything above it."""
        self.delivery.begin(cut, now)
        self.recovery.begin(cut)

    def pass_by(self, cut: dict[Stream, Seq], now: Time) -> None:
        """Give up a join: nothing that the cut covers was promised, or will come."""
        self.front.raise_to(cut)
        self.reading.give_up()
        self.delivery.stop(now)
        self.settlement.tidy_all()

    def forget_others(self) -> None:
        """Drop what is kept of others' streams: no node relies on this one any more.

        Everything addressed to this node is here and stable, so the floor is the last it has.
        """
        own, streams = self.outgoing.own, self.streams
        for inbox in [inbox for inbox in streams.inboxes.values() if inbox.stream != own]:
            streams.drop(inbox)
        self.settlement.tidy_all()

    def return_from(self, former: TopicCore, apart: int) -> None:
        """Carry over what was read in another view, since view `apart` (`Recovery.return_with`)."""
        delivered = {s: seq for s, seq in former.front.delivered.items() if seq >= 0}
        if former.outgoing.next_seq:
            delivered[former.outgoing.own] = former.outgoing.last
        self.recovery.return_with(delivered, former.recovery, apart)

    def drop_unknown(self, before: Collection[Stream], known: Collection[Stream]) -> None:
        """Depend no more on streams that no node knows (`Recovery.drop_unknown`)."""
        self.recovery.drop_unknown(before, known, self.outgoing.own)

    def reached_since(self, since: int, apart: int) -> dict[Stream, Seq]:
        """How far we came in streams that concern a node that asks or is told (`History.since`)."""
        return self.history.since(self.vector(), since, apart)

    # -- calls of the node -------------------------------------------------------------------------

    def enter_view(self, dead: int) -> None:
        """Go over to the next view, without the nodes `dead`."""
        self.outgoing.enter_view()
        self.streams.forget_trees()
        if dead:
            self.recovery.lose_children(dead)

    def remember(self, horizon: Horizon) -> None:
        """Forget the streams that are over and that no node that may come back asks for."""
        for stream in self.history.outdated(horizon):
            self.streams.forget(stream)

    # -- state -------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: no frame, no duty to others, no end of a dead stream.

        A suspended subscriber joins again, and asks then how far our stream went without it.
        """
        outgoing = self.outgoing
        return not (
            self.streams.inboxes
            or outgoing.leavers
            or outgoing.laggards.suspended
            or self.dead
            or outgoing.refused
            or self.reading.expecting
        )

    def vector(self) -> dict[Stream, Seq]:
        """How far each stream is delivered here or will be; causally closed.

        With own publications and the ends of dead streams.
        """
        vector = dict(self.front.delivered)
        if self.outgoing.next_seq:
            vector[self.outgoing.own] = self.outgoing.last
        for stream, seq in self.dead.promised():
            if seq > vector.get(stream, -1):
                vector[stream] = seq
        return vector

    def over(self, streams: Iterable[Stream]) -> set[Stream]:
        """Those of the streams known here once of which no more will be delivered here.

        They are settled, or forgotten since.
        """
        vector, is_settled = self.vector(), self.history.is_settled
        return {one for one in streams if one not in vector or is_settled(one)}

    def load(self) -> Load:
        """Held and retained, and the bound of invariant 1."""
        inboxes = self.streams.inboxes.values()
        held = sum(inbox.held() for inbox in inboxes)
        size = sum(inbox.size() for inbox in inboxes)
        return Load(held, size - held, self.context.config.window * len(inboxes))
