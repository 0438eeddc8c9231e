"""VCube-PS as published ([J] Algorithms 1 and 2), told in small stories.

`Wire` lets a test decide which message arrives next; `Literal` is a deliberately dumb reading of
the pseudocode's sets against which random runs are compared.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from cubecast.protocol.paper.sets import BOTTOM
from cubecast.protocol.paper.state import Ack, Pub, Sub, Uns, Variables
from cubecast.protocol.paper.vcube_ps import VCubePS
from cubecast.protocol.port import NodeId, Port, Time, Topic
from cubecast.sim.networks import Uniform
from cubecast.sim.world import World
from cubecast.topology import children, cluster, dimension_for, mask_of, members_of
from cubecast.trace import Record, check
from support import paper_wire
from support.paper_wire import Ident, T
from support.paths import ROOT


class Wire(paper_wire.Wire):
    """Nodes of VCube-PS, which has no timers."""

    def __init__(self, nodes: int, members: Sequence[NodeId] = ()) -> None:
        super().__init__(nodes, members, lambda node, port: VCubePS(node, port, nodes=nodes))


# -- [J] 3.2.1: causal barriers -------------------------------------------------------------------


def test_figure_2_barriers_hold_direct_predecessors_only() -> None:
    """[J] Figure 2: m(1,2) depends on m(2,1) and m(1,1), not on m(0,1) again."""
    wire = Wire(4, [0, 1, 2])
    m01 = wire.publish(0)
    m21 = wire.publish(2)
    wire.arrive(0, 1)
    m11 = wire.publish(1)
    wire.settle()
    m12 = wire.publish(1)
    assert [m.ident for m in (m01, m21, m11, m12)] == [(0, 1), (2, 1), (1, 1), (1, 2)]
    assert m01.cb.idents() == m21.cb.idents() == []
    assert m11.cb.idents() == [(0, 1)]
    assert m12.cb.idents() == [(1, 1), (2, 1)]
    assert m12.cb.count() == 2


def test_a_message_waits_for_its_predecessor() -> None:
    """Lines 83-89: m(1,1) overtakes m(0,1) on the way to p2, and is held there."""
    wire = Wire(4, [0, 1, 2])
    wire.publish(0)
    wire.arrive(0, 1)
    wire.publish(1)
    wire.arrive(1, 0)
    wire.settle("ack")
    wire.arrive(1, 2)
    assert wire.delivered[2] == []
    assert wire.nodes[2].load().held == 1
    wire.arrive(0, 2)
    assert wire.delivered[2] == [(0, 1), (1, 1)]
    assert wire.nodes[2].load().held == 0


def test_held_messages_are_delivered_in_order_of_arrival() -> None:
    """Line 84 leaves the choice open: of those set free together, first come, first served."""
    wire = Wire(8, [0, 1, 2, 4])
    wire.publish(0)
    wire.arrive(0, 4)
    wire.arrive(0, 1)
    wire.publish(4)
    wire.publish(1)
    wire.arrive(4, 0)
    wire.arrive(0, 2, by=4)
    wire.arrive(1, 2)
    assert wire.delivered[2] == []
    wire.arrive(0, 2, by=0)
    assert wire.delivered[2] == [(0, 1), (4, 1), (1, 1)]


def test_the_counter_is_one_for_all_topics() -> None:
    """Algorithm 1, line 2 and Algorithm 2, line 9: SUB, PUB and UNS of any topic count on."""
    wire = Wire(2)
    for topic in ("a", "b"):
        wire.nodes[0].subscribe(topic, 0)
        wire.nodes[1].subscribe(topic, 0)
        wire.settle()
    assert [wire.publish(0, topic).first for topic in ("a", "b", "a")[:2]] == [2, 3]
    wire.settle()
    assert wire.publish(0, "a").ident == (0, 4)


# -- [J] 3.2.2: per-source FIFO reception, by waves of ACKs ---------------------------------------


def test_an_ack_climbs_when_the_whole_subtree_has_the_message() -> None:
    """Lines 45-61 on the left tree of Figure 3: p6 answers p4 after p7 has answered p6."""
    wire = Wire(8, range(8))
    wire.publish(0)
    wire.settle("pub")
    assert wire.links(Ack) == [(1, 0), (3, 2), (5, 4), (7, 6)]
    wire.arrive(7, 6, "ack")
    assert (6, 4) in wire.links(Ack)
    assert (4, 0) not in wire.links(Ack)
    wire.settle("ack")
    assert len(wire.links(Ack)) == len(wire.links(Pub)) == 7
    assert wire.links(Ack)[-1] == (4, 0)


def test_the_next_message_waits_for_the_wave_of_the_last() -> None:
    """Line 31: stop-and-wait per topic; the publisher delivers its own when its turn comes."""
    wire = Wire(8, range(8))
    wire.publish(0)
    wire.publish(0)
    assert wire.delivered[0] == [(0, 1)]
    assert wire.nodes[0].load().held == 1
    wire.settle("pub")
    wire.arrive(1, 0, "ack")
    wire.arrive(3, 2, "ack")
    wire.arrive(2, 0, "ack")
    assert len(wire.links(Pub)) == 7
    wire.settle()
    assert len(wire.links(Pub)) == 14
    assert wire.delivered == [[(0, 1), (0, 2)]] * 8


def test_another_topic_does_not_wait() -> None:
    """Line 13: one task per topic."""
    wire = Wire(2, [0, 1])
    for process in wire.nodes:
        process.establish("u", 0b11)
    wire.publish(0)
    wire.publish(0, "u")
    assert [m.topic for _, _, m in wire.flying] == [T, "u"]


# -- membership -----------------------------------------------------------------------------------


def test_sub_reaches_everyone_and_its_acks_bring_the_membership() -> None:
    """Lines 23-24, 72 and 95-98."""
    wire = Wire(8, [1, 5, 6])
    wire.nodes[3].subscribe(T, 0)
    wire.settle("sub")
    assert sorted(peer for _, peer in wire.links(Sub)) == [0, 1, 2, 4, 5, 6, 7]
    assert wire.nodes[3].view(T) == {3: ("sub", 0)}
    assert wire.joined == []
    wire.settle()
    assert wire.joined == [(3, T)]
    assert sorted(wire.nodes[3].view(T)) == [1, 3, 5, 6]
    for member in (1, 5, 6):
        assert wire.nodes[member].view(T)[3] == ("sub", 0)
    assert wire.nodes[0].view(T) == {}  # line 62: a node not subscribed learns nothing
    wire.publish(3)
    wire.settle()
    assert [node for node in range(8) if wire.delivered[node]] == [1, 3, 5, 6]


def test_two_that_join_at_once_learn_of_each_other() -> None:
    wire = Wire(8)
    wire.nodes[2].subscribe(T, 0)
    wire.nodes[5].subscribe(T, 0)
    wire.settle()
    assert sorted(wire.nodes[2].view(T)) == sorted(wire.nodes[5].view(T)) == [2, 5]


def test_a_publication_waits_for_the_own_sub_wave() -> None:
    """br_queue is a queue: what is published before `joined` leaves after the SUB's wave."""
    wire = Wire(4, [0, 1])
    wire.nodes[3].subscribe(T, 0)
    wire.publish(3)
    assert wire.delivered[3] == []
    wire.settle("sub")
    assert wire.links(Pub) == []
    wire.settle()
    assert wire.delivered == [[(3, 1)], [(3, 1)], [], [(3, 1)]]


