"""What a node believes about views, and from which nodes: possible numbers, known addresses.

Any holder of the cluster's key can write a message about views.  Two questions decide whether the
message is believed.

*Can it be?*  A view follows its parent by one epoch and keeps the cluster's name.  A node that
comes from elsewhere (a returning node, a newcomer) *leaps*: it finds the cluster at a later epoch.
The length of a leap is bounded, and no leap leads above `LEAP_LIMIT`, a quarter of what can be
encoded, but for short ones (`SHORT_LEAP`): a cluster that lies brought there goes on, nodes come in
and come back.  Above `ENTRY_LIMIT`, a half, epochs grow by single steps only.  So no lie brings a
node to an epoch whose successor cannot be encoded: 2^29 steps are left.

Rounds of ballots are bounded, too.  All members of a view count them from the ballot in the view's
name, which they know alike.  Each leader has a line of its own (`line`), above all that it can be
brought to follow.  So no lie brings a leader to a ballot that the nodes which count on it do not
believe.  From one view to the next the round grows by `MAX_ROUNDS` at most, so it is never above
that times the epoch: a node from elsewhere needs to know no more (`leap`).

*Who says it?*  About its own view, a node believes the members of that view, in the lives that the
view names.  About another view, it believes a node that answers at an agreed address: one that a
view of its own history named (`AddressHistory`).  A message of any other node is only a reason to
ask at such an address, if the other view names one.

Invariants:

1. A refused message changes nothing.
2. `AddressHistory` has at most `MAX_PLACES` addresses; the oldest that is in no present view goes
   first.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.protocol.cluster.views import Absent, Ballot, Install, View, Who, process_of
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import ROUTE_BITS
from cubecast.protocol.port import NodeId

MAX_EPOCH = 1 << 62 - ROUTE_BITS
"""Epochs are below this: the number of a route has 62 bits, the upper ones are an epoch."""
LEAP_LIMIT = MAX_EPOCH // 4
"""A node that was in a view before enters none above this epoch, but by a short leap."""
ENTRY_LIMIT = MAX_EPOCH // 2
"""No node from elsewhere enters a view above this epoch: 2^18 short leaps above `LEAP_LIMIT`."""
SHORT_LEAP = 1 << 10
"""How many views a node may have missed above `LEAP_LIMIT`."""
MAX_LEAP = 1 << 20
"""How many views a node may have missed, and how many rounds of ballots each leader has in one."""
MAX_LEADERS = 1 << 12
"""As many as a view can have members."""
MAX_ROUNDS = MAX_LEAP * MAX_LEADERS
"""How far the ballot of a view may be above that of its parent."""
MAX_PUSH = MAX_LEAP // 2
"""How far a ballot of a node that is not taken for the leader may be above that of the view."""
MAX_WITNESSES = 3
"""How many agreed addresses are asked whether a view exists."""
MAX_PLACES = 2 * 4096
"""Addresses of former members that are remembered: twice as many as a view can have."""
BALLOTS_OF_OTHERS = 8
"""Ballots of one member, not the leader as far as a node knows, that it follows in one view."""
BALLOTS_OF_THE_LEADER = 256
"""The same for the leader, and four more for each member: suspicions come one by one."""
MAX_OBJECTIONS = 8
"""How often a leader gives way to one member in one view; then it goes on without the member."""
MAX_WAYS_GIVEN = 4
"""How often it gives way to ballots of one node that others follow; then it takes a higher one."""


def check_step(install: Install, view: View) -> None:
    """Refuse a view that cannot come after `view`, which it names as its parent."""
    if install.view.epoch != view.epoch + 1:
        raise ProtocolError(f"epoch {install.view.epoch} does not follow epoch {view.epoch}")
    if install.view.cluster != view.cluster:
        raise ProtocolError(f"a view of cluster {install.view.cluster!r} cannot follow ours")


def leap(view: View, since: View | None) -> str:
    """Why no node of the view `since` (None: of no view) can come to be in `view`; "": it can."""
    epoch, round_ = view.epoch, view.id.ballot.round
    short = since is None or epoch <= since.epoch + SHORT_LEAP
    limit = ENTRY_LIMIT if short else LEAP_LIMIT
    if epoch >= limit or round_ > MAX_ROUNDS * max(1, epoch):
        return f"no cluster is at epoch {epoch}, round {round_}"
    if since is not None and epoch > since.epoch + MAX_LEAP:
        return f"epoch {epoch} is more than {MAX_LEAP} after ours, {since.epoch}"
    return ""


def rank(view: View, slot: NodeId) -> int:
    """How many members of the view lead before this one."""
    return (view.mask & (1 << slot) - 1).bit_count()


def line(view: View, slot: NodeId) -> int:
    """Up to which round ballots of the leader `slot` to change `view` are believed.

    That is `MAX_LEAP` above the line of the leader before it.  A node follows ballots of nodes
    ahead of it up to their lines, and others only half of the way to the first line.  So what it
    is brought to follow leaves it 2^19 ballots that all who count on it believe.
    """
    return view.id.ballot.round + MAX_LEAP * (rank(view, slot) + 1)


def is_near(ballot: Ballot, view: View) -> bool:
    """Whether a ballot to change `view` can be meant by its owner, if it leads."""
    return ballot.slot in view.members and ballot.round <= line(view, ballot.slot)


def line_of_other(view: View, owner: NodeId, slot: NodeId) -> int:
    """Up to which round `slot` follows ballots of a node that it does not take for the leader.

    A node ahead of `slot` may lead soon, and may have followed such a ballot itself: so each has a
    little more than the one ahead of it, and all less than `MAX_PUSH`.
    """
    room = MAX_PUSH // 2
    ahead = rank(view, owner) + 1 if owner < slot else 0
    return view.id.ballot.round + room + room // len(view.members) * ahead


def may_follow_other(ballot: Ballot, view: View, slot: NodeId) -> bool:
    """Whether the leader `slot` believes that a survivor follows this ballot.

    It then takes a higher one, which the other survivors have to believe.
    """
    return ballot.round <= line(view, slot) - MAX_LEAP + MAX_PUSH


def ballots_followed(members: int, leads: bool) -> int:
    """How many ballots of one member are followed in one view."""
    return BALLOTS_OF_THE_LEADER + 4 * members if leads else BALLOTS_OF_OTHERS


class AddressHistory:
    """The addresses that our views named, and the process last agreed to be at each."""

    __slots__ = ("_processes",)

    def __init__(self) -> None:
        self._processes: dict[str, str] = {}  # by address, the latest last

    def learn(self, view: View, absent: Iterable[Absent]) -> None:
        """Learn the addresses of a view that we are in, and of its absent nodes."""
        for one in absent:
            self._note(one.who)
        for slot in sorted(view.members):
            self._note(view.members[slot])
        if len(self._processes) > MAX_PLACES:
            old = [place for place in self._processes if place not in view.places]
            for place in old[: len(self._processes) - MAX_PLACES]:
                del self._processes[place]

    def _note(self, who: Who) -> None:
        if self._processes.get(who.address) != who.process:
            self._processes.pop(who.address, None)
            self._processes[who.address] = who.process

    def __contains__(self, address: str) -> bool:
        return address in self._processes

    def __len__(self) -> int:
        return len(self._processes)

    def names(self, uid: str) -> bool:
        """Whether a life belongs to a process that was in a view with us, or that we looked for."""
        return process_of(uid) in self._processes.values()

    def witnesses(self, view: View, first: str, besides: str) -> list[str]:
        """Agreed addresses at which to ask whether a view exists.

        That of the life `first`, if it has one; else those of other members of the view, by slot.
        """
        slot = view.slot_of(first)
        if slot is not None and view.members[slot].address in self:
            return [view.members[slot].address]
        places = [view.members[slot].address for slot in sorted(view.members)]
        return [place for place in places if place in self and place != besides][:MAX_WITNESSES]
