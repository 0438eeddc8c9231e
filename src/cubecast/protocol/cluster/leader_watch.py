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
2. A ballot of the leader excuses it for `bound`, and not for longer than `view_bound` without a
   next view.  A copy of a ballot excuses nothing.
3. A next view starts the clock anew, and so does another leader.  A change that stays due is asked
   for after twice the time in each view, up to `MAX_PATIENCE` times `mute_after`: the leader may
   know better.
4. A leader that makes views, but leaves out a newcomer that has asked for `bound`, is mute after
   `MAX_SNUBS` of them.
5. A leader that leads because another one was called mute in this view is waited for `LATER` times
   as long.  It may have seen ballots of the mute one that this node has not seen.
6. Time in which this node itself was paused does not count.
7. At most `MAX_WAITING` newcomers are remembered, `SHARE` of them named by one member.  A further
   one is not noted: invented ones push out none that asks again and again.  One that no longer asks
   is forgotten in the next view.

Bounds: `bound` is longer than one member that lies can keep an honest leader from a ballot that
others see: it takes `BALLOTS_OF_OTHERS` ballots itself, and the leader follows each of them for
twice `answer_after`.  `view_bound` is longer than one member that lies can keep it from a view: it
may besides object to `MAX_OBJECTIONS` ballots, each at the last moment, and have the leader give
way `MAX_WAYS_GIVEN` times to ballots that others follow.  An honest next in line
finds a mute leader after `view_bound` at the latest, which is less than another member waits for
that next in line.  For as long (`until_all_leave`) the next in line waits for members that still
count on the leader, if that one brought it to a ballot which they do not believe.
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
VIEW = 3
"""A leader that begins ballots has so many times as long for a view."""
LATER = 4
"""The leader after a mute one is waited for so many times as long; more than `VIEW`."""
MAX_LATER = LATER**2
"""And after two or more mute ones in one view."""
MAX_PATIENCE = 16
"""Times `mute_after` until a change is asked for that stays due although the leader leads."""
MAX_SNUBS = 4
"""Views without a newcomer that has long asked for a place; then their leader is mute."""
MAX_WAITING = 64
"""Newcomers that are remembered."""
SHARE = MAX_WAITING // 4
"""So many of them may have been named by one member."""
MAX_SILENCE = 4
"""Times `bound` until a newcomer that asks no more is forgotten, at most."""

KEEPS_OUT = "it lets no node in"
KEEPS_DEAD = "it excludes no dead node"
KEEPS_VIEW = "it does not finish a change of the view"
KEEPS_MEMBER = "it lets no member go"


class Duty(Enum):
    """What to do about the leader."""

    WAIT = "wait"
    ASK = "ask"
    """Ask it to begin a ballot."""
    LEAVE = "leave"
    """Go on without it."""


