"""The questions of a light client that its node has not answered."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

import msgspec

from cubecast.errors import Closed, CubecastError, NotAllowed
from cubecast.net.client.attachment import Attachment
from cubecast.net.wire.clients import (
    MAX_REQUESTS,
    Answered,
    Ask,
    CatchUp,
    Position,
    Question,
    Unanswered,
)
from cubecast.protocol.port import Topic

T = TypeVar("T")


class Asker(Protocol):
    """What questions need of their client."""

    def next_number(self) -> int: ...
    async def some_node(self) -> Attachment:
        """The node to ask, once there is one; `Closed` if there will be none."""


class PendingQuestions:
    """The unanswered questions of one client; when it moves, the next node is asked again."""

    def __init__(self, client: Asker) -> None:
        self._client = client
        self._answers: dict[int, tuple[Attachment, asyncio.Future[msgspec.Raw]]] = {}
        self._asking = asyncio.Semaphore(MAX_REQUESTS // 2)

    async def ask(self, about: Question, topic: Topic, kind: type[T]) -> T:
        """Ask a node, and return its answer."""
        async with self._asking:
            while True:
                try:
                    body = await self._answer(await self._client.some_node(), about, topic)
                    return msgspec.msgpack.decode(body, type=kind)
                except _Interrupted:  # the next node is asked
                    continue
                except NotAllowed as error:
                    raise NotAllowed(topic, "ask", error.reason) from None
                except msgspec.DecodeError as error:
                    raise CubecastError(f"invalid answer of the node: {error}") from error

    async def _answer(self, node: Attachment, about: Question, topic: Topic) -> msgspec.Raw:
        request = self._client.next_number()
        return await self._said(node, request, Ask(request, about, topic))

    async def catch_up(self, node: Attachment, positions: list[Position]) -> bool:
        """Wait until a node has delivered everything before `positions`; False if it is gone."""
        request = self._client.next_number()
        try:
            await self._said(node, request, CatchUp(request, positions))
        except (_Interrupted, Closed):
            return False
        return True

    async def _said(self, node: Attachment, request: int, message: Ask | CatchUp) -> msgspec.Raw:
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._answers[request] = node, answer
        try:
            node.say(message)
            return await answer
        finally:
            del self._answers[request]

    def on_answer(self, message: Answered | Unanswered) -> None:
        """Take the answer of a node, or its reason for not answering."""
        _, answer = self._answers.get(message.request, (None, None))
        if answer is None or answer.done():
            return
        match message:
            case Answered():
                answer.set_result(message.body)
            case Unanswered(_, reason, denied):
                error = NotAllowed("", "ask", reason) if denied else CubecastError(reason)
                answer.set_exception(error)

    def interrupted(self, node: Attachment) -> None:
        """Have the questions to a node that is gone asked again."""
        for asked, answer in self._answers.values():
            if asked is node and not answer.done():
                answer.set_exception(_Interrupted())

    def close(self, reason: str) -> None:
        """Fail all questions with `Closed`."""
        for _, answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Closed(reason))
                answer.exception()


class _Interrupted(Exception):
    """The node that was asked is gone."""
