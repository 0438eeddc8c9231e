"""The agreement on views by itself: `ViewAgreement` without a node, on messages moved by hand."""

from __future__ import annotations

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.agreement import AgreementConfig, ViewAgreement
from cubecast.protocol.cluster.phases import Phase
from cubecast.protocol.cluster.views import (
    TO_ANYONE,
    Beacon,
    Change,
    Clusterwide,
    Depart,
    Doubt,
    Install,
    Installed,
    Prepare,
    Report,
    Reports,
    Stuck,
    Unclear,
    View,
    ViewId,
    Who,
    genesis,
)
from cubecast.protocol.port import NodeId, Time

CONFIG = AgreementConfig(answer_after=12, repeat_after=3, beacon_every=16, enter_every=4)


class Toy:
    """A host that keeps what it is told."""

    def __init__(self, world: Toys, slot: NodeId, view: View, kind: type[ViewAgreement]) -> None:
        self.marks = BranchCounts()
        self.world = world
        self.slot = slot
        self.epochs = kind(slot, view.members[slot].uid, view, self, CONFIG)
        self.steps: list[tuple[ViewId, View]] = []
        """(parent, view) for each view it went over to."""
        self.crashed = False
        self.let_go_at: Time | None = None
        self.strangers: list[tuple[View, str]] = []
        self.mute_leaders: list[tuple[NodeId, str]] = []
        self.doubts: list[tuple[str, str]] = []
        """(uid, why) of what was not believed."""

    @property
    def alive(self) -> bool:
        return not self.crashed and self.let_go_at is None

    def send(self, slot: NodeId, message: Clusterwide) -> None:
        self.world.flying.append((self.slot, slot, message))

    def reach(self, address: str, message: Clusterwide) -> None:
        self.send(int(address), message)

    def prepare(self, survivors: int) -> Reports:
        return {}

    def went_over(self, install: Install, now: Time) -> None:
        self.steps.append((install.parent, install.view))

    def let_go(self, now: Time) -> None:
        self.let_go_at = now

    def elsewhere(self, view: View, uid: str, now: Time) -> None:
        """A leaver is done; another node would return with a new life, which toys do not have."""
        mine = self.epochs.view
        if view.has(f"n{self.slot}") or view.epoch <= mine.epoch:
            return
        if self.slot in self.world.leaving:
            self.let_go(now)
        else:
            self.strangers.append((view, uid))

    def left_behind(self, view: View, now: Time) -> None:
        self.strangers.append((view, ""))

    def wake(self, at: Time) -> None:
        """The world wakes everyone at every tick."""

    def can_tell(self, message: Clusterwide) -> bool:
        return True

    def disbelieved(self, uid: str, why: str) -> None:
        self.doubts.append((uid, why))

    def mute_leader(self, slot: NodeId, waited: Time, reason: str, now: Time) -> None:
        self.mute_leaders.append((slot, reason))


