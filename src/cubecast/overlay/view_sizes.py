"""The number of neighbours of a node in a topic's overlay ([N] 3.1).

A random graph of n nodes with ln n + c links each is connected with probability e^(-e^(-c)).
For 0.99 that is c = 4.600.  [N] does not say how the number is rounded: we round up, and the lab
shows rounding down beside it.
"""

from __future__ import annotations

from math import ceil, floor, log
from typing import Literal, get_args

Rounding = Literal["up", "down"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
CONNECTED = 0.99


def surplus(connected: float = CONNECTED) -> float:
    """The constant c for which an overlay is connected with this probability."""
    if not 0 < connected < 1:
        raise ValueError(f"a probability between 0 and 1 is needed, not {connected}")
    return -log(-log(connected))


def view_size(nodes: int, connected: float = CONNECTED, rounding: Rounding = "up") -> int:
    """The size of each view in an overlay of so many nodes: at most all the others."""
    if nodes < 2:
        return 0
    links = log(nodes) + surplus(connected)
    return max(1, min(nodes - 1, ceil(links) if rounding == "up" else floor(links)))
