"""Link faults: each does what its name says, as often as it was told to."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from cubecast.protocol.port import Stream, Time
from cubecast.sim.faults import Faults, Hold, Partition
from cubecast.sim.networks import SendingQueue, ServiceRate, Uniform
from support.listeners import Note, Room

HOP = 10
MANY = 10_000


def arrivals(copies: int, **options: Any) -> tuple[list[Time], Faults]:
    """When `copies` messages, all sent at 0, arrive."""
    faults = Faults(Random(7), **options)
    room = Room(2, SendingQueue(HOP, faults=faults))
    for number in range(copies):
        room.control(0, 0, 1, str(number))
    return [now for now, _, _ in room.heard()[1]], faults


def within(count: int, probability: float, trials: int = MANY) -> bool:
    """Whether a count is within five standard deviations of what is expected."""
    spread = (trials * probability * (1 - probability)) ** 0.5
    return abs(count - trials * probability) < 5 * spread


def test_no_faults_is_a_plain_link() -> None:
    times, faults = arrivals(100)
    assert times == [HOP] * 100
    assert (faults.lost, faults.duplicated) == (0, 0)


def test_loss() -> None:
    times, faults = arrivals(MANY, loss=0.2)
    assert len(times) + faults.lost == MANY
    assert within(faults.lost, 0.2)


def test_duplicates() -> None:
    times, faults = arrivals(MANY, duplicate=0.1)
    assert len(times) == MANY + faults.duplicated
    assert within(faults.duplicated, 0.1)


def test_a_lost_message_is_not_duplicated() -> None:
    times, faults = arrivals(MANY, loss=0.5, duplicate=0.5)
    assert len(times) == MANY - faults.lost + faults.duplicated
    assert within(faults.duplicated, 0.25)


def test_reordering_holds_back_by_up_to_a_bound() -> None:
    times, _ = arrivals(MANY, reorder=0.3, reorder_by=40)
    late = [time - HOP for time in times if time > HOP]
    assert len(times) == MANY
    assert within(len(late), 0.3)
    assert (min(late), max(late)) == (1, 40)


def test_spikes_are_of_one_size() -> None:
    times, _ = arrivals(MANY, spike=0.02, spike_by=500)
    counts = Counter(times)
    assert set(counts) == {HOP, HOP + 500}
    assert within(counts[HOP + 500], 0.02)


def test_the_same_seed_makes_the_same_faults() -> None:
    options = {"loss": 0.2, "duplicate": 0.1, "reorder": 0.3, "spike": 0.02}
    assert arrivals(500, **options)[0] == arrivals(500, **options)[0]


# Partitions


def test_a_partition_cuts_exactly_its_time() -> None:
    faults = Faults(Random(0), partitions=(Partition(20, 30, 0b01),))
    room = Room(2, Uniform(Random(0), HOP, HOP, faults=faults))
    for at in range(50):
        room.control(at, 0, 1, str(at))
        room.control(at, 1, 0, str(at))
    through = [str(at) for at in range(50) if not 20 <= at < 30]
    at_0, at_1 = room.heard()
    assert [text for _, _, text in at_0] == [text for _, _, text in at_1] == through
    assert faults.lost == 20


def test_a_partition_cuts_exactly_its_links() -> None:
    faults = Faults(Random(0), partitions=(Partition(0, 100, 0b0110),))
    room = Room(4, Uniform(Random(0), HOP, HOP, faults=faults))
    for source in range(4):
        room.relay(5, source, [peer for peer in range(4) if peer != source], "m")
    heard = [[sender for _, sender, _ in at_node] for at_node in room.heard()]
    assert heard == [[3], [2], [1], [0]]


def test_two_partitions_cut_together() -> None:
    cuts = (Partition(0, 20, 0b001), Partition(10, 30, 0b010))
    room = Room(3, Uniform(Random(0), HOP, HOP, faults=Faults(Random(0), partitions=cuts)))
    for at in (5, 15, 25, 35):
        room.relay(at, 2, [0, 1], str(at))
    assert [[text for _, _, text in at_node] for at_node in room.heard()[:2]] == [
        ["25", "35"],
        ["5", "35"],
    ]


def test_a_queued_copy_is_cut_when_it_leaves_not_when_it_is_queued() -> None:
    faults = Faults(Random(0), partitions=(Partition(2, 4, 0b1),))
    room = Room(2, SendingQueue(HOP, faults=faults))
    room.relay(0, 0, [1] * 6, "m")  # leave at 0 … 5
    assert [now for now, _, _ in room.heard()[1]] == [10, 11, 14, 15]


def test_a_message_under_way_when_a_partition_begins_arrives() -> None:
    faults = Faults(Random(0), partitions=(Partition(5, 100, 0b1),))
    room = Room(2, SendingQueue(HOP, faults=faults))
    room.control(4, 0, 1, "m")
    assert room.heard()[1] == [(14, 0, "m")]


# Holds


def held(hold: Hold) -> list[tuple[Time, str]]:
    faults = Faults(Random(0), holds=(hold,))
    room = Room(3, SendingQueue(HOP, faults=faults))
    for at in range(3):
        room.control(at, 0, 1, f"0 to 1, {at}")
    room.control(0, 1, 0, "back")
    room.control(0, 0, 2, "aside")
    return sorted((now, text) for at_node in room.heard() for now, _, text in at_node)


def test_a_hold_slows_one_direction_of_one_link() -> None:
    assert held(Hold(0, 1, 500, "note")) == [
        (10, "aside"),
        (10, "back"),
        (510, "0 to 1, 0"),
        (511, "0 to 1, 1"),
        (512, "0 to 1, 2"),
    ]


def test_a_hold_is_for_one_kind() -> None:
    assert max(held(Hold(0, 1, 500, "pub")))[0] == 12


def test_the_nth_match_counts_from_0() -> None:
    assert [entry for entry in held(Hold(0, 1, 500, "note", nth=1)) if entry[0] > 100] == [
        (511, "0 to 1, 1")
    ]


def test_a_hold_for_one_publisher() -> None:
    class Pub(Note):
        stream = Stream(4, 0)

    hold = Hold(0, 1, 500, "note", publisher=4)
    assert hold.matches(0, 1, Pub("m"))
    assert not hold.matches(0, 1, Note("m"))  # has no publisher
    assert not Hold(0, 1, 500, "note", publisher=5).matches(0, 1, Pub("m"))


def test_late_messages_wait_for_service_too() -> None:
    faults = Faults(Random(0), holds=(Hold(0, 1, 5, "note", nth=0),))
    room = Room(2, ServiceRate(Random(0), HOP, HOP, faults=faults))
    for at in (0, 5):
        room.control(at, 0, 1, str(at))
    assert room.heard()[1] == [(15, 0, "0"), (16, 0, "5")]
