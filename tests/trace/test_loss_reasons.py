"""The property `loss-reasons` on small traces: gaps and discards with and without a reason.

A publishes, B reads, C is there.  `Views` writes what every node's view is and which life each of
its members is in: ``"A B.1"`` is A in its first life and B in its second.
"""

from __future__ import annotations

from typing import Self

import pytest

from cubecast.trace import Record, check
from support.trace_stories import A, B, C, Drama

ALL = "A B C"
NAMES = {"A": A, "B": B, "C": C}


class Views(Drama):
    """A drama whose views say who is in which life."""

    epoch = 0

    def views(self, lives: str, *nodes: int) -> Self:
        """These nodes install a view."""
        self.epoch += 1
        named = {NAMES[life[0]]: life for life in lives.split()}
        members = sum(1 << node for node in named)
        for node in nodes or named:
            told = tuple(named[one] for one in sorted(named))
            self._add("view", node, topic="", seq=self.epoch, members=members, lives=told)
        return self

    def reasons(self) -> list[str]:
        """What is wrong with the losses, in words."""
        return [one.message for one in check(self.records, ["loss-reasons"]).violations]


def begin(*joined: int) -> Views:
    story = Views(joined=())
    story.views(ALL)
    for node in joined or (A, B):
        story.subscribe(node).join(node)
    return story


def told(story: Views, words: str) -> None:
    """One loss is wrong, and this is why."""
    found = story.reasons()
    assert len(found) == 1, found
    assert words in found[0]


# the reader and the publisher


def test_a_subscriber_with_the_publisher_all_the_time_misses_nothing() -> None:
    told(begin().publish(A, "m").gap(B, id="m"), "all the time")


def test_that_others_were_excluded_is_no_reason() -> None:
    story = begin().publish(A, "m").crash(C).views("A B").gap(B, id="m")
    told(story, "all the time")
    told(begin().publish(A, "m").views("A B").views("A B C.1").gap(B, id="m"), "all the time")


@pytest.mark.parametrize(
    ("mine", "theirs"), [("B", "A B"), ("A B", "A"), ("B C", "A C")], ids=["ours", "its", "both"]
)
def test_an_exclusion_of_either_by_the_other_is_a_reason(mine: str, theirs: str) -> None:
    story = begin().publish(A, "m").views(mine, B).views(theirs, A).gap(B, id="m")
    assert story.reasons() == []


def test_a_reason_that_comes_after_the_loss_is_none() -> None:
    told(begin().publish(A, "m").gap(B, id="m").views("B", B).views("A", A), "all the time")


def test_a_reason_that_was_over_before_the_publication_is_none() -> None:
    story = begin().views("A C", A, C).views("A B.1 C").join(B).publish(A, "m").gap(B, id="m")
    told(story, "all the time")


def test_a_message_of_a_crashed_publisher_that_no_survivor_has_may_be_lost() -> None:
    story = begin().publish(A, "m").deliver("m", A).crash(A).views("B C").gap(B, id="m")
    assert story.reasons() == []


def test_a_message_of_the_dead_that_a_survivor_has_is_not_lost() -> None:
    story = begin(A, B, C).publish(A, "m").deliver("m", A, C).crash(A).views("B C").gap(B, id="m")
    told(story, "node 2 has it")


def test_a_message_that_only_another_crashed_node_has_may_be_lost() -> None:
    story = begin(A, B, C).publish(A, "m").deliver("m", A, C).crash(A).crash(C)
    assert story.views("B").gap(B, id="m").reasons() == []


def test_a_message_stable_while_both_were_together_is_not_lost_later() -> None:
    story = begin().publish(A, "m").then("stable", A, id="m").crash(A).views("B C")
    told(story.gap(B, id="m"), "everyone had taken in")
    apart = begin().publish(A, "m").views("A C", A, C).then("stable", A, id="m")
    assert apart.views("A B.1 C").join(B).gap(B, id="m").reasons() == []


def test_a_promise_begins_when_the_protocol_takes_the_message() -> None:
    """The publisher was away when its application published, and back when that was taken."""
    story = begin().publish(A, "m").views("B C", B, C).views("A.1 B C").then("taken", A, id="m")
    told(story.gap(B, id="m"), "all the time")


# the subscription


def test_a_node_back_in_another_life_misses_messages_before_it_joined_again() -> None:
    story = begin().views("A C", A, C).publish(A, "m").views("A B.1 C").publish(A, "n").join(B)
    assert story.gap(B, id="m").gap(B, id="n").reasons() == []
    told(story.publish(A, "o").gap(B, id="o"), "all the time")


def test_a_join_in_the_same_life_excuses_nothing() -> None:
    """A node that jumps joins again; that is no reason."""
    told(begin().publish(A, "m").join(B).gap(B, id="m"), "all the time")


def test_an_own_message_is_missed_only_by_who_was_away() -> None:
    told(begin().publish(B, "m").gap(B, id="m"), "all the time")
    story = begin().publish(B, "m").views("A C", A, C).views("A B.1 C").join(B).gap(B, id="m")
    assert story.reasons() == []


def test_a_lossy_subscriber_needs_no_reason_until_it_is_strict_again() -> None:
    story = begin(A).then("subscribe", B, message="lossy").join(B).publish(A, "m").gap(B, id="m")
    assert story.reasons() == []
    story.publish(A, "n").subscribe(B).join(B).gap(B, id="n")
    assert story.reasons() == [], "it was published before all were told"
    told(story.publish(A, "o").gap(B, id="o"), "all the time")


def test_of_what_its_process_before_published_a_node_knows_nothing() -> None:
    story = begin().publish(B, "m").deliver("m", A).crash(B).views("A C").restart(B)
    story.subscribe(B).views("B.1", B).join(B).views("A B.1 C")
    assert story.gap(B, id="m").reasons() == []


