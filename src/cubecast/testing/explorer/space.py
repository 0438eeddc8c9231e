"""Global states and the moves between them.

A state is a tuple of numbers: what is left of the budgets, one local state per node, then the
messages in flight, sorted.  Two orders of independent events lead to the same tuple.  Each node's
history is part of its local state, so the histories are a function of the state, and nothing is
lost by expanding a state once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

from cubecast.protocol.port import NodeId
from cubecast.testing.explorer.cases import Case
from cubecast.testing.explorer.nodes import CONSUMES, TIMERS, Nodes, Reaction
from cubecast.topology import members_of

State: TypeAlias = tuple[int, ...]

ROUNDS = 6
"""Timers that fire so often per step of the script never come to rest; a crash counts for more."""


class Move(NamedTuple):
    """Something that may happen next, to an item in flight or at a node."""

    kind: Literal[
        "arrives",
        "is lost",
        "arrives twice",
        "step",
        "consumes",
        "wakes",
        "timers fire",
        "crashes",
        "restarts",
        "suspect",
        "trust",
    ]
    subject: int = -1
    others: tuple[int, ...] = ()
    """The items that are lost with a node that crashes; the node that is suspected or trusted."""


class Crash(Exception):
    """In the place of a state: a process raised."""


class FaultBudget(NamedTuple):
    """What may still go wrong, and how often timers have fired since anything else went on."""

    drops: int
    duplicates: int
    early_wakes: int
    crashes: int = 0
    doubts: int = 0
    restarts: int = 0
    rounds: int = 0


class Space:
    """The states of one case."""

    def __init__(self, case: Case) -> None:
        self.nodes = Nodes(case)
        trouble = case.rules.crashes + case.rules.doubts + case.rules.restarts
        self.rounds = ROUNDS * (1 + len(case.steps) + 4 * trouble)
        self._case = case
        self._size = case.nodes
        self._relative = case.likeness.relative
        self._budgets: list[FaultBudget] = []
        self._budget_numbers: dict[FaultBudget, int] = {}

    def locals(self, state: State) -> State:
        """The local states of all nodes."""
        return state[1 : self._size + 1]

    def first(self) -> State:
        """The state in which nothing has happened but what happens at once."""
        case = self._case
        now = [self.nodes.start(node, case) for node in range(self._size)]
        flight: list[int] = []
        for node in range(self._size):
            step = self.nodes.step[now[node]]
            if step is not None and step.eager:
                crash = self._follow(now, flight, self.nodes.take_step(now[node], self._stamp(now)))
                assert not crash, crash
        rules = case.rules
        budget = self._budget(
            FaultBudget(
                rules.drops,
                rules.duplicates,
                rules.early_wakes,
                rules.crashes,
                rules.doubts,
                rules.restarts,
            )
        )
        return (budget, *now, *sorted(flight))

    def moves(self, state: State) -> Iterator[tuple[Move, State | Crash]]:
        """Everything that may happen next, and where it leads."""
        nodes = self.nodes
        budget = state[0]
        locals_ = state[1 : self._size + 1]
        flight = state[self._size + 1 :]
        left = self._budgets[budget]
        faulty = any(left[:3])
        fresh = budget if not left.rounds else self._budget(left._replace(rounds=0))
        for item in self._arriving(flight):
            local = locals_[nodes.receiver[item]]
            reaction = nodes.reactions[local].get(item) or nodes.react(local, item)
            rest = list(flight)
            rest.remove(item)
            yield Move("arrives", item), self._after(budget, locals_, rest, reaction)
            if faulty:
                yield from self._faults(state, item, reaction)
        for node, local in enumerate(locals_):
            if nodes.step[local] is not None:
                reaction = nodes.take_step(local, self._stamp(locals_))
                yield Move("step", node), self._after(fresh, locals_, list(flight), reaction)
        if left.crashes:
            yield from self._crashes(state)
        if left.restarts:
            yield from self._restarts(state)
        if left.doubts or any(self.nodes.kept(local).suspects for local in locals_):
            yield from self._doubts(state)
        news = [] if not self._case.rules.crashes else self._news(locals_)
        for node, slot in news:
            reaction = nodes.hear(locals_[node], "suspect", slot)
            then = self._after(fresh, locals_, list(flight), reaction)
            yield Move("suspect", node, (slot,)), then
        slow = self._unconsumed(locals_) if self._case.slow else []
        for node in slow:
            reaction = nodes.react(locals_[node], CONSUMES)
            yield Move("consumes", node), self._after(budget, locals_, list(flight), reaction)
        if not flight and not slow and not news:
            yield from self._idle(budget, locals_)
            if self._case.rules.doubts or self._case.rules.crashes:
                yield from self._estranged(fresh, locals_)
        elif faulty:
            yield from self._early_wakes(state)

    def _crashes(self, state: State) -> Iterator[tuple[Move, State]]:
        """A node ends at once; of what it sent, any part arrives."""
        left = self._budgets[state[0]]
        budget = self._budget(left._replace(crashes=left.crashes - 1, rounds=0))
        locals_ = state[1 : self._size + 1]
        flight = state[self._size + 1 :]
        items = self.nodes.items
        for node, local in enumerate(locals_):
            if self.nodes.gone[local] or not self._case.rules.mortal >> node & 1:
                continue
            now = list(locals_)
            now[node] = self.nodes.crash(local)
            flight_to_others = [item for item in flight if items[item].receiver != node]
            under_way = [item for item in flight_to_others if items[item].sender == node]
            for lost in _parts_of(under_way):
                rest = flight_to_others[:]
                for item in lost:
                    rest.remove(item)
                yield Move("crashes", node, lost), (budget, *now, *rest)

    def _restarts(self, state: State) -> Iterator[tuple[Move, State]]:
        """A process begins where one has crashed; it knows nothing."""
        left = self._budgets[state[0]]
        budget = self._budget(left._replace(restarts=left.restarts - 1, rounds=0))
        locals_ = state[1 : self._size + 1]
        for node, local in enumerate(locals_):
            if self.nodes.dead[local]:
                now = list(locals_)
                now[node] = self.nodes.restart(local)
                yield Move("restarts", node), (budget, *now, *state[self._size + 1 :])

    def _news(self, locals_: State) -> list[tuple[NodeId, NodeId]]:
        """Pairs (node, crashed member of its view) where the node does not know of the crash."""
        nodes = self.nodes
        dead = [node for node, local in enumerate(locals_) if nodes.dead[local]]
        if not dead:
            return []
        return [
            (node, slot)
            for node, local in enumerate(locals_)
            for slot in dead
            if nodes.kept(local).trusts >> slot & 1
        ]

    def _doubts(self, state: State) -> Iterator[tuple[Move, State | Crash]]:
        """A node suspects another that is alive, or trusts it again."""
        nodes = self.nodes
        left = self._budgets[state[0]]
        locals_ = state[1 : self._size + 1]
        flight = state[self._size + 1 :]
        up = [(slot, local) for slot, local in enumerate(locals_) if not nodes.dead[local]]
        for node, local in enumerate(locals_):
            kept = nodes.kept(local)
            alive = 0
            for slot, other in up:
                # A node that began again is not the life that this view's detector tests.
                if not nodes.past(other).reborn or (slot, nodes.kept(other).life) in kept.lives:
                    alive |= 1 << slot
            budget = self._budget(left._replace(rounds=0))
            for slot in members_of(kept.suspects & alive):
                reaction = nodes.hear(local, "trust", slot)
                then = self._after(budget, locals_, list(flight), reaction)
                yield Move("trust", node, (slot,)), then
            if not left.doubts:
                continue
            budget = self._budget(left._replace(doubts=left.doubts - 1, rounds=0))
            for slot in members_of(kept.trusts & alive & self._case.rules.doubted):
                reaction = nodes.hear(local, "suspect", slot)
                then = self._after(budget, locals_, list(flight), reaction)
                yield Move("suspect", node, (slot,)), then

    def _estranged(self, budget: int, locals_: State) -> Iterator[tuple[Move, State | Crash]]:
        """A node suspects a member that has another life by now, or whose view lacks this node.

        A detector does the same: only members of the same view answer each other.
        """
        nodes = self.nodes
        kept = [nodes.kept(local) for local in locals_]
        for node, mine in enumerate(kept):
            for slot in members_of(mine.trusts):
                theirs = kept[slot]
                if (slot, theirs.life) in mine.lives and (node, mine.life) in theirs.lives:
                    continue
                reaction = nodes.hear(locals_[node], "suspect", slot)
                then = self._after(budget, locals_, [], reaction)
                yield Move("suspect", node, (slot,)), then

    def _unconsumed(self, locals_: State) -> list[NodeId]:
        """The nodes whose applications have something to take in."""
        return [node for node, local in enumerate(locals_) if self.nodes.kept(local).unconsumed]

    def _arriving(self, flight: State) -> Sequence[int]:
        """The distinct items that may arrive next under the rules."""
        order = self.nodes.order
        patient = self.nodes.patient
        items = [item for item in dict.fromkeys(flight) if not patient[item]]
        if not items:
            return flight[:1]
        lowest: dict[tuple[NodeId, NodeId], int] = {}
        for item in items:
            place = order[item]
            if place is not None and lowest.get(place[:2], place[2]) >= place[2]:
                lowest[place[:2]] = place[2]
        if not lowest:
            return items
        return [
            item
            for item in items
            if (place := order[item]) is None or place[2] == lowest[place[:2]]
        ]

    def _faults(
        self, state: State, item: int, reaction: Reaction
    ) -> Iterator[tuple[Move, State | Crash]]:
        """The item is lost, or it arrives and a copy stays in flight."""
        budget = self._budgets[state[0]]
        locals_ = state[1 : self._size + 1]
        flight = list(state[self._size + 1 :])
        if budget.duplicates:
            left = self._budget(budget._replace(duplicates=budget.duplicates - 1))
            yield Move("arrives twice", item), self._after(left, locals_, flight[:], reaction)
        if budget.drops:
            left = self._budget(budget._replace(drops=budget.drops - 1))
            flight.remove(item)
            yield Move("is lost", item), (left, *locals_, *flight)

    def _idle(self, budget: int, locals_: State) -> Iterator[tuple[Move, State | Crash]]:
        """Nothing is under way: time may pass, and all timers fire."""
        kept = [self.nodes.kept(local) for local in locals_]
        left = self._budgets[budget]
        fired = left.rounds if self._relative else max(one.clock for one in kept)
        if not any(one.armed for one in kept) or fired >= self.rounds:
            return
        now = list(locals_)
        flight: list[int] = []
        for node in range(self._size):
            if self.nodes.kept(now[node]).armed:
                crash = self._follow(now, flight, self.nodes.react(now[node], TIMERS))
                if crash:
                    yield Move("timers fire"), Crash(crash)
                    return
        if self._relative:
            if not flight and tuple(now) == locals_:
                return  # they will fire for ever, and nothing comes of it
            budget = self._budget(left._replace(rounds=left.rounds + 1))
        yield Move("timers fire"), (budget, *now, *sorted(flight))

    def is_restless(self, state: State, node: NodeId) -> bool:
        """Whether timers of a node still fire in a state in which nothing more happens."""
        if not self.nodes.kept(state[1 + node]).armed:
            return False
        return not self._relative or self._budgets[state[0]].rounds >= self.rounds

    def _early_wakes(self, state: State) -> Iterator[tuple[Move, State | Crash]]:
        """The timers of one node fire although something is under way."""
        budget = self._budgets[state[0]]
        if not budget.early_wakes:
            return
        left = self._budget(budget._replace(early_wakes=budget.early_wakes - 1))
        locals_ = state[1 : self._size + 1]
        flight = state[self._size + 1 :]
        for node, local in enumerate(locals_):
            if self.nodes.kept(local).armed:
                reaction = self.nodes.react(local, TIMERS)
                yield Move("wakes", node), self._after(left, locals_, list(flight), reaction)

    def _after(
        self, budget: int, locals_: State, flight: list[int], reaction: Reaction
    ) -> State | Crash:
        """The state after a reaction."""
        now = list(locals_)
        crash = self._follow(now, flight, reaction)
        if crash:
            return Crash(crash)
        flight.sort()
        return (budget, *now, *flight)

    def _follow(self, now: list[int], flight: list[int], reaction: Reaction) -> str:
        """Apply a reaction and what follows at once: eager steps, urgent messages.

        What is sent to a node that is gone is lost.  Returns what a process raised, or nothing.
        """
        nodes = self.nodes
        mortal = self._relative or self._case.rules.crashes > 0
        urgent: deque[int] = deque()
        while not reaction.crash:
            local = reaction.local
            now[nodes.node[local]] = local
            if mortal:
                flight += self._reaching(reaction.sent, now)
                urgent += self._reaching(reaction.urgent, now)
            else:
                flight += reaction.sent
                urgent += reaction.urgent
            if reaction.eager:
                reaction = nodes.take_step(local, self._stamp(now))
            elif urgent:
                item = urgent.popleft()
                local = now[nodes.receiver[item]]
                reaction = nodes.reactions[local].get(item) or nodes.react(local, item)
            else:
                break
        return reaction.crash

    def _reaching(self, sent: tuple[int, ...], now: list[int]) -> list[int]:
        """What of it is sent to nodes that are there."""
        receiver, gone = self.nodes.receiver, self.nodes.gone
        return [item for item in sent if not gone[now[receiver[item]]]]

    def _stamp(self, locals_: Sequence[int]) -> tuple[int, ...]:
        joins = self.nodes.joins
        return tuple([joins[local] for local in locals_])

    def _budget(self, left: FaultBudget) -> int:
        number = self._budget_numbers.get(left)
        if number is None:
            number = self._budget_numbers[left] = len(self._budgets)
            self._budgets.append(left)
        return number

    # -- words -----------------------------------------------------------------------------------

    def describe(self, state: State, move: Move) -> str:
        """A move in `state`, for people."""
        nodes = self.nodes
        match move.kind:
            case "step":
                return str(nodes.step[state[1 + move.subject]])
            case "timers fire":
                return "timers fire"
            case "consumes":
                return f"node {move.subject}: takes in what was delivered first"
            case "crashes":
                lost = [self._told(item) for item in move.others]
                return f"node {move.subject} crashes" + "".join(f"; lost: {one}" for one in lost)
            case "restarts":
                return f"node {move.subject} begins again"
            case "suspect" | "trust":
                return f"node {move.subject}: {move.kind}s {move.others[0]}"
            case "wakes":
                return f"node {move.subject}: its timers fire early"
        return self._told(move.subject, f" {move.kind}")

    def _told(self, number: int, what: str = "") -> str:
        item = self.nodes.items[number]
        return f"{item.sender} -> {item.receiver}{what}: {self.nodes.message(number)!r}"


def _parts_of(items: Sequence[int]) -> set[tuple[int, ...]]:
    """Every choice among items that may occur several times."""
    return {part for size in range(len(items) + 1) for part in combinations(items, size)}
