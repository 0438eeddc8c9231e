"""[T] as printed: the schedules in which it breaks its promise, or blocks (holes T1 to T15).

The explorer finds T1 to T5 (`test_ordering_explore.py`) and T9 (`test_ordering_claims.py`) without
help.
"""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from cubecast.ordering.effects import ReceivedFromModule
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, Swapping
from cubecast.ordering.judge import inversions, needless_tags, shared_numbers
from cubecast.ordering.messages import Completed
from cubecast.ordering.world import Make, NodePair, OrderingWorld
from support.ordering_toys import (
    ask_to_swap,
    configured,
    lose,
    m,
    managing,
    module,
    overtake,
    publish,
    restart,
    stamp,
    waiting,
    wake,
    world,
)

TIME_TO_WAIT = 10
buffering = configured(buffer=1000, wait_for=TIME_TO_WAIT)
swapping = configured(swapping=Swapping())
retrying = configured(retry_after=5)


def opposite(there: OrderingWorld, one: str, other: str) -> None:
    """Both subscribers saw both events, all untagged, in opposite orders."""
    assert there.order_of("i")[-2:] == [one, other]
    assert there.order_of("j")[-2:] == [other, one]
    assert len(inversions(there.seen)) == 1


# -- numbers and clocks ----------------------------------------------------------------------------


def test_hole_1_an_event_is_in_order_through_a_topic_that_is_not_its_own() -> None:
    """Static subscriptions, links in order, no fault: i sees e, f and j sees f, e, all untagged."""
    there = world("xcab", i="ab", j="abx", k="abx", l="ac", n="ac")
    there.publish("p", "a", "e")
    there.along("p", m("a"))  # on its way to the manager of c
    publish(there, "q", "b", "f", "a", "x")
    publish(there, "r", "x", "g")
    there.along(m("a"), m("c"), m("x"), "p")
    there.notify("e", "i")
    there.notify("f", "i")
    there.notify("f", "j")
    there.notify("e", "j")
    assert there.order_of("i") == ["e", "f"]
    assert there.order_of("j") == ["f", "e"]
    assert [found.first for found in inversions(there.seen)] == ["e"]


def test_hole_1_is_found_by_chance() -> None:
    """Without help: five random subscriptions of four topics, and some events."""
    found = 0
    for seed in range(400):
        rng = Random(seed)
        chosen = {name: "".join(rng.sample("xcab", rng.randint(2, 3))) for name in "ijkln"}
        there = world("xcab", **chosen)
        for number in range(8):
            there.publish("pqr"[number % 3], rng.choice("xcab"), f"e{number}")
        there.settle_by_chance(rng)
        found += bool(inversions(there.seen))
    assert found > 0


def test_hole_2_a_join_makes_events_of_one_subscription_matter() -> None:
    there = world("12", i="12", j="2")
    there.publish("q", "2", "e2")
    there.along("q", m("2"), "q")
    assert list(stamp(there, "e2")) == ["2"], "one subscription has both topics"
    there.notify("e2", "j")
    there.subscribe("j", "1")
    there.along("j", m("2"), m("1"), "j")
    publish(there, "p", "1", "e1")
    there.notify("e1", "j")
    there.notify("e1", "i")
    there.notify("e2", "i")
    assert there.order_of("j") == ["e2", "e1"]
    assert there.order_of("i") == ["e1", "e2"]


def test_hole_3_so_does_a_leave() -> None:
    there = world("12", i="12", j="12")
    publish(there, "p", "1", "e1")
    there.notify("e1", "j")
    there.unsubscribe("j", "1")
    there.along("j", m("2"))
    there.along("j", m("1"))
    publish(there, "q", "2", "e2")
    there.notify("e2", "j")
    there.notify("e2", "i")
    there.notify("e1", "i")
    assert there.order_of("j") == ["e1", "e2"]
    assert there.order_of("i") == ["e2", "e1"]


def test_hole_4_a_completed_subscription_sets_the_clock_back() -> None:
    there = world("12", i="12", j="1")
    there.subscribe("j", "2")
    there.along("j", m("2"), m("1"))  # the answer is on its way
    publish(there, "p", "1", "early")
    publish(there, "p", "1", "late")
    there.notify("late", "j")
    there.along(m("1"), "j")
    there.notify("early", "j")
    there.notify("early", "i")
    there.notify("late", "i")
    assert there.order_of("j") == ["late", "early"]
    assert there.order_of("i") == ["early", "late"]


