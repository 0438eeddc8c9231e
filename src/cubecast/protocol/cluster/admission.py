"""Requests to enter and to leave: which of them the leader grants in the next view.

A request that costs a member its place, an absent node its entry or another newcomer its turn needs
a proof (`cubecast.protocol.cluster.removal`), and so does one with a large past: any member may
send requests for an address.  A process has one address for all its lives.  Bounds: at most
`MAX_ENTERING` newcomers wait, one per address; each view drops newcomers whose address is taken,
and leavers that are no members.  When all places are taken, the lot decides who waits.

A view tells what its newcomers say of their pasts (`Enter.reached`), and must fit into a message.
So the newcomers of one view have pasts of `MAX_PAST` together, the small ones first; the others
wait for the next view.  A past is *ordinary* if `ORDINARY` of its size fit into one view.  Sizes
are what a past takes in a message at most: names are as they are written there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from cubecast.protocol.cluster.removal import RemovalProofs
from cubecast.protocol.cluster.views import Absent, Depart, Doubt, Ends, Enter, View, Who
from cubecast.protocol.port import Seq, Stream

MAX_ENTERING = 1024
"""Newcomers that may wait for the next view."""
SHARE = MAX_ENTERING // 4
"""So many of them may have been named by one member, and as many by all that are no members."""
MAX_PASSED = 16
"""So many newcomers that another member names are passed on in one view, for each such member."""
MAX_PAST = 32 * 1024 * 1024
"""Bytes that newcomers may say of their pasts in one view: 670,000 streams, half a message."""
ORDINARY = 64
"""So many ordinary newcomers can enter with one view."""
STREAM_BYTES = 50
TOPIC_BYTES = 16
"""What a stream, and a topic besides its name, take in a message at most."""


class Waits(NamedTuple):
    """What became of others as a newcomer began to wait."""

    replaced: int
    """Those of its address."""
    crowded_out: int
    """Those that the lot fell on; perhaps itself."""


class Admission:
    """The requests that one node knows of; `doubted` are slots that it does not count on."""

    def __init__(self, key: str) -> None:
        self._removal_proofs = RemovalProofs(key)
        self.entering: dict[str, Enter] = {}
        self._named_by: dict[str, str] = {}  # by the uid of one that enters: the member's uid or ""
        self._lots: dict[str, int] = {}  # by the same
        self._drawn = 0
        self._passed: dict[str, int] = {}  # in this view, by the uid of the member that named
        self.departing: dict[str, None] = {}

    def doubt(self, uid: str, view: View, address: str = "") -> Doubt:
        """The question to a node that is said to leave, or to enter at an address."""
        return self._removal_proofs.about(uid, view, address)

    def is_proven(self, enter: Enter, view: View) -> bool:
        """Whether the newcomer itself, at its address, has answered our question."""
        who = enter.who
        return self._removal_proofs.settled(who.uid, enter.proof, view, who.address)

    def may_wait(self, enter: Enter, view: View) -> bool:
        """Whether to believe that the newcomer itself says this.

        A member could name it with a past that fits into no view, or with another uid or address,
        and so take its turn.
        """
        who = enter.who
        contested = any(
            (one.who.address == who.address) != (one.who.uid == who.uid)
            for one in self.entering.values()
        )
        return self.is_proven(enter, view) or (is_ordinary(enter) and not contested)

    def may_pass_on(self, by: str) -> bool:
        """Count a newcomer that the member `by` names; False: it names too many in this view.

        A newcomer asks each member itself, so members that are no liars name few to one another.
        """
        passed = self._passed[by] = self._passed.get(by, 0) + 1
        return passed <= MAX_PASSED

    def may_leave(self, depart: Depart, view: View) -> bool:
        """Whether the leaver itself has confirmed its request."""
        return self._removal_proofs.settled(depart.uid, depart.proof, view)

    def may_enter(
        self, enter: Enter, view: View, doubted: int, absent: Iterable[Absent] = ()
    ) -> bool:
        """Whether a newcomer's address is free, or it has proved to be there instead of a member.

        The address of an `absent` node is free for that process; another one needs the proof.
        """
        who = enter.who
        slot = view.places.get(who.address)
        if slot is None:
            free = not any(
                gone.who.address == who.address and gone.who.process != who.process
                for gone in absent
            )
        else:
            free = bool(doubted >> slot & 1)
        return free or self.is_proven(enter, view)

    @staticmethod
    def is_elsewhere(who: Who, others: Iterable[Who]) -> bool:
        """Whether we know a life of the same process at another address: a process never moves."""
        return any(
            other.process == who.process and other.address != who.address for other in others
        )

    def admissible(self, view: View, doubted: int) -> list[Enter]:
        """Newcomers that may be in the next view."""
        return [one for one in self.entering.values() if self.may_enter(one, view, doubted)]

    def going(self, view: View, doubted: int, asking: Collection[str] = ()) -> int:
        """Slots of leavers, and of members whose place a newcomer takes.

        While others are `asking` what they missed, no member leaves: it alone may know the answer.
        """
        slots = {view.slot_of(uid) for uid in self.departing if not {*asking} - {uid}}
        slots |= {view.places.get(one.who.address) for one in self.admissible(view, doubted)}
        return sum(1 << slot for slot in slots if slot is not None)

    def await_place(self, enter: Enter, by: str = "") -> Waits:
        """Let a newcomer wait for the next view, in place of others at its address.

        `by` is the member that named it; empty: it came by itself.  If all places, or those of
        `by`, are taken, the lot decides: who is late has the same chance as who was first.  So a
        member that invents newcomers, however fast, crowds out few that others name.
        """
        uid, place = enter.who.uid, enter.who.address
        replaced = [
            other
            for other, one in self.entering.items()
            if one.who.address == place and other != uid
        ]
        self._drop(replaced)
        self.entering[uid] = enter
        if uid in self._lots:
            return Waits(len(replaced), 0)
        self._drawn += 1
        self._lots[uid] = self._removal_proofs.drawn(self._drawn)
        self._named_by[uid] = by
        return Waits(len(replaced), self._crowd_out(by))

    def _crowd_out(self, by: str) -> int:
        """Drop one of those with the most places, or of those that `by` named, if it is too many.

        Return how many that were.
        """
        named = Counter(self._named_by.values())
        if len(self.entering) > MAX_ENTERING:
            by = max(named, key=named.__getitem__)
        elif named[by] <= SHARE:
            return 0
        theirs = [uid for uid, name in self._named_by.items() if name == by]
        self._drop([min(theirs, key=self._lots.__getitem__)])
        return 1

    def _drop(self, uids: Iterable[str]) -> None:
        for uid in uids:
            for known in (self.entering, self._named_by, self._lots):
                known.pop(uid, None)

    def leave_out(self, enters: Collection[Enter]) -> None:
        """Let these newcomers wait no longer; they ask again."""
        self._drop([enter.who.uid for enter in enters])

    def leave_out_all(self) -> None:
        """Let no newcomer wait any longer."""
        self.leave_out(list(self.entering.values()))

    def outlived(self, who: Who, others: Iterable[Who]) -> bool:
        """Whether we know a later life of the same process: the request is a late copy."""
        entering = [enter.who for enter in self.entering.values()]
        return any(
            other.process == who.process and other.incarnation > who.incarnation
            for other in (*others, *entering)
        )

    def went_over(self, view: View) -> None:
        """Drop the requests that the new view has settled."""
        self._passed.clear()
        settled = [one for one in self.entering.values() if one.who.address in view.places]
        self.leave_out(settled)
        self.departing = {uid: None for uid in self.departing if view.has(uid)}


def past_of(enter: Enter) -> int:
    """How many bytes a newcomer's past takes in a message, or more; every node counts alike."""
    streams = sum(map(len, enter.reached.values()))
    names = sum(len(msgspec.json.encode(topic)) for topic in enter.reached)
    return STREAM_BYTES * streams + TOPIC_BYTES * len(enter.reached) + names


