"""Lies by which one member tries to have an honest leader called mute, or left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.protocol.cluster import admission, agreement
from cubecast.protocol.cluster.belief import (
    BALLOTS_OF_OTHERS,
    MAX_EPOCH,
    MAX_LEADERS,
    MAX_LEAP,
    MAX_OBJECTIONS,
    MAX_PUSH,
    MAX_ROUNDS,
    MAX_WAYS_GIVEN,
    is_near,
    leap,
    line,
    line_of_other,
    may_follow_other,
)
from cubecast.protocol.cluster.leader_watch import VIEW, LeaderWatch
from cubecast.protocol.cluster.views import (
    Ballot,
    Enter,
    Install,
    Prepare,
    Report,
    Seal,
    Stuck,
    View,
    ViewId,
    Who,
    genesis,
)
from cubecast.protocol.port import NodeId, Stream, Time
from support.agreement_toys import CONFIG, Toys
from support.member_toys import EPOCHS, Flying, Members, kind
from support.patient_members import BOUND, TICK, VIEW_BOUND, mute, newcomer, world_of

# -- ballots too far above the others --------------------------------------------------------------


def answered_by(toys: Toys, liar: int, answer: Callable[[Prepare, int], None]) -> None:
    """Deliver everything, but what the liar is asked."""
    while toys.flying:
        source, to, message = toys.flying[0]
        if to == liar and isinstance(message, Prepare):
            toys.flying.pop(0)
            answer(message, source)
        else:
            toys.hand_over(0)


def go_on(toys: Toys, liar: int, answer: Callable[[Prepare, int], None]) -> None:
    for _ in range(8 * CONFIG.answer_after):
        answered_by(toys, liar, answer)
        toys.tick(1)


LINES = (MAX_PUSH // 2, MAX_PUSH, MAX_LEAP, 2 * MAX_LEAP)
PUSHES = [at + by for at in LINES for by in range(-2, 3)]
"""Rounds above the leader's, around every line that there is."""


@pytest.mark.parametrize("push", PUSHES)
def test_one_objection_leaves_no_honest_leader_alone(push: int) -> None:
    """With a ballot 2^20 rounds above the leader's, whose next one the others did not believe."""
    toys = Toys(5)
    leader = toys.toys[0].epochs
    said: list[Ballot] = []

    def object_once(prepare: Prepare, to: int) -> None:
        mine = prepare.ballot
        higher = Ballot(mine.round + push, 4) if not said else mine
        said.append(higher)
        toys.flying.append((4, to, Report(mine, higher, None, {})))

    leader.on_stuck(Stuck(leader.view.id), 1, 0)
    go_on(toys, 4, object_once)
    assert said
    honest = [sorted(toy.epochs.view.members) for toy in toys.toys[:4]]
    assert all(view[:4] == [0, 1, 2, 3] for view in honest), honest


@pytest.mark.parametrize("push", PUSHES)
@pytest.mark.parametrize("whom", [0, 1])
def test_one_ballot_leaves_no_honest_leader_alone(push: int, whom: int) -> None:
    """The liar asks the leader, or the next in line, for one ballot; then the leader dies."""
    toys = Toys(5)
    view = toys.toys[4].epochs.view
    toys.toys[whom].epochs.on_prepare(Prepare(Ballot(push, 4), view.id, view.mask), 4, 0)
    gone = 1 - whom
    for node in range(5):
        if node != gone:
            toys.suspect(node, gone)
    toys.toys[gone].crashed = True

    def go_along(prepare: Prepare, to: int) -> None:
        toys.flying.append((4, to, Report(prepare.ballot, prepare.ballot, None, {})))

    go_on(toys, 4, go_along)
    honest = [sorted(toy.epochs.view.members) for toy in toys.toys[:4] if toy.slot != gone]
    assert honest == [[node for node in range(5) if node != gone]] * 3


