"""Each broken recovery is caught where it says, and the true one by none of those."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cubecast.chaos.simulated.driver import draw_schedule, population, run_schedule
from cubecast.protocol.cluster.member import Member
from support import (
    chaos_mutants,
    long_life_mutants,  # noqa: F401  (registers its own)
    member_scenarios,
)
from support.chaos_mutants import MUTANTS, SEEDS, Mutant, catch, run_file
from support.mortals import Silent, people

SYMPTOMS = {
    "no-creation", "no-duplication", "fifo", "causal-order", "membership", "completeness",
    "quiescence", "bounded-state", "agreement", "loss-reports", "loss-reasons", "convergence",
    "liveness", "kept", "raised",
}  # fmt: skip
BY_HAND: list[tuple[type[Member], Callable[[type[Member]], None]]] = [
    (
        chaos_mutants.KeepsOrphans,
        member_scenarios.what_an_heir_passed_on_before_it_was_one_is_not_delivered_above_the_end,
    ),
    (
        chaos_mutants.NeverFreezes,
        member_scenarios.what_an_heir_passed_on_before_it_was_one_is_not_delivered_above_the_end,
    ),
    (
        chaos_mutants.OpensOldStreams,
        member_scenarios.what_comes_after_the_reports_is_delivered_by_nobody,
    ),
    (
        chaos_mutants.KeepsTheUnreported,
        member_scenarios.what_comes_after_the_reports_is_delivered_by_nobody,
    ),
    (
        chaos_mutants.AnswersWithoutEnds,
        member_scenarios.who_joins_is_told_of_ends_that_nobody_who_reads_has_come_to,
    ),
    (
        chaos_mutants.CountsTheDeadAsServed,
        member_scenarios.a_relay_does_not_count_those_below_a_dead_child_as_served,
    ),
    (
        chaos_mutants.SkipsPerPublisher,
        member_scenarios.who_joins_begins_at_a_cut_and_not_where_each_publisher_is,
    ),
    (
        chaos_mutants.TrustsDepart,
        member_scenarios.only_the_member_itself_departs,
    ),
]
"""What chance finds too seldom.  `tests/protocol/cluster/test_agreement.py` catches
`InstallsOldBallots`."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_recovery_is_caught(mutant: Mutant) -> None:
    assert mutant.symptom in SYMPTOMS
    if isinstance(mutant.where, str):
        assert mutant.symptom in run_file(mutant.kind, mutant.where).failures
        assert run_file(Member, mutant.where).ok
        return
    assert mutant.where < SEEDS
    assert run_schedule(draw_schedule(mutant.where), population("cubecast")).ok
    caught = catch(mutant.kind, 1, mutant.where, frozenset({mutant.symptom}))
    assert caught is not None, f"{mutant.name}: {mutant.kind.__doc__} Look for another seed."


@pytest.mark.parametrize(("kind", "scenario"), BY_HAND, ids=lambda one: one.__name__)
def test_a_broken_recovery_is_caught_by_hand(
    kind: type[Member], scenario: Callable[[type[Member]], None]
) -> None:
    scenario(Member)
    with pytest.raises(AssertionError):
        scenario(kind)


def test_there_are_enough_broken_recoveries() -> None:
    assert len(MUTANTS) + len(BY_HAND) >= 24
    assert {mutant.symptom for mutant in MUTANTS} >= {
        "agreement", "causal-order", "liveness", "loss-reasons", "loss-reports", "quiescence",
        "raised",
    }  # fmt: skip


def test_a_mutant_is_caught_and_the_sound_protocol_is_not() -> None:
    caught = catch(people(Silent), seeds=3)
    assert caught is not None
    assert caught.seed == 0
    assert "completeness" in caught.properties
    assert catch(Member, seeds=5) is None
