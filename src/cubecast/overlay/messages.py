"""Messages between the nodes of a topic's overlay ([N] Algorithm 2, and those of repair).

A message does not name its sender: the transport does (`effects.ReceivedFromNode`).  Ids in a set
travel sorted, so that the order of a Python set never reaches the wire.
"""

from __future__ import annotations

from typing import NewType, TypeAlias

import msgspec

NodeId = NewType("NodeId", int)
Topic = NewType("Topic", int)


class CollectWalk(msgspec.Struct, frozen=True, tag="walk"):
    """COLLECTWALK (A4, A11): a random walk of `source` that has collected these ids so far."""

    topic: Topic
    source: NodeId
    collected: tuple[NodeId, ...]
    ttl: int
    """How many further hops follow."""


class CollectReply(msgspec.Struct, frozen=True, tag="reply"):
    """COLLECTREPLY (A13): the ids that a walk collected, from its last node to its source."""

    topic: Topic
    collected: tuple[NodeId, ...]


class Keep(msgspec.Struct, frozen=True, tag="keep"):
    """Repair: the sender asks the receiver to be its keeper, or to remain it."""

    topic: Topic
    number: int
    """Grows with each of the sender's requests in this topic, also when it left in between."""


class KeepGranted(msgspec.Struct, frozen=True, tag="kept"):
    """Repair: the sender holds the receiver in its view for the length of a lease."""

    topic: Topic
    number: int
    """The request that this answers."""


class KeepRefused(msgspec.Struct, frozen=True, tag="refused"):
    """Repair: the sender pins as many nodes as it may, and the receiver is not among them."""

    topic: Topic


class KeepReleased(msgspec.Struct, frozen=True, tag="release"):
    """Repair: the sender has another keeper."""

    topic: Topic
    number: int
    """The last request that this withdraws; it may arrive after a later one."""


class NotMember(msgspec.Struct, frozen=True, tag="absent"):
    """Repair: the sender does not subscribe to the topic, although the receiver's view holds it."""

    topic: Topic


Message: TypeAlias = (
    CollectWalk | CollectReply | Keep | KeepGranted | KeepRefused | KeepReleased | NotMember
)
"""Tags are append-only."""
