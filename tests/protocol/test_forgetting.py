"""What nodes forget, and that nothing goes wrong for it: topics, generations, lives."""

from __future__ import annotations

from collections import Counter

from cubecast.protocol.port import LIFE_BITS, NodeId, Stream
from cubecast.protocol.subscriptions.membership import Standing
from cubecast.protocol.topic.topic import TopicCore
from support.member_toys import CONFIG, EPOCHS, Flying, Members, both, kind, link

ROUND = CONFIG.forget_after


def core_of(world: Members, node: NodeId, topic: str) -> TopicCore | None:
    """What a node keeps of a topic."""
    core = world.members[node].core
    assert core is not None
    return core.membership_of(topic).core if core.knows(topic) else None


def pass_rounds(world: Members, rounds: int = 3) -> None:
    """Let housekeeping go round so often, and deliver what comes of it."""
    for _ in range(rounds):
        world.settle(ticks=2)
        world.now += ROUND
        world.settle(ticks=2)


def known(world: Members, node: NodeId) -> list[str]:
    core = world.members[node].core
    assert core is not None
    return core.topics()


def request(world: Members, asker: NodeId, replier: NodeId, topic: str) -> None:
    """A topic that is used once: one subscribes, another publishes, and that was all."""
    world.members[asker].subscribe(topic, world.now)
    world.settle(ticks=2)
    world.publish(replier, "hello", topic)
    world.settle(ticks=2)
    world.publish(replier, "hello", topic)  # the first one only asked for subscribers
    world.settle(ticks=4)
    world.members[asker].unsubscribe(topic, world.now)
    world.settle(ticks=4)


def test_a_topic_that_was_used_once_is_forgotten_by_all() -> None:
    world = Members(4)
    request(world, 1, 2, "reply")
    assert "reply" in known(world, 1)
    assert "reply" in known(world, 2)
    pass_rounds(world)
    assert all(known(world, node) == ["t"] for node in range(4))
    assert ("reply",) in world.ports[1].of("forgotten")


def test_a_topic_that_is_used_now_and_then_is_kept() -> None:
    world = Members(3, members=0b011)
    for number in range(4):
        assert world.publish(2, f"{number}") == (number > 0)
        pass_rounds(world, 1)
    assert "t" in known(world, 2)
    assert world.ports[0].delivered() == ["1", "2", "3"]


def test_a_message_published_after_a_topic_was_forgotten_is_taken_for_new() -> None:
    world = Members(3, members=0b011)
    for body in ("a", "b"):
        world.publish(2, body)
        world.settle()
    assert world.ports[0].delivered() == ["b"], "the first call only asked who subscribes"
    pass_rounds(world)
    assert known(world, 2) == []
    world.publish(2, "c")
    world.settle()
    assert world.publish(2, "d")
    world.settle()
    assert world.ports[0].delivered() == world.ports[1].delivered() == ["b", "d"]
    later = core_of(world, 2, "t")
    assert later is not None
    assert later.outgoing.own == Stream(2, 1 << LIFE_BITS)
    assert world.ports[0].of("gap") == []


def test_of_a_publisher_that_comes_and_goes_one_stream_is_kept() -> None:
    world = Members(3, members=0b011)
    for number in range(6):
        world.publish(2, "asks")
        world.settle()
        assert world.publish(2, f"{number}")
        world.settle()
        pass_rounds(world)
    core = core_of(world, 0, "t")
    assert core is not None
    assert world.ports[0].delivered() == [f"{number}" for number in range(6)]
    for table in (
        core.front.delivered,
        core.streams.floor,
        core.history.superseded,
        core.history.latest,
    ):
        assert len([stream for stream in table if stream.source == 2]) <= 1


