"""Verdicts on rows made by hand."""

from __future__ import annotations

import pytest

from cubecast.lab.verdicts import Row
from support.verdict_rows import AT_8, OVER, ROWS, row, verdict


def test_a_value() -> None:
    found = verdict(AT_8 + 'value = 240\nunit = "u.t."\ntolerance = 0.125\n')
    assert (found.paper, found.ours, found.difference, found.ci) == (240, 250, 10, 10)
    assert (found.verdict, found.sentence, found.n) == ("reproduced", "Within 12.5 %.", 5)
    assert found.allowed == 30


def test_a_value_that_differs_says_why() -> None:
    found = verdict(AT_8 + "value = 200\ntolerance = 0.05\n")
    assert found.verdict == "differs"
    assert found.sentence == "Above it by more than 5 %. Because."


def test_one_seed_has_no_interval_and_decides_nothing() -> None:
    alone = [Row("x", {"protocol": "srpt", "nodes": 8}, "latency_mean", 250.0, 0.0, 1)]
    found = verdict(AT_8 + "value = 200\ntolerance = 0.05\n", alone)
    assert found.verdict == "undecided"
    assert found.sentence == "One seed has no interval: take more."
    assert verdict(AT_8 + "value = 250\ntolerance = 0.05\n", alone).verdict == "undecided"


@pytest.mark.parametrize(
    ("form", "unit", "ours", "ci"),
    [
        ("ratio", "x", 2.5, 0.125),
        ("more", "%", 150.0, 12.5),
        ("less", "%", -150.0, 12.5),
        ("difference", "u.t.", 150.0, 109**0.5),
    ],
)
def test_two_points(form: str, unit: str, ours: float, ci: float) -> None:
    text = AT_8 + OVER + f'form = "{form}"\nunit = "{unit}"\nvalue = {ours}\ntolerance = 0.2\n'
    found = verdict(text)
    assert found.ours == pytest.approx(ours)
    assert found.verdict == "reproduced"
    assert found.ci == pytest.approx(ci)


def test_a_ratio_of_nothing_still_has_an_interval() -> None:
    text = AT_8 + OVER + 'form = "ratio"\nvalue = 0.04\ntolerance = 0\n'
    rows = [row("vcube-ps", 8, 100, 3.0), row("srpt", 8, 0, 5.0)]
    found = verdict(text, rows)
    assert (found.ours, found.ci, found.verdict) == (0, 0.05, "undecided")


def test_two_metrics() -> None:
    text = 'versus_metric = "pub_messages"\nform = "ratio"\nvalue = 6.25\ntolerance = 0.1\n'
    assert verdict(AT_8 + text).verdict == "reproduced"


@pytest.mark.parametrize(
    ("bound", "value", "judgement"),
    [("at most", 300, "reproduced"), ("at most", 200, "differs"),
     ("at least", 200, "reproduced"), ("at least", 300, "differs")],
)  # fmt: skip
def test_bounds(bound: str, value: float, judgement: str) -> None:
    text = f'bound = "{bound}"\nvalue = {value}\ntolerance = 0\n'
    assert verdict(AT_8 + text).verdict == judgement


def test_the_largest_and_smallest_of_a_curve() -> None:
    curve = f'{OVER}at = {{ protocol = "srpt" }}\nform = "ratio"\nalong = "nodes"\ntolerance = 0\n'
    assert verdict(curve + 'fold = "max"\nvalue = 2.5\n').ours == 2.5
    assert verdict(curve + 'fold = "min"\nvalue = 2\n').verdict == "reproduced"
    late = verdict(curve + 'fold = "min"\nvalue = 2.5\nsince = 20\n')
    assert late.verdict == "reproduced"


def test_a_number_without_rows_is_not_measured() -> None:
    found = verdict(AT_8.replace("8", "64") + "value = 1\ntolerance = 0\n")
    assert (found.ours, found.difference, found.verdict, found.n) == (None, None, "not measured", 0)
    assert verdict(AT_8 + "value = 1\ntolerance = 0\n", []).verdict == "not measured"


def test_rows_of_other_experiments_are_left_alone() -> None:
    others = [Row("y", r.settings, r.metric, r.mean, r.ci, r.n) for r in ROWS]
    assert verdict(AT_8 + "value = 250\ntolerance = 0\n", others).verdict == "not measured"


def test_percentage_points_are_called_so() -> None:
    text = AT_8 + OVER + 'form = "more"\nunit = "%"\nvalue = 149\ntolerance = 25\nabsolute = true\n'
    assert verdict(text).sentence == "Within 25 percentage points."
