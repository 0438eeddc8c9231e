"""What decides a verdict: bounds, spreads of the papers, distributions, readings as a whole."""

from __future__ import annotations

from dataclasses import replace as replaced

import pytest
from msgspec.structs import replace

from cubecast.lab import papers
from cubecast.lab.cells import Settings
from cubecast.lab.comparisons import Bound
from cubecast.lab.experiment import Experiment, ExperimentError, parse
from cubecast.lab.intervals import critical_value, deviation, interval, widened
from cubecast.lab.verdicts import (
    LOOKS,
    Row,
    Verdict,
    best_reading,
    headline,
    judge,
    outcomes,
    reading_verdicts,
)
from cubecast.lab.verdicts.judging import judge_number
from support.verdict_rows import HEAD, row, with_points

PLAIN = HEAD[: HEAD.index("[[paper]]")]


def numbers(*entries: str, readings: str = "") -> Experiment:
    return parse(PLAIN + readings + "".join(f"[[paper]]\n{one}\n" for one in entries), "x.toml")


def one(entry: str, *rows: Row) -> Verdict:
    text = with_points(f"{PLAIN}[[paper]]\n{entry}\n", rows)
    (found,) = judge(parse(text, "x.toml"), rows)
    return found


AT_8: Settings = {"protocol": "srpt", "nodes": 8}
SRPT_8 = 'metric = "latency_mean"\nat = { protocol = "srpt", nodes = 8 }\n'


# -- intervals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "confidence", "t"),
    [(1, 0.95, 12.706), (4, 0.95, 2.776), (39, 0.95, 2.023), (9, 0.99, 3.25), (3, 0.9875, 5.392)],
)
def test_students_t_is_that_of_the_tables(freedom: int, confidence: float, t: float) -> None:
    assert critical_value(freedom, confidence) == pytest.approx(t, abs=6e-4)


def test_an_interval_tells_the_deviation_and_back() -> None:
    assert interval(deviation(3.0, 7), 7) == pytest.approx(3.0)
    assert interval(0.0, 1) == 0
    assert widened(1.0, 1, 0.99) == deviation(1.0, 1) == float("inf")
    assert widened(2.0, 10, 0.95) == pytest.approx(2.0)


# -- bounds that a paper prints --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "judgement"),
    [(10.0, "reproduced"), (10.4, "reproduced"), (9.6, "reproduced"), (0.1, "kept, not reached"),
     (9.4, "kept, not reached"), (10.6, "differs"), (25.0, "differs")],
)  # fmt: skip
def test_up_to_is_reproduced_near_it_kept_below_and_wrong_above(
    ours: float, judgement: str
) -> None:
    found = one(f'row = "J.4.5-ps"\n{SRPT_8}', row("srpt", 8, ours))
    assert (found.verdict, found.allowed) == (judgement, 0.5)


@pytest.mark.parametrize(
    ("ours", "judgement"), [(43.2, "reproduced"), (60.0, "kept, not reached"), (41.0, "differs")]
)
def test_at_least_is_the_same_rule_from_above(ours: float, judgement: str) -> None:
    assert one(f'row = "J.4.1-fewer"\n{SRPT_8}', row("srpt", 8, ours)).verdict == judgement


def test_a_bound_that_is_nearly_met_is_undecided() -> None:
    found = one(f'row = "J.4.5-ps"\n{SRPT_8}', row("srpt", 8, 10.6, 0.2))
    assert found.verdict == "undecided"


# -- the papers' own spread ------------------------------------------------------------------------


def test_a_printed_sigma_is_that_of_a_run_and_the_mean_of_forty_is_nearer() -> None:
    found = one(f'row = "S.II-false-12.5-512"\n{SRPT_8}', row("srpt", 8, 2433.1))
    assert found.allowed == pytest.approx(0.05 + 2.0227 * 764.4 / 40**0.5, rel=1e-4)


def test_runs_of_ours_tell_how_far_forty_of_the_papers_may_be_from_the_truth() -> None:
    """σ is not printed: with 40 seeds our interval is also that of the paper's mean."""
    forty = Row("x", {"protocol": "srpt", "nodes": 8}, "latency_mean", 533.0, 1.4, 40)
    assert one(f'row = "J.4.1-ps"\n{SRPT_8}', forty).allowed == pytest.approx(0.5 + 1.4)
    many = Row("x", forty.settings, "latency_mean", 533.0, 0.14, 4000)
    assert one(f'row = "J.4.1-ps"\n{SRPT_8}', many).allowed == pytest.approx(0.5 + 1.43, abs=0.05)


