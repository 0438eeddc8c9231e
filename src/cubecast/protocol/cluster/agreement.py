"""Agreement on views: the members of the cluster, one numbered epoch after the other.

Theory of operation.  A member *leads* if it suspects all members with lower slots.  To change the
view it takes a new ballot and asks every member that is to stay, the *survivors* (`Prepare`).  A
node that follows the ballot freezes the streams of the members that do not stay, and reports what
it holds of them (`Report`).  When **all** survivors have reported, the leader decides the view
(`Install`) and tells it until all have it (`cubecast.protocol.cluster.view_broadcast`).  A member
that does not report in time does not stay: the next ballot is tried without it.  Newcomers enter
and leavers leave in the same way, so there is one procedure for every change of the cluster.

There is no majority: every side of a partition goes on.  Invariants:

1. *Agreement.*  If y installs v after some view, z installs w after the same view, and v differs
   from w, then y is not in w or z is not in v.  Let v have the lower ballot.  If y were in w, y
   reported to w's ballot: after it had installed v, then the leader adopted v; or before, then y
   follows w's ballot and refuses v.  Which node told v to y, or when, makes no difference.
2. *Succession.*  A leader that finds a survivor in the next view already goes over to that view,
   and takes all along, before it changes anything.  So if one survivor acts on a view, all do.
3. Every wait ends.  A leader waits for reports for `answer_after`, longer only if the leader before
   brought it to a ballot that members do not believe yet.  It waits for a view to be installed
   until the silent members are suspected; then it begins a ballot without them.  A leader that
   leaves waits for newcomers, which it does not watch, for `answer_after`.
4. A node that is excluded while it lives hears of it (`cubecast.protocol.cluster.member`).
5. No member can hold up the agreement for long (`cubecast.protocol.cluster.belief`): in one view,
   ballots of a member that does not lead, and objections of any member, count so many times.
   What a node promises holds in one view; in the next one all begin with the ballot in its name.
6. A leader does not go over to a view that it cannot encode for the others.  If newcomers are the
   reason, it decides the view without them.
7. A leader that leaves a change undone does not lead for ever
   (`cubecast.protocol.cluster.leader_watch`): others go on without it.

The *phase* of a node says what it does in the agreement.  `cubecast.protocol.cluster.phases` has
the table of phases and of the steps between them, and what an attribute means in each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.absence import Absences
from cubecast.protocol.cluster.admission import (
    Admission,
    ends_of,
    in_one_view,
    is_ordinary,
    larger_half,
)
from cubecast.protocol.cluster.belief import (
    MAX_OBJECTIONS,
    MAX_WAYS_GIVEN,
    ballots_followed,
    check_step,
    is_near,
    leap,
    line_of_other,
    may_follow_other,
)
from cubecast.protocol.cluster.leader_watch import (
    KEEPS_DEAD,
    KEEPS_MEMBER,
    KEEPS_VIEW,
    Duty,
    LeaderWatch,
)
from cubecast.protocol.cluster.phases import NEXT, Phase, PhaseCause
from cubecast.protocol.cluster.view_broadcast import ViewBroadcast, difference, restored
from cubecast.protocol.cluster.views import (
    FIRST,
    Absent,
    Ballot,
    Change,
    Clusterwide,
    Depart,
    Enter,
    Finals,
    Install,
    Installed,
    Outlived,
    Prepare,
    Report,
    Reports,
    Stuck,
    Unclear,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.port import NodeId, Time
from cubecast.protocol.topic.stream_ends import decide
from cubecast.topology import members_of

MAX_SLOTS = 4096
LARGE_WAITS = 10
"""A large past that made a view too large is not heard for so many times `answer_after`."""
MAX_TOO_LARGE = 256
"""Addresses of newcomers with such pasts that are remembered."""
MAX_DEMOTED = 256
"""Addresses of former leaders that were mute, and are given places behind this node."""


@dataclass(frozen=True, slots=True)
class AgreementConfig:
    """Waiting times of the agreement on views, in the world's unit of time."""

    answer_after: Time = 2_000
    """A leader waits so long for reports, then goes on without the silent members: a round trip to
    the slowest node, and the time to gather a report."""

    repeat_after: Time = 500
    """An unanswered message is sent again after this; at most `answer_after` / 3, so that a lost
    message excludes no member."""

    beacon_every: Time = 4_000
    """How often a leader tells the nodes that it had to exclude where the cluster is."""

    enter_every: Time = 1_000
    """How often a node on its way into a cluster asks for a place, each time another member."""

    alone_after: Time = 30_000
    """An excluded node that no member takes back for so long goes on by itself."""

    absent_for: Time = 2_000_000
    """How long an excluded node is looked for, and history kept for it; not below `alone_after`:
    the node may be on its way back."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if 3 * self.repeat_after > self.answer_after:
            raise ValueError(
                f"answer_after ({self.answer_after}) must be at least three times "
                f"repeat_after ({self.repeat_after})"
            )
        if self.absent_for < self.alone_after:
            raise ValueError(
                f"absent_for ({self.absent_for}) must not be below alone_after ({self.alone_after})"
            )


class AgreementHost(Protocol):
    """What the agreement needs of its node."""

    marks: BranchCounts
    """Which branches were taken, for tests."""

    def send(self, slot: NodeId, message: Clusterwide) -> None: ...
    def reach(self, address: str, message: Clusterwide) -> None: ...
    def prepare(self, survivors: int) -> Reports: ...
    def went_over(self, install: Install, now: Time) -> None: ...
    def let_go(self, now: Time) -> None: ...
    def elsewhere(self, view: View, uid: str, now: Time) -> None: ...
    def left_behind(self, view: View, now: Time) -> None: ...
    def wake(self, at: Time) -> None: ...
    def can_tell(self, message: Clusterwide) -> bool:
        """Whether a message can be encoded, and is not too large."""

    def disbelieved(self, uid: str, why: str) -> None:
        """Note that a statement of the life `uid` is not believed."""

    def mute_leader(self, slot: NodeId, waited: Time, reason: str, now: Time) -> None:
        """Note that we go on without the leader `slot`."""


class Attempt:
    """An attempt to change the view, with the reports so far."""

    __slots__ = ("again_at", "ballot", "deadline", "reports", "survivors")

    def __init__(self, ballot: Ballot, survivors: int, again_at: Time, deadline: Time) -> None:
        self.ballot = ballot
        self.survivors = survivors
        self.reports: dict[NodeId, Reports] = {}
        self.again_at = again_at
        self.deadline = deadline

    @property
    def complete(self) -> bool:
        """Whether all survivors have reported."""
        return len(self.reports) == self.survivors.bit_count()

    def missing(self) -> list[NodeId]:
        """Survivors that have not reported."""
        return [slot for slot in members_of(self.survivors) if slot not in self.reports]


class ViewAgreement:
    """One node's part in the agreement on views."""

    def __init__(
        self,
        slot: NodeId,
        uid: str,
        view: View,
        host: AgreementHost,
        config: AgreementConfig,
        key: str = "",
        mute_after: Time = 0,
    ) -> None:
        """`key` is the secret of this node's questions (`cubecast.protocol.cluster.removal`).

        `mute_after` is `Config.mute_after`; 0: a leader that does nothing is waited for for ever.
        """
        self.slot = slot
        self.uid = uid
        self.view = view
        self._host = host
        self._config = config
        self.promised = view.id.ballot
        self.suspects = 0
        self._silent = 0  # did not report in time; forgotten with the next view
        self._admission = Admission(key)
        self.phase = Phase.SETTLED
        self.attempt: Attempt | None = None
        self._retry_at: Time | None = None  # until then another node leads
        self._complain_at: Time | None = None
        self._absences = Absences(config.absent_for)
        self._install: Install | None = None  # how we came to `view`
        self._broadcast: ViewBroadcast | None = None  # which members have `_install`
        self._leave_at: Time | None = None  # we leave, and wait for newcomers until then
        self._followed: dict[NodeId, int] = {}  # ballots in this view, by sender
        self._objections: dict[NodeId, int] = {}  # in this view, by sender
        self._ways_given: dict[NodeId, int] = {}  # in this view, by the owner of the ballot
        self.watch = LeaderWatch(mute_after, config.answer_after, config.enter_every)
        """What the leader, if it is another node, leaves undone."""
        self._left = 0  # slots of leaders that were mute, in this view
        self._pushed_by = 0  # slots of leaders that we followed far above other nodes' ballots
        self._patient_until: Time = 0  # members may count on a leader that we do not count on
        self._spent: set[int] = set()  # rounds of our ballots, above that in the view's name
        self._demoted: dict[str, None] = {}  # addresses of leaders that were mute
        self._too_large: dict[str, Time] = {}  # by address: no large past is heard until then

    def came_by(self, install: Install, now: Time) -> None:
        """Begin in a view that others made; keep it for members that are behind us."""
        self._install = install
        self._absences.learn(install.absent, install.view, now)

    @property
    def absent(self) -> tuple[Absent, ...]:
        """Excluded nodes that are not back, as the view names them; they may be alive elsewhere."""
        return self._absences.excluded()

    def sought(self, now: Time) -> list[Absent]:
        """Absent nodes that are not given up yet."""
        return [one for one in self._absences.remembered(now) if not one.back]

    def caught_up(self, slot: NodeId, now: Time) -> None:
        """A returned member has asked for all that it missed; leavers may have waited for it."""
        self._absences.caught_up(self.view.members[slot].uid, now)
        if self._admission.departing:
            self._host.wake(now)

    def remembered_from(self, now: Time) -> int | None:
        """The first epoch that an absent node missed; lives that ended before may be forgotten.

        None: there is no such node.  One that is back counts until it has caught up.
        """
        return self._absences.remembered_from(now)

    # -- phases ------------------------------------------------------------------------------------

    def _move(self, step: PhaseCause) -> None:
        """Change the phase, by a line of the table."""
        self.phase = NEXT[self.phase, step]

    def _drop_attempt(self) -> None:
        """End the attempt; if `_retry_at` is set, another node leads."""
        self.attempt = None
        self._move(PhaseCause.GIVE_UP if self._retry_at is None else PhaseCause.GIVE_WAY)

    def _yield_until(self, at: Time) -> None:
        """Let another node lead until then."""
        self._retry_at = at
        self._host.wake(at)

    def _resume(self) -> None:
        """Stop waiting for another node that led."""
        self._retry_at = None
        if self.phase is Phase.FOLLOWING:
            self._move(PhaseCause.RESUME)

    # -- leading -----------------------------------------------------------------------------------

    @property
    def leader(self) -> NodeId:
        """The slot that changes the view, as far as we know: the lowest one not in `_doubted`."""
        trusted = self.view.mask & ~self._doubted | 1 << self.slot
        return (trusted & -trusted).bit_length() - 1

    def suspect(self, suspects: int, now: Time) -> None:
        """Take the detector's new set of suspects."""
        news = suspects & ~self.suspects
        self.suspects = suspects & ~(1 << self.slot)
        if self._pushed_by & news and not self._patient_until:
            self._wait_for_others(now + self.watch.until_all_suspect)
        if self.suspects >> self.promised.slot & 1:
            self._resume()  # we followed its ballot: do not wait for it
        if self.attempt is not None and self.attempt.survivors & self.suspects:
            self._drop_attempt()  # begin anew without the suspects
            self._host.marks["attempt given up for a suspect"] += 1
        if self._broadcast is not None:
            self._broadcast.give_up(self.suspects)
        self.consider(now)
        if self._retry_at is None:
            self._complain(now)  # the next leader may be past the view that we wait for
        self._watch_leader(now)

    def lose(self, gone: int, now: Time) -> None:
        """Change the view without members that went over to another one, or are mute."""
        self._silent |= gone & ~(1 << self.slot)
        if self.attempt is not None and self.attempt.survivors & gone:
            self._drop_attempt()
        if self._broadcast is not None:
            self._broadcast.give_up(gone)
        self.consider(now)
        self._watch_leader(now)

    # -- a leader that does not lead ---------------------------------------------------------------

    def _due(self) -> str:
        """Why the leader, another node, should change the view; newcomers are not counted here."""
        if self.leader == self.slot or self.phase is Phase.LEAVING:
            return ""
        if self.view.mask & self._doubted:
            return KEEPS_DEAD
        if self.phase is not Phase.SETTLED:
            return KEEPS_VIEW
        return KEEPS_MEMBER if self.uid in self._admission.departing else ""

    def _watch_leader(self, now: Time) -> None:
        """See to it that we look whether the leader does what is due."""
        if self.watch.begin(self.leader, bool(self._due()), now):
            assert self.watch.look_at is not None
            self._host.wake(self.watch.look_at)

    def _look_at_leader(self, now: Time) -> None:
        """Ask the leader for what is due, or go on without it."""
        leader = self.leader
        duty = self.watch.look(leader, self._due(), len(self.view.members), now)
        if leader == self.slot or self.phase is Phase.LEAVING:
            return
        if duty is Duty.ASK:
            self._host.marks["asked the leader to lead"] += 1
            for slot in {leader, self._next_in_line(leader)} - {self.slot}:
                self._host.send(slot, Stuck(self.view.id))
        elif duty is Duty.LEAVE:
            self._host.marks["mute leader"] += 1
            self._host.mute_leader(leader, self.watch.waited(now), self.watch.reason, now)
            self._demote(self.view.members[leader].address)
            self._left |= 1 << leader
            self._wait_for_others(now + self.watch.until_all_leave)
            self.watch.next_leader()
            if self.promised.slot == leader:
                self._resume()
            self.lose(1 << leader, now)

    def _next_in_line(self, leader: NodeId) -> NodeId:
        """The slot that leads if `leader` does not."""
        others = (self.view.mask & ~self._doubted | 1 << self.slot) & ~(1 << leader)
        return (others & -others).bit_length() - 1

    def _demote(self, address: str) -> None:
        self._demoted.pop(address, None)
        self._demoted[address] = None
        while len(self._demoted) > MAX_DEMOTED:
            del self._demoted[next(iter(self._demoted))]

    # -- beginning to lead -------------------------------------------------------------------------

    def consider(self, now: Time) -> None:
        """Begin to change the view if we lead and there is a reason."""
        if self.attempt is not None or self.leader != self.slot or self._retry_at is not None:
            return
        if self.phase is Phase.LEAVING:
            return  # the others have a view, and its leader changes it
        survivors = self._survivors(now)
        same = survivors == self.view.mask and self.phase is Phase.SETTLED
        if same and not self._admission.admissible(self.view, self._doubted):
            return
        if self._untold() and same:
            return  # first every member gets to this view
        self._begin(survivors, now)

    def _untold(self) -> int:
        """Slots that we still have to tell of the view that we decided."""
        return (
            self._broadcast.untold if self._broadcast is not None and self._broadcast.leads else 0
        )

    def _survivors(self, now: Time) -> int:
        """Members that are to stay; leavers, too, while a member that came back asks them."""
        view, doubted = self.view, self._doubted
        back = self._absences.catching_up(now) if self._admission.departing else set()
        asking = [uid for uid in back if not doubted >> view.slots[uid] & 1]
        going = self._admission.going(view, doubted, asking)
        return view.mask & ~doubted & ~going

    @property
    def _doubted(self) -> int:
        """Slots that we do not count on: suspected, silent or lost in this view."""
        return self.suspects | self._silent

    def _wait_for_others(self, at: Time) -> None:
        """Give members that still count on a former leader until then to see that it is gone."""
        self._patient_until = max(self._patient_until, at)

    def _next_ballot(self) -> Ballot:
        """One above what we promised; none of ours twice, as reports to the first may be late."""
        number = self.promised.round + 1
        while number in self._spent:
            number += 1
        self._spent.add(number)
        return Ballot(number, self.slot)

    def _begin(self, survivors: int, now: Time) -> None:
        self._host.marks["led"] += 1
        ballot = self._next_ballot()
        deadline = now + self._config.answer_after
        if ballot.round > line_of_other(self.view, self.slot, self.slot + 1):
            deadline = max(deadline, self._patient_until)
        self.attempt = Attempt(ballot, survivors, now + self._config.repeat_after, deadline)
        self.promised = ballot
        self._move(PhaseCause.BEGIN)
        if survivors >> self.slot & 1:
            self.attempt.reports[self.slot] = self._host.prepare(survivors)
        self._ask_again(now)
        self._host.wake(self.attempt.again_at)
        self._decide_if_complete(now)

    def _ask_again(self, now: Time) -> None:
        attempt = self.attempt
        assert attempt is not None
        attempt.again_at = now + self._config.repeat_after
        question = Prepare(attempt.ballot, self.view.id, attempt.survivors)
        for slot in attempt.missing():
            self._host.send(slot, question)

    def on_report(self, report: Report, sender: NodeId, now: Time) -> None:
        """Take a survivor's answer; it may be that it is in another view."""
        attempt = self.attempt
        if attempt is None or report.ballot != attempt.ballot:
            return
        if report.installed is not None:
            self._catch_up(report.installed, sender, now)
        elif not attempt.survivors >> sender & 1:
            return  # it was not asked
        elif report.promised > attempt.ballot:
            self._hear_objection(report.promised, sender, now)
        else:
            attempt.reports[sender] = report.held
            self._decide_if_complete(now)

    def _hear_objection(self, ballot: Ballot, sender: NodeId, now: Time) -> None:
        """Give way to a higher ballot that a survivor follows, unless it objects too often.

        One member may ask many others for ballots in turn, and each of them then objects once
        more.  So the owner of the ballots is given way to a few times only, too.
        """
        if not may_follow_other(ballot, self.view, self.slot):
            self._host.marks["objection that cannot be meant"] += 1
            self._disbelieve(sender, f"it says that it follows ballot {ballot.round}")
            return
        count = self._objections[sender] = self._objections.get(sender, 0) + 1
        if count > MAX_OBJECTIONS:
            self._host.marks["went on without who objects"] += 1
            self._disbelieve(sender, f"it objected to {count} changes of the cluster")
            self._silent |= 1 << sender
            self._drop_attempt()
            self.consider(now)
            return
        self.promised = max(self.promised, Ballot(ballot.round, self.slot))
        if ballot.slot != sender:
            ways = self._ways_given[ballot.slot] = self._ways_given.get(ballot.slot, 0) + 1
            if ways > MAX_WAYS_GIVEN:
                self._host.marks["gave way no longer"] += 1
                self._drop_attempt()
                self.consider(now)
                return
        self._give_way(now)

    def _disbelieve(self, slot: NodeId, why: str) -> None:
        self._host.disbelieved(self.view.members[slot].uid, why)

    def _give_way(self, now: Time) -> None:
        """Let another node lead, and look again when it should have finished."""
        self._host.marks["gave way"] += 1
        pause = self._config.answer_after + self._config.repeat_after * (1 + self.slot % 4)
        self._yield_until(now + pause)
        self._drop_attempt()

    def _catch_up(self, theirs: Install, sender: NodeId, now: Time) -> None:
        """Adopt the view of a survivor in another view, send it ours, or let it go its way."""
        if theirs.view.id == self.view.id:
            return  # it has just arrived here
        self._check(theirs)
        if theirs.parent == self.view.id and theirs.view.has(self.uid):
            self._adopt(theirs, now)
        elif theirs.view.epoch < self.view.epoch:
            if self._install is not None:
                self._host.marks["brought a survivor along"] += 1
                self._host.send(sender, self._install)
        else:
            self._host.marks["survivor went another way"] += 1
            self._host.elsewhere(theirs.view, self.view.members[sender].uid, now)

    def _check(self, install: Install) -> None:
        """Refuse a view that no member of ours can have come to."""
        if install.parent == self.view.id:
            check_step(install, self.view)
            both = install.ballot, install.view.id.ballot
            far = [one.round for one in both if not is_near(one, self.view)]
            reason = f"round {far[0]} is too far above ours" if far else ""
        else:
            reason = leap(install.view, self.view)
        if reason:
            raise ProtocolError(reason)

    def _adopt(self, install: Install, now: Time) -> None:
        """Go over to a view that an earlier leader decided and a survivor acts on; tell it to all.

        The ballot becomes ours, which the survivors have promised to us.
        """
        self._host.marks["adopted a view"] += 1
        ballot = self.attempt.ballot if self.attempt is not None else self.promised
        install = msgspec.structs.replace(install, ballot=ballot)
        broadcast = self._prepare_broadcast(install)
        if not self._host.can_tell(install):
            self._cannot_tell(now)
            return
        self._go_over(install, now)
        self._tell(broadcast, install, now)
        self.consider(now)

    def _cannot_tell(self, now: Time) -> None:
        """Stay, as the next view cannot be encoded, with newcomers or without; try again later."""
        self._host.marks["view that cannot be told"] += 1
        self._admission.leave_out_all()
        self._yield_until(now + self._config.answer_after)
        self._drop_attempt()

    # -- deciding ----------------------------------------------------------------------------------

    def _decide_if_complete(self, now: Time) -> None:
        attempt = self.attempt
        if attempt is None or not attempt.complete:
            return
        members = {slot: self.view.members[slot] for slot in members_of(attempt.survivors)}
        places = {who.address for who in members.values()}
        waiting = self._admission.admissible(self.view, self._doubted)
        entering = [one for one in waiting if one.who.address not in places]
        if len(entering) < len(waiting):
            self._host.marks["newcomer waits for its former life"] += 1
        entering = self._give_places(entering, members)
        if not members:
            self._host.marks["last one left"] += 1
            self._host.let_go(now)
            return
        view = View(ViewId(self.view.epoch + 1, attempt.ballot), members, self.view.cluster)
        finals = self._finals(attempt.reports, view)
        ends = ends_of(entering, view)
        departing = self._admission.departing
        excluded = [who for who in self.view.members.values() if who.uid not in departing]
        returned = {enter.who.uid: enter.apart for enter in entering if enter.apart}
        absent = self._absences.after(view, excluded, returned, now)
        apart = min((enter.apart for enter in entering if enter.reached), default=0)
        install = Install(attempt.ballot, self.view.id, view, finals, ends, absent, apart)
        leavers = [
            who
            for who in self.view.members.values()
            if who.uid in departing and not view.has(who.uid)
        ]
        broadcast = self._prepare_broadcast(install)
        if not self._host.can_tell(install):
            if not entering:
                self._cannot_tell(now)
                return
            self._leave_out(entering, now)
            self._decide_if_complete(now)
            return
        if view.has(self.uid):
            self._go_over(install, now)
        else:
            self._host.marks["leader left"] += 1
            self.attempt = None
            self._install = install
            self._move(PhaseCause.LEAVE)
        self._tell(broadcast, install, now, leavers)
        self.consider(now)

    def _give_places(self, entering: list[Enter], members: dict[NodeId, Who]) -> list[Enter]:
        """Add newcomers to the members of the next view; return those that have a place there.

        The others have to ask again: a request that is kept and not granted would refuse another
        one of the same process, and begin view after view.
        """
        placed = []
        for enter in in_one_view(entering):
            slot = self._place(enter, members)
            if slot is not None:
                members[slot] = enter.who
                placed.append(enter)
        if len(placed) < len(entering):
            self._host.marks["newcomer left for a later view"] += 1
            there = {enter.who.uid for enter in placed}
            self._admission.leave_out([one for one in entering if one.who.uid not in there])
        return placed

    def _leave_out(self, entering: Collection[Enter], now: Time) -> None:
        """Drop newcomers whose pasts make the view too large: it is decided without them.

        Else no view would come: the leader of ballots that end in none would be called mute.  Large
        pasts, which the newcomers themselves have confirmed, are not heard for a while: each costs
        a view.  If there is none, the larger half waits for another view.
        """
        self._host.marks["newcomers too large for a view"] += 1
        large = [one for one in entering if not is_ordinary(one)]
        if not large:
            self._host.marks["half of the newcomers left for a later view"] += 1
            self._admission.leave_out(larger_half(entering))
            return
        for enter in large:
            self._host.disbelieved(enter.who.uid, "a view with all that it has read is too large")
            self._too_large.pop(enter.who.address, None)
            self._too_large[enter.who.address] = now + LARGE_WAITS * self._config.answer_after
            while len(self._too_large) > MAX_TOO_LARGE:
                del self._too_large[next(iter(self._too_large))]
        self._admission.leave_out(large)

    def _finals(self, reports: Mapping[NodeId, Reports], view: View) -> Finals:
        """The ends of the streams that no member of the view publishes."""
        finals = decide(reports, view.has_stream)
        ends = {(topic, end.stream): end.seq for topic in finals for end in finals[topic]}
        for report in reports.values():
            for topic, held in report.items():
                if any(one.have > ends.get((topic, one.stream), one.have) for one in held):
                    self._host.marks["orphans cut"] += 1
        return finals

    def _place(self, enter: Enter, members: Collection[NodeId]) -> NodeId | None:
        """The slot a newcomer wishes for, or the lowest free one.

        One that led and was mute gets a place behind ours.
        """
        if enter.who.address in self._demoted:
            self._host.marks["mute leader placed behind us"] += 1
            behind = range(self.slot + 1, MAX_SLOTS)
            return next((slot for slot in behind if slot not in members), None)
        if 0 <= enter.wish < MAX_SLOTS and enter.wish not in members:
            return enter.wish
        self._host.marks["newcomer placed elsewhere"] += 1
        return next((slot for slot in range(MAX_SLOTS) if slot not in members), None)

    def _go_over(self, install: Install, now: Time) -> None:
        """Leave the view we are in for the next one."""
        self.watch.new_view(install.view, self.leader, now)
        self.view = install.view
        self._install = install
        self.promised = install.view.id.ballot
        self._spent = {one for one in self._spent if one > self.promised.round}
        self.attempt = None
        self._retry_at = self._complain_at = None
        self._followed, self._objections, self._ways_given = {}, {}, {}
        self._move(PhaseCause.GO_OVER)
        self._absences.learn(install.absent, install.view, now)
        self._silent = self._left = self._pushed_by = self._patient_until = 0
        self._broadcast = None
        self.suspects &= self.view.mask
        self._admission.went_over(self.view)
        self._host.went_over(install, now)

    def _prepare_broadcast(self, install: Install) -> ViewBroadcast:
        """The broadcast of the view after ours; to be made before we go over to it."""
        change = difference(install, self.view, self._absences.entries)
        return self._broadcast_of(install, change)

    def _broadcast_of(self, install: Install, change: Change) -> ViewBroadcast:
        stay = self.view.mask & ~change.gone
        wait = self._config.repeat_after
        return ViewBroadcast(self._host, wait, self.slot, install, change, stay)

    def _tell(
        self, broadcast: ViewBroadcast, install: Install, now: Time, leavers: Collection[Who] = ()
    ) -> None:
        """Tell the new view to all its members, newcomers included, until they have it.

        While we went over, the detector may have had us decide the next view; then that is told.
        """
        for who in leavers:
            if who.uid != self.uid:
                self._host.marks["told a leaver"] += 1
                self._host.reach(who.address, install)  # once: a leaver that misses it asks again
        if self._install is install:
            self._broadcast = broadcast
            broadcast.tell(self.phase is not Phase.LEAVING, now)
            if self.phase is Phase.LEAVING:
                self._leave_at = now + self._config.answer_after
                self._host.wake(self._leave_at)
            self._let_go_if_told(now)

    def _let_go_if_told(self, now: Time) -> None:
        if self.phase is Phase.LEAVING and not self._untold():
            self._host.let_go(now)

    def _leave_newcomers(self, now: Time) -> None:
        """Leave without waiting any longer for newcomers that have not answered.

        The detector watches members of our view only, so nothing else ends this wait: a newcomer
        may have found a place elsewhere.  If not, it asks again, and a member tells it the view.
        """
        self._leave_at = None
        leaving = self.phase is Phase.LEAVING
        if self._broadcast is not None and leaving and self._broadcast.untold:
            self._host.marks["newcomers left untold"] += 1
            self._broadcast.give_up(self._broadcast.newcomers)
            self._let_go_if_told(now)

    def on_installed(self, ack: Installed, uid: str, now: Time) -> None:
        """Note members that have installed the view."""
        install, broadcast = self._install, self._broadcast
        if install is None or broadcast is None or ack.view != install.view.id:
            return
        slot = install.view.slot_of(uid)
        if slot is None or not broadcast.heard(ack.there | 1 << slot) or not broadcast.leads:
            return
        if not broadcast.untold:
            if self.phase is Phase.LEAVING:
                self._host.let_go(now)
            else:
                self.consider(now)

    # -- following ---------------------------------------------------------------------------------

    def on_prepare(self, prepare: Prepare, sender: NodeId, now: Time) -> None:
        """Follow a node that is about to change the view, unless we follow a higher ballot."""
        ballot = prepare.ballot
        if ballot.slot != sender:
            self._host.marks["ballot of another's"] += 1
            self._disbelieve(sender, f"it asks for a ballot of node {ballot.slot}")
            return
        if sender <= self.leader and not self._left >> sender & 1:
            self.watch.led(ballot, now)
        if prepare.parent != self.view.id or self.phase is Phase.LEAVING:
            self._host.marks["asked in another view"] += 1
            answer = Report(ballot, self.promised, self._install or self._genesis(), {})
        elif ballot < self.promised:
            self._host.marks["refused an old ballot"] += 1
            answer = Report(ballot, self.promised, None, {})
        elif self._left >> sender & 1:
            self._host.marks["ballot of a mute leader"] += 1
            return
        elif ballot == self.promised and self.phase is not Phase.SETTLED:
            self._host.marks["asked again"] += 1  # the time that we follow this ballot is running
            answer = Report(ballot, ballot, None, self._host.prepare(prepare.survivors))
        elif not self._may_follow(ballot, sender, now):
            return
        else:
            self.promised = ballot
            if self.attempt is not None:
                self._host.marks["attempt given up for a higher ballot"] += 1
                self.attempt = None
            self._move(PhaseCause.FOLLOW)
            self._yield_until(now + 2 * self._config.answer_after)  # the sender leads now
            answer = Report(ballot, ballot, None, self._host.prepare(prepare.survivors))
        self._host.send(sender, answer)

    def _may_follow(self, ballot: Ballot, sender: NodeId, now: Time) -> bool:
        """Whether a ballot is plausible, and its owner has not used up its share of this view.

        Else we do not answer, as if the question were lost: its sender goes on without us.  But it
        is patient if it only counts less long on the leader than we do.  We ask the leader then.
        """
        far = ballot.round > line_of_other(self.view, sender, self.slot)
        if far and sender < self.slot and sender != self.leader and is_near(ballot, self.view):
            self._host.marks["ballot of who may lead later"] += 1
            self.on_stuck(Stuck(self.view.id), sender, now)
            return False
        if far and (sender != self.leader or not is_near(ballot, self.view)):
            self._host.marks["ballot that cannot be meant"] += 1
            self._disbelieve(sender, f"it asks for ballot {ballot.round}, we know {self.promised}")
            return False
        count = self._followed[sender] = self._followed.get(sender, 0) + 1
        limit = ballots_followed(len(self.view.members), self.leader == sender)
        if count > limit:
            self._host.marks["one ballot too many"] += 1
            if count == limit + 1:
                self._disbelieve(sender, f"nothing came of its {limit} ballots in this view")
            return False
        if far:
            self._pushed_by |= 1 << sender
        return True

    def _genesis(self) -> Install:
        """How we came to the first view, which no leader decided."""
        return Install(FIRST, self.view.id, self.view, {}, {})

    def on_install(self, install: Install, now: Time) -> bool:
        """Take the next view; True if we are in it, or past it, and its sender is to know."""
        if install.view == self.view:
            return True
        self._check(install)
        if install.parent != self.view.id and install.view.epoch > self.view.epoch:
            # A view in between was without us: the leader that named us again had an old request.
            self._host.left_behind(install.view, now)
            return False
        if install.parent != self.view.id:
            return install.view.epoch < self.view.epoch and install.view.has(self.uid)
        if install.ballot < self.promised:
            self._vouch(now)
            return False
        if not install.view.has(self.uid):
            if self.uid in self._admission.departing:
                self._host.marks["let go"] += 1
                self._host.let_go(now)
            else:
                self._host.marks["excluded by a view"] += 1
                lowest = min(install.view.members)
                self._host.elsewhere(install.view, install.view.members[lowest].uid, now)
            return False
        self._go_over(install, now)
        self.consider(now)
        return True

    def on_change(self, change: Change, sender: NodeId, now: Time) -> None:
        """Read the next view, told as a difference; go over to it, and pass it on."""
        parent, address = self.view, self.view.members[sender].address
        install = restored(change, parent, self._absences.entries)
        if install is None:
            self._cannot_follow(change, sender, address)
            return
        broadcast = self._broadcast_of(install, msgspec.structs.replace(change, down=False))
        if not self.on_install(install, now) or self.view.id != change.view:
            return
        self._broadcast = broadcast
        if change.down:
            self._host.marks["passed a view on"] += 1
            broadcast.pass_on(sender, address, now)
        else:
            broadcast.answer(address)

    def _cannot_follow(self, change: Change, sender: NodeId, address: str) -> None:
        """Answer a change that we cannot apply: we have its view or a later one, or need it all."""
        if change.view == self.view.id and change.check == self.view.checksum:
            there = 1 << self.slot if self._broadcast is None else self._broadcast.there
            self._host.reach(address, Installed(change.view, there))
        elif change.view.epoch < self.view.epoch:
            self._host.marks["told of a view that is past"] += 1
            self._host.reach(address, Installed(change.view))
        else:
            self._host.marks["asked for a whole view"] += 1
            self._host.send(sender, Unclear(change.view))

    def on_unclear(self, unclear: Unclear, sender: NodeId) -> None:
        """Send the whole view to a member that could not read the difference."""
        if self._install is not None and self._install.view.id == unclear.view:
            self._host.send(sender, self._install)

    def _vouch(self, now: Time) -> None:
        """Refuse a decided view, as we follow a later ballot.

        If no node pursues that ballot, we begin one: a survivor in the view says so, and we adopt
        the view.
        """
        self._host.marks["refused an old view"] += 1
        gone = self.suspects >> self.promised.slot & 1  # perhaps since before its ballot came
        if self.phase in (Phase.LEADING, Phase.LEAVING):
            return
        if self._retry_at is None or gone:
            self._host.marks["vouched for an old view"] += 1
            self._resume()
            self._begin(self._survivors(now), now)

    def on_enter(self, enter: Enter, now: Time, by: str = "") -> None:
        """Take a newcomer's request for a place, said by the life `by`; or tell the leader."""
        who = enter.who
        if self._admission.is_elsewhere(who, self._known_lives()):
            self._host.marks["entry from another's address"] += 1
            self._host.disbelieved(who.uid, f"it is not at {who.address}, where it asks to enter")
        elif self.view.has(who.uid):
            if self._install is not None and self._install.view.has(who.uid):
                self._host.marks["entry told again"] += 1
                self._host.reach(who.address, self._install)
        elif self.leader != self.slot:
            self._pass_on_entry(enter, now, by)
        elif self._is_full(enter):
            self._host.marks["no slot for a newcomer"] += 1
            self._host.disbelieved(who.uid, f"all {MAX_SLOTS} places are taken")
        elif now < self._too_large.get(who.address, 0) and not is_ordinary(enter):
            self._host.marks["newcomer too large asks again"] += 1
        elif any(gone.who.uid == who.uid for gone in self.absent):
            self._host.marks["excluded life asks again"] += 1
            self._host.reach(who.address, Outlived(who.uid))
        elif self._admission.outlived(who, self._known_lives()):
            self._host.marks["late entry of a former life"] += 1
        elif not self._admission.may_enter(
            enter, self.view, self._doubted, self.absent
        ) or not self._admission.may_wait(enter, self.view):
            self._host.marks["asked whether a newcomer is there"] += 1
            self._ask_newcomer(who)
        else:
            waits = self._admission.await_place(enter, by if self.view.has(by) else "")
            if waits.replaced:
                self._host.marks["entry replaced by a later life"] += 1
            if waits.crowded_out:
                self._host.marks["newcomer crowded out"] += 1
            self.consider(now)

    def _ask_newcomer(self, who: Who) -> None:
        """Ask at an address whether this newcomer is there."""
        doubt = self._admission.doubt(who.uid, self.view, who.address)
        self._host.reach(who.address, doubt)

    def _pass_on_entry(self, enter: Enter, now: Time, by: str) -> None:
        """Tell the leader of a newcomer, and expect it, if the leader has no reason to refuse it.

        The leader may want a proof.  Then we ask for one, too: else a leader that lets no node in
        would keep out a process that was restarted at its address, and no member would notice.
        """
        who = enter.who
        if self.view.has(by) and not self._admission.may_pass_on(by):
            self._host.marks["entry not passed on"] += 1
            return
        if not self._admission.is_proven(enter, self.view):  # it is what we have asked for
            self._host.marks["entry passed on"] += 1
            self._host.send(self.leader, enter)
        lives = list(self._known_lives())
        if any(other.uid == who.uid for other in lives) or self._admission.outlived(who, lives):
            return
        if not is_ordinary(enter) or self._is_full(enter):
            return
        if self._admission.may_enter(enter, self.view, 0, self.absent):
            self.watch.passed_on(who.address, now, by if self.view.has(by) else "")
            self._watch_leader(now)
        else:
            self._host.marks["member asked whether a newcomer is there"] += 1
            self._ask_newcomer(who)

    def _is_full(self, enter: Enter) -> bool:
        """Whether there is no slot for a newcomer: it takes no member's place, and none is free."""
        return len(self.view.members) >= MAX_SLOTS and enter.who.address not in self.view.places

    def _known_lives(self) -> Iterator[Who]:
        yield from self.view.members.values()
        for gone in self.absent:
            yield gone.who

    def depart(self, now: Time) -> None:
        """Ask to be let go; only this node itself calls this."""
        self._admission.departing[self.uid] = None
        if self.leader != self.slot:
            self._host.send(self.leader, Depart(self.uid))
            self._watch_leader(now)
        else:
            self.consider(now)

    def on_depart(self, depart: Depart, now: Time) -> None:
        """Take a request to let a member go; only that member can prove it."""
        slot = self.view.slot_of(depart.uid)
        if slot is None or slot == self.slot:
            return
        if self.leader != self.slot:
            self._host.marks["departure passed on"] += 1
            self._host.send(self.leader, depart)
        elif self._admission.may_leave(depart, self.view):
            self._admission.departing[depart.uid] = None
            self.consider(now)
        else:
            self._host.marks["asked whether a member leaves"] += 1
            self._host.send(slot, self._admission.doubt(depart.uid, self.view))

    def _complain(self, now: Time) -> None:
        """Tell the leader, if it is another node, that we wait for a view that does not come."""
        quiet = self.phase in (Phase.SETTLED, Phase.LEADING)
        if not quiet and self.leader != self.slot:
            self._host.marks["complained"] += 1
            self._host.send(self.leader, Stuck(self.view.id))
            self._complain_at = now + self._config.answer_after
            self._host.wake(self._complain_at)

    def on_stuck(self, stuck: Stuck, sender: NodeId, now: Time) -> None:
        """Send a member the view that it waits for, or begin a new one."""
        if stuck.view == self.view.id:
            if self.phase is Phase.SETTLED:
                self._move(PhaseCause.HEAR_OF_CHANGE)
            self._host.marks["began for who was stuck"] += 1
            if self.leader != self.slot:
                self._host.send(self.leader, stuck)  # it leads, whatever the sender thinks
            self.consider(now)
            self._watch_leader(now)
        elif self._install is not None and self._install.parent == stuck.view:
            self._host.marks["brought the view to who was stuck"] += 1
            change = None if self._broadcast is None else self._broadcast.change
            self._host.send(sender, change or self._install)

    def on_wake(self, now: Time) -> Time | None:
        """Ask again, give up waiting, tell again; return when something is due next."""
        attempt = self.attempt
        if attempt is not None and attempt.deadline <= now:
            self._host.marks["silent survivor dropped"] += 1
            self._silent |= sum(1 << slot for slot in attempt.missing())
            self._drop_attempt()
            self.consider(now)
        elif attempt is not None and attempt.again_at <= now:
            self._ask_again(now)
        if self._retry_at is not None and self._retry_at <= now:
            self._resume()
            self.consider(now)
            self._complain(now)
        if self._complain_at is not None and self._complain_at <= now:
            self._complain_at = None
            self._complain(now)
        if self._admission.departing:
            self.consider(now)  # they may have waited for a returned member
        if self._broadcast is not None and self._broadcast.on_wake(now):
            self._host.marks["view told again"] += 1
            self._let_go_if_told(now)
        if self._leave_at is not None and self._leave_at <= now:
            self._leave_newcomers(now)
        if self.watch.look_at is not None and self.watch.look_at <= now:
            self._look_at_leader(now)
        self._watch_leader(now)
        attempt, broadcast = self.attempt, self._broadcast
        again = attempt.again_at if attempt is not None else None
        tell = broadcast.due if broadcast is not None else None
        due = again, self._retry_at, self._complain_at, tell, self._leave_at, self.watch.look_at
        return min((at for at in due if at is not None), default=None)
