"""Publications of a light client on their way to its node: gathered, numbered, bounded.

What `publish` accepts is gathered per topic for one tick and sent as one packet.  The node answers
each packet when it has taken it; until then its bytes count against a window, and a `publish`
beyond the window waits.  So what is known of a publication when the connection breaks is: *not
sent* if it was still gathered, *unknown* if its packet was sent and not answered, *sent* otherwise.

A client that looks for another node holds its publications back meanwhile (`hold`, `resume`): what
is known not to be sent goes to the next node, in order; what is unknown is sent again only if the
client asked for that, because it may be delivered twice then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from cubecast.errors import CubecastError, NotAllowed, NotSent, Unknown
from cubecast.net.checks import check_timeout
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
        """Whether everyone has taken it in, without waiting."""
        return self._done.done() and self._done.exception() is None

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until everyone has taken it in, at most `timeout` seconds.

        Raises `NotSent` if the connection ended before the message was sent, and `Unknown` if it
        ended after that, or `timeout` passed; after a timeout it may be asked again.
        """
        check_timeout("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._done)
        except TimeoutError:
            raise Unknown(self.topic, f"not confirmed in {timeout:g} s") from None


class Parcel:
    """The messages of one packet, and what becomes of them."""

    __slots__ = (
        "bare",
        "doubtful",
        "number",
        "payloads",
        "published",
        "receipt",
        "size",
        "stable",
        "taken",
        "topic",
        "unwatched",
    )

    def __init__(self, topic: Topic) -> None:
        loop = asyncio.get_running_loop()
        self.topic = topic
        self.number = -1
        self.payloads: list[bytes] = []
        self.size = 0
        self.published = 0  # bytes of it that no longer count against the window
        self.receipt = False
        self.bare = False  # whether one of its messages has no receipt
        self.doubtful = False  # whether a node may have sent it, and is gone
        self.unwatched = False  # whether a `publish` returned before the node had taken it
        self.taken: asyncio.Future[None] = loop.create_future()
        self.stable: asyncio.Future[None] = loop.create_future()

    def fail(self, error: CubecastError) -> None:
        """Whoever waits for anything about it is told; nobody has to wait."""
        for future in (self.taken, self.stable):
            if not future.done():
                future.set_exception(error)
                future.exception()


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
        self._held = False  # whether nothing is sent at present
        self._backlog: deque[Parcel] = deque()  # what waits for the next node, in order
        self._returned: list[Parcel] = []  # what the present node will not send
        self._window = window
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Topic, Parcel] = {}
        self._planned = False
        self._next = 0
        self._used = 0
        self._progress_at = 0.0  # when the node took something
        self._sent: deque[Parcel] = deque()
        self._unstable: dict[int, Parcel] = {}
        self._known: set[Topic] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._broken = ""
        self.headed = False
        """Whether a message with headers was ever published: then packets are searched for those,
        which plain clients are spared."""
        self._lost: NotSent | NotAllowed | Unknown | None = None

    # -- what the application calls --------------------------------------------------------------

    def knows(self, topic: Topic) -> bool:
        """Whether the node has taken something of this topic, so that its name is a good one."""
        return topic in self._known

    async def publish(
        self, topic: Topic, payload: bytes, receipt: bool, timeout: float | None = None
    ) -> ClientReceipt | None:
        """Accept one message, waiting for credit if there is none."""
        timeout_s = self._timeout_s if timeout is None else timeout
        if self._broken:
            raise NotSent(topic, self._broken)
        if self._used >= self._window:
            await self._credit(topic, timeout_s, timeout is None)
        parcel = self._gather(topic, payload, receipt)
        if topic not in self._known:
            await self._answer(parcel, timeout_s, timeout is None)
            self._remember(topic)
            return ClientReceipt(topic, parcel.stable) if receipt else None
        parcel.unwatched = True
        if parcel.number >= 0:
            await asyncio.sleep(0)  # let the loop read: publishing alone never waits
        return ClientReceipt(topic, parcel.stable) if receipt else None

    def _gather(self, topic: Topic, payload: bytes, receipt: bool) -> Parcel:
        size = len(payload) + MESSAGE_OVERHEAD
        if size >= BATCH_BYTES:
            self.send_gathered()  # so that a large one comes last and alone exceeds the window
        parcel = self._gathered.get(topic)
        if parcel is None:
            parcel = self._gathered[topic] = Parcel(topic)
        parcel.payloads.append(payload)
        parcel.size += size
        parcel.receipt |= receipt
        parcel.bare |= not receipt
        self._used += size
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
        last = self._last_waiting()
        if last is not None:
            try:
                await self._answer(last, self._timeout_s)
            except CubecastError:
                self._lost = None
                raise
            self._tell_lost()  # one before the last may have been refused

    def _last_waiting(self) -> Parcel | None:
        """The last packet that no node has taken."""
        waiting = (*self._sent, *self._returned, *self._backlog)
        return waiting[-1] if waiting else None

    async def _answer(self, parcel: Parcel, timeout_s: float, patient: bool = True) -> None:
        """Wait until the node has taken a packet, or refused it, but not for ever."""
        if await self._came(parcel.taken, timeout_s, patient):
            parcel.taken.result()
        else:
            reason = f"the node has taken nothing for {timeout_s:g} s"
            raise Unknown(parcel.topic, reason)

    async def _came(self, future: asyncio.Future[None], timeout_s: float, patient: bool) -> bool:
        """Wait for something; False after `timeout_s` in which the node took nothing.

        While there is no node, `patient` waits do not end: the client ends them all.
        """
        began = self._loop.time()
        left = timeout_s
        while not future.done():
            await asyncio.wait([future], timeout=left)
            if self._held and patient:
                began = self._loop.time()
            left = max(began, self._progress_at) + timeout_s - self._loop.time()
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

    def _send_parcel(self, parcel: Parcel) -> None:
        if self._broken:
            self._give_up(parcel, self._broken)
            return
        if self._held or self._backlog:
            self._backlog.append(parcel)
            return
        self._transmit(parcel)

    def _transmit(self, parcel: Parcel) -> None:
        payloads, headed = unmarked(parcel.payloads) if self.headed else (parcel.payloads, ())
        message = Publish(self._next, parcel.topic, payloads, parcel.receipt, headed)
        try:
            packet = encode(message)
        except (TypeError, ValueError) as error:
            self._give_up(parcel, f"it cannot be encoded: {error}")
            return
        parcel.number = self._next
        self._next += 1
        self._sent.append(parcel)
        if parcel.receipt:
            self._unstable[parcel.number] = parcel
        self._send(packet)

    def _give_up(self, parcel: Parcel, reason: str) -> None:
        """A packet is not sent: whoever does not wait for it hears of that from `flush`."""
        error = (Unknown if parcel.doubtful else NotSent)(parcel.topic, reason)
        if parcel.unwatched:
            self._lost = self._lost or error
        parcel.fail(error)
        self._used -= parcel.size
        self._wake()

    async def _credit(self, topic: Topic, timeout_s: float, patient: bool) -> None:
        """Wait for room in the window; `NotSent` after too long without any progress."""
        while self._used >= self._window:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                if not await self._came(waiter, timeout_s, patient):
                    raise NotSent(topic, f"no credit for {timeout_s:g} s")
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if self._broken:
                raise NotSent(topic, self._broken)

    def _remember(self, topic: Topic) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(topic)

    # -- what the node says ----------------------------------------------------------------------

    def on_taken(self, news: Taken) -> None:
        """Everything up to there is with the node."""
        self._progress_at = self._loop.time()
        while self._sent and self._sent[0].number <= news.number:
            parcel = self._sent.popleft()
            self._used -= parcel.size - parcel.published
            if not parcel.taken.done():
                parcel.taken.set_result(None)
        if self._backlog:
            self._pump()
        self._wake()

    def on_taking(self, news: Taking) -> None:
        """The node is at work on the first packet it has not taken."""
        parcel = self._sent[0] if self._sent else None
        if parcel is None or parcel.number != news.number or news.size > parcel.size:
            return  # it is no news any more, or makes no sense
        self._used -= max(0, news.size - parcel.published)
        parcel.published = max(news.size, parcel.published)
        self._progress_at = self._loop.time()
        self._wake()

    def on_declined(self, news: Declined) -> None:
        """One packet was refused."""
        if news.leaving and self._held:
            for parcel in [one for one in self._sent if one.number == news.number]:
                self._sent.remove(parcel)
                self._unstable.pop(parcel.number, None)
                self._returned.append(parcel)
            return
        for parcel in self._sent:
            if parcel.number == news.number:
                error: NotSent | NotAllowed = NotSent(parcel.topic, news.reason)
                if news.denied:
                    error = NotAllowed(parcel.topic, "publish", news.reason)
                if parcel.unwatched:  # the topic was taken before: whoever published has gone on
                    self._lost = self._lost or error
                self._known.discard(parcel.topic)  # the next one waits for the node's word again
                parcel.fail(error)
                self._unstable.pop(parcel.number, None)

    def on_consumed(self, news: Consumed) -> None:
        """Everyone has consumed those; of some that will never be known."""
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
        """Send nothing more to this node; what was sent is still answered."""
        self._held = True
        self.send_gathered()  # to what waits for the next one

    def interrupted(self, reason: str) -> None:
        """The node is gone: what it did not answer is unknown, or to be sent again."""
        self.hold()
        again = {parcel.number: parcel for parcel in self._returned}
        unknown = {parcel.number: parcel for parcel in (*self._sent, *self._unstable.values())}
        for number, parcel in sorted(unknown.items()):
            if self._retry_unknown:
                again[number] = parcel
                parcel.doubtful = True
                self._used += parcel.published if not parcel.taken.done() else parcel.size
                parcel.published = 0
                continue
            if not parcel.taken.done():
                self._used -= parcel.size - parcel.published
                if parcel.unwatched and parcel.bare:  # else the receipts tell
                    self._lost = Unknown(parcel.topic, reason)
            parcel.fail(Unknown(parcel.topic, reason))
        self._returned = []
        self._sent.clear()
        self._unstable.clear()
        self._backlog.extendleft(again[number] for number in sorted(again, reverse=True))
        self._wake()

    def resume(self, send: Callable[[bytes], None], window: int) -> None:
        """There is a node again: send it what waits, in order, and what comes."""
        self._send, self._window = send, window
        self._next = 0
        self._known.clear()
        self._held = False
        self._progress_at = self._loop.time()
        self._pump()
        self._wake()

    def _pump(self) -> None:
        """Send what waits, as far as the node has granted room for it."""
        flying = sum(parcel.size - parcel.published for parcel in self._sent)
        while self._backlog and not self._held and flying < self._window:
            parcel = self._backlog.popleft()
            flying += parcel.size
            self._transmit(parcel)

    def broken(self, reason: str) -> None:
        """The connection is gone; say of each publication what is known."""
        self._broken = reason
        self._held = False
        unsent = (*self._returned, *self._backlog)
        self._returned, self._backlog = [], deque()
        for parcel in unsent:
            self._give_up(parcel, reason)
        for parcel in self._sent:
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
