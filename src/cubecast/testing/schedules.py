"""Schedules of the simulator on live nodes in memory: the same generator, the same checkers.

    async with Cluster(3) as cluster:
        await play(cluster, draw_eventful(17, 3))
        cluster.check()

A schedule's events at nodes and links happen to the nodes of a cluster; its applications publish,
subscribe and follow through the public interface.  A unit of the schedule's time is `scale`
milliseconds, as live nodes are more patient than simulated ones.  A pause, which a node in this
process cannot have, is a cut of all its links.  Of the random faults of links there are loss and
reordering.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from cubecast.chaos.plan import plan_of
from cubecast.chaos.schedule import ApplicationStep, Schedule
from cubecast.errors import CubecastError, NoAnswer, NotSent
from cubecast.net.links.faults import Rule
from cubecast.net.message import Message
from cubecast.net.node.node import Node
from cubecast.net.reading.subscription import Subscription
from cubecast.net.wire.headers import RESERVED
from cubecast.protocol.port import NodeId, Stream, Time
from cubecast.testing.cluster import Cluster
from cubecast.topology import members_of

SCALE = 4.0
JITTER_S = 0.03
LAST_TOPICS = 4

Deed = Callable[[], Awaitable[None] | None]


async def play(cluster: Cluster, schedule: Schedule, scale: float = SCALE) -> None:
    """Carry a schedule out, end all faults, let every node publish once more, and settle.

    The cluster has the schedule's nodes that are there at the beginning, named from 0 on.
    """
    player = _Player(cluster, schedule, scale)
    try:
        await player.perform()
    finally:
        await player.stop()


class _Player:
    def __init__(self, cluster: Cluster, schedule: Schedule, scale: float) -> None:
        self.cluster = cluster
        self.schedule = schedule
        self.plan = plan_of(schedule)
        self.unit_s = scale / 1000
        self.readers: dict[tuple[NodeId, str], Subscription] = {}
        self.wanted: dict[NodeId, dict[str, bool]] = {node: {} for node in range(schedule.nodes)}
        """The topics that each application wants, and whether it is lossy in them."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.findings: list[AssertionError] = []
        self.closing: set[NodeId] = set()
        self.beginning: set[NodeId] = set()

    # -- the course of things --------------------------------------------------------------------

    async def perform(self) -> None:
        links = self.schedule.links
        jitter = JITTER_S if links.get("reorder") else 0.0
        if links.get("loss") or jitter:
            self.cluster.on_every_link(Rule(loss=links.get("loss", 0.0), jitter_s=jitter))
        for topic, nodes in self.schedule.members().items():
            for node in nodes:
                await self._subscribe(node, topic)
        start = self.cluster.time
        for at, deed in sorted(self._deeds(), key=lambda one: one[0]):
            wait = start + at * self.unit_s - self.cluster.time
            if wait > 0:
                await asyncio.sleep(wait)
            self._spawn(deed)
        await asyncio.sleep(max(0.0, start + self.plan.length * self.unit_s - self.cluster.time))
        self.cluster.heal()
        await self._calm()
        for place, speaker in self.cluster.places.items():
            for topic in [one for one in self.wanted[place] if not _wild(one)][:LAST_TOPICS]:
                self._spawn(partial(self._publish, speaker, topic, 1))
        await self._calm()

    async def _calm(self) -> None:
        """Everything that was begun is done, and nothing is on its way."""
        while busy := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*busy, return_exceptions=True)
        for task in self.tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self.tasks.clear()
        await self.cluster.settle()
        if self.findings:
            raise self.findings[0]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _spawn(self, deed: Deed) -> None:
        doing = deed()
        if doing is not None:
            self.tasks.add(asyncio.ensure_future(self._forgiving(doing)))

    async def _forgiving(self, doing: Awaitable[None]) -> None:
        """A node that ends in the middle of something says so; that is no finding."""
        with suppress(CubecastError, asyncio.CancelledError):
            await doing

    # -- what happens ----------------------------------------------------------------------------

    def _deeds(self) -> list[tuple[Time, Deed]]:
        plan, found = self.plan, list[tuple[Time, Deed]]()
        for at, node, begins in plan.deaths:
            gone = self._leave if (at, node) in plan.leaves else self._kill
            found.append((at, partial(self._begin if begins else gone, node)))
        everyone = (1 << self.schedule.nodes) - 1
        cuts = [(cut.start, cut.end, cut.sources, cut.peers) for cut in plan.cuts]
        for pause in plan.pauses:
            me = 1 << pause.node
            cuts.append((pause.start, pause.end, me, everyone & ~me))
            cuts.append((pause.start, pause.end, everyone & ~me, me))
        for start, end, sources, peers in cuts:
            found.append((start, partial(self._cut, sources, peers, True)))
            found.append((end, partial(self._cut, sources, peers, False)))
        for step in self.schedule.steps:
            found.append((self.schedule.time(step.at), partial(self._step, step)))
        return found

    def _kill(self, place: NodeId) -> None:
        if place in self.cluster.places and place not in self.closing:
            self.cluster.kill(place)
            self._forget_readers(place)

    async def _leave(self, place: NodeId) -> None:
        if place in self.cluster.places and place not in self.closing:
            self.closing.add(place)
            self.wanted[place].clear()
            self._forget_readers(place)
            await self.cluster.shrink(place)
            self.closing.discard(place)

    async def _begin(self, place: NodeId) -> None:
        while place in self.closing:
            await asyncio.sleep(1.0)
        if place in self.cluster.places or place in self.beginning:
            return
        self.beginning.add(place)
        await self.cluster.begin(place)
        self.beginning.discard(place)
        for topic, lossy in list(self.wanted[place].items()):
            await self._subscribe(place, topic, lossy)

    def _forget_readers(self, place: NodeId) -> None:
        for key in [key for key in self.readers if key[0] == place]:
            del self.readers[key]

    def _cut(self, sources: int, peers: int, cut: bool) -> None:
        """Nothing passes from the one set to the other, or does so again."""
        places = self.cluster.places
        for one in members_of(sources):
            for other in members_of(peers):
                if one != other and one in places and other in places:
                    self.cluster.hinder(one, other, cut)

    # -- applications ----------------------------------------------------------------------------

    def _step(self, step: ApplicationStep) -> Awaitable[None] | None:
        node = self.cluster.places.get(step.node)
        if node is None or step.node in self.closing:
            return None
        topic = step.topic or next(iter(self.schedule.members()))
        match step.act:
            case "publish" | "burst" | "batch":
                return self._publish(node, topic, step.count)
            case "retain":
                return node.publish(topic, "0", headers=_headers(0), retain=True)
            case "remove":
                return node.publish(topic, "", retain=True)
            case "subscribe" | "follow" if topic not in self.wanted[step.node]:
                return self._subscribe(step.node, topic, step.lossy)
            case "unsubscribe" | "unfollow":
                return self._unsubscribe(step.node, topic)
        return None

    async def _publish(self, node: Node, topic: str, count: int) -> None:
        """Publish numbers; every third has a header that says the same, every fourth is retained.

        After several, ask.
        """
        for number in range(count):
            retain = number % 4 == 0
            await node.publish(topic, str(number), headers=_headers(number), retain=retain)
        if count > 1:
            with suppress(NoAnswer, NotSent):  # there may be no reader, and nodes die
                answer = await node.request(topic, str(count), headers=_headers(count), timeout=5)
                assert answer.payload == str(count).encode(), answer

    async def _subscribe(self, place: NodeId, topic: str, lossy: bool = False) -> None:
        self.wanted[place][topic] = lossy
        node = self.cluster.places[place]
        subscription = node.subscribe(topic, policy="drop-oldest" if lossy else "block")
        await subscription.__aenter__()
        if self.cluster.places.get(place) is node and topic in self.wanted[place]:
            self.readers[place, topic] = subscription
            reading = asyncio.ensure_future(self._read(subscription))
            reading.add_done_callback(self._note_finding)
        else:
            await subscription.close()

    def _note_finding(self, reading: asyncio.Task[None]) -> None:
        """A reader ended: with its node, or because it read what it should not have."""
        error = None if reading.cancelled() else reading.exception()
        if isinstance(error, AssertionError):
            self.findings.append(error)

    async def _read(self, subscription: Subscription) -> None:
        handed: dict[tuple[str, Stream], int] = {}  # the retained value of each stream
        async for message in subscription:
            expected = _headers(int(message.payload)) if message.payload else {}
            assert _set_by_applications(message) == expected, message
            assert message.payload or not message.retained, f"it says that there is none: {message}"
            stream = message.topic, message.frame.stream
            if message.retained:
                handed[stream] = message.seq
            else:
                assert message.seq > handed.get(stream, -1), f"after its successor: {message}"
            if message.wants_reply:
                await message.reply(message.payload)

    async def _unsubscribe(self, place: NodeId, topic: str) -> None:
        self.wanted[place].pop(topic, None)
        subscription = self.readers.pop((place, topic), None)
        if subscription is not None:
            await subscription.close()


def _headers(number: int) -> dict[str, str]:
    return {"number": str(number)} if number % 3 == 0 else {}


def _set_by_applications(message: Message) -> dict[str, str]:
    return {name: value for name, value in message.headers.items() if name[0] != RESERVED}


def _wild(topic: str) -> bool:
    return bool({"+", "#"} & set(topic.split("/")))
