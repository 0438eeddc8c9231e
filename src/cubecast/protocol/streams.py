"""What a node keeps of one stream: its frames, and its place in the trees they came by."""

from __future__ import annotations

from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import NodeId, Seq, Stream, Time

NOT_TAKING: Seq = -2
"""`Inbox.next` of a node that delivers nothing: no frame ever has this number."""


class Branch:
    """A node's place in the tree of one route: its parent, its children, and how far all are.

    `have` counts frames of this route alone, from `Route.start` on, so a newcomer needs to know
    nothing of earlier ones.  `early` are frames received ahead of their turn (first: last).
    At the root, `parent` is None and `end` is set once a newer route has begun.
    """

    __slots__ = (
        "absent",
        "acked",
        "asked",
        "children",
        "covered",
        "early",
        "end",
        "have",
        "low_covered",
        "parent",
        "pause",
        "resend_at",
        "route",
        "their_covered",
        "their_have",
    )

    def __init__(
        self, route: Route, parent: NodeId | None, children: tuple[NodeId, ...], have: Seq
    ) -> None:
        self.route = route
        self.parent = parent
        self.children = children
        self.have = have
        self.covered = have
        self.early: dict[Seq, Seq] = {}
        self.their_have = [have] * len(children)
        self.their_covered = [have] * len(children)
        self.low_covered = have
        self.absent = 0
        self.acked: Seq = have
        self.asked = False
        self.end: Seq | None = None
        self.resend_at: Time | None = None
        self.pause: Time = 0

    def receive(self, first: Seq, last: Seq) -> bool:
        """Note a frame; False if it was here before."""
        have = self.have
        if first == have + 1:
            early = self.early
            while early and last + 1 in early:
                last = early.pop(last + 1)
            self.have = last
            return True
        if first <= have or first in self.early:
            return False
        self.early[first] = last
        return True

    def heard(self, child: NodeId, have: Seq, covered: Seq) -> bool:
        """Note a child's acknowledgement; False if it says nothing new."""
        index = self.children.index(child)
        progress = False
        if have > self.their_have[index]:
            self.their_have[index] = have
            progress = True
        if covered > self.their_covered[index]:
            self.their_covered[index] = covered
            self.low_covered = min(self.their_covered)
            progress = True
        return progress

    def cover(self, consumed: Seq) -> Seq:
        """How far the whole subtree is, given how far this node itself is; never goes back."""
        covered = consumed if consumed < self.have else self.have
        if self.children and self.low_covered < covered:
            covered = self.low_covered
        if covered > self.covered:
            self.covered = covered
        return self.covered


class Inbox:
    """The frames of one stream that are not known to be stable, and how far we are with them.

    `frames` holds every frame received and not forgotten, by its first number; those from `next`
    on wait for delivery.  `stable` and everything below is forgotten; `oldest` is the first that
    is not.  `branch` is the place in the newest route; `branches` has all that are not complete.
    """

    __slots__ = (
        "branch",
        "branches",
        "checked",
        "consumed",
        "frames",
        "kept",
        "next",
        "oldest",
        "stable",
        "stream",
        "told_by",
        "waiting",
    )

    def __init__(self, stream: Stream, next_seq: Seq, consumed: Seq) -> None:
        self.stream = stream
        self.next = next_seq
        self.consumed = consumed
        self.frames: dict[Seq, Frame] = {}
        self.kept = 0  # the sizes of `frames`
        self.told_by: NodeId | None = None  # who alone told us of this stream; -1: several did
        self.stable: Seq = -1
        self.oldest: Seq = 0
        self.branch: Branch | None = None
        self.branches: dict[int, Branch] = {}
        self.waiting = False
        self.checked = 0  # entries of the head frame's barrier found satisfied

    def forget(self, stable: Seq) -> int:
        """Drop what everyone has consumed; return how much that was."""
        self.stable = stable
        frames = self.frames
        oldest = self.oldest
        freed = 0
        while oldest <= stable:
            frame = frames.pop(oldest, None)
            if frame is None:
                self.oldest = stable + 1
                self.sweep(stable)  # a liar gave this stream holes
                return freed
            freed += frame.size
            oldest = frame.last + 1
        self.oldest = oldest
        self.kept -= freed
        return freed

    def sweep(self, stable: Seq) -> None:
        """Drop all that is stable, in order or not, and count what is left."""
        limit = max(stable, self.stable)
        for first in [first for first, frame in self.frames.items() if frame.last <= limit]:
            del self.frames[first]
        self.kept = self.size()

    def hear_from(self, sender: NodeId) -> None:
        """Note whose word the state of this inbox rests on: who alone wrote it is to blame."""
        if self.told_by is None:
            self.told_by = sender
        elif self.told_by != sender:
            self.told_by = -1

    def reached(self) -> Seq:
        """The last message up to which some route is complete here: no more can be stable."""
        return max((branch.have for branch in self.branches.values()), default=self.stable)

    def add_branch(self, branch: Branch) -> None:
        """Take part in another route; it becomes `branch` if it is the newest."""
        number = branch.route.number
        self.branches[number] = branch
        if self.branch is None or number > self.branch.route.number:
            self.branch = branch
        if branch.have < self.oldest - 1 or len(self.branches) == 1:
            self.oldest = branch.have + 1

    def held(self) -> int:
        """Sizes of what waits for delivery."""
        if self.next == NOT_TAKING:
            return 0
        return sum(frame.size for first, frame in self.frames.items() if first >= self.next)

    def size(self) -> int:
        """Sizes of everything kept."""
        return sum(frame.size for frame in self.frames.values())
