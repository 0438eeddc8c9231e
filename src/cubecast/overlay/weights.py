"""The weight of a link, by which a node ranks its neighbours ([N] Algorithm 2, lines 14 to 17).

[N] writes ``H(str p + str q)`` and leaves H open.  A weight is asymmetric and the same in every
topic: so nodes that share topics end up with the same neighbours in them.

Our hash is `mixed`.  `concatenated` keeps the paper's ambiguity: "1" + "23" is "12" + "3".
`symmetric` gives both directions of a link one weight; it serves to show what that changes.
Ties are broken by id, the lower one first.
"""

from __future__ import annotations

from typing import Literal, get_args

from cubecast.overlay.chance import combined, mix

Hash = Literal["mixed", "concatenated", "symmetric"]
HASHES: tuple[Hash, ...] = get_args(Hash)


def mixed(p: int, q: int) -> int:
    """A 64-bit mix of two ids."""
    return combined(p, q)


def concatenated(p: int, q: int) -> int:
    """The paper's concatenation of two decimal texts, read as one number and mixed."""
    return mix(int(f"{p}{q}") & ((1 << 64) - 1))


def symmetric(p: int, q: int) -> int:
    """The same for (p, q) and (q, p)."""
    return combined(min(p, q), max(p, q))


def weight(p: int, q: int, hashing: Hash = "mixed") -> int:
    """The weight of the link from p to q: 64 bits, the lightest links are kept."""
    match hashing:
        case "mixed":
            return mixed(p, q)
        case "concatenated":
            return concatenated(p, q)
        case "symmetric":
            return symmetric(p, q)
