"""Recovery in situations that chance seldom makes: members with messages moved by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cubecast.protocol.cluster.detector import DetectorConfig, Notice
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Ballot, Enter, Final, Install, Stuck, View, ViewId, Who
from cubecast.protocol.messages import Op
from cubecast.protocol.port import Stream
from cubecast.protocol.subscriptions.membership import Standing
from support.member_scenarios import SCENARIOS
from support.member_toys import CONFIG, EPOCHS, Flying, Members, both, kind, link


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[type[Member]], None]) -> None:
    scenario(Member)


def test_a_leaver_that_misses_the_view_without_it_hears_of_it_when_it_asks_again() -> None:
    world = Members(3)
    world.members[2].depart(world.now)
    world.settle(lambda one: one.to != 2 or one.message.kind == "doubt", ticks=3)
    assert world.masks() == [0b011, 0b011, 0b111]
    world.lose()
    world.settle()
    assert world.ports[2].of("departed") == [()]
    assert world.masks()[:2] == [0b011, 0b011]


def other_view(world: Members, epoch: int, *slots: int) -> View:
    """Some of the nodes, in a view of their own."""
    members = {slot: world.members[slot].who for slot in slots}
    return View(ViewId(epoch, Ballot(9, slots[0])), members)


def test_a_leaver_is_let_go_by_a_later_view_alone() -> None:
    """A view of the same epoch was not made for its departure."""
    world = Members(3)
    world.members[2].depart(0)
    world.members[2].elsewhere(other_view(world, 0, 0, 1), "n0", 0)
    assert world.ports[2].of("departed") == []
    world.members[2].elsewhere(other_view(world, 1, 0, 1), "n0", 0)
    assert world.ports[2].of("departed") == [()]


def test_a_node_goes_to_the_view_of_the_same_epoch_that_has_most_members() -> None:
    world = Members(4)
    world.members[3].elsewhere(other_view(world, 0, 0, 1, 2), "n0", 0)
    assert world.ports[3].of("excluded") == [()]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_topic_unsubscribed_between_two_lives_is_not_joined_again(wanted: bool) -> None:
    world = Members(3)
    world.members[2].elsewhere(other_view(world, 0, 0, 1), "n0", 0)
    if not wanted:
        world.members[2].unsubscribe("t", 0)
    world.settle()
    assert world.masks() == [0b111] * 3
    world.publish(0, "news")
    world.settle()
    assert world.ports[2].delivered() == (["news"] if wanted else [])


def test_a_subscriber_that_has_to_jump_when_a_newcomer_comes_joins_again() -> None:
    """A stream of the dead was not settled; the view that no node leaves names its end anew."""
    world = Members(2)
    view, core = world.members[0].view, world.members[0].core
    assert view is not None
    assert core is not None
    dead = Stream(9, 0)
    membership = core.membership_of("t")
    membership.core.front.delivered[dead] = 0
    after = view.changed(ViewId(1, Ballot(1, 0)), 0, {2: Who("n2", "2", 0)})
    finals = {"t": (Final(dead, 3, heir=1, base=3),)}
    core.install(Install(Ballot(1, 0), view.id, after, finals, {}), 0)
    assert membership.standing is Standing.JOINING
    assert [one.to for one in world.flying if one.message.kind == "parcel"] == [1, 2]


@pytest.mark.parametrize(("nodes", "pauses"), [(2, 1), (16, 2), (64, 3)])
def test_a_node_that_hears_of_a_later_view_asks_for_it_after_a_while_and_again(
    nodes: int, pauses: int
) -> None:
    """It may be on its way down the tree: tests overtake it."""
    world = Members(nodes)
    view = world.members[0].view
    assert view is not None
    member = Member(
        0,
        world.ports[0],
        view=view,
        who=view.members[0],
        config=CONFIG,
        epochs=EPOCHS,
        detector=DetectorConfig(),
    )
    pause = EPOCHS.repeat_after

    def asks(epoch: int, times: range) -> list[int]:
        """When it asks if it hears of a view of that epoch all the time."""
        asked = []
        for now in times:
            world.flying.clear()
            member.on_message(Notice(other_view(world, epoch, 0, 1).number, ()), 1, now)
            asked += [now for one in world.flying if isinstance(one.message, Stuck)]
        return asked

    first = 10 + pauses * pause
    assert asks(1, range(10, first + pause + 1)) == [first, first + pause]
    came = Install(Ballot(1, 1), view.id, other_view(world, 1, 0, 1), {}, {})
    member.hear(came, "n1", 50)
    assert member.view == came.view
    assert asks(1, range(50, 50 + 3 * pause)) == []
    assert asks(2, range(100, 101 + pause)) == [100 + pause], "the next one may be on its way, too"


def test_a_leader_leaves() -> None:
    world = Members(4)
    world.publish(0, "farewell")
    world.settle()
    world.members[0].depart(world.now)
    world.settle()
    assert world.ports[0].of("departed") == [()]
    assert world.masks()[1:] == [0b1110] * 3
    assert not any(port.of("gap") or port.of("discard") for port in world.ports)


def test_an_effect_whose_cause_is_lost_is_delivered() -> None:
    """Node 1 joins after "cause" of node 3, which node 2 alone has read; then 2 says "effect".

    Node 1 reads it: its cut covers the cause.  Both publishers die.  Node 0 has the effect, and
    no node has the cause any more: it skips the cause, and reads the effect.
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
    assert gap == ("t", {Stream(3, 0): (0, 0)})
    world.publish(0, "more")
    world.publish(1, "still more")
    world.settle()
    assert sorted(map(str, world.ports[0].delivered())) == ["effect", "more", "still more"]
    assert not any(world.members[0].load()[:2])


