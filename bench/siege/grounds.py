"""State that attackers share: their victims, recordings, and counts.

A *breach* is an attack that got what it must not get: a handshake completed without the key, or
opened again by a recording.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from siege.terms import Terms


@dataclass(slots=True)
class Grounds:
    """The place of the siege, as its attackers see it."""

    terms: Terms
    addresses: Sequence[str]
    random: Random
    dead: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    """Addresses of nodes that were killed: no process listens there."""
    recordings: deque[bytes] = field(default_factory=lambda: deque(maxlen=32))
    """Bytes that honest diallers sent in handshakes, and after them."""
    counts: Counter[str] = field(default_factory=Counter)
    breaches: Counter[str] = field(default_factory=Counter)
    deeds: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=500))
    """Deeds of holders of the members' key, with their times, since the last report."""

    def victim(self) -> str:
        """The address of a long-lived node."""
        return self.random.choice(self.addresses)

    def report(self) -> dict[str, Any]:
        """The counts so far; each deed is reported once."""
        deeds = list(self.deeds)
        self.deeds.clear()
        return {"counts": dict(self.counts), "breaches": dict(self.breaches), "deeds": deeds}


Attack: TypeAlias = Callable[[Grounds], Awaitable[None]]
"""One attack from its beginning to its end; the node may end it sooner."""
