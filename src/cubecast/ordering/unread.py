"""The messages that the application has not read yet: in order, and bounded.

Beyond its limit the service below decides.  A service that promises to lose nothing is not read any
further, so that its publishers wait.  One without that promise cannot be made to wait: new messages
are dropped, and the next message says how many (`OrderedMessage.missed`).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Literal, TypeAlias

import msgspec

from cubecast.ordering.timestamps import Stamp, Topic

log = logging.getLogger(__name__)

Policy: TypeAlias = Literal["tagged", "drop"]
"""The treatment of an event that is out of order: notified with a tag, or dropped and counted."""


class OrderedMessage(msgspec.Struct, frozen=True):
    """An event as the application sees it."""

    topic: Topic
    payload: bytes
    in_order: bool
    """False: two subscribers may see it and another event in opposite orders."""
    stamp: Stamp
    missed: int = 0
    """Events that were dropped before this one because the application did not read."""


class Unread:
    """A queue of messages."""

    def __init__(self, limit: int, size: int, policy: Policy, drops: bool, owner: str) -> None:
        """At most `limit` messages, and no more after they have `size` bytes.

        `drops`: whether messages beyond that are dropped; else there is no bound here.
        """
        self._limit = limit
        self._most_bytes = size
        self._bytes = 0
        self._policy = policy
        self._drops = drops
        self._owner = owner
        self._messages: deque[OrderedMessage] = deque()
        self._missed = 0
        self.dropped = 0
        """Events that were out of order, with the policy "drop"."""
        self.missed = 0
        """Events that were dropped because the application did not read."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        return len(self._messages) >= self._limit or self._bytes >= self._most_bytes

    @property
    def filling(self) -> bool:
        """Whether so many messages are unread that the application should run."""
        return 2 * len(self._messages) >= self._limit or 2 * self._bytes >= self._most_bytes

    def put(self, message: OrderedMessage) -> None:
        if not message.in_order and self._policy == "drop":
            self.dropped += 1
        elif self._drops and self.full:
            self._miss()
        elif self._missed:
            log.warning("member %s: %d events were dropped", self._owner, self._missed)
            self._append(msgspec.structs.replace(message, missed=self._missed))
            self._missed = 0
        else:
            self._append(message)

    def _append(self, message: OrderedMessage) -> None:
        self._messages.append(message)
        self._bytes += len(message.payload)

    def _miss(self) -> None:
        if not self._missed:
            log.warning(
                "member %s: %d events are unread; what comes is dropped until some are read",
                self._owner,
                len(self._messages),
            )
        self._missed += 1
        self.missed += 1

    def take(self) -> OrderedMessage:
        message = self._messages.popleft()
        self._bytes -= len(message.payload)
        return message
