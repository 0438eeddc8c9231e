"""A world of ordering modules in virtual time, on a service and links with delays.

Messages and events move hop by hop.  A node sends one at a time (`send_us` each), and a link keeps
their order, as TCP does.  Time is in whole microseconds.  Equal seeds give equal runs.

Invariants: time never goes back; each module is entered only through `step`; a `Wake` comes at the
time that a module asked for, or later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from cubecast.ordering.effects import (
    Cause,
    Effect,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    ServiceSubscribe,
    ServiceUnsubscribe,
    SubscribeCall,
    Time,
    Wake,
    WakeAt,
)
from cubecast.ordering.judge import Notification
from cubecast.ordering.messages import Member
from cubecast.ordering.sim.links import LinkDelays
from cubecast.ordering.sim.services import Service
from cubecast.ordering.timestamps import Stamp, Timestamp, Topic
from cubecast.ordering.world import Make, Module

MILLISECOND = 1000
SECOND = 1_000_000


def member(node: int) -> Member:
    """The name of a node's module."""
    return f"n{node}"


def node_of(name: Member) -> int:
    return int(name[1:])


def topic_name(topic: int) -> Topic:
    return f"t{topic}"


def topic_of(name: Topic) -> int:
    return int(name[1:])


class Seen(NamedTuple):
    """An event as one subscriber saw it, and when."""

    time: Time
    notification: Notification


Action: TypeAlias = Callable[[], None]