def away(node: int):  # type: ignore[no-untyped-def]
    """Everything but what comes from or goes to a node."""
    return lambda one: node not in (one.source, one.to)


def test_a_pattern_is_followed_again_and_what_came_up_meanwhile_is_a_gap() -> None:
    world = Members(3)
    world.members[2].follow("p", lambda topic: topic.startswith("x/"), world.now)
    world.settle()
    assert world.ports[2].of("followed") == [("p", True)]
    world.publish(0, "one", "x/a")
    world.settle()
    world.publish(0, "one", "x/a")
    world.settle()
    assert world.ports[2].delivered("x/a") == ["one"]
    world.suspect(2)
    world.settle(away(2))
    world.lose()
    assert world.masks() == [0b011, 0b011, 0b111]
    for _ in range(2):  # the first is refused: it has to ask for subscribers
        world.publish(0, "two", "x/b")
        world.settle(away(2), ticks=5)
    world.lose()
    world.settle(ticks=80)
    assert world.masks() == [0b111] * 3
    assert world.ports[2].of("gap") == [("x/b", {Stream(0, 0): (0, 0)})]
    world.publish(0, "three", "x/b")
    world.publish(0, "four", "x/a")
    world.settle()
    assert world.ports[2].delivered("x/b") == ["three"]
    assert world.ports[2].delivered("x/a") == ["one", "four"]
    assert world.members[2].marks["topic missed while away"] == 1
    assert world.ports[2].of("followed") == [("p", True)] * 2


def test_a_question_for_topics_is_asked_again_without_the_dead() -> None:
    world = Members(4)
    world.members[3].follow("p", lambda topic: topic == "t", world.now)
    world.down.add(2)
    world.suspect(2)
    world.settle()
    assert world.ports[3].of("followed") == [("p", True)]
    assert world.members[3].marks["topics started again"] == 1


def test_a_leaver_of_a_topic_does_not_wait_for_the_release_of_the_dead() -> None:
    world = Members(4)
    world.publish(3, "last")
    world.hand_over(both(kind("pub"), link(3, 1)))
    world.members[1].unsubscribe("t", world.now)
    world.settle(lambda one: not (one.source == 3 and kind("ack")(one)) and one.to != 0, ticks=1)
    world.settle(lambda one: not kind("ack", "direct")(one), ticks=2)
    assert world.ports[1].of("left") == []
    world.down.add(3)
    world.suspect(3)
    world.settle()
    assert world.ports[1].of("left") == [("t",)]


