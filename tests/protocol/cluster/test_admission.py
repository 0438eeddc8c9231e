"""Newcomers that wait for a place in the next view: a bounded number, one for each address."""

from __future__ import annotations

import pytest

from cubecast.protocol.cluster import admission
from cubecast.protocol.cluster.admission import Admission, in_one_view, is_ordinary
from cubecast.protocol.cluster.views import Enter, Who
from cubecast.protocol.port import Stream


def enter(uid: str, address: str, wish: int = -1) -> Enter:
    return Enter(Who(uid, address, 1), wish)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Admission:
    """As many wait as may."""
    monkeypatch.setattr(admission, "MAX_ENTERING", 3)
    waiting = Admission("key")
    for number in range(3):
        assert waiting.await_place(enter(f"n{number}", f"host:{number}")) == 0
    return waiting


def test_no_more_wait_than_the_bound(full: Admission) -> None:
    full.await_place(enter("n3", "host:3"))
    assert list(full.entering) == ["n0", "n1", "n2"]


def test_a_waiting_newcomer_may_ask_again_when_the_queue_is_full(full: Admission) -> None:
    full.await_place(enter("n1", "host:1", wish=7))
    assert full.entering["n1"].wish == 7
    assert list(full.entering) == ["n0", "n1", "n2"]


def test_of_those_at_one_address_the_last_waits() -> None:
    waiting = Admission("key")
    assert waiting.await_place(enter("old", "host:1")) == 0
    assert waiting.await_place(enter("new", "host:1")) == 1
    assert list(waiting.entering) == ["new"]


def test_a_view_takes_so_much_past_and_the_small_ones_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 100)

    def with_past(uid: str, streams: int) -> Enter:
        past = {"t": tuple((Stream(slot, 1), 1) for slot in range(streams))}
        return Enter(Who(uid, uid, 1), -1, past if streams else {})

    large, middle, small, new = (
        with_past(uid, streams)
        for uid, streams in (("large", 1000), ("middle", 150), ("small", 2), ("new", 0))
    )
    assert in_one_view([large, middle, small, new]) == [middle, small, new]
    assert in_one_view([large, new]) == [new]
    assert in_one_view([large]) == [large], "it may fit after all"
    assert [is_ordinary(one) for one in (large, middle, small, new)] == [False, False, True, True]
