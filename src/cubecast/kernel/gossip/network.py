"""The links that events travel over: the views of many topics, laid out for gossip.

Users are numbered from 0 in the order of their ids; a link takes four bytes.  All arrays are
read-only, so that networks in memory and networks mapped from files run the same compiled code.

A *back link* is a link used against its direction: the first `back` members of a node's view send
to that node, too.  Views are stored by weight, lightest first, so in StaN's overlays these are the
node's lightest neighbours, and the same ones in many topics.  A node can ask for it with one
message, because it knows its view.  Without back links (`back` = 0) the network is the overlay.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cubecast.kernel.errors import KernelError
from cubecast.kernel.gossip.links import add_back_links, count_back_links, find_places
from cubecast.kernel.rounds.arithmetic import Ints, Longs
from cubecast.kernel.rounds.play import Played

LARGEST = 2**31 - 1
"""Users and subscriptions are numbers of 32 bits with a sign."""

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class GossipNetwork:
    """The links of all nodes, with the topics of each.

    Subscription s is of user ``members[s]``; those of topic i are offsets[i] to offsets[i + 1] - 1,
    by rising user.  It sends to the users ``links[begins[s]:begins[s + 1]]``.  The subscriptions of
    user u are ``user_subscriptions[user_offsets[u]:user_offsets[u + 1]]``, by rising topic.
    """

    topics: Longs
    users: Longs
    """The ids of users, rising."""
    offsets: Longs
    members: Ints
    begins: Longs
    links: Ints
    user_offsets: Longs
    user_topics: Ints
    """The topic's number of each entry of `user_subscriptions`."""
    user_subscriptions: Ints

    @property
    def nbytes(self) -> int:
        """The memory of all arrays."""
        return sum(getattr(self, one.name).nbytes for one in fields(self))

    def save(self, folder: Path) -> None:
        """Write the arrays, one file each, so that processes of a machine can share them."""
        folder.mkdir(parents=True, exist_ok=True)
        for one in fields(self):
            np.save(folder / f"{one.name}.npy", getattr(self, one.name), allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> GossipNetwork:
        """Map a saved network into memory: processes of a machine share one copy."""
        try:
            arrays = [np.load(folder / f"{one.name}.npy", mmap_mode="r") for one in fields(cls)]
        except (OSError, ValueError) as error:
            raise KernelError(f"cannot read the network in {folder}: {error}") from None
        return cls(*(np.asarray(array) for array in arrays))


def network_of(played: Played, round_: int, back: int = 0) -> GossipNetwork:
    """The network of the overlays of all played topics after a kept round."""
    counts = np.repeat(played.sizes, np.diff(played.offsets))
    begins = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return _network(played.topics, played.offsets, played.members, begins, played.row(round_), back)


def network_of_views(
    topics: Longs, users: Longs, view_offsets: Longs, view_ids: Longs, back: int = 0
) -> GossipNetwork:
    """The network of rows (topic, user, view), in any order.

    The view of row i is ``view_ids[view_offsets[i]:view_offsets[i + 1]]``.  Each member
    of a view must subscribe to the topic, that is, have a row of its own.
    """
    topics, users, view_offsets, view_ids = (
        np.ascontiguousarray(array, np.int64) for array in (topics, users, view_offsets, view_ids)
    )
    order = np.lexsort((users, topics))
    lengths = np.diff(view_offsets)[order]
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    starts = np.repeat(view_offsets[:-1][order] - begins[:-1], lengths)
    ids = view_ids[starts + np.arange(len(starts))]
    sorted_topics, members = topics[order], users[order]
    twice = (sorted_topics[1:] == sorted_topics[:-1]) & (members[1:] == members[:-1])
    if twice.any():
        at = int(np.argmax(twice))
        raise KernelError(f"user {members[at]} has two views in topic {sorted_topics[at]}")
    names, firsts = np.unique(sorted_topics, return_index=True)
    offsets = np.append(firsts, len(members)).astype(np.int64)
    places = np.empty(len(ids), np.int32)
    stray = find_places(offsets, members, begins, ids, places)
    if stray >= 0:
        row = int(np.searchsorted(begins, stray, "right")) - 1
        raise KernelError(
            f"the view of user {members[row]} in topic {sorted_topics[row]} holds {ids[stray]}, "
            "which does not subscribe to it"
        )
    return _network(names, offsets, members, begins, places, back)


def _network(
    topics: Longs, offsets: Longs, members: Longs, begins: Longs, places: Ints, back: int
) -> GossipNetwork:
    """From views as places in each topic's list of subscribers."""
    if back < 0:
        raise KernelError(f"back must be 0 or more, not {back}")
    if len(members) > LARGEST:
        raise KernelError(f"a network has at most {LARGEST:,} subscriptions, not {len(members):,}")
    if (np.diff(topics) <= 0).any():
        raise KernelError("topics of a network must be sorted and different")
    if back:
        begins, places = _with_back_links(offsets, begins, places, back)
    users, numbers = np.unique(members, return_inverse=True)
    dense = numbers.astype(np.int32)
    counts = np.diff(offsets)
    firsts = np.repeat(np.repeat(offsets[:-1], counts), np.diff(begins))
    by_user = np.argsort(dense, kind="stable").astype(np.int32)
    topic_numbers = np.repeat(np.arange(len(topics), dtype=np.int32), counts)
    user_offsets = np.concatenate(([0], np.cumsum(np.bincount(dense, minlength=len(users)))))
    return GossipNetwork(
        _fixed(topics, np.int64),
        _fixed(users, np.int64),
        _fixed(offsets, np.int64),
        _fixed(dense, np.int32),
        _fixed(begins, np.int64),
        _fixed(dense[firsts + places], np.int32),
        _fixed(user_offsets, np.int64),
        _fixed(topic_numbers[by_user], np.int32),
        _fixed(by_user, np.int32),
    )


def _with_back_links(offsets: Longs, begins: Longs, places: Ints, back: int) -> tuple[Longs, Ints]:
    """The views, each followed by the nodes that ask for a back link and are not in it already."""
    extra = np.zeros(len(begins) - 1, np.int64)
    count_back_links(offsets, begins, places, back, extra)
    ends = np.cumsum(np.diff(begins) + extra)
    longer = np.concatenate(([0], ends)).astype(np.int64)
    links = np.empty(int(longer[-1]), np.int32)
    add_back_links(offsets, begins, places, back, longer, links)
    return longer, links


def _fixed(array: npt.NDArray[np.generic], kind: type[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only array of the kind that compiled code expects; copies only what it must."""
    found: npt.NDArray[Scalar] = np.ascontiguousarray(array, kind).view()
    found.flags.writeable = False
    return found
