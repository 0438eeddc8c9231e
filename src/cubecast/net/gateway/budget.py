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

Topics outlive the session that named them: the node forgets them later.  So they are counted by
client (`client_of`), not by session, and attaching again gives no more:

4. A client alone has at most half of `clients_topics`: it may name new topics while it has named
   fewer than are left for all.
5. However much the others have, each client may have its part, `clients_topics / max_clients`.
6. All clients together have at most twice `clients_topics`.
7. A topic counts for the client that named it first, until the node has forgotten it.
"""

from __future__ import annotations

import ipaddress

from cubecast.errors import CubecastError
from cubecast.net.links.address import parse_address
from cubecast.protocol.port import Topic


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


class TopicBudget:
    """The topics that the clients of one node have named, and the node has not forgotten."""

    def __init__(self, limit: int, clients: int) -> None:
        self.limit = limit
        self.part = max(1, limit // max(1, clients))
        """What each client may have however much the others do."""
        self._topics: dict[Topic, tuple[Topic, str]] = {}  # its one copy, and whose it is
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def use(self, topic: Topic, client: str) -> Topic:
        """Count a topic that a client names; return its one copy; `CubecastError` if too many."""
        known = self._topics.get(topic)
        if known is not None:
            return known[0]
        used, own = len(self._topics), self._counts.get(client, 0)
        in_common = own < self.limit - used
        in_part = own < self.part and used < 2 * self.limit
        if not (in_common or in_part):
            raise CubecastError(
                f"{client} has used {own} topics, all clients of this node {used}, and it has not "
                f"forgotten them yet (clients_topics is {self.limit}; forget_after)"
            )
        self._topics[topic] = topic, client
        self._counts[client] = own + 1
        return topic

    def forget(self, topic: Topic) -> None:
        """Stop counting a topic."""
        known = self._topics.pop(topic, None)
        if known is not None:
            client = known[1]
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]


def client_of(name: str, address: str) -> str:
    """Whose topics these are: those of a name, or of the host if the client has proved no name.

    Of IPv6 the first 64 bits count: the rest is the host's own choice.
    """
    if name:
        return f"client {name!r}"
    host = parse_address(address)[0] if address else "this machine"
    try:
        number = ipaddress.ip_address(host)
    except ValueError:  # a network that is none of IP
        return f"a client at {host}"
    if isinstance(number, ipaddress.IPv6Address):
        number = number.ipv4_mapped or number
    if isinstance(number, ipaddress.IPv6Address):
        host = str(ipaddress.ip_network((int(number), 64), strict=False))
    return f"a client at {host}"
