"""Python's generator of random numbers inside the kernel: MT19937, as `random.Random` has it.

The state is taken from a `Random` seeded as the reference seeds it, so the delays drawn are the
same.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.layout import TWIST, TWISTER_AT

LENGTH = 624
SHIFT = 397


@apart
def _twist(m: Longs) -> None:
    """The next 624 numbers."""
    mt = m[TWISTER_AT]
    for k in range(LENGTH):
        y = (m[mt + k] & 0x80000000) | (m[mt + (k + 1) % LENGTH] & 0x7FFFFFFF)
        value = m[mt + (k + SHIFT) % LENGTH] ^ (y >> 1)
        if y & 1:
            value ^= 0x9908B0DF
        m[mt + k] = value
    m[TWIST] = 0


@inlined
def _number(m: Longs) -> int:
    """32 random bits."""
    if m[TWIST] >= LENGTH:
        _twist(m)
    y = m[m[TWISTER_AT] + m[TWIST]]
    m[TWIST] += 1
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    return int(y)


@apart
def random(m: Longs) -> float:
    """``random.Random.random()``."""
    a = _number(m) >> 5
    b = _number(m) >> 6
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0)
