"""Sends events over a network, from arrays to arrays, and counts the outcome of each."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from cubecast.kernel.gossip.config import DEAD, GossipConfig
from cubecast.kernel.gossip.engine import (
    COLUMNS,
    CompiledEvents,
    CompiledNetwork,
    Fate,
    spread_events,
)
from cubecast.kernel.gossip.events import GossipEvents, sorted_topics
from cubecast.kernel.gossip.network import GossipNetwork
from cubecast.kernel.rounds.arithmetic import Longs
from cubecast.overlay import chance

WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Spread:
    """The outcome of each event, as counts.

    Of every event ``messages + handed = reached + duplicates + lost + to_dead``.
    """

    due: Longs
    """Live subscribers of its topics, each once, without the author."""
    reached: Longs
    """Those subscribers that received it."""
    messages: Longs
    """Sent over links; a link that several topics share is crossed once."""
    topic_messages: Longs
    """The same with one message for each topic of a link."""
    handed: Longs
    """Messages of the author to topics to which it does not subscribe."""
    duplicates: Longs
    """Messages to nodes that had it already."""
    lost: Longs
    """Messages that were lost on their way."""
    to_dead: Longs
    """Messages that came to dead nodes."""
    rounds: Longs
    """The sum of the rounds in which subscribers received it."""
    last_round: Longs
    """The last round in which a subscriber received it; 0 if none did."""
    unknown: Longs
    """Missed subscribers that no live subscriber's view holds in these topics (`explain`)."""
    offsets: Longs
    """The topics of event i are ``offsets[i]`` to ``offsets[i + 1] - 1`` of the next fields."""
    topics: Longs
    """The topics of the event that the network has, rising."""
    topic_due: Longs
    topic_reached: Longs

    @property
    def missed(self) -> Longs:
        """Subscribers that did not receive it."""
        return self.due - self.reached


def spread(
    network: GossipNetwork, events: GossipEvents, config: GossipConfig, *, run: int = 0
) -> Spread:
    """Send each event over the network, as if it were alone.

    Topics that the network does not have are left out; an event without any is due to none.  The
    counts of an event do not depend on the other events.
    """
    published = _numbered(network, events)
    counts = np.zeros((len(events), len(COLUMNS)), np.int64)
    due, reached = (np.zeros(len(published.topics), np.int64) for _ in range(2))
    spread_events(
        CompiledNetwork(*(getattr(network, one.name) for one in fields(network))),
        published,
        dead_users(network.users, config.dead, run).view(np.uint8),
        Fate(
            np.uint64(run & WORD), float(config.loss), config.dead_ids == "removed", config.explain
        ),
        counts,
        due,
        reached,
    )
    columns = {name: np.ascontiguousarray(counts[:, at]) for at, name in enumerate(COLUMNS)}
    return Spread(
        **columns,
        offsets=published.offsets,
        topics=network.topics[published.topics],
        topic_due=due,
        topic_reached=reached,
    )


def dead_users(users: Longs, share: float, run: int = 0) -> npt.NDArray[np.bool_]:
    """Which users are dead while the events of a run spread (stream `DEAD` of `config`)."""
    if not share:
        return np.zeros(len(users), np.bool_)
    prefix = chance.combined(run & WORD, DEAD)
    with np.errstate(over="ignore"):
        of_node = _mix(_mix(np.uint64(prefix)) + users.astype(np.uint64))
        bits = _mix(_mix(_mix(of_node)))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share


def _mix(words: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    """`chance.mix` of many words."""
    mixed = np.asarray(words) + np.uint64(chance.GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(chance.FIRST_FACTOR)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(chance.SECOND_FACTOR)
    found: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found


def _numbered(network: GossipNetwork, events: GossipEvents) -> CompiledEvents:
    """Authors and topics as numbers in the network; topics that it does not have are left out."""
    authors = _numbers(network.users, events.authors)
    topics = _numbers(network.topics, events.topics)
    known = topics >= 0
    owners = np.repeat(np.arange(len(events)), np.diff(events.offsets))[known]
    counts = np.bincount(owners, minlength=len(events))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    offsets, topics = sorted_topics(offsets, topics[known])
    return CompiledEvents(events.ids, authors, events.authors, offsets, topics.astype(np.int32))


def _numbers(names: Longs, wanted: Longs) -> Longs:
    """The index of each wanted id among sorted ones; -1 where it is not there."""
    if not len(names):
        return np.full(len(wanted), -1, np.int64)
    places = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[places] == wanted, places, -1).astype(np.int64)
