"""What a node can tell of topics: those it knows of, and who is subscribed to one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cubecast.errors import CubecastError
from cubecast.net.cluster import POLL_S
from cubecast.protocol.port import NodeId, Topic

if TYPE_CHECKING:
    from cubecast.net.node import Node


async def known_topics(node: Node) -> dict[Topic, list[NodeId]]:
    """The topics this node takes part in, and their subscribers, by name."""
    return {topic: node.core.members(topic) for topic in sorted(node.core.topics())}


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
