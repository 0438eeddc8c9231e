"""Retained values in eventful schedules: the judge finds what is broken, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cubecast.chaos.eventful import draw_eventful
from cubecast.chaos.schedule import ApplicationStep, Schedule, checked
from cubecast.chaos.simulated.driver import population, run_schedule
from cubecast.net.node.value_keeper import Retained
from cubecast.net.wire.packets import OutgoingFrame
from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Stream, Topic
from cubecast.protocol.subscriptions import waves
from cubecast.protocol.topic.retained_values import RetainedValue
from cubecast.sim.codec import CodecError, WireCodec
from cubecast.sim.values import Handing, Value, ValueKept, ValueLog, judge, same_everywhere
from cubecast.trace import Record

T = "t"


def published(node: int, ident: int) -> Record:
    return Record("publish", 0, node, T, ident, source=node)


def delivered(node: int, ident: int) -> Record:
    return Record("deliver", 0, node, T, ident)


def keeping(position: int, node: int, ident: int, time: int) -> ValueKept:
    return ValueKept(position, node, T, ident, (time, 0, 0, ident))


def handing(position: int, node: int, ident: int | None, time: int) -> Handing:
    return Handing(position, node, T, ident, (time, 0, 0, ident or 0), True)


# -- the judge, on traces by hand ------------------------------------------------------------------

STORY = [
    published(0, 0),  # a plain message, and the value 1 that depends on it
    published(0, 1),
    Record("subscribe", 0, 2, T),
    Record("join", 0, 2, T),
    published(0, 2),
    delivered(2, 2),
]
KEPT = [keeping(2, 0, 1, 10)]


def test_a_newcomer_that_is_handed_the_newest_and_then_what_follows_is_right() -> None:
    assert judge(STORY, ValueLog(KEPT, [handing(3, 2, 1, 10)])) == []


@pytest.mark.parametrize("ident", [0, 1])
def test_a_cause_of_the_value_or_the_value_itself_after_it_is_found(ident: int) -> None:
    trace = [*STORY, delivered(2, ident)]
    [found] = judge(trace, ValueLog(KEPT, [handing(3, 2, 1, 10)]))
    assert f"{ident} delivered at node 2 after a value that depends on it" in found


def test_a_value_after_one_that_depends_on_it_is_found() -> None:
    kept = [*KEPT, keeping(5, 0, 2, 20)]
    hands = [handing(3, 2, None, 20), handing(6, 2, 1, 10)._replace(first=False)]
    [found] = judge(STORY, ValueLog(kept, hands))
    assert "node 2 was handed 1 after a value that depends on it" in found


def test_an_unpublished_value_is_found() -> None:
    [found] = judge(STORY, ValueLog(KEPT, [handing(3, 2, 9, 10)]))
    assert "which was never published" in found


def test_a_newcomer_that_is_handed_nothing_although_a_node_keeps_a_value_is_found() -> None:
    hand = Handing(3, 2, T, None, (), True)
    [found] = judge(STORY, ValueLog(KEPT, [hand]))
    assert "node 0 kept 1, which is newer" in found


@pytest.mark.parametrize(
    "excuse",
    [
        Record("crash", 0, 0),
        Record("view", 0, 2, seq=1, members=0b110),
    ],
    ids=["its node ended", "its node is in another view"],
)
def test_a_value_that_no_node_of_the_view_keeps_need_not_be_handed_out(excuse: Record) -> None:
    trace = [*STORY[:3], excuse, *STORY[3:]]
    assert judge(trace, ValueLog(KEPT, [Handing(4, 2, T, None, (), True)])) == []


def view(members: int) -> Record:
    return Record("view", 0, 2, seq=1, members=members)


def test_only_who_comes_back_after_the_subscription_began_need_not_be_asked() -> None:
    """The wave visits the view it began in; a node of that view is not excused."""
    hand = Handing(6, 2, T, None, (), True)
    early = [*STORY[:2], view(0b100), view(0b101), STORY[2], view(0b111), *STORY[3:]]
    [found] = judge(early, ValueLog(KEPT, [hand]))
    assert "node 0 kept 1, which is newer" in found
    late = [*STORY[:2], view(0b101), view(0b100), STORY[2], view(0b101), *STORY[3:]]
    assert judge(late, ValueLog(KEPT, [hand])) == []


def test_who_was_excluded_while_the_wave_ran_need_not_be_asked_though_it_is_back() -> None:
    """The wave begins anew in the view without it; a view with one more excuses no node."""
    hand = Handing(6, 2, T, None, (), True)
    begin = [*STORY[:2], view(0b101), STORY[2]]
    assert judge([*begin, view(0b100), view(0b101), *STORY[3:]], ValueLog(KEPT, [hand])) == []
    [found] = judge([*begin, view(0b111), view(0b101), *STORY[3:]], ValueLog(KEPT, [hand]))
    assert "node 0 kept 1, which is newer" in found


@pytest.mark.parametrize("end", [view(0), Record("crash", 0, 2)], ids=["it left", "it crashed"])
def test_a_node_that_subscribes_before_its_next_life_has_a_view_is_held_to_its_first_view(
    end: Record,
) -> None:
    """Neither the view of its former life nor the lack of one is an excuse."""
    begin = [*STORY[:2], view(0b100), end, Record("restart", 0, 2), STORY[2]]
    nothing = Handing(len(begin) + 1, 2, T, None, (), True)
    [found] = judge([*begin, view(0b101), *STORY[3:]], ValueLog(KEPT, [nothing]))
    assert "node 0 kept 1, which is newer" in found
    later = [*begin, view(0b110), view(0b111), *STORY[3:]]
    assert judge(later, ValueLog(KEPT, [nothing._replace(position=len(begin) + 2)])) == []


def test_a_value_that_is_still_on_its_way_need_not_be_handed_out() -> None:
    trace = [*STORY, delivered(2, 1)]
    assert judge(trace, ValueLog(KEPT, [Handing(3, 2, T, None, (), True)])) == []


def test_a_value_with_a_lower_stamp_than_its_cause_is_found() -> None:
    kept = [*KEPT, keeping(5, 0, 2, 9)]
    assert judge(STORY, ValueLog(kept, [])) == ["value 2 has a lower stamp than its cause 1"]


def test_newcomers_that_have_another_value_than_the_newest_are_found() -> None:
    old, new = RetainedValue(0, 0, 0, 1, b""), RetainedValue(1, 0, 0, 2, b"")
    kept = {0: old, 1: new, 2: None}
    assert list(same_everywhere(T, kept, {3: new.stamp})) == []
    [found] = same_everywhere(T, kept, {3: new.stamp, 4: old.stamp})
    assert found.startswith("node 4 has (1, 0, 0, 0)")


# -- the wire --------------------------------------------------------------------------------------


def test_a_value_crosses_the_wire_with_its_headers_and_its_time() -> None:
    codec, value = WireCodec(), Value.of(7, removes=False)
    value.set_time(0, 1000)
    frame = Frame(T, Stream(0, 0), 0, (), Route(0, 0, 0b11), -1, value, 1)
    back = codec.cross(frame)
    assert isinstance(back, Frame)
    assert back.body is value
    value.body.time = -1  # which no clock shows
    with pytest.raises(CodecError):
        codec.cross(frame)


# -- schedules -------------------------------------------------------------------------------------


def test_a_removed_value_is_not_handed_out_and_the_next_one_is() -> None:
    steps = (
        ApplicationStep(100, "retain", 0, T),
        ApplicationStep(600, "subscribe", 1, T),
        ApplicationStep(1200, "remove", 0, T),
        ApplicationStep(1800, "subscribe", 2, T),
        ApplicationStep(2400, "retain", 0, T),
        ApplicationStep(3000, "subscribe", 3, T),
    )
    schedule = checked(Schedule(4, "by hand", length=3600, topics={T: (0,)}, steps=steps))
    verdict = run_schedule(schedule, population("cubecast"))
    assert verdict.ok, verdict.failures
    assert verdict.metrics["values"] == 3
    assert verdict.metrics["values_handed"] == 2 + 2  # the last two join late at the end


def stamps_by_the_clock_alone(patch: pytest.MonkeyPatch) -> None:
    def stamp(keeper: Retained, body: OutgoingFrame) -> None:
        pass

    patch.setattr(Retained, "stamp", stamp)


def passes_on_the_first_value_it_hears_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waves, "newer", lambda one, other: other if one is None else one)


def passes_on_no_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waves, "newer", lambda one, other: one)


def keeps_what_came_last(patch: pytest.MonkeyPatch) -> None:
    offer = Retained._offer

    def last(keeper: Retained, topic: Topic, value: RetainedValue) -> bool:
        keeper._values.pop(topic, None)
        return offer(keeper, topic, value)

    patch.setattr(Retained, "_offer", last)


def answers_with_what_others_know(patch: pytest.MonkeyPatch) -> None:
    """So a newcomer is handed a value that is above its cut."""
    everyone: dict[Topic, RetainedValue] = {}
    begin = Retained.__init__

    def shared(keeper: Retained) -> None:
        begin(keeper)
        keeper._values = everyone

    patch.setattr(Retained, "__init__", shared)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], int]] = [
    (stamps_by_the_clock_alone, 37),
    (passes_on_the_first_value_it_hears_of, 5),
    (passes_on_no_value, 5),
    (keeps_what_came_last, 5),
    (answers_with_what_others_know, 66),
]
"""Broken versions, and the seed of an eventful schedule on four nodes that catches each."""


@pytest.mark.parametrize(("mutant", "seed"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_broken_version_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = draw_eventful(seed, 4)
    assert run_schedule(schedule, population("cubecast")).ok
    mutant(monkeypatch)
    assert "values" in run_schedule(schedule, population("cubecast")).failures
