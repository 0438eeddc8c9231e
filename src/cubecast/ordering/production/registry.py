"""The subscriptions that the managers of one member know.

The registry has every subscription to a topic of this member, and copies of others: a subscription
is complete when the managers of its topics and their successors know it ([T] 5 leaves that open,
hole T14).

Invariants: of two versions the higher one stays (T8).  An empty subscription is kept, too, as long
as its lease: so a late copy of an older version changes nothing.  An entry is dropped when it was
not renewed in time; safety does not need it (`front.Front`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cubecast.ordering.effects import Time
from cubecast.ordering.messages import Member
from cubecast.ordering.production.messages import SubscriptionVersion
from cubecast.ordering.timestamps import Topic


class LeasedSubscription(NamedTuple):
    """A subscription, and when it is dropped unless it is renewed; None: never."""

    subscription: SubscriptionVersion
    until: Time | None


class SubscriptionRegistry:
    """Subscriptions by subscriber; at most one each."""

    def __init__(self, lease_for: Time | None) -> None:
        self._lease_for = lease_for
        self._entries: dict[Member, LeasedSubscription] = {}
        self._subscribers: dict[Topic, set[Member]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, subscription: SubscriptionVersion, now: Time) -> set[Topic]:
        """Learn or renew a subscription; return the topics for which it is new."""
        known = self._entries.get(subscription.subscriber)
        if known is not None and known.subscription.version > subscription.version:
            return set()
        until = None if self._lease_for is None else now + self._lease_for
        self._entries[subscription.subscriber] = LeasedSubscription(subscription, until)
        had = set(known.subscription.topics) if known is not None else set()
        if had == set(subscription.topics):
            return set()
        self._index(subscription.subscriber, had, set(subscription.topics))
        return had.union(subscription.topics)

    def _index(self, subscriber: Member, had: set[Topic], has: set[Topic]) -> None:
        for topic in has - had:
            self._subscribers.setdefault(topic, set()).add(subscriber)
        for topic in had - has:
            self._subscribers[topic].discard(subscriber)
            if not self._subscribers[topic]:
                del self._subscribers[topic]

    def known(self, subscriber: Member) -> SubscriptionVersion | None:
        entry = self._entries.get(subscriber)
        return None if entry is None else entry.subscription

    def shared_with(self, topic: Topic) -> set[Topic]:
        """The topics that share a subscription with this one."""
        shared: set[Topic] = set()
        for subscriber in self._subscribers.get(topic, ()):
            shared.update(self._entries[subscriber].subscription.topics)
        return shared

    def all(self) -> tuple[SubscriptionVersion, ...]:
        return tuple(entry.subscription for _, entry in sorted(self._entries.items()))

    def replace(self, subscriptions: Iterable[SubscriptionVersion], now: Time) -> None:
        """Take over the subscriptions of all managers; newer ones here stay."""
        for subscription in subscriptions:
            self.note(subscription, now)

    def drop_expired(self, now: Time) -> set[Topic]:
        """Drop subscriptions that were not renewed; return their topics."""
        over = [
            entry.subscription
            for entry in self._entries.values()
            if entry.until is not None and entry.until <= now
        ]
        for subscription in over:
            self._index(subscription.subscriber, set(subscription.topics), set())
            del self._entries[subscription.subscriber]
        return {topic for subscription in over for topic in subscription.topics}

    def next_expiry(self) -> Time | None:
        times = (entry.until for entry in self._entries.values())
        return min((at for at in times if at is not None), default=None)
