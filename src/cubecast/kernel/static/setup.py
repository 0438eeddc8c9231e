"""The arrays of a run before its first event, and larger ones when a pool is nearly full."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from cubecast.baselines.brokers import broker_ids
from cubecast.kernel.shared.arrays import Bytes, Longs, longer
from cubecast.kernel.static import layout as at
from cubecast.kernel.static.layout import BROKER, FIXED, SRPT, VCUBE, StaticState
from cubecast.kernel.static.plan import Plan
from cubecast.protocol.port import NodeId, Topic
from cubecast.sim.params import Params
from cubecast.topology import dimension_for

PROTOCOLS = {"vcube-ps": VCUBE, "srpt": SRPT, "fixed-tree": FIXED, "srpt-b": BROKER}
NETWORKS = {"queue": at.QUEUE, "uniform": at.UNIFORM, "service": at.SERVICE}
NONE = 1 << 62
"""The place of an empty barrier."""
RootOf = Callable[[Topic], NodeId] | None


def trie_of(members: Bytes, size: int) -> Longs:
    """The set of the nodes i with ``members[i]``, as bits (see `cubecast.kernel.static.cube`)."""
    bits = np.zeros(max(2 * size, 64), np.uint8)
    bits[size : size + len(members)] = members
    level = size
    while level > 1:
        half = level // 2
        bits[half:level] = bits[level : 2 * level : 2] | bits[level + 1 : 2 * level : 2]
        level = half
    return np.packbits(bits, bitorder="little").view(np.int64)


def with_subscribers(members: Bytes, first_ids: Longs) -> Bytes:
    """The brokers, of those whose blocks begin at `first_ids`, that have subscribers to serve."""
    brokers = np.zeros_like(members)
    served = np.add.reduceat(members.astype(np.int64), first_ids)
    brokers[first_ids[served > 0]] = 1
    return brokers


class _Memory:
    """Lays tables one after the other, behind the single numbers."""

    def __init__(self) -> None:
        self.numbers: Longs = np.zeros(at.SCALARS, np.int64)
        self._length = at.SCALARS
        self._parts: list[tuple[int, int, Longs]] = []
        self._sets: dict[bytes, int] = {}

    def zeros(self, length: int) -> int:
        """Add so many zeros, which cost no memory until written; return where they begin."""
        start = self._length
        self._length += length
        return start

    def add(self, table: Longs, times: int = 1) -> int:
        """Add a table, or so many copies of a line; return where it begins."""
        start = self.zeros(table.size * times)
        self._parts.append((start, times, table.reshape(-1)))
        return start

    def add_set(self, members: Bytes, size: int) -> int:
        """Add a set of nodes, equal sets only once; return where it begins."""
        key = members.tobytes()
        if key not in self._sets:
            self._sets[key] = self.add(trie_of(members, size))
        return self._sets[key]

    def array(self) -> Longs:
        """All tables as one array."""
        m = np.zeros(self._length, np.int64)
        m[: at.SCALARS] = self.numbers
        for start, times, table in self._parts:
            m[start : start + times * table.size].reshape(times, -1)[:] = table
        return m


def initial(
    plan: Plan, protocol: str, params: Params, root_of: RootOf, delays: Random, tracing: int
) -> StaticState:
    """The state at rest; the first events are the planned publications."""
    code = PROTOCOLS[protocol]
    memory = _Memory()
    s = memory.numbers
    s[at.PROTOCOL] = code
    s[at.TRACING] = tracing
    _set_parameters(s, plan, params)
    first_ids = np.zeros(0, np.int64)
    if code == BROKER:
        first_ids = np.array(broker_ids(plan.nodes, params.broker_count()), np.int64)
    _add_nodes(memory, plan, first_ids)
    topics = _add_topics(memory, plan, code, first_ids, root_of)
    _add_plan(memory, plan, topics)
    s[at.RING_AT] = memory.zeros(2 * int(s[at.RING]))
    s[at.HIST_AT] = memory.zeros(at.HISTOGRAMS * at.HIST_BINS)
    _, twister, _ = delays.getstate()
    s[at.TWISTER_AT] = memory.add(np.array(twister[:-1], np.int64))
    s[at.TWIST] = twister[-1]
    s[at.CHUNKS] = 1  # chunk 0 stands for none
    s[at.FREE_REC] = -1
    s[at.FREE_BLOCKS : at.FREE_BLOCKS + at.BLOCK_CLASSES] = -1
    s[at.HELD_NEED] = 16
    empty = np.zeros(0, np.int64)
    return StaticState(memory.array(), empty, empty, empty, empty)


def _set_parameters(s: Longs, plan: Plan, params: Params) -> None:
    dimension = dimension_for(plan.nodes)
    last = plan.publications[-1][0] if plan.publications else 0
    s[at.NODES] = plan.nodes
    s[at.DIMENSION] = dimension
    s[at.SIZE] = 1 << dimension
    s[at.NETWORK] = NETWORKS[params.network]
    s[at.HOP] = params.hop
    s[at.LOW_DELAY] = params.low
    s[at.SPREAD] = params.high - params.low + 1
    s[at.QUEUE_ACKS] = params.queue_acks
    s[at.UNTIL] = last + plan.turns_take + params.span + params.horizon
    s[at.RING] = ring_size(params)


def ring_size(params: Params) -> int:
    """Buckets for the instants that most events fall into: a hop, and a queue of some length."""
    reach = (params.hop if params.network == "queue" else params.high) + (1 << 12)
    return min(1 << (reach - 1).bit_length(), 1 << 17)


def _add_nodes(memory: _Memory, plan: Plan, first_ids: Longs) -> None:
    s = memory.numbers
    nodes = np.zeros((plan.nodes, at.NODE_COLUMNS), np.int64)
    for members in plan.members:
        nodes[:, at.COUNTER] += members
    nodes[first_ids, at.BLOCK_END] = np.append(first_ids[1:], plan.nodes)[: len(first_ids)]
    attached = np.max(nodes[first_ids, at.BLOCK_END] - first_ids, initial=0)
    s[at.FANOUT] = s[at.DIMENSION] + attached
    s[at.NODES_AT] = memory.add(nodes)


def _add_topics(
    memory: _Memory, plan: Plan, protocol: int, first_ids: Longs, root_of: RootOf
) -> list[int]:
    """Add the columns of all topics; return where each begins."""
    s = memory.numbers
    size = int(s[at.SIZE])
    ordered = protocol in (VCUBE, FIXED)
    table = np.zeros((len(plan.topics), at.TOPIC_COLUMNS), np.int64)
    row = np.zeros(at.ROW_COLUMNS, np.int64)
    row[[at.QUEUE_HEAD, at.HIGH]] = -1
    row[at.LOW] = NONE
    for topic, most in enumerate(plan.most_messages()):
        members = plan.members[topic]
        line = table[topic]
        line[at.MEMBERS] = line[at.TREE] = memory.add_set(members, size)
        if protocol == BROKER:
            line[at.TREE] = memory.add_set(with_subscribers(members, first_ids), size)
        if root_of is not None:
            line[at.ROOT] = root_of(plan.topics[topic])
        line[at.WORDS] = (most + 63) >> 6 if ordered else 0
        line[at.ROWS] = memory.add(row, plan.nodes)
        line[at.DELIVERED] = memory.zeros(int(line[at.WORDS]) * plan.nodes)
        line[at.BARRIER] = memory.zeros(int(line[at.WORDS]) * plan.nodes)
        line[at.WANTED] = memory.zeros(int(line[at.WORDS]) * plan.nodes)
    s[at.WIDEST] = 2 * np.max(table[:, at.WORDS], initial=0) + 2
    s[at.TOPICS_AT] = memory.add(table)
    return [int(s[at.TOPICS_AT]) + topic * at.TOPIC_COLUMNS for topic in range(len(table))]


def _add_plan(memory: _Memory, plan: Plan, topics: list[int]) -> None:
    """Add planned publications, room for all messages, and the applications' data."""
    s = memory.numbers
    lines = [(time, node, topics[topic], who) for time, node, topic, who in plan.publications]
    s[at.PLANNED] = len(lines)
    s[at.PLAN_AT] = memory.add(np.array(lines, np.int64))
    most = sum(plan.most_messages())
    s[at.MSGS_AT] = memory.zeros(most * at.MSG_COLUMNS)
    if plan.turns:
        s[at.TURNS_AT] = _add_turns(memory, plan, topics)
    if plan.think is not None and plan.silent is not None:
        s[at.APPLICATION] = at.DISCUSSION
        s[at.WAIT] = plan.answer_after
        s[at.THINK_AT] = memory.add(plan.think)
        s[at.SEEN_AT] = memory.add(-plan.silent.astype(np.int64))
    elif any(answerer >= 0 for _, _, _, answerer in plan.publications):
        s[at.APPLICATION] = at.QUESTIONS