def test_an_answer_does_not_wait_for_a_question_that_is_forgotten() -> None:
    """Node 0 names a stream in its barrier that node 1 no longer knows."""
    world = Members(3, members=0b011)
    world.publish(2, "asks")
    world.settle()
    world.publish(2, "question")
    world.settle()
    pass_rounds(world)
    world.publish(2, "asks")
    world.settle()
    assert world.publish(0, "answer")  # depends on the first stream of node 2
    assert world.publish(2, "later")

    def held_up(one: Flying) -> bool:
        return one.to == 1 and getattr(one.message, "stream", None) == Stream(0, 0)

    world.settle(lambda one: not held_up(one), ticks=3)
    assert world.ports[1].delivered()[-1] == "later"
    world.settle()
    assert world.ports[1].delivered() == ["question", "later", "answer"]


def test_more_idle_topics_than_may_be_kept_are_forgotten_at_once() -> None:
    world = Members(2)
    core = world.members[1].core
    assert core is not None
    limit = core.config.idle_topics
    for number in range(2 * limit + 100):
        world.members[1].subscribe(f"x/{number}", world.now)
        world.hand_over()
        world.hand_over()
        world.members[1].unsubscribe(f"x/{number}", world.now)
        world.hand_over()
        world.hand_over()
        if number % 50 == 0:
            world.settle(ticks=1)
    assert len(core.topics()) <= 2 * limit + 1


def follower(world: Members, node: NodeId) -> None:
    world.members[node].follow("#", lambda topic: True, world.now)
    world.settle()


def test_a_follower_lets_go_of_unused_topics_and_misses_nothing_later() -> None:
    world = Members(4)
    follower(world, 3)
    request(world, 1, 2, "reply")
    assert world.ports[3].delivered("reply") == ["hello"]
    assert "reply" in known(world, 3)
    pass_rounds(world, 6)
    assert all(known(world, node) == ["t"] for node in range(4))
    request(world, 0, 2, "reply")
    assert world.ports[3].delivered("reply") == ["hello", "hello"]
    assert world.ports[3].of("gap") == []


def test_a_follower_keeps_a_topic_that_has_a_publisher() -> None:
    world = Members(3, members=0b001)
    follower(world, 1)
    world.publish(2, "asks")
    world.settle()
    for number in range(8):
        assert world.publish(2, f"{number}")
        pass_rounds(world, 1)
    assert world.ports[1].delivered() == [f"{number}" for number in range(8)]


def test_a_wave_that_passes_while_a_follower_asks_keeps_the_topic() -> None:
    """Node 2 takes the topic up after it answered and before all have: the follower is a member."""
    world = Members(3, members=0)
    follower(world, 1)
    request(world, 0, 2, "n")
    asks = both(kind("parcel"), link(1, 0))
    for _ in range(8):
        world.settle(lambda one: not asks(one), ticks=2)
        world.now += ROUND
    world.publish(2, "asks", "n")
    world.settle()
    assert world.publish(2, "again", "n")
    world.settle()
    assert world.ports[1].delivered("n") == ["hello", "again"]


def test_two_followers_and_a_publisher_among_them() -> None:
    """Node 1 publishes to a topic that node 3 has let go, and depends on what node 3 forgot."""
    world = Members(4, members=0)
    follower(world, 1)
    follower(world, 3)
    request(world, 0, 2, "n")
    pass_rounds(world, 8)
    assert "n" not in known(world, 3)
    world.publish(1, "asks", "n")
    world.settle()
    assert world.publish(1, "mine", "n")
    world.settle()
    assert world.ports[3].delivered("n") == ["hello", "mine"]


def test_a_follower_that_looks_while_something_is_under_way_looks_again() -> None:
    world = Members(2, members=0)
    follower(world, 0)
    world.publish(1, "asks", "n")
    world.settle()
    assert world.publish(1, "first", "n")
    world.settle(kind("pub"), ticks=1)
    world.now += ROUND
    world.settle(lambda _: False, ticks=1)
    pass_rounds(world, 8)
    assert world.ports[0].delivered("n") == ["first"]
    assert "n" not in known(world, 0)


