"""What a peer must not say, and how much of anything it may say.

Who is blamed.  A message is refused with `ProtocolError`, and its connection closed, where the
*sender* must have lied: what it sent contradicts itself, or what it alone has told us before.  What
contradicts only the state of this node may come from an honest node after a lie of another; that is
dropped and counted (`TopicGuard.dropped`), as if the network had lost it.
"""

from __future__ import annotations

MAX_STREAMS = (1 << 16) - 1
"""Streams of one topic, past and present; a barrier has no room for more entries."""
MAX_BRANCHES = 1024
"""Routes of one stream with frames under way."""
OPEN_STREAMS_PER_NODE = 2
"""Streams of one topic that are open at a time, per node of the cluster: a node's own, and that of
its life before."""
SPARE_STREAMS = 16
MAX_WAVES = 1 << 15
"""Waves of all nodes and topics that wait for an answer here."""
MAX_EARLY_PARCELS = 4096
MAX_EARLY_WEIGHT = 1 << 16
"""Control messages of one peer that came ahead of their turn: how many, and the entries of their
vectors.  What is beyond is left to be sent again."""
MAX_UNACKED_WEIGHT = 1 << 20
"""Control messages (and entries of their vectors) a peer may leave unacknowledged while it asks
for more."""


class Untimely(Exception):
    """A message that an honest node may send while views change; it is dropped.

    It speaks of a stream whose publisher is gone, and of an heir of it that we do not know yet or
    any more.
    """


class ProtocolError(ValueError):
    """A peer sent a well-formed message that the protocol could not have sent."""
