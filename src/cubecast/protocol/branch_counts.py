"""Counts of the branches of recovery that were taken: for tests, nothing depends on them.

A place in the code that counts is `marks[name] += 1`.  A branch that no test takes
may not work: `tests/protocol/test_branch_counts.py` requires that each name in this package is
counted at least once.
"""

from __future__ import annotations


class BranchCounts(dict[str, int]):
    """Counts by name; off the hot path only."""

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0
