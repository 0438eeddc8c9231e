"""Causal order at one node for one topic: barriers in, barriers out.

[J] section 3.2 orders messages by *causal barriers*: a message names its direct predecessors and
is delivered after them (Algorithm 2, lines 83-94).  Sequence numbers without holes make two
things simpler than in the paper: "delivered" is one number per stream, and a barrier needs at
most one entry per stream.

Invariants:

1. `delivered` is causally closed: every predecessor of a delivered message is delivered, or lies
   at or below the cut the node started from.
2. `frontier` are the direct predecessors of the next own message: delivered since the last own
   message and not implied by another of them ([J] lines 21-22 and 89).
3. An inbox is in `_waiting` once, under one stream its head frame waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.messages import Barrier, Frame
from cubecast.protocol.port import Seq, Stream
from cubecast.protocol.topic.streams import Inbox


class CausalFront:
    """The messages delivered here, and those that the next publication depends on.

    `is_over` says of a stream that a frame names whether nothing more of it will be delivered here:
    then there is nothing to wait for, and nothing has to be kept of it.
    """

    __slots__ = ("_waiting", "delivered", "frontier", "is_over")

    def __init__(self, is_over: Callable[[Stream], bool]) -> None:
        self.delivered: dict[Stream, Seq] = {}
        self.frontier: dict[Stream, Seq] = {}
        self.is_over = is_over
        self._waiting: dict[Stream, list[Inbox]] = {}

    def ready(self, inbox: Inbox, barrier: Barrier) -> bool:
        """Whether `inbox` may deliver a frame with `barrier` ([J] lines 90-94).

        If not, the inbox is filed under a stream that must advance first.  Entries found delivered
        stay so, hence the next look begins where this one stopped.
        """
        delivered = self.delivered
        for index in range(inbox.checked, len(barrier)):
            stream, seq = barrier[index]
            if delivered.get(stream, -1) < seq and not self.is_over(stream):
                inbox.checked = index
                if not inbox.waiting:
                    inbox.waiting = True
                    self._waiting.setdefault(stream, []).append(inbox)
                return False
        inbox.checked = 0
        return True

    def deliver(self, frame: Frame) -> None:
        """Account for a delivery ([J] lines 88-89)."""
        self.delivered[frame.stream] = frame.last
        frontier = self.frontier
        for stream, seq in frame.barrier:
            if frontier.get(stream, seq + 1) <= seq:
                del frontier[stream]
        frontier[frame.stream] = frame.last

    def publish(self, own: Stream, last: Seq) -> None:
        """Account for an own message: the next one depends on it alone ([J] line 22)."""
        self.delivered[own] = last
        self.frontier.clear()

    def barrier(self) -> Barrier:
        """The barrier of the next own frame ([J] line 21)."""
        return tuple(self.frontier.items())

    def raise_to(self, cut: dict[Stream, Seq]) -> None:
        """Begin at `cut`, or further where this node has been further before."""
        delivered = self.delivered
        for stream, seq in cut.items():
            if delivered.get(stream, -1) < seq:
                delivered[stream] = seq

    def jump(self, stream: Stream, seq: Seq) -> None:
        """Count a stream as delivered up to `seq`: nothing up to there will come any more."""
        self.delivered[stream] = seq

    def retract(self, stream: Stream, last: Seq) -> None:
        """Take back deliveries above `last`: these messages were never published."""
        self.delivered[stream] = last
        if last < 0:
            del self.delivered[stream]
        if self.frontier.get(stream, -1) > last:
            del self.frontier[stream]

    def depend_on_nothing(self) -> None:
        """Have the next own message depend on nothing: everyone has what was delivered."""
        self.frontier.clear()

    def return_with(self, delivered: dict[Stream, Seq]) -> None:
        """Begin with what was read in another view: the next own message comes after all of it."""
        self.delivered = delivered
        self.frontier = dict(delivered)

    def is_awaited(self, stream: Stream) -> bool:
        """Whether an inbox waits for `stream`."""
        return bool(self._waiting.get(stream))

    def woken_by(self, stream: Stream) -> list[Inbox]:
        """The inboxes that waited for `stream`."""
        woken = self._waiting.pop(stream, None)
        if woken is None:
            return []
        for inbox in woken:
            inbox.waiting = False
        return woken

    def forget(self, stream: Stream) -> None:
        """Keep nothing of a stream that is over."""
        self.delivered.pop(stream, None)
        self.frontier.pop(stream, None)

    def waiting(self) -> list[Inbox]:
        """The inboxes whose head frame waits for another stream."""
        return [inbox for inboxes in self._waiting.values() for inbox in inboxes]

    def stop_waiting_of(self, inbox: Inbox) -> None:
        """End the wait of an inbox: its next frame may be another one with other causes."""
        if inbox.waiting:
            for inboxes in self._waiting.values():
                if inbox in inboxes:
                    inboxes.remove(inbox)
        inbox.waiting = False
        inbox.checked = 0

    def pass_over(self, inbox: Inbox) -> None:
        """Pass over a cause that does not exist: go on with the rest of the barrier."""
        checked = inbox.checked + 1
        self.stop_waiting_of(inbox)
        inbox.checked = checked

    def stop_waiting(self) -> None:
        """End all waits: nothing is delivered here any more."""
        for inboxes in self._waiting.values():
            for inbox in inboxes:
                inbox.waiting = False
                inbox.checked = 0
        self._waiting.clear()
