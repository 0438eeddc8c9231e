"""Tracks which subscriptions have not yet consumed what they were handed.

A message counts as consumed when every subscription that was handed it has consumed it, and not
before the messages in front of it in its stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from cubecast.protocol.port import Seq, Stream, Topic


class Account:
    """One stream of one topic, with the subscriptions that have not consumed all of it.

    An entry of `debtors` is [how far the reader has consumed, the last it owes]; a reader without
    an entry has consumed everything up to `last`.  A reader that has paid is removed, so there are
    at most as many entries as subscriptions, and the account is closed when there is none.
    """

    __slots__ = ("debtors", "last", "told")

    def __init__(self) -> None:
        self.last: Seq = -1
        self.told: Seq = -1
        self.debtors: dict[Hashable, list[Seq]] = {}

    def news(self) -> Seq | None:
        """How far all subscriptions have consumed, if that has not been told."""
        reached = min((far for far, _ in self.debtors.values()), default=self.last)
        if reached <= self.told:
            return None
        self.told = reached
        return reached


class Ledger:
    """The streams that some subscription has not consumed."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[Topic, Stream], Account] = {}

    def hand_out(self, topic: Topic, stream: Stream, last: Seq, owing: Iterable[Hashable]) -> bool:
        """Note which readers owe a frame; True if none does, for it or for one before it."""
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
        """Note that `reader` has consumed up to `seq`; return how far all have, if that is new."""
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
        """Remove `reader`; return the streams of which all others have now consumed more."""
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
