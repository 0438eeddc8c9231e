"""Flat arrays: their types, and how they grow between two events."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

BUDGET = 1 << 24
"""Events between two chances to be interrupted: a few seconds' worth."""


def longer(array: Any, length: int) -> Any:
    """The array with zeros after it, or the very same if it is long enough."""
    if length <= len(array):
        return array
    grown = np.zeros(length, array.dtype)
    grown[: len(array)] = array
    return grown
