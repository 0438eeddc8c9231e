"""What [T] proves, claim by claim, where it claims it; and that each claim needs its conditions.

Lemmas 1 and 2 and Theorem 1 are about stable subscriptions, links in order and no fault: small
worlds of that kind are explored completely.  Lemma 3 and Theorem 2 are about publishers that
subscribe: runs by chance, in which every node publishes and remembers what came before.  Each claim
has a twin in which a condition is dropped or a part is broken, and which must fail.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import NamedTuple

import pytest

from cubecast.ordering.effects import Effect, Notify, ServiceNotified
from cubecast.ordering.faithful.config import SYSTEM_TOPIC, FaithfulConfig, Swapping
from cubecast.ordering.faithful.module import FaithfulModule
from cubecast.ordering.faithful.order import TopicOrder
from cubecast.ordering.faithful.subscriber import FaithfulSubscriber
from cubecast.ordering.judge import inversions
from cubecast.ordering.timestamps import Timestamp, comparable, smaller
from cubecast.ordering.world import Make, NodePair, OrderingWorld, stamps
from cubecast.testing.explorer.ordering import Deeds, OrderingExploration, SetUp, explore
from support.ordering_toys import (
    ask_to_swap,
    configured,
    events,
    joining,
    m,
    managing,
    module,
    overtake,
    publish,
    stamp,
    subscribed,
    swapping,
    world,
)

BOTH = subscribed("ab", i="ab", j="ab")
"""The setting of Lemma 2's proof: two subscribers of two topics, a the higher one."""
OVERLAPPING = subscribed("xcab", i="ab", j="abx", k="abx", l="ac", n="ac", unheard="kln")
"""i and j share a and b and no other topic, and j has x besides (hole T1)."""


def with_subscriber(kind: type[FaithfulSubscriber]) -> Make:
    """Modules of the paper's mode whose subscriber is another."""

    def make(*args: object) -> FaithfulModule:
        made = FaithfulModule(*args)  # type: ignore[arg-type]
        name, _, manager_of, *_ = args
        made.subscriber = kind(name, made.order, manager_of)  # type: ignore[arg-type]
        return made

    return make


class Forgetful(FaithfulSubscriber):
    """Its clock stays as it is: Figure 6 without lines 03-08."""

    def notify(self, event: ServiceNotified) -> list[Effect]:
        clock = dict(self.clock)
        effects = super().notify(event)
        self.clock = clock
        return effects


class OwnTopicOnly(FaithfulSubscriber):
    """Compares and keeps the number of the event's own topic: per-topic sequencers."""

    def notify(self, event: ServiceNotified) -> list[Effect]:
        assert isinstance(event.timestamp, Timestamp)
        own = Timestamp({event.topic: event.timestamp[event.topic]})
        told = super().notify(ServiceNotified(event.topic, event.payload, own))
        return [
            Notify(one.topic, one.payload, event.timestamp, one.in_order)
            for one in told
            if isinstance(one, Notify)
        ]


def whole(
    set_up: SetUp, deeds: Deeds, make: Make = FaithfulModule, **options: object
) -> OrderingExploration:
    """Every end of a world: nothing is found, or the first that is."""
    return explore(set_up, make, deeds, **options)  # type: ignore[arg-type]


# -- Lemma 1: two events of one topic --------------------------------------------------------------

ONE_TOPIC = events(p="b", q="b")


def unordered_stamps(there: OrderingWorld) -> list[object]:
    """Events of topic b whose timestamps are not one below the other."""
    made = {
        one.event: one.timestamp
        for seen in there.seen.values()
        for one in seen
        if one.topic == "b" and isinstance(one.timestamp, Timestamp)
    }
    first, second = made.values()
    return [] if smaller(first, second) or smaller(second, first) else [made]


def test_lemma_1_two_events_of_one_topic_have_one_order() -> None:
    found = whole(
        BOTH,
        {**ONE_TOPIC, **events(r="a")},
        judge=lambda there: [*inversions(there.seen), *unordered_stamps(there)],
    )
    assert found.findings == []
    assert found.ends > 100


def test_lemma_1_needs_stable_subscriptions() -> None:
    """A join sets the clock back (hole T4)."""
    joined = {**ONE_TOPIC, "j": [joining("j", "a")]}
    assert whole(subscribed("ba", i="ab", j="b"), joined).findings


def test_lemma_1_needs_lines_03_to_08_of_figure_6() -> None:
    assert whole(BOTH, ONE_TOPIC, with_subscriber(Forgetful)).findings


