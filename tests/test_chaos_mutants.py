"""Each broken recovery is caught by a schedule, and the true one by none of those."""

from __future__ import annotations

import pytest
from chaos_mutants import MUTANTS, Mutant, catch
from mortals import Silent, people

from cubecast.protocol.member import Member

SYMPTOMS = {
    "no-creation", "no-duplication", "fifo", "causal-order", "membership", "completeness",
    "quiescence", "bounded-state", "agreement", "loss-reports", "loss-reasons", "convergence",
    "liveness", "kept", "raised",
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_recovery_is_caught(mutant: Mutant) -> None:
    assert mutant.symptoms <= SYMPTOMS
    caught = catch(mutant.kind, by=mutant.symptoms)
    assert caught is not None, f"{mutant.name} survived: {mutant.kind.__doc__}"


def test_what_is_caught_is_said_and_what_is_sound_is_not_caught() -> None:
    caught = catch(people(Silent), seeds=3)
    assert caught is not None
    assert caught.seed == 0
    assert "completeness" in caught.properties
    assert catch(Member, seeds=5) is None