def _add_turns(memory: _Memory, plan: Plan, topics: list[int]) -> int:
    """Add the turns; return where the table of each node's next turn begins."""
    firsts = np.zeros(plan.nodes, np.int64)
    lines: list[tuple[int, int]] = []
    for node in range(plan.nodes):
        firsts[node] = len(lines)
        lines += [(gap, topics[topic]) for gap, topic in plan.turns.get(node, ())]
        lines.append((-1, 0))
    start = memory.add(np.array(lines, np.int64))
    return memory.add(start + firsts * at.TURN_COLUMNS)


# -- pools -----------------------------------------------------------------------------------------


def grown(w: StaticState) -> StaticState:
    """The same state with room for more than the next event in every pool.

    Needs as in `cubecast.kernel.static.engine._nearly_full`.
    """
    m = w.m
    more = int(m[at.MOST_EARLY])
    copies = (int(m[at.FANOUT]) + 1) * (more + 1) + 4
    told = int(m[at.HOLDING])
    needs = {
        at.CHUNK_ROOM: int(m[at.CHUNKS]) + copies + (told >> (at.CHUNK_BITS - 1)),
        at.REC_ROOM: int(m[at.RECS]) + 1 + more,
        at.POOL_ROOM: int(m[at.POOL] + m[at.WIDEST]),
        at.HELD_ROOM: int(m[at.HELD] + m[at.HELD_NEED]) + at.HELD_MORE * more,
        at.FAR_ROOM: int(m[at.FAR]) + copies,
        at.TRACE_ROOM: int(m[at.TRACED]) + 2 * copies + told if m[at.TRACING] else 0,
    }
    before = {room: int(m[room]) for room in needs}
    for room, needed in needs.items():
        if needed > m[room]:
            m[room] = needed + needed // 2 + 64
    slots = longer(w.slots, int(m[at.CHUNK_ROOM]) << at.CHUNK_BITS)
    recs = longer(w.recs, int(m[at.REC_ROOM]) * at.REC_WORDS)
    pool = longer(w.pool, int(m[at.POOL_ROOM]))
    return StaticState(m, slots, recs, pool, _longer_rare(w, before))


def _longer_rare(w: StaticState, before: dict[int, int]) -> Longs:
    """The sections of `rare`, each with its new room."""
    m = w.m
    sections = (
        (at.HELD_AT, at.HELD_ROOM, 1),
        (at.FAR_AT, at.FAR_ROOM, at.FAR_COLUMNS),
        (at.TRACE_AT, at.TRACE_ROOM, at.TRACE_COLUMNS),
    )
    if all(m[room] == before[room] for _, room, _ in sections):
        return w.rare
    rare = np.zeros(sum(int(m[room]) * columns for _, room, columns in sections), np.int64)
    start = 0
    for where, room, columns in sections:
        old = int(m[where])
        used = before[room] * columns
        rare[start : start + used] = w.rare[old : old + used]
        m[where] = start
        start += int(m[room]) * columns
    return rare
