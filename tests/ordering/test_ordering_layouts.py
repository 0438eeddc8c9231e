"""Layouts in production: managers that crash, move and change ranks (holes T7, T9 to T15)."""

from __future__ import annotations

import pytest

from cubecast.ordering.effects import (
    LeaveCall,
    Notify,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    Start,
    SubscribeCall,
    Wake,
)
from cubecast.ordering.judge import inversions
from cubecast.ordering.production.config import Reranking, Timing, WaitingBounds
from cubecast.ordering.production.coordinator import newest
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.production.front import Front
from cubecast.ordering.production.layout import LIFE_BITS, Layout, next_epoch
from cubecast.ordering.production.local_managers import Office
from cubecast.ordering.production.messages import (
    Begun,
    Inquire,
    Range,
    Registered,
    Request,
    Source,
    SubscriptionVersion,
    Void,
)
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.production.notices import UNKNOWN, AskLayout, Close, Open, Rerank
from cubecast.ordering.production.publisher import MAX_IDLE
from cubecast.ordering.production.subscriber import MAX_LATER, MAX_LATER_BYTES, PAST
from cubecast.ordering.production.subscription_changes import ChangeState
from cubecast.ordering.timestamps import Stamp
from cubecast.ordering.world import EventDelivery, NodePair, OrderingWorld, manager

TIMING = Timing(retry_after=30, beat_every=20, suspect_after=100, drain_for=60, lease_for=3_000)
WAIT_FOR = 500
FOR_EVER = 10**9


def m(topic: str) -> str:
    return manager(topic)


def world(
    order: str,
    *,
    reranking: Reranking | None = None,
    bytes: int | None = None,
    **subscriptions: str,
) -> OrderingWorld:
    """Managers have made a layout, and subscribers have what they are given."""
    waiting = WaitingBounds(wait_for=WAIT_FOR, bytes=bytes)
    make = Production(opened=False, timing=TIMING, waiting=waiting, reranking=reranking)
    there = OrderingWorld(make, list(order), ["p", "q", *subscriptions], wire=True)
    there.settle()
    layout = module(there, m(order[0])).layout
    assert layout is not None
    for publisher in "pq":
        there.tell(publisher, ReceivedFromModule(Open(layout, (), UNKNOWN)))
    for node, topics in subscriptions.items():
        there.subscribe(node, *topics)
        there.settle()
    return there


def module(there: OrderingWorld, node: str) -> OrderingModule:
    found = there.modules[node]
    assert isinstance(found, OrderingModule)
    return found


def office(there: OrderingWorld, topic: str) -> Office:
    found = module(there, m(topic)).office
    assert found is not None
    return found


def front(there: OrderingWorld, node: str) -> Front:
    found = module(there, node).subscriber.front
    assert found is not None
    return found


def epoch_of(there: OrderingWorld, node: str) -> int:
    layout = module(there, node).layout
    assert layout is not None
    return layout.epoch


def pass_time(there: OrderingWorld, time: int) -> None:
    """Let time pass; messages take none of it."""
    until = there.now + time
    there.settle()
    while there.wakes and min(there.wakes.values()) <= until:
        there.tick()
        there.settle()
    there.now = max(there.now, until)


def only_links(there: OrderingWorld) -> None:
    """Deliver all messages, and no events."""
    while links := [move for move in there.moves() if isinstance(move, NodePair)]:
        there.move(links[0])


def pass_time_without_events(there: OrderingWorld, time: int) -> None:
    until = there.now + time
    only_links(there)
    while there.wakes and min(there.wakes.values()) <= until:
        there.tick()
        only_links(there)
    there.now = max(there.now, until)


# -- the first layout ------------------------------------------------------------------------------


def test_managers_make_a_layout_when_all_that_are_listed_live() -> None:
    there = world("ab", i="ab", j="ab")
    assert module(there, "i").layout == module(there, m("b")).layout
    there.publish("p", "b", "e")
    there.publish("q", "a", "f")
    there.settle()
    assert there.order_of("i") == there.order_of("j")
    assert sorted(there.order_of("i"), key=str) == ["e", "f"]