@dataclass
class TimedWorld:
    """Nodes that publish, subscribe or manage have a module; others only pass on."""

    make: Make
    service: Service
    links: LinkDelays
    order: Sequence[int]
    """All topics, the highest first."""
    nodes: Collection[int]
    """Nodes that publish or subscribe; managers are added."""
    send_us: int = 0
    now: Time = 0
    modules: dict[int, Module] = field(default_factory=dict)
    subscribed: dict[int, set[int]] = field(default_factory=dict)
    seen: dict[int, list[Seen]] = field(default_factory=dict)
    published: dict[int, Time] = field(default_factory=dict)
    """When each event was published, and (`stamped`) handed to the service."""
    stamped: dict[int, Time] = field(default_factory=dict)
    stamps: dict[int, Timestamp | Stamp] = field(default_factory=dict)
    sends: int = 0
    """Messages and events, counted once per link."""
    _queue: list[tuple[Time, int, Action]] = field(default_factory=list)
    _count: int = 0
    _free: dict[int, Time] = field(default_factory=dict)
    _last: dict[tuple[int, int], Time] = field(default_factory=dict)
    _asleep: dict[int, set[Time]] = field(default_factory=dict)
    _trees: dict[tuple[int, int], tuple[frozenset[int], dict[int, list[int]]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        topics = [topic_name(topic) for topic in self.order]
        managed: dict[int, list[Topic]] = {node: [] for node in self.nodes}
        for topic in self.order:
            managed.setdefault(self.service.manager(topic), []).append(topic_name(topic))
        for node in sorted(managed):
            self.modules[node] = self.make(member(node), topics, self._manager_of, managed[node])

    def _manager_of(self, topic: Topic) -> Member:
        number = topic_of(topic) if topic[1:].isdigit() else self.order[-1]
        return member(self.service.manager(number))

    # -- what applications do --------------------------------------------------------------------

    def subscribe(self, node: int, topics: Iterable[int]) -> None:
        """Subscribe to topics one after the other, and wait until all is quiet."""
        for topic in topics:
            self._do(node, SubscribeCall(topic_name(topic)))
            self.run()

    def publish_at(self, time: Time, node: int, topic: int, event: int) -> None:
        """Publish an event at a time."""

        def publish() -> None:
            self.published[event] = self.now
            self._do(node, PublishCall(topic_name(topic), event))

        self._at(time, publish)

    def run(self, until: Time | None = None) -> None:
        """Run all events, or those until then."""
        while self._queue and (until is None or self._queue[0][0] <= until):
            self.now, _, action = heappop(self._queue)
            action()

    # -- what happens ----------------------------------------------------------------------------

    def _at(self, time: Time, action: Action) -> None:
        assert time >= self.now
        self._count += 1
        heappush(self._queue, (time, self._count, action))

    def _do(self, node: int, cause: Cause) -> None:
        for effect in self.modules[node].step(cause, self.now):
            self._bring_about(node, effect)

    def _bring_about(self, node: int, effect: Effect) -> None:
        match effect:
            case SendToModule():
                self._send(node, node_of(effect.to), ReceivedFromModule(effect.message))
            case ServicePublish():
                self._spread(node, effect)
            case ServiceSubscribe():
                self.subscribed.setdefault(topic_of(effect.topic), set()).add(node)
            case ServiceUnsubscribe():
                self.subscribed.setdefault(topic_of(effect.topic), set()).discard(node)
            case Notify():
                name = _event(effect.payload)
                one = Notification(name, effect.topic, effect.timestamp, effect.in_order)
                self.seen.setdefault(node, []).append(Seen(self.now, one))
            case WakeAt():
                self._wake(node, max(effect.time, self.now))

    def _wake(self, node: int, time: Time) -> None:
        asleep = self._asleep.setdefault(node, set())
        if time in asleep:
            return
        asleep.add(time)

        def wake() -> None:
            asleep.discard(time)
            self._do(node, Wake())

        self._at(time, wake)

    def _send(self, source: int, target: int, cause: Cause) -> None:
        route = self.service.route(source, target)
        self._travel(source, route, lambda: self._do(target, cause))

    def _travel(self, node: int, route: Sequence[int], then: Action, place: int = 0) -> None:
        """Pass a message on along a route, then run `then`."""
        if place == len(route):
            self._at(self.now, then)  # after events that are due already
            return
        following = route[place]
        self._hop(node, following, lambda: self._travel(following, route, then, place + 1))

    def _hop(self, source: int, target: int, then: Action) -> None:
        """Cross one link: wait for the sender to be free, and for earlier messages on the link."""
        self.sends += 1
        leaves = self.now
        if self.send_us:
            leaves = max(leaves, self._free.get(source, 0)) + self.send_us
            self._free[source] = leaves
        delay = round(self.links.delay(source, target, self.sends) * MILLISECOND)
        arrives = max(leaves + delay, self._last.get((source, target), 0))
        self._last[source, target] = arrives
        self._at(arrives, then)

    def _spread(self, source: int, effect: ServicePublish) -> None:
        topic, event = topic_of(effect.topic), _event(effect.payload)
        self.stamped.setdefault(event, self.now)
        self.stamps.setdefault(event, effect.timestamp)
        wanted = frozenset(self.subscribed.get(topic, ()))
        arrived = ServiceNotified(effect.topic, effect.payload, effect.timestamp)
        way = self.service.way_in(source, topic)
        root = way[-1] if way else source

        def spread() -> None:
            self._fall(root, self._tree(root, topic, wanted), wanted, arrived)

        self._travel(source, way, spread)

    def _tree(self, root: int, topic: int, wanted: frozenset[int]) -> Mapping[int, list[int]]:
        """The children of each node in a topic's tree; the last tree per topic and root is kept."""
        known = self._trees.get((root, topic))
        if known is not None and known[0] == wanted:
            return known[1]
        below: dict[int, list[int]] = {}
        for branch in self.service.branches(root, topic, wanted):
            below.setdefault(branch.source, []).append(branch.target)
        self._trees[root, topic] = wanted, below
        return below

    def _fall(
        self,
        node: int,
        below: Mapping[int, list[int]],
        wanted: Collection[int],
        event: ServiceNotified,
    ) -> None:
        """Pass an event on at a node of its tree, then hand it over."""
        for child in below.get(node, ()):
            self._hop(node, child, lambda child=child: self._fall(child, below, wanted, event))  # type: ignore[misc]
        if node in wanted:
            self._do(node, event)

    # -- what came of it -------------------------------------------------------------------------

    def notifications(self) -> dict[Member, list[Notification]]:
        """The notifications of each subscriber, for the judge."""
        return {
            member(node): [one.notification for one in seen] for node, seen in self.seen.items()
        }

    def last_seen(self) -> dict[int, Time]:
        """When the last subscriber was notified of each event."""
        found: dict[int, Time] = {}
        for seen in self.seen.values():
            for one in seen:
                event = _event(one.notification.event)
                found[event] = max(one.time, found.get(event, 0))
        return found


def _event(payload: object) -> int:
    assert isinstance(payload, int)
    return payload
