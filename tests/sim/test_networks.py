"""Network models: when does what a node sends arrive?

The processes here only write down what arrives; the tests send through their ports.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from cubecast.protocol.port import Time
from cubecast.sim.networks import SendingQueue, ServiceRate, ShuffledQueue, Uniform
from cubecast.sim.params import Params
from support.listeners import Note, Room

HOP = 100


# The sending queue ([J] section 4)


def test_the_kth_copy_leaves_k_minus_1_later() -> None:
    room = Room(4, SendingQueue(HOP))
    room.relay(7, 0, [3, 1, 2], "m")
    assert room.heard() == [[], [(108, 0, "m")], [(109, 0, "m")], [(107, 0, "m")]]


def test_a_shuffled_queue_sends_the_same_copies_in_any_order() -> None:
    firsts = set()
    for seed in range(30):
        room = Room(4, ShuffledQueue(Random(seed), HOP))
        room.relay(0, 0, [1, 2, 3], "a")
        room.relay(1, 0, [1], "b")
        heard = room.heard()
        assert sorted(at for one in heard for at, _, message in one if message == "a") == [
            HOP, HOP + 1, HOP + 2,
        ]  # fmt: skip
        assert heard[1][-1] == (HOP + 3, 0, "b")
        firsts.add(next(node for node in (1, 2, 3) if heard[node][0][0] == HOP))
    assert firsts == {1, 2, 3}


def test_a_second_message_waits_behind_the_copies_of_the_first() -> None:
    room = Room(4, SendingQueue(HOP))
    room.relay(0, 0, [1, 2, 3], "a")
    room.relay(1, 0, [1, 2], "b")
    assert room.heard()[1:] == [
        [(100, 0, "a"), (103, 0, "b")],
        [(101, 0, "a"), (104, 0, "b")],
        [(102, 0, "a")],
    ]


def test_an_idle_queue_owes_nothing() -> None:
    room = Room(2, SendingQueue(HOP))
    room.relay(0, 0, [1], "a")
    room.relay(50, 0, [1], "b")
    assert room.heard()[1] == [(100, 0, "a"), (150, 0, "b")]


def test_queues_of_different_nodes_are_independent() -> None:
    room = Room(3, SendingQueue(HOP))
    room.relay(0, 0, [2, 2, 2], "a")
    room.relay(0, 1, [2], "b")
    assert room.heard()[2] == [(100, 0, "a"), (100, 1, "b"), (101, 0, "a"), (102, 0, "a")]


@pytest.mark.parametrize(("queue_acks", "arrival"), [(False, 100), (True, 103)])
def test_control_messages_bypass_the_queue_unless_told_otherwise(
    queue_acks: bool, arrival: Time
) -> None:
    room = Room(5, SendingQueue(HOP, queue_acks=queue_acks))
    room.relay(0, 0, [1, 2, 3], "m")
    room.control(0, 0, 4, "ack")
    assert room.heard()[4] == [(arrival, 0, "ack")]


def test_control_messages_in_the_queue_delay_what_follows() -> None:
    room = Room(2, SendingQueue(HOP, queue_acks=True))
    room.control(0, 0, 1, "ack")
    room.relay(0, 0, [1], "m")
    assert room.heard()[1] == [(100, 0, "ack"), (101, 0, "m")]


def test_queue_sizes_are_sampled_after_each_insertion() -> None:
    network = SendingQueue(HOP)
    room = Room(4, network)
    room.relay(0, 0, [1, 2, 3], "a")  # sizes 1, 2, 3
    room.relay(1, 0, [1], "b")  # two are still there: 3
    room.relay(500, 0, [1], "c")  # 1
    room.heard()
    assert network.longest_queue == 3
    assert network.mean_queues() == [(1 + 2 + 3 + 3 + 1) / 5, 0.0, 0.0, 0.0]


# The service rate ([B] section 6)


def test_a_node_handles_one_message_per_unit_in_order_of_arrival() -> None:
    room = Room(4, ServiceRate(Random(0), 10, 10))
    for source in (2, 0, 1):
        room.control(5, source, 3, f"from {source}")
    room.control(6, 0, 3, "later")
    assert room.heard()[3] == [
        (15, 2, "from 2"),
        (16, 0, "from 0"),
        (17, 1, "from 1"),
        (18, 0, "later"),
    ]


def test_a_rested_node_handles_at_once() -> None:
    room = Room(2, ServiceRate(Random(0), 10, 10))
    for at in (0, 0, 40):
        room.control(at, 0, 1, "m")
    assert [now for now, _, _ in room.heard()[1]] == [10, 11, 50]


def test_some_kinds_of_messages_may_be_free() -> None:
    for free, times in (((), [10, 11, 12]), (("ack",), [10, 10, 11])):
        room = Room(2, ServiceRate(Random(0), 10, 10, free=free))
        for kind in ("note", "ack", "note"):
            room.world.ports[0].control(1, Note("m", kind))
        assert [now for now, _, _ in room.heard()[1]] == times


def test_nodes_serve_independently() -> None:
    room = Room(3, ServiceRate(Random(0), 10, 10))
    room.relay(0, 0, [1, 2], "m")
    assert room.heard()[1:] == [[(10, 0, "m")], [(10, 0, "m")]]


def test_service_keeps_the_order_of_arrival_under_random_delays() -> None:
    """The arrivals without waiting are those of `Uniform` with the same seed."""
    served, free = Room(2, ServiceRate(Random(3), 10, 20)), Room(2, Uniform(Random(3), 10, 20))
    for number in range(200):
        for room in (served, free):
            room.control(number // 4, 0, 1, str(number))
    arrivals, handled = free.heard()[1], served.heard()[1]
    assert [text for _, _, text in handled] == [text for _, _, text in arrivals]
    turns = [now for now, _, _ in handled]
    assert len(set(turns)) == 200  # one per unit of time
    assert all(turn >= now for turn, (now, _, _) in zip(turns, arrivals, strict=True))
    busy_since = arrivals[0][0]
    assert turns == list(range(busy_since, busy_since + 200))  # four a unit arrive: no rest


# Uniform delays


def test_uniform_delays_have_their_bounds_and_every_value_between() -> None:
    room = Room(2, Uniform(Random(1), 10, 20))
    for _ in range(2000):
        room.control(0, 0, 1, "m")
    delays = Counter(now for now, _, _ in room.heard()[1])
    assert sorted(delays) == list(range(10, 21))
    assert all(120 < count < 250 for count in delays.values())  # 182 expected


def test_uniform_reorders() -> None:
    room = Room(2, Uniform(Random(1), 10, 20))
    for number in range(50):
        room.control(0, 0, 1, f"{number:02}")
    texts = [text for _, _, text in room.heard()[1]]
    assert sorted(texts) == [f"{number:02}" for number in range(50)] != texts


def test_uniform_without_a_choice_is_a_constant() -> None:
    room = Room(2, Uniform(Random(1), 0, 0))
    room.control(4, 0, 1, "m")
    assert room.heard()[1] == [(4, 0, "m")]


# Parameters


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("queue", SendingQueue), ("shuffled", ShuffledQueue), ("service", ServiceRate),
        ("uniform", Uniform),
    ],
)  # fmt: skip
def test_a_network_is_made_by_its_name(name: str, kind: type) -> None:
    assert type(Params(network=name).network_for("seed")) is kind


def test_one_seed_one_network() -> None:
    def delays(seed: str) -> list[Time]:
        room = Room(2, Params(network="uniform", low=1, high=1000).network_for(seed))
        for _ in range(20):
            room.control(0, 0, 1, "m")
        return [now for now, _, _ in room.heard()[1]]

    assert delays("a") == delays("a") != delays("b")
