"""Bounds on what a node holds for light clients: a budget for each, and one for all of them.

A client may have many subscriptions, and each of them a large queue.  What counts is not what the
queues may hold but what they do hold: 200 idle subscriptions cost nothing.  The policy of a
subscription applies when its queue is full or when its client's share is used up.

Invariants:

1. A client holds at most `client_bytes`, and one frame or message that began within it.
2. All clients together hold at most twice `clients_bytes`: one half goes to the clients that come
   first, the other half is divided into equal parts, one per client that the node accepts.  So
   clients that do not read leave room for those that do.
3. What a share counts is given back when its session ends (`Share.close`), even if objects still
   refer to it.

Debts of a subscription with policy `block` are not counted: they are within the windows of their
publishers, and this node's core retains them in any case until they are stable.
"""

from __future__ import annotations


class Budget:
    """The bytes that all clients of one node hold, and their limit."""

    def __init__(self, limit: int, clients: int) -> None:
        self.limit = limit
        self.part = limit // max(1, clients)
        """What each client may hold however much the others do."""
        self.used = 0


class Share:
    """The bytes that one client holds, and its limit."""

    __slots__ = ("_budget", "_closed", "limit", "used")

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._closed = False
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        """How many more bytes the client may hold now; 0 or less: none."""
        budget = self._budget
        common = max(budget.limit - budget.used, budget.part - self.used)
        return min(self.limit - self.used, common)

    def add(self, size: int) -> None:
        """Count `size` more bytes, or fewer if it is negative."""
        if not self._closed:
            self.used += size
            self._budget.used += size

    def close(self) -> None:
        """Give everything back: the client is gone."""
        self.add(-self.used)
        self._closed = True

    def __str__(self) -> str:
        return f"its client leaves {self.used} bytes unread in all"
