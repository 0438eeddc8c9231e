"""Claims about a publisher that may be lies, compared with what the publisher says itself.

A node learns about a publisher from relays, and from the nodes that answered its waves.  Each of
them may lie.  A living publisher knows how far it has published; this module acts on its answer
(`cubecast.protocol.subscriptions.questions` and the second wave of a JOIN ask for it).

Invariants:

1. A denied claim was made before its publisher was asked, so no honest claim is denied: a node
   reads a message only after it was published.
2. Nothing is denied silently (`Context.on_denied`, `TopicGuard.dropped`).
3. No message waits for ever for one of a living publisher that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubecast.protocol.port import Denial, NodeId, Seq, Stream, Time
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.delivery import Delivery
from cubecast.protocol.topic.guard import TopicGuard
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.streams import Inbox

DENIED = "a cut that its publisher denies"


class Claims:
    """The claims that one topic at one node refutes."""

    __slots__ = ("_context", "_delivery", "_front", "_guard", "_outgoing", "_streams")

    def __init__(
        self,
        context: Context,
        guard: TopicGuard,
        streams: StreamTable,
        delivery: Delivery,
        outgoing: Outgoing,
    ) -> None:
        self._context = context
        self._guard = guard
        self._streams = streams
        self._front = streams.front
        self._delivery = delivery
        self._outgoing = outgoing

    def above(
        self, vector: Mapping[Stream, Seq], own: Mapping[NodeId, tuple[Stream, Seq]]
    ) -> list[Stream]:
        """The live streams of which `vector` has more than their publishers say themselves.

        Without those of earlier generations: nothing more is published there, and other nodes may
        remember what the publisher has forgotten.  Without what is here: it was published.  Without
        views no node is known to live.
        """
        view, inboxes = self._context.view, self._streams.inboxes
        if view.cluster < 0:
            return []
        return [
            stream
            for stream, seq in vector.items()
            if seq > self.published(stream, own)
            and view.is_live(stream)
            and not self._is_earlier(stream, own)
            and (stream not in inboxes or inboxes[stream].reached() < seq)
        ]

    def published(self, stream: Stream, own: Mapping[NodeId, tuple[Stream, Seq]]) -> Seq:
        """The last message of a stream, as its publisher said; -1: it said nothing of it."""
        if stream == self._outgoing.own:
            return self._outgoing.last
        said = own.get(stream.source)
        return said[1] if said is not None and said[0] == stream else -1

    def _is_earlier(self, stream: Stream, own: Mapping[NodeId, tuple[Stream, Seq]]) -> bool:
        mine = stream.source == self._context.node
        said = (self._outgoing.own, 0) if mine else own.get(stream.source)
        return said is not None and said[0].generation > stream.generation

    def deny(self, stream: Stream, claimed: Seq, published: Seq, by: NodeId) -> None:
        """Count and report a claim that its publisher denies; `by`: the node that made it."""
        self._context.marks["denied a claim"] += 1
        self._guard.drop(DENIED)
        self._context.on_denied(Denial(self._context.topic, stream.source, claimed, published, by))

    def doubt_waits(self, now: Time) -> None:
        """Ask the publishers of messages that others have long waited for: they may not exist."""
        waiting = self._delivery.doubt_now()
        for inbox in waiting:
            if now - inbox.stuck[1] >= self._delivery.doubt_after:
                self._doubt(inbox, now)
        if waiting:
            self._delivery.doubt_later(now)

    def _doubt(self, inbox: Inbox, now: Time) -> None:
        cause = self._awaited(inbox)
        if cause is None:
            return
        stream, _ = cause
        if stream == self._outgoing.own:
            self.void_above(stream, self._outgoing.last, now, now)
        elif self._context.view.is_live(stream):
            self._context.marks["asked for what does not come"] += 1
            self._context.advisor.ask_publisher(stream, now)

    def _awaited(self, inbox: Inbox) -> tuple[Stream, Seq] | None:
        """The cause that the next message of a stream waits for since it was noted as stuck."""
        head = inbox.frames.get(inbox.next)
        if not inbox.waiting or head is None or head.first != inbox.stuck[0]:
            return None
        return head.barrier[inbox.checked]

    def void_above(self, stream: Stream, last: Seq, asked: Time, now: Time) -> None:
        """Stop waiting for messages above `last`, the last that a publisher has published.

        This holds for messages that waited when the publisher was `asked`: one that names more was
        made by a liar or by a node that was lied to, so its other causes are in doubt, too.
        """
        for inbox in self._front.waiting():
            denied = -1
            while (
                (cause := self._awaited(inbox)) is not None
                and cause[0] == stream
                and cause[1] > last
                and inbox.stuck[1] <= asked
            ):
                denied = cause[1]
                self._front.pass_over(inbox)
                self._delivery.drain(inbox, now)
            if denied >= 0:
                self.deny(stream, denied, last, inbox.stream.source)
                self._doubt(inbox, now)

    def retract(self, stream: Stream, last: Seq) -> None:
        """Forget what we have read of a stream above `last`: its publisher never published it.

        A relay made it up.  We have to join again, as we have acknowledged what came since.
        """
        self.deny(stream, self._front.delivered.get(stream, -1), last, -1)
        self._streams.retract(stream, last)
