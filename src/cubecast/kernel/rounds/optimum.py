"""The omniscient optimum: the views of nodes that know every subscriber ([N] refers to [19]).

The optimum of a node in a topic is its k lightest co-subscribers.  Finding it takes n hashes a
node, so n^2 a topic; nothing but the k lightest is stored.  Where that is too much, it is found for
a sample of the users: the same users in every topic, so that their physical views are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.errors import KernelError
from cubecast.kernel.rounds.arithmetic import HASH_CODES, Ints, Longs, combined, half_weight, weight
from cubecast.kernel.rounds.play import Subscribers, view_sizes
from cubecast.kernel.rounds.walks import Best, offer
from cubecast.kernel.shared.jit import apart, entry, sources_digest
from cubecast.overlay.rounds import RoundConfig

SCANNED_WHOLE_UP_TO = 20_000
"""With topics no larger than this all users are scanned, unless told otherwise."""
SAMPLE = np.uint64(0x5A3B1E)
"""Sets the draws of samples apart from all streams."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The optimal views of some subscriptions: one entry of `topics`, `users`, `sizes` for each."""

    topics: Longs
    users: Longs
    sizes: Longs
    ids: Longs
    """The views, one after the other, lightest first."""


def sampled(users: Longs, share: float, run: int = 0) -> npt.NDArray[np.bool_]:
    """Which users are in a sample of this share; the answer for a user is always the same."""
    if not 0 < share <= 1:
        raise KernelError(f"the share of users must be above 0 and at most 1, not {share}")
    with np.errstate(over="ignore"):
        bits = _sample_bits(users.astype(np.uint64), np.uint64(run & (2**64 - 1)))
    return np.ones(len(users), np.bool_) if share == 1 else bits < np.uint64(share * 2**64)


def default_share(largest: int) -> float:
    """All users if the largest topic allows for it, else fewer, in proportion."""
    return min(1.0, SCANNED_WHOLE_UP_TO / max(largest, 1))


def optimal_views(
    subscribers: Subscribers, config: RoundConfig, share: float | None = None, *, run: int = 0
) -> Optimum:
    """The k lightest co-subscribers per topic, for all users or for a share of them."""
    counts = np.diff(subscribers.offsets)
    if share is None:
        share = default_share(int(counts.max(initial=0)))
    sizes = view_sizes(counts, config)
    chosen = np.flatnonzero(sampled(subscribers.members, share, run))
    which = np.searchsorted(subscribers.offsets, chosen, "right") - 1
    lengths = sizes[which]
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    places = np.empty(int(ends[-1]), np.int32)
    scan(
        subscribers.offsets, subscribers.members, sizes, HASH_CODES[config.hashing], chosen, which,
        ends, places,
    )  # fmt: skip
    ids = subscribers.members[places + np.repeat(subscribers.offsets[which], lengths)]
    return Optimum(subscribers.topics[which], subscribers.members[chosen], lengths, ids)


# -- compiled --------------------------------------------------------------------------------------


@apart
def _lightest(ids: Longs, place: int, k: int, hashing: int, best: Best) -> None:
    """The k lightest links of a node to any other."""
    half = half_weight(np.uint64(ids[place]), hashing)
    held = 0
    heaviest = ~np.uint64(0)
    for other in range(len(ids)):
        heavy = weight(half, np.uint64(ids[other]), hashing)
        if heavy <= heaviest and other != place:
            held = offer(best, held, k, heavy, other)
            if held == k:
                heaviest = best.weights[k - 1]


Scan: TypeAlias = Callable[[Longs, Longs, Longs, int, Longs, Longs, Longs, Ints], None]
Sampler: TypeAlias = Callable[[npt.NDArray[np.uint64], np.uint64], npt.NDArray[np.uint64]]


def _make_entries(digest: str) -> tuple[Scan, Sampler]:
    """The entry points; `digest` is part of the key under which they are kept."""

    @entry
    def scan(
        offsets: Longs, members: Longs, sizes: Longs, hashing: int, chosen: Longs, which: Longs,
        ends: Longs, places: Ints,
    ) -> None:  # fmt: skip
        most = 0
        for number in range(len(chosen) if digest else 0):
            most = max(most, sizes[which[number]])
        best = Best(np.zeros(most, np.uint64), np.zeros(most, np.int32))
        for number in range(len(chosen) if digest else 0):
            topic = which[number]
            k = sizes[topic]
            if k:
                ids = members[offsets[topic] : offsets[topic + 1]]
                _lightest(ids, chosen[number] - offsets[topic], k, hashing, best)
                for at in range(k):
                    places[ends[number] + at] = best.places[at]

    @entry
    def sample_bits(users: npt.NDArray[np.uint64], run: np.uint64) -> npt.NDArray[np.uint64]:
        bits = np.zeros(len(users) if digest else 0, np.uint64)
        for number in range(len(bits)):
            bits[number] = combined(combined(run, SAMPLE), users[number])
        return bits

    return scan, sample_bits


scan, _sample_bits = _make_entries(sources_digest(__package__))
