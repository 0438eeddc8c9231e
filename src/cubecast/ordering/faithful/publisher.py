"""The publisher's part: an event waits for its timestamp, then goes to the service ([T] 5a).

Where messages may be lost, a publisher asks again until it has a timestamp ([T] 5, reliability).
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.ordering.effects import (
    Effect,
    PublishCall,
    SendToModule,
    ServicePublish,
    Time,
    WakeAt,
)
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig
from cubecast.ordering.messages import Completed, CreateTimestamp, Free, Member
from cubecast.ordering.timestamps import Timestamp, Topic


class FaithfulPublisher:
    """Events on their way out, by their numbers, which are unique at this node only."""

    def __init__(
        self, name: Member, manager_of: Callable[[Topic], Member], config: FaithfulConfig
    ) -> None:
        self._name = name
        self._manager_of = manager_of
        self._config = config
        self._next = 0
        self.outgoing: dict[int, PublishCall] = {}
        self._again_at: dict[int, Time] = {}

    def publish(self, publish: PublishCall, now: Time) -> list[Effect]:
        """Ask for a timestamp (Figure 5a, lines 01-04)."""
        event = self._next
        self._next += 1
        self.outgoing[event] = publish
        return self._ask(event, now)

    def _ask(self, event: int, now: Time) -> list[Effect]:
        topic = self.outgoing[event].topic
        effects: list[Effect] = [
            SendToModule(self._manager_of(topic), CreateTimestamp(topic, self._name, event))
        ]
        if self._config.retry_after is not None:
            self._again_at[event] = now + self._config.retry_after
            effects.append(WakeAt(self._again_at[event]))
        return effects

    def on_wake(self, now: Time) -> list[Effect]:
        """Repeat the requests without an answer."""
        late = [event for event, at in self._again_at.items() if at <= now]
        return [effect for event in late for effect in self._ask(event, now)]

    def on_completed(self, message: Completed) -> list[Effect]:
        """Hand the event to the service with its timestamp; a second one is ignored."""
        publish = self.outgoing.pop(message.event, None)
        if publish is None:
            return []
        stamp = Timestamp(message.entries)
        effects: list[Effect] = [ServicePublish(publish.topic, publish.payload, stamp)]
        if self._again_at.pop(message.event, None) is not None:
            topics = tuple(topic for topic in stamp if topic != SYSTEM_TOPIC)
            free = Free(self._name, message.event, publish.topic, topics)
            effects.append(SendToModule(self._manager_of(publish.topic), free))
        return effects
