"""The two-dimensional grid of [N] 3.2: interests are places, near nodes share topics.

Each node has a random place on the unit torus and an interest radius that follows a power law.
Each topic has a power-law number of random places.  A node subscribes to the topics of which a
place lies within its radius.

[N] gives no parameters.  Ours give about 76 nodes with a topic out of 100, and physical views of
about 25 links before StaN, as [N] Figure 6(a) shows: see `GridParameters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cubecast.overlay.universes.streams import Doubles, Longs, Universe, draws, flat, named, units

NODES = 100
TOPICS = 16
"""The universe of [N] Figure 6."""

_NODE, _TOPIC = 1, 2
"""Purposes of streams: a node's and a topic's numbers are unrelated."""


@dataclass(frozen=True)
class GridParameters:
    """The parameters that [N] leaves open; lengths are in sides of the torus."""

    copies_exponent: float = 3.0
    """A topic has c places with probability in proportion to c^-copies_exponent ..."""
    most_copies: int = 5
    """... for c from 1 to this."""
    least_radius: float = 0.08
    """An interest radius is r or more with probability (least_radius / r)^(radius_exponent - 1);"""
    radius_exponent: float = 2.0
    """that is a density of r^-radius_exponent."""
    most_radius: float = 0.8
    """Larger radii are cut to this one.  From 0.71 on a radius reaches every place."""

    def __post_init__(self) -> None:
        if self.most_copies < 1:
            raise ValueError(f"a topic needs at least 1 place, not {self.most_copies}")
        if not 0 < self.least_radius <= self.most_radius:
            raise ValueError(
                f"radii need 0 < least <= most, not {self.least_radius} and {self.most_radius}"
            )
        if self.radius_exponent <= 1:
            raise ValueError(f"the exponent of radii is above 1, not {self.radius_exponent}")


PARAMETERS = GridParameters()


def grid(
    run: int,
    nodes: int = NODES,
    topics: int = TOPICS,
    parameters: GridParameters = PARAMETERS,
    *,
    first: int = 0,
    last: int | None = None,
) -> Universe:
    """The universe of a run, or its topics from `first` to before `last`."""
    if nodes < 1 or topics < 1:
        raise ValueError(f"a grid needs nodes and topics, not {nodes} and {topics}")
    x, y, radii = places(run, nodes, parameters)
    squares = radii * radii
    last = topics if last is None else min(last, topics)
    return flat(_members(run, first, last, parameters, x, y, squares))


def places(
    run: int, nodes: int, parameters: GridParameters = PARAMETERS
) -> tuple[Doubles, Doubles, Doubles]:
    """Where each node is (x, y), and its radius."""
    streams = named(run, _NODE, np.arange(nodes, dtype=np.int64))
    x, y, chance = (units(draws(streams, number)) for number in range(3))
    slope = -1.0 / (parameters.radius_exponent - 1.0)
    radii = parameters.least_radius * (1.0 - chance) ** slope
    return x, y, np.minimum(radii, parameters.most_radius)


def copies(run: int, topics: Longs, parameters: GridParameters = PARAMETERS) -> Longs:
    """How many places each topic has."""
    shares = np.arange(1, parameters.most_copies + 1) ** -parameters.copies_exponent
    bounds = np.cumsum(shares / shares.sum())[:-1]
    chance = units(draws(named(run, _TOPIC, topics), 0))
    return np.searchsorted(bounds, chance, side="right") + 1


def _members(
    run: int, first: int, last: int, parameters: GridParameters, x: Doubles, y: Doubles, r2: Doubles
) -> Iterator[tuple[int, Longs]]:
    """Each topic of a range, with the nodes that have one of its places within their radius."""
    ids = np.arange(first, last, dtype=np.int64)
    streams = named(run, _TOPIC, ids)
    for topic, stream, places in zip(ids, streams, copies(run, ids, parameters), strict=True):
        numbers = np.arange(1, 2 * places + 1, dtype=np.int64)
        at = units(draws(np.full(2 * places, stream), numbers))
        inside = np.zeros(len(x), dtype=np.bool_)
        for copy in range(places):
            inside |= _apart(x, at[2 * copy]) ** 2 + _apart(y, at[2 * copy + 1]) ** 2 <= r2
        yield int(topic), np.flatnonzero(inside).astype(np.int64)


def _apart(coordinates: Doubles, other: float) -> Doubles:
    """The distance along one axis of the torus: never more than one half."""
    straight = np.abs(coordinates - other)
    return np.minimum(straight, 1.0 - straight)
