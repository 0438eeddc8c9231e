"""How many links a node keeps: over all its topics, and to different nodes ([N] 3.4).

The logical view size (LVS) is the sum of a node's view sizes.  The physical view size (PVS) counts
the ids in its views, each once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ViewSizes:
    """One entry per node, sorted by id."""

    users: Longs
    logical: Longs
    physical: Longs


def view_sizes(owners: Longs, lengths: Longs, ids: Longs) -> ViewSizes:
    """The sizes of all views: view i is of node ``owners[i]`` and has the next ``lengths[i]`` ids.

    A node whose views are all empty has sizes of 0.
    """
    users, whose = np.unique(owners, return_inverse=True)
    targets, which = np.unique(ids, return_inverse=True)
    links = np.repeat(whose, lengths) * np.int64(max(1, len(targets))) + which
    different = np.unique(links) // max(1, len(targets))
    return ViewSizes(
        users,
        np.bincount(whose, lengths, len(users)).astype(np.int64),
        np.bincount(different, minlength=len(users)).astype(np.int64),
    )


def improvement(initial: Longs, final: Longs) -> Doubles:
    """1 - FPVS / IPVS of each node ([N] 3.4, Figure 7); 0 where there was no link."""
    links = np.maximum(initial, 1)
    share: Doubles = np.where(initial > 0, 1.0 - final / links, 0.0)
    return share
