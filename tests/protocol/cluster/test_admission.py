"""Newcomers that wait for a place in the next view: a bounded number, one for each address."""

from __future__ import annotations

import msgspec
import pytest

from cubecast.net.wire.views import encode_view
from cubecast.protocol.cluster import admission
from cubecast.protocol.cluster.admission import (
    Admission,
    Waits,
    in_one_view,
    is_ordinary,
    larger_half,
    past_of,
)
from cubecast.protocol.cluster.views import Enter, Who, genesis
from cubecast.protocol.port import Stream


def enter(uid: str, address: str, wish: int = -1) -> Enter:
    return Enter(Who(uid, address, 1), wish)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Admission:
    """As many wait as may."""
    monkeypatch.setattr(admission, "MAX_ENTERING", 3)
    waiting = Admission("key")
    for number in range(3):
        assert waiting.await_place(enter(f"n{number}", f"host:{number}")) == Waits(0, 0)
    return waiting


def test_no_more_wait_than_the_bound_and_the_lot_decides(full: Admission) -> None:
    """Who is late has the same chance as who was first."""
    for number in range(3, 300):
        waits = full.await_place(enter(f"n{number}", f"host:{number}"))
        assert waits == Waits(0, 1)
        assert len(full.entering) == 3
    assert any(int(uid[1:]) < 150 for uid in full.entering)
    assert any(int(uid[1:]) >= 150 for uid in full.entering)


def test_when_all_places_are_taken_the_one_that_named_most_loses_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_ENTERING", 6)
    monkeypatch.setattr(admission, "SHARE", 4)
    waiting = Admission("key")
    for number in range(20):
        waiting.await_place(enter(f"ghost{number}", f"ghost:{number}"), "liar")
    assert len(waiting.entering) == 4
    for number in range(3):
        waiting.await_place(enter(f"n{number}", f"host:{number}"), "honest")
    assert {"n0", "n1", "n2"} <= waiting.entering.keys()
    assert len(waiting.entering) == 6


def test_a_member_that_names_many_to_another_one_is_heard_no_more_in_that_view() -> None:
    waiting = Admission("key")
    assert [waiting.may_pass_on("liar") for _ in range(17)] == [True] * 16 + [False]
    assert waiting.may_pass_on("honest")
    waiting.went_over(genesis({}))
    assert waiting.may_pass_on("liar")


@pytest.mark.parametrize("uid", ["n1", "other"])
def test_a_request_that_takes_a_waiting_newcomer_s_turn_needs_a_proof(
    full: Admission, uid: str
) -> None:
    """Another uid at the address where it waits, or its uid elsewhere."""
    view = genesis({0: Who("a", "0", 0)})
    contested = enter(uid, "host:9" if uid == "n1" else "host:1")
    assert not full.may_wait(contested, view)
    assert full.may_wait(enter("n1", "host:1", wish=5), view)
    assert full.may_wait(enter("new", "host:8"), view)
    nonce = full.doubt(uid, view, contested.who.address).nonce
    assert full.may_wait(msgspec.structs.replace(contested, proof=nonce), view)


NAMES = ["plain", "\x01" * 1010, "\u00e9" * 500, '"' * 1000, "\U0001f600" * 250]


@pytest.mark.parametrize("name", NAMES, ids=["plain", "control", "accents", "quotes", "faces"])
def test_a_past_is_not_counted_as_less_than_it_takes_in_a_message(name: str) -> None:
    """The largest numbers, and names as they are written there."""
    streams = tuple((Stream(4095, 2**63 + slot), 2**61) for slot in range(20))
    past = {f"{name}{number}": streams for number in range(20)}
    said = Enter(Who("u", "a:1", 1), -1, past)
    bare = Enter(Who("u", "a:1", 1), -1, {})
    written = len(encode_view(said)) - len(encode_view(bare))
    assert written <= past_of(said) < 1.2 * written


def test_the_larger_half_goes_first() -> None:
    def with_past(streams: int) -> Enter:
        past = {"t": tuple((Stream(slot, 1), 1) for slot in range(streams))}
        return Enter(Who(f"n{streams}", f"host:{streams}", 1), -1, past)

    waiting = [with_past(streams) for streams in (3, 1, 5, 2, 4)]
    assert [one.who.uid for one in larger_half(waiting)] == ["n5", "n4", "n3"]
    assert larger_half(waiting[:1]) == waiting[:1]


def test_a_waiting_newcomer_may_ask_again_when_the_queue_is_full(full: Admission) -> None:
    full.await_place(enter("n1", "host:1", wish=7))
    assert full.entering["n1"].wish == 7
    assert list(full.entering) == ["n0", "n1", "n2"]


def test_of_those_at_one_address_the_last_waits() -> None:
    waiting = Admission("key")
    assert waiting.await_place(enter("old", "host:1")) == Waits(0, 0)
    assert waiting.await_place(enter("new", "host:1")) == Waits(1, 0)
    assert list(waiting.entering) == ["new"]


def test_a_view_takes_so_much_past_and_the_small_ones_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 200)

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