def two_followers() -> Members:
    """Both follow everything, and node 1 has published to "n"."""
    world = Members(2, members=0)
    follower(world, 0)
    follower(world, 1)
    world.publish(1, "asks", "n")
    world.settle()
    assert world.publish(1, "first", "n")
    world.settle()
    return world


def test_a_node_ready_to_forget_a_topic_publishes_next_in_another_stream() -> None:
    """Node 0 hears so and forgets the topic; node 1 publishes before it hears the same."""
    world = two_followers()
    for _ in range(10):
        world.settle(ticks=2)
        world.now += ROUND
        world.settle(lambda _: False, ticks=1)
        world.hand_over(link(0, 1))
        world.hand_over(link(1, 0))
        if "n" not in known(world, 0):
            break
    assert "n" not in known(world, 0)
    assert "n" in known(world, 1)
    world.publish(1, "asks", "n")
    world.settle()
    assert world.publish(1, "second", "n")
    world.settle()
    assert world.ports[0].delivered("n") == ["first", "second"]
    assert world.ports[0].of("gap") == []


def test_a_node_ready_to_forget_a_topic_publishes_next_without_dependencies() -> None:
    """A node that forgets the topic before could not wait for what node 0 had read."""
    world = two_followers()
    core = world.members[0].core
    assert core is not None
    assert core.dependencies("n") == 1
    for _ in range(10):
        world.now += ROUND
        world.settle(lambda _: False, ticks=1)
        if not core.needs("n"):
            break
        world.settle(ticks=2)
    assert not core.needs("n")
    assert core.dependencies("n") == 0


# -- lives -----------------------------------------------------------------------------------------


def life_and_death(world: Members, node: NodeId) -> None:
    """A node publishes, is cut off, and comes back as another life."""
    world.publish(node, "asks")
    world.settle()
    world.publish(node, f"life {world.members[node].who.uid}")
    world.settle()
    world.suspect(node)
    world.settle(lambda one: node not in (one.source, one.to))
    world.settle()
    assert world.masks() == [(1 << len(world.members)) - 1] * len(world.members)


def sizes(world: Members, node: NodeId) -> dict[str, int]:
    core = core_of(world, node, "t")
    assert core is not None
    parts = (core.dead, core.history, core.streams, core.front, core.reading, core.incoming)
    found = {
        f"{type(part).__name__}.{name}": len(table)
        for part in (*parts, core.repair, core.queue, core.outgoing, core.inheritance)
        for name in type(part).__slots__
        if isinstance(table := getattr(part, name), dict)
    }
    assert len(found) > 20
    return found


def test_of_a_hundred_lives_no_more_is_kept_than_of_a_few() -> None:
    world = Members(3)
    for _ in range(5):
        life_and_death(world, 2)
        pass_rounds(world, 2)
    before = sizes(world, 0)
    for _ in range(15):
        life_and_death(world, 2)
        pass_rounds(world, 2)
    assert sizes(world, 0) == before
    assert before["CausalFront.delivered"] <= 12


def test_a_node_back_in_time_is_told_exactly_what_it_missed_of_the_dead() -> None:
    """Node 3 publishes and dies while node 2 is away; other lives end meanwhile."""
    world = Members(4)
    world.publish(3, "before")
    world.settle()
    world.suspect(2)

    def away(one: Flying) -> bool:
        return 2 not in (one.source, one.to)

    world.settle(away)
    assert world.publish(3, "missed")
    world.settle(away)
    world.down.add(3)
    world.suspect(3)
    world.settle(away)
    assert EPOCHS.absent_for > 6 * 40 * 5
    world.settle()
    gaps = [skipped for _, skipped in world.ports[2].of("gap")]
    assert {Stream(3, 0): (1, 1)} in gaps
    assert world.ports[2].delivered() == ["before"]


