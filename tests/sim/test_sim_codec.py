"""The wire in the simulator: what it lets through, what it refuses, and what it counts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cubecast.chaos.simulated.driver import draw_schedule, population, run_schedule
from cubecast.net.wire.packets import OutgoingFrame, encode_frame
from cubecast.protocol.cluster.detector import Test as LinkTest
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Beacon, Depart, Enter, Who, genesis
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
    Settled,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import Stream
from cubecast.sim.codec import CodecError, WireCodec
from cubecast.sim.networks import Uniform
from cubecast.sim.world import World

S = Stream(2, 7)
ROUTE = Route(1 << 32 | 3, 4, 0b1011, 0b10)


def frame(**changes: Any) -> Frame:
    fields: dict[str, Any] = {
        "topic": "t",
        "stream": S,
        "first": 5,
        "barrier": ((Stream(0, 1), 0), (Stream(1, 0), 8)),
        "route": ROUTE,
        "stable": 4,
        "body": (17, 18, 19),
        "size": 3,
    }
    return Frame(**{**fields, **changes})


WAVE = Wave("t", 1, 2, Op.JOIN, 0b111, True, 4)
SOUND = [
    frame(),
    Ack("t", S, 3, 9, 8, 0b100, True, 0b1000),
    Probe("t", S, 3),
    Direct("t", S, 3, 0, 9, -1),
    ParcelAck(4),
    *(
        Parcel(3, carried)
        for carried in (
            Stable("t", S, 3, 0, 2, 0b11),
            Release("t", S),
            Suspended("t", S, 3),
            Settled("t", S, -1, 2),
            WAVE,
            Answer("t", 1, 2, ((S, 3),), 0b11, 0b1, (("u", 0b10),)),
        )
    ),
    LinkTest(1, 2, 3),
    Beacon("n0", genesis({0: Who("n0", "0", 0), 3: Who("n3", "3", 1)})),
    Enter(Who("n1", "1", 0), 1, reached={"t": ((S, -1),)}),
    Depart("n1"),
]


@pytest.mark.parametrize("message", SOUND, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_equal_and_as_another_object(message: Any) -> None:
    codec = WireCodec()
    back: Any = codec.cross(message, 3)
    assert type(back) is type(message)
    assert back is not message
    if isinstance(message, Frame):
        assert back.body is message.body
        assert (back.first, back.last, back.size) == (5, 7, 3)
        assert back.barrier == message.barrier
        assert back.route is not message.route
    assert set(codec.counts.values()) == {3}
    assert codec.sizes == {name: 3 * size for name, size in codec.largest.items()}


BROKEN = [
    frame(barrier=((Stream(0, 0), -1),)),
    frame(stable=5),
    frame(stream=Stream(-1, 0)),
    Ack("t", S, 3, 8, 9, 0, False),
    Ack("t", S, -3, 8, 8, 0, False),
    Parcel(0, Stable("t", S, 3, 0, -1, 0b11)),
    Parcel(-1, WAVE),
    Enter(Who("not a uid", "1", 0), 1),
    Enter(Who("n1", "1", 0), 1, reached={"t": ((S, -2),)}),
    genesis({0: Who("n0", "0", 0)}),
]


@pytest.mark.parametrize("message", BROKEN, ids=lambda message: type(message).__name__)
def test_a_message_the_wire_cannot_carry_is_found_in_the_step_that_sends_it(message: Any) -> None:
    with pytest.raises(CodecError, match="wire"):
        WireCodec().cross(message)


def test_a_message_that_comes_back_changed_is_found() -> None:
    """JSON has no sets of numbers: a list in the place of a tuple comes back as a tuple."""
    with pytest.raises(CodecError, match="came back"):
        WireCodec().cross(Parcel(3, Answer("t", 1, 2, [(S, 3)], 0b11)))  # type: ignore[arg-type]


def test_bytes_are_counted_by_kind_and_copy() -> None:
    codec = WireCodec(payload=100)
    world = World(
        3,
        lambda node, port: CubecastNode(node, port, cluster=0b111),
        Uniform(Random(1), 1, 30),
        trace=[],
        codec=codec,
    )
    world.establish("t", [0, 1])
    world.subscribe(2, "t")
    world.run()
    world.publish(0, "t")
    world.run()
    assert codec.counts["pub"] == world.meter.messages["pub"] == 2
    assert codec.counts["parcel/wave"] == 2
    kinds = {name.split("/")[0] for name in codec.counts}
    assert kinds == set(world.meter.messages)
    body = OutgoingFrame([bytes(100)], 0)
    raw = encode_frame(frame(first=0, stable=-1, route=Route(0, 0, 0b111), barrier=(), body=body))
    assert codec.largest["pub"] == len(raw)
    assert codec.sizes["pub"] == 2 * codec.largest["pub"]


def test_a_schedule_runs_the_same_with_and_without_the_wire() -> None:
    for seed in range(5):
        with_it, without = (
            run_schedule(
                draw_schedule(seed), population("cubecast"), keep_trace=True, wire=wire
            ).trace
            for wire in (True, False)
        )
        assert with_it == without


@pytest.mark.parametrize("seed", [263])
def test_schedules_whose_messages_could_not_cross_the_wire_once(seed: int) -> None:
    """A barrier that named message -1 of a stream of which nothing had come."""
    assert run_schedule(draw_schedule(seed), population("cubecast")).failures == {}
