"""The wall clock, for what people are told: when a message was published.

Nothing waits for it, and it orders nothing but concurrent retained values (`retained.py`); delays
are of the loop's monotonic clock.  So it may be wrong, or be set while a node runs.
"""

from __future__ import annotations

import time


def wall_us() -> int:
    """Microseconds since 1970; a clock that shows an earlier time counts as showing 1970.

    The wire has no room for a sign.
    """
    return max(0, time.time_ns() // 1000)
