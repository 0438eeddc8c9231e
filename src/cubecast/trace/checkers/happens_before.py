"""Happens-before on one topic, from the nodes' own records alone.

Message m happens before m' (m -> m') if some node published or delivered m before it published m',
or if m -> x -> m' for some x. The causal past of a message is all that happens before it. A node
that restarts has forgotten everything: each of its lives is a node of its own here.

A node's own publications are in its past. So the past of any message holds, of each publisher, a
prefix of that publisher's messages, and a count per publisher (a vector clock) says it exactly,
whatever was delivered where. So does a node's *shadow*: the messages it delivered, and all that
happens before any of these. A node that delivers m for the first time although m is in its shadow
has delivered some m' with m -> m' before: that, and only that, breaks causal order.

A clock is packed into one int, a lane of ``width`` bits per publisher, the top bit of each lane
(the guard) being 0. Comparing or merging two clocks is then a few operations on whole ints: with
the guards set in a minuend, a subtraction borrows from no other lane, and leaves a guard standing
where the minuend's count was not the smaller. A clock has a lane per publisher and not a bit per
message, so memory grows with messages times publishers, never with the square of the messages.
Invariants:

1. Every lane of every clock and shadow is below 2^(width - 1).
2. The clock of a message counts the message itself.
3. A shadow is closed: it holds the past of all it holds.
"""

from array import array
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["HappensBefore"]

Node = TypeVar("Node", bound=Hashable)


class HappensBefore(Generic[Node]):
    """The messages of one topic, numbered from 0 in the order of publication, and their clocks."""

    __slots__ = (
        "_clocks",
        "_guards",
        "_lanes",
        "_shadows",
        "_top",
        "_width",
        "lane",
        "published",
        "publishers",
        "rank",
    )

    def __init__(self) -> None:
        self.publishers: list[Node] = []
        """Lane -> the node whose messages it counts."""
        self.published: list[int] = []
        """Lane -> messages published so far."""
        self.lane = array("L")
        """Message -> lane of its publisher."""
        self.rank = array("L")
        """Message -> its place among its publisher's messages, from 1."""
        self._lanes: dict[Node, int] = {}
        self._clocks: list[int] = []
        self._shadows: dict[Node, int] = {}
        self._guards = 0
        self._width = 8
        self._top = 7
        """Where in its lane a guard is: width - 1."""

    def publish(self, node: Node) -> None:
        """Note that ``node`` publishes the next message: it follows all that the node knows.

        That is the node's shadow and its own earlier publications, delivered or not. The past of
        these adds nothing: it was in the shadow or the node's own when they were published.
        """
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = len(self.publishers)
            self.publishers.append(node)
            self.published.append(0)
            self._guards |= 1 << (lane * self._width + self._top)
        rank = self.published[lane] = self.published[lane] + 1
        if rank >> self._top:
            self._widen()
        self.lane.append(lane)
        self.rank.append(rank)
        shadow = self._shadows.get(node, 0)
        unseen = rank - self._count(shadow, lane)
        self._clocks.append(shadow + (unseen << (lane * self._width)))

    def deliver(self, node: Node, message: int) -> bool:
        """Note that ``node`` delivers a message. True: it was in the node's shadow already.

        At a first delivery that is a violation of causal order. Otherwise the message and its past
        join the shadow (an unchanged shadow needs no update, as shadows are closed).
        """
        clock = self._clocks[message]
        guards = self._guards
        surplus = (self._shadows.get(node, 0) | guards) - clock
        ahead = surplus & guards
        if ahead == guards:
            return True
        # In the lanes where the shadow is ahead: the clock plus the surplus; elsewhere the clock.
        self._shadows[node] = clock + (surplus & (ahead - (ahead >> self._top)))
        return False

    def publisher(self, message: int) -> Node:
        """The node that published a message."""
        return self.publishers[self.lane[message]]

    def happens_before(self, message: int, later: int) -> bool:
        """message -> later, of two different messages."""
        return self._count(self._clocks[later], self.lane[message]) >= self.rank[message]

    def in_shadow(self, node: Node, message: int) -> bool:
        """The node delivered the message, or one that it happens before."""
        shadow = self._shadows.get(node, 0)
        return self._count(shadow, self.lane[message]) >= self.rank[message]

    def _count(self, clock: int, lane: int) -> int:
        return (clock >> (lane * self._width)) & ((1 << self._top) - 1)

    def _widen(self) -> None:
        """Make every lane twice as wide."""
        octets = self._width // 8
        self._clocks = [_spread(clock, octets) for clock in self._clocks]
        self._shadows = {node: _spread(clock, octets) for node, clock in self._shadows.items()}
        self._width *= 2
        self._top = self._width - 1
        lanes = range(len(self.publishers))
        self._guards = sum(1 << (lane * self._width + self._top) for lane in lanes)


def _spread(clock: int, octets: int) -> int:
    """The same counts in lanes of twice as many octets."""
    lanes = (clock.bit_length() + 8 * octets - 1) // (8 * octets)
    narrow = clock.to_bytes(lanes * octets, "little")
    wide = bytearray(2 * len(narrow))
    for k in range(octets):
        wide[k :: 2 * octets] = narrow[k::octets]
    return int.from_bytes(wide, "little")
