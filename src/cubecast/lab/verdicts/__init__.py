"""The papers' numbers beside ours: from aggregated rows to verdicts on numbers and readings."""

from cubecast.lab.verdicts.judging import (
    DECIDED_AT,
    LOOKS,
    Judgement,
    Verdict,
    judge,
)
from cubecast.lab.verdicts.points import Row, fit
from cubecast.lab.verdicts.readings import (
    Headline,
    NumberOutcome,
    Outcome,
    ReadingVerdict,
    RowVerdict,
    best_reading,
    headline,
    headline_of,
    outcomes,
    reading_verdicts,
)

__all__ = [
    "DECIDED_AT", "LOOKS", "Headline", "Judgement", "NumberOutcome", "Outcome", "ReadingVerdict",
    "Row", "RowVerdict", "Verdict", "best_reading", "fit", "headline", "headline_of", "judge",
    "outcomes", "reading_verdicts",
]  # fmt: skip
