"""Verdicts on readings: does one consistent reading satisfy all numbers of an experiment together?

Where a paper leaves a choice open, each number could be compared in the reading that suits it
best.  That flatters: a paper had one set-up.  So a reading is judged as a whole, and a number
counts as reproduced in *one reading* only if it comes out in the reading of its experiment that
satisfies most numbers.  A number that comes out in other readings only is counted apart.

A number that follows from the settings alone is no result of runs: it takes no part in the choice
of a reading, and is counted apart (`Headline.follow`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
_WORDS: dict[Outcome, tuple[str, str]] = {
    "one reading": ("comes out in one reading of its experiment",
                    "come out in one reading of their experiment"),
    "some reading": ("comes out in some other reading only", "come out in some other reading only"),
    "kept, not reached": ("is a bound that is kept but not reached",
                          "are bounds that are kept but not reached"),
    "differs": ("differs", "differ"),
    "undecided": ("is undecided", "are undecided"),
    "not measured": ("is not measured", "are not measured"),
    "not compared": ("is not compared", "are not compared"),
}  # fmt: skip
"""Of one number, and of several or none."""
_FROM_GOOD_TO_BAD: tuple[Outcome, ...] = (
    "one reading",
    "some reading",
    "kept, not reached",
    "undecided",
    "not measured",
    "differs",
)
"""Where several experiments compare a number: it differs if it differs in one of them."""
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
    follows: bool = False
    """Whether it follows from the settings alone."""


@dataclass(frozen=True, slots=True)
class ReadingVerdict:
    """One reading of one experiment, as a whole."""

    experiment: str
    reading: str
    satisfied: int
    """Numbers that are reproduced in it."""
    of: int
    """Numbers that the experiment compares, those apart that follow from the settings."""
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
    satisfied: int = 0
    of: int = 0
    """How many of how many numbers of its experiment come out together in `reading`."""
    near: bool = False
    """It differs, but by no more than `NEAR` of the number."""
    reason: str = ""
    shown_by: str = ""
    deciding: Verdict | None = None
    """The comparison that decides: the worst."""


@dataclass(frozen=True, slots=True)
class Headline:
    """How many numbers a paper prints, and their outcomes."""

    paper: str
    """Its letter; empty for numbers that no table of the papers has."""
    numbers: int
    """All of them."""
    counts: Mapping[Outcome, int]
    """{outcome: numbers}, of the results of runs."""
    again: int
    """Of those that come out in one reading, how many another paper prints, and counts, too."""
    near: int
    """Of those that differ, how many by no more than `NEAR`."""
    follow: Mapping[Outcome, int]
    """{outcome: numbers}, of those that follow from the settings alone."""

    @property
    def results(self) -> int:
        """The numbers that are results of runs."""
        return self.numbers - sum(self.follow.values())

    def __str__(self) -> str:
        said = f"[{self.paper}] prints" if self.paper else "The experiments' own files state"
        said += f" {self.numbers} number{'' if self.numbers == 1 else 's'}"
        notes: dict[Outcome, str] = {}
        if self.again:
            notes["one reading"] = f" ({self.again} of these another paper prints, too)"
        if self.near:
            notes["differs"] = f" ({self.near} of these by at most {100 * NEAR:g} %)"
        if not self.follow:
            return f"{said}: {_told(self.counts, notes)}."
        some = sum(self.follow.values())
        last = f"{some} {'follows' if some == 1 else 'follow'} from the settings alone"
        results = f"{self.results} of them results of runs: {_told(self.counts, notes)}"
        return f"{said}, {results}. {last}: {_told(self.follow, {})}."


def _told(counts: Mapping[Outcome, int], notes: Mapping[Outcome, str]) -> str:
    return ", ".join(
        f"{counts[name]} {words[counts[name] != 1]}{notes.get(name, '')}"
        for name, words in _WORDS.items()
        if name in counts
    )


def readings_of(verdicts: Iterable[Verdict]) -> list[str]:
    """The readings of an experiment's verdicts, in their order; one without a name if none has."""
    return list(dict.fromkeys(one.accounting for one in verdicts if one.accounting)) or [""]


def row_verdicts(verdicts: Sequence[Verdict], reading: str) -> list[RowVerdict]:
    """Every printed number of one experiment in one reading.

    A comparison without a reading belongs to all.  A number that the reading does not mention is
    not measured in it.
    """
    found: dict[str, list[Verdict]] = {}
    follow: set[str] = set()
    for verdict in verdicts:
        if verdict.counts:
            row = verdict.row or f"{verdict.section}: {verdict.what}"
            parts = found.setdefault(row, [])
            if verdict.accounting in ("", reading):
                parts.append(verdict)
            if verdict.follows:
                follow.add(row)
    return [
        RowVerdict(row, reading, _worst(parts), tuple(parts), row in follow)
        for row, parts in found.items()
    ]


def _worst(parts: Sequence[Verdict]) -> Judgement:
    judgements = {part.verdict for part in parts} or {"not measured"}
    return next(one for one in _WORST if one in judgements)


