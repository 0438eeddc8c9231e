"""Receipts: what is known of a publication after it was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cubecast.errors import NotSent, Unknown
from cubecast.net.checks import check_timeout
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.port import Seq, Topic


class Receipt:
    """Handed out by ``publish(..., receipt=True)``.

    A message is *stable* when every subscriber it was addressed to has taken it in: its
    application has read it, or holds it in the bounded queue of its subscription.
    """

    def __init__(self, topic: Topic, seq: Seq, done: asyncio.Future[None]) -> None:
        self.topic = topic
        self.seq = seq
        self._done = done

    @property
    def is_stable(self) -> bool:
        """Whether every subscriber has taken the message in; does not wait."""
        return self._done.done() and self._done.exception() is None

    def when_known(self, call: Callable[[bool], None]) -> None:
        """Have `call` called with True when the message is stable, False if that stays unknown."""
        self._done.add_done_callback(lambda done: call(done.exception() is None))

    def confirm(self) -> None:
        """Note that the message is stable."""
        self._done.set_result(None)

    def fail(self, error: NotSent | Unknown) -> None:
        """End the receipt with an error; `stable` raises it, if it is called."""
        self._done.set_exception(error)
        self._done.exception()

    async def stable(self, timeout: float | None = None) -> None:
        """Wait until every subscriber has taken the message in, at most `timeout` seconds.

        Raises `NotSent` if the node closed before it sent the message, and `Unknown` if the node
        closed or was excluded from the cluster after that, or `timeout` passed; after a timeout it
        may be asked again.
        """
        check_timeout("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._done)
        except TimeoutError:
            raise Unknown(self.topic, f"not confirmed in {timeout:g} s") from None


class ReceiptBook:
    """The receipts of one node, by topic, that are not stable yet."""

    def __init__(self) -> None:
        self._open: dict[Topic, Receipts] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, topic: Topic, seq: Seq) -> Receipt:
        """A receipt for message `seq` of `topic`."""
        return self._open.setdefault(topic, Receipts()).add(topic, seq)

    def check(self, core: CubecastNode) -> None:
        """Confirm the receipts whose messages have become stable."""
        for topic, receipts in list(self._open.items()):
            receipts.advance(core.stable_seq(topic))
            if not receipts:
                del self._open[topic]

    def life_ended(self, core: CubecastNode) -> None:
        """Fail the receipts of sent messages: the node was excluded.

        Unsent messages are sent in its next life, numbered from 0 again.
        """
        self.check(core)
        for topic, receipts in list(self._open.items()):
            receipts.begin_anew(core.next_seq(topic), "the node was excluded from the cluster")
            if not receipts:
                del self._open[topic]

    def close(self, core: CubecastNode | None) -> None:
        """End all receipts: the node is closed."""
        if core is not None:
            self.check(core)
        for topic, receipts in self._open.items():
            receipts.close(0 if core is None else core.next_seq(topic))
        self._open.clear()


class Receipts:
    """The receipts of one topic that are not stable yet, by message number, in order."""

    def __init__(self) -> None:
        self._waiting: dict[Seq, Receipt] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: Topic, seq: Seq) -> Receipt:
        """A receipt for message `seq`, which is above all numbers before it."""
        receipt = Receipt(topic, seq, asyncio.get_running_loop().create_future())
        self._waiting[seq] = receipt
        return receipt

    def advance(self, stable: Seq) -> None:
        """Confirm the receipts up to number `stable`."""
        waiting = self._waiting
        while waiting and (seq := next(iter(waiting))) <= stable:
            waiting.pop(seq).confirm()

    def begin_anew(self, next_seq: Seq, reason: str) -> None:
        """Fail the receipts below `next_seq`; number the rest from 0."""
        waiting, self._waiting = self._waiting, {}
        for seq, receipt in waiting.items():
            if seq < next_seq:
                receipt.fail(Unknown(receipt.topic, f"{reason} before that was known"))
            else:
                receipt.seq = seq - next_seq
                self._waiting[receipt.seq] = receipt

    def close(self, next_seq: Seq) -> None:
        """End all receipts: messages below `next_seq` were sent, the rest never was."""
        for seq, receipt in self._waiting.items():
            receipt.fail(
                Unknown(receipt.topic, "the node closed before that was known")
                if seq < next_seq
                else NotSent(receipt.topic, "the node closed before there was credit")
            )
        self._waiting.clear()