def test_a_listed_manager_that_does_not_come_is_waited_for_only_so_long() -> None:
    there = OrderingWorld(Production(opened=False, timing=TIMING), ["a", "b"], ["p", "i"])
    there.crash(m("b"))
    there.subscribe("i", "a", "b")
    there.publish("p", "b", "e")
    pass_time(there, 99)
    assert module(there, "i").layout is None
    pass_time(there, 500)
    layout = module(there, "i").layout
    assert layout is not None
    assert layout.names == (m("a"),)
    there.publish("p", "b", "f")
    pass_time(there, 100)
    assert "f" in there.order_of("i")


def test_epochs_of_two_makers_differ_and_rise() -> None:
    one, other = Source("a", 7 << LIFE_BITS), Source("b", 7 << LIFE_BITS)
    assert next_epoch(0, one) != next_epoch(0, other)
    first = next_epoch(0, one)
    assert next_epoch(first, other) > first
    assert next_epoch(0, Source("a", 9 << LIFE_BITS)) > next_epoch(first, other), "a later life"
    assert first < 1 << 62, "it fits a message"


def test_a_topic_is_pinned_to_its_manager_as_long_as_that_is_there() -> None:
    sources = (Source("x", 0), Source("y", 0))
    layout = Layout(1, "x", sources, pinned=(("t", "y"), ("u", "z")))
    assert layout.manager_of("t") == "y"
    assert layout.manager_of("u") in ("x", "y")
    assert layout.with_successors(["y"], 1) == {"x", "y"}
    assert layout.with_successors(["y"], 0) == {"y"}


# -- T14: managers that crash, return and leave ----------------------------------------------------


def test_hole_14_what_subscribers_have_is_known_when_a_manager_has_crashed() -> None:
    there = world("abc", i="ab", j="ab")
    there.crash(m("b"))
    pass_time(there, 2 * WAIT_FOR)
    there.publish("p", "b", "e")
    there.publish("q", "a", "f")
    pass_time(there, 100)  # they ask the dead manager first
    stamps = [one.timestamp for one in there.seen["i"] if one.event == "e"]
    assert isinstance(stamps[0], Stamp)
    assert [topic for topic, _ in stamps[0].higher] == ["a"], "the new manager knows the pair"
    assert there.order_of("i") == there.order_of("j")
    assert all(one.in_order for seen in there.seen.values() for one in seen)


def test_hole_14_publishing_goes_on_in_the_layout_without_the_dead() -> None:
    there = world("ab", i="ab")
    there.crash(m("b"))
    there.publish("p", "b", "e")
    pass_time(there, 600)
    assert there.order_of("i") == ["e"]
    layout = module(there, "p").layout
    assert layout is not None
    assert layout.names == (m("a"),)


def test_a_manager_that_returns_is_no_manager_of_the_epoch_of_its_last_life() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    there.settle()
    before = epoch_of(there, "p")
    there.crash(m("b"))
    there.restart(m("b"))
    late = ReceivedFromModule(Request(before, "b", Source("p", 1 << LIFE_BITS), 1, 1, 1))
    assert not any(
        isinstance(one, SendToModule) for one in there.modules[m("b")].step(late, there.now)
    )
    there.publish("p", "b", "f")
    pass_time(there, 600)
    assert epoch_of(there, "p") > before
    assert there.order_of("i") == ["e", "f"]


def test_a_manager_that_leaves_goes_when_others_have_its_topics() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    there.settle()
    assert module(there, m("b")).is_needed
    there.tell(m("b"), LeaveCall())
    pass_time(there, 100)
    assert not module(there, m("b")).is_needed
    there.crash(m("b"))
    there.publish("p", "b", "f")
    pass_time(there, 100)
    assert there.order_of("i") == ["e", "f"]
    assert not module(there, m("a")).is_needed, "no other could take over"


def test_a_manager_that_is_not_listed_takes_part() -> None:
    there = world("ab", i="ab")
    there.modules["c"] = OrderingModule(
        "c", [m("a"), m("b")], life=1 << LIFE_BITS, manages=True, timing=TIMING
    )
    there.tell("c", Start())
    pass_time(there, 200)
    layout = module(there, "i").layout
    assert layout is not None
    assert layout.names == (m("a"), m("b"), "c")


