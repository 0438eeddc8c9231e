"""The questions of a light client to its node."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from cubecast.errors import CubecastError
from cubecast.net.gateway.line import BACKLOG, Line, why
from cubecast.net.node.stats import Stats
from cubecast.net.wire.clients import MAX_ANSWER, MAX_REQUESTS, Answered, Ask, Unanswered
from cubecast.net.wire.packets import WireError

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell


class SessionQuestions:
    """The questions of one client; one answer is on its way at a time."""

    def __init__(self, line: Line, shell: Shell) -> None:
        self._line = line
        self._shell = shell
        self._questions: deque[Ask] = deque()
        self._answering: asyncio.Task[None] | None = None

    def ask(self, question: Ask) -> None:
        """Answer a question after those before it; `WireError` if there are too many."""
        if len(self._questions) >= MAX_REQUESTS:
            raise WireError("too many questions at once")
        self._questions.append(question)
        if self._answering is None:
            self._answering = self._line.spawn(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            while self._questions:
                question = self._questions.popleft()
                try:
                    await self._send_answer(question)
                except (CubecastError, ValueError) as error:
                    self._line.send(Unanswered(question.request, *why(error)))
                await self._line.room()
        finally:
            self._answering = None

    async def _send_answer(self, question: Ask) -> None:
        """Answer, and wait until the network has taken most of it: one answer at a time."""
        answer = msgspec.msgpack.encode(await self._answer(question))
        size = len(answer)
        if size > MAX_ANSWER:
            raise CubecastError(f"the answer has {size} bytes; a client is told {MAX_ANSWER}")
        if size > BACKLOG and size > self._line.share.left:
            raise CubecastError(f"no room for an answer of {size} bytes: {self._line.share}")
        self._line.answer_bytes = size
        self._line.share.add(size)
        try:
            self._line.send(Answered(question.request, msgspec.Raw(answer)))
            del answer
            await self._line.room()
        finally:
            self._line.answer_bytes = 0
            self._line.share.add(-size)

    async def _answer(self, question: Ask) -> object:
        node = self._shell.node
        match question.about:
            case "members":
                return node.members
            case "view":
                return node.epoch, node.suspects
            case "stats":
                return self._seen(self._shell.recent_stats())
            case "topics":
                return {
                    topic: slots
                    for topic, slots in (await node.topics()).items()
                    if self._line.may_see(topic)
                }
            case "explain":
                self._line.check_may("ask", question.topic)
                return node.explain(question.topic)
            case "subscribers":
                self._line.check_may("ask", question.topic)
                return await node.subscribers(question.topic)

    def _seen(self, stats: Stats) -> Stats:
        """A reading without the topics that the client may not see; the sums stay.

        A pattern tells which topics may exist, so with permissions all patterns are hidden.
        """
        if self._shell.access is None:
            return stats
        readers = (one for one in stats.subscriptions if not set("+#") & set(one.topic))
        return msgspec.structs.replace(
            stats,
            topics=[one for one in stats.topics if self._line.may_see(one.topic)],
            subscriptions=[one for one in readers if self._line.may_see(one.topic)],
        )