def unasked(one: Flying) -> bool:
    """All but the waves of node 2."""
    message = one.message
    return one.source != 2 or not (message.kind == "parcel" and message.message.kind == "wave")


def test_the_record_of_a_missed_message_is_kept_until_the_node_has_asked() -> None:
    """Node 0 alone knows of a message without receivers, and is idle in the topic since."""
    world = Members(3)
    world.members[2].subscribe("n", world.now)
    world.settle()
    world.suspect(2)
    world.settle(lambda one: 2 not in (one.source, one.to))
    world.members[0].register("n", world.now)
    world.settle(lambda one: 2 not in (one.source, one.to), ticks=4)
    assert world.publish(0, "missed", "n")
    world.settle(unasked)
    assert world.masks() == [0b111] * 3, "node 2 is back, and no node hears what it asks"
    for _ in range(4):
        world.now += ROUND
        world.settle(unasked, ticks=2)
    world.settle()
    gaps = [skipped for _, skipped in world.ports[2].of("gap")]
    assert [list(skipped.values()) for skipped in gaps] == [[(0, 0)]]
    pass_rounds(world)
    assert "n" not in known(world, 0), "now it may"


def test_a_publisher_began_anew_while_a_node_was_apart_through_several_views() -> None:
    """The side of node 3 loses one after the other; the other side is in one view all the time."""
    world = Members(5)
    for node in (1, 3):
        world.members[node].subscribe("n", world.now)
    world.settle()
    world.publish(0, "asks", "n")
    world.settle()
    assert world.publish(0, "read by all", "n")
    world.settle()

    def together(one: Flying) -> bool:
        return (one.source < 2) == (one.to < 2)

    for node in range(5):
        for other in (2, 3, 4) if node < 2 else (0, 1):
            world.suspect(other, node)
    world.settle(together)
    for other, by in ((4, (2, 3)), (2, (3,))):
        world.down.add(other)
        world.suspect(other, *by)
        world.settle(together)
    alone = world.members[3].view
    assert alone is not None
    assert alone.epoch >= 3
    assert world.publish(0, "missed", "n")
    world.settle(together, ticks=10)
    publisher = world.members[0].core
    assert publisher is not None
    publisher._forget(["n"])  # as if too many topics were idle
    world.publish(0, "asks", "n")
    world.settle(together, ticks=10)
    assert world.publish(0, "missed, in another stream", "n")
    world.settle(together, ticks=10)
    world.lose()
    world.settle()
    assert world.masks() == [0b01011] * 3
    first, second = Stream(0, 0), Stream(0, 1 << LIFE_BITS)
    gaps = [skipped for topic, skipped in world.ports[3].of("gap") if topic == "n"]
    assert gaps == [{first: (1, 1), second: (0, 0)}]


def test_a_publisher_keeps_the_topic_until_a_subscriber_it_passed_over_asks() -> None:
    world = Members(3)
    request(world, 2, 0, "n")
    world.members[2].subscribe("n", world.now)
    world.settle()
    core = core_of(world, 0, "n")
    assert core is not None
    core.outgoing.laggards.learn_lossy(0b100)
    core.outgoing.laggards.judge(0b100, 0b110, out_of_credit=True, now=world.now)
    assert world.publish(0, "not for node 2", "n")
    pass_rounds(world)
    assert "n" in known(world, 0)
    world.members[2].unsubscribe("n", world.now)
    world.settle()
    pass_rounds(world)
    assert "n" not in known(world, 0)


