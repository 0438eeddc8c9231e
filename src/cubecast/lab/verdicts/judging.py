"""One verdict for each number of the papers.

*Reproduced* means that ours, with all of its confidence interval, is within the tolerance;
*differs* that all of the interval is outside.  Anything else is *undecided*, and more seeds decide
it (`cubecast.lab.seeding`).  The tolerance is what the paper's print leaves open plus how far the
paper's own mean of a few runs may be from the truth (`comparisons.papers_spread`).

A bound that a paper prints ("up to 10 %") is reproduced if the largest of ours comes near it, and
*kept, not reached* if ours stays below.

Repeated looks with more seeds until a verdict falls are wrong more often than each interval says.
So there are at most `LOOKS` looks, and each decides by intervals of confidence 1 - 0.05 / LOOKS:
all looks together are wrong in at most 5 % of the cases.

Nothing is left out: a number of which not all points were measured (a quick run leaves large
systems out) says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cubecast.lab.cells import Settings
from cubecast.lab.comparisons import Bound, PaperNumber, papers_spread
from cubecast.lab.experiment import Experiment
from cubecast.lab.intervals import deviation, widened
from cubecast.lab.papers.table import Source
from cubecast.lab.verdicts.points import Ours, Row, our_value

Judgement = Literal["reproduced", "kept, not reached", "differs", "undecided", "not measured"]
"""*undecided*: the edge of the tolerance is within our interval, or there is one seed, which has
none."""

LIMIT: Source = "limit of ours"
LOOKS = 4
"""The most looks, each with more seeds than the one before, including the first."""
DECIDED_AT = 1 - 0.05 / LOOKS
"""The confidence of the intervals that decide."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table: paper | ours | difference | verdict, and a sentence."""

    experiment: str
    section: str
    what: str
    accounting: str
    """The reading."""
    unit: str
    paper: float
    ours: float | None
    ci: float
    """Half the width of our 95 % confidence interval, as far as the form has one."""
    difference: float | None
    """Ours minus the paper's, in the unit."""
    verdict: Judgement
    sentence: str
    n: int
    row: str = ""
    """The row of the papers' table."""
    counts: bool = True
    """Whether a paper prints it as a number; claims and limits of ours do not count."""
    allowed: float = 0.0
    """The tolerance with the paper's own spread, in the unit."""
    reach: float = 0.0
    """Half the width of the interval that decides; it is wider than `ci`."""
    tolerance_from: str = ""
    reason: str = ""
    """Why it differs, where it does."""
    shown_by: str = ""
    """The experiment whose grid shows that."""
    bound: Bound = "equal"
    """Whether ours should equal the number, or the number is a bound."""
    spread: float = 0.0
    """The part of `allowed` that is the spread of the paper's own mean; the rest is the print's."""
    follows: bool = False
    """Whether the number follows from the settings alone: then it is no result of runs."""

    @property
    def limited(self) -> bool:
        """Whether a limit of ours decides, and no number that a paper prints."""
        return self.tolerance_from == LIMIT


def judge(experiment: Experiment, rows: Iterable[Row]) -> list[Verdict]:
    """A verdict for every number of the papers that the experiment names, in its order."""
    own = [row for row in rows if row.experiment == experiment.id]
    grid = experiment.points()
    return [judge_number(experiment.id, number, own, grid) for number in experiment.paper]


def judge_number(
    experiment: str, number: PaperNumber, rows: Sequence[Row], grid: Sequence[Settings]
) -> Verdict:
    """The verdict on one number in one reading; rows and grid are the experiment's."""
    ours = our_value(number, rows, grid)
    unmeasured = Verdict(
        experiment, number.section, number.what, number.accounting, number.unit, number.value,
        None, 0.0, None, "not measured", "Not among the points of this run.", 0,
        number.row, number.counts, _tolerance(number), tolerance_from=number.tolerance_from,
        bound=number.bound, follows=number.follows,
    )  # fmt: skip
    if ours is None:
        return unmeasured
    reach, spread = _reach(ours), _spread(number, ours)
    allowed = _tolerance(number) + spread
    difference = ours.value - number.value
    judgement = _judgement(number, difference, reach, allowed)
    told = judgement in ("differs", "kept, not reached")
    return replace(
        unmeasured, ours=ours.value, ci=ours.ci, difference=difference, verdict=judgement,
        sentence=_sentence(number, ours, judgement, spread), n=ours.n, allowed=allowed, reach=reach,
        reason=number.reason if told else "", shown_by=number.shown_by if told else "",
        spread=spread,
    )  # fmt: skip


