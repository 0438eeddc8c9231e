"""Views: the members of the cluster in numbered, agreed epochs, and the messages about them.

A *view* is an epoch number, the ballot it was agreed by, and its members.  Views form a tree: each
names the one before it.  Sides of a partition go on in branches of their own
(`cubecast.protocol.cluster.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from cubecast.protocol.messages import Barrier
from cubecast.protocol.port import LIFE_MASK, NodeId, Seq, Stream, Topic


class Ballot(NamedTuple):
    """An attempt to change the view: compared as a pair, and never used twice."""

    round: int
    slot: NodeId


class ViewId(NamedTuple):
    """Names a view: two with the same epoch differ in the ballot."""

    epoch: int
    ballot: Ballot


LIFE = "."
"""Comes before the number of a life in a uid."""


def process_of(uid: str) -> str:
    """The part of a uid that all lives of one process have in common."""
    return uid.partition(LIFE)[0]


class Who(msgspec.Struct, frozen=True):
    """A node in one of its lives: a new life has a new uid and a new incarnation."""

    uid: str
    address: str
    incarnation: int

    @property
    def process(self) -> str:
        """What all lives of one process have in common; the later one has the higher number."""
        return process_of(self.uid)

    def next_life(self) -> Who:
        """The same process, beginning anew."""
        _, _, lives = self.uid.partition(LIFE)
        number = int(lives or 0) + 1
        return Who(f"{self.process}{LIFE}{number}", self.address, self.incarnation + 1)


EPOCH_SHIFT = 28
"""Bits of `View.number` below the epoch: 16 of the attempt, 12 of the slot."""


CHECK_BITS = 48
"""Bits of a view's checksum: exact in any JSON reader, and too small for a time of the explorer."""


@lru_cache(maxsize=8192)
def _check_of(slot: NodeId, who: Who) -> int:
    said = f"{slot}/{who.uid}/{who.address}/{who.incarnation}".encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "big")


class View(msgspec.Struct, frozen=True, dict=True):
    """The members of one epoch, {slot: who}; frequent lookups are computed once.

    `cluster` is made when a cluster begins, and all its views have it: views of two clusters are
    unrelated, whatever addresses they share.
    """

    id: ViewId
    members: dict[NodeId, Who]
    cluster: str = ""

    @cached_property
    def slots(self) -> dict[str, NodeId]:
        """Slots by uid."""
        return {who.uid: slot for slot, who in self.members.items()}

    @cached_property
    def places(self) -> dict[str, NodeId]:
        """Slots by address."""
        return {who.address: slot for slot, who in self.members.items()}

    @cached_property
    def checksum(self) -> int:
        """Tells sets of members apart; not made to withstand an attacker."""
        total = sum(_check_of(slot, who) for slot, who in self.members.items())
        return total & (1 << CHECK_BITS) - 1

    def changed(self, to: ViewId, gone: int, came: Mapping[NodeId, Who]) -> View:
        """The view `to` after this one: the slots `gone` are freed, then `came` are added."""
        left = [slot for slot in self.members if gone >> slot & 1]
        members = dict(self.members)
        for slot in left:
            del members[slot]
        members.update(came)
        view = View(to, members, self.cluster)
        check = self.checksum + sum(_check_of(slot, who) for slot, who in came.items())
        check -= sum(_check_of(slot, self.members[slot]) for slot in left)
        view.__dict__["checksum"] = check & (1 << CHECK_BITS) - 1
        view.__dict__["mask"] = self.mask & ~gone | sum(1 << slot for slot in came)
        return view

    def lost_in(self, other: View) -> list[NodeId]:
        """Slots, in this view, of the lives that are not in the other one."""
        return sorted(self.slots[uid] for uid in self.slots.keys() - other.slots.keys())

    @property
    def epoch(self) -> int:
        return self.id.epoch

    @property
    def number(self) -> int:
        """Tells this view from all others that a member may be in, in one number."""
        epoch, (attempt, slot) = self.id
        return epoch << EPOCH_SHIFT | (attempt & 0xFFFF) << 12 | slot

    @cached_property
    def mask(self) -> int:
        """The slots in use."""
        return sum(1 << slot for slot in self.members)

    def slot_of(self, uid: str) -> NodeId | None:
        """The slot of a life, if it is a member."""
        return self.slots.get(uid)

    def has(self, uid: str) -> bool:
        """Whether a life is a member."""
        return uid in self.slots

    def has_stream(self, stream: Stream) -> bool:
        """Whether a stream is published by a member in its present life."""
        who = self.members.get(stream.source)
        return who is not None and who.incarnation == stream.incarnation & LIFE_MASK

    def outranks(self, other: View) -> bool:
        """Whether this view survives when two that exclude each other meet again.

        The larger one; of two equal ones that with the lowest slot, then the lowest uid, then the
        later one.  A total order: of two different views one outranks the other.
        """
        return self._rank() < other._rank()

    def _rank(self) -> tuple[int, NodeId, str, int, tuple[int, NodeId], list[tuple[NodeId, str]]]:
        lowest = min(self.members)
        epoch, (attempt, slot) = self.id
        lives = sorted((slot, who.uid) for slot, who in self.members.items())
        return -len(lives), lowest, self.members[lowest].uid, -epoch, (-attempt, -slot), lives


