"""Events as flat arrays: authors and topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cubecast.kernel.errors import KernelError
from cubecast.kernel.rounds.arithmetic import Longs

NO_AUTHOR = -1
"""An unknown author: it subscribes to nothing, so that it hands every event over."""


@dataclass(frozen=True, slots=True)
class GossipEvents:
    """Event i is published by ``authors[i]`` to ``topics[offsets[i]:offsets[i + 1]]``."""

    ids: Longs
    """Name the streams of chance of an event."""
    authors: Longs
    offsets: Longs
    topics: Longs

    def __len__(self) -> int:
        return len(self.ids)


def make_events(
    ids: Sequence[int] | Longs,
    authors: Sequence[int] | Longs,
    offsets: Sequence[int] | Longs,
    topics: Sequence[int] | Longs,
) -> GossipEvents:
    """The events, checked; a topic that an event names twice counts once."""
    ids_, authors_, offsets_, topics_ = (
        np.ascontiguousarray(array, np.int64) for array in (ids, authors, offsets, topics)
    )
    if len(authors_) != len(ids_):
        raise KernelError(f"{len(ids_)} events have {len(authors_)} authors")
    if len(offsets_) != len(ids_) + 1 or offsets_[0] != 0 or offsets_[-1] != len(topics_):
        raise KernelError(
            f"offsets of events must go from 0 to {len(topics_)} in {len(ids_) + 1} numbers, "
            f"not {len(offsets_)} numbers"
        )
    if (np.diff(offsets_) < 0).any():
        raise KernelError("offsets of events must not fall")
    for name, found in (("event", ids_), ("topic", topics_)):
        if len(found) and found.min() < 0:
            raise KernelError(f"{name} ids must not be negative: {found.min()}")
    if len(authors_) and authors_.min() < NO_AUTHOR:
        raise KernelError(f"author ids must not be negative: {authors_.min()}")
    return GossipEvents(ids_, authors_, *sorted_topics(offsets_, topics_))


def sorted_topics(offsets: Longs, topics: Longs) -> tuple[Longs, Longs]:
    """Offsets and topics with those of each event in rising order, none twice."""
    events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((topics, events))
    events, topics = events[order], topics[order]
    first = np.ones(len(topics), np.bool_)
    first[1:] = (events[1:] != events[:-1]) | (topics[1:] != topics[:-1])
    counts = np.bincount(events[first], minlength=len(offsets) - 1)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), topics[first]
