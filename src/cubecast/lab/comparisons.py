"""Comparisons: which points of a grid are compared with which number of a paper, by reading.

A shipped experiment names a row of `cubecast.lab.papers` for each comparison: the number, its unit
and its tolerance come from there.  A user's own file states them itself.

Where a paper leaves something open, an experiment has several *readings*.  Each is one consistent
choice: settings that hold for all its comparisons, and which metric stands for which.  Every
comparison is made in every reading unless it says in which (`readings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cubecast.lab.cells import Value
from cubecast.lab.intervals import interval
from cubecast.lab.papers.table import PaperError, Printed, paper_of, row

Form = Literal["value", "ratio", "more", "less", "difference", "interval", "deviation"]
"""What is compared: the metric itself, or two points: a/b, a/b - 1, 1 - a/b, a - b; or how far its
runs are apart, as a share of the mean: the 99 % interval of as many runs as the paper has, or the
standard deviation."""
Fold = Literal["", "max", "min", "mean", "log-fit", "linear-fit"]
"""Of many points: the largest, the smallest, their mean, or how well a law fits them (R²)."""
Bound = Literal["equal", "up to", "down to", "at most", "at least"]
"""*up to*: the number is the largest of the paper's, and the largest of ours should be near it.
*at most*: a limit that ours keeps or not; of a number that no paper prints."""

UNKNOWN = "Not known."
"""The beginning of a reason that is not known; what was tried follows, and a grid that shows it."""
_BOUNDS: dict[str, Bound] = {"up to": "up to", "at least": "down to", "over": "at least"}
_FROM_ROW = ("section", "what", "unit", "value", "bound", "tolerance", "absolute", "tolerance_from")
_OF_LIMITS = ("section", "what", "absolute", "tolerance_from")


class PaperReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One consistent way to read the points that a paper leaves open."""

    name: str
    at: dict[str, Value] = {}
    """Settings of all its comparisons, unless a comparison sets them itself."""
    metrics: dict[str, str] = {}
    """{metric: the metric used in its place}."""
    reason: str = ""
    """Why it differs, where a comparison has no reason of its own."""
    shown_by: str = ""


