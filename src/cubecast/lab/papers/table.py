"""The papers' numbers as data: the number, its place, its precision, and its meaning.

One TOML file for each paper stands beside this module.  A row is a number, a distribution, a claim
without a number (*trend*), a setting, or a citation of another paper.  Only numbers and
distributions count as printed numbers.

1. A tolerance is derived here, from `tolerance_from`, and is never chosen for a row.
2. A number that follows from the settings alone says so in `follows_from`, and is counted apart.
3. A row is compared by exactly one experiment (by several if the paper says it of all its values,
   `of_all`), or says in `unjudged` why none does, or names in
   `same_as` the row of another paper that prints the same.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from cubecast.lab.intervals import CONFIDENCE, critical_value, interval

Kind = Literal["value", "up to", "at least", "over", "distribution", "trend", "setting", "cited"]
"""*up to* ("no more than", "at most", "maximum"): the largest of ours should come near it.
*at least*: the smallest of ours should.  *over*: a threshold that a value passes or not."""
Source = Literal["printed digits", "the word about", "exact", "limit of ours"]
"""Where a tolerance comes from.  *printed digits*: half of the last place that is printed.
*the word about*: a tenth of the number, a convention of ours for "about", "around",
"approximately".  *exact*: none, the paper says "exactly" or "all".  *limit of ours*: the paper
prints no number, and the experiment's file sets the limit."""

ABOUT = 0.1
NUMBERS: tuple[Kind, ...] = ("value", "up to", "at least", "over", "distribution")


class PaperError(ValueError):
    """The table of a paper is wrong, or has no such row."""


class Printed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row."""

    id: str
    section: str
    says: str
    """The meaning of the number, in our words."""
    kind: Kind = "value"
    printed: str = ""
    """As printed; of a trend nothing."""
    quoted: str = ""
    """A few words of the paper with the number in them; of a distribution, the head of its column.
    [J] and [S] have them."""
    value: float | None = None
    """Where `printed` is a word, or has a unit that is not ours."""
    unit: str = ""
    place: float = 0.0
    """Worth of the last digit that counts, where it is not the last that is printed."""
    place_from: str = ""
    """The source of `place`."""
    tolerance_from: Source = "printed digits"
    sigma: float = 0.0
    """Standard deviation of a run, as printed beside the number."""
    runs: int = -1
    """Runs behind the number; 0: not a mean of runs; -1: as many as the paper says for all."""
    bins: list[float] = []
    """Of a distribution: the printed counts."""
    same_as: str = ""
    """The row of another paper that prints the same."""
    unjudged: str = ""
    """Why no experiment compares it."""
    follows_from: str = ""
    """The settings or the shape of a tree that give the number by arithmetic, whatever happens in
    a run.  Such a number is printed, and is no result of runs."""
    of_all: bool = False
    """Whether the paper says it of all its values: then the worst of several experiments counts."""

    @property
    def counts(self) -> bool:
        """Whether the paper prints a number here, be it a result of runs or not."""
        return self.kind in NUMBERS

    @property
    def number(self) -> float:
        """The printed number; 0, the distance from itself, of a distribution."""
        if self.kind == "distribution":
            return 0.0
        if self.value is not None:
            return self.value
        return float(self.printed.replace(",", ""))

    @property
    def last_place(self) -> float:
        """The value of one unit of the last printed digit."""
        if self.place:
            return self.place
        _, point, decimals = self.printed.partition(".")
        return float(f"1e-{len(decimals)}") if point else 1.0

    @property
    def tolerance(self) -> float:
        """How far our value may be from the printed number, in its unit."""
        if self.kind == "distribution":  # counts are printed as whole numbers, compared in percent
            return 50 / sum(self.bins)
        match self.tolerance_from:
            case "printed digits":
                return self.last_place / 2
            case "the word about":
                return ABOUT * abs(self.number)
            case _:
                return 0.0


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One paper."""

    paper: str
    title: str
    runs: int
    """Runs behind each mean, as the paper says."""
    runs_from: str
    """The place in the paper that says so."""
    sigma_share: float = 0.0
    """The largest standard deviation of a run that the paper saw, as a share of the mean."""
    interval_share: float = 0.0
    """The widest confidence interval that the paper saw, as a share of the mean."""
    interval_confidence: float = CONFIDENCE
    """The confidence of the paper's intervals."""
    number: list[Printed]

    def spread_share(self, row: Printed) -> float:
        """Half the 95 % interval of one of the paper's means, as a share of it; 0: not printed."""
        if row.sigma or row.runs == 0:
            return 0.0
        if self.interval_share:
            freedom = self.runs - 1
            wider = critical_value(freedom, self.interval_confidence) / critical_value(freedom)
            return self.interval_share / wider
        return interval(self.sigma_share, self.runs)

    def spread(self, row: Printed) -> float:
        """Half the interval of the paper's mean, from the σ that is printed with it."""
        return interval(row.sigma, self.runs_of(row)) if row.sigma else 0.0

    def runs_of(self, row: Printed) -> int:
        """The runs behind one row."""
        return self.runs if row.runs < 0 else row.runs


