"""The state of a run: a few flat arrays of whole numbers, and names for their places.

`StaticState.m` holds everything whose size is known beforehand: single numbers at the indices named
here, then tables.  A message, a topic, a node's row of a topic are named by the index in `m` where
their columns begin, so that reading one is one addition: ``m[msg + SOURCE]``.  The other arrays are
pools that grow between two events, never within one (`cubecast.kernel.static.setup.grown`).

Five arrays and no more: numba passes each as seven arguments to every function.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cubecast.kernel.shared.arrays import Longs


class StaticState(NamedTuple):
    """Everything a run reads and writes."""

    m: Longs
    """Numbers and tables."""
    slots: Longs
    """The events of the calendar, in chunks (see `cubecast.kernel.static.calendar`)."""
    recs: Longs
    """One record per node and message that was passed on and is not finished with."""
    pool: Longs
    """The barriers of messages, as runs of words (see `cubecast.kernel.static.causal`)."""
    rare: Longs
    """Messages that are held, events far away, and the trace, from `HELD_AT`, `FAR_AT` and
    `TRACE_AT` on."""


# m: parameters
PROTOCOL: Final = 0
NETWORK: Final = 1
HOP: Final = 2
LOW_DELAY: Final = 3
SPREAD: Final = 4
QUEUE_ACKS: Final = 5
NODES: Final = 6
SIZE: Final = 7
"""2^d: how many ids the cube has."""
DIMENSION: Final = 8
UNTIL: Final = 9
APPLICATION: Final = 10
WAIT: Final = 11
TRACING: Final = 12
FANOUT: Final = 13
"""The most copies that a node sends at once."""
WIDEST: Final = 14
"""The most words of the pool that a barrier takes."""
RING: Final = 15
PLANNED: Final = 16
# m: where tables begin
RING_AT: Final = 20
PLAN_AT: Final = 21
NODES_AT: Final = 22
TOPICS_AT: Final = 23
MSGS_AT: Final = 24
THINK_AT: Final = 25
SEEN_AT: Final = 26
HIST_AT: Final = 27
TWISTER_AT: Final = 28
TURNS_AT: Final = 29
"""0: no node takes turns.  Else for each node where its next turn is."""
# m: where sections of `rare` begin, and what the pools hold
HELD_AT: Final = 30
FAR_AT: Final = 31
TRACE_AT: Final = 32
CHUNK_ROOM: Final = 33
REC_ROOM: Final = 34
POOL_ROOM: Final = 35
HELD_ROOM: Final = 36
FAR_ROOM: Final = 37
TRACE_ROOM: Final = 38
# m: where the run stands
NOW: Final = 40
NEXT_PLANNED: Final = 41
OPEN: Final = 42
READ: Final = 43
PUBLISHED: Final = 44
IN_RING: Final = 45
FAR: Final = 46
FAR_NUMBER: Final = 47
CHUNKS: Final = 48
FREE_CHUNK: Final = 49
RECS: Final = 50
FREE_REC: Final = 51
HELD: Final = 52
HELD_NEED: Final = 53
"""Words that one more held message may take: a block twice as large as any so far."""
POOL: Final = 54
TRACED: Final = 55
TWIST: Final = 56
# m: what is counted
PUBS: Final = 60
ACKS: Final = 61
DELEGATES: Final = 62
FALSE_POSITIVES: Final = 63
LONGEST: Final = 64
WAITING: Final = 65
HOLDING: Final = 66
MOST_HELD: Final = 67
TREE_SUM: Final = 68
MOST_EARLY: Final = 69
"""Messages of one publisher and topic that waited at a root for an earlier one: that one will
release all of them in one event."""
FREE_BLOCKS: Final = 72
"""First free block for 4, 8, 16, … held messages."""
BLOCK_CLASSES: Final = 24
SCALARS: Final = FREE_BLOCKS + BLOCK_CLASSES

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
WITH_MESSAGES: Final = 2
"""`TRACING`: 1 traces the events of applications, 2 sends and receives, too."""

# plan: publications that were planned beforehand
PLAN_TIME: Final = 0
PLAN_NODE: Final = 1
PLAN_TOPIC: Final = 2
PLAN_ANSWERER: Final = 3
PLAN_COLUMNS: Final = 4

# turns: a node's lie one after the other, and end with a gap below 0
TURN_GAP: Final = 0
TURN_TOPIC: Final = 1
TURN_COLUMNS: Final = 2

# topics
MEMBERS: Final = 0
TREE: Final = 1
"""Where two sets begin: the subscribers, and the nodes that may be in the tree."""
ROOT: Final = 2
WORDS: Final = 3
"""Words of a set of the topic's messages."""
NEXT_BIT: Final = 4
ROWS: Final = 5
"""Where the rows of the topic begin, one per node."""
DELIVERED: Final = 6
BARRIER: Final = 7
WANTED: Final = 8
"""Where a row's sets of messages begin, `WORDS` for each node: its delivered messages, its
causal barrier, and the messages that held ones wait for."""
TOPIC_COLUMNS: Final = 9

