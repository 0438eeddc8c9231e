"""Repair of lost frames: which children a node asks how far they are, when, and what it resends.

Every frame that is sent and not stable is kept by each node that may have to send it again.  A
child that is silent for `Config.resend_after` is asked, ever more seldom, and sent what its answer
says that it lacks.  Nothing is sent again on suspicion alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cubecast.protocol.port import NodeId, Stream, Time
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.dead_streams import DeadStreams
from cubecast.protocol.topic.streams import Branch, Inbox


class Repair:
    """The routes whose children have not acknowledged all that was sent to them.

    `repair_at` is no later than the `resend_at` of any of them.
    """

    __slots__ = ("_context", "_inherited", "repair_at", "unacked")

    def __init__(self, context: Context, dead: DeadStreams) -> None:
        self._context = context
        self._inherited = dead.inherited
        self.unacked: dict[tuple[Stream, int], Branch] = {}
        self.repair_at: Time | None = None

    def expect(self, stream: Stream, branch: Branch, now: Time) -> None:
        """Expect the children of a route to acknowledge what was sent to them."""
        branch.pause = self._context.config.resend_after
        at = branch.resend_at = now + branch.pause
        self.unacked[stream, branch.route.number] = branch
        if self.repair_at is None or at < self.repair_at:
            self.repair_at = at
            self._context.plan(at)

    def forget(self, stream: Stream, route: int) -> None:
        """Forget a route that is closed: nothing has to be sent again in it."""
        self.unacked.pop((stream, route), None)

    def give_up(self, stream: Stream, branch: Branch) -> None:
        """Stop asking the children of a route: they have all, or another node feeds them."""
        branch.resend_at = None
        self.unacked.pop((stream, branch.route.number), None)

    def ask(self, inbox: Inbox, branch: Branch, now: Time) -> int:
        """Ask each silent child how far it is; its answer tells what to send again.

        Returns the children that have left too many questions unanswered, if that is news to the
        parent, or if there is none.
        """
        context = self._context
        config = context.config
        heir_of = context.view.epoch if inbox.stream in self._inherited else -1
        question = branch.question(context.topic, inbox.stream, inbox.stable, heir_of)
        for index, child in enumerate(branch.children):
            if branch.their_covered[index] < branch.have:
                context.port.control(child, question)
        branch.pause = min(2 * branch.pause, config.resend_max)
        branch.resend_at = now + branch.pause
        if not config.patience:
            return 0
        slow = branch.overdue(config.patience)
        return slow if slow & ~branch.slow or branch.parent is None else 0

    def resend(self, inbox: Inbox, branch: Branch, child: NodeId) -> None:
        """Send a child the frames of a route that it lacks, a burst at a time."""
        seq = max(branch.their_have[branch.children.index(child)], inbox.stable) + 1
        for _ in range(self._context.config.resend_burst):
            if seq > branch.have:
                break
            frame = inbox.frames.get(seq)
            if frame is None or frame.route.number != branch.route.number:
                break  # the child claims a part of a frame, or two frames have the number
            self._context.port.relay((child,), frame)
            seq = frame.last + 1

    def due(self, inboxes: Mapping[Stream, Inbox], now: Time) -> Iterator[tuple[Inbox, Branch]]:
        """The routes whose time has come, one after the other; at the end the next time is known.

        What the caller does with one may give up others, or end their streams.
        """
        self.repair_at = None
        for (stream, number), branch in list(self.unacked.items()):
            if branch.resend_at is None:
                continue  # it was given up while we went through them
            inbox = inboxes.get(stream)
            if inbox is None or branch.have <= inbox.stable:
                branch.resend_at = None  # the publisher knows more than our children told us
                self.forget(stream, number)
                continue
            if branch.resend_at <= now:
                yield inbox, branch
        deadlines = [branch.resend_at for branch in self.unacked.values()]
        self.repair_at = min((at for at in deadlines if at is not None), default=None)
