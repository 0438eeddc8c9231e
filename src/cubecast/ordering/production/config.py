"""The parameters of a module in the production mode: times in the unit of its world, bounds."""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.ordering.effects import Time


@dataclass(frozen=True, slots=True)
class WaitingBounds:
    """How long events may wait for others that come before them, and how many."""

    events: int | None = None
    """None: no bound."""
    wait_for: Time | None = None
    """None: for ever."""
    end_for: Time | None = None
    """How long an epoch goes on after managers were lost, as their last numbers are not known.
    None: as long as an event may wait."""
    bytes: int | None = None
    """How many bytes of payloads may wait.  None: no bound."""

    def exceeded(self, events: int, size: int) -> bool:
        """Whether so many events with so many bytes are too many."""
        most = self.events is not None and events > self.events
        return most or (self.bytes is not None and size > self.bytes)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times after which silence has a consequence.  None: never; a test then drives the module.

    `beat_every` < `suspect_after`, and `retry_after` < `lease_for`, by a factor of 3 at least.
    """

    retry_after: Time | None = None
    """A message without an answer is repeated after this."""
    beat_every: Time | None = None
    """How often managers tell each other that they live."""
    suspect_after: Time | None = None
    """A manager that was silent for this long is suspected."""
    drain_for: Time | None = None
    """How long a closing manager waits for stamps on their way.  Then their numbers are void."""
    lease_for: Time | None = None
    """A subscription that was not renewed for this long is dropped; it is renewed in a third of
    it."""

    def __post_init__(self) -> None:
        _check_ratio(self.beat_every, self.suspect_after, "beat_every", "suspect_after")
        _check_ratio(self.retry_after, self.lease_for, "retry_after", "lease_for")


def _check_ratio(short: Time | None, long: Time | None, of: str, to: str) -> None:
    if short is not None and long is not None and 3 * short > long:
        raise ValueError(f"{to} ({long}) must be at least three times {of} ({short})")


@dataclass(frozen=True, slots=True)
class Reranking:
    """When a topic is to rise above another: many events, and many more than the other has.

    [T] 5 compares f(x) = exp(-1/(alpha(x+1))), which is close to 1 for every busy topic: after some
    44 events (alpha 0.1, beta 0.2) a topic never yields to a busier one.  A ratio goes on to tell.
    """

    events: int = 1000
    ratio: float = 4.0

    def is_due(self, low: int, high: int) -> bool:
        """Whether a lower topic has so many events that it should be the higher one."""
        return low >= self.events and low > self.ratio * high
