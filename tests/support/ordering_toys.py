"""Small worlds of ordering modules in the paper's mode, and what can be done to them by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

from cubecast.ordering.effects import Cause, Effect, ReceivedFromModule, ServiceNotified, Time, Wake
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig
from cubecast.ordering.faithful.manager import FaithfulManager
from cubecast.ordering.faithful.module import FaithfulModule
from cubecast.ordering.messages import RequestSwap
from cubecast.ordering.timestamps import Timestamp
from cubecast.ordering.world import Make, NodePair, OrderingWorld, manager
from cubecast.testing.explorer.ordering import Deed, SetUp

m = manager


def configured(**options: Any) -> Make:
    """Modules of the paper's mode with a configuration, and a time that `wake` sets."""
    config = FaithfulConfig(**options)
    return lambda *args: Timed(FaithfulModule(*args, config=config))


class Timed:
    """A module that is told the time when it is woken, and knows no other."""

    def __init__(self, module: FaithfulModule) -> None:
        self.module = module
        self.now: Time = 0

    def step(self, cause: Cause, now: Time = 0) -> list[Effect]:
        return self.module.step(cause, self.now)


def subscribed(order: str, *, nodes: str = "pqr", unheard: str = "", **subscriptions: str) -> SetUp:
    """A world in which all subscriptions are complete; topics are characters, the highest first.

    The service notifies nothing to those `unheard`.  A subscriber tells no other what it is
    notified of, so what the others see does not depend on it.
    """

    def set_up(make: Make) -> OrderingWorld:
        names = sorted({*nodes, *subscriptions, m(SYSTEM_TOPIC)})
        made = OrderingWorld(make, list(order), names)
        for node, topics in subscriptions.items():
            for topic in topics:
                made.subscribe(node, topic)
                made.settle()
        for heard in made.subscribed.values():
            heard.difference_update(unheard)
        return made

    return set_up


def world(order: str, make: Make = FaithfulModule, **subscriptions: str) -> OrderingWorld:
    return subscribed(order, **subscriptions)(make)


# -- by hand ---------------------------------------------------------------------------------------


def publish(there: OrderingWorld, node: str, topic: str, event: str, *through: str) -> None:
    """Publish, and let the timestamp pass the managers of `through` and come back."""
    there.publish(node, topic, event)
    there.along(node, *(m(one) for one in (topic, *through)), node)


def stamp(there: OrderingWorld, event: Hashable) -> Timestamp:
    """The timestamp of an event that was seen, or is on its way to a subscriber."""
    known = {one.event: one.timestamp for seen in there.seen.values() for one in seen}
    for waiting in there.channels.values():
        for cause in waiting:
            if isinstance(cause, ServiceNotified) and isinstance(cause.payload, Hashable):
                known[cause.payload] = cause.timestamp
    found = known[event]
    assert isinstance(found, Timestamp)
    return found


def ask_to_swap(there: OrderingWorld, topic: str, lower: str) -> None:
    """The manager of a topic asks that it and a lower one change places."""
    request = ReceivedFromModule(RequestSwap(topic, lower))
    there.channels.setdefault(NodePair(m(topic), m(SYSTEM_TOPIC)), deque()).append(request)
    there.along(m(topic), m(SYSTEM_TOPIC))


def wake(there: OrderingWorld, node: str, now: Time) -> None:
    """Time passes at one node."""
    module = there.modules[node]
    assert isinstance(module, Timed)
    module.now = now
    there.channels[NodePair("time", node)] = deque([Wake()])
    there.along("time", node)


def overtake(there: OrderingWorld, source: str, target: str) -> None:
    """What was sent last on a link arrives first: links are not in order any more."""
    there.channels[NodePair(source, target)].rotate(1)


def lose(there: OrderingWorld, source: str, target: str) -> None:
    """All that is on a link is lost."""
    del there.channels[NodePair(source, target)]


def restart(there: OrderingWorld, node: str) -> None:
    """A node crashes and comes back; it remembers nothing."""
    managed = [topic for topic in there.order if m(topic) == node]
    there.modules[node] = there.make(node, there.order, m, managed)


# -- what is there ---------------------------------------------------------------------------------


def module(there: OrderingWorld, node: str) -> FaithfulModule:
    found: Any = there.modules[node]
    found = found.module if isinstance(found, Timed) else found
    assert isinstance(found, FaithfulModule)
    return found


def managing(there: OrderingWorld, topic: str) -> FaithfulManager:
    return module(there, m(topic)).managers[topic]


def waiting(there: OrderingWorld, node: str) -> list[object]:
    """The events in a subscriber's buffer."""
    return [event.payload for _, event in module(there, node).buffer.waiting]


# -- by explorer -----------------------------------------------------------------------------------


def publishing(node: str, topic: str, event: str) -> Deed:
    return lambda there: there.publish(node, topic, event)


def joining(node: str, topic: str) -> Deed:
    return lambda there: there.subscribe(node, topic)


def leaving(node: str, topic: str) -> Deed:
    return lambda there: there.unsubscribe(node, topic)


def swapping(topic: str, lower: str) -> Deed:
    return lambda there: ask_to_swap(there, topic, lower)


def events(**topics: str) -> dict[str, list[Deed]]:
    """What publishers publish: p="ab" are events p0 on a and p1 on b."""
    return {
        node: [publishing(node, topic, f"{node}{number}") for number, topic in enumerate(each)]
        for node, each in topics.items()
    }
