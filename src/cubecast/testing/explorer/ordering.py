"""All interleavings of a small world of ordering modules, each end state judged.

Theory of operation.  A state is what an `OrderingWorld` holds, and how far each actor is in its
deeds (what applications do: publish, subscribe, ask for a swap).  From a state the search makes
every move that the world offers, and the next deed of every actor.  It visits each state once,
depth first, and judges those in which nothing more can happen.  What subscribers have seen is part
of a state, so two ways to one state cannot differ in what the judge says.

Modules are not copied.  The world holds a `Stand` in place of each: the number of a *local state*,
and a table of what follows from a cause in that local state.  To find a line that the table lacks,
a fresh module takes the causes of the local state's history again, and then the new one.
Two histories have one local state if the canonical forms of their modules are equal
(`cubecast.testing.explorer.canonical_forms`).

What this asks of modules and worlds:

1. a module is deterministic, and all it remembers is reached through its attributes;
2. no two modules share an object that changes;
3. whatever a world remembers is in fields that are containers of immutable values or modules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cubecast.ordering.effects import (
    Cause,
    Effect,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    Time,
)
from cubecast.ordering.judge import inversions
from cubecast.ordering.timestamps import Timestamp
from cubecast.ordering.world import Make, Module, Move, OrderingWorld
from cubecast.testing.explorer.canonical_forms import CanonicalForm, Likeness

VALUES = Likeness(
    values=frozenset(
        {
            ServiceNotified,
            Notify,
            PublishCall,
            ReceivedFromModule,
            SendToModule,
            ServicePublish,
            Timestamp,
        }
    )
)
"""Causes, effects and timestamps are never changed."""
CONSTANT = frozenset({"make", "order", "nodes"})
"""Fields of a world that stay as they were made."""
CONTAINERS = frozenset({list, set, deque})


class Act(NamedTuple):
    """An actor does the next of its deeds."""

    actor: str
    number: int


Deed: TypeAlias = Callable[[OrderingWorld], None]
Deeds: TypeAlias = Mapping[str, Sequence[Deed]]
"""What each actor does, in this order."""
SetUp: TypeAlias = Callable[[Make], OrderingWorld]
"""Makes the world in which an exploration begins."""
Step: TypeAlias = Move | Act
Judge: TypeAlias = Callable[[OrderingWorld], Sequence[object]]


class TooManyStates(RuntimeError):
    """A case is too large to be explored; what was found so far is in `exploration`."""

    def __init__(self, exploration: OrderingExploration, bound: int) -> None:
        super().__init__(
            f"more than {bound} states, {exploration.ends} of them ends; "
            "take fewer events or subscribers, or raise max_states"
        )
        self.exploration = exploration
        self.bound = bound


class OrderingFinding(NamedTuple):
    """An end state that the judge objects to, and the steps that lead there."""

    verdict: Sequence[object]
    schedule: tuple[Step, ...]
    world: OrderingWorld


@dataclass
class OrderingExploration:
    """How much was visited, and what was found."""

    states: int = 0
    transitions: int = 0
    ends: int = 0
    findings: list[OrderingFinding] = field(default_factory=list)


# -- modules ---------------------------------------------------------------------------------------


class _Local(NamedTuple):
    """A local state: how a module comes to it, and a module in it, for reading only."""

    make: Callable[[], Module]
    history: tuple[tuple[Cause, Time], ...]
    module: Module


class Table:
    """What follows from each cause in each local state, as far as it has been asked for."""

    def __init__(self) -> None:
        self._locals: list[_Local] = []
        self._numbers: dict[bytes, int] = {}
        self._lines: dict[tuple[int, Cause, Time], tuple[int, list[Effect]]] = {}
        self._form = CanonicalForm(self, VALUES)

    def making(self, make: Make) -> Make:
        """`make`, but it makes a `Stand` for each module."""

        def made(*args: Any, **kwargs: Any) -> Module:
            def fresh() -> Module:
                return make(*args, **kwargs)

            return Stand(self, self._number(_Local(fresh, (), fresh())))

        return made

    def _number(self, local: _Local) -> int:
        form = self._form.of(local.module)
        number = self._numbers.setdefault(form, len(self._locals))
        if number == len(self._locals):
            self._locals.append(local)
        return number

    def step(self, number: int, cause: Cause, now: Time) -> tuple[int, list[Effect]]:
        """The next local state, and the effects."""
        line = number, cause, now
        found = self._lines.get(line)
        if found is None:
            make, history, _ = self._locals[number]
            module = make()
            for earlier, then in history:
                module.step(earlier, then)
            effects = module.step(cause, now)
            after = self._number(_Local(make, (*history, (cause, now)), module))
            found = self._lines[line] = after, effects
        return found

    def module(self, number: int) -> Module:
        """A module in a local state; the caller must not change it."""
        return self._locals[number].module


class Stand:
    """Stands for a module in a world that is explored; reads as the module does."""

    __slots__ = ("number", "table")

    def __init__(self, table: Table, number: int) -> None:
        self.table = table
        self.number = number

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        self.number, effects = self.table.step(self.number, cause, now)
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table.module(self.number), name)


# -- worlds ----------------------------------------------------------------------------------------


def _twin(value: Any) -> Any:
    """A copy that can be changed without changing the original."""
    kind = type(value)
    if kind is dict:
        return {key: _twin(one) for key, one in value.items()}
    if kind is Stand:
        return Stand(value.table, value.number)
    if kind in CONTAINERS:
        return value.copy()
    by_identity = getattr(kind, "__hash__", None) in (None, object.__hash__)
    if by_identity and value is not None and not callable(value):
        raise TypeError(f"a world that is explored cannot hold a {kind.__qualname__}: {value!r}")
    return value


def _frozen(value: Any) -> Hashable:
    """What tells a field's content from another; the order of a map is none of it."""
    kind = type(value)
    if kind is dict:
        return frozenset([(key, _frozen(one)) for key, one in value.items()])
    if kind is Stand:
        number: int = value.number
        return number
    if kind in CONTAINERS:
        return frozenset(value) if kind is set else tuple(value)
    frozen: Hashable = value
    return frozen


