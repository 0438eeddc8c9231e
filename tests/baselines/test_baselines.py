"""The protocols we compare with: one root per topic, and trees without order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from cubecast.baselines import BestEffort, BrokerTree, FixedTree, SingleRoot
from cubecast.baselines.brokers import broker_ids
from cubecast.protocol.paper.vcube_ps import VCubePS
from cubecast.protocol.port import NodeId, Port, Process, Time, Topic
from cubecast.sim.faults import Faults, Hold
from cubecast.sim.networks import SendingQueue, Uniform
from cubecast.sim.world import NetworkModel, World
from cubecast.trace import Record, Report, answers_before_questions, check

T = "t"
Make = Callable[[NodeId, Port], Process]


def rooted(kind: type[SingleRoot], nodes: int, root: NodeId) -> Make:
    return lambda node, port: kind(node, port, nodes=nodes, root_of=lambda topic: root)


def plain(kind: type[BestEffort] | type[VCubePS], nodes: int) -> Make:
    return lambda node, port: kind(node, port, nodes=nodes)


class Lab:
    """A small world with its trace; `root` is where its trees start, if not at the publisher."""

    def __init__(
        self,
        nodes: int,
        make: Make,
        network: NetworkModel | None = None,
        root: NodeId | None = None,
    ) -> None:
        self.trace: list[Record] = []
        self.world = World(
            nodes,
            make,
            network if network is not None else SendingQueue(100),
            trace=self.trace,
            trace_messages=True,
            root_of=None if root is None else lambda topic: root,
        )

    def at(self, time: Time, node: NodeId, act: str) -> None:
        """Plan ``publish``, ``subscribe`` or ``unsubscribe`` of a node."""

        def do(node: NodeId, _: None, now: Time) -> None:
            getattr(self.world, act)(node, T)

        self.world.post(time, do, node)

    def run(self) -> Report:
        self.world.run()
        self.world.record_state()
        return check(self.trace)

    def where(self, kind: str, message: str = "") -> list[tuple[Time, NodeId]]:
        """(time, node) of all records of a kind."""
        return [(r.time, r.node) for r in self.trace if (r.kind, r.message) == (kind, message)]

    def links(self, message: str) -> list[tuple[NodeId, NodeId]]:
        return [(r.node, r.peer) for r in self.trace if (r.kind, r.message) == ("send", message)]


# -- SRPT-S: [J] section 4 ------------------------------------------------------------------------


def test_srpt_goes_through_the_root_and_its_forwarders() -> None:
    """Root 0, subscribers 3 and 7: the VCube tree of all nodes, less the branches without them."""
    lab = Lab(8, rooted(SingleRoot, 8, 0), root=0)
    lab.world.establish(T, [3, 7])
    lab.at(0, 3, "publish")
    report = lab.run()
    assert report.ok, report
    assert lab.links("delegate") == [(3, 0)]
    assert sorted(lab.links("pub")) == [(0, 2), (0, 4), (2, 3), (4, 6), (6, 7)]
    assert lab.world.meter.false_positives == 3


def test_srpt_publisher_is_a_receiver_like_the_others() -> None:
    """It delivers when the message comes down the tree, and its latency counts ([J] 4)."""
    lab = Lab(8, rooted(SingleRoot, 8, 0), root=0)
    lab.world.establish(T, [3, 7])
    lab.at(0, 3, "publish")
    lab.run()
    # 100 to the root; node 3 is two hops further, node 7 three, and the root sends to 4 after 2.
    assert lab.where("deliver") == [(300, 3), (401, 7)]
    meter = lab.world.meter
    assert (meter.deliveries, meter.own_deliveries) == (2, 0)
    assert (meter.receptions, meter.reception_sum) == (2, 701)


def test_srpt_root_is_left_out_of_the_latency() -> None:
    lab = Lab(4, rooted(SingleRoot, 4, 2), root=2)
    lab.world.establish(T, [0, 2])
    lab.at(0, 0, "publish")
    lab.at(1000, 2, "publish")
    report = lab.run()
    assert report.ok, report
    assert lab.where("deliver") == [(100, 2), (200, 0), (1000, 2), (1100, 0)]
    meter = lab.world.meter
    assert (meter.deliveries, meter.delivery_sum, meter.own_deliveries) == (2, 300, 2)
    assert lab.links("delegate") == [(0, 2)]  # the root needs no delegation


def test_srpt_takes_publications_from_anyone() -> None:
    lab = Lab(8, rooted(SingleRoot, 8, 0), root=0)
    lab.world.establish(T, [7])
    lab.world.register(5, T)
    lab.at(0, 5, "publish")
    assert lab.run().ok
    assert lab.where("deliver") == [(400, 7)]


# -- SRPT-B: [J] 4.6 ------------------------------------------------------------------------------


def brokered(nodes: int, brokers: int, root: NodeId) -> Make:
    return lambda node, port: BrokerTree(
        node, port, nodes=nodes, brokers=brokers, root_of=lambda topic: root
    )


@pytest.mark.parametrize(("brokers", "each"), [(32, 127), (256, 15), (2048, 1)])
def test_brokers_have_equal_numbers_of_subscribers(brokers: int, each: int) -> None:
    """[J] 4.6: 4096 nodes, 127, 15 or 1 subscribers per broker."""
    ids = broker_ids(4096, brokers)
    assert len(ids) == brokers
    assert {end - first - 1 for first, end in pairwise((*ids, 4096))} == {each}


def test_blocks_that_are_not_equal_differ_by_one() -> None:
    ids = broker_ids(23, 5)
    assert {end - first for first, end in pairwise((*ids, 23))} == {4, 5}


def test_brokers_serve_the_tree_first_and_then_their_subscribers() -> None:
    """16 nodes, brokers 0, 4, 8, 12: root 4 sends to 0 and 12, and 12 sends to 8."""
    lab = Lab(16, brokered(16, 4, 4), root=4)
    members = [node for node in range(16) if node % 4]
    lab.world.establish(T, members)
    lab.at(0, 9, "publish")
    report = lab.run()
    assert report.ok, report
    assert lab.links("delegate") == [(9, 4)]
    sent = lab.links("pub")
    assert [peer for node, peer in sent if node == 4] == [0, 12, 5, 6, 7]
    assert [peer for node, peer in sent if node == 12] == [8, 13, 14, 15]
    assert sorted(node for _, node in lab.where("deliver")) == members
    assert lab.world.meter.false_positives == 3  # the other brokers
    # 100 to the root, whose queue serves 5 third; 8 is two hops further, 9 its first subscriber.
    assert (302 - 100, 5) in lab.where("deliver")
    assert (100 + 101 + 100 + 100, 9) in lab.where("deliver")


def test_brokers_without_subscribers_are_left_out() -> None:
    lab = Lab(16, brokered(16, 4, 0), root=0)
    lab.world.establish(T, [1, 13])
    lab.at(0, 1, "publish")
    assert lab.run().ok
    assert sorted(lab.links("pub")) == [(0, 1), (0, 12), (12, 13)]


def test_a_broker_may_subscribe_and_publish() -> None:
    lab = Lab(8, brokered(8, 2, 0), root=0)
    lab.world.establish(T, [0, 4, 5])
    lab.at(0, 4, "publish")
    assert lab.run().ok
    assert lab.where("deliver") == [(100, 0), (200, 4), (300, 5)]


# -- membership at a single root -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SingleRoot, FixedTree])
def test_the_root_keeps_the_membership(kind: type[SingleRoot]) -> None:
    """A join or leave is one message to the root and its answer; others are not told."""
    lab = Lab(8, rooted(kind, 8, 1), root=1)
    lab.world.establish(T, [3])
    lab.at(0, 6, "subscribe")
    lab.at(500, 3, "publish")
    lab.at(2000, 6, "unsubscribe")
    lab.at(3000, 3, "publish")
    report = lab.run()
    assert report.ok, report
    assert lab.links("sub") == [(6, 1)]
    assert lab.links("uns") == [(6, 1)]
    assert lab.links("ack") == [(1, 6), (1, 6)]
    assert (200, 6) in lab.where("join")
    assert [node for _, node in lab.where("deliver")].count(6) == 1


@pytest.mark.parametrize("kind", [SingleRoot, FixedTree])
def test_the_root_can_join_its_own_topic(kind: type[SingleRoot]) -> None:
    lab = Lab(4, rooted(kind, 4, 0), root=0)
    lab.world.establish(T, [2])
    lab.at(0, 0, "subscribe")
    lab.at(10, 2, "publish")
    lab.at(400, 0, "unsubscribe")
    lab.at(500, 2, "publish")
    report = lab.run()
    assert report.ok, report
    assert lab.where("deliver") == [(110, 0), (210, 2), (700, 2)]
    assert lab.links("sub") == lab.links("uns") == []


def test_operations_that_overtake_each_other_end_with_the_later_one() -> None:
    """Node 3's join takes 500 u.t. more and reaches the root after its leave."""
    network = SendingQueue(100, faults=Faults(Random(0), holds=(Hold(3, 0, 500, "sub"),)))
    lab = Lab(4, rooted(SingleRoot, 4, 0), network, root=0)
    lab.world.establish(T, [1])
    lab.at(0, 3, "subscribe")
    lab.at(10, 3, "unsubscribe")
    lab.at(1000, 1, "publish")
    report = lab.run()
    assert report.ok, report
    assert [peer for _, peer in lab.links("pub")] == [1]


