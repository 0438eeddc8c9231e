"""Order across topics in production: the paper's holes are closed, by schedules and by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from cubecast.ordering.effects import (
    Notify,
    ReceivedFromModule,
    SendToModule,
    ServiceNotified,
    Wake,
    WakeAt,
)
from cubecast.ordering.judge import inversions, needless_tags, repeated
from cubecast.ordering.messages import Member
from cubecast.ordering.production.config import Timing, WaitingBounds
from cubecast.ordering.production.fixed_managers import Production
from cubecast.ordering.production.front import Front
from cubecast.ordering.production.layout import Layout
from cubecast.ordering.production.manager import Manager
from cubecast.ordering.production.messages import (
    Confirmed,
    Fill,
    Register,
    Repeat,
    Request,
    Source,
    SubscriptionVersion,
    Turn,
)
from cubecast.ordering.production.module import OrderingModule
from cubecast.ordering.production.registry import SubscriptionRegistry
from cubecast.ordering.timestamps import Stamp
from cubecast.ordering.world import Module, NodePair, OrderingWorld, manager


def world(order: str, **subscriptions: str) -> OrderingWorld:
    made = OrderingWorld(Production(), list(order), ["p", "q", "r", *subscriptions])
    for node, topics in subscriptions.items():
        made.subscribe(node, *topics)
        made.settle()
    return made


def m(topic: str) -> str:
    return manager(topic)


def publish(there: OrderingWorld, node: str, topic: str, event: str, *through: str) -> None:
    there.publish(node, topic, event)
    there.along(node, *(m(one) for one in (topic, *through)), node)


def module(there: OrderingWorld, node: str) -> OrderingModule:
    found = there.modules[node]
    assert isinstance(found, OrderingModule)
    return found


def front(there: OrderingWorld, node: str) -> Front:
    found = module(there, node).subscriber.front
    assert found is not None
    return found


def layout(order: str) -> Layout:
    sources = tuple(Source(manager(topic), 0) for topic in order)
    pinned = tuple((topic, manager(topic)) for topic in order)
    return Layout(1, sources[0].member, sources, tuple(order), pinned)


# -- the holes of [T] ------------------------------------------------------------------------------


def test_hole_1_an_event_is_late_by_its_own_topic_whatever_others_say() -> None:
    there = world("xcab", i="ab", j="abx", k="abx", l="ac", n="ac")
    there.publish("p", "a", "e")
    there.along("p", m("a"))
    there.publish("q", "b", "f")
    there.along("q", m("b"), m("a"))
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["e", "f"]


def test_hole_1_without_waiting_the_late_event_is_tagged() -> None:
    there = OrderingWorld(impatient(), list("xcab"), ["p", "q", "r", *"ijkln"])
    for node, topics in zip("ijkln", ("ab", "abx", "abx", "ac", "ac"), strict=True):
        there.subscribe(node, *topics)
        there.settle()
    there.publish("p", "a", "e")
    there.along("p", m("a"))
    there.publish("q", "b", "f")
    there.along("q", m("b"), m("a"))
    there.settle(lambda moves: next((one for one in moves if one[1] != "j"), moves[0]))
    assert inversions(there.seen) == []


def impatient() -> Production:
    """Nothing waits: what is not in order is tagged."""
    return Production(waiting=WaitingBounds(events=0))


def test_hole_2_a_join_comes_after_what_was_numbered_without_it() -> None:
    there = world("12", i="12", j="2")
    publish(there, "q", "2", "e2", "1")
    there.subscribe("j", "1")
    there.settle(lambda moves: next((one for one in moves if isinstance(one, NodePair)), moves[0]))
    publish(there, "p", "1", "e1")
    there.notify("e1", "j")
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["e2", "e1"]


def test_hole_3_who_left_a_topic_still_knows_how_far_it_was() -> None:
    there = world("12", i="12", j="12")
    there.publish("q", "2", "e2")
    there.along("q", m("2"), m("1"), "q")
    publish(there, "p", "1", "e1")
    there.notify("e1", "j", "i")
    there.notify("e2", "i")
    there.unsubscribe("j", "1")
    there.settle()
    assert there.order_of("i") == ["e2", "e1"]
    assert there.order_of("j") in (["e2"], [("e2",)]), "e1 was waiting for e2, or e2 is late"
    publish(there, "q", "2", "e3", "1")
    there.settle()
    assert set(front(there, "j").clock) == {"2"}, "and forgets it when that matters no more"


def test_hole_3_an_event_that_was_numbered_when_managers_knew_of_the_leave_is_in_order() -> None:
    there = world("12", i="12", j="12")
    publish(there, "p", "1", "e1")
    there.settle()
    there.unsubscribe("i", "1")
    there.unsubscribe("j", "1")
    there.along("i", m("2"))
    there.along("j", m("2"))
    publish(there, "q", "2", "e2")
    there.notify("e2", "j")
    assert there.order_of("j") == ["e1"], "whether the leave comes before it is not known yet"
    there.settle()
    assert there.order_of("j") == there.order_of("i") == ["e1", "e2"]


def test_hole_4_and_7_what_completes_a_subscription_sets_no_clock_back() -> None:
    there = world("12", i="12", j="1")
    there.subscribe("j", "2")
    there.along("j", m("1"), "j")
    there.along("j", m("2"), "j")
    publish(there, "p", "1", "early")
    publish(there, "p", "1", "late")
    there.notify("late", "j")
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["early", "late"]


def test_hole_5_events_that_name_a_topic_which_begins_wait_for_it() -> None:
    there = world("12", i="12", j="2")
    there.subscribe("j", "1")
    there.along("j", m("1"), "j")
    there.along("j", m("2"), "j")
    there.along("j", m("1"))  # it begins above the number that its manager has now
    publish(there, "p", "1", "e1")
    publish(there, "q", "2", "e2", "1")
    there.notify("e2", "j")
    assert there.order_of("j") == []
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["e1", "e2"]


def test_a_topic_begins_when_events_that_do_not_name_it_were_notified() -> None:
    there = world("12", j="2")
    publish(there, "q", "2", "e2")
    there.subscribe("j", "1")
    there.settle(lambda moves: next((one for one in moves if isinstance(one, NodePair)), moves[0]))
    assert module(there, "j").subscriber.topics == {"1", "2"}
    there = world("12", j="2")
    publish(there, "q", "2", "e2")
    there.subscribe("j", "1")
    while links := [one for one in there.moves() if isinstance(one, NodePair)]:
        there.move(links[0])
    assert module(there, "j").subscriber.topics == {"2"}, "e2 may not name topic 1"
    there.notify("e2", "j")
    there.settle()
    assert module(there, "j").subscriber.topics == {"1", "2"}


def test_hole_6_an_event_waits_for_lower_ones_that_passed_before_it() -> None:
    there = world("ab", i="ab", j="ab")
    publish(there, "p", "a", "a1")
    publish(there, "q", "b", "f", "a")
    publish(there, "p", "a", "e")
    there.notify("a1", "i", "j")
    there.notify("e", "i")
    assert there.order_of("i") == ["a1"], "f passed the manager of a before e"
    there.settle()
    assert there.order_of("i") == there.order_of("j") == ["a1", "f", "e"]


def test_hole_8_an_older_version_of_a_subscription_changes_nothing() -> None:
    registry = SubscriptionRegistry(lease_for=None)
    assert registry.note(SubscriptionVersion("i", 2, ("a", "b")), 0) == {"a", "b"}
    assert not registry.note(SubscriptionVersion("i", 1, ("b",)), 0)
    assert not registry.note(SubscriptionVersion("i", 1, ()), 0)
    assert registry.shared_with("b") == {"a", "b"}
    assert registry.note(SubscriptionVersion("i", 3, ()), 0) == {"a", "b"}
    assert not registry.note(SubscriptionVersion("i", 2, ("a", "b")), 0), "also when it has nothing"
    assert registry.shared_with("b") == set()


def test_a_subscription_that_is_not_renewed_is_dropped() -> None:
    registry = SubscriptionRegistry(lease_for=10)
    registry.note(SubscriptionVersion("i", 1, ("a",)), 0)
    registry.note(SubscriptionVersion("j", 1, ("a", "b")), 0)
    assert registry.next_expiry() == 10
    registry.note(SubscriptionVersion("j", 1, ("a", "b")), 6)
    assert registry.drop_expired(9) == set()
    assert registry.drop_expired(10) == {"a"}
    assert len(registry) == 1
    assert registry.drop_expired(16) == {"a", "b"}
    assert len(registry) == 0
    assert registry.shared_with("a") == set()


P = Source("p", 0)


def request(topic: str, first: int, *, source: Source = P, done: int = 0) -> Request:
    return Request(1, topic, source, first, 1, done)


def fill(event: int, *turns: Turn) -> Fill:
    return Fill(request("c", event), "a", event, (), (), (), turns)


def firsts(effects: list[Any]) -> list[int]:
    return [one.message.first for one in effects if isinstance(one, SendToModule)]  # type: ignore[attr-defined]


def test_hole_11_stamps_that_share_two_managers_pass_them_in_one_order() -> None:
    topic = Manager("a", layout("abc"))
    assert topic.on_fill(fill(2, Turn("b", "a", 2)), 0) == []
    assert firsts(topic.on_fill(fill(1, Turn("b", "a", 1)), 0)) == [1, 2]
    assert topic.early == {}


def test_hole_11_stamps_that_wait_for_each_other_in_a_circle_are_taken_at_once() -> None:
    """They came by different ways: f before e by b, g before f by c, e before g by d."""
    topic = Manager("a", layout("abcd"))
    e = fill(1, Turn("b", "a", 2), Turn("d", "a", 1))
    f = fill(2, Turn("b", "a", 1), Turn("c", "a", 2))
    g = fill(3, Turn("c", "a", 1), Turn("d", "a", 2))
    after = fill(4, Turn("b", "a", 3), Turn("c", "a", 3), Turn("d", "a", 3))
    assert topic.on_fill(e, 0) == topic.on_fill(f, 0) == topic.on_fill(after, 0) == []
    assert sorted(firsts(topic.on_fill(g, 0))) == [1, 2, 3, 4]
    assert topic.early == {}


def test_hole_11_a_circle_that_is_not_complete_waits() -> None:
    topic = Manager("a", layout("abcd"))
    e = fill(1, Turn("b", "a", 2), Turn("d", "a", 1))
    f = fill(2, Turn("b", "a", 1), Turn("c", "a", 3))
    g = fill(3, Turn("c", "a", 2), Turn("d", "a", 2))
    assert topic.on_fill(e, 0) == topic.on_fill(f, 0) == topic.on_fill(g, 0) == []
    assert len(topic.on_fill(fill(4, Turn("c", "a", 1)), 0)) == 4
    assert topic.early == {}


def test_a_stamp_that_was_lost_before_another_is_asked_for_and_sent_again() -> None:
    low, high = Manager("b", layout("ab")), Manager("a", layout("ab"))
    low.name(["a", "b"])
    (lost,) = low.on_request(request("b", 0), 0)
    (second,) = low.on_request(request("b", 1), 0)
    assert isinstance(lost, SendToModule)
    assert isinstance(second, SendToModule)
    assert isinstance(second.message, Fill)
    assert high.on_fill(second.message, 0) == [], "before its turn"
    (asked,) = high.on_fill(second.message, 1)
    assert isinstance(asked, SendToModule)
    assert isinstance(asked.message, Repeat)
    assert asked.to == manager("b")
    assert low.on_repeat(asked.message) == [lost]
    assert isinstance(lost.message, Fill)
    assert firsts(high.on_fill(lost.message, 2)) == [0, 1]


def test_hole_13_a_request_that_is_repeated_gets_the_same_stamp() -> None:
    topic = Manager("a", layout("ab"))
    three = Request(1, "a", Source("p", 0), 0, 3, 0)
    first = topic.on_request(three, 0)
    assert topic.on_request(three, 0) == first
    assert topic.clock == 3
    topic.on_request(Request(1, "a", Source("p", 0), 3, 1, 3), 0)
    assert topic.clock == 4
    assert topic.on_request(three, 0) == [], "its publisher has had the answer"
    assert topic.clock == 4
    assert [len(kept.sent) for kept in topic.kept.values()] == [1]


def test_a_new_life_of_a_publisher_ends_what_the_last_one_left_open() -> None:
    topic = Manager("a", layout("ab"))
    topic.on_request(request("a", 0, source=Source("p", 1)), 0)
    topic.on_request(request("a", 1, source=Source("p", 1), done=1), 0)
    topic.on_request(request("a", 0, source=Source("q", 1)), 0)
    assert topic.void == []
    topic.on_request(request("a", 0, source=Source("p", 2)), 0)
    assert [(one.first, one.last) for one in topic.void] == [(2, 2)], "number 1 was confirmed"


def test_publishers_that_are_silent_for_a_lease_are_forgotten() -> None:
    topic = Manager("a", layout("ab"))
    for life in range(100):
        topic.on_request(request("a", 0, source=Source("p", life)), life)
    topic.drop_silent(98)
    assert len(topic.kept) == 1
    assert topic.clock == 100


def test_a_publisher_confirms_what_it_has_published() -> None:
    topic = Manager("a", layout("ab"))
    topic.on_request(request("a", 0), 0)
    topic.on_request(request("a", 1), 0)
    topic.on_confirmed(Confirmed(1, "a", Source("p", 0), 0, used=True))
    assert [first for _, first, _ in topic.open_requests()] == [1]
    topic.on_confirmed(Confirmed(1, "a", Source("p", 0), 1, used=False))
    assert list(topic.open_requests()) == []
    assert [(one.first, one.last) for one in topic.void] == [(2, 2)]


def test_an_event_waits_for_a_lost_one_only_so_long() -> None:
    there = OrderingWorld(Production(waiting=WaitingBounds(wait_for=10)), ["a"], ["p", "i"])
    there.subscribe("i", "a")
    there.settle()
    subscriber = there.modules["i"]

    def arrived(event: str, number: int) -> ServiceNotified:
        return ServiceNotified("a", event, Stamp("a", number, epoch=front(there, "i").layout.epoch))

    second = subscriber.step(arrived("second", 2), 0)
    assert second == [WakeAt(10)]
    assert subscriber.step(arrived("second", 2), 1) == [], "it waits already"
    assert subscriber.step(Wake(), 9) == []
    told = [*subscriber.step(Wake(), 10), *subscriber.step(arrived("first", 1), 11)]
    told += subscriber.step(arrived("first", 1), 12)
    seen = [(one.payload, one.in_order) for one in told if isinstance(one, Notify)]
    assert seen == [("second", True), ("first", False)], "late, once"


# -- batches ---------------------------------------------------------------------------------------


def test_events_that_are_published_while_a_request_is_under_way_share_the_next() -> None:
    there = world("ab", i="ab")
    for number in range(5):
        there.publish("p", "b", f"e{number}")
    asked = there.channels[NodePair("p", m("b"))]
    assert len(asked) == 1
    there.settle()
    assert there.order_of("i") == [f"e{number}" for number in range(5)]
    stamps = [one.timestamp for one in there.seen["i"]]
    assert [one.number for one in stamps if isinstance(one, Stamp)] == [1, 2, 3, 4, 5]


# -- by chance -------------------------------------------------------------------------------------


def life(seed: int, make: Callable[..., Module], changes: bool) -> OrderingWorld:
    """Some nodes publish, subscribe and unsubscribe; the world moves by chance."""
    rng = Random(seed)
    topics = list("abcdef")[: rng.randint(2, 6)]
    subscribers = [f"s{number}" for number in range(rng.randint(2, 5))]
    there = OrderingWorld(make, topics, ["p", "q", "r", *subscribers])
    wants: dict[Member, set[str]] = {name: set() for name in subscribers}

    def toggle(name: Member, topic: str) -> None:
        if topic in wants[name]:
            there.unsubscribe(name, topic)
        else:
            there.subscribe(name, topic)
        wants[name] ^= {topic}

    for name in subscribers:
        for topic in rng.sample(topics, rng.randint(1, len(topics))):
            toggle(name, topic)
    there.settle()
    for number in range(40):
        chance = rng.random()
        if chance < 0.5:
            there.publish(rng.choice("pqr"), rng.choice(topics), number)
        elif changes and chance < 0.6:
            toggle(rng.choice(subscribers), rng.choice(topics))
        for _ in range(rng.randint(0, 12)):
            if moves := there.moves():
                there.move(rng.choice(moves))
    there.settle_by_chance(rng)
    return there


@pytest.mark.parametrize("changes", [False, True], ids=["static", "changing"])
@pytest.mark.parametrize("block", range(6))
def test_nothing_is_inverted_tagged_repeated_or_stuck(block: int, changes: bool) -> None:
    for seed in range(25 * block, 25 * (block + 1)):
        there = life(seed, Production(), changes)
        assert inversions(there.seen) == [], seed
        assert repeated(there.seen) == [], seed
        assert all(one.in_order for seen in there.seen.values() for one in seen), seed
        for name in there.modules:
            assert len(front(there, name).room) == 0, seed
            office = module(there, name).office
            assert office is None or all(not one.early for one in office.managers.values()), seed


@pytest.mark.parametrize("block", range(4))
def test_without_waiting_tags_are_justified_and_nothing_is_inverted(block: int) -> None:
    tagged = 0
    for seed in range(25 * block, 25 * (block + 1)):
        there = life(seed, impatient(), False)
        assert inversions(there.seen) == [], seed
        assert needless_tags(there.seen) == [], seed
        tagged += sum(not one.in_order for seen in there.seen.values() for one in seen)
    assert tagged > 0


# -- mutants ---------------------------------------------------------------------------------------


class AnyNumberWillDo(Front):
    """In order through any topic, as [T] has it (T1)."""

    def is_in_order(self, stamp: Stamp) -> bool:
        numbers = {**dict(stamp.higher), stamp.topic: stamp.number}
        known = {topic: number for topic, number in numbers.items() if topic in self.clock}
        return all(number >= self.clock[topic] for topic, number in known.items()) and any(
            number > self.clock[topic] for topic, number in known.items()
        )


class HigherTopicsDoNotMatter(Front):
    def is_in_order(self, stamp: Stamp) -> bool:
        return stamp.number > self.clock.get(stamp.topic, 0)


class TagsEverything(Front):
    def is_in_order(self, stamp: Stamp) -> bool:
        return False


class WhatIsNotNamedDoesNotMatter(Front):
    """An event that does not name a higher topic is in order, whatever was notified of that."""

    def is_in_order(self, stamp: Stamp) -> bool:
        self._notified.clear()
        return super().is_in_order(stamp)


class NamesNothing(Manager):
    """No event names another topic."""

    def name(self, shared: Iterable[str]) -> None:
        pass


class TakesNoTurns(Manager):
    """Stamps overtake each other between two managers, as in [T]."""

    def _awaited(self, turns: Iterable[Turn]) -> Turn | None:
        return None


def broken(monkeypatch: pytest.MonkeyPatch, *parts: type) -> None:
    """Replace parts of the production mode."""
    for part in parts:
        if issubclass(part, Front):
            monkeypatch.setattr("cubecast.ordering.production.subscriber.Front", part)
        else:
            monkeypatch.setattr("cubecast.ordering.production.local_managers.Manager", part)


@pytest.mark.parametrize(
    "parts",
    [(HigherTopicsDoNotMatter,), (NamesNothing, WhatIsNotNamedDoesNotMatter)],
    ids=["own number only", "names nothing, and it does not matter"],
)
def test_a_broken_protocol_is_caught(
    parts: tuple[type, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, *parts)
    assert any(inversions(life(seed, impatient(), False).seen) for seed in range(400))


def test_managers_that_name_nothing_cost_tags_but_no_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Safety asks nothing of managers: a table that was lost costs tags (hole T14)."""
    broken(monkeypatch, NamesNothing)
    tagged = 0
    for seed in range(100):
        there = life(seed, Production(), changes=True)
        assert inversions(there.seen) == [], seed
        tagged += sum(not one.in_order for seen in there.seen.values() for one in seen)
    assert tagged > 0


