"""Attackers of live nodes, by mode.

Each sends about as many packets as it is told; one that is cut off dials again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from cubecast.testing.fuzz.guest import LyingClient
from cubecast.testing.fuzz.insider import LyingMember
from cubecast.testing.fuzz.stranger import Stranger


class Attacker(Protocol):
    """An attacker of one mode."""

    @property
    def connections(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def earnest(self) -> int:
        """Packets that are no attack, and do not count."""

    @property
    def latest(self) -> deque[bytes]:
        """What was sent last, as it was before it was sealed."""

    async def attack(self, packets: int) -> None:
        """About so many packets that matter."""

    async def close(self) -> None:
        """Hang up."""


ATTACKERS: dict[str, Callable[[Random, Sequence[str]], Attacker]] = {
    "stranger": Stranger,
    "member": LyingMember,
    "client": LyingClient,
}
