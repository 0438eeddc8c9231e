"""The verdicts as the report shows them: the only part of the report that asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from cubecast.lab.experiment import Experiment
from cubecast.lab.papers import rows
from cubecast.lab.report.papers import named_in
from cubecast.lab.report.wording import DISTANCE, NONE, difference_text, ours_text, paper_text
from cubecast.lab.verdicts import (
    Judgement,
    ReadingVerdict,
    Row,
    Verdict,
    judge,
    nearest_readings,
    reading_verdicts,
)
from cubecast.lab.verdicts import headline as headlines

JUDGEMENTS: tuple[str, ...] = get_args(Judgement)
SIGNS = {
    "reproduced": "✓", "kept, not reached": "≤", "differs": "≠", "undecided": "?",
    "not measured": NONE,
}  # fmt: skip
MEANINGS = {
    "reproduced": "ours is within the tolerance, with all of its confidence interval",
    "kept, not reached": "a bound that the paper prints is kept, but ours does not come near it",
    "differs": "ours is outside the tolerance, with all of its confidence interval",
    "undecided": "the edge of the tolerance is within our confidence interval, or there is only"
    " one seed",
    "not measured": "this run left its points out",
}
CSV_COLUMNS = (
    "experiment", "section", "what", "accounting", "unit", "paper", "ours", "ci", "difference",
    "verdict", "sentence", "n",
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
class Judged:
    """The verdicts of an experiment, counted and in words."""

    lines: Sequence[VerdictRow]
    """Of the numbers that papers print."""
    claims: Sequence[VerdictRow]
    """Of claims without a number, which limits of ours decide."""
    counts: dict[str, int]
    """{judgement: numbers}, each number once, in the reading that comes nearest."""
    table: Sequence[Sequence[object]]
    """All fields of the verdicts, in the order of `CSV_COLUMNS`."""
    readings: Sequence[str]
    """Each reading as a whole, in a sentence; none where there is one only."""
    verdicts: Sequence[Verdict]


def judged(experiment: Experiment, measured: Iterable[Row]) -> Judged:
    """The verdicts on an experiment."""
    verdicts = judge(experiment, measured)
    found = Counter(verdict.verdict for verdict in nearest_readings(verdicts))
    return Judged(
        [_line(verdict) for verdict in verdicts if verdict.counts],
        [_line(verdict) for verdict in verdicts if not verdict.counts],
        {judgement: found[judgement] for judgement in JUDGEMENTS},  # type: ignore[index]
        [[getattr(verdict, name) for name in CSV_COLUMNS] for verdict in verdicts],
        _readings(verdicts),
        verdicts,
    )


def _readings(verdicts: Sequence[Verdict]) -> list[str]:
    found = reading_verdicts(verdicts)
    return [_said(one) for one in found] if len(found) > 1 else []


def _said(one: ReadingVerdict) -> str:
    others = {"kept, not reached": one.kept, "differ": one.differs, "undecided": one.undecided,
              "not measured": one.not_measured}  # fmt: skip
    rest = ", ".join(f"{count} {name}" for name, count in others.items() if count)
    said = f"{one.satisfied} of {one.of} numbers are reproduced together" + f"; {rest}" * bool(rest)
    return f"{one.reading[:1].upper()}{one.reading[1:]}: {said}."


def headline(experiments: Sequence[Judged]) -> list[str]:
    """A sentence for each paper on the outcome of its numbers."""
    verdicts = [verdict for one in experiments for verdict in one.verdicts]
    if not verdicts:
        return ["These experiments name no number of a paper."]
    papers = named_in(verdict.section for verdict in verdicts)
    return [str(one) for one in headlines(verdicts) if one.paper in papers] or [
        f"{total(experiments)['reproduced']} of {len(verdicts)} numbers are reproduced."
    ]


def total(experiments: Iterable[Judged]) -> dict[str, int]:
    """The counts of all experiments together."""
    found = dict.fromkeys(JUDGEMENTS, 0)
    for one in experiments:
        for name, count in one.counts.items():
            found[name] += count
    return found


def _line(verdict: Verdict) -> VerdictRow:
    printed = rows().get(verdict.row)
    compared = f": {DISTANCE}" if printed is not None and printed.kind == "distribution" else ""
    return VerdictRow(
        verdict.what + compared,
        ", ".join(part for part in (verdict.section, verdict.accounting) if part),
        paper_text(verdict), ours_text(verdict), difference_text(verdict),
        verdict.verdict, verdict.sentence, verdict.n,
    )  # fmt: skip