class _Newcomer:
    """A node that asks this one for a place, through this one."""

    __slots__ = ("by", "first", "last", "requests", "snubs")

    def __init__(self, now: Time, by: str) -> None:
        self.by = by
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
        self._leader: NodeId | None = None  # whose clock it is
        self._since: Time | None = None  # a change is due, in this view
        self._asked = 0  # since then
        self._ballot: Ballot | None = None  # the last one of the leader
        self._ballot_at: Time | None = None  # since the change is due
        self._patience = 1
        self._later = 1
        self.reason = ""
        """Why a change is due; empty: none is."""
        self.look_at: Time | None = None
        """When to `look` next."""

    @property
    def bound(self) -> Time:
        """How long a change may be due and a leader do nothing, at first."""
        return self._mute_after + self._rest

    @property
    def view_bound(self) -> Time:
        """How long a change may be due and no next view come, at first."""
        return self._mute_after + VIEW * self._rest

    @property
    def until_all_leave(self) -> Time:
        """How long after this node others may find a leader mute that it found mute.

        Less than they wait then for this node: `LATER` times `_rest`.
        """
        return self.view_bound + self._mute_after // 2

    @property
    def until_all_suspect(self) -> Time:
        """How long after this node others may suspect a leader; they wait longer for a ballot."""
        return self._rest // 2

    def waited(self, now: Time) -> Time:
        """How long the leader has left undone what is due; 0: nothing is."""
        return 0 if self._since is None else now - self._since

    def is_late(self, now: Time) -> bool:
        """Whether the leader takes longer than it should."""
        return self._mute_after > 0 and bool(self.reason) and self.waited(now) >= self._mute_after

    def begin(self, leader: NodeId, due: bool, now: Time) -> bool:
        """Look from now on if something is due; True if `look_at` is news."""
        self._turn_to(leader, now)
        if self._mute_after and self.look_at is None and (due or self._newcomers):
            self.look_at = now + self._every
            return True
        return False

    # -- what is seen --------------------------------------------------------------------------

    def passed_on(self, address: str, now: Time, by: str = "") -> None:
        """A newcomer at this address asked for a place, and the leader was told.

        `by` is the member that named it; empty: it came by itself.
        """
        if not self._mute_after:
            return
        known = self._newcomers.get(address)
        if known is None:
            named = sum(one.by == by for one in self._newcomers.values()) if by else 0
            if len(self._newcomers) >= MAX_WAITING or named >= SHARE:
                return
            known = self._newcomers[address] = _Newcomer(now, by)
        known.last = now
        known.requests += 1

    def led(self, ballot: Ballot, now: Time) -> None:
        """The leader has begun a ballot, or repeats it: that does not count."""
        if ballot != self._ballot:
            self._ballot = ballot
            self._ballot_at = now

    def new_view(self, view: View, leader: NodeId, now: Time) -> None:
        """We are in a next view; `leader` led the one before."""
        if self._asked:
            self._patience = min(2 * self._patience, MAX_PATIENCE)
        self._later = 1
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
        self._asked, self._ballot_at = 0, None

    def _turn_to(self, leader: NodeId, now: Time) -> None:
        """Begin anew if another node leads now: it has left nothing undone yet."""
        if leader == self._leader:
            return
        self._leader = leader
        self._start_anew(now)
        self._patience = 1
        for newcomer in self._newcomers.values():
            newcomer.first, newcomer.snubs = now, 0

    # -- what follows --------------------------------------------------------------------------

    def look(self, leader: NodeId, due: str, members: int, now: Time) -> Duty:
        """Judge the leader of so many members; `due` is a reason for a change, if there is one."""
        assert self.look_at is not None
        self._turn_to(leader, now)
        self._excuse(now - self.look_at)
        self._forget(members, now)
        self.reason = due or (KEEPS_OUT if self._newcomers else "")
        if not self.reason:
            self._since = self.look_at = None
            self._asked, self._patience = 0, 1
            return Duty.WAIT
        self.look_at = now + self._every
        if self._since is None:
            self._since = now
        return self._judge(now)

    def _forget(self, members: int, now: Time) -> None:
        """Forget newcomers that ask no more, though not before the view after their last request.

        A newcomer asks one member after the other.
        """
        each = min(3 * members * self._enter_every, MAX_SILENCE * self.bound)
        silence = max(2 * self._mute_after, each)
        for place, one in list(self._newcomers.items()):
            if not one.requests and now - one.last > silence:
                del self._newcomers[place]

    def _judge(self, now: Time) -> Duty:
        if any(one.snubs >= MAX_SNUBS for one in self._newcomers.values()):
            self.reason = KEEPS_OUT
            return Duty.LEAVE
        late = self.waited(now) - self._mute_after * self._patience
        if late < 0:
            return Duty.WAIT
        quiet = late if self._ballot_at is None else min(late, now - self._ballot_at)
        rest = self._rest * self._later
        if self._asked >= MIN_ASKED and (quiet >= rest or late >= VIEW * rest):
            return Duty.LEAVE
        self._asked += 1
        return Duty.ASK

    def _excuse(self, late: Time) -> None:
        """Leave out our own pause if we look too late: news may lie unread."""
        if late > self._every:
            if self._since is not None:
                self._since += late
            if self._ballot_at is not None:
                self._ballot_at += late
            for newcomer in self._newcomers.values():
                newcomer.first += late
                newcomer.last += late

    def next_leader(self) -> None:
        """The leader is left: begin anew with the next one, and wait for it for longer."""
        self._leader = None
        self._later = min(LATER * self._later, MAX_LATER)
