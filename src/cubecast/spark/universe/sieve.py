"""The rows of a block while they are judged: good ones so far, bad ones, and the reasons.

Every row that enters a sieve leaves it exactly once: good, bad with a reason, or skipped (it is
part of the file but no row of the trace, or is not asked for).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from cubecast.spark.universe.values import Mask, Problems

LONGEST_SHOWN = 1 << 16
"""Characters of a bad row that the quarantine keeps; what is cut is counted there."""


class Sieve:
    """`columns` are as long as `live`, the positions of the rows that are good so far."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.live = np.arange(len(raw), dtype=np.int64)
        self.columns: dict[str, Any] = {}
        self.bad: list[tuple[np.typing.NDArray[np.int64], str]] = []
        self.skipped: Counter[str] = Counter()

    def refuse(self, mask: Mask, reason: str) -> None:
        """Mark rows as bad."""
        if mask.any():
            self.bad.append((self.live[mask], reason))
            self._drop(mask)

    def refuse_all(self, problems: Problems, what: str = "") -> None:
        """The same for several problems, of the field `what`; of a row the first one counts."""
        gone = np.zeros(len(self.live), dtype=np.bool_)
        for mask, reason in problems:
            new = mask & ~gone
            if new.any():
                self.bad.append((self.live[new], f"{what} {reason}".lstrip()))
                gone |= new
        if gone.any():
            self._drop(gone)

    def skip(self, mask: Mask, why: str) -> None:
        """Mark rows as skipped."""
        number = int(mask.sum())
        if number:
            self.skipped[why] += number
            self._drop(mask)

    def _drop(self, mask: Mask) -> None:
        keep = ~mask
        self.live = self.live[keep]
        arrow = pa.array(keep)
        self.columns = {name: column.filter(arrow) for name, column in self.columns.items()}

    def bad_rows(self) -> tuple[np.typing.NDArray[np.int64], list[str], list[str]]:
        """Positions, texts and reasons of the bad rows, in the order of the file."""
        if not self.bad:
            return np.zeros(0, dtype=np.int64), [], []
        positions = np.concatenate([where for where, _ in self.bad])
        reasons = [reason for where, reason in self.bad for _ in range(len(where))]
        order = np.argsort(positions, kind="stable")
        texts = self.raw.take(pa.array(positions[order])).to_pylist()
        return positions[order], [shown(text) for text in texts], [reasons[i] for i in order]


def shown(row: bytes | str | None) -> str:
    """A bad row as text; bytes that are no UTF-8 are written as \\xNN."""
    if row is None:
        return ""
    text = row if isinstance(row, str) else row.decode("utf-8", "backslashreplace")
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}… ({len(text) - LONGEST_SHOWN:,} more characters)"
