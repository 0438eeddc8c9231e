"""A power-law bipartite generator with adjustable correlation, for any size.

Topics and nodes lie on a line of interests, both in the order of their ids.

1. The sizes of topics and the activity of nodes are power laws (`laws`), dealt out by chance.
2. Each node has one topic at home: the one at its place on the line.  So every node has a topic.
   Homes take their share of each topic's size.
3. A node that wants more topics looks for them around its home.  For each further `interest`
   topics it wants, it has another random place on the line: a busy node has many interests.
4. The other subscribers of a topic are drawn in proportion to the topics they want.  A draw comes
   from the topic's community with probability `correlation`, else from all nodes.
5. The community of a topic is the smallest block around its place with `spread` interests per
   subscriber; blocks have lengths of a power of two, so communities are nested or apart.

At correlation 0 topics share nodes only because some nodes are busy.  At correlation 1 a node's
topics are all around its interests, and topics of similar size are followed by the same nodes.

The subscribers of a topic are the first distinct nodes of its own stream of draws: a pure function
of the run, the topic and the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cubecast.overlay.universes.laws import degrees, topic_sizes
from cubecast.overlay.universes.presets import BipartiteParameters, preset, small_sizes
from cubecast.overlay.universes.streams import Bits, Longs, Universe, draws, named, units

_SIZE, _ACTIVITY, _MEMBERS, _INTERESTS = 11, 12, 13, 14
"""Purposes of streams."""
CHUNK_PAIRS = 1 << 19
"""Topics are generated in chunks of about this many pairs; the result does not depend on it."""
PATIENCE = 24
"""A topic that lacks subscribers after so many draws for each takes the nearest."""


@dataclass(frozen=True)
class UniversePlan:
    """The data that all topics of a universe share, and each task computes for itself."""

    run: int
    parameters: BipartiteParameters
    sizes: Longs
    """Subscribers of each topic."""
    homes: Longs
    """The nodes at home in topic t are those from homes[t] to before homes[t + 1]."""
    places: Longs
    """Where interests lie on the line, in rising order."""
    owners: Longs
    """The node that has each interest."""
    activity: Longs
    """activity[i]: the topics that the first i interests want."""
    size_exponent: float
    degree_exponent: float


def plan(run: int, parameters: BipartiteParameters) -> UniversePlan:
    """Deal out sizes to topics, homes and activity to nodes."""
    sizes, size_exponent = _sizes(run, parameters)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    # Never more than the size of the topic: pairs are at least as many as nodes.
    homes = ends * parameters.nodes // parameters.pairs
    mean = parameters.pairs / parameters.nodes
    busiest = max(1, min(parameters.busiest, parameters.topics // 2))
    wanted, degree_exponent = degrees(parameters.nodes, min(mean, busiest), busiest)
    extra = wanted[_shuffled(run, _ACTIVITY, parameters.nodes)] - 1
    places, owners, activity = _interests(run, extra, parameters.interest)
    return UniversePlan(
        run, parameters, sizes, homes, places, owners, activity, size_exponent, degree_exponent
    )  # fmt: skip


def _interests(run: int, extra: Longs, most: int) -> tuple[Longs, Longs, Longs]:
    """The places where each node looks for its topics: at home, and for each `most` elsewhere."""
    owned = -(-extra // most)
    owners = np.repeat(np.arange(len(extra), dtype=np.int64), owned)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(owned) - owned, owned)
    wants = np.minimum(extra[owners] - number * most, most)
    chance = units(draws(named(run, _INTERESTS, owners), number))
    places = np.where(number == 0, owners, (chance * len(extra)).astype(np.int64))
    order = np.argsort(places, kind="stable")
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(wants[order])])
    return places[order], owners[order], sums


def _sizes(run: int, parameters: BipartiteParameters) -> tuple[Longs, float]:
    few = parameters.small_topics
    small = np.array(small_sizes(few, parameters.smallest), dtype=np.int64)
    large, exponent = topic_sizes(
        parameters.topics - few,
        parameters.pairs - int(small.sum()),
        parameters.smallest,
        parameters.largest,
    )
    ranked = np.concatenate([large, small])
    return ranked[_shuffled(run, _SIZE, parameters.topics)], exponent


def _shuffled(run: int, purpose: int, count: int) -> Longs:
    """The numbers below count in the order of their draws."""
    ids = np.arange(count, dtype=np.int64)
    return np.argsort(draws(named(run, purpose, ids), 0), kind="stable").astype(np.int64)


def universe(name: str, run: int = 0) -> Universe:
    """The universe with the size of one of [N] Table 1: L0 to L8, W0 to W8."""
    return bipartite(run, preset(name))


def bipartite(run: int, parameters: BipartiteParameters) -> Universe:
    """The whole universe of a run."""
    dealt = plan(run, parameters)
    parts = list(chunks(dealt, 0, parameters.topics))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(dealt.sizes)])
    topics = np.arange(parameters.topics, dtype=np.int64)
    return topics, ends, np.concatenate([members for _, _, members in parts])


def chunks(dealt: UniversePlan, first: int, last: int) -> Iterator[Universe]:
    """The topics from `first` to before `last`, some at a time."""
    start = first
    while start < last:
        sums = np.cumsum(dealt.sizes[start:last])
        stop = start + max(1, int(np.searchsorted(sums, CHUNK_PAIRS, side="right")))
        yield _generated(dealt, start, stop)
        start = stop


# -- the subscribers of a chunk of topics ----------------------------------------------------------


def _generated(dealt: UniversePlan, first: int, last: int) -> Universe:
    topics = np.arange(first, last, dtype=np.int64)
    sizes = dealt.sizes[first:last]
    nodes = dealt.parameters.nodes
    at_home = np.diff(dealt.homes[first : last + 1])
    # A pair is one number: which topic of the chunk, times nodes, plus the node.
    resident = np.repeat(np.arange(last - first) * nodes, at_home)
    resident += np.arange(dealt.homes[first], dealt.homes[last])
    drawn = _drawn(dealt, topics, sizes - at_home, resident)
    found = np.sort(np.concatenate([resident, drawn]))
    found = _completed(dealt, topics, sizes, found)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return topics, offsets, found % nodes


def _drawn(dealt: UniversePlan, topics: Longs, needs: Longs, resident: Longs) -> Longs:
    """The first distinct draws of each topic that are not at home in it."""
    nodes = dealt.parameters.nodes
    kept = np.zeros(0, np.int64)
    if not len(dealt.owners):
        return kept
    streams = named(dealt.run, _MEMBERS, topics)
    low, high = _communities(dealt, topics)
    done = np.zeros(len(topics), np.int64)
    missing = needs.copy()
    limits = PATIENCE * needs
    while True:
        batch = np.minimum(np.where(missing > 0, 2 * missing + 8, 0), limits - done)
        if not batch.any():
            return kept
        row = np.repeat(np.arange(len(topics)), batch)
        number = np.arange(len(row)) - np.repeat(np.cumsum(batch) - batch - done, batch)
        pairs = row * nodes + _nodes(dealt, streams[row], number, low[row], high[row])
        pairs, earliest = np.unique(pairs, return_index=True)
        fresh = ~(np.isin(pairs, kept, assume_unique=True) | np.isin(pairs, resident))
        # Rows came in the order of draws: so the earliest of a topic's new nodes are taken.
        order = np.sort(earliest[fresh])
        pairs = pairs[fresh][np.argsort(earliest[fresh])]
        position = _within_row(row[order], len(topics))
        taken = position < missing[row[order]]
        kept = np.concatenate([kept, pairs[taken]])
        missing -= np.bincount(row[order][taken], minlength=len(topics))
        done += batch


def _within_row(row: Longs, rows: int) -> Longs:
    """The place of each entry among those of its row; rows are sorted."""
    counts = np.bincount(row, minlength=rows)
    return np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


def _nodes(dealt: UniversePlan, streams: Bits, number: Longs, low: Longs, high: Longs) -> Longs:
    """The node of each draw: from the community or from all, in proportion to activity."""
    everywhere = units(draws(streams, 2 * number)) >= dealt.parameters.correlation
    start = np.where(everywhere, 0, dealt.activity[low])
    length = np.where(everywhere, dealt.activity[-1], dealt.activity[high]) - start
    point = start + (units(draws(streams, 2 * number + 1)) * length).astype(np.int64)
    chosen: Longs = dealt.owners[np.searchsorted(dealt.activity, point, side="right") - 1]
    return chosen


def _communities(dealt: UniversePlan, topics: Longs) -> tuple[Longs, Longs]:
    """The block of interests around each topic: the first of them, and the first beyond."""
    interests = len(dealt.owners)
    place = np.searchsorted(dealt.places, dealt.homes[topics])
    wanted = np.maximum(dealt.parameters.spread * dealt.sizes[topics], 1.0)
    length = np.left_shift(1, np.ceil(np.log2(wanted)).astype(np.int64))
    # The last block would be short: it is as long as the others, and overlaps the one before.
    low = np.clip(place // length * length, 0, np.maximum(interests - length, 0))
    return low, np.minimum(low + length, interests)


def _completed(dealt: UniversePlan, topics: Longs, sizes: Longs, found: Longs) -> Longs:
    """Fill topics that lost patience with the nodes that follow their place on the line."""
    nodes = dealt.parameters.nodes
    short = sizes - np.bincount(found // nodes, minlength=len(topics))
    extra = []
    for row in np.flatnonzero(short):
        taken = found[
            np.searchsorted(found, row * nodes) : np.searchsorted(found, (row + 1) * nodes)
        ]
        free = np.ones(nodes, dtype=np.bool_)
        free[taken % nodes] = False
        line = np.roll(np.arange(nodes), -int(dealt.homes[topics[row]]))
        extra.append(row * nodes + line[free[line]][: short[row]])
    return np.sort(np.concatenate([found, *extra])) if extra else found
