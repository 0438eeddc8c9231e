"""A node of StaN: one random overlay per topic, aligned by weights ([N] Algorithms 1 and 2).

`Stan.step(cause, now)` is the only entry.  The node knows no socket and no clock, and chance is a
function that it is given.  Its topics never interact: they are aligned because a link weighs the
same in all of them.

*Faithful* mode is Algorithm 2 with the slips of its print mended:

- A8 is lost in print; the text to it says that each node of a walk adds its neighbours' ids.
- A11 sends the constant TTL - 1, with which a walk never ends: here ttl - 1.
- A16 may put p itself into its view: p is removed from the set.
- A message of a topic that the node has left is dropped.  Late replies are merged like others.
- No rule removes the ids of nodes that are gone.

*Repairing* mode adds, and `rounds.py` argues why:

- Offer: a node that a walk visits merges the walk's source into its own view.
- Keeper: see `keepers.py`.
- Removal: an id is removed when the transport cannot reach it or it answers that it does not
  subscribe (`NotMember`), and sets that still carry it do not bring it back for a while (it is
  *buried*).
- Turns: a node's walks start at the ids of its view in turn, so that each link is tried.

Everything is bounded: a view by its size, pins and burials per topic by constants, requests by one
per topic, a walk by (TTL + 1)(size + 1) ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from cubecast.overlay.effects import (
    Cause,
    Effect,
    Introduce,
    JoinTopic,
    LeaveTopic,
    ReceivedFromNode,
    Resize,
    SendToNode,
    Stranded,
    Tick,
    TimeMs,
    Unreachable,
    ViewChanged,
)
from cubecast.overlay.keepers import Keeper
from cubecast.overlay.messages import (
    CollectReply,
    CollectWalk,
    Keep,
    KeepGranted,
    KeepRefused,
    KeepReleased,
    Message,
    NodeId,
    NotMember,
    Topic,
)
from cubecast.overlay.rounds import MODES, Mode
from cubecast.overlay.view import OverlayView, Weigh
from cubecast.overlay.weights import HASHES, Hash, weight

Choose: TypeAlias = Callable[[int], int]
"""A random number from 0 to its argument - 1."""


@dataclass(frozen=True, slots=True)
class StanConfig:
    """Times are in periods, so that they hold for any length of a period."""

    ttl: int = 5
    """Further hops of a walk; [N] 2.4 wants the order of the overlay's diameter."""
    mode: Mode = "faithful"
    hashing: Hash = "mixed"
    period_ms: TimeMs = 30_000.0
    """[N] 3.2 runs rounds of 30 seconds."""
    patience_periods: float = 3.5
    """How long a node believes in a silent keeper: three requests may be lost."""
    lease_periods: float = 5.5
    """How long a keeper pins without a request; more than the node's patience."""
    burial_periods: float = 20.0
    """How long a gone id is not taken from others' sets: longer than views hold it."""
    collected_limit: int = 4096
    """How many ids a walk or a reply may carry; larger ones are dropped."""
    removes_dead: bool | None = None
    """Whether unreachable ids are removed; unset: in repairing mode.  Setting it in faithful mode
    shows failures as the overlay management protocol below StaN would report them."""

    def __post_init__(self) -> None:
        if self.ttl < 0:
            raise ValueError(f"ttl must be 0 or more, not {self.ttl}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.hashing not in HASHES:
            raise ValueError(f"hashing must be one of {', '.join(HASHES)}, not {self.hashing!r}")
        if self.period_ms <= 0:
            raise ValueError(f"period_ms must be above 0, not {self.period_ms}")
        if not 1 <= self.patience_periods < self.lease_periods:
            raise ValueError(
                "patience_periods must be 1 or more and below lease_periods, "
                f"not {self.patience_periods} and {self.lease_periods}"
            )
        if self.burial_periods <= 0:
            raise ValueError(f"burial_periods must be above 0, not {self.burial_periods}")
        if self.collected_limit < 1:
            raise ValueError(f"collected_limit must be 1 or more, not {self.collected_limit}")

    @property
    def removal(self) -> bool:
        """Whether unreachable ids are removed."""
        return self.mode == "repairing" if self.removes_dead is None else self.removes_dead


@dataclass
class StanTopic:
    """The state of a node in a topic that it subscribes to."""

    view: OverlayView
    keeper: Keeper


@dataclass
class Stan:
    """The node `node`; `choose` gives its random numbers."""

    node: NodeId
    config: StanConfig
    choose: Choose
    topics: dict[Topic, StanTopic] = field(default_factory=dict)
    requests: int = 0
    """The highest number of a request to a keeper in topics that were left."""

    def step(self, cause: Cause, now: TimeMs) -> list[Effect]:
        """Act on a cause: the only method that changes the node."""
        before = {topic: self.topics[topic].view.ids for topic in self._touched(cause)}
        effects = list(self._act(cause, now))
        for topic, ids in before.items():
            if topic in self.topics:
                effects += self._changes(topic, ids)
        return effects

    def view(self, topic: Topic) -> tuple[NodeId, ...]:
        """The view of a topic, in its stored order; empty if the node does not subscribe."""
        membership = self.topics.get(topic)
        return membership.view.ids if membership else ()

    def check_invariants(self, cause: Cause | None = None) -> None:
        """Raise if a view that the cause may change is not sound; for worlds and tests."""
        for topic in self.topics if cause is None else self._touched(cause):
            self.topics[topic].view.check_invariants()

    # -- causes ----------------------------------------------------------------------------------

    def _touched(self, cause: Cause) -> list[Topic]:
        """The topics whose views the cause may change."""
        match cause:
            case ReceivedFromNode(_, message):
                return [message.topic] if message.topic in self.topics else []
            case Introduce(topic) | Resize(topic):
                return [topic] if topic in self.topics else []
            case JoinTopic() | LeaveTopic():
                return []
            case Tick() | Unreachable():
                return list(self.topics)

    def _act(self, cause: Cause, now: TimeMs) -> Iterator[Effect]:
        match cause:
            case ReceivedFromNode(sender, message):
                yield from self._receive(sender, message, now)
            case Tick():
                for topic in sorted(self.topics):
                    yield from self._tick(topic, now)
            case JoinTopic():
                yield from self._subscribe(cause)
            case LeaveTopic(topic):
                self._unsubscribe(topic)
            case Introduce(topic, others):
                if topic in self.topics:
                    self.topics[topic].view.welcome(others)
            case Resize(topic, size):
                if topic in self.topics:
                    self.topics[topic].view.resize(size)
            case Unreachable(node):
                for topic in self.topics:
                    self._forget(topic, node, now)

    def _receive(self, sender: NodeId, message: Message, now: TimeMs) -> Iterator[Effect]:
        membership = self.topics.get(message.topic)
        if membership is None:
            if self.config.mode == "repairing" and isinstance(message, CollectWalk | Keep):
                yield SendToNode(sender, NotMember(message.topic))
            return
        match message:
            case CollectWalk():
                yield from self._walk(membership, sender, message, now)
            case CollectReply():
                self._reply(membership, message)
            case _ if self.config.mode == "repairing":
                yield from self._repair(membership, sender, message, now)

    def _subscribe(self, cause: JoinTopic) -> Iterator[Effect]:
        if cause.topic in self.topics:
            return
        weigh = self.weigh(cause.topic)
        self.topics[cause.topic] = StanTopic(
            OverlayView(self.node, cause.size, weigh, cause.others),
            Keeper(
                self.node,
                weigh,
                self.config.patience_periods * self.config.period_ms,
                number=self.requests,
            ),
        )
        yield from self._changes(cause.topic, ())

    def _unsubscribe(self, topic: Topic) -> None:
        """Forget the topic, but not its numbers: old answers and releases may be on the way."""
        if membership := self.topics.pop(topic, None):
            self.requests = max(self.requests, membership.keeper.number)

    def weigh(self, topic: Topic) -> Weigh:
        """Algorithm 1: the same function in every topic, which aligns the overlays."""
        return partial(weight, hashing=self.config.hashing)

    # -- Algorithm 2 -----------------------------------------------------------------------------

    def _tick(self, topic: Topic, now: TimeMs) -> Iterator[Effect]:
        """A1-A4: send a walk to a random id of the view, unless it is empty.

        In repairing mode the ids take turns, in random order, so that a link to a node that is gone
        is noticed within as many periods as the view has ids.
        """
        membership = self.topics[topic]
        membership.view.expire(now)
        if target := self._first_hop(membership.view, now):
            yield SendToNode(target[0], CollectWalk(topic, self.node, (), self.config.ttl))
        elif membership.view.size:
            yield Stranded(topic)
        if self.config.mode == "repairing":
            drawn = self._random(membership.view.ids)
            asked = membership.keeper.tick(now, drawn[0] if drawn else None)
            yield from self._keep(topic, asked)

    def _walk(
        self, membership: StanTopic, sender: NodeId, walk: CollectWalk, now: TimeMs
    ) -> Iterator[Effect]:
        """A5-A13; then, in repairing mode, learn from the visit."""
        view = membership.view
        if len(walk.collected) > self.config.collected_limit:
            return
        collected = tuple(sorted({*walk.collected, self.node, *view.ids}))
        ttl = min(walk.ttl, self.config.ttl)  # no peer sends us on an endless walk
        if ttl > 0 and (target := self._random(view.ids)):
            yield SendToNode(target[0], CollectWalk(walk.topic, walk.source, collected, ttl - 1))
        else:
            yield SendToNode(walk.source, CollectReply(walk.topic, collected))
        if self.config.mode == "repairing":
            view.dig_up(sender)
            view.merge((walk.source,))
            yield from self._keep(walk.topic, membership.keeper.visited_from(sender, now))

    def _reply(self, membership: StanTopic, reply: CollectReply) -> None:
        """A14-A17."""
        if len(reply.collected) <= self.config.collected_limit:
            membership.view.merge(reply.collected)

    def _first_hop(self, view: OverlayView, now: TimeMs) -> tuple[NodeId, ...]:
        if self.config.mode == "faithful":
            return self._random(view.ids)
        target = self._random(view.longest_unprobed())
        view.probed.update(dict.fromkeys(target, now))
        return target

    def _random(self, ids: Sequence[NodeId]) -> tuple[NodeId, ...]:
        """RANDOMNODE (A3, A10), as no or one id: id 0 is a node, too."""
        return (ids[self.choose(len(ids))],) if ids else ()

    # -- repair ----------------------------------------------------------------------------------

    def _repair(
        self, membership: StanTopic, sender: NodeId, message: Message, now: TimeMs
    ) -> Iterator[Effect]:
        view, keeper, topic = membership.view, membership.keeper, message.topic
        match message:
            case Keep(_, number):
                until = now + self.config.lease_periods * self.config.period_ms
                kept = view.pin(sender, until, number)
                yield SendToNode(sender, KeepGranted(topic, number) if kept else KeepRefused(topic))
            case KeepGranted(_, number):
                released = keeper.accepted(sender, number)
                if released is not None:
                    yield SendToNode(released, KeepReleased(topic, keeper.number))
            case KeepRefused():
                keeper.lost(sender)
            case KeepReleased(_, number):
                view.unpin(sender, number)
            case NotMember():
                self._forget(topic, sender, now)

    def _keep(self, topic: Topic, asked: NodeId | None) -> Iterator[Effect]:
        if asked is not None:
            yield SendToNode(asked, Keep(topic, self.topics[topic].keeper.number))

    def _forget(self, topic: Topic, node: NodeId, now: TimeMs) -> None:
        """Remove a node from a topic.  Only views that hold it bury it: burials are few."""
        if self.config.removal and node in self.view(topic):
            until = now + self.config.burial_periods * self.config.period_ms
            self.topics[topic].view.remove(node, until)
        if self.config.mode == "repairing":
            self.topics[topic].keeper.lost(node)

    def _changes(self, topic: Topic, before: tuple[NodeId, ...]) -> Iterator[Effect]:
        ids = self.view(topic)
        if set(ids) != set(before):
            yield ViewChanged(topic, ids)