def test_subscriptions_of_the_highest_versions_are_taken_over() -> None:
    old, new = SubscriptionVersion("i", 1, ("a",)), SubscriptionVersion("i", 2, ("b",))
    assert newest([old, new, SubscriptionVersion("h", 1, ())]) == (
        SubscriptionVersion("h", 1, ()),
        new,
    )
    assert newest([new, old]) == (new,)


def test_a_subscriber_that_died_is_named_for_a_lease_only() -> None:
    there = world("ab", i="ab", j="b")
    there.crash("i")
    pass_time(there, 1_000)
    there.publish("p", "b", "e")
    there.settle()
    pass_time(there, 4_000)
    there.publish("p", "b", "f")
    pass_time(there, 100)
    higher = [one.timestamp.higher for one in there.seen["j"] if isinstance(one.timestamp, Stamp)]
    assert [len(named) for named in higher] == [1, 0]
    assert there.order_of("j") == ["e", "f"], "j has renewed what it has"


# -- T12: the end of an epoch ----------------------------------------------------------------------


def rerank(there: OrderingWorld) -> None:
    """Have the maker of the layout make another."""
    layout = module(there, m("a")).layout
    assert layout is not None
    there.tell(layout.maker, ReceivedFromModule(Rerank(layout.epoch)))


def test_hole_12_events_of_a_new_epoch_wait_for_those_of_the_last() -> None:
    there = world("ab", i="ab", j="ab")
    there.publish("p", "b", "old")
    only_links(there)
    rerank(there)
    only_links(there)
    there.publish("q", "a", "new")
    only_links(there)
    there.notify("new", "i", "j")
    assert there.order_of("i") == [], "an event of the last epoch is on its way"
    there.notify("old", "i", "j")
    assert there.order_of("i") == there.order_of("j") == ["old", "new"]


def test_hole_12_what_a_lost_manager_has_numbered_is_waited_for_a_while() -> None:
    there = world("ab", i="ab", j="ab")
    there.publish("p", "b", "old")
    only_links(there)
    there.crash(m("b"))
    pass_time_without_events(there, 300)
    there.publish("q", "a", "new")
    only_links(there)
    there.notify("new", "i", "j")
    assert there.order_of("i") == [], "how many events topic b has is not known"
    there.notify("old", "i")
    pass_time_without_events(there, WAIT_FOR)
    assert there.order_of("i") == ["old", "new"]
    assert there.order_of("j") == ["new"]
    there.notify("old", "j")
    assert there.order_of("j") == ["new", ("old",)], "late, and tagged"
    assert inversions(there.seen) == []


def test_an_event_of_an_epoch_that_is_over_is_in_order_if_none_has_overtaken_it() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "old")
    only_links(there)
    there.crash(m("b"))
    pass_time_without_events(there, 2 * WAIT_FOR)
    assert front(there, "i").layout.epoch == epoch_of(there, m("a")), "it waits no more"
    there.notify("old", "i")
    assert there.order_of("i") == ["old"]
    assert there.modules["i"].step(arrived(there, "old"), there.now) == [], "once"


def arrived(there: OrderingWorld, event: str) -> ServiceNotified:
    one = next(one for one in there.seen["i"] if one.event == event)
    return ServiceNotified(one.topic, event, one.timestamp)


def test_an_event_of_an_epoch_that_was_never_heard_of_is_not_lost() -> None:
    there = world("ab", i="ab")
    first = epoch_of(there, "p")
    rerank(there)
    there.settle()
    skipped = Stamp("b", 1, epoch=first + 1)
    told = there.modules["i"].step(ServiceNotified("b", "e", skipped), there.now)
    assert [getattr(one, "in_order", None) for one in told] == [True], "nothing overtook it"
    assert there.modules["i"].step(ServiceNotified("b", "e", skipped), there.now) == []


def test_the_fronts_of_old_epochs_are_forgotten() -> None:
    there = world("ab", i="ab")
    first = epoch_of(there, "p")
    for _ in range(PAST + 1):
        rerank(there)
        there.settle()
    subscriber = module(there, "i").subscriber
    assert there.modules["i"].step(ServiceNotified("b", "e", Stamp("b", 1, epoch=first)), 0) == []
    assert subscriber.forgotten == 1, "counted: it may be an event that was not notified"


