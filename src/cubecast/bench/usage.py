"""Memory and processor time of processes, as the system counts them."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

MEMORY_LIMIT = 2**31
"""When one process holds more than this, publishers stop early, so as not to end the machine."""
SHARE_LIMIT = 0.5
"""The same when all processes together hold this share of the machine's memory."""


def resident_bytes(pid: int | Literal["self"] = "self") -> int | None:
    """Memory in use by a process; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def cpu_seconds() -> float:
    """User and system time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds_of(pids: Sequence[int]) -> float | None:
    """User and system time of other processes so far; None where the system does not tell."""
    ticks = 0
    try:
        for pid in pids:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of all processes at one moment, in bytes."""

    at: float
    total: int
    largest: int


class MemoryWatch:
    """Looks at the memory of processes now and then, and has publishers stopped beyond a limit."""

    def __init__(self, pids: Sequence[int], stop: Callable[[], None]) -> None:
        self._pids = pids
        self._stop = stop
        self._total_limit = SHARE_LIMIT * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.looks: list[MemorySample] = []
        self.exceeded = False

    def look(self) -> None:
        """Note the memory in use; without /proc there is nothing to note."""
        sizes = [resident_bytes(pid) for pid in self._pids]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return
        look = MemorySample(time.monotonic(), sum(known), max(known))
        self.looks.append(look)
        if look.largest > MEMORY_LIMIT or look.total > self._total_limit:
            self.exceeded = True
            self._stop()

    def metrics(self, warm_from: float) -> dict[str, float]:
        """Start (once warm), half time, end and largest in MB, and growth; of looks taken so far.

        The last look is the one at which publishing had ended everywhere: what is still queued
        then is in it.
        """
        looks = [look for look in self.looks if look.at >= warm_from] or self.looks[-1:]
        if not looks:
            return {}
        first, last = looks[0], looks[-1]
        middle = min(looks, key=lambda look: abs(look.at - (first.at + last.at) / 2))
        grown_s = last.at - first.at
        return {
            "rss_start_mb": first.total / 1e6,
            "rss_half_mb": middle.total / 1e6,
            "rss_end_mb": last.total / 1e6,
            "rss_largest_mb": max(look.largest for look in looks) / 1e6,
            "rss_growth_mb_per_s": (last.total - first.total) / 1e6 / grown_s if grown_s else 0.0,
        }
