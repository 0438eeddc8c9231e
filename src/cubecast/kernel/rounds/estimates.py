"""Expectations of StaN without playing it: coverage, and physical view sizes from it.

A node p has found a share f of the subscribers of a topic after some rounds.  It keeps the k
lightest of f (n - 1), so roughly those lighter than theta = min(1, k / (f (n - 1))) of all weights.
A weight is the same in every topic, so q is in the physical view of p if its weight w, a number
from 0 to 1, is below theta in any shared topic in which p has found q:

    E PVS(p) = sum over q of the integral over w from 0 to 1 of
               1 - product over shared topics t of (1 - f_t [w < theta_t])

With the shared topics in falling order of theta that integral is the sum over them of
theta_i f_i (1 - f_1) ... (1 - f_(i-1)).  Before StaN f = k / (n - 1) and theta = 1; at the optimum
f = 1 and theta = k / (n - 1), and the sum is the largest theta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.rounds.arithmetic import Longs
from cubecast.kernel.rounds.optimum import sampled
from cubecast.kernel.rounds.play import Subscribers, view_sizes
from cubecast.kernel.shared.jit import entry, sources_digest
from cubecast.overlay.rounds import RoundConfig

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Expected physical view sizes, one entry per user."""

    users: Longs
    start: Doubles
    played: Doubles
    """After the rounds asked for."""
    optimum: Doubles


def coverage(
    nodes: Longs, sizes: Longs, rounds: int, config: RoundConfig, dead: float = 0.0
) -> Doubles:
    """The share of a topic's subscribers that a node has found after so many rounds.

    A round brings news if the walk's ttl + 2 messages arrive and its ttl + 1 visits meet no dead
    node; `dead` is the share of ids in views that are dead.
    """
    others = np.maximum(nodes - 1, 1).astype(np.float64)
    visits = config.ttl + 1
    fruitful = rounds * (1 - config.loss) ** (visits + 1) * (1 - dead) ** visits
    missed = (1 - sizes / others) * np.exp(-fruitful * visits * (sizes + 1) / others)
    found: Doubles = 1 - missed
    return found


def estimates(
    subscribers: Subscribers, config: RoundConfig, rounds: int = 8, share: float = 1.0,
    *, run: int = 0,
) -> Estimates:  # fmt: skip
    """Expected physical view sizes of all users, or of a share of them."""
    inverse = Inverse.of(subscribers)
    nodes = np.diff(subscribers.offsets)
    sizes = view_sizes(nodes, config)
    others = np.maximum(nodes - 1, 1).astype(np.float64)
    chosen = np.flatnonzero(sampled(inverse.users, share, run))
    columns = []
    everything = np.ones(len(nodes), np.float64)
    for found in (
        coverage(nodes, sizes, 0, config),
        coverage(nodes, sizes, rounds, config),
        everything,
    ):
        theta = np.minimum(1.0, sizes / np.maximum(found * others, 1e-300))
        expected = np.zeros(len(chosen), np.float64)
        expect(
            subscribers.offsets, inverse.ranks, inverse.offsets, inverse.topics, theta, found,
            chosen, len(inverse.users), expected,
        )  # fmt: skip
        columns.append(expected)
    return Estimates(inverse.users[chosen], *columns)


@dataclass(frozen=True, slots=True)
class Inverse:
    """The topics of each user: those of user i are ``topics[offsets[i]:offsets[i + 1]]``."""

    users: Longs
    offsets: Longs
    topics: Longs
    """Places of topics in the list of `Subscribers`."""
    ranks: Longs
    """Of each entry of ``members``, its place in `users`."""

    @classmethod
    def of(cls, subscribers: Subscribers) -> Inverse:
        users, ranks = np.unique(subscribers.members, return_inverse=True)
        order = np.argsort(ranks, kind="stable")
        counts = np.diff(subscribers.offsets)
        topics = np.repeat(np.arange(len(counts)), counts)[order].astype(np.int64)
        offsets = np.searchsorted(ranks[order], np.arange(len(users) + 1)).astype(np.int64)
        return cls(users, offsets, topics, ranks.astype(np.int64))


Expect: TypeAlias = Callable[
    [Longs, Longs, Longs, Longs, Doubles, Doubles, Longs, int, Doubles], None
]


def _make_expect(digest: str) -> Expect:
    """The entry point; `digest` is part of the key under which it is kept."""

    @entry
    def expect(
        offsets: Longs, ranks: Longs, user_offsets: Longs, user_topics: Longs, theta: Doubles,
        found: Doubles, chosen: Longs, users: int, expected: Doubles,
    ) -> None:  # fmt: skip
        missed = np.ones(users, np.float64)
        """The chance that no topic so far has shown q to p, given that w allows it."""
        for number in range(len(chosen) if digest else 0):
            p = chosen[number]
            own = user_topics[user_offsets[p] : user_offsets[p + 1]]
            order = np.argsort(-theta[own])
            for topic in own[order]:
                for at in range(offsets[topic], offsets[topic + 1]):
                    q = ranks[at]
                    if q != p:
                        expected[number] += theta[topic] * missed[q] * found[topic]
                        missed[q] *= 1.0 - found[topic]
            for topic in own:
                for at in range(offsets[topic], offsets[topic + 1]):
                    missed[ranks[at]] = 1.0

    return expect


expect = _make_expect(sources_digest(__package__))
