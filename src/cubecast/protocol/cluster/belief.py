"""What a node believes about views, and from which nodes: possible numbers, known addresses.

Any holder of the cluster's key can write a message about views.  Two questions decide whether the
message is believed.

*Can it be?*  A view follows its parent by one epoch and keeps the cluster's name.  A node that
comes from elsewhere (a returning node, a newcomer) *leaps*: it finds the cluster at a later epoch.
The length of a leap is bounded, and no leap leads above `LEAP_LIMIT`, a quarter of what can be
encoded, but for short ones (`SHORT_LEAP`): a cluster that lies brought there goes on, nodes come in
and come back.  Above `ENTRY_LIMIT`, a half, epochs grow by single steps only.  So no lie brings a
node to an epoch whose successor cannot be encoded: 2^29 steps are left.  Rounds of ballots are
bounded, too: all members of a view count them from the ballot of that view, which they know alike
(`is_near`).  So no lie brings a leader to a ballot that the others do not believe.

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
"""How many views a node may have missed, and how many rounds of ballots in each."""
MAX_PUSH = MAX_LEAP // 2
"""How far a ballot of a node that does not lead may be above that of the view."""
ROUND_LIMIT = 1 << 60
"""A node from elsewhere enters no view whose ballot is above this round."""
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
    if epoch >= (ENTRY_LIMIT if short else LEAP_LIMIT) or round_ >= ROUND_LIMIT:
        return f"no cluster is at epoch {epoch}, round {round_}"
    if since is not None:
        if epoch > since.epoch + MAX_LEAP:
            return f"epoch {epoch} is more than {MAX_LEAP} after ours, {since.epoch}"
        rounds = MAX_LEAP * max(1, epoch - since.epoch)
        if round_ > since.id.ballot.round + rounds:
            return f"round {round_} is more than {rounds} after ours, {since.id.ballot.round}"
    return ""


def rank(view: View, slot: NodeId) -> int:
    """How many members of the view lead before this one."""
    return (view.mask & (1 << slot) - 1).bit_count()


def is_near(ballot: Ballot, base: int, view: View, leads: bool) -> bool:
    """Whether a ballot to change `view`, whose own one is of round `base`, can be meant.

    A leader is given `MAX_LEAP` rounds more than the leaders before it.  Ballots of other nodes
    reach only half of the way.  So what a leader was brought to follow, by whatever member that
    does not lead or led before, leaves it 2^19 ballots that all others believe.
    """
    rounds = MAX_LEAP * (rank(view, ballot.slot) + 1) if leads else MAX_PUSH
    return ballot.round <= base + rounds


def may_follow_other(ballot: Ballot, base: int, view: View, slot: NodeId) -> bool:
    """Whether the leader `slot` believes that a survivor follows this ballot.

    It then takes a higher one, which the other survivors have to believe.
    """
    return ballot.round <= base + MAX_LEAP * rank(view, slot) + MAX_PUSH


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
