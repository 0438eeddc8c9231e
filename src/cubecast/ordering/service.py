"""The interface of an event service for ordering, and the promises of a service.

A service publishes bytes to topics, notifies the members that subscribe, and carries bytes from one
named member to another.  Adapters in `cubecast.ordering.services` speak to real ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from cubecast.ordering.messages import Member
from cubecast.ordering.timestamps import Topic

OnEvent: TypeAlias = Callable[[Topic, bytes], Awaitable[None] | None]
"""Takes an event.  A result to wait for means that the application has much to read: the topic's
next event is handed over after it.  The wait is long only where the service loses nothing."""
OnMessage: TypeAlias = Callable[[bytes], None]
OnFailure: TypeAlias = Callable[[Exception], None]
"""Takes the reason why the service has ended: it carries nothing any more."""


class Promises(NamedTuple):
    """The promises of a service; ordering adds nothing to either."""

    loses_nothing: bool
    """Whether a subscriber gets every event that is published while it is subscribed."""
    in_order: bool
    """Whether messages from one member to another arrive in the order in which they were sent."""


class EventService(Protocol):
    """A topic-based event service, as one member of it sees it."""

    @property
    def name(self) -> Member:
        """The name by which others reach this member."""

    @property
    def promises(self) -> Promises: ...

    @property
    def largest(self) -> int:
        """The most bytes that one event of the service may have."""

    def check_topic(self, topic: Topic) -> None:
        """Raise TypeError or ValueError, in one line, if the service cannot have such a topic."""

    async def open(self, on_event: OnEvent, on_message: OnMessage, on_failure: OnFailure) -> None:
        """Begin to take messages for this member, and to call back."""

    async def close(self) -> None: ...

    async def publish(self, topic: Topic, data: bytes) -> None:
        """Accept an event; it waits if the service has no room, and raises if it has failed."""

    async def flush(self) -> None:
        """Return when the service has taken all publications."""

    async def subscribe(self, topic: Topic) -> None:
        """Return when all later publications are notified here."""

    async def unsubscribe(self, topic: Topic) -> None: ...

    async def send(self, member: Member, data: bytes) -> None:
        """Send to another member; the module repeats lost messages."""
