"""Which branches of recovery were taken, and how often: for tests, nothing depends on it.

A branch that no test takes is a branch that nobody knows to work: `tests/protocol/test_marks.py`
requires that each name in this package is counted at least once.
"""

from __future__ import annotations


class Marks(dict[str, int]):
    """Counts by name; off the hot path only."""

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0
