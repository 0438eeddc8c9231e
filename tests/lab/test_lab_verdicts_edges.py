"""Verdicts on the edge: both sides of every bound, and points with unlike numbers of seeds."""

from __future__ import annotations

import pytest

from cubecast.lab.verdicts import Row, fit
from support.verdict_rows import AT_8, OVER, row, verdict

CURVE = f'{OVER}at = {{ protocol = "srpt" }}\nalong = "nodes"\ntolerance = 0\n'


def seeded(protocol: str, nodes: int, mean: float, ci: float, n: int) -> Row:
    return Row("x", {"protocol": protocol, "nodes": nodes}, "latency_mean", mean, ci, n)


# -- seeds -----------------------------------------------------------------------------------------


def test_two_seeds_have_an_interval_and_decide() -> None:
    twice = [seeded("srpt", 8, 250.0, 1.0, 2)]  # decided by ± 4
    found = verdict(AT_8 + "value = 200\ntolerance = 0.05\n", twice)
    assert (found.verdict, found.n) == ("differs", 2)
    near = verdict(AT_8 + "value = 249.5\ntolerance = 0\n", twice)
    assert near.verdict == "undecided"
    assert near.sentence == "The number is within our interval: take more seeds."


def test_a_curve_has_as_many_seeds_as_its_poorest_point() -> None:
    rows = [
        seeded("srpt", 8, 20.0, 0.1, 5), seeded("vcube-ps", 8, 10.0, 0.1, 5),
        seeded("srpt", 16, 30.0, 0.1, 7), seeded("vcube-ps", 16, 10.0, 0.1, 1),
    ]  # fmt: skip
    found = verdict(CURVE + 'form = "ratio"\nfold = "max"\nvalue = 9\n', rows)
    assert (found.ours, found.n, found.verdict) == (3.0, 1, "undecided")


@pytest.mark.parametrize(("first", "second"), [(3, 8), (8, 3)])
def test_a_comparison_has_as_many_seeds_as_the_poorer_side(first: int, second: int) -> None:
    rows = [seeded("srpt", 8, 250.0, 0.0, first), seeded("vcube-ps", 8, 100.0, 0.0, second)]
    assert verdict(AT_8 + OVER + 'form = "ratio"\nvalue = 2.5\ntolerance = 0\n', rows).n == 3


# -- tolerances ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tolerance", "judgement"),
    [(25.6, "reproduced"), (25.5, "undecided"), (20, "undecided"), (0, "undecided")],
)
def test_all_of_the_interval_has_to_be_within_the_tolerance(
    tolerance: float, judgement: str
) -> None:
    """Ours is 250, off by 10, with an interval of 10 that decides with 15.54."""
    found = verdict(AT_8 + f"value = 240\ntolerance = {tolerance}\nabsolute = true\n")
    assert found.verdict == judgement
    assert ("take more seeds" in found.sentence) == (judgement == "undecided")
    assert found.reach == pytest.approx(10 * 4.3147 / 2.7764, rel=1e-4)


@pytest.mark.parametrize(("value", "judgement"), [(230.5, "undecided"), (230.4, "differs")])
def test_all_of_the_interval_has_to_be_outside_to_differ(value: float, judgement: str) -> None:
    """250 with an interval that decides with 15.54, and 4 are allowed: 19.54 in all."""
    text = f"value = {value}\ntolerance = 4\nabsolute = true\n"
    assert verdict(AT_8 + text).verdict == judgement


def test_a_tolerance_is_a_share_of_the_papers_number_also_below_nothing() -> None:
    below = [seeded("srpt", 8, -104.0, 0.0, 5)]
    assert verdict(AT_8 + "value = -100\ntolerance = 0.05\n", below).verdict == "reproduced"
    assert verdict(AT_8 + "value = -100\ntolerance = 0.03\n", below).verdict == "differs"


def test_a_percentage_is_scaled_where_two_points_are_compared_and_only_there() -> None:
    share = [seeded("srpt", 8, 40.0, 0.0, 5)]
    assert verdict(AT_8 + 'unit = "%"\nvalue = 40\ntolerance = 0\n', share).ours == 40.0
    points = 'form = "difference"\nunit = "%"\nvalue = 150\ntolerance = 0\n'
    assert verdict(AT_8 + OVER + points).ours == 150.0
    ratio = 'form = "ratio"\nunit = "%"\nvalue = 250\ntolerance = 0\n'
    assert verdict(AT_8 + OVER + ratio).ours == 250.0


# -- sentences -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("value = 250\ntolerance = 0\n", "Exactly so."),
        ("value = 300\ntolerance = 0\n", "Below it. Because."),
        ("value = 100\ntolerance = 0\n", "Above it. Because."),
        ("value = 500\ntolerance = 0.1\n", "Below it by more than 10 %. Because."),
        ('bound = "at most"\nvalue = 260\ntolerance = 0\n', "Not above it, as the paper says."),
        ('bound = "at least"\nvalue = 240\ntolerance = 0\n', "Not below it, as the paper says."),
        ('bound = "at most"\nvalue = 245\ntolerance = 0.1\n', "Not above it by more than 10 %."),
        ('bound = "at least"\nvalue = 255\ntolerance = 0.1\n', "Not below it by more than 10 %."),
        (
            'unit = "u.t."\nvalue = 245\ntolerance = 6\nabsolute = true\n',
            "Within 6 u.t.",
        ),
    ],
)
def test_sentences(text: str, sentence: str) -> None:
    certain = [seeded("srpt", 8, 250.0, 0.0, 5)]
    assert verdict(AT_8 + text, certain).sentence == sentence


