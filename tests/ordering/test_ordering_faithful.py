"""[T] as printed: its example, its definitions, and the extensions of section 5.

Its lemmas and theorems are in `test_ordering_claims.py`, its holes in `test_ordering_holes.py`.
"""

from __future__ import annotations

from random import Random

from cubecast.ordering.effects import (
    Effect,
    Notify,
    PublishCall,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    ServicePublish,
    Wake,
    WakeAt,
)
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig, Swapping
from cubecast.ordering.faithful.manager import sequencing_group
from cubecast.ordering.faithful.module import FaithfulModule
from cubecast.ordering.faithful.order import SystemManager, TopicOrder
from cubecast.ordering.judge import needless_tags
from cubecast.ordering.messages import NewOrder, RequestSwap
from cubecast.ordering.timestamps import Timestamp, comparable, smaller
from cubecast.ordering.world import manager
from support.ordering_toys import managing, publish, stamp, world

# -- timestamps ------------------------------------------------------------------------------------


def test_figure_3() -> None:
    """T1→T2→T3; S_i has all three, S_j the first two."""
    there = world("123", i="123", j="12")
    bumps = managing(there, "1").clock
    publish(there, "p", "2", "e", "1")
    publish(there, "p", "1", "e'")
    publish(there, "p", "3", "e''")
    e, e1, e2 = (stamp(there, event) for event in ("e", "e'", "e''"))
    assert [list(one) for one in (e, e1, e2)] == [["1", "2"], ["1"], ["3"]]
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


# -- the extensions of section 5 -------------------------------------------------------------------


def arrive(module: FaithfulModule, event: str, now: int = 0, **numbers: int) -> list[str]:
    """An event of topic b arrives; what the application is notified of, tagged in brackets."""
    cause = ServiceNotified("b", event, Timestamp(numbers))
    return notified(module.step(cause, now))


def notified(effects: list[Effect]) -> list[str]:
    found = [effect for effect in effects if isinstance(effect, Notify)]
    return [str(one.payload) if one.in_order else f"({one.payload})" for one in found]


def buffering(size: int) -> FaithfulModule:
    """A subscriber of a and b at 0, with a buffer and a time of 10."""
    config = FaithfulConfig(buffer=size, wait_for=10)
    module = FaithfulModule("i", list("ab"), manager, config=config)
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
    publisher = FaithfulModule("p", ["a"], manager, config=config)
    topic = FaithfulModule(manager("a"), ["a"], manager, ["a"], config)
    asked = publisher.step(PublishCall("a", "e"), 0)[0]
    assert isinstance(asked, SendToModule)
    first = topic.step(ReceivedFromModule(asked.message))
    again = publisher.step(Wake(), 5)[0]
    assert again == asked
    assert topic.step(ReceivedFromModule(asked.message)) == first
    answer = first[0]
    assert isinstance(answer, SendToModule)
    published, free, *_ = publisher.step(ReceivedFromModule(answer.message))
    assert isinstance(published, ServicePublish)
    assert isinstance(free, SendToModule)
    topic.step(ReceivedFromModule(free.message))
    assert topic.managers["a"].kept == {}
    assert publisher.step(ReceivedFromModule(answer.message)) == [], "one timestamp is enough"


def test_a_popular_topic_changes_places_with_a_higher_one() -> None:
    """Figure 16's alpha and beta: six events against none."""
    swapping = Swapping(alpha=0.1, beta=0.2)
    assert not swapping.wants(higher=0, lower=5)
    assert swapping.wants(higher=0, lower=6)
    order = TopicOrder("abc")
    sent = SystemManager(order, manager, FaithfulConfig()).on_request(RequestSwap("a", "c"), 0)
    assert order.topics == ["c", "b", "a"]
    first = SendToModule(manager("c"), NewOrder(1, "c", ("c", "b", "a"), ("a", "b")))
    assert sent == [first], "the lowest first, of the order that ends"


def test_a_lost_order_is_sent_again_until_it_has_visited_all_managers() -> None:
    config = FaithfulConfig(retry_after=5, swapping=Swapping())
    system = FaithfulModule(manager(SYSTEM_TOPIC), list("ab"), manager, config=config)
    told = system.step(ReceivedFromModule(RequestSwap("a", "b")), 0)
    assert told == [SendToModule(manager("b"), NewOrder(1, "b", ("b", "a"), ("a",))), WakeAt(5)]
    assert system.step(Wake(), 4) == []
    assert system.step(Wake(), 5) == [told[0], WakeAt(10)]
    system.step(ReceivedFromModule(NewOrder(1, SYSTEM_TOPIC, ("b", "a"))))
    assert system.step(Wake(), 10) == []


def test_a_tagged_event_is_below_an_event_already_seen() -> None:
    for seed in range(50):
        rng = Random(seed)
        there = world("ab", i="ab", j="ab", k="ab")
        for number in range(8):
            there.publish("pqr"[number % 3], rng.choice("ab"), f"e{number}")
        there.settle_by_chance(rng)
        assert needless_tags(there.seen) == []
