"""Mappings: the columns of a trace, and how its cells are written.

A mapping is plain data: it is checked when it is made, sent to Spark's workers as it is, and kept
in the manifest of the universe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from cubecast.spark.universe.errors import UniverseTraceError

Kind = Literal["subscriptions", "publications"]
Column = int | str
"""By position, from 0, or by the name that the header, the JSON key or the Parquet column has."""

SEPARATORS = {"csv": ",", "tsv": "\t", "ssv": " "}
TEXT_FORMATS = (*SEPARATORS, "text", "lists")
FORMATS = (*TEXT_FORMATS, "json", "parquet")
NAMED_SEPARATORS = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
WHITESPACE = "whitespace"
"""As a separator: any run of blanks and tabs."""
TIME_UNITS = ("s", "ms", "us", "iso")
FIELDS: dict[Kind, tuple[str, ...]] = {
    "subscriptions": ("user", "topic"),
    "publications": ("post", "time", "user", "topic", "reply_to"),
}
NEEDED: dict[Kind, tuple[str, ...]] = {
    "subscriptions": ("user", "topic"),
    "publications": ("topic",),
}
LISTS = ("topic", "reply_to")
"""Fields of a publication that may hold several ids."""
IDS = ("user", "topic", "post", "reply_to")


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A row counts only if a cell matches the whole of a regular expression, or does not."""

    column: Column
    pattern: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.column}{'!=' if self.negated else '='}{self.pattern}"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Where the fields of a trace are, and how to read them.

    A field of several columns is a name made of all of them, joined with ``/``; of a list only the
    last of its columns is the list, and the others are common to its items.
    """

    kind: Kind
    columns: Dict[str, tuple[Column, ...]] = field(default_factory=dict)
    format: str = "csv"
    separator: str | None = None
    """Between cells; None: the default of the format."""
    header: bool = False
    """The first line of each file names the columns."""
    quote: str | None = None
    """Encloses a cell that holds a separator; None is ``"`` in CSV and nothing elsewhere."""
    list_separator: str | None = None
    """Between the items of a list in a cell; None: a cell is one item."""
    nothing: str | None = None
    """The text of a cell for the empty list (an empty cell of `reply_to` means: not known)."""
    names: frozenset[str] = frozenset()
    """The fields whose ids are text: they are numbered."""
    time_unit: str = "s"
    comment: str | None = None
    """A line that begins with it is no row."""
    width: int | None = None
    """Columns of a row; None: as many as the header has, or else the first row."""
    conditions: tuple[RowCondition, ...] = ()

    def __post_init__(self) -> None:
        check(self)

    @property
    def cell_separator(self) -> str:
        return self.separator or SEPARATORS.get(self.format, "\t")

    @property
    def cell_quote(self) -> str | None:
        if self.quote == "":
            return None
        return self.quote or ('"' if self.format == "csv" else None)

    def is_name(self, one: str) -> bool:
        """Whether ids of this field are text; replies name posts."""
        if one == "reply_to":
            return self.is_name("post") if "post" in self.columns else False
        return one in self.names or len(self.columns.get(one, ())) > 1

    def facts(self) -> dict[str, Any]:
        """For the manifest: sorted, plain."""
        found = asdict(self)
        found["names"] = sorted(self.names)
        found["columns"] = {name: list(self.columns[name]) for name in sorted(self.columns)}
        found["conditions"] = [str(one) for one in self.conditions]
        return found


def check(mapping: Mapping) -> None:
    """Raise `UniverseTraceError` if a mapping is not valid."""
    if mapping.kind not in FIELDS:
        raise UniverseTraceError(f"a trace holds {' or '.join(FIELDS)}, not {mapping.kind!r}")
    if mapping.format not in FORMATS:
        raise UniverseTraceError(f"format {mapping.format!r}: must be one of {', '.join(FORMATS)}")
    if mapping.time_unit not in TIME_UNITS:
        raise UniverseTraceError(
            f"time unit {mapping.time_unit!r}: must be {', '.join(TIME_UNITS)}"
        )
    if mapping.format == "lists":
        if mapping.columns or mapping.kind != "subscriptions":
            raise UniverseTraceError(
                "format lists: a row is a topic, its cells are users; no columns"
            )
        return
    _check_columns(mapping)
    if mapping.format in TEXT_FORMATS:
        _check_text(mapping)
    for condition in mapping.conditions:
        try:
            re.compile(condition.pattern)
        except re.error as error:
            raise UniverseTraceError(f"where {condition}: {error}") from None


