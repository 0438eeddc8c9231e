"""[T] as printed: its example, its lemmas, and the schedules in which it breaks its promise."""

from __future__ import annotations

from random import Random

import pytest

from cubecast.ordering.effects import (
    Arrived,
    Effect,
    Notify,
    Publish,
    Received,
    Send,
    ServicePublish,
    Wake,
)
from cubecast.ordering.faithful.config import FaithfulConfig, Swapping
from cubecast.ordering.faithful.manager import sequencing_group
from cubecast.ordering.faithful.module import OrderingModule
from cubecast.ordering.faithful.order import SystemManager, TopicOrder
from cubecast.ordering.judge import inversions, needless_tags
from cubecast.ordering.messages import NewOrder, RequestSwap
from cubecast.ordering.timestamps import Timestamp, comparable, smaller
from cubecast.ordering.world import World, manager, stamps


def world(order: str, **subscriptions: str) -> World:
    """Topics are letters or digits, the highest first; subscribers have what they are given."""
    made = World(OrderingModule, list(order), ["p", "q", "r", *subscriptions])
    for node, topics in subscriptions.items():
        for topic in topics:
            made.subscribe(node, topic)
            made.settle()
    return made


def m(topic: str) -> str:
    return manager(topic)


def publish(there: World, node: str, topic: str, event: str, *through: str) -> None:
    """Publish, and let the timestamp pass the managers of `through` and come back."""
    there.publish(node, topic, event)
    there.along(node, *(m(one) for one in (topic, *through)), node)


# -- timestamps ------------------------------------------------------------------------------------


def test_figure_3() -> None:
    """T1→T2→T3; S_i has all three, S_j the first two."""
    there = world("123", i="123", j="12")
    bumps = there.modules[m("1")].managers["1"].clock  # type: ignore[attr-defined]
    publish(there, "p", "2", "e", "1")
    publish(there, "p", "1", "e'")
    publish(there, "p", "3", "e''")
    there.settle()
    made = stamps(there)
    assert [list(made[event]) for event in ("e", "e'", "e''")] == [["1", "2"], ["1"], ["3"]]
    e, e1, e2 = made["e"], made["e'"], made["e''"]
    assert e["1"] == bumps
    assert e1["1"] == bumps + 1
    assert comparable(e, e1)
    assert not comparable(e, e2)
    assert not comparable(e1, e2)
    assert smaller(e, e1)


def test_figure_4_removes_what_follows_and_what_only_one_subscription_has() -> None:
    order = TopicOrder("1234")
    both = [frozenset("123"), frozenset("12"), frozenset("24")]
    assert sequencing_group("2", both, order) == ["1", "2"]
    assert sequencing_group("3", [frozenset("123")], order) == ["3"]
    assert sequencing_group("4", [], order) == ["4"]


def test_definition_3_is_not_transitive() -> None:
    a, b, c = Timestamp({"1": 1}), Timestamp({"1": 2, "2": 1}), Timestamp({"2": 2})
    assert smaller(a, b)
    assert smaller(b, c)
    assert not smaller(a, c)


# -- what the paper proves -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_lemma_1_two_events_of_one_topic(seed: int) -> None:
    there = world("ab", i="ab", j="ab")
    for number in range(6):
        there.publish("pq"[number % 2], "b", f"e{number}")
    there.settle_by_chance(Random(seed))
    assert inversions(there.seen) == []


