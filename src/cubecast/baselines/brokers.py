"""SRPT-B of [J] 4.6: a tree of brokers, and subscribers that hang directly on them.

Theory of operation.  Some nodes are brokers.  A publisher delegates its message to the topic's
root, one of the brokers, which sends it down one tree of brokers; each broker then sends a copy to
each of its own subscribers.  Nothing is ordered.  Decisions that the paper leaves open:

1. Subscribers belong to brokers by locality: with b brokers the ids are cut into b blocks as equal
   as can be (4096 nodes and 32 brokers: 127 subscribers each); the first of a block is its broker.
2. The tree is the VCube tree of those brokers that have a subscriber, without forwarders ("trees
   are composed only by the respective numbers of brokers").
3. A broker serves the tree first, then its subscribers in the order of their ids.  All copies are
   PUB messages and pass its sending queue.
4. A broker may subscribe itself; it takes a message when it arrives.  In the paper none does.
5. The root keeps the membership, as in SRPT-S; the paper's experiment has no changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

from cubecast.baselines.single_root import Branches, SingleRoot, TreeSeat
from cubecast.protocol.port import NodeId, Port, Topic
from cubecast.topology import children, mask_of, members_of


@lru_cache(maxsize=64)
def broker_ids(nodes: int, brokers: int) -> tuple[NodeId, ...]:
    """The brokers: the first id of each of `brokers` blocks of nearly equal size."""
    return tuple(number * nodes // brokers for number in range(brokers))


class BrokerTree(SingleRoot):
    """SRPT-B: one static tree of brokers per topic."""

    __slots__ = ("_block", "_ids")
    label: ClassVar[str] = "srpt-b"

    def __init__(
        self,
        node: NodeId,
        port: Port,
        *,
        nodes: int,
        brokers: int,
        root_of: Callable[[Topic], NodeId],
    ) -> None:
        super().__init__(node, port, nodes=nodes, root_of=root_of)
        self._ids = broker_ids(nodes, brokers)
        self._block = 0
        """The ids of this broker's subscribers; none if this is no broker."""
        if node in self._ids:
            number = self._ids.index(node)
            end = self._ids[number + 1] if number + 1 < brokers else nodes
            self._block = (1 << end) - (1 << node + 1)

    def _serve(self, node: NodeId, members: int, h: int) -> tuple[NodeId, ...]:
        """The next brokers of the tree, then the subscribers of this one."""
        if node not in self._ids:
            return ()
        tree = children(node, _with_subscribers(self._ids, members), h)
        return tree + tuple(members_of(members & self._block))

    def _new_seat(self) -> TreeSeat:
        return TreeSeat(Branches(self._node, self._serve))


@lru_cache(maxsize=64)
def _with_subscribers(ids: tuple[NodeId, ...], members: int) -> int:
    """The brokers whose block holds a subscriber."""
    ends = (*ids[1:], max(members.bit_length(), ids[-1] + 1))
    return mask_of(
        first
        for first, end in zip(ids, ends, strict=True)
        if members >> first & ((1 << end - first) - 1)
    )
