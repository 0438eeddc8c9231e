"""The numbers of a live node: messages published and delivered, what waits, and for what.

Almost every number is computed on request, from what the node keeps anyway.  Two numbers are
counted as frames pass: messages published and messages delivered.  Invariants:

1. The totals (`published`, `delivered`, `dropped`, `views`) never fall while the node runs.
2. A reading has at most `MOST_TOPICS` topics and `MOST_SUBSCRIPTIONS` subscriptions, those with
   the most to wait for first; the sums are over all of them, and `topic_count` and
   `subscription_count` say how many there are.
3. What is remembered of earlier readings, for the rates, is at most `MOST_SAMPLES` totals.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cubecast.net.clock import wall_us
from cubecast.protocol.port import NodeId, Topic
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.version import __version__

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell
    from cubecast.net.reading.subscription import Subscription

MOST_TOPICS = 256
MOST_SUBSCRIPTIONS = 256
MOST_SAMPLES = 32
SAMPLE_EVERY_S = 0.25
"""Readings that follow each other faster share a sample."""
SHARED_S = 0.1
"""The least time between two readings for clients and scrapers; they share one meanwhile."""
REST = 20
"""The time between two such readings is at least this many times what one takes."""
RATE_OVER_S = 1.0
"""The least time over which a rate is computed, if the node has run that long."""


class Rates(msgspec.Struct, frozen=True):
    """Messages per second over the last `over_s` seconds.

    That is the time since the newest reading which is at least `RATE_OVER_S` old; before there is
    one, the time since the node was made.
    """

    over_s: float
    published: float
    delivered: float
    dropped: float


class TopicStats(msgspec.Struct, frozen=True):
    """One topic at this node."""

    topic: Topic
    standing: str
    """Whether the node is subscribed: "in", "out", or on its way."""
    members: int
    """Subscribed nodes that this node knows of."""
    published: int
    """Messages of this node in its present stream of the topic."""
    accepted: int
    """Messages that `publish` has taken and that are not sent yet."""
    blocked: bool
    """Whether a `publish` has to wait: there is no credit."""
    in_flight_bytes: int
    """Sent by this node and not yet taken in by every subscriber."""
    behind: dict[NodeId, int]
    """Own messages that a child's part of the tree, or this node, has not taken in yet."""
    waiting: int
    """Streams whose next message is here and waits for its causes."""
    held_bytes: int
    """Messages that are here and not delivered yet: their causes or predecessors are missing."""


class SubscriptionStats(msgspec.Struct, frozen=True):
    """One subscription at this node, of the application or of a light client."""

    topic: Topic
    policy: str
    client: bool
    """Whether it is a light client's."""
    unread_messages: int
    """How far its reader is behind."""
    unread_bytes: int
    limit_bytes: int
    """What may be unread before the policy acts."""
    dropped: int
    """Messages that the policy has dropped."""
    owes: bool
    """Whether publishers wait for this subscription (policy "block")."""


class LinkStats(msgspec.Struct, frozen=True):
    """The link to one other member."""

    slot: NodeId
    address: str
    connected: bool
    suspected: bool
    """Whether this node takes the member for dead, until all have agreed on it."""
    backlog_bytes: int
    """Sent, and not taken by the network yet."""
    behind: int
    """Own messages of all topics that the member's part of the tree has not taken in yet."""


class Stats(msgspec.Struct, frozen=True):
    """A reading of one node's numbers; totals count since the node was made."""

    node: NodeId
    """Its slot; -1 before it has joined."""
    address: str
    cluster: str
    version: str
    taken_at: float
    """When, in seconds since 1970, by this node's clock."""
    uptime_s: float
    inside: bool
    """Whether it is in a cluster at present."""
    epoch: int
    """The number of its view of the cluster; -1: none."""
    views: int
    """Views that it has been in."""
    members: int
    suspects: list[NodeId]
    published: int
    """Messages it has published."""
    delivered: int
    """Messages delivered to its subscribers; one that several of them read counts once."""
    dropped: int
    """Messages that policies of its subscriptions have dropped."""
    rates: Rates
    accepted: int
    """Messages that `publish` has taken and that are not sent yet, of all topics."""
    blocked: int
    """Topics in which a `publish` has to wait."""
    in_flight_bytes: int
    waiting: int
    held_bytes: int
    unread_messages: int
    """Delivered and not read yet, of all subscriptions."""
    unread_bytes: int
    clients: int
    """Light clients that are attached."""
    client_bytes: int
    """What the node holds for them."""
    topic_count: int
    topics: list[TopicStats]
    subscription_count: int
    subscriptions: list[SubscriptionStats]
    links: list[LinkStats]
    retained_values: int = 0
    """Retained values that the node keeps, including removed ones: at most
    `cubecast.net.node.value_keeper.MAX_VALUES`."""
    retained_bytes: int = 0
    """The bytes of these, topics included: at most `cubecast.net.node.value_keeper.MAX_BYTES`."""


class Sample(NamedTuple):
    """The totals at one time of the loop's clock."""

    at: float
    published: int
    delivered: int
    dropped: int