def test_all_leave_at_once() -> None:
    world = Members(3)
    for member in world.members:
        member.depart(world.now)
    world.settle(ticks=60)
    assert [port.of("departed") for port in world.ports] == [[()]] * 3


def test_a_leader_leaves_while_another_node_dies() -> None:
    world = Members(4)
    world.publish(3, "last words")
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.down.add(3)
    world.lose(lambda one: one.source == 3)
    world.members[0].depart(world.now)
    world.hand_over(kind("prepare"))
    world.suspect(3)
    world.settle(ticks=60)
    assert world.ports[0].of("departed") == [()]
    assert world.masks()[1:] == [0b0110] * 2
    assert world.ports[1].delivered() == world.ports[2].delivered() == ["last words"]


def test_a_newcomer_with_a_taken_wish_gets_another_slot() -> None:
    world = Members(2)
    epochs = world.members[0]._agreement
    assert epochs is not None
    epochs.on_enter(Enter(Who("x", "7", 1), 1), world.now)
    world.settle(ticks=2)
    view = world.members[0].view
    assert view is not None
    assert view.slot_of("x") == 2
    assert world.members[0].marks["newcomer placed elsewhere"] == 1


def four_of_whom_3_passes_1_over() -> Members:
    """Node 3 publishes without node 1, which is lossy."""
    world = Members(4)
    topic = world.members[3].core.memberships["t"].core
    topic.outgoing.laggards.learn_lossy(0b0010)
    topic.outgoing.laggards.judge(0b0010, 0b1110, out_of_credit=True, now=world.now)
    topic.outgoing.end_route()
    world.publish(3, "unseen")
    return world


def assert_node_1_jumps_when_3_is_found_dead(world: Members) -> None:
    world.suspect(3)
    world.settle(ticks=80)
    assert world.ports[0].delivered() == ["unseen", "seen"]
    assert world.ports[1].of("gap") == [("t", {Stream(3, 0): (0, 0), Stream(2, 0): (0, 0)})]
    world.publish(0, "more")
    world.settle()
    assert world.ports[1].delivered() == ["more"]
    assert not any(world.members[1].load()[:2])


def test_a_subscriber_passed_over_by_a_publisher_that_died_jumps() -> None:
    """Node 3 goes on without node 1 and dies before it can say so.

    Its heir feeds the nodes it addressed; node 1 hears that all of them have everything.
    """
    world = four_of_whom_3_passes_1_over()
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.publish(2, "seen")
    world.hand_over(both(kind("pub"), lambda one: one.source == 2 or one.to == 1))
    world.down.add(3)
    world.lose(lambda one: one.source == 3)
    assert_node_1_jumps_when_3_is_found_dead(world)


def test_a_subscriber_that_lacks_what_all_others_have_of_the_dead_jumps() -> None:
    """The same, but all others have long forgotten what node 3 said: no node inherits anything."""
    world = four_of_whom_3_passes_1_over()
    world.settle(lambda one: one.to != 1)
    assert not any(world.members[2].load()[:2])
    world.publish(2, "seen")
    world.hand_over(lambda one: one.source == 2)
    world.lose(link(3, 1))
    world.down.add(3)
    assert_node_1_jumps_when_3_is_found_dead(world)


def test_a_member_leaves() -> None:
    world = Members(3)
    world.members[2].depart(world.now)
    world.settle()
    assert world.ports[2].of("departed") == [()]
    assert world.masks()[:2] == [0b011] * 2
    assert world.members[2].marks["let go"] == 1


