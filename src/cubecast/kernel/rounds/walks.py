"""Start views, walks and merges of one topic's overlay, compiled ([N] Algorithm 2).

The reference is `cubecast.overlay.rounds`; this module makes the same draws and the same choices.

A view is a row of `k` places in the topic's sorted list of subscribers, so that a link takes four
bytes and the lower of two places is the lower of two ids.

A merge keeps the lightest links found so far, sorted.  Most candidates are heavier than all of them
and cost a hash and a comparison.  Any other is put where it belongs, and one that is there already
is noticed on the way: the same link has the same weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cubecast.kernel.rounds.arithmetic import (
    Ints,
    Longs,
    Word,
    Words,
    combined,
    drawn_below,
    drawn_share,
    half_weight,
    weight,
    wide,
)
from cubecast.kernel.shared.jit import apart, forced
from cubecast.overlay.rounds import FIRST_LOSS


class CompiledConfig(NamedTuple):
    """The configuration of a run as compiled code reads it."""

    run: Word
    ttl: int
    hashing: int
    in_turn: bool
    loss: float


class CompiledTopic(NamedTuple):
    """The constants of a topic's overlay."""

    ids: Longs
    """Its subscribers, sorted."""
    k: int
    name: Word
    """The part of the names of its streams that depends on run and topic."""
    hashing: int
    ttl: int
    loss: float


class Best(NamedTuple):
    """The lightest links that a merge has seen, lightest first."""

    weights: Words
    places: Ints


@forced
def stream_of(topic: CompiledTopic, place: int, round_: int) -> Word:
    """`chance.stream` of a subscriber in a round."""
    return combined(combined(topic.name, np.uint64(topic.ids[place])), np.uint64(round_))


@forced
def link_weight(topic: CompiledTopic, place: int, other: int) -> Word:
    """The weight of the link from one place to another."""
    half = half_weight(np.uint64(topic.ids[place]), topic.hashing)
    return weight(half, np.uint64(topic.ids[other]), topic.hashing)


@forced
def is_lost(topic: CompiledTopic, stream: Word, message: int) -> bool:
    """`rounds.is_lost`; draws nothing where nothing is lost."""
    return topic.loss > 0.0 and drawn_share(stream, FIRST_LOSS + message) < topic.loss


@apart
def start_views(views: Ints, topic: CompiledTopic) -> None:
    """Give every subscriber k different others at random, in the order of drawing."""
    k, n = topic.k, len(topic.ids)
    for place in range(n):
        row = place * k
        if k == n - 1:
            for other in range(k):
                views[row + other] = other + (other >= place)
            continue
        stream = stream_of(topic, place, 0)
        found = number = 0
        while found < k:
            other = drawn_below(stream, number, n)
            number += 1
            if other != place and not _holds(views, row, found, other):
                views[row + found] = other
                found += 1


@forced
def _holds(views: Ints, row: int, length: int, place: int) -> bool:
    for at in range(row, row + length):  # noqa: SIM110 (a generator is not compiled)
        if views[at] == place:
            return True
    return False


@forced
def walk(views: Ints, topic: CompiledTopic, place: int, round_: int, path: Ints, first: int) -> int:
    """Lines 1 to 13: write the visited places to `path`, from `first` on.

    Returns the number of visits.  A walk whose reply is lost has made them all, so that number is
    negative: `replied` of a walk is that its number is ttl + 1.
    """
    stream = stream_of(topic, place, round_)
    k, visits = topic.k, topic.ttl + 1
    at = place
    for hop in range(visits):
        if is_lost(topic, stream, hop):
            return hop
        at = wide(views[at * k + drawn_below(stream, hop, k)])
        path[first + hop] = at
    return -visits if is_lost(topic, stream, visits) else visits


@forced
def offer(best: Best, held: int, room: int, heavy: Word, place: int) -> int:
    """Put a link of this weight among the `held` lightest, at most `room`; return their number."""
    weights, places = best.weights, best.places
    at = held
    while at > 0 and (
        heavy < weights[at - 1] or (heavy == weights[at - 1] and place < places[at - 1])
    ):
        at -= 1
    if at == room or (at > 0 and weights[at - 1] == heavy and places[at - 1] == place):
        return held
    last = min(held, room - 1)
    for move in range(last, at, -1):
        weights[move] = weights[move - 1]
        places[move] = places[move - 1]
    weights[at] = heavy
    places[at] = place
    return last + 1


@forced
def merge_view(views: Ints, topic: CompiledTopic, place: int, best: Best) -> None:
    """Begin a merge with the present view of a node."""
    half = half_weight(np.uint64(topic.ids[place]), topic.hashing)
    held = 0
    for at in range(place * topic.k, (place + 1) * topic.k):
        heavy = weight(half, np.uint64(topic.ids[views[at]]), topic.hashing)
        held = offer(best, held, topic.k, heavy, wide(views[at]))


@forced
def merge_walk(
    views: Ints, topic: CompiledTopic, place: int, path: Ints, first: int, best: Best
) -> None:
    """Lines 14 to 17: merge all ids that a whole walk collected."""
    k, hashing, ids = topic.k, topic.hashing, topic.ids
    half = half_weight(np.uint64(ids[place]), hashing)
    heaviest = best.weights[k - 1]
    for hop in range(first, first + topic.ttl + 1):
        visited = wide(path[hop])
        heavy = weight(half, np.uint64(ids[visited]), hashing)
        if heavy <= heaviest and visited != place:
            offer(best, k, k, heavy, visited)
            heaviest = best.weights[k - 1]
        for at in range(visited * k, visited * k + k):
            other = wide(views[at])
            heavy = weight(half, np.uint64(ids[other]), hashing)
            if heavy <= heaviest and other != place:
                offer(best, k, k, heavy, other)
                heaviest = best.weights[k - 1]


@forced
def write_view(views: Ints, topic: CompiledTopic, place: int, best: Best) -> None:
    """Make the outcome of a merge the node's view."""
    for at in range(topic.k):
        views[place * topic.k + at] = best.places[at]


@forced
def copy_row(source: Ints, row: int, target: Ints, to: int, k: int) -> None:
    """Copy a view.  A loop: assigning to a slice would take a second longer to compile."""
    for at in range(k):
        target[to * k + at] = source[row * k + at]
