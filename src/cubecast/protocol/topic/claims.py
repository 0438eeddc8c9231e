"""One topic among members that may lie: what others claim of a publisher, and what it says itself.

What a node knows of a publisher it was told by relays, and by those who answered its waves.  Each
may have made it up.  A publisher that lives is the one who knows how far it has published; here is
what follows from its word (`cubecast.protocol.subscriptions.questions` and the second wave of a
JOIN ask for it).

Invariants:

1. What is denied was claimed before its publisher was asked, so no honest claim is: whoever read a
   message read it after it was published.
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
    """What one topic at one node does not believe."""

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
        """Streams of the living of which `vector` has more than their publishers say themselves.

        Not those of earlier generations: nothing more is published there, and others may remember
        what the publisher has forgotten.  Not what is here: it was published.  Without views nobody
        is known to live.
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
        """Ignore what somebody claims of a publisher that denies it, and say so."""
        self._context.marks["denied a claim"] += 1
        self._guard.drop(DENIED)
        self._context.on_denied(Denial(self._context.topic, stream.source, claimed, published, by))

    def doubt_waits(self, now: Time) -> None:
        """Have publishers asked for what has been waited for for long: it may not exist."""
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
        """What the next message of a stream waits for, and has since it was noted as stuck."""
        head = inbox.frames.get(inbox.next)
        if not inbox.waiting or head is None or head.first != inbox.stuck[0]:
            return None
        return head.barrier[inbox.checked]

    def void_above(self, stream: Stream, last: Seq, asked: Time, now: Time) -> None:
        """A publisher has published up to `last`: nobody who waited as it was `asked` can wait for
        more; whoever named more was lied to, or lies.  What else such a message names is doubtful.
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
        """What we have read of a stream above `last` its publisher has never published.

        Somebody made it up who relayed it.  We have to join again, as we have told those who count
        on us that we have what came since.
        """
        self.deny(stream, self._front.delivered.get(stream, -1), last, -1)
        self._streams.retract(stream, last)
