"""Which points want more seeds: in few large steps, until what is undecided is decided."""

from __future__ import annotations

import random
import statistics

from cubecast.lab.experiment import Experiment, parse
from cubecast.lab.intervals import interval
from cubecast.lab.seeding import STEPS, cells_of, more_seeds
from cubecast.lab.verdicts import LOOKS, Judgement, Row, judge
from support.verdict_rows import HEAD

PLAIN = HEAD[: HEAD.index("[[paper]]")].replace("full = 2", "full = 10")
VALUE = """
[[paper]]
section = "s"
what = "w"
metric = "latency_mean"
at = { protocol = "srpt", nodes = 16 }
value = 100
tolerance = 5
absolute = true
"""
OVER = VALUE.replace("value = 100", 'value = 1\nform = "ratio"\nversus = { protocol = "vcube-ps" }')
LARGEST = """
[[paper]]
section = "s"
what = "w"
metric = "latency_mean"
at = { protocol = "srpt" }
along = "nodes"
until = 16
fold = "max"
value = 100
tolerance = 5
absolute = true
"""


def experiment(text: str) -> Experiment:
    return parse(PLAIN + text, "x.toml")


def measured(plan: Experiment, mean: float, ci: float, n: int) -> list[Row]:
    return [
        Row("x", settings, "latency_mean", mean, ci, n)
        for settings in plan.points()
        if settings["nodes"] != 64
    ]


def position(plan: Experiment, protocol: str, nodes: int) -> int:
    wanted = [(p["protocol"], p["nodes"]) for p in plan.points()]
    return wanted.index((protocol, nodes))


def test_only_points_of_what_is_undecided_are_wanted() -> None:
    plan = experiment(VALUE)
    here = position(plan, "srpt", 16)
    assert more_seeds(plan, measured(plan, 105.0, 1.0, 10), 1000) == {here: 40}
    assert more_seeds(plan, measured(plan, 100.0, 1.0, 10), 1000) == {}, "reproduced"
    assert more_seeds(plan, measured(plan, 120.0, 1.0, 10), 1000) == {}, "differs"
    assert more_seeds(plan, [], 1000) == {}, "not measured"
    others = [Row("y", r.settings, r.metric, r.mean, r.ci, r.n) for r in measured(plan, 105, 1, 10)]
    assert more_seeds(plan, others, 1000) == {}


def test_both_sides_and_all_points_of_a_curve_are_wanted() -> None:
    both = experiment(OVER)
    found = more_seeds(both, measured(both, 1.0, 50.0, 10), 1000)
    assert set(found) == {position(both, "srpt", 16), position(both, "vcube-ps", 16)}
    curve = experiment(LARGEST)
    found = more_seeds(curve, measured(curve, 105.0, 1.0, 10), 1000)
    assert set(found) == {position(curve, "srpt", nodes) for nodes in (8, 16)}


def test_there_are_few_looks_and_a_limit() -> None:
    plan = experiment(VALUE)
    here, seen = position(plan, "srpt", 16), 1
    n = 3
    while wanted := more_seeds(plan, measured(plan, 105.0, 1.0, n), 10_000):
        n, seen = wanted[here], seen + 1
        assert seen <= LOOKS
    assert (n, seen) == (10 * STEPS[-1], LOOKS)
    assert more_seeds(plan, measured(plan, 105.0, 1.0, 10), 25) == {here: 25}
    assert more_seeds(plan, measured(plan, 105.0, 1.0, 25), 25) == {}
    assert more_seeds(plan, measured(plan, 105.0, 1.0, 40), 25) == {}


def test_one_seed_is_never_enough() -> None:
    plan = experiment(VALUE)
    assert more_seeds(plan, measured(plan, 100.0, 0.0, 1), 1000) == {position(plan, "srpt", 16): 10}


def test_limits_of_the_file_do_not_hold() -> None:
    plan = parse(PLAIN.replace("nodes = [8, 16, 32, 64]", "nodes = [16]\nseeds = 2") + VALUE, "x")
    assert len(plan.cells()) == 4
    rows = [Row("x", p, "latency_mean", 105.0, 1.0, 2) for p in plan.points()]
    wanted = more_seeds(plan, rows, 100)
    assert wanted == {1: 10}
    cells = cells_of(plan, wanted)
    assert [(cell.number, cell.seed) for cell in cells] == [(1, seed) for seed in range(10)]
    assert cells[0].key in {cell.key for cell in plan.cells()}, "the same cells as those of a run"


def test_looking_again_does_not_make_wrong_verdicts_likely() -> None:
    """400 sweeps whose truth is at the edge, 5 off: by chance some decide, at most 5 %.

    With plain 95 % intervals at each look about 12 % of them would be decided.
    """
    plan = experiment(VALUE)
    settings = plan.points()[position(plan, "srpt", 16)]
    chance = random.Random(7)
    decided = 0
    for _ in range(400):
        runs: list[float] = []
        found: Judgement = "undecided"
        for seeds in (3, *(10 * step for step in STEPS[:-1])):
            if found == "undecided":
                runs += [chance.gauss(105.0, 3.0) for _ in range(seeds - len(runs))]
                ci = interval(statistics.stdev(runs), len(runs))
                row = Row("x", settings, "latency_mean", statistics.fmean(runs), ci, len(runs))
                (verdict,) = judge(plan, [row])
                found = verdict.verdict
        decided += found != "undecided"
    assert 2 <= decided <= 20