def test_the_last_ack_of_a_sub_wave_is_learnt_before_the_next_message_leaves() -> None:
    """Deviation 4: lines 31 and 70 both follow the last ACK."""
    wire = Wire(2, [1])
    wire.nodes[0].subscribe(T, 0)
    wire.publish(0)
    wire.settle()
    assert wire.delivered[1] == [(0, 1)]


def test_the_first_publication_brings_membership_home_too() -> None:
    """Lines 95-97: a leaf that has nothing of the source in first_rec names itself in its ACK."""
    wire = Wire(4, [0, 1])
    wire.publish(0)
    wire.arrive(0, 1)
    assert wire.flying[0][2] == Ack(T, (0, 1), ((1, "sub", 0),))
    wire.settle()
    wire.publish(0)
    wire.arrive(0, 1)
    assert wire.flying[0][2] == Ack(T, (0, 2), ())


def test_uns_goes_to_subscribers_and_leaves_a_mark() -> None:
    """Algorithm 1, lines 10-15; lines 26 and 72."""
    wire = Wire(8, [1, 3, 5, 6])
    wire.nodes[3].unsubscribe(T, 0)
    assert wire.left == []
    wire.settle()
    assert sorted(peer for _, peer in wire.links(Uns)) == [1, 5, 6]
    assert wire.left == [(3, T)]
    assert [wire.nodes[node].view(T)[3] for node in (1, 5, 6)] == [("uns", 1)] * 3
    wire.publish(1)
    wire.settle()
    assert [node for node in range(8) if wire.delivered[node]] == [1, 5, 6]


