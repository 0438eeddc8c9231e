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


def test_an_effect_whose_cause_died_with_all_who_had_it_holds_nobody_up() -> None:
    """Node 1 joins after "cause" of node 3, which node 2 alone has read; then 2 says "effect".

    Node 1 reads it: its cut covers the cause.  Both publishers die.  Node 0 has the effect, and
    nobody has the cause any more: it has to jump to where node 1 is.
    """
    world = Members(4, 0b1101)
    world.publish(3, "cause")
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.lose(kind("pub"))
    world.members[1].subscribe("t", world.now)
    for _ in range(6):
        world.hand_over(lambda one: not kind("pub")(one))
    assert world.ports[1].of("joined") == [("t",)]
    world.publish(2, "effect")
    world.hand_over(both(kind("pub"), lambda one: one.source == 2))
    world.hand_over(both(kind("pub"), lambda one: one.to in (0, 1)))
    assert world.ports[1].delivered() == ["effect"]
    assert world.ports[0].delivered() == []
    world.down |= {2, 3}
    world.lose(lambda one: one.source in (2, 3))
    for dead in (2, 3):
        world.suspect(dead)
    world.settle()
    assert world.masks() == [0b0011, 0b0011]
    (gap,) = world.ports[0].of("gap")
    assert gap == ("t", {Stream(3, 0): (0, 0), Stream(2, 0): (0, 0)})
    world.publish(0, "more")
    world.publish(1, "still more")
    world.settle()
    assert sorted(map(str, world.ports[0].delivered())) == ["more", "still more"]
    assert not any(world.members[0].load()[:2])
