"""Logical and physical view sizes of nodes, compiled ([N] 3.4).

The logical view of a node is the views of all its topics, one after the other; its physical view is
the different ids in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from cubecast.kernel.rounds.arithmetic import Longs
from cubecast.kernel.rounds.play import Played
from cubecast.kernel.shared.jit import entry, sources_digest


class ViewSizes(NamedTuple):
    """One entry per user and round, sorted by both."""

    users: Longs
    rounds: Longs
    logical: Longs
    physical: Longs


def physical_view_sizes(users: Longs, rounds: Longs, sizes: Longs, ids: Longs) -> ViewSizes:
    """From views in any order: row i is of ``users[i]`` in ``rounds[i]`` and has ``sizes[i]`` ids.

    The ids of all rows stand one after the other in `ids`.
    """
    order = np.lexsort((rounds, users))
    begins = (np.cumsum(sizes) - sizes)[order]
    users, rounds, sizes = users[order], rounds[order], sizes[order]
    new = np.ones(len(users), np.bool_)
    new[1:] = (users[1:] != users[:-1]) | (rounds[1:] != rounds[:-1])
    firsts = np.flatnonzero(new)
    groups = np.append(firsts, len(users)).astype(np.int64)
    logical, physical = np.zeros(len(firsts), np.int64), np.zeros(len(firsts), np.int64)
    count(groups, begins, sizes, ids, logical, physical)
    return ViewSizes(users[firsts], rounds[firsts], logical, physical)


def played_view_sizes(played: Played, round_: int) -> ViewSizes:
    """The sizes after one round, of topics that were played together."""
    rounds = np.full(len(played.members), round_, np.int64)
    return physical_view_sizes(
        played.members, rounds, played.subscription_sizes(), played.ids(round_)
    )


Count: TypeAlias = Callable[[Longs, Longs, Longs, Longs, Longs, Longs], None]


def _make_count(digest: str) -> Count:
    """The entry point; `digest` is part of the key under which it is kept."""

    @entry
    def count(
        groups: Longs, begins: Longs, sizes: Longs, ids: Longs, logical: Longs, physical: Longs
    ) -> None:
        longest = 0
        for group in range(len(logical) if digest else 0):
            for row in range(groups[group], groups[group + 1]):
                logical[group] += sizes[row]
            longest = max(longest, logical[group])
        gathered = np.zeros(longest, np.int64)
        for group in range(len(logical)):
            if groups[group + 1] - groups[group] == 1:  # a view names no id twice
                physical[group] = logical[group]
                continue
            length = 0
            for row in range(groups[group], groups[group + 1]):
                for at in range(begins[row], begins[row] + sizes[row]):
                    gathered[length] = ids[at]
                    length += 1
            together = gathered[:length]
            together.sort()
            for at in range(length):
                physical[group] += at == 0 or together[at] != together[at - 1]

    return count


count = _make_count(sources_digest(__package__))