def test_an_interval_that_a_paper_reports_is_that_of_both_means_compared() -> None:
    text = f'row = "B.F4-8"\n{SRPT_8}versus = {{ protocol = "vcube-ps" }}\nform = "less"\n'
    found = one(text, row("srpt", 8, 63), row("vcube-ps", 8, 100))
    to_95 = critical_value(39) / critical_value(39, 0.99)  # its intervals are of 99 %
    assert to_95 == pytest.approx(2.023 / 2.708, abs=1e-3)
    assert found.allowed == pytest.approx(0.5 + 0.04 * to_95 * 63 * 2**0.5)


def test_longer_runs_of_the_paper_vary_less_than_ours() -> None:
    """[J] 4.5 takes two hours, ours five minutes."""
    forty = row("srpt", 8, 533.0, 1.4)
    text = f'row = "J.4.1-ps"\n{SRPT_8}'
    plain, longer = one(text, forty), one(f"{text}longer = 25.0\n", forty)
    assert longer.spread == pytest.approx(plain.spread / 5)


@pytest.mark.parametrize(
    ("bound", "ours", "sentence"),
    [
        ("at most", 1000, "Not above it, as the paper says."),
        ("at least", 1030, "Not below it, as the paper says."),
        ("equal", 1024, "Exactly so."),
    ],
)
def test_a_bound_without_a_tolerance_that_is_kept_is_not_called_exactly_so(
    bound: Bound, ours: int, sentence: str
) -> None:
    """No row is printed like this so far."""
    (number,) = numbers(f'row = "S.IV-1024"\n{SRPT_8}').paper
    found = judge_number("x", replace(number, bound=bound), [row("srpt", 8, ours)], [])
    assert (found.verdict, found.allowed, found.sentence) == ("reproduced", 0.0, sentence)


def test_exactly_allows_nothing_and_claims_have_limits_of_ours() -> None:
    assert one(f'row = "S.IV-1024"\n{SRPT_8}', row("srpt", 8, 1023)).verdict == "differs"
    claim = f'row = "J.4.1-hop"\n{SRPT_8}value = 100\ntolerance = 5\n'
    found = one(claim, row("srpt", 8, 104))
    assert (found.verdict, found.counts, found.tolerance_from) == (
        "reproduced", False, "limit of ours",
    )  # fmt: skip


def test_a_limit_of_ours_is_called_so_and_not_what_a_paper_says() -> None:
    """[N] prints "the majority" and 40 %: that a majority is half is a limit of ours."""
    claim = f'row = "J.4.1-hop"\n{SRPT_8}value = 100\n'
    majority = (
        f'row = "N.F7-40"\n{SRPT_8}value = 50\nunit = "%"\ntolerance = 0\nbound = "at least"\n'
    )
    kept = [
        (claim + "tolerance = 5\n", 104), (claim + "tolerance = 0\n", 100), (majority, 60),
        (claim + 'tolerance = 0\nbound = "at most"\n', 9),
    ]  # fmt: skip
    said = {one(text, row("srpt", 8, ours)).sentence for text, ours in kept}
    assert said == {"Within our limit."}
    assert one(majority, row("srpt", 8, 20)).sentence == "Below our limit."
    assert one(majority, row("srpt", 8, 51, 2.0)).sentence == (
        "Our limit is within our interval: take more seeds."
    )


