"""What one node publishes: an outbox per topic, credit, receipts, headers.

`Node.publish` puts a message into the outbox of its topic.  The outbox makes frames of messages and
hands them to the core through here.  Invariants:

1. A topic has an outbox from its first publication until the core forgets the topic and the outbox
   is idle.
2. A publication with a receipt has a number when it is accepted: the next number of the stream
   plus its place in the outbox.
3. A publication of bytes without headers is not looked at here, unless `careful` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from cubecast import tracing
from cubecast.errors import Closed
from cubecast.net.events import Event, PublisherBlocked
from cubecast.net.links.writes import Writes
from cubecast.net.node.presence import Presence
from cubecast.net.node.recorder import Recorder
from cubecast.net.node.stats import Numbers
from cubecast.net.node.value_keeper import Retained
from cubecast.net.publishing.outbox import Leftover, Outbox
from cubecast.net.publishing.receipt import Receipt, ReceiptBook
from cubecast.net.reading.subscription import Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.net.topics import Payload, check_topic, encode_payload
from cubecast.net.wire.headers import Headed, Headers, check_headers, pack
from cubecast.net.wire.packets import MAX_PAYLOAD, OutgoingFrame, frame_cost, frame_overhead
from cubecast.net.wire.topic_ids import Vocabulary
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.port import Time, Topic


class PublishingHost(Protocol):
    """What publishing needs of its node."""

    config: NodeConfig
    keeper: Retained
    numbers: Numbers
    presence: Presence
    recorder: Recorder
    vocabulary: Vocabulary
    writes: Writes

    def now(self) -> Time: ...
    def tell(self, event: Event) -> None: ...
    def check_may(self, what: str, topic: Topic) -> None:
        """`NotAllowed` if the permissions do not allow this node to do `what`."""

    def settle_debts(self) -> None:
        """Let subscriptions of this node put off their debts, because a publish waits."""


class Publishing:
    """The outboxes and receipts of one node."""

    def __init__(self, host: PublishingHost) -> None:
        self._host = host
        self.config = host.config
        self._keeper, self._numbers = host.keeper, host.numbers
        self._presence, self._recorder, self._writes = host.presence, host.recorder, host.writes
        self._loop = asyncio.get_running_loop()
        self.boxes: dict[Topic, Outbox] = {}
        """The outbox of each topic."""
        self._waiting: set[Topic] = set()
        self._revoked: set[Topic] = set()  # with an outbox, and no longer allowed
        self._traced = tracing.is_used()
        self.careful = self._traced
        """Whether `prepared` looks at every publication, also at bytes without headers."""
        self._receipts = ReceiptBook()
        self.accepts = True
        """Whether a publication is still taken."""
        self.closed = False
        """Whether nothing more is sent."""

    # -- what `Node.publish` calls ---------------------------------------------------------------

    def open(self, topic: Topic) -> Outbox:
        """A new outbox for a topic; `Closed` or `NotAllowed` if there may be none."""
        check_topic(topic)
        if not self.accepts:
            raise Closed("the node is closed")
        self._host.check_may("publish", topic)
        self._host.vocabulary.learn(topic)
        box = self.boxes[topic] = Outbox(topic, self)
        return box

    def prepared(self, topic: Topic, payload: Payload, headers: Headers | None) -> bytes:
        """The bytes to send for a publication that is not just bytes.

        `NotAllowed` if the permissions no longer let this node publish to the topic.
        """
        if self._revoked and isinstance(topic, str) and topic in self._revoked:
            self._host.check_may("publish", topic)
        if self._traced and type(payload) is not Headed:
            headers = tracing.added(headers)
        if headers:
            check_headers(headers)
            payload = pack(headers, encode_payload(payload))
        if type(payload) is Headed:  # packed above, or a light client's, checked on arrival
            if len(payload) <= MAX_PAYLOAD:
                self._headed_outbox(topic)
            return payload
        return encode_payload(payload)

    def _headed_outbox(self, topic: Topic) -> None:
        """Have each frame of a topic searched for headers from now on."""
        box = self.boxes.get(topic) if isinstance(topic, str) else None
        (box or self.open(topic)).headed = True

    def receipt(self, box: Outbox) -> Receipt:
        """A receipt for the last message in an outbox."""
        core = self._presence.core  # None: the next life counts from 0
        sent = 0 if core is None else core.next_seq(box.topic)
        return self._receipts.add(box.topic, sent + len(box.payloads) - 1)

    # -- what outboxes call ----------------------------------------------------------------------

    def publish_frame(self, topic: Topic, body: OutgoingFrame, size: int) -> bool:
        """Hand a frame to the core; False if there is no credit for it, or no core."""
        core, now = self._presence.core, self._host.now
        if core is None:  # the member calls `writable` when there is one
            return self._presence.member.publish(topic, body, size, now())
        if body.headed:
            self._keeper.stamp(body)
        first = core.next_seq(topic)
        size = frame_cost(size, core.dependencies(topic))
        position = self._recorder.position()
        self._writes.begin()
        try:
            if not core.publish(topic, body, size, now()):
                return False
            # Before the burst ends: the trace has a message before others can see it.
            stream = core.stream_of(topic)
            self._recorder.published(topic, stream, first, len(body), position)
            self._numbers.published += len(body)
            if body.headed:
                self._keeper.published(topic, stream, first, body)
                if not core.members(topic):
                    _mark_unheard(body)
        finally:
            self._writes.end()
        return True

    def credit(self, topic: Topic, wanted: int) -> int:
        """The bytes of messages that may be published to a topic now.

        If these are fewer than `wanted` the outbox is told when there may be more.
        """
        core = self._presence.core
        if core is None:
            return self.config.protocol.window  # `publish_frame` tells of a core
        least = frame_overhead(core.dependencies(topic))
        credit = core.credit(topic, max(wanted, least))
        return credit if credit >= least else 0

    def why_blocked(self) -> str:
        """Why a publication has to wait."""
        return "no credit" if self._presence.core is not None else "in no cluster"

    def has_to_wait(self, topic: Topic, waits: bool) -> None:
        """Note whether a topic waits for credit; while one does, debts here may be put off."""
        if not waits:
            self._waiting.discard(topic)
        elif topic not in self._waiting:
            self._waiting.add(topic)
            self._loop.call_soon(self._host.settle_debts)  # not from inside the core

    def publisher_blocked(self, topic: Topic, seconds: float) -> None:
        """Tell that a publisher has waited for credit for `seconds`."""
        core = self._presence.core
        behind = {} if core is None else core.behind(topic)
        self._host.tell(PublisherBlocked(topic, seconds, behind))

    # -- what waits for credit -------------------------------------------------------------------

    def waits(self) -> bool:
        """Whether a publication to some topic has to wait for credit."""
        return bool(self._waiting)

    def holds_readers(self) -> bool:
        """Whether a task that reads waits for credit, and so does not read."""
        return any(self.boxes[topic].holds_readers for topic in self._waiting)

    def holds_reader_of(self, subscription: Subscription[Any], topic: Topic) -> bool:
        """Whether a task that reads a subscription waits for credit to publish to a topic."""
        return topic in self._waiting and self.boxes[topic].holds_reader_of(subscription)

    def load(self, topic: Topic) -> tuple[int, bool]:
        """Messages of a topic that are accepted and not sent, and whether `publish` has to wait."""
        box = self.boxes.get(topic)
        return (0, False) if box is None else (len(box.payloads), box.blocked)

    def blocked(self, topic: Topic) -> bool:
        """Whether a `publish` would have to wait."""
        box = self.boxes.get(topic)
        return box is not None and box.blocked

    def unsent(self) -> bool:
        """Whether a message is accepted and not sent."""
        return any(box.payloads for box in self.boxes.values())

    # -- what the core and the permissions tell --------------------------------------------------

    def writable(self, topic: Topic) -> None:
        """Have the outbox of a topic try again: there may be credit."""
        box = self.boxes.get(topic)
        if box is not None:
            box.retry()

    def forgotten(self, topic: Topic) -> bool:
        """Drop the outbox of a topic that the core forgets; False if it is still in use."""
        box = self.boxes.get(topic)
        if box is not None and box.is_idle:
            del self.boxes[topic]
        return topic not in self.boxes

    def confirm(self) -> None:
        """Confirm receipts of publications that have become stable."""
        core = self._presence.core
        if self._receipts and core is not None:
            self._receipts.check(core)

    def life_ended(self, core: CubecastNode) -> None:
        """Fail the receipts of sent messages: the node was excluded, their fate is not known."""
        self._receipts.life_ended(core)

    def permissions_changed(self, allowed: Callable[[Topic], bool]) -> None:
        """Note the outboxes that new permissions do not allow."""
        self._revoked = {topic for topic in self.boxes if not allowed(topic)}
        self.careful = self._traced or bool(self._revoked)

    # -- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept nothing more; what was accepted is still sent."""
        self.accepts = False
        for box in self.boxes.values():
            box.stop()

    def close(self, core: CubecastNode | None) -> list[Leftover]:
        """End all receipts; return the publications that are not known to be stable."""
        self._receipts.close(core)
        left = [box.close(core) for box in self.boxes.values()]
        return [leftover for leftover in left if leftover is not None]


def _mark_unheard(body: OutgoingFrame) -> None:
    """Note at the blobs of a frame that no node was subscribed when it was sent."""
    for place in body.headed:
        blob = body.payloads[place]
        assert isinstance(blob, Headed)
        blob.unheard = True
