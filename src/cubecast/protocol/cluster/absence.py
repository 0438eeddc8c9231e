"""Excluded nodes that may come back, and nodes that just did: how long they are remembered.

A view names them (`Install.absent`).  An excluded node is named with the epoch of the first view
without it.  A node that came back stays named, as `Absent.back`, until it has asked all members
what it missed and says so (`CaughtUp`).  Until then its history is kept, and no publisher that
knows what it missed may leave.  If it is excluded again before that, it counts as absent from the
first time on.

A node counts `AgreementConfig.absent_for` from when it first saw an entry.  After that it no longer
looks for the absent node, keeps no history for it, and, if it leads, drops it from the next view.

Bound: at most `MAX_ABSENT` entries, those of the present view; each view replaces them all, and
`CaughtUp` removes one.  The leader of a view may not have heard `CaughtUp`.  So newcomers are told,
too, and a node that has heard it keeps no entry of that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cubecast.protocol.cluster.views import Absent, View, Who
from cubecast.protocol.port import Time

MAX_ABSENT = 256
"""Excluded and returned nodes that a view remembers: those that were named last."""


class Absences:
    """What one node knows of excluded and returned nodes, in its present view."""

    __slots__ = ("_caught_up", "_first_seen", "_remember_for", "entries")

    def __init__(self, remember_for: Time) -> None:
        self._remember_for = remember_for
        self._first_seen: dict[tuple[str, int], Time] = {}
        self._caught_up: set[str] = set()  # lives of the present view that came back and have asked
        self.entries: tuple[Absent, ...] = ()
        """As the view names them, expired ones included, without those that caught up since."""

    def learn(self, entries: Iterable[Absent], view: View, now: Time) -> None:
        """Take the entries of a new view, whose leader may not know yet which nodes caught up."""
        self._caught_up = {uid for uid in self._caught_up if view.has(uid)}
        known = self._caught_up
        due = [one for one in entries if _is_due(one, view)]
        self._keep([one for one in due if not (one.back and one.who.uid in known)], now)

    def _keep(self, entries: Iterable[Absent], now: Time) -> None:
        seen = self._first_seen
        self.entries = tuple(entries)
        keys = [(one.who.uid, one.epoch) for one in self.entries]
        self._first_seen = {key: seen.get(key, now) for key in keys}

    def caught_up(self, uid: str, now: Time) -> None:
        """A node that came back has asked for all that it missed."""
        self._caught_up.add(uid)
        self._keep([one for one in self.entries if not (one.back and one.who.uid == uid)], now)

    def catching_up(self, now: Time) -> set[str]:
        """The lives that came back and have not asked for all that they missed."""
        return {one.who.uid for one in self.remembered(now) if one.back}

    def excluded(self) -> tuple[Absent, ...]:
        """Excluded nodes that are not back, as the view names them."""
        return tuple(one for one in self.entries if not one.back)

    def remembered(self, now: Time) -> list[Absent]:
        """Entries whose time is not over: history is kept for them."""
        seen = self._first_seen
        return [
            one for one in self.entries if now < seen[one.who.uid, one.epoch] + self._remember_for
        ]

    def remembered_from(self, now: Time) -> int | None:
        """The lowest epoch of the `remembered` entries; None: there are none."""
        return min((one.epoch for one in self.remembered(now)), default=None)

    def after(
        self, view: View, excluded: Iterable[Who], returned: Mapping[str, int], now: Time
    ) -> tuple[Absent, ...]:
        """Entries of the next view: of nodes that are not replaced at their address.

        `excluded` are members of the view before that did not ask to leave.  `returned` are lives
        that come from another view, with the first epoch that each of them missed.
        """
        absent = {one.who.address: one for one in self.remembered(now)}
        missed = {place: one.epoch for place, one in absent.items()}
        for who in excluded:
            if not view.has(who.uid):
                epoch = min(view.epoch, missed.get(who.address, view.epoch))
                absent[who.address] = Absent(who, epoch)
        for who in view.members.values():
            if who.uid in returned:
                epoch = min(returned[who.uid], missed.get(who.address, view.epoch))
                absent[who.address] = Absent(who, epoch, back=True)
        named = [one for one in absent.values() if _is_due(one, view)]
        return tuple(named[-MAX_ABSENT:])


def _is_due(one: Absent, view: View) -> bool:
    """Whether an entry holds: a returned node is in the view, an absent node's address is free."""
    return view.has(one.who.uid) if one.back else one.who.address not in view.places
