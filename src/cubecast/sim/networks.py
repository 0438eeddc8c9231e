"""Network models: when a message arrives.

`SendingQueue` is the model of [J] section 4 and `ServiceRate` that of [B] section 6; `Uniform`
draws a delay per message and so reorders freely, as does `LogNormal`, whose delays have the long
tail of wide-area networks; `Regions` has a latency for every pair of regions.  Each passes its
messages through `Faults` where there are any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappush
from math import log
from random import Random
from typing import Any

from cubecast.protocol.port import Message, NodeId, Time
from cubecast.sim.faults import Faults
from cubecast.sim.world import World


class SendingQueue:
    """[J] 4: one FIFO sending queue per node, one message per u.t., `hop` u.t. of propagation.

    The k-th queued copy leaves k-1 u.t. after the first.  With `queue_acks` false (what the
    paper's figures need, see docs/deviations.md) control messages bypass the queue.
    """

    def __init__(
        self, hop: Time = 100, *, queue_acks: bool = False, faults: Faults | None = None
    ) -> None:
        self.hop = hop
        self.queue_acks = queue_acks
        self.faults = faults
        self._world: World
        self._free: list[Time] = []
        self._queued_sum: list[int] = []
        self._queued: list[int] = []
        self.longest_queue = 0

    def attach(self, world: World) -> None:
        self._world = world
        self._free = [0] * len(world.processes)
        self._queued = [0] * len(world.processes)
        self._queued_sum = [0] * len(world.processes)
        if self.faults is not None:
            self.faults.attach(world)

    def relay(self, source: NodeId, peers: Sequence[NodeId], message: Message) -> None:
        world = self._world
        now = world.now
        leaves = self._free[source]
        if leaves < now:
            leaves = now
        self._sample_queue(source, leaves - now, len(peers))
        at = leaves + self.hop
        self._free[source] = leaves + len(peers)
        if self.faults is not None:
            for peer in peers:
                self.faults.post(at, source, peer, message, at - self.hop)
                at += 1
            return
        buckets = world.buckets
        receivers = world.receivers
        for peer in peers:
            bucket = buckets.get(at)
            if bucket is None:
                bucket = buckets[at] = []
                heappush(world.instants, at)
            bucket.append((receivers[peer], message, source))
            at += 1

    def control(self, source: NodeId, peer: NodeId, message: Message) -> None:
        if self.queue_acks:
            self.relay(source, (peer,), message)
            return
        world = self._world
        at = world.now + self.hop
        if self.faults is not None:
            self.faults.post(at, source, peer, message, world.now)
            return
        bucket = world.buckets.get(at)
        if bucket is None:
            bucket = world.buckets[at] = []
            heappush(world.instants, at)
        bucket.append((world.receivers[peer], message, source))

    def _sample_queue(self, source: NodeId, ahead: int, copies: int) -> None:
        """Queue size is sampled at each enqueue, after insertion (docs/deviations.md)."""
        self._queued[source] += copies
        self._queued_sum[source] += copies * ahead + copies * (copies + 1) // 2
        if ahead + copies > self.longest_queue:
            self.longest_queue = ahead + copies

    def forget_samples(self) -> None:
        """Drop the samples so far: they were the warm-up."""
        self._queued = [0] * len(self._queued)
        self._queued_sum = [0] * len(self._queued_sum)
        self.longest_queue = 0

    def mean_wait(self) -> float:
        """The mean time that a copy waits for those before it, over all copies that were sent."""
        copies = sum(self._queued)
        return sum(self._queued_sum) / copies - 1 if copies else 0.0

    def mean_queues(self) -> list[float]:
        """Mean size of each node's sending queue ([J] Table 1); 0 for a node that sent nothing."""
        return [
            total / count if count else 0.0
            for total, count in zip(self._queued_sum, self._queued, strict=True)
        ]


class ShuffledQueue(SendingQueue):
    """The same queue; the copies of one message are queued in an order drawn anew each time.

    The papers do not say in which order a node serves its children.
    """

    def __init__(
        self,
        rng: Random,
        hop: Time = 100,
        *,
        queue_acks: bool = False,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(hop, queue_acks=queue_acks, faults=faults)
        self._rng = rng

    def relay(self, source: NodeId, peers: Sequence[NodeId], message: Message) -> None:
        super().relay(source, self._rng.sample(peers, len(peers)), message)


class Uniform:
    """A delay drawn anew for each message, low … high inclusive; nothing is ever queued."""

    def __init__(
        self, rng: Random, low: Time = 10, high: Time = 20, *, faults: Faults | None = None
    ) -> None:
        self._rng = rng
        self._low = low
        self._spread = high - low + 1
        self.faults = faults
        self._world: World

    def attach(self, world: World) -> None:
        self._world = world
        if self.faults is not None:
            self.faults.attach(world)

    def relay(self, source: NodeId, peers: Sequence[NodeId], message: Message) -> None:
        for peer in peers:
            self.control(source, peer, message)

    def control(self, source: NodeId, peer: NodeId, message: Message) -> None:
        at = self._world.now + self._delay(source, peer)
        if self.faults is not None:
            self.faults.post(at, source, peer, message, self._world.now)
        else:
            self._arrive(at, source, peer, message)

    def _delay(self, source: NodeId, peer: NodeId) -> Time:
        return self._low + int(self._rng.random() * self._spread)

    def _arrive(self, at: Time, source: NodeId, peer: NodeId, message: Message) -> None:
        self._world.post(at, self._world.receivers[peer], message, source)


class LogNormal(Uniform):
    """A delay per message with a log-normal law: `median` u.t., and a long tail for large `sigma`.

    Nothing is ever queued, and every message takes at least one u.t.
    """

    def __init__(
        self, rng: Random, median: Time, sigma: float, *, faults: Faults | None = None
    ) -> None:
        super().__init__(rng, faults=faults)
        self._mu = log(median)
        self._sigma = sigma

    def _delay(self, source: NodeId, peer: NodeId) -> Time:
        return max(1, round(self._rng.lognormvariate(self._mu, self._sigma)))


class Regions(Uniform):
    """A latency for every pair of regions, always the same; nothing is ever queued.

    Regions hold equal shares of the ids, in order.
    """

    def __init__(
        self, latencies: Sequence[Sequence[Time]], nodes: int, *, faults: Faults | None = None
    ) -> None:
        super().__init__(Random(0), faults=faults)
        self._latencies = latencies
        self._region = [node * len(latencies) // nodes for node in range(nodes)]

    def _delay(self, source: NodeId, peer: NodeId) -> Time:
        return self._latencies[self._region[source]][self._region[peer]]


class ServiceRate(Uniform):
    """[B] 6: hops take U[10, 20] u.t., and a node handles one message per u.t., in order.

    Kinds of messages that are `free` are handled beside that, at no cost.
    """

    def __init__(
        self,
        rng: Random,
        low: Time = 10,
        high: Time = 20,
        *,
        faults: Faults | None = None,
        free: Collection[str] = (),
    ) -> None:
        super().__init__(rng, low, high, faults=faults)
        self._free: list[Time] = []
        self._kinds_free = frozenset(free)

    def attach(self, world: World) -> None:
        super().attach(world)
        self._free = [0] * len(world.processes)
        world.receivers = [
            self.service(node, receive) for node, receive in enumerate(world.receivers)
        ]

    def service(self, node: NodeId, receive: Any) -> Any:
        """Let one message per u.t. through; the rest wait in order of arrival."""
        free = self._free
        world = self._world
        kinds_free = self._kinds_free

        def arrive(message: Message, sender: NodeId, now: Time) -> None:
            turn = free[node]
            if message.kind in kinds_free:
                receive(message, sender, now)
            elif turn <= now:
                free[node] = now + 1
                receive(message, sender, now)
            else:
                free[node] = turn + 1
                world.post(turn, receive, message, sender)

        return arrive
