"""One topic among members that may lie: what others claim of a publisher, and what it says itself.

What a node knows of a publisher it was told by relays, and by those who answered its waves.  Each
may have made it up.  A publisher that lives is the one who knows how far it has published; here is
what follows from its word (`cubecast.protocol.subscriptions.questions` and the second wave of a
JOIN ask for it).

Invariants:

1. What is denied was claimed before its publisher was asked, so no honest claim is: whoever read a
   message read it after it was published.
2. Nothing is denied silently (`on_denied`, `Guard.dropped`).
3. No message waits for ever for one of a living publisher that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubecast.protocol.port import Denial, NodeId, Seq, Stream, Time
from cubecast.protocol.topic.streams import Inbox
from cubecast.protocol.topic.topic import TopicCore

DENIED = "a cut that its publisher denies"


class DoubtingTopic(TopicCore):
    """The data path of one topic, and what it does not believe."""

    def on_wake(self, now: Time) -> Time | None:
        if self.doubt_at is not None and self.doubt_at <= now:
            self._doubt_waits(now)
        planned = super().on_wake(now), self.doubt_at
        return min((at for at in planned if at is not None), default=None)

    # -- what others claim of the living -----------------------------------------------------------

    def claims_above(
        self, vector: Mapping[Stream, Seq], own: Mapping[NodeId, tuple[Stream, Seq]]
    ) -> list[Stream]:
        """Streams of the living of which `vector` has more than their publishers say themselves.

        Not those of earlier generations: nothing more is published there, and others may remember
        what the publisher has forgotten.  Not what is here: it was published.  Without views nobody
        is known to live.
        """
        if self.cluster < 0:
            return []
        return [
            stream
            for stream, seq in vector.items()
            if seq > self.published(stream, own)
            and self.guard.is_live(stream)
            and not self._is_earlier(stream, own)
            and (stream not in self.inboxes or self.inboxes[stream].reached() < seq)
        ]

    def published(self, stream: Stream, own: Mapping[NodeId, tuple[Stream, Seq]]) -> Seq:
        """The last message of a stream, as its publisher said; -1: it said nothing of it."""
        if stream == self.own:
            return self.next_seq - 1
        said = own.get(stream.source)
        return said[1] if said is not None and said[0] == stream else -1

    def _is_earlier(self, stream: Stream, own: Mapping[NodeId, tuple[Stream, Seq]]) -> bool:
        said = (self.own, 0) if stream.source == self.node else own.get(stream.source)
        return said is not None and said[0].generation > stream.generation

    def deny(self, stream: Stream, claimed: Seq, published: Seq, by: NodeId) -> None:
        """Ignore what somebody claims of a publisher that denies it, and say so."""
        self.marks["denied a claim"] += 1
        self.guard.drop(DENIED)
        self.on_denied(Denial(self.topic, stream.source, claimed, published, by))

    def relayed_by_dead(self) -> list[Stream]:
        """Streams that came by a relay that is gone, as long as somebody may ask; told once."""
        relayed, self.relayed = self.relayed, {}
        return [stream for stream in relayed if stream in self.inboxes and self.taking]

    def _doubt_waits(self, now: Time) -> None:
        """Have publishers asked for what has been waited for for long: it may not exist."""
        self.doubt_at = None
        waiting = self.front.waiting()
        for inbox in waiting:
            if now - inbox.stuck[1] >= self.doubt_after:
                self._doubt(inbox, now)
        if waiting:
            self.doubt_at = now + self.doubt_after
            self._plan(self.doubt_at)

    def _doubt(self, inbox: Inbox, now: Time) -> None:
        cause = self._awaited(inbox)
        if cause is None:
            return
        stream, _ = cause
        if stream == self.own:
            self.void_above(stream, self.next_seq - 1, now, now)
        elif self.guard.is_live(stream):
            self.marks["asked for what does not come"] += 1
            self.ask_publisher(stream, now)

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
        for inbox in self.front.waiting():
            denied = -1
            while (
                (cause := self._awaited(inbox)) is not None
                and cause[0] == stream
                and cause[1] > last
                and inbox.stuck[1] <= asked
            ):
                denied = cause[1]
                self.front.pass_over(inbox)
                self._drain(inbox, now)
            if denied >= 0:
                self.deny(stream, denied, last, inbox.stream.source)
                self._doubt(inbox, now)

    def retract(self, stream: Stream, last: Seq) -> None:
        """What we have read of a stream above `last` its publisher has never published.

        Somebody made it up who relayed it.  We have to join again, as we have told those who count
        on us that we have what came since.
        """
        front = self.front
        self.deny(stream, front.delivered.get(stream, -1), last, -1)
        if stream in self.inboxes:
            self._drop(self.inboxes[stream])
        for known in (self.floor, front.delivered):
            known[stream] = last
            if last < 0:
                del known[stream]
        if front.frontier.get(stream, -1) > last:
            del front.frontier[stream]
