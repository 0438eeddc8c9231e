"""Newcomers that wait for a place in the next view: a bounded number, one for each address."""

from __future__ import annotations

import pytest

from cubecast.protocol.cluster import admission
from cubecast.protocol.cluster.admission import Admission
from cubecast.protocol.cluster.views import Enter, Who


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
