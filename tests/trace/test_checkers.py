"""The checkers: small traces that break each property, near misses that do not, dumb oracles."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.trace import (
    ALL,
    Inversions,
    MessageId,
    Property,
    Record,
    Violation,
    answers_before_questions,
    check,
)
from support.trace_stories import A, B, C, D, Story


def test_a_correct_run_passes_every_property() -> None:
    story = Story(joined=[A, B, C]).publish(A, "q").deliver("q", A, B)
    story.publish(B, "a", reply_to=("q",)).deliver("a", B, A).deliver("q", C).deliver("a", C)
    report = story.state(A, limit=3, retained=3).check()
    assert report.ok
    assert report.counts == dict.fromkeys(ALL, 0)
    assert (report.publications, report.deliveries, report.topics) == (2, 6, 1)
    assert (report.gaps, report.discards) == (0, 0)


def test_an_empty_trace_is_correct() -> None:
    assert check([]).ok


# no-creation


def test_an_unpublished_message_is_a_creation() -> None:
    story = Story(joined=[A, B]).deliver("ghost", B)
    assert story.broken("no-creation") == [("no-creation", B, "ghost")]


def test_a_message_delivered_before_it_is_published_is_a_creation() -> None:
    story = Story(joined=[A, B]).deliver("m", B).publish(A, "m").deliver("m", A)
    assert story.broken("no-creation") == [("no-creation", B, "m")]


def test_a_message_of_another_topic_is_a_creation() -> None:
    story = Story(joined=[A, B]).publish(A, "m", topic="other").deliver("m", B)
    assert story.broken("no-creation") == [("no-creation", B, "m")]


def test_a_message_delivered_under_another_name_is_a_creation() -> None:
    story = Story(joined=[A, B, C]).publish(A, "m").deliver("m", B, source=A)
    assert story.deliver("m", A).broken("no-creation") == []
    assert story.deliver("m", C, source=B).broken("no-creation") == [("no-creation", C, "m")]
    story.deliver("m", B, source=C)
    assert story.broken("no-creation") == [("no-creation", C, "m"), ("no-creation", B, "m")]


def test_two_publications_with_one_id_are_a_creation() -> None:
    story = Story().publish(A, 7).publish(B, 7).publish(A, 7, topic="other")
    assert story.broken("no-creation") == [("no-creation", B, 7)]


def test_a_number_and_its_digits_are_two_ids() -> None:
    story = Story(joined=[B]).publish(A, 7).deliver("7", B)
    assert story.broken("no-creation") == [("no-creation", B, "7")]


def test_a_publication_or_delivery_without_an_id_is_a_creation() -> None:
    story = Story(joined=[B]).publish(A, None).deliver(None, B)
    assert story.broken("no-creation") == [("no-creation", A, None), ("no-creation", B, None)]


# no-duplication


def test_a_message_delivered_twice_is_a_duplicate() -> None:
    story = Story(joined=[A, B]).publish(A, "m").deliver("m", A, B)
    assert story.broken("no-duplication") == []
    assert story.deliver("m", B).broken("no-duplication") == [("no-duplication", B, "m")]


def test_leaving_and_joining_again_is_no_excuse_for_a_duplicate() -> None:
    story = Story(joined=[A, B]).publish(A, "m").deliver("m", A, B)
    story.leave(B).subscribe(B).join(B).deliver("m", B)
    assert story.broken() == [("no-duplication", B, "m")]


def test_an_unpublished_message_can_be_duplicated() -> None:
    story = Story(joined=[B]).deliver("ghost", B, B)
    assert story.broken("no-duplication") == [("no-duplication", B, "ghost")]


def test_a_message_delivered_before_and_after_its_publication_is_a_duplicate() -> None:
    story = Story(joined=[B, C]).deliver("m", B).publish(A, "m").deliver("m", B, C)
    assert story.broken("no-duplication") == [("no-duplication", B, "m")]


# fifo


def test_two_messages_of_one_publisher_swapped_break_fifo() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").publish(A, "m2").deliver("m1", A)
    story.deliver("m2", A, B).deliver("m1", B)
    assert story.broken("fifo") == [("fifo", B, "m1")]


def test_fifo_goes_by_the_order_of_publication_and_not_by_seq() -> None:
    story = Story(joined=[B]).publish(A, "m1", seq=9).publish(A, "m2", seq=8)
    assert story.deliver("m1", B, seq=9).deliver("m2", B, seq=8).broken("fifo") == []


def test_fifo_tolerates_holes_and_other_publishers() -> None:
    story = Story(joined=[C]).publish(A, "a1").publish(B, "b1").publish(A, "a2").publish(A, "a3")
    assert story.deliver("a1", C).deliver("a3", C).deliver("b1", C).broken("fifo") == []


# causal-order


def test_an_answer_before_its_question_breaks_causal_order() -> None:
    story = Story(joined=[A, B, C]).publish(A, "q").deliver("q", A, B).publish(B, "a")
    story.deliver("a", B, A, C).deliver("q", C)
    report = story.check()
    assert [(v.property, v.node, v.id) for v in report.violations] == [("causal-order", C, "q")]
    assert "'a'" in report.violations[0].message


def test_concurrent_messages_may_come_in_any_order() -> None:
    story = Story(joined=[A, B, C, D]).publish(A, "x").publish(B, "y").deliver("x", A, C, B)
    assert story.deliver("y", B, D, A, C).deliver("x", D).broken() == []


def test_a_publication_its_node_never_delivered_precedes_its_next_publication() -> None:
    story = Story(joined=[B]).publish(A, "m1").publish(A, "m2").deliver("m2", B).deliver("m1", B)
    assert story.broken("causal-order") == [("causal-order", B, "m1")]


def test_a_delivery_after_the_publication_does_not_make_it_a_cause() -> None:
    story = Story(joined=[A, B, C]).publish(A, "x").publish(B, "y").deliver("x", B)
    assert story.deliver("y", C).deliver("x", C).broken("causal-order") == []


def test_causal_order_sees_through_what_a_newcomer_never_receives() -> None:
    """Hole 8: m0 -> m1 -> m2; i skips m1 and delivers m2 before its cause m0."""
    s0, s1, s2, i = range(4)
    story = Story(joined=[s0, s1, s2, i]).publish(s0, "m0").deliver("m0", s1).publish(s1, "m1")
    story.deliver("m1", s2).publish(s2, "m2").deliver("m2", i)
    assert story.broken("causal-order") == []
    assert story.deliver("m0", i).broken("causal-order") == [("causal-order", i, "m0")]


def test_causal_order_outlives_a_subscription() -> None:
    story = Story(joined=[A, B, C]).publish(A, "q").deliver("q", B).publish(B, "a").deliver("a", C)
    story.leave(C).subscribe(C).join(C).deliver("q", C)
    assert story.broken("causal-order") == [("causal-order", C, "q")]


def test_a_second_delivery_is_a_duplicate_and_not_a_matter_of_order() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").publish(A, "m2").deliver("m1", A, B)
    story.deliver("m2", A, B).deliver("m1", B)
    assert story.broken() == [("no-duplication", B, "m1")]


# membership


def test_a_delivery_between_subscribe_and_join_is_outside() -> None:
    story = Story().subscribe(B).publish(A, "m").deliver("m", B).join(B)
    assert story.broken() == [("membership", B, "m")]


def test_a_delivery_after_leave_is_outside() -> None:
    story = Story(joined=[A, B]).publish(A, "m").deliver("m", A).leave(B).deliver("m", B)
    assert story.broken() == [("membership", B, "m")]


def test_a_publisher_that_does_not_subscribe_does_not_deliver() -> None:
    story = Story(joined=[B]).publish(A, "m").deliver("m", B)
    assert story.broken() == []
    assert story.deliver("m", A).broken() == [("membership", A, "m")]


def test_duplicates_and_creations_are_outside_a_subscription_too() -> None:
    story = Story(joined=[B]).publish(A, "m").deliver("m", B).leave(B).deliver("m", B)
    assert story.broken("membership") == [("membership", B, "m")]
    assert Story().deliver("ghost", B).broken("membership") == [("membership", B, "ghost")]


def test_a_subscription_to_another_topic_does_not_count() -> None:
    story = Story(joined=[B], topic="other").publish(A, "m", topic="news")
    assert story.deliver("m", B, topic="news").broken() == [("membership", B, "m")]


def test_a_message_published_during_an_absence_may_be_delivered_after_the_return() -> None:
    story = Story(joined=[B]).leave(B).publish(A, "m").subscribe(B).join(B).deliver("m", B)
    assert story.broken() == []


# completeness


def test_a_message_lost_in_an_open_subscription() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").publish(A, "m2").deliver("m1", A, B)
    story.deliver("m2", A)
    assert story.broken() == [("completeness", B, "m2")]
    assert story.deliver("m2", B).broken() == []


def test_a_subscribed_publisher_must_deliver_its_own_message() -> None:
    story = Story(joined=[A, B]).publish(A, "m").deliver("m", B)
    assert story.broken() == [("completeness", A, "m")]


def test_a_newcomer_is_not_owed_what_was_published_before_its_join() -> None:
    story = Story(joined=[A]).publish(A, "m1").deliver("m1", A).subscribe(B).publish(A, "m2")
    story.deliver("m2", A).join(B).publish(A, "m3").deliver("m3", A, B)
    assert story.broken() == []


def test_a_leaver_is_not_owed_what_it_had_no_sign_of() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").publish(A, "m2").deliver("m1", A, B)
    assert story.deliver("m2", A).leave(B).broken() == []


def test_a_hole_in_a_subscription_that_ended() -> None:
    story = Story(joined=[A, B, C]).publish(A, "q").deliver("q", A, B).publish(B, "a")
    story.deliver("a", B, A, C).leave(C)
    assert story.broken() == [("completeness", C, "q")]


def test_a_hole_behind_something_never_delivered() -> None:
    """m0 -> m1 -> m2: a leaver that delivered m2 has two holes, one of them by way of the other."""
    story = Story(joined=[A, B, C, D]).publish(A, "m0").deliver("m0", A, B, C).publish(B, "m1")
    story.deliver("m1", A, B, C).publish(C, "m2").deliver("m2", A, B, C, D).leave(D)
    assert story.broken() == [("completeness", D, "m0"), ("completeness", D, "m1")]


def test_a_hole_from_before_the_join_is_none() -> None:
    story = Story(joined=[A, B]).publish(A, "q").deliver("q", A, B).subscribe(C).join(C)
    story.publish(B, "a").deliver("a", B, A, C).leave(C)
    assert story.broken() == []


def test_each_subscription_of_a_node_is_judged_by_itself() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").deliver("m1", A).leave(B)
    story.publish(A, "m2").deliver("m2", A).subscribe(B).join(B).publish(A, "m3").deliver("m3", A)
    assert story.broken() == [("completeness", B, "m3")]
    assert story.deliver("m3", B).broken() == []


def test_a_second_join_does_not_shorten_a_subscription() -> None:
    story = Story(joined=[A, B]).publish(A, "m").deliver("m", A).subscribe(B).join(B)
    assert story.broken() == [("completeness", B, "m")]


def test_late_delivery_is_a_matter_of_order_and_not_of_completeness() -> None:
    story = Story(joined=[A, B]).publish(A, "m1").publish(A, "m2").deliver("m1", A)
    story.deliver("m2", A, B).deliver("m1", B).leave(B)
    assert story.broken("completeness") == []
    assert story.broken("causal-order") == [("causal-order", B, "m1")]


# losses that were reported


def test_a_gap_excuses_as_many_messages_as_it_counts() -> None:
    story = Story(joined=[A, B])
    for id in range(4):
        story.publish(A, id).deliver(id, A)
    story.gap(B, seq=3)
    report = story.check()
    assert [(v.property, v.node, v.id) for v in report.violations] == [("completeness", B, 3)]
    assert report.gaps == 3


def test_a_gap_excuses_nothing_that_is_published_after_it() -> None:
    story = Story(joined=[A, B]).publish(A, 0).deliver(0, A).gap(B, seq=5).publish(A, 1)
    assert story.deliver(1, A).broken() == [("completeness", B, 1)]


def test_a_gap_at_another_node_or_topic_excuses_nothing() -> None:
    story = Story(joined=[A, B]).publish(A, 0).deliver(0, A).gap(A, seq=1).gap(B, topic="other")
    assert story.broken() == [("completeness", B, 0)]


def test_two_gaps_cover_what_each_can() -> None:
    story = Story(joined=[A, B]).publish(A, 0).deliver(0, A).gap(B)
    for id in (1, 2, 3):
        story.publish(A, id).deliver(id, A)
    story.gap(B, seq=2).publish(A, 4).deliver(4, A, B)
    assert story.broken() == [("completeness", B, 3)]
    assert story.check().gaps == 3


def test_a_gap_excuses_holes_in_its_own_subscription_only() -> None:
    story = Story(joined=[A, B]).publish(A, 0).publish(A, 1).deliver(0, A).deliver(1, A)
    story.gap(B, seq=9).deliver(1, B).leave(B).subscribe(B).join(B)
    assert story.broken() == []
    assert story.publish(A, 2).deliver(2, A).broken() == [("completeness", B, 2)]


def test_a_gap_excuses_the_message_it_names() -> None:
    story = Story(joined=[A, B]).publish(A, 0).publish(A, 1).deliver(0, A).deliver(1, A)
    story.gap(B, id=1, seq=17)
    assert story.broken() == [("completeness", B, 0)]
    assert story.gap(B).broken() == []
    assert story.check().gaps == 2


def test_a_discard_by_name_excuses_if_it_is_the_publishers() -> None:
    story = Story(joined=[A, B]).publish(A, 0).publish(A, 1).deliver(0, A).deliver(1, A)
    story.discard(B, id=1).discard(B, seq=1)
    assert story.broken() == [("completeness", B, 1)]
    assert story.discard(A, id=1).broken() == []
    assert story.check().discards == 3


def test_gaps_and_discards_are_counted_and_are_no_violations() -> None:
    report = Story().gap(A).gap(B, seq=4).gap(B, seq=0).discard(A).discard(A, seq=2).check()
    assert (report.ok, report.gaps, report.discards) == (True, 6, 3)


# quiescence


def test_a_subscribe_that_never_returns() -> None:
    assert Story().subscribe(B).broken() == [("quiescence", B, None)]
    assert Story().subscribe(B).join(B).broken() == []
    assert Story().subscribe(B).leave(B).broken() == []
    assert Story(joined=[B]).leave(B).subscribe(B).broken() == [("quiescence", B, None)]


def test_the_last_state_of_each_node_and_topic_must_hold_nothing() -> None:
    story = Story().state(A, held=2).state(A, held=0, retained=5).state(B, held=0).state(B, held=1)
    assert story.broken() == [("quiescence", B, None)]
    assert story.state(B, topic="other").broken() == [("quiescence", B, None)]
    assert story.state(B).broken() == []


# bounded-state


def test_state_above_its_limit_at_any_time() -> None:
    story = Story().state(A, held=3, retained=2, limit=4).state(A, retained=4, limit=4)
    assert story.state(A, retained=99).broken() == [("bounded-state", A, None)]


# all of them


def test_topics_are_independent() -> None:
    """The same ids on two topics; cause on one topic means nothing on the other."""
    story = Story(joined=[A, B, C])
    story.topic = "other"
    story.subscribe(A).join(A).subscribe(B).join(B).subscribe(C).join(C)
    story.publish(A, 1, topic="news").deliver(1, B, A, topic="news")
    story.publish(B, 1, topic="other").deliver(1, B, A, C, topic="other")
    story.deliver(1, C, topic="news")
    assert story.broken() == []


def test_violations_are_listed_up_to_a_limit_and_counted_in_full() -> None:
    story = Story(joined=[B])
    for id in range(50):
        story.publish(A, id)
    report = check(story.records, limit=3)
    assert report.counts["completeness"] == 50
    assert [v.id for v in report.violations] == [0, 1, 2]
    assert not report.ok
    assert "completeness: 50 violations" in str(report)


def test_only_the_properties_asked_for_are_checked() -> None:
    story = Story(joined=[B]).publish(A, 1).deliver(2, B)
    report = check(story.records, ["fifo", "completeness"])
    assert report.counts == {"fifo": 0, "completeness": 1}
    with pytest.raises(ValueError, match="no such property: order"):
        check([], ["order"])  # type: ignore[list-item]


def test_a_violation_says_what_where_and_when() -> None:
    story = Story(joined=[B]).publish(A, "m").deliver("m", B, B)
    [violation] = story.check().violations
    assert violation == Violation("no-duplication", B, "news", "m", 4, "delivered again")
    assert str(violation) == (
        "no-duplication: time 4, node 1, topic 'news', message 'm': delivered again"
    )


def test_a_trace_may_be_a_stream() -> None:
    story = Story(joined=[A]).publish(A, 1).deliver(1, A)
    assert check(iter(story.records)).deliveries == 1


# answers before questions


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        (["q", "a"], (1, 0)),
        (["a", "q"], (1, 1)),
        (["a"], (1, 1)),
        (["q"], (0, 0)),
        (["a", "q", "a", "q"], (1, 1)),
        ([], (0, 0)),
    ],
)
def test_a_witness_of_question_and_answer(deliveries: list[str], expected: tuple[int, int]) -> None:
    story = Story(joined=[C]).publish(A, "q").publish(B, "a", reply_to=("q", "q", "unheard of"))
    for id in deliveries:
        story.deliver(id, C)
    assert answers_before_questions(story.records)[:2] == expected


def test_an_answer_whose_question_never_came_is_told_from_one_that_came_early() -> None:
    story = Story(joined=[C]).publish(A, "q").publish(B, "a", reply_to=("q",)).deliver("a", C)
    assert answers_before_questions(story.records) == Inversions(1, 1, without=1)
    assert answers_before_questions(story.deliver("q", C).records) == Inversions(1, 1, without=0)


def test_a_newcomer_is_not_owed_the_question_but_may_not_get_it_late() -> None:
    story = Story().publish(A, "q").subscribe(C).join(C).publish(B, "a", reply_to=("q",))
    assert answers_before_questions(story.deliver("a", C).records)[:2] == (0, 0)
    assert answers_before_questions(story.deliver("q", C).records)[:2] == (1, 1)


def test_a_question_asked_in_an_earlier_subscription_is_not_owed() -> None:
    story = Story(joined=[C]).publish(A, "q").leave(C).subscribe(C).join(C)
    story.publish(B, "a", reply_to=("q",)).deliver("a", C)
    assert answers_before_questions(story.records)[:2] == (0, 0)


def test_an_answer_outside_a_subscription_is_not_owed_its_question() -> None:
    story = Story().publish(A, "q").publish(B, "a", reply_to=("q",)).deliver("a", C)
    assert answers_before_questions(story.records)[:2] == (0, 0)


def test_a_message_does_not_answer_itself() -> None:
    story = Story(joined=[C]).publish(A, "q", reply_to=("q",)).deliver("q", C)
    assert answers_before_questions(story.records)[:2] == (0, 0)


def test_every_node_and_every_question_is_a_pair() -> None:
    story = Story(joined=[A, B, C]).publish(A, 1).deliver(1, A, B).publish(A, 2).deliver(2, A, B)
    story.publish(B, 3, reply_to=(1, 2)).deliver(3, B, A).deliver(1, C).deliver(3, C).deliver(2, C)
    found = answers_before_questions(story.records)
    assert found[:2] == (6, 1)
    assert found.rate == pytest.approx(1 / 6)
    assert answers_before_questions([]).rate == 0.0


def test_an_answer_on_another_topic_is_no_answer() -> None:
    story = Story(joined=[C]).publish(A, "q").publish(B, "a", topic="other", reply_to=("q",))
    story.deliver("a", C, topic="other").deliver("q", C)
    assert answers_before_questions(story.records)[:2] == (0, 0)


# Oracles: the definitions word for word, at any cost. All on traces of one topic, or cut to one.

Id = MessageId | None
Found = set[tuple[int, Id]]


def first_deliveries(records: Sequence[Record]) -> dict[int, list[Record]]:
    """Per node, the first delivery of each message that was published before it."""
    published: set[Id] = set()
    seen: set[tuple[int, Id]] = set()
    deliveries = defaultdict(list)
    for record in records:
        if record.kind == "publish":
            published.add(record.id)
        elif record.kind == "deliver" and record.id in published:
            if (record.node, record.id) not in seen:
                deliveries[record.node].append(record)
            seen.add((record.node, record.id))
    return deliveries


def late(
    deliveries: dict[int, list[Record]],
    before: Callable[[Id, Id], bool],
) -> Found:
    """Every message that some node delivers after one that it is ``before``."""
    return {
        (node, record.id)
        for node, own in deliveries.items()
        for k, record in enumerate(own)
        if any(before(record.id, earlier.id) for earlier in own[:k])
    }


def late_by_vector_clocks(records: Sequence[Record]) -> Found:
    """The textbook: a vector per node, stamped on what it publishes, merged on what it delivers."""
    nodes = sorted({record.node for record in records})
    clock = {node: dict.fromkeys(nodes, 0) for node in nodes}
    stamp: dict[Id, dict[int, int]] = {}
    for record in records:
        own = clock[record.node]
        if record.kind == "publish":
            own[record.node] += 1
            stamp[record.id] = dict(own)
        elif record.kind == "deliver" and record.id in stamp:
            for node in nodes:
                own[node] = max(own[node], stamp[record.id][node])

    def before(m: Id, n: Id) -> bool:
        return m != n and all(stamp[m][node] <= stamp[n][node] for node in nodes)

    return late(first_deliveries(records), before)


def causes(records: Sequence[Record]) -> dict[Id, set[Id]]:
    """Message -> all that happens before it, by walking the graph of the definition."""
    direct: dict[Id, set[Id]] = {}
    known: dict[int, set[Id]] = defaultdict(set)
    for record in records:
        if record.kind == "publish":
            direct[record.id] = set(known[record.node])
        if record.kind == "publish" or (record.kind == "deliver" and record.id in direct):
            known[record.node].add(record.id)
    past: dict[Id, set[Id]] = {}
    for message in direct:
        reached: set[Id] = set()
        frontier = list(direct[message])
        while frontier:
            cause = frontier.pop()
            if cause not in reached:
                reached.add(cause)
                frontier += direct[cause]
        past[message] = reached
    return past


def late_by_reachability(records: Sequence[Record]) -> Found:
    past = causes(records)
    return late(first_deliveries(records), lambda m, n: m in past[n])


def out_of_fifo(records: Sequence[Record]) -> Found:
    order = [(r.node, r.id) for r in records if r.kind == "publish"]
    publisher = {id: node for node, id in order}
    place = {id: k for k, (_, id) in enumerate(order)}

    def before(m: Id, n: Id) -> bool:
        return publisher[m] == publisher[n] and place[m] < place[n]

    return late(first_deliveries(records), before)


def incomplete(records: Sequence[Record]) -> set[tuple[int, Id, int]]:
    """(node, message, time) of each hole, subscription by subscription."""
    past = causes(records)
    holes = set()
    for node in {record.node for record in records}:
        start: int | None = None
        for k, record in enumerate([*records, Record("leave", records[-1].time, node)]):
            if record.node != node or record.kind not in ("join", "leave"):
                continue
            if record.kind == "join":
                start = k if start is None else start
                continue
            if start is not None:
                inside = records[start:k]
                published = [r.id for r in inside if r.kind == "publish"]
                got = {r.id for r in first_deliveries(records[:k])[node]}
                got_inside = got & {r.id for r in inside if r.kind == "deliver" and r.node == node}
                for id in published:
                    owed = k == len(records) or any(id in past[other] for other in got_inside)
                    if owed and id not in got_inside:
                        holes.add((node, id, record.time))
            start = None
    return holes


def inversions(records: Sequence[Record]) -> tuple[int, int]:
    """Node by node, answer by answer; here an answer has one question."""
    published = {record.id: k for k, record in enumerate(records) if record.kind == "publish"}
    pairs = inverted = 0
    for node, own in first_deliveries(records).items():
        order = [record.id for record in own]
        for answer in own:
            [question] = records[published[answer.id]].reply_to
            if question not in published:
                continue
            if question in order:
                pairs += 1
                inverted += order.index(question) > order.index(answer.id)
            else:
                between = records[published[question] : records.index(answer)]
                before = [r for r in records[: published[question]] if r.node == node]
                last = [r.kind for r in before if r.kind in ("join", "leave")][-1:]
                left = any(r.kind == "leave" and r.node == node for r in between)
                if last == ["join"] and not left:
                    pairs += 1
                    inverted += 1
    return pairs, inverted


@st.composite
def traces(draw: st.DrawFn, nodes: int = 4, length: int = 60) -> list[Record]:
    """Random deeds of a few nodes, most of them wrong. Ids are numbers in order of publication."""
    deed = st.tuples(
        st.sampled_from(["publish", "publish", "deliver", "deliver", "deliver", "join", "leave"]),
        st.integers(0, nodes - 1),
        st.integers(0, 7),
    )
    size = draw(st.integers(0, length))
    records = []
    published = 0
    for time, (kind, node, choice) in enumerate(draw(st.lists(deed, min_size=size, max_size=size))):
        id = None
        reply_to: tuple[int, ...] = ()
        if kind == "publish":
            id, reply_to = published, (published - 1 - choice,)
            published += 1
        elif kind == "deliver":
            id = published - choice  # near the end, so that chains grow; the next id is a creation
            if id < 0:
                continue
        records.append(Record(kind, time, node, "t", id, reply_to=reply_to))  # type: ignore[arg-type]
    return records


def found(records: Sequence[Record], property: Property) -> Found:
    report = check(records, [property], limit=len(records) * 10)
    assert report.counts[property] == len(report.violations)
    return {(violation.node, violation.id) for violation in report.violations}


@settings(max_examples=500, deadline=None)
@given(traces())
def test_causal_order_agrees_with_vector_clocks_and_with_reachability(
    records: list[Record],
) -> None:
    expected = late_by_vector_clocks(records)
    assert late_by_reachability(records) == expected
    assert found(records, "causal-order") == expected


@settings(max_examples=300, deadline=None)
@given(traces())
def test_fifo_agrees_with_its_definition_and_is_part_of_causal_order(records: list[Record]) -> None:
    expected = out_of_fifo(records)
    assert found(records, "fifo") == expected
    assert expected <= found(records, "causal-order")


@settings(max_examples=500, deadline=None)
@given(traces())
def test_completeness_agrees_with_its_definition(records: list[Record]) -> None:
    report = check(records, ["completeness"], limit=len(records) * 10)
    holes = [(violation.node, violation.id, violation.time) for violation in report.violations]
    assert len(holes) == len(set(holes))
    assert set(holes) == (incomplete(records) if records else set())


@settings(max_examples=300, deadline=None)
@given(traces())
def test_answers_before_questions_agrees_with_its_definition(records: list[Record]) -> None:
    assert answers_before_questions(records)[:2] == inversions(records)


@settings(max_examples=200, deadline=None)
@given(traces(), traces())
def test_two_topics_are_judged_as_two_traces(one: list[Record], two: list[Record]) -> None:
    def of_topic(records: Iterable[Record], topic: str) -> list[Record]:
        return [Record(r.kind, r.time, r.node, topic, r.id) for r in records]

    mixed = sorted(of_topic(one, "one") + of_topic(two, "two"), key=lambda record: record.time)
    report = check(mixed, limit=10_000)
    for topic, records in (("one", one), ("two", two)):
        alone = check(of_topic(records, topic), limit=10_000)
        for property in ALL:
            assert [
                (v.node, v.id)
                for v in report.violations
                if (v.topic, v.property) == (topic, property)
            ] == [(v.node, v.id) for v in alone.violations if v.property == property]


@pytest.mark.parametrize("seed", range(4))
def test_causal_order_with_more_messages_than_a_narrow_clock_can_count(seed: int) -> None:
    """Clocks are widened at the 128th message of a publisher; nothing may change by it."""
    rng = random.Random(seed)
    publisher_weights = [30, 10, 3, 1]
    records: list[Record] = []
    published = 0
    for time in range(1600):
        if rng.random() < 0.3:
            [node] = rng.choices(range(4), publisher_weights)
            records.append(Record("publish", time, node, "t", published))
            published += 1
        elif published:
            id = max(0, published - 1 - int(rng.expovariate(0.4)))
            records.append(Record("deliver", time, rng.randrange(5), "t", id))
    assert max(sum(r.node == n for r in records if r.kind == "publish") for n in range(4)) > 127
    expected = late_by_vector_clocks(records)
    assert expected
    assert found(records, "causal-order") == expected


def test_causal_order_of_a_long_stream() -> None:
    """Past the 32,768th message of one publisher, with one swap at the very end."""
    count = 33_000
    story = Story(joined=[A, B])
    for id in range(count):
        story.publish(A, id).deliver(id, A)
    for id in [*range(count - 2), count - 1, count - 2]:
        story.deliver(id, B)
    assert story.broken() == [("fifo", B, count - 2), ("causal-order", B, count - 2)]