def test_an_older_operation_does_not_undo_a_newer_one() -> None:
    """UPDATE, lines 75-82: the higher rc stays."""
    wire = Wire(4, [0, 1])
    wire.nodes[1].unsubscribe(T, 0)
    wire.settle()
    wire.nodes[0].on_message(Sub(T, (1, 0)), 1, 0)
    assert wire.nodes[0].view(T)[1] == ("uns", 1)
    wire.nodes[0].on_message(Sub(T, (1, 2)), 1, 0)
    assert wire.nodes[0].view(T)[1] == ("sub", 2)


def test_views_of_an_established_topic_are_not_shared_once_they_differ() -> None:
    wire = Wire(4, [0, 1, 2])
    wire.nodes[0].on_message(Uns(T, (1, 1)), 1, 0)
    assert wire.nodes[0].view(T)[1] == ("uns", 1)
    assert wire.nodes[2].view(T)[1] == ("sub", 0)


def test_coming_back_begins_with_oneself_alone() -> None:
    """Algorithm 1, line 6 drops what the view said; the new wave finds it again."""
    wire = Wire(4, [0, 1])
    wire.nodes[1].unsubscribe(T, 0)
    wire.settle()
    wire.nodes[1].subscribe(T, 0)
    assert wire.nodes[1].view(T) == {1: ("sub", 2)}
    wire.settle()
    assert wire.joined == [(1, T)]
    assert wire.nodes[1].view(T) == {1: ("sub", 2), 0: ("sub", 0)}


def test_one_who_leaves_before_its_sub_wave_is_through_never_joined() -> None:
    wire = Wire(4, [0, 1])
    wire.nodes[3].subscribe(T, 0)
    wire.nodes[3].unsubscribe(T, 0)
    wire.settle()
    assert wire.joined == []
    assert wire.left == [(3, T)]


def test_a_leaver_passes_on_what_still_comes_but_takes_none_of_it() -> None:
    """[J] 3.3, "Membership Management": it is a temporary forwarder, and acknowledges."""
    wire = Wire(4, [0, 2, 3])
    wire.nodes[2].unsubscribe(T, 0)
    wire.publish(0)  # p0 has not heard: p3 is reached through p2
    wire.settle()
    assert (2, 3) in wire.links(Pub)
    assert wire.delivered == [[(0, 1)], [], [], [(0, 1)]]
    assert wire.nodes[0].load().held == 0


# -- newcomers: first_rec -------------------------------------------------------------------------


