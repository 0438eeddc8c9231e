"""Worlds of each protocol: how modules are made, and how subscriptions come to be in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cubecast.ordering.effects import Time
from cubecast.ordering.faithful.config import FaithfulConfig, Swapping
from cubecast.ordering.faithful.module import FaithfulModule as FaithfulModule
from cubecast.ordering.production.config import Timing, WaitingBounds
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.sim.baselines import BareModule, SequencerModule, TopicSequencerModule
from cubecast.ordering.sim.world import TimedWorld, member, topic_name
from cubecast.ordering.world import Make

PROTOCOLS = ("bare", "one sequencer", "per topic", "faithful", "production")
UNBOUNDED = 1 << 40
"""A buffer that never fills, or a time that never comes."""


@dataclass(frozen=True, slots=True)
class Options:
    """The bounds of waiting, and whether topics change places."""

    buffer: int | None = 0
    """Events that may wait at a subscriber; None: no bound."""
    wait_us: Time | None = None
    """How long an event waits; None: for ever."""
    swapping: Swapping | None = None
    retry_us: Time | None = None


def make_of(protocol: str, options: Options, members: Sequence[int]) -> Make:
    """How modules of a protocol are made; `members` are the group of the one sequencer."""
    match protocol:
        case "bare":
            return BareModule
        case "per topic":
            return TopicSequencerModule
        case "one sequencer":
            return partial(SequencerModule, members=[member(node) for node in members])
        case "faithful":
            return partial(FaithfulModule, config=_config(options))
        case "production":
            waiting = WaitingBounds(options.buffer, options.wait_us)
            return Production(waiting=waiting, timing=Timing(retry_after=options.retry_us))
    raise ValueError(f"unknown protocol {protocol!r}; there are: {', '.join(PROTOCOLS)}")


def _config(options: Options) -> FaithfulConfig:
    return FaithfulConfig(
        buffer=UNBOUNDED if options.buffer is None else options.buffer,
        wait_for=UNBOUNDED if options.wait_us is None else options.wait_us,
        retry_after=options.retry_us,
        swapping=options.swapping,
    )


def subscribe_all(
    world: TimedWorld, wanted: Mapping[int, Collection[int]], *, in_place: bool
) -> None:
    """Let every node subscribe to its topics, one after the other, before any publication.

    `in_place`: subscriptions of the faithful mode are there from the beginning, with clocks of 0.
    Made one by one, each takes a number of its topics, of which earlier subscribers never hear
    (hole T7): they wait for it as long as they may.
    """
    for node, topics in sorted(wanted.items()):
        module = world.modules[node]
        if in_place and isinstance(module, FaithfulModule):
            _install(world, node, module, topics)
        else:
            world.subscribe(node, sorted(topics))


def _install(world: TimedWorld, node: int, module: FaithfulModule, topics: Collection[int]) -> None:
    names = frozenset(topic_name(topic) for topic in topics)
    module.subscriber.topics |= names
    module.subscriber.clock = dict.fromkeys(sorted(names), 0)
    for topic in topics:
        manager = world.modules[world.service.manager(topic)]
        assert isinstance(manager, FaithfulModule)
        manager.managers[topic_name(topic)].subscriptions[member(node)] = names
        world.subscribed.setdefault(topic, set()).add(node)
