"""Mute leaders: a leader that leaves a change of the view undone is gone on without.

Theory of operation.  A member knows that a change is *due* if a newcomer keeps asking it for a
place, if it takes a member for dead, or if it waits for the next view.  The leader should make the
change.  If it does not for `Config.mute_after`, the member asks the leader to begin a ballot
(`Stuck`), again and again.  An honest leader always does, whatever it thinks of the reason.  A
leader that does not for `LeaderWatch.bound` is *mute*: the member counts on it no more, as if it
were silent.  The next in line is asked, too.  So it finds the leader mute by itself, leads, and
makes a view without it.

Invariants:

1. A member judges by what it sees itself: it asked the leader, and the leader began nothing.  So a
   member that lies (invents newcomers, says `Stuck`) makes an honest leader begin a ballot, and
   does not have it excluded.
2. What excuses a leader starts the clock anew: its ballots, `MAX_EXCUSES` times in a view, and a
   next view.  A change that stays due is asked for after twice the time each time, up to
   `MAX_PATIENCE` times `mute_after`: the leader may know better.
3. A leader that makes views, but leaves out a newcomer that has asked for `bound`, is mute after
   `MAX_SNUBS` of them.
4. Time in which this node itself was paused does not count.
5. At most `MAX_WAITING` newcomers are remembered; one that no longer asks is forgotten.

Bound: `bound` is longer than one member that lies can keep an honest leader from a ballot that
others see: it takes `BALLOTS_OF_OTHERS` ballots itself, and the leader follows each of them for
twice `answer_after`.
"""

from __future__ import annotations

from enum import Enum

from cubecast.protocol.cluster.belief import BALLOTS_OF_OTHERS
from cubecast.protocol.cluster.views import Ballot, View
from cubecast.protocol.port import NodeId, Time

LOOKS = 8
"""Looks at what is due per `mute_after`."""
MIN_ASKED = 4
"""A leader is asked at least so often before it is called mute."""
MAX_EXCUSES = 8
"""Ballots of the leader in one view that start the clock anew."""
MAX_PATIENCE = 16
"""Times `mute_after` until a change is asked for that stays due although the leader leads."""
MAX_SNUBS = 4
"""Views without a newcomer that has long asked for a place; then their leader is mute."""
MAX_WAITING = 64
"""Newcomers that are remembered."""

KEEPS_OUT = "it lets no node in"
KEEPS_DEAD = "it excludes no dead node"
KEEPS_VIEW = "it does not finish a change of the view"


class Duty(Enum):
    """What to do about the leader."""

    WAIT = "wait"
    ASK = "ask"
    """Ask it to begin a ballot."""
    LEAVE = "leave"
    """Go on without it."""


class _Newcomer:
    """A node that asks this one for a place, through this one."""

    __slots__ = ("first", "last", "requests", "snubs")

    def __init__(self, now: Time) -> None:
        self.first = self.last = now
        self.requests = 0  # in the present view
        self.snubs = 0


