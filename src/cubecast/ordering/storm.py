"""Random runs of ordering modules under all faults, and a verdict.

A storm has publishers, subscribers whose topics change, managers that crash, return, appear and
leave, ranks that change, links that reorder and lose messages, and the wire format.  After a while
faults stop, time goes on, and the result is judged:

- no two events are seen in opposite orders, untagged; nothing is seen twice; every tag has a
reason;
- an event that the service brought to a subscriber of the topic was notified there;
- no publisher waits for a stamp, no event waits for another, every subscription is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cubecast.ordering.effects import Effect, LeaveCall, ServicePublish, Time
from cubecast.ordering.judge import inversions, needless_tags, repeated, shared_numbers
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Reranking, Timing, WaitingBounds
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.timestamps import Topic
from cubecast.ordering.world import Module, NodePair, OrderingWorld, manager

TIMING = Timing(retry_after=30, beat_every=20, suspect_after=100, drain_for=60, lease_for=2_000)
WAIT_FOR: Time = 400
END_FOR: Time = 150
QUIET: Time = 4_000
"""How long time goes on when faults have stopped."""


class Weather(NamedTuple):
    """The faults of a storm: the chance of each in one step of the applications."""

    changes: float = 0.1
    crashes: float = 0.0
    leaves: float = 0.0
    reranks: bool = False
    losses: float = 0.0
    """The chance that a message from point to point is lost."""
    in_sequence: bool = True
    slow_events: float = 0.0
    """The chance that messages overtake all events that are on their way."""
    burst: int = 1
    """How many events are published at once, at most."""
    buffer: int = 10_000
    """How many events may wait for others at a subscriber."""
    spread: int = 0
    """How many managers share the topics; 0: each topic has one of its own."""
    buffer_bytes: int | None = None
    """How many bytes of events may wait; an event of a storm has two to four."""


def draw_weather(rng: Random) -> Weather:
    """Draw faults: several in most storms, one in some."""
    return Weather(
        changes=rng.choice([0.0, 0.05, 0.15]),
        crashes=rng.choice([0.0, 0.02, 0.05]),
        leaves=rng.choice([0.0, 0.02]),
        reranks=rng.random() < 0.5,
        losses=rng.choice([0.0, 0.0, 0.01, 0.05]),
        in_sequence=rng.random() < 0.5,
        slow_events=rng.choice([0.0, 0.5, 0.9, 0.99]),
        burst=rng.choice([1, 3, 6]),
        buffer=rng.choice([10_000, 10_000, 2, 0]),
        spread=rng.choice([0, 0, 1, 2]),
    )


def draw_bytes(seed: int) -> int | None:
    """Draw a bound from a generator of its own: the rest of a storm does not depend on it."""
    return Random(f"bytes {seed}").choice([None, None, None, 20, 5])


@dataclass
class Observed(OrderingWorld):
    """A world that records the events that must be notified to each subscriber."""

    owed: dict[str, dict[Hashable, Topic]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _promised: dict[tuple[Hashable, Topic], set[str]] = field(default_factory=dict)

    def publish(self, node: Member, topic: Topic, event: Hashable) -> None:
        """Record the present subscribers of the topic: the event must be notified to them."""
        for name in self.subscribed.get(topic, ()):
            if topic in self.module(name).subscriber.topics:
                self._promised.setdefault((event, topic), set()).add(self.life_of(name))
        super().publish(node, topic, event)

    def _bring_about(self, node: Member, effect: Effect) -> None:
        if isinstance(effect, ServicePublish):
            self.counts["published"] += 1
            assert isinstance(effect.payload, Hashable)
            promised = self._promised.get((effect.payload, effect.topic), set())
            for target in self.subscribed.get(effect.topic, ()):
                life = self.life_of(target)
                if life in promised:
                    self.owed.setdefault(life, {})[effect.payload] = effect.topic
        super()._bring_about(node, effect)

    def unsubscribe(self, node: Member, topic: Topic) -> None:
        super().unsubscribe(node, topic)
        owed = self.owed.get(self.life_of(node), {})
        for event in [event for event, of in owed.items() if of == topic]:
            del owed[event]
        for (_, of), promised in self._promised.items():
            if of == topic:
                promised.discard(self.life_of(node))

    def crash(self, node: Member) -> None:
        super().crash(node)
        self.owed.pop(self.life_of(node), None)
        self.counts["crashes"] += 1

    def module(self, node: Member) -> OrderingModule:
        found = self.modules[node]
        assert isinstance(found, OrderingModule)
        return found


class Storm:
    """One run, from a seed."""

    def __init__(
        self,
        seed: int,
        weather: Weather | None = None,
        make: Callable[..., Callable[..., Module]] = Production,
    ) -> None:
        self.rng = rng = Random(seed)
        if weather is None:
            weather = draw_weather(rng)._replace(buffer_bytes=draw_bytes(seed))
        self.weather = weather
        self.topics = list("abcdef")[: rng.randint(2, 6)]
        self.subscribers = [f"s{number}" for number in range(rng.randint(2, 4))]
        self.publishers = ["p", "q", "r"]
        reranking = Reranking(events=6, ratio=2.0) if self.weather.reranks else None
        self.world = Observed(
            make(
                timing=TIMING,
                waiting=WaitingBounds(
                    self.weather.buffer, WAIT_FOR, END_FOR, self.weather.buffer_bytes
                ),
                reranking=reranking,
                opened=False,
                pinned=self.weather.spread == 0,
                spread=self.weather.spread,
            ),
            self.topics,
            [*self.publishers, *self.subscribers],
            wire=True,
            in_sequence=self.weather.in_sequence,
        )
        self.wants: dict[Member, set[Topic]] = {name: set() for name in self.subscribers}
        self.down: dict[Member, Time] = {}
        self.leaving: set[Member] = set()
        self._number = 0
        self.verdict: list[str] = []

    def run(self, steps: int = 60) -> list[str]:
        """Run, come to rest, and judge; return the faults found."""
        for name in self.subscribers:
            for topic in self.rng.sample(self.topics, self.rng.randint(1, len(self.topics))):
                self._toggle(name, topic)
        for _ in range(steps):
            self._act()
            self._pass_time(self.rng.randint(0, 40))
        for node in list(self.down):
            self._return(node)
        self.world.run_by_chance(self.rng, self.world.now + QUIET)
        return self.judge()

    # -- what happens ----------------------------------------------------------------------------

    def _act(self) -> None:
        rng, weather, world = self.rng, self.weather, self.world
        chance = rng.random()
        if chance < 0.5:
            for _ in range(rng.randint(1, weather.burst)):
                self._publish()
        elif chance < 0.5 + weather.changes:
            self._toggle(rng.choice(self.subscribers), rng.choice(self.topics))
        elif chance < 0.5 + weather.changes + weather.crashes:
            self._crash()
        elif chance < 0.5 + weather.changes + weather.crashes + weather.leaves:
            self._leave()
        for node in [node for node, until in self.down.items() if until <= world.now]:
            self._return(node)

    def _publish(self) -> None:
        node = self.rng.choice(self.publishers)
        busy = self.topics[-1] if self.weather.reranks and self.rng.random() < 0.7 else None
        if node in self.world.modules:
            self._number += 1
            event = f"e{self._number}"
            self.world.publish(node, busy or self.rng.choice(self.topics), event)

    def _toggle(self, name: Member, topic: Topic) -> None:
        if name not in self.world.modules:
            return
        if topic in self.wants[name]:
            self.world.unsubscribe(name, topic)
        else:
            self.world.subscribe(name, topic)
        self.wants[name] ^= {topic}

    def _crash(self) -> None:
        node = self.rng.choice(sorted(self.world.modules))
        managers = [manager(topic) for topic in self.topics]
        living = [name for name in managers if name in self.world.modules]
        if node in managers and len(living) == 1:
            return  # the last manager stays
        self.world.crash(node)
        self.leaving.discard(node)
        self.down[node] = self.world.now + self.rng.choice([10, 150, 600])

    def _return(self, node: Member) -> None:
        del self.down[node]
        self.world.restart(node)
        self.world.counts["returns"] += 1
        for topic in sorted(self.wants.get(node, ())):
            self.world.subscribe(node, topic)

    def _leave(self) -> None:
        """Let a manager leave: it goes when it is not needed, and comes back."""
        managers = [manager(topic) for topic in self.topics]
        living = [name for name in managers if name in self.world.modules]
        staying = [name for name in living if name not in self.leaving]
        if len(staying) > 1:
            node = self.rng.choice(staying)
            self.leaving.add(node)
            self.world.tell(node, LeaveCall())

    def _pass_time(self, moves: int) -> None:
        world, rng = self.world, self.rng
        for _ in range(moves):
            if world.wakes and (not world.channels or rng.random() < 0.05):
                world.tick()
            elif world.channels:
                self._move()
        for node in sorted(self.leaving):
            if not world.module(node).is_needed:
                self.leaving.discard(node)
                world.crash(node)
                self.down[node] = world.now + 100
                world.counts["left"] += 1

    def _move(self) -> None:
        world, rng, weather = self.world, self.rng, self.weather
        links = [move for move in world.moves() if isinstance(move, NodePair)]
        if links and rng.random() < weather.losses:
            world.lose(rng.choice(links))
            world.counts["lost messages"] += 1
        elif links and rng.random() < weather.slow_events:
            world.move_by_chance(rng, links)
        else:
            world.move_by_chance(rng)

    # -- verdict ---------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """The faults found, as text."""
        world = self.world
        wrong = [f"opposite orders: {one}" for one in inversions(world.seen)]
        wrong += [f"seen twice: {one}" for one in repeated(world.seen)]
        wrong += [f"tagged without a reason: {one}" for one in needless_tags(world.seen)]
        wrong += [f"one number of two events: {one}" for one in shared_numbers(world.seen)]
        for life, owed in world.owed.items():
            seen = {one.event for one in world.seen.get(life, ())}
            wrong += [f"not notified at {life}: {event}" for event in owed if event not in seen]
        return [*wrong, *self._unrest()]

    def _unrest(self) -> list[str]:
        wrong = []
        for name in sorted(self.world.modules):
            module = self.world.module(name)
            waiting = [topic for topic, one in module.publisher.topics.items() if one.asked]
            subscriber = module.subscriber
            if waiting:
                wrong.append(f"{name} waits for stamps of {waiting}")
            if subscriber.front is not None and (len(subscriber.front.room) or subscriber.later):
                wrong.append(f"events wait at {name}")
            if subscriber.topics != self.wants.get(name, set()):
                wrong.append(f"{name} has {sorted(subscriber.topics)}, not what it wants")
            if subscriber.forgotten:
                wrong.append(f"{name} dropped {subscriber.forgotten} events of old epochs")
        return wrong

    def tagged(self) -> int:
        return sum(not one.in_order for seen in self.world.seen.values() for one in seen)

    def epochs(self) -> int:
        """The number of epochs of which subscribers have seen events."""
        stamps = (one.timestamp for seen in self.world.seen.values() for one in seen)
        return len({getattr(stamp, "epoch", 0) for stamp in stamps})
