"""What does a change of the cluster cost, by the number of nodes?

Simulated, every message encoded and decoded as on the wire: a node of N joins, another leaves,
another crashes.  Counted are messages and bytes by kind, without those of the failure detector,
from the event until a while in which nodes say nothing but tests; and the processor time of all
nodes together, codec included, less what as long a quiet time costs.  ``--publishers`` first lets
every node subscribe to one topic and publish one message there: they are idle publishers, whose
streams are settled, so that a crash leaves nothing to repair.

``--grow N`` lets a cluster of live nodes in memory grow one by one instead, and prints processor
time and bytes written at each power of two.

    python bench/bench_views.py --nodes 8,32,128,512,1000
    python bench/bench_views.py --nodes 8,32,128,512 --publishers
    python bench/bench_views.py --grow 256
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from random import Random
from typing import Any, cast

from cubecast.net.wire.packets import (
    FrameDecoder,
    OutgoingFrame,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    topic_id,
)
from cubecast.net.wire.views import decode_detector, decode_view, encode_detector, encode_view
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.detector import DetectorConfig, DetectorMessage
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Clusterwide, Who, genesis
from cubecast.protocol.config import Config
from cubecast.protocol.messages import Ack, Frame
from cubecast.protocol.port import MemberPort, Message, NodeId, Port, Process
from cubecast.sim.crashes.convergence import run_until
from cubecast.sim.crashes.mortal_world import MessageInFlight, MortalWorld
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.testing import Cluster, run
from cubecast.testing.memory import MemoryTransport

TOPIC = "bench/views"
PAYLOAD = b"x" * 100
ROUND_TRIP = 40
STEP = 4 * ROUND_TRIP
"""A run is looked at this often."""
MOST_STEPS = 200
LIMIT_S = 1e7
"""Of virtual time, for the live nodes."""


class Tally:
    """Messages and bytes by kind, without those of the detector."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def clear(self) -> None:
        self.messages.clear()
        self.bytes.clear()


