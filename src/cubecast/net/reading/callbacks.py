"""Callbacks instead of ``async for``: a task that reads a subscription and calls for each message.

1. Calls are made in the order of delivery, one at a time per listener; a result that can be awaited
   is awaited before the next call.  So the subscription's queue and policy apply as if the
   application read it.
2. A call that raises is logged with its traceback and told as a `CallbackFailed` event; the next
   message is handed out all the same.  If the message is a request, the error answers it.
3. `close` lets the call that runs finish, for at most the node's `leave_timeout_s`, and then
   cancels it and waits for its end, for as long again.  Messages queued behind it are not handed
   out; requests among them get no answer from here, and the log has their number.
4. The result of a call for a request, bytes or text, answers it; None does not.
5. A subscription that ends by itself (cut off, or too many topics for its pattern) is logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from cubecast import tracing
from cubecast.errors import Closed, CubecastError
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.message import Message
from cubecast.net.reading.subscription import Subscription
from cubecast.net.requests.requests import MAX_ERROR, check_answer
from cubecast.opening import ClosesAtEnd
from cubecast.protocol.port import Topic

log = logging.getLogger("cubecast")

T = TypeVar("T")
Callback: TypeAlias = Callable[[Message[T]], object]
"""Takes a message; may be a coroutine function."""


class ListenerHost(Protocol):
    """What a listener needs of the node or the client it belongs to."""

    def callback_failed(self, topic: Topic, error: BaseException) -> None: ...


class Listener(ClosesAtEnd):
    """Calls a callback for each message of a subscription; an async context manager.

    Entering it returns when everything published from then on will be handed out.
    """

    HINT = "async with node.on(topic, callback): ..."

    def __init__(
        self,
        host: ListenerHost,
        subscription: Subscription[Any] | RemoteSubscription[Any],
        callback: Callback[Any],
        timeout_s: float,
    ) -> None:
        if not callable(callback):
            if inspect.iscoroutine(callback):
                callback.close()
            raise TypeError(
                f"a callback must be callable, not {type(callback).__name__}: give the function "
                "itself, without ()"
            )
        self._host = host
        self._timeout_s = timeout_s
        self.subscription = subscription
        self._callback = callback
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._traced = tracing.is_used()
        self.failures = 0
        """Calls that raised."""

    async def __aenter__(self) -> Listener:
        await self.subscription.__aenter__()
        self._task = asyncio.get_running_loop().create_task(self._drain())
        self._task.add_done_callback(_look)
        return self

    async def close(self) -> None:
        """Hand out nothing more; returns when no call is running (a call may close, too).

        It waits for at most twice `leave_timeout_s`; a call that goes on after that is logged.
        """
        self._closing = True
        await self.subscription.close()
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        patience_s, topic = self._timeout_s, self.subscription.topic
        _, running = await asyncio.wait([task], timeout=patience_s)
        if running:
            log.warning("a callback of %r did not end: cancelled", topic)
            task.cancel()
            _, running = await asyncio.wait([task], timeout=patience_s)
        if running:
            log.error("a callback of %r goes on although it was cancelled", topic)

    async def finished(self) -> None:
        """Wait until the subscription ends.

        Raises `Overflow` if it was cut off, `TooManyTopics` if its pattern was given up, and
        `Closed` if a client lost its node.
        """
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def _drain(self) -> None:
        unanswered = 0
        try:
            async for message in self.subscription:
                if self._closing:
                    unanswered += message.wants_reply
                elif self._traced:
                    with tracing.continued(message):
                        await self._call(message)
                else:
                    await self._call(message)
        except Closed as error:  # the node or client is closed
            if isinstance(self.subscription, RemoteSubscription) and self.subscription.lost:
                log.error("no more callbacks of %r: %s", self.subscription.topic, error)
                raise
        except CubecastError as error:
            log.error("callbacks of %r end: %s", self.subscription.topic, error)
            raise
        finally:
            if unanswered:
                topic = self.subscription.topic
                log.warning("%d queued requests of %r stay without an answer", unanswered, topic)

    async def _call(self, message: Message[Any]) -> None:
        try:
            result = self._callback(message)
            if inspect.isawaitable(result):
                result = await result
            answers = result is not None and message.wants_reply
            payload = check_answer(result) if answers else None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await self._failed(message, error)  # what it awaited was cancelled, not this task
        except Exception as error:
            await self._failed(message, error)
        else:
            if payload is not None:
                await self._answer(message, message.reply(payload))

    async def _answer(self, message: Message[Any], answering: Awaitable[None]) -> None:
        try:
            await answering
        except CubecastError as error:
            log.warning("a request of %r stays without an answer: %s", message.topic, error)

    async def _failed(self, message: Message[Any], error: BaseException) -> None:
        self.failures += 1
        log.error("a callback of %r failed", message.topic, exc_info=error)
        self._host.callback_failed(message.topic, error)
        if message.wants_reply:
            text, name = str(error)[:MAX_ERROR], type(error).__name__
            await self._answer(message, message.reply_error(text, error=name))


def _look(task: asyncio.Task[None]) -> None:
    """Retrieve the error, which is logged already; `Listener.finished` raises it."""
    if not task.cancelled():
        task.exception()
