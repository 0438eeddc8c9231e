"""A subscription without its node."""

from __future__ import annotations

from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.packets import MESSAGE_OVERHEAD, OutgoingFrame, frame_cost
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Seq, Stream, Topic

STREAM = Stream(0, 7)
EACH = 100
"""What a message counts for."""


class Desk:
    """A node as far as its subscriptions need one; notes how far they have consumed."""

    closed = False
    slot = 0

    def __init__(self) -> None:
        self.told: list[Seq] = []

    def waits_to_publish(self) -> bool:
        return False

    def consumed(self, reader: Subscription, topic: Topic, stream: Stream, seq: Seq) -> None:
        self.told.append(seq)

    def holds_readers(self) -> bool:
        return False

    def holds_reader_of(self, reader: Subscription, topic: Topic) -> bool:
        return False

    def slow_subscriber(self, subscription: Subscription) -> None: ...
    async def attach(self, subscription: Subscription) -> None: ...
    async def detach(self, subscription: Subscription) -> None: ...


def frame(first: Seq, messages: int) -> Frame:
    body = OutgoingFrame([bytes(EACH - MESSAGE_OVERHEAD)] * messages, 0)
    size = frame_cost(messages * EACH, 0)
    return Frame("t", STREAM, first, (), Route(0, 0, 0), -1, body, size)
