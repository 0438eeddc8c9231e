"""Tracks which subscriptions have not yet consumed what they were handed.

A message counts as consumed when every subscription that was handed it has read it, or may be
taken to have; and not before the messages in front of it in its stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from cubecast.protocol.port import Seq, Stream, Topic


class Account:
    """One stream of one topic: who owes how much of it.

    An entry of `debtors` is [how far the reader has consumed, the last it owes]; whoever has none
    has consumed everything up to `last`.  A reader that has paid is removed, so there are at most
    as many entries as subscriptions, and the account is closed when there is none.
    """

    __slots__ = ("debtors", "last", "told")

    def __init__(self) -> None:
        self.last: Seq = -1
        self.told: Seq = -1
        self.debtors: dict[Hashable, list[Seq]] = {}

    def news(self) -> Seq | None:
        """How far everyone has consumed, if that has not been told."""
        reached = min((far for far, _ in self.debtors.values()), default=self.last)
        if reached <= self.told:
            return None
        self.told = reached
        return reached


class Ledger:
    """The streams of which some subscription owes a part."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[Topic, Stream], Account] = {}

    def hand_out(self, topic: Topic, stream: Stream, last: Seq, owing: Iterable[Hashable]) -> bool:
        """Note who owes a frame; True if nobody does, for it or for one before it."""
        account = self._accounts.get((topic, stream))
        if account is None:
            if not owing:
                return True
            account = self._accounts[topic, stream] = Account()
        account.last = last
        for reader in owing:
            account.debtors.setdefault(reader, [account.told, last])[1] = last
        return False

    def settle(self, reader: Hashable, topic: Topic, stream: Stream, seq: Seq) -> Seq | None:
        """`reader` has consumed up to `seq`; how far all have, if that is news."""
        account = self._accounts.get((topic, stream))
        if account is None:
            return None
        debt = account.debtors.get(reader)
        if debt is not None:
            debt[0] = seq
            if seq >= debt[1]:
                del account.debtors[reader]
        return self._news(topic, stream, account)

    def forgive(self, reader: Hashable) -> list[tuple[Topic, Stream, Seq]]:
        """`reader` is gone; what that settles."""
        settled = []
        for (topic, stream), account in list(self._accounts.items()):
            if account.debtors.pop(reader, None) is not None:
                seq = self._news(topic, stream, account)
                if seq is not None:
                    settled.append((topic, stream, seq))
        return settled

    def _news(self, topic: Topic, stream: Stream, account: Account) -> Seq | None:
        if not account.debtors:
            del self._accounts[topic, stream]
        return account.news()
