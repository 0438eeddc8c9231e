"""The subscriptions of one node: who reads which topic, and when the core may be told so."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from cubecast.net.ledger import Ledger
from cubecast.net.subscription import Subscription
from cubecast.protocol.messages import Frame
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import Seq, Stream, Time, Topic


class Runtime(Protocol):
    """What the readers need of their node."""

    closed: bool

    @property
    def core(self) -> CubecastNode: ...
    def now(self) -> Time: ...
    def membership_called(self, topic: Topic, joins: bool) -> None: ...


class Readers:
    """One membership per topic in the core, shared by any number of subscriptions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._by_topic: dict[Topic, list[Subscription]] = {}
        self._joining: dict[Topic, asyncio.Future[None]] = {}
        self._leaving: dict[Topic, asyncio.Future[None]] = {}
        self._ledger = Ledger()

    async def attach(self, subscription: Subscription) -> None:
        """Begin to deliver to a subscription; returns when the cut is fixed.

        One that blocks also waits until every publisher knows that it may miss nothing.
        """
        topic = subscription.topic
        if topic in self._leaving:
            await asyncio.shield(self._leaving[topic])  # others wait for it as well
        if topic not in self._by_topic:
            self._by_topic[topic] = []
            self._joining[topic] = self._loop.create_future()
            self._runtime.membership_called(topic, True)
        self._by_topic[topic].append(subscription)
        self._tell_attitude(topic)
        if topic in self._joining:
            await asyncio.shield(self._joining[topic])
        while subscription.policy == "block" and self._runtime.core.is_lossy(topic):
            told = self._joining.setdefault(topic, self._loop.create_future())
            await asyncio.shield(told)

    def _tell_attitude(self, topic: Topic) -> None:
        """Subscribe, or say that this has changed: whether we would rather miss messages.

        A topic's node is lossy if every subscription has a policy that drops.
        """
        lossy = all(reader.policy != "block" for reader in self._by_topic[topic])
        self._runtime.core.subscribe(topic, self._runtime.now(), lossy)

    def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription; the last one of a topic unsubscribes the node."""
        topic = subscription.topic
        readers = self._by_topic.get(topic, [])
        if subscription in readers:
            readers.remove(subscription)
        settled = self._ledger.forgive(subscription)
        if self._runtime.closed:
            return
        now = self._runtime.now()
        for one in settled:
            self._runtime.core.consumed(*one, now)
        if not readers and topic in self._by_topic:
            del self._by_topic[topic]
            self._leaving[topic] = self._loop.create_future()
            self._runtime.membership_called(topic, False)
            self._runtime.core.unsubscribe(topic, now)
        elif readers:
            self._tell_attitude(topic)

    def deliver(self, frame: Frame) -> bool:
        """Hand a frame to every reader of its topic; True if it counts as consumed."""
        owing: set[Hashable] = {
            reader for reader in self._by_topic.get(frame.topic, ()) if not reader.deliver(frame)
        }
        return self._ledger.hand_out(frame.topic, frame.stream, frame.last, owing)

    def consumed(self, subscription: Subscription, stream: Stream, seq: Seq) -> None:
        """A subscription has read what it owed; the core is told when all have."""
        topic = subscription.topic
        settled = self._ledger.settle(subscription, topic, stream, seq)
        if settled is not None and not self._runtime.closed:
            self._runtime.core.consumed(topic, stream, settled, self._runtime.now())

    def release(self, topic: Topic) -> None:
        """Take what the readers of a topic owe for read."""
        for reader in self._by_topic.get(topic, ()):
            reader.release()

    def missed(self, topic: Topic, count: int) -> None:
        """So many messages of a topic were skipped."""
        for reader in self._by_topic.get(topic, ()):
            reader.missed(count)

    def joined(self, topic: Topic) -> None:
        """The cut is fixed."""
        _finish(self._joining.pop(topic, None))

    def left(self, topic: Topic) -> None:
        """Nobody needs this node for the topic any more."""
        _finish(self._leaving.pop(topic, None))

    async def leave_all(self) -> None:
        """Close every subscription and wait until the node is out of every topic."""
        for readers in list(self._by_topic.values()):
            for reader in list(readers):
                await reader.close()
        await asyncio.gather(*self._leaving.values())

    def wake_all(self) -> None:
        """The node is closed: let every reader notice."""
        for readers in self._by_topic.values():
            for reader in readers:
                reader.wake()


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
