"""A node's state of one stream: its frames, and the node's place in the trees they came by."""

from __future__ import annotations

from cubecast.protocol.messages import Direct, Frame, Probe, Route
from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic

NOT_TAKING: Seq = -2
"""`Inbox.next` of a node that delivers nothing: no frame ever has this number."""


class Branch:
    """A node's place in the tree of one route: its parent, its children, and how far all are.

    `have` counts frames of this route alone, from `Route.start` on, so a newcomer needs to know
    nothing of earlier ones.  `early` are frames received ahead of their turn (first: last).
    `silent` counts, per child, the probes it has not answered, and `heard_at` has the time of its
    last acknowledgement with news; `slow` are the nodes of the subtree that do not answer their
    parent, `slow_told` those that our own parent knows of.
    `lost`: a child is gone, and the nodes below it get nothing until the publisher feeds them.
    At the root, `parent` is None and `end` is set once a newer route has begun.  `direct`: the tree
    was given up, and the children are all subscribers of the route except those in `without`.
    """

    __slots__ = (
        "absent",
        "acked",
        "asked",
        "children",
        "covered",
        "direct",
        "early",
        "end",
        "have",
        "heard_at",
        "lost",
        "low_covered",
        "parent",
        "pause",
        "resend_at",
        "route",
        "silent",
        "slow",
        "slow_told",
        "their_covered",
        "their_have",
        "without",
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
        self.silent = [0] * len(children)
        self.heard_at: list[Time | None] = [None] * len(children)
        self.low_covered = have
        self.absent = 0
        self.acked: Seq = have
        self.asked = False
        self.direct = False
        self.without = 0
        self.lost = False
        self.slow = 0
        self.slow_told = 0
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
        self.silent[index] = 0
        progress = False
        if have > self.their_have[index]:
            self.their_have[index] = have
            progress = True
        if covered > self.their_covered[index]:
            self.their_covered[index] = covered
            self.low_covered = min(self.their_covered)
            progress = True
        return progress

    def hurries(self, child: NodeId, pause: Time, now: Time) -> bool:
        """Whether a child acknowledges more often than every `pause`: credit is waited for."""
        index = self.children.index(child)
        before, self.heard_at[index] = self.heard_at[index], now
        return before is not None and 2 * (now - before) < pause

    def feed(self, children: tuple[NodeId, ...]) -> None:
        """Replace the children; nothing is known of new ones."""
        before = self.route.start - 1
        reports = zip(self.their_have, self.their_covered, strict=True)
        known = dict(zip(self.children, reports, strict=True))
        news = [known.get(child, (before, before)) for child in children]
        self.children = children
        self.their_have = [have for have, _ in news]
        self.their_covered = [covered for _, covered in news]
        self.silent = [0] * len(children)
        self.heard_at = [None] * len(children)
        self.low_covered = min(self.their_covered, default=self.have)
        self.lost = False

    def end_at(self, end: Seq) -> None:
        """Claim nothing above `end`: the publisher is gone, and its stream ends there."""
        self.have = min(self.have, end)
        self.covered = min(self.covered, self.have)  # it only passed frames on
        self.early = {first: last for first, last in self.early.items() if last <= end}

    def lose(self, dead: int) -> None:
        """Send nothing to children that are gone, and claim nothing for the nodes below them."""
        if any(dead >> child & 1 for child in self.children):
            self.feed(tuple(child for child in self.children if not dead >> child & 1))
            self.lost = True

    def overdue(self, patience: int) -> int:
        """Count a probe for each child that is behind; return those with too many unanswered."""
        slow = 0
        for index, child in enumerate(self.children):
            if self.their_covered[index] < self.have:
                self.silent[index] += 1
                if self.silent[index] > patience:
                    slow |= 1 << child
        return slow

    def unanswering(self) -> int:
        """The children that have left a probe unanswered."""
        silent = zip(self.children, self.silent, strict=True)
        return sum(1 << child for child, probes in silent if probes)

    def question(
        self, topic: Topic, stream: Stream, stable: Seq, epoch: int = -1
    ) -> Probe | Direct:
        """The question "how far are you?"; a `Direct` also says that the tree was given up."""
        route = self.route
        if not self.direct:
            return Probe(topic, stream, route.number)
        return Direct(topic, stream, route.number, route.start, self.have, stable, epoch)

    def cover(self, consumed: Seq) -> Seq:
        """How far the whole subtree is, given how far this node itself is; never goes back."""
        if self.lost:
            return self.covered
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
    is not; whole frames are stable, `part` is for credit alone.  `branch` is the place in the
    newest route; `branches` has all that are not complete.
    Once the publisher is gone and the stream `ended`, `branch` is None: every frame is looked at.
    """

    __slots__ = (
        "branch",
        "branches",
        "checked",
        "consumed",
        "ended",
        "frames",
        "holes",
        "kept",
        "next",
        "oldest",
        "part",
        "stable",
        "stream",
        "stuck",
        "told_by",
        "waiting",
    )

    def __init__(self, stream: Stream, next_seq: Seq, consumed: Seq) -> None:
        self.stream = stream
        self.next = next_seq
        self.consumed = consumed
        self.part: Seq = -1  # how far we are in a frame of which only a part is consumed
        self.frames: dict[Seq, Frame] = {}
        self.kept = 0  # the sizes of `frames`
        self.holes: dict[Seq, Seq] = {}  # what was skipped as lost and is not consumed: first, last
        self.ended = False
        self.told_by: NodeId | None = None  # the one node that told us of this stream; -1: several
        self.stable: Seq = -1
        self.oldest: Seq = 0
        self.branch: Branch | None = None
        self.branches: dict[int, Branch] = {}
        self.waiting = False
        self.stuck: tuple[Seq, Time] = (-1, 0)  # the last frame that had to wait, and since when
        self.checked = 0  # entries of the head frame's barrier found satisfied

    def forget(self, stable: Seq) -> int:
        """Drop what is stable; return its size."""
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

    def whole(self, covered: Seq) -> tuple[Seq, int]:
        """The end of the last frame that is whole below `covered`, and the size of the part of the
        next one; for a stream without holes."""
        frames, first = self.frames, self.oldest
        while (frame := frames.get(first)) is not None and frame.last <= covered:
            first = frame.last + 1
        if frame is None or covered < first:
            return first - 1, 0
        return first - 1, frame.size * (covered - first + 1) // len(frame.body)

    def skip(self, first: Seq, last: Seq) -> None:
        """Skip lost messages."""
        self.next = last + 1
        self.holes[first] = last
        self.pass_hole()

    def lose(self, base: Seq) -> None:
        """Keep nothing up to `base`, and wait for none of it: no node has it, or everyone has.

        The publisher is gone.
        """
        for number in [one for one in self.frames if one <= base]:
            del self.frames[number]
        self.kept = self.size()
        self.stable, self.oldest, self.ended = base, base + 1, True
        for branch in self.branches.values():
            branch.have = max(branch.have, base)

    def end(self) -> None:
        """End the stream of a dead publisher: every frame is looked at from now on."""
        self.ended, self.branch = True, None

    def keep(self, frame: Frame) -> None:
        """Keep a frame that came by no route."""
        self.frames[frame.first] = frame
        self.kept += frame.size

    def cut_above(self, end: Seq) -> list[Frame]:
        """Drop the frames of a dead stream above its end; return them."""
        dropped = [frame for frame in self.frames.values() if frame.first > end]
        for frame in dropped:
            del self.frames[frame.first]
        self.kept = self.size()
        return dropped

    def drop_early(self, branch: Branch) -> int:
        """Drop undelivered frames that came by a route ahead of their turn; return how many."""
        early = [one for one in branch.early if one >= self.next]
        for first in early:
            del branch.early[first]
            self.frames.pop(first, None)
        self.kept = self.size()
        return len(early)

    def pass_hole(self) -> bool:
        """Count lost messages as consumed, once everything before them is."""
        last = self.holes.pop(self.consumed + 1, None)
        if last is None:
            return False
        self.consumed = last
        return True

    def torn(self, stable: Seq) -> int:
        """The newest route of which we lack messages that are stable; -1: none."""
        torn = -1
        until = stable
        for number in sorted(self.branches, reverse=True):
            branch = self.branches[number]
            if branch.have < until and torn < 0:
                torn = number
            until = min(until, branch.route.start - 1)
        return torn

    def tear(self, route: int) -> bool:
        """Drop what came by routes up to `route`: the rest of these routes will never come.

        True if newer routes are left, which means that we have joined again since.
        """
        for number in [number for number in self.branches if number <= route]:
            del self.branches[number]
        for first in [first for first, frame in self.frames.items() if frame.route.number <= route]:
            del self.frames[first]
        self.kept = self.size()
        starts = [branch.route.start for branch in self.branches.values()]
        self.oldest = max(min(starts, default=0), self.stable + 1)
        return bool(starts)

    def sweep(self, stable: Seq) -> None:
        """Drop all that is stable, in order or not, and count what is left."""
        limit = max(stable, self.stable)
        for first in [first for first, frame in self.frames.items() if frame.last <= limit]:
            del self.frames[first]
        self.kept = self.size()

    def hear_from(self, sender: NodeId) -> None:
        """Note that our state comes from `sender`: if it is the only one, it is to blame."""
        if self.told_by is None:
            self.told_by = sender
        elif self.told_by != sender:
            self.told_by = -1

    def reached(self) -> Seq:
        """The last message up to which some route is complete here."""
        return max((branch.have for branch in self.branches.values()), default=self.stable)

    def add_branch(self, branch: Branch) -> None:
        """Take part in another route; it becomes `branch` if it is the newest."""
        number = branch.route.number
        self.branches[number] = branch
        if self.ended:
            self.branch = None
        elif self.branch is None or number > self.branch.route.number:
            self.branch = branch
        if branch.have < self.oldest - 1 or len(self.branches) == 1:
            self.oldest = branch.have + 1

    def behind(self) -> dict[NodeId, int]:
        """How many messages each child's subtree has not covered; only children that lag."""
        lag: dict[NodeId, int] = {}
        for branch in self.branches.values():
            for child, covered in zip(branch.children, branch.their_covered, strict=True):
                if covered < branch.have:
                    lag[child] = lag.get(child, 0) + branch.have - covered
        return lag

    def held(self) -> int:
        """The total size of frames that wait for delivery."""
        if self.next == NOT_TAKING:
            return 0
        return sum(frame.size for first, frame in self.frames.items() if first >= self.next)

    def size(self) -> int:
        """The total size of frames kept."""
        return sum(frame.size for frame in self.frames.values())