class PaperNumber(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number that a paper prints, and which points of ours are to be compared with it."""

    row: str = ""
    """The row of the papers' table, if it is one of theirs."""
    section: str
    what: str
    value: float
    unit: str = ""
    metric: str
    also: list[str] = []
    """Metrics that are added to it; of a distribution, the other bins."""
    scale: float = 1.0
    """Ours is multiplied by this,"""
    offset: float = 0.0
    """and this is added: 100 and a negative scale give the share of the others."""
    at: dict[str, Value] = {}
    versus: dict[str, Value] = {}
    """The settings of the other point that differ from `at`, where two are compared."""
    versus_metric: str = ""
    """The other metric, where two metrics are compared."""
    form: Form = "value"
    along: str = ""
    """The axis of a curve, with `fold`."""
    over: list[str] = []
    """Axes whose points are all taken, instead of `along`, with `fold`."""
    since: float = 0.0
    """Only the part from here on, of `along` or of the first axis of `over`."""
    until: float = 0.0
    """Only the part up to here; 0: all."""
    fold: Fold = ""
    bound: Bound = "equal"
    """Whether ours should equal the number, or the number is a bound."""
    tolerance: float
    absolute: bool = False
    """Whether the tolerance is in the number's own unit and not a share of it."""
    tolerance_from: str = ""
    """Where the tolerance comes from (`papers.Source`)."""
    longer: float = 1.0
    """How many times as long as ours the paper's runs are: their means vary less by its root."""
    accounting: str = ""
    """The reading, where there is more than one."""
    reason: str = ""
    """Why ours differs, shown where it does; "Not known." where we do not know."""
    shown_by: str = ""
    """The experiment whose grid shows the reason."""

    @property
    def printed(self) -> Printed | None:
        """The row of the papers' table."""
        return row(self.row) if self.row else None

    @property
    def counts(self) -> bool:
        """Whether a paper prints it as a number: claims and limits of ours do not count."""
        return self.printed is None or self.printed.counts

    @property
    def follows(self) -> bool:
        """Whether the number follows from the settings alone, whatever happens in a run."""
        return self.printed is not None and bool(self.printed.follows_from)


class Written(PaperNumber, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A comparison as a file may write it; the rest comes from the row and the readings."""

    part: str = ""
    """Distinguishes several comparisons of one row."""
    readings: list[str] = []
    """The readings in which it is made; empty: all."""
    reasons: dict[str, str] = {}
    """Reading -> why it differs there, where `reason` does not apply."""


def expanded(
    entries: Sequence[Mapping[str, Any]],
    readings: Sequence[PaperReading],
    refuse: Callable[[str, str], Exception],
) -> list[dict[str, Any]]:
    """Every comparison in every reading, filled in from the papers' table.

    The entries are checked for unknown keys already, not for types.
    """
    names = [reading.name for reading in readings]
    for name in names:
        if not name.strip() or names.count(name) > 1:
            raise refuse("reading.name", f"{name!r} is empty or there twice")
    found = []
    for index, entry in enumerate(entries, 1):
        place = f"paper[{index}]"
        filled = _filled(entry, place, refuse)
        wanted = filled.pop("readings", []) or names
        for name in (*wanted, *filled.get("reasons", {})):
            if name not in names:
                raise refuse(f"{place}.readings", f"no reading {name!r}; there are: {names}")
        if readings and "accounting" in filled:
            raise refuse(f"{place}.accounting", "comes from the readings")
        chosen = [one for one in readings if one.name in wanted]
        found += [_read_as(filled, reading) for reading in chosen] if chosen else [filled]
    return found


def _filled(
    entry: Mapping[str, Any], place: str, refuse: Callable[[str, str], Exception]
) -> dict[str, Any]:
    """The entry, filled in from its row of the papers' table."""
    filled = dict(entry)
    part = filled.pop("part", "")
    if "row" not in filled:
        return filled
    try:
        printed = row(str(filled["row"]))
    except PaperError as error:
        raise refuse(f"{place}.row", str(error)) from None
    limit = printed.tolerance_from == "limit of ours"
    for key in _OF_LIMITS if limit else _FROM_ROW:
        if key in filled:
            raise refuse(f"{place}.{key}", "comes from the papers' table")
    what = f"{printed.says}: {part}" if part else printed.says
    filled |= {"section": f"[{printed.id[0]}] {printed.section}", "what": what}
    filled |= {"tolerance_from": printed.tolerance_from, "absolute": True}
    if not limit:
        filled |= {"unit": printed.unit, "value": printed.number, "tolerance": printed.tolerance}
        filled["bound"] = _BOUNDS.get(printed.kind, "equal")
    return filled


def _read_as(filled: Mapping[str, Any], reading: PaperReading) -> dict[str, Any]:
    """The comparison in one reading."""
    number = dict(filled)
    number["accounting"] = reading.name
    number["at"] = {**reading.at, **number.get("at", {})}
    for key in ("metric", "versus_metric"):
        if key in number:
            number[key] = reading.metrics.get(number[key], number[key])
    own = number.pop("reasons", {}).get(reading.name, "")
    if own:
        number["reason"] = own
    elif not number.get("reason"):
        number |= {"reason": reading.reason, "shown_by": reading.shown_by}
    if str(number["reason"]).strip() == UNKNOWN:
        number["shown_by"] = ""  # nothing was tried
    return number


def papers_spread(number: PaperNumber, deviation: float) -> float:
    """How far the paper's own mean may be from the truth, in the number's unit.

    From the σ that is printed with it; else from the widest σ or interval that the paper reports;
    else from ours: a mean of as many runs as the paper made varies as runs of ours do.  `deviation`
    is the standard deviation of one run of ours.
    """
    printed = number.printed
    if printed is None or not printed.counts or number.tolerance_from == "limit of ours":
        return 0.0
    paper = paper_of(number.row)
    if printed.sigma:
        return paper.spread(printed)
    runs = paper.runs_of(printed)
    if runs < 2:
        return 0.0
    if share := paper.spread_share(printed):
        return share * _size(number, printed.number)
    return interval(deviation / math.sqrt(number.longer), runs)


def _size(number: PaperNumber, value: float) -> float:
    """The base of a share of a mean: if two means are compared, both vary."""
    unit = 100.0 if number.unit == "%" else 1.0
    match number.form:
        case "more":
            return 2**0.5 * abs(unit + value)
        case "less":
            return 2**0.5 * abs(unit - value)
        case "ratio":
            return 2**0.5 * abs(value)
        case _:
            return abs(value)
