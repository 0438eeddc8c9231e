"""From arrays to arrays: the overlays of many topics through their rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cubecast.kernel.errors import KernelError
from cubecast.kernel.rounds.arithmetic import HASH_CODES, Ints, Longs
from cubecast.kernel.rounds.engine import play_faithful, play_repairing
from cubecast.kernel.rounds.walks import CompiledConfig
from cubecast.overlay.rounds import RoundConfig
from cubecast.overlay.view_sizes import view_size

LARGEST_TOPIC = 2**31 - 1
"""Places in a topic are numbers of 32 bits with a sign."""


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The subscribers of topics: those of topic i are ``members[offsets[i]:offsets[i + 1]]``.

    They are sorted by id and different; no id is negative.
    """

    topics: Longs
    offsets: Longs
    members: Longs

    @classmethod
    def of_arrays(
        cls,
        topics: Sequence[int] | Longs,
        offsets: Sequence[int] | Longs,
        members: Sequence[int] | Longs,
    ) -> Subscribers:
        """The arrays as compiled code needs them; raises `KernelError` if they are wrong."""
        return cls(*_checked(topics, offsets, members))

    @classmethod
    def of_pairs(cls, users: Longs, topics: Longs) -> Subscribers:
        """From subscriptions in any order; a pair that comes twice counts once."""
        order = np.lexsort((users, topics))
        users, topics = users[order], topics[order]
        new = np.ones(len(users), np.bool_)
        new[1:] = (users[1:] != users[:-1]) | (topics[1:] != topics[:-1])
        users, topics = users[new], topics[new]
        different, firsts = np.unique(topics, return_index=True)
        offsets = np.append(firsts, len(users)).astype(np.int64)
        return cls.of_arrays(different, offsets, users)


@dataclass(frozen=True, slots=True)
class Played:
    """The views of all subscribers of some topics after the kept rounds.

    The subscribers of topic i are ``members[offsets[i]:offsets[i + 1]]``, sorted; each has a view
    of ``sizes[i]``.  Their views stand one after the other in each row of `places`, from
    ``view_offsets[i]`` on; a view has places in the topic's list of subscribers, in stored order.
    """

    topics: Longs
    offsets: Longs
    members: Longs
    sizes: Longs
    view_offsets: Longs
    keep: tuple[int, ...]
    places: npt.NDArray[np.int32]
    """One row per kept round."""

    def row(self, round_: int) -> Ints:
        """All views after a round, as places."""
        if round_ not in self.keep:
            kept = ", ".join(map(str, self.keep))
            raise KernelError(f"round {round_} was not kept: keep has {kept}")
        row: Ints = self.places[self.keep.index(round_)]
        return row

    def ids(self, round_: int) -> Longs:
        """All views after a round, as ids."""
        lengths = np.diff(self.view_offsets)
        ids: Longs = self.members[self.row(round_) + np.repeat(self.offsets[:-1], lengths)]
        return ids

    def subscription_topics(self) -> Longs:
        """The topic of each entry of `members`."""
        return np.repeat(self.topics, np.diff(self.offsets))

    def subscription_sizes(self) -> Longs:
        """The size of the view of each entry of `members`."""
        return np.repeat(self.sizes, np.diff(self.offsets))

    def views(self, round_: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(topic, user, view) of each subscription: for small runs and for tests."""
        ids, at = self.ids(round_), 0
        columns = (self.subscription_topics(), self.members, self.subscription_sizes())
        for topic, user, size in zip(*(column.tolist() for column in columns), strict=True):
            yield topic, user, tuple(ids[at : at + size].tolist())
            at += size


def play_topics(
    topics: Sequence[int] | Longs,
    offsets: Sequence[int] | Longs,
    members: Sequence[int] | Longs,
    config: RoundConfig,
    keep: Sequence[int] = (0, 8),
    *,
    run: int = 0,
) -> Played:
    """Play the overlay of each topic through its rounds and keep the wanted ones.

    The subscribers of topic i are ``members[offsets[i]:offsets[i + 1]]``, sorted by id.  The views
    are those of `cubecast.overlay.rounds.play`, whatever topics are played together.  Rounds after
    the last kept one are not played; ``config.rounds`` is ignored.
    """
    return play_overlays(Subscribers.of_arrays(topics, offsets, members), config, keep, run=run)


def play_overlays(
    subscribers: Subscribers, config: RoundConfig, keep: Sequence[int] = (0, 8), *, run: int = 0
) -> Played:
    """`play_topics` of checked arrays."""
    kept = tuple(sorted(set(keep)))
    if not kept or kept[0] < 0:
        raise KernelError(f"keep must name rounds from 0 on, not {tuple(keep)}")
    topics, offsets, members = subscribers.topics, subscribers.offsets, subscribers.members
    sizes = view_sizes(np.diff(offsets), config)
    view_offsets = np.concatenate(([0], np.cumsum(np.diff(offsets) * sizes))).astype(np.int64)
    places = np.empty((len(kept), int(view_offsets[-1])), np.int32)
    play = play_repairing if config.mode == "repairing" else play_faithful
    play(topics, offsets, members, sizes, rules_of(config, run), np.array(kept), places)
    return Played(topics, offsets, members, sizes, view_offsets, kept, places)


def rules_of(config: RoundConfig, run: int) -> CompiledConfig:
    """The configuration as compiled code reads it."""
    return CompiledConfig(
        np.uint64(run & (2**64 - 1)),
        config.ttl,
        HASH_CODES[config.hashing],
        config.order == "in turn",
        float(config.loss),
    )


def view_sizes(counts: Longs, config: RoundConfig) -> Longs:
    """The view size of each topic, by its number of subscribers."""
    different, which = np.unique(counts, return_inverse=True)
    sizes = [view_size(int(n), config.connected, config.rounding) for n in different]
    return np.array(sizes, np.int64)[which]


def _checked(
    topics: Sequence[int] | Longs, offsets: Sequence[int] | Longs, members: Sequence[int] | Longs
) -> tuple[Longs, Longs, Longs]:
    topics_, offsets_, members_ = (
        np.ascontiguousarray(array, np.int64) for array in (topics, offsets, members)
    )
    if len(offsets_) != len(topics_) + 1 or offsets_[0] != 0 or offsets_[-1] != len(members_):
        raise KernelError(
            f"offsets must go from 0 to {len(members_)} in {len(topics_) + 1} numbers, "
            f"not {len(offsets_)} numbers"
        )
    counts = np.diff(offsets_)
    if len(counts) and (counts.min() < 0 or counts.max() > LARGEST_TOPIC):
        raise KernelError(f"a topic cannot have {counts.min()} or {counts.max()} subscribers")
    for name, ids in (("topic", topics_), ("member", members_)):
        if len(ids) and ids.min() < 0:
            raise KernelError(f"{name} ids must not be negative: {ids.min()}")
    rising = np.ones(len(members_), np.bool_)
    rising[1:] = members_[1:] > members_[:-1]
    rising[offsets_[:-1][counts > 0]] = True
    if not rising.all():
        at = int(np.argmin(rising))
        topic = topics_[np.searchsorted(offsets_, at, "right") - 1]
        raise KernelError(
            f"members of topic {topic} must be sorted and different: "
            f"{members_[at]} follows {members_[at - 1]}"
        )
    return topics_, offsets_, members_