class Toys:
    """Some nodes, and what is on its way between them."""

    def __init__(self, nodes: int, kind: type[ViewAgreement] = ViewAgreement) -> None:
        self.now: Time = 0
        self.flying: list[tuple[NodeId, NodeId, Clusterwide]] = []
        first = genesis({node: Who(f"n{node}", str(node), 0) for node in range(nodes)})
        self.leaving: set[NodeId] = set()
        self.toys = [Toy(self, node, first, kind) for node in range(nodes)]

    def alive(self) -> list[Toy]:
        return [toy for toy in self.toys if toy.alive]

    def hand_over(self, index: int, *, keep: bool = False) -> None:
        """Deliver one message; `keep`: a copy stays under way."""
        source, to, message = self.flying[index] if keep else self.flying.pop(index)
        toy = self.toys[to]
        if not toy.alive:
            return
        epochs = toy.epochs
        if not isinstance(message, TO_ANYONE) and not epochs.view.has(f"n{source}"):
            # `Member` hears only nodes in its view, and tells the others where it is.
            toy.send(source, Beacon(f"n{to}", epochs.view))
            return
        match message:
            case Prepare():
                epochs.on_prepare(message, source, self.now)
            case Report():
                epochs.on_report(message, source, self.now)
            case Stuck():
                epochs.on_stuck(message, source, self.now)
            case Install():
                if epochs.on_install(message, self.now) and toy.alive:
                    toy.reach(str(source), Installed(message.view.id))
            case Change():
                epochs.on_change(message, source, self.now)
            case Unclear():
                epochs.on_unclear(message, source)
            case Installed():
                epochs.on_installed(message, f"n{source}", self.now)
            case Depart():
                epochs.on_depart(message, self.now)
            case Doubt():
                if to in self.leaving and message.uid == f"n{to}":
                    toy.send(source, Depart(message.uid, message.nonce))
            case Beacon():
                toy.elsewhere(message.view, message.uid, self.now)

    def suspect(self, who: NodeId, whom: NodeId, really: bool = True) -> None:
        """A detector speaks."""
        epochs = self.toys[who].epochs
        bit = 1 << whom
        if self.toys[who].alive and epochs.view.mask & bit:
            mask = epochs.suspects | bit if really else epochs.suspects & ~bit
            epochs.suspect(mask, self.now)

    def depart(self, node: NodeId) -> None:
        """`Member` asks again and again."""
        toy = self.toys[node]
        self.leaving.add(node)
        if toy.alive:
            toy.epochs.depart(self.now)

    def tick(self, by: Time = CONFIG.repeat_after) -> None:
        self.now += by
        for toy in self.alive():
            toy.epochs.on_wake(self.now)

    def drain(self) -> None:
        """Deliver all that is under way, and what comes of it, oldest first."""
        for _ in range(10_000):
            if not self.flying:
                return
            self.hand_over(0)
        raise AssertionError("they never stop talking")

    def come_to_rest(self, ticks: int = 200) -> None:
        """Nothing is lost any more, and every detector is right."""
        for _ in range(ticks):
            self.drain()
            for node in sorted(self.leaving):
                self.depart(node)
            for toy in self.alive():
                gone = sum(1 << other.slot for other in self.toys if not other.alive)
                if toy.epochs.suspects != gone & toy.epochs.view.mask:
                    toy.epochs.suspect(gone & toy.epochs.view.mask, self.now)
                self._ask_who_is_ahead(toy)
            self.tick()

    def _ask_who_is_ahead(self, toy: Toy) -> None:
        """As `Member` does when a detector hears of a later view."""
        for other in self.alive():
            theirs, mine = other.epochs.view, toy.epochs.view
            if theirs.epoch > mine.epoch and mine.has(f"n{other.slot}"):
                toy.send(other.slot, Stuck(mine.id))

    # -- what must hold ----------------------------------------------------------------------------

    def disagreements(self) -> list[str]:
        """Pairs that went different ways from one view, though each counts on the other."""
        found = []
        for one in self.toys:
            for other in self.toys[one.slot + 1 :]:
                for parent, view in one.steps:
                    for same, another in other.steps:
                        mutual = another.has(f"n{one.slot}") and view.has(f"n{other.slot}")
                        if mutual and parent == same and view != another:
                            found.append(f"{one.slot}: {view}, {other.slot}: {another}")
        return found

    def stuck(self) -> list[str]:
        """Pairs of the living that count on each other in different views: neither will move."""
        living = self.alive()
        return [
            f"{one.slot} in {one.epochs.view.id}, {other.slot} in {other.epochs.view.id}"
            for one in living
            for other in living
            if one.slot < other.slot
            and one.epochs.view.id != other.epochs.view.id
            and one.epochs.view.has(f"n{other.slot}")
            and other.epochs.view.has(f"n{one.slot}")
        ]

    def forlorn(self) -> list[NodeId]:
        """Nodes that wait for a view while no node they count on has gone on without them.

        The others would be told that they are excluded (`Beacon`), and return.
        """
        return [
            toy.slot
            for toy in self.alive()
            if toy.epochs.phase is not Phase.SETTLED
            and not any(
                toy.epochs.view.has(f"n{other.slot}")
                and not other.epochs.view.has(f"n{toy.slot}")
                and other.epochs.view.epoch >= toy.epochs.view.epoch
                for other in self.alive()
            )
        ]

    def views(self) -> set[frozenset[NodeId]]:
        return {frozenset(toy.epochs.view.members) for toy in self.alive()}
