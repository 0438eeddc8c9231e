"""Acknowledgements in one topic: they climb the tree a frame came by, cumulative and gathered.

A child acknowledges when its whole subtree has consumed up to some number.  A child that is silent
is asked how far it is, and sent what it lacks (`Repair`).

Invariant: `Ack.covered` never exceeds what the node and all below it have consumed, so no node
needs again what a publisher calls stable.  Suspended subscribers are the exception; they learn of
it before they deliver anything more.
"""

from __future__ import annotations

from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import Ack, Probe
from cubecast.protocol.port import NodeId, Seq, Time
from cubecast.protocol.topic.ack_timing import AckQueue
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.inheritance import Inheritance
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.reading import Reading
from cubecast.protocol.topic.repair import Repair
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Branch, Inbox


class Acks:
    """The acknowledgements that one node sends and receives in one topic."""

    __slots__ = (
        "_config",
        "_inboxes",
        "_inheritance",
        "_inherited",
        "_node",
        "_outgoing",
        "_port",
        "_queue",
        "_reading",
        "_repair",
        "_topic",
    )

    def __init__(
        self,
        context: Context,
        streams: StreamTable,
        reading: Reading,
        dead: DeadStreams,
        queue: AckQueue,
        repair: Repair,
        outgoing: Outgoing,
        inheritance: Inheritance,
    ) -> None:
        self._topic = context.topic
        self._node = context.node
        self._port = context.port
        self._config = context.config
        self._inboxes = streams.inboxes
        self._reading = reading
        self._inherited = dead.inherited
        self._queue = queue
        self._repair = repair
        self._outgoing = outgoing
        self._inheritance = inheritance

    # -- upwards -----------------------------------------------------------------------------------

    def flush(self, now: Time) -> None:
        """Acknowledge every stream with news; advance our own stability.

        Streams that we feed as an heir come first.
        """
        if self._inherited:
            self._inheritance.flush(now)
        own, reading = self._outgoing.own, self._reading
        for stream, inbox in self._queue.take(now).items():
            if stream == own:
                self._outgoing.advance(inbox, now)
                continue
            for branch in inbox.branches.values():
                consumed = max(inbox.consumed, inbox.part)
                covered = branch.cover(consumed if reading.taking else self._passed(branch))
                if covered > branch.acked or branch.asked or branch.slow != branch.slow_told:
                    self._acknowledge(inbox, branch, covered)

    def _passed(self, branch: Branch) -> Seq:
        """How far a node that consumes nothing is: all it has, unless it is about to join."""
        return branch.have if self._reading.absent else -1

    def _acknowledge(self, inbox: Inbox, branch: Branch, covered: Seq) -> None:
        assert branch.parent is not None
        absent = branch.absent | (1 << self._node if self._reading.absent else 0)
        self._port.control(
            branch.parent,
            Ack(
                self._topic,
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

    def on_probe(self, probe: Probe, sender: NodeId, now: Time) -> None:
        """Tell the parent, which has not heard from us in time, how far we are; -1: nowhere."""
        inbox = self._inboxes.get(probe.stream)
        branch = inbox.branches.get(probe.route) if inbox is not None else None
        if inbox is not None and branch is not None:
            branch.asked = True
            self._queue.touch(inbox, now)
        else:
            nothing = Ack(self._topic, probe.stream, probe.route, -1, -1, 0, True)
            self._port.control(sender, nothing)

    # -- from below --------------------------------------------------------------------------------

    def on_ack(self, ack: Ack, sender: NodeId, now: Time) -> None:
        """Take in a child's report; it may let us report to our parent, or make frames stable."""
        stream = ack.stream
        inbox = self._inboxes.get(stream)
        branch = inbox.branches.get(ack.route) if inbox is not None else None
        if inbox is None or branch is None or sender not in branch.children:
            return  # a late copy about a route that is complete
        have, covered = ack.have, ack.covered
        if have > branch.have:
            if stream == self._outgoing.own and not branch.direct:  # else others may have fed lies
                raise ProtocolError(f"an ACK in {self._topic!r} of what was never sent")
            have, covered = branch.have, min(covered, branch.have)
        branch.absent |= ack.absent
        before = branch.low_covered
        if branch.heard(sender, have, covered):
            queue = self._queue
            branch.pause = self._config.resend_after
            if branch.low_covered >= branch.have:
                self._repair.give_up(stream, branch)
            elif branch.low_covered > before:  # otherwise a child is silent: do not put it off
                branch.resend_at = now + branch.pause
            waits = stream == self._outgoing.own and self._outgoing.refused
            if branch.hurries(sender, self._config.ack_pause, now) or waits:
                queue.pace.waited_for(now)
                queue.hasten(now)
            if branch.low_covered > branch.covered and stream not in queue.dirty:
                queue.touch(inbox, now)
        slow = ack.slow & branch.route.members
        if slow & ~branch.slow or (slow and branch.parent is None):
            self._outgoing.on_slow(inbox, branch, slow, now)
        if ack.asked and have < branch.have and sender in branch.children:
            self._repair.resend(inbox, branch, sender)

    def ask_due(self, now: Time) -> None:
        """Ask in every route whose time has come."""
        for inbox, branch in self._repair.due(self._inboxes, now):
            self._outgoing.ask(inbox, branch, now)
