"""Agreement on views, by itself: any order, copies, losses, wrong suspicions, dying leaders."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol.cluster.agreement import ViewAgreement
from cubecast.protocol.cluster.views import (
    Ballot,
    Change,
    Enter,
    Install,
    Prepare,
    Report,
    View,
    ViewId,
    Who,
)
from support.agreement_toys import CONFIG, Toys
from support.chaos_mutants import OldBallots

NODES = 4
KINDS = (
    "deliver", "deliver", "deliver", "deliver", "deliver", "copy", "lose",
    "suspect", "trust", "tick", "tick", "wait", "crash", "depart",
)  # fmt: skip
Happening = tuple[str, int, int]
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 63), st.integers(0, NODES - 1)), max_size=120
)


def happen(toys: Toys, happening: Happening) -> None:
    kind, number, other = happening
    node = number % NODES
    flying = len(toys.flying)
    match kind:
        case "deliver" if flying:
            toys.hand_over(number % flying)
        case "copy" if flying:
            toys.hand_over(number % flying, keep=True)
        case "lose" if flying:
            del toys.flying[number % flying]
        case "suspect" if node != other:
            toys.suspect(node, other)
        case "trust" if node != other:
            toys.suspect(node, other, really=False)
        case "tick":
            toys.tick()
        case "wait":
            toys.tick(CONFIG.answer_after)
        case "crash" if len(toys.alive()) > 2:
            toys.toys[node].crashed = True
        case "depart" if len(toys.alive()) > 2:
            toys.depart(node)


@settings(max_examples=300, deadline=None)
@given(HAPPENINGS)
def test_nodes_that_count_on_each_other_install_the_same_views(happenings: list[Happening]) -> None:
    toys = Toys(NODES)
    for happening in happenings:
        happen(toys, happening)
        assert not toys.disagreements()
    toys.come_to_rest()
    assert not toys.disagreements()
    assert not toys.stuck()
    assert not toys.forlorn()


def deliver_at_random(toys: Toys, order: list[int]) -> None:
    """Nothing is lost, no node is suspected; messages overtake each other."""
    for number in order:
        if toys.flying:
            toys.hand_over(number % len(toys.flying))
        else:
            toys.tick()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 63), max_size=60), st.lists(st.integers(0, NODES - 1), max_size=2))
def test_leaving_does_not_divide_the_others(order: list[int], leavers: list[int]) -> None:
    toys = Toys(NODES)
    for leaver in leavers:
        toys.depart(leaver)
    deliver_at_random(toys, order)
    toys.come_to_rest()
    left = set(range(NODES)) - set(leavers)
    assert toys.views() == {frozenset(left)}
    assert {toy.slot for toy in toys.alive()} == left
    assert not any(toys.toys[node].strangers for node in left)


def test_a_leader_that_has_decided_to_leave_does_not_begin_again() -> None:
    """A node that heard a second question first would refuse the answer to the first one."""
    toys = Toys(3)
    toys.depart(0)
    while not any(isinstance(message, Change) for _, _, message in toys.flying):
        toys.hand_over(0)
    assert not any(isinstance(message, Prepare) for _, _, message in toys.flying)


def test_a_leader_that_leaves_goes_although_a_node_it_has_to_tell_dies() -> None:
    toys = Toys(3)
    toys.depart(0)
    while not any(isinstance(message, Change) for _, _, message in toys.flying):
        toys.hand_over(0)
    toys.toys[2].crashed = True
    toys.come_to_rest()
    assert toys.views() == {frozenset({1})}
    assert toys.toys[0].let_go_at is not None


def test_a_leader_that_leaves_waits_no_longer_for_a_newcomer_than_for_a_report() -> None:
    """The newcomer has found a place elsewhere, and no detector watches it here."""
    toys = Toys(3)
    leader = toys.toys[0]
    toys.depart(0)
    toys.toys[2].crashed = True
    toys.suspect(0, 2)
    leader.epochs.on_enter(Enter(Who("n2.1", "2", 1), 2), toys.now)
    for _ in range(0, CONFIG.answer_after, CONFIG.repeat_after):
        assert leader.alive
        toys.drain()
        toys.tick()
    assert not leader.alive
    assert leader.marks["newcomers left untold"] == 1
    assert {who.uid for who in toys.toys[1].epochs.view.members.values()} == {"n1", "n2.1"}


def test_followers_of_a_failed_ballot_are_brought_to_the_decided_view() -> None:
    """Node 0 decides.  Node 1 took it for dead, led node 2 elsewhere, and gave up when 0 was back.

    Both refuse what was decided before, as they follow a later ballot, and no node leads them.
    """
    toys = Toys(4)
    toys.toys[3].crashed = True
    toys.suspect(0, 3)
    for _ in range(4):  # the questions of 0 to 1 and 2, and their reports
        toys.hand_over(0)
    assert toys.toys[0].epochs.view.epoch == 1
    toys.flying.clear()  # what 0 says is on its way for long
    toys.suspect(1, 3)
    toys.suspect(1, 0)
    (index,) = [i for i, (_, to, m) in enumerate(toys.flying) if to == 2 and type(m) is Prepare]
    toys.hand_over(index)
    toys.flying = [one for one in toys.flying if type(one[2]) is not Report]
    toys.suspect(1, 0, really=False)
    toys.suspect(1, 2)  # it gives up its attempt ...
    toys.suspect(1, 2, really=False)  # ... and 0 leads again
    toys.flying.clear()
    toys.come_to_rest()
    assert toys.views() == {frozenset({0, 1, 2})}
    assert not toys.stuck()


def follow_two_leaders(kind: type[ViewAgreement]) -> Toys:
    """Node 2 reports to node 0, then to node 1, and hears what 0 decided before what 1 decides."""
    toys = Toys(4, kind)
    toys.toys[3].crashed = True
    toys.suspect(0, 3)
    for _ in range(4):  # the questions of 0 to 1 and 2, and their reports
        toys.hand_over(0)
    decided = [one for one in toys.flying if type(one[2]) is Change and one[1] == 2]
    toys.flying.clear()
    toys.suspect(1, 3)
    toys.suspect(1, 0)
    asked = [one for one in toys.flying if type(one[2]) is Prepare and one[1] == 2][-1:]
    for message in (*asked, *decided):
        toys.flying = [message, *toys.flying]
        toys.hand_over(0)
    toys.flying = [one for one in toys.flying if type(one[2]) is Report]
    toys.drain()
    return toys


def test_a_follower_of_a_later_ballot_refuses_an_earlier_decision() -> None:
    assert not follow_two_leaders(ViewAgreement).disagreements()
    assert follow_two_leaders(OldBallots).disagreements()


def test_a_leader_gives_up_for_a_higher_ballot() -> None:
    toys = Toys(4)
    toys.suspect(0, 3)
    toys.hand_over(0)  # node 1 follows node 0, and will take a higher round
    toys.suspect(2, 0)
    toys.suspect(2, 1)
    assert toys.toys[2].epochs.attempt is not None
    toys.suspect(1, 0)
    asked = [one for one in toys.flying if one[:2] == (1, 2)]
    toys.flying = asked
    toys.hand_over(0)
    assert toys.toys[2].epochs.attempt is None
    assert toys.toys[2].epochs.promised == Ballot(2, 1)


def test_a_view_without_us_is_no_view_of_ours() -> None:
    """A view without us comes only to a node that asked to leave; else it is a stranger's view."""
    toys = Toys(3)
    view = toys.toys[0].epochs.view
    rest = View(ViewId(1, Ballot(1, 0)), {slot: view.members[slot] for slot in (0, 1)})
    install = Install(Ballot(1, 0), view.id, rest, {}, {})
    assert not toys.toys[2].epochs.on_install(install, toys.now)
    assert toys.toys[2].strangers == [(rest, "n0")]
    assert toys.toys[2].epochs.view == view


