"""SRPT-S under churn ([J] 4.5): the root passes every join and leave down its tree.

`SingleRoot` keeps membership at the root, and a change costs two messages.  The paper's system
"needs to rebuild its per topic single trees", and suffers "contention caused by SUB and UNS
messages".  Here a change goes to the root and from there to every node in the tree, through the
same queues as publications, the node that joins or leaves included; it is complete when it has come
back to that node.  A root with d children spends d u.t. on each change.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cubecast.baselines.single_root import Delegate, Done, Join, Leave, SingleRoot
from cubecast.protocol.port import NodeId, Time, Topic


class Told:
    """`node` has joined or left; it travels down the tree of `members`."""

    __slots__ = ("kind", "members", "node", "number", "topic")

    def __init__(self, change: Join, node: NodeId, members: int) -> None:
        self.topic: Topic = change.topic
        self.number = change.number
        self.kind = change.kind
        self.node = node
        self.members = members


class ToldTree(SingleRoot):
    """SRPT-S whose root tells the whole tree of every change."""

    __slots__ = ()
    label: ClassVar[str] = "srpt-told"

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        if type(message) is Told:
            self._tell(message, (self._node ^ sender).bit_length() - 1)
        else:
            super().on_message(message, sender, now)

    def _at_root(self, message: Delegate | Join, sender: NodeId) -> None:
        if type(message) is Delegate:
            self._disseminate(message)
            return
        assert isinstance(message, Join)
        root = self._root(message.topic)
        if message.number <= root.numbers.get(sender, 0):
            return
        root.numbers[sender] = message.number
        bit = 1 << sender
        told = Told(message, sender, root.members | bit)
        root.members = root.members & ~bit if type(message) is Leave else root.members | bit
        self._tell(told, self._dimension)

    def _tell(self, told: Told, h: int) -> None:
        peers = self._seat(told.topic).branches.children(told.members, h)
        if peers:
            self._port.relay(peers, told)
        if told.node == self._node:
            self._on_done(Done(told.topic, told.number, {}))
