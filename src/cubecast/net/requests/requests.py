"""Requests, which name the topic for their answers, and the answers.

A request is a message to a topic with two headers of cubecast: ``:reply``, the *reply topic* of the
node or light client that asks, and ``:id``, a number of its choice.  An answer is a message to that
reply topic with the same ``:id``; with ``:error`` its payload is the text of an error.

1. A node or client has one reply topic, ``$replies/NAME/UID``, for all its requests.  It is
   subscribed to before the first request is sent, so no answer is missed, and until the node or
   client closes.  A request leaves no topic behind.
2. `MAX_PENDING` requests wait for answers at a time; one more is `NotSent`.  A request leaves the
   table when it is answered, cancelled or timed out.
3. An answer that no request in the table waits for is dropped and counted (`late`).
4. Of several answers, those that `Answers` holds unread are at most `MAX_ANSWERS` and `MAX_BYTES`
   and one; the rest is dropped and counted.  The task that reads the reply topic never waits.
5. The headers of a request are not trusted.  Only a text of the form of a reply topic is taken for
   one, so that a request cannot make its reader publish elsewhere.
6. A request that ends before it has left its node or client is withdrawn, and never handled.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from cubecast import tracing
from cubecast.codecs import Codec, check_codec
from cubecast.errors import CubecastError, NoAnswer, NotSent, RequestFailed, Unknown
from cubecast.net.checks import check_timeout
from cubecast.net.message import ID, REPLY, Message, typed
from cubecast.net.requests.answers import Answers, One
from cubecast.net.topics import Payload, check_topic, encode_payload
from cubecast.net.wire.headers import MAX_HEADERS, MAX_PREFIX, Headed, Headers, check_headers, pack
from cubecast.net.wire.packets import MAX_PAYLOAD
from cubecast.protocol.port import Topic

ERROR = ":error"
"""The header of an answer that is an error; its value is the name of the error."""
MAX_PENDING = 16_384
"""Requests of one node or client that wait for answers."""
MAX_ERROR = 1024
"""Characters of the text of an error that are sent."""
OWN_HEADERS = 2
TIMEOUT_S = 10.0
"""How long a request waits for an answer by default."""


class RequestHost(Protocol):
    """What requests need of their node or client."""

    def subscribe(self, topic: Topic) -> Any: ...
    async def publish(self, topic: Topic, payload: Payload) -> Any: ...


class Post(Protocol):
    """Sends one request."""

    async def send(self, topic: Topic, blob: Headed) -> None: ...
    def withdraw(self) -> bool:
        """Take the request back; False if it was sent, or may have been."""

    def why_waits(self) -> str:
        """What an unsent request waits for."""

    def was_unheard(self) -> bool:
        """Whether it is known that the topic had no subscribers when the request was sent."""


HostT = TypeVar("HostT", bound=RequestHost)


class Requests:
    """The requests of one node or client, and its answers to those of others."""

    def __init__(self, host: HostT, topic: Topic, post: Callable[[HostT], Post]) -> None:
        """`topic` is the reply topic; `post` sends a request."""
        self._host: RequestHost = host
        self._loop = asyncio.get_running_loop()
        self.post = partial(post, host)
        """Sends one request."""
        self.topic = topic
        """The reply topic."""
        self._pending: dict[str, One | Answers[Any]] = {}
        self._numbers = 0
        self._reader: asyncio.Task[None] | None = None
        self._ready: asyncio.Task[None] | None = None
        self.late = 0
        """Answers that no request waited for."""
        self.ref = weakref.ref(self)

    def __len__(self) -> int:
        return len(self._pending)

    # -- asking ----------------------------------------------------------------------------------

    async def request(
        self,
        topic: Topic,
        payload: Payload,
        headers: Headers | None,
        timeout: float,
        codec: Codec[Any] | None,
    ) -> Message[Any]:
        """The first answer to a request."""
        check_request(topic, timeout, codec)
        one, post = One(topic), self.post()
        number = self.enter(topic, one)
        try:
            async with asyncio.timeout(timeout):
                await self.send(topic, payload, headers, number, post)
                answer = await one.future
        except TimeoutError:
            raise self.silence(topic, post, timeout) from None
        finally:
            self.leave(number)
            post.withdraw()
        return opened(topic, answer, codec)

    def enter(self, topic: Topic, waiting: One | Answers[Any]) -> str:
        """Give a request a number and wait for its answers; `NotSent` if too many are pending."""
        if len(self._pending) >= MAX_PENDING:
            raise NotSent(topic, f"{MAX_PENDING} requests wait for answers already")
        self._numbers += 1
        number = str(self._numbers)
        self._pending[number] = waiting
        return number

    def leave(self, number: str) -> None:
        """Stop waiting for answers to a request."""
        self._pending.pop(number, None)

    async def send(
        self, topic: Topic, payload: Payload, headers: Headers | None, number: str, post: Post
    ) -> None:
        """Publish a request, after subscribing to the reply topic."""
        blob = packed(payload, headers, {REPLY: self.topic, ID: number})
        if self._reader is None:
            await self._listen()
        try:
            await post.send(topic, blob)
        except Unknown as error:
            raise NoAnswer(topic, error.reason) from error

    def silence(self, topic: Topic, post: Post, timeout: float) -> NoAnswer | NotSent:
        """The error for a request that timed out; if it is unsent, it is withdrawn."""
        if not post.withdraw():
            unheard = "; no node was subscribed" if post.was_unheard() else ""
            return NoAnswer(topic, f"none in {timeout:g} s{unheard}")
        if self._reader is None:
            return NotSent(topic, f"the reply topic was not subscribed to in {timeout:g} s")
        return NotSent(topic, f"{post.why_waits()} for {timeout:g} s")

    # -- hearing answers -------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Subscribe to the reply topic, once for all requests."""
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_task(self._begin(), context=contextvars.Context())
            self._ready.add_done_callback(self._begun)
        await asyncio.shield(self._ready)

    async def _begin(self) -> None:
        subscription = self._host.subscribe(self.topic)
        await subscription.__aenter__()
        loop, alone = asyncio.get_running_loop(), contextvars.Context()
        self._reader = loop.create_task(self._read(subscription), context=alone)

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._ready = None  # one that failed is tried again by the next request
        if not task.cancelled():
            task.exception()

    async def _read(self, subscription: Any) -> None:
        why = "no more answers are heard"
        try:
            async for message in subscription:
                self._take(message)
        except CubecastError as error:
            why = str(error)
        finally:
            self._reader = None
            for waiting in list(self._pending.values()):
                waiting.fail(why)
            await subscription.close()

    def _take(self, answer: Message[Any]) -> None:
        waiting = self._pending.get(answer.headers.get(ID, ""))
        if waiting is None or not waiting.put(answer):
            self.late += 1

    # -- answering -------------------------------------------------------------------------------

    def runs_here(self) -> bool:
        """Whether the calling thread runs the event loop of the node or client now."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def reply(
        self, message: Message[Any], payload: Payload, headers: Headers | None, error: str = ""
    ) -> None:
        """Answer a request; `error` is the name of the error, if it is one."""
        if not self.runs_here():
            raise TypeError(
                "an answer is sent in the event loop of the node or client: from another thread "
                "or loop, call asyncio.run_coroutine_threadsafe(message.reply(...), loop)"
            )
        asked = message.headers
        target, number = asked[REPLY], asked[ID]
        own = {ID: number, ERROR: error[:64]} if error else {ID: number}
        await self._host.publish(target, packed(payload, headers, own))


def check_request(topic: Topic, timeout: float, codec: Codec[Any] | None) -> None:
    """TypeError or ValueError, in one line, if the arguments of a request are invalid."""
    check_topic(topic)
    check_timeout("timeout", timeout, "more than 0")
    if timeout is None or math.isinf(timeout):
        raise ValueError("timeout must be seconds, as 2.5: a request does not wait for ever")
    if codec is not None:
        check_codec(codec)


def check_answer(result: object) -> bytes:
    """The payload of a handler's result; TypeError or ValueError if it cannot be a payload."""
    payload = encode_payload(cast(Payload, result))  # it is checked there
    if len(payload) > MAX_PAYLOAD - MAX_PREFIX:
        raise ValueError(
            f"an answer of {len(payload)} bytes is more than {MAX_PAYLOAD - MAX_PREFIX}"
        )
    return payload


def check_count(count: int) -> None:
    """TypeError or ValueError, in one line, if `count` is no number of answers."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count must be a number of answers, not {count!r:.80}")
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")


def packed(payload: Payload, headers: Headers | None, own: dict[str, str]) -> Headed:
    """The blob of a request or an answer, with the headers of the application."""
    encoded = encode_payload(payload)
    if headers:
        check_headers(headers)
        if len(headers) > MAX_HEADERS - OWN_HEADERS:
            raise ValueError(
                f"a request or an answer takes {MAX_HEADERS - OWN_HEADERS} headers, "
                f"not {len(headers)}: put them in the payload"
            )
    if tracing.is_used():
        traced = tracing.added(headers) or {}
        if len(traced) <= MAX_HEADERS - OWN_HEADERS:
            headers = traced
    return pack({**headers, **own} if headers else own, encoded)


def opened(topic: Topic, answer: Message[Any], codec: Codec[Any] | None) -> Message[Any]:
    """An answer for the application; `RequestFailed` if it is an error."""
    error = answer.headers.get(ERROR)
    if error is not None:
        text = answer.payload.decode(errors="replace")[:MAX_ERROR]
        raise RequestFailed(topic, error, text, answer.source)
    return answer if codec is None else typed(answer, codec)
