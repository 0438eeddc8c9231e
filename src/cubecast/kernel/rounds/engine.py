"""All rounds of many overlays in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.jit import apart, entry, sources_digest
from cubecast.kernel.rounds import faithful, repairing
from cubecast.kernel.rounds.arithmetic import Ints, Longs, combined
from cubecast.kernel.rounds.repairing import NONE, Keeping
from cubecast.kernel.rounds.walks import Best, Rules, Topic, start_views

Table: TypeAlias = npt.NDArray[np.int32]
"""One row per kept round, all views of all topics in it."""
Play: TypeAlias = Callable[[Longs, Longs, Longs, Longs, Rules, Longs, Table], None]

_faithful_together, _faithful_in_turn = faithful.together, faithful.in_turn
_repairing_together, _repairing_in_turn = repairing.together, repairing.in_turn


@apart
def _play_topic(
    one: Ints, other: Ints, topic: Topic, rules: Rules, keep: Longs, views: Table, begin: int
) -> None:
    """Play the overlay of a topic as far as the last kept round; `begin` is its place in a row."""
    n, length = len(topic.ids), len(topic.ids) * topic.k
    now, then = one[:length], other[:length]
    best = Best(np.zeros(topic.k, np.uint64), np.zeros(topic.k, np.int32))
    few = n if rules.repairing else 0
    keeping = Keeping(
        np.full(few, NONE, np.int32), np.zeros(few, np.int32), np.zeros(few, np.int32)
    )
    start_views(now, topic)
    kept = 0
    for round_ in range(keep[-1] + 1):
        if round_ and rules.in_turn:
            if rules.repairing:
                _repairing_in_turn(now, topic, keeping, round_, best)
            else:
                _faithful_in_turn(now, topic, round_, best)
        elif round_:
            if rules.repairing:
                _repairing_together(now, then, topic, keeping, round_, best)
            else:
                _faithful_together(now, then, topic, round_, best)
            now, then = then, now
        if keep[kept] == round_:
            views[kept, begin : begin + length] = now
            kept += 1


@apart
def _play_topics(
    topics: Longs, offsets: Longs, members: Longs, sizes: Longs, rules: Rules, keep: Longs,
    views: Table,
) -> None:  # fmt: skip
    longest = 0
    for number in range(len(topics)):
        longest = max(longest, (offsets[number + 1] - offsets[number]) * sizes[number])
    one, other = np.zeros(longest, np.int32), np.zeros(longest, np.int32)
    begin = 0
    for number in range(len(topics)):
        ids = members[offsets[number] : offsets[number + 1]]
        k = sizes[number]
        if k:
            name = combined(rules.run, np.uint64(topics[number]))
            topic = Topic(ids, k, name, rules.hashing, rules.ttl, rules.loss)
            _play_topic(one, other, topic, rules, keep, views, begin)
        begin += len(ids) * k


def _make_play(sources: str) -> Play:
    """The entry point; `sources` is part of the key under which it is kept."""

    @entry
    def play(
        topics: Longs, offsets: Longs, members: Longs, sizes: Longs, rules: Rules, keep: Longs,
        views: Table,
    ) -> None:  # fmt: skip
        """Fill `views` with the kept rounds of every topic."""
        if sources:
            _play_topics(topics, offsets, members, sizes, rules, keep, views)

    return play


play = _make_play(sources_digest(__package__))