def test_a_publication_before_the_answer_of_the_root_waits_for_it() -> None:
    """The answer to node 3's join is slow: the publication that overtakes it is kept."""
    network = SendingQueue(100, faults=Faults(Random(0), holds=(Hold(0, 3, 500, "ack"),)))
    lab = Lab(4, rooted(SingleRoot, 4, 0), network, root=0)
    lab.world.establish(T, [1])
    lab.at(0, 3, "subscribe")
    lab.at(100, 1, "publish")
    report = lab.run()
    assert report.ok, report
    assert (700, 3) in lab.where("join")
    assert (700, 3) in lab.where("deliver")


# -- the fixed tree: [B] section 6 ----------------------------------------------------------------


def test_fixed_tree_has_no_forwarders() -> None:
    """The same root for every publisher, and a tree of the subscribers alone."""
    lab = Lab(8, rooted(FixedTree, 8, 0), root=0)
    lab.world.establish(T, [3, 6, 7])
    lab.at(0, 3, "publish")
    lab.at(1000, 7, "publish")
    report = lab.run()
    assert report.ok, report
    assert sorted(lab.links("pub")) == sorted([(0, 3), (0, 6), (6, 7)] * 2)
    assert lab.world.meter.false_positives == 0


class Echo:
    """Node `who` answers the first message it delivers."""

    def __init__(self, who: NodeId) -> None:
        self.who = who
        self.question: int | None = None

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        if self.question is None and node == self.who:
            self.question = ident
            world.publish(node, topic, reply_to=(ident,))

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """No node joins."""


