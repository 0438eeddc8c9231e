"""Sets of nodes as binary tries, and the children that follow from them.

A set is 2^(d+1) bytes at an offset of `State.sets`: byte 2^d + i says whether node i belongs to
it, byte p whether anything below does (2p or 2p + 1).  So the first member of a cluster, the
member with the least XOR distance from j, is found by going down from the cluster's block and
keeping to the side of j wherever that side holds anybody ([J] 3.3, CHILDREN): no table of
children is kept.
"""

from __future__ import annotations

from cubecast.kernel.jit import inlined
from cubecast.kernel.layout import SIZE, State


@inlined
def is_in(w: State, members: int, node: int) -> bool:
    """Whether `node` belongs to the set at offset `members`."""
    return w.sets[members + w.s[SIZE] + node] != 0


@inlined
def any_in_block(w: State, members: int, node: int, k: int) -> bool:
    """Whether the aligned block of 2^k ids around `node` holds a member."""
    return w.sets[members + ((w.s[SIZE] + node) >> k)] != 0


@inlined
def nearest(w: State, members: int, j: int, k: int) -> int:
    """The member with the least XOR distance from j, of the block of 2^k ids; it has one."""
    size = w.s[SIZE]
    if w.sets[members + size + j]:
        return j
    place = (size + j) >> k
    while k > 0:
        k -= 1
        place = 2 * place + ((j >> k) & 1)
        if not w.sets[members + place]:
            place ^= 1
    return place - size
