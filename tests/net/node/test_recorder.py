"""What a live node records of itself: lives by slot, gaps by number or by name, its end."""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.net.node.recorder import LOSSY, Recorder
from cubecast.net.wire.hello import NOBODY
from cubecast.protocol.cluster.views import Ballot, View, ViewId, Who
from cubecast.protocol.port import NodeId, Stream, Time
from cubecast.trace import Record


class Named:
    """A node as far as its recorder needs one."""

    uid = "me"

    def __init__(self, slot: NodeId) -> None:
        self.slot = slot

    def now(self) -> Time:
        return 7


def view(epoch: int, slots: Iterable[NodeId]) -> View:
    members = {slot: Who(f"node{slot}", f"host:{slot}", slot) for slot in slots}
    return View(ViewId(epoch, Ballot(1, 0)), members)


def kinds(trace: list[Record]) -> list[tuple[str, NodeId]]:
    return [(record.kind, record.node) for record in trace]


def moved(slots: Iterable[NodeId]) -> list[Record]:
    """What a node records that returns in slot 2 and had 1, where `slots` are taken now."""
    trace: list[Record] = []
    recorder = Recorder(Named(2), trace)
    recorder.view(view(3, slots), before=1)
    return trace


def test_a_node_in_another_slot_ends_the_life_in_its_old_one() -> None:
    assert kinds(moved([0, 2])) == [("crash", 1), ("restart", 2), ("view", 2)]


def test_a_node_in_another_slot_does_not_end_the_node_in_its_old_one() -> None:
    assert kinds(moved([0, 1, 2])) == [("restart", 2), ("view", 2)]


def test_a_node_that_keeps_its_slot_records_the_view_alone() -> None:
    trace: list[Record] = []
    recorder = Recorder(Named(2), trace)
    recorder.view(view(3, [0, 2]), before=NOBODY)
    recorder.view(view(4, [2]), before=2)
    assert kinds(trace) == [("view", 2)] * 2
    assert [(one.seq, one.members) for one in trace] == [(3, 0b101), (4, 0b100)]


def test_a_gap_of_lossy_subscriptions_is_counted() -> None:
    trace: list[Record] = []
    skipped = {Stream(0, 5): (4, 6), Stream(1, 5): (9, 9)}
    Recorder(Named(2), trace).gap("t", skipped, lossy=True)
    (record,) = trace
    assert (record.kind, record.topic, record.seq, record.message) == ("gap", "t", 4, LOSSY)


def test_every_message_of_another_gap_is_named() -> None:
    trace: list[Record] = []
    skipped = {Stream(0, 5): (4, 6), Stream(1, 10): (9, 9)}
    Recorder(Named(2), trace).gap("t", skipped, lossy=False)
    assert [record.kind for record in trace] == ["gap"] * 4
    assert [record.id for record in trace] == ["0.5.4", "0.5.5", "0.5.6", "1.a.9"]


def test_a_node_that_was_in_no_view_records_no_end() -> None:
    trace: list[Record] = []
    recorder = Recorder(Named(2), trace)
    recorder.gone()
    recorder.crashed()
    assert trace == []
    recorder.view(view(3, [2]), before=NOBODY)
    recorder.gone()
    assert (trace[-1].kind, trace[-1].seq, trace[-1].members) == ("view", 3, 0)
