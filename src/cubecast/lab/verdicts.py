"""The papers' numbers beside ours: from aggregated rows to verdicts.

A *row* is the mean of one metric at one point of a grid, over its seeds.  Each `PaperNumber` of an
experiment becomes one `Verdict`.  Nothing is left out: a number whose points were not measured (a
quick run leaves large systems out) says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Experiment, Form, PaperNumber, matches

Judgement = Literal["reproduced", "differs", "undecided", "not measured"]
"""*undecided*: outside the tolerance, but not by more than our confidence interval, or with one
seed, which has none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric at one point of the grid."""

    experiment: str
    settings: Settings
    metric: str
    mean: float
    ci: float
    """Half the width of the confidence interval; 0 if there is one seed."""
    n: int
    """Seeds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table: paper | ours | difference | verdict, and a sentence."""

    experiment: str
    section: str
    what: str
    accounting: str
    unit: str
    paper: float
    ours: float | None
    ci: float
    """Half the width of our confidence interval, as far as the form lets it be told."""
    difference: float | None
    """Ours minus the paper's, in the unit."""
    verdict: Judgement
    sentence: str
    n: int


def judge(experiment: Experiment, rows: Iterable[Row]) -> list[Verdict]:
    """A verdict for every number of the papers that the experiment names, in its order."""
    own = [row for row in rows if row.experiment == experiment.id]
    return [_judge_number(experiment, number, own) for number in experiment.paper]


def nearest_readings(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """One verdict for each number of a paper: of its readings the one that comes nearest."""
    order = ("reproduced", "undecided", "differs", "not measured")
    found: dict[tuple[str, str, str], Verdict] = {}
    for verdict in verdicts:
        number = (verdict.experiment, verdict.section, verdict.what)
        best = found.setdefault(number, verdict)
        if order.index(verdict.verdict) < order.index(best.verdict):
            found[number] = verdict
    return list(found.values())


def _judge_number(experiment: Experiment, number: PaperNumber, rows: Sequence[Row]) -> Verdict:
    curve = _curve(number, rows)
    ours, ci = _fold(number, curve)
    scale = 100.0 if number.unit == "%" and number.form in ("more", "less", "ratio") else 1.0
    n = min((seeds for _, _, _, seeds in curve), default=0)
    if ours is None:
        judgement: Judgement = "not measured"
        difference = None
        sentence = "Not among the points of this run."
    else:
        ours, ci = ours * scale, ci * scale
        difference = ours - number.value
        judgement = _judgement(number, difference, ci if n > 1 else math.inf)
        sentence = _sentence(number, ours, judgement, n)
    return Verdict(
        experiment.id, number.section, number.what, number.accounting, number.unit,
        number.value, ours, ci, difference, judgement, sentence, n,
    )  # fmt: skip


def _judgement(number: PaperNumber, difference: float, ci: float) -> Judgement:
    """Whether ours is near enough to the number, or on the right side of it."""
    allowed = number.tolerance * (1.0 if number.absolute else abs(number.value)) + 1e-9
    match number.bound:
        case "at most":
            excess = difference
        case "at least":
            excess = -difference
        case _:
            excess = abs(difference)
    if excess <= allowed:
        return "reproduced"
    return "undecided" if excess <= allowed + ci else "differs"


def _sentence(number: PaperNumber, ours: float, judgement: Judgement, n: int) -> str:
    unit = "percentage points" if number.unit == "%" else number.unit
    allowed = f"{number.tolerance:g} {unit}".strip()
    if not number.absolute:
        allowed = f"{100 * number.tolerance:g} %"
    if judgement == "undecided":
        interval = "but within the confidence interval" if n > 1 else "but one seed tells little"
        return f"Off by more than {allowed}, {interval}: take more seeds."
    if judgement == "reproduced":
        return _kept(number, allowed)
    side = "Above it" if ours > number.value else "Below it"
    by = f" by more than {allowed.rstrip('.')}" if number.tolerance else ""
    return f"{side}{by}. {number.reason}".strip()


def _kept(number: PaperNumber, allowed: str) -> str:
    if not number.tolerance:
        return {"equal": "Exactly so.", "at most": "Not above it, as the paper says.",
                "at least": "Not below it, as the paper says."}[number.bound]  # fmt: skip
    words = {"equal": "Within", "at most": "Not above it by more than",
             "at least": "Not below it by more than"}  # fmt: skip
    return f"{words[number.bound]} {allowed.rstrip('.')}."


# -- from rows to one number -----------------------------------------------------------------------

CurvePoint = tuple[float, float, float, int]
"""x, value, half the width of its confidence interval, seeds."""


def _curve(number: PaperNumber, rows: Sequence[Row]) -> list[CurvePoint]:
    """The compared value at every x of `along`, or at the one point that is meant."""
    first = _points(rows, number.metric, number.at, number.along)
    if number.form == "value":
        return [
            (x, row.mean, row.ci, row.n) for x, row in sorted(first.items()) if x >= number.since
        ]
    other = {**number.at, **number.versus}
    second = _points(rows, number.versus_metric or number.metric, other, number.along)
    curve = []
    for x in sorted(first.keys() & second.keys()):
        a, b = first[x], second[x]
        if x >= number.since and (number.form == "difference" or b.mean != 0):
            curve.append((x, *_compared(number.form, a, b), min(a.n, b.n)))
    return curve


def _points(rows: Sequence[Row], metric: str, at: Settings, along: str) -> dict[float, Row]:
    found: dict[float, Row] = {}
    for row in rows:
        wanted = {name: value for name, value in at.items() if name != along}
        if row.metric == metric and matches(row.settings, wanted):
            found[_as_number(row.settings[along]) if along else 0.0] = row
    return found


def _as_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _compared(form: Form, a: Row, b: Row) -> tuple[float, float]:
    """The value, and its confidence interval by the rule for independent errors.

    Runs of one seed have the same workload in both, but hardly vary together: pairing them gives
    intervals of about the same width.
    """
    if form == "difference":
        return a.mean - b.mean, math.hypot(a.ci, b.ci)
    ratio = a.mean / b.mean
    value = {"ratio": ratio, "more": ratio - 1, "less": 1 - ratio}[form]
    return value, math.hypot(a.ci, ratio * b.ci) / abs(b.mean)


def _fold(number: PaperNumber, curve: Sequence[CurvePoint]) -> tuple[float | None, float]:
    if not curve:
        return None, 0.0
    if number.fold in ("", "max", "min"):
        best = min(curve, key=lambda point: point[1] * (-1 if number.fold == "max" else 1))
        return best[1], best[2]
    if len(curve) < 3:
        return None, 0.0
    xs = [math.log2(x) if number.fold == "log-fit" else x for x, *_ in curve]
    return fit(xs, [value for _, value, *_ in curve]), 0.0


def fit(xs: Sequence[float], ys: Sequence[float]) -> float:
    """R² of the straight line through the points: 1 is a perfect fit."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    sxx = sum((x - mean_x) ** 2 for x in xs)
    syy = sum((y - mean_y) ** 2 for y in ys)
    sxy = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return 1.0 if syy == 0 else sxy * sxy / (sxx * syy) if sxx else 0.0
