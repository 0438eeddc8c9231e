"""Receipts: what is known of a publication after it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cubecast.protocol.port import Seq, Topic


class Receipt:
    """Handed out by ``publish(..., receipt=True)``.

    A message is *stable* when every subscriber it was addressed to has consumed it.
    """

    def __init__(self, topic: Topic, seq: Seq, done: asyncio.Future[None]) -> None:
        self.topic = topic
        self.seq = seq
        self._done = done

    @property
    def is_stable(self) -> bool:
        """Whether everyone has consumed it, without waiting."""
        return self._done.done() and self._done.exception() is None

    def when_stable(self, call: Callable[[], None]) -> None:
        """Have `call` called once everyone has consumed it; never, if the node closes first."""
        self._done.add_done_callback(lambda done: call() if done.exception() is None else None)

    async def stable(self) -> None:
        """Wait until everyone has consumed it; use ``asyncio.timeout`` for a bound of your own.

        Raises `Closed` if the node closes before that is known.
        """
        await asyncio.shield(self._done)


class Receipts:
    """The receipts of one topic that are not stable yet, by message number."""

    def __init__(self) -> None:
        self._waiting: dict[Seq, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: Topic, seq: Seq) -> Receipt:
        """A receipt for message `seq`."""
        done = asyncio.get_running_loop().create_future()
        self._waiting[seq] = done
        return Receipt(topic, seq, done)

    def advance(self, stable: Seq) -> None:
        """Everything up to `stable` is consumed by everyone."""
        for seq in [seq for seq in self._waiting if seq <= stable]:
            done = self._waiting.pop(seq)
            if not done.done():
                done.set_result(None)

    def fail(self, error: Exception) -> None:
        """It will never be known."""
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(error)
                done.exception()  # whoever waits is told; nobody has to wait
        self._waiting.clear()