def test_a_report_from_another_branch_is_taken_for_another_view() -> None:
    """`Member` hears no such report; a node that does is told where its survivor is."""
    toys = Toys(3)
    toys.suspect(0, 2)
    attempt = toys.toys[0].epochs.attempt
    assert attempt is not None
    view = toys.toys[0].epochs.view
    other = View(ViewId(2, Ballot(3, 1)), {1: view.members[1]})
    installed = Install(Ballot(3, 1), ViewId(1, Ballot(2, 1)), other, {}, {})
    report = Report(attempt.ballot, Ballot(3, 1), installed, {})
    toys.toys[0].epochs.on_report(report, 1, toys.now)
    assert toys.toys[0].strangers == [(other, "n1")]


VIEWS = st.builds(
    lambda epoch, attempt, slot, lives: View(
        ViewId(epoch, Ballot(attempt, slot)),
        {node: Who(f"n{node}.{life}", str(node), life) for node, life in lives.items()},
    ),
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 1),
    st.dictionaries(st.integers(0, 2), st.integers(0, 1), min_size=1),
)


@given(VIEWS, VIEWS, VIEWS)
def test_of_two_views_one_outranks_the_other(a: View, b: View, c: View) -> None:
    assert not a.outranks(a)
    assert a.outranks(b) + b.outranks(a) == (a != b)
    if a.outranks(b) and b.outranks(c):
        assert a.outranks(c)


@given(VIEWS, VIEWS)
def test_the_larger_view_outranks_the_smaller(a: View, b: View) -> None:
    if len(a.members) > len(b.members):
        assert a.outranks(b)
