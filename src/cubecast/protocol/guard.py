"""What one topic of one node takes from others: nothing that could not be true, nothing unbounded.

Called off the hot path only: for a stream or a route that is new, a frame out of turn or without
room, and control messages.  Nothing has changed when a check raises or says no.
"""

from __future__ import annotations

from cubecast.protocol.errors import MAX_BRANCHES, MAX_STREAMS, ProtocolError
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import NodeId, Seq, Stream, Topic
from cubecast.protocol.streams import Branch, Inbox
from cubecast.topology import parent


class Guard:
    """The checks of one topic, and a count of what was dropped, by reason.

    `room` bounds what is kept of one stream, `max_open` the streams that are kept at a time.
    """

    __slots__ = ("_node", "_topic", "dropped", "max_open", "room")

    def __init__(self, topic: Topic, node: NodeId, room: int) -> None:
        self._topic = topic
        self._node = node
        self.room = room
        self.max_open = MAX_STREAMS  # the node knows how many it can need
        self.dropped: dict[str, int] = {}

    def drop(self, reason: str, lied: bool = False) -> bool:
        """Count what is not taken; blame the sender if nobody else can have lied."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if lied:
            raise ProtocolError(f"a frame in {self._topic!r}: {reason}")
        return False

    def check_route(self, frame: Frame, sender: NodeId) -> None:
        """A frame comes from our parent in the tree of its route."""
        self.check_tree(frame.stream.source, frame.route.members, sender)

    def check_tree(self, source: NodeId, members: int, sender: NodeId) -> None:
        """Nobody but our parent in its tree passes on to us what `source` sends to `members`, and
        nothing comes back to its source.  Relays check the same, so the sender is to blame."""
        if parent(source, self._node, members) != sender:
            name = f"of node {source} in {self._topic!r}"
            raise ProtocolError(f"a message {name} by another way than its tree")

    def may_open(
        self,
        frame: Frame,
        sender: NodeId,
        inboxes: dict[Stream, Inbox],
        floor: dict[Stream, Seq],
    ) -> bool:
        """Whether to begin, or resume, to keep state for the stream of `frame`."""
        self.check_route(frame, sender)
        if len(inboxes) >= self.max_open:
            return self.drop("too many streams at a time")
        if frame.stream not in floor and len(floor) + len(inboxes) >= MAX_STREAMS:
            return self.drop("too many streams")
        return True

    def may_branch(self, inbox: Inbox, frame: Frame, sender: NodeId) -> bool:
        """Whether to take part in the route of `frame`, which is new to `inbox`."""
        self.check_route(frame, sender)
        if frame.first <= inbox.stable or frame.first in inbox.frames:
            return False
        return len(inbox.branches) < MAX_BRANCHES or self.drop("too many routes")

    def is_route_of(self, branch: Branch, frame: Frame) -> bool:
        """Whether a frame means the route by whose number it goes."""
        known, stated = branch.route, frame.route
        if known.members == stated.members and known.start == stated.start:
            return True
        return self.drop("another route of the same number")

    def receive(self, inbox: Inbox, branch: Branch, frame: Frame, sender: NodeId) -> bool:
        """Note a frame that is not the next one, or is suspect; False if it is not to be taken."""
        if branch.parent != sender:
            self.check_route(frame, sender)
            return self.drop("not from the parent in its tree")
        new = frame.first > branch.have and frame.first not in branch.early
        if new and frame.stable > branch.have:
            return self.drop("stable beyond what we have")
        if new and inbox.kept + frame.size > self.room:
            inbox.sweep(frame.stable)
            if inbox.frames and inbox.kept + frame.size > self.room:
                return self.drop("beyond the window", inbox.told_by == sender)
        return branch.receive(frame.first, frame.last)
