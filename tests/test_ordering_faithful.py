"""[T] as printed: its example, its lemmas, and the schedules in which it breaks its promise."""

from __future__ import annotations

from random import Random

import pytest

from cubecast.ordering.faithful.manager import sequencing_group
from cubecast.ordering.faithful.module import OrderingModule
from cubecast.ordering.faithful.order import TopicOrder
from cubecast.ordering.judge import inversions, needless_tags
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
    there.along("j", m("2"), m("1"))
    publish(there, "p", "1", "e1")
    publish(there, "q", "2", "e2", "1")
    there.notify("e2", "j")
    there.subscribed["1"].add("j")  # the service below may be quick, or the event slow
    there.along(m("1"), "j")
    publish(there, "p", "1", "e3")
    there.notify("e1", "i")
    there.notify("e2", "i")
    there.notify("e3", "j")
    there.notify("e3", "i")
    assert there.order_of("i") == ["e1", "e2", "e3"]
    clock = there.modules["j"].subscriber.clock  # type: ignore[attr-defined]
    assert clock["1"] >= 2


def test_what_is_tagged_is_below_something_that_was_seen() -> None:
    for seed in range(50):
        rng = Random(seed)
        there = world("ab", i="ab", j="ab", k="ab")
        for number in range(8):
            there.publish("pqr"[number % 3], rng.choice("ab"), f"e{number}")
        there.settle_by_chance(rng)
        assert needless_tags(there.seen) == []
