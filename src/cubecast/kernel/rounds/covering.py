"""Links chosen to cover topics, compiled: the number that SpiderCast's greedy rule needs.

SpiderCast (Chockler, Melamed, Tock, Vitenberg: DEBS 2007) wants K neighbours in each topic of a
node and takes the one that covers most of the topics that still lack some.  Here a node that knows
every subscriber does so until each topic has as many neighbours as StaN's view of it; among equal
neighbours the lightest is taken.  The number of links is a mark to compare physical views with: the
rule pulls nodes with many topics together, and StaN avoids that clustering ([N] 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from cubecast.kernel.rounds.arithmetic import HASH_CODES, Ints, Longs, half_weight, weight
from cubecast.kernel.rounds.estimates import Inverse
from cubecast.kernel.rounds.optimum import sampled
from cubecast.kernel.rounds.play import Subscribers, view_sizes
from cubecast.kernel.shared.jit import apart, entry, sources_digest
from cubecast.overlay.rounds import RoundConfig


def covering_links(
    subscribers: Subscribers, config: RoundConfig, share: float = 1.0, *, run: int = 0
) -> tuple[Longs, Longs]:
    """Users (all, or a share of them) and how many neighbours the greedy rule gives each."""
    inverse = Inverse.of(subscribers)
    sizes = view_sizes(np.diff(subscribers.offsets), config)
    chosen = np.flatnonzero(sampled(inverse.users, share, run))
    links = np.zeros(len(chosen), np.int64)
    cover(
        subscribers.offsets, inverse.ranks, inverse.users, inverse.offsets, inverse.topics, sizes,
        HASH_CODES[config.hashing], chosen, links,
    )  # fmt: skip
    return inverse.users[chosen], links


@apart
def _widest(users: Longs, p: int, hashing: int, near: Ints, length: int, covers: Ints) -> int:
    """Of the co-subscribers, the one that covers most; the lightest of several."""
    half = half_weight(np.uint64(users[p]), hashing)
    best = int(near[0])
    lightest = weight(half, np.uint64(users[best]), hashing)
    for at in range(1, length):
        q = int(near[at])
        if covers[q] < covers[best]:
            continue
        heavy = weight(half, np.uint64(users[q]), hashing)
        if covers[q] > covers[best] or heavy < lightest or (heavy == lightest and q < best):
            best, lightest = q, heavy
    return best


@apart
def _count_covers(
    offsets: Longs, ranks: Longs, own: Longs, p: int, near: Ints, covers: Ints
) -> int:
    """Count the topics that each co-subscriber shares; how many co-subscribers there are."""
    length = 0
    for topic in own:
        for at in range(offsets[topic], offsets[topic + 1]):
            q = ranks[at]
            if q != p:
                if covers[q] == 0:
                    near[length] = q
                    length += 1
                covers[q] += 1
    return length


Cover: TypeAlias = Callable[[Longs, Longs, Longs, Longs, Longs, Longs, int, Longs, Longs], None]


def _make_cover(digest: str) -> Cover:
    """The entry point; `digest` is part of the key under which it is kept."""

    @entry
    def cover(
        offsets: Longs, ranks: Longs, users: Longs, user_offsets: Longs, user_topics: Longs,
        sizes: Longs, hashing: int, chosen: Longs, links: Longs,
    ) -> None:  # fmt: skip
        near, covers = np.zeros(len(users), np.int32), np.zeros(len(users), np.int32)
        lacking = np.zeros(len(sizes), np.int64)
        for number in range(len(chosen) if digest else 0):
            p = chosen[number]
            own = user_topics[user_offsets[p] : user_offsets[p + 1]]
            lacking[own] = sizes[own]
            length = _count_covers(offsets, ranks, own, p, near, covers)
            while length:
                best = _widest(users, p, hashing, near, length, covers)
                if covers[best] < 2:  # from here on each link covers one topic
                    links[number] += lacking[own].sum()
                    break
                links[number] += 1
                covers[best] = 0
                for topic in user_topics[user_offsets[best] : user_offsets[best + 1]]:
                    if lacking[topic]:
                        lacking[topic] -= 1
                        if lacking[topic] == 0:
                            for at in range(offsets[topic], offsets[topic + 1]):
                                covers[ranks[at]] -= covers[ranks[at]] > 0
            lacking[own] = 0
            for at in range(length):
                covers[near[at]] = 0

    return cover


cover = _make_cover(sources_digest(__package__))