@pytest.mark.parametrize("seed", range(20))
def test_lemma_2_two_topics_that_two_subscribers_share(seed: int) -> None:
    there = world("ab", i="ab", j="ab")
    for number in range(6):
        there.publish("pq"[number % 2], "ab"[number // 2 % 2], f"e{number}")
    there.settle_by_chance(Random(seed))
    assert inversions(there.seen) == []


def test_theorem_2_an_answer_in_the_same_topic_has_the_later_timestamp() -> None:
    there = world("ab", i="ab", q="ab")
    publish(there, "p", "b", "question", "a")
    there.notify("question", "q")
    publish(there, "q", "b", "answer", "a")
    there.notify("answer", "i")
    there.notify("question", "i")
    assert there.order_of("i") == ["answer", ("question",)]
    made = stamps(there)
    assert smaller(made["question"], made["answer"])


# -- what it does not ------------------------------------------------------------------------------


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
    assert list(stamps_of(there, "e2", "j")) == ["2"], "one subscription has both topics"
    there.subscribe("j", "1")
    there.along("j", m("2"), m("1"), "j")
    publish(there, "p", "1", "e1")
    there.notify("e1", "j")
    there.notify("e1", "i")
    there.notify("e2", "i")
    assert there.order_of("j") == ["e2", "e1"]
    assert there.order_of("i") == ["e1", "e2"]


def stamps_of(there: World, event: str, node: str) -> Timestamp:
    there.notify(event, node)
    return there.seen[node][-1].timestamp


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


# -- the extensions of section 5 -------------------------------------------------------------------


def arrive(module: OrderingModule, event: str, now: int = 0, **numbers: int) -> list[str]:
    """An event of topic b arrives; what the application is notified of, tagged in brackets."""
    cause = Arrived("b", event, Timestamp(numbers))
    return notified(module.step(cause, now))


def notified(effects: list[Effect]) -> list[str]:
    found = [effect for effect in effects if isinstance(effect, Notify)]
    return [str(one.payload) if one.in_order else f"({one.payload})" for one in found]


def buffering(size: int) -> OrderingModule:
    """A subscriber of a and b at 0, with a buffer and a time of 10."""
    config = FaithfulConfig(buffer=size, wait_for=10)
    module = OrderingModule("i", list("ab"), manager, config=config)
    module.subscriber.topics |= {"a", "b"}
    module.subscriber.clock.update({"a": 0, "b": 0})
    return module


def test_a_buffered_event_goes_when_the_one_before_it_has_come() -> None:
    module = buffering(2)
    assert arrive(module, "second", a=0, b=2) == []
    assert arrive(module, "first", a=0, b=1) == ["first", "second"]


def test_a_buffered_event_goes_when_its_time_is_over_and_the_late_one_is_tagged() -> None:
    module = buffering(2)
    assert arrive(module, "second", a=0, b=2) == []
    assert notified(module.step(Wake(), 9)) == []
    assert notified(module.step(Wake(), 10)) == ["second"]
    assert arrive(module, "first", 11, a=0, b=1) == [], "it is late, and waits all the same"
    assert notified(module.step(Wake(), 21)) == ["(first)"]


def test_the_head_of_a_full_buffer_goes_when_another_has_to_wait() -> None:
    module = buffering(1)
    assert arrive(module, "second", a=0, b=2) == []
    assert arrive(module, "fourth", a=0, b=4) == ["second"]


def test_a_lost_request_is_repeated_and_gets_the_same_number() -> None:
    config = FaithfulConfig(retry_after=5)
    publisher = OrderingModule("p", ["a"], manager, config=config)
    topic = OrderingModule(manager("a"), ["a"], manager, ["a"], config)
    asked = publisher.step(Publish("a", "e"), 0)[0]
    assert isinstance(asked, Send)
    first = topic.step(Received(asked.message))
    again = publisher.step(Wake(), 5)[0]
    assert again == asked
    assert topic.step(Received(asked.message)) == first
    answer = first[0]
    assert isinstance(answer, Send)
    published, free, *_ = publisher.step(Received(answer.message))
    assert isinstance(published, ServicePublish)
    assert isinstance(free, Send)
    topic.step(Received(free.message))
    assert topic.managers["a"].kept == {}
    assert publisher.step(Received(answer.message)) == [], "one timestamp is enough"


def test_a_popular_topic_changes_places_with_a_higher_one() -> None:
    """Figure 16's alpha and beta: six events against none."""
    swapping = Swapping(alpha=0.1, beta=0.2)
    assert not swapping.wants(higher=0, lower=5)
    assert swapping.wants(higher=0, lower=6)
    order = TopicOrder("abc")
    sent = SystemManager(order, manager).on_request(RequestSwap("a", "c"))
    assert order.topics == ["c", "b", "a"]
    first = sent[0]
    assert isinstance(first, Send)
    assert first == Send(manager("a"), NewOrder(1, "a", ("c", "b", "a"))), "the lowest first"


def test_what_is_tagged_is_below_something_that_was_seen() -> None:
    for seed in range(50):
        rng = Random(seed)
        there = world("ab", i="ab", j="ab", k="ab")
        for number in range(8):
            there.publish("pqr"[number % 3], rng.choice("ab"), f"e{number}")
        there.settle_by_chance(rng)
        assert needless_tags(there.seen) == []
