"""What is believed about views, and from whom: possible numbers, and addresses that are known.

Anybody who holds the cluster's key can write a message about views.  Two questions decide whether
one is believed.

*Can it be?*  A view follows its parent by one epoch and keeps the cluster's name.  Whoever comes
from elsewhere (a returning node, a newcomer) *leaps*: it finds the cluster further than it was.  A
leap is bounded from where the node is, and no leap leads above `LEAP_LIMIT`, a quarter of what can
be encoded.  Above that line epochs grow by single steps only.  So no lie brings a node to where the
next honest step cannot be said: 3 x 2^28 steps are left.  Rounds of ballots are bounded in the same
way.

*Who says it?*  Of the view that it is in, a node believes the members of that view, in the life
that the view names.  Of another view it believes who answers at an agreed address: one that a view
of its own history named (`AddressHistory`).  Everybody else is a reason to ask at such an address,
if the other view names one, and nothing else.

Invariants:

1. What is refused here changes nothing.
2. `AddressHistory` has at most `MAX_PLACES` addresses; the oldest that is in no present view goes
   first.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.protocol.cluster.views import Absent, Ballot, Install, View, Who, process_of
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import ROUTE_BITS

MAX_EPOCH = 1 << 62 - ROUTE_BITS
"""Epochs are below this: the number of a route has 62 bits, the upper ones are an epoch."""
LEAP_LIMIT = MAX_EPOCH // 4
"""No view is entered from elsewhere above this epoch."""
MAX_LEAP = 1 << 20
"""Views that a node may have missed, and rounds of ballots."""
ROUND_LIMIT = 1 << 60
"""No view is entered from elsewhere whose ballot is above this round."""
MAX_WITNESSES = 3
"""Agreed addresses at which is asked whether there is such a view."""
MAX_PLACES = 2 * 4096
"""Addresses of former members that are remembered: twice as many as a view can have."""
BALLOTS_OF_OTHERS = 8
"""Ballots in one view that a node follows of a member that does not lead, as far as it knows."""
BALLOTS_OF_THE_LEADER = 256
"""The same of the member that leads, and four more for each member: suspicions come one by one."""
MAX_OBJECTIONS = 8
"""Times that one member has a leader give way in one view; then the leader goes on without it."""


def check_step(install: Install, view: View) -> None:
    """Refuse a view that cannot come after `view`, which it names as its parent."""
    if install.view.epoch != view.epoch + 1:
        raise ProtocolError(f"epoch {install.view.epoch} does not follow epoch {view.epoch}")
    if install.view.cluster != view.cluster:
        raise ProtocolError(f"a view of cluster {install.view.cluster!r} after one of ours")


def leap(view: View, since: View | None) -> str:
    """Why nobody who was in the view `since` (None: in none) can come to be in `view`; or ""."""
    epoch, round_ = view.epoch, view.id.ballot.round
    if epoch >= LEAP_LIMIT or round_ >= ROUND_LIMIT:
        return f"no cluster is at epoch {epoch}, round {round_}"
    if since is not None:
        if epoch > since.epoch + MAX_LEAP:
            return f"epoch {epoch} is more than {MAX_LEAP} after ours, {since.epoch}"
        if not is_near(view.id.ballot, since.id.ballot):
            return f"round {round_} is more than {MAX_LEAP} after ours, {since.id.ballot.round}"
    return ""


def is_near(ballot: Ballot, ours: Ballot) -> bool:
    """Whether a ballot can be meant by one who may not know which ones we know."""
    return ballot.round <= ours.round + MAX_LEAP


def ballots_followed(members: int, leads: bool) -> int:
    """How many ballots of one member are followed in one view."""
    return BALLOTS_OF_THE_LEADER + 4 * members if leads else BALLOTS_OF_OTHERS


class AddressHistory:
    """The addresses that views of ours named, and which process was last agreed to be there."""

    __slots__ = ("_processes",)

    def __init__(self) -> None:
        self._processes: dict[str, str] = {}  # by address, the latest last

    def learn(self, view: View, absent: Iterable[Absent]) -> None:
        """We are in a view that names these."""
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
        """Whether a life is one of a process that we were in a view with, or looked for."""
        return process_of(uid) in self._processes.values()

    def witnesses(self, view: View, first: str, besides: str) -> list[str]:
        """Agreed addresses to ask whether there is such a view.

        That of the life `first`, if it has one; else those of others in the view, by slot.
        """
        slot = view.slot_of(first)
        if slot is not None and view.members[slot].address in self:
            return [view.members[slot].address]
        places = [view.members[slot].address for slot in sorted(view.members)]
        return [place for place in places if place in self and place != besides][:MAX_WITNESSES]
