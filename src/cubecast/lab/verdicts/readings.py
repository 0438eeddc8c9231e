"""Verdicts on readings: does one consistent reading satisfy all numbers of an experiment together?

Where a paper leaves a choice open, each number could be compared in the reading that suits it
best.  That flatters: a paper had one set-up.  So a reading is judged as a whole, and a number
counts as reproduced in *one reading* only if it comes out in the reading of its experiment that
satisfies most numbers.  A number that comes out in other readings only is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cubecast.lab.papers.table import Printed, papers, rows
from cubecast.lab.verdicts.judging import Judgement, Verdict

Outcome = Literal[
    "one reading", "some reading", "kept, not reached", "differs", "undecided", "not measured",
    "not compared",
]  # fmt: skip
"""The outcome of a printed number.  *one reading*: reproduced in the best reading of its
experiment.  *some reading*: in another only.  *not compared*: the table says why."""

NEAR = 0.05
"""Numbers that differ by no more than this share are counted apart, as such."""
_WORDS: dict[Outcome, str] = {
    "one reading": "come out in one reading of their experiment",
    "some reading": "come out in some other reading only",
    "kept, not reached": "are bounds that are kept but not reached",
    "differs": "differ",
    "undecided": "are undecided",
    "not measured": "are not measured",
    "not compared": "are not compared",
}
_WORST: tuple[Judgement, ...] = (
    "differs", "not measured", "undecided", "kept, not reached", "reproduced"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """A printed number in one reading: all its comparisons together, the worst of them."""

    row: str
    reading: str
    judgement: Judgement
    parts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class ReadingVerdict:
    """One reading of one experiment, as a whole."""

    experiment: str
    reading: str
    satisfied: int
    """Numbers that are reproduced in it."""
    of: int
    """Numbers that the experiment compares."""
    kept: int
    differs: int
    undecided: int
    not_measured: int

    @property
    def decided(self) -> bool:
        """Whether more seeds cannot change it."""
        return self.undecided == 0 and self.not_measured == 0

    @property
    def whole(self) -> bool:
        """Whether the reading satisfies all numbers together."""
        return self.satisfied == self.of


@dataclass(frozen=True, slots=True)
class NumberOutcome:
    """The outcome of one printed number."""

    row: Printed
    outcome: Outcome
    experiment: str = ""
    reading: str = ""
    """The reading that its experiment is judged by."""
    reproduced_in: int = 0
    readings: int = 0
    """In how many of how many readings it is reproduced."""
    near: bool = False
    """It differs, but by no more than `NEAR` of the number."""
    reason: str = ""
    shown_by: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """How many numbers a paper prints, and their outcomes."""

    paper: str
    numbers: int
    counts: Mapping[Outcome, int]
    near: int
    """Of those that differ, how many by no more than `NEAR`."""

    def __str__(self) -> str:
        near = f" ({self.near} of these by at most {100 * NEAR:g} %)" if self.near else ""
        told = [
            f"{self.counts[name]} {words}{near if name == 'differs' else ''}"
            for name, words in _WORDS.items()
            if name in self.counts
        ]
        return f"[{self.paper}] prints {self.numbers} numbers: {', '.join(told)}."


def readings_of(verdicts: Iterable[Verdict]) -> list[str]:
    """The readings of an experiment's verdicts, in their order; one without a name if none has."""
    return list(dict.fromkeys(one.accounting for one in verdicts if one.accounting)) or [""]


def row_verdicts(verdicts: Sequence[Verdict], reading: str) -> list[RowVerdict]:
    """Every printed number of one experiment in one reading.

    A comparison without a reading belongs to all.  A number that the reading does not mention is
    not measured in it.
    """
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.counts:
            parts = found.setdefault(verdict.row or f"{verdict.section}: {verdict.what}", [])
            if verdict.accounting in ("", reading):
                parts.append(verdict)
    return [RowVerdict(row, reading, _worst(parts), tuple(parts)) for row, parts in found.items()]


def _worst(parts: Sequence[Verdict]) -> Judgement:
    judgements = {part.verdict for part in parts} or {"not measured"}
    return next(one for one in _WORST if one in judgements)


def reading_verdicts(verdicts: Sequence[Verdict]) -> list[ReadingVerdict]:
    """A verdict on every reading of one experiment, in their order; none if it has no numbers."""
    found = []
    for reading in readings_of(verdicts):
        there = row_verdicts(verdicts, reading)
        if there:
            found.append(_reading_verdict(verdicts[0].experiment, reading, there))
    return found