def test_hole_9_an_event_waits_until_the_layout_of_its_epoch_is_known() -> None:
    there = world("ab", i="ab")
    later = Stamp("b", 1, epoch=epoch_of(there, "i") + 5)
    told = there.modules["i"].step(ServiceNotified("b", "e", later), there.now)
    assert [type(one.message) for one in told if isinstance(one, SendToModule)] == [AskLayout]
    for number in range(2, MAX_LATER + 3):
        event = ServiceNotified("b", f"e{number}", Stamp("b", number, epoch=later.epoch))
        told = there.modules["i"].step(event, there.now)
    assert [getattr(one, "in_order", None) for one in told] == [False], "not lost, but tagged"
    assert len(module(there, "i").subscriber.later) == MAX_LATER


def test_an_event_of_a_topic_that_has_not_begun_is_not_notified_when_too_many_wait() -> None:
    """It may have been published before the subscription."""
    there = world("ab", i="a")
    there.modules["i"].step(SubscribeCall("b"), there.now)
    later = epoch_of(there, "i") + 5
    for number in range(1, MAX_LATER + 3):
        event = ServiceNotified("b", f"e{number}", Stamp("b", number, epoch=later))
        told = there.modules["i"].step(event, there.now)
    assert not any(isinstance(one, Notify) for one in told)
    assert len(module(there, "i").subscriber.later) == MAX_LATER


def test_an_answer_that_lacks_the_number_of_a_topic_begins_nothing_and_is_asked_for_again() -> None:
    there = world("ab", i="a")
    told = there.modules["i"].step(SubscribeCall("b"), there.now)
    epoch, version = epoch_of(there, "i"), module(there, "i").subscriber.changes.version
    for name in sorted({one.to for one in told if isinstance(one, SendToModule)}):
        answer = Registered(epoch, version, name, ())
        there.modules["i"].step(ReceivedFromModule(answer), there.now)
    assert module(there, "i").subscriber.changes.state is ChangeState.BEGINNING
    there.modules["i"].step(ReceivedFromModule(Begun(epoch, version, m("b"), ())), there.now)
    assert "b" not in front(there, "i").done
    again = there.modules["i"].step(Wake(), there.now + TIMING.retry_after)
    assert [one.to for one in again if isinstance(one, SendToModule)] == [m("b")]
    there.modules["i"].step(
        ReceivedFromModule(Begun(epoch, version, m("b"), (("b", 3),))), there.now
    )
    assert front(there, "i").done["b"] == 3


def test_waiting_events_are_bounded_in_bytes_and_those_beyond_are_notified() -> None:
    there = world("ab", bytes=10, i="ab")
    epoch = epoch_of(there, "i")
    for number, size in ((2, 4), (3, 6)):
        event = ServiceNotified("b", "x" * size, Stamp("b", number, epoch=epoch))
        told = there.modules["i"].step(event, there.now)
        assert not any(isinstance(one, Notify) for one in told)
    assert front(there, "i").room.size == 10
    told = there.modules["i"].step(
        ServiceNotified("b", "x" * 9, Stamp("b", 6, epoch=epoch)), there.now
    )
    assert [len(one.payload) for one in told if isinstance(one, Notify)] == [4, 6]
    assert front(there, "i").room.size == 9