def newcomer_after_m21() -> Wire:
    """Figure 2 with p3 joining after m(2,1): p1 publishes m(1,2), which depends on m(2,1)."""
    wire = Wire(4, [0, 1, 2])
    wire.publish(2)
    wire.settle()
    wire.nodes[3].subscribe(T, 0)
    wire.settle()
    wire.publish(1)
    wire.settle()
    return wire


def test_a_newcomer_blocks_on_what_was_sent_before_it_came() -> None:
    """Line 92 knows only sources it has received from (hole 1), unlike the text of 3.2.1."""
    wire = newcomer_after_m21()
    assert wire.delivered[0] == [(2, 1), (1, 1)]
    assert wire.delivered[3] == []
    assert wire.nodes[3].load().held == 1


def test_the_next_message_of_the_source_tells_what_was_missed() -> None:
    """Lines 64-65 and 92: first_rec of p2 is 2 > 1, so m(2,1) will never come."""
    wire = newcomer_after_m21()
    wire.publish(2)
    wire.settle()
    assert wire.delivered[3] == [(1, 1), (2, 2)]


def test_uns_clears_first_rec_of_the_leaver() -> None:
    """Line 74: the same story with p2 gone before m(1,1) arrives blocks again (hole 5)."""
    wire = Wire(4, [0, 1, 2])
    wire.publish(2)
    wire.settle()
    wire.nodes[3].subscribe(T, 0)
    wire.settle()
    wire.publish(1)
    wire.publish(2)
    wire.arrive(2, 3)
    wire.settle("ack")
    assert wire.delivered[3] == [(2, 2)]
    wire.flying = [item for item in wire.flying if item[:2] != (1, 3)]  # keep m(1,1) back
    held_back = next(m for a, b, m in wire.sent if (a, b) == (1, 3) and type(m) is Pub)
    wire.settle()
    wire.nodes[2].unsubscribe(T, 0)
    wire.settle()
    wire.nodes[3].on_message(held_back, 1, 0)
    assert wire.delivered[3] == [(2, 2), (1, 1)]  # last_delvs still knows m(2,2)
    wire.nodes[3].unsubscribe(T, 0)
    wire.settle()
    wire.nodes[3].subscribe(T, 0)  # lines 33-34 have forgotten last_delvs
    wire.settle()
    wire.publish(0)
    wire.settle()
    assert wire.delivered[3] == [(2, 2), (1, 1)]
    assert wire.nodes[3].load().held == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_member_that_missed_an_uns_stays_out_of_the_acks_of_the_next_sub(known: bool) -> None:
    """Lines 74 and 96: p5 has p0 in first_rec if p0 published before, and p0 finds it if not."""
    wire = Wire(8, [0, 5])
    if known:
        wire.publish(0)
        wire.settle()
    wire.nodes[4].subscribe(T, 0)
    wire.arrive(4, 0, "sub")
    wire.nodes[0].unsubscribe(T, 0)
    wire.arrive(0, 4, "uns")  # p4 does not know p5 yet: the UNS ends here (hole 2)
    wire.settle()
    wire.nodes[0].subscribe(T, 0)
    wire.settle()
    wire.nodes[4].unsubscribe(T, 0)
    wire.settle()
    before = list(wire.delivered[5])
    wire.publish(0)
    wire.settle()
    assert (wire.delivered[5] == before) == known  # hole 9


# -- the listing ----------------------------------------------------------------------------------


MARGIN = re.compile(r"# (?:\d+; Algorithm 2: )?(\d+)(?:-(\d+))?(?:, (\d+))?(?=$|:|;)", re.MULTILINE)


def margin(text: str) -> list[int]:
    """The line numbers of the listing that stand in the margin of some code, in their order."""
    found = []
    for first, last, another in MARGIN.findall(text):
        found += range(int(first), int(last or first) + 1)
        found += [int(another)] if another else []
    return found


