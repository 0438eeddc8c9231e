"""What light clients may make their node hold: a budget for each, and one for all of them.

A client may have many subscriptions, and each of them a large queue.  What counts is not what the
queues may hold but what they do hold: 200 idle subscriptions cost nothing.  A subscription finds
its queue full, and its policy applies, when the queue is full or when its client's share is used.

Invariants:

1. A client holds at most `client_bytes`, and one frame or message that began within it.
2. All clients together hold at most twice `clients_bytes`: half of that is for whoever comes first,
   the other half is divided into equal parts, one per client that the node takes.  So clients that
   do not read leave room for those that do.
3. What a share counts is given back when its session ends (`Share.close`), whoever still refers to
   it.

What a subscription with policy `block` owes to publishers is not counted: it is within their
windows, and this node's core retains it in any case until everyone has it.
"""

from __future__ import annotations


class Budget:
    """What the clients of one node hold together."""

    def __init__(self, limit: int, clients: int) -> None:
        self.limit = limit
        self.part = limit // max(1, clients)
        """What each client may hold however much the others do."""
        self.used = 0


class Share:
    """What one client may hold, and holds."""

    __slots__ = ("_budget", "_closed", "limit", "used")

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._closed = False
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        """How much more the client may hold now; 0 or less: nothing."""
        budget = self._budget
        common = max(budget.limit - budget.used, budget.part - self.used)
        return min(self.limit - self.used, common)

    def add(self, size: int) -> None:
        """The client holds so much more, or less."""
        if not self._closed:
            self.used += size
            self._budget.used += size

    def close(self) -> None:
        """The client is gone, and nothing of what it held counts any more."""
        self.add(-self.used)
        self._closed = True

    def __str__(self) -> str:
        return f"its client leaves {self.used} bytes unread in all"