def test_lemma_1_its_timestamps_need_links_in_order_and_its_order_does_not() -> None:
    """The proof says that no number of e2 is below that of e1; here that of a is.

    A subscriber that sees one of the two tags the other: their own topic has two numbers.
    """
    for first, last in ("e1", "e2"), ("e2", "e1"):
        there = world("ab", i="ab", j="ab")
        there.publish("p", "b", "e1")
        there.publish("q", "b", "e2")
        there.along("p", m("b"))
        there.along("q", m("b"))
        overtake(there, m("b"), m("a"))
        there.along(m("b"), m("a"), "q")
        publish(there, "r", "a", "between")
        there.along(m("b"), m("a"), "p")
        e1, e2 = stamp(there, "e1"), stamp(there, "e2")
        assert e1["b"] < e2["b"]
        assert not smaller(e1, e2)
        there.notify(first, "i")
        there.notify(last, "i")
        assert there.order_of("i") == [first, (last,)]


# -- Lemma 2: two topics ---------------------------------------------------------------------------


def test_lemma_2_two_events_of_two_shared_topics_have_one_order() -> None:
    found = whole(BOTH, events(p="a", q="b", r="a"))
    assert found.findings == []
    assert found.ends > 100


def test_lemma_2_does_not_hold_where_one_subscriber_has_another_topic() -> None:
    """Nor does Theorem 1.  The proof compares numbers of a and b; that of x lets e pass."""
    (found,) = whole(OVERLAPPING, events(p="a", q="b", r="x")).findings
    assert [(one.one, one.other) for one in inversions(found.world.seen)] == [("i", "j")]


@pytest.mark.parametrize("first", ["create", "fill"])
def test_lemma_2_the_manager_of_the_higher_topic_decides(first: str) -> None:
    """The proof's two cases: it delivers the request for e1 first, or the timestamp of e2."""
    there = world("ab", i="ab", j="ab")
    there.publish("q", "b", "e2")
    there.along("q", m("b"))
    if first == "fill":
        there.along(m("b"), m("a"), "q")
    publish(there, "p", "a", "e1")
    if first == "create":
        there.along(m("b"), m("a"), "q")
    e1, e2 = stamp(there, "e1"), stamp(there, "e2")
    assert e2["a"] - e1["a"] == (0 if first == "create" else -1)
    earlier, later = ("e1", "e2") if first == "create" else ("e2", "e1")
    there.notify(earlier, "i")
    there.notify(later, "i", "j")
    there.notify(earlier, "j")
    assert there.order_of("i") == [earlier, later]
    assert there.order_of("j") == [later, (earlier,)]