def test_the_margin_names_every_line_of_the_listing_in_its_order() -> None:
    """A statement may carry out two lines that enclose a third, as lines 27 and 29 do."""
    source = inspect.getsource(VCubePS)
    one, two, beside = re.split(r"    # (?:Algorithm 2:|Beside the listing:)", source)
    assert margin(beside) == []
    first = re.sub("; Algorithm 2: .*", "", one)
    assert margin(first) == list(range(1, 21))
    second = margin(two)
    assert sorted(set(second)) == list(range(4, 99))
    assert "Algorithm 2: 1-3" in one
    procedures = [margin(part)[0] for part in re.split(r"\n    def ", two)[1:]]
    assert procedures == sorted(procedures) == [5, 13, 31, 37, 75, 83, 90, 95]


def test_deviations_that_the_listing_names_are_in_the_table() -> None:
    page = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    section = page.split("## Where the printed protocol had to be completed")[1].split("\n## ")[0]
    table = {int(number) for number in re.findall(r"^\| (\d+) \| ", section, re.MULTILINE)}
    assert table == set(range(1, 15))
    named = re.findall(r"deviations? ([\d, ]+)", inspect.getsource(VCubePS))
    numbers = {int(number) for group in named for number in re.findall(r"\d+", group)}
    assert numbers == table


# -- refusals and repetitions ---------------------------------------------------------------------


def test_only_subscribers_publish() -> None:
    """Algorithm 1, lines 17-20; there are no open groups."""
    wire = Wire(4, [0, 1])
    with pytest.raises(ValueError, match="node 2 cannot publish on 't': it is not subscribed"):
        wire.publish(2)
    with pytest.raises(ValueError, match="no open groups"):
        wire.nodes[2].register(T, 0)
    wire.nodes[1].unsubscribe(T, 0)
    with pytest.raises(ValueError, match="not subscribed"):
        wire.publish(1)


def test_a_second_subscribe_or_unsubscribe_does_nothing() -> None:
    """NOK of Algorithm 1, lines 9 and 15."""
    wire = Wire(4, [0, 1])
    wire.nodes[0].subscribe(T, 0)
    wire.nodes[2].unsubscribe(T, 0)
    assert wire.sent == []


def test_left_is_called_for_the_last_unsubscribe_only() -> None:
    """Deviation 2: leave, return and leave again while the wave of the first UNS is under way."""
    wire = Wire(4, [0, 1, 2])
    wire.nodes[0].unsubscribe(T, 0)
    wire.nodes[0].subscribe(T, 0)
    wire.nodes[0].unsubscribe(T, 0)
    wire.settle("uns", "ack")  # the first UNS; the SUB leaves
    assert (wire.joined, wire.left) == ([], [])
    wire.settle()
    assert (wire.joined, wire.left) == ([], [(0, T)])


def test_a_return_while_the_wave_of_an_uns_is_under_way_is_no_leave() -> None:
    """Deviation 2: the application is subscribed when the UNS is through."""
    wire = Wire(4, [0, 1, 2])
    wire.nodes[0].unsubscribe(T, 0)
    wire.nodes[0].subscribe(T, 0)
    wire.settle()
    assert (wire.joined, wire.left) == ([(0, T)], [])


def test_a_repeated_publication_is_delivered_once() -> None:
    """Deviation 5: held or delivered, it is acknowledged again and not taken again."""
    wire = Wire(4, [0, 1, 2])
    m01 = wire.publish(0)
    wire.arrive(0, 1)
    m11 = wire.publish(1)
    for message, sender in ((m11, 1), (m11, 1), (m01, 0), (m01, 0), (m11, 1)):
        wire.nodes[2].on_message(message, sender, 0)
    assert wire.delivered[2] == [(0, 1), (1, 1)]
    assert len([link for link in wire.links(Ack) if link[0] == 2]) == 5
    wire.nodes[2].on_message(Ack(T, (2, 9), ()), 0, 0)  # no message waits for this one


