"""The parameters of a run of gossip, and the names of its streams of chance.

The streams are those of `cubecast.overlay.chance`, and so are the draws of
`cubecast.overlay.dissemination`, which this engine is compared with:

=====================  ==================================================  ==================
what is decided        stream                                              draw
=====================  ==================================================  ==================
a message is lost      (run and `GOSSIP`, event, sender, receiver)         0, as a share of 1
contact of a topic     (run and `GOSSIP`, event, author, topic)            `CONTACT`: an index
a node is dead         (run, `DEAD`, node, 0)                              0, as a share of 1
=====================  ==================================================  ==================

So the fate of a message depends on the event, its sender and its receiver, never on the order in
which events or messages are looked at.  Ids are below 2^63, so no stream of an overlay has the name
of one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

DeadIds = Literal["kept", "removed"]
DEAD_IDS: tuple[DeadIds, ...] = get_args(DeadIds)

DEAD = 2**63 + 2
"""In place of a topic."""


@dataclass(frozen=True, slots=True)
class GossipConfig:
    """Loss and dead nodes, and whether missed subscribers are explained."""

    loss: float = 0.0
    """The chance that a message is lost."""
    dead: float = 0.0
    """The share of nodes that are dead while events spread; the same nodes for all events."""
    dead_ids: DeadIds = "kept"
    """Kept: nodes send to dead ids in their views.  Removed: they know, and do not."""
    explain: bool = False
    """Count the missed subscribers that no view holds; doubles the time of events that miss any."""

    def __post_init__(self) -> None:
        for name, share in (("loss", self.loss), ("dead", self.dead)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be 0 to 1, not {share}")
        if self.dead_ids not in DEAD_IDS:
            raise ValueError(
                f"dead_ids must be one of {', '.join(DEAD_IDS)}, not {self.dead_ids!r}"
            )
