"""The reliable links of control messages, step by step: numbers, repeats, bounds."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cubecast.protocol.errors import (
    MAX_EARLY_PARCELS,
    MAX_EARLY_WEIGHT,
    MAX_UNACKED_WEIGHT,
    ProtocolError,
)
from cubecast.protocol.messages import Answer, Parcel, ParcelAck, Release
from cubecast.protocol.port import NodeId, Port, Stream, Time
from cubecast.protocol.subscriptions.links import Links, weight
from support.ports import CONFIG, Wire

S = Stream(0, 0)


class Side:
    """One node's links."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.links = Links(cast(Port, self.wire), CONFIG)

    def send(self, peer: NodeId, *topics: str, now: Time = 0) -> None:
        for topic in topics:
            self.links.send(peer, Release(topic, S), now)

    def hear(self, number: int, *, sender: NodeId = 1, now: Time = 0, heavy: int = 1) -> list[str]:
        message: Any = Release(f"m{number}", S)
        if heavy > 1:
            message = Answer(f"m{number}", 0, 0, ((S, 0),) * (heavy - 1), 0)
        return [one.topic for one in self.links.on_parcel(Parcel(number, message), sender, now)]

    def numbers(self) -> list[tuple[NodeId, int]]:
        return [
            (peer, message.number)
            for peer, message in self.wire.take()
            if isinstance(message, Parcel)
        ]


# -- sending ---------------------------------------------------------------------------------------


def test_each_peer_has_numbers_of_its_own_and_strangers_are_sent_nothing() -> None:
    side = Side()
    side.links.peers = 0b110
    side.send(1, "a", "b")
    side.send(2, "c")
    side.send(3, "d")
    assert side.numbers() == [(1, 0), (1, 1), (2, 0)]
    assert (side.links.unacked(1), side.links.unacked(3), side.links.unacked()) == (2, 0, 3)


def test_an_unacknowledged_parcel_is_sent_again_at_growing_intervals() -> None:
    side = Side()
    side.send(1, "a", "b", "c", "d")
    side.wire.take()
    assert side.wire.wakes == [100]
    times = []
    for now in range(1, 1500):
        side.links.on_wake(now)
        sent = side.numbers()
        if sent:
            assert sent == [(1, 0), (1, 1), (1, 2)], "no more than a burst"
            times.append(now)
    assert times == [100, 300, 650, 1000, 1350], "100, then 200, then at most 350 later"


def test_progress_begins_the_pauses_anew_and_the_last_acknowledgement_ends_them() -> None:
    side = Side()
    side.send(1, "a", "b")
    side.links.on_wake(100)
    side.wire.take()
    side.links.on_parcel_ack(ParcelAck(1), 1, 150)
    side.links.on_wake(249)
    assert side.numbers() == []
    side.links.on_wake(250)
    assert side.numbers() == [(1, 1)], "100 after the acknowledgement, not 200"
    side.links.on_parcel_ack(ParcelAck(2), 1, 260)
    for now in range(260, 2000):
        side.links.on_wake(now)
    assert side.numbers() == []
    side.send(1, "c", now=2000)
    side.wire.take()
    side.links.on_wake(2099)
    assert side.numbers() == []
    side.links.on_wake(2100)
    assert side.numbers() == [(1, 2)], "its first pause is the first one again"


def test_an_acknowledgement_without_progress_puts_nothing_off() -> None:
    side = Side()
    side.send(1, "a")
    side.wire.take()
    side.links.on_parcel_ack(ParcelAck(0), 1, 90)
    side.links.on_wake(100)
    assert side.numbers() == [(1, 0)]


def test_one_peers_deadline_makes_nothing_of_another_be_sent() -> None:
    side = Side()
    side.send(1, "a", now=0)
    side.send(2, "b", now=60)
    side.wire.take()
    side.links.on_wake(100)
    assert side.numbers() == [(1, 0)]
    assert side.wire.wakes[-1] == 160, "the other's is the next"
    side.links.on_wake(159)
    assert side.numbers() == []
    side.links.on_wake(160)
    assert side.numbers() == [(2, 0)]


def test_an_early_wake_asks_for_the_right_one_again() -> None:
    side = Side()
    side.links.on_wake(5)
    assert side.wire.wakes == [], "nothing is due"
    side.send(1, "a", now=10)
    side.links.on_wake(20)
    assert side.wire.wakes == [110, 110]


