"""Each printed line of [B] that was mended is put back, and each idea removed: it shows.

The same runs find nothing wrong with VCube-PB as this package has it (`test_crash_runs.py`).
"""

from __future__ import annotations

import pytest

from support.crash_runs import crash_run
from support.printed_pb import BROKEN, Broken


@pytest.mark.parametrize("one", BROKEN, ids=lambda one: one.name)
def test_crash_runs_notice(one: Broken) -> None:
    for seed in range(one.within):
        if any(one.symptom in line for line in crash_run(seed, one.make).broken()):
            return
    pytest.fail(f"{one.process.__doc__}: no {one.symptom} in {one.within} crash runs")
