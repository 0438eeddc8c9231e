"""Which nodes there are: slots given out and taken back by the node with the lowest one.

Rules that the protocol's waves rely on:

1. A newcomer is welcomed when every node knows it, so it is known before it starts anything.
2. A leaver is let go when every node, the coordinator included, has finished the operations it
   began while the leaver was in the cluster and has nothing on its way to it, so no wave visits
   a node that is gone and nothing is lost with it.
3. Changes are made one at a time, by the lowest slot, and numbered.
4. What the members are is said again until everyone has answered, so nothing depends on a
   connection that breaks.  A newcomer that not everyone answers for, or that is gone before it has
   answered itself, is no member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from cubecast.net.hello import (
    ClusterUpdate,
    Goodbye,
    Greeting,
    Member,
    UpdateAck,
    Welcome,
)
from cubecast.net.wire import MAX_SLOTS, WireError
from cubecast.protocol.port import NodeId

log = logging.getLogger("cubecast")

POLL_S = 0.005
REPEAT_S = 0.5
LONGEST_REPEAT_S = 5.0
"""How long to wait for an answer before saying it again: twice as long each time."""
MAX_LEFT = 256
"""So many of those who left are told so if they come back to ask."""
MAX_EARLY = 64
"""Changes that may overtake the news that we are welcome."""


class Runtime(Protocol):
    """What the cluster needs of its node."""

    slot: NodeId
    uid: str

    def greet(self, slot: NodeId, message: Greeting) -> None: ...
    def cluster_changed(
        self, before: dict[NodeId, Member], after: dict[NodeId, Member]
    ) -> None: ...
    def unfinished(self, departing: Collection[NodeId]) -> bool: ...
    def unreachable(self, peer: NodeId) -> None: ...


class Cluster:
    """The members as this node knows them, and the changes under way."""

    def __init__(self, runtime: Runtime, update_timeout_s: float) -> None:
        self._runtime = runtime
        self._timeout = update_timeout_s
        self.epoch = 0
        self.members: dict[NodeId, Member] = {}
        self.departing: dict[NodeId, Member] = {}
        """Those who left and may still have to be reached for what began before."""
        self._changing = asyncio.Lock()
        self._missing: set[NodeId] = set()
        self._early: list[tuple[ClusterUpdate, NodeId]] = []
        self._all_acked: asyncio.Event = asyncio.Event()
        self._acks_owed: dict[NodeId, int] = {}
        self._releasing: set[str] = set()
        self._unheard: set[NodeId] = set()  # welcomed, and not known to know it
        self._left: dict[str, None] = {}  # uids, oldest first
        self._reminder: asyncio.TimerHandle | None = None

    @property
    def mask(self) -> int:
        """The slots in use."""
        return sum(1 << slot for slot in self.members)

    @property
    def coordinator(self) -> NodeId:
        """Who gives out slots."""
        return min(self.members)

    def slot_of(self, uid: str) -> NodeId | None:
        """The slot of a member, or of one that is about to be gone."""
        for slot, member in (*self.members.items(), *self.departing.items()):
            if member.uid == uid:
                return slot
        return None

    def begin(self, members: dict[NodeId, Member], epoch: int) -> None:
        """Start with what the welcome said, or alone; then catch up with later changes."""
        self.members = dict(members)
        self.epoch = epoch
        early, self._early = self._early, []
        for update, sender in early:
            self.on_update(update, sender)

    # -- at the coordinator ----------------------------------------------------------------------

    @property
    def _in_charge(self) -> bool:
        """Whether we still give out slots; whoever asked meanwhile asks our successor."""
        return bool(self.members) and self.coordinator == self._runtime.slot

    async def admit(self, member: Member, waits: Callable[[], bool]) -> Welcome | None:
        """Give a newcomer the lowest free slot and tell everyone; None if we are leaving.

        One that no longer `waits` for it, or that not everyone answers for in half the time that
        it waits, gets none.
        """
        async with self._changing:
            if not self._in_charge:
                return None
            known = self.slot_of(member.uid)
            if known is not None and known in self.members:
                return Welcome(known, self.epoch, self.members)
            slot = self._free_slot()
            if slot >= MAX_SLOTS:
                raise WireError(f"the cluster has {MAX_SLOTS} nodes and room for no more")
            if not waits():
                raise WireError("the newcomer is gone")
            before = self.members
            answered = await self._change({**before, slot: member}, self._timeout / 2)
            if not answered or not waits():
                silent = ", ".join(map(str, sorted(self._missing)))
                self._tell_everyone(before)
                raise WireError(
                    f"no answer from node {silent}" if silent else "operations do not end"
                )
            self._unheard.add(slot)
            return Welcome(slot, self.epoch, self.members)

    async def release(self, slot: NodeId, uid: str) -> None:
        """Take a leaver's slot back, tell everyone, then let it go; asking twice does nothing."""
        if uid in self._releasing:
            return
        self._releasing.add(uid)
        try:
            async with self._changing:
                member = self.members.get(slot)
                if self._in_charge and member is not None and member.uid == uid:
                    rest = {other: one for other, one in self.members.items() if other != slot}
                    await self._change(rest, self._timeout)
                if slot != self._runtime.slot and slot in self.departing:
                    self._runtime.greet(slot, Goodbye())  # again, if the first was lost
        finally:
            self._releasing.discard(uid)

    def is_let_go(self, uid: str) -> bool:
        """Whether somebody left and nothing of ours needs it; it may have missed the goodbye."""
        under_way = self._changing.locked() or self._runtime.unfinished(self.departing)
        return uid in self._left and not under_way

    def on_goodbye(self, slot: NodeId) -> None:
        """A node needs us no more: as good as an answer to the news that we leave."""
        self._answered(slot)

    def never_came(self, slot: NodeId) -> Member | None:
        """The newcomer in a slot, if it did not answer its welcome; such a one may be gone."""
        return self.members.get(slot) if slot in self._unheard else None

    async def finish(self) -> None:
        """Wait until the change under way is made, and its leaver let go."""
        async with self._changing:
            pass

    def _free_slot(self) -> NodeId:
        slot = 0
        while slot in self.members:
            slot += 1
        return slot

    async def _change(self, members: dict[NodeId, Member], limit_s: float) -> bool:
        """Tell everyone who stays of the new members; True when all have answered in time."""
        self._tell_everyone(members)
        try:
            async with asyncio.timeout(limit_s):
                await self._all_acked.wait()
                while self._runtime.unfinished(self.departing):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            log.warning("no answer to a change of the cluster from %s", sorted(self._missing))
            return False
        return True

    def _tell_everyone(self, members: dict[NodeId, Member]) -> None:
        """Make a change, and have those who were there before and stay answer for it."""
        others = self.members.keys() & members.keys()
        self._apply(ClusterUpdate(self.epoch + 1, members))
        self._ask(others)

    def _ask(self, others: Collection[NodeId]) -> None:
        """Say what the members are to `others` until they have answered."""
        self._missing = {slot for slot in others if slot != self._runtime.slot}
        self._all_acked.clear()
        if not self._missing:
            self._all_acked.set()
        self._remind(REPEAT_S)

    def _remind(self, pause: float) -> None:
        self.close()
        if not self._missing:
            return
        update = ClusterUpdate(self.epoch, self.members)
        for slot in sorted(self._missing):
            self._runtime.greet(slot, update)
        self._reminder = asyncio.get_running_loop().call_later(
            pause, self._remind, min(2 * pause, LONGEST_REPEAT_S)
        )

    def remind(self, slot: NodeId) -> None:
        """A connection broke: say again what may be lost with it."""
        if slot in self._missing or slot in self._unheard:
            self._runtime.greet(slot, ClusterUpdate(self.epoch, self.members))

    def close(self) -> None:
        """Remind nobody."""
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def on_update_ack(self, ack: UpdateAck, slot: NodeId) -> None:
        self._unheard.discard(slot)
        if ack.epoch == self.epoch:
            self._answered(slot)

    def _answered(self, slot: NodeId) -> None:
        self._missing.discard(slot)
        if not self._missing:
            self._all_acked.set()
            self.close()

    # -- at the others ---------------------------------------------------------------------------

    def on_update(self, update: ClusterUpdate, sender: NodeId) -> None:
        """Apply a change; acknowledge when no operation of ours relies on the state before."""
        if not self.members:  # the next change overtook the news that we are welcome
            if len(self._early) >= MAX_EARLY:
                raise WireError("more changes of the cluster than can wait until we have joined")
            self._early.append((update, sender))
            return
        self._check(update, sender)
        if update.epoch > self.epoch:
            self._apply(update)
            self.close()
            self._missing.clear()
            if self._in_charge:  # whom we succeed may have gone before everyone heard of it
                self._ask(self.members.keys())
        self._acks_owed[sender] = max(update.epoch, self._acks_owed.get(sender, 0))
        self.settle()

    def _check(self, update: ClusterUpdate, sender: NodeId) -> None:
        """Only who gives out slots changes the cluster, and nobody tells us that we are gone.

        The coordinator as we know it may tell us of its own leaving; its successor may tell us of
        a change before we hear of that.
        """
        me = update.members.get(self._runtime.slot)
        if me is None or me.uid != self._runtime.uid:
            raise WireError("a change of the cluster that leaves us out")
        known = update.epoch <= self.epoch and sender in self.departing  # it says so again
        if not known and sender not in (self.coordinator, min(update.members)):
            raise WireError(f"a change of the cluster by node {sender}, which gives out no slots")

    def settle(self) -> None:
        """Send the acknowledgements we owe, if nothing of ours still needs a leaver."""
        if self._acks_owed and not self._runtime.unfinished(self.departing):
            owed, self._acks_owed = self._acks_owed, {}
            for sender, epoch in owed.items():
                self._runtime.greet(sender, UpdateAck(epoch))

    def forget(self, slot: NodeId) -> None:
        """A leaver is out of reach."""
        self.departing.pop(slot, None)

    def _apply(self, update: ClusterUpdate) -> None:
        """Take over what the members are; who gave way to another in its slot left before."""
        replaced = [
            slot
            for slot, one in update.members.items()
            if slot in self.members and self.members[slot].uid != one.uid
        ]
        if replaced:
            rest = {slot: one for slot, one in self.members.items() if slot not in replaced}
            self._take_over(rest, update.epoch)
            for slot in replaced:
                self._runtime.unreachable(slot)
        self._take_over(update.members, update.epoch)

    def _take_over(self, members: dict[NodeId, Member], epoch: int) -> None:
        before = self.members
        self.members = dict(members)
        self.epoch = epoch
        self._unheard &= self.members.keys()
        gone = {slot: one for slot, one in before.items() if slot not in self.members}
        for one in gone.values():
            self._left[one.uid] = None
        while len(self._left) > MAX_LEFT:
            del self._left[next(iter(self._left))]
        self.departing = {
            slot: one
            for slot, one in {**self.departing, **gone}.items()
            if slot not in self.members
        }
        self._runtime.cluster_changed(before, self.members)