# -- curves ----------------------------------------------------------------------------------------


def test_a_curve_begins_at_since_and_includes_it() -> None:
    rows = [
        seeded("srpt", 8, 10.0, 0.0, 5), seeded("srpt", 16, 20.0, 0.0, 5),
        seeded("srpt", 32, 30.0, 0.0, 5),
    ]  # fmt: skip
    at = 'at = { protocol = "srpt" }\nalong = "nodes"\ntolerance = 0\nfold = "min"\n'
    assert verdict(at + "value = 20\nsince = 16\n", rows).ours == 20.0
    assert verdict(at + "value = 30\nsince = 17\n", rows).ours == 30.0
    both = [*rows, *(seeded("vcube-ps", nodes, 10.0, 0.0, 5) for nodes in (8, 16, 32))]
    compared = CURVE + 'form = "difference"\nfold = "min"\n'
    assert verdict(compared + "value = 10\nsince = 16\n", both).ours == 10.0
    assert verdict(compared + "value = 20\nsince = 17\n", both).ours == 20.0


def test_a_ratio_to_nothing_is_left_out_and_a_difference_from_nothing_is_not() -> None:
    rows = [
        seeded("srpt", 8, 10.0, 0.0, 5), seeded("vcube-ps", 8, 0.0, 0.0, 5),
        seeded("srpt", 16, 20.0, 0.0, 5), seeded("vcube-ps", 16, 10.0, 0.0, 5),
    ]  # fmt: skip
    assert verdict(CURVE + 'form = "ratio"\nfold = "max"\nvalue = 2\n', rows).ours == 2.0
    apart = verdict(CURVE + 'form = "difference"\nfold = "max"\nvalue = 10\n', rows)
    assert apart.ours == 10.0
    only_nothing = verdict(CURVE + 'form = "ratio"\nfold = "max"\nvalue = 2\n', rows[:2])
    assert only_nothing.verdict == "not measured"


def test_a_point_on_one_side_only_is_left_out() -> None:
    rows = [
        seeded("srpt", 8, 90.0, 0.0, 5), seeded("srpt", 16, 20.0, 0.0, 5),
        seeded("vcube-ps", 16, 10.0, 0.0, 5), seeded("vcube-ps", 32, 1.0, 0.0, 5),
    ]  # fmt: skip
    assert verdict(CURVE + 'form = "ratio"\nfold = "max"\nvalue = 2\n', rows).ours == 2.0


def test_the_extreme_of_a_curve_has_the_interval_of_its_own_point() -> None:
    rows = [
        seeded("srpt", 8, 10.0, 1.0, 5), seeded("srpt", 16, 30.0, 3.0, 5),
        seeded("srpt", 32, 20.0, 2.0, 5),
    ]  # fmt: skip
    at = 'at = { protocol = "srpt" }\nalong = "nodes"\ntolerance = 0\nvalue = 1\n'
    assert verdict(at + 'fold = "max"\n', rows).ci == 3.0
    assert verdict(at + 'fold = "min"\n', rows).ci == 1.0
    assert verdict(at + 'fold = "linear-fit"\n', rows).ci == 0.0
    two = verdict(at + 'fold = "linear-fit"\n', rows[:2])
    assert (two.ours, two.ci) == (None, 0.0)


def test_a_line_needs_three_points_and_a_law_of_logarithms_takes_them() -> None:
    at = 'at = { protocol = "srpt" }\nalong = "nodes"\ntolerance = 0.001\nvalue = 1\n'
    three = [row("srpt", nodes, mean) for nodes, mean in ((8, 3), (16, 4), (32, 5))]
    assert verdict(at + 'fold = "log-fit"\n', three).verdict == "reproduced"
    assert verdict(at + 'fold = "log-fit"\n', three[:2]).verdict == "not measured"
    assert verdict(at + 'fold = "linear-fit"\n', three).verdict == "differs"
    straight = [row("srpt", nodes, nodes) for nodes in (8, 16, 32)]
    assert verdict(at + 'fold = "linear-fit"\n', straight).verdict == "reproduced"
    assert verdict(at + 'fold = "log-fit"\n', straight).verdict == "differs"


def test_the_fit_of_a_line() -> None:
    assert fit([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert fit([1, 2, 3], [30, 20, 10]) == pytest.approx(1)
    assert fit([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.64)
    assert fit([1, 2, 3], [0, 1, 0]) == 0
    assert fit([1, 2, 3], [5, 5, 5]) == 1
    assert fit([2, 2, 2], [1, 2, 3]) == 0, "all at one x: no line"
