"""Events that spread over a network, compiled: infect and die, in rounds.

The rules of a node ([N] 2 assumes a dissemination over the overlays and leaves it open):

1. A node that receives an event for the first time sends it on in the next round, once, to all
   links that it has in those of the event's topics to which it subscribes.
2. A message holds the event and all its topics.  A receiver that is in several of them has it for
   all of them, and one message crosses a link that several of them share.
3. An author sends in round 1 like a node that received the event in round 0.  For each topic to
   which it does not subscribe it hands the event to one random live subscriber, which receives it
   in round 1.

These are the rules of `cubecast.overlay.gossip` with shared links, and the draws are those of
`cubecast.overlay.dissemination`.

Which nodes receive an event in a round depends on the messages that were sent, never on the order
in which they are looked at: so the counts are those of any engine that makes the same draws.

Memory is a few words per user of the network, whatever the number of events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cubecast.kernel.rounds.arithmetic import (
    Ints,
    Longs,
    Word,
    combined,
    drawn_below,
    drawn_share,
)
from cubecast.kernel.shared.jit import apart, entry, forced, sources_digest
from cubecast.overlay.dissemination import CONTACT, GOSSIP

Bytes: TypeAlias = npt.NDArray[np.uint8]
Counts: TypeAlias = npt.NDArray[np.int64]
"""One row per event, one column per count."""

COLUMNS = (
    "due", "reached", "messages", "topic_messages", "handed", "duplicates", "lost", "to_dead",
    "rounds", "last_round", "unknown",
)  # fmt: skip
(
    DUE, REACHED, MESSAGES, TOPIC_MESSAGES, HANDED_OVER, DUPLICATES, LOST, TO_DEAD,
    ROUNDS, LAST_ROUND, UNKNOWN,
) = range(len(COLUMNS))  # fmt: skip

IS_DEAD = -1
"""In place of the last event that a node heard of."""
LAST_TURN = 2**31 - 1
GOSSIP_NAME = np.uint64(GOSSIP)


class CompiledNetwork(NamedTuple):
    """A `Network` as compiled code reads it."""

    topics: Longs
    users: Longs
    offsets: Longs
    members: Ints
    begins: Longs
    links: Ints
    user_offsets: Longs
    user_topics: Ints
    user_subscriptions: Ints


class CompiledEvents(NamedTuple):
    """Events whose authors and topics are numbers in the network; an author may be -1."""

    ids: Longs
    authors: Longs
    author_ids: Longs
    offsets: Longs
    topics: Ints


class Fate(NamedTuple):
    """The configuration of a run."""

    run: Word
    loss: float
    removed: bool
    explain: bool


class Room(NamedTuple):
    """The working memory of a run, per user and topic."""

    heard: Ints
    """The last event that a user heard of, from 1 on; `IS_DEAD` if it never hears of any."""
    told: Ints
    """The last turn in which a user was marked; a turn belongs to one sender or one count."""
    queue: Ints
    """Users that have the current event, in the order of its arrival."""
    alive: Longs
    """Live subscribers of each topic."""
    found: Ints
    """Subscriptions of the current sender in the event's topics."""
    which: Ints
    """The event's topic, from 0 on, of each of these."""


@forced
def _subscriptions(
    net: CompiledNetwork, event: CompiledEvents, number: int, user: int, room: Room
) -> int:
    """Find the subscriptions of a user in the event's topics; how many there are."""
    count = 0
    low = net.user_offsets[user]
    end = net.user_offsets[user + 1]
    first = event.offsets[number]
    for at in range(first, event.offsets[number + 1]):
        topic = event.topics[at]
        high = end
        while low < high:
            middle = (low + high) >> 1
            if net.user_topics[middle] < topic:
                low = middle + 1
            else:
                high = middle
        if low < end and net.user_topics[low] == topic:
            room.found[count] = net.user_subscriptions[low]
            room.which[count] = at - first
            count += 1
            low += 1
    return count


@forced
def _receive(room: Room, stamp: int, user: int, tail: int, counts: Longs) -> int:
    """Count a message that arrives at a live user; return the end of the queue."""
    if room.heard[user] == stamp:
        counts[DUPLICATES] += 1
        return tail
    room.heard[user] = stamp
    room.queue[tail] = user
    return tail + 1


