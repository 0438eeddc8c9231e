"""Publications of a light client on their way to its node: gathered, numbered, bounded.

Messages that `publish` accepts are gathered per topic for one tick and sent as one packet.  The
node answers each packet when it has taken it; until then its bytes count against a window, and a
`publish` beyond the window waits.  So when the connection breaks, a publication is *not sent* if it
was still gathered, *unknown* if its packet was sent and not answered, *sent* otherwise.

Topics are independent.  Order is kept per topic, and a topic that the node has no credit for holds
up no other: it uses at most half of what the others leave of the window, and one message.  So each
topic that waits leaves room for the next one.

A client that looks for another node holds its publications back meanwhile (`hold`, `resume`).
Publications known not to be sent go to the next node, in order; unknown ones are sent again only if
the client asked for that, because they may then be delivered twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain

from cubecast.errors import CubecastError, NotAllowed, NotSent, Unknown
from cubecast.net.checks import check_timeout
from cubecast.net.client.parcels import DeliveredPacket, Flow, Letter
from cubecast.net.wire.clients import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Consumed,
    Declined,
    Publish,
    Taken,
    Taking,
    encode,
)
from cubecast.net.wire.headers import unmarked
from cubecast.net.wire.packets import MESSAGE_OVERHEAD
from cubecast.protocol.port import Topic

MAX_KNOWN = 4096
"""Topics remembered as accepted by the node; one more and they are asked about anew."""


class ClientReceipt:
    """Handed out by ``client.publish(..., receipt=True)``.

    A message is *stable* when every subscriber it was addressed to has taken it in: its
    application has read it, or holds it in the bounded queue of its subscription.  Unlike the
    `Receipt` of a node it has no number, which only the node knows.
    """

    def __init__(self, topic: Topic, done: asyncio.Future[None]) -> None:
        self.topic = topic
        self._done = done

    def __repr__(self) -> str:
        error = self._done.exception() if self._done.done() else None
        if error is not None:
            state = repr(error)
        else:
            state = "stable" if self.is_stable else "not known to be stable"
        return f"<ClientReceipt of a message to {self.topic!r}: {state}>"

    @property
    def is_stable(self) -> bool:
        """Whether every subscriber has taken the message in; does not wait."""
        return self._done.done() and self._done.exception() is None

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until every subscriber has taken the message in, at most `timeout` seconds.

        Raises `NotSent` if the connection ended before the message was sent, and `Unknown` if it
        ended after that, or `timeout` passed; after a timeout it may be asked again.
        """
        check_timeout("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._done)
        except TimeoutError:
            raise Unknown(self.topic, f"not confirmed in {timeout:g} s") from None


class Pipeline:
    """All publications of one client."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        window: int,
        timeout_s: float,
        retry_unknown: bool = False,
    ) -> None:
        self._send = send
        self._retry_unknown = retry_unknown
        self.held = False
        """Whether nothing is sent at present, because there is no node."""
        self._backlog: dict[
            Topic, deque[DeliveredPacket]
        ] = {}  # what waits for the next node, in order
        self._returned: list[DeliveredPacket] = []  # what the present node will not send
        self._window = window
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Topic, DeliveredPacket] = {}
        self._planned = False
        self._next = 0
        self._used = 0
        self._flows: dict[Topic, Flow] = {}  # of topics that use some of the window
        self._progress_at = 0.0  # when the node took something
        self._sent: OrderedDict[int, DeliveredPacket] = OrderedDict()  # by number, in order
        self._unstable: dict[int, DeliveredPacket] = {}
        self._known: set[Topic] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._broken = ""
        self.headed = False
        """Whether a message with headers was ever published: only then packets are searched for
        headers."""
        self._lost: NotSent | NotAllowed | Unknown | None = None

    # -- what the application calls --------------------------------------------------------------

    def knows(self, topic: Topic) -> bool:
        """Whether the node has taken a message of this topic, so that its name is valid."""
        return topic in self._known

    async def publish(
        self,
        topic: Topic,
        payload: bytes,
        receipt: bool,
        timeout: float | None = None,
        letter: Letter | None = None,
    ) -> ClientReceipt | None:
        """Accept one message, waiting for credit if there is none; `letter` may take it back."""
        timeout_s = self._timeout_s if timeout is None else timeout
        if self._broken:
            raise NotSent(topic, self._broken)
        if not self._has_room(topic):
            await self._credit(topic, timeout_s, timeout is None)
        parcel = self._gather(topic, payload, receipt)
        if letter is not None:
            letter.parcel, letter.payload = parcel, payload
            parcel.letters.append(letter)
        if topic not in self._known:
            await self._answer(parcel, timeout_s, timeout is None)
            self._remember(topic)
            return ClientReceipt(topic, parcel.stable) if receipt else None
        parcel.unwatched = True
        if parcel.number >= 0:
            await asyncio.sleep(0)  # give the loop time to read: publishing alone never waits
        return ClientReceipt(topic, parcel.stable) if receipt else None

    def withdraw(self, letter: Letter) -> bool:
        """Take a publication back; False if a node has it, or may have it."""
        parcel, payload = letter.parcel, letter.payload
        if parcel is None:
            return not letter.gone
        if parcel.left or parcel.doubtful:
            return False
        letter.settle(gone=False)
        parcel.letters.remove(letter)
        parcel.payloads = [one for one in parcel.payloads if one is not payload]
        size = len(payload) + MESSAGE_OVERHEAD
        parcel.size -= size
        self._use(parcel.topic, -size)
        if not parcel.payloads:
            self._drop(parcel)
        self._wake()
        return True

    def _drop(self, parcel: DeliveredPacket) -> None:
        """Remove a packet without messages; calls that wait for it return."""
        if self._gathered.get(parcel.topic) is parcel:
            del self._gathered[parcel.topic]
        elif parcel in self._returned:
            self._returned.remove(parcel)
        else:
            waiting = self._backlog[parcel.topic]
            waiting.remove(parcel)
            if not waiting:
                del self._backlog[parcel.topic]
        parcel.taken.set_result(None)
        parcel.stable.cancel()

    def _gather(self, topic: Topic, payload: bytes, receipt: bool) -> DeliveredPacket:
        size = len(payload) + MESSAGE_OVERHEAD
        if size >= BATCH_BYTES:
            self.send_gathered()  # then a large message comes last, and only it exceeds the window
        parcel = self._gathered.get(topic)
        if parcel is None:
            parcel = self._gathered[topic] = DeliveredPacket(topic)
        parcel.payloads.append(payload)
        parcel.size += size
        parcel.receipt |= receipt
        parcel.bare |= not receipt
        self._use(topic, size)
        if parcel.size >= BATCH_BYTES or len(parcel.payloads) >= BATCH_MESSAGES:
            self._send_parcel(self._gathered.pop(topic))
        elif not self._planned:
            self._planned = True
            self._loop.call_soon(self._end_of_tick)
        return parcel

    async def flush(self) -> None:
        """Return when the node has taken everything; if not, `NotSent` or `Unknown`, once."""
        self.send_gathered()
        self._tell_lost()
        waiting = [*self._sent.values(), *self._returned, *self._backlogged()]
        if waiting:
            try:
                for parcel in waiting:
                    await self._wait_for(parcel, self._timeout_s)
                waiting[-1].taken.result()
            except CubecastError:
                self._lost = None
                raise
            self._tell_lost()  # one before the last may have been refused

    def _backlogged(self) -> Iterator[DeliveredPacket]:
        return chain.from_iterable(self._backlog.values())

    async def _answer(
        self, parcel: DeliveredPacket, timeout_s: float, patient: bool = True
    ) -> None:
        """Wait until the node has taken a packet, or refused it; `Unknown` after a timeout."""
        await self._wait_for(parcel, timeout_s, patient)
        parcel.taken.result()

    async def _wait_for(
        self, parcel: DeliveredPacket, timeout_s: float, patient: bool = True
    ) -> None:
        if not await self._came(parcel.topic, parcel.taken, timeout_s, patient, self._loop.time()):
            reason = f"the node has taken nothing of this topic for {timeout_s:g} s"
            raise Unknown(parcel.topic, reason)

    async def _came(
        self,
        topic: Topic,
        future: asyncio.Future[None],
        timeout_s: float,
        patient: bool,
        began: float,
    ) -> bool:
        """Wait for `future`; False after `timeout_s` in which the node took nothing of the topic.

        While there is no node, `patient` waits do not time out: the client ends them all.
        """
        left = max(0.0, began + timeout_s - self._loop.time())
        while not future.done():
            await asyncio.wait([future], timeout=left)
            if self.held and patient:
                began = self._loop.time()
            flow = self._flows.get(topic)
            progress_at = self._progress_at if flow is None else flow.progress_at
            left = max(began, progress_at) + timeout_s - self._loop.time()
            if left <= 0:
                break
        return future.done()

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    # -- sending ---------------------------------------------------------------------------------

    def _end_of_tick(self) -> None:
        self._planned = False
        self.send_gathered()

    def send_gathered(self) -> None:
        """Send what has gathered without waiting for the end of the tick."""
        gathered, self._gathered = self._gathered, {}
        for parcel in gathered.values():
            self._send_parcel(parcel)

    def _send_parcel(self, parcel: DeliveredPacket) -> None:
        if self._broken:
            self._give_up(parcel, self._broken)
            return
        if self.held or parcel.topic in self._backlog:
            self._backlog.setdefault(parcel.topic, deque()).append(parcel)
            return
        self._transmit(parcel)

    def _transmit(self, parcel: DeliveredPacket) -> None:
        payloads, headed = unmarked(parcel.payloads) if self.headed else (parcel.payloads, ())
        message = Publish(self._next, parcel.topic, payloads, parcel.receipt, headed)
        try:
            packet = encode(message)
        except (TypeError, ValueError) as error:
            self._give_up(parcel, f"it cannot be encoded: {error}")
            return
        parcel.number = self._next
        parcel.left = True
        self._next += 1
        self._sent[parcel.number] = parcel
        if parcel.receipt:
            self._unstable[parcel.number] = parcel
        self._send(packet)

    def _give_up(self, parcel: DeliveredPacket, reason: str) -> None:
        """Fail a packet that is not sent; if no `publish` waits for it, `flush` raises that."""
        error = (Unknown if parcel.doubtful else NotSent)(parcel.topic, reason)
        if parcel.unwatched:
            self._lost = self._lost or error
        parcel.fail(error)
        self._use(parcel.topic, -parcel.size)
        self._wake()

    # -- the window ------------------------------------------------------------------------------

    def _use(self, topic: Topic, size: int) -> None:
        """Add `size`, which may be negative, to what a topic uses of the window."""
        self._used += size
        flow = self._flows.get(topic)
        if flow is None:
            flow = self._flows[topic] = Flow()
        flow.used += size
        if flow.used <= 0:
            del self._flows[topic]

    def _has_room(self, topic: Topic) -> bool:
        """Whether a topic may use more: it uses less than half of what the others leave."""
        flow = self._flows.get(topic)
        return self._used + (0 if flow is None else flow.used) < self._window

    def _progress(self, topic: Topic) -> None:
        """Note that the node took a message of a topic."""
        self._progress_at = self._loop.time()
        flow = self._flows.get(topic)
        if flow is not None:
            flow.progress_at = self._progress_at

    async def _credit(self, topic: Topic, timeout_s: float, patient: bool) -> None:
        """Wait for room in the window; `NotSent` after too long without any progress."""
        began = self._loop.time()
        while not self._has_room(topic):
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                if not await self._came(topic, waiter, timeout_s, patient, began):
                    raise NotSent(topic, f"no credit for {timeout_s:g} s{self._blame(topic)}")
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if self._broken:
                raise NotSent(topic, self._broken)

    def _blame(self, topic: Topic) -> str:
        """The topic that uses most of the window, as text, if `topic` itself uses nothing."""
        if topic in self._flows or not self._flows:
            return ""
        most = max(self._flows, key=lambda one: self._flows[one].used)
        return f": the client waits for credit of {most!r}"

    def _remember(self, topic: Topic) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(topic)

    # -- what the node says ----------------------------------------------------------------------

    def on_taken(self, news: Taken) -> None:
        """Note that the node has taken all packets up to a number."""
        while self._sent:
            number = next(iter(self._sent))
            if number > news.number:
                break
            self._took(self._sent.pop(number))
        self._go_on()

    def on_taking(self, news: Taking) -> None:
        """Note that the node has taken a part of a packet, or all of it before others."""
        parcel = self._sent.get(news.number)
        if parcel is None or not parcel.published <= news.size <= parcel.size:
            return  # it comes late, or is invalid
        if news.size == parcel.size:
            self._took(self._sent.pop(news.number))
        else:
            self._use(parcel.topic, parcel.published - news.size)
            parcel.published = news.size
            self._progress(parcel.topic)
        self._go_on()

    def _took(self, parcel: DeliveredPacket) -> None:
        self._use(parcel.topic, parcel.published - parcel.size)
        self._progress(parcel.topic)
        parcel.settle(gone=True)
        if not parcel.taken.done():
            parcel.taken.set_result(None)

    def _go_on(self) -> None:
        if self._backlog:
            self._pump()
        self._wake()

    def on_declined(self, news: Declined) -> None:
        """Fail a packet that the node refused; keep it for the next node if this one leaves."""
        if news.leaving and self.held:
            returned = self._sent.pop(news.number, None)
            if returned is not None:
                returned.left = False
                self._unstable.pop(news.number, None)
                self._returned.append(returned)
            return
        parcel = self._sent.get(news.number)
        if parcel is not None:
            error = _refusal(parcel, news)
            if parcel.unwatched:  # the topic was accepted before: its `publish` has returned
                self._lost = self._lost or error
            self._known.discard(parcel.topic)  # the next `publish` waits for the node again
            parcel.fail(error)
            self._unstable.pop(parcel.number, None)

    def on_consumed(self, news: Consumed) -> None:
        """Note which packets are stable, and which can never be known to be (`unknown`)."""
        for number in news.numbers:
            parcel = self._unstable.pop(number, None)
            if parcel is not None and not parcel.stable.done():
                parcel.stable.set_result(None)
        for number in news.unknown:
            parcel = self._unstable.pop(number, None)
            if parcel is not None:
                parcel.fail(Unknown(parcel.topic, "its node was excluded from the cluster"))

    # -- from one node to the next ---------------------------------------------------------------

    def hold(self) -> None:
        """Send nothing more to this node; it still answers what was sent."""
        self.held = True
        self.send_gathered()  # into the backlog for the next node

    def interrupted(self, reason: str) -> None:
        """Fail unanswered packets as `Unknown`, or keep them for the next node: this is gone.

        Afterwards the window counts exactly the packets that wait for the next node.  One that this
        node refused is settled: it is not sent again.
        """
        self.hold()
        again = {parcel.number: parcel for parcel in self._returned}
        for number, parcel in sorted((self._sent | self._unstable).items()):
            counted = parcel.size - parcel.published if number in self._sent else 0
            if self._retry_unknown and not parcel.failed:
                again[number] = parcel
                self._use(parcel.topic, parcel.size - counted)
                parcel.doubt()
                continue
            self._use(parcel.topic, -counted)
            if not parcel.failed:
                self._fail_unknown(parcel, reason)
        self._returned = []
        self._sent.clear()
        self._unstable.clear()
        for number in sorted(again, reverse=True):
            self._backlog.setdefault(again[number].topic, deque()).appendleft(again[number])
        self._wake()

    def _fail_unknown(self, parcel: DeliveredPacket, reason: str) -> None:
        error = Unknown(parcel.topic, reason)
        if parcel.unwatched and parcel.bare and not parcel.taken.done():  # else the receipts tell
            self._lost = error
        parcel.fail(error)

    def resume(self, send: Callable[[bytes], None], window: int) -> None:
        """Send to a new node: first what waits, in order."""
        self._send, self._window = send, window
        self._next = 0
        self._known.clear()
        self.held = False
        self._progress_at = self._loop.time()
        for flow in self._flows.values():
            flow.progress_at = self._progress_at
        self._pump()
        self._wake()

    def _pump(self) -> None:
        """Send what waits, within the node's window; no topic takes all of the window."""
        if self.held:
            return
        flying: dict[Topic, int] = {}
        for parcel in self._sent.values():
            left = parcel.size - parcel.published
            flying[parcel.topic] = flying.get(parcel.topic, 0) + left
        total = sum(flying.values())
        for topic, waiting in list(self._backlog.items()):
            while waiting and not self.held and total + flying.get(topic, 0) < self._window:
                parcel = waiting.popleft()
                total += parcel.size
                flying[topic] = flying.get(topic, 0) + parcel.size
                self._transmit(parcel)
            if not waiting and self._backlog.get(topic) is waiting:
                del self._backlog[topic]

    def broken(self, reason: str) -> None:
        """Fail all publications for good, each as `NotSent` or `Unknown`: there is no node."""
        self._broken = reason
        self.held = False
        unsent = (*self._returned, *self._backlogged())
        self._returned, self._backlog = [], {}
        for parcel in unsent:
            self._give_up(parcel, reason)
        for parcel in self._sent.values():
            error = Unknown(parcel.topic, reason)
            if parcel.unwatched and not parcel.taken.done():
                self._lost = error
            parcel.fail(error)
        self._sent.clear()
        self.send_gathered()
        for parcel in self._unstable.values():
            parcel.fail(Unknown(parcel.topic, reason))
        self._unstable.clear()
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _refusal(parcel: DeliveredPacket, news: Declined) -> NotSent | NotAllowed | Unknown:
    """The error for a packet that a node refused: `Unknown` if a former node may have sent it."""
    if parcel.doubtful:
        return Unknown(parcel.topic, f"the next node refused it: {news.reason}")
    if news.denied:
        return NotAllowed(parcel.topic, "publish", news.reason)
    return NotSent(parcel.topic, news.reason)
