"""Pseudo-random numbers that depend only on the names of their streams.

Every world (the event simulator, the rounds in plain Python, the compiled rounds, a task of Spark)
draws from the same streams, so that a run gives the same result wherever it is computed and
however its topics are spread over tasks.  All arithmetic is modulo 2^64.

A stream is named by (run, topic, node, round); its draws are numbered from 0.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: the step of splitmix64."""
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB


def mix(number: int) -> int:
    """The finalizer of splitmix64: a bijection of 64 bits; half of them flip with any input bit."""
    number = (number + GOLDEN) & MASK
    number = ((number ^ (number >> 30)) * FIRST_FACTOR) & MASK
    number = ((number ^ (number >> 27)) * SECOND_FACTOR) & MASK
    return number ^ (number >> 31)


def combined(first: int, second: int) -> int:
    """64 bits that depend on both numbers and on their order."""
    return mix((mix(first & MASK) + second) & MASK)


def stream(run: int, topic: int, node: int, round_: int) -> int:
    """The name of the stream of a node in a round of a topic's overlay."""
    return combined(combined(combined(run, topic), node), round_)


def draw(stream: int, number: int) -> int:
    """The 64 bits of one draw."""
    return mix((stream + number) & MASK)


def below(bits: int, limit: int) -> int:
    """A number from 0 to limit - 1, for limits below 2^32 (bias below limit / 2^32)."""
    return ((bits >> 32) * limit) >> 32
