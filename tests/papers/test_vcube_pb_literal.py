"""VCube-PB beside a deliberately dumb reading of [B] Algorithms 5.2 and 5.3.

`Literal` keeps the pseudocode's sets as sets and walks through them as the listing does, with the
lines mended that docs/deviations.md names.  Both go through the same random schedules of arrivals,
publications, crashes and notices; after every step they have sent and delivered the same.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from cubecast.protocol.paper.vcube_pb import VCubePB
from cubecast.protocol.port import NodeId, Stream
from cubecast.topology import cluster, cluster_members, members_of
from support.paper_wire import Ident, Plug, T
from support.pb_wire import Dead, Wire
from support.printed_pb import ForgetsTheBranch, Line23, Line31, Line40

BOTTOM = -1


class LiteralTree(NamedTuple):
    """⟨TREE, m⟩."""

    source: NodeId
    counter: int
    cb: frozenset[Ident] = frozenset()
    kind: str = "pub"

    @property
    def ident(self) -> Ident:
        return self.source, self.counter

    @property
    def stream(self) -> Stream:
        return Stream(self.source, 0)

    @property
    def first(self) -> int:
        return self.counter


class LiteralAck(NamedTuple):
    """⟨ACK, ⟨s, t, c⟩⟩, of the only topic."""

    ident: Ident
    kind: str = "ack"


class Literal:
    """One process with one topic."""

    def __init__(self, node: NodeId, port: Any, *, nodes: int, top: object) -> None:
        self.i = node
        self.port = port
        self.n = nodes
        self.log_n = (nodes - 1).bit_length()
        self.members: set[NodeId] = set()
        self.faulty: set[NodeId] = set()
        self.counter = 1
        self.queue: list[LiteralTree] = []
        self.acks: set[tuple[NodeId, NodeId, Ident]] = set()
        self.msgs: set[LiteralTree] = set()
        self.recs: list[LiteralTree] = []
        self.delvs: set[Ident] = set()
        self.first_rec: set[Ident] = set()
        self.causal_barrier: set[Ident] = set()

    def establish(self, topic: str, members: int) -> None:
        self.members = set(members_of(members))

    def ff_neighbor(self, s: int) -> NodeId | None:
        return next((j for j in cluster_members(self.i, s) if j in self.members), None)

    def neighborhood(self, h: int) -> list[NodeId]:
        found = [self.ff_neighbor(s) for s in range(1, h + 1)]
        return [j for j in found if j is not None]

    def publish(self, topic: str, body: tuple[object, ...], size: int, now: int) -> bool:
        self.queue.append(LiteralTree(self.i, self.counter))
        self.counter += 1
        self.task()
        return True

    def task(self) -> None:
        while self.queue:
            m = self.queue[0]
            s, c = m.ident
            if s == self.i and any(x == BOTTOM and z == (s, c - 1) for x, _, z in self.acks):
                return
            self.queue.pop(0)
            if s == self.i:
                if all(source != s for source, _ in self.first_rec):
                    self.first_rec.add((s, c))
                self.port.deliver(m)
                self.delvs = self.delvs - {(s, c - 1)} | {(s, c)}
                m = m._replace(cb=frozenset(self.causal_barrier))
                self.msgs.add(m)
                self.causal_barrier = {(s, c)}
            for j in self.neighborhood(self.log_n):
                if (BOTTOM, j, m.ident) not in self.acks:
                    self.acks.add((BOTTOM, j, m.ident))
                    self.port.relay([j], m)

    def on_message(self, m: Any, j: NodeId, now: int) -> None:
        if m.kind == "ack":
            for entry in [e for e in self.acks if e[1:] == (j, m.ident)]:
                self.acks.discard(entry)
                self.check_acks(entry[0], m.ident)
        else:
            self.receive(m, j)

    def receive(self, m: LiteralTree, j: NodeId) -> None:
        s, c = m.ident
        if all(source != s for source, _ in self.first_rec):
            self.first_rec.add((s, c))
        if m not in self.recs and all(source != s or c2 < c for source, c2 in self.delvs):
            self.recs.append(m)
            self.msgs.add(m)
            self.check_recs()
            if s in self.faulty:
                self.queue.append(m)
                self.task()
                return
        for k in self.neighborhood(cluster(self.i, j) - 1):
            if (j, k, m.ident) not in self.acks:
                self.acks.add((j, k, m.ident))
                self.port.relay([k], m)
        self.check_acks(j, m.ident)

    def check_cb(self, cb: frozenset[Ident]) -> bool:
        return all(
            any(s == s2 and c2 >= c for s2, c2 in self.delvs)
            or any(s == s2 and c2 > c for s2, c2 in self.first_rec)
            for s, c in cb
        )

    def check_recs(self) -> None:
        delivered = True
        while delivered:
            delivered = False
            for m in self.recs:
                if self.check_cb(m.cb):
                    self.recs.remove(m)
                    self.delvs.add(m.ident)
                    self.port.deliver(m)
                    self.causal_barrier = self.causal_barrier - m.cb | {m.ident}
                    delivered = True
                    break

    def check_acks(self, j: NodeId, ident: Ident) -> None:
        if any(x == j and z == ident for x, _, z in self.acks):
            return
        if j == BOTTOM:
            self.task()
        elif j in self.members or (j == ident[0] and j not in self.faulty):
            self.port.control(j, LiteralAck(ident))

    def crashed(self, j: NodeId, now: int) -> None:
        self.faulty.add(j)
        self.members.discard(j)
        k = self.ff_neighbor(cluster(self.i, j))
        for entry in list(self.acks):
            x, y, z = entry
            if x != BOTTOM and (z[0] in self.faulty or not (x in self.members or x == z[0])):
                self.acks.discard(entry)
            elif y == j:
                newest = all(m.source != z[0] or m.counter <= z[1] for m in self.msgs)
                m = next(m for m in self.msgs if m.ident == z)
                if k is not None and (x, k, z) not in self.acks and (newest or m in self.recs):
                    self.acks.add((x, k, z))
                    self.port.relay([k], m)
                self.acks.discard(entry)
                self.check_acks(x, z)
        last = max((m for m in self.msgs if m.source == j), key=lambda m: m.counter, default=None)
        if last is not None:
            self.queue.append(last)
            self.task()


Flight = tuple[NodeId, NodeId, str, Ident, tuple[Ident, ...]]


class Pair:
    """The two, on a wire each, in step."""

    def __init__(self, kind: type[VCubePB], nodes: int, members: list[NodeId]) -> None:
        self.wires = [Wire(nodes, members, kind), Wire(nodes, [])]
        literal: Any = [
            Literal(node, Plug(self.wires[1], node), nodes=nodes, top=None) for node in range(nodes)
        ]
        for process in literal:
            process.establish(T, sum(1 << node for node in members))
        self.wires[1].nodes = literal

    def flying(self, wire: Wire) -> list[Flight]:
        """What is under way, whatever the order of sending was."""
        return sorted((a, b, m.kind, m.ident, barrier_of(m)) for a, b, m in wire.flying)

    def assert_same(self) -> None:
        ours, dumb = self.wires
        assert self.flying(ours) == self.flying(dumb)
        assert ours.delivered == dumb.delivered

    def take(self, flight: Flight, arrives: bool) -> None:
        """A message under way arrives, or was never sent."""
        for wire in self.wires:
            for index, (a, b, m) in enumerate(wire.flying):
                if (a, b, m.kind, m.ident, barrier_of(m)) == flight:
                    del wire.flying[index]
                    if arrives:
                        wire.nodes[b].on_message(m, a, 0)
                    break


def barrier_of(message: Any) -> tuple[Ident, ...]:
    if message.kind == "ack":
        return ()
    if isinstance(message, LiteralTree):
        return tuple(sorted(message.cb))
    return tuple(message.cb.idents())


@pytest.mark.parametrize("block", range(5))
def test_they_agree_step_by_step(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        act(VCubePB, Random(f"literal/{seed}"))


@pytest.mark.parametrize("kind", [Line23, Line31, Line40, ForgetsTheBranch])
def test_a_difference_would_be_noticed(kind: type[VCubePB]) -> None:
    with pytest.raises(AssertionError):
        act_all(kind, 200)


def act_all(kind: type[VCubePB], seeds: int) -> None:
    for seed in range(seeds):
        act(kind, Random(f"literal/{seed}"))


def act(kind: type[VCubePB], rng: Random) -> None:
    nodes = rng.choice([3, 4, 5, 8, 8])
    members = sorted(rng.sample(range(nodes), rng.randint(2, nodes)))
    pair = Pair(kind, nodes, members)
    alive = list(range(nodes))
    untold: list[tuple[NodeId, NodeId]] = []
    to_publish, to_crash = rng.randint(2, 12), rng.randint(0, nodes - 2)
    while True:
        flights = pair.flying(pair.wires[0])
        wanted = (
            ["arrive"] * 8 * bool(flights)
            + ["publish"] * 2 * bool(to_publish)
            + ["crash"] * bool(to_crash)
            + ["tell"] * bool(untold)
        )
        if not wanted:
            return
        match rng.choice(wanted):
            case "arrive":
                pair.take(rng.choice(flights), arrives=True)
            case "publish":
                to_publish -= 1
                node = rng.choice(alive)
                for wire in pair.wires:
                    if node in members:
                        wire.publish(node)
            case "crash":
                to_crash -= 1
                dead = alive.pop(rng.randrange(len(alive)))
                untold += [(node, dead) for node in alive]
                untold = [(node, gone) for node, gone in untold if node != dead]
                for flight in flights:  # some of what it sent last was not sent
                    if flight[0] == dead and rng.random() < 0.3:
                        pair.take(flight, arrives=False)
                for wire in pair.wires:
                    silent: Any = Dead()
                    wire.nodes[dead] = silent
            case "tell":
                node, gone = untold.pop(rng.randrange(len(untold)))
                for wire in pair.wires:
                    wire.nodes[node].crashed(gone, 0)
        pair.assert_same()
