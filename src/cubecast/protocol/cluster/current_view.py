"""The view that a node is in, as all its topics see it.

One object per node, shared by its topics; the node alone changes it, so that no topic can be in
another view than the next.

Invariants:

1. `frozen` is empty but between a report and the next view.
2. `ended` has every life that ended while this node was here, with the view that first was without
   it, the oldest first, until `Horizon` says that no node may ask for it.
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
    """Slots of the view before whose nodes are not in the next."""
    came: list[NodeId]
    """Slots of the next view whose nodes were not in the one before."""
    thawed: list[Stream]
    """Lives that were frozen."""


class CurrentView:
    """Who is in the cluster and in which life; without a view nodes never die."""

    __slots__ = ("_view", "born", "cluster", "ended", "epoch", "frozen", "max_open", "since")

    def __init__(self, view: View | None = None, born: int = 0) -> None:
        self._view = view
        self.epoch = 0 if view is None else view.epoch
        self.cluster = -1 if view is None else view.mask
        """The slots in use; all bits are set where there are no views."""
        self.born = born
        """The view in which this node came; routes of earlier views mean another one."""
        self.since: dict[NodeId, int] = {}
        """The same of the nodes that came later."""
        self.frozen: set[Stream] = set()
        """Lives of which nothing is delivered until the next view."""
        self.ended: dict[Stream, int] = {}
        """Lives that ended, and with which view."""
        self.max_open = MAX_STREAMS
        """How many streams of a topic can honestly be open at a time."""

    @property
    def view(self) -> View | None:
        return self._view

    def is_live(self, stream: Stream) -> bool:
        """Whether a stream's publisher is in the cluster, in the life that published it."""
        return self._view is None or self._view.has_stream(stream)

    def expect_nodes(self, nodes: int) -> None:
        """The cluster has so many nodes: bound the streams that are open at a time."""
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
        """Keep no more lives that ended than are needed, and not too many."""
        excess = len(self.ended) - KEPT_LIVES
        for number, (life, died) in enumerate(list(self.ended.items())):
            if number < excess or not horizon.needs_dead(died):
                del self.ended[life]