def test_lemma_2_needs_the_entry_of_the_higher_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 4 with three instead of two subscriptions."""
    monkeypatch.setattr("cubecast.ordering.faithful.manager.MIN_SHARED", 3)
    assert whole(BOTH, events(p="a", q="b")).findings


def test_lemma_2_needs_numbers_of_other_topics() -> None:
    assert whole(BOTH, events(p="a", q="b"), with_subscriber(OwnTopicOnly)).findings


def test_lemma_2_needs_stable_subscriptions() -> None:
    """Hole T2."""
    joined = {**events(p="a", q="b"), "j": [joining("j", "a")]}
    assert whole(subscribed("ab", i="ab", j="b"), joined).findings


# -- Theorem 1: any two events ---------------------------------------------------------------------


def test_theorem_1_holds_where_all_subscribers_share_all_topics() -> None:
    shared = subscribed("abc", i="abc", j="abc")
    assert whole(shared, events(p="ab", q="c")).findings == []
    assert whole(BOTH, events(p="ab", q="b")).findings == []


def test_theorem_1_needs_numbers_of_other_topics() -> None:
    assert whole(BOTH, events(p="ab", q="b"), with_subscriber(OwnTopicOnly)).findings


# -- Lemma 3: causality in one topic ---------------------------------------------------------------


def number(there: OrderingWorld, event: str, topic: str = "b") -> int:
    return stamp(there, event)[topic]


def test_lemma_3_1_events_of_one_publisher() -> None:
    there = world("ab", i="ab", j="ab")
    there.publish("i", "b", "e")
    there.publish("i", "b", "e'")
    there.along("i", m("b"))
    there.along("i", m("b"))
    assert managing(there, "b").clock == 4, "two subscriptions, two events"
    settle_links(there)
    assert number(there, "e") < number(there, "e'")


def test_lemma_3_1_needs_links_in_order() -> None:
    there = world("ab", i="ab", j="ab")
    there.publish("i", "b", "e")
    there.publish("i", "b", "e'")
    overtake(there, "i", m("b"))
    settle_links(there)
    assert number(there, "e'") < number(there, "e")


@pytest.mark.parametrize("notified", [True, False], ids=["notified", "not notified"])
def test_lemma_3_2_an_event_and_an_answer_to_it(notified: bool) -> None:
    """A publisher that was not notified may be given the lower number."""
    there = world("ab", i="ab", j="ab")
    there.publish("i", "b", "e")
    if notified:
        settle_links(there)
        there.notify("e", "j")
    publish(there, "j", "b", "answer", "a")
    settle_links(there)
    assert (number(there, "e") < number(there, "answer")) is notified


def test_lemma_3_3_is_transitive() -> None:
    """k answers the answer, and has not seen what that answers."""
    there = world("ab", i="ab", j="ab", k="ab")
    publish(there, "i", "b", "e", "a")
    there.notify("e", "j")
    publish(there, "j", "b", "e''", "a")
    there.notify("e''", "k")
    publish(there, "k", "b", "e'", "a")
    assert number(there, "e") < number(there, "e''") < number(there, "e'")
    assert smaller(stamp(there, "e"), stamp(there, "e'"))
    there.notify("e", "k")
    assert there.order_of("k") == ["e''", ("e",)]


def settle_links(there: OrderingWorld) -> None:
    """Deliver all messages from point to point; events stay where they are."""
    while links := [move for move in there.moves() if isinstance(move, NodePair)]:
        there.move(links[0])


# -- Theorem 2: causal order within a topic --------------------------------------------------------


class Talk(NamedTuple):
    there: OrderingWorld
    past: dict[str, frozenset[str]]
    """Of each event, those of its topic that it follows in the sense of Lemma 3."""


def talk(seed: int, in_order: bool = True) -> Talk:
    """Three nodes subscribe to a and b, and publish on both while they are notified, by chance."""
    rng = Random(seed)
    there = world("ab", i="ab", j="ab", k="ab")
    past: dict[str, frozenset[str]] = {}
    known = {(node, topic): frozenset[str]() for node in "ijk" for topic in "ab"}
    for count in range(12):
        for _ in range(rng.randint(0, 8)):
            make_a_move(there, rng, in_order)
        node, topic = rng.choice("ijk"), rng.choice("ab")
        for one in there.seen.get(node, ()):
            event = str(one.event)
            known[node, one.topic] |= {event} | past[event]
        event = f"{topic}{count}"
        past[event] = known[node, topic]
        known[node, topic] |= {event}
        there.publish(node, topic, event)
    while there.moves():
        make_a_move(there, rng, in_order)
    return Talk(there, past)


def make_a_move(there: OrderingWorld, rng: Random, in_order: bool) -> None:
    moves = there.moves()
    if moves:
        move = rng.choice(moves)
        if not in_order:
            there.channels[move].rotate(rng.randrange(len(there.channels[move])))
        there.move(move)


def broken_causality(talk: Talk) -> list[tuple[Hashable, Hashable]]:
    """Pairs that break Theorem 2: by their timestamps, or in the order of a subscriber."""
    there, past = talk
    made = stamps(there)
    found: list[tuple[Hashable, Hashable]] = [
        (earlier, event)
        for event, before in past.items()
        for earlier in before
        if not smaller(made[earlier], made[event])  # type: ignore[arg-type]
    ]
    for seen in there.seen.values():
        order = [str(one.event) for one in seen if one.in_order]
        found += [
            (later, event)
            for place, event in enumerate(order)
            for later in order[place + 1 :]
            if later in past[event]
        ]
    return found


def test_theorem_2_who_is_notified_of_both_is_notified_of_the_cause_first() -> None:
    pairs = 0
    for seed in range(60):
        run = talk(seed)
        pairs += sum(len(before) for before in run.past.values())
        assert broken_causality(run) == [], seed
    assert pairs > 500


def test_theorem_2_needs_links_in_order() -> None:
    assert any(broken_causality(talk(seed, in_order=False)) for seed in range(60))


def test_theorem_2_an_answer_that_comes_first_has_the_later_timestamp() -> None:
    there = world("ab", i="ab", q="ab")
    publish(there, "p", "b", "question", "a")
    there.notify("question", "q")
    publish(there, "q", "b", "answer", "a")
    there.notify("answer", "i")
    there.notify("question", "i")
    assert there.order_of("i") == ["answer", ("question",)]
    assert smaller(stamp(there, "question"), stamp(there, "answer"))


# -- section 5: the case proof of a swap -----------------------------------------------------------

EXAMPLE = {"i": "125", "j": "125", "k": "124", "l": "124"}
"""T1→T2→T3→T4→T5 with the paths T1→T2→T5 and T1→T2→T4; T1 and T2 change places."""


def plain_swapping(*args: object) -> FaithfulModule:
    config = FaithfulConfig(swapping=Swapping())
    return FaithfulModule(*args, config=config)  # type: ignore[arg-type, misc]


def swapped(*known: str) -> OrderingWorld:
    """The example while the message of T_s is under way, once it has come to these managers."""
    there = world("12345", configured(swapping=Swapping()), **EXAMPLE)  # type: ignore[arg-type]
    ask_to_swap(there, "1", "2")
    there.along(m(SYSTEM_TOPIC), *map(m, known))
    return there


def epochs(there: OrderingWorld) -> dict[str, int]:
    return {topic: module(there, m(topic)).order.epoch for topic in "12345"}


def test_the_message_of_a_swap_visits_the_lowest_manager_first() -> None:
    assert epochs(swapped("5", "4")) == {"1": 0, "2": 0, "3": 0, "4": 1, "5": 1}
    there = swapped("5", "4", "3", "2", "1", SYSTEM_TOPIC)
    assert set(epochs(there).values()) == {1}
    assert there.moves() == []


def test_a_swap_case_1_a_manager_that_does_not_know_goes_on_as_before() -> None:
    there = swapped()
    publish(there, "p", "5", "e", "2", "1")
    assert list(stamp(there, "e")) == ["1", "2", "5", SYSTEM_TOPIC]
    assert stamp(there, "e")[SYSTEM_TOPIC] == 0


def test_a_swap_case_2_all_managers_of_the_path_know() -> None:
    there = swapped("5", "4", "3", "2", "1")
    publish(there, "p", "5", "e", "1", "2")
    assert list(stamp(there, "e")) == ["2", "1", "5", SYSTEM_TOPIC]


def test_a_swap_case_2_a_manager_that_does_not_know_infers_the_order() -> None:
    there = swapped("5")
    publish(there, "p", "5", "e", "1", "2")
    assert epochs(there) == {"1": 1, "2": 1, "3": 0, "4": 0, "5": 1}
    assert module(there, m("1")).order.topics == ["2", "1", "3", "4", "5"]
    publish(there, "q", "1", "f", "2")
    assert list(stamp(there, "f")) == ["2", "1", SYSTEM_TOPIC]


def test_a_swap_at_last_a_timestamp_of_the_old_epoch_is_discarded() -> None:
    there = swapped("5")
    publish(there, "p", "5", "e", "1", "2")
    there.publish("q", "4", "f")
    there.along("q", m("4"), m("2"))
    assert stamp(there, "e")
    assert NodePair(m("2"), m("1")) not in there.channels
    assert module(there, "q").publisher.outgoing, "the event is lost (hole T10)"


@pytest.mark.parametrize("swaps", [True, False])
def test_all_timestamps_are_comparable_through_the_topic_of_swaps(swaps: bool) -> None:
    there = world("12", configured(swapping=Swapping() if swaps else None), i="1", j="2")
    publish(there, "p", "1", "e")
    publish(there, "q", "2", "f")
    assert comparable(stamp(there, "e"), stamp(there, "f")) is swaps


@pytest.mark.parametrize("topics", ["12", "15", "25"])
def test_a_swap_in_the_example_turns_no_two_events(topics: str) -> None:
    found = whole(*the_example(topics), plain_swapping)
    assert found.findings == []
    assert found.ends > 20


@pytest.mark.soak
def test_a_swap_in_the_example_turns_no_two_of_three_events() -> None:
    assert whole(*the_example("125"), plain_swapping).findings == []


def the_example(topics: str) -> tuple[SetUp, Deeds]:
    published = events(**dict(zip("pqr", topics, strict=False)))
    set_up = subscribed("12345", unheard="kl", **EXAMPLE)  # type: ignore[arg-type]
    return set_up, {**published, "1": [swapping("1", "2")]}


def test_a_swap_needs_paths_with_both_topics() -> None:
    """k and l have 3 and 1 without 2: from an event of 3 nothing is inferred of 2 (hole T9)."""
    set_up = subscribed("123", unheard="kl", i="12", j="12", k="13", l="13")
    deeds = {**events(p="1", q="2", r="3"), "1": [swapping("1", "2")]}
    assert whole(set_up, deeds, plain_swapping).findings


def test_a_swap_needs_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No manager discards a timestamp or infers an order from one."""
    always_0 = property(lambda _: 0, lambda _, __: None)
    monkeypatch.setattr(TopicOrder, "epoch", always_0, raising=False)
    set_up = subscribed("12", i="12", j="12")
    deeds = {**events(p="1", q="2"), "1": [swapping("1", "2")]}
    assert whole(set_up, deeds, plain_swapping).findings
    monkeypatch.undo()
    assert whole(set_up, deeds, plain_swapping).findings == []