class Numbers:
    """The counters of one node, and its readings."""

    __slots__ = (
        "_next_at",
        "_recent",
        "_samples",
        "_shell",
        "_since",
        "delivered",
        "dropped",
        "published",
        "views",
    )

    def __init__(self, shell: Shell, now_s: float) -> None:
        self._shell = shell
        self._since = now_s
        self._recent: Stats | None = None
        self._next_at = 0.0  # when a reading for the network may be taken again
        self._samples = deque([Sample(now_s, 0, 0, 0)], maxlen=MOST_SAMPLES)
        self.published = 0
        self.delivered = 0
        self.dropped = 0
        self.views = 0

    def read(self, now_s: float) -> Stats:
        """Take a reading; the time is in proportion to the number of topics and subscriptions."""
        shell, presence = self._shell, self._shell.presence
        topics = list(self._topics())
        subscriptions = [_subscription(one) for one in shell.readers.subscriptions]
        clients, client_bytes = shell.guests.load
        return Stats(
            node=presence.slot,
            address=shell.address,
            cluster=presence.cluster,
            version=__version__,
            taken_at=wall_us() / 1e6,
            uptime_s=now_s - self._since,
            inside=shell.is_inside,
            epoch=presence.epoch,
            views=self.views,
            members=len(presence.members),
            suspects=presence.suspected,
            published=self.published,
            delivered=self.delivered,
            dropped=self.dropped,
            rates=self._rates(now_s),
            accepted=sum(one.accepted for one in topics),
            blocked=sum(one.blocked for one in topics),
            in_flight_bytes=sum(one.in_flight_bytes for one in topics),
            waiting=sum(one.waiting for one in topics),
            held_bytes=sum(one.held_bytes for one in topics),
            unread_messages=sum(one.unread_messages for one in subscriptions),
            unread_bytes=sum(one.unread_bytes for one in subscriptions),
            clients=clients,
            client_bytes=client_bytes,
            topic_count=len(topics),
            topics=heapq.nsmallest(MOST_TOPICS, topics, key=_topic_rank),
            subscription_count=len(subscriptions),
            subscriptions=heapq.nsmallest(MOST_SUBSCRIPTIONS, subscriptions, key=_reader_rank),
            links=self._links(topics),
            retained_values=len(shell.keeper),
            retained_bytes=shell.keeper.size,
        )

    def recent(self, now_s: float) -> Stats:
        """A reading that may be a moment old, shared by all clients and scrapers.

        So these readings take at most one part in `REST` of the time, however many clients ask.
        """
        if now_s >= self._next_at or self._recent is None:
            self._recent = self.read(now_s)
            took_s = self._shell.now() / 1e6 - now_s
            self._next_at = now_s + max(SHARED_S, REST * took_s)
        return self._recent

    def _rates(self, now_s: float) -> Rates:
        samples, now = self._samples, Sample(now_s, self.published, self.delivered, self.dropped)
        while len(samples) > 1 and samples[1].at <= now_s - RATE_OVER_S:
            samples.popleft()
        base = samples[0]
        if now_s - samples[-1].at >= SAMPLE_EVERY_S:
            samples.append(now)
        over_s = now_s - base.at
        return Rates(over_s, *(_per(now[i] - base[i], over_s) for i in (1, 2, 3)))

    def _topics(self) -> Iterator[TopicStats]:
        core, publishing = self._shell.presence.core, self._shell.publishing
        memberships = {} if core is None else core.memberships
        for topic, membership in memberships.items():
            accepted, blocked = publishing.load(topic)
            yield _topic(topic, membership, accepted, blocked)

    def _links(self, topics: list[TopicStats]) -> list[LinkStats]:
        mesh, presence, lag = self._shell.mesh, self._shell.presence, dict[NodeId, int]()
        for topic in topics:
            for slot, count in topic.behind.items():
                lag[slot] = lag.get(slot, 0) + count
        suspects = set(presence.suspected)
        links = []
        for slot, address in presence.addresses.items():
            if slot != presence.slot:
                connection = mesh.connection_with(slot)
                backlog = 0 if connection is None else connection.backlog()
                state = connection is not None, slot in suspects
                links.append(LinkStats(slot, address, *state, backlog, lag.get(slot, 0)))
        return links


def _per(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _topic(topic: Topic, membership: Membership, accepted: int, blocked: bool) -> TopicStats:
    core, outgoing = membership.core, membership.core.outgoing
    return TopicStats(
        topic=topic,
        standing=membership.standing.value,
        members=membership.members.bit_count(),
        published=outgoing.next_seq,
        accepted=accepted,
        blocked=blocked,
        in_flight_bytes=outgoing.in_flight,
        behind=outgoing.behind() if outgoing.in_flight else {},
        waiting=len(core.front.waiting()),
        held_bytes=sum(inbox.held() for inbox in core.streams.inboxes.values()),
    )


def _subscription(one: Subscription) -> SubscriptionStats:
    messages, size, limit = one.load
    return SubscriptionStats(
        topic=one.topic,
        policy=one.policy,
        client=one.share is not None,
        unread_messages=messages,
        unread_bytes=size,
        limit_bytes=limit,
        dropped=one.dropped,
        owes=one.owes,
    )


def _topic_rank(one: TopicStats) -> tuple[bool, int, int, int, str]:
    """Topics with the most to wait for come first."""
    return not one.blocked, -one.waiting, -one.held_bytes, -one.in_flight_bytes, one.topic


def _reader_rank(one: SubscriptionStats) -> tuple[bool, int, int, str]:
    """Subscriptions that are furthest behind come first."""
    return not one.owes, -one.unread_bytes, -one.dropped, one.topic
