"""VCube-PB as published ([B] Algorithms 5.1-5.3), told in small stories.

`Wire` lets a test decide which message arrives next, and when each node is told of a crash.
"""

from __future__ import annotations

from random import Random

import pytest

from cubecast.protocol.paper.vcube_pb import TreeMessage, VCubePB
from cubecast.sim.networks import Uniform
from cubecast.sim.params import Params
from cubecast.sim.protocols import maker
from cubecast.sim.scenarios import publish_at
from cubecast.sim.world import World
from cubecast.trace import Record, check
from support.paper_wire import T
from support.pb_wire import Wire
from support.printed_pb import Line3, Line6, Line16, Line28Of52, Lines38

# [B] 5.3, "Difusão de mensagem": the two examples


def test_the_tree_of_p0_when_all_subscribe() -> None:
    wire = Wire(8, range(8))
    wire.publish(0)
    wire.settle()
    assert wire.links() == [(0, 1), (0, 2), (0, 4), (2, 3), (4, 5), (4, 6), (6, 7)]
    assert all(seen == [(0, 1)] for seen in wire.delivered)


def test_the_tree_of_p2_among_the_subscribers_of_t2() -> None:
    wire = Wire(8, [0, 2, 4, 5, 6])
    wire.publish(2)
    wire.settle()
    assert wire.links() == [(2, 0), (2, 6), (6, 4), (4, 5)]


def test_p6_sends_to_p5_when_p4_crashes() -> None:
    wire = Wire(8, [0, 2, 4, 5, 6])
    wire.publish(2)
    wire.arrive(2, 6)
    wire.crash(4)
    wire.settle()
    assert wire.delivered[5] == []
    wire.tell(4, 6, 5, 2, 0)
    assert wire.links()[-1] == (6, 5)
    wire.settle()
    assert wire.delivered[5] == [(2, 1)]
    wire.publish(2)  # the ACKs of the first are back, round the dead
    wire.settle()
    assert [wire.delivered[node] for node in (0, 2, 5, 6)] == [[(2, 1), (2, 2)]] * 4


def test_the_next_message_waits_for_all_acks() -> None:
    """5.2:16."""
    wire = Wire(4, range(4))
    wire.publish(0)
    wire.publish(0)
    wire.arrive(0, 1)
    wire.arrive(1, 0, "ack")
    assert wire.links() == [(0, 1), (0, 2)]
    wire.settle()
    assert wire.links()[3:] == [(0, 1), (0, 2), (2, 3)]


# [B] Figure 1


def test_the_causal_barriers_of_figure_1() -> None:
    wire = Wire(4, [0, 1, 2])
    wire.publish(0)  # m1
    wire.arrive(0, 1)
    wire.publish(1)  # m3, after m1
    wire.arrive(1, 2)
    assert wire.delivered[2] == []
    wire.publish(2)  # m2, of which m1 is no predecessor
    wire.settle()
    wire.publish(0)  # m4
    barriers = {m.ident: m.cb.idents() for _, _, m in wire.sent if type(m) is TreeMessage}
    assert barriers == {(0, 1): [], (1, 1): [(0, 1)], (2, 1): [], (0, 2): [(1, 1), (2, 1)]}
    wire.settle()
    assert all(seen.index((0, 1)) < seen.index((1, 1)) for seen in wire.delivered[:3])


def test_a_newcomer_skips_what_was_before_its_time() -> None:
    """5.3:3: the first message of p0 that it receives says that it will not have the earlier."""
    wire = Wire(4, [0, 1, 2])
    wire.publish(0)
    wire.settle()
    wire.nodes[3].subscribe(T, 5)
    wire.ring()
    assert wire.joined == [(3, T)]
    wire.publish(0)
    wire.settle()
    assert wire.delivered[3] == [(0, 2)]


def test_the_newcomer_of_figure_1_waits_for_ever() -> None:
    """The text lets p3 deliver m4; 5.3:3 does not, while p1 is silent (hole 1)."""
    wire = Wire(4, [0, 1, 2])
    wire.publish(1)  # m3
    wire.settle()
    wire.nodes[3].subscribe(T, 5)
    wire.ring()
    wire.publish(2)  # m4, after m3
    wire.settle()
    assert wire.delivered[3] == []
    assert wire.nodes[3].load().held == 1


# Publishers outside the group, [B] 3


def test_a_publisher_need_not_subscribe() -> None:
    wire = Wire(8, [1, 2, 6, 7])
    with pytest.raises(ValueError, match="neither subscribed nor registered"):
        wire.publish(5)
    wire.nodes[5].register(T, 3)
    wire.ring()
    wire.publish(5)
    wire.publish(5)
    wire.settle()
    for node in (1, 2, 5, 6, 7):
        assert wire.delivered[node] == [(5, 1), (5, 2)]
    assert wire.delivered[0] == []