def test_events_that_wait_for_a_layout_are_bounded_in_bytes() -> None:
    there = world("ab", i="ab")
    later, large = epoch_of(there, "i") + 5, "x" * (MAX_LATER_BYTES // 2)
    told = [
        effect
        for number in range(1, 6)
        for effect in there.modules["i"].step(
            ServiceNotified("b", large, Stamp("b", number, epoch=later)), there.now
        )
    ]
    assert [one.in_order for one in told if isinstance(one, Notify)] == [False] * 3
    assert module(there, "i").subscriber.later.size == MAX_LATER_BYTES


def test_events_of_a_topic_that_has_not_begun_are_bounded_too() -> None:
    there = world("ab", bytes=10, i="a")
    there.modules["i"].step(SubscribeCall("b"), there.now)
    for number in range(1, 6):
        event = ServiceNotified("b", "xxxx", Stamp("b", number, epoch=epoch_of(there, "i")))
        there.modules["i"].step(event, there.now)
    assert (len(front(there, "i").room), front(there, "i").room.size) == (2, 8)


# -- T10: no request is left half-way --------------------------------------------------------------


def test_hole_10_a_manager_closes_when_its_stamps_are_complete() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    there.along("p", m("b"))  # numbered; the stamp is on its way to the manager of a
    rerank(there)
    there.move(NodePair(m("a"), m("b")))
    assert not office(there, "b").is_open
    closing = [cause for link, held in there.channels.items() for cause in held]
    assert not any("Closed" in repr(cause) and m("b") in repr(cause) for cause in closing)
    there.settle()
    assert office(there, "b").is_open
    assert there.order_of("i") == ["e"]
    stamps = [one.timestamp for one in there.seen["i"]]
    assert isinstance(stamps[0], Stamp)
    assert stamps[0].epoch < office(there, "b").epoch, "it was numbered before"


def test_hole_10_what_a_dead_publisher_has_left_open_is_void_after_a_while() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    there.along("p", m("b"))
    there.crash("p")
    rerank(there)
    only_links(there)
    assert not office(there, "b").is_open, "p may still publish it"
    pass_time(there, 60)
    assert office(there, "b").is_open
    assert office(there, "a").closings[-1].void == (Range("b", 1, 1),)
    there.publish("q", "a", "f")
    there.settle()
    assert there.order_of("i") == ["f"], "it waits for no void number"


def test_hole_10_a_publisher_asks_again_in_the_new_layout_and_uses_one_stamp() -> None:
    there = world("ab", i="ab", j="ab")
    there.publish("p", "b", "e")
    there.along("p", m("b"))
    rerank(there)
    for _ in range(3):
        pass_time_without_events(there, 60)
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["e"]


def test_hole_10_new_ranks_are_asked_for_once_in_an_epoch() -> None:
    there = world("ab", reranking=Reranking(events=3, ratio=1.0), i="ab")
    first = epoch_of(there, "p")
    for number in range(8):
        there.publish("p", "b", number)
        there.settle()
    layout = module(there, "p").layout
    assert layout is not None
    assert layout.epoch > first
    assert layout.first[0] == "b", "the busiest is the highest"
    second = layout.epoch
    there.tell(layout.maker, ReceivedFromModule(Rerank(first)))
    there.settle()
    assert epoch_of(there, "p") == second, "a request of an older epoch is done with"
    assert there.order_of("i") == list(range(8))


# -- T15: a change in the middle of a subscription -------------------------------------------------


def test_hole_15_a_subscription_under_way_goes_on_in_the_new_layout() -> None:
    there = world("ab", i="ab", j="b")
    there.subscribe("j", "a")
    there.move(NodePair("j", m("a")))
    assert module(there, "j").subscriber.changes.state is ChangeState.REGISTERING
    rerank(there)
    there.settle()
    assert module(there, "j").subscriber.topics == {"a", "b"}
    there.publish("p", "b", "e")
    there.publish("q", "a", "f")
    there.settle()
    assert there.order_of("i") == there.order_of("j")


# -- T7: numbers that no event has -----------------------------------------------------------------


def test_hole_7_a_number_of_a_dead_publisher_is_told_to_those_who_wait() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "lost")
    there.along("p", m("b"))
    there.crash("p")
    only_links(there)
    there.publish("q", "b", "e")
    there.settle()
    assert there.order_of("i") == [], "number 1 may come"
    pass_time(there, 200)
    assert there.order_of("i") == ["e"], "sooner than an event waits at most"
    assert there.now < WAIT_FOR


def test_hole_7_a_number_of_a_publisher_that_lives_is_waited_for() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "first")
    only_links(there)
    there.publish("q", "b", "second")
    only_links(there)
    there.notify("second", "i")
    pass_time_without_events(there, 200)
    assert there.order_of("i") == []
    there.settle()
    assert there.order_of("i") == ["first", "second"]