@cache
def papers() -> dict[str, Paper]:
    """The papers by their letters, in the order of their age here: J, S, B, T, N."""
    folder = files("cubecast.lab") / "papers"
    found = [_read((folder / f"{letter}.toml").read_text("utf-8"), letter) for letter in "JSBTN"]
    _check([one for paper in found for one in paper.number])
    return {paper.paper: paper for paper in found}


def _read(text: str, letter: str) -> Paper:
    try:
        paper = msgspec.convert(tomllib.loads(text), Paper)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise PaperError(f"{letter}.toml: {error}") from None
    for one in paper.number:
        if not one.id.startswith(f"{letter}."):
            raise PaperError(f"{letter}.toml: {one.id}: an id begins with {letter}.")
    return paper


def _check(found: Iterable[Printed]) -> None:
    known: dict[str, Printed] = {}
    for one in found:
        if one.id in known:
            raise PaperError(f"{one.id}: is there twice")
        known[one.id] = one
    for one in known.values():
        if problem := _problem(one, known):
            raise PaperError(f"{one.id}: {problem}")


def _problem(one: Printed, known: dict[str, Printed]) -> str:
    if one.kind == "distribution":
        if not one.bins or one.printed:
            return "a distribution has bins, and no number printed"
    elif bool(one.bins) or (one.kind == "trend") == bool(one.printed):
        return "all but a trend and a distribution have a number printed"
    if one.counts:
        if not math.isfinite(_number_of(one)):
            return f"{one.printed!r} is no number: give its value"
        if one.tolerance_from == "limit of ours" and one.kind != "over":
            return "a printed number has no limit of ours"
    if bool(one.place) != bool(one.place_from):
        return "place needs place_from, and place_from place"
    if one.follows_from and not one.counts:
        return "follows_from is of a printed number"
    if one.same_as and (one.same_as not in known or known[one.same_as].same_as):
        return f"same_as: no row {one.same_as!r} of its own"
    if one.same_as and one.follows_from != known[one.same_as].follows_from:
        return f"follows_from is not that of {one.same_as}"
    return ""


def _number_of(one: Printed) -> float:
    try:
        return one.number
    except ValueError:
        return math.nan


@cache
def rows() -> dict[str, Printed]:
    """All rows of all papers, by id."""
    return {one.id: one for paper in papers().values() for one in paper.number}


def row(ident: str) -> Printed:
    """One row; `PaperError` if there is none."""
    try:
        return rows()[ident]
    except KeyError:
        raise PaperError(f"no paper has a row {ident!r}") from None


def paper_of(ident: str) -> Paper:
    """The paper that a row is from."""
    return papers()[ident.partition(".")[0]]
