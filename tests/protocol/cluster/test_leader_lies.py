"""Lies by which one member tries to have an honest leader called mute, or left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.protocol.cluster import admission, agreement
from cubecast.protocol.cluster.belief import (
    BALLOTS_OF_OTHERS,
    MAX_LEAP,
    MAX_OBJECTIONS,
    MAX_PUSH,
    MAX_WAYS_GIVEN,
    is_near,
    may_follow_other,
    rank,
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


PUSHES = [line + by for line in (MAX_PUSH, MAX_LEAP, 2 * MAX_LEAP) for by in range(-2, 3)]
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


def test_a_leader_that_lies_leaves_room_for_the_next() -> None:
    """It pushes the next in line as far as that one believes it, and dies."""
    toys = Toys(5)
    view = toys.toys[1].epochs.view
    toys.toys[1].epochs.on_prepare(Prepare(Ballot(MAX_LEAP, 0), view.id, 31), 0, 0)
    assert toys.toys[1].epochs.promised == Ballot(MAX_LEAP, 0)
    toys.toys[0].crashed = True
    for node in range(1, 5):
        toys.suspect(node, 0)
    toys.come_to_rest(20)
    assert [sorted(toy.epochs.view.members) for toy in toys.toys[1:]] == [[1, 2, 3, 4]] * 4


@pytest.mark.parametrize("slot", [0, 1, 2, 7])
def test_what_a_leader_can_be_brought_to_leaves_it_ballots(slot: int) -> None:
    view = View(ViewId(3, Ballot(5, 0)), {node: Who(f"n{node}", str(node), 0) for node in range(8)})
    farthest = 5 + MAX_LEAP * rank(view, slot) + MAX_PUSH
    for other in range(8):
        for leads in (True, False):
            if leads and other >= slot:
                continue
            line = next(at for at in range(5 + 9 * MAX_LEAP, 0, -MAX_PUSH) if is_near(
                Ballot(at, other), 5, view, leads))  # fmt: skip
            assert line <= farthest
    assert may_follow_other(Ballot(farthest, 7), 5, view, slot)
    assert not may_follow_other(Ballot(farthest + 1, 7), 5, view, slot)
    assert is_near(Ballot(farthest + MAX_PUSH, slot), 5, view, leads=True)


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
