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

Nothing is left out: a number whose points were not measured (a quick run leaves large systems out)
says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cubecast.lab.comparisons import PaperNumber, papers_spread
from cubecast.lab.experiment import Experiment
from cubecast.lab.intervals import deviation, widened
from cubecast.lab.verdicts.points import Ours, Row, our_value

Judgement = Literal["reproduced", "kept, not reached", "differs", "undecided", "not measured"]
"""*undecided*: the edge of the tolerance is within our interval, or there is one seed, which has
none."""

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


def judge(experiment: Experiment, rows: Iterable[Row]) -> list[Verdict]:
    """A verdict for every number of the papers that the experiment names, in its order."""
    own = [row for row in rows if row.experiment == experiment.id]
    return [judge_number(experiment.id, number, own) for number in experiment.paper]


def nearest_readings(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """One verdict for each number of a paper: of its readings the one that comes nearest.

    It flatters: `readings.outcomes` asks whether one reading satisfies all numbers.
    """
    order = ("reproduced", "kept, not reached", "undecided", "differs", "not measured")
    found: dict[tuple[str, str, str], Verdict] = {}
    for verdict in verdicts:
        number = (verdict.experiment, verdict.section, verdict.what)
        best = found.setdefault(number, verdict)
        if order.index(verdict.verdict) < order.index(best.verdict):
            found[number] = verdict
    return list(found.values())


def judge_number(experiment: str, number: PaperNumber, rows: Sequence[Row]) -> Verdict:
    """The verdict on one number in one reading; the rows are the experiment's."""
    ours = our_value(number, rows)
    if ours is None:
        return Verdict(
            experiment, number.section, number.what, number.accounting, number.unit, number.value,
            None, 0.0, None, "not measured", "Not among the points of this run.", 0,
            number.row, number.counts, tolerance_from=number.tolerance_from,
        )  # fmt: skip
    reach, allowed = _reach(number, ours), _allowed(number, ours)
    difference = ours.value - number.value
    judgement = _judgement(number, difference, reach, allowed)
    told = judgement in ("differs", "kept, not reached")
    return Verdict(
        experiment, number.section, number.what, number.accounting, number.unit, number.value,
        ours.value, ours.ci, difference, judgement,
        _sentence(number, ours, judgement, allowed), ours.n, number.row, number.counts,
        allowed, reach, number.tolerance_from,
        number.reason if told else "", number.shown_by if told else "",
    )  # fmt: skip


def _reach(number: PaperNumber, ours: Ours) -> float:
    """Half the interval that decides.  How well a law fits a curve of means has none."""
    if ours.n < 2:
        return math.inf
    return widened(ours.ci, ours.seeds, DECIDED_AT)


def _allowed(number: PaperNumber, ours: Ours) -> float:
    tolerance = number.tolerance * (1.0 if number.absolute else abs(number.value))
    sd = deviation(ours.ci, ours.seeds) if ours.seeds > 1 else 0.0
    return tolerance + papers_spread(number, sd)


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


def _sentence(number: PaperNumber, ours: Ours, judgement: Judgement, allowed: float) -> str:
    near = _amount(number, allowed)
    if judgement == "undecided":
        if ours.n < 2:
            return "One seed has no interval: take more."
        return f"The edge of {near} is within our interval: take more seeds."
    if judgement == "reproduced":
        return _kept(number, near)
    side = "Above it" if ours.value > number.value else "Below it"
    by = f" by more than {near}" if allowed else ""
    if judgement == "kept, not reached":
        side = "Kept" if number.bound == "up to" else "Kept, from above"
        by = ", but nothing of ours comes near it"
    return f"{side}{by}. {number.reason}".strip()


def _amount(number: PaperNumber, allowed: float) -> str:
    """The tolerance, with its source."""
    unit = "percentage points" if number.unit.startswith("%") else number.unit
    if number.row:
        from_ = f" ({number.tolerance_from})" if number.tolerance_from else ""
        return f"{allowed:.3g} {unit}".strip() + from_
    if not number.absolute:
        return f"{100 * number.tolerance:g} %"
    return f"{number.tolerance:g} {unit}".strip().rstrip(".")


def _kept(number: PaperNumber, near: str) -> str:
    if not number.tolerance and number.bound in ("equal", "at most", "at least"):
        return {"equal": "Exactly so.", "at most": "Not above it, as the paper says.",
                "at least": "Not below it, as the paper says."}[number.bound]  # fmt: skip
    words = {"at most": "Not above it by more than", "at least": "Not below it by more than"}
    return f"{words.get(number.bound, 'Within')} {near}."