class LeaderWatch:
    """How long changes of the view have been due at one node, and how often it asked for them."""

    def __init__(self, mute_after: Time, answer_after: Time, enter_every: Time) -> None:
        """`mute_after` 0: the leader is waited for for ever."""
        self._mute_after = mute_after
        self._rest = max(2 * mute_after, 2 * (BALLOTS_OF_OTHERS + 1) * answer_after)
        self._enter_every = enter_every
        self._every = max(1, mute_after // LOOKS)
        self._newcomers: dict[str, _Newcomer] = {}  # by address
        self._since: Time | None = None  # a change is due, and the leader did nothing
        self._asked = 0  # since then
        self._patience = 1
        self._ballot: Ballot | None = None  # the last one of the leader
        self._ballots = 0  # of the leader, in this view
        self.reason = ""
        """Why a change is due; empty: none is."""
        self.look_at: Time | None = None
        """When to `look` next."""

    @property
    def bound(self) -> Time:
        """How long a change may be due and a leader do nothing, at first."""
        return self._mute_after + self._rest

    def waited(self, now: Time) -> Time:
        """How long the leader has left undone what is due; 0: nothing is."""
        return 0 if self._since is None else now - self._since

    def is_late(self, now: Time) -> bool:
        """Whether the leader takes longer than it should."""
        return self._mute_after > 0 and bool(self.reason) and self.waited(now) >= self._mute_after

    def begin(self, due: bool, now: Time) -> bool:
        """Look from now on if something is due; True if `look_at` is news."""
        if self._mute_after and self.look_at is None and (due or self._newcomers):
            self.look_at = now + self._every
            return True
        return False

    # -- what is seen --------------------------------------------------------------------------

    def passed_on(self, address: str, now: Time) -> None:
        """A newcomer at this address asked for a place, and the leader was told."""
        if not self._mute_after:
            return
        known = self._newcomers.pop(address, None) or _Newcomer(now)
        known.last = now
        known.requests += 1
        self._newcomers[address] = known
        while len(self._newcomers) > MAX_WAITING:
            del self._newcomers[next(iter(self._newcomers))]

    def led(self, ballot: Ballot, now: Time) -> None:
        """The leader has begun a ballot, or repeats it: that does not count."""
        if ballot == self._ballot:
            return
        self._ballot = ballot
        self._ballots += 1
        if self._ballots <= MAX_EXCUSES:
            self._start_anew(now)

    def new_view(self, view: View, leader: NodeId, now: Time) -> None:
        """We are in a next view; `leader` led the one before."""
        self._ballots = 0
        self._start_anew(now)
        came = [address for address in self._newcomers if address in view.places]
        for address in came:
            del self._newcomers[address]
        for newcomer in self._newcomers.values():
            long = now - newcomer.first >= self.bound
            if long and newcomer.requests and view.id.ballot.slot == leader:
                newcomer.snubs += 1
            newcomer.requests = 0

    def _start_anew(self, now: Time) -> None:
        if self._since is not None:
            self._since = now
        if self._asked:
            self._patience = min(2 * self._patience, MAX_PATIENCE)
        self._asked = 0

    # -- what follows --------------------------------------------------------------------------

    def look(self, due: str, members: int, now: Time) -> Duty:
        """Judge the leader of so many members; `due` is a reason for a change, if there is one."""
        assert self.look_at is not None
        self._excuse(now - self.look_at)
        silence = max(2 * self._mute_after, 3 * members * self._enter_every)
        gone = [place for place, one in self._newcomers.items() if now - one.last > silence]
        for place in gone:
            del self._newcomers[place]
        self.reason = due or (KEEPS_OUT if self._newcomers else "")
        if not self.reason:
            self._since = self.look_at = None
            self._asked, self._patience = 0, 1
            return Duty.WAIT
        self.look_at = now + self._every
        if self._since is None:
            self._since = now
        return self._judge(now)

    def _judge(self, now: Time) -> Duty:
        patience = self._mute_after * self._patience
        overdue = self.waited(now) >= patience + self._rest and self._asked >= MIN_ASKED
        if overdue or any(one.snubs >= MAX_SNUBS for one in self._newcomers.values()):
            return Duty.LEAVE
        if self.waited(now) >= patience:
            self._asked += 1
            return Duty.ASK
        return Duty.WAIT

    def _excuse(self, late: Time) -> None:
        """Leave out our own pause if we look too late: news may lie unread."""
        if late > self._every:
            if self._since is not None:
                self._since += late
            for newcomer in self._newcomers.values():
                newcomer.first += late
                newcomer.last += late

    def next_leader(self, now: Time) -> None:
        """Begin anew with another leader."""
        self._since, self._asked, self._patience, self._ballots = now, 0, 1, 0
        for newcomer in self._newcomers.values():
            newcomer.first, newcomer.snubs = now, 0