class WireNetwork(Uniform):
    """Every message crosses the wire format: encoded once per copy (frames once for all)."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(Random("views"), ROUND_TRIP // 4, ROUND_TRIP // 2)
        self._tally = tally
        self._frames = FrameDecoder()
        self._topics = {topic_id(TOPIC): TOPIC}

    def relay(self, source: NodeId, peers: Sequence[NodeId], message: Message) -> None:
        frame = copy(cast(MessageInFlight, message).message)
        assert isinstance(frame, Frame)
        frame.body = OutgoingFrame([PAYLOAD], 0)
        raw = encode_frame(frame)
        for peer in peers:
            self._frames.decode(raw, self._topics)
            self._count("pub", raw)
            super().control(source, peer, message)

    def control(self, source: NodeId, peer: NodeId, message: Message) -> None:
        said = cast(MessageInFlight, message).message
        if isinstance(said, DetectorMessage):
            decode_detector(encode_detector(said))
        elif isinstance(said, Ack):
            raw = encode_ack(said)
            decode_ack(raw, self._topics)
            self._count(said.kind, raw)
        elif isinstance(said, Clusterwide):
            raw = encode_view(said)
            decode_view(raw)
            self._count(said.kind, raw)
        else:
            raw = encode_control(cast(Any, said))
            decode_control(raw)
            self._count(said.kind, raw)
        super().control(source, peer, message)

    def _count(self, kind: str, raw: bytes) -> None:
        self._tally.messages[kind] += 1
        self._tally.bytes[kind] += len(raw)


def _address(node: NodeId) -> str:
    """As long as one on a network; in a simulated world nodes are where their number says."""
    return f"{node:015}"


def _who(node: NodeId, life: int) -> Who:
    """Names as long as those of live nodes."""
    uid = f"{Random(f'{node}/{life}').getrandbits(128):032x}"
    return Who(uid, _address(node), life << 20)


def world_of(nodes: int, tally: Tally) -> MortalWorld:
    """A cluster of `nodes`, all in its first view."""
    config: Config = Params(nodes=nodes, network="uniform").config()
    detector = DetectorConfig(STEP, 2 * STEP, 5 * STEP, 10 * STEP)
    epochs = AgreementConfig(3 * STEP, 3 * STEP // 4, 4 * STEP, STEP, 25 * STEP)
    first = genesis({node: _who(node, 0) for node in range(nodes)})

    def make(node: NodeId, port: Port, life: int) -> Process:
        return Member(
            node,
            cast(MemberPort, port),
            view=None if life else first,
            who=_who(node, life),
            config=config,
            epochs=epochs,
            detector=detector,
            seeds=[_address((node + 1) % nodes)] if life else (),
        )

    return MortalWorld(nodes, make, WireNetwork(tally))


class Bench:
    """One cluster, and the events that are measured one after the other."""

    def __init__(self, nodes: int, publishers: bool) -> None:
        self.nodes = nodes
        self.publishers = publishers
        self.tally = Tally()
        self.world = world_of(nodes, self.tally)
        if publishers:
            self.world.establish(TOPIC, range(nodes))
            for node in range(nodes):
                self.world.publish(node, TOPIC)
                run_until(self.world, self.world.now + ROUND_TRIP)
        self._until_quiet()
        begun = time.process_time()
        for _ in range(4):
            self._step()
        self.idle_s = (time.process_time() - begun) / 4

    def _step(self) -> None:
        run_until(self.world, self.world.now + STEP)

    def _until_quiet(self) -> int:
        """Run until all nodes are in one view and send nothing but tests for two steps."""
        quiet = 0
        for steps in range(1, MOST_STEPS + 1):
            before = self.tally.messages.total() - self.tally.messages["beacon"]
            self._step()
            said = self.tally.messages.total() - self.tally.messages["beacon"] - before
            quiet = 0 if said or not self._agreed() else quiet + 1
            if quiet == 2:
                return steps
        raise RuntimeError(f"{self.nodes} nodes are not quiet after {MOST_STEPS} steps")

    def _agreed(self) -> bool:
        mask = sum(1 << node for node in self.world.running())
        return all(
            (view := self.world.views.get(node)) is not None and view[1] == mask
            for node in self.world.running()
        )

    def measure(self, event: str, begin: Callable[[], None]) -> dict[str, Any]:
        """Let something happen, and count what follows."""
        self.tally.clear()
        begun, at = time.process_time(), self.world.now
        begin()
        steps = self._until_quiet()
        cpu = time.process_time() - begun - steps * self.idle_s
        return {
            "nodes": self.nodes,
            "publishers": self.publishers,
            "event": event,
            "messages": self.tally.messages.total(),
            "bytes": self.tally.bytes.total(),
            "cpu_s": cpu,
            "round_trips": (self.world.now - at) // ROUND_TRIP - 2 * STEP // ROUND_TRIP,
            "kinds": {
                kind: [count, self.tally.bytes[kind]]
                for kind, count in self.tally.messages.most_common()
            },
        }

    def crash(self) -> None:
        self.world.crash(self.nodes // 2)

    def join(self) -> None:
        self.world.restart(self.nodes // 2)

    def leave(self) -> None:
        """A node asks to leave; once its departure is agreed, its process ends."""
        node = self.nodes // 2 + 1
        member = cast(Member, self.world.processes[node])
        if self.publishers:
            self.world.unsubscribe(node, TOPIC)
            self._step()
        member.depart(self.world.now)
        for _ in range(MOST_STEPS):
            self._step()
            others = [one for one in self.world.running() if one != node]
            if all(not self.world.views[one][1] >> node & 1 for one in others):
                break
        if self.world.is_up(node):
            self.world.crash(node)


def simulated(sizes: list[int], publishers: bool, cap_s: float) -> list[dict[str, Any]]:
    rows = []
    for nodes in sizes:
        begun = time.process_time()
        bench = Bench(nodes, publishers)
        for event in ("crash", "join", "leave"):
            if time.process_time() - begun > cap_s:
                print(f"{nodes} nodes, {event}: not measured, above the cap", file=sys.stderr)
                continue
            rows.append(bench.measure(event, getattr(bench, event)))
            _say(rows[-1])
    return rows


def _say(row: dict[str, Any]) -> None:
    kinds = ", ".join(
        f"{kind} {count:,} ({size / 1000:,.0f} kB)" for kind, (count, size) in row["kinds"].items()
    )
    who = "idle publishers" if row["publishers"] else "nodes"
    print(
        f"{row['nodes']:>5} {who}, {row['event']:>5}: {row['messages']:>9,} messages, "
        f"{row['bytes'] / 1000:>11,.0f} kB, {row['cpu_s']:7.2f} s of CPU, "
        f"{row['round_trips']} round trips; {kinds}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


# -- live nodes in memory --------------------------------------------------------------------------


class Written:
    """Bytes that all ends of all connections in memory wrote."""

    total = 0
    writes = 0


def count_writes() -> None:
    """Let every connection in memory count what is written to it."""
    write = MemoryTransport.write

    def counted(transport: MemoryTransport, data: bytes) -> None:
        Written.total += len(data)
        Written.writes += 1
        write(transport, data)

    MemoryTransport.write = counted  # type: ignore[method-assign,assignment]


async def grow(most: int, cap_s: float) -> list[dict[str, Any]]:
    """A row at every power of two, and at the end."""
    rows: list[dict[str, Any]] = []
    begun = time.process_time()
    async with Cluster(1, trace=False) as cluster:
        for count in range(2, most + 1):
            await cluster.grow()
            await cluster.settle(600)
            spent = time.process_time() - begun
            if count & (count - 1) == 0 or count == most or spent > cap_s:
                rows.append({
                    "nodes": count, "cpu_s": spent, "bytes": Written.total,
                    "writes": Written.writes, "virtual_s": cluster.time,
                })  # fmt: skip
                print(
                    f"grown to {count:>4} nodes: {spent:8.2f} s of CPU, "
                    f"{Written.total / 1e6:9.2f} MB in {Written.writes:,} writes, "
                    f"{cluster.time:.1f} s of virtual time",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
            if spent > cap_s:
                print(f"stopped at the cap of {cap_s:g} s of CPU", file=sys.stderr)
                break
        for slot in [node.slot for node in cluster.nodes]:
            cluster.kill(slot)  # the cost of leaving is not measured here
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", default="8,32,128")
    parser.add_argument("--publishers", action="store_true", help="all publish to one topic")
    parser.add_argument("--grow", type=int, default=0, help="grow a live cluster to so many")
    parser.add_argument("--cap", type=float, default=120, help="CPU seconds for each size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        sizes = [int(count) for count in options.nodes.split(",")]
    except ValueError:
        parser.error(f"nodes are numbers with commas, not {options.nodes!r}")
    if min(sizes) < 4 or options.grow < 0 or options.cap <= 0:
        parser.error("there are at least 4 nodes, and the cap is positive")
    if options.grow:
        count_writes()
        rows = run(grow(options.grow, options.cap), limit_s=LIMIT_S)
    else:
        rows = simulated(sizes, options.publishers, options.cap)
    if options.json:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
