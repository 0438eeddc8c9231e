"""Telling a decided view: as a difference, down the cube's tree, with merged answers.

Theory of operation.  The leader that decided a view is its *teller*.  It sends the whole view to
newcomers.  To members of the view before it sends the difference (`Change`), down the tree of the
cube that consists of them and is rooted at the teller: each of them goes over and passes the same
message on.  An answer (`Installed`) names members that have installed the view.  A node answers
when all below it have answered, or with what it has after half of the teller's patience for a tree
of that height, and then whenever it hears of more.  A member that the teller has not heard of in
time is told directly, and again each `repeat_after`.

The teller's patience.  Messages go down a tree of h levels and answers come up in h round trips.
`repeat_after` is for a question and its answer, with a good margin (`patience`): a teller that
waited no longer for a high tree would tell every node in it twice.

Invariants:

1. *A relay adds nothing.*  It passes on what was decided, unchanged, after it went over itself.  So
   a receiver judges the same message, by the same rule (`ViewAgreement.on_install`), as if the
   teller had told it directly; the argument for agreement does not depend on the carrier.
2. *A relay takes nothing away.*  A relay that is slow or dead, or must refuse the view, delays the
   nodes below it until the teller tells them directly.  No member is excluded for it: a member is
   only excluded for its own silence.
3. *An answer for another node was given by that node.*  A node names itself, and the nodes that
   answers from below named.
4. Only a node in the view that a difference starts from can read it; the checksum of the members
   decides whether the result is the right view.  A node that cannot read it asks for the whole view
   (`Unclear`).
5. A node keeps this state of its present view, or of the last one that it decided: two sets, and
   one `Change`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from cubecast.protocol.cluster.views import Absent, Change, Clusterwide, Install, Installed, View
from cubecast.protocol.port import NodeId, Time
from cubecast.topology import children, cluster, cluster_mask, dimension_for, members_of


def difference(install: Install, parent: View, absent: Collection[Absent]) -> Change:
    """What changes from the view `parent`, with these absent, to the next one."""
    view, before = install.view, set(absent)
    came = {slot: who for slot, who in view.members.items() if parent.members.get(slot) != who}
    gone = [slot for slot, who in parent.members.items() if view.members.get(slot) != who]
    still = set(install.absent)
    return Change(
        install.ballot,
        install.parent,
        view.id,
        sum(1 << slot for slot in gone),
        came,
        install.finals,
        install.ends,
        tuple(one.who.uid for one in absent if one not in still),
        tuple(one for one in install.absent if one not in before),
        view.checksum,
        install.apart,
    )


def restored(change: Change, parent: View, absent: Collection[Absent]) -> Install | None:
    """The view that a change leads to; None if it does not start from `parent`."""
    kept = parent.mask & ~change.gone
    if change.parent != parent.id or change.gone & ~parent.mask:
        return None
    if any(kept >> slot & 1 for slot in change.came):
        return None
    view = parent.changed(change.view, change.gone, change.came)
    if view.checksum != change.check or len(view.slots) != len(view.members) or not view.members:
        return None
    forgotten = set(change.forgotten)
    remembered = [one for one in absent if one.who.uid not in forgotten]
    return Install(
        change.ballot,
        change.parent,
        view,
        change.finals,
        change.ends,
        (*remembered, *change.absent),
        change.apart,
    )


def patience(repeat_after: Time, levels: int) -> Time:
    """How long to wait for answers out of a tree: `repeat_after` for each two of its levels."""
    return repeat_after * max(2, levels) // 2


class Messenger(Protocol):
    """What the broadcast needs of its node."""

    def send(self, slot: NodeId, message: Clusterwide) -> None: ...
    def reach(self, address: str, message: Clusterwide) -> None: ...
    def wake(self, at: Time) -> None: ...


class ViewBroadcast:
    """One node's part in telling one view."""

    __slots__ = (
        "_again_at",
        "_install",
        "_messenger",
        "_repeat_after",
        "_slot",
        "_tree",
        "_up",
        "change",
        "there",
        "wanted",
    )

    def __init__(
        self,
        messenger: Messenger,
        repeat_after: Time,
        slot: NodeId,
        install: Install,
        change: Change | None = None,
        tree: int = 0,
    ) -> None:
        """`tree`: the members that were in the view before, and are told the `change`."""
        self._messenger = messenger
        self._repeat_after = repeat_after
        self._slot = slot
        self._install = install
        self.change = change
        self._tree = tree
        self._up = ""
        self._again_at: Time | None = None
        self.there = 1 << slot
        """Slots of members that have installed the view, as far as we know."""
        self.wanted = 0
        """Slots of members that we answer for, or have to tell."""

    # -- the teller --------------------------------------------------------------------------------

    def tell(self, inside: bool, now: Time) -> None:
        """Tell all members of the view; `inside`: we are one of them."""
        self.there = 1 << self._slot if inside else 0
        view, tree = self._install.view, self._tree
        self.wanted = view.mask & ~self.there
        for slot in members_of(view.mask & ~tree & ~self.there):
            self._messenger.reach(view.members[slot].address, self._install)
        levels = dimension_for((tree | 1 << self._slot).bit_length())
        self._send_down(self._slot, levels)
        self._set_clock(now, levels)

    @property
    def leads(self) -> bool:
        """Whether we are the teller, and not a relay."""
        return not self._up

    @property
    def untold(self) -> int:
        """Slots that are `wanted`, and are not known to have installed the view."""
        return self.wanted & ~self.there

    @property
    def newcomers(self) -> int:
        """Slots of members that were not in the view before."""
        return self._install.view.mask & ~self._tree

    def give_up(self, slots: int) -> None:
        """Tell these members no more, if we are the teller."""
        if self.leads:
            self.wanted &= ~slots

    def tell_again(self, now: Time) -> None:
        """Tell each member that we have not heard of, directly."""
        for slot in members_of(self.untold):
            self.tell_one(slot)
        self._set_clock(now, 1)

    def tell_one(self, slot: NodeId) -> None:
        """Tell one member directly: the difference, if it was in the view before."""
        if self.change is not None and self._tree >> slot & 1:
            self._messenger.send(slot, self.change)
        else:
            self._messenger.reach(self._install.view.members[slot].address, self._install)

    # -- a relay -----------------------------------------------------------------------------------

    def pass_on(self, sender: NodeId, up: str, now: Time) -> None:
        """Tell the nodes below us a view that `sender`, at address `up`, told us down the tree."""
        below = cluster(sender, self._slot)
        self._up = up
        self.wanted = self._tree & cluster_mask(sender, below)
        self._send_down(self._slot, below - 1)
        self._answer_if_complete()
        self._set_clock(now, below - 1)

    def _send_down(self, root: NodeId, height: int) -> None:
        if self.change is None:
            return
        words = msgspec.structs.replace(self.change, down=True)
        for slot in children(root, self._tree & ~(1 << root), height):
            self._messenger.send(slot, words)

    def _answer_if_complete(self) -> None:
        if self._up and not self.untold:
            self.answer(self._up)

    def answer(self, address: str) -> None:
        """Say which members have installed the view."""
        self._messenger.reach(address, Installed(self._install.view.id, self.there))

    # -- both --------------------------------------------------------------------------------------

    def heard(self, slots: int) -> bool:
        """Note that these members have installed the view; True if that is news."""
        news = slots & self._install.view.mask & ~self.there
        self.there |= news
        if news and self._up and (self._again_at is None or not self.untold):
            self._again_at = None
            self.answer(self._up)
        return bool(news)

    @property
    def due(self) -> Time | None:
        """When to tell again, or to answer although the answer is not complete."""
        return self._again_at

    def on_wake(self, now: Time) -> bool:
        """Say what is due; True if we are the teller, and told members again."""
        if self._again_at is None or self._again_at > now:
            return False
        if self.leads:
            self.tell_again(now)
        else:
            self._again_at = None
            self.answer(self._up)
        return self.leads

    def _set_clock(self, now: Time, levels: int) -> None:
        wait = patience(self._repeat_after, levels)
        if self._up:
            wait = max(1, wait // 2)
        self._again_at = now + wait if self.untold else None
        if self._again_at is not None:
            self._messenger.wake(self._again_at)