def test_a_node_that_gave_up_its_join_still_says_when_a_stream_ended() -> None:
    """The node that asks may have forgotten the stream, and would take a later end for a loss."""
    world = Members(4, members=0b1001)
    world.publish(3, "last words")
    world.settle()
    world.down.add(3)
    world.suspect(3)
    world.settle()
    dead = Stream(3, 0)
    witness = core_of(world, 0, "t")
    assert witness is not None
    ended = witness.history.over[dead]
    world.down.add(2)
    world.suspect(2)
    world.settle()  # another view
    world.members[1].core._view.ended.clear()  # type: ignore[union-attr]  # as if it had come later
    world.members[1].subscribe("t", world.now)
    world.members[1].unsubscribe("t", world.now)
    membership = world.members[1].core.membership_of("t")  # type: ignore[union-attr]
    while membership.standing is not Standing.LEAVING:
        assert world.hand_over()
    assert dict(membership.core.history.over_of([dead])) == {dead: ended}
    assert dead not in membership.core.reached_since(ended + 1, ended + 1)


# -- what a crash costs ----------------------------------------------------------------------------


def crash_after_talk(nodes: int) -> Counter[str]:
    """What is sent when a node dies and all the others once published, long ago."""
    world = Members(nodes)
    for node in range(nodes):
        world.publish(node, f"{node}")
    world.settle()
    assert not world.flying
    world.down.add(nodes - 1)
    world.suspect(nodes - 1)
    seen: dict[int, Flying] = {}

    def note(one: Flying) -> bool:
        seen[id(one)] = one
        return True

    world.settle(note)
    messages = [one.message for one in seen.values() if one.to != nodes - 1]
    return Counter(getattr(message, "message", message).kind for message in messages)


def test_a_crash_among_idle_publishers_is_no_matter_of_topics() -> None:
    for nodes in (4, 16):
        sent = crash_after_talk(nodes)
        assert not sent.keys() & {"stable", "inquiry", "settled", "probe", "direct", "pub"}
        assert sum(sent.values()) <= 4 * nodes, "prepare, report, install, installed"


def test_a_node_that_missed_the_last_news_as_its_relay_died_asks_and_forgets() -> None:
    """Node 1 hears of node 3 through node 2: the news of what is stable dies with node 2."""
    world = Members(4)
    assert world.publish(3, "a")

    def lost(one: Flying) -> bool:
        message = getattr(one.message, "message", one.message)
        return message.kind == "stable" and one.to == 1

    world.settle(lambda one: not lost(one), ticks=3)
    world.lose(lost)
    world.down.add(2)
    core = core_of(world, 1, "t")
    assert core is not None
    assert core.streams.inboxes, "it keeps the frame"
    world.suspect(2)
    world.settle()
    assert not core.streams.inboxes
    assert not core.incoming.inquiries


# -- a node that comes back too late ---------------------------------------------------------------


def long_away(world: Members, node: NodeId) -> None:
    """A node is cut off for longer than any other remembers it, and goes on by itself."""

    def apart(one: Flying) -> bool:
        return node not in (one.source, one.to)

    world.suspect(node)
    for other in range(len(world.members)):
        if other != node:
            world.suspect(other, node)
    world.settle(apart)
    world.now += EPOCHS.absent_for
    for _ in range(4):
        world.settle(apart, ticks=2)
        world.now += ROUND


def test_a_node_back_too_late_brings_no_causes_that_others_wait_for() -> None:
    """Node 2 read what node 0 said in a topic that node 0 forgot while node 2 was away."""
    world = Members(3)
    request(world, 2, 0, "n")
    world.members[2].subscribe("n", world.now)
    world.settle()
    long_away(world, 2)
    assert "n" not in known(world, 0)
    assert "n" in known(world, 2)
    world.members[1].subscribe("n", world.now)
    world.settle(lambda one: 2 not in (one.source, one.to))
    world.members[0].suspect(2, world.now)
    for node in (0, 1):  # they find each other by chance, long after they gave each other up
        view = world.members[node].view
        assert view is not None
        world.members[2].elsewhere(view, view.members[node].uid, world.now)
    world.settle()
    assert world.masks() == [0b111] * 3
    world.publish(2, "asks", "n")
    world.settle()
    assert world.publish(2, "back", "n")
    world.settle()
    assert world.ports[1].delivered("n")[-1] == "back", "it names what node 1 has never heard of"
