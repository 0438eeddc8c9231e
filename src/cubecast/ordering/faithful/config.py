"""The parameters that [T] leaves open: the buffer, retries, and when topics change places."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from cubecast.ordering.effects import Time
from cubecast.ordering.timestamps import Number

SYSTEM_TOPIC = "$order"
"""T_s: its numbers are epochs of the order.  It is the last topic, and never changes places."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """When a topic goes in front of a higher one that has fewer events ([T] 5 and 6)."""

    alpha: float = 0.1
    beta: float = 0.2

    def popularity(self, events: Number) -> float:
        """f(x) = e^(-1/(α(x+1)))."""
        return exp(-1 / (self.alpha * (events + 1)))

    def wants(self, higher: Number, lower: Number) -> bool:
        """Whether a topic with `lower` events is to go in front of one with `higher`."""
        return self.popularity(lower) > self.popularity(higher) + self.beta


@dataclass(frozen=True, slots=True)
class FaithfulConfig:
    """Times are in the world's unit."""

    buffer: int = 0
    """b: events that may wait at a subscriber."""
    wait_for: Time = 0
    """TTL: how long one waits."""
    retry_after: Time | None = None
    """A publisher asks again for a timestamp after this; None: links lose nothing."""
    swapping: Swapping | None = None
    """None: the order of topics is fixed."""

    def __post_init__(self) -> None:
        if self.buffer < 0 or self.wait_for < 0:
            raise ValueError("buffer and wait_for must not be negative")
        if self.retry_after is not None and self.retry_after < 1:
            raise ValueError(f"retry_after must be at least 1, not {self.retry_after}")