@forced
def _is_lost(fate: Fate, stream: Word, receiver: Word) -> bool:
    """Whether a message is lost; draws nothing where nothing is lost."""
    return fate.loss > 0.0 and drawn_share(combined(stream, receiver), 0) < fate.loss


@forced
def _send(
    net: CompiledNetwork, fate: Fate, room: Room, subscription: int, turn: int, stamp: int,
    stream: Word, tail: int, counts: Longs,
) -> int:  # fmt: skip
    """Send an event over the links of a subscription that the turn has not used yet.

    `turn` is 0 where the sender has one subscription only: its links are all different.
    """
    heard, told, users = room.heard, room.told, net.users
    for at in range(net.begins[subscription], net.begins[subscription + 1]):
        user = net.links[at]
        dead = heard[user] == IS_DEAD
        if dead and fate.removed:
            continue
        counts[TOPIC_MESSAGES] += 1
        if turn:
            if told[user] == turn:
                continue
            told[user] = turn
        counts[MESSAGES] += 1
        if _is_lost(fate, stream, np.uint64(users[user])):
            counts[LOST] += 1
        elif dead:
            counts[TO_DEAD] += 1
        else:
            tail = _receive(room, stamp, user, tail, counts)
    return tail


@forced
def _hand_over(
    net: CompiledNetwork, fate: Fate, room: Room, topic: int, stream: Word, stamp: int, tail: int,
    counts: Longs,
) -> int:  # fmt: skip
    """Hand the author's event to a random live subscriber of a topic, if there is one."""
    if room.alive[topic] == 0:
        return tail
    name = combined(stream, np.uint64(net.topics[topic]))
    left = drawn_below(name, CONTACT, room.alive[topic])
    at = net.offsets[topic]
    while left > 0 or room.heard[net.members[at]] == IS_DEAD:
        left -= room.heard[net.members[at]] != IS_DEAD
        at += 1
    user = net.members[at]
    counts[HANDED_OVER] += 1
    if _is_lost(fate, stream, np.uint64(net.users[user])):
        counts[LOST] += 1
    else:
        tail = _receive(room, stamp, user, tail, counts)
    return tail


@apart
def _seed(
    net: CompiledNetwork, event: CompiledEvents, number: int, fate: Fate, room: Room, name: Word,
    counts: Longs, due: Longs,
) -> int:  # fmt: skip
    """Begin an event at its author, and hand it to topics not its own; return the queue's end."""
    author, stamp = event.authors[number], number + 1
    first = event.offsets[number]
    own = tail = 0
    if author >= 0:
        exempt = room.heard[author] == IS_DEAD
        room.heard[author] = stamp
        room.queue[0] = author
        tail = 1
        own = _subscriptions(net, event, number, author, room)
    at = 0
    for one in range(event.offsets[number + 1] - first):
        topic = event.topics[first + one]
        due[first + one] = room.alive[topic]
        if at < own and room.which[at] == one:
            at += 1
            if not exempt:
                due[first + one] -= 1
        else:
            stream = combined(name, np.uint64(event.author_ids[number]))
            tail = _hand_over(net, fate, room, topic, stream, stamp, tail, counts)
    return tail


@apart
def _spread_event(
    net: CompiledNetwork, event: CompiledEvents, number: int, fate: Fate, room: Room, turn: int,
    counts: Longs, due: Longs, reached: Longs,
) -> int:  # fmt: skip
    """Send one event as far as it goes; return the last turn that was used."""
    author, stamp, first = event.authors[number], number + 1, event.offsets[number]
    name = combined(combined(fate.run, GOSSIP_NAME), np.uint64(event.ids[number]))
    tail = _seed(net, event, number, fate, room, name, counts, due)
    # The author has the event in round 0; its hand-overs and its messages arrive in round 1.
    begin = 1 if author >= 0 else 0
    head, end, round_ = 0, begin, 1
    while True:
        while head < end:
            user = room.queue[head]
            head += 1
            here = _subscriptions(net, event, number, user, room)
            stream = name
            if fate.loss > 0.0:
                stream = combined(name, np.uint64(net.users[user]))
            used = 0
            if here > 1:
                turn += 1
                used = turn
            for one in range(here):
                reached[first + room.which[one]] += user != author
                tail = _send(net, fate, room, room.found[one], used, stamp, stream, tail, counts)
        if tail == end:
            break
        counts[ROUNDS] += round_ * (tail - end)
        counts[LAST_ROUND] = round_
        end = tail
        round_ += 1
    counts[REACHED] = tail - begin
    return turn


