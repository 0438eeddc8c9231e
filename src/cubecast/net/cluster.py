"""Which nodes there are: slots given out and taken back by the node with the lowest one.

Rules that the protocol's waves rely on:

1. A newcomer is welcomed when every node knows it, so it is known before it starts anything.
2. A leaver is let go when every node, the coordinator included, has finished the operations it
   began while the leaver was in the cluster and has nothing on its way to it, so no wave visits
   a node that is gone and nothing is lost with it.
3. Changes are made one at a time, by the lowest slot, and numbered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
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
        self._releasing: set[NodeId] = set()

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

    async def admit(self, member: Member) -> Welcome | None:
        """Give a newcomer the lowest free slot and tell everyone; None if we are leaving."""
        async with self._changing:
            if not self._in_charge:
                return None
            known = [slot for slot, one in self.members.items() if one.uid == member.uid]
            slot = known[0] if known else self._free_slot()
            if slot >= MAX_SLOTS:
                raise WireError(f"the cluster has {MAX_SLOTS} nodes and room for no more")
            if not known:
                await self._change({**self.members, slot: member})
            return Welcome(slot, self.epoch, self.members)

    async def release(self, slot: NodeId) -> None:
        """Take a leaver's slot back, tell everyone, then let it go; asking twice does nothing."""
        if slot in self._releasing:
            return
        self._releasing.add(slot)
        try:
            async with self._changing:
                if self._in_charge and slot in self.members:
                    rest = {other: one for other, one in self.members.items() if other != slot}
                    await self._change(rest)
                    if slot != self._runtime.slot:
                        self._runtime.greet(slot, Goodbye())
        finally:
            self._releasing.discard(slot)

    async def finish(self) -> None:
        """Wait until the change under way is made, and its leaver let go."""
        async with self._changing:
            pass

    def _free_slot(self) -> NodeId:
        slot = 0
        while slot in self.members:
            slot += 1
        return slot

    async def _change(self, members: dict[NodeId, Member]) -> None:
        """Tell everyone who stays of the new members; return when all have answered."""
        update = ClusterUpdate(self.epoch + 1, members)
        others = [slot for slot in self.members if slot != self._runtime.slot and slot in members]
        self._missing = set(others)
        self._all_acked.clear()
        self._apply(update)
        for slot in others:
            self._runtime.greet(slot, update)
        try:
            async with asyncio.timeout(self._timeout):
                if others:
                    await self._all_acked.wait()
                while self._runtime.unfinished(self.departing):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            log.warning("no answer to a change of the cluster from %s", sorted(self._missing))

    def on_update_ack(self, ack: UpdateAck, slot: NodeId) -> None:
        if ack.epoch == self.epoch:
            self._missing.discard(slot)
            if not self._missing:
                self._all_acked.set()

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
        if sender not in (self.coordinator, min(update.members)):
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
        before = self.members
        self.members = dict(update.members)
        self.epoch = update.epoch
        gone = {slot: one for slot, one in before.items() if slot not in self.members}
        self.departing = {
            slot: one
            for slot, one in {**self.departing, **gone}.items()
            if slot not in self.members
        }
        self._runtime.cluster_changed(before, self.members)