def test_a_registration_is_news_with_the_next_round() -> None:
    wire = Wire(4, [0, 1])
    wire.nodes[3].register(T, 3)
    wire.publish(3)  # before: no subscriber is known
    wire.settle()
    assert (wire.links(), wire.delivered[3]) == ([], [(3, 1)])
    wire.ring()
    wire.publish(3)
    assert wire.links() == [(3, 1)]  # one child covers the only cluster with members


def test_a_leaver_is_sent_nothing_after_the_round() -> None:
    wire = Wire(4, range(4))
    wire.nodes[2].unsubscribe(T, 1)
    wire.publish(0)
    assert (0, 2) in wire.links()
    wire.settle()
    wire.ring()
    assert wire.left == [(2, T)]
    wire.publish(0)
    wire.settle()
    assert wire.delivered[2] == [(0, 1)]
    assert wire.delivered[3] == [(0, 1), (0, 2)]


def test_a_node_that_subscribes_again_learns_the_changes_it_missed() -> None:
    wire = Wire(4, range(4))
    wire.nodes[2].unsubscribe(T, 1)
    wire.ring()
    wire.nodes[1].unsubscribe(T, 11)
    wire.ring()
    wire.nodes[2].subscribe(T, 21)
    wire.ring()
    wire.publish(2)
    wire.settle()
    assert [len(seen) for seen in wire.delivered] == [1, 0, 1, 1]


# Crashes


def test_a_publisher_crashes_between_two_copies() -> None:
    """[B] 5.3: everyone who has the message broadcasts it."""
    wire = Wire(8, range(8))
    wire.publish(0)
    wire.arrive(0, 1)
    wire.crash(0)
    wire.flying.clear()  # the copies to 2 and 4 were never sent
    wire.tell(0, *range(1, 8))
    wire.settle()
    assert all(seen == [(0, 1)] for seen in wire.delivered)


def test_a_node_that_gets_the_message_after_the_crash_broadcasts_it_too() -> None:
    """5.2:42-44."""
    wire = Wire(8, [0, 4, 6, 7])
    wire.publish(0)
    wire.arrive(0, 4)
    wire.crash(0)
    wire.tell(0, 4, 6, 7)
    wire.settle()
    assert [wire.delivered[node] for node in (4, 6, 7)] == [[(0, 1)]] * 3


def test_a_broadcast_again_is_not_delivered_again_and_keeps_its_barrier() -> None:
    """Hole 6: 5.2:18-22 are not for the messages of others."""
    wire = Wire(4, range(4))
    wire.publish(0)
    wire.settle()
    wire.publish(1)
    wire.arrive(1, 3)
    wire.crash(1)
    wire.flying.clear()
    wire.tell(1, 0, 2, 3)
    wire.settle()
    assert [wire.delivered[node] for node in (0, 2, 3)] == [[(0, 1), (1, 1)]] * 3
    wire.publish(3)  # what it published last is not forgotten either
    assert wire.sent[-1][2].cb.idents() == [(1, 1)]


@pytest.mark.parametrize("kind", [VCubePB, Line28Of52])
def test_one_ack_answers_two_copies(kind: type[VCubePB]) -> None:
    """12 has the message from 8, which crashes, and again from 0; 14 is still busy with it.

    One ACK comes from 14.  If it answers the copy for 8 alone, as a reading of 5.2:28 has it, 0
    waits for ever.
    """
    wire = Wire(16, [0, 8, 12, 14, 15], kind)
    wire.publish(0)
    wire.publish(0)
    wire.arrive(0, 8)
    wire.arrive(8, 12)
    wire.crash(8)
    wire.arrive(12, 14)
    wire.tell(8, 0)
    wire.arrive(0, 12)
    wire.arrive(12, 14)
    wire.settle()
    wire.tell(8, 12, 14, 15)
    wire.settle()
    sent = {m.ident for _, _, m in wire.sent if type(m) is TreeMessage}
    assert ((0, 2) in sent) == (kind is VCubePB)


def test_the_last_subscriber_crashes() -> None:
    """The publisher outside the group is not kept waiting for its ACK."""
    wire = Wire(4, [2])
    wire.nodes[0].register(T, 1)
    wire.ring()
    wire.publish(0)
    wire.crash(2)
    wire.settle()
    wire.tell(2, 0)
    wire.publish(0)
    assert wire.delivered[0] == [(0, 1), (0, 2)]


@pytest.mark.parametrize("kind", [VCubePB, Lines38])
def test_an_ack_of_a_crashed_node_alone_in_its_cluster_is_not_awaited(kind: type[VCubePB]) -> None:
    """5.3:38-39: its ACK is awaited no longer; inside the `if` of line 34 it is, for ever."""
    wire = Wire(2, [0, 1], kind)
    wire.publish(0)
    wire.publish(0)
    wire.crash(1)
    wire.settle()
    wire.tell(1, 0)
    assert (wire.delivered[0] == [(0, 1), (0, 2)]) == (kind is VCubePB)