def slow_question(make: Make, root: NodeId | None, slow: Hold) -> Lab:
    """Node 0 asks, node 1 answers; the question is slow on one link on its way to node 3."""
    network = SendingQueue(100, faults=Faults(Random(0), holds=(slow,)))
    lab = Lab(4, make, network, root=root)
    lab.world.application = Echo(1)
    lab.world.establish(T, [0, 1, 2, 3])
    lab.at(0, 0, "publish")
    return lab


SLOW_FOR_THE_QUESTION = Hold(2, 3, 5000, "pub", publisher=0)


def test_best_effort_shows_an_answer_before_its_question() -> None:
    lab = slow_question(plain(BestEffort, 4), None, SLOW_FOR_THE_QUESTION)
    report = lab.run()
    assert report.counts["causal-order"] == 1
    assert answers_before_questions(lab.trace).inverted == 1


def test_vcube_ps_does_not() -> None:
    lab = slow_question(plain(VCubePS, 4), None, SLOW_FOR_THE_QUESTION)
    report = lab.run()
    assert report.ok, report
    assert answers_before_questions(lab.trace).pairs == 4
    assert answers_before_questions(lab.trace).inverted == 0


@pytest.mark.parametrize(("kind", "inverted"), [(SingleRoot, 1), (FixedTree, 0)])
def test_one_root_does_not_order_but_barriers_do(kind: type[SingleRoot], inverted: int) -> None:
    """Both go down the same tree, 2 → 3 in the end; only the question's copy is slow there."""
    lab = slow_question(rooted(kind, 4, 0), 0, SLOW_FOR_THE_QUESTION)
    report = lab.run()
    assert answers_before_questions(lab.trace).inverted == inverted
    assert report.counts["causal-order"] == inverted
    assert report.counts["completeness"] == 0