def test_both_parts_of_a_tolerance_are_told() -> None:
    """What the print leaves open is 0.05; the rest is the spread of the paper's runs."""
    found = one(f'row = "S.II-false-12.5-512"\n{SRPT_8}', row("srpt", 8, 2433.1))
    assert found.sentence == "Within 245 messages (printed digits 0.05, spread of runs 244)."
    assert found.allowed - found.spread == pytest.approx(0.05)
    alone = one(f'row = "J.4.1-ps"\n{SRPT_8}', row("srpt", 8, 533.2))
    assert alone.sentence == "Within 0.5 u.t. (printed digits)."
    exact = one(f'row = "S.IV-1024"\n{SRPT_8}', row("srpt", 8, 1023))
    assert exact.sentence == "Below it."


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('row = "J.9"', "paper\\[1\\].row: no paper has a row 'J.9'"),
        ('row = "J.4.1-ps"\nvalue = 1', "paper\\[1\\].value: comes from the papers' table"),
        ('row = "J.4.1-ps"\ntolerance = 1', "tolerance: comes from the papers' table"),
        ('row = "J.4.1-hop"\nsection = "a"', "section: comes from the papers' table"),
        ('row = "J.4.1-ps"\nreadings = ["a"]', "paper\\[1\\].readings: no reading 'a'"),
    ],
)
def test_an_entry_that_repeats_or_contradicts_the_table_is_refused(entry: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        numbers(f"{entry}\n{SRPT_8}")


# -- from many points to one value -----------------------------------------------------------------

CURVE = [row(protocol, nodes, mean, 3.0) for protocol, nodes, mean in (
    ("srpt", 8, 10.0), ("srpt", 16, 20.0), ("srpt", 32, 60.0),
    ("vcube-ps", 8, 10.0), ("vcube-ps", 16, 10.0), ("vcube-ps", 32, 20.0),
)]  # fmt: skip


def folded(text: str, *rows: Row) -> Verdict:
    return one(f'section = "s"\nwhat = "w"\ntolerance = 0\n{text}', *(rows or CURVE))


def test_the_mean_of_a_curve_ends_where_it_should() -> None:
    text = 'metric = "latency_mean"\nvalue = 15\nat = { protocol = "srpt" }\nfold = "mean"\n'
    found = folded(text + 'along = "nodes"\nuntil = 16\n')
    assert found.ours == 15
    assert found.ci == pytest.approx(3 * 2**0.5 / 2)


def test_the_largest_over_several_axes() -> None:
    text = 'metric = "latency_mean"\nvalue = 1\nfold = "max"\n'
    assert folded(text + 'over = ["protocol", "nodes"]\n').ours == 60
    assert folded(text + 'over = ["nodes", "protocol"]\nuntil = 16\n').ours == 20


def test_the_other_point_of_an_axis_that_is_gone_through() -> None:
    """Every point beside that with 8 nodes, as churn beside static membership."""
    text = (
        'metric = "latency_mean"\nvalue = 1\nfold = "max"\nover = ["protocol", "nodes"]\n'
        'versus = { nodes = 8 }\nform = "ratio"\n'
    )
    assert folded(text).ours == 6
    assert folded(text.replace("max", "min")).ours == 1


def test_the_largest_of_some_points_is_no_bound_for_the_others() -> None:
    """A quick run leaves the large systems out: of the whole grid nothing is known then."""
    grid = parse(PLAIN + "[[paper]]\n" + LARGEST, "x.toml")
    small = [one for one in CURVE if one.settings["nodes"] != 32]
    large = [row(protocol, nodes, 60.0) for protocol in ("srpt", "vcube-ps") for nodes in (32, 64)]
    missing = [judge(grid, rows)[0] for rows in (small, [*small, *large[:3]], [*small, *large[1:]])]
    assert {one.verdict for one in missing} == {"not measured"}
    assert judge(grid, [*small, *large])[0].verdict == "kept, not reached"
    until = parse(PLAIN + "[[paper]]\n" + LARGEST + "until = 16\n", "x.toml")
    assert judge(until, small)[0].verdict == "kept, not reached"


LARGEST = (
    'section = "s"\nwhat = "w"\ntolerance = 0.1\nmetric = "latency_mean"\nvalue = 38\n'
    'bound = "up to"\nat = { protocol = "srpt" }\nversus = { protocol = "vcube-ps" }\n'
    'form = "ratio"\nalong = "nodes"\nfold = "max"\n'
)


def test_the_share_of_the_others_is_a_negative_scale_and_an_offset() -> None:
    text = f"{SRPT_8}value = 98\nscale = -0.2\noffset = 100\n"
    found = folded(text)
    assert (found.ours, found.ci) == (98, pytest.approx(0.6))


def test_metrics_that_are_added_add_their_intervals() -> None:
    more = row("srpt", 8, 5.0, 4.0, metric="pub_messages")
    found = folded(f'{SRPT_8}value = 15\nalso = ["pub_messages"]\n', *CURVE, more)
    assert (found.ours, found.ci) == (15, 7)
    assert folded(f'{SRPT_8}value = 15\nalso = ["pub_messages"]\n').verdict == "not measured"


def test_how_far_runs_are_apart_is_a_share_of_the_mean() -> None:
    sd = deviation(3.0, 5)
    found = one(f'row = "T.6.1-sigma"\n{SRPT_8}form = "deviation"\n', *CURVE)
    assert found.ours == pytest.approx(100 * sd / 10)
    wide = one(f'row = "B.F4-4"\n{SRPT_8}form = "interval"\n', *CURVE)
    assert wide.ours == pytest.approx(100 * interval(sd, 40, 0.99) / 10), "of the paper's 40 runs"


# -- distributions ---------------------------------------------------------------------------------

BINS = ("queue_to_0", "queue_to_2", "queue_to_4", "queue_to_8", "queue_to_16", "queue_to_32",
        "queue_to_4096", "queue_to_8192")  # fmt: skip
TABLE = parse(
    PLAIN.replace('"latency_mean", "pub_messages"', ", ".join(f'"{name}"' for name in BINS))
    + '[[paper]]\nrow = "J.T1-ps"\nat = { protocol = "srpt", nodes = 8 }\nmetric = "queue_to_0"\n'
    + f"also = {list(BINS[1:])}\n",
    "x.toml",
)


def table(counts: tuple[float, ...], cis: tuple[float, ...] = (0.0,) * 8) -> Verdict:
    rows = [
        row("srpt", 8, count, ci, metric=name)
        for name, count, ci in zip(BINS, counts, cis, strict=True)
    ]
    (found,) = judge(TABLE, rows)
    return found


def test_a_table_is_compared_as_one_distribution() -> None:
    same = table((0, 0, 0, 495, 510, 19, 0, 0))
    assert (same.ours, same.verdict, same.counts) == (0, "reproduced", True)
    spread = table((0, 0, 0, 495, 488, 41, 0, 0))
    assert spread.ours == pytest.approx(100 * 22 / 1024)
    assert spread.verdict == "differs"
    assert spread.allowed == pytest.approx(50 / 1024)


def test_the_distance_is_of_shares_and_has_the_narrower_interval() -> None:
    """41 for 19 is at the cut before (16, 32]: its own interval, not the sum of all below."""
    doubled = table((0, 0, 0, 990, 976, 82, 0, 0), (0, 0, 0, 46, 36, 13.4, 0, 0))
    assert doubled.ours == pytest.approx(100 * 22 / 1024)
    assert doubled.ci == pytest.approx(100 * 13.4 / 2048)
    assert table((0,) * 8).verdict == "not measured"


# -- readings --------------------------------------------------------------------------------------

READINGS = """
[[reading]]
name = "small"
at = { nodes = 8 }
[[reading]]
name = "large"
at = { nodes = 16 }
metrics = { latency_mean = "pub_messages" }
reason = "Large."
"""
THREE = [
    f'row = "{ident}"\nmetric = "latency_mean"\nat = {{ protocol = "{protocol}" }}\n'
    for ident, protocol in (("J.4.1-ps", "vcube-ps"), ("J.4.1-srpt", "srpt"))
]


def read_in_two(*means: float) -> list[Verdict]:
    """VCube-PS and SRPT in the small reading, then in the large one."""
    places = [("vcube-ps", 8, "latency_mean"), ("srpt", 8, "latency_mean"),
              ("vcube-ps", 16, "pub_messages"), ("srpt", 16, "pub_messages")]  # fmt: skip
    rows = [
        row(protocol, nodes, mean, metric=metric)
        for (protocol, nodes, metric), mean in zip(places, means, strict=True)
    ]
    return judge(numbers(*THREE, readings=READINGS), rows)


def test_a_reading_sets_points_and_metrics_and_gives_its_reason() -> None:
    verdicts = read_in_two(533, 720, 500, 700)
    assert [(one.accounting, one.ours) for one in verdicts] == [
        ("small", 533), ("large", 500), ("small", 720), ("large", 700),
    ]  # fmt: skip
    assert [one.reason for one in verdicts] == ["", "Large.", "", "Large."]


def test_one_number_in_each_reading_is_no_reading_that_satisfies_both() -> None:
    """The trap of taking the best reading of each number: 2 of 2, and no reading has both."""
    verdicts = read_in_two(533, 1, 1, 720)
    assert [(one.reading, one.satisfied, one.of) for one in reading_verdicts(verdicts)] == [
        ("small", 1, 2), ("large", 1, 2),
    ]  # fmt: skip
    found = outcomes(verdicts)
    assert (found["J.4.1-ps"].outcome, found["J.4.1-srpt"].outcome) == (
        "one reading", "some reading",
    )  # fmt: skip
    assert (found["J.4.1-srpt"].reproduced_in, found["J.4.1-srpt"].readings) == (1, 2)


def test_the_reading_that_satisfies_most_is_the_one_that_counts() -> None:
    verdicts = read_in_two(533, 1, 533, 720)
    best = best_reading(verdicts)
    assert best is not None
    assert (best.reading, best.satisfied, best.whole, best.decided) == ("large", 2, True, True)
    assert {outcomes(verdicts)[ident].outcome for ident in ("J.4.1-ps", "J.4.1-srpt")} == {
        "one reading"
    }


def ranked(*, small: float, large: float, seeds: int = 5) -> str:
    """The best of two readings, neither of which has a number: the small one has `seeds` seeds."""
    places = [("vcube-ps", 8, "latency_mean", small, seeds),
              ("srpt", 8, "latency_mean", small, seeds),
              ("vcube-ps", 16, "pub_messages", large, 5),
              ("srpt", 16, "pub_messages", large, 5)]  # fmt: skip
    rows = [
        Row("x", {"protocol": protocol, "nodes": nodes}, metric, mean, 0.0, n)
        for protocol, nodes, metric, mean, n in places
    ]
    best = best_reading(judge(numbers(*THREE, readings=READINGS), rows))
    assert best is not None
    assert best.satisfied == 0
    return best.reading


def test_a_reading_does_not_win_for_want_of_seeds() -> None:
    """One seed decides nothing, so nothing differs: that is no merit of a reading, but a lack."""
    assert ranked(small=1.0, large=1.0, seeds=1) == "large"
    assert ranked(small=1.0, large=1.0) == "small", "of two equal readings the first"


def test_of_readings_that_satisfy_as_many_the_one_that_keeps_more_bounds_is_best() -> None:
    bounds = [
        f'row = "{ident}"\nmetric = "latency_mean"\nat = {{ protocol = "{protocol}" }}\n'
        for ident, protocol in (("J.4.5-ps", "vcube-ps"), ("J.4.5-srpt", "srpt"))
    ]
    rows = [
        row("vcube-ps", 8, 99), Row("x", {"protocol": "srpt", "nodes": 8}, "latency_mean", 9, 0, 1),
        row("vcube-ps", 16, 1, metric="pub_messages"), row("srpt", 16, 9, metric="pub_messages"),
    ]  # fmt: skip
    best = best_reading(judge(numbers(*bounds, readings=READINGS), rows))
    assert best is not None
    assert (best.reading, best.kept, best.differs) == ("large", 1, 1)


def test_a_number_with_several_comparisons_needs_all_of_them() -> None:
    parts = [
        f'row = "J.4.6-times"\npart = "{nodes}"\nmetric = "latency_mean"\n'
        f'at = {{ protocol = "srpt", nodes = {nodes} }}\n'
        for nodes in (8, 16)
    ]
    verdicts = judge(numbers(*parts), [row("srpt", 8, 4), row("srpt", 16, 5)])
    assert [one.verdict for one in verdicts] == ["reproduced", "differs"]
    assert outcomes(verdicts)["J.4.6-times"].outcome == "differs"
    (reading,) = reading_verdicts(verdicts)
    assert (reading.satisfied, reading.of) == (0, 1)


def test_claims_are_no_numbers() -> None:
    claim = f'row = "J.4.1-hop"\n{SRPT_8}value = 100\ntolerance = 5\n'
    verdicts = judge(numbers(claim), [row("srpt", 8, 100)])
    assert reading_verdicts(verdicts) == []
    assert best_reading(verdicts) is None
    assert "J.4.1-hop" not in outcomes(verdicts)


def test_of_a_number_that_several_experiments_compare_the_worst_counts() -> None:
    """[T]: "we did not observe standard deviation above 5 %" of any value."""
    text = f'row = "T.6.1-sigma"\n{SRPT_8}form = "deviation"\n'
    calm = one(text, Row("x", AT_8, "latency_mean", 10.0, 0.01, 5))
    wild = replaced(one(text, Row("x", AT_8, "latency_mean", 10.0, 9.0, 40)), experiment="y")
    assert (calm.verdict, wild.verdict) == ("kept, not reached", "differs")
    for both in ([calm, wild], [wild, calm]):
        found = outcomes(both)["T.6.1-sigma"]
        assert (found.outcome, found.experiment) == ("differs", "y")


def test_the_headline_tells_what_another_paper_prints_too() -> None:
    """[S]'s 2.7 is [J]'s: that it comes out is one result, and not two."""
    text = f'row = "J.4.1-times"\n{SRPT_8}'
    found = {one.paper: one for one in headline([one(text, row("srpt", 8, 2.7))])}
    assert (found["J"].counts["one reading"], found["J"].again) == (1, 0)
    assert (found["S"].counts["one reading"], found["S"].again) == (1, 1)
    assert "1 comes out in one reading of its experiment (1 of these another" in str(found["S"])


def test_the_headline_counts_every_printed_number_once() -> None:
    verdicts = read_in_two(533, 700, 1, 1)
    found = {one.paper: one for one in headline(verdicts)}
    assert list(found) == ["J", "S", "B", "T", "N"]
    for letter, one in found.items():
        assert sum(one.counts.values()) + sum(one.follow.values()) == one.numbers
        assert sum(one.counts.values()) == one.results
        assert one.numbers == sum(row.counts for row in papers.papers()[letter].number)
    assert found["J"].counts["one reading"] == 1
    assert (found["J"].counts["differs"], found["J"].near) == (1, 1)
    assert str(found["J"]) == (
        "[J] prints 40 numbers, 34 of them results of runs: 1 comes out in one reading of its"
        " experiment, 0 come out in some other reading only, 1 differs (1 of these by at most 5 %),"
        " 32 are not measured. 6 follow from the settings alone: 6 are not measured."
    )


def test_a_number_that_follows_from_the_settings_is_counted_apart() -> None:
    """J.4.5-46 is 4000 · ln 2 / 60 in any run: it makes no reading better, nor a paper."""
    both = [
        f'row = "{ident}"\nmetric = "latency_mean"\nat = {{ protocol = "{protocol}" }}\n'
        for ident, protocol in (("J.4.5-46", "vcube-ps"), ("J.4.1-srpt", "srpt"))
    ]
    rows = [
        row("vcube-ps", 8, 46), row("srpt", 8, 1),
        row("vcube-ps", 16, 1, metric="pub_messages"), row("srpt", 16, 720, metric="pub_messages"),
    ]  # fmt: skip
    verdicts = judge(numbers(*both, readings=READINGS), rows)
    assert [one.follows for one in verdicts] == [True, True, False, False]
    assert [(one.reading, one.satisfied, one.of) for one in reading_verdicts(verdicts)] == [
        ("small", 0, 1), ("large", 1, 1),
    ]  # fmt: skip
    found = headline(verdicts)[0]
    assert found.counts["one reading"] == 1
    assert found.follow == {"some reading": 1, "not measured": 5}


def test_an_experiment_of_inputs_alone_has_outcomes_and_no_reading() -> None:
    verdicts = judge(numbers(f'row = "T.F9-50"\n{SRPT_8}'), [row("srpt", 8, 50)])
    assert best_reading(verdicts) is None
    assert outcomes(verdicts)["T.F9-50"].outcome == "one reading"


def test_numbers_of_a_file_of_ones_own_are_counted_after_those_of_the_papers() -> None:
    own = f'section = "s"\nwhat = "w"\nvalue = 5\ntolerance = 0\n{SRPT_8}'
    *papers_own, last = headline(judge(numbers(own), [row("srpt", 8, 5)]))
    assert [one.paper for one in papers_own] == ["J", "S", "B", "T", "N"]
    assert str(last) == (
        "The experiments' own files state 1 number: 1 comes out in one reading of its experiment,"
        " 0 come out in some other reading only."
    )


def test_a_result_printed_by_two_papers_has_one_verdict() -> None:
    text = f'row = "J.4.4-ps"\n{SRPT_8}'
    found = outcomes(judge(numbers(text), [row("srpt", 8, 9.2)]))
    assert found["S.IV-zipf-ps"].outcome == found["J.4.4-ps"].outcome == "one reading"
    assert found["N.T1-L8-nodes"].outcome == "not compared"
    assert found["J.4.1-ps"].outcome == "not measured"


def test_looks_together_are_wrong_in_one_of_twenty() -> None:
    """The interval that decides is that of 1 - 0.05 / LOOKS."""
    found = one(f'row = "J.4.1-ps"\n{SRPT_8}', row("srpt", 8, 533, 1.0))
    assert found.reach == pytest.approx(
        critical_value(4, 1 - 0.05 / LOOKS) / critical_value(4, 0.95)
    )
