"""Waiting for the answers to one request: for the first, or for many."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Generic

from cubecast.codecs import Codec
from cubecast.errors import CubecastError, NoAnswer
from cubecast.net.message import Message, T_co
from cubecast.net.topics import Payload
from cubecast.net.wire.headers import Headers
from cubecast.opening import ClosesAtEnd
from cubecast.protocol.port import Topic

if TYPE_CHECKING:
    from cubecast.net.requests.requests import Requests

MAX_ANSWERS = 1024
"""Answers to one request that may be unread."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of them; one more may exceed it."""


class One:
    """Waits for one answer."""

    __slots__ = ("future", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.future: asyncio.Future[Message[Any]] = asyncio.get_running_loop().create_future()

    def put(self, answer: Message[Any]) -> bool:
        """Take an answer; False if it comes too late."""
        if self.future.done():
            return False
        self.future.set_result(answer)
        return True

    def fail(self, reason: str) -> None:
        """Fail the wait: no answer will come."""
        if not self.future.done():
            self.future.set_exception(NoAnswer(self.topic, reason))
            self.future.exception()


class Answers(ClosesAtEnd, Generic[T_co]):
    """The answers to one request, an async iterator; made by `request_many`.

    The request is sent when it is entered (``async with``) or first read.  It ends after `timeout`
    seconds from then on, after `count` answers, or when it is closed.  An answer with the error of
    a handler raises `RequestFailed` where it is read; reading may go on.
    """

    HINT = "async for answer in node.request_many(topic, payload): ..."

    def __init__(
        self,
        requests: Requests,
        topic: Topic,
        payload: Payload,
        headers: Headers | None,
        timeout: float,
        count: int | None,
        codec: Codec[T_co] | None,
    ) -> None:
        self.topic = topic
        self._requests = requests
        self._request = payload, headers
        self._timeout = timeout
        self._left = count
        self._codec = codec
        self._number: str | None = None
        self._post = requests.post()
        self._handed_over = False  # whether `send` has returned
        self._timer: asyncio.TimerHandle | None = None
        self._unread: deque[Message[Any]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._ended = False
        self._error: CubecastError | None = None
        self.dropped = 0
        """Answers that were dropped because too many were unread."""

    async def __aenter__(self) -> Answers[T_co]:
        await self._begin()
        return self

    async def _begin(self) -> None:
        if self._number is not None:
            return
        requests, timeout = self._requests, self._timeout
        self._number = requests.enter(self.topic, self)
        self._timer = asyncio.get_running_loop().call_later(timeout, self._time_is_up)
        try:
            async with asyncio.timeout(timeout):
                await requests.send(self.topic, *self._request, self._number, self._post)
                self._handed_over = True
        except TimeoutError:
            raise requests.silence(self.topic, self._post, timeout) from None
        finally:
            if not self._handed_over:
                self._post.withdraw()
                self._end()

    async def close(self) -> None:
        """Wait for no more answers; those that are unread are dropped."""
        self._unread.clear()
        self._post.withdraw()
        self._end()

    def _time_is_up(self) -> None:
        if self._handed_over and self._post.withdraw():
            self._error = self._requests.silence(self.topic, self._post, self._timeout)
        self._end()

    def _end(self) -> None:
        self._ended = True
        if self._number is not None:
            self._requests.leave(self._number)
        if self._timer is not None:
            self._timer.cancel()
        self._news.set()

    def put(self, answer: Message[Any]) -> bool:
        """Take an answer; False if it comes too late."""
        if self._ended:
            return False
        if len(self._unread) >= MAX_ANSWERS or self._bytes >= MAX_BYTES:
            self.dropped += 1
            return True
        self._unread.append(answer)
        self._bytes += len(answer.payload)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._end()
        self._news.set()
        return True

    def fail(self, reason: str) -> None:
        """End with `NoAnswer`: no more answers will come."""
        self._error = NoAnswer(self.topic, reason)
        self._end()

    def __aiter__(self) -> Answers[T_co]:
        return self

    async def __anext__(self) -> Message[T_co]:
        from cubecast.net.requests.requests import opened  # which imports us

        await self._begin()
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        answer = self._unread.popleft()
        self._bytes -= len(answer.payload)
        return opened(self.topic, answer, self._codec)