def reading_verdicts(verdicts: Sequence[Verdict]) -> list[ReadingVerdict]:
    """A verdict on every reading of one experiment, in their order; none if it has no numbers."""
    found = []
    for reading in readings_of(verdicts):
        there = [row for row in row_verdicts(verdicts, reading) if not row.follows]
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
    the first of the experiment's file.  An undecided number satisfies nothing and ranks below one
    that differs, so a reading with few seeds hides no difference.
    """
    found = reading_verdicts(verdicts)
    return max(found, key=_rank, default=None)


def _rank(one: ReadingVerdict) -> tuple[int, int, int]:
    return one.satisfied, one.kept, -(one.undecided + one.not_measured)


# -- all numbers of all papers ---------------------------------------------------------------------


def outcomes(verdicts: Iterable[Verdict]) -> dict[str, NumberOutcome]:
    """The outcome of every printed number of every paper, by its row, in the papers' order.

    After them, by experiment and row, the numbers that no table of the papers has.
    """
    by_experiment: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_experiment.setdefault(verdict.experiment, []).append(verdict)
    judged: dict[str, NumberOutcome] = {}
    for own in by_experiment.values():
        for ident, one in _outcomes_of(own).items():
            judged[ident] = _worse(judged.get(ident, one), one)
    found: dict[str, NumberOutcome] = {}
    for paper in papers().values():
        for row in paper.number:
            if row.counts:
                found[row.id] = _outcome(row, judged)
    return found | {ident: one for ident, one in judged.items() if ident not in rows()}


def _worse(one: NumberOutcome, other: NumberOutcome) -> NumberOutcome:
    """Of two experiments that compare one number; the first if both find the same."""
    return max(one, other, key=lambda found: _FROM_GOOD_TO_BAD.index(found.outcome))


def _outcome(row: Printed, judged: Mapping[str, NumberOutcome]) -> NumberOutcome:
    if row.unjudged:
        return NumberOutcome(row, "not compared", reason=row.unjudged)
    there = judged.get(row.same_as or row.id)
    if there is None:
        return NumberOutcome(row, "not measured")
    return replace(there, row=row)


def _outcomes_of(verdicts: Sequence[Verdict]) -> dict[str, NumberOutcome]:
    best = best_reading(verdicts)
    names = readings_of(verdicts)
    reading, experiment = best.reading if best else names[0], verdicts[0].experiment
    together = (best.satisfied, best.of) if best else (0, 0)
    in_all = {name: {row.row: row for row in row_verdicts(verdicts, name)} for name in names}
    found = {}
    for ident, there in in_all[reading].items():
        printed = rows().get(ident)
        reproduced = sum(one[ident].judgement == "reproduced" for one in in_all.values())
        bad = next((part for part in there.parts if part.verdict == there.judgement), None)
        found[ident if printed else f"{experiment}: {ident}"] = NumberOutcome(
            printed or _own(ident, next(v for v in verdicts if _is(v, ident))),
            _outcome_of(there.judgement, reproduced), experiment, reading,
            reproduced, len(names), *together, there.judgement == "differs" and _near(there.parts),
            bad.reason if bad else "", bad.shown_by if bad else "", bad,
        )  # fmt: skip
    return found


def _is(verdict: Verdict, ident: str) -> bool:
    return f"{verdict.section}: {verdict.what}" == ident


def _own(ident: str, verdict: Verdict) -> Printed:
    """A number that the file of an experiment states, as a row."""
    return Printed(
        id=ident, section=verdict.section, says=verdict.what, printed=f"{verdict.paper:g}",
        value=verdict.paper, unit=verdict.unit,
    )  # fmt: skip


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
    """For each paper how many numbers it prints, and their outcomes; last those of own files."""
    return headline_of(outcomes(verdicts))


def headline_of(found: Mapping[str, NumberOutcome]) -> list[Headline]:
    """The same, of outcomes."""
    by_paper: dict[str, list[NumberOutcome]] = {letter: [] for letter in papers()}
    for ident, outcome in found.items():
        by_paper.setdefault(ident[0] if ident in rows() else "", []).append(outcome)
    return [_headline(letter, own) for letter, own in by_paper.items()]


def _headline(letter: str, own: Sequence[NumberOutcome]) -> Headline:
    results = [one for one in own if not one.row.follows_from]
    follow = Counter(one.outcome for one in own if one.row.follows_from)
    counts = Counter(one.outcome for one in results)
    shown = ("one reading", "some reading")  # even if there are none
    again = sum(bool(one.row.same_as) and one.outcome == "one reading" for one in results)
    near = sum(one.near and one.outcome == "differs" for one in results)
    return Headline(
        letter,
        len(own),
        {name: counts[name] for name in get_args(Outcome) if counts[name] or name in shown},
        again,
        near,
        {name: follow[name] for name in get_args(Outcome) if follow[name]},
    )
