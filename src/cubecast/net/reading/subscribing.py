"""The subscriptions of one node, as its application and its light clients make them.

`Readers` delivers messages.  This module does the rest: it checks whether a subscription may begin,
reports dropped messages, and says where a subscription begins in each stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from cubecast.net.events import Event
from cubecast.net.node.presence import Presence
from cubecast.net.node.stats import Numbers
from cubecast.net.publishing.publishing import Publishing
from cubecast.net.reading.debts import Key
from cubecast.net.reading.readers import Readers
from cubecast.net.reading.slow_news import SlowNews
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.clients import Position
from cubecast.net.wire.topic_ids import Vocabulary
from cubecast.protocol.port import NodeId, Seq, Stream, Topic


class SubscribingHost(Protocol):
    """What subscribing needs of its node."""

    closed: bool
    numbers: Numbers
    presence: Presence
    vocabulary: Vocabulary

    def check_open(self) -> None: ...
    def check_may(self, what: str, topic: Topic) -> None: ...
    def tell(self, event: Event) -> None: ...


class Subscribing:
    """The host of all subscriptions of one node."""

    def __init__(self, host: SubscribingHost, readers: Readers, publishing: Publishing) -> None:
        self._host = host
        self._readers = readers
        self._slow = SlowNews(host.tell)
        self.consumed = readers.consumed
        self.waits_to_publish = publishing.waits
        self.holds_readers = publishing.holds_readers
        self.holds_reader_of = publishing.holds_reader_of

    @property
    def closed(self) -> bool:
        """Whether the node is closed."""
        return self._host.closed

    @property
    def slot(self) -> NodeId:
        """The slot of the node."""
        return self._host.presence.slot

    async def attach(self, subscription: Subscription[Any]) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed."""
        self._host.check_open()
        self._host.check_may("subscribe", subscription.topic)  # the rules may have changed
        if subscription.pattern is None:
            self._host.vocabulary.learn(subscription.topic)
        await self._readers.attach(subscription)

    async def detach(self, subscription: Subscription[Any]) -> None:
        """Stop delivering to a subscription."""
        self._readers.detach(subscription)
        self._slow.ended(subscription)

    def slow_subscriber(self, subscription: Subscription[Any]) -> None:
        """Count and report what the policy of a subscription dropped."""
        self._host.numbers.dropped += subscription.dropped - subscription.dropped_before
        subscription.dropped_before = subscription.dropped
        self._slow.acted(subscription)

    def close(self) -> None:
        """Report slow subscribers no more."""
        self._slow.close()

    # -- positions, for light clients that go from node to node ----------------------------------

    def positions(self, subscription: Subscription[Any]) -> list[Position]:
        """Where an unread subscription begins: the next message of each stream."""
        core, unread = self._host.presence.core, subscription.first_unread()
        found: list[Position] = []
        for topic in sorted(self._readers.topics_of(subscription)):
            if core is None or not core.knows(topic):
                continue
            vector = core.membership_of(topic).core.vector()
            for stream in sorted(vector):
                first = unread.get((topic, stream), vector[stream] + 1)
                found.append((topic, stream.source, stream.incarnation, first))
        return found

    def over(self, subscription: Subscription[Any], known: Collection[Key]) -> set[Key]:
        """Those of the streams of which a subscription was handed all there will ever be.

        A node that is not, or not yet again, a subscriber of a topic says nothing of its streams:
        their ends are not known here.
        """
        core = self._host.presence.core
        by_topic: dict[Topic, set[Stream]] = {}
        for topic, stream in set(known) - subscription.unread_streams():
            by_topic.setdefault(topic, set()).add(stream)
        found: set[Key] = set()
        for topic, streams in by_topic.items():
            if core is not None and core.takes(topic):
                ended = core.membership_of(topic).core.over(streams)
            else:
                ended = set() if self._readers.watches(topic) else streams
            found.update((topic, stream) for stream in ended)
        return found

    def undelivered(self, positions: list[Position]) -> list[Position]:
        """The positions before which messages are still to be delivered here."""
        core = self._host.presence.core
        if core is None:
            return positions
        vectors: dict[Topic, Mapping[Stream, Seq]] = {}
        left: list[Position] = []
        for position in positions:
            topic, source, incarnation, first = position
            stream = Stream(source, incarnation)
            if not core.takes(topic) or not core.is_live(stream):
                continue
            if topic not in vectors:
                vectors[topic] = core.membership_of(topic).core.vector()
            if vectors[topic].get(stream, -1) < first - 1:
                left.append(position)
        return left
