"""A round in faithful mode, compiled: a walk's source learns, and nothing else happens.

Lock step: walks read one table of views and write another.  They are walked in blocks: a walk is a
chain of reads that each wait for memory, and the chains of a block overlap.
"""

from __future__ import annotations

import numpy as np

from cubecast.kernel.rounds.arithmetic import Ints
from cubecast.kernel.rounds.walks import (
    Best,
    CompiledTopic,
    copy_row,
    merge_view,
    merge_walk,
    walk,
    write_view,
)
from cubecast.kernel.shared.jit import apart

BLOCK = 64


@apart
def together(old: Ints, new: Ints, topic: CompiledTopic, round_: int, best: Best) -> None:
    """Lock step: all walk over the old views, and all new views take effect at once."""
    n, k, visits = len(topic.ids), topic.k, topic.ttl + 1
    path = np.zeros(BLOCK * visits, np.int32)
    made = np.zeros(BLOCK, np.int32)
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for place in range(begin, end):
            made[place - begin] = walk(old, topic, place, round_, path, (place - begin) * visits)
        for place in range(begin, end):
            if made[place - begin] == visits:
                merge_view(old, topic, place, best)
                merge_walk(old, topic, place, path, (place - begin) * visits, best)
                write_view(new, topic, place, best)
            else:
                copy_row(old, place, new, place, k)


@apart
def in_turn(views: Ints, topic: CompiledTopic, round_: int, best: Best) -> None:
    """One after the other in the order of ids, each on the views as they are."""
    visits = topic.ttl + 1
    path = np.zeros(visits, np.int32)
    for place in range(len(topic.ids)):
        if walk(views, topic, place, round_, path, 0) == visits:
            merge_view(views, topic, place, best)
            merge_walk(views, topic, place, path, 0, best)
            write_view(views, topic, place, best)
