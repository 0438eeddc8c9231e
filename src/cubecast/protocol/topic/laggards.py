"""Subscribers that do not keep up, as one publisher of a topic sees them.

A subscriber that does not answer its parent in the tree (`Config.patience`) starves the nodes below
it.  The publisher takes it out of the interior of its trees: from the next frame on it is a
*leaf*, fed by the publisher itself.  What is still under way in older trees the publisher feeds to
all subscribers itself (`Direct`).  A leaf that keeps up again returns to the interior.

A leaf still counts for stability, so a publisher runs out of credit and waits for it.  A strict
subscriber, which may miss nothing, needs that.  A *lossy* subscriber would rather miss messages: it
is *suspended* when the publisher is out of credit, no longer addressed and no longer waited for.
It is told, joins again, and reports what it skipped.

Invariants:

1. Only a lossy subscriber is ever suspended, and only by a publisher that is out of credit.
2. At most a quarter of the subscribers (but always one) are leaves: if more are slow, then the
   publisher or the machine is slow, and a star would make that worse.
3. Joining clears a subscriber's record: an earlier subscription does not count against it.
"""

from __future__ import annotations

from typing import NamedTuple

from cubecast.protocol.config import Config
from cubecast.protocol.port import NodeId, Time


class PlaceChanges(NamedTuple):
    """Subscribers that change their place, as masks."""

    demoted: int
    suspended: int


class Laggards:
    """The leaves and the suspended subscribers of one publisher's trees."""

    __slots__ = ("_config", "check_at", "leaves", "lossy", "suspended")

    def __init__(self, config: Config) -> None:
        self._config = config
        self.lossy = 0
        """Subscribers that would rather miss messages than hold publishers up."""
        self.leaves = 0
        self.suspended = 0
        self.check_at: Time | None = None

    def judge(self, slow: int, members: int, out_of_credit: bool, now: Time) -> PlaceChanges:
        """Decide which of the subscribers `slow`, which did not answer, change their place."""
        slow &= members & ~self.suspended
        suspended = slow & self.lossy if out_of_credit else 0
        self.suspended |= suspended
        self.leaves &= ~suspended
        demoted = slow & ~suspended & ~self.leaves
        room = max(1, members.bit_count() // 4) - self.leaves.bit_count()
        while demoted.bit_count() > max(room, 0):
            demoted &= demoted - 1
        self.leaves |= demoted
        if demoted and self.check_at is None:
            self.check_at = now + self._config.leaf_for
        return PlaceChanges(demoted, suspended)

    def reconsider(self, behind: int, now: Time) -> int:
        """Look at the leaves again: those that are not `behind` return to the interior."""
        back = self.leaves & ~behind
        self.leaves &= behind
        self.check_at = now + self._config.leaf_for if self.leaves else None
        return back

    def meet(self, member: NodeId, lossy: bool) -> None:
        """Clear the record of a subscriber that joins or leaves; a newcomer says if it is lossy."""
        self.forget(member)
        self.lossy |= lossy << member

    def learn_lossy(self, lossy: int) -> None:
        """Take over the lossy subscribers that the first wave found."""
        self.lossy = lossy

    def forget(self, member: NodeId) -> None:
        """Clear the record of a subscriber."""
        bit = 1 << member
        self.leaves &= ~bit
        self.suspended &= ~bit
        self.lossy &= ~bit