def test_the_next_owner_of_a_slot_does_not_get_frames_for_the_former_one() -> None:
    """Node 3 is excluded and comes back, while a frame of before is on its way to its parent."""
    world = Members(4)
    world.publish(0, "before")
    late = [one for one in world.flying if link(0, 2)(one)]
    world.lose(link(0, 2))

    def without_frames(one: Flying) -> bool:
        return not (link(0, 2)(one) and kind("pub", "direct", "probe")(one))

    world.suspect(3)
    world.settle(without_frames, ticks=80)
    assert world.masks() == [0b1111] * 4
    world.flying = late
    world.settle()
    assert world.members[2].marks["route with the former owner of a slot"]
    assert world.ports[2].delivered() == ["before"]
    (gap,) = world.ports[3].of("gap")
    assert gap == ("t", {Stream(0, 0): (0, 0)})
    frame = late[0].message
    world.members[3].on_message(frame, 2, world.now)
    assert world.members[3].marks["frame for the former owner of our slot"] == 1
    assert world.ports[3].delivered() == []


def test_a_node_that_hears_no_other_pulls_no_other_over() -> None:
    """It excludes everyone else; they go on without it, and it is the one to come back."""
    world = Members(5)
    for other in range(4):
        world.suspect(other, 4)
    world.settle(lambda flying: flying.to != 4, ticks=12)
    assert world.masks() == [0b01111] * 4 + [0b10000]
    world.lose()
    world.settle(ticks=100)
    assert world.masks() == [0b11111] * 5
    assert [member.who.uid for member in world.members] == ["n0", "n1", "n2", "n3", "n4.1"]


def test_messages_that_only_another_view_had_are_skipped_without_a_jump() -> None:
    """Node 0 has all that its views agreed on of node 3's stream, and was told that another view
    went further; a node that joined above that says that it counts as read, and no node has it.
    """
    world = Members(4)
    world.publish(3, "first")
    world.hand_over(both(kind("pub"), link(3, 1)))
    world.hand_over(both(kind("pub"), link(1, 0)))
    world.lose(kind("pub"))
    world.suspect(3, 0)
    for step in ("prepare", "report", "change"):
        world.hand_over(kind(step))
    dead = Stream(3, 0)
    core = world.members[0].core
    assert core is not None
    topic = core.membership_of("t").core
    assert topic.front.delivered[dead] == topic.dead.finals[dead] == 0
    topic.recovery.hear_end(dead, 2, world.now, apart=1)
    assert world.ports[0].of("gap") == []  # its own view's part is not settled
    assert not topic.recovery.end_stream(Final(dead, 2, 1, 2), world.now)
    assert world.ports[0].of("gap") == [("t", {dead: (1, 2)})]
    assert topic.front.delivered[dead] == topic.streams.floor[dead] == 2
    ends = topic.dead
    assert dead not in {**topic.streams.inboxes, **ends.heirs, **ends.finals, **ends.ends}


def test_messages_that_only_the_dead_had_are_skipped_and_no_others() -> None:
    """Node 2 joined when node 0 had sent "lost" to no node; then it read what node 0 said next.

    No node can send "lost" to nodes 1 and 3.  They get what node 1 published meanwhile.
    """
    world = Members(4, members=0b1011)
    quiet = kind("pub", "probe", "direct")
    assert world.publish(0, "lost")
    world.lose(kind("pub"))
    world.members[2].subscribe("t", world.now)
    world.settle(lambda one: not quiet(one), ticks=3)
    assert world.publish(0, "after")
    world.hand_over(both(kind("pub"), link(0, 2)))
    assert world.ports[2].delivered() == ["after"]
    assert world.publish(1, "of the living")
    world.lose(kind("pub"))
    world.down.add(0)
    world.suspect(0)
    world.settle()
    lost = {Stream(0, 0): (0, 0)}
    for node in (1, 3):
        assert [skipped for _, skipped in world.ports[node].of("gap")] == [lost]
        assert sorted(map(str, world.ports[node].delivered())) == ["after", "of the living"]
    assert world.ports[2].of("gap") == []


def test_a_leaver_keeps_messages_of_the_dead_that_others_may_need() -> None:
    """Node 2 alone has what node 0 said; it leaves the topic while the view changes."""
    world = Members(4)
    assert world.publish(0, "a")
    world.hand_over(both(kind("pub"), link(0, 2)))
    world.lose(kind("pub"))
    world.members[2].unsubscribe("t", world.now)
    world.down.add(0)
    world.suspect(0)
    world.settle()
    assert world.ports[1].delivered() == world.ports[3].delivered() == ["a"]
    assert world.ports[2].of("left") == [("t",)]


