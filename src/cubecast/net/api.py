"""The part of the API that nodes and light clients share: callbacks and requests."""

from __future__ import annotations

import abc
from typing import Any, TypeVar, overload

from cubecast.codecs import Codec
from cubecast.net.message import Message, Value
from cubecast.net.reading.callbacks import Callback, Listener
from cubecast.net.reading.subscription import Policy
from cubecast.net.requests.answers import Answers
from cubecast.net.requests.requests import TIMEOUT_S, Requests, check_count, check_request
from cubecast.net.topics import Payload
from cubecast.net.wire.headers import Headers
from cubecast.protocol.port import Topic

T = TypeVar("T")


class Endpoint(abc.ABC):
    """Where an application publishes and subscribes: a `Node` or a `Client`."""

    _requests: Requests

    @property
    def requests(self) -> Requests:
        """The requests that wait for answers, counted by `len`.

        `requests.late` is the number of answers that no request waited for any more.
        """
        return self._requests

    @overload
    def on(
        self,
        topic: Topic,
        callback: Callback[bytes],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: None = None,
    ) -> Listener: ...

    @overload
    def on(
        self,
        topic: Topic,
        callback: Callback[T],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[T],
    ) -> Listener: ...

    def on(
        self,
        topic: Topic,
        callback: Callback[Any],
        *,
        policy: Policy = "block",
        queue_bytes: int | None = None,
        codec: Codec[Any] | None = None,
    ) -> Listener:
        """Have `callback` called for each message, with ``async with node.on(topic, callback)``.

        It gets the `Message` (topic, payload, source, seq, published_at) and may be a coroutine
        function.  `topic` may be a pattern; the options are those of `subscribe`.  Its result,
        bytes or text, answers a message that is a request (`request`); None does not.
        """
        return self._listener(topic, callback, policy, queue_bytes, codec)

    @abc.abstractmethod
    def _listener(
        self,
        topic: Topic,
        callback: Callback[Any],
        policy: Policy,
        queue_bytes: int | None,
        codec: Codec[Any] | None,
    ) -> Listener:
        """A listener with a subscription of its own."""

    async def request(
        self,
        topic: Topic,
        payload: Payload = b"",
        *,
        headers: Headers | None = None,
        timeout: float = TIMEOUT_S,
        codec: Codec[Value] | None = None,
    ) -> Message[Value]:
        """Publish a request and return the first answer, a `Message`.

        The result of a handler of `on` answers it, or `Message.reply`.  All subscribers of the
        topic get the request; the first answer wins, also the error of a handler, and later ones
        are dropped.  `codec` decodes the answer (`Message.value`).

        Raises `NotSent`, `NotAllowed` or `Closed` if the request was not sent, `NoAnswer` if no
        answer came in `timeout` seconds or none can come any more (the request may be handled), and
        `RequestFailed`, with the text of the error, if a handler raised.
        """
        return await self._requests.request(topic, payload, headers, timeout, codec)

    def request_many(
        self,
        topic: Topic,
        payload: Payload = b"",
        *,
        headers: Headers | None = None,
        timeout: float = TIMEOUT_S,
        count: int | None = None,
        codec: Codec[Value] | None = None,
    ) -> Answers[Value]:
        """Publish a request and read its answers: ``async for answer in node.request_many(...)``.

        It ends after `count` answers, or `timeout` seconds after the first step; no answer at all
        is no error here.  Otherwise it raises what `request` raises.
        """
        check_request(topic, timeout, codec)
        if count is not None:
            check_count(count)
        return Answers(self._requests, topic, payload, headers, timeout, count, codec)
