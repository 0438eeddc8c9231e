"""The arrays of a run before its first event, and larger ones when a pool is nearly full."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from cubecast.baselines.brokers import broker_ids
from cubecast.kernel.layout import (
    APPLICATION,
    BITS,
    BLOCK_END,
    BROKER,
    CHUNK_BITS,
    CHUNK_SIZE,
    CHUNKS,
    COUNTER,
    DIMENSION,
    DISCUSSION,
    FANOUT,
    FAR,
    FIXED,
    FREE_HELD,
    FREE_REC,
    HELD,
    HELD_COLUMNS,
    HELD_HEAD,
    HIGH,
    HIST_BINS,
    HISTOGRAMS,
    HOLDING,
    HOP,
    LOW,
    LOW_DELAY,
    MEMBERS,
    MSG_COLUMNS,
    NETWORK,
    NODE_COLUMNS,
    NODES,
    POOL,
    PROTOCOL,
    QUESTIONS,
    QUEUE,
    QUEUE_ACKS,
    QUEUE_HEAD,
    REC_COLUMNS,
    RECS,
    RING,
    ROOT,
    ROW_COLUMNS,
    SCALARS,
    SERVICE,
    SILENT,
    SIZE,
    SPREAD,
    SRPT,
    SUM_COLUMNS,
    TOPIC_COLUMNS,
    TRACE_COLUMNS,
    TRACED,
    TRACING,
    TREE,
    TWIST,
    UNIFORM,
    UNTIL,
    VCUBE,
    WAIT,
    WIDEST,
    WORDS,
    Bytes,
    Longs,
    State,
)
from cubecast.kernel.plan import Plan
from cubecast.protocol.port import NodeId, Topic
from cubecast.sim.params import Params
from cubecast.topology import dimension_for

PROTOCOLS = {"vcube-ps": VCUBE, "srpt": SRPT, "fixed-tree": FIXED, "srpt-b": BROKER}
NETWORKS = {"queue": QUEUE, "uniform": UNIFORM, "service": SERVICE}
NONE = 1 << 30
"""A word that no barrier has: it begins here while it is empty."""


def trie_of(members: Bytes, size: int) -> Bytes:
    """The set of the nodes i with ``members[i]`` (see `cubecast.kernel.cube`)."""
    trie = np.zeros(2 * size, np.uint8)
    trie[size : size + len(members)] = members
    level = size
    while level > 1:
        half = level // 2
        trie[half:level] = trie[level : 2 * level : 2] | trie[level + 1 : 2 * level : 2]
        level = half
    return trie


class Sets:
    """The distinct sets of nodes of a run, one after the other."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._offsets: dict[bytes, int] = {}
        self._tries: list[Bytes] = []

    def add(self, members: Bytes) -> int:
        """The offset of a set."""
        key = members.tobytes()
        if key not in self._offsets:
            self._offsets[key] = 2 * self._size * len(self._tries)
            self._tries.append(trie_of(members, self._size))
        return self._offsets[key]

    def array(self) -> Bytes:
        return np.concatenate(self._tries)


def with_subscribers(members: Bytes, first_ids: Longs) -> Bytes:
    """The brokers, of those whose blocks begin at `first_ids`, that have somebody to serve."""
    brokers = np.zeros_like(members)
    served = np.add.reduceat(members.astype(np.int64), first_ids)
    brokers[first_ids[served > 0]] = 1
    return brokers


def initial(
    plan: Plan,
    protocol: str,
    params: Params,
    root_of: Callable[[Topic], NodeId] | None,
    delays: Random,
    tracing: int,
) -> State:
    """Everything at rest; the first events are the planned publications."""
    count = plan.nodes
    dimension = dimension_for(count)
    size = 1 << dimension
    code = PROTOCOLS[protocol]
    s = np.zeros(SCALARS, np.int64)
    nodes = np.zeros((count, NODE_COLUMNS), np.int64)
    nodes[:, COUNTER] = np.sum(plan.members, axis=0, dtype=np.int64)
    first_ids = np.zeros(0, np.int64)
    if code == BROKER:
        first_ids = np.array(broker_ids(count, params.broker_count()), np.int64)
        nodes[first_ids, BLOCK_END] = np.append(first_ids[1:], count)
    topics, sets, words = _topics(plan, code, size, first_ids, root_of)
    _set_parameters(s, plan, params)
    s[PROTOCOL] = code
    s[DIMENSION], s[SIZE], s[NODES] = dimension, size, count
    widest = int(np.max(nodes[:, BLOCK_END] - np.arange(count), initial=0))
    s[FANOUT] = dimension + widest
    s[WIDEST] = 2 * int(topics[:, WORDS].max()) + 2
    s[RING] = ring_size(params)
    s[TRACING] = tracing
    s[CHUNKS] = 1  # chunk 0 stands for none
    s[FREE_REC] = s[FREE_HELD] = -1
    most = sum(plan.most_messages())
    rows = np.zeros((count * len(plan.topics), ROW_COLUMNS), np.int32)
    rows[:, HELD_HEAD] = rows[:, QUEUE_HEAD] = rows[:, HIGH] = -1
    rows[:, LOW] = NONE
    _, twister, _ = delays.getstate()
    s[TWIST] = twister[-1]
    causal = words if code in (VCUBE, FIXED) else 1
    return State(
        s=s,
        heads=np.zeros(s[RING], np.int32),
        writes=np.zeros(s[RING], np.int64),
        slots=np.zeros(0, np.int64),
        links=np.zeros(0, np.int32),
        far=np.zeros((0, 3), np.int64),
        plan=np.array(plan.publications, np.int64).reshape(-1, 4),
        think=plan.think if plan.think is not None else np.zeros(0, np.int64),
        seen=_seen(plan),
        topics=topics,
        nodes=nodes,
        rows=rows,
        msgs=np.zeros((most, MSG_COLUMNS), np.int64),
        sums=np.zeros((most, SUM_COLUMNS), np.int64),
        recs=np.zeros((0, REC_COLUMNS), np.int32),
        held=np.zeros((0, HELD_COLUMNS), np.int64),
        sets=sets,
        delivered=np.zeros(causal, np.int64),
        barrier=np.zeros(causal, np.int64),
        pool=np.zeros(0, np.int64),
        hist=np.zeros((HISTOGRAMS, HIST_BINS), np.int64),
        trace=np.zeros((0, TRACE_COLUMNS), np.int64),
        twister=np.array(twister[:-1], np.uint32),
    )


