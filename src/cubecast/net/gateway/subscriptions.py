"""The subscriptions of a light client at its node, which send messages to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
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
    Over,
    Subscribe,
    Subscribed,
    clipped,
    size_of,
)
from cubecast.net.wire.packets import WireError
from cubecast.protocol.port import Stream, Topic

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
        """How many topics the client is publishing to at present."""

    def __len__(self) -> int:
        return len(self._feeds)

    def begin(self, request: Subscribe) -> None:
        """Begin a subscription; `WireError` if the client begins far too many."""
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
        """Send the messages of one subscription, as fast as the client reads them."""
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
                self._tell_over(feed)
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
        """The message that a subscription has begun; if `located`, where in each stream."""
        if not request.located:
            return Subscribed(feed.number, feed.window)
        positions = self._shell.subscribing.positions(subscription)
        whole = len(positions) <= MAX_POSITIONS
        memory_s = self._shell.config.protocol.forget_after / 1e6 or inf
        if request.ends:
            feed.open = {(topic, Stream(*stream)) for topic, *stream, _ in positions}
        return Subscribed(feed.number, feed.window, positions[:MAX_POSITIONS], whole, memory_s)

    def tell_over(self) -> None:
        """Tell the client which streams are over: it need not ask other nodes for their ends.

        Nothing is said of a subscription while messages of it are on their way to the connection.
        """
        for feed in self._feeds.values():
            self._tell_over(feed)

    def _tell_over(self, feed: Feed) -> None:
        subscription = feed.subscription
        if feed.open and not feed.sending and subscription is not None:
            over = sorted(self._shell.subscribing.over(subscription, feed.open))[:MAX_POSITIONS]
            feed.open.difference_update(over)
            if over:
                names = [(topic, *stream) for topic, stream in over]
                self._line.send(Over(feed.number, names))

    async def _forward(self, subscription: Subscription, feed: Feed) -> None:
        """Send no more at a time than there is credit for, so that reading goes on steadily."""
        while True:
            await feed.credit()
            messages = await subscription.take(min(feed.room, BATCH_BYTES))
            if not messages:
                return
            feed.sending = True
            await self._line.room()  # after waiting: all subscriptions may wake in one tick
            if feed.open is not None and not messages[0].retained:
                feed.open.add((messages[0].topic, messages[0].frame.stream))
            for part in parts(messages):
                packet = deliver(feed.number, subscription.dropped, part)
                self._line.send(packet)
                feed.sent(size_of(packet.payloads))
            feed.sending = False

    def _yields(self) -> bool:
        waits = self.publishing > 0 and self._shell.publishing.waits()
        return waits and self._line.share.left > 0

    def _slow(self, feed: Feed) -> None:
        """Tell the client what the policy dropped, at most once in `TELLING_S`."""
        if not feed.telling:
            feed.telling = True
            self._loop.call_later(TELLING_S, self._tell_dropped, feed)

    def _tell_dropped(self, feed: Feed) -> None:
        feed.telling = False
        assert feed.subscription is not None
        # It may have ended.  A client that does not read is told by the next delivery.
        if feed.number in self._feeds and self._line.backlog() < BACKLOG:
            self._line.send(Dropped(feed.number, feed.subscription.dropped))

    def read(self, number: int, size: int) -> None:
        """Give credit for bytes of a subscription that the application has read."""
        feed = self._feeds.get(number)
        if feed is not None:  # it may have ended meanwhile
            feed.read(size)

    def end(self, number: int) -> bool:
        """End a subscription; False if there is none of that number."""
        feed = self._feeds.pop(number, None)
        if feed is not None:
            feed.abandon()
            self._serving[number].cancel()
        return feed is not None

    def end_refused(self, refusal: Callable[[Topic], NotAllowed | None]) -> None:
        """End the subscriptions that new permissions do not allow."""
        for number, feed in list(self._feeds.items()):
            if feed.subscription is not None:  # else it is checked later
                refused = refusal(feed.subscription.topic)
                if refused is not None:
                    self.end(number)
                    self._line.send(Ended(number, clipped(refused.reason), denied=True))

    def abandon(self) -> None:
        """Free all queues at once: the session is over."""
        for feed in self._feeds.values():
            feed.abandon()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that send messages to the client, one a subscription."""
        return list(self._serving.values())

    # -- while the client publishes --------------------------------------------------------------

    def behind(self, topic: Topic) -> int:
        """Unread bytes beyond the queue, of the subscription to a topic that is most behind."""
        readers = (feed.subscription for feed in self._feeds.values())
        return max((one.behind(topic) for one in readers if one is not None), default=0)

    def hears(self, topic: Topic) -> bool:
        """Whether the client has subscribed to a topic by its name, and the topic is counted."""
        subscriptions = (feed.subscription for feed in self._feeds.values())
        return any(one is not None and one.topic == topic for one in subscriptions)

    def reads(self, subscription: Subscription) -> bool:
        """Whether the client reads a certain subscription."""
        return any(feed.subscription is subscription for feed in self._feeds.values())

    def put_off(self) -> None:
        """Put off the client's debts while it waits to publish, within bound 4 of `session.py`."""
        for feed in self._feeds.values():
            if feed.subscription is not None:
                feed.subscription.settle()
