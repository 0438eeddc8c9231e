"""Every bound and delay of the production protocol, in one frozen place.

Times are in the world's units (u.t. in the simulator, microseconds in a live node); sizes are in
whatever unit publishers state for their bodies (bytes in a live node).
"""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.protocol.port import Time


@dataclass(frozen=True, slots=True)
class Config:
    """Bounds and delays; the relations between them are checked when one is made."""

    window: int = 64
    """Credit per (publisher, topic): the sizes of frames sent but not yet consumed by every
    subscriber never add up to more (a single larger frame travels alone).  Each node therefore
    keeps at most `window` per stream, held and retained together."""

    slack: int = 4
    """A receiver takes at most `slack * window` of one stream: more than every publisher's window,
    so that nodes with somewhat different windows get along."""

    ack_delay: Time = 10
    """Acknowledgements of one node gather this long; 0 sends them at once."""

    ack_pause: Time = 0
    """In light traffic, a node acknowledges no more often than this; see `AckPace`."""

    stable_delay: Time = 400
    """A publisher with nothing to send tells its receivers what is stable after this long."""

    resend_after: Time = 1_000
    """First repair of a silent child; more than a subtree's round trip, 2·log2(N)·hop, avoids
    needless copies but is not needed for correctness."""

    resend_max: Time = 8_000
    """Repairs back off by doubling up to this."""

    resend_burst: int = 32
    """Frames sent again to one child at a time."""

    patience: int = 2
    """A child that has left more than so many probes in a row unanswered is called slow: its
    publisher feeds it as a leaf, so that no node starves below it.  0: no child is ever slow."""

    leaf_for: Time = 20_000
    """A slow subscriber stays a leaf this long, and longer while it is behind."""

    forget_after: Time = 30_000
    """A topic that this node has left, and does not publish to, is forgotten after this long, or up
    to three times as long; 0: never.  A node that publishes more seldom asks for the subscribers
    again."""

    mute_after: Time = 0
    """A member that leaves a wave unanswered for this long, and a quarter more for each level of
    the tree below it, is taken for dead although it answers tests
    (`cubecast.protocol.subscriptions.mute_members`); 0: never.  More than the detector's
    `deaf_after`: a node that is merely slow or cut off was found by then."""

    idle_topics: int = 1024
    """The most topics kept that this node has left; the youngest stay."""

    def __post_init__(self) -> None:
        for name in ("window", "slack", "resend_after", "resend_burst"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        times = ("ack_delay", "ack_pause", "stable_delay", "leaf_for", "forget_after", "mute_after")
        for name in (*times, "patience", "idle_topics"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        if 0 < self.forget_after < self.stable_delay:
            raise ValueError(
                f"forget_after ({self.forget_after}) must be 0, or not below "
                f"stable_delay ({self.stable_delay})"
            )
        if 0 < self.mute_after < 2 * self.resend_max:
            raise ValueError(
                f"mute_after ({self.mute_after}) must be 0, or at least twice "
                f"resend_max ({self.resend_max}): a wave may be lost, and its answer"
            )
        if self.resend_max < self.resend_after:
            raise ValueError(
                f"resend_max ({self.resend_max}) must not be below "
                f"resend_after ({self.resend_after})"
            )

    @property
    def room(self) -> int:
        """The most that a receiver keeps of one stream (a single larger frame is taken alone)."""
        return self.slack * self.window
