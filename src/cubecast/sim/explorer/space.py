"""Global states and the moves between them.

A state is a tuple of numbers: what is left of the budgets, one local state per node, then the
messages in flight, sorted.  Two orders of independent events lead to the same tuple.  Each node's
history is part of its local state, so the histories are a function of the state, and nothing is
lost by expanding a state once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from cubecast.protocol.port import NodeId
from cubecast.sim.explorer.cases import Case
from cubecast.sim.explorer.nodes import CONSUMES, TIMERS, Nodes, Reaction

State: TypeAlias = tuple[int, ...]

ROUNDS = 6
"""Timers that fire so often per step of the script will never come to rest."""


class Move(NamedTuple):
    """Something that may happen next, to an item in flight or at a node."""

    kind: Literal["arrives", "is lost", "arrives twice", "step", "consumes", "wakes", "timers fire"]
    subject: int = -1


class Crash(Exception):
    """In the place of a state: a process raised."""


class Budget(NamedTuple):
    """What the network may still do wrong."""

    drops: int
    duplicates: int
    early_wakes: int


class Space:
    """The states of one case."""

    def __init__(self, case: Case) -> None:
        self.nodes = Nodes(case)
        self.rounds = ROUNDS * (1 + len(case.steps))
        self._case = case
        self._size = case.nodes
        self._budgets: list[Budget] = []
        self._budget_numbers: dict[Budget, int] = {}

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
        budget = self._budget(Budget(rules.drops, rules.duplicates, rules.early_wakes))
        return (budget, *now, *sorted(flight))

    def moves(self, state: State) -> Iterator[tuple[Move, State | Crash]]:
        """Everything that may happen next, and where it leads."""
        nodes = self.nodes
        budget = state[0]
        locals_ = state[1 : self._size + 1]
        flight = state[self._size + 1 :]
        faulty = any(self._budgets[budget])
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
                yield Move("step", node), self._after(budget, locals_, list(flight), reaction)
        slow = self._unconsumed(locals_) if self._case.slow else []
        for node in slow:
            reaction = nodes.react(locals_[node], CONSUMES)
            yield Move("consumes", node), self._after(budget, locals_, list(flight), reaction)
        if not flight and not slow:
            yield from self._idle(budget, locals_)
        elif faulty:
            yield from self._early_wakes(state)

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
        if not any(one.armed for one in kept) or max(one.clock for one in kept) >= self.rounds:
            return
        now = list(locals_)
        flight: list[int] = []
        for node in range(self._size):
            if self.nodes.kept(now[node]).armed:
                crash = self._follow(now, flight, self.nodes.react(now[node], TIMERS))
                if crash:
                    yield Move("timers fire"), Crash(crash)
                    return
        yield Move("timers fire"), (budget, *now, *sorted(flight))

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

        Returns what a process raised, or nothing.
        """
        nodes = self.nodes
        urgent: deque[int] = deque()
        while not reaction.crash:
            local = reaction.local
            now[nodes.node[local]] = local
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

    def _stamp(self, locals_: Sequence[int]) -> tuple[int, ...]:
        joins = self.nodes.joins
        return tuple([joins[local] for local in locals_])

    def _budget(self, left: Budget) -> int:
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
            case "wakes":
                return f"node {move.subject}: its timers fire early"
        item = nodes.items[move.subject]
        message = nodes.message(move.subject)
        return f"{item.sender} -> {item.receiver} {move.kind}: {message!r}"
