"""Recovery in situations that chance seldom makes: members with messages moved by hand."""

from __future__ import annotations

from member_toys import Members, kind, link

from cubecast.protocol.port import Stream


def both(*conditions):  # type: ignore[no-untyped-def]
    return lambda one: all(condition(one) for condition in conditions)


def test_what_an_heir_passed_on_before_it_was_one_is_not_delivered_above_the_end() -> None:
    """Node 3 is taken for dead and is not.  Node 1, a relay of its tree, reports its first message,
    then passes on its second one; nobody will have that, also if it arrives with the end known.
    """
    world = Members(4)
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
    world.hand_over(kind("install"))
    assert world.ports[1].of("discard") == [("t", {Stream(3, 0): (1, 1)})]
    world.flying += late
    world.hand_over(kind("pub"))
    world.down.add(3)
    world.settle()
    for node in range(3):
        assert world.ports[node].delivered() == ["first"], node


def test_a_leaver_that_misses_the_view_without_it_hears_of_it_when_it_asks_again() -> None:
    world = Members(3)
    world.members[2].depart(world.now)
    world.settle(lambda one: one.to != 2, ticks=3)
    assert world.masks() == [0b011, 0b011, 0b111]
    world.lose()
    world.settle()
    assert world.ports[2].of("departed") == [()]
    assert world.masks()[:2] == [0b011, 0b011]


def test_a_leader_leaves() -> None:
    world = Members(4)
    world.publish(0, "farewell")
    world.settle()
    world.members[0].depart(world.now)
    world.settle()
    assert world.ports[0].of("departed") == [()]
    assert world.masks()[1:] == [0b1110] * 3
    assert not any(port.of("gap") or port.of("discard") for port in world.ports)
