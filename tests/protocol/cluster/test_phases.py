"""The table of the agreement on views: every move is a line of it, and every line is taken.

Random schedules move `Toys`; chaos schedules with crashes run whole `Member`s.  After every event
the phase is compared with the attributes that it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from cubecast.chaos.simulated.driver import draw_schedule, population, run_schedule
from cubecast.protocol.cluster.agreement import ViewAgreement
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.phases import NEXT, TABLE, Phase, PhaseCause, as_markdown
from cubecast.protocol.cluster.views import Ballot, Install, Prepare, View, ViewId
from support.agreement_toys import CONFIG, Toys
from support.paths import ROOT

EVENTS = (
    "suspect", "lose", "consider", "on_report", "on_installed", "on_prepare", "on_install",
    "on_change", "on_unclear", "on_enter", "depart", "on_depart", "on_stuck", "on_wake",
)  # fmt: skip
"""Every way into the agreement that may change its phase."""


def phase_of(epochs: Any) -> Phase:
    """The phase by its definition: the invariants of `cubecast.protocol.cluster.phases`."""
    if epochs._install is not None and not epochs._install.view.has(epochs.uid):
        assert epochs.attempt is None
        return Phase.LEAVING
    if epochs.attempt is not None:
        return Phase.LEADING
    if epochs._retry_at is not None:
        return Phase.FOLLOWING
    return Phase.SETTLED if epochs.phase is Phase.SETTLED else Phase.WAITING


def looked_at(event: str) -> Callable[..., Any]:
    def handle(self: Any, *args: Any) -> Any:
        answer = getattr(super(Watched, self), event)(*args)
        assert self.phase is phase_of(self), (event, self.phase, phase_of(self))
        if self.view.id != self.known:
            self.known, self.base = self.view.id, self.promised
        assert self.promised == self.base or self.phase is not Phase.SETTLED, event
        return answer

    return handle


class Watched(ViewAgreement):
    """Counts its moves, and compares its phase with its attributes after every event."""

    taken: ClassVar[Counter[tuple[Phase, PhaseCause]]] = Counter()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.known = self.view.id
        self.base = self.promised
        """The ballot when the node came to its view: a later one is of a change under way."""

    def _move(self, step: PhaseCause) -> None:
        before = self.phase
        super()._move(step)
        assert NEXT[before, step] is self.phase
        self.taken[before, step] += 1


for name in EVENTS:
    setattr(Watched, name, looked_at(name))


class WatchedMember(Member):
    agreement_class = Watched


def random_toys(seed: int, kind: type[ViewAgreement] = Watched) -> Toys:
    """Losses, copies, wrong suspicions, crashes, departures, in any order; then calm."""
    rng = Random(seed)
    toys = Toys(rng.choice((3, 4, 6)), kind)
    nodes = len(toys.toys)
    kinds = ("deliver",) * 6 + ("copy", "lose", "tick", "tick", "wait", "suspect", "trust")
    for _ in range(150):
        act = rng.choice((*kinds, "crash", "depart") if rng.random() < 0.3 else kinds)
        node, other = rng.sample(range(nodes), 2)
        index = rng.randrange(len(toys.flying)) if toys.flying else None
        if act == "deliver" and index is not None:
            toys.hand_over(index)
        elif act == "copy" and index is not None:
            toys.hand_over(index, keep=True)
        elif act == "lose" and index is not None:
            del toys.flying[index]
        elif act in ("suspect", "trust"):
            toys.suspect(node, other, really=act == "suspect")
        elif act == "crash" and len(toys.alive()) > 2:
            toys.toys[node].crashed = True
        elif act == "depart" and len(toys.alive()) > 2:
            toys.depart(node)
        else:
            toys.tick(CONFIG.answer_after if act == "wait" else CONFIG.repeat_after)
    toys.come_to_rest(60)
    return toys


def follow_while_leading() -> None:
    """Nodes 1 and 2 both take those before them for dead, and node 1 has the higher round."""
    toys = Toys(4, Watched)
    toys.suspect(0, 3)
    toys.hand_over(0)  # node 1 follows node 0, and will take a higher round
    toys.suspect(2, 0)
    toys.suspect(2, 1)
    toys.suspect(1, 0)
    toys.flying = [one for one in toys.flying if one[:2] == (1, 2)]
    assert toys.toys[2].epochs.phase is Phase.LEADING
    toys.hand_over(0)
    assert toys.toys[2].epochs.phase is Phase.FOLLOWING


LIES = {(Phase.SETTLED, PhaseCause.GO_OVER), (Phase.LEAVING, PhaseCause.GO_OVER)}
"""A view is decided when all who stay have reported to its ballot, so an honest leader tells it to
none that is settled.  One that leaves follows no later ballot than its own: no such view has it."""


def tell_a_view_that_was_not_decided(leaves: bool) -> None:
    """Node 1 says that a ballot came to a view with node 0, which it did not ask."""
    toys = Toys(3, Watched)
    epochs = toys.toys[0].epochs
    if leaves:
        toys.depart(0)
        while epochs.phase is not Phase.LEAVING:
            toys.hand_over(0)
    ballot = Ballot(epochs.promised.round + 1, 1)
    view = View(ViewId(1, ballot), epochs.view.members, epochs.view.cluster)
    assert epochs.on_install(Install(ballot, epochs.view.id, view, {}, {}), toys.now)
    assert epochs.view == view


def test_every_line_of_the_table_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """`_move` knows no other move: a step that the table does not have raises `KeyError`."""
    monkeypatch.setattr(Watched, "taken", Counter())
    for seed in range(170):
        random_toys(seed)
    follow_while_leading()
    assert set(Watched.taken) == set(NEXT) - LIES
    assert sum(Watched.taken.values()) > 2_000
    tell_a_view_that_was_not_decided(leaves=False)
    tell_a_view_that_was_not_decided(leaves=True)
    assert set(Watched.taken) == set(NEXT)


def test_members_in_schedules_with_crashes_keep_to_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Watched, "taken", Counter())
    monkeypatch.setattr(Member, "agreement_class", Watched)
    for seed in range(12):
        verdict = run_schedule(draw_schedule(seed), population("cubecast"))
        assert not verdict.failures, (seed, verdict.failures)
    assert len(Watched.taken) >= 6
    assert set(Watched.taken) <= set(NEXT)


class FollowsWhileItLeaves(Watched):
    """Planted: a node that has decided to leave follows another."""

    def _tell(self, *args: Any) -> None:
        super()._tell(*args)
        if self.phase is Phase.LEAVING:
            self._move(PhaseCause.FOLLOW)


class ForgetsItsAttempt(Watched):
    """Planted: an attempt ends without a step."""

    def _drop_attempt(self) -> None:
        self.attempt = None


class SettlesTooEarly(Watched):
    """Planted: a node whose time to follow is over takes itself for settled."""

    def _resume(self) -> None:
        super()._resume()
        if self.phase is Phase.WAITING:
            self.phase = Phase.SETTLED


class FollowsForEver(Watched):
    """Planted: the time of a followed ballot is over, and the phase stays."""

    def _resume(self) -> None:
        self._retry_at = None


@pytest.mark.parametrize(
    "planted", [FollowsWhileItLeaves, ForgetsItsAttempt, FollowsForEver, SettlesTooEarly]
)
def test_a_planted_move_is_found(planted: type[ViewAgreement]) -> None:
    def runs() -> None:
        for seed in range(200):
            random_toys(seed, planted)

    with pytest.raises((KeyError, AssertionError)):
        runs()


def test_our_own_ballot_that_comes_back_does_not_end_our_attempt() -> None:
    """A member says our own `Prepare` to us: we go on leading, and do not let it lead."""
    toys = Toys(3, Watched)
    toys.suspect(0, 2)
    epochs = toys.toys[0].epochs
    (question,) = [m for _, to, m in toys.flying if to == 1 and isinstance(m, Prepare)]
    epochs.on_prepare(question, 1, toys.now)
    assert epochs.phase is Phase.LEADING
    assert epochs._retry_at is None
    assert toys.toys[0].doubts == [("n1", "it asks for a ballot of node 0")]
    toys.come_to_rest()
    assert not toys.stuck()


def test_a_ballot_that_is_asked_for_again_is_not_followed_for_longer() -> None:
    """An answer may be lost: it is given again.  The time to follow, and to wait, stays."""
    toys = Toys(3, Watched)
    epochs = toys.toys[0].epochs
    question = Prepare(Ballot(5, 2), epochs.view.id, epochs.view.mask)
    epochs.on_prepare(question, 2, toys.now)
    until, answers = epochs._retry_at, len(toys.flying)
    assert epochs.phase is Phase.FOLLOWING
    assert until is not None
    assert until == toys.now + 2 * CONFIG.answer_after
    epochs.on_prepare(question, 2, toys.now + 1)
    assert epochs._retry_at == until
    assert len(toys.flying) == answers + 1
    epochs._resume()
    assert epochs.phase is Phase.WAITING
    epochs.on_prepare(question, 2, until + 1)
    assert epochs.phase is Phase.WAITING
    assert len(toys.flying) == answers + 2
    toys.come_to_rest()
    assert not toys.stuck()


def test_the_page_has_the_table() -> None:
    page = ROOT / "docs" / "design.md"
    assert as_markdown() in page.read_text(encoding="utf-8")


def test_a_phase_and_a_step_have_one_line() -> None:
    assert len(NEXT) == len(TABLE)
    assert {line.phase for line in TABLE} == {line.after for line in TABLE} == set(Phase)
    assert {line.step for line in TABLE} == set(PhaseCause)