# nodes
FREE: Final = 0
"""The time from which on the sending queue is empty (`queue`), or the node idle (`service`)."""
QUEUED: Final = 1
QUEUED_SUM: Final = 2
COUNTER: Final = 3
BLOCK_END: Final = 4
"""Of a broker: the first id above its subscribers' ids; of other nodes 0."""
NODE_COLUMNS: Final = 5

# rows
HELD_BLOCK: Final = 0
HELD_COUNT: Final = 1
QUEUE_HEAD: Final = 2
"""Own publications that wait for their turn; at a single root, those that came too early."""
QUEUE_TAIL: Final = 3
BUSY: Final = 4
"""A wave of ACKs is awaited."""
LOW: Final = 5
HIGH: Final = 6
"""The words of the causal barrier that may be non-zero."""
SINCE: Final = 7
"""Size of the barrier if nothing were ever left out of it."""
SEQUENCE: Final = 8
"""Publications so far."""
SENT: Final = 9
"""Publications that the root has sent on."""
HELD_CLASS: Final = 10
MARK: Final = 11
"""All messages in the words below are delivered."""
ROW_COLUMNS: Final = 12

# msgs
SOURCE: Final = 0
TOPIC: Final = 1
AT: Final = 2
BIT: Final = 3
BAR_AT: Final = 4
BAR_END: Final = 5
RECEPTIONS: Final = 6
RECEPTION_SUM: Final = 7
DELIVERIES: Final = 8
LATENCY_SUM: Final = 9
LATENCY_MAX: Final = 10
SEQ: Final = 11
NEXT: Final = 12
DIRECT: Final = 13
UNREDUCED: Final = 14
REPLY: Final = 15
"""The answered message; -1: none, -2: all that the node had seen."""
ANSWERER: Final = 16
MSG_COLUMNS: Final = 17

# recs: two words each, ``msg << 21 | node`` and ``(parent + 1) << 21 | missing``
REC_WORDS: Final = 2
REC_SHIFT: Final = 21
REC_MASK: Final = (1 << 21) - 1

# far
FAR_TIME: Final = 0
FAR_ORDER: Final = 1
FAR_EVENT: Final = 2
FAR_COLUMNS: Final = 3

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
E_TURN: Final = 5
"""payload: the topic to which the node publishes, as it is its turn."""
KIND_MASK: Final = 7
SERVED: Final = 8
H_SHIFT: Final = 4
NODE_SHIFT: Final = 9
NODE_MASK: Final = (1 << 21) - 1
PAYLOAD_SHIFT: Final = 30

CHUNK_BITS: Final = 6
CHUNK_SIZE: Final = 1 << CHUNK_BITS
HELD_MORE: Final = 24
"""Besides `HELD_NEED`: words that each further message may take if one event keeps several.  A row
with room for R keeps k more: up to R, it moves to one block of 6 R words; above that, to several
in turn, and these have 3 · 2 · 2 (R + k) < 24 k words at most."""

# how a call of the engine ends
DONE: Final = 0
FULL: Final = 1
"""A pool must grow before the next event."""
UNFINISHED: Final = 2
"""Events are left after the time the run was given."""
PAUSED: Final = 3

# histograms
LATENCY: Final = 0
DELAY: Final = 1
QUEUE_LENGTH: Final = 2
HISTOGRAMS: Final = 3
EXACT_BITS: Final = 13
"""Exact below 2^13; above that, 2^12 buckets per power of two."""
HIST_BINS: Final = (1 << EXACT_BITS) + (40 - EXACT_BITS) * (1 << (EXACT_BITS - 1))