@apart
def _count_due(
    net: CompiledNetwork,
    event: CompiledEvents,
    number: int,
    room: Room,
    turn: int,
    explain: bool,
    counts: Longs,
) -> None:
    """Count live subscribers of the topics without the author, and the missed ones in no view.

    `turn` marks counted users; `turn` + 1 marks, if needed, users in the view of a live one.
    """
    author, stamp = event.authors[number], number + 1
    first, last = event.offsets[number], event.offsets[number + 1]
    due = 0
    for at in range(first, last):
        topic = event.topics[at]
        for one in range(net.offsets[topic], net.offsets[topic + 1]):
            user = net.members[one]
            if room.told[user] != turn:
                room.told[user] = turn
                due += room.heard[user] != IS_DEAD and user != author
    counts[DUE] = due
    if not explain or due == counts[REACHED]:
        return
    turn += 1
    for at in range(first, last):
        topic = event.topics[at]
        for one in range(net.offsets[topic], net.offsets[topic + 1]):
            if room.heard[net.members[one]] != IS_DEAD:
                for link in range(net.begins[one], net.begins[one + 1]):
                    room.told[net.links[link]] = turn
    for at in range(first, last):
        topic = event.topics[at]
        for one in range(net.offsets[topic], net.offsets[topic + 1]):
            user = net.members[one]
            heard = room.heard[user]
            if heard != stamp and heard != IS_DEAD and room.told[user] != turn:
                room.told[user] = turn  # counted, though it may be in another topic, too
                counts[UNKNOWN] += 1


@apart
def _spread_events(
    net: CompiledNetwork, event: CompiledEvents, dead: Bytes, fate: Fate, counts: Counts,
    due: Longs, reached: Longs,
) -> None:  # fmt: skip
    users = len(net.users)
    most = 0
    for number in range(len(event.ids)):
        most = max(most, event.offsets[number + 1] - event.offsets[number])
    room = Room(
        np.zeros(users, np.int32), np.zeros(users, np.int32), np.zeros(users + 1, np.int32),
        np.zeros(len(net.topics), np.int64), np.zeros(most, np.int32), np.zeros(most, np.int32),
    )  # fmt: skip
    for user in range(users):
        if dead[user]:
            room.heard[user] = IS_DEAD
    for topic in range(len(net.topics)):
        for one in range(net.offsets[topic], net.offsets[topic + 1]):
            room.alive[topic] += not dead[net.members[one]]
    turn = 0
    for number in range(len(event.ids)):
        if turn >= LAST_TURN - users - 4:
            room.told[:] = 0
            turn = 0
        turn = _spread_event(net, event, number, fate, room, turn, counts[number], due, reached)
        _count_due(net, event, number, room, turn + 1, fate.explain, counts[number])
        turn += 2
        author = event.authors[number]
        if author >= 0 and dead[author]:
            room.heard[author] = IS_DEAD


Spreading: TypeAlias = Callable[
    [CompiledNetwork, CompiledEvents, Bytes, Fate, Counts, Longs, Longs], None
]


def _make_spread(sources: str) -> Spreading:
    """The entry point; `sources` is part of the key under which it is kept."""

    @entry
    def spread_events(
        net: CompiledNetwork, event: CompiledEvents, dead: Bytes, fate: Fate, counts: Counts,
        due: Longs, reached: Longs,
    ) -> None:  # fmt: skip
        """Fill the counts of each event, and those of each of its topics."""
        if sources:
            _spread_events(net, event, dead, fate, counts, due, reached)

    return spread_events


spread_events = _make_spread(sources_digest(__package__) + sources_digest("cubecast.kernel.rounds"))
