"""Sets of nodes as binary tries, and the members of clusters that follow from them.

A set is 2^(d+1) bits: bit 2^d + i says whether node i belongs to it, bit p whether anything below
does (2p or 2p + 1).  So the first member of a cluster, the one with the least XOR distance from j,
is found by going down from the cluster's block and keeping to the side of j wherever that side
holds a member ([J] 3.3, CHILDREN): no table of children is kept.
"""

from __future__ import annotations

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.shared.jit import apart, inlined
from cubecast.kernel.static.layout import SIZE


@inlined
def _bit(m: Longs, members: int, place: int) -> bool:
    return bool((m[members + (place >> 6)] >> (place & 63)) & 1)


@inlined
def is_in(m: Longs, members: int, node: int) -> bool:
    """Whether `node` belongs to the set that begins at `members`."""
    return _bit(m, members, m[SIZE] + node)


@inlined
def any_in_block(m: Longs, members: int, node: int, k: int) -> bool:
    """Whether the aligned block of 2^k ids around `node` holds a member."""
    return _bit(m, members, (m[SIZE] + node) >> k)


@apart
def nearest(m: Longs, members: int, j: int, k: int) -> int:
    """The member with the least XOR distance from j, of the block of 2^k ids; it has one."""
    size = m[SIZE]
    if _bit(m, members, size + j):
        return j
    place = (size + j) >> k
    while k > 0:
        k -= 1
        place = 2 * place + ((j >> k) & 1)
        if not _bit(m, members, place):
            place ^= 1
    return int(place - size)