def test_a_lone_node_subscribes_publishes_and_leaves() -> None:
    wire = Wire(1)
    wire.nodes[0].subscribe(T, 0)
    wire.publish(0)
    wire.nodes[0].unsubscribe(T, 0)
    assert (wire.joined, wire.left) == ([(0, T)], [(0, T)])
    assert wire.delivered[0] == [(0, 1)]


# -- against the sets of the pseudocode -----------------------------------------------------------


Triple = tuple[NodeId, str, int]
Sent = tuple[NodeId, Ident, frozenset[Triple]]


class Literal:
    """Algorithm 1, lines 6 and 12; lines 16-34 and 40-98 with sets, as they are printed.

    Not here: the queue and its task (lines 5-15), and what is sent, which the node is asked for.
    """

    def __init__(self, i: NodeId, nodes: int) -> None:
        self.i = i
        self.nodes = nodes
        self.d = dimension_for(nodes)
        self.view: set[Triple] = set()
        self.acks: set[tuple[NodeId, int, tuple[Ident, frozenset[Triple]]]] = set()
        self.first_rec: set[Ident] = set()
        self.last_delvs: set[Ident] = set()
        self.not_delvs: list[tuple[NodeId, int, frozenset[Ident]]] = []
        self.causal_barrier: set[Ident] = set()
        self.delivered: list[Ident] = []
        self.leaving: Ident | None = None
        """The own UNS for whose ACKs line 31 waits."""

    def subscribe(self, c: int) -> None:
        self.view = {(self.i, "sub", c)}

    def unsubscribe(self) -> None:
        self.view -= self.own()

    def own(self) -> set[Triple]:
        """{⟨i, SUB, _⟩} ∩ view[t]."""
        return {entry for entry in self.view if entry[:2] == (self.i, "sub")}

    def children(self, m: Any, h: int) -> tuple[NodeId, ...]:
        """Lines 23-26 and 41-44."""
        if type(m) is Sub:
            return children(self.i, (1 << self.nodes) - 1, h)
        return children(self.i, mask_of({n for n, o, _ in self.view if o == "sub"}), h)

    def start(self, m: Any) -> tuple[NodeId, ...]:
        """Lines 23-30: the nodes that a message of our own goes to."""
        chd = self.children(m, self.d)
        if chd:
            self.acks.add((BOTTOM, len(chd), (m.ident, frozenset())))
        self.leaving = m.ident if type(m) is Uns else None
        return chd

    def handle(self, m: Any, j: NodeId) -> tuple[tuple[NodeId, ...], list[Sent]]:
        """Lines 40-74, then line 31 and 32-34: the nodes m is sent on to, and the ACKs."""
        data: set[Triple] = set()
        chd: tuple[NodeId, ...] = ()
        sent: list[Sent] = []
        if type(m) is not Ack:
            chd = self.children(m, cluster(self.i, j) - 1)
            if not chd:
                sent.append(self.send_acks(j, m.ident, set()))
            else:
                self.acks.add((j, len(chd), (m.ident, frozenset())))
        else:
            [(k, nb, mem)] = [(k, nb, mem) for k, nb, (ident, mem) in self.acks if ident == m.ident]
            self.acks -= {(k, nb, (m.ident, mem))}
            data = set(m.data) | mem
            if nb > 1:
                self.acks |= {(k, nb - 1, (m.ident, frozenset(data)))}
            elif k != BOTTOM:
                sent.append(self.send_acks(k, m.ident, data))
        if self.own():
            if type(m) is Pub:
                self.receive(*m.ident, frozenset(m.cb.idents()))
            elif type(m) is Ack:
                self.view = self.update(self.view, data)
            else:
                self.view = self.update(self.view, {(m.s, m.kind, m.c)})
                if type(m) is Uns:
                    self.first_rec = {item for item in self.first_rec if item[0] != m.s}
        self.end()
        return chd, sent

    def end(self) -> None:
        """Lines 31-34."""
        if self.leaving is not None and all(
            ident != self.leaving for _, _, (ident, _) in self.acks
        ):
            self.not_delvs, self.first_rec, self.last_delvs = [], set(), set()
            self.leaving = None

    def update(self, set_1: set[Triple], set_2: set[Triple]) -> set[Triple]:
        """Lines 75-82."""
        for one in list(set_1):
            for two in [two for two in set_2 if two[0] == one[0]]:
                if two[2] > one[2]:
                    set_1 = set_1 - {one}
                else:
                    set_2 = set_2 - {two}
        return set_1 | set_2

    def send_acks(self, j: NodeId, ident: Ident, data: set[Triple]) -> Sent:
        """Lines 95-98."""
        if self.own() and not any(s == ident[0] for s, _ in self.first_rec):
            data = data | self.own()
        return j, ident, frozenset(data)

    def publish(self, i: NodeId, c: int) -> frozenset[Ident]:
        """Lines 16-22."""
        self.see(i, c)
        self.deliver(i, c)
        cb = frozenset(self.causal_barrier)
        self.causal_barrier = {(i, c)}
        return cb

    def receive(self, s: NodeId, c: int, cb: frozenset[Ident]) -> None:
        """Lines 64-68 and 83-89."""
        self.see(s, c)
        self.not_delvs.append((s, c, cb))
        while ready := [m for m in self.not_delvs if self.check_cb(m[2])]:
            s, c, cb = ready[0]
            self.deliver(s, c)
            self.not_delvs.remove(ready[0])
            self.causal_barrier = (self.causal_barrier - cb) | {(s, c)}

    def see(self, s: NodeId, c: int) -> None:
        if not any(source == s for source, _ in self.first_rec):
            self.first_rec.add((s, c))

    def deliver(self, s: NodeId, c: int) -> None:
        self.delivered.append((s, c))
        self.last_delvs = {item for item in self.last_delvs if item[0] != s} | {(s, c)}

    def check_cb(self, cb: frozenset[Ident]) -> bool:
        """Lines 90-94."""
        return all(
            any(s1 == s and c1 >= c for s1, c1 in self.last_delvs)
            or any(s1 == s and c1 > c for s1, c1 in self.first_rec)
            for s, c in cb
        )


