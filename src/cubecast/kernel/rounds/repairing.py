"""A round in repairing mode, compiled: offers and keepers (`cubecast.overlay.rounds`).

A node's pinned ids are always in its view, so a view and the requests that its node accepted in
this round hold all of them: a link is pinned if the keeper of its end is the node.

The walk of a node has ttl + 2 places in `path`: the node itself, then those it visits.  A visit is
such a place; the one before it has its last hop.  The visits to a node form a chain, and so do the
requests to a keeper: `heads` has the first, `nexts` the one after each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cubecast.kernel.rounds.arithmetic import Ints, Word, drawn_below, half_weight, weight, wide
from cubecast.kernel.rounds.walks import (
    Best,
    CompiledTopic,
    copy_row,
    is_lost,
    link_weight,
    offer,
    stream_of,
    walk,
    write_view,
)
from cubecast.kernel.shared.jit import apart, forced
from cubecast.overlay.rounds import RANDOM_KEEPER

NONE = -1


class KeeperTables(NamedTuple):
    """The keepers of all nodes between two rounds."""

    keepers: Ints
    """Of each node, its keeper, or `NONE`."""
    pins: Ints
    """Of each node, how many it keeps."""
    visited: Ints
    """In turn: 1 for a node that a walk visited since its own last turn."""


@apart
def new_keeping(n: int) -> KeeperTables:
    """No node has a keeper."""
    return KeeperTables(np.full(n, NONE, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32))


@apart
def forget(keeping: KeeperTables, n: int) -> None:
    """Begin anew, for a topic of n subscribers."""
    for node in range(n):
        keeping.keepers[node] = NONE
        keeping.pins[node] = keeping.visited[node] = 0


@forced
def _pins_limit(k: int) -> int:
    """`rounds.pins_limit`."""
    return max(1, k // 2)


@forced
def _is_lighter(topic: CompiledTopic, node: int, one: int, other: int) -> bool:
    """Whether `one` ranks the node higher than `other` does, and so is the better keeper."""
    first, second = link_weight(topic, one, node), link_weight(topic, other, node)
    return bool(first < second or (first == second and one < other))


@forced
def _asked(
    views: Ints, topic: CompiledTopic, keeping: KeeperTables, node: int, round_: int, best: int
) -> int:
    """Rules 1 and 2: the keeper that a node asks for, given the lightest of its last hops."""
    stream = stream_of(topic, node, round_)
    keeper = wide(keeping.keepers[node])
    if keeper == NONE:
        if best == NONE:
            best = wide(views[node * topic.k + drawn_below(stream, RANDOM_KEEPER, topic.k)])
    elif best == NONE or not _is_lighter(topic, node, best, keeper):
        return NONE
    return NONE if is_lost(topic, stream, topic.ttl + 2) else best


@forced
def _move(keeping: KeeperTables, node: int, keeper: int) -> None:
    former = keeping.keepers[node]
    if former != NONE:
        keeping.pins[former] -= 1
    keeping.keepers[node] = keeper
    keeping.pins[keeper] += 1


# -- rule 4 ----------------------------------------------------------------------------------------


class Merge(NamedTuple):
    """The lightest links of a node that it does not pin, while its new view is found."""

    node: int
    half: Word
    room: int
    """The room that its pins leave in the view."""


@forced
def _merge_of(topic: CompiledTopic, keeping: KeeperTables, node: int) -> Merge:
    half = half_weight(np.uint64(topic.ids[node]), topic.hashing)
    return Merge(node, half, topic.k - keeping.pins[node])


@forced
def _consider(
    topic: CompiledTopic, keeping: KeeperTables, merge: Merge, best: Best, held: int, other: int
) -> int:
    """Offer one link; return how many links the merge holds."""
    node, half, room = merge
    heavy = weight(half, np.uint64(topic.ids[other]), topic.hashing)
    light = held < room or (room and heavy <= best.weights[room - 1])
    if light and other != node and keeping.keepers[other] != node:
        held = offer(best, held, room, heavy, other)
    return held


@forced
def _consider_row(
    views: Ints,
    topic: CompiledTopic,
    keeping: KeeperTables,
    merge: Merge,
    best: Best,
    held: int,
    row: int,
) -> int:
    """Offer a view.  The arrays are taken out of their tuples once, not once a link."""
    node, half, room = merge
    k, hashing, ids, keepers, weights = (
        topic.k, topic.hashing, topic.ids, keeping.keepers, best.weights,
    )  # fmt: skip
    for at in range(row * k, row * k + k):
        other = wide(views[at])
        heavy = weight(half, np.uint64(ids[other]), hashing)
        light = held < room or (room and heavy <= weights[room - 1])
        if light and other != node and keepers[other] != node:
            held = offer(best, held, room, heavy, other)
    return held


@forced
def _pin(topic: CompiledTopic, merge: Merge, best: Best, held: int, other: int) -> int:
    """Add a link that the node pins."""
    heavy = weight(merge.half, np.uint64(topic.ids[other]), topic.hashing)
    return offer(best, held, topic.k, heavy, other)


@forced
def _pin_row(
    views: Ints, topic: CompiledTopic, keeping: KeeperTables, merge: Merge, best: Best, held: int
) -> int:
    """Add the pinned links of a node, once it has considered all others."""
    if keeping.pins[merge.node]:
        for at in range(merge.node * topic.k, (merge.node + 1) * topic.k):
            if keeping.keepers[views[at]] == merge.node:
                held = _pin(topic, merge, best, held, wide(views[at]))
    return held


# -- lock step -------------------------------------------------------------------------------------


@forced
def _lightest_last_hop(
    topic: CompiledTopic, node: int, path: Ints, heads: Ints, nexts: Ints
) -> int:
    """The last hop of a walk to this node that ranks it highest."""
    best = wide(NONE)
    lightest = np.uint64(0)
    visit = wide(heads[node])
    while visit != NONE:
        last = wide(path[visit - 1])
        heavy = link_weight(topic, last, node)
        if best == NONE or heavy < lightest or (heavy == lightest and last < best):
            best, lightest = last, heavy
        visit = wide(nexts[visit])
    return best


@apart
def _settle_keepers(
    old: Ints, topic: CompiledTopic, keeping: KeeperTables, round_: int, best: Best,
    path: Ints, heads: Ints, nexts: Ints, askers: Ints, others: Ints,
) -> None:  # fmt: skip
    """Rules 1 to 3: all nodes ask, then all answer, then all give their former keepers up.

    Afterwards the chains in `askers` and `others` have the requests, accepted or not.
    """
    n, limit = len(topic.ids), _pins_limit(topic.k)
    for node in range(n):
        last = _lightest_last_hop(topic, node, path, heads, nexts)
        keeper = _asked(old, topic, keeping, node, round_, last)
        others[node] = NONE
        if keeper != NONE:
            others[node] = askers[keeper]
            askers[keeper] = node
    before = keeping.pins.copy()
    for keeper in range(n):
        room = limit - before[keeper]
        node = wide(askers[keeper])
        held = 0
        while node != NONE and room > 0:
            held = offer(best, held, room, link_weight(topic, keeper, node), node)
            node = wide(others[node])
        for at in range(held):
            _move(keeping, wide(best.places[at]), keeper)


@apart
def together(
    old: Ints, new: Ints, topic: CompiledTopic, keeping: KeeperTables, round_: int, best: Best
) -> None:
    """Lock step: walks, then requests and answers, then all views at once."""
    n, visits, length = len(topic.ids), topic.ttl + 1, topic.ttl + 2
    path, nexts = np.zeros(n * length, np.int32), np.zeros(n * length, np.int32)
    heads, made = np.full(n, NONE, np.int32), np.zeros(n, np.int32)
    for node in range(n):
        first = node * length + 1
        path[first - 1] = node
        made[node] = walk(old, topic, node, round_, path, first)
        for visit in range(first, first + abs(made[node])):
            nexts[visit] = heads[path[visit]]
            heads[path[visit]] = visit
    askers, others = np.full(n, NONE, np.int32), np.zeros(n, np.int32)
    _settle_keepers(old, topic, keeping, round_, best, path, heads, nexts, askers, others)
    for node in range(n):
        merge = _merge_of(topic, keeping, node)
        held = _consider_row(old, topic, keeping, merge, best, 0, node)
        if made[node] == visits:
            for hop in range(node * length + 1, (node + 1) * length):
                held = _consider(topic, keeping, merge, best, held, wide(path[hop]))
                held = _consider_row(old, topic, keeping, merge, best, held, wide(path[hop]))
        visit = wide(heads[node])
        while visit != NONE:
            held = _consider(topic, keeping, merge, best, held, visit // length)
            visit = wide(nexts[visit])
        held = _pin_row(old, topic, keeping, merge, best, held)
        asker = wide(askers[node])
        while asker != NONE:
            if keeping.keepers[asker] == node:
                held = _pin(topic, merge, best, held, asker)
            asker = wide(others[asker])
        write_view(new, topic, node, best)


# -- in turn ---------------------------------------------------------------------------------------


@apart
def _relax(
    views: Ints, topic: CompiledTopic, keeping: KeeperTables, node: int, best: Best, offered: int
) -> None:
    """The view of a node after an offer of one link, pinned or not."""
    merge = _merge_of(topic, keeping, node)
    held = _consider_row(views, topic, keeping, merge, best, 0, node)
    held = _consider(topic, keeping, merge, best, held, offered)
    held = _pin_row(views, topic, keeping, merge, best, held)
    if keeping.keepers[offered] == node:
        _pin(topic, merge, best, held, offered)
    write_view(views, topic, node, best)


@apart
def _ask(
    views: Ints,
    topic: CompiledTopic,
    keeping: KeeperTables,
    node: int,
    round_: int,
    last: int,
    best: Best,
) -> None:
    """Ask for a keeper for a node, and answer at once."""
    keeper = _asked(views, topic, keeping, node, round_, last)
    if keeper != NONE and keeping.pins[keeper] < _pins_limit(topic.k):
        _move(keeping, node, keeper)
        _relax(views, topic, keeping, keeper, best, node)


@apart
def in_turn(
    views: Ints, topic: CompiledTopic, keeping: KeeperTables, round_: int, best: Best
) -> None:
    """One after the other in the order of ids: each visit with its effects, then the reply."""
    k, visits = topic.k, topic.ttl + 1
    path, rows = np.zeros(visits, np.int32), np.zeros(visits * k, np.int32)
    for node in range(len(topic.ids)):
        made = walk(views, topic, node, round_, path, 0)
        for hop in range(abs(made)):  # its ids are collected before any effect
            copy_row(views, path[hop], rows, hop, k)
        for hop in range(abs(made)):
            at = wide(path[hop])
            keeping.visited[at] = 1
            _ask(views, topic, keeping, at, round_, wide(path[hop - 1]) if hop else node, best)
            if at != node:
                _relax(views, topic, keeping, at, best, node)
        if made == visits:
            merge = _merge_of(topic, keeping, node)
            held = _consider_row(views, topic, keeping, merge, best, 0, node)
            for hop in range(visits):
                held = _consider(topic, keeping, merge, best, held, wide(path[hop]))
                held = _consider_row(rows, topic, keeping, merge, best, held, hop)
            held = _pin_row(views, topic, keeping, merge, best, held)
            write_view(views, topic, node, best)
        if not keeping.visited[node]:
            _ask(views, topic, keeping, node, round_, wide(NONE), best)
        keeping.visited[node] = 0
