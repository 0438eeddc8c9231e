"""How long a node remembers streams and lives that are over, and for which nodes.

A stream is *over* at a node when nothing more of it will be delivered there: its publisher is gone
and all have it up to its end, or its publisher has forgotten the topic since and all had all of it.
Order needs nothing of such a stream (`CausalFront.is_over`).  Its last number is kept for one
reason: a node that was excluded and comes back is told exactly what it missed, and tells exactly
what the others missed.  So history is kept for the *absent* nodes.  The view names them, each with
the epoch of the first view without it.

Bounds, per topic: `KEPT_STREAMS` streams that are over; per node: `KEPT_LIVES` lives.  Beyond that
the oldest is forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

KEPT_STREAMS = 1024
KEPT_LIVES = 4096
KEPT_VIEWS = 2
"""History of so many last views is kept for all nodes: a node may be one view behind the last that
names it, and messages that name a dead stream are on their way for a while."""


class Horizon(NamedTuple):
    """The present epoch, and the first epoch without a node that may come back, if any."""

    epoch: int = 0
    absent_from: int | None = None

    def needs_dead(self, died: int) -> bool:
        """Whether a life that ended with view `died` has to be remembered."""
        first = self.epoch if self.absent_from is None else min(self.epoch, self.absent_from)
        return died >= first - KEPT_VIEWS

    def needs_superseded(self, since: int) -> bool:
        """Whether a stream has to be remembered whose publisher began anew in view `since`.

        All members of the view had all of it; only absent nodes may have missed some.
        """
        return self.absent_from is not None and since >= self.absent_from - KEPT_VIEWS