def _fields(world: OrderingWorld) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(world).items() if name not in CONSTANT)


def _branched(world: OrderingWorld) -> OrderingWorld:
    twin = copy(world)
    for name, value in _fields(world):
        setattr(twin, name, _twin(value))
    return twin


class _State(NamedTuple):
    world: OrderingWorld
    done: tuple[int, ...]
    """Deeds that each actor has done."""


class _OrderingSearch:
    """One exploration."""

    def __init__(self, first: OrderingWorld, deeds: Deeds) -> None:
        self._actors = list(deeds)
        self._deeds = deeds
        self.first = _State(first, (0,) * len(self._actors))

    def key(self, state: _State) -> Hashable:
        return state.done, tuple(_frozen(value) for _, value in _fields(state.world))

    def steps(self, state: _State) -> list[Step]:
        acts = [
            Act(actor, done)
            for actor, done in zip(self._actors, state.done, strict=True)
            if done < len(self._deeds[actor])
        ]
        return [*acts, *state.world.moves()]

    def after(self, state: _State, step: Step) -> _State:
        world = _branched(state.world)
        if not isinstance(step, Act):
            world.move(step)
            return _State(world, state.done)
        self._deeds[step.actor][step.number](world)
        place = self._actors.index(step.actor)
        done = (*state.done[:place], step.number + 1, *state.done[place + 1 :])
        return _State(world, done)


def explore(
    set_up: SetUp,
    make: Make,
    deeds: Deeds,
    *,
    judge: Judge = lambda world: inversions(world.seen),
    max_states: int = 200_000,
    max_findings: int = 1,
) -> OrderingExploration:
    """Visit all states, or stop at so many findings; `TooManyStates` if the bound is reached.

    `set_up` is given a `make` to build its world with, and may settle what is to be settled.
    """
    search = _OrderingSearch(set_up(Table().making(make)), deeds)
    first = search.key(search.first)
    parents: dict[Hashable, tuple[Hashable, Step] | None] = {first: None}
    result = OrderingExploration(states=1)
    stack = [(first, search.first)]
    while stack:
        before, state = stack.pop()
        steps = search.steps(state)
        for step in steps:
            after = search.after(state, step)
            key = search.key(after)
            result.transitions += 1
            if key not in parents:
                parents[key] = before, step
                stack.append((key, after))
        result.states = len(parents)
        if not steps:
            result.ends += 1
            verdict = judge(state.world)
            if verdict:
                finding = OrderingFinding(verdict, _path(parents, before), state.world)
                result.findings.append(finding)
                if len(result.findings) >= max_findings:
                    return result
        if result.states > max_states:
            raise TooManyStates(result, max_states)
    return result


def _path(
    parents: Mapping[Hashable, tuple[Hashable, Step] | None], key: Hashable
) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (parent := parents[key]) is not None:
        key, step = parent
        steps.append(step)
    return tuple(reversed(steps))


def replay(set_up: SetUp, make: Make, deeds: Deeds, schedule: Sequence[Step]) -> OrderingWorld:
    """Take the steps of a finding in a world of real modules."""
    world = set_up(make)
    for step in schedule:
        if isinstance(step, Act):
            deeds[step.actor][step.number](world)
        else:
            world.move(step)
    return world
