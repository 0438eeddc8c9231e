"""The state of a run: flat arrays, and names for their columns."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cubecast.kernel.shared.arrays import Bytes, Ints, Longs

RING: Final = 1 << 12
ROOM: Final = 64
"""No event plans more events, entries or messages than this."""

PUB: Final = 0
SUB: Final = 1
UNS: Final = 2
ACK: Final = 3
ASK: Final = 4
"""To the root: publish this, or tell all nodes of this change."""
LEAVE: Final = 5
SPEAK: Final = 6
JOINED: Final = 7
FORGET: Final = 8

# Single numbers, in `ChurnState.s`.
(
    NOW, END, SINCE, HOP, QUEUE_ACKS, NODES, DIMENSION, LASTING, TOLD, ROOT, MEMBERS_IN,
    MEMBERS_OUT, NUMBER, EVENTS, FREE_EVENT, ENTRIES, FREE_ENTRY, MESSAGES, FREE_MESSAGE, IN_RING,
    FAR, STAYED, CAME, SPOKEN, RECEPTIONS, RECEPTION_SUM, FALSE, PUBS, CONTROLS, PUBLISHED, JOINS,
    EVENT_ROOM, ENTRY_ROOM, MESSAGE_ROOM, FAR_ROOM, STAY_ROOM, COME_ROOM, AT_ONCE, SCALARS,
) = range(39)  # fmt: skip

NUMBER_BITS: Final = 40

DONE: Final = 0
GROW: Final = 1
NOBODY: Final = -1
WAIT: Final = -2


class ChurnState(NamedTuple):
    """Everything a run reads and writes, every table as one row of numbers.

    Compiled code has the addresses of these arrays instead (`pointers`): arrays are counted
    references, and counting takes longer than a step of the simulation.
    """

    s: Longs
    stay: Longs
    come: npt.NDArray[np.float64]
    speak: npt.NDArray[np.float64]
    heads: Ints
    """Ring: of each bucket, the first and the last event."""
    tails: Ints
    far: Longs
    """Heap of keys and events; a key is the time and, in its low bits, the number of an event."""
    events: Longs
    """Kind, to, from, message, first and last entry, next, key; an event is the place of its
    first."""
    entries: Ints
    """Node, rc, next; an entry is the place of its first."""
    messages: Longs
    """Kind, source, rc, time, references, next of its queue."""
    pending: Ints
    """[message, node]: children that have not answered yet (0: nothing is pending), parent, first
    and last entry, subscription that entries were applied to."""
    snapshots: Bytes
    """[message]: the subscribers that a message of a root is for, as a trie."""
    nodes: Longs
    """Subscribed, rc of that, counter, number of subscriptions, first and last queued message,
    message being sent, free from, queued, sum of queue sizes."""
    crowd: Ints
    """The nodes inside, the nodes outside, and the place of each node."""
    known: Ints
    """[node, other]: rc of the latest operation of `other` that `node` knows of, or -1."""
    tries: Bytes
    """[node]: the subscribers in its view."""
    heard: Bytes
    """[other, node]: whether the *first_rec* of `node` knows `other`.  In this order, as a message
    asks many nodes about its source."""
    wanted: Bytes


E_KIND, E_TO, E_FROM, E_MSG, E_HEAD, E_TAIL, E_NEXT, E_KEY = range(8)
T_NODE, T_RC, T_NEXT = range(3)
M_KIND, M_SOURCE, M_RC, M_AT, M_REFS, M_NEXT = range(6)
P_MISSING, P_PARENT, P_HEAD, P_TAIL, P_LIFE = range(5)
OWN, OWN_RC, COUNTER, LIFE, Q_HEAD, Q_TAIL, SENDING, FREE_AT, QUEUED, QUEUED_SUM = range(10)
INSIDE, OUTSIDE, PLACE = range(3)
EVENT, ENTRY, MESSAGE, PENDING, NODE, PLAN = 8, 3, 6, 5, 10, 2
"""Columns of the tables."""
