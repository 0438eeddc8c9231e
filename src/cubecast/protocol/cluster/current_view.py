"""The view that a node is in, as all its topics see it.

One object per node, shared by its topics.  Only the node changes it, so all its topics are in the
same view.

Invariants:

1. `frozen` is empty except between a report and the next view.
2. `ended` has the lives that ended while this node was in the cluster, with the first epoch without
   each, the oldest first, until `Horizon` says that no node may ask for it; at most `KEPT_LIVES`
   after `forget_lives`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cubecast.protocol.cluster.horizon import KEPT_LIVES, Horizon
from cubecast.protocol.cluster.views import View
from cubecast.protocol.errors import MAX_STREAMS, OPEN_STREAMS_PER_NODE, SPARE_STREAMS
from cubecast.protocol.port import NodeId, Stream


class Transition(NamedTuple):
    """What changed from one view to the next."""

    gone: list[NodeId]
    """Slots of the view before whose lives are not in the next."""
    came: list[NodeId]
    """Slots of the next view whose lives were not in the one before."""
    thawed: list[Stream]
    """Lives that were frozen."""


class CurrentView:
    """The nodes in the cluster, each with its life; without a view nodes never die."""

    __slots__ = ("_view", "born", "cluster", "ended", "epoch", "frozen", "max_open", "since")

    def __init__(self, view: View | None = None, born: int = 0) -> None:
        self._view = view
        self.epoch = 0 if view is None else view.epoch
        self.cluster = -1 if view is None else view.mask
        """The slots in use; all bits are set where there are no views."""
        self.born = born
        """The epoch in which this node entered; earlier routes address another node in its slot."""
        self.since: dict[NodeId, int] = {}
        """The same for nodes that entered later, by slot."""
        self.frozen: set[Stream] = set()
        """Lives whose streams are not delivered until the next view."""
        self.ended: dict[Stream, int] = {}
        """Lives that ended, each with the first epoch without it."""
        self.max_open = MAX_STREAMS
        """How many streams of a topic can be open at a time if all nodes are honest."""

    @property
    def view(self) -> View | None:
        return self._view

    def is_live(self, stream: Stream) -> bool:
        """Whether a stream's publisher is in the cluster, in the life that published it."""
        return self._view is None or self._view.has_stream(stream)

    def expect_nodes(self, nodes: int) -> None:
        """Bound the open streams of a topic for a cluster of so many nodes."""
        self.max_open = OPEN_STREAMS_PER_NODE * nodes + SPARE_STREAMS

    def freeze(self, survivors: int, unsettled: Iterable[Stream]) -> None:
        """Freeze the lives that will not be in the next view, and those that are not settled."""
        assert self._view is not None
        for slot, who in self._view.members.items():
            if not survivors >> slot & 1:
                self.frozen.add(Stream(slot, who.incarnation))
        self.frozen.update(stream.life for stream in unsettled)

    def install(self, view: View) -> Transition:
        """Go over to the next view."""
        before = self._view
        assert before is not None
        gone = [slot for slot, who in before.members.items() if not view.has(who.uid)]
        came = [slot for slot, who in view.members.items() if not before.has(who.uid)]
        thawed = list(self.frozen)
        self.frozen.clear()
        self._view = view
        self.epoch, self.cluster = view.epoch, view.mask
        for slot in gone:
            self.ended[Stream(slot, before.members[slot].incarnation)] = view.epoch
        for slot in came:
            self.since[slot] = view.epoch
        return Transition(gone, came, thawed)

    def forget_lives(self, horizon: Horizon) -> None:
        """Drop ended lives that are not needed, and the oldest beyond `KEPT_LIVES`."""
        excess = len(self.ended) - KEPT_LIVES
        for number, (life, died) in enumerate(list(self.ended.items())):
            if number < excess or not horizon.needs_dead(died):
                del self.ended[life]
