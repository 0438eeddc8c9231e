"""Who has asked to come and to go, and may: what the leader makes of requests in the next view.

A request that costs a member its place, or an absent node its entry, needs a proof
(`cubecast.protocol.cluster.removal`).  A process has one address for all its lives.  Bounds: at
most `MAX_ENTERING` newcomers wait, one per address, and with each view those go whose address is
taken; of the leavers only members are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cubecast.protocol.cluster.removal import RemovalProofs
from cubecast.protocol.cluster.views import Absent, Depart, Doubt, Ends, Enter, View, Who
from cubecast.protocol.port import Seq, Stream

MAX_ENTERING = 1024
"""Newcomers that may wait for the next view."""


class Admission:
    """The requests that one node knows of; `doubted` are slots that it suspects."""

    def __init__(self, key: str) -> None:
        self._removal_proofs = RemovalProofs(key)
        self.entering: dict[str, Enter] = {}
        self.departing: dict[str, None] = {}

    def doubt(self, uid: str, view: View) -> Doubt:
        """What to ask whoever is said to come or to go."""
        return self._removal_proofs.about(uid, view)

    def may_leave(self, depart: Depart, view: View) -> bool:
        """Whether a leaver has said itself that it wants to."""
        return self._removal_proofs.settled(depart.uid, depart.proof, view)

    def may_enter(
        self, enter: Enter, view: View, doubted: int, absent: Iterable[Absent] = ()
    ) -> bool:
        """Whether a newcomer's place is free, or it has proved to be there instead of a member.

        The place of an `absent` node is free for that node; for others it takes the proof.
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
        """Whether we know a life of the same process at another address: it moves never."""
        return any(
            other.process == who.process and other.address != who.address for other in others
        )

    def admissible(self, view: View, doubted: int) -> list[Enter]:
        """Those who may be in the next view."""
        return [one for one in self.entering.values() if self.may_enter(one, view, doubted)]

    def going(self, view: View, doubted: int, asking: Collection[str] = ()) -> int:
        """Slots of those who leave, and of those whose place a newcomer takes.

        While members are `asking` what they missed, no member leaves: a leaver alone may know it.
        """
        slots = {view.slot_of(uid) for uid in self.departing if not {*asking} - {uid}}
        slots |= {view.places.get(one.who.address) for one in self.admissible(view, doubted)}
        return sum(1 << slot for slot in slots if slot is not None)

    def await_place(self, enter: Enter) -> int:
        """A newcomer waits for the next view; how many others at its address do no more."""
        if len(self.entering) >= MAX_ENTERING and enter.who.uid not in self.entering:
            return 0
        place = enter.who.address
        others = [uid for uid, one in self.entering.items() if one.who.address == place]
        replaced = [uid for uid in others if uid != enter.who.uid]
        for uid in replaced:
            del self.entering[uid]
        self.entering[enter.who.uid] = enter
        return len(replaced)

    def outlived(self, who: Who, others: Iterable[Who]) -> bool:
        """Whether we know a later life of the same process: the request is a late copy."""
        entering = [enter.who for enter in self.entering.values()]
        return any(
            other.process == who.process and other.incarnation > who.incarnation
            for other in (*others, *entering)
        )

    def went_over(self, view: View) -> None:
        """There is a new view."""
        self.entering = {
            uid: one for uid, one in self.entering.items() if one.who.address not in view.places
        }
        self.departing = {uid: None for uid in self.departing if view.has(uid)}


def ends_of(entering: Collection[Enter], view: View) -> Ends:
    """How far streams went that nobody in the view publishes, as newcomers from elsewhere say."""
    ends: dict[str, dict[Stream, Seq]] = {}
    for enter in entering:
        for topic, reached in enter.reached.items():
            known = ends.setdefault(topic, {})
            for stream, seq in reached:
                if not view.has_stream(stream) and known.get(stream, -1) < seq:
                    known[stream] = seq
    return {topic: tuple(known.items()) for topic, known in ends.items() if known}
