"""The verdicts as the report shows them: the only part of the report that asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cubecast.lab.experiment import Experiment
from cubecast.lab.papers import Printed, rows
from cubecast.lab.report.papers import named_in
from cubecast.lab.report.wording import (
    DISTANCE,
    NONE,
    difference_text,
    ours_text,
    paper_text,
    printed_text,
)
from cubecast.lab.verdicts import (
    Headline,
    NumberOutcome,
    Outcome,
    ReadingVerdict,
    Row,
    Verdict,
    headline_of,
    judge,
    outcomes,
    reading_verdicts,
)

SIGNS = {
    "reproduced": "✓", "kept, not reached": "≤", "differs": "≠", "undecided": "?",
    "not measured": NONE, "in another reading only": "~", "not compared": NONE,
}  # fmt: skip
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "one reading": (
        "reproduced", "ours is within the tolerance, with all of its confidence interval, in the"
        " reading of its experiment that satisfies most numbers"
    ),
    "some reading": ("in another reading only", "reproduced in another reading, not in that one"),
    "kept, not reached": (
        "kept, not reached", "a bound that the paper prints is kept, but ours does not come near it"
    ),
    "differs": (
        "differs", "ours is outside the tolerance, with all of its confidence interval"
    ),
    "undecided": (
        "undecided", "the edge of the tolerance is within our confidence interval, or there is"
        " only one seed"
    ),
    "not measured": ("not measured", "this run left its points out"),
    "not compared": ("not compared", "the table of the paper's numbers says why"),
}  # fmt: skip
"""The name of an outcome in tables, and its meaning."""
FOLLOWS = "from the settings alone"
MEANINGS = {
    **dict(OUTCOMES.values()),
    FOLLOWS: "arithmetic on the settings gives the number, so it is no result of runs",
}
TOGETHER = (
    "In brackets behind a reading: how many of the numbers of its experiment come out together"
    " there. Where it is one of many, that one may be chance."
)
CSV_COLUMNS = (
    "experiment", "section", "what", "accounting", "unit", "paper", "ours", "ci", "difference",
    "verdict", "sentence", "n", "row", "counts", "allowed", "reach", "tolerance_from", "reason",
    "shown_by", "bound", "spread", "follows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A verdict in words: a row of the table."""

    what: str
    origin: str
    """The section of the paper, and the reading."""
    paper: str
    """As printed; of a claim our limit."""
    ours: str
    difference: str
    verdict: str
    sentence: str
    seeds: int


@dataclass(frozen=True, slots=True)
class NumberRow:
    """A printed number in the table of its paper."""

    what: str
    section: str
    paper: str
    ours: str
    """Of the comparison that decides."""
    outcome: str
    place: str
    """The experiment and the reading that it is judged in, and how many of its numbers come out
    together there."""
    experiment: str
    reproduced_in: str
    """In how many of how many readings it comes out."""
    reason: str
    shown_by: str
    """The experiment whose grid shows the reason."""


@dataclass(frozen=True, slots=True)
class PrintedNumbers:
    """The printed numbers of all papers that some experiments name, each once."""

    sentences: Sequence[str]
    """One for each paper, on the outcomes of its numbers."""
    counts: Mapping[str, int]
    """{outcome: numbers}, the same numbers as in the sentences."""
    by_experiment: Mapping[str, Mapping[str, int]]
    """{experiment: {outcome: numbers}} of those that an experiment compares."""
    tables: Mapping[str, Sequence[NumberRow]]
    """{paper: its numbers}."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts of an experiment, in words."""

    lines: Sequence[VerdictRow]
    """Of the numbers that papers print."""
    claims: Sequence[VerdictRow]
    """Of claims without a number, which limits of ours decide."""
    table: Sequence[Sequence[object]]
    """All fields of the verdicts, in the order of `CSV_COLUMNS`."""
    readings: Sequence[str]
    """Each reading as a whole, in a sentence; none where there is one only."""
    verdicts: Sequence[Verdict]


def judged(experiment: Experiment, measured: Iterable[Row]) -> Judged:
    """The verdicts on an experiment."""
    verdicts = judge(experiment, measured)
    return Judged(
        [_line(verdict) for verdict in verdicts if verdict.counts],
        [_line(verdict) for verdict in verdicts if not verdict.counts],
        [[getattr(verdict, name) for name in CSV_COLUMNS] for verdict in verdicts],
        _readings(verdicts),
        verdicts,
    )