def test_hole_5_a_topic_that_is_being_joined_has_no_place_in_the_clock() -> None:
    there = world("12", i="12", k="12", j="2")
    there.subscribe("j", "1")
    there.along("j", m("2"), m("1"))  # the answer is on its way
    there.publish("p", "1", "e1")
    there.along("p", m("1"))  # it has its number, and is not published yet
    publish(there, "q", "2", "e2", "1")
    there.notify("e2", "j")
    there.along(m("1"), "j")
    there.along(m("1"), "p")
    there.notify("e1", "j")
    there.notify("e1", "i")
    there.notify("e2", "i")
    assert there.order_of("j") == ["e2", "e1"]
    assert there.order_of("i") == ["e1", "e2"]


# -- the buffer ------------------------------------------------------------------------------------


def test_hole_6_the_buffer_lets_an_event_pass_before_a_lower_one_that_came_first() -> None:
    """Nothing is lost, and the buffer has room: f is tagged, and g waits for nothing."""
    there = world("ab", buffering, i="ab", j="ab")
    publish(there, "q", "b", "f", "a")
    publish(there, "p", "a", "e")
    publish(there, "q", "b", "g", "a")
    there.notify("e", "j")
    assert there.order_of("j") == ["e"], "e passes the rule at once, though f passed a before it"
    there.notify("f", "j")
    there.notify("g", "j")
    assert waiting(there, "j") == ["f", "g"]
    wake(there, "j", TIME_TO_WAIT - 1)
    assert waiting(there, "j") == ["f", "g"], "all events are here, and two are stuck"
    wake(there, "j", TIME_TO_WAIT)
    assert there.order_of("j") == ["e", ("f",), "g"]


def test_hole_7_a_subscription_takes_a_number_that_others_wait_for() -> None:
    there = world("a", buffering, i="a", k="a")
    publish(there, "p", "a", "e")
    there.notify("e", "i", "k")
    assert there.order_of("k") == ["e"]
    assert waiting(there, "i") == ["e"], "the number before e was that of k's subscription"


def test_hole_7_a_publisher_that_dies_takes_a_number_with_it() -> None:
    there = world("a", buffering, i="a")
    there.publish("p", "a", "never")
    there.along("p", m("a"))  # p dies before the answer comes
    publish(there, "q", "a", "e")
    there.notify("e", "i")
    assert waiting(there, "i") == ["e"]


def test_hole_7_events_between_the_clock_and_the_service_are_waited_for() -> None:
    there = world("a", buffering, i="a")
    there.subscribe("p", "a")
    there.along("p", m("a"))  # p's clock is on its way; the service does not know p yet
    publish(there, "q", "a", "before")
    there.along(m("a"), "p")
    publish(there, "q", "a", "e")
    there.notify("e", "p")
    assert waiting(there, "p") == ["e"], "the service never notifies p of the one before"


# -- subscriptions ---------------------------------------------------------------------------------


def test_hole_8_an_old_update_arrives_after_the_new_subscription() -> None:
    there = world("012", i="01", j="012")
    there.unsubscribe("j", "0")
    there.along("j", m("2"))
    there.along("j", m("0"))  # the update to the manager of 1 is slow
    there.subscribe("j", "0")
    there.along("j", m("2"), m("1"), m("0"), "j")
    there.along("j", m("1"))
    assert managing(there, "1").subscriptions["j"] == {"1", "2"}, "for ever"
    publish(there, "p", "1", "e1")
    publish(there, "q", "0", "e0")
    there.notify("e1", "j")
    there.notify("e0", "j", "i")
    there.notify("e1", "i")
    opposite(there, "e0", "e1")


def test_hole_8_two_subscribes_in_flight_know_nothing_of_each_other() -> None:
    """The second clock replaces the first, which alone has topic 0: its events are tagged."""
    there = world("012", i="01", j="2")
    there.subscribe("j", "0", "1")
    there.settle()
    assert managing(there, "1").subscriptions["j"] == {"1", "2"}
    assert module(there, "j").subscriber.topics == {"0", "1", "2"}
    for number in range(5):
        publish(there, "q", "0", f"e{number}")
        there.notify(f"e{number}", "j")
    assert there.order_of("j") == [(f"e{number}",) for number in range(5)]
    assert len(needless_tags(there.seen)) == 5


