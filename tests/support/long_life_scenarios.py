"""What must hold in long lives and is seldom met by chance, for members of any class."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Depart
from cubecast.sim.faults import Cut
from cubecast.trace import check
from support.member_stories import Story
from support.member_toys import Flying, Members

QUIET = 100_000
"""Far longer than a node takes to forget unused topics."""


def topics_that_were_used_once_are_forgotten(kind: type[Member]) -> None:
    """Replies to requests: one node subscribes, another publishes once, and the topic is left."""
    story = Story(3, kind=kind)
    world = story.world
    for number in range(40):
        topic = f"reply/{number}"
        story.at(world.now + 200).subscribe(number % 3, topic)
        story.at(world.now + 200).publish((number + 1) % 3, topic)
        story.at(world.now + 200).unsubscribe(number % 3, topic)
    world.subscribe(0, "kept")
    story.judge()
    story.at(world.now + QUIET)
    known = [set(story.member(node).core.topics()) for node in range(3)]  # type: ignore[union-attr]
    assert known == [{"kept"}, set(), set()], [len(topics) for topics in known]


def who_was_away_for_long_is_told_what_the_dead_said_meanwhile(kind: type[Member]) -> None:
    """Node 3 is cut off.  Node 2 publishes and dies; all is quiet for long, then node 3 is back."""
    away, others = 1 << 3, 0b0111
    cuts = [Cut(1_000, QUIET, away, others), Cut(1_000, QUIET, others, away)]
    story = Story(4, cuts, kind)
    world = story.world
    world.establish("t", [0, 1, 3])
    story.at(3_000)
    said = [world.publish(2, "t") for _ in range(3)]
    story.at(5_000).crash(2)
    story.at(QUIET + 1_000)
    assert story.settle() == ""
    report = check(story.trace)
    assert report.ok, str(report)
    assert set(said) <= set(story.gaps(3)), "what it was promised and never got"


def an_idle_stream_of_a_later_view_is_closed(kind: type[Member]) -> None:
    """Two routes of one stream, both made in the second view; then its publisher falls silent."""
    world = Members(4, kind=kind)
    world.down.add(3)
    world.suspect(3)
    world.settle()

    def acknowledged(one: Flying) -> bool:
        return not (one.message.kind == "ack" and one.to == 0)

    assert world.publish(0, "a")
    world.settle(acknowledged, ticks=2)
    world.members[2].unsubscribe("t", world.now)
    world.settle(acknowledged, ticks=2)
    assert world.publish(0, "b")
    world.settle()
    for node in range(3):
        core = world.members[node].core
        assert core is not None
        inboxes = core.memberships["t"].core.streams.inboxes
        assert not inboxes, f"node {node} keeps more than two numbers"


def nobody_has_another_member_let_go(kind: type[Member]) -> None:
    """Node 2 says that node 1 wants to leave; node 1 does not."""
    world = Members(3, kind=kind)
    lie = Depart(world.members[1].who.uid)
    world.flying.append(Flying(2, 0, lie, world.members[2].seal()))
    world.settle()
    assert world.masks() == [0b111] * 3
    assert [one.who.uid for one in world.members] == ["n0", "n1", "n2"], "no node had to come back"
    assert world.publish(1, "still here")
    world.settle()
    assert world.ports[2].delivered() == ["still here"]


SCENARIOS: list[Callable[[type[Member]], None]] = [
    topics_that_were_used_once_are_forgotten,
    who_was_away_for_long_is_told_what_the_dead_said_meanwhile,
    an_idle_stream_of_a_later_view_is_closed,
    nobody_has_another_member_let_go,
]
