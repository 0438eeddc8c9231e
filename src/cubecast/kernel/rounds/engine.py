"""All rounds of many overlays in one compiled call.

Each mode has an entry point of its own, because the code of repairing mode takes long to compile
and many runs do without.  They share what is here.  numba drops a branch that asks whether an
argument is None before it compiles, but only where that argument is None: so each mode has an
argument that is None in the other, `keeping` and `plain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.rounds import faithful, repairing
from cubecast.kernel.rounds.arithmetic import Ints, Longs, combined, wide
from cubecast.kernel.rounds.repairing import KeeperTables, forget, new_keeping
from cubecast.kernel.rounds.walks import Best, CompiledConfig, CompiledTopic, start_views
from cubecast.kernel.shared.jit import apart, entry, sources_digest

Table: TypeAlias = npt.NDArray[np.int32]
"""One row per kept round, all views of all topics in it."""
Play: TypeAlias = Callable[[Longs, Longs, Longs, Longs, CompiledConfig, Longs, Table], None]

_faithful_together, _faithful_in_turn = faithful.together, faithful.in_turn
_repairing_together, _repairing_in_turn = repairing.together, repairing.in_turn


@apart
def _play_topic(
    now: Ints, then: Ints, topic: CompiledTopic, in_turn: bool, keeping: KeeperTables | None,
    plain: bool | None, keep: Longs, views: Table, begin: int,
) -> None:  # fmt: skip
    """Play the overlay of a topic as far as the last kept round; `begin` is its place in a row."""
    best = Best(np.zeros(topic.k, np.uint64), np.zeros(topic.k, np.int32))
    start_views(now, topic)
    kept = 0
    for round_ in range(keep[-1] + 1):
        if round_ and keeping is not None:
            if in_turn:
                _repairing_in_turn(now, topic, keeping, round_, best)
            else:
                _repairing_together(now, then, topic, keeping, round_, best)
        if round_ and plain is not None:
            if in_turn:
                _faithful_in_turn(now, topic, round_, best)
            else:
                _faithful_together(now, then, topic, round_, best)
        if round_ and not in_turn:
            now, then = then, now
        if keep[kept] == round_:
            for at in range(len(now)):
                views[kept, begin + at] = now[at]
            kept += 1


@apart
def _most(offsets: Longs) -> int:
    """The subscribers of the largest topic."""
    most = 0
    for number in range(len(offsets) - 1):
        most = max(most, offsets[number + 1] - offsets[number])
    return most


@apart
def _play_topics(
    topics: Longs, offsets: Longs, members: Longs, sizes: Longs, rules: CompiledConfig, keep: Longs,
    views: Table, keeping: KeeperTables | None, plain: bool | None,
) -> None:  # fmt: skip
    longest = 0
    for number in range(len(topics)):
        longest = max(longest, (offsets[number + 1] - offsets[number]) * sizes[number])
    one, other = np.zeros(longest, np.int32), np.zeros(longest, np.int32)
    begin = wide(0)
    for number in range(len(topics)):
        ids = members[offsets[number] : offsets[number + 1]]
        k = sizes[number]
        length = len(ids) * k
        if length:
            name = combined(rules.run, np.uint64(topics[number]))
            topic = CompiledTopic(ids, k, name, rules.hashing, rules.ttl, rules.loss)
            if keeping is not None:
                forget(keeping, len(ids))
            now, then = one[:length], other[:length]
            _play_topic(now, then, topic, rules.in_turn, keeping, plain, keep, views, begin)
        begin += length


def _make_entries(sources: str) -> tuple[Play, Play]:
    """The entry points; `sources` is part of the key under which they are kept."""

    @entry
    def play_faithful(
        topics: Longs, offsets: Longs, members: Longs, sizes: Longs, rules: CompiledConfig,
        keep: Longs, views: Table,
    ) -> None:  # fmt: skip
        if sources:
            _play_topics(topics, offsets, members, sizes, rules, keep, views, None, True)

    @entry
    def play_repairing(
        topics: Longs, offsets: Longs, members: Longs, sizes: Longs, rules: CompiledConfig,
        keep: Longs, views: Table,
    ) -> None:  # fmt: skip
        if sources:
            keeping = new_keeping(_most(offsets))
            _play_topics(topics, offsets, members, sizes, rules, keep, views, keeping, None)

    return play_faithful, play_repairing


play_faithful, play_repairing = _make_entries(sources_digest(__package__))
