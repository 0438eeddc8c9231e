"""Addresses from which a node was called to another view: which of them it follows again.

A node that is told at an agreed address of a view that outranks its own leaves its view and asks
for a place there (`cubecast.protocol.cluster.belief`).  The view may be a lie, or its leader may
let no node in.  So a call is in vain if the node does not come to a view with that address.  The
first one may be bad luck; after the others the address is not followed for `alone_after`, then for
twice and at most for `LONGEST` times as long.  That is short enough for the members of a view whose
leader is mute: they remember who asked for a place.

Bounds: at most `MAX_CALLERS` addresses are remembered, the latest.
"""

from __future__ import annotations

from cubecast.protocol.cluster.views import View
from cubecast.protocol.port import Time

LONGEST = 4
"""Times `alone_after` that an address is not followed, at most."""
MAX_CALLERS = 256


class Callers:
    """The calls in vain of one node, by address."""

    __slots__ = ("_followed", "_pause", "_until", "_vain")

    def __init__(self, pause: Time) -> None:
        self._pause = pause
        self._followed = ""
        self._vain: dict[str, int] = {}
        self._until: dict[str, Time] = {}

    def may_call(self, address: str, now: Time) -> bool:
        """Whether to follow a call from an address now."""
        return now >= self._until.get(address, now)

    def follow(self, address: str) -> None:
        """Note that we leave our view because of this address."""
        self._followed = address

    def arrived(self, view: View, now: Time) -> None:
        """Note in which view we are then; perhaps alone."""
        address, self._followed = self._followed, ""
        if not address:
            return
        vain = self._vain.pop(address, 0) + 1
        self._until.pop(address, None)
        if address in view.places:
            return
        self._vain[address] = vain
        if vain > 1:
            self._until[address] = now + self._pause * min(1 << min(vain - 2, LONGEST), LONGEST)
        while len(self._vain) > MAX_CALLERS:
            oldest = next(iter(self._vain))
            del self._vain[oldest]
            self._until.pop(oldest, None)
