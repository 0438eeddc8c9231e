"""What is kept of one stream: frames until they are stable, and a place in every tree."""

from __future__ import annotations

import pytest

from cubecast.protocol.messages import Frame, Route
from cubecast.protocol.port import Seq, Stream
from cubecast.protocol.topic.streams import NOT_TAKING, Branch, Inbox

STREAM = Stream(0, 0)
FIRST, SECOND = Route(0, 0, 0b1111), Route(1, 4, 0b0111)


def frame(first: Seq, route: Route = FIRST, messages: int = 1) -> Frame:
    """A frame whose size is ten for each message."""
    return Frame("t", STREAM, first, (), route, -1, ("x",) * messages, 10 * messages)


def inbox(*frames: Frame, taken: Seq = 0) -> Inbox:
    """Frames that are here, delivered up to `taken`, with a place in the tree of each route."""
    box = Inbox(STREAM, taken, taken - 1)
    for one in frames:
        box.frames[one.first] = one
        box.kept += one.size
        if one.route.number not in box.branches:
            box.add_branch(Branch(one.route, 0, (), one.route.start - 1))
        box.branches[one.route.number].receive(one.first, one.last)
    return box


# -- frames ----------------------------------------------------------------------------------------


def test_stable_frames_are_forgotten_and_counted() -> None:
    box = inbox(frame(0), frame(1, messages=3), frame(4))
    assert box.forget(3) == 40
    assert (list(box.frames), box.oldest, box.stable, box.kept) == ([4], 4, 3, 10)
    assert box.forget(4) == 10
    assert (box.frames, box.oldest, box.kept) == ({}, 5, 0)


def test_of_a_stream_with_a_hole_all_that_is_stable_is_forgotten() -> None:
    box = inbox(frame(0), frame(2), frame(3))
    assert box.forget(2) == 10  # what can be told of the part before the hole
    assert (list(box.frames), box.oldest, box.stable, box.kept) == ([3], 3, 2, 10)


def test_frames_that_wait_for_delivery_are_held() -> None:
    box = inbox(frame(0), frame(1), frame(2, messages=2), taken=1)
    assert (box.held(), box.size()) == (30, 40)
    box.next = NOT_TAKING
    assert (box.held(), box.size()) == (0, 40)


def test_a_route_that_is_torn_takes_its_frames_along() -> None:
    box = inbox(frame(2), frame(3), frame(4, SECOND), frame(5, SECOND))
    assert box.tear(FIRST.number)
    assert (sorted(box.frames), list(box.branches), box.oldest, box.kept) == ([4, 5], [1], 4, 20)


def test_behind_a_torn_route_nothing_is_kept_that_is_stable() -> None:
    box = inbox(frame(2), frame(3), frame(4, SECOND), frame(5, SECOND))
    box.stable = 4
    assert box.tear(FIRST.number)
    assert box.oldest == 5
    assert not box.tear(SECOND.number)
    assert (box.frames, box.branches, box.oldest, box.kept) == ({}, {}, 5, 0)


@pytest.mark.parametrize(
    ("covered", "whole"),
    [(-1, (-1, 0)), (0, (0, 0)), (1, (0, 10)), (2, (0, 20)), (3, (3, 0)), (9, (3, 0))],
)
def test_a_part_of_a_frame_counts_for_its_messages(covered: Seq, whole: tuple[Seq, int]) -> None:
    assert inbox(frame(0), frame(1, messages=3)).whole(covered) == whole


# -- trees -----------------------------------------------------------------------------------------


def parent_of(*children: int) -> Branch:
    """The root of a tree with children that have heard nothing; it has 0 to 4 itself."""
    branch = Branch(FIRST, None, children, -1)
    branch.receive(0, 4)
    return branch


def test_every_child_that_lags_is_named_with_how_far() -> None:
    box = Inbox(STREAM, 0, -1)
    box.add_branch(parent_of(1, 2, 4))
    box.branches[0].heard(1, 4, 4)
    box.branches[0].heard(2, 4, 1)
    assert box.behind() == {2: 3, 4: 5}


def test_of_children_that_are_gone_nothing_is_expected_and_nothing_claimed() -> None:
    branch = parent_of(1, 2, 4)
    branch.heard(1, 4, 4)
    branch.heard(4, 4, 3)
    branch.lose(0b100)
    assert (branch.children, branch.their_covered, branch.lost) == ((1, 4), [4, 3], True)
    assert branch.cover(4) == -1
    branch.feed((1, 2, 4))
    assert (branch.their_covered, branch.lost) == ([4, -1, 3], False)


def test_a_branch_that_loses_no_child_goes_on_as_before() -> None:
    branch = parent_of(1, 2)
    branch.heard(1, 4, 4)
    branch.heard(2, 4, 2)
    branch.lose(0b10000)
    assert not branch.lost
    assert branch.cover(4) == 2
