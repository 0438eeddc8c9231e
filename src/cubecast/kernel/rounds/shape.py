"""The shape of an overlay, compiled: in-degrees, components, clustering, distances.

An overlay is a table of n rows of k places (`walks`).  A link has a direction: an event travels
from a node to the members of its view.
"""

from __future__ import annotations

import numpy as np

from cubecast.kernel.rounds.arithmetic import Ints, Longs, Word, combined, drawn_below
from cubecast.kernel.shared.jit import apart, forced

UNSEEN = -1
SOURCES = np.uint64(2**64 - 1)


@apart
def count_in_degrees(views: Ints, degrees: Longs) -> None:
    """Add how many views name each node."""
    for place in views:
        degrees[place] += 1


@forced
def _root(parents: Ints, place: int) -> int:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


@apart
def weak_components(views: Ints, n: int, k: int) -> int:
    """Parts of the overlay that no link joins, whatever its direction."""
    parents = np.arange(n).astype(np.int32)
    parts = n
    for place in range(n):
        for at in range(place * k, place * k + k):
            one, other = _root(parents, place), _root(parents, views[at])
            if one != other:
                parents[one] = other
                parts -= 1
    return parts


@apart
def strong_components(views: Ints, n: int, k: int) -> tuple[int, int]:
    """How many parts have links to and from all of their nodes, and the size of the largest.

    Tarjan's algorithm with a stack of its own.  `lows` becomes n for a node whose part is known.
    """
    numbers = np.full(n, UNSEEN, np.int32)
    lows = np.zeros(n, np.int32)
    nexts = np.zeros(n, np.int32)
    path = np.zeros(n, np.int32)
    waiting = np.zeros(n, np.int32)
    count = parts = largest = waits = 0
    for first in range(n):
        if numbers[first] != UNSEEN:
            continue
        path[0] = first
        depth = 1
        while depth:
            place = path[depth - 1]
            if numbers[place] == UNSEEN:
                numbers[place] = lows[place] = count
                waiting[waits] = place
                count += 1
                waits += 1
            if nexts[place] < k:
                other = views[place * k + nexts[place]]
                nexts[place] += 1
                if numbers[other] == UNSEEN:
                    path[depth] = other
                    depth += 1
                else:
                    lows[place] = min(lows[place], lows[other])
                continue
            depth -= 1
            if lows[place] == numbers[place]:
                size = 0
                while True:
                    waits -= 1
                    size += 1
                    lows[waiting[waits]] = n
                    if waiting[waits] == place:
                        break
                parts += 1
                largest = max(largest, size)
            elif depth:
                above = path[depth - 1]
                lows[above] = min(lows[above], lows[place])
    return parts, largest


@apart
def clustering(views: Ints, n: int, k: int) -> float:
    """The mean share of the k (k - 1) possible links among a node's neighbours that exist."""
    if k < 2:
        return 0.0
    marks = np.full(n, UNSEEN, np.int32)
    links = 0
    for place in range(n):
        for at in range(place * k, place * k + k):
            marks[views[at]] = place
        for at in range(place * k, place * k + k):
            row = np.int64(views[at]) * k
            for beyond in range(row, row + k):
                links += marks[views[beyond]] == place
    return links / (n * k * (k - 1.0))


@apart
def distances_from(
    views: Ints, k: int, source: int, levels: Ints, queue: Ints
) -> tuple[int, int, int]:
    """The number of reachable nodes, the sum of their distances, and the largest distance."""
    levels.fill(UNSEEN)
    levels[source] = 0
    queue[0] = source
    head, tail, total, farthest = 0, 1, 0, 0
    while head < tail:
        place = queue[head]
        head += 1
        row = np.int64(place) * k
        for at in range(row, row + k):
            other = views[at]
            if levels[other] == UNSEEN:
                farthest = levels[place] + 1
                levels[other] = farthest
                total += farthest
                queue[tail] = other
                tail += 1
    return tail - 1, total, farthest


@apart
def chosen_sources(n: int, count: int, stream: Word) -> Ints:
    """All places if there are no more than `count`, else so many different ones at random."""
    if n <= count:
        return np.arange(n).astype(np.int32)
    taken = np.zeros(n, np.uint8)
    sources = np.zeros(count, np.int32)
    found = number = 0
    while found < count:
        place = drawn_below(stream, number, n)
        number += 1
        if not taken[place]:
            taken[place] = 1
            sources[found] = place
            found += 1
    return sources


@apart
def distances(
    views: Ints, n: int, k: int, count: int, stream: Word
) -> tuple[int, float, float, float, int]:
    """Diameter, mean distance, its error, the share of pairs without a path, and sources.

    The error is half of a 95 % interval for the mean over all sources; it is 0 where all were
    measured.  Pairs without a path have no distance: the diameter is the largest there is, and a
    lower bound of it where sources were sampled.
    """
    sources = chosen_sources(n, count, stream)
    levels, queue = np.zeros(n, np.int32), np.zeros(n, np.int32)
    diameter = reached = total = 0
    means = squares = 0.0
    for source in sources:
        here, length, farthest = distances_from(views, k, source, levels, queue)
        reached += here
        total += length
        diameter = max(diameter, farthest)
        mean = length / max(here, 1)
        means += mean
        squares += mean * mean
    looked = len(sources)
    error = 0.0
    if looked < n:
        spread = max(0.0, squares - means * means / looked) / max(1.0, looked - 1.0)
        error = 1.96 * np.sqrt(spread / looked * (1.0 - looked / n))
    pairs = looked * (n - 1.0)
    return diameter, total / max(reached, 1), error, 1.0 - reached / pairs, looked


@apart
def sources_stream(run: Word, topic: Word) -> Word:
    """Names the draws of sources: no stream of a node has this name (`chance.stream`)."""
    return combined(combined(run, topic), SOURCES)
