"""Excluded nodes that may come back: who they are, and for how long they are remembered.

A view names them (`Install.absent`), each with the epoch of the first view without it.  A node
counts `EpochConfig.absent_for` from when it first saw an entry.  After that it looks for the node
no longer, keeps no history for it, and if it leads, leaves it out of the next view.

Bound: at most `MAX_ABSENT` entries, those of the present view; each view replaces them all.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.protocol.port import Time
from cubecast.protocol.views import Absent, View, Who

MAX_ABSENT = 256
"""Excluded nodes that a view remembers: those that were excluded last."""


class Absences:
    """What one node knows of the excluded, in the view that it is in."""

    __slots__ = ("_first_seen", "_remember_for", "entries")

    def __init__(self, remember_for: Time) -> None:
        self._remember_for = remember_for
        self._first_seen: dict[tuple[str, int], Time] = {}
        self.entries: tuple[Absent, ...] = ()
        """As the view names them, expired ones included."""

    def learn(self, entries: tuple[Absent, ...], now: Time) -> None:
        """There is a new view with these."""
        seen = self._first_seen
        keys = [(one.who.uid, one.epoch) for one in entries]
        self._first_seen = {key: seen.get(key, now) for key in keys}
        self.entries = entries

    def remembered(self, now: Time) -> list[Absent]:
        """Those whose time is not over."""
        seen = self._first_seen
        return [
            one for one in self.entries if now < seen[one.who.uid, one.epoch] + self._remember_for
        ]

    def remembered_from(self, now: Time) -> int | None:
        """The lowest epoch of those; None: there is none."""
        return min((one.epoch for one in self.remembered(now)), default=None)

    def after(self, view: View, excluded: Iterable[Who], now: Time) -> tuple[Absent, ...]:
        """Who is absent from the next view: nobody in whose place somebody has come."""
        places = {who.address for who in view.members.values()}
        gone = (Absent(who, view.epoch) for who in excluded)
        absent = {one.who.address: one for one in (*self.remembered(now), *gone)}
        return tuple(one for place, one in absent.items() if place not in places)[-MAX_ABSENT:]