def test_void_numbers_of_another_epoch_are_ignored() -> None:
    there = world("ab", i="ab")
    void = Void(epoch_of(there, "i") + 1, (Range("b", 1, 9),))
    there.tell("i", ReceivedFromModule(void))
    assert front(there, "i").done["b"] == 0


def test_an_event_with_a_void_number_is_notified_when_it_comes() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    only_links(there)
    there.tell(
        "i", ReceivedFromModule(Void(epoch_of(there, "i"), (Range("b", 1, 1), Range("a", 5, 6))))
    )
    assert front(there, "i").done == {"a": 0, "b": 1}
    there.publish("q", "b", "f")
    only_links(there)
    there.notify("f", "i")
    there.notify("e", "i")
    assert there.order_of("i") == ["f", ("e",)]


# -- managers that disagree ------------------------------------------------------------------------


def test_a_manager_that_has_promised_a_later_epoch_does_not_close_for_an_older_one() -> None:
    there = world("ab", i="ab")
    now, living = epoch_of(there, "p"), (m("a"), m("b"))
    later, older = Close(now + 9, m("a"), living), Close(now + 5, m("b"), living)
    answers = there.modules[m("b")].step(ReceivedFromModule(later), there.now)
    assert any(isinstance(one, SendToModule) and one.to == m("a") for one in answers)
    assert there.modules[m("b")].step(ReceivedFromModule(older), there.now) == []


