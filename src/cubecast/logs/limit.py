"""A limit on how often a log repeats records of one kind.

Records of one kind come from one call: the same logger, level, place in the source and template.
Of each kind the first `burst` in `every_s` seconds go out; the others are counted, and the count
goes out when that time is over.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Kind: TypeAlias = tuple[str, int, str, int, str]

BURST = 10
EVERY_S = 10.0
MOST_KINDS = 512
"""Kinds that are counted at a time; one more and the oldest is written and forgotten."""
MOST_OF_SAMPLE = 500
"""Characters that are kept of a line that stands for others."""


def kind_of(record: logging.LogRecord) -> Kind:
    """The kind of `record`: what it shares with records that differ only in arguments."""
    template = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
    return record.name, record.levelno, record.pathname, record.lineno, template


class HeldBack(NamedTuple):
    """How many records of a kind were held back, in how many seconds; `sample` went out."""

    kind: Kind
    number: int
    seconds: float
    sample: str


@dataclass(slots=True)
class _Window:
    began: float
    seen: int = 0
    held: int = 0
    sample: str = ""


class Limit:
    """Counts records by kind; times are of the monotonic clock."""

    def __init__(self, burst: int = BURST, every_s: float = EVERY_S) -> None:
        if burst < 1 or not every_s > 0:
            raise ValueError(f"burst must be at least 1 and every_s above 0: {burst}, {every_s}")
        self._burst = burst
        self._every_s = every_s
        self._windows: dict[Kind, _Window] = {}  # in the order in which they began
        self.holding = 0
        """Records that were held back and whose count is not written yet."""

    def admits(self, kind: Kind, now: float) -> bool:
        """Whether one more of this kind may go out; call `over` first."""
        window = self._windows.setdefault(kind, _Window(now))
        if window.seen < self._burst:
            window.seen += 1
            return True
        window.held += 1
        self.holding += 1
        return False

    def went_out(self, kind: Kind, text: str) -> None:
        """`text` stands for those of its kind that are held back."""
        if (window := self._windows.get(kind)) is not None:
            window.sample = text[:MOST_OF_SAMPLE]

    def over(self, now: float, *, all_of_them: bool = False) -> list[HeldBack]:
        """End the windows whose time is over, or all of them; what they held back."""
        ended: list[HeldBack] = []
        while self._windows:
            kind, window = next(iter(self._windows.items()))
            early = window.began + self._every_s > now and len(self._windows) < MOST_KINDS
            if early and not all_of_them:
                break  # the others began later
            del self._windows[kind]
            if window.held:
                self.holding -= window.held
                ended.append(HeldBack(kind, window.held, now - window.began, window.sample))
        return ended
