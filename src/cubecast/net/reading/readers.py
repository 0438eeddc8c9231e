"""The subscriptions of one node: which read which topic, and what the core is told of them.

A subscription reads one topic, or every topic that its pattern matches.  Each topic has one list of
its subscriptions, by name or by pattern; the node is a subscriber of the topic while the list is
not empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from cubecast.errors import Closed, TooManyTopics
from cubecast.net.node.value_keeper import Retained
from cubecast.net.reading.ledger import Ledger
from cubecast.net.reading.subscription import Subscription
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.explain import ReaderLoad
from cubecast.protocol.messages import Frame
from cubecast.protocol.port import Seq, Stream, Time, Topic
from cubecast.protocol.subscriptions.patterns import Pattern

LOOK_S, LOOK_MAX_S = 0.002, 0.5
"""Pause between two checks whether a node that was lossy has caught up: the first, the longest."""

LOADS = 10
"""The most subscriptions of a topic that `loads` names."""


class ReadersHost(Protocol):
    """What the readers need of their node."""

    closed: bool

    @property
    def member(self) -> Member: ...
    def check_open(self) -> None: ...
    def now(self) -> Time: ...
    def membership_called(self, topic: Topic, joins: bool) -> None: ...
    @property
    def keeper(self) -> Retained: ...


class Readers:
    """One membership per topic in the core, shared by any number of subscriptions.

    A pattern, too, is followed once and shared by the subscriptions that have the same one.
    """

    def __init__(self, runtime: ReadersHost) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[Topic, list[Subscription]] = {}
        self._by_pattern: dict[str, list[Subscription]] = {}
        self._joining: dict[Topic, asyncio.Future[bool]] = {}
        self._leaving: dict[Topic, asyncio.Future[bool]] = {}
        self._following: dict[str, asyncio.Future[bool]] = {}
        self._ledger = Ledger()
        self.hasty: set[Subscription] = set()
        """Subscriptions without order: they take messages as they arrive (`arrived`)."""
        self._owing: dict[Subscription, None] = {}  # those that had debts at the last check

    # -- coming and going ------------------------------------------------------------------------

    async def attach(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed.

        With policy `block` it also waits until every publisher knows that it may miss nothing.
        """
        if subscription.order == "none":
            self.hasty.add(subscription)
        try:
            if subscription.pattern is None:
                await self._attach_to_topic(subscription)
            else:
                await self._attach_to_pattern(subscription, subscription.pattern)
            if subscription.policy == "block":
                await self._not_lossy(subscription)
            self._check(subscription)
        except BaseException:
            self.detach(subscription)
            raise

    async def _attach_to_topic(self, subscription: Subscription) -> None:
        topic = subscription.topic
        while topic in self._leaving:
            await asyncio.shield(self._leaving[topic])
            self._check(subscription)
        if topic not in self._by_topic:
            self._expect(topic)
        self._by_topic[topic].append(subscription)
        self._begin_with_value(subscription, topic)
        self._tell_attitude(topic)
        ready = self._joining.get(topic)
        if ready is not None:
            await asyncio.shield(ready)

    def _check(self, subscription: Subscription) -> None:
        """`Closed` if the node closes, or the subscription was closed while it was entered."""
        self._runtime.check_open()  # or the node would join while it leaves the cluster
        if subscription.closed:
            raise Closed(f"the subscription to {subscription.topic!r} was closed")

    async def _attach_to_pattern(self, subscription: Subscription, pattern: Pattern) -> None:
        text = pattern.text
        first = text not in self._by_pattern
        self._by_pattern.setdefault(text, []).append(subscription)
        for topic, readers in self._by_topic.items():
            if pattern(topic):
                readers.append(subscription)
                self._begin_with_value(subscription, topic)
        if first:
            self._following[text] = self._loop.create_future()
            self._runtime.membership_called(text, True)
            self._runtime.member.follow(text, pattern, self._runtime.now())
        ready = self._following.get(text)
        if ready is not None and not await asyncio.shield(ready):
            raise TooManyTopics(text)
        for topic in [topic for topic in self._by_topic if pattern(topic)]:
            self._tell_attitude(topic)

    def _begin_with_value(self, subscription: Subscription, topic: Topic) -> None:
        """Hand out the retained value, if the node has joined the topic; else `joined` does."""
        if topic not in self._joining:
            frame = self._runtime.keeper.frame(topic)
            if frame is not None:
                subscription.begin_with(frame)

    async def _not_lossy(self, subscription: Subscription) -> None:
        """Wait until no publisher takes the node for lossy in a topic that the subscription reads.

        The wait ends if the subscription is closed: the other subscriptions may stay lossy.
        """
        for topic in [
            topic for topic, readers in self._by_topic.items() if subscription in readers
        ]:
            # No event tells when the last message sent to a lossy node has come: poll.
            pause_s = LOOK_S
            while self._reads(subscription, topic) and self._runtime.member.is_lossy(topic):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LOOK_MAX_S)

    def _reads(self, subscription: Subscription, topic: Topic) -> bool:
        return subscription in self._by_topic.get(topic, ())

    def _tell_attitude(self, topic: Topic) -> None:
        """Subscribe, or tell publishers that the node has become lossy, or strict.

        A node is lossy in a topic if every subscription to it has a policy that drops.
        """
        readers = self._by_topic.get(topic)
        if readers and not self._runtime.closed:
            lossy = all(reader.policy != "block" for reader in readers)
            followed = all(reader.pattern is not None for reader in readers)
            self._runtime.member.subscribe(topic, self._runtime.now(), lossy, followed)

    def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription; the node unsubscribes with a topic's last one."""
        self.hasty.discard(subscription)
        if subscription.pattern is None:
            topics = [subscription.topic]
        else:
            topics = list(self._by_topic)
            self._detach_from_pattern(subscription, subscription.pattern.text)
        read = [topic for topic in topics if self._reads(subscription, topic)]
        idle = [topic for topic in topics if self._remove(subscription, topic)]
        settled = self._ledger.forgive(subscription)
        self._owing.pop(subscription, None)
        if self._runtime.closed:
            return
        now = self._runtime.now()
        for one in settled:
            self._runtime.member.consumed(*one, now)
        for topic in idle:
            self._leave(topic, now)
        for topic in read:
            self._tell_attitude(topic)

    def _detach_from_pattern(self, subscription: Subscription, text: str) -> None:
        """Stop following a pattern if this was the last subscription to it."""
        readers = self._by_pattern.get(text, [])
        if subscription in readers:
            readers.remove(subscription)
            if not readers:
                del self._by_pattern[text]
                _finish(self._following.pop(text, None))
                if not self._runtime.closed:
                    self._runtime.membership_called(text, False)
                    self._runtime.member.unfollow(text, self._runtime.now())

    def _remove(self, subscription: Subscription, topic: Topic) -> bool:
        """Remove a subscription from a topic; True if the topic has none left."""
        readers = self._by_topic.get(topic)
        if readers is None:
            return False
        if subscription in readers:
            readers.remove(subscription)
        return not readers

    def _expect(self, topic: Topic) -> None:
        """Prepare to join a topic: subscriptions whose pattern matches it read it."""
        self._by_topic[topic] = [
            reader
            for readers in self._by_pattern.values()
            for reader in readers
            if reader.pattern is not None and reader.pattern(topic)
        ]
        self._joining[topic] = self._loop.create_future()
        self._runtime.membership_called(topic, True)

    def _leave(self, topic: Topic, now: Time) -> None:
        del self._by_topic[topic]
        _finish(self._joining.pop(topic, None))
        self._leaving.setdefault(topic, self._loop.create_future())
        self._runtime.membership_called(topic, False)
        self._runtime.member.unsubscribe(topic, now)

    async def leave_all(self) -> None:
        """Close every subscription and wait until the node is out of every topic."""
        for reader in self._all():
            await reader.close()
        if self._leaving:  # others wait for these, too: giving up must not cancel them
            await asyncio.wait(list(self._leaving.values()))

    def wake_all(self) -> None:
        """Wake all readers and waiting calls: the node is closed."""
        for reader in self._all():
            reader.wake()
        for waiting in (self._joining, self._leaving, self._following):
            for future in waiting.values():
                _finish(future)

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, including those that are being entered."""
        return self._all()

    def loads(self, topic: Topic) -> list[ReaderLoad]:
        """Unread messages of each subscription of a topic; those that stall publishers first."""
        loads = [_load(reader) for reader in self._by_topic.get(topic, ())]
        unread = [load for load in loads if load["unread_messages"] or load["owes"]]
        unread.sort(key=lambda load: (not load["owes"], -load["unread_bytes"]))
        return unread[:LOADS]

    def topics_of(self, subscription: Subscription) -> list[Topic]:
        """The topics that a subscription reads at present."""
        if subscription.pattern is None:
            return [subscription.topic]
        return [topic for topic in self._by_topic if self._reads(subscription, topic)]

    def watches(self, topic: Topic) -> bool:
        """Whether a subscription reads a topic, or a pattern that has not forgotten it."""
        return topic in self._by_topic

    def _all(self) -> list[Subscription]:
        lists = (*self._by_topic.values(), *self._by_pattern.values())
        return list(dict.fromkeys(reader for readers in lists for reader in readers))

    # -- what is delivered and read --------------------------------------------------------------

    def deliver(self, frame: Frame) -> bool:
        """Hand a frame to every subscription of its topic; True if it counts as consumed."""
        readers = self._by_topic.get(frame.topic, ())
        owing = [reader for reader in readers if not reader.deliver(frame)]
        consumed = self._ledger.hand_out(frame.topic, frame.stream, frame.last, owing)
        for reader in owing:
            self._owing[reader] = None
            reader.settle()  # a part of it may fit
        return consumed

    def arrived(self, frame: Frame) -> None:
        """Hand a frame that waits for its turn to the subscriptions without order."""
        for reader in self._by_topic.get(frame.topic, ()):
            if reader in self.hasty and reader.entered:
                reader.take_ahead(frame)

    def skipped(self, topic: Topic, spans: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Tell subscriptions without order that the turn of these messages will not come."""
        for reader in self.hasty:
            for stream, (_, last) in spans.items():
                reader.forget_ahead((topic, stream), last)

    def consumed(self, subscription: Subscription, topic: Topic, stream: Stream, seq: Seq) -> None:
        """Note that a subscription has consumed up to `seq`; tell the core how far all have."""
        settled = self._ledger.settle(subscription, topic, stream, seq)
        if settled is not None and not self._runtime.closed:
            self._runtime.member.consumed(topic, stream, settled, self._runtime.now())

    def settle(self) -> None:
        """Put off debts of all topics (`debts.py`), because a publish has to wait."""
        for reader in list(self._owing):
            if reader.owes:
                reader.settle()
            else:
                del self._owing[reader]

    # -- what the core tells ---------------------------------------------------------------------

    def discovered(self, topic: Topic) -> None:
        """Make the node a subscriber of a topic that a pattern matches, if it was none.

        Also while the node closes: the core has subscribed already, so the topic has to be left.
        """
        if topic not in self._by_topic:
            self._expect(topic)
            self._loop.call_soon(self._tell_attitude, topic)  # not from inside the core

    def forgotten(self, topic: Topic) -> None:
        """Forget a watched topic; `discovered` brings it back when a node uses it again."""
        self._by_topic.pop(topic, None)

    def life_ended(self) -> None:
        """End pending unsubscribes: the node was excluded, so no other node relies on it."""
        for reader in self.hasty:
            reader.forget_all_ahead()
        for future in self._leaving.values():
            _finish(future)
        self._leaving.clear()

    def take_gaps(self, topic: Topic) -> bool:
        """Whether no entered subscription of the topic uses `block`, so that gaps are allowed."""
        readers = self._by_topic.get(topic, ())
        return not any(reader.entered and reader.policy == "block" for reader in readers)

    def pass_over(self, topic: Topic, count: int) -> None:
        """Tell the subscriptions of a topic that `count` messages were skipped."""
        for reader in self._by_topic.get(topic, ()):
            if reader.entered:  # else it was promised nothing yet
                reader.pass_over(count)

    def followed(self, pattern: str, complete: bool) -> None:
        """End a `follow`: all matching topics are joined, or there are too many (not `complete`).

        A pattern may also become incomplete later; its subscriptions fail.
        """
        if not complete:
            self._runtime.membership_called(pattern, False)
            for reader in self._by_pattern.pop(pattern, ()):
                reader.fail(TooManyTopics(pattern))
        _finish(self._following.pop(pattern, None), complete)

    def joined(self, topic: Topic, news: bool = False) -> None:
        """End a join: the cut is fixed, or every publisher knows whether this node is lossy.

        If the cut is fixed anew, `news` says that it covers a retained value that is newer than
        the one known here.  Then subscriptions that are entered already get that value, too.
        """
        ready = self._joining.pop(topic, None)
        if ready is not None or news:
            for reader in self._by_topic.get(topic, ()):
                if news or not reader.entered:
                    self._begin_with_value(reader, topic)
        _finish(ready)

    def left(self, topic: Topic) -> None:
        """End a leave: no other node relies on this node for the topic."""
        _finish(self._leaving.pop(topic, None))


def _load(reader: Subscription) -> ReaderLoad:
    messages, size, limit = reader.load
    return {
        "policy": reader.policy,
        "client": reader.share is not None,
        "unread_messages": messages,
        "unread_bytes": size,
        "limit_bytes": limit,
        "owes": reader.owes,
    }


def _finish(future: asyncio.Future[bool] | None, result: bool = True) -> None:
    if future is not None and not future.done():
        future.set_result(result)
