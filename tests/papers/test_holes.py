"""The holes in the papers' pseudocode, each as a scenario file (docs/deviations.md).

The faithful protocol shows the hole, the production protocol does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.workloads.scenario_file import Script, read_script
from support.paths import ROOT

FILES = sorted((ROOT / "scenarios").glob("hole-*.toml"))


def perform(script: Script, protocol: str) -> Outcome:
    return run(script.scenario, protocol, Params().with_(script.scenario.defaults), seed=0)


@pytest.mark.parametrize("protocol", ["vcube-ps", "cubecast"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_hole(path: Path, protocol: str) -> None:
    script = read_script(path)
    report = perform(script, protocol).report
    assert report is not None
    assert sorted(name for name, n in report.counts.items() if n) == script.expect[protocol]


def test_every_hole_has_its_file() -> None:
    assert [path.stem[:6] for path in FILES] == [f"hole-{n}" for n in (1, 2, 3, 4, 5, 8, 9)]


def test_hole_4_costs_a_round_trip_per_message() -> None:
    script = read_script(next(path for path in FILES if "hole-4" in path.stem))
    waiting = perform(script, "vcube-ps").metrics["latency_max"]
    window = perform(script, "cubecast").metrics["latency_max"]
    depth, hop, messages = 4, 100, 10
    assert waiting >= (messages - 1) * 2 * depth * hop  # nine whole ACK waves come first
    assert window < 2 * depth * hop  # all of them within one


def test_hole_3_is_silent_loss() -> None:
    """Node 5 delivers the later message of the topic, and nothing is held or reported."""
    script = read_script(next(path for path in FILES if "hole-3" in path.stem))
    outcome = run(
        script.scenario, "vcube-ps", Params().with_(script.scenario.defaults), 0, keep_trace=True
    )
    assert outcome.trace is not None
    published = [r for r in outcome.trace if r.kind == "publish" and r.topic == "t"]
    at_5 = [r.id for r in outcome.trace if r.kind == "deliver" and r.node == 5]
    assert at_5 == [published[-1].id]
    assert outcome.metrics["gaps"] == 0