def _set_parameters(s: Longs, plan: Plan, params: Params) -> None:
    last = plan.publications[-1][0] if plan.publications else 0
    s[NETWORK] = NETWORKS[params.network]
    s[HOP] = params.hop
    s[LOW_DELAY] = params.low
    s[SPREAD] = params.high - params.low + 1
    s[QUEUE_ACKS] = params.queue_acks
    s[UNTIL] = last + params.span + params.horizon
    s[APPLICATION] = SILENT
    if plan.answer_after:
        s[APPLICATION] = DISCUSSION
        s[WAIT] = plan.answer_after
    elif any(answerer >= 0 for _, _, _, answerer in plan.publications):
        s[APPLICATION] = QUESTIONS


def _seen(plan: Plan) -> Longs:
    """How many messages each application has seen: none, or -1 where it will not answer."""
    if plan.silent is None:
        return np.zeros(0, np.int64)
    return -plan.silent.astype(np.int64)


def _topics(
    plan: Plan,
    protocol: int,
    size: int,
    first_ids: Longs,
    root_of: Callable[[Topic], NodeId] | None,
) -> tuple[Longs, Bytes, int]:
    """The table of topics, the sets it refers to, and the words of all sets of messages."""
    table = np.zeros((len(plan.topics), TOPIC_COLUMNS), np.int64)
    sets = Sets(size)
    words = 0
    for topic, most in enumerate(plan.most_messages()):
        members = plan.members[topic]
        table[topic, MEMBERS] = table[topic, TREE] = sets.add(members)
        if protocol == BROKER:
            table[topic, TREE] = sets.add(with_subscribers(members, first_ids))
        if root_of is not None:
            table[topic, ROOT] = root_of(plan.topics[topic])
        table[topic, WORDS] = (most + 63) >> 6
        table[topic, BITS] = words
        words += int(table[topic, WORDS]) * plan.nodes
    return table, sets.array(), words


def ring_size(params: Params) -> int:
    """Buckets for the instants that most events fall into: a hop, and a queue of some length."""
    reach = (params.hop if params.network == "queue" else params.high) + (1 << 12)
    return min(1 << (reach - 1).bit_length(), 1 << 17)


def grown(w: State) -> State:
    """The same state with more room in every pool that has little left."""
    s = w.s
    copies = int(s[FANOUT]) + 4
    told = int(s[HOLDING])
    chunks = _room(len(w.links), int(s[CHUNKS]) + copies + (told >> CHUNK_BITS), 256)
    return w._replace(
        links=_longer(w.links, chunks),
        slots=_longer(w.slots, chunks * CHUNK_SIZE),
        recs=_longer(w.recs, _room(len(w.recs), int(s[RECS]) + 1, 1024)),
        held=_longer(w.held, _room(len(w.held), int(s[HELD]) + 1, 256)),
        far=_longer(w.far, _room(len(w.far), int(s[FAR]) + copies, 256)),
        pool=_longer(w.pool, _room(len(w.pool), int(s[POOL] + s[WIDEST]), 1024)),
        trace=_longer(w.trace, _room(len(w.trace), int(s[TRACED]) + 2 * copies + told, 1024)),
    )


def _room(length: int, needed: int, least: int) -> int:
    """The present length if that will do, else half as much again as is needed."""
    return length if needed <= length else max(needed + needed // 2, least)


def _longer(array, length: int):  # type: ignore[no-untyped-def]
    if length == len(array):
        return array
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