def _reading_verdict(experiment: str, reading: str, there: Sequence[RowVerdict]) -> ReadingVerdict:
    counts = Counter(row.judgement for row in there)
    return ReadingVerdict(
        experiment,
        reading,
        satisfied=counts["reproduced"],
        of=len(there),
        kept=counts["kept, not reached"],
        differs=counts["differs"],
        undecided=counts["undecided"],
        not_measured=counts["not measured"],
    )


def best_reading(verdicts: Sequence[Verdict]) -> ReadingVerdict | None:
    """The reading that satisfies most numbers.

    Of several the one that keeps most bounds; of these the one with most numbers decided; of these
    the first of the experiment's file.  An undecided number ranks as one that differs, so a
    reading gains nothing by having few seeds.
    """
    found = reading_verdicts(verdicts)
    return max(found, key=_rank, default=None)


def _rank(one: ReadingVerdict) -> tuple[int, int, int]:
    return one.satisfied, one.kept, -(one.undecided + one.not_measured)


# -- all numbers of all papers ---------------------------------------------------------------------


def outcomes(verdicts: Iterable[Verdict]) -> dict[str, NumberOutcome]:
    """The outcome of every printed number of every paper, by its row, in the papers' order."""
    by_experiment: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_experiment.setdefault(verdict.experiment, []).append(verdict)
    judged: dict[str, NumberOutcome] = {}
    for own in by_experiment.values():
        judged |= _outcomes_of(own)
    found: dict[str, NumberOutcome] = {}
    for paper in papers().values():
        for row in paper.number:
            if row.counts:
                found[row.id] = _outcome(row, judged)
    return found


def _outcome(row: Printed, judged: Mapping[str, NumberOutcome]) -> NumberOutcome:
    if row.unjudged:
        return NumberOutcome(row, "not compared", reason=row.unjudged)
    there = judged.get(row.same_as or row.id)
    if there is None:
        return NumberOutcome(row, "not measured")
    return NumberOutcome(
        row, there.outcome, there.experiment, there.reading, there.reproduced_in, there.readings,
        there.near, there.reason, there.shown_by,
    )  # fmt: skip


def _outcomes_of(verdicts: Sequence[Verdict]) -> dict[str, NumberOutcome]:
    best = best_reading(verdicts)
    if best is None:
        return {}
    names = readings_of(verdicts)
    in_all = {name: {row.row: row for row in row_verdicts(verdicts, name)} for name in names}
    found = {}
    for ident, there in in_all[best.reading].items():
        printed = rows().get(ident)
        if printed is None:
            continue  # a number of a user's own
        reproduced = sum(one[ident].judgement == "reproduced" for one in in_all.values())
        bad = next((p for p in there.parts if p.verdict == there.judgement), None)
        found[ident] = NumberOutcome(
            printed, _outcome_of(there.judgement, reproduced), best.experiment, best.reading,
            reproduced, len(names), there.judgement == "differs" and _near(there.parts),
            bad.reason if bad else "", bad.shown_by if bad else "",
        )  # fmt: skip
    return found


def _outcome_of(judgement: Judgement, reproduced: int) -> Outcome:
    if judgement == "reproduced":
        return "one reading"
    return "some reading" if reproduced else judgement


def _near(parts: Iterable[Verdict]) -> bool:
    """Whether no comparison is off by more than `NEAR` of the number."""
    return all(
        part.difference is not None and abs(part.difference) <= NEAR * abs(part.paper)
        for part in parts
    )


def headline(verdicts: Iterable[Verdict]) -> list[Headline]:
    """For each paper how many numbers it prints, and their outcomes."""
    found: dict[str, list[NumberOutcome]] = {letter: [] for letter in papers()}
    for ident, outcome in outcomes(verdicts).items():
        found[ident[0]].append(outcome)
    return [_headline(letter, own) for letter, own in found.items()]


def _headline(letter: str, own: Sequence[NumberOutcome]) -> Headline:
    counts = Counter(one.outcome for one in own)
    in_order = {outcome: counts[outcome] for outcome in get_args(Outcome) if counts[outcome]}
    near = sum(one.near and one.outcome == "differs" for one in own)
    return Headline(letter, len(own), in_order, near)
