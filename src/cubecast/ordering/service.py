"""What ordering needs of an event service, and how a service says what it promises.

A service publishes bytes to topics, notifies the members that subscribe, and carries bytes from one
named member to another.  Adapters in `cubecast.ordering.services` speak to real ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Topic

OnEvent: TypeAlias = Callable[[Topic, bytes], Awaitable[None] | None]
"""Takes an event.  If it returns something to wait for, the application has much to read: the
topic's next event is handed over after that.  It is long only where the service loses nothing."""
OnMessage: TypeAlias = Callable[[bytes], None]
OnFailure: TypeAlias = Callable[[Exception], None]
"""Takes the reason why the service ends: nothing comes and nothing goes any more."""


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

    @property
    def largest(self) -> int:
        """The bytes that one event of the service may have."""

    def check_topic(self, topic: Topic) -> None:
        """TypeError or ValueError, in one line, unless the service has such topics."""

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        """Begin to take messages for this member, and to call back."""

    async def close(self) -> None: ...

    async def publish(self, topic: Topic, data: bytes) -> None:
        """Accept an event; it waits if the service has no room, and raises if it has failed."""

    async def flush(self) -> None:
        """Return when the service has taken what was published."""

    async def subscribe(self, topic: Topic) -> None:
        """Return when whatever is published from now on is notified here."""

    async def unsubscribe(self, topic: Topic) -> None: ...

    async def send(self, member: Member, data: bytes) -> None:
        """Send to another member; what is lost is sent again by the module."""
