"""Errors for messages that a peer must not send, and bounds of what it may send.

Blame.  A message is refused with `ProtocolError`, and its connection closed, if the *sender* must
have lied: the message contradicts itself, or what the sender alone has told us before.  A message
that contradicts only the state of this node may come from an honest node after a lie of another; it
is dropped and counted (`TopicGuard.dropped`), as if the network had lost it.
"""

from __future__ import annotations

MAX_STREAMS = (1 << 16) - 1
"""Streams of one topic, past and present; a barrier has no room for more entries."""
MAX_BRANCHES = 1024
"""Routes of one stream with frames under way."""
OPEN_STREAMS_PER_NODE = 2
"""Streams of one topic that are open at a time, per node of the cluster: the node's own, and the
one of its life before."""
SPARE_STREAMS = 16
MAX_WAVES = 1 << 15
"""Waves of all nodes and topics that wait for an answer here."""
MAX_EARLY_PARCELS = 4096
MAX_EARLY_WEIGHT = 1 << 16
"""Control messages of one peer that came ahead of their turn: how many, and the entries of their
vectors.  Those beyond are left to be sent again."""
MAX_UNACKED_WEIGHT = 1 << 20
"""Control messages (and entries of their vectors) a peer may leave unacknowledged while it asks
for more."""


class Untimely(Exception):
    """A message that an honest node may send while views change; it is dropped.

    It is for the former owner of our slot; or it is about a dead publisher's stream, and its sender
    is not the heir as far as we know, yet or any more.
    """


class ProtocolError(ValueError):
    """A peer sent a well-formed message that the protocol could not have sent."""
