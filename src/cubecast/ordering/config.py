"""The bounds of one member's ordering, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields

MIB = 1 << 20
WAIT_S, WAIT_LOSSLESS_S = 5.0, 10.0

AT_LEAST_ONE = ("unread", "unread_bytes", "unpublished", "unpublished_bytes", "spread")


@dataclass(frozen=True, slots=True)
class OrderedConfig:
    """Bounds of a member's queues and waits; times in seconds."""

    buffer: int = 50_000
    """Events that wait for others before them; beyond that the oldest wait is given up."""
    buffer_bytes: int = 64 * MIB
    """Bytes of such events: the same beyond that."""
    wait_s: float | None = None
    """How long an event waits: as long as the service may take to bring the one before it.  None:
    5 s where the service may lose it, 10 s where it loses nothing, but queues under load."""
    retry_s: float = 1.0
    """A request without an answer is repeated after this: more than an answer takes under load, or
    repeated requests add to the load."""
    end_s: float = 1.0
    """How long events of new managers wait for those of a manager that crashed, as its last number
    is not known."""
    beat_s: float = 0.25
    """How often managers tell each other that they live."""
    suspect_s: float = 1.5
    """A manager that was silent for this long is replaced.  At least three times `beat_s`."""
    drain_s: float = 0.5
    """How long a change of managers or ranks waits for stamps on their way."""
    spread: int = 1
    """How many managers share the topics; the others stand by.  With one, a stamp takes one round
    trip, whatever topics subscribers share.  More are for topics that few subscribers share."""
    lease_s: float = 60.0
    """A subscription that its member does not renew for this long is dropped."""
    unpublished: int = 10_000
    """Events that have no stamps, or that the service has not taken; `publish` waits above that."""
    unpublished_bytes: int = 64 * MIB
    """Bytes of such events: the same above that."""
    publish_timeout_s: float = 30.0
    """When no event has left for this long, a publish waits; it raises `NotSent` when none has left
    for as long again.  So does `flush`, when none has left for this long."""
    subscribe_timeout_s: float = 30.0
    """A subscribe raises `NotSubscribed` if managers have not answered for this long."""
    unread: int = 10_000
    """Messages that the application has not read.  Beyond that publishers wait where the service
    loses nothing; elsewhere new messages are dropped, and counted (`OrderedMessage.missed`)."""
    unread_bytes: int = 64 * MIB
    """Bytes of such messages: the same beyond that."""
    leave_s: float = 10.0
    """How long closing waits for publications, and for managers that take over."""

    @property
    def resumes_s(self) -> float:
        """The longest pause of publishing after a manager crashed, besides some round trips.

        Other managers suspect it, and close its layout.  Then publishers hear of the next one, and
        subscribers wait for events that the lost manager may have numbered.
        """
        noticed = self.suspect_s + self.beat_s
        return noticed + self.drain_s + max(self.end_s, 2 * self.retry_s)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and value < 0:
                raise ValueError(f"{one.name} must not be negative, but is {value}")
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        for short, long in (("beat_s", "suspect_s"), ("retry_s", "lease_s")):
            if 3 * getattr(self, short) > getattr(self, long):
                raise ValueError(f"{long} must be at least three times {short}")

    def waits_s(self, loses_nothing: bool) -> float:
        """How long an event waits, by whether the service promises to lose nothing."""
        if self.wait_s is not None:
            return self.wait_s
        return WAIT_LOSSLESS_S if loses_nothing else WAIT_S