@pytest.mark.parametrize("kind", [VCubePB, Line3])
def test_a_newcomer_crashes_before_it_is_announced(kind: type[VCubePB]) -> None:
    """5.2:3: as printed it is a member for good, and its senders wait for ever."""
    wire = Wire(4, [0, 1], kind)
    wire.nodes[2].subscribe(T, 5)
    wire.crash(2)
    wire.tell(2, 0, 1)
    wire.ring()
    wire.publish(0)
    wire.publish(0)
    wire.settle()
    assert (wire.delivered[1] == [(0, 1), (0, 2)]) == (kind is VCubePB)
    assert ((0, 2) in wire.links()) == (kind is Line3)


def test_a_crash_and_a_leave_of_the_same_node_in_either_order() -> None:
    """The second news of it changes nothing."""
    for crash_first in (True, False):
        wire = Wire(8, range(8))
        wire.publish(0)
        wire.nodes[4].unsubscribe(T, 1)
        wire.crash(4)
        alive = [node for node in range(8) if node != 4]
        if crash_first:
            wire.tell(4, *alive)
            wire.ring()
        else:
            wire.ring()
            wire.tell(4, *alive)
        wire.settle()
        wire.publish(0)
        wire.settle()
        assert all(wire.delivered[node] == [(0, 1), (0, 2)] for node in alive)


@pytest.mark.parametrize("kind", [VCubePB, Line6])
def test_several_leave_in_one_round(kind: type[VCubePB]) -> None:
    """4 has not acknowledged and leaves with 5 and 6: 7 alone is sent the message.

    As printed it goes from one leaver to the next (5.2:6), and they deliver it after they left.
    """
    wire = Wire(8, range(8), kind)
    wire.publish(0)
    for node in (4, 5, 6):
        wire.nodes[node].unsubscribe(T, 1)
    wire.flying = [flight for flight in wire.flying if flight[1] != 4]  # it takes its time
    wire.ring()
    round_them = [peer for _, peer in wire.links()[3:]]
    assert round_them == ([7] if kind is VCubePB else [5, 6, 7])
    wire.settle()
    assert wire.delivered[7] == [(0, 1)]
    assert (wire.delivered[5] == []) == (kind is VCubePB)
    wire.publish(0)
    wire.settle()
    assert wire.delivered[7] == wire.delivered[0] == [(0, 1), (0, 2)]


@pytest.mark.parametrize("kind", [VCubePB, Line16])
def test_a_rebroadcast_waits_for_no_ack(kind: type[VCubePB]) -> None:
    """5.2:16, for own messages only.

    1 dies after its first message, and when its second one has reached 3 alone.  0 broadcasts the
    first.  4 has a copy of it from 0 and hears of the crash before its own children have
    acknowledged: it forgets about their ACKs (5.3:31-32) and never sends its own to 0.  If the
    second message waits for that at 0, what 0 publishes itself waits behind it for ever.
    """
    wire = Wire(8, range(8), kind)
    wire.publish(1)
    wire.settle()
    wire.publish(1)
    wire.arrive(1, 3)
    wire.crash(1)
    wire.flying.clear()
    wire.tell(1, 0)
    wire.arrive(0, 4)
    wire.tell(1, 4, 2, 3, 5, 6, 7)
    wire.settle()
    wire.publish(0)
    wire.settle()
    theirs = [(1, 1), (1, 2)]
    for node in (0, 2, 3, 4, 5, 6, 7):
        assert wire.delivered[node] == (theirs if kind is Line16 else [*theirs, (0, 1)])


def test_messages_are_kept_for_acks_and_the_last_one_for_a_crash() -> None:
    wire = Wire(4, range(4))
    for _ in range(3):
        wire.publish(0)
    assert wire.nodes[0].load() == (2, 1, 0)  # two wait for ACKs; one is kept for a crash
    wire.settle()
    assert [process.load() for process in wire.nodes] == [(0, 1, 0)] * 4


# In the simulated world


def test_members_are_told_in_the_round_after_the_call() -> None:
    params = Params(nodes=8)
    trace: list[Record] = []
    network = params.network_for("x")
    world = World(8, maker("vcube-pb", params, "x"), network, trace=trace)
    world.establish(T, [0, 1])
    world.post(250, lambda a, b, now: world.subscribe(5, T))
    world.post(350, lambda a, b, now: world.publish(0, T))
    world.post(450, lambda a, b, now: world.publish(0, T))
    world.run()
    assert params.round_trip() == 200
    assert [r.time for r in trace if r.kind == "join" and r.node == 5] == [400]
    assert [r.id for r in trace if r.kind == "deliver" and r.node == 5] == [1]


def test_nothing_is_wrong_without_crashes() -> None:
    """Everyone publishes while links reorder: every checker is content."""
    for seed in range(20):
        rng = Random(seed)
        nodes = rng.randint(2, 12)
        trace: list[Record] = []
        params = Params(nodes=nodes)
        network = Uniform(Random(f"{seed}/delays"), 1, 100)
        world = World(nodes, maker("vcube-pb", params, "x"), network, trace=trace)
        world.establish(T, range(nodes))
        for _ in range(30):
            publish_at(world, rng.randrange(800), rng.randrange(nodes), T)
        world.run()
        world.record_state()
        assert check(trace).ok