@pytest.mark.parametrize("push", PUSHES)
@pytest.mark.parametrize("liar", [1, 3])
def test_ballots_of_one_behind_the_leader_leave_no_honest_leader_alone(
    push: int, liar: int
) -> None:
    """It says to all others at the same time that it leads."""
    toys = Toys(5)
    view = toys.toys[0].epochs.view
    for node in range(1, 5):
        if node != liar:
            lie = Prepare(Ballot(push, liar), view.id, view.mask)
            toys.toys[node].epochs.on_prepare(lie, liar, 0)

    def go_along(prepare: Prepare, to: int) -> None:
        toys.flying.append((liar, to, Report(prepare.ballot, prepare.ballot, None, {})))

    toys.toys[0].epochs.on_stuck(Stuck(view.id), 1, 0)
    go_on(toys, liar, go_along)
    honest = [sorted(toy.epochs.view.members) for toy in toys.toys if toy.slot != liar]
    assert honest == [[0, 1, 2, 3, 4]] * 4
    assert toys.toys[0].epochs.view.epoch > 0


@pytest.mark.parametrize("late", [0, 1, 3 * CONFIG.answer_after])
@pytest.mark.parametrize("push", PUSHES)
def test_a_leader_that_lies_leaves_room_for_the_next(push: int, late: int) -> None:
    """It pushes the next in line as far as that one believes it, and dies.

    The next in line suspects it first.
    """
    toys = Toys(5)
    view = toys.toys[1].epochs.view
    toys.toys[1].epochs.on_prepare(Prepare(Ballot(push, 0), view.id, 31), 0, 0)
    assert (toys.toys[1].epochs.promised == Ballot(push, 0)) == (push <= MAX_LEAP)
    toys.toys[0].crashed = True
    toys.suspect(1, 0)
    for _ in range(late):
        toys.drain()
        toys.tick(1)
    for node in range(2, 5):
        toys.suspect(node, 0)
    toys.come_to_rest(20)
    assert [sorted(toy.epochs.view.members) for toy in toys.toys[1:]] == [[1, 2, 3, 4]] * 4
    assert all(view.mask & 0b11110 == 0b11110 for toy in toys.toys[1:] for _, view in toy.steps)