# what was owed


def test_a_gap_without_a_subscription_is_undue() -> None:
    told(begin(A).publish(A, "m").gap(B, id="m"), "without a subscription")
    story = begin().publish(A, "m").leave(B).views("B C", B, C).gap(B, id="m")
    told(story, "without a subscription")
    story = begin().publish(A, "m").crash(B).restart(B).gap(B, id="m")
    told(story, "without a subscription")


def test_a_message_published_before_the_subscription_is_not_owed() -> None:
    story = begin(A).publish(A, "m").subscribe(B).join(B).views("B C", B, C).gap(B, id="m")
    told(story, "before the subscription")


def test_a_call_that_was_taken_back_before_it_returned_may_answer_the_next() -> None:
    story = begin(A).subscribe(B).leave(B).publish(A, "m").subscribe(B).join(B)
    assert story.views("B C", B, C).gap(B, id="m").reasons() == []
    ended = begin(A).subscribe(B).join(B).leave(B).publish(A, "m").subscribe(B).join(B)
    told(ended.views("B C", B, C).gap(B, id="m"), "before the subscription")


def test_a_node_may_report_an_earlier_message_if_it_cannot_know_its_time() -> None:
    """A and B were apart: for B, nothing was published before its subscription."""
    story = begin(A).views("B C", B, C).views("A", A).publish(A, "m").subscribe(B).join(B)
    assert story.views("A.1 B C").gap(B, id="m").reasons() == []


def newcomer() -> Views:
    """C published and is there in another life that knows nothing of it; A has it; B comes."""
    story = Views(joined=()).views("A C").subscribe(A).join(A)
    story.publish(C, "m").deliver("m", A, C).crash(C).views("A", A).restart(C)
    return story.restart(B).subscribe(B)


def test_a_node_that_came_after_a_publisher_died_may_hear_late_of_its_end() -> None:
    story = newcomer().views("B C.1", C, B).join(B).views("A.1 B C.1")
    assert story.gap(B, id="m").reasons() == []


def test_a_node_that_joins_a_holder_knows_that_the_message_is_older() -> None:
    told(newcomer().views("A B C.1", A, C, B).join(B).gap(B, id="m"), "before the subscription")


def test_a_pattern_is_owed_topics_that_were_not_there() -> None:
    story = begin(A).then("subscribe", B, topic="#").then("join", B, topic="#")
    story.views("A C", A, C).publish(A, "m").views("A B.1 C").subscribe(B).join(B)
    assert story.gap(B, id="m").reasons() == []
    early = begin(A).publish(A, "m").then("subscribe", B, topic="#").then("join", B, topic="#")
    told(early.subscribe(B).join(B).views("B C", B, C).gap(B, id="m"), "before the subscription")


# discards


def test_a_discard_needs_a_publisher_that_is_gone() -> None:
    told(begin().publish(A, "m").discard(B, id="m"), "all the time")
    told(begin().publish(A, "m").crash(C).views("A B").discard(B, id="m"), "all the time")
    assert begin().publish(A, "m").crash(A).views("B C").discard(B, id="m").reasons() == []


def test_a_stable_message_is_not_discarded() -> None:
    story = begin().publish(A, "m").then("stable", A, id="m").crash(A).views("B C")
    told(story.discard(C, id="m"), "everyone had taken in")


def test_a_lossy_subscriber_may_discard_a_stable_message() -> None:
    story = begin(A).then("subscribe", B, message="lossy").join(B).publish(A, "m")
    story.then("stable", A, id="m")
    assert story.views("B C", B, C).discard(B, id="m").reasons() == []
    later = begin(A).then("subscribe", B, message="lossy").join(B).subscribe(B).join(B)
    later.publish(A, "m").then("stable", A, id="m").views("B C", B, C)
    told(later.discard(B, id="m"), "everyone had taken in")


# leaving for good


def silent(story: Views) -> list[str]:
    return [one.message for one in check(story.records, ["completeness"]).violations]


def test_a_leaver_leaves_no_undelivered_message_behind() -> None:
    story = begin().publish(A, "m").deliver("m", A).leave(A).then("view", A, topic="", members=0)
    assert silent(story) == ["not delivered, though its publisher was with us until it left"]
    assert silent(story.deliver("m", B)) == []


def test_a_leaver_that_was_alone_may_take_its_messages_along() -> None:
    story = begin().publish(A, "m").deliver("m", A).views("A", A).leave(A)
    assert silent(story.then("view", A, topic="", members=0)) == []
    gone = begin().views("A C", A, C).publish(A, "m").deliver("m", A).leave(A)
    gone.then("view", A, topic="", members=0).views("B.1 C").join(B)
    assert silent(gone) == []


# records


def test_needless_losses_are_counted() -> None:
    report = check(begin().publish(A, "m").gap(B, id="m").records)
    assert (report.gaps, report.needless) == (1, 1)


def test_views_without_lives_tell_only_whether_a_node_was_left_out() -> None:
    """A node back in another life cannot be told from one that stayed."""
    story = Views(joined=(A, B)).view(1, 0b11, A, B).publish(A, "m").gap(B, id="m")
    told(story, "no node crashed or was excluded")
    assert story.view(2, 0b01, A).view(3, 0b11, A, B).reasons() == []


def test_nothing_is_judged_of_nodes_without_views() -> None:
    story = Views(joined=(A, B)).publish(A, "m").gap(B, id="m")
    assert story.reasons() == []
    assert check([Record("gap", 1, B, "t", seq=3)], ["loss-reasons"]).ok
