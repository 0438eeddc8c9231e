"""A world for failure detectors alone: which node detects what, when, and at what cost.

Events are handled in order of time, then of their making, so a run is determined by its inputs.
`delay(source, destination)` says how long a message travels, or None if it is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec

from cubecast.protocol.cluster.detector import Detector, DetectorConfig
from cubecast.protocol.port import Message, NodeId, Time
from cubecast.topology import members_of

Delay: TypeAlias = Callable[[NodeId, NodeId], Time | None]


class Detection:
    """Detectors of `members` on simulated time."""

    def __init__(
        self,
        config: DetectorConfig,
        members: int,
        delay: Delay,
        *,
        make: type[Detector] = Detector,
        start: Callable[[NodeId], Time] = lambda node: 0,
        weigh: bool = False,
    ) -> None:
        self.config = config
        self.delay = delay
        self.now: Time = 0
        self.nodes: dict[NodeId, Detector] = {}
        """Detectors that run, without the crashed ones."""
        self.sent: Counter[str] = Counter()
        """Messages by kind since the counter was last cleared."""
        self.bytes = 0
        """Their encoded size, if this world was told to `weigh` them."""
        self.changes: list[tuple[Time, NodeId, int]] = []
        """(time, observing node, its suspects), as `on_change` reported."""
        self.news: list[tuple[Time, NodeId, NodeId, tuple[str, ...]]] = []
        """(time, receiving node, source node, news), as `on_news` reported."""
        self._make = make
        self._weigh = weigh
        self._lives: Counter[NodeId] = Counter()
        self._due: dict[NodeId, Time] = {}
        self._paused: dict[NodeId, Time] = {}
        self._queue: list[tuple[Time, int, NodeId, NodeId, int, Message | None]] = []
        self._made = 0
        for node in members_of(members):
            self._begin(node, members, start(node))

    # -- what happens to nodes -------------------------------------------------------------------

    def crash(self, nodes: Iterable[NodeId]) -> None:
        """Stop nodes at once; their messages that are under way still arrive."""
        for node in nodes:
            del self.nodes[node]
            self._lives[node] += 1

    def start(self, nodes: Iterable[NodeId], members: int, view: int = 0) -> None:
        """Begin processes that know nothing but the members."""
        for node in nodes:
            self._begin(node, members, self.now, view)

    def pause(self, node: NodeId, until: Time) -> None:
        """Suspend `node` until `until`; messages and wakes wait for it."""
        self._paused[node] = until

    def resume(self) -> None:
        """End all pauses; what waited for a node still comes when its pause was to end."""
        self._paused.clear()

    def _begin(self, node: NodeId, members: int, at: Time, view: int = 0) -> None:
        def send(peer: NodeId, message: Message) -> None:
            self._transmit(node, peer, message)

        def changed(suspects: int, now: Time) -> None:
            self.changes.append((now, node, suspects))

        def told(source: NodeId, news: tuple[str, ...], now: Time) -> None:
            self.news.append((now, node, source, news))

        self._due.pop(node, None)
        self.nodes[node] = self._make(
            node,
            members,
            self.config,
            send,
            lambda when: self._wake(node, when),
            at,
            incarnation=self._lives[node],
            view=view,
            on_change=changed,
            on_news=told,
        )

    # -- time ------------------------------------------------------------------------------------

    def run(self, until: Time) -> None:
        """Handle everything that happens before `until`."""
        queue = self._queue
        while queue and queue[0][0] < until:
            self.now, made, node, sender, life, message = heappop(queue)
            detector = self.nodes.get(node)
            if detector is None or (message is None and life != self._lives[node]):
                continue
            if self._paused.get(node, 0) > self.now:
                heappush(queue, (self._paused[node], made, node, sender, life, message))
            elif message is not None:
                detector.on_message(message, sender, self.now)
            elif self._due.get(node) is not None and self._due[node] <= self.now:
                del self._due[node]
                at = detector.on_wake(self.now)
                if at is not None:
                    self._wake(node, at)
        self.now = until

    def _wake(self, node: NodeId, at: Time) -> None:
        if node in self._due and self._due[node] <= at:
            return
        self._due[node] = at
        self._made += 1
        heappush(self._queue, (at, self._made, node, node, self._lives[node], None))

    def _transmit(self, source: NodeId, destination: NodeId, message: Message) -> None:
        self.sent[message.kind] += 1
        if self._weigh:
            self.bytes += len(msgspec.json.encode(message))
        delay = self.delay(source, destination)
        if delay is not None:
            self._made += 1
            life = self._lives[destination]
            heappush(
                self._queue, (self.now + delay, self._made, destination, source, life, message)
            )

    # -- what is known ---------------------------------------------------------------------------

    def suspects(self) -> dict[NodeId, int]:
        """The suspects of every node that runs."""
        return {node: detector.suspects for node, detector in self.nodes.items()}

    def ignorant(self, crashed: int) -> list[NodeId]:
        """Nodes whose suspects are not exactly the crashed ones."""
        return [node for node, detector in self.nodes.items() if detector.suspects != crashed]

    def check_invariants(self) -> None:
        for detector in self.nodes.values():
            detector.check_invariants()


class Rounds(Detection):
    """The synchronous system of [B]: every message takes 1, rounds begin everywhere at once."""

    def __init__(self, members: int, make: type[Detector] = Detector) -> None:
        config = DetectorConfig.synchronous(round_trip=2)
        super().__init__(config, members, lambda source, destination: 1, make=make)

    def round(self) -> int:
        """Run one round of tests; return how many there were.  Calls between rounds act at once."""
        self.sent.clear()
        self.run(self.now + self.config.test_every)
        return self.sent["test"]

    def rounds_until_known(self, crashed: int, at_most: int) -> int:
        """Rounds until every running node knows the crashed ones; `at_most` + 1 if they do not."""
        for count in range(at_most + 1):
            if not self.ignorant(crashed):
                return count
            if count < at_most:
                self.round()
        return at_most + 1
