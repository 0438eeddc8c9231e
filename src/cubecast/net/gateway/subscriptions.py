"""The subscriptions of a light client at its node: what is delivered goes to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from cubecast.errors import Closed, CubecastError, NotAllowed, Overflow
from cubecast.net.gateway.feed import Feed, deliver, parts
from cubecast.net.gateway.line import BACKLOG, Line
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.clients import (
    BATCH_BYTES,
    LEAVING,
    MAX_POSITIONS,
    Dropped,
    Ended,
    Subscribe,
    Subscribed,
    clipped,
    size_of,
)
from cubecast.net.wire.packets import WireError
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

TELLING_S = 0.01


class Subscriptions:
    """The subscriptions of one client, by the numbers that it gives them.

    While the client itself waits to publish, their debts are put off (`debts.py`), or two clients
    that publish while they read could wait for each other.
    """

    def __init__(self, line: Line, shell: Shell) -> None:
        self._line = line
        self._shell = shell
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self.publishing = 0
        """Topics of which a publication of the client is on its way to the node."""

    def __len__(self) -> int:
        return len(self._feeds)

    def begin(self, request: Subscribe) -> None:
        """The client subscribes; `WireError` if it does so far too often."""
        limit = self._shell.config.client_subscriptions
        number = request.subscription
        if number in self._serving:
            raise WireError(f"a second subscription {number}")
        if len(self._serving) >= 4 * limit:
            raise WireError("more subscriptions begun and ended than can be kept up with")
        if len(self._feeds) >= limit:
            self._line.send(Ended(number, f"a client may have {limit} subscriptions, not more"))
            return
        feed = Feed(number, request.queue_bytes or self._shell.config.queue_bytes)
        self._feeds[number] = feed
        task = self._serving[number] = self._line.spawn(self._serve(request, feed))
        task.add_done_callback(lambda _: self._forget(number))

    def _forget(self, number: int) -> None:
        del self._serving[number]
        self._feeds.pop(number, None)

    async def _serve(self, request: Subscribe, feed: Feed) -> None:
        """Send what is delivered to one subscription, as fast as it is read."""
        try:
            self._line.check_may("subscribe", request.topic)
            subscription = self._shell.node.subscribe(
                request.topic, policy=request.policy, queue_bytes=feed.queue_bytes
            )
            if subscription.pattern is None:
                self._line.use_topic(request.topic)
            subscription.share = self._line.share
            subscription.yields = self._yields
            subscription.on_slow = lambda: self._slow(feed)
            subscription.wants_retained = request.retained
            feed.subscription = subscription
            async with subscription:
                self._line.send(self._confirmation(request, feed, subscription))
                await self._forward(subscription, feed)
            self._line.send(Ended(feed.number, LEAVING, leaving=True))
        except Overflow as error:
            self._line.send(Dropped(feed.number, subscription.dropped))
            self._line.send(Ended(feed.number, clipped(error.reason), error.limit))
        except NotAllowed as error:
            self._line.send(Ended(feed.number, clipped(error.reason), denied=True))
        except (CubecastError, ValueError) as error:
            leaving = isinstance(error, Closed) and self._shell.closing.begun
            self._line.send(Ended(feed.number, clipped(error), leaving=leaving))

    def _confirmation(
        self, request: Subscribe, feed: Feed, subscription: Subscription
    ) -> Subscribed:
        """That a subscription has begun; if it was asked for, where in each stream."""
        if not request.located:
            return Subscribed(feed.number, feed.window)
        positions = self._shell.subscribing.positions(subscription)
        whole = len(positions) <= MAX_POSITIONS
        return Subscribed(feed.number, feed.window, positions[:MAX_POSITIONS], whole)

    async def _forward(self, subscription: Subscription, feed: Feed) -> None:
        """Send no more at a time than there is credit for, so that reading never comes in lumps."""
        while True:
            await feed.credit()
            messages = await subscription.take(min(feed.room, BATCH_BYTES))
            if not messages:
                return
            await self._line.room()  # after waiting: all subscriptions may wake in one tick
            for part in parts(messages):
                packet = deliver(feed.number, subscription.dropped, part)
                self._line.send(packet)
                feed.sent(size_of(packet.payloads))

    def _yields(self) -> bool:
        waits = self.publishing > 0 and self._shell.publishing.waits()
        return waits and self._line.share.left > 0

    def _slow(self, feed: Feed) -> None:
        """The policy had to act: tell the client, not more often than it helps."""
        if not feed.telling:
            feed.telling = True
            self._loop.call_later(TELLING_S, self._tell_dropped, feed)

    def _tell_dropped(self, feed: Feed) -> None:
        feed.telling = False
        assert feed.subscription is not None
        # It may have ended; and to one that does not read, the next delivery tells.
        if feed.number in self._feeds and self._line.backlog() < BACKLOG:
            self._line.send(Dropped(feed.number, feed.subscription.dropped))

    def read(self, number: int, size: int) -> None:
        """The application has read so many bytes of a subscription."""
        feed = self._feeds.get(number)
        if feed is not None:  # it may have ended meanwhile
            feed.read(size)

    def end(self, number: int) -> bool:
        """The subscription is read no more; False if there is none of that number."""
        feed = self._feeds.pop(number, None)
        if feed is not None:
            feed.abandon()
            self._serving[number].cancel()
        return feed is not None

    def end_refused(self, refusal: Callable[[Topic], NotAllowed | None]) -> None:
        """There are new permissions: end the subscriptions that they do not allow."""
        for number, feed in list(self._feeds.items()):
            if feed.subscription is not None:  # else it is checked later
                refused = refusal(feed.subscription.topic)
                if refused is not None:
                    self.end(number)
                    self._line.send(Ended(number, clipped(refused.reason), denied=True))

    def abandon(self) -> None:
        """The session is over: let go of what waits here, at once."""
        for feed in self._feeds.values():
            feed.abandon()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that send what is delivered, one a subscription."""
        return list(self._serving.values())

    # -- while the client publishes --------------------------------------------------------------

    def behind(self, topic: Topic) -> int:
        """Bytes that are unread beyond the queue, where the client reads a topic."""
        readers = (feed.subscription for feed in self._feeds.values())
        return max((one.behind(topic) for one in readers if one is not None), default=0)

    def reads(self, subscription: Subscription) -> bool:
        """Whether the client reads a certain subscription."""
        return any(feed.subscription is subscription for feed in self._feeds.values())

    def put_off(self) -> None:
        """We wait to publish: our readers hold up nobody meanwhile, within bound 4."""
        for feed in self._feeds.values():
            if feed.subscription is not None:
                feed.subscription.settle()
