"""Requests to enter and to leave: which of them the leader grants in the next view.

A request that costs a member its place, or an absent node its entry, needs a proof
(`cubecast.protocol.cluster.removal`).  A process has one address for all its lives.  Bounds: at
most `MAX_ENTERING` newcomers wait, one per address; each view drops newcomers whose address is
taken, and leavers that are no members.

A view tells what its newcomers say of their pasts (`Enter.reached`), and must fit into a message.
So the newcomers of one view have pasts of `MAX_PAST` together, the small ones first; the others
wait for the next view.  A past is *ordinary* if `ORDINARY` of its size fit into one view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cubecast.protocol.cluster.removal import RemovalProofs
from cubecast.protocol.cluster.views import Absent, Depart, Doubt, Ends, Enter, View, Who
from cubecast.protocol.port import Seq, Stream

MAX_ENTERING = 1024
"""Newcomers that may wait for the next view."""
SHARE = MAX_ENTERING // 4
"""So many of them may have been named by one member, and as many by all that are no members."""
MAX_PAST = 32 * 1024 * 1024
"""Bytes that newcomers may say of their pasts in one view: a million streams, half a message."""
ORDINARY = 64
"""So many ordinary newcomers can enter with one view."""
STREAM_BYTES = 32
TOPIC_BYTES = 16
"""What a stream, and a topic besides its name, take in a message, or a little more."""


class Admission:
    """The requests that one node knows of; `doubted` are slots that it does not count on."""

    def __init__(self, key: str) -> None:
        self._removal_proofs = RemovalProofs(key)
        self.entering: dict[str, Enter] = {}
        self._named_by: dict[str, str] = {}  # by the uid of one that enters: the member's uid or ""
        self.departing: dict[str, None] = {}

    def doubt(self, uid: str, view: View) -> Doubt:
        """The question to a node that is said to enter or to leave."""
        return self._removal_proofs.about(uid, view)

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
        return free or self._removal_proofs.settled(who.uid, enter.proof, view)

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

    def await_place(self, enter: Enter, by: str = "") -> int:
        """Let a newcomer wait for the next view; return how many at its address it replaces.

        `by` is the member that named it; empty: it came by itself.  A member that invents newcomers
        fills its own share of the places, so the others still get in.
        """
        uid, place = enter.who.uid, enter.who.address
        if uid not in self.entering and (
            len(self.entering) >= MAX_ENTERING or self._named(by) >= SHARE
        ):
            return 0
        replaced = [
            other
            for other, one in self.entering.items()
            if one.who.address == place and other != uid
        ]
        self._drop(replaced)
        self.entering[uid] = enter
        self._named_by[uid] = by
        return len(replaced)

    def _named(self, by: str) -> int:
        return sum(name == by for name in self._named_by.values())

    def _drop(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.entering.pop(uid, None)
            self._named_by.pop(uid, None)

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
        settled = [one for one in self.entering.values() if one.who.address in view.places]
        self.leave_out(settled)
        self.departing = {uid: None for uid in self.departing if view.has(uid)}


def past_of(enter: Enter) -> int:
    """How many bytes a newcomer says of its past; every node counts alike."""
    streams = sum(map(len, enter.reached.values()))
    names = sum(len(topic.encode(errors="surrogatepass")) for topic in enter.reached)
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
