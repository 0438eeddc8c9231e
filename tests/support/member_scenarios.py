"""Situations that chance seldom makes, for members of any class: broken ones fail in them."""

from __future__ import annotations

from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Depart
from cubecast.protocol.port import Stream
from support.member_toys import Flying, Members, both, kind, link


def what_an_heir_passed_on_before_it_was_one_is_not_delivered_above_the_end(
    member: type[Member],
) -> None:
    """Node 3 is taken for dead and is not.  Node 1, a relay of its tree, reports its first message,
    then passes on its second one; no node will have that, even if it arrives with the end known.
    """
    world = Members(4, kind=member)
    world.publish(3, "first")
    world.hand_over(both(kind("pub"), link(3, 1)))
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.suspect(3, 0)
    world.hand_over(kind("prepare"))
    world.publish(3, "second")
    world.hand_over(both(kind("pub"), link(3, 1)))
    world.lose(link(3, 2))
    late = [one for one in world.flying if one.source == 1 and one.message.kind == "pub"]
    assert [one.to for one in late] == [0, 0]
    world.lose(both(kind("pub"), link(1, 0)))
    world.hand_over(kind("report"))
    world.hand_over(kind("change"))
    assert world.ports[1].of("discard") == [("t", {Stream(3, 0): (1, 1)})]
    world.flying += late
    world.hand_over(kind("pub"))
    world.down.add(3)
    world.settle()
    for node in range(3):
        assert world.ports[node].delivered() == ["first"], node


def what_comes_after_the_reports_is_delivered_by_nobody(
    member: type[Member],
) -> None:
    """Node 3 is taken for dead and is not; what it says reaches a relay that has reported."""
    world = Members(4, kind=member)
    world.suspect(3, 0)
    world.hand_over(kind("prepare"))
    world.publish(3, "late")
    world.hand_over(both(kind("pub"), link(3, 1)))
    late = [one for one in world.flying if one.source == 1 and one.message.kind == "pub"]
    assert [one.to for one in late] == [0]
    world.flying = [one for one in world.flying if one not in late and one.source != 3]
    world.hand_over(kind("report"))
    world.hand_over(kind("change"))
    world.flying += late
    world.hand_over(kind("pub"))
    world.down.add(3)
    world.settle()
    for node in range(3):
        assert world.ports[node].delivered() == [], node
        assert not any(world.members[node].load()[:2]), node


def who_joins_is_told_of_ends_that_nobody_who_reads_has_come_to(
    member: type[Member],
) -> None:
    """What node 3 said before it died has node 2 alone, which left: it inherits, reading nothing.

    Node 1 joins before any node is fed; then node 0 has read it and says more.
    """
    world = Members(4, 0b1101, kind=member)
    world.publish(3, "first")
    world.members[2].unsubscribe("t", world.now)
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.lose(kind("pub"))
    world.down.add(3)
    world.suspect(3)
    world.lose(lambda one: one.source == 3)
    for _ in range(4):
        world.hand_over(kind("prepare", "report", "change", "installed"))
    world.members[1].subscribe("t", world.now)
    for _ in range(6):
        world.hand_over(kind("parcel", "parcel-ack"))
    assert world.ports[1].of("joined") == [("t",)]
    assert world.ports[0].delivered() == []
    world.settle(lambda one: one.to != 1, ticks=5)
    assert world.ports[0].delivered() == ["first"]
    world.publish(0, "second")
    world.settle()
    assert world.ports[1].delivered() == ["second"]
    assert world.ports[1].of("gap") == []


def who_joins_begins_at_a_cut_and_not_where_each_publisher_is(
    member: type[Member],
) -> None:
    """Hole 8: node 2 hears of node 3 before it says "a", node 0 after it has answered with "b"."""
    world = Members(4, 0b0111, kind=member)
    world.members[3].subscribe("t", world.now)
    world.hand_over(both(kind("parcel"), link(3, 2)))
    world.publish(2, "a")
    late = [one for one in world.flying if link(2, 3)(one) and kind("pub")(one)]
    assert len(late) == 1
    world.lose(link(2, 3))
    for _ in range(2):
        world.hand_over(both(kind("pub"), lambda one: one.to != 3))
    world.publish(0, "b")
    for _ in range(2):
        world.hand_over(both(kind("pub"), lambda one: one.to != 3))
    assert world.ports[1].delivered() == ["a", "b"]
    world.settle(lambda one: not kind("pub")(one), ticks=20)
    assert world.ports[3].of("joined") == [("t",)]
    world.publish(1, "c")
    world.settle(lambda one: one not in late, ticks=2)
    world.flying += late
    world.settle()
    assert world.ports[3].delivered() == ["c"]


def a_relay_does_not_count_those_below_a_dead_child_as_served(member: type[Member]) -> None:
    """Node 7 publishes; the way to node 0 leads through node 3 and node 1, which is dead.

    Node 3 hears of the view without node 1 before node 7 does, and must not let it forget.
    """
    world = Members(8, kind=member)
    world.down.add(1)
    world.publish(7, "to all")
    world.settle(kind("pub", "ack"), ticks=1)
    assert [port.delivered() for port in world.ports] == [[], [], *[["to all"]] * 6]
    world.suspect(1, 0)
    for _ in range(4):
        world.hand_over(lambda one: kind("prepare", "report")(one) or (one.to == 3))
    world.settle(lambda one: one.to != 7 or kind("ack")(one), ticks=6)
    world.settle()
    assert world.ports[0].delivered() == ["to all"]


def only_the_member_itself_departs(member: type[Member]) -> None:
    """Node 3 says that nodes 0 and 1 want to go; then node 2 really does."""
    world = Members(4, kind=member)
    for victim in (0, 1):
        seal = world.members[3].seal()
        world.flying.append(Flying(3, 0, Depart(f"n{victim}"), seal))
    world.settle()
    assert world.masks() == [0b1111] * 4
    world.members[2].depart(world.now)
    world.settle()
    assert world.ports[2].of("departed") == [()]
    assert world.masks()[:2] == [0b1011] * 2


SCENARIOS = (
    what_an_heir_passed_on_before_it_was_one_is_not_delivered_above_the_end,
    what_comes_after_the_reports_is_delivered_by_nobody,
    who_joins_is_told_of_ends_that_nobody_who_reads_has_come_to,
    who_joins_begins_at_a_cut_and_not_where_each_publisher_is,
    a_relay_does_not_count_those_below_a_dead_child_as_served,
    only_the_member_itself_departs,
)
