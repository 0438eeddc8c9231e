"""Lies of a member: well-typed messages that mean nothing, and the bounds they meet."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from cubecast.net.clock import wall_us
from cubecast.net.message import RETAIN
from cubecast.net.node.value_keeper import MAX_AHEAD_US, MAX_VALUE
from cubecast.net.wire.headers import pack
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Direct,
    Frame,
    Op,
    Parcel,
    ParcelAck,
    Probe,
    Release,
    Route,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import NodeId, Stream
from cubecast.protocol.subscriptions import links, waves
from cubecast.protocol.topic import guard, stream_table
from cubecast.protocol.topic.retained_values import RetainedValue

LIAR = 3
HONEST = (0, 1, 2)
ATTACKED, QUIET = "attacked", "quiet"
HUGE = (1 << 62) - 1
WINDOW = 64


class Liar:
    """Makes up messages; knows the state of its victim better than any attacker could.

    `nodes` are all nodes by slot, `lives` their incarnations, `heard` what the liar's own node has
    said in earnest.
    """

    def __init__(
        self,
        random: Random,
        nodes: dict[NodeId, CubecastNode],
        lives: dict[NodeId, int],
        heard: Sequence[Any],
    ) -> None:
        self.random = random
        self.nodes = nodes
        self.lives = lives
        self.heard = heard

    def lie(self, victim: NodeId) -> Any:
        random = self.random
        match random.randrange(11):
            case 0 | 1 | 2 | 3:
                return self.frame(victim)
            case 4 | 5:
                return self.ack()
            case 6:
                return self.changed()
            case 7:
                return Probe(self.topic(), self.stream(), self.number() & 0xFFFFFFFF)
            case 8:
                return ParcelAck(self.number())
            case 9:
                return self.direct(victim)
            case _:
                expected = self.nodes[victim]._links._link(LIAR).expected
                number = random.choice([expected, expected, expected + 1, self.number()])
                return Parcel(number, self.carried())

    def changed(self) -> Any:
        """Something that node 3 did send, with one field that is another's."""
        said = [one for one in self.heard if getattr(one, "topic", "") == ATTACKED]
        if not said:
            return ParcelAck(0)
        one = self.random.choice(said)
        if isinstance(one, Frame):
            values = {name: getattr(one, name) for name in one.__slots__ if name != "last"}
            other = self.frame(self.random.choice(HONEST))
            name = self.random.choice(["stream", "first", "barrier", "route", "stable", "size"])
            values[name] = getattr(other, name)
            values["stable"] = min(values["stable"], values["first"] - 1)
            return Frame(**values)
        if isinstance(one, Ack):
            values = {name: getattr(one, name) for name in one.__slots__}
            values["have"] = max(values["covered"], self.number())
            return Ack(**values)
        return one

    def frame(self, victim: NodeId) -> Frame:
        random = self.random
        core = self.nodes[victim]._cores[ATTACKED]
        stream = self.stream()
        inbox = core.streams.inboxes.get(stream)
        first = self.number()
        number = random.choice([0, 0, 0, 1, 2, random.getrandbits(32)])
        if inbox is not None and inbox.branch is not None and random.random() < 0.7:
            first = inbox.branch.have + random.choice([1, 1, 1, 1, 2, 5])
            if random.random() < 0.8:
                number = inbox.branch.route.number
        start = random.choice([0, first, max(0, first - 3)])
        stable = random.choice([-1, first - 1, max(-1, first - 4)])
        members = random.choice([0b1111, 0b1111, 1 << victim, random.getrandbits(6), 1 << 8191])
        leaves = random.choice([0, 0, 0, members & random.getrandbits(4)])
        size = random.choice([1, 1, 1, 7, WINDOW, 5 * WINDOW])
        barrier = tuple(
            (self.stream(), self.number()) for _ in range(random.choice([0, 0, 0, 1, 3]))
        )
        body = ("lie",) * random.choice([1, 1, 1, 3])
        route = Route(number, start, members, leaves)
        return Frame(self.topic(), stream, first, barrier, route, stable, body, size)

    def direct(self, victim: NodeId) -> Direct:
        """A tree given up; often one of ours that the victim knows."""
        stream = self.stream()
        inbox = self.nodes[victim]._cores[ATTACKED].streams.inboxes.get(stream)
        number, start = self.random.choice([0, 1, 1 << 31]), self.number()
        if inbox is not None and inbox.branch is not None and self.random.random() < 0.7:
            number, start = inbox.branch.route.number, inbox.branch.route.start
        last = start + self.random.choice([0, 1, 5, 100])
        stable = self.random.choice([-1, start - 1, last - 1, self.number()])
        return Direct(self.topic(), stream, number, start, last, stable)

    def ack(self) -> Ack:
        covered = self.number() - 1
        have = max(covered, self.number() - 1)
        absent = self.random.getrandbits(5)
        route = self.random.choice([0, 0, 1, 2, 1 << 31])
        asked = self.random.random() < 0.5
        slow = self.random.choice([0, self.random.getrandbits(5), 1 << 8191])
        return Ack(self.topic(), self.stream(), route, have, covered, absent, asked, slow)

    def carried(self) -> Any:
        random = self.random
        origin = random.choice([0, 1, 2, 3, 3, 3, 4, 8191])
        mask = random.choice([0b1111, 0b1111, 0b1111, random.getrandbits(5), 1 << 8191])
        match random.randrange(7):
            case 0:
                return Stable(
                    self.topic(),
                    self.stream(),
                    random.choice([0, 1, self.number() & 0xFFFFFFFF]),
                    self.number(),
                    self.number(),
                    random.choice([mask, 0]),
                )
            case 1:
                return Release(self.topic(), self.stream())
            case 3:
                route = random.choice([0, 1, 2, 3, 1 << 31])
                return Suspended(self.topic(), self.stream(), route)
            case 2:
                vector = tuple((self.stream(), self.number()) for _ in range(random.randrange(5)))
                named = tuple((self.topic(), mask) for _ in range(random.choice([0, 0, 3])))
                lossy = random.getrandbits(4)
                answer = Answer(self.topic(), origin, self.number(), vector, mask, lossy, named)
                return msgspec.structs.replace(answer, kept=self.value())
            case _:
                lossy = random.random() < 0.5
                op = random.choice(list(Op))
                return Wave(self.topic(), origin, self.number(), op, mask, lossy)

    def value(self) -> RetainedValue | None:
        """A retained value: none, an old one, one from the future, a large one, none at all."""
        random = self.random
        payload = random.choice([b"lie", b"", bytes(MAX_VALUE - 100), bytes(2 * MAX_VALUE)])
        headers = {random.choice([RETAIN, RETAIN, RETAIN, "kind"]): ""}
        time = random.choice([0, 1, 5, random.randrange(200), wall_us() + 2 * MAX_AHEAD_US, HUGE])
        stream = self.stream()
        lie = RetainedValue(*stream, self.number(), time, bytes(pack(headers, payload)))
        if random.random() < 0.1:
            lie = msgspec.structs.replace(lie, blob=random.randbytes(random.randrange(9)))
        return random.choice([lie, lie, lie, None])

    def topic(self) -> str:
        return self.random.choice([ATTACKED, ATTACKED, ATTACKED, f"made up {self.number()}"])

    def stream(self) -> Stream:
        source = self.random.choice([0, 1, 2, 3, 3, 3, 5])
        life = self.lives.get(source, 0)
        return Stream(source, self.random.choice([life, life, life, self.number()]))

    def number(self) -> int:
        return self.random.choice(
            [0, 1, 2, 3, self.random.randrange(40), self.random.randrange(5000), HUGE]
        )