def churning(lab: Lab, seed: int, nodes: int) -> None:
    """Publications, joins and leaves; a node joins again only some time after it left."""
    rng = Random(seed)
    world = lab.world
    members = sorted(rng.sample(range(nodes), nodes // 2))
    world.establish(T, members)
    free_at = [0] * nodes

    def act(node: NodeId, _: None, now: Time) -> None:
        if world.is_subscribed(node, T):
            if rng.random() < 0.15:
                world.unsubscribe(node, T)
                free_at[node] = now + rng.randrange(300)
            else:
                world.publish(node, T)
        elif now >= free_at[node]:
            world.subscribe(node, T)
            free_at[node] = 1 << 60

    at = 0
    for _ in range(200):
        at += rng.randrange(40)
        world.post(at, act, rng.randrange(nodes))


@pytest.mark.parametrize("seed", range(20))
def test_fixed_tree_is_causal_whatever_overtakes_what(seed: int) -> None:
    """One root makes it easy: its order is causally closed, so newcomers get a sound cut."""
    nodes = 8 if seed % 2 else 16
    lab = Lab(nodes, rooted(FixedTree, nodes, seed % nodes), Uniform(Random(seed), 1, 400))
    churning(lab, seed, nodes)
    report = lab.run()
    assert report.ok, report
    assert report.deliveries > 300
    assert all(process.load().held == 0 for process in lab.world.processes)


def test_srpt_loses_nothing_but_the_order() -> None:
    counts = {"causal-order": 0, "fifo": 0}
    for seed in range(10):
        lab = Lab(8, rooted(SingleRoot, 8, 0), Uniform(Random(seed), 1, 400))
        churning(lab, seed, 8)
        report = lab.run()
        for broken in counts:
            counts[broken] += report.counts[broken]
        assert report.counts["no-duplication"] == report.counts["membership"] == 0
        assert report.counts["quiescence"] == 0
    assert min(counts.values()) > 0


# -- best effort ----------------------------------------------------------------------------------


def test_best_effort_takes_the_trees_of_vcube_ps() -> None:
    links = []
    for kind in (BestEffort, VCubePS):
        lab = Lab(8, plain(kind, 8))
        lab.world.establish(T, [0, 2, 3, 5, 7])  # [J] Figure 3, right
        lab.at(0, 2, "publish")
        report = lab.run()
        assert report.ok, report
        links.append(lab.links("pub"))
    assert links[0] == links[1] == [(2, 3), (2, 0), (2, 7), (7, 5)]


def test_best_effort_sends_at_once_and_acknowledges_nothing() -> None:
    lab = Lab(4, plain(BestEffort, 4))
    lab.world.establish(T, [0, 1, 2, 3])
    for _ in range(3):
        lab.at(0, 0, "publish")
    assert lab.run().ok
    assert lab.links("ack") == []
    assert max(lab.where("deliver")) == (205, 3)  # the sixth copy leaves node 0 at 5


def test_best_effort_newcomer_is_known_to_all_when_it_has_joined() -> None:
    lab = Lab(8, plain(BestEffort, 8))
    lab.world.establish(T, [1, 6])
    lab.at(0, 4, "subscribe")
    lab.at(1000, 1, "publish")
    lab.at(1500, 4, "publish")
    lab.at(2000, 6, "unsubscribe")
    lab.at(3000, 4, "publish")
    report = lab.run()
    assert report.ok, report
    assert len(lab.links("sub")) == len(lab.links("ack")) == 7
    assert sorted(peer for _, peer in lab.links("uns")) == [1, 4]
    assert report.deliveries == 3 + 3 + 2


def test_two_best_effort_newcomers_learn_of_each_other() -> None:
    lab = Lab(8, plain(BestEffort, 8))
    lab.at(0, 2, "subscribe")
    lab.at(0, 5, "subscribe")
    lab.at(1000, 2, "publish")
    lab.at(1000, 5, "publish")
    report = lab.run()
    assert report.ok, report
    assert report.deliveries == 4


def test_only_subscribers_publish_best_effort() -> None:
    lab = Lab(4, plain(BestEffort, 4))
    lab.world.establish(T, [0, 1])
    with pytest.raises(ValueError, match="node 2 cannot publish on 't': it is not subscribed"):
        lab.world.publish(2, T)
    with pytest.raises(ValueError, match="no open groups"):
        lab.world.register(2, T)


@pytest.mark.parametrize("make", [plain(BestEffort, 1), rooted(SingleRoot, 1, 0)])
def test_a_lone_node_subscribes_publishes_and_leaves(make: Make) -> None:
    lab = Lab(1, make)
    lab.at(0, 0, "subscribe")
    lab.at(1, 0, "publish")
    lab.at(2, 0, "unsubscribe")
    assert lab.run().ok
    assert lab.where("join") == [(0, 0)]
    assert lab.where("deliver") == [(1, 0)]
