"""The production protocol, one claim per test, on a small world with fixed delays.

Random runs are in test_storms.py and all interleavings in test_explorer.py; here are the rules a
reader would look for by name.
"""

from __future__ import annotations

from random import Random

import pytest

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import NodeId, Stream
from cubecast.sim.faults import Faults, Hold, Partition
from cubecast.sim.networks import SendingQueue
from cubecast.sim.world import World
from cubecast.trace import Record, check

TOPIC = "t"


class Stage:
    """A world of production nodes with a trace and short words for what tests do."""

    def __init__(
        self,
        nodes: int,
        members: list[NodeId],
        *,
        window: int = 8,
        ack_pause: int = 0,
        **faults: object,
    ) -> None:
        self.records: list[Record] = []
        config = Config(
            window=window, ack_delay=5, ack_pause=ack_pause, stable_delay=100, resend_after=1000
        )
        self.world = World(
            nodes,
            lambda node, port: CubecastNode(node, port, cluster=(1 << nodes) - 1, config=config),
            SendingQueue(10, faults=Faults(Random(0), **faults) if faults else None),  # type: ignore[arg-type]
            trace=self.records,
        )
        self.world.establish(TOPIC, members)

    def at(self, time: int, act: str, node: NodeId) -> None:
        self.world.post(time, lambda a, b, now: getattr(self.world, act)(node, TOPIC))

    def settle(self) -> None:
        self.world.run(until=1_000_000)
        self.world.record_state()
        report = check(self.records)
        assert report.ok, report.violations[:3]
        assert report.gaps == report.discards == 0

    def delivered(self, node: NodeId) -> list[int | str | None]:
        return [r.id for r in self.records if r.kind == "deliver" and r.node == node]

    def time_of(self, kind: str, node: NodeId) -> int:
        return next(r.time for r in self.records if r.kind == kind and r.node == node)

    def process(self, node: NodeId) -> CubecastNode:
        process = self.world.processes[node]
        assert isinstance(process, CubecastNode)
        return process

    def kept(self) -> int:
        return sum(sum(process.load()[:2]) for process in self.world.processes)


def test_everyone_delivers_and_then_everyone_forgets() -> None:
    stage = Stage(8, list(range(8)))
    for time in range(0, 100, 10):
        stage.at(time, "publish", 3)
    stage.settle()
    assert all(stage.delivered(node) == list(range(10)) for node in range(8))
    assert stage.kept() == 0


def test_a_publisher_need_not_subscribe() -> None:
    stage = Stage(4, [0, 1])
    stage.at(0, "publish", 3)
    stage.settle()
    assert stage.delivered(0) == stage.delivered(1) == [0]
    assert stage.delivered(3) == []


def test_an_outsider_sends_nothing_before_its_wave_is_complete() -> None:
    """Its first publication waits for a round trip through all nodes; the second does not."""
    stage = Stage(4, [0, 1])
    stage.at(0, "publish", 3)
    stage.at(500, "publish", 3)
    stage.settle()
    first, second = (r.time for r in stage.records if r.kind == "deliver" and r.node == 1)
    assert first == 2 * 2 * 10 + 10  # two hops down, two up, one to node 1
    assert second == 500 + 10


def test_a_newcomer_gets_everything_published_after_subscribe_returned() -> None:
    stage = Stage(8, [0, 1, 2])
    stage.at(50, "subscribe", 7)
    for time in range(0, 300, 7):
        stage.at(time, "publish", time % 3)
    stage.settle()
    joined = stage.time_of("join", 7)
    late = [r.id for r in stage.records if r.kind == "publish" and r.time > joined]
    assert len(late) > 10
    assert set(late) <= set(stage.delivered(7))


def test_a_newcomer_gets_nothing_at_or_below_its_cut() -> None:
    stage = Stage(4, [0, 1])
    stage.at(0, "publish", 0)
    stage.at(200, "subscribe", 3)
    stage.at(500, "publish", 0)
    stage.settle()
    assert stage.delivered(3) == [1]


