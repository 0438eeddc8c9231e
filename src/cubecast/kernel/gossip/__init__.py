"""Gossip over overlays as compiled code: many events over the views of many topics in one call.

`network_of` makes the network of an overlay's round, `spread` sends events over it.
`docs/overlays-gossip.md` has the rules, the counts and what was measured.  Needs numba.
"""

from cubecast.kernel.gossip.config import DeadIds, GossipConfig
from cubecast.kernel.gossip.events import GossipEvents, make_events
from cubecast.kernel.gossip.made import made_events
from cubecast.kernel.gossip.network import GossipNetwork, network_of, network_of_views
from cubecast.kernel.gossip.run import Spread, dead_users, spread

__all__ = [
    "DeadIds",
    "GossipConfig",
    "GossipEvents",
    "GossipNetwork",
    "Spread",
    "dead_users",
    "made_events",
    "make_events",
    "network_of",
    "network_of_views",
    "spread",
]