def burst(seed: int, make: Callable[..., Module]) -> OrderingWorld:
    """Five subscribers of two or three topics each; all events are published at once."""
    rng = Random(seed)
    there = OrderingWorld(make, list("xcab"), [*"0123456789", *"ijkln"])
    for node in "ijkln":
        there.subscribe(node, *rng.sample("xcab", rng.randint(2, 3)))
    there.settle()
    for node in "0123456789":
        there.publish(node, rng.choice("xcab"), node)
    there.settle_by_chance(rng)
    return there


FOUND = (2055,)
"""Of seeds 0 to 2499 those in which hole T1 shows."""


def test_hole_1_shows_where_any_number_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, AnyNumberWillDo, TakesNoTurns)
    assert any(inversions(burst(seed, impatient()).seen) for seed in FOUND)


def test_hole_1_does_not_need_turns_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, TakesNoTurns)
    seeds = (*FOUND, *range(200))
    assert not any(inversions(burst(seed, impatient()).seen) for seed in seeds)


def test_a_protocol_that_tags_everything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, TagsEverything)
    assert needless_tags(life(0, impatient(), False).seen)


def test_the_module_takes_messages_by_one_door() -> None:
    member = OrderingModule(manager("a"), [manager("a"), manager("b")], layout=layout("ab"))
    effects = member.step(ReceivedFromModule(request("a", 0)))
    assert [type(effect) for effect in effects] == [SendToModule]
    register = Register(1, SubscriptionVersion("i", 1, ("a",)))
    assert [type(effect) for effect in member.step(ReceivedFromModule(register))] == [SendToModule]


def test_times_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"suspect_after \(20\) must be at least three times"):
        Timing(beat_every=10, suspect_after=20)
    with pytest.raises(ValueError, match="at least one member"):
        OrderingModule("m", [])
