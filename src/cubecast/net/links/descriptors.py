"""File descriptors: how many connections the process has room for, and which close first.

Every connection takes a descriptor, and the operating system gives a process only so many
(`RLIMIT_NOFILE`).  A node that has none left can neither dial nor accept a member.  So half of the
descriptors left at the start are kept for members and for the application; light clients and
strangers share the other half.  If descriptors run out all the same (the application may use
them), connections of strangers are closed first, the oldest before the others.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("cubecast")

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""Errors that say that the process or the system has no room for one more connection."""
SAY_EVERY_S = 10.0
"""How often running out of descriptors is logged."""
FEW_CLIENTS = 256
"""If there is room for fewer clients than this, the log warns."""
LEAST_STRANGERS = 16
"""A few handshakes at a time are possible however low the limit is."""


class Places(NamedTuple):
    """How many connections of each kind a node takes."""

    strangers: int
    clients: int


def is_exhausted(error: OSError) -> bool:
    """Whether an error says that there is no room for one more connection."""
    return error.errno in EXHAUSTED


def descriptor_limit() -> int:
    """How many descriptors the process may have; `sys.maxsize` if that is not known."""
    try:
        import resource
    except ImportError:  # not on Windows
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def descriptors_in_use() -> int:
    """How many the process has now; 0 if that is not known."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0


def places(max_strangers: int, max_clients: int, limit: int, used: int) -> Places:
    """As many strangers and clients as asked for, or as fit half of the descriptors left."""
    room = max(0, limit - used) // 2
    if room >= max_strangers + max_clients:
        return Places(max_strangers, max_clients)
    strangers = min(max_strangers, max(LEAST_STRANGERS, room // 4))
    return Places(strangers, min(max_clients, max(0, room - strangers)))


def find_places(max_strangers: int, max_clients: int) -> Places:
    """The `places` of this process; the log says so if they are fewer than asked for.

    It warns below `FEW_CLIENTS` only: many systems have no room for the defaults.
    """
    limit, used = descriptor_limit(), descriptors_in_use()
    found = places(max_strangers, max_clients, limit, used)
    if found != (max_strangers, max_clients):
        level = logging.WARNING if found.clients < FEW_CLIENTS else logging.INFO
        log.log(
            level,
            "the process may open %d files and has %d: the node takes %d clients (max_clients is "
            "%d) and %d strangers (max_strangers is %d), to have room for members; for all of them "
            "raise the limit to %d (ulimit -n)",
            limit, used, found.clients, max_clients, found.strangers, max_strangers,
            used + 2 * (max_strangers + max_clients),
        )  # fmt: skip
    return found


class Shortage:
    """Logs, at most every `SAY_EVERY_S`, that descriptors have run out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said_at = -SAY_EVERY_S
        self.count = 0
        """How often it was noticed."""

    def notice(self, what: str, error: OSError) -> None:
        """`what` could not be done for want of a descriptor."""
        self.count += 1
        now = self._clock()
        if now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            log.error(
                "cannot %s: %s (%d times so far; the process may open %d files: ulimit -n)",
                what, error.strerror or error, self.count, descriptor_limit(),
            )  # fmt: skip
