"""Who is subscribed to a topic, whether or not this node takes part in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.protocol.port import NodeId, Topic

if TYPE_CHECKING:
    from cubecast.net.node import Node


async def subscribers(node: Node, topic: Topic) -> list[NodeId]:
    """The subscribers of a topic; a node that does not know asks the cluster for all topics.

    To ask for this one would be to take part in it: its members would tell us of it from then on.
    """
    if node.core.informed(topic):
        return node.core.members(topic)
    return (await node.topics()).get(topic, [])
