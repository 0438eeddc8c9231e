"""A node of a cluster whose nodes may die: data core, agreement on views, and the way back.

`Member` is the `Process` that worlds run where nodes may die.  It hands commands and messages to
the core of its present life (`CubecastNode`), and lets `ViewAgreement` change the view.  It also
does what both leave open: an excluded node (it was slow, or on the smaller side of a partition)
takes a new life and enters again, with all that its application wanted and all that it had read.

Invariants:

1. A message is heard only from the life the view names, and only if it was meant for our life.
2. While this node is in no view, nothing is delivered and no publication is accepted; other
   commands of the application are carried out as soon as there is a view again.
3. Of two views that meet and exclude each other one outranks the other (`View.outranks`), by the
   same rule on both sides, and its members stay.  If only one excludes the other's node, that node
   returns if the view outranks the rest of its own; else the rest goes on without the others.
4. A node that no member takes back goes on alone after `AgreementConfig.alone_after`.
5. A node is in one cluster for all its lives: it does not hear other clusters (`foreign`).
6. About its own view, a node believes members only.  About another view, it believes a node that
   answers at an address that its history names.  In no view, it believes nodes that it asked
   (`cubecast.protocol.cluster.belief`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import ClassVar

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.absence import MAX_ABSENT
from cubecast.protocol.cluster.agreement import AgreementConfig, ViewAgreement
from cubecast.protocol.cluster.belief import MAX_PLACES, AddressHistory, leap
from cubecast.protocol.cluster.callers import Callers
from cubecast.protocol.cluster.detector import Detector, DetectorConfig, DetectorMessage
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.view_broadcast import patience
from cubecast.protocol.cluster.views import (
    TO_ANYONE,
    Absent,
    Ballot,
    Beacon,
    Change,
    Clusterwide,
    Depart,
    Doubt,
    Enter,
    Install,
    Installed,
    Outlived,
    Prepare,
    Report,
    Reports,
    Seal,
    Stuck,
    ToAnyone,
    Unclear,
    View,
    ViewId,
    Who,
    epoch_of,
)
from cubecast.protocol.config import Config
from cubecast.protocol.port import (
    Accusation,
    Load,
    MemberPort,
    Message,
    NodeId,
    Stream,
    Time,
    Topic,
    Wanted,
)
from cubecast.topology import dimension_for

MAX_TOLD = 256
"""How many strangers are remembered that were told lately where we are."""
PATIENT_ENTRIES = 50_000
"""So many streams in a request to enter add one `enter_every` to the wait for its answer."""
PATIENT_REQUESTS = 4
"""Requests for a place in one life before `Outlived` counts from a stranger, too."""
KEPT_OUT = 2
"""A mute node may come back after so many times `Config.mute_after`: several that fall mute in turn
are out at the same time, and waves are complete.  A node in a dispute about that may come back at
once; after its next dispute after one `mute_after`, then after as long as a mute node.  The same
holds for a leader that left a change of the view undone."""


class Member:
    """A `Process`: causal publish/subscribe among nodes that crash, stop and part."""

    label: ClassVar[str] = "cubecast"
    core_class: ClassVar[type[CubecastNode]] = CubecastNode
    agreement_class: ClassVar[type[ViewAgreement]] = ViewAgreement
    detector_class: ClassVar[type[Detector]] = Detector

    def __init__(
        self,
        node: NodeId,
        port: MemberPort,
        *,
        view: View | None,
        who: Who,
        config: Config | None = None,
        epochs: AgreementConfig | None = None,
        detector: DetectorConfig | None = None,
        seeds: Sequence[str] = (),
        key: str = "",
        now: Time = 0,
        can_tell: Callable[[Clusterwide], bool] | None = None,
        on_disbelief: Callable[[str, str], None] | None = None,
    ) -> None:
        """Begin in `view`, or outside: then ask at the addresses `seeds` for a place.

        `key` is secret (`cubecast.protocol.cluster.removal`).  `can_tell` says whether a message
        can be encoded (None: all can).  `on_disbelief` gets the uid of a life that we do not
        believe, and the reason.
        """
        self.node = node
        self.who = who
        self.marks = BranchCounts()
        """Which branches of recovery were taken, for tests."""
        self._port = port
        self._config = config if config is not None else Config()
        self._agreement_config = epochs if epochs is not None else AgreementConfig()
        self._detector_config = detector
        self._key = key
        self._can_tell = can_tell
        self._on_disbelief = on_disbelief
        self._history = AddressHistory()
        self._cluster: str | None = None
        self._core: CubecastNode | None = None
        self._former: CubecastNode | None = None
        self._agreement: ViewAgreement | None = None
        self._detector: Detector | None = None
        self._commands: dict[tuple[str, Hashable], Callable[[CubecastNode, Time], None]] = {}
        self._refused: dict[Topic, None] = {}
        self._contacts: list[str] = [address for address in seeds if address != who.address]
        self._former_view: View | None = None
        self._former_absent: Collection[Absent] = ()
        self._beacon_at: Time | None = None
        self._enter_at: Time | None = None
        self._alone_at: Time | None = None
        self._due: Time | None = None  # nothing but the core needs `on_wake` before
        self._departing = False
        self._gone = False  # it was let go, and ignores what still comes
        self._told: dict[str, Time] = {}
        self._callers = Callers(self._agreement_config.alone_after)
        self._kept_out: dict[str, Time] = {}  # addresses of mute nodes, until when
        self._disputes: dict[str, int] = {}  # by address, the latest last
        self._behind: ViewId | None = None  # the view of ours in which we heard of a later one
        self._ask_at: Time = 0  # when to ask for the later view
        self._requests = 0  # for a place, in this life
        self._confirm_at: Time = 0  # until then we do not ask again because of strangers
        if view is not None:
            self._begin(view, 0, now)
        else:
            self._enter_at = now
            self.wake(now)

    # -- commands --------------------------------------------------------------------------------

    def establish(self, topic: Topic, members: int) -> None:
        if self._core is not None:
            self._core.establish(topic, members)

    def subscribe(
        self, topic: Topic, now: Time, lossy: bool = False, followed: bool = False
    ) -> None:
        def command(core: CubecastNode, at: Time) -> None:
            core.subscribe(topic, at, lossy, followed)

        self._command("subscribe", topic, command, now)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        if self._core is not None:
            self._core.unsubscribe(topic, now)
            return
        self._commands.pop(("subscribe", topic), None)
        if self._former is not None:
            self._former.give_up(topic)
        self._port.left(topic)

    def register(self, topic: Topic, now: Time) -> None:
        self._command("register", topic, lambda core, at: core.register(topic, at), now)

    def follow(self, key: Hashable, wanted: Wanted, now: Time) -> None:
        """Subscribe to every topic that is `wanted`, whenever it comes into being."""
        self._command("follow", key, lambda core, at: core.follow(key, wanted, at), now)

    def unfollow(self, key: Hashable, now: Time = 0) -> None:
        """Subscribe to nothing more for `key`."""
        core = self._core if self._core is not None else self._former
        if core is not None:
            core.unfollow(key)
        self._commands.pop(("follow", key), None)

    def _command(
        self, what: str, key: Hashable, command: Callable[[CubecastNode, Time], None], now: Time
    ) -> None:
        """Do it now, or as soon as we are in a view."""
        if self._core is not None:
            command(self._core, now)
        else:
            self._commands[what, key] = command

    def publish(self, topic: Topic, body: Collection[object], size: int, now: Time) -> bool:
        if self._core is not None:
            return self._core.publish(topic, body, size, now)
        self._refused[topic] = None
        return False

    def consumed(self, topic: Topic, stream: Stream, seq: int, now: Time) -> None:
        """The application has taken in what `Port.deliver` left open."""
        if self._core is not None and self._core.knows(topic):
            self._core.consumed(topic, stream, seq, now)

    def stream_of(self, topic: Topic) -> Stream:
        """The stream in which this node publishes to `topic` next."""
        if self._core is not None:
            return self._core.stream_of(topic)
        return Stream(self.node, self.incarnation)

    def depart(self, now: Time) -> None:
        """Ask to be let go; `MemberPort.departed` tells when we may."""
        self._departing = True
        if self._agreement is None:
            self.let_go(now)
        else:
            self._agreement.depart(now)
            self._enter_at = now + self._agreement_config.enter_every
            self.wake(self._enter_at)

    @property
    def core(self) -> CubecastNode | None:
        """The data core of this life; None while we are in no view."""
        return self._core

    @property
    def view(self) -> View | None:
        """The view we are in."""
        return None if self._agreement is None else self._agreement.view

    @property
    def cluster(self) -> str:
        """The cluster that this node belongs to, in all its lives; empty: to none yet."""
        return self._cluster or ""

    @property
    def suspects(self) -> int:
        """Slots of members that this node takes for dead."""
        return 0 if self._agreement is None else self._agreement.suspects

    def late_leader(self, now: Time) -> tuple[NodeId, Time, str] | None:
        """The leader that leaves a change of the view undone, for how long, and which change."""
        epochs = self._agreement
        if epochs is None or epochs.leader == self.node or not epochs.watch.is_late(now):
            return None
        return epochs.leader, epochs.watch.waited(now), epochs.watch.reason

    @property
    def absent(self) -> Collection[Absent]:
        """Nodes that were excluded involuntarily, and are not back."""
        return () if self._agreement is None else self._agreement.absent

    def remembered_from(self, now: Time) -> int | None:
        """History of lives that ended before this epoch may be forgotten; None: all of it.

        It is the lowest epoch that a node missed that may still come back or ask for history.
        """
        return 0 if self._agreement is None else self._agreement.remembered_from(now)

    @property
    def detector(self) -> Detector | None:
        """The failure detector of this life."""
        return self._detector

    def is_lossy(self, topic: Topic) -> bool:
        """Whether messages may be missed: while we are in no view, or as the core says."""
        return self._core is None or self._core.is_lossy(topic)

    def load(self) -> Load:
        return Load(0, 0) if self._core is None else self._core.load()

    # -- messages --------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """The number of our present life, under which we publish."""
        return self.who.incarnation

    def seal(self) -> Seal:
        """Our present life and its view, to go with a message."""
        return Seal(self.who.uid, self.view)

    def on_packet(self, message: Message, sender: NodeId, seal: Seal, now: Time) -> None:
        """Take a message from a network that does not know lives: check which life sent it."""
        view, theirs = self.view, seal.view
        if self._gone:
            return
        if isinstance(message, TO_ANYONE):
            here = None if theirs is None else theirs.members.get(sender)
            at = "" if here is None else here.address
            answer = self.hear(message, seal.uid, now, at)
            if isinstance(answer, Beacon):
                self._port.reach(at, answer)  # in our view its slot may be another node's
            elif answer is not None:
                self._port.control(sender, answer)
        elif view is None or theirs is None:
            return
        elif view.slot_of(seal.uid) != sender:
            self.marks["stranger spoke to us"] += 1
            self._say_where_we_are(theirs.members[sender].address, now)
        elif theirs.slot_of(self.who.uid) == self.node:
            self.on_message(message, sender, now)  # else for a life of ours that is over

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        """Take a message of a member of our view, in the life that the view names."""
        if self._agreement is None or self._core is None:
            return
        if self._detector is not None:
            self._detector.heard(sender, now)
            if isinstance(message, DetectorMessage):
                self._detector.on_message(message, sender, now)
                self._catch_up(message, sender, now)
                return
        match message:
            case Prepare():
                self._agreement.on_prepare(message, sender, now)
            case Report():
                self._agreement.on_report(message, sender, now)
            case Stuck():
                self._agreement.on_stuck(message, sender, now)
            case Change():
                self._agreement.on_change(message, sender, now)
            case Unclear():
                self._agreement.on_unclear(message, sender)
            case Depart():
                self._agreement.on_depart(message, now)
            case _:
                self._core.on_message(message, sender, now)

    def _catch_up(self, message: DetectorMessage, sender: NodeId, now: Time) -> None:
        """If a member is in a later view than we are, ask it for that view.

        The leader of that view may be gone, and the detector believes nothing that is told in
        another view, so no other node would tell us.  But tests overtake a view on its way down the
        tree, so we wait as long as a leader waits before it tells us directly.
        """
        if self._agreement is None:
            return
        view, pause = self._agreement.view, self._agreement_config.repeat_after
        if epoch_of(getattr(message, "view", 0)) <= view.epoch:
            return
        if self._behind != view.id:
            self._behind = view.id
            self._ask_at = now + patience(pause, dimension_for(view.mask.bit_length()))
        elif now >= self._ask_at:
            self._ask_at = now + pause
            self.marks["asked for a later view"] += 1
            self.send(sender, Stuck(view.id))

    def foreign(self, message: Clusterwide) -> str:
        """The cluster that a message comes from, if it is not ours; else an empty string."""
        match message:
            case Beacon() | Install() if self._cluster not in (None, message.view.cluster):
                return message.view.cluster or "unnamed"
            case Enter() if message.cluster and message.cluster != self._cluster:
                return message.cluster
        return ""

    def hear(
        self, message: ToAnyone, speaker: str, now: Time, at: str = ""
    ) -> Installed | Enter | Depart | Beacon | None:
        """Take a message that any node may send, member or not; return the answer to it.

        `at` is the address where we reached the speaker; empty: it connected to us, from anywhere.
        """
        if self.foreign(message):
            self.marks["heard another cluster"] += 1
            return None
        if isinstance(message, Install):
            return self._on_install(message, speaker, at, now)
        if isinstance(message, Doubt):
            return self._on_doubt(message)
        epochs = self._agreement
        if epochs is None:
            self._hear_outside(message, speaker, at)
            return None
        match message:
            case Installed():
                epochs.on_installed(message, speaker, now)
            case Enter() if now < self._kept_out.get(message.who.address, 0):
                self.marks["mute member kept out"] += 1
            case Enter():
                epochs.on_enter(message, now, speaker)
            case Beacon():
                return self._on_beacon(message, speaker, at, now)
        return None

    def _hear_outside(self, message: ToAnyone, speaker: str, at: str) -> None:
        """In no view: hear where a view is, or that this life needs a successor (`Outlived`)."""
        known = self._has_asked(speaker, at)
        if isinstance(message, Outlived) and message.uid == self.who.uid:
            if known or self._requests > PATIENT_REQUESTS:
                self.marks["outlived"] += 1
                self._requests = 0
                self.who = self.who.next_life()
                self._port.excluded()
        elif isinstance(message, Beacon) and known and self._former is not None:
            self._hear_of(message.view, message.uid)

    def _has_asked(self, speaker: str, at: str) -> bool:
        """Whether we asked the speaker for a place, or were in a view with its process."""
        return at in self._contacts or at in self._history or self._history.names(speaker)

    def _on_doubt(self, doubt: Doubt) -> Enter | Depart | None:
        """Repeat our request with the nonce, if the question is about our present life."""
        if doubt.uid != self.who.uid:
            self.marks["asked about another life"] += 1
            return None
        if self._agreement is None:
            return self._request(doubt.nonce)
        return Depart(doubt.uid, doubt.nonce) if self._departing else None

    def _on_install(self, install: Install, speaker: str, at: str, now: Time) -> Installed | None:
        view, slot = install.view, install.view.slot_of(self.who.uid)
        if self._agreement is None:
            if slot is None or not self._may_enter(view, speaker, at, now):
                return None
            self._enter(install, slot, now)
        elif self._is_news(view) and not self._agreement.view.has(speaker):
            self.marks["view by a stranger"] += 1
            self.disbelieved(speaker, f"it is no member and tells of epoch {view.epoch}")
            return None
        elif not self._agreement.on_install(install, now):
            return None
        return Installed(view.id)

    def _is_news(self, view: View) -> bool:
        mine = self.view
        return mine is not None and view != mine and view.epoch >= mine.epoch

    def _may_enter(self, view: View, speaker: str, at: str, now: Time) -> bool:
        """Whether a place that we are given is in a possible view, and from a node that we asked.

        The node that we asked may have passed the request on to a node unknown to us.  Then we ask
        it again: by now it is in the view, too, and says so where we reached it.
        """
        reason = leap(view, self._former_view)
        if reason:
            self.disbelieved(speaker, reason)
            return False
        if self._has_asked(speaker, at):
            return True
        self.marks["place given by a stranger"] += 1
        if self._contacts and now >= self._confirm_at:
            self._confirm_at = now + max(1, self._agreement_config.repeat_after // 4)
            self._port.reach(self._contacts[-1], self._request())
        return False

    # -- views -----------------------------------------------------------------------------------

    def _begin(self, view: View, born: int, now: Time) -> None:
        """Begin a life in a view."""
        slot = view.slot_of(self.who.uid)
        assert slot is not None
        self.node = slot
        self._cluster = view.cluster
        self._requests = 0
        self._history.learn(view, ())
        self._callers.arrived(view, now)
        self._agreement = self.agreement_class(
            slot,
            self.who.uid,
            view,
            self,
            self._agreement_config,
            self._key,
            self._config.mute_after,
        )
        self._core = self.core_class(
            slot,
            self._port,
            cluster=view.mask,
            config=self._config,
            incarnation=self.who.incarnation,
            view=view,
            born=born,
            marks=self.marks,
            remembered_from=self.remembered_from,
            on_caught_up=self._agreement.caught_up,
            on_mute=self._on_mute,
            on_accused=self._port.mute,
            on_denied=self._port.denied,
        )
        if self._detector_config is not None:
            self._detector = self.detector_class(
                slot,
                view.mask,
                self._detector_config,
                self._port.control,
                self.wake,
                now,
                incarnation=self.who.incarnation,
                view=view.number,
                on_change=self._on_suspects,
            )
        self._port.view(view.epoch, view.mask)

    def _on_suspects(self, suspects: int, now: Time) -> None:
        if self._agreement is not None:
            self._agreement.suspect(suspects, now)

    def _on_mute(self, accusation: Accusation, now: Time) -> None:
        """Go on without a member that leaves waves unanswered, as without a silent one.

        In a dispute go on without both: the liar has put itself out.
        """
        if self._agreement is None:
            return
        if accusation.disputed:
            self._port.mute(accusation)
            self.marks["disputed mute member"] += 1
            out = [accusation.slot, accusation.by]
        else:
            self.marks["mute member"] += 1
            out = [accusation.slot]
        members = self._agreement.view.members
        for address in [members[slot].address for slot in out if slot in members]:
            times = self._count_dispute(address) if accusation.disputed else KEPT_OUT
            self._keep_out(address, times, now)
        self._agreement.lose(sum(1 << slot for slot in out), now)

    def mute_leader(self, slot: NodeId, waited: Time, reason: str, now: Time) -> None:
        """Note that the agreement goes on without a leader that leaves a change undone.

        It may come back as one in a dispute may: it may not have been its fault.
        """
        assert self._agreement is not None
        self._port.mute(Accusation(slot, self.node, "", waited, reason=reason))
        address = self._agreement.view.members[slot].address
        self._keep_out(address, self._count_dispute(address), now)

    def _keep_out(self, address: str, times: int, now: Time) -> None:
        self._kept_out[address] = now + times * self._config.mute_after
        while len(self._kept_out) > MAX_TOLD:
            del self._kept_out[next(iter(self._kept_out))]

    def _count_dispute(self, address: str) -> int:
        """How many times `mute_after` a node is kept out after one more dispute."""
        before = self._disputes.pop(address, 0)
        self._disputes[address] = min(before + 1, KEPT_OUT)
        while len(self._disputes) > MAX_TOLD:
            del self._disputes[next(iter(self._disputes))]
        return before

    def suspect(self, slot: NodeId, now: Time) -> None:
        """Take a node for dead, as the caller says; no effect while we are in no view."""
        if self._agreement is not None:
            self._agreement.suspect(self._agreement.suspects | 1 << slot, now)

    def trust(self, slot: NodeId, now: Time) -> None:
        """Take a node for alive after all, as the caller says."""
        assert self._agreement is not None
        self._agreement.suspect(self._agreement.suspects & ~(1 << slot), now)

    def send(self, slot: NodeId, message: Clusterwide) -> None:
        self._port.control(slot, message)

    def reach(self, address: str, message: Clusterwide) -> None:
        self._port.reach(address, message)

    def can_tell(self, message: Clusterwide) -> bool:
        """Whether a message can be encoded, and is not too large."""
        return self._can_tell is None or self._can_tell(message)

    def disbelieved(self, uid: str, why: str) -> None:
        """Count a statement of the life `uid` that we do not believe, and report why."""
        self.marks["disbelieved"] += 1
        if self._on_disbelief is not None:
            self._on_disbelief(uid, why)

    def wake(self, at: Time) -> None:
        """Ask for a wake for views and detection; the core asks for its own."""
        if self._due is None or at < self._due:
            self._due = at
        self._port.wake(at)

    def prepare(self, survivors: int) -> Reports:
        """Freeze the streams of members that will not stay, and report what we have of them."""
        assert self._core is not None
        self.marks["prepared"] += 1
        self._core.freeze(survivors)
        return self._core.report()

    def went_over(self, install: Install, now: Time) -> None:
        """Take core, detector and port to the view that the agreement went over to."""
        assert self._core is not None
        before = self._core.view
        view = install.view
        assert before is not None
        lost = before.lost_in(view)
        if lost:
            self.marks["excluded another"] += len(lost)
        if install.finals:
            self.marks["ended streams"] += 1
        self._history.learn(view, install.absent)
        self._port.view(view.epoch, view.mask)  # first: what follows is sent to its members
        self._core.install(install, now)
        if self._detector is not None:
            self._detector.set_members(view.mask, now, view.number)
        self._look_for(install.absent, now)

    def _look_for(self, absent: Collection[Absent], now: Time) -> None:
        if absent and self._beacon_at is None:
            self._beacon_at = now + self._agreement_config.beacon_every
            self.wake(self._beacon_at)

    def let_go(self, now: Time) -> None:
        """End, as we asked: all others are in a view without us."""
        self._core = None
        self._agreement = None
        self._detector = None
        self._gone = True
        self._port.departed()

    # -- apart and together again ----------------------------------------------------------------

    def beacon(self, stranger: str, now: Time, alien: bool = False) -> Beacon | None:
        """A beacon for a stranger that speaks to us like a member; None: it was told lately."""
        view = self.view
        if view is None or now < self._told.get(stranger, now):
            return None
        self._told.pop(stranger, None)
        self._told[stranger] = now + self._agreement_config.repeat_after
        while len(self._told) > MAX_TOLD:
            del self._told[next(iter(self._told))]
        return Beacon(self.who.uid, view, alien)

    def _say_where_we_are(self, address: str, now: Time) -> None:
        beacon = self.beacon(address, now)
        if beacon is not None:
            self._port.reach(address, beacon)

    def _on_beacon(self, beacon: Beacon, speaker: str, at: str, now: Time) -> Beacon | None:
        """Hear that a node is in another view, from itself or from a member of ours."""
        mine, view, uid = self.view, beacon.view, beacon.uid
        if mine is None or mine == view:
            return None
        member = mine.has(speaker)
        if not member and uid != speaker:
            self.disbelieved(speaker, f"it is no member and says where {uid} is")
            return None
        reason = leap(view, mine) if view.has(uid) else "it is not in the view it tells of"
        if reason:
            self.marks["beacon that cannot be"] += 1
            self.disbelieved(speaker, reason)
            return None
        agreed = uid == speaker and at in self._history
        if agreed and beacon.alien and not self._departing and not mine.has(uid):
            self.marks["gave way to who knows none of us"] += 1
            self._go_over(mine, view, uid, now, at)
        elif self._departing or (member and mine.has(uid)) or agreed:
            self.elsewhere(view, uid, now, at if agreed else "")
        elif uid == speaker and (view.has(self.who.uid) or not view.outranks(mine)):
            self.marks["called a stranger here"] += 1
            return self.beacon(speaker, now)
        elif not self._ask_witnesses(view, uid, now):
            self.marks["view of strangers"] += 1
            count = len(view.members)
            self.disbelieved(speaker, f"it tells of {count} nodes, none of which was here before")
            return self.beacon(speaker, now, alien=True)
        return None

    def _ask_witnesses(self, view: View, uid: str, now: Time) -> bool:
        """Ask about another view, at addresses of it that our history names.

        We say where we are.  A node in a view that outranks ours answers with that view, and we
        believe it; else the node comes here.  False: there is no such address.
        """
        places = self._history.witnesses(view, uid, self.who.address)
        for address in places:
            self.marks["asked who is in another view"] += 1
            self._say_where_we_are(address, now)
        return bool(places)

    def elsewhere(self, view: View, uid: str, now: Time, at: str = "") -> None:
        """Decide which side goes over: node `uid` is in another view, and we believe it.

        It said so `at` this address; empty: a member of ours did.
        """
        mine = self.view
        if mine is None or mine == view:  # not ids alone: two lives in a slot may make the same
            return
        we_have_it, it_has_us = mine.has(uid), view.has(self.who.uid)
        if self._departing:
            if we_have_it and not it_has_us and view.epoch > mine.epoch:
                self.marks["let go by a beacon"] += 1
                self.let_go(now)  # the news that we may go was lost
            return
        if we_have_it and it_has_us:
            return  # one of us is about to go over to the other
        if we_have_it:
            if view.epoch >= mine.epoch:
                self._part(mine, view, uid, now)
            return
        if it_has_us or not view.outranks(mine):
            self.marks["called another here"] += 1
            self._say_where_we_are(self._place_of(view, uid), now)
            return
        self.marks["outranked"] += 1
        self._go_over(mine, view, uid, now, at or self._place_of(view, uid))

    def _go_over(self, mine: View, view: View, uid: str, now: Time, at: str) -> None:
        """Leave our view for another one, and tell the members of ours: each asks there itself.

        Not if we were called from there in vain (`cubecast.protocol.cluster.callers`).
        """
        if not self._callers.may_call(at, now):
            self.marks["called in vain before"] += 1
            self.disbelieved(uid, f"nodes that were called to a view by {at} got no place there")
            return
        self._callers.follow(at)
        for slot in mine.members:
            if slot != self.node:
                self._port.control(slot, Beacon(uid, view))
        self._return_to(view, now)

    @staticmethod
    def _place_of(view: View, uid: str) -> str:
        slot = view.slot_of(uid)
        return "" if slot is None else view.members[slot].address

    def _part(self, mine: View, view: View, uid: str, now: Time) -> None:
        """Follow members that went over to a view without us, if it outranks the rest of ours.

        A single node that hears no other excludes all others; it is the one to come back.  Only
        members of that view with addresses that we know count: a node cannot make its view larger
        by invented names.  If it is larger by newcomers, we meet again as two views.
        """
        assert self._agreement is not None
        rest = {slot: who for slot, who in mine.members.items() if not view.has(who.uid)}
        known = {slot: who for slot, who in view.members.items() if who.address in self._history}
        if known and View(view.id, known).outranks(View(mine.id, rest)):
            self.marks["excluded"] += 1
            self._return_to(view, now)
            return
        self.marks["stayed with the rest"] += 1
        self._agreement.lose(mine.mask & ~sum(1 << slot for slot in rest), now)
        if self._agreement.leader != self.node:
            self.send(self._agreement.leader, Beacon(uid, view))

    def left_behind(self, view: View, now: Time) -> None:
        """Return, or end if we depart: others went on without this life, and may not know it."""
        if self._departing:
            self.let_go(now)
            return
        self.marks["left behind"] += 1
        self._return_to(view, now)

    def _return_to(self, view: View, now: Time) -> None:
        """End this life, and ask for a place in `view` for the next one."""
        former = self._agreement
        assert former is not None
        self._former, self._core = self._core, None
        self._former_view, self._former_absent = former.view, former.absent
        self._agreement = None
        self._detector = None
        self._beacon_at = None
        self.who = self.who.next_life()
        self._port.excluded()
        self._contacts = []
        self._requests = 0
        self._hear_of(view)
        self._hear_of(former.view)
        for gone in former.absent:
            self._contact(gone.who.address)
        for slot in sorted(view.members):
            self._contact(view.members[slot].address)  # last: nodes unknown to us
        self._alone_at = now + self._agreement_config.alone_after
        self._ask_to_enter(now)

    def _hear_of(self, view: View, uid: str = "") -> None:
        """Ask members of a view, too: `uid`, and those at known addresses, lowest slots first."""
        for slot in sorted(view.members):
            who = view.members[slot]
            if who.address in self._history or who.uid == uid:
                self._contact(who.address)

    def _contact(self, address: str) -> None:
        if len(self._contacts) >= MAX_PLACES:
            return
        if address != self.who.address and address not in self._contacts:
            self._contacts.append(address)

    def _ask_to_enter(self, now: Time) -> None:
        """Ask the next contact for a place."""
        pause = self._agreement_config.enter_every
        if self._contacts:
            contact = self._contacts.pop(0)
            self._contacts.append(contact)
            self._requests += 1
            request = self._request()
            self._port.reach(contact, request)
            # A large request takes long to read: a member asked anew meanwhile would never finish.
            entries = sum(map(len, request.reached.values()))
            pause *= 1 + entries // PATIENT_ENTRIES
        self._enter_at = now + pause
        self.wake(self._enter_at)
        if self._alone_at is not None:
            self.wake(self._alone_at)

    def _request(self, proof: str = "") -> Enter:
        reached = {} if self._former is None else self._former.reached(self._apart())
        return Enter(self.who, self.node, reached, self._apart(), self._cluster or "", proof)

    def _apart(self) -> int:
        """The first epoch that we may not share with nodes that did not go our way.

        A member that stays in a view was in the one before: it reported there.  It may never have
        heard of the view itself, if its leader died, unless it has answered us there.
        """
        if self._former_view is None or self._former is None:
            return 0
        lasts = [one.epoch - 1 for one in self._former_absent] or [self._former_view.epoch]
        shared = self._former.shared
        return max(1, min(last + (last in shared) for last in lasts))

    def _enter(self, install: Install, slot: NodeId, now: Time) -> None:
        """Begin in the place that we were given, with what we wanted and had read before."""
        self._enter_at = self._alone_at = None
        apart = self._apart()
        former, self._former = self._former, None
        self._former_view, self._former_absent = None, ()
        self._begin(install.view, install.view.epoch, now)
        assert self._agreement is not None
        self._agreement.came_by(install, now)
        self._history.learn(install.view, install.absent)
        self._look_for(install.absent, now)
        assert self._core is not None
        if former is not None:
            self.marks["returned"] += 1
            self._core.carry_over(former, apart)
            self._refused.update(dict.fromkeys(former.topics()))  # it may have had no credit there
            self._core.return_from(former, now)
        commands, self._commands = self._commands, {}
        for command in commands.values():
            command(self._core, now)
        refused, self._refused = self._refused, {}
        for topic in refused:
            self._port.writable(topic)

    def _go_on_alone(self, now: Time) -> None:
        """Become a cluster of one, as no member takes us back, and look for others from there.

        This takes another life: a member may be about to take in the one that asked.
        """
        assert self._former_view is not None
        self.marks["alone"] += 1
        self.who = self.who.next_life()
        self._port.excluded()
        before = self._former_view.id
        ballot = Ballot(before.ballot.round + 1, self.node)
        number = ViewId(before.epoch + 1, ballot)
        view = View(number, {self.node: self.who}, self._former_view.cluster)
        left = [Absent(who, view.epoch) for who in self._former_view.members.values()]
        absent = {one.who.address: one for one in (*self._former_absent, *left)}
        absent.pop(self.who.address, None)
        sought = tuple(absent.values())[-MAX_ABSENT:]
        self._enter(Install(ballot, before, view, {}, {}, sought), self.node, now)

    # -- time ------------------------------------------------------------------------------------

    def on_wake(self, now: Time) -> None:
        """Do what is due.  The core wakes up often, with every ACK; views and detection seldom."""
        if self._gone:
            return
        due = self._due is not None and self._due <= now
        if due:
            self._due = None
            self._see_to_entry(now)
        if self._core is not None:
            self._core.on_wake(now)
        if due:
            self._see_to_views(now)
        elif self._due is not None:
            self._port.wake(self._due)

    def _see_to_entry(self, now: Time) -> None:
        """Ask again for a place, or to be let go; look for the absent."""
        if self._enter_at is not None and self._enter_at <= now:
            self._enter_at = None
            if self._agreement is None:
                self._ask_to_enter(now)
            elif self._departing:
                self.depart(now)
        if self._alone_at is not None and self._alone_at <= now and self._agreement is None:
            self._alone_at = None
            self._go_on_alone(now)
        if self._beacon_at is not None and self._beacon_at <= now:
            self._shine(now)

    def _see_to_views(self, now: Time) -> None:
        """Do what is due for views and detection, and ask for the next wake of everything."""
        dues = [self._enter_at, self._alone_at, self._beacon_at]
        if self._agreement is not None:
            dues.append(self._agreement.on_wake(now))
        if self._detector is not None:
            dues.append(self._detector.on_wake(now))
        for at in dues:
            if at is not None:
                self.wake(at)

    def _shine(self, now: Time) -> None:
        """Tell the nodes that we had to exclude where the cluster is, if we lead it."""
        self._beacon_at = None
        epochs = self._agreement
        sought = [] if epochs is None else epochs.sought(now)
        if epochs is None or not sought:
            return
        if epochs.leader == self.node:
            for one in sought:
                self.marks["looked for the absent"] += 1
                self._port.reach(one.who.address, Beacon(self.who.uid, epochs.view))
        self._beacon_at = now + self._agreement_config.beacon_every
