"""Python's generator of random numbers inside the kernel: MT19937, as `random.Random` has it.

The state is taken from a `Random` seeded as the reference seeds it, so the delays drawn are the
same.
"""

from __future__ import annotations

import numpy as np

from cubecast.kernel.jit import apart, inlined
from cubecast.kernel.layout import TWIST, State

LENGTH = 624
SHIFT = 397


@apart
def _twist(w: State) -> None:
    """The next 624 numbers."""
    mt = w.twister
    for k in range(LENGTH):
        y = (np.int64(mt[k]) & 0x80000000) | (np.int64(mt[(k + 1) % LENGTH]) & 0x7FFFFFFF)
        value = np.int64(mt[(k + SHIFT) % LENGTH]) ^ (y >> 1)
        if y & 1:
            value ^= 0x9908B0DF
        mt[k] = np.uint32(value)
    w.s[TWIST] = 0


@inlined
def _number(w: State) -> int:
    """32 random bits."""
    if w.s[TWIST] >= LENGTH:
        _twist(w)
    y = np.int64(w.twister[w.s[TWIST]])
    w.s[TWIST] += 1
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    return y


@apart
def random(w: State) -> float:
    """``random.Random.random()``."""
    a = _number(w) >> 5
    b = _number(w) >> 6
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0)