class Shadowed(VCubePS):
    """A node that does everything twice: as it is, and to the letter."""

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:
        super().__init__(node, port, nodes=nodes)
        self.literal = Literal(node, nodes)
        self.real: list[Ident] = []
        self.cb: frozenset[Ident] = frozenset()
        self.waited = self.gathered = 0
        self.started = -1
        """The counter of the last message that was sent to others."""
        self.relayed: tuple[NodeId, ...] = ()
        self.acked: list[Sent] = []
        self.through = port
        self.port = self

    def establish(self, topic: Topic, members: int) -> None:
        super().establish(topic, members)
        if members >> self.i & 1:
            self.literal.view = {(n, "sub", 0) for n in members_of(members)}

    def subscribe(self, topic: Topic, now: Time) -> None:
        self.literal.subscribe(self.counter)
        super().subscribe(topic, now)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self.literal.unsubscribe()
        super().unsubscribe(topic, now)

    def end_msg_propagation(self, t: Variables) -> None:
        if type(t.sent) is Uns and t.sent.c > self.started:  # it goes to no node
            assert self.literal.start(t.sent) == ()
            self.literal.end()
        super().end_msg_propagation(t)

    def on_message(self, message: Any, sender: NodeId, now: Time) -> None:
        self.relayed, expected = self.literal.handle(message, sender)
        self.waited += type(message) is Pub and message.ident not in self.literal.delivered[-1:]
        self.gathered += type(message) is Ack and len(message.data) > 1
        self.acked = []
        super().handle_received_msg(message, sender, now)
        assert self.acked == expected
        assert self.real == self.literal.delivered
        t = self.topics[message.topic]
        assert {(n, o, rc) for n, (o, rc) in t.view.items()} == self.literal.view
        pending = {(one.k, one.nb, (ident, frozenset(one.mem))) for ident, one in self.acks.items()}
        assert pending == self.literal.acks

    def relay(self, peers: Sequence[NodeId], message: Any) -> None:
        if message.ident[0] == self.i:
            assert peers == self.literal.start(message)
            self.started = message.ident[1]
            if type(message) is Pub:
                assert message.cb.idents() == sorted(self.cb)
        else:
            assert peers == self.relayed
        self.through.relay(peers, message)

    def control(self, peer: NodeId, message: Ack) -> None:
        assert len(set(message.data)) == len(message.data)  # line 57: + is ∪
        self.acked.append((peer, message.ident, frozenset(message.data)))
        self.through.control(peer, message)

    def deliver(self, publication: Any) -> bool:
        self.real.append(publication.ident)
        if publication.ident[0] == self.i:
            self.cb = self.literal.publish(*publication.ident)
        return self.through.deliver(publication)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.through, name)


