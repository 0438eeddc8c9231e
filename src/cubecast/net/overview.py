"""Who is subscribed to a topic, whether or not this node takes part in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cubecast.errors import CubecastError
from cubecast.net.cluster import POLL_S
from cubecast.protocol.port import NodeId, Topic

if TYPE_CHECKING:
    from cubecast.net.node import Node


async def subscribers(node: Node, topic: Topic) -> list[NodeId]:
    """The subscribers of a topic; the cluster is asked if this node does not know."""
    if not node.core.informed(topic):
        node.core.register(topic, node.now())
        deadline = node.now() + int(node.config.publish_timeout_s * 1e6)
        while not node.core.informed(topic):
            if node.now() > deadline:
                raise CubecastError(f"not every node has told who is subscribed to {topic!r}")
            await asyncio.sleep(POLL_S)
    return node.core.members(topic)
