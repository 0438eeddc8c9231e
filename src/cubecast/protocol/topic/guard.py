"""Checks of what peers send to one topic of one node: it must be possible, and bounded.

Called off the hot path only: for a stream or a route that is new, a frame out of turn or without
room, and control messages.  A check that raises or says no has changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from cubecast.protocol.errors import MAX_BRANCHES, MAX_STREAMS, ProtocolError, Untimely
from cubecast.protocol.messages import Direct, Frame, Route, Stable
from cubecast.protocol.port import NodeId, Seq, Stream
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.topology import parent

GIVEN_UP = "a late copy by a tree that was given up"
STRAY = "not from the parent in its tree"


class TopicGuard:
    """The checks of one topic, and a count of what was dropped, by reason.

    `room` bounds what is kept of one stream; the view says which streams may be opened and how many
    at a time, and `heirs` which node speaks for a dead publisher.
    """

    __slots__ = ("_heirs", "_marks", "_node", "_topic", "_view", "dropped", "room")

    def __init__(self, context: Context, heirs: Mapping[Stream, NodeId]) -> None:
        self._topic = context.topic
        self._node = context.node
        self._view = context.view
        self._marks = context.marks
        self._heirs = heirs
        self.room = context.config.room
        self.dropped: dict[str, int] = {}

    def drop(self, reason: str, lied: bool = False) -> bool:
        """Count what is not taken; blame the sender if no other node can have lied."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        if lied:
            raise ProtocolError(f"a frame in {self._topic!r}: {reason}")
        return False

    def by_tree(self, frame: Frame, sender: NodeId) -> bool:
        """Whether a frame comes from our parent in the tree of its route, so that we relay it."""
        return parent(frame.stream.source, self._node, frame.route.interior) == sender

    def check_route(self, frame: Frame, sender: NodeId) -> None:
        """Check that a frame comes from our parent in its route's tree, or from its publisher.

        A publisher feeds its leaves, and all subscribers once it has given up a tree (`Direct`).
        """
        if frame.route.epoch < self._view.born:
            self._marks["frame for the former owner of our slot"] += 1
            raise Untimely
        addressed = frame.route.members >> self._node & 1
        if not addressed or not (
            self.speaks_for(frame.stream, sender) or self.by_tree(frame, sender)
        ):
            self._blame(frame.stream)

    def not_in(self, route: Route) -> int:
        """The slots that belonged to other nodes when a route was made."""
        return sum(1 << slot for slot, epoch in self._view.since.items() if epoch > route.epoch)

    def speaks_for(self, stream: Stream, sender: NodeId) -> bool:
        """Whether `sender` publishes a stream, or is the heir of its dead publisher."""
        return sender == stream.source or self._heirs.get(stream) == sender

    def check_stable(self, news: Stable, sender: NodeId) -> None:
        """Check that the news comes from our parent in its tree, and not back to its source.

        A leaf gets it from the publisher itself, with an empty tree.  Relays check the same, so the
        sender is to blame.
        """
        source = news.stream.source
        if sender == source and not news.members:
            return
        if parent(source, self._node, news.members) != sender:
            self._blame(news.stream)

    def _blame(self, stream: Stream) -> None:
        """Refuse a message whose sender may not speak for its stream: a lie if that is live."""
        if not self._view.is_live(stream):
            self._marks["dead stream by a strange way"] += 1
            raise Untimely
        name = f"of node {stream.source} in {self._topic!r}"
        raise ProtocolError(f"a message {name} by another way than its tree")

    def check_direct(self, news: Direct, sender: NodeId) -> None:
        """Check that the sender is the publisher or its heir, and does not feed what is stable.

        We may hear of an heir before the view that names it.
        """
        if not self.speaks_for(news.stream, sender):
            if news.epoch < 0:
                raise ProtocolError("a direct of a stream of another node")
            self._marks["heir of a view to come"] += 1
            raise Untimely
        if not (news.stable < news.last and news.start <= news.last):
            raise ProtocolError(f"a tree in {self._topic!r} given up after its end")

    def may_open(
        self, stream: Stream, inboxes: dict[Stream, Inbox], floor: dict[Stream, Seq]
    ) -> bool:
        """Whether to begin, or resume, to keep state for a stream."""
        if not self._view.is_live(stream) and stream not in self._heirs:
            self._marks["late frame of a dead stream"] += 1
            return self.drop("a stream of a node that is gone")
        if len(inboxes) >= self._view.max_open:
            return self.drop("too many streams at a time")
        if stream not in floor and len(floor) + len(inboxes) >= MAX_STREAMS:
            return self.drop("too many streams")
        return True

    def may_lose(self, stream: Stream, lost: dict[Stream, int]) -> bool:
        """Whether there is room to note that a publisher suspended us."""
        return stream in lost or len(lost) < MAX_STREAMS or self.drop("too many streams lost")

    def may_branch(self, inbox: Inbox, frame: Frame, sender: NodeId) -> bool:
        """Whether to take part in the route of `frame`, which is new to `inbox`."""
        self.check_route(frame, sender)
        if frame.first <= inbox.stable or frame.first in inbox.frames:
            return False
        return self.has_room_for_route(inbox)

    def has_room_for_route(self, inbox: Inbox) -> bool:
        """Whether a stream may have one more route under way."""
        return len(inbox.branches) < MAX_BRANCHES or self.drop("too many routes")

    def is_route_of(self, branch: Branch, frame: Frame, sender: NodeId) -> bool:
        """Whether a frame's route is the one that we know by its number.

        If we know a route by `Direct` alone, a frame of its publisher tells its members.
        """
        known, stated = branch.route, frame.route
        if known.start == stated.start:
            if known.members == stated.members and known.leaves == stated.leaves:
                return True
            if not known.members:
                self.check_route(frame, sender)
                return self.speaks_for(frame.stream, sender) or self.drop(GIVEN_UP)
        return self.drop("another route of the same number")

    def receive(self, inbox: Inbox, branch: Branch, frame: Frame, sender: NodeId) -> bool:
        """Note a frame that is out of turn or suspect; False if it is not to be taken."""
        if branch.parent != sender:
            self.check_route(frame, sender)
            if not self.speaks_for(frame.stream, sender):
                direct = branch.parent is not None and self.speaks_for(frame.stream, branch.parent)
                return self.drop(GIVEN_UP if direct else STRAY)
            inbox.hear_from(sender)
        new = frame.first > branch.have and frame.first not in branch.early
        if new and inbox.kept + frame.size > self.room:
            inbox.sweep(frame.stable)
            if inbox.frames and inbox.kept + frame.size > self.room:
                # The publisher may have told a relay alone that messages are stable: then the relay
                # is honest and sends more than we have room for.
                alone = inbox.told_by == sender == frame.stream.source
                return self.drop("beyond the window", lied=alone)
        return branch.receive(frame.first, frame.last)