def is_ordinary(enter: Enter) -> bool:
    """Whether a newcomer's past is small enough that no view need leave it out."""
    return past_of(enter) <= MAX_PAST // ORDINARY


def in_one_view(waiting: list[Enter]) -> list[Enter]:
    """The newcomers that one view can tell of, in their order; one at least."""
    sizes = {one.who.uid: past_of(one) for one in waiting}
    if sum(sizes.values()) <= MAX_PAST:
        return waiting
    total, chosen = 0, set[str]()
    for uid in sorted(sizes, key=sizes.__getitem__):
        total += sizes[uid]
        if total > MAX_PAST and chosen:
            break
        chosen.add(uid)
    return [one for one in waiting if one.who.uid in chosen]


def larger_half(entering: Collection[Enter]) -> list[Enter]:
    """Those with the larger pasts; at least one, if there are any."""
    by_size = sorted(entering, key=past_of, reverse=True)
    return by_size[: (len(by_size) + 1) // 2]


def ends_of(entering: Collection[Enter], view: View) -> Ends:
    """How far streams went that no member publishes, as newcomers from elsewhere say."""
    ends: dict[str, dict[Stream, Seq]] = {}
    for enter in entering:
        for topic, reached in enter.reached.items():
            known = ends.setdefault(topic, {})
            for stream, seq in reached:
                if not view.has_stream(stream) and known.get(stream, -1) < seq:
                    known[stream] = seq
    return {topic: tuple(known.items()) for topic, known in ends.items() if known}