def _readings(verdicts: Sequence[Verdict]) -> list[str]:
    found = reading_verdicts(verdicts)
    return [_said(one) for one in found] if len(found) > 1 else []


def _said(one: ReadingVerdict) -> str:
    if one.of == 1:
        said = f"the only number {_alone(one)}"
    else:
        verb = "is" if one.satisfied == 1 else "are"
        others = {
            "kept, not reached": one.kept, "differs" if one.differs == 1 else "differ": one.differs,
            "undecided": one.undecided, "not measured": one.not_measured,
        }  # fmt: skip
        rest = ", ".join(f"{count} {name}" for name, count in others.items() if count)
        said = f"{one.satisfied} of {one.of} numbers {verb} reproduced together"
        said += f"; {rest}" * bool(rest)
    return f"{one.reading[:1].upper()}{one.reading[1:]}: {said}."


def _alone(one: ReadingVerdict) -> str:
    """What becomes of the only number of a reading."""
    words = {
        "is reproduced": one.satisfied, "is kept, not reached": one.kept, "differs": one.differs,
        "is undecided": one.undecided, "is not measured": one.not_measured,
    }  # fmt: skip
    return next(word for word, count in words.items() if count)


def printed_numbers(experiments: Sequence[Judged]) -> PrintedNumbers:
    """The outcomes of all numbers of the papers that the experiments name."""
    verdicts = [verdict for one in experiments for verdict in one.verdicts]
    if not verdicts:
        nothing = dict.fromkeys(MEANINGS, 0)
        return PrintedNumbers(["These experiments name no number of a paper."], nothing, {}, {})
    found = outcomes(verdicts)
    named = {*named_in(verdict.section for verdict in verdicts if verdict.row), ""}
    shown = [one for one in headline_of(found) if one.paper in named]
    by_experiment: dict[str, dict[str, int]] = {}
    for one in found.values():
        if one.experiment:
            own = by_experiment.setdefault(one.experiment, dict.fromkeys(MEANINGS, 0))
            own[FOLLOWS if one.row.follows_from else OUTCOMES[one.outcome][0]] += 1
    tables: dict[str, list[NumberRow]] = {one.paper: [] for one in shown if one.paper}
    for ident, one in found.items():
        if ident in rows() and ident[0] in tables:
            tables[ident[0]].append(_number_row(one))
    return PrintedNumbers([str(one) for one in shown], _total(shown), by_experiment, tables)


def _total(shown: Iterable[Headline]) -> dict[str, int]:
    counts = dict.fromkeys(MEANINGS, 0)
    for one in shown:
        for outcome, count in one.counts.items():
            counts[OUTCOMES[outcome][0]] += count
        counts[FOLLOWS] += sum(one.follow.values())
    return counts


def _number_row(one: NumberOutcome) -> NumberRow:
    row = one.row
    notes = [
        f"As [{row.same_as[0]}]." if row.same_as else "",
        f"Follows from the settings: {row.follows_from}." if row.follows_from else "",
        one.reason,
    ]
    return NumberRow(
        row.says + _compared(row), row.section, printed_text(row),
        ours_text(one.deciding) if one.deciding else NONE, OUTCOMES[one.outcome][0],
        _place(one), one.experiment,
        f"{one.reproduced_in} of {one.readings}" if one.readings else NONE,
        " ".join(note for note in notes if note), one.shown_by,
    )  # fmt: skip


def _place(one: NumberOutcome) -> str:
    named = ", ".join(part for part in (one.experiment, one.reading) if part)
    return f"{named} ({one.satisfied} of {one.of})" if one.of else named or NONE


def _compared(row: Printed) -> str:
    """What is compared, where the row does not say it."""
    return f": {DISTANCE}" if row.kind == "distribution" else ""


def _line(verdict: Verdict) -> VerdictRow:
    printed = rows().get(verdict.row)
    return VerdictRow(
        verdict.what + (_compared(printed) if printed else ""),
        ", ".join(part for part in (verdict.section, verdict.accounting) if part),
        paper_text(verdict), ours_text(verdict), difference_text(verdict),
        verdict.verdict, verdict.sentence, verdict.n,
    )  # fmt: skip
