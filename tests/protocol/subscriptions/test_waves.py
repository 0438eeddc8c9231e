"""Waves at one node: which sender is believed, what is merged, and when an answer is complete."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.protocol.errors import MAX_STREAMS, ProtocolError
from cubecast.protocol.messages import Answer, Op, Parcel, Wave
from cubecast.protocol.port import NodeId, Port, Stream
from cubecast.protocol.subscriptions import waves as waves_module
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.subscriptions.waves import NOTHING, Contribution, Gathering, Waves
from cubecast.protocol.topic.retained_values import RetainedValue
from cubecast.topology import children, parent
from support.ports import CONFIG, Wire

ALL = 0b1111
A, B = Stream(1, 0), Stream(2, 0)


class Place:
    """The waves of one node among four."""

    def __init__(self, node: NodeId, cluster: int = ALL) -> None:
        self.wire = Wire()
        self.links = Links(cast(Port, self.wire), CONFIG)
        self.waves = Waves(node, self.links, cluster)

    def said(self) -> list[tuple[NodeId, object]]:
        return [
            (peer, parcel.message)
            for peer, parcel in self.wire.take()
            if isinstance(parcel, Parcel)
        ]


def wave(origin: NodeId, number: int = 0, cluster: int = ALL, epoch: int = 0) -> Wave:
    return Wave("t", origin, number, Op.JOIN, cluster, epoch=epoch)


def answer(
    origin: NodeId, vector: dict[Stream, int], members: int = 0, lossy: int = 0, number: int = 0
) -> Answer:
    return Answer("t", origin, number, tuple(vector.items()), members, lossy)


def relay_of(origin: NodeId) -> tuple[NodeId, NodeId, NodeId]:
    """A node that passes on waves of `origin`: it, its parent, and its one child."""
    for node in range(4):
        if node != origin:
            above = parent(origin, node, ALL)
            below = [one for one in range(4) if one != origin and parent(origin, one, ALL) == node]
            if len(below) == 1 and above is not None:
                return node, above, below[0]
    raise AssertionError("a tree of four has a relay")


# -- retained values in open answers ---------------------------------------------------------------


def check_values_bytes(waves: Waves) -> None:
    held = [one.kept for one in waves.waiting if one.kept is not None]
    assert waves.values_bytes == sum(len(kept.blob) for kept in held)


class Coming(NamedTuple):
    """One step of a node that relays waves of node 0."""

    act: str
    number: int
    time: int
    size: int


coming = st.builds(
    Coming,
    st.sampled_from(["wave", "wave", "answer", "answer", "forget", "abort"]),
    st.integers(0, 5),
    st.integers(0, 9),
    st.integers(0, 40),
)


@given(st.lists(coming, max_size=40))
def test_the_bytes_of_values_in_open_answers_are_the_sum_of_what_is_there(
    steps: list[Coming],
) -> None:
    node, above, below = relay_of(0)
    place = Place(node)
    for act, number, time, size in steps:
        kept = RetainedValue(0, 1, number, time, bytes(size)) if size else None
        match act:
            case "wave" if place.waves.admits(wave(0, number), above):
                place.waves.on_wave(wave(0, number), above, NOTHING._replace(kept=kept), 0)
            case "answer":
                said = msgspec.structs.replace(answer(0, {}, number=number), kept=kept)
                with suppress(ProtocolError):  # no wave waits for it
                    place.waves.on_answer(said, below, 0)
            case "forget":
                place.waves.forget(below, 0)
            case "abort":
                place.waves.abort(ALL)
        check_values_bytes(place.waves)


def test_a_value_is_left_out_of_an_answer_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One gathering at a time: the room is free again when its answer is complete."""
    monkeypatch.setattr(waves_module, "MAX_VALUES_BYTES", 10)
    place = Place(0)
    first, second = children(0, ALL, 2)
    large, newer = RetainedValue(1, 0, 1, 1, bytes(10)), RetainedValue(1, 0, 2, 2, b"newer")
    for number, (other, expected) in enumerate([(newer, large), (None, large), (newer, large)]):
        place.waves.start("t", Op.JOIN, NOTHING, 0)
        one = msgspec.structs.replace(answer(0, {}, number=number), kept=large)
        assert place.waves.on_answer(one, first, 0) is None
        assert place.waves.values_bytes == 10
        two = msgspec.structs.replace(answer(0, {}, number=number), kept=other)
        done = place.waves.on_answer(two, second, 0)
        assert done is not None
        assert done.kept == expected, "the newer one came when there was no room"
        assert place.waves.values_bytes == 0


# -- which sender of a wave is believed ------------------------------------------------------------


def test_a_wave_is_believed_from_its_parent_alone() -> None:
    node, above, below = relay_of(0)
    place = Place(node)
    assert place.waves.admits(wave(0), above)
    with pytest.raises(ProtocolError, match="another way"):
        place.waves.admits(wave(0), below)


def test_a_wave_of_our_own_does_not_come_back() -> None:
    with pytest.raises(ProtocolError, match="does not lead here"):
        Place(0).waves.admits(wave(0), 1)


def test_a_wave_through_a_cluster_without_us_is_a_lie() -> None:
    with pytest.raises(ProtocolError, match="does not lead here"):
        Place(1).waves.admits(wave(0, cluster=0b1101), 0)


def test_a_wave_is_applied_once_in_each_view() -> None:
    node, above, _ = relay_of(0)
    place = Place(node)
    place.waves.on_wave(wave(0), above, NOTHING, 0)
    assert not place.waves.admits(wave(0), above)
    assert place.waves.admits(wave(0, number=1), above)
    assert place.waves.admits(wave(0, epoch=1), above)