def _check_columns(mapping: Mapping) -> None:
    known, needed = FIELDS[mapping.kind], NEEDED[mapping.kind]
    for name, columns in mapping.columns.items():
        if name not in known:
            raise UniverseTraceError(
                f"columns: {mapping.kind} have {', '.join(known)}, no {name!r}"
            )
        if not columns or any(isinstance(one, int) and one < 0 for one in columns):
            raise UniverseTraceError(f"columns: {name} needs a name or a position from 0")
    missing = [name for name in needed if name not in mapping.columns]
    if missing:
        raise UniverseTraceError(
            f"columns: {mapping.kind} need {' and '.join(missing)}, as in "
            + ",".join(f"{name}={number}" for number, name in enumerate(needed))
        )
    for name in mapping.names:
        if name not in IDS or name not in mapping.columns:
            raise UniverseTraceError(
                f"names: {name!r} is no column with ids; there are {_ids(mapping)}"
            )
    replies, posts = mapping.columns.get("reply_to", ()), mapping.columns.get("post", ())
    if replies and not posts:
        raise UniverseTraceError("columns: reply_to names posts, so post must be mapped, too")
    if replies and len(replies) != len(posts):
        raise UniverseTraceError("columns: reply_to and post must be made of equally many columns")


def _ids(mapping: Mapping) -> str:
    return ", ".join(name for name in IDS if name in mapping.columns)


def _check_text(mapping: Mapping) -> None:
    by_name = sorted(
        str(one)
        for columns in (*mapping.columns.values(), [c.column for c in mapping.conditions])
        for one in columns
        if isinstance(one, str)
    )
    if by_name and not mapping.header:
        raise UniverseTraceError(
            f"columns by name ({', '.join(by_name)}) need a header in the file"
        )
    if mapping.separator == "":
        raise UniverseTraceError("the separator is empty")
    quote = mapping.cell_quote
    if quote is not None and (len(quote) != 1 or quote in mapping.cell_separator):
        raise UniverseTraceError(f"quote {quote!r}: must be one character, and not the separator")
    if quote is not None and len(mapping.cell_separator) != 1:
        raise UniverseTraceError(
            "cells in quotes need a separator of one character; drop one of the two"
        )
    if mapping.list_separator == "" or mapping.list_separator == mapping.cell_separator:
        raise UniverseTraceError(
            "the separator of lists must differ from that of cells, and not be empty"
        )


def parse_columns(text: str) -> dict[str, tuple[Column, ...]]:
    """``user=0,topic=1``, ``user=login,topics=tags``, ``user=0+4`` (a name of two columns)."""
    found: dict[str, tuple[Column, ...]] = {}
    for one in text.split(","):
        name, equals, columns = one.partition("=")
        name = {"topics": "topic", "replies": "reply_to"}.get(name.strip(), name.strip())
        parts = [part.strip() for part in columns.split("+")]
        if not equals or not name or not all(parts):
            raise UniverseTraceError(f"columns {one!r}: must be FIELD=COLUMN, as in user=0,topic=1")
        if name in found:
            raise UniverseTraceError(f"columns: {name} is there twice")
        found[name] = tuple(int(part) if part.isdecimal() else part for part in parts)
    return found


def parse_condition(text: str) -> RowCondition:
    """``0=REVISION`` or ``6!=ip:.*``."""
    match = re.fullmatch(r"([^=!]+)(!?=)(.*)", text)
    if match is None:
        raise UniverseTraceError(f"where {text!r}: must be COLUMN=PATTERN or COLUMN!=PATTERN")
    column, sign, pattern = match.groups()
    column = column.strip()
    return RowCondition(int(column) if column.isdecimal() else column, pattern, sign == "!=")


def parse_separator(text: str) -> str:
    """A separator as it is typed: itself, ``\\t``, or its name."""
    return NAMED_SEPARATORS.get(text, text.replace("\\t", "\t"))


def changed(mapping: Mapping, **changes: Any) -> Mapping:
    """The same mapping with the given values that are not None."""
    return replace(mapping, **{name: value for name, value in changes.items() if value is not None})
