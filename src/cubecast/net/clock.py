"""The wall clock, which tells people when a message was published.

No wait depends on it, and it orders only concurrent retained values (`value_keeper.py`); delays use
the loop's monotonic clock.  So it may be wrong, or be set while a node runs.
"""

from __future__ import annotations

import time


def wall_us() -> int:
    """Microseconds since 1970; an earlier time counts as 1970.

    The wire has no room for a sign.
    """
    return max(0, time.time_ns() // 1000)