def test_a_node_that_starts_too_many_waves_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves_module, "MAX_WAVES", 8)
    node, above, _ = relay_of(0)
    assert above == 0
    place = Place(node)
    for number in range(8):
        assert place.waves.admits(wave(0, number), 0)
        place.waves.on_wave(wave(0, number), 0, NOTHING, 0)
    with pytest.raises(ProtocolError, match="waves at a time"):
        place.waves.admits(wave(0, 8), 0)


def test_waves_a_relay_passes_on_are_bounded_without_blaming_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waves_module, "MAX_WAVES", 8)
    node, above = next(
        (node, above)
        for node in range(4)
        for above in [parent(0, node, ALL) if node else None]
        if above not in (None, 0)
    )
    assert above is not None
    place = Place(node)
    place.waves._gatherings.update(  # as if others' waves waited here
        {(9, "t", number, 0): Gathering(wave(9), 0, 1) for number in range(15)}
    )
    assert place.waves.admits(wave(0), above)
    place.waves._gatherings[9, "t", 15, 0] = Gathering(wave(9), 0, 1)
    assert not place.waves.admits(wave(0), above)


# -- answers ---------------------------------------------------------------------------------------


def test_an_origin_gathers_the_latest_of_each_stream_and_all_members() -> None:
    place = Place(0)
    own = Contribution({A: 3, B: 1}, member=True, lossy=True)
    assert place.waves.start("t", Op.JOIN, own, 0) is None
    below = [peer for peer, _ in place.said()]
    assert below == list(children(0, ALL, 2))
    assert place.waves.own_pending() == place.waves.pending() == 1
    first, *rest = below
    assert place.waves.on_answer(answer(0, {A: 2, B: 5}, 0b0010), first, 0) is None
    done = None
    for peer in rest:
        done = place.waves.on_answer(answer(0, {A: 0}, 0b0100, 0b0100), peer, 0)
    assert done is not None
    assert (done.vector, done.members, done.lossy) == ({A: 3, B: 5}, 0b0111, 0b0101)
    assert place.waves.pending() == 0


def test_message_zero_of_a_stream_is_more_than_none() -> None:
    place = Place(0, 0b01)
    done = place.waves.start("t", Op.JOIN, Contribution({A: 0}, member=False), 0)
    assert done is not None
    assert (done.vector, done.members) == ({A: 0}, 0), "alone, it is complete at once"


def test_a_relay_answers_when_its_child_has() -> None:
    node, above, below = relay_of(0)
    place = Place(node)
    assert place.waves.on_wave(wave(0), above, Contribution({A: 1}, member=True), 0) is None
    assert place.said() == [(below, wave(0))]
    assert place.waves.own_pending() == 0
    assert place.waves.on_answer(answer(0, {B: 2}, 1 << below), below, 0) is None
    ((peer, said),) = place.said()
    assert peer == above
    assert said == answer(0, {A: 1, B: 2}, 1 << node | 1 << below)


def test_an_answer_counts_once_and_from_children_alone() -> None:
    place = Place(0)
    place.waves.start("t", Op.JOIN, NOTHING, 0)
    first = children(0, ALL, 2)[0]
    place.waves.on_answer(answer(0, {}), first, 0)
    with pytest.raises(ProtocolError, match="not awaited"):
        place.waves.on_answer(answer(0, {}), first, 0)
    with pytest.raises(ProtocolError, match="not awaited"):
        place.waves.on_answer(answer(0, {}, number=7), first, 0)


def test_answers_to_waves_of_the_last_view_are_ignored() -> None:
    place = Place(0)
    place.waves.start("t", Op.JOIN, NOTHING, 0)
    place.waves.abort(0)
    assert place.waves.pending() == 0
    assert place.waves.on_answer(answer(0, {}), 1, 0) is None


def test_an_answer_has_a_bounded_number_of_streams() -> None:
    place = Place(0)
    place.waves.start("t", Op.JOIN, Contribution({A: 1}, member=False), 0)
    first, second = children(0, ALL, 2)
    many = {Stream(1, life): 0 for life in range(MAX_STREAMS)}
    assert A in many
    place.waves.on_answer(answer(0, many), first, 0)  # as many as there may be
    with pytest.raises(ProtocolError, match="streams"):
        place.waves.on_answer(answer(0, {B: 1}), second, 0)


# -- nodes that go ---------------------------------------------------------------------------------


def test_a_wave_does_not_wait_for_a_node_that_is_out_of_reach() -> None:
    place = Place(0)
    place.waves.start("t", Op.JOIN, NOTHING, 0)
    first, second = children(0, ALL, 2)
    assert place.waves.forget(first, 0) == []
    assert place.waves.pending() == 1, "of the other an answer is to come"
    done = place.waves.on_answer(answer(0, {}, 0b1000), second, 0)
    assert done is not None
    assert done.members == 0b1000


def test_the_last_one_to_go_completes_what_waited_for_it() -> None:
    place = Place(0, 0b11)
    place.waves.start("t", Op.JOIN, NOTHING, 0)
    place.waves.start("u", Op.JOIN, NOTHING, 0)
    done = place.waves.forget(1, 0)
    assert [one.wave.topic for one in done] == ["t", "u"]
    assert place.waves.pending() == 0


def test_a_relay_answers_for_who_is_gone() -> None:
    node, above, below = relay_of(0)
    place = Place(node)
    place.waves.on_wave(wave(0), above, Contribution({A: 1}, member=True), 0)
    place.said()
    assert place.waves.forget(below, 0) == [], "it is another's wave"
    assert place.said() == [(above, answer(0, {A: 1}, 1 << node))]