def shadowed_run(seed: int) -> list[Shadowed]:
    """Joins, leaves and publications at random, on links where messages overtake each other."""
    rng = Random(seed)
    nodes = rng.choice((4, 8, 16))
    world = World(nodes, lambda node, port: Shadowed(node, port, nodes=nodes), Uniform(rng, 1, 400))
    world.establish(T, sorted(rng.sample(range(nodes), nodes // 2)))
    shadows = [process for process in world.processes if isinstance(process, Shadowed)]

    def act(node: NodeId, _: None, now: Time) -> None:
        if not shadows[node].literal.own():
            world.subscribe(node, T)
        elif rng.random() < 0.1:
            world.unsubscribe(node, T)
        elif world.is_subscribed(node, T):
            world.publish(node, T)

    at = 0
    for _ in range(150):
        at += rng.randrange(120)
        world.post(at, act, rng.randrange(nodes))
    world.run()
    return shadows


def test_as_the_sets_of_the_pseudocode() -> None:
    """Order of delivery, barriers, views, trees and ACKs agree at every step, and what is held."""
    delivered = waited = stuck = gathered = 0
    for seed in range(60):
        for shadow in shadowed_run(seed):
            assert shadow.real == shadow.literal.delivered, seed
            assert shadow.load().held == len(shadow.literal.not_delvs), seed
            delivered += len(shadow.real)
            waited += shadow.waited
            stuck += len(shadow.literal.not_delvs)
            gathered += shadow.gathered
    assert delivered > 10_000
    assert waited > 1_000
    assert gathered > 1_000
    assert stuck > 100  # holes 1 and 5 did happen


@pytest.mark.parametrize("seed", range(5))
def test_a_static_group_keeps_every_promise(seed: int) -> None:
    """No churn, no hole: causal order, FIFO and completeness hold with messages that overtake."""
    rng = Random(seed)
    trace: list[Record] = []
    world = World(
        16,
        lambda node, port: VCubePS(node, port, nodes=16),
        Uniform(rng, 1, 300),
        trace=trace,
    )
    members = sorted(rng.sample(range(16), 11))
    world.establish(T, members)
    for _ in range(120):
        world.post(
            rng.randrange(4000), lambda node, _, now: world.publish(node, T), rng.choice(members)
        )
    world.run()
    world.record_state()
    report = check(trace)
    assert report.ok, report
    assert report.deliveries == 120 * 11


def test_a_cube_that_is_not_full() -> None:
    """Deviation 10: SUB goes to the ids that exist."""
    wire = Wire(6, [0, 5])
    wire.nodes[3].subscribe(T, 0)
    wire.settle()
    assert sorted(peer for _, peer in wire.links(Sub)) == [0, 1, 2, 4, 5]
    assert wire.joined == [(3, T)]