class Seal(NamedTuple):
    """The life that sent a message, and its view, which tells the life that it was sent to."""

    uid: str
    view: View | None


FIRST = Ballot(0, 0)


def genesis(members: dict[NodeId, Who], cluster: str = "") -> View:
    """The view a cluster begins with."""
    return View(ViewId(0, FIRST), members, cluster)


def epoch_of(number: int) -> int:
    """The epoch of the view with this `View.number`."""
    return number >> EPOCH_SHIFT


class UnreadFrame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a dead stream that its holder has not delivered, and what it depends on."""

    first: Seq
    last: Seq
    barrier: Barrier


class HeldStream(msgspec.Struct, frozen=True, array_like=True):
    """What one survivor has of a dead stream.

    `delivered`: the last message handed to its application, or covered by its cut; -1: none, or it
    consumes nothing.  `read`: the same, without messages that only its cut covers and that nothing
    it read depends on.  It can send others everything above `base` and up to `have`; of that,
    `unread` lies above `delivered`.  If it lacks messages up to `base` because it joined above
    them, `cut` is where it joined, without what all are known to have: all causes of what it lacks.
    """

    stream: Stream
    delivered: Seq
    read: Seq
    base: Seq
    have: Seq
    takes: bool
    unread: tuple[UnreadFrame, ...] = ()
    cut: Barrier = ()


class Final(msgspec.Struct, frozen=True, array_like=True):
    """The agreed end of a dead stream: all deliver it up to `seq`, and nothing above.

    The `heir` feeds what lies above `base` to subscribers that lack it.  No survivor can send what
    lies up to `base`: a subscriber that lacks it skips it when it is at `after`, or jumps if
    `after` is empty.
    """

    stream: Stream
    seq: Seq
    heir: NodeId
    base: Seq
    after: Barrier = ()


Reports: TypeAlias = dict[Topic, tuple[HeldStream, ...]]
Finals: TypeAlias = dict[Topic, tuple[Final, ...]]
Ends: TypeAlias = dict[Topic, Barrier]
"""How far streams went, as nodes that come back from another view say."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """A leader is about to change the view `parent`: only `survivors` stay."""

    kind: ClassVar[str] = "prepare"
    ballot: Ballot
    parent: ViewId
    survivors: int


class Report(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Prepare`: I follow this ballot; `held` is what I have of the dead streams.

    Or `promised` is a higher ballot that I follow instead.  `installed` is set if my view is not
    the parent that was named: how I came to my view.
    """

    kind: ClassVar[str] = "report"
    ballot: Ballot
    promised: Ballot
    installed: Install | None
    held: Reports


class Absent(msgspec.Struct, frozen=True, array_like=True):
    """A node that was excluded; `epoch` is that of the first view without it.

    It may have what all had delivered before that epoch, and lacks what came later.  `back`: it has
    come back, as the life `who`, and has not asked for all of that yet.
    """

    who: Who
    epoch: int
    back: bool = False