def test_a_message_published_while_the_newcomer_joins_is_a_matter_of_the_cut_alone() -> None:
    """Delivered or not, but by both rules at once: no hole, no violation."""
    for delay in range(0, 60, 3):
        stage = Stage(4, [0, 1, 2])
        stage.at(100, "subscribe", 3)
        for time in range(90 + delay, 160 + delay, 5):
            stage.at(time, "publish", time // 5 % 3)
        stage.settle()


def test_a_leaver_delivers_nothing_more_and_goes_on_relaying() -> None:
    """Node 4 is between node 0 and nodes 5 to 7 when it leaves."""
    stage = Stage(8, list(range(8)))
    for time in range(0, 100, 5):
        stage.at(time, "publish", 0)
    stage.at(33, "unsubscribe", 4)
    stage.settle()
    assert stage.delivered(7) == list(range(20))
    assert len(stage.delivered(4)) < 20
    last = max(r.time for r in stage.records if r.kind == "deliver" and r.node == 4)
    assert last <= 33


def test_leaving_and_coming_back_at_once() -> None:
    stage = Stage(4, [0, 1, 2])
    for time in range(0, 600, 5):
        stage.at(time, "publish", time // 5 % 2)
    stage.at(100, "unsubscribe", 2)
    stage.at(101, "subscribe", 2)
    stage.at(102, "unsubscribe", 2)
    stage.at(103, "subscribe", 2)
    stage.settle()
    assert stage.delivered(2)[-1] == 119


def test_a_message_lost_on_its_way_is_asked_for_and_sent_again() -> None:
    stage = Stage(4, [0, 1, 2, 3], partitions=(Partition(0, 5, 0b0100),))
    stage.at(0, "publish", 0)  # cut off from node 2, which is to pass it to node 3
    stage.settle()
    assert stage.delivered(2) == stage.delivered(3) == [0]
    assert stage.world.meter.messages["probe"] > 0


def test_nothing_is_sent_again_if_nothing_is_lost() -> None:
    stage = Stage(8, list(range(8)), window=64)
    for time in range(0, 500, 5):
        stage.at(time, "publish", time // 5 % 8)
    stage.settle()
    assert stage.world.meter.messages["pub"] == 100 * 7
    assert stage.world.meter.messages["probe"] == 0


def test_a_slow_child_is_asked_but_not_sent_what_it_has() -> None:
    """The ACK is late, not the message: the probe's answer says so."""
    stage = Stage(2, [0, 1], holds=(Hold(1, 0, 3000, kind="ack", nth=0),))
    stage.at(0, "publish", 0)
    stage.settle()
    assert stage.world.meter.messages["probe"] >= 1
    assert stage.world.meter.messages["pub"] == 1


def test_the_window_bounds_what_is_on_its_way() -> None:
    stage = Stage(4, [0, 1, 2, 3], window=3)
    for _ in range(20):
        stage.at(0, "publish", 0)
    stage.world.run(until=1_000_000)
    sent = [r for r in stage.records if r.kind == "deliver" and r.node == 0]
    assert len({r.time for r in sent[:3]}) == 1  # three at once, then as ACKs come in
    assert sent[3].time > sent[2].time
    assert stage.delivered(3) == list(range(20))


def acks_of_light_traffic(ack_pause: int) -> int:
    stage = Stage(8, list(range(8)), window=1000, ack_pause=ack_pause)
    for time in range(0, 10_000, 100):
        stage.at(time, "publish", 0)
    stage.settle()
    assert all(stage.delivered(node) == list(range(100)) for node in range(8))
    assert stage.kept() == 0
    return stage.world.meter.messages["ack"]


def test_in_light_traffic_acknowledgements_keep_a_pause() -> None:
    assert acks_of_light_traffic(ack_pause=500) < acks_of_light_traffic(ack_pause=0) / 3


def end_of_heavy_traffic(ack_pause: int) -> int:
    stage = Stage(8, list(range(8)), window=32, ack_pause=ack_pause)
    for _ in range(1000):
        stage.at(0, "publish", 0)
    stage.settle()
    assert stage.delivered(7) == list(range(1000))
    return max(r.time for r in stage.records if r.kind == "deliver")


def test_a_publisher_that_waits_for_credit_does_not_wait_for_the_pause() -> None:
    assert end_of_heavy_traffic(ack_pause=500) < 1.1 * end_of_heavy_traffic(ack_pause=0)


def test_a_pause_changes_nothing_but_the_number_of_acknowledgements() -> None:
    """Loss, joins and leaves with acknowledgements that keep a long pause."""
    stage = Stage(8, [0, 1, 2, 3, 4], window=16, ack_pause=300, loss=0.1)
    for time in range(0, 3000, 20):
        stage.at(time, "publish", time // 20 % 3)
    stage.at(500, "subscribe", 6)
    stage.at(900, "unsubscribe", 4)
    stage.settle()
    assert len(stage.delivered(1)) == 150
    assert stage.kept() == 0


def test_a_frame_larger_than_the_window_travels_alone() -> None:
    stage = Stage(2, [0, 1], window=3)
    stage.world.publish(0, TOPIC, size=10)
    stage.world.publish(0, TOPIC, size=1)
    stage.world.run()
    assert stage.delivered(1) == [0, 1]


def test_a_partition_delays_and_loses_nothing() -> None:
    stage = Stage(8, list(range(8)), partitions=(Partition(0, 20_000, 0b11110000),))
    for time in range(0, 200, 10):
        stage.at(time, "publish", time // 10 % 8)
    stage.settle()
    assert all(len(stage.delivered(node)) == 20 for node in range(8))


def test_a_barrier_names_direct_causes_only() -> None:
    """[J] Figure 2: m(1,1) depends on m(0,1); m(1,2) on m(2,1), its own last one being implied."""
    barriers: dict[tuple[int, int], dict[Stream, int]] = {}

    class Spy(CubecastNode):
        def on_message(self, message, sender, now):  # type: ignore[no-untyped-def]
            if message.kind == "pub":
                barriers[message.stream.source, message.first] = dict(message.barrier)
            super().on_message(message, sender, now)

    world = World(3, lambda node, port: Spy(node, port, cluster=0b111), SendingQueue(10), trace=[])
    world.establish(TOPIC, [0, 1, 2])
    world.publish(0, TOPIC)
    world.post(50, lambda a, b, now: world.publish(1, TOPIC))
    world.post(51, lambda a, b, now: world.publish(2, TOPIC))
    world.post(100, lambda a, b, now: world.publish(1, TOPIC))
    world.run()
    zero, two = Stream(0, 0), Stream(2, 0)
    assert barriers == {
        (0, 0): {},
        (1, 0): {zero: 0},
        (2, 0): {zero: 0},
        (1, 1): {two: 0},
    }


def test_a_message_that_waits_is_explained() -> None:
    """An answer and its question are here, but not what came before the question."""
    node = Stage(3, [0, 1, 2]).process(2)
    route = Route(0, 0, 0b111)
    answer = Frame(TOPIC, Stream(1, 0), 0, ((Stream(0, 0), 1),), route, -1, ("answer",), 1)
    question = Frame(TOPIC, Stream(0, 0), 1, (), route, -1, ("question",), 1)
    node.on_message(answer, 1, 100)
    node.on_message(question, 0, 200)
    node.on_message(answer, 1, 300)  # a copy changes nothing
    facts = node.explain(TOPIC, 350)
    assert facts["waiting"] == [
        {
            "stream": "1.0",
            "seq": 0,
            "for_stream": "0.0",
            "for_seq": 1,
            "delivered": -1,
            "waited": 250,
        }
    ]
    assert facts["missing"] == {"0.0": 0}
    assert facts["held"] == 2


def test_of_several_causes_the_first_that_is_missing_is_explained() -> None:
    node = Stage(4, [0, 1, 2, 3]).process(3)
    causes = (Stream(0, 0), 0), (Stream(1, 0), 5)
    answer = Frame(TOPIC, Stream(2, 0), 0, causes, Route(0, 0, 0b1111), -1, ("answer",), 1)
    node.on_message(answer, 2, 100)
    waiting = node.explain(TOPIC, 200)["waiting"]
    assert isinstance(waiting, list)
    assert [(one["for_stream"], one["for_seq"]) for one in waiting] == [("0.0", 0)]


def test_of_a_topic_that_was_never_used_nothing_is_under_way() -> None:
    node = Stage(3, [0, 1, 2]).process(2)
    assert (node.next_seq("another"), node.stable_seq("another")) == (0, -1)


def test_one_node_alone() -> None:
    stage = Stage(1, [])
    stage.at(0, "publish", 0)
    stage.at(1, "subscribe", 0)
    stage.at(2, "publish", 0)
    stage.settle()
    assert stage.delivered(0) == [1]
    assert stage.kept() == 0


def test_a_node_outside_its_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="node 3 is not in its own cluster"):
        CubecastNode(3, port=None, cluster=0b111)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("window", 0), ("ack_delay", -1), ("resend_max", 10)])
def test_bounds_that_make_no_sense_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field):
        Config(**{field: value})
