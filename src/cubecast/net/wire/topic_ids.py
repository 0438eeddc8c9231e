"""The topics one node knows by their ids, and the decoding of packets with them."""

from __future__ import annotations

from cubecast.errors import CubecastError
from cubecast.net.wire.packets import (
    ACK,
    CONTROL,
    FRAME,
    Control,
    FrameDecoder,
    WireError,
    decode_ack,
    decode_control,
    topic_id,
)
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.port import Topic


class Vocabulary:
    """Known topics by id: frames and ACKs name a topic by 64 bits; others cannot be read."""

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.frames = FrameDecoder()

    def learn(self, topic: Topic) -> None:
        """From now on packets of a topic are read; `CubecastError` if another has its id."""
        known = self.topics.setdefault(topic_id(topic), topic)
        if known != topic:
            raise CubecastError(f"topics {known!r} and {topic!r} have the same id; rename one")

    def knows(self, topic: Topic) -> bool:
        """Whether packets of a topic are read."""
        return self.topics.get(topic_id(topic)) == topic

    def forget(self, topic: Topic) -> None:
        """From now on packets of a topic are not read."""
        self.topics.pop(topic_id(topic), None)

    def decode(self, kind: int, raw: bytes) -> Frame | Ack | Control | None:
        """The message in a packet of a member; None if it is about a topic we do not know."""
        if kind == FRAME:
            return self.frames.decode(raw, self.topics)
        if kind == ACK:
            return decode_ack(raw, self.topics)
        if kind == CONTROL:
            return decode_control(raw)
        raise WireError(f"a packet of unknown kind {kind}")
