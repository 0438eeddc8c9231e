"""A node's view of one topic: the lightest ids it knows of, and those that it pins.

Invariants (`check_invariants`):

1. A view holds no id twice and never its own node's.
2. It holds at most `size` ids, and loses one only to another, or because the id is gone, or
   because the size shrinks.
3. Every pinned id is in it, and at most `pins_limit(size)` are pinned.
4. A buried id is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cubecast.overlay.effects import TimeMs
from cubecast.overlay.messages import NodeId
from cubecast.overlay.rounds import pins_limit

Weigh: TypeAlias = Callable[[int, int], int]
"""The weight of the link from the first node to the second ([N] Algorithm 1)."""
BURIALS_LIMIT = 64
"""How many gone ids a view remembers; the oldest is forgotten first."""


class Pin(NamedTuple):
    """An id that is held whatever it weighs."""

    until: TimeMs
    number: int
    """The last request of that id that was granted."""


@dataclass
class OverlayView:
    """The view of `node` in one topic."""

    node: NodeId
    size: int
    """The number of ids to hold.  A15 takes |view| instead: the same, unless ids are removed."""
    weigh: Weigh
    ids: tuple[NodeId, ...] = ()
    """In the order of drawing at first, by weight once merged."""
    pins: dict[NodeId, Pin] = field(default_factory=dict)
    buried: dict[NodeId, TimeMs] = field(default_factory=dict)
    """Gone id -> until when it is not taken from others' sets; the oldest burial first."""
    probed: dict[NodeId, TimeMs] = field(default_factory=dict)
    """When a walk of this node was last sent to each id of the view."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"a view's size must be 0 or more, not {self.size}")
        self.ids = tuple(dict.fromkeys(id_ for id_ in self.ids if id_ != self.node))[: self.size]

    def merge(self, offered: Iterable[NodeId]) -> None:
        """A14-A17: keep the pinned ids, then the lightest of the offered ids and the view."""
        others = {*self.ids, *offered} - self.pins.keys() - self.buried.keys() - {self.node}
        lightest = self._ranked(others)[: self.size - len(self.pins)]
        self.ids = tuple(id_ for _, id_ in sorted((*self._ranked(self.pins), *lightest)))

    def resize(self, size: int) -> None:
        """Change the size with the topic.  Pins that are too many go, the heaviest first."""
        if size < 0:
            raise ValueError(f"a view's size must be 0 or more, not {size}")
        self.size = size
        for _, other in self._ranked(self.pins)[pins_limit(size) :]:
            del self.pins[other]
        self.merge(())

    def _ranked(self, others: Iterable[NodeId]) -> list[tuple[int, NodeId]]:
        """The order of preference: by weight, then by id."""
        return sorted((self.weigh(self.node, other), other) for other in others)

    # -- pins ------------------------------------------------------------------------------------

    def pin(self, other: NodeId, until: TimeMs, number: int) -> bool:
        """Hold another node until then, if there is room for one more pin or it is pinned."""
        if other == self.node:
            return False
        held = self.pins.get(other)
        if held is None and len(self.pins) >= pins_limit(self.size):
            return False
        self.buried.pop(other, None)
        # An earlier request that comes late must not open the pin to an earlier release.
        self.pins[other] = Pin(until, number if held is None else max(number, held.number))
        if other not in self.ids:
            self.merge(())
        return True

    def unpin(self, other: NodeId, number: int) -> None:
        """Withdraw the other's requests up to this one; from now on its weight decides.

        A release that a later request has overtaken changes nothing.
        """
        if other in self.pins and self.pins[other].number <= number:
            del self.pins[other]

    # -- ids that are gone -----------------------------------------------------------------------

    def longest_unprobed(self) -> list[NodeId]:
        """The ids of the view to which a walk of this node was sent longest ago, or never."""
        self.probed = {id_: self.probed.get(id_, -1.0) for id_ in self.ids}
        first = min(self.probed.values(), default=0.0)
        return [id_ for id_, time in self.probed.items() if time == first]

    def remove(self, other: NodeId, buried_until: TimeMs) -> None:
        """Remove a gone id; sets that still name it do not bring it back until then."""
        self.pins.pop(other, None)
        self.ids = tuple(id_ for id_ in self.ids if id_ != other)
        self.buried.pop(other, None)
        self.buried[other] = buried_until
        if len(self.buried) > BURIALS_LIMIT:
            del self.buried[next(iter(self.buried))]

    def dig_up(self, other: NodeId) -> None:
        """End the burial of a node that spoke to us."""
        self.buried.pop(other, None)

    def welcome(self, others: Iterable[NodeId]) -> None:
        """Merge ids that the overlay management protocol reports as live, buried or not."""
        introduced = tuple(others)
        for other in introduced:
            self.dig_up(other)
        self.merge(introduced)

    def expire(self, now: TimeMs) -> None:
        """End the pins and burials whose time has come."""
        self.pins = {id_: pin for id_, pin in self.pins.items() if pin.until > now}
        self.buried = {id_: until for id_, until in self.buried.items() if until > now}

    def check_invariants(self) -> None:
        """Raise if an invariant of this module does not hold; for worlds and tests."""
        assert len(set(self.ids)) == len(self.ids) <= self.size, (self.node, self.ids)
        assert self.node not in self.ids, (self.node, self.ids)
        assert self.pins.keys() <= set(self.ids), (self.node, self.pins, self.ids)
        assert len(self.pins) <= pins_limit(self.size), (self.node, self.pins)
        assert not self.buried.keys() & set(self.ids), (self.node, self.buried, self.ids)
        assert len(self.buried) <= BURIALS_LIMIT, self.node