# -- circles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["".join(one) for one in permutations("efg")])
def test_hole_11_three_events_in_a_circle_cannot_all_be_in_order(arrivals: str) -> None:
    """e before f at the manager of a, f before g and g before e at that of x."""
    there = world("xcab", buffering, i="ab", k="abx", l="ac", n="ac", j="abx")
    there.publish("p", "a", "e")
    there.along("p", m("a"))  # on its way to the manager of c
    publish(there, "q", "b", "f", "a", "x")
    publish(there, "r", "x", "g")
    there.along(m("a"), m("c"), m("x"), "p")
    e, f, g = (stamp(there, event) for event in "efg")
    assert (f["a"], g["x"], e["x"]) == (e["a"], f["x"] + 1, g["x"])
    for event in arrivals:
        there.notify(event, "j")
    assert waiting(there, "j"), "in whatever order they arrive"
    wake(there, "j", TIME_TO_WAIT)
    assert len(there.order_of("j")) == 3
    assert [one for one in there.order_of("j") if isinstance(one, tuple)] == [("f",)]


# -- topics that change places ---------------------------------------------------------------------


def partly_swapped(make: Make = swapping, **more: str) -> OrderingWorld:
    """a→b→c become b→a→c: c knows it, a infers it from an event of c, b does not know yet."""
    there = world("abc", make, i="ab", j="ab", k="ac", l="ac", **more)
    ask_to_swap(there, "a", "b")
    there.along(m(SYSTEM_TOPIC), m("c"))
    publish(there, "r", "c", "g", "a")
    assert [module(there, m(topic)).order.epoch for topic in "abc"] == [1, 0, 1]
    return there


def test_hole_9_an_order_that_is_inferred_from_a_timestamp_is_not_the_order() -> None:
    there = partly_swapped()
    there.along(m("c"), m("b"))  # the manager of b knows the order now, and tells that of a
    assert module(there, m("b")).order.topics == ["b", "a", "c"]
    assert module(there, m("a")).order.topics == ["a", "b", "c"], "the event of c names no b"
    publish(there, "p", "a", "e")
    publish(there, "q", "b", "f")
    assert list(stamp(there, "e")) == ["a", SYSTEM_TOPIC]
    assert list(stamp(there, "f")) == ["b", SYSTEM_TOPIC]
    there.notify("e", "i")
    there.notify("f", "i", "j")
    there.notify("e", "j")
    opposite(there, "e", "f")


def test_hole_10_a_timestamp_of_the_old_epoch_is_sent_again_and_discarded_for_ever() -> None:
    there = partly_swapped(configured(retry_after=5, swapping=Swapping()))
    there.publish("p", "b", "e")
    there.along("p", m("b"), m("a"))
    there.settle()
    assert {module(there, m(topic)).order.epoch for topic in "abc"} == {1}
    for again in range(1, 21):
        wake(there, "p", 5 * again)
        there.along("p", m("b"), m("a"))
        assert NodePair(m("a"), "p") not in there.channels
    assert module(there, "p").publisher.outgoing, "it has no timestamp, and never will"


def test_hole_10_a_subscription_of_the_old_epoch_hangs() -> None:
    there = partly_swapped(n="b")
    there.subscribe("n", "a")
    there.along("n", m("b"), m("a"))
    there.settle()
    assert module(there, "n").subscriber.topics == {"b"}
    assert managing(there, "b").subscriptions["n"] == {"a", "b"}, "one manager believes it"
    assert "n" not in managing(there, "a").subscriptions


def test_hole_10_a_request_that_is_made_twice_swaps_back() -> None:
    there = world("ab", swapping, i="ab", j="ab")
    requests = NodePair(m("a"), m(SYSTEM_TOPIC))
    for number in range(20):
        publish(there, "p", "b", f"e{number}", "a")
        if len(there.channels.get(requests, ())) == 2:
            break
    there.settle()
    system = module(there, m(SYSTEM_TOPIC))
    assert (system.order.epoch, system.order.topics) == (2, ["a", "b"])
    publish(there, "p", "b", "next", "a")
    assert requests in there.channels, "and it goes on"


def test_hole_12_the_first_event_of_an_epoch_tags_those_of_the_last_one() -> None:
    """Only i has both topics, so no order of the two can be wrong."""
    there = world("123", swapping, i="13")
    publish(there, "p", "3", "old")
    ask_to_swap(there, "1", "2")
    there.along(m(SYSTEM_TOPIC), m("3"), m("2"), m("1"), m(SYSTEM_TOPIC))
    publish(there, "q", "1", "new")
    assert set(stamp(there, "old")) & set(stamp(there, "new")) == {SYSTEM_TOPIC}
    there.notify("new", "i")
    there.notify("old", "i")
    assert there.order_of("i") == ["new", ("old",)]