class Install(msgspec.Struct, frozen=True, tag=True):
    """The view after `parent`.

    `absent` are excluded nodes that did not come back, or just did: history is kept for them, and
    the leader looks for the former, for a while (`cubecast.protocol.cluster.absence`).
    """

    kind: ClassVar[str] = "install"
    ballot: Ballot
    parent: ViewId
    view: View
    finals: Finals
    ends: Ends
    absent: tuple[Absent, ...] = ()
    apart: int = 0
    """The first epoch that a node that reported these `ends` did not share with us."""


class Change(msgspec.Struct, frozen=True, tag=True):
    """An `Install` for members of its parent: the difference between the two views.

    `gone` are the slots of the parent whose lives are not in the view; `came` are the new lives, by
    slot.  `forgotten` are entries of absent nodes to drop, `absent` are those to add.  `check` is
    the view's checksum.  `down`: pass it on (`cubecast.protocol.cluster.view_broadcast`).
    """

    kind: ClassVar[str] = "change"
    ballot: Ballot
    parent: ViewId
    view: ViewId
    gone: int
    came: dict[NodeId, Who]
    finals: Finals
    ends: Ends
    forgotten: tuple[str, ...]
    absent: tuple[Absent, ...]
    check: int
    apart: int = 0
    down: bool = False


class Unclear(msgspec.Struct, frozen=True, tag=True):
    """I cannot read the change that leads to this view: send me the whole view."""

    kind: ClassVar[str] = "unclear"
    view: ViewId


class Installed(msgspec.Struct, frozen=True, tag=True):
    """I have installed this view, or am in a later one.

    `there` are slots of members that I know have installed it; mine need not be among them.
    """

    kind: ClassVar[str] = "installed"
    view: ViewId
    there: int = 0


class Stuck(msgspec.Struct, frozen=True, tag=True):
    """I wait in this view for the next one: send it to me, or begin a ballot for it."""

    kind: ClassVar[str] = "stuck"
    view: ViewId


class Enter(msgspec.Struct, frozen=True, tag=True):
    """A newcomer, or an excluded node, asks for a place; any member passes the request on.

    `reached` is how far it had come in the life before, own messages included.  `apart` is the
    first epoch that it may not share with nodes that did not go its way; 0: it had no life before.
    `cluster` is the one it was in; empty: in none.  `proof` answers a `Doubt`.
    """

    kind: ClassVar[str] = "enter"
    who: Who
    wish: NodeId
    reached: Ends = {}
    apart: int = 0
    cluster: str = ""
    proof: str = ""


class Outlived(msgspec.Struct, frozen=True, tag=True):
    """The life that asks to enter was in a view already, and was excluded: it needs another."""

    kind: ClassVar[str] = "outlived"
    uid: str


class Depart(msgspec.Struct, frozen=True, tag=True):
    """A member has nothing under way and asks to be let go; `proof` answers a `Doubt`."""

    kind: ClassVar[str] = "depart"
    uid: str
    proof: str = ""


class Doubt(msgspec.Struct, frozen=True, tag=True):
    """A question: does `uid` ask to leave, or to take the place of a member at its address?

    Goes to the address that is known for `uid`.  If the node there is `uid`, it repeats its request
    with the `nonce` (`cubecast.protocol.cluster.removal`).
    """

    kind: ClassVar[str] = "doubt"
    uid: str
    nonce: str


class Beacon(msgspec.Struct, frozen=True, tag=True):
    """`uid` is in this view: sent to a node that is not in it, or does not seem to know it.

    `alien`: the sender was told of the receiver's view, and has never been in a view with any node
    there.  So it believes none of them, and cannot come (`cubecast.protocol.cluster.belief`).
    """

    kind: ClassVar[str] = "beacon"
    uid: str
    view: View
    alien: bool = False


Clusterwide: TypeAlias = (
    Prepare
    | Report
    | Install
    | Change
    | Unclear
    | Installed
    | Stuck
    | Enter
    | Outlived
    | Depart
    | Doubt
    | Beacon
)
ToAnyone: TypeAlias = Install | Installed | Enter | Outlived | Doubt | Beacon
TO_ANYONE = (Install, Installed, Enter, Outlived, Doubt, Beacon)
"""Messages that may come from, and go to, lives that the view does not name."""
