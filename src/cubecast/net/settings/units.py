"""Durations and sizes as people write them: ``20ms``, ``1.5s``, ``4MiB``, ``500kB``."""

from __future__ import annotations

import re
from fractions import Fraction

DURATIONS = {
    "us": Fraction(1),
    "µs": Fraction(1),
    "ms": Fraction(1_000),
    "s": Fraction(1_000_000),
    "min": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
"""In microseconds."""
SIZES = {
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
}
"""In bytes."""

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-zµ]*)", re.ASCII)


def parse_quantity(text: str, units: dict[str, Fraction], bare: Fraction) -> Fraction:
    """The value of a text in the smallest of `units`; a number alone counts in `bare`."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(f"not a quantity: {text!r}")
    return Fraction(match[1]) * (units[match[2]] if match[2] else bare)


def format_duration(microseconds: int) -> str:
    """The shortest exact text, in the largest unit that divides it (at most seconds)."""
    for unit in ("s", "ms"):
        if microseconds and microseconds % DURATIONS[unit] == 0:
            return f"{microseconds // int(DURATIONS[unit])}{unit}"
    return f"{microseconds}us"


def format_size(size: int) -> str:
    """The shortest exact text, in the largest binary unit that divides it."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % SIZES[unit] == 0:
            return f"{size // int(SIZES[unit])}{unit}"
    return f"{size}B"
