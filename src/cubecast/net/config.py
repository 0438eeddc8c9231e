"""How a live node is set up: every bound and delay, with its unit."""

from __future__ import annotations

from dataclasses import dataclass, field

from cubecast.net.wire import MAX_MESSAGES, MAX_PACKET
from cubecast.protocol.config import Config


def local_protocol() -> Config:
    """Delays in microseconds for nodes on one machine or in one rack."""
    return Config(
        window=1024 * 1024,
        ack_delay=1_000,
        stable_delay=20_000,
        resend_after=500_000,
        resend_max=8_000_000,
    )


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A live node's bounds; `protocol` holds those of the core, in microseconds and bytes."""

    secret: str = ""
    """Whoever does not know it is refused; it is never sent."""
    listen: str = "127.0.0.1:0"
    advertise: str = ""
    """The address others are told; empty: the one we listen on."""
    protocol: Config = field(default_factory=local_protocol)
    frame_bytes: int = 64 * 1024
    """Publications of one tick share a frame up to this size."""
    frame_messages: int = 1024
    queue_bytes: int = 1024 * 1024
    """What a subscription may hold unread before its policy applies."""
    join_timeout_s: float = 10.0
    leave_timeout_s: float = 10.0
    max_strangers: int = 256
    """Connections that are not a member's, at a time; one more and the oldest is closed."""
    unread_bytes: int = 64 * 1024 * 1024
    """What a peer may leave unread before its connection is closed: as many windows as a peer has
    streams to be sent at a time, 64 by default.  What was lost is sent again after it is back."""
    publish_timeout_s: float = 30.0
    """A publish that gets no credit for this long raises `NotSent`."""

    def __post_init__(self) -> None:
        if not 1 <= self.frame_messages <= MAX_MESSAGES:
            raise ValueError(f"frame_messages is 1 to {MAX_MESSAGES}, not {self.frame_messages}")
        if self.max_strangers < 1:
            raise ValueError(f"max_strangers is at least 1, not {self.max_strangers}")
        if self.unread_bytes < 2 * MAX_PACKET:
            raise ValueError(f"unread_bytes is at least two packets, {2 * MAX_PACKET}")
