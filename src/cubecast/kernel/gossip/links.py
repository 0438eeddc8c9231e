"""Steps that lay a network out, compiled: places of ids, and back links (`network`)."""

from __future__ import annotations

from cubecast.kernel.rounds.arithmetic import Ints, Longs
from cubecast.kernel.shared.jit import apart, forced


@forced
def _place(members: Longs, first: int, last: int, user: int) -> int:
    """The place of an id among the sorted ones from `first` to before `last`; -1 if it is none."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if members[middle] < user:
            low = middle + 1
        else:
            high = middle
    return low - first if low < last and members[low] == user else -1


@apart
def find_places(offsets: Longs, members: Longs, begins: Longs, ids: Longs, places: Ints) -> int:
    """Turn views of ids into views of places; return the first id without a place, or -1."""
    for topic in range(len(offsets) - 1):
        first, last = offsets[topic], offsets[topic + 1]
        for at in range(begins[first], begins[last]):
            place = _place(members, first, last, ids[at])
            if place < 0:
                return at
            places[at] = place
    return -1


@forced
def _holds(views: Ints, first: int, last: int, place: int) -> bool:
    for at in range(first, last):  # noqa: SIM110 (a generator is not compiled)
        if views[at] == place:
            return True
    return False


@apart
def count_back_links(offsets: Longs, begins: Longs, views: Ints, back: int, extra: Longs) -> None:
    """Count the back links of each subscription: to nodes that are not in its view."""
    for topic in range(len(offsets) - 1):
        first = offsets[topic]
        for one in range(first, offsets[topic + 1]):
            for at in range(begins[one], min(begins[one] + back, begins[one + 1])):
                other = first + views[at]
                if not _holds(views, begins[other], begins[other + 1], one - first):
                    extra[other] += 1


@apart
def add_back_links(
    offsets: Longs, begins: Longs, views: Ints, back: int, longer: Longs, links: Ints
) -> None:
    """Write each view, and the back links after it; `longer` says where they begin."""
    ends = longer[:-1] + (begins[1:] - begins[:-1])
    for one in range(len(ends)):
        for at in range(begins[one + 1] - begins[one]):
            links[longer[one] + at] = views[begins[one] + at]
    for topic in range(len(offsets) - 1):
        first = offsets[topic]
        for one in range(first, offsets[topic + 1]):
            for at in range(begins[one], min(begins[one] + back, begins[one + 1])):
                other = first + views[at]
                if not _holds(views, begins[other], begins[other + 1], one - first):
                    links[ends[other]] = one - first
                    ends[other] += 1
