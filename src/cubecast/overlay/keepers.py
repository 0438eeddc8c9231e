"""The asking side of repair: how a node makes sure that one other node keeps it.

A keeper holds the node in its view whatever it weighs (`rounds.py` gives the argument).  Here the
keeper may be silent, so that belief and lease expire, and the node's belief expires first:

| state | event | what happens |
|---|---|---|
| any | a walk comes from u, lighter than the keeper; no request is open | ask u |
| asked u | Kept from u | u is the keeper; Release to the former one |
| asked u | Refused from u, or u is gone, or a tick | the request is closed |
| keeper k | a tick | ask k again |
| keeper k | Kept from k | believe in k for longer |
| keeper k | Refused from k, or k is gone, or no Kept for `patience_ms` | no keeper |
| no keeper, no request | a tick | ask a random id of the view |
| any | Kept from another | Release to it |

Requests are numbered, and a Kept counts only for the request it answers.  The node believes in a
keeper for `patience_ms` from the sending of that request, and the keeper grants `lease_ms`, which
is more, from its arrival.  A Release withdraws the requests up to the last one that was sent before
it; the keeper ignores a Release that is older than the request it granted.  So while a node
believes in a keeper, that keeper pins it, however messages are lost, late or overtaken, unless the
keeper died, left the topic, took the node for gone or had to shrink its view.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.overlay.effects import TimeMs
from cubecast.overlay.messages import NodeId
from cubecast.overlay.view import Weigh


@dataclass
class Keeper:
    """The keeper of `node` in one topic, as far as the node knows."""

    node: NodeId
    weigh: Weigh
    patience_ms: TimeMs
    keeper: NodeId | None = None
    confirmed_ms: TimeMs = 0.0
    """When the last answered request was sent to the keeper."""
    asked: NodeId | None = None
    """The node with the open request, if any."""
    asked_ms: TimeMs = 0.0
    number: int = 0
    """The number of the last request."""

    def visited_from(self, last_hop: NodeId, now: TimeMs) -> NodeId | None:
        """The node to ask after a walk from `last_hop`, if it is worth it."""
        if self.asked is not None or last_hop == self.node or not self._is_lighter(last_hop):
            return None
        return self._ask(last_hop, now)

    def tick(self, now: TimeMs, drawn: NodeId | None) -> NodeId | None:
        """The node to ask at the end of a period.  `drawn` is a random id of the view, if any."""
        self.asked = None
        if self.keeper is not None and now - self.confirmed_ms > self.patience_ms:
            self.keeper = None
        wanted = drawn if self.keeper is None else self.keeper
        return None if wanted is None else self._ask(wanted, now)

    def accepted(self, by: NodeId, number: int) -> NodeId | None:
        """The node to release after a Kept: the former keeper or one that was not asked, if any."""
        if by == self.asked and number == self.number:
            former, self.keeper = self.keeper, by
            self.asked, self.confirmed_ms = None, self.asked_ms
            return former if former != by else None
        return by if by not in (self.keeper, self.asked) else None

    def lost(self, other: NodeId) -> None:
        """Note that a node has refused, or is gone."""
        if self.asked == other:
            self.asked = None
        if self.keeper == other:
            self.keeper = None

    def _ask(self, other: NodeId, now: TimeMs) -> NodeId:
        self.asked, self.asked_ms = other, now
        self.number += 1
        return other

    def _is_lighter(self, other: NodeId) -> bool:
        """Whether the other ranks this node before the keeper does; both weights are known here."""
        if self.keeper is None:
            return True
        return (self.weigh(other, self.node), other) < (
            self.weigh(self.keeper, self.node),
            self.keeper,
        )