def test_an_effect_waits_for_the_causes_of_what_is_skipped() -> None:
    """Node 1's "cause" precedes node 0's "lost", which precedes "after": node 3 reads it first."""
    world = Members(4, members=0b1011)
    assert world.publish(1, "cause")
    world.hand_over(both(kind("pub"), link(1, 0)))
    held = [one for one in world.flying if one.message.kind == "pub"]
    world.lose(kind("pub"))
    assert world.publish(0, "lost")
    world.lose(kind("pub"))
    world.members[2].subscribe("t", world.now)
    world.settle(lambda one: one.message.kind not in ("pub", "probe", "direct"), ticks=3)
    assert world.publish(0, "after")
    world.hand_over(both(kind("pub"), link(0, 2)))
    world.lose(kind("pub"))
    world.down.add(0)
    world.suspect(0)
    late = both(kind("pub"), lambda one: one.message.stream.source == 1)
    world.settle(lambda one: not late(one))
    assert world.ports[3].delivered() == [], "what was lost comes after the cause, which will come"
    world.flying += held
    world.settle()
    assert world.ports[3].delivered() == ["cause", "after"]
    assert [skipped for _, skipped in world.ports[3].of("gap")] == [{Stream(0, 0): (0, 0)}]


def test_a_subscriber_that_lacks_messages_no_heir_can_feed_joins_again() -> None:
    """The heir lacks what everyone else had taken in: a publisher had gone on without node 0."""
    world = Members(3)
    core = world.members[0].core
    assert core is not None
    assert core.view is not None
    next_id = ViewId(1, Ballot(1, 0))
    finals = {"t": (Final(Stream(2, 0), 3, heir=1, base=2),)}
    view = core.view.changed(next_id, 0b100, {})
    core.install(Install(next_id.ballot, core.view.id, view, finals, {}), world.now)
    assert core.marks["jump, as no node can feed us"] == 1
    assert [one.message.message.op for one in world.flying if one.message.kind == "parcel"] == [
        Op.JOIN
    ]


def test_of_what_may_be_forgotten_nothing_is_reported() -> None:
    world = Members(2)
    core = world.members[0].core
    assert core is not None
    topic = core.membership_of("t").core
    topic.history.forgotten = 5
    topic.recovery.hear_end(Stream(1, 77), 3, world.now, apart=5)
    assert world.ports[0].of("gap") == []
    topic.recovery.hear_end(Stream(1, 78), 3, world.now, apart=6)
    assert world.ports[0].of("gap") == [("t", {Stream(1, 78): (0, 3)})]


@pytest.mark.parametrize("lost", ["nothing", "inquiry", "pub"])
def test_an_heir_that_joined_late_is_left_what_it_lacks_and_feeds_all(lost: str) -> None:
    """What node 3 says first has node 1, what it says next node 2, which joined in between."""
    world = Members(4, 0b1011)
    world.publish(3, "first")
    world.hand_over(both(kind("pub"), link(3, 1)))
    world.lose(kind("pub"))
    world.members[2].subscribe("t", world.now)
    world.settle(kind("parcel", "parcel-ack"), ticks=1)
    assert world.ports[2].of("joined") == [("t",)]
    world.publish(3, "second")
    world.hand_over(both(kind("pub"), link(3, 2)))
    world.lose(lambda one: 3 in (one.source, one.to))
    world.down.add(3)
    world.suspect(3)
    for _ in range(4):
        world.hand_over(kind("prepare", "report", "change", "installed"))
    assert world.members[2].marks["heir asks for what others hold"] == 1
    if lost == "pub":
        world.hand_over(kind("inquiry"))
    world.lose(kind(lost))
    world.settle()
    assert world.ports[0].delivered() == world.ports[1].delivered() == ["first", "second"]
    assert world.ports[2].delivered() == ["second"]
    assert not any(port.of("gap") or port.of("discard") for port in world.ports)
    assert not any(any(world.members[node].load()[:2]) for node in range(3))
