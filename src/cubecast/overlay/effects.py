"""Causes and effects: the input and the output of a node of StaN.

A node has one method: `step(cause, now)` returns the effects, in the order in which the world
carries them out.  Time is in milliseconds of any clock that does not run backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cubecast.overlay.messages import Message, NodeId, Topic

TimeMs: TypeAlias = float

# -- causes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReceivedFromNode:
    """A message has arrived; the transport says from which node."""

    sender: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """A period is over (A1)."""


@dataclass(frozen=True, slots=True)
class JoinTopic:
    """The node subscribes; the overlay management protocol gives it a first view.

    The view is to have `size` ids.  If there are fewer others, replies fill it later.
    """

    topic: Topic
    others: tuple[NodeId, ...]
    size: int


@dataclass(frozen=True, slots=True)
class LeaveTopic:
    """The node leaves the topic and forgets its view."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Introduce:
    """The overlay management protocol names live subscribers; they are merged like a reply."""

    topic: Topic
    others: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Resize:
    """The overlay management protocol says that the topic's views are to have another size."""

    topic: Topic
    size: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The transport could not deliver a message to this node."""

    node: NodeId


Cause: TypeAlias = (
    ReceivedFromNode | Tick | JoinTopic | LeaveTopic | Introduce | Resize | Unreachable
)

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToNode:
    """Send to another node of the topic, or to the node itself (a walk may end at its source)."""

    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The ids in a view changed; physical links are opened and closed accordingly."""

    topic: Topic
    view: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Stranded:
    """The view is empty, so the node can find no subscriber by itself: it needs `Introduce`."""

    topic: Topic


Effect: TypeAlias = SendToNode | ViewChanged | Stranded
