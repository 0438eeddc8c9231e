"""Cells become ids and times, or a reason why not; whole columns at once.

A function here takes a column of text (null: no cell) and gives the values, null where there is
none, and the problems: rows as a mask, and the reason.  A row has a value or exactly one problem.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.typing.NDArray[np.bool_]
Problems = list[tuple[Mask, str]]

HIGHEST_ID = 2**63 - 1
SAFE_DIGITS = 18
"""So many digits always fit 64 bits."""
UTC_TIME = pa.timestamp("us", tz="UTC")
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 10**6
_LATEST = (int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1) * 10**6 - 1
"""The first and the last microsecond that can be told: of the years 1 and 9999."""
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
OUT_OF_RANGE = "is out of range"


def as_mask(array: Any) -> Mask:
    """A Boolean column as numpy has it; null is False."""
    return np.asarray(pc.fill_null(array, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _one_by_one(
    cells: Any, easy: Mask, values: Any, read: Callable[[str], int | str], type_: Any
) -> tuple[Any, Problems]:
    """Read the cells that are not `easy` in Python; `read` gives a value or a reason."""
    hard = np.flatnonzero(~easy)
    numbers = values.to_numpy(zero_copy_only=False).astype(np.int64)
    problems: dict[str, list[int]] = {}
    for position, cell in zip(hard.tolist(), cells.take(pa.array(hard)).to_pylist(), strict=True):
        found = "is empty" if cell is None else read(cell)
        if isinstance(found, str):
            problems.setdefault(found, []).append(position)
        else:
            numbers[position] = found
    bad = np.zeros(len(cells), dtype=np.bool_)
    told: Problems = []
    for reason, positions in problems.items():
        mask = np.zeros(len(cells), dtype=np.bool_)
        mask[positions] = True
        bad |= mask
        told.append((mask, reason))
    return pa.array(numbers, pa.int64(), mask=bad).cast(type_), told


def whole_numbers(cells: Any) -> tuple[Any, Problems]:
    """Ids: whole numbers from 0 to 2^63 - 1; blanks around them do not count."""
    easy = as_mask(
        pc.and_(pc.ascii_is_decimal(cells), pc.less_equal(pc.binary_length(cells), SAFE_DIGITS))
    )
    if easy.all():
        return cells.cast(pa.int64()), []
    safe = pc.if_else(pa.array(easy), cells, "0").cast(pa.int64())
    return _one_by_one(cells, easy, safe, _read_id, pa.int64())


def _read_id(cell: str) -> int | str:
    text = cell.strip(" ")
    if not text:
        return "is empty"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        return "is no whole number"
    if digits != text:
        return "is negative"
    digits = digits.lstrip("0") or "0"
    # The length first: Python refuses to read numbers of thousands of digits.
    fits = len(digits) <= SAFE_DIGITS + 1 and int(digits) <= HIGHEST_ID
    return int(digits) if fits else "does not fit 64 bits"


def names(cells: Any) -> tuple[Any, Problems]:
    """Ids that are text: any but the empty one."""
    empty = ~as_mask(pc.greater(pc.binary_length(cells), 0))
    if not empty.any():
        return cells, []
    return pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), cells), [(empty, "is empty")]


def times(cells: Any, unit: str) -> tuple[Any, Problems]:
    """Moments in UTC: seconds, milliseconds or microseconds since 1970, or ISO 8601.

    A time without a zone is in UTC.  Years 1 to 9999 can be told.
    """
    if unit == "iso":
        return _iso_times(cells)
    # Ten digits, even of seconds, are in the range that can be told.
    easy = as_mask(pc.and_(pc.ascii_is_decimal(cells), pc.less_equal(pc.binary_length(cells), 10)))
    micros = pc.multiply(
        pc.if_else(pa.array(easy), cells, "0").cast(pa.int64()), _MICROSECONDS[unit]
    )
    if easy.all():
        return micros.cast(UTC_TIME), []

    def read(cell: str) -> int | str:
        return _read_number_of(cell, _MICROSECONDS[unit], unit)

    return _one_by_one(cells, easy, micros, read, UTC_TIME)


def _read_number_of(cell: str, micros: int, unit: str) -> int | str:
    text = cell.strip(" ")
    if not text:
        return "is empty"
    try:
        number = Decimal(text)
    except InvalidOperation:
        return f"is no number of {unit}"
    if not number.is_finite():
        return f"is no number of {unit}"
    if abs(number) > _LATEST:
        return OUT_OF_RANGE
    found = int(number * micros)
    return found if _EARLIEST <= found <= _LATEST else OUT_OF_RANGE


def moments(stamps: Any) -> tuple[Any, Problems]:
    """Timestamps of Parquet, of any unit, as moments in UTC; one without a zone is in UTC.

    The range is checked before the cast: microseconds of a later moment may not fit 64 bits.
    """
    missing = as_mask(stamps.is_null())
    inside = _in_range(stamps)
    problems = [(missing, "is empty"), (~inside & ~missing, OUT_OF_RANGE)]
    if not inside.all():
        stamps = pc.if_else(pa.array(inside), stamps, pa.scalar(None, stamps.type))
    # Nanoseconds lose what is below a microsecond.
    return stamps.cast(UTC_TIME, safe=False), [one for one in problems if one[0].any()]


def _in_range(stamps: Any) -> Mask:
    """Which timestamps are in the years 1 to 9999; null is not."""
    if stamps.type.unit == "ns":  # all of 64 bits are: the years 1677 to 2262
        return as_mask(stamps.is_valid())
    micros = _MICROSECONDS[stamps.type.unit]
    numbers = stamps.cast(pa.int64())
    late_enough = pc.greater_equal(numbers, _EARLIEST // micros)
    return as_mask(pc.and_(late_enough, pc.less_equal(numbers, _LATEST // micros)))


def _iso_times(cells: Any) -> tuple[Any, Problems]:
    """Whole columns where all cells are alike; the others, and those out of range, one by one.

    `_read_iso` has the last word on each cell that is refused, so that no verdict depends on the
    other cells.
    """
    for type_ in (UTC_TIME, pa.timestamp("us")):
        try:
            if cells.null_count == 0:
                found = pc.cast(pc.cast(cells, type_), UTC_TIME)
                break
        except pa.ArrowInvalid:
            continue
    else:
        found = pa.nulls(len(cells), UTC_TIME)
    easy = _in_range(found)
    if easy.all():
        return found, []
    numbers = pc.fill_null(found.cast(pa.int64()), 0)
    return _one_by_one(cells, easy, numbers, _read_iso, UTC_TIME)


def _read_iso(cell: str) -> int | str:
    text = cell.strip(" ")
    if not text:
        return "is empty"
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        moment = moment.astimezone(UTC)
    except OverflowError:  # its zone moves it out of the years 1 to 9999
        return OUT_OF_RANGE
    except ValueError:
        return "is no time in ISO 8601"
    whole = int(moment.replace(microsecond=0).timestamp()) * 10**6
    return whole + moment.microsecond
