"""One topic at one node, driven by hand: what it delivers, keeps, and sends to which peers."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.cluster.current_view import CurrentView
from cubecast.protocol.cluster.horizon import Horizon
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Final
from cubecast.protocol.config import Config
from cubecast.protocol.messages import (
    Ack,
    Barrier,
    Direct,
    Frame,
    Inquiry,
    Parcel,
    Release,
    Route,
    Stable,
)
from cubecast.protocol.port import (
    LIFE_BITS,
    NodeId,
    Seq,
    Stream,
)
from cubecast.protocol.topic.topic import TopicCore
from support.ports import Page

EVERYONE = 0b1111
ROUTE = Route(0, 0, EVERYONE)


def stream(node: NodeId) -> Stream:
    return Stream(node, 0)


def frame(source: NodeId, first: Seq, *barrier: tuple[NodeId, Seq]) -> Frame:
    """One message of a node, called after its number; what it comes after."""
    causes: Barrier = tuple((stream(node), seq) for node, seq in barrier)
    return Frame("t", stream(source), first, causes, ROUTE, -1, (f"{source}:{first}",), 1)


def member(number: NodeId) -> tuple[Page, TopicCore]:
    """One of four nodes, all of them subscribed."""
    page = Page()
    config = Config(ack_delay=0, stable_delay=50, resend_after=200, resend_max=800)
    node = CubecastNode(number, page, cluster=EVERYONE, config=config)
    node.establish("t", EVERYONE)
    return page, node.membership_of("t").core


def member_3() -> tuple[Page, TopicCore]:
    """It is a leaf in the trees of nodes 0 and 2."""
    return member(3)


def parent_of_3(source: NodeId) -> NodeId:
    """The node that passes the frames of `source` on to node 3."""
    return {0: 2, 1: 1, 2: 2}[source]


def see(core: TopicCore, is_live: Callable[[Stream], bool]) -> None:
    """Have the topic take other streams for dead."""

    class Seen(CurrentView):
        __slots__ = ()

        def is_live(self, stream: Stream) -> bool:
            return is_live(stream)

    core.context.view.__class__ = Seen


def take(core: TopicCore, one: Frame) -> None:
    core.incoming.on_frame(one, parent_of_3(one.stream.source), 0)


# -- what was found satisfied is of one frame ------------------------------------------------------


def test_a_subscriber_that_begins_again_checks_every_cause_of_the_next_frame() -> None:
    """The first frame of node 2 was found to wait for its second cause; it is below the new cut."""
    page, core = member_3()
    take(core, frame(0, 0))
    take(core, frame(2, 0, (0, 0), (1, 0)))
    core.delivery.pause()
    take(core, frame(2, 1, (0, 7)))
    core.begin({stream(1): 0, stream(2): 0}, 0)
    assert page.delivered == ["0:0"]


def test_a_subscriber_that_begins_again_after_a_freeze_checks_every_cause_too() -> None:
    """It was frozen, the node had to jump, and its publisher was not excluded after all."""
    page, core = member_3()
    take(core, frame(0, 0))
    take(core, frame(2, 0, (0, 0), (1, 0)))
    core.context.view.frozen.add(stream(2))
    core.delivery.freeze()
    core.delivery.pause()
    core.context.view.frozen.clear()
    core.delivery.thaw([stream(2)], 0)
    take(core, frame(2, 1, (0, 7)))
    core.begin({stream(1): 0, stream(2): 0}, 0)
    assert page.delivered == ["0:0"]


# -- when a stream ended ---------------------------------------------------------------------------


def test_it_stays_known_when_a_stream_ended_though_a_view_speaks_of_it_again() -> None:
    """The node came back and knows all of a life that others have not settled yet."""
    _, core = member_3()
    gone = Stream(0, 7)
    see(core, lambda one: one != gone)
    core.front.delivered[gone] = 2
    core.history.over[gone] = 3
    core.recovery.end_stream(Final(gone, seq=2, heir=1, base=0), 0)
    core.inheritance.settle(gone, 2, 0)
    assert core.reached_since(3, 3)[gone] == 2
    assert gone not in core.reached_since(4, 4)


def test_a_node_not_told_when_a_stream_ended_says_nothing_of_it() -> None:
    """It came later, and its JOIN is not answered yet; others know better."""
    _, core = member_3()
    see(core, lambda one: one == core.outgoing.own)
    core.context.view.epoch = 6
    core.dead.finals[stream(0)] = 2
    assert core.history.over_of([stream(0), core.outgoing.own]) == ()
    core.history.told_over[stream(0)] = 4
    assert core.history.over_of([stream(0), core.outgoing.own]) == ((stream(0), 4),)
    core.context.view.ended[stream(0)] = 5
    assert core.history.over_of([stream(0)]) == ((stream(0), 5),)


def test_a_stream_with_an_unknown_end_ended_now() -> None:
    """All nodes that know are gone; one that comes back may have missed some of it."""
    _, core = member_3()
    see(core, lambda one: one == core.outgoing.own)
    core.context.view.epoch = 6
    cut = [stream(0), stream(1), core.outgoing.own]
    core.history.hear_over({stream(1): 4}, cut)
    core.begin(dict.fromkeys(cut, 0), 0)
    assert core.history.over == {stream(0): 6, stream(1): 4}


def test_the_end_of_a_forgotten_stream_is_not_told() -> None:
    """It ended in a view that the node came back from; its publisher lives here, and began anew."""
    _, former = member_3()
    former.front.delivered[stream(0)] = former.dead.ends[stream(0)] = 2
    _, core = member_3()
    core.return_from(former, apart=1)
    assert core.dead.ends == {}, "a publisher that lives is asked"
    core.dead.ends[stream(0)] = 2
    core.history.superseded[stream(0)] = 1
    core.remember(Horizon(epoch=9))
    assert stream(0) not in core.vector()


# -- acknowledgements ------------------------------------------------------------------------------


def acks(page: Page) -> list[tuple[NodeId, Seq, Seq]]:
    """Each ACK sent: its receiver, what is here, and what the whole subtree has consumed."""
    return [(peer, one.have, one.covered) for peer, one in page.sent if isinstance(one, Ack)]


def test_a_subscriber_that_begins_above_a_held_frame_acknowledges_it() -> None:
    """It was not consumed while the node waited for its cut, and is below that."""
    page, core = member_3()
    core.delivery.pause()
    take(core, frame(2, 0))
    core.acks.flush(0)
    page.sent.clear()
    core.begin({stream(2): 0}, 0)
    core.acks.flush(0)
    assert (page.delivered, acks(page)) == ([], [(2, 0, 0)])


def test_a_node_that_left_tells_an_heir_that_it_needs_nothing() -> None:
    page, core = member_3()
    core.dead.heirs[stream(0)] = 1
    core.delivery.stop(0)
    core.incoming.on_direct(Direct("t", stream(0), 0, 0, 5, -1, epoch=1), 1, 0)
    assert acks(page) == [(1, 5, 5)]
    assert stream(0) not in core.streams.inboxes


def test_children_are_not_expected_to_acknowledge_frames_of_a_torn_route() -> None:
    """Node 2 passes frames of node 0 on to node 3; it was suspended, and is addressed again."""
    _, core = member(2)
    later = Route(1, 1, EVERYONE)
    core.incoming.on_frame(frame(0, 0), 0, 0)
    core.incoming.on_frame(Frame("t", stream(0), 1, (), later, -1, ("0:1",), 1), 0, 0)
    assert sorted(core.repair.unacked) == [(stream(0), 0), (stream(0), 1)]
    assert core.incoming.on_suspended(stream(0), 0)
    assert sorted(core.repair.unacked) == [(stream(0), 1)]


def test_the_next_question_for_what_is_stable_is_due_after_the_shortest_pause() -> None:
    page, core = member_3()
    take(core, frame(1, 0))
    take(core, frame(2, 0))
    core.incoming.expect_news(core.outgoing.own, 0)
    core.incoming.inquiries[stream(2)] = 800  # it had been asked for several times
    core.on_wake(200)
    asked = [(peer, one.stream) for peer, one in page.sent if isinstance(one, Inquiry)]
    assert asked == [(1, stream(1)), (2, stream(2))]
    assert core.incoming.inquire_at == 400
    assert core.incoming.inquiries == {stream(1): 400, stream(2): 800}


# -- what a publisher owes -------------------------------------------------------------------------


def publisher(*publications: str) -> tuple[Page, TopicCore]:
    """Node 0, whose children are 1 and 2, has published."""
    page, core = member(0)
    for body in publications:
        assert core.outgoing.publish(EVERYONE, (body,), 1, 0)
    page.sent.clear()
    return page, core


def test_a_leaver_helps_with_all_that_was_addressed_to_it() -> None:
    _, core = publisher("a", "b", "c")
    assert core.outgoing.bid_farewell(1, 7) == {core.outgoing.own: 2}
    assert core.outgoing.publish(EVERYONE & ~0b10, ("d",), 1, 0)
    assert core.outgoing.bid_farewell(2, 8) == {core.outgoing.own: 3}
    assert core.outgoing.bid_farewell(1, 9) == {core.outgoing.own: 2}


def test_a_leaver_is_released_when_everyone_has_what_was_addressed_to_it() -> None:
    page, core = publisher("a")
    core.outgoing.bid_farewell(1, 7)
    for child in (1, 2):
        core.acks.flush(0)
        assert page.sent == []
        core.acks.on_ack(Ack("t", core.outgoing.own, 0, 0, 0, 0, False), child, 0)
    core.acks.flush(0)
    ((peer, parcel),) = page.sent
    assert (peer, parcel.message) == (1, Release("t", core.outgoing.own, 7))


def test_a_leaver_that_was_not_addressed_owes_nothing() -> None:
    _, core = member(0)
    assert core.outgoing.publish(EVERYONE & ~0b10, ("a",), 1, 0)
    assert core.outgoing.bid_farewell(1, 7) == {}
    assert core.outgoing.leavers == {}


def test_a_tree_by_which_everything_has_come_is_not_given_up() -> None:
    page, core = publisher("a")
    for child in (1, 2):
        core.acks.on_ack(Ack("t", core.outgoing.own, 0, 0, 0, 0, False), child, 0)
    core.outgoing.lose_members(0b0100, 0)  # it had answered for node 3, too
    assert page.sent == []


def test_frames_under_way_in_a_tree_with_the_dead_are_fed_directly() -> None:
    page, core = publisher("a")
    core.acks.on_ack(Ack("t", core.outgoing.own, 0, 0, 0, 0, False), 1, 0)
    core.outgoing.lose_members(0b0100, 0)
    assert [(peer, type(one)) for peer, one in page.sent] == [(3, Direct)]


# -- what the dead leave behind --------------------------------------------------------------------


def without(dead: NodeId, *frames: Frame) -> tuple[Page, TopicCore]:
    """Node 3 in a view in which `dead` has no life any more; these frames had come before."""
    page, core = member_3()
    for one in frames:
        take(core, one)
    see(core, lambda one: one.source != dead)
    return page, core


def test_above_the_end_of_a_dead_stream_nothing_is_claimed() -> None:
    page, core = without(2, frame(2, 0), frame(2, 1, (0, 9)), frame(2, 2))
    core.recovery.end_stream(Final(stream(2), 0, heir=1, base=-1), 0)
    core.incoming.on_direct(Direct("t", stream(2), 0, 0, 1, -1, epoch=1), 1, 0)
    core.acks.flush(0)
    assert (acks(page), page.discarded) == ([(1, 0, 0)], [{stream(2): (1, 2)}])


def later_frame(first: Seq, start: Seq) -> Frame:
    """Of the second route of node 2, which begins with number `start`."""
    body = (f"2:{first}",)
    return Frame("t", stream(2), first, (), Route(1, start, EVERYONE), -1, body, 1)


def test_a_route_that_began_above_the_end_of_a_dead_stream_is_left() -> None:
    _, core = without(2, frame(2, 0), later_frame(4, start=4))
    core.repair.unacked[stream(2), 1] = core.streams.inboxes[stream(2)].branches[1]
    core.recovery.end_stream(Final(stream(2), 0, heir=1, base=-1), 0)
    assert {
        number: one.have for number, one in core.streams.inboxes[stream(2)].branches.items()
    } == {0: 0}
    assert not core.repair.unacked


def claims(core: TopicCore) -> list[tuple[Seq, Seq]]:
    """Of each dead stream, what we report: it begins above the first number, up to the second."""
    return [(one.base, one.have) for one in core.holdings.report(core.context.view.is_live)]


def test_a_relay_claims_nothing_below_a_route_that_began_above_the_end() -> None:
    """Else the next view would end the stream where no node has it, and the others jump."""
    page, core = member_3()
    core.delivery.stop(0)
    take(core, later_frame(4, start=4))
    see(core, lambda one: one.source != 2)
    assert claims(core) == [(3, 4)]
    core.recovery.end_stream(Final(stream(2), 0, heir=1, base=-1), 0)
    assert claims(core) == []
    assert page.discarded == []


def test_a_relay_claims_nothing_of_a_route_of_which_it_has_no_frame() -> None:
    """Its publisher gave the tree up, said so, and died before it fed anything."""
    _, core = member_3()
    core.delivery.stop(0)
    take(core, frame(2, 0))
    take(core, frame(2, 1))
    core.streams.inboxes[stream(2)].forget(0)  # everyone has it
    core.incoming.on_direct(Direct("t", stream(2), 1, 4, 5, -1), 2, 0)
    see(core, lambda one: one.source != 2)
    assert claims(core) == [(0, 1)]


def test_one_message_of_the_dead_is_remembered_as_well() -> None:
    """A stream of one message ends with number 0."""
    _, core = without(2, frame(2, 0))
    core.recovery.end_stream(Final(stream(2), 0, heir=1, base=-1), 0)
    core.inheritance.settle(stream(2), 0, 0)
    assert (core.streams.floor[stream(2)], core.dead.finals, core.dead.heirs) == (0, {}, {})


def test_the_end_of_a_dead_stream_without_messages_is_not_told() -> None:
    """There is no message -1, and no number below 0 on the wire."""
    _, core = without(2)
    core.dead.finals[stream(2)] = -1
    core.dead.ends[stream(1)] = 4
    assert core.vector() == {stream(1): 4}


def test_the_first_message_of_another_view_is_missed_like_any_other() -> None:
    page, core = without(2)
    core.recovery.hear_end(stream(2), 0, 0, apart=3)
    assert page.gaps == [{stream(2): (0, 0)}]
    assert (core.front.delivered[stream(2)], core.streams.floor[stream(2)]) == (0, 0)


def test_an_inheritance_without_reports_is_over() -> None:
    _, core = without(2)
    core.dead.heirs[stream(2)] = 3
    core.dead.inherited[stream(2)] = 7
    core.recovery.drop_unreported(set(), 0)
    assert (core.dead.heirs, core.dead.inherited, core.dead.finals) == ({}, {}, {})


def test_a_cause_that_ended_before_we_began_is_not_waited_for() -> None:
    """Nor one that ended with the view in which we began; what ended later was owed to us."""
    for ended, waits in ((4, False), (5, False), (6, True)):
        page, core = without(2)
        core.reading.began = 5
        core.context.view.ended[stream(2)] = ended
        take(core, frame(0, 0, (2, 3)))
        assert (page.delivered == [], core.reading.stranded) == (waits, waits)


def test_a_cause_whose_publisher_began_anew_is_not_waited_for() -> None:
    page, core = without(2)
    core.context.view.ended[stream(2)] = 6
    core.history.superseded[stream(2)] = 6
    take(core, frame(0, 0, (2, 3)))
    assert (page.delivered, core.reading.stranded) == (["0:0"], False)


def test_of_a_dead_stream_that_is_opened_again_nothing_above_its_end_is_taken() -> None:
    """Its heir passed it on before it was one."""
    page, core = without(2)
    core.dead.heirs[stream(2)], core.dead.finals[stream(2)] = 1, 0
    core.incoming.on_direct(Direct("t", stream(2), 0, 0, 1, -1, epoch=1), 1, 0)
    core.incoming.on_frame(frame(2, 0), 1, 0)
    core.incoming.on_frame(frame(2, 1), 1, 0)
    assert page.delivered == ["2:0"]
    assert list(core.streams.inboxes[stream(2)].frames) == [0]


def test_a_publisher_that_begins_anew_supersedes_its_own_streams_alone() -> None:
    _, core = member_3()
    again = Stream(1, 1 << LIFE_BITS)
    core.front.delivered |= {stream(0): 3, stream(1): 5}
    core.context.view.epoch = 7
    core.begin({again: 0, stream(0): 4}, 0)
    assert (core.history.superseded, core.history.latest) == ({stream(1): 7}, {stream(1): 1})


def test_streams_no_node_can_ask_for_are_forgotten_and_others_are_not() -> None:
    _, core = member_3()
    core.history.latest[stream(1)] = 1
    core.front.delivered |= {stream(1): 5, stream(2): 3}
    core.history.over[stream(2)] = 1
    core.remember(Horizon(epoch=100))
    assert (core.history.over, core.front.delivered) == ({}, {stream(1): 5})
    assert core.history.latest == {stream(1): 1}


# -- what is stable --------------------------------------------------------------------------------


def stable_news(page: Page) -> list[tuple[NodeId, int]]:
    """The peers told what is stable, each with the nodes it passes that on to."""
    carried = [(peer, one.message) for peer, one in page.sent if isinstance(one, Parcel)]
    return [(peer, one.members) for peer, one in carried if isinstance(one, Stable)]


def test_stability_is_told_down_the_tree_and_to_every_leaf_by_itself() -> None:
    page, core = member(0)
    core.outgoing.laggards.leaves = 0b0100
    assert core.outgoing.publish(EVERYONE, ("a",), 1, 0)
    for child in (1, 3, 2):
        core.acks.on_ack(Ack("t", core.outgoing.own, 0, 0, 0, 0, False), child, 0)
    core.acks.flush(0)
    page.sent.clear()
    core.outgoing.tell_stable(0)
    assert stable_news(page) == [(1, 0b1011), (3, 0b1011), (2, 0)]


def test_a_stream_of_which_everything_is_stable_is_two_numbers() -> None:
    _, core = member_3()
    take(core, frame(2, 0))
    core.acks.flush(0)
    core.incoming.on_stable(Stable("t", stream(2), 0, 0, 0, EVERYONE), 2, 0)
    assert core.streams.inboxes == {}
    assert (core.streams.floor[stream(2)], core.front.delivered[stream(2)]) == (0, 0)
