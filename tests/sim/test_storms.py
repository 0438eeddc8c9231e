"""The production protocol in random runs with joins, leaves and every link fault.

Each test asserts that nothing was violated, nothing skipped, nothing left behind, and that the
storms really contained what they are meant to survive.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubecast.sim.codec import WireCodec
from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS

STORM = SCENARIOS["storm"]
DEFAULTS = Params().with_(STORM.defaults)


def weather(seed: int, nodes: int) -> Outcome:
    return run(STORM, "cubecast", replace(DEFAULTS, nodes=nodes), seed, codec=WireCodec())


def assert_calm(outcome: Outcome) -> None:
    replay = f"cubecast sim storm --seeds 1 --first-seed {outcome.seed}"
    assert outcome.report is not None
    assert outcome.metrics["violations"] == 0, (replay, outcome.report.violations[:3])
    assert outcome.metrics["gaps"] == 0, replay
    assert outcome.metrics["discards"] == 0, replay
    assert outcome.metrics["kept"] == 0, replay


@pytest.mark.parametrize("block", range(8))
def test_fifty_storms_of_up_to_8_nodes(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        assert_calm(weather(seed, nodes=8))


def test_storms_of_64_nodes() -> None:
    for seed in range(12):
        assert_calm(weather(seed, nodes=64))


def test_storms_contain_what_they_are_meant_to() -> None:
    drawn = [weather(seed, nodes=8).params for seed in range(60)]
    assert any(params.loss and params.duplicate and params.reorder for params in drawn)
    assert any(len(params.partitions) == 2 for params in drawn)
    assert any(params.window == 1 for params in drawn)
    assert any(params.consume_after for params in drawn)
    assert sum(params.changes for params in drawn) > 100
    assert len({params.nodes for params in drawn}) > 4