def test_an_ack_of_a_parcel_never_sent_is_an_error() -> None:
    side = Side()
    side.send(1, "a")
    with pytest.raises(ProtocolError, match="never sent"):
        side.links.on_parcel_ack(ParcelAck(2), 1, 10)
    side.links.on_parcel_ack(ParcelAck(1), 1, 10)
    assert side.links.unacked() == 0
    side.links.on_parcel_ack(ParcelAck(9), 2, 10)  # to it we said nothing that we remember


def test_a_peer_that_is_forgotten_begins_anew() -> None:
    side = Side()
    side.send(1, "a")
    assert side.hear(0) == ["m0"]
    side.links.forget(1)
    assert side.links.unacked() == 0
    side.wire.take()
    side.send(1, "b")
    assert side.numbers() == [(1, 0)]
    assert side.hear(0) == ["m0"]


# -- receiving -------------------------------------------------------------------------------------


def test_parcels_are_handed_up_in_turn_and_once() -> None:
    side = Side()
    assert side.hear(0) == ["m0"]
    assert side.hear(0) == []
    assert side.hear(2) == []
    assert side.hear(2) == []
    assert side.hear(4) == []
    assert side.hear(1) == ["m1", "m2"]
    assert side.hear(2) == []
    assert side.hear(3) == ["m3", "m4"]
    assert side.hear(5) == ["m5"]


def test_acknowledgements_gather_for_a_quarter_of_the_first_pause() -> None:
    side = Side()
    side.hear(0, now=10)
    side.hear(1, now=20)
    side.hear(3, now=30)
    assert side.wire.wakes == [35]
    side.links.on_wake(34)
    assert side.wire.take() == []
    side.links.on_wake(35)
    assert side.wire.take() == [(1, ParcelAck(2))]
    side.links.on_wake(200)
    assert side.wire.take() == []
    side.hear(0, now=300)
    side.links.on_wake(325)
    assert side.wire.take() == [(1, ParcelAck(2))], "who repeats has not heard of it"


def test_parcels_ahead_of_their_turn_are_kept_up_to_a_distance() -> None:
    side = Side()
    assert side.hear(MAX_EARLY_PARCELS + 1) == []  # too far ahead: to be sent again
    assert side.hear(MAX_EARLY_PARCELS) == []
    for number in range(1, MAX_EARLY_PARCELS):
        side.hear(number)
    ready = side.hear(0)
    assert ready[-1] == f"m{MAX_EARLY_PARCELS}"
    assert side.hear(MAX_EARLY_PARCELS + 1) == [f"m{MAX_EARLY_PARCELS + 1}"]


def test_parcels_ahead_of_their_turn_are_kept_up_to_a_weight() -> None:
    side = Side()
    assert side.hear(1, heavy=MAX_EARLY_WEIGHT - 1) == []
    assert side.hear(2) == []
    assert side.hear(3) == []  # one more is too much
    assert side.hear(0, heavy=MAX_EARLY_WEIGHT) == ["m0", "m1", "m2"], "the next is always taken"
    assert side.hear(3) == ["m3"]
    assert side.hear(5, heavy=MAX_EARLY_WEIGHT) == [], "what was handed up weighs nothing any more"
    assert side.hear(4) == ["m4", "m5"]


def test_the_weight_of_a_message_counts_its_entries() -> None:
    assert weight(Release("t", S)) == 1
    assert weight(Answer("t", 0, 0, (), 0)) == 1
    assert weight(Answer("t", 0, 0, ((S, 0),) * 5, 0)) == 6
    names = tuple((f"t{number}", 0) for number in range(16))
    assert weight(Answer("t", 0, 0, (), 0, 0, names[:7])) == 1
    assert weight(Answer("t", 0, 0, (), 0, 0, names)) == 3


def test_a_peer_that_acknowledges_nothing_may_not_ask_for_more() -> None:
    side = Side()
    heavy = Answer("t", 0, 0, ((S, 0),) * (MAX_UNACKED_WEIGHT - 1), 0)
    side.links.send(1, heavy, 0)
    side.links.check_may_ask(1)
    side.send(1, "one more")
    with pytest.raises(ProtocolError, match="without acknowledging"):
        side.links.check_may_ask(1)
    side.links.check_may_ask(2)
    side.links.on_parcel_ack(ParcelAck(1), 1, 10)
    side.links.check_may_ask(1)
