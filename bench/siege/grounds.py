"""What attackers share: whom they attack, what they have overheard, and what they count.

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
    """Addresses of nodes that were killed: nobody listens there."""
    recordings: deque[bytes] = field(default_factory=lambda: deque(maxlen=32))
    """What honest diallers said in handshakes, and after them."""
    counts: Counter[str] = field(default_factory=Counter)
    breaches: Counter[str] = field(default_factory=Counter)
    deeds: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=500))
    """What holders of the members' key did, and when, since it was told last."""

    def victim(self) -> str:
        """The address of a long-lived node."""
        return self.random.choice(self.addresses)

    def report(self) -> dict[str, Any]:
        """What was done so far; the deeds are told once."""
        deeds = list(self.deeds)
        self.deeds.clear()
        return {"counts": dict(self.counts), "breaches": dict(self.breaches), "deeds": deeds}


Attack: TypeAlias = Callable[[Grounds], Awaitable[None]]
"""One attack from its beginning to its end; the node may end it sooner."""
