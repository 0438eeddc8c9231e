"""A node that outlives others: the data core, the agreement on views, and the way back.

`Member` is the `Process` that worlds run where nodes may die.  It hands commands and messages to
the core of its present life (`CubecastNode`), lets `ViewAgreement` change the view, and does what
both leave open: a node that finds itself excluded (it was slow, or on the smaller side of a
partition) takes a new life and enters again, with all its application wanted and all it had read.

Invariants:

1. A message is heard only from the life the view names, and only if it was meant for our life.
2. While this node is in no view, nothing is delivered and nothing is taken for publication; what
   the application wants meanwhile is done as soon as there is a view again.
3. Two views that meet and exclude each other: one outranks the other (`View.outranks`), on both
   sides by the same rule, and its members stay.  If only one excludes the other's node, that node
   returns if the view outranks what is left of its own; else that goes on without those who left.
4. A node that nobody takes back goes on alone after `AgreementConfig.alone_after`.
5. A node is in one cluster for all its lives: what comes from another is not heard (`foreign`).
6. Of the view it is in a node believes members only; of another view, who answers at an address
   that its history names; in no view, whom it asked (`cubecast.protocol.cluster.belief`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import ClassVar

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.absence import MAX_ABSENT
from cubecast.protocol.cluster.agreement import AgreementConfig, ViewAgreement
from cubecast.protocol.cluster.belief import MAX_PLACES, AddressHistory, leap
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
"""Strangers that were told lately where we are."""
PATIENT_ENTRIES = 50_000
"""Streams in a request to enter for which the answer is waited for once more `enter_every`."""
PATIENT_REQUESTS = 4
"""Requests for a place in one life; then it counts, too, if a stranger says that it is outlived."""
KEPT_OUT = 2
"""Who was mute may come back after so many times `Config.mute_after`: several who fall mute in turn
are out at the same time, and waves are complete.  Who was in a dispute about that may come back at
once; after the next dispute after once `mute_after`, then after as long as the mute."""


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

        `key` is known to nobody else (`cubecast.protocol.cluster.removal`).  `can_tell` says
        whether a message can be encoded (None: all can), `on_disbelief` hears whom we do not
        believe what.
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
        self._gone = False  # it was let go: whatever still comes is for nobody
        self._told: dict[str, Time] = {}
        self._kept_out: dict[str, Time] = {}  # addresses of those who were mute, until when
        self._disputes: dict[str, int] = {}  # by address, the latest last
        self._behind: ViewId | None = None  # the view of ours in which we heard of a later one
        self._ask_at: Time = 0  # then ask for that
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
        """Whom this node takes for dead."""
        return 0 if self._agreement is None else self._agreement.suspects

    @property
    def absent(self) -> Collection[Absent]:
        """Those who were excluded without having asked for it, and are not back."""
        return () if self._agreement is None else self._agreement.absent

    def remembered_from(self, now: Time) -> int | None:
        """AddressHistory of lives that ended before this epoch may be forgotten; None: all of it.

        It is the lowest epoch from which somebody is absent who may still come back.
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
        """Under which number we publish."""
        return self.who.incarnation

    def seal(self) -> Seal:
        """Which life of ours speaks, and what it knows of the others."""
        return Seal(self.who.uid, self.view)

    def on_packet(self, message: Message, sender: NodeId, seal: Seal, now: Time) -> None:
        """A message over a network that does not know lives: check whose it is."""
        view, theirs = self.view, seal.view
        if self._gone:
            return
        if isinstance(message, TO_ANYONE):
            here = None if theirs is None else theirs.members.get(sender)
            at = "" if here is None else here.address
            answer = self.hear(message, seal.uid, now, at)
            if isinstance(answer, Beacon):
                self._port.reach(at, answer)  # in our view its slot may be another's
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
        """A message of a member of our view, in the life that the view names."""
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
        """If a member is in a later view than we are, have it send us that one.

        Whoever led there may be gone, and of those who are not in our view the detector believes
        nothing: nobody else would tell us.  But tests overtake a view on its way down the tree, so
        we wait as long as who leads would before it tells us directly.
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
        """The cluster that a message comes from, if that is another than ours; else nothing."""
        match message:
            case Beacon() | Install() if self._cluster not in (None, message.view.cluster):
                return message.view.cluster or "unnamed"
            case Enter() if message.cluster and message.cluster != self._cluster:
                return message.cluster
        return ""

    def hear(
        self, message: ToAnyone, speaker: str, now: Time, at: str = ""
    ) -> Installed | Enter | Depart | Beacon | None:
        """What anyone may say, member or not; the answer goes back the way it came.

        `at` is the address where we reached the speaker; empty: it came to us, from anywhere.
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
                epochs.on_enter(message, now)
            case Beacon():
                return self._on_beacon(message, speaker, at, now)
        return None

    def _hear_outside(self, message: ToAnyone, speaker: str, at: str) -> None:
        """We are in no view, and hear where one is, or that this life has had its place."""
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
        """Say again what we asked for, if it was us."""
        if doubt.uid != self.who.uid:
            self.marks["asked for somebody else"] += 1
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
        """Whether a place that we are given is in a view that can be, and by whom we asked.

        Whom we asked may have passed the request on to somebody whom we do not know.  Then we ask
        again: by now that one is in the view, too, and says so where we reached it.
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
        """A life begins in a view."""
        slot = view.slot_of(self.who.uid)
        assert slot is not None
        self.node = slot
        self._cluster = view.cluster
        self._requests = 0
        self._history.learn(view, ())
        self._agreement = self.agreement_class(
            slot, self.who.uid, view, self, self._agreement_config, self._key
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
        """A member leaves waves unanswered: go on without it, as without the silent.

        In a dispute go on without both: whoever of them lies has put itself out.
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
            self._kept_out[address] = now + times * self._config.mute_after
            while len(self._kept_out) > MAX_TOLD:
                del self._kept_out[next(iter(self._kept_out))]
        self._agreement.lose(sum(1 << slot for slot in out), now)

    def _count_dispute(self, address: str) -> int:
        """How many times `mute_after` somebody is kept out who is in a dispute once more."""
        before = self._disputes.pop(address, 0)
        self._disputes[address] = min(before + 1, KEPT_OUT)
        while len(self._disputes) > MAX_TOLD:
            del self._disputes[next(iter(self._disputes))]
        return before

    def suspect(self, slot: NodeId, now: Time) -> None:
        """Somebody says that a node is dead; nothing follows while we are in no view with it."""
        if self._agreement is not None:
            self._agreement.suspect(self._agreement.suspects | 1 << slot, now)

    def trust(self, slot: NodeId, now: Time) -> None:
        """Somebody says that a node is alive after all."""
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
        """Say whom we do not believe, and count it."""
        self.marks["disbelieved"] += 1
        if self._on_disbelief is not None:
            self._on_disbelief(uid, why)

    def wake(self, at: Time) -> None:
        """See to views and detection at this time; the core asks for its own."""
        if self._due is None or at < self._due:
            self._due = at
        self._port.wake(at)

    def prepare(self, survivors: int) -> Reports:
        """Freeze what those leave behind who will not survive, and report what we have of it."""
        assert self._core is not None
        self.marks["prepared"] += 1
        self._core.freeze(survivors)
        return self._core.report()

    def went_over(self, install: Install, now: Time) -> None:
        """The agreement took us to the next view."""
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
        self._port.view(view.epoch, view.mask)  # first: what follows is sent to those in it
        self._core.install(install, now)
        if self._detector is not None:
            self._detector.set_members(view.mask, now, view.number)
        self._look_for(install.absent, now)

    def _look_for(self, absent: Collection[Absent], now: Time) -> None:
        if absent and self._beacon_at is None:
            self._beacon_at = now + self._agreement_config.beacon_every
            self.wake(self._beacon_at)

    def let_go(self, now: Time) -> None:
        """Everyone else is in a view without us, as we asked."""
        self._core = None
        self._agreement = None
        self._detector = None
        self._gone = True
        self._port.departed()

    # -- apart and together again ----------------------------------------------------------------

    def beacon(self, stranger: str, now: Time, alien: bool = False) -> Beacon | None:
        """For somebody outside who speaks to us as if it were a member; None: told lately."""
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
        """Somebody is in another view, as itself says, or as a member of ours has heard."""
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
            self._go_over(mine, view, uid, now)
        elif self._departing or (member and mine.has(uid)) or agreed:
            self.elsewhere(view, uid, now)
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
        """Somebody tells of another view: ask at addresses of it that our history names.

        We say where we are.  Who is in a view that outranks ours answers with it, and that we
        believe; else it comes here.  False: there is no such address.
        """
        places = self._history.witnesses(view, uid, self.who.address)
        for address in places:
            self.marks["asked who is in another view"] += 1
            self._say_where_we_are(address, now)
        return bool(places)

    def elsewhere(self, view: View, uid: str, now: Time) -> None:
        """Node `uid` is in another view, and we believe it: who of us is to go over?"""
        mine = self.view
        if mine is None or mine == view:  # ids alone: two lives in one slot may make the same one
            return
        we_have_it, it_has_us = mine.has(uid), view.has(self.who.uid)
        if self._departing:
            if we_have_it and not it_has_us and view.epoch > mine.epoch:
                self.marks["let go by a beacon"] += 1
                self.let_go(now)  # the news that we may go was lost
            return
        if we_have_it and it_has_us:
            return  # one of us is about to be where the other is
        if we_have_it:
            if view.epoch >= mine.epoch:
                self._part(mine, view, uid, now)
            return
        if it_has_us or not view.outranks(mine):
            self.marks["called another here"] += 1
            self._say_where_we_are(self._place_of(view, uid), now)
            return
        self.marks["outranked"] += 1
        self._go_over(mine, view, uid, now)

    def _go_over(self, mine: View, view: View, uid: str, now: Time) -> None:
        """Leave our view for another one, and tell the other members, who ask there themselves."""
        for slot in mine.members:
            if slot != self.node:
                self._port.control(slot, Beacon(uid, view))
        self._return_to(view, now)

    @staticmethod
    def _place_of(view: View, uid: str) -> str:
        slot = view.slot_of(uid)
        return "" if slot is None else view.members[slot].address

    def _part(self, mine: View, view: View, uid: str, now: Time) -> None:
        """Members of ours have gone over to a view without us: follow, if it is more than the rest.

        A single node that hears nobody excludes everybody; it is the one to come back.  Of the view
        those count whose address we know: nobody makes its own view larger by names.  If it is
        larger by newcomers, we meet again as two views.
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
        """The others went on without this life of ours; they may not know it."""
        if self._departing:
            self.let_go(now)
            return
        self.marks["left behind"] += 1
        self._return_to(view, now)

    def _return_to(self, view: View, now: Time) -> None:
        """End this life; begin another in `view`, with what we wanted and had read."""
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
            self._contact(view.members[slot].address)  # last: whom we know nothing of
        self._alone_at = now + self._agreement_config.alone_after
        self._ask_to_enter(now)

    def _hear_of(self, view: View, uid: str = "") -> None:
        """Ask members of a view, too: `uid`, and those whom we know, the lowest slots first."""
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
        """Ask the next of those we know of for a place."""
        pause = self._agreement_config.enter_every
        if self._contacts:
            contact = self._contacts.pop(0)
            self._contacts.append(contact)
            self._requests += 1
            request = self._request()
            self._port.reach(contact, request)
            # A large request takes long to read: who is asked anew meanwhile never gets done.
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
        """The first epoch that we may not share with those who did not go our way.

        A member that stays in a view was in the one before: it reported there.  It may never have
        heard of the view itself, if its leader died, unless it has answered us there.
        """
        if self._former_view is None or self._former is None:
            return 0
        lasts = [one.epoch - 1 for one in self._former_absent] or [self._former_view.epoch]
        shared = self._former.shared
        return max(1, min(last + (last in shared) for last in lasts))

    def _enter(self, install: Install, slot: NodeId, now: Time) -> None:
        """We have a place: begin there, and take up what was before."""
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
        """Nobody takes us back: be a cluster of one, and look for others as such.

        It is another life that does so: somebody may be about to take in the one that asked.
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
        """The core wakes up often, with every ACK; views and detection seldom have to."""
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
        """Do what epochs and detection have due, and ask for the next time of everything."""
        dues = [self._enter_at, self._alone_at, self._beacon_at]
        if self._agreement is not None:
            dues.append(self._agreement.on_wake(now))
        if self._detector is not None:
            dues.append(self._detector.on_wake(now))
        for at in dues:
            if at is not None:
                self.wake(at)

    def _shine(self, now: Time) -> None:
        """Tell those we had to exclude where the cluster is, if we lead it."""
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
