"""What ordering needs of an event service, and how a service says what it promises.

A service publishes bytes to topics, notifies whoever subscribes, and carries bytes from one named
member to another.  Adapters in `cubecast.ordering.services` speak to real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Topic

OnEvent: TypeAlias = Callable[[Topic, bytes], None]
OnMessage: TypeAlias = Callable[[bytes], None]


class Promises(NamedTuple):
    """What a service promises; ordering adds nothing to either."""

    loses_nothing: bool
    """Whether a subscriber gets every event that is published while it is subscribed."""
    in_order: bool
    """Whether what one member sends to another arrives in the order in which it was sent."""


class EventService(Protocol):
    """A topic-based event service, as one member of it sees it."""

    @property
    def name(self) -> Member:
        """By which others reach this member."""

    @property
    def promises(self) -> Promises: ...

    async def open(self, on_event: OnEvent, on_message: OnMessage) -> None:
        """Begin to take messages for this member, and to call back."""

    async def close(self) -> None: ...

    async def publish(self, topic: Topic, data: bytes) -> None: ...

    async def subscribe(self, topic: Topic) -> None:
        """Return when whatever is published from now on is notified here."""

    async def unsubscribe(self, topic: Topic) -> None: ...

    async def send(self, member: Member, data: bytes) -> None: ...
