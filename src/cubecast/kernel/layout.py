"""The state of a run: flat arrays, and names for their columns.

Every function of the kernel takes one `State`.  Tables are two-dimensional, a row per node,
(topic, node), message, …; what belongs together lies together, so that a step touches few cache
lines.  Pools (calendar, records, held messages, barriers, trace) grow between two events, never
within one: see `cubecast.kernel.drive`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Longs: TypeAlias = npt.NDArray[np.int64]
Ints: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint32]


class State(NamedTuple):
    """Everything a run reads and writes."""

    s: Longs
    """Single numbers, by the names below."""
    heads: Ints
    writes: Longs
    slots: Longs
    links: Ints
    far: Longs
    """The calendar: see `cubecast.kernel.calendar`."""
    plan: Longs
    """Publications that were planned beforehand: time, node, topic, who answers (or -1)."""
    think: Longs
    """Of each node: how long it thinks before it answers (discussion)."""
    seen: Longs
    """Of each node: how many messages its application has seen; -1 once it has answered."""
    topics: Longs
    nodes: Longs
    rows: Ints
    """What a node keeps of a topic: row ``topic * N + node``."""
    msgs: Longs
    sums: Longs
    """What became of each message, added up."""
    recs: Ints
    """One per node and message that was passed on and is not finished with."""
    held: Longs
    """Messages that wait for a predecessor, in one list per row."""
    sets: Bytes
    """Sets of nodes: see `cubecast.kernel.cube`."""
    delivered: Longs
    barrier: Longs
    """Sets of messages, 64 to a word: what a row has delivered; its causal barrier."""
    pool: Longs
    """The barriers of messages, as runs of words."""
    hist: Longs
    trace: Longs
    twister: Words
    """The state of the generator that draws delays."""


# s: parameters
PROTOCOL: Final = 0
NETWORK: Final = 1
HOP: Final = 2
LOW_DELAY: Final = 3
SPREAD: Final = 4
QUEUE_ACKS: Final = 5
NODES: Final = 6
SIZE: Final = 7
DIMENSION: Final = 8
UNTIL: Final = 9
APPLICATION: Final = 10
WAIT: Final = 11
TRACING: Final = 12
FANOUT: Final = 13
WIDEST: Final = 14
RING: Final = 15
BROKERS: Final = 16
# s: where the run stands
NOW: Final = 20
PLAN_AT: Final = 21
OPEN: Final = 22
CHUNK: Final = 23
OFFSET: Final = 24
PUBLISHED: Final = 25
IN_RING: Final = 26
FAR: Final = 27
FAR_NUMBER: Final = 28
CHUNKS: Final = 29
FREE_CHUNK: Final = 30
RECS: Final = 31
FREE_REC: Final = 32
HELD: Final = 33
FREE_HELD: Final = 34
POOL: Final = 35
TRACED: Final = 36
TWIST: Final = 37
# s: what is counted
PUBS: Final = 40
ACKS: Final = 41
DELEGATES: Final = 42
FALSE_POSITIVES: Final = 43
LONGEST: Final = 44
WAITING: Final = 45
HOLDING: Final = 46
MOST_HELD: Final = 47
TREE_SUM: Final = 48
SCALARS: Final = 56

# protocols, networks, applications
VCUBE: Final = 0
SRPT: Final = 1
FIXED: Final = 2
BROKER: Final = 3
QUEUE: Final = 0
UNIFORM: Final = 1
SERVICE: Final = 2
SILENT: Final = 0
DISCUSSION: Final = 1
QUESTIONS: Final = 2

# topics
MEMBERS: Final = 0
TREE: Final = 1
"""Offsets in `sets`: the subscribers, and who may be in the tree."""
ROOT: Final = 2
WORDS: Final = 3
BITS: Final = 4
"""A row's set of messages begins at ``BITS + node * WORDS`` and has `WORDS` words."""
NEXT_BIT: Final = 5
TOPIC_COLUMNS: Final = 6