def check_bounds(node: CubecastNode) -> None:
    """Every container of a node is within what docs/guarantees.md states."""
    assert set(node._cores) == {ATTACKED, QUIET}
    for core in node._cores.values():
        assert len(core.streams.inboxes) <= core.context.view.max_open
        assert len(core.streams.floor) + len(core.streams.inboxes) <= guard.MAX_STREAMS
        assert len(core.streams.lost_routes) <= guard.MAX_STREAMS
        assert len(core.front.delivered) <= guard.MAX_STREAMS
        assert len(core.front.frontier) <= guard.MAX_STREAMS
        assert len(core.queue.dirty) <= len(core.streams.inboxes)
        assert len(core.guard.dropped) < 10
        assert len(core.streams._trees) <= stream_table.REMEMBERED_TREES
        branches = sum(len(inbox.branches) + 1 for inbox in core.streams.inboxes.values())
        assert len(core.repair.unacked) <= branches
        for inbox in core.streams.inboxes.values():
            assert inbox.size() <= inbox.kept
            assert inbox.kept <= core.context.config.room or len(inbox.frames) == 1
            if inbox.stream != core.outgoing.own:
                assert len(inbox.branches) <= guard.MAX_BRANCHES
            for branch in inbox.branches.values():
                assert len(branch.early) <= core.context.config.room
                assert len(branch.children) <= 13
    for link in node._links._links.values():
        assert len(link.early) <= links.MAX_EARLY_PARCELS
        assert link.early_weight <= links.MAX_EARLY_WEIGHT
    assert node.pending_waves() <= 2 * waves.MAX_WAVES
    open_values = [one.kept for one in node._waves.waiting if one.kept is not None]
    assert node._waves.values_bytes == sum(len(kept.blob) for kept in open_values)
