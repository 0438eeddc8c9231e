"""The search through all states of a case, and its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from cubecast.protocol.port import NodeId
from cubecast.testing.explorer.cases import Case, Exploration, Finding
from cubecast.testing.explorer.histories import SHOWS_AT_ONCE, judge, merge, present
from cubecast.testing.explorer.space import Crash, Move, Space, State
from cubecast.trace import Property, Record, check


def explore(case: Case, *, max_states: int = 2_000_000, max_findings: int = 0) -> Exploration:
    """Run every interleaving; stop, incomplete, at either limit (0: no limit on findings)."""
    search = _Search(case)
    result = search.run(max_states, max_findings)
    search.space.nodes.processes.check_messages()
    return result


class _Search:
    """One exploration."""

    def __init__(self, case: Case) -> None:
        self.space = Space(case)
        self._case = case
        self._parents: dict[State, State | None] = {}
        self._judged: set[State] = set()
        self._result = Exploration()

    def run(self, max_states: int, max_findings: int) -> Exploration:
        """Depth first: final states, and so findings, come early."""
        result = self._result
        parents = self._parents
        first = self.space.first()
        parents[first] = None
        stack = [first]
        while stack:
            state = stack.pop()
            final = True
            for move, after in self.space.moves(state):
                final = False
                result.transitions += 1
                if isinstance(after, Crash):
                    self._find("crash", str(after), state, [move])
                elif after not in parents:
                    parents[after] = state
                    stack.append(after)
            if final:
                result.finals += 1
                self._judge(state)
            if len(parents) > max_states or 0 < max_findings <= len(result.findings):
                break
        else:
            result.complete = True
        result.states = len(parents)
        return result

    # -- judgement -------------------------------------------------------------------------------

    def _judge(self, state: State) -> None:
        """Nothing more can happen: is everything as it should be?"""
        locals_ = self.space.locals(state)
        if locals_ in self._judged:
            return
        self._judged.add(locals_)
        nodes = self.space.nodes
        self._result.outcomes.add(tuple([nodes.past(local).entries for local in locals_]))
        up = {node: local for node, local in enumerate(locals_) if not nodes.dead[local]}
        for node, local in up.items():
            for what, message in self._complaints(local, self._lost_by(state, node)):
                self._find(what, f"node {node}: {message}", state)
            if self.space.is_restless(state, node):
                message = f"timers still fire after {self.space.rounds} rounds"
                self._find("restless", f"node {node}: {message}", state)
        loads = {node: nodes.load(local) for node, local in up.items()}
        report = judge(self._trace(state), loads)
        for violation in report.violations:
            self._find(violation.property, str(violation), state)

    def _lost_by(self, state: State, node: NodeId) -> frozenset[str]:
        """Messages that a node need not deliver: not published by a live node, or in a gap."""
        if not self._case.rules.crashes and not self._case.rules.doubts:
            return frozenset()
        nodes = self.space.nodes
        owed = {
            entry.note.name
            for local in self.space.locals(state)
            for entry in present(nodes.past(local).entries)
            if entry.note.kind == "publish" and not nodes.dead[local]
        }
        gaps = {r.id for r in self._trace(state) if r.kind == "gap" and r.node == node}
        waited_for = {name for step in self._case.steps for name in step.after}
        return frozenset(name for name in waited_for if name not in owed or name in gaps)

    def _complaints(self, local: int, lost: frozenset[str]) -> Iterator[tuple[str, str]]:
        """What is wrong with one node at the end, beyond what a trace shows."""
        nodes = self.space.nodes
        kept = nodes.kept(local)
        for step in nodes.remaining(local):
            if lost.intersection(step.after) - nodes.past(local).delivered:
                break  # it waited for what will never come
            yield "stuck", f"never became possible: {step}"
        if kept.backlog:
            yield "unfinished", f"never accepted: {kept.backlog}"
        if nodes.past(local).leaving:
            yield "unfinished", "unsubscribe() never came to its end"
        unclean = self._case.at_rest(nodes.process(local))
        if unclean is not None:
            yield "unclean", unclean

    def _trace(self, state: State) -> list[Record]:
        past = self.space.nodes.past
        return merge([past(local).entries for local in self.space.locals(state)])

    # -- findings --------------------------------------------------------------------------------

    def _find(self, what: str, message: str, state: State, last: Sequence[Move] = ()) -> None:
        """Count a finding; keep the first of each kind, with a schedule."""
        counts = self._result.counts
        counts[what] = counts.get(what, 0) + 1
        if counts[what] > 1:
            return
        moves = [self._move_between(a, b) for a, b in pairwise(self._path(state))]
        at_once = [prop for prop in SHOWS_AT_ONCE if prop == what]
        if at_once:
            moves = self._shrunk(moves, at_once)
        moves += last
        schedule, trace = self._told(moves)
        self._result.findings.append(Finding(what, message, schedule, trace))

    def _path(self, state: State) -> list[State]:
        path = [state]
        while (parent := self._parents[path[-1]]) is not None:
            path.append(parent)
        return path[::-1]

    def _move_between(self, before: State, after: State) -> Move:
        return next(move for move, state in self.space.moves(before) if state == after)

    def _replay(self, moves: Sequence[Move]) -> list[State | Crash] | None:
        """The states that the moves lead through; None if one of them is not possible."""
        states: list[State | Crash] = [self.space.first()]
        for move in moves:
            before = states[-1]
            if isinstance(before, Crash):
                return None
            after = next((a for m, a in self.space.moves(before) if m == move), None)
            if after is None:
                return None
            states.append(after)
        return states

    def _shrunk(self, moves: list[Move], broken: Sequence[Property]) -> list[Move]:
        """Leave out every move that the violation does not need, the last ones first."""
        for index in reversed(range(len(moves))):
            fewer = moves[:index] + moves[index + 1 :]
            states = self._replay(fewer)
            if states is None or isinstance(states[-1], Crash):
                continue
            if not check(self._trace(states[-1]), broken).ok:
                moves = fewer
        return moves

    def _told(self, moves: Sequence[Move]) -> tuple[tuple[str, ...], tuple[Record, ...]]:
        """A schedule in words, and the trace it leaves."""
        states = self._replay(moves)
        assert states is not None
        whole = [state for state in states if not isinstance(state, Crash)]
        schedule = [
            self.space.describe(state, move) for state, move in zip(whole, moves, strict=False)
        ]
        return tuple(schedule), tuple(self._trace(whole[-1]))