def test_a_node_that_died_is_not_waited_for_longer_after_an_honest_leader() -> None:
    toys = Toys(4)
    view = toys.toys[1].epochs.view
    toys.toys[1].epochs.on_prepare(Prepare(Ballot(MAX_PUSH // 2, 3), view.id, 15), 3, 0)
    toys.toys[0].crashed = toys.toys[3].crashed = True
    toys.suspect(1, 0)
    for _ in range(4 * CONFIG.answer_after):
        toys.drain()
        toys.tick(1)
    assert sorted(toys.toys[1].epochs.view.members) == [1, 2]


def test_a_node_that_was_not_asked_objects_in_vain() -> None:
    """A leader that is suspected wants back to the lead."""
    toys = Toys(4)
    toys.suspect(1, 0)
    attempt = toys.toys[1].epochs.attempt
    assert attempt is not None
    higher = Ballot(attempt.ballot.round + 1, 0)
    toys.toys[1].epochs.on_report(Report(attempt.ballot, higher, None, {}), 0, 0)
    assert toys.toys[1].epochs.attempt is attempt
    toys.toys[1].epochs.on_report(Report(attempt.ballot, higher, None, {}), 2, 0)
    assert toys.toys[1].epochs.attempt is None


@pytest.mark.parametrize("push", [0, MAX_PUSH // 2, MAX_PUSH, MAX_PUSH + 1, MAX_LEAP])
@pytest.mark.parametrize("liar", [0, 5])
def test_a_ballot_beside_a_mute_leader_excludes_no_honest_node(push: int, liar: int) -> None:
    """The newcomer asks node 2 alone, so members call the leader mute at different times.

    Node 1 was brought to a ballot that the nodes which count on the leader do not believe.
    """
    world = world_of(6)
    joiner, view = newcomer(world, 2), world.members[0].view
    assert view is not None
    lie = Prepare(Ballot(push, liar), view.id, view.mask)
    world.members[1].on_packet(lie, liar, world.members[liar].seal(), world.now)

    def arrives(one: Flying) -> bool:
        return one.to != 0 or not isinstance(one.message, Enter | Stuck)

    honest = world.members[1:6]
    start = world.now
    while world.now - start < 3 * VIEW_BOUND:
        world.settle(arrives, ticks=1)
        world.lose(lambda one: not arrives(one))
        if joiner.view is not None and all(one.view == joiner.view for one in honest):
            break
    assert joiner.view is not None
    assert [one.view for one in honest] == [joiner.view] * 5
    assert [one.who.uid for one in honest] == ["n1", "n2", "n3", "n4", "n5"]
    assert {said[0] for node in range(1, 6) for said in mute(world, node)} == {0}


def test_a_ballot_of_who_may_lead_later_has_the_leader_asked() -> None:
    toys = Toys(4)
    follower, view = toys.toys[2], toys.toys[2].epochs.view
    follower.epochs.on_prepare(Prepare(Ballot(MAX_LEAP, 1), view.id, view.mask), 1, 0)
    assert follower.epochs.promised == view.id.ballot
    assert toys.flying == [(2, 0, Stuck(view.id))]
    assert follower.marks["ballot of who may lead later"] == 1
    assert not follower.doubts


def test_a_silent_member_is_not_waited_for_longer_after_a_mute_leader() -> None:
    """No node was brought to a ballot that others do not believe."""
    world = world_of(5)
    joiner, start = newcomer(world, 1, 2, 3), world.now

    def arrives(one: Flying) -> bool:
        if one.to == 4 and one.message.kind == "prepare":
            return False
        return one.to != 0 or not isinstance(one.message, Enter | Stuck)

    while world.now - start < 3 * VIEW_BOUND and joiner.view is None:
        world.settle(arrives, ticks=1)
        world.lose(lambda one: not arrives(one))
    assert joiner.view is not None
    assert world.now - start < VIEW_BOUND


def test_what_a_node_promised_in_the_view_before_does_not_count_in_the_next() -> None:
    """A view was told under two ballots: its members count from the one in its name.

    The leader pushed the next in line, told one node the next view, and died.  The next in line
    adopts the view, with the higher ballot, and dies, too.
    """
    toys = Toys(5)
    view = toys.toys[0].epochs.view
    toys.toys[1].epochs.on_prepare(Prepare(Ballot(MAX_LEAP, 0), view.id, view.mask), 0, 0)
    members = {node: view.members[node] for node in range(1, 5)}
    first = View(ViewId(1, Ballot(1, 0)), members, view.cluster)
    toys.toys[3].epochs.on_install(Install(Ballot(1, 0), view.id, first, {}, {}), 0)
    for gone in (0, 2):
        toys.toys[gone].crashed = True
        for toy in toys.alive():
            toys.suspect(toy.slot, gone)
        toys.come_to_rest(20)
        left = [toy.slot for toy in toys.alive()]
        assert [sorted(toy.epochs.view.members) for toy in toys.alive()] == [left] * len(left)
        assert not any(toy.doubts for toy in toys.toys)
    assert toys.toys[1].marks["adopted a view"] == 1


def test_a_leader_takes_no_ballot_twice_though_the_view_has_a_lower_one() -> None:
    """A report to the former one may still be on its way: it is about another change."""
    toys = Toys(4)
    leader, view = toys.toys[0].epochs, toys.toys[0].epochs.view
    toys.suspect(0, 3)
    toys.suspect(0, 2)  # begins anew
    assert leader.attempt is not None
    old = leader.attempt.ballot
    assert old == Ballot(2, 0)
    members = {node: view.members[node] for node in range(3)}
    adopted = View(ViewId(1, Ballot(1, 1)), members, view.cluster)
    theirs = Install(Ballot(1, 1), view.id, adopted, {}, {})
    leader.on_report(Report(old, old, theirs, {}), 1, 0)
    assert leader.view == adopted
    assert leader.attempt is not None, "without node 2"
    assert leader.attempt.ballot == Ballot(3, 0)
    leader.on_report(Report(old, old, None, {}), 1, 0)
    assert leader.view == adopted


@pytest.mark.parametrize("slot", [0, 1, 2, 7])
@pytest.mark.parametrize("nodes", [8, 4096])
def test_what_a_leader_can_be_brought_to_leaves_it_ballots(slot: int, nodes: int) -> None:
    members = {node: Who(f"n{node}", str(node), 0) for node in range(nodes)}
    view = View(ViewId(3, Ballot(5, 0)), members)
    farthest = 5 + MAX_LEAP * slot + MAX_PUSH
    assert all(line(view, other) < farthest for other in range(slot))
    assert all(line_of_other(view, other, slot) < farthest for other in range(nodes))
    assert may_follow_other(Ballot(farthest, 7), view, slot)
    assert not may_follow_other(Ballot(farthest + 1, 7), view, slot)
    assert is_near(Ballot(farthest + MAX_PUSH, slot), view)
    assert not is_near(Ballot(farthest + MAX_PUSH + 1, slot), view)
    assert not is_near(Ballot(1, nodes), view), "no member leads"


@pytest.mark.parametrize("nodes", [2, 8, 4096])
def test_a_node_pushed_by_no_leader_is_believed_by_who_counts_on_another(nodes: int) -> None:
    members = {node: Who(f"n{node}", str(node), 0) for node in range(nodes)}
    view = View(ViewId(3, Ballot(5, 0)), members)
    for slot in {1, nodes // 2, nodes - 1}:
        pushed = max(line_of_other(view, other, slot) for other in {0, slot - 1, nodes - 1})
        assert pushed + 32 < line_of_other(view, slot, nodes)


@pytest.mark.parametrize("push", [0, MAX_PUSH, MAX_LEAP])
def test_a_node_that_was_away_believes_a_view_after_a_ballot_that_was_a_lie(push: int) -> None:
    """The liar dies, too; the others go on, and the node comes back."""
    world = world_of(5)
    view, away = world.members[0].view, world.members[4]
    assert view is not None
    lie = Prepare(Ballot(push, 0), view.id, view.mask)
    world.members[1].on_packet(lie, 0, world.members[0].seal(), world.now)
    world.down |= {0, 4}
    world.suspect(0, 1, 2, 3)
    world.suspect(4, 1, 2, 3)
    world.settle(ticks=60)
    assert world.masks() == [0b1110] * 3
    world.down.discard(4)
    for _ in range(VIEW_BOUND // TICK):
        world.settle(ticks=1)
        if away.view is not None and away.who.uid != "n4":
            break
    assert away.view is not None
    assert away.view.mask == 0b11110
    assert away.marks["disbelieved"] == 0


def test_the_round_of_a_view_grows_by_no_more_than_a_node_from_elsewhere_believes() -> None:
    """Each view comes by the highest ballot of the last member that its members believe."""
    members = {node: Who(f"n{node}", str(node), 0) for node in range(MAX_LEADERS)}
    view = genesis(members)
    for _ in range(4):
        view = View(ViewId(view.epoch + 1, Ballot(line(view, MAX_LEADERS - 1), 0)), members)
        assert not leap(view, genesis(members))
        assert not leap(view, None)
    assert view.id.ballot.round == 4 * MAX_ROUNDS
    assert agreement.MAX_SLOTS == MAX_LEADERS
    assert MAX_ROUNDS * MAX_EPOCH <= 1 << 62, "of what can be encoded"


# -- ballots that make others object ---------------------------------------------------------------


class Proxies:
    """The last member asks one honest member after the other for a ballot above the leader's.

    Each of these then objects to the leader's next ballot, honestly.
    """

    def __init__(self, nodes: int) -> None:
        self.world = world_of(nodes)
        self.liar = nodes - 1
        self.used = dict.fromkeys(range(1, self.liar), 0)
        view = self.world.members[0].view
        assert view is not None
        self.view = view

    def say(self, to: int, message: Prepare | Report | Stuck) -> None:
        seal = self.world.members[self.liar].seal()
        self.world.members[to].on_packet(message, self.liar, seal, self.world.now)

    def promised(self) -> Ballot:
        epochs = self.world.members[0]._agreement
        assert epochs is not None
        return epochs.promised

    def ask_the_next(self) -> None:
        node = next((node for node, used in self.used.items() if used < BALLOTS_OF_OTHERS), None)
        if node is not None:
            self.used[node] += 1
            ballot = Ballot(self.promised().round + 100, self.liar)
            self.say(node, Prepare(ballot, self.view.id, self.view.mask))

    def is_over(self) -> bool:
        view = self.world.members[0].view
        called = any(mute(self.world, node) for node in range(self.liar + 1))
        return called or view is None or view.id != self.view.id


@pytest.mark.parametrize("nodes", [5, 9])
def test_ballots_that_others_follow_have_no_honest_leader_excluded(nodes: int) -> None:
    lie = Proxies(nodes)
    leader, start, ways = lie.world.members[0], lie.world.now, -1
    lie.say(0, Stuck(lie.view.id))
    while lie.world.now - start < 3 * VIEW_BOUND and not lie.is_over():
        if leader.marks["gave way"] != ways:
            ways = leader.marks["gave way"]
            lie.ask_the_next()
        lie.world.settle(ticks=1)
    assert leader.marks["gave way"] == MAX_WAYS_GIVEN
    assert leader.marks["gave way no longer"] > 0
    assert not any(mute(lie.world, node) for node in range(nodes))
    assert leader.view is not None
    assert leader.view.id != lie.view.id


def test_all_ways_to_hold_up_a_leader_together_have_it_not_excluded() -> None:
    """Ballots of its own, objections at the last moment, and then ballots that others follow."""
    lie = Proxies(9)
    leader, start, ways = lie.world.members[0], lie.world.now, -1
    own = objected = 0

    def arrives(one: Flying) -> bool:
        if one.to == lie.liar:
            return one.message.kind != "prepare"
        return one.source != lie.liar

    lie.say(1, Stuck(lie.view.id))
    while lie.world.now - start < 3 * VIEW_BOUND and not lie.is_over():
        epochs = leader._agreement
        assert epochs is not None
        attempt, again = epochs.attempt, epochs._retry_at
        if own < BALLOTS_OF_OTHERS:
            if again is None or again - lie.world.now <= TICK:
                own += 1
                ballot = Ballot(epochs.promised.round + 100, lie.liar)
                lie.say(0, Prepare(ballot, lie.view.id, lie.view.mask))
        elif objected < MAX_OBJECTIONS:
            if attempt is not None and attempt.deadline - lie.world.now <= TICK:
                objected += 1
                higher = Ballot(attempt.ballot.round + 100, lie.liar)
                lie.say(0, Report(attempt.ballot, higher, None, {}))
        else:
            if leader.marks["gave way"] != ways:
                ways = leader.marks["gave way"]
                lie.ask_the_next()
            if attempt is not None:
                lie.say(0, Report(attempt.ballot, attempt.ballot, None, {}))
        lie.world.settle(arrives, ticks=1)
        lie.world.lose(lambda one: not arrives(one))
    assert (own, objected) == (BALLOTS_OF_OTHERS, MAX_OBJECTIONS)
    assert not any(mute(lie.world, node) for node in range(9))
    assert leader.view is not None
    assert leader.view.id != lie.view.id


def test_the_bound_of_a_view_is_above_all_that_one_member_can_take() -> None:
    """Each part at its longest: a pause of a leader has at most 1 + 4/3 times `answer_after`."""
    answer_after = 300
    watch = LeaderWatch(1, answer_after, 1)
    pause = answer_after + 4 * (answer_after // 3)
    ballots = BALLOTS_OF_OTHERS * 2 * answer_after
    objections = MAX_OBJECTIONS * (answer_after + pause)
    ways = MAX_WAYS_GIVEN * pause
    assert ballots + objections + ways < watch.view_bound
    assert VIEW * 18 * answer_after == watch.view_bound - 1


# -- newcomers -------------------------------------------------------------------------------------


def run_beside(world: Members, lie: Callable[[], None], done: Callable[[], bool]) -> None:
    """Let time pass; what is sent to nodes that do not exist is lost."""
    count = len(world.members)
    for _ in range(4 * BOUND // TICK):
        lie()
        world.settle(lambda one: one.to < count, ticks=1)
        world.lose(lambda one: one.to >= count)
        if done() or any(mute(world, node) for node in range(count)):
            return


def is_small(message: object) -> bool:
    """What can be encoded: views that tell of at most 100 streams."""
    return not (isinstance(message, Install) and sum(map(len, message.ends.values())) > 100)


def test_a_member_that_fills_the_list_of_newcomers_keeps_none_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is faster than the newcomer each time: the list is full before that one asks again."""
    monkeypatch.setattr(admission, "MAX_ENTERING", 16)
    monkeypatch.setattr(admission, "SHARE", 4)
    world = world_of(4)
    joiner, leader = newcomer(world, 1), world.members[0]
    take_packet, ghosts, flooded = leader.on_packet, 0, set[ViewId]()

    def fill() -> None:
        nonlocal ghosts
        if leader.view is None or leader.view.id in flooded:
            return
        flooded.add(leader.view.id)
        for _ in range(16):
            ghosts += 1
            ghost = Enter(Who(f"ghost{ghosts}", str(10_000 + ghosts), 1), -1)
            take_packet(ghost, 3, world.members[3].seal(), world.now)

    def be_faster(message: Any, source: NodeId, seal: Seal, now: Time) -> None:
        fill()
        take_packet(message, source, seal, now)
        fill()

    leader.on_packet = be_faster  # type: ignore[method-assign]
    run_beside(world, fill, lambda: joiner.view is not None)
    assert ghosts >= 16
    assert joiner.view is not None
    assert not any(mute(world, node) for node in range(5))


def test_a_request_that_fits_into_no_view_keeps_no_newcomer_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later life of the newcomer's process, invented, with more of a past than a view has."""
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 100)
    world = world_of(4)
    joiner, leader = newcomer(world, 1), world.members[0]
    past = {"t": tuple((Stream(slot, 1), 1) for slot in range(400))}
    told: set[ViewId] = set()

    def say(enter: Enter) -> None:
        leader.on_packet(enter, 3, world.members[3].seal(), world.now)

    def one_more() -> None:
        if leader.view is not None and leader.view.id not in told:
            told.add(leader.view.id)
            say(Enter(Who(f"ghost{len(told)}", str(10_000 + len(told)), 1), -1))

    one_more()
    say(Enter(Who("n4.9", "4", 9), -1, past))
    run_beside(world, one_more, lambda: joiner.view is not None)
    assert joiner.view is not None
    assert leader.marks["asked whether a newcomer is there"] > 0
    assert not any(mute(world, node) for node in range(5))


@pytest.mark.parametrize("uid", ["ghost", "n4", "n4.9"])
def test_a_large_request_at_an_address_does_not_keep_the_newcomer_there_out(
    uid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before each decision; no view with such a past can be told."""
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 100)
    world = world_of(4)
    joiner, leader = newcomer(world, 1, 2), world.members[0]
    take_packet = leader.on_packet
    large = {"t": tuple((Stream(slot, 1), 1) for slot in range(120))}
    for member in world.members[:4]:
        member._can_tell = is_small

    def be_faster(message: Any, source: NodeId, seal: Seal, now: Time) -> None:
        if source == 3 and isinstance(message, Report):
            ghost = Enter(Who(uid, joiner.who.address, 1), -1, large)
            take_packet(ghost, 3, world.members[3].seal(), now)
        take_packet(message, source, seal, now)

    leader.on_packet = be_faster  # type: ignore[method-assign]
    run_beside(world, lambda: None, lambda: joiner.view is not None)
    assert joiner.view is not None
    assert leader.marks["newcomers too large for a view"] == 0
    assert not any(mute(world, node) for node in range(4))


def test_pasts_that_are_too_large_together_keep_no_small_newcomer_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each past is ordinary; the view with all of them cannot be told, with half of them it can."""
    world = world_of(4)
    leader = world.members[0]
    for member in world.members[:4]:
        member._can_tell = is_small
    joiner = newcomer(world, 1, 2)
    world.settle(kind("enter"), ticks=1)
    for number in range(20):
        past = {f"t{number}": tuple((Stream(slot, 7), 1) for slot in range(10))}
        ghost = Enter(Who(f"ghost{number}", str(10_000 + number), 1), -1, past)
        leader.on_packet(ghost, 3, world.members[3].seal(), world.now)
    run_beside(world, lambda: None, lambda: joiner.view is not None)
    assert joiner.view is not None
    assert joiner.view.epoch <= 2
    assert leader.marks["half of the newcomers left for a later view"] == 1
    assert leader.marks["disbelieved"] == 0


def test_a_member_that_has_others_name_its_newcomers_keeps_none_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It invents newcomers to each member, which pass them on: also the joiner's only seed."""
    monkeypatch.setattr(admission, "MAX_ENTERING", 16)
    monkeypatch.setattr(admission, "SHARE", 4)
    monkeypatch.setattr(admission, "MAX_PASSED", 2)
    world = world_of(4)
    joiner, leader = newcomer(world, 1), world.members[0]
    take_packet, ghosts = leader.on_packet, 0

    def fill() -> None:
        nonlocal ghosts
        for via in (0, 1, 2):
            for _ in range(6):
                ghosts += 1
                ghost = Enter(Who(f"ghost{ghosts}", str(10_000 + ghosts), 1), -1)
                take = world.members[via].on_packet if via else take_packet
                take(ghost, 3, world.members[3].seal(), world.now)
        at_once = [one for one in world.flying if one.to == 0 and isinstance(one.message, Enter)]
        world.lose(lambda one: one in at_once)
        for one in at_once:
            take_packet(one.message, one.source, one.seal, world.now)

    def be_faster(message: Any, source: NodeId, seal: Seal, now: Time) -> None:
        fill()
        take_packet(message, source, seal, now)

    leader.on_packet = be_faster  # type: ignore[method-assign]
    run_beside(world, fill, lambda: joiner.view is not None)
    assert joiner.view is not None
    assert world.members[1].marks["entry not passed on"] > 0
    assert leader.marks["newcomer crowded out"] > 0
    assert not any(mute(world, node) for node in range(4))


def test_a_cluster_that_is_full_calls_no_leader_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes are honest; one more asks for a place than there are slots."""
    monkeypatch.setattr(agreement, "MAX_SLOTS", 5)
    world = world_of(4)
    one, other = newcomer(world, 1, 2), newcomer(world, 1, 2)
    for _ in range(4 * BOUND // TICK):
        world.settle(ticks=1)
    assert sorted(member.view is not None for member in (one, other)) == [False, True]
    assert not any(mute(world, node) for node in range(6))
    leader = world.members[0]
    assert leader.marks["no slot for a newcomer"] > 0
    assert leader.marks["led"] < 4, "no view after view"


def test_a_newcomer_that_is_too_large_does_not_cost_a_view_each_time_it_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 100)
    world = world_of(4)
    large = newcomer(world, 0, 1, 2, 3)
    past = {"t": tuple((Stream(slot, 1), 1) for slot in range(100))}

    def request(proof: str = "") -> Enter:
        return Enter(large.who, large.node, past, 0, "", proof)

    def can_tell(message: object) -> bool:
        return not (isinstance(message, Install) and message.view.has(large.who.uid))

    large._request = request  # type: ignore[method-assign]
    for member in world.members[:4]:
        member._can_tell = can_tell
    start = world.now
    while world.now - start < VIEW_BOUND:
        world.settle(ticks=1)
    pause = agreement.LARGE_WAITS * EPOCHS.answer_after
    view = world.members[0].view
    assert view is not None
    assert 1 <= view.epoch <= VIEW_BOUND // pause + 1
    assert world.members[0].marks["newcomer too large asks again"] > 0