def test_an_open_that_is_older_than_a_promise_is_ignored() -> None:
    there = world("ab", i="ab")
    layout = module(there, m("b")).layout
    assert layout is not None
    close = Close(layout.epoch + 9, m("a"), layout.names)
    there.modules[m("b")].step(ReceivedFromModule(close), there.now)
    stale = Layout(layout.epoch + 1, m("a"), layout.managers, layout.first, layout.pinned)
    there.modules[m("b")].step(ReceivedFromModule(Open(stale, (), -1)), there.now)
    assert office(there, "b").epoch == layout.epoch
    assert not office(there, "b").is_open


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_two_managers_that_take_each_other_for_dead_invert_nothing(seconds: float) -> None:
    there = world("ab", i="ab", j="ab")
    cut = {NodePair(m("a"), m("b")), NodePair(m("b"), m("a"))}

    def settle_but_cut() -> None:
        for link in cut & there.channels.keys():
            while link in there.channels:
                there.lose(link)
        while moves := [move for move in there.moves() if move not in cut]:
            there.move(moves[int(len(moves) * seconds)])
            for link in cut & there.channels.keys():
                there.lose(link)

    for number in range(60):
        there.publish("pq"[number % 2], "ab"[number // 2 % 2], number)
        settle_but_cut()
        there.tick()
    cut.clear()
    pass_time(there, 2_000)
    assert inversions(there.seen) == []
    seen = [{one.event for one in there.seen[name]} for name in "ij"]
    assert seen[0] == seen[1] == set(range(60))
    assert all(not isinstance(move, EventDelivery) for move in there.moves())


# -- what is bounded -------------------------------------------------------------------------------


def test_a_publisher_forgets_topics_that_it_used_once() -> None:
    there = world("ab", i="ab")
    for number in range(3 * MAX_IDLE):
        there.publish("p", f"reply/{number}", number)
        there.settle()
    assert len(module(there, "p").publisher.topics) <= MAX_IDLE + 1
    there.publish("p", "reply/0", "again")
    there.publish("p", "b", "e")
    there.settle()
    assert all(one.is_idle for one in module(there, "p").publisher.topics.values())
    assert there.order_of("i") == ["e"]


def test_a_member_with_too_many_topics_asks_for_a_new_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cubecast.ordering.production.local_managers.MAX_TOPICS", 10)
    there = world("ab", i="ab")
    first = epoch_of(there, m("a"))
    for number in range(40):
        there.publish("p", f"reply/{number}", number)
        there.settle()
    assert epoch_of(there, m("a")) > first
    assert all(len(office(there, topic).managers) <= 12 for topic in "ab")


def test_managers_that_were_all_replaced_go_on_above_the_epoch_that_members_have() -> None:
    there = world("ab", i="ab")
    there.publish("p", "b", "e")
    there.settle()
    for topic in "ab":
        there.crash(m(topic))
    for topic in "ab":
        # In the same second: their lives do not tell them from those before.
        there.modules[m(topic)] = OrderingModule(
            m(topic), [m("a"), m("b")], life=(1 << LIFE_BITS) + 1, timing=TIMING
        )
        there.tell(m(topic), Start())
    there.publish("p", "b", "f")
    pass_time(there, 4 * WAIT_FOR)
    assert there.order_of("i") == ["e", "f"]


# -- one manager for all topics --------------------------------------------------------------------


def test_with_one_manager_for_all_topics_a_stamp_takes_one_round_trip() -> None:
    make = Production(opened=False, pinned=False, spread=1, timing=TIMING)
    there = OrderingWorld(make, list("abcdef"), ["p", "i", "j"], wire=True)
    there.subscribe("i", *"abcdef")
    there.subscribe("j", *"abcdef")
    there.settle()
    layout = module(there, "i").layout
    assert layout is not None
    assert layout.has_one_manager
    assert len(layout.managers) == 6, "the others stand by"
    there.publish("p", "f", "before")
    there.settle()
    there.publish("p", "f", "e")
    boss = layout.manager_of("f")
    there.along("p", boss, "p")
    assert "p" not in {move.target for move in there.moves() if isinstance(move, NodePair)}
    there.settle()
    stamp = there.seen["i"][-1].timestamp
    assert isinstance(stamp, Stamp)
    assert [topic for topic, _ in stamp.higher] == list("abcde")
    there.publish("p", "a", "f")
    there.settle()
    passed = there.seen["i"][-1].timestamp
    assert isinstance(passed, Stamp)
    assert passed.passed == (("f", 2),)
    there.crash(boss)
    pass_time(there, 600)
    there.publish("p", "c", "g")
    pass_time(there, 100)
    assert there.order_of("i") == there.order_of("j") == ["before", "e", "f", "g"]


def test_with_one_manager_ranks_change_as_well() -> None:
    reranking = Reranking(events=3, ratio=1.0)
    make = Production(opened=False, pinned=False, spread=1, timing=TIMING, reranking=reranking)
    there = OrderingWorld(make, list("ab"), ["p", "i"], wire=True)
    there.subscribe("i", "a", "b")
    there.settle()
    for number in range(8):
        there.publish("p", "b", number)
        there.settle()
    layout = module(there, "p").layout
    assert layout is not None
    assert layout.first[0] == "b"
    assert there.order_of("i") == list(range(8))


def test_an_event_from_before_a_leave_is_not_notified_after_the_topic_was_joined_again() -> None:
    """Number 1 was given up for number 2.  Its subscriber leaves, and comes back."""
    make = Production(opened=False, timing=TIMING, waiting=WaitingBounds(events=0))
    there = OrderingWorld(make, list("ab"), ["p", "i", "j"], wire=True)
    for node in "ij":
        there.subscribe(node, "a", "b")
        there.settle()
    for event in ("a1", "a2"):
        there.publish("p", "a", event)
        only_links(there)
    there.notify("a2", "i")
    assert there.order_of("i") == ["a2"], "it waits for nothing"
    there.unsubscribe("i", "a")
    only_links(there)
    there.publish("p", "b", "b1")
    only_links(there)
    there.notify("b1", "i")
    there.notify("a1", "j")
    there.notify("a2", "j")
    there.notify("b1", "j")
    there.subscribe("i", "a")
    there.notify("a1", "i")
    only_links(there)
    assert there.order_of("i") == ["a2", "b1"]
    assert inversions(there.seen) == []


def test_requests_that_publishers_confirmed_are_not_asked_about_any_longer() -> None:
    """The manager keeps since when it asks only for requests that are still open."""
    there = world("ab", i="ab")
    for number in range(20):
        there.publish("p", "b", f"first {number}")
        there.along("p", m("b"))  # its stamp stays on its way to the manager of a
        there.publish("q", "a", f"second {number}")
        numbers = Range("b", number + 1, number + 1)
        there.tell(m("b"), ReceivedFromModule(Inquire(epoch_of(there, "i"), "i", numbers)))
        there.settle()
    assert len(office(there, "b")._confirming) <= 1