def test_hole_12_the_first_event_of_an_epoch_waits_though_nothing_is_missing() -> None:
    make = configured(buffer=1000, wait_for=TIME_TO_WAIT, swapping=Swapping())
    there = world("12", make, k="12", i="12")
    publish(there, "p", "1", "old")
    there.notify("old", "i")
    assert there.order_of("i") == ["old"]
    ask_to_swap(there, "1", "2")
    there.along(m(SYSTEM_TOPIC), m("2"), m("1"), m(SYSTEM_TOPIC))
    publish(there, "p", "2", "new")
    there.notify("new", "i")
    assert waiting(there, "i") == ["new"]


def join_during_swap(swap: bool) -> OrderingWorld:
    """j, which has 1, joins 2, the lower topic; so 2 is visited first."""
    there = world("12", swapping, i="12", j="1")
    if swap:
        ask_to_swap(there, "1", "2")
        there.along(m(SYSTEM_TOPIC), m("2"))
    there.subscribe("j", "2")
    there.along("j", m("2"))
    if swap:
        there.along(m("2"), m("1"))
    publish(there, "p", "1", "e1")
    there.notify("e1", "j")
    there.along(m("2"), m("1"), "j")
    publish(there, "q", "2", "e2", *(() if swap else "1"))
    there.notify("e2", "j", "i")
    there.notify("e1", "i")
    return there


def test_hole_15_a_swap_during_a_subscription_turns_the_order_of_its_visits() -> None:
    """The manager of 2 is the higher one when it is visited first; that of 1 does not know yet."""
    there = join_during_swap(True)
    assert list(stamp(there, "e1")) == ["1", SYSTEM_TOPIC]
    assert list(stamp(there, "e2")) == ["2", SYSTEM_TOPIC]
    opposite(there, "e2", "e1")


def test_hole_15_the_same_steps_are_safe_without_a_swap() -> None:
    there = join_during_swap(False)
    assert there.order_of("i") == ["e2", ("e1",)]
    assert inversions(there.seen) == []


# -- faults ----------------------------------------------------------------------------------------


def test_hole_13_a_request_that_arrives_late_gets_a_second_timestamp() -> None:
    there = world("a", configured(retry_after=5, buffer=9, wait_for=TIME_TO_WAIT), i="a")
    there.publish("p", "a", "e")
    wake(there, "p", 5)
    there.along("p", m("a"), "p")  # the first request is answered, the second is on its way
    overtake(there, "p", m("a"))
    there.along("p", m("a"))  # the manager need not keep the timestamp any more
    there.along("p", m("a"))
    (second,) = there.channels[NodePair(m("a"), "p")]
    assert isinstance(second, ReceivedFromModule)
    assert isinstance(second.message, Completed)
    assert dict(second.message.entries) != dict(stamp(there, "e")), "two for one event"
    there.settle()
    assert managing(there, "a").kept, "the second is never freed"
    publish(there, "q", "a", "f")
    there.notify("f", "i")
    assert there.order_of("i") == ["e"]
    assert waiting(there, "i") == ["f"], "for the second"


def test_hole_13_a_publisher_that_comes_back_gets_the_timestamp_of_another_event() -> None:
    """Event ids are unique at their publisher only, and begin again with it."""
    there = world("a", retrying, i="a", j="a")
    publish(there, "p", "a", "e")
    lose(there, "p", m("a"))  # that the timestamp is complete
    restart(there, "p")
    publish(there, "p", "a", "f")
    assert stamp(there, "e") == stamp(there, "f")
    there.notify("e", "i")
    there.notify("f", "i", "j")
    there.notify("e", "j")
    assert there.order_of("i") == ["e", ("f",)]
    assert there.order_of("j") == ["f", ("e",)]
    assert len(shared_numbers(there.seen)) == 1
    assert needless_tags(there.seen) == [("i", "f"), ("j", "e")]


def test_hole_14_a_manager_that_forgets_its_subscriptions_omits_entries() -> None:
    there = world("ab", i="ab", j="ab")
    publish(there, "q", "b", "before", "a")
    assert list(stamp(there, "before")) == ["a", "b"]
    there.settle()
    restart(there, m("b"))
    for number in range(3):
        publish(there, "q", "b", f"low {number}")
        there.notify(f"low {number}", "i", "j")
    assert there.order_of("j") == ["before", ("low 0",), ("low 1",), ("low 2",)], "only tags"
    publish(there, "q", "b", "f")
    publish(there, "p", "a", "e")
    assert list(stamp(there, "f")) == ["b"]
    there.notify("e", "i")
    there.notify("f", "i", "j")
    there.notify("e", "j")
    opposite(there, "e", "f")