# nodes
FREE: Final = 0
"""From when on the sending queue is empty (`queue`), or the node idle (`service`)."""
QUEUED: Final = 1
QUEUED_SUM: Final = 2
COUNTER: Final = 3
BLOCK_END: Final = 4
"""Of a broker: the first id above its subscribers' ids; of other nodes 0."""
NODE_COLUMNS: Final = 5

# rows
HELD_HEAD: Final = 0
HELD_TAIL: Final = 1
QUEUE_HEAD: Final = 2
"""Own publications that wait for their turn; at a single root, those that came too early."""
QUEUE_TAIL: Final = 3
BUSY: Final = 4
"""A wave of ACKs is awaited."""
LOW: Final = 5
HIGH: Final = 6
"""The words of the causal barrier that may hold something."""
SINCE: Final = 7
"""Size of the barrier if nothing were ever left out of it."""
SEQUENCE: Final = 8
"""Publications so far."""
SENT: Final = 9
"""Publications that the root has sent on."""
ROW_COLUMNS: Final = 10

# msgs
SOURCE: Final = 0
TOPIC: Final = 1
AT: Final = 2
BIT: Final = 3
BAR_AT: Final = 4
BAR_END: Final = 5
SEQ: Final = 6
NEXT: Final = 7
MSG_COLUMNS: Final = 8

# sums
RECEPTIONS: Final = 0
RECEPTION_SUM: Final = 1
DELIVERIES: Final = 2
LATENCY_SUM: Final = 3
LATENCY_MAX: Final = 4
DIRECT: Final = 5
UNREDUCED: Final = 6
REPLY: Final = 7
"""What a publication answers: a message, -1: nothing, -2: all that its node had seen."""
ANSWERER: Final = 8
SUM_COLUMNS: Final = 9

# recs
REC_MSG: Final = 0
REC_NODE: Final = 1
REC_PARENT: Final = 2
"""The record of whoever sent it here; -1 at the source.  In a free record: the next free one."""
REC_MISSING: Final = 3
REC_COLUMNS: Final = 4

# held
HELD_MSG: Final = 0
HELD_FOR: Final = 1
"""A message that is missing (its bit); -1: to be looked at."""
HELD_NEXT: Final = 2
HELD_SINCE: Final = 3
HELD_COLUMNS: Final = 4

# hist
LATENCY: Final = 0
DELAY: Final = 1
QUEUE_LENGTH: Final = 2
HISTOGRAMS: Final = 3

# trace
CODE: Final = 0
TIME: Final = 1
NODE: Final = 2
MSG: Final = 3
PEER: Final = 4
TRACE_COLUMNS: Final = 5
T_PUBLISH: Final = 0
T_DELIVER: Final = 1
T_SEND_PUB: Final = 2
T_RECEIVE_PUB: Final = 3
T_SEND_ACK: Final = 4
T_RECEIVE_ACK: Final = 5
T_SEND_DELEGATE: Final = 6
T_RECEIVE_DELEGATE: Final = 7

# events: kind, bit 3 'served', cluster below the sender, node, and a payload
E_PUB: Final = 0
"""payload: the sender's record; node: the receiver."""
E_ACK: Final = 1
"""payload: the receiver's record; node: the sender."""
E_DELEGATE: Final = 2
"""payload: the message; the root receives it from its source."""
E_TELL: Final = 3
"""payload: the message that the application of the node is told of."""
E_ANSWER: Final = 4
"""payload: the topic on which the node answers."""
SERVED: Final = 8
H_SHIFT: Final = 4
NODE_SHIFT: Final = 9
NODE_MASK: Final = (1 << 21) - 1
PAYLOAD_SHIFT: Final = 30

CHUNK_BITS: Final = 6
CHUNK_SIZE: Final = 1 << CHUNK_BITS

# how a call of the engine ends
DONE: Final = 0
FULL: Final = 1
"""A pool must grow before the next event."""
UNFINISHED: Final = 2
"""Events are left after the time the run was given."""
PAUSED: Final = 3

EXACT_BITS: Final = 13
"""Histograms are exact below 2^13; above that, 2^12 buckets per power of two."""
HIST_BINS: Final = (1 << EXACT_BITS) + (40 - EXACT_BITS) * (1 << (EXACT_BITS - 1))