def _reach(ours: Ours) -> float:
    """Half the interval that decides.  How well a law fits a curve of means has none."""
    if ours.n < 2:
        return math.inf
    return widened(ours.ci, ours.seeds, DECIDED_AT)


def _tolerance(number: PaperNumber) -> float:
    """What the print leaves open, in the number's unit."""
    return number.tolerance * (1.0 if number.absolute else abs(number.value))


def _spread(number: PaperNumber, ours: Ours) -> float:
    """How far the paper's own mean may be from the truth, in the number's unit."""
    return papers_spread(number, deviation(ours.ci, ours.seeds) if ours.seeds > 1 else 0.0)


def _judgement(number: PaperNumber, difference: float, reach: float, allowed: float) -> Judgement:
    allowed += 1e-9
    side = -1 if number.bound in ("down to", "at least") else 1
    beyond = abs(difference) if number.bound == "equal" else side * difference
    if beyond - reach > allowed:
        return "differs"
    near = beyond if number.bound in ("at most", "at least") else abs(difference)
    if near + reach <= allowed:
        return "reproduced"
    if number.bound in ("up to", "down to") and beyond + reach < -allowed:
        return "kept, not reached"
    return "undecided"


# -- words -----------------------------------------------------------------------------------------


def _sentence(number: PaperNumber, ours: Ours, judgement: Judgement, spread: float) -> str:
    limited = number.tolerance_from == LIMIT
    near = "" if limited else _amount(number, spread)
    if judgement == "undecided":
        if ours.n < 2:
            return "One seed has no interval: take more."
        edge = "Our limit" if limited else f"The edge of {near}" if near else "The number"
        return f"{edge} is within our interval: take more seeds."
    if judgement == "reproduced":
        return "Within our limit." if limited else _kept(number, near)
    above = "Above" if ours.value > number.value else "Below"
    if limited:
        return f"{above} our limit. {number.reason}".strip()
    by = f" by more than {near}" if near else ""
    said = f"{above} it{by}"
    if judgement == "kept, not reached":
        side = "Kept" if number.bound == "up to" else "Kept, from above"
        said = f"{side}, but nothing of ours comes near it"
    return f"{said}. {number.reason}".strip()


def _amount(number: PaperNumber, spread: float) -> str:
    """The tolerance, with its parts; nothing where there is none."""
    tolerance = _tolerance(number)
    if not tolerance and not spread:
        return ""
    unit = "percentage points" if number.unit.startswith("%") else number.unit
    if number.row:
        parts = {number.tolerance_from: tolerance, "spread of runs": spread}
        there = [name for name, part in parts.items() if part]
        told = [f"{name} {_digits(parts[name])}" for name in there] if len(there) > 1 else there
        return f"{_digits(tolerance + spread)} {unit}".strip() + f" ({', '.join(told)})"
    if not number.absolute:
        return f"{100 * number.tolerance:g} %"
    return f"{number.tolerance:g} {unit}".strip().rstrip(".")


def _digits(value: float) -> str:
    """Three digits of a number, without a power of ten: 0.05, 245, 1230."""
    return f"{float(f'{value:.3g}'):.15g}"


def _kept(number: PaperNumber, near: str) -> str:
    within = {"at most": "Not above it", "at least": "Not below it"}.get(number.bound, "")
    if near and (number.tolerance or number.row):
        return f"{within} by more than {near}." if within else f"Within {near}."
    return f"{within}, as the paper says." if within else "Exactly so."
