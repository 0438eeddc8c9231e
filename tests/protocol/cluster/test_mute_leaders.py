"""Leaders that never change the view: others go on without them, and only without such ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from cubecast.protocol.cluster import admission
from cubecast.protocol.cluster.belief import BALLOTS_OF_OTHERS
from cubecast.protocol.cluster.leader_watch import (
    KEEPS_DEAD,
    KEEPS_MEMBER,
    KEEPS_OUT,
    KEEPS_VIEW,
    MAX_SNUBS,
    MAX_WAITING,
    SHARE,
    Duty,
    LeaderWatch,
)
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import (
    Ballot,
    Enter,
    Install,
    Prepare,
    Stuck,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.port import Stream
from support.member_toys import EPOCHS, Flying, Members
from support.patient_members import (
    BOUND,
    MUTE_AFTER,
    PATIENT,
    TICK,
    VIEW_BOUND,
    mute,
    newcomer,
    world_of,
)


def idle(leader: int) -> Callable[[Flying], bool]:
    """A leader that begins nothing: what would make it begin does not get to it."""

    def arrives(one: Flying) -> bool:
        return one.to != leader or not isinstance(one.message, Enter | Stuck)

    return arrives


def run(
    world: Members, done: Callable[[], bool], where: Callable[[Flying], bool], ticks: int = 2000
) -> int:
    """Let time pass until it is done; return how long it took."""
    start = world.now
    for _ in range(ticks):
        world.settle(where, ticks=1)
        world.lose(lambda one: not where(one))
        if done():
            return world.now - start
    return -1


def restarted(world: Members, node: int, *seeds: int) -> Member:
    """Another process at the address of a node; it asks the `seeds` for a place."""
    member = Member(
        node,
        world.ports[node],
        view=None,
        who=Who("again", str(node), 1),
        config=PATIENT,
        epochs=EPOCHS,
        seeds=[str(seed) for seed in seeds],
        now=world.now,
    )
    world.members[node] = member
    return member


def asked(world: Members) -> int:
    """How often the members asked the leader to lead."""
    return sum(member.marks["asked the leader to lead"] for member in world.members)


# -- the lies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "seed"), [(2, 1), (3, 1), (3, 2), (4, 3)])
def test_a_leader_that_lets_no_node_in_is_gone_on_without(nodes: int, seed: int) -> None:
    world = world_of(nodes)
    joiner = newcomer(world, 0, seed)
    took = run(world, lambda: joiner.view is not None, idle(0))
    assert BOUND <= took <= 2 * BOUND
    assert joiner.view is not None
    honest = set(range(1, nodes + 1))
    assert {who.uid for who in joiner.view.members.values()} >= {f"n{node}" for node in honest}
    assert mute(world, 1) in ([(0, KEEPS_OUT)], [(0, KEEPS_VIEW)]), "the next in line tells"
    assert all(member.marks["mute leader"] <= 1 for member in world.members)


@pytest.mark.parametrize("excluded", [True, False])
def test_a_leader_that_lets_no_restarted_process_in_is_gone_on_without(excluded: bool) -> None:
    """At the address of a node that was excluded, or of a member that nobody suspects yet."""
    world = world_of(4)
    if excluded:
        world.down.add(3)
        world.suspect(3)
        world.settle()
    world.down.discard(3)
    again = restarted(world, 3, 1, 2)
    took = run(world, lambda: again.view is not None, idle(0))
    assert BOUND <= took <= 2 * BOUND
    assert again.view is not None
    assert again.view.has("again")
    assert world.members[1].marks["member asked whether a newcomer is there"] > 0
    assert mute(world, 1) in ([(0, KEEPS_OUT)], [(0, KEEPS_VIEW)]), "the next in line tells"


def test_a_restarted_process_that_does_not_exist_has_no_leader_called_mute() -> None:
    world = world_of(4)
    start = world.now
    while world.now - start < 2 * BOUND:
        ghost = Enter(Who("ghost", "2", 5), -1)
        world.ports[3].control(1, ghost)
        world.settle(ticks=1)
    assert all(member.marks["asked the leader to lead"] == 0 for member in world.members)
    assert world.masks() == [0b1111] * 4


def test_without_the_bound_it_keeps_them_out_for_ever() -> None:
    world = world_of(3, patient=False)
    joiner = newcomer(world, 0, 1)
    assert run(world, lambda: joiner.view is not None, idle(0), ticks=4000) == -1


def halves(patient: bool) -> Members:
    """Nodes 0 and 1 in one view, 2 and 3 in another."""
    world = world_of(4, patient)

    def apart(one: Flying) -> bool:
        return (one.source < 2) == (one.to < 2)

    for whom, by in (((2, 3), (0, 1)), ((0, 1), (2, 3))):
        for node in whom:
            world.suspect(node, *by)
    run(world, lambda: world.masks() == [0b11, 0b11, 0b1100, 0b1100], apart)
    assert world.masks() == [0b11, 0b11, 0b1100, 0b1100]
    return world


def together(world: Members, *nodes: int) -> bool:
    views = [world.members[node].view for node in nodes]
    first = views[0]
    return first is not None and all(
        view is not None and view.id == first.id and len(view.members) >= len(nodes)
        for view in views
    )


def test_a_leader_with_the_lowest_slot_does_not_keep_two_halves_apart() -> None:
    world = halves(patient=True)
    took = run(world, lambda: together(world, 1, 2, 3), idle(0))
    assert BOUND <= took <= 2 * BOUND
    assert mute(world, 1) == [(0, KEEPS_OUT)]
    assert world.members[1].marks["excluded"] == 0, "the honest node of its half kept its life"


def test_without_the_bound_the_halves_stay_apart() -> None:
    world = halves(patient=False)
    assert run(world, lambda: together(world, 1, 2, 3), idle(0), ticks=4000) == -1


def test_a_leader_that_excludes_no_dead_node_is_gone_on_without() -> None:
    world = world_of(4)
    world.down.add(3)
    world.suspect(3, 1, 2)
    took = run(world, lambda: together(world, 1, 2) and 0b110 in world.masks(), idle(0))
    assert BOUND <= took <= 2 * BOUND
    assert mute(world, 1) == [(0, KEEPS_DEAD)]


def test_a_leader_that_begins_a_change_and_never_ends_it_is_gone_on_without() -> None:
    """It takes ballot after ballot: a few of them excuse it."""
    world = world_of(3)
    view = world.members[0].view
    assert view is not None

    def lie() -> None:
        prepare = Prepare(Ballot(world.now, 0), view.id, view.mask)
        for node in (1, 2):
            world.ports[0].control(node, prepare)

    def arrives(one: Flying) -> bool:
        return one.to != 0

    started = world.now
    for _ in range(20 * BOUND // TICK):
        if world.now % (BOUND // 2) < TICK:
            lie()
        world.settle(arrives, ticks=1)
        world.lose(lambda one: not arrives(one))
        if together(world, 1, 2) and world.masks()[1] == 0b110:
            break
    assert world.masks()[1] == 0b110
    assert world.now - started <= VIEW_BOUND + BOUND
    assert mute(world, 1) == [(0, KEEPS_VIEW)]


def test_a_mute_leader_comes_back_and_leads_no_more() -> None:
    world = world_of(3)
    joiner = newcomer(world, 1)
    run(world, lambda: joiner.view is not None, idle(0))
    former = world.members[0]
    back = world.now

    def arrives(
        one: Flying,
    ) -> bool:  # a node's slot is its number in this world: stop at its return
        return one.source != 0 or one.message.kind in ("enter", "beacon")

    run(world, lambda: former.who.uid == "n0.1" and former.view is not None, arrives)
    assert world.now - back <= 2 * EPOCHS.beacon_every, "it was told, and let in at once"
    assert former.view is not None
    assert sorted(former.view.members) == [1, 2, 3, 4]
    assert former.node == 4, "not in its former place, where it would lead"
    assert world.members[1].marks["mute leader placed behind us"] == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_leader_that_lets_no_node_in_is_gone_on_without_though_the_newcomer_gave_up(
    seed: int,
) -> None:
    world = world_of(3)
    joiner = newcomer(world, seed)
    run(world, lambda: world.now > MUTE_AFTER // 2, idle(0))
    world.down.add(3)
    took = run(world, lambda: world.masks()[1] == 0b110 == world.masks()[2], idle(0))
    assert 0 < took <= 2 * BOUND
    assert joiner.view is None


def test_a_leader_that_lets_no_member_go_is_gone_on_without() -> None:
    world = world_of(4)
    world.members[3].depart(world.now)

    def arrives(one: Flying) -> bool:
        return idle(0)(one) and not (one.to == 0 and one.message.kind == "depart")

    took = run(world, lambda: bool(world.ports[3].of("departed")), arrives)
    assert BOUND <= took <= 2 * BOUND
    assert mute(world, 3) in ([], [(0, KEEPS_MEMBER)])
    assert world.masks()[1] == 0b110


def test_ballots_to_the_next_in_line_alone_have_no_honest_node_excluded() -> None:
    """The next in line sees that the leader leads, for a time; the others see nothing."""
    world = world_of(4)
    joiner = newcomer(world, 2)
    view = world.members[0].view
    assert view is not None
    number = 0
    for _ in range((VIEW_BOUND + 2 * BOUND) // TICK):
        if world.now % (BOUND // 2) < TICK and not mute(world, 1):
            number += 10
            lie = Prepare(Ballot(number, 0), view.id, view.mask)
            world.ports[0].control(1, lie)
        world.settle(idle(0), ticks=1)
        world.lose(lambda one: not idle(0)(one))
        if joiner.view is not None:
            break
    assert joiner.view is not None
    assert sorted(joiner.view.members) == [1, 2, 3, 4]
    assert [mute(world, node)[:1] != [] for node in (1, 2)] == [True, True]
    assert all(slot == 0 for node in range(4) for slot, _ in mute(world, node))
    assert world.members[1].who.uid == "n1"


# -- honest leaders --------------------------------------------------------------------------------


def test_a_slow_leader_is_not_called_mute() -> None:
    """What it is asked gets to it late: less late than the bound, and more than `mute_after`."""
    world = world_of(3)
    joiner = newcomer(world, 1)
    slow: list[tuple[int, Flying]] = []
    for _ in range(3 * BOUND // TICK):
        late = [one for one in world.flying if one.to == 0]
        world.lose(lambda one: one.to == 0)
        slow += [(world.now + 2 * MUTE_AFTER, one) for one in late]
        due = [one for at, one in slow if at <= world.now]
        slow = [(at, one) for at, one in slow if at > world.now]
        for one in due:
            world.members[0].on_packet(one.message, one.source, one.seal, world.now)
        world.settle(lambda one: one.to != 0, ticks=1)
    assert asked(world) > 0
    assert all(member.marks["mute leader"] == 0 for member in world.members)
    assert joiner.marks["mute leader"] == 0


@pytest.mark.parametrize("whom", [2, 3])
def test_a_leader_that_hears_whom_a_member_takes_for_dead_is_not_called_mute(whom: int) -> None:
    """It makes a view when it is asked to, with the same members; so the change stays due."""
    world = world_of(4)
    world.suspect(whom, 1)
    for _ in range(6 * BOUND // TICK):
        world.settle(ticks=1)
    assert 4 <= asked(world) <= 40, "less and less often"
    assert all(member.marks["mute leader"] == 0 for member in world.members)
    assert [member.who.uid for member in world.members] == ["n0", "n1", "n2", "n3"]
    assert world.masks() == [0b1111] * 4


def test_invented_newcomers_have_no_honest_leader_excluded() -> None:
    """A member names nodes that do not exist, to all others; the leader lets them in.

    They never answer, so that views come late: only when the others ask for them.
    """
    world = world_of(4)
    for step in range(4 * BOUND // TICK):
        for node in (1, 2):
            number = 90 + step // 4
            ghost = Who(f"ghost{number}", f"{number}", 1)
            world.ports[3].control(node, Enter(ghost, -1))
        world.settle(lambda one: one.to < 4, ticks=1)
        world.lose(lambda one: one.to >= 4)
    assert asked(world) > 0
    assert all(member.marks["mute leader"] == 0 for member in world.members)
    assert all(member.who.uid == f"n{node}" for node, member in enumerate(world.members))
    assert 0 in (world.members[1].view or View(ViewId(0, Ballot(0, 0)), {})).members


def test_a_member_that_takes_the_lead_does_not_have_the_leader_excluded() -> None:
    """It asks the leader alone for ballot after ballot: the others see that nothing is done."""
    world = world_of(3)
    joiner = newcomer(world, 1)
    view = world.members[0].view
    assert view is not None
    ballots = 0
    for _ in range(3 * BOUND // TICK):
        if world.now % (2 * EPOCHS.answer_after - TICK) < TICK and ballots <= BALLOTS_OF_OTHERS:
            ballots += 1
            world.ports[2].control(0, Prepare(Ballot(100 * ballots, 2), view.id, view.mask))
        world.settle(lambda one: not (one.to == 2 and one.source == 0), ticks=1)
        world.lose(lambda one: one.to == 2 and one.source == 0)
    assert ballots > BALLOTS_OF_OTHERS
    assert asked(world) > 0
    assert world.members[1].marks["mute leader"] == 0
    assert joiner.view is not None
    assert 0 in joiner.view.members


def test_a_newcomer_too_large_for_a_view_has_no_honest_leader_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All nodes are honest; the view with what it has read is just above what can be encoded."""
    monkeypatch.setattr(admission, "MAX_PAST", 64 * 100)
    world = world_of(4)
    large, small = newcomer(world, 0, 1, 2, 3), newcomer(world, 1)
    past = {"t": tuple((Stream(slot, 1), 1) for slot in range(100))}

    def request(proof: str = "") -> Enter:
        return Enter(large.who, large.node, past, 0, "", proof)

    def can_tell(message: object) -> bool:
        return not (isinstance(message, Install) and message.view.has(large.who.uid))

    large._request = request  # type: ignore[method-assign]
    for member in world.members[:4]:
        member._can_tell = can_tell
    for _ in range(2 * VIEW_BOUND // TICK):
        world.settle(ticks=1)
    assert all(member.marks["mute leader"] == 0 for member in world.members)
    assert [member.who.uid for member in world.members[:4]] == ["n0", "n1", "n2", "n3"]
    assert world.members[0].marks["newcomers too large for a view"] > 0
    assert large.view is None
    assert small.view is not None


@pytest.mark.parametrize("asks", [True, False])
def test_a_ballot_that_is_repeated_does_not_have_the_leader_excluded(asks: bool) -> None:
    """A member asks the leader alone for one ballot, again and again, and does nothing with it."""
    world = world_of(4)
    if asks:
        newcomer(world, 1)
    view = world.members[0].view
    assert view is not None

    def arrives(one: Flying) -> bool:
        return one.source != 3 and one.to < 5

    for _ in range(4 * BOUND // TICK):
        if world.now % EPOCHS.answer_after < TICK:
            lies = [(0, Prepare(Ballot(50, 3), view.id, view.mask)), (1, Stuck(view.id))]
            for to, lie in lies:
                seal = world.members[3].seal()
                world.members[to].on_packet(lie, 3, seal, world.now)
        world.settle(arrives, ticks=1)
        world.lose(lambda one: not arrives(one))
    assert all(member.marks["mute leader"] == 0 for member in world.members)
    assert world.members[0].marks["led"] > 0
    assert 0 in (world.members[1].view or View(ViewId(0, Ballot(0, 0)), {})).members


def test_a_mute_leader_does_not_hold_the_next_one_by_a_ballot() -> None:
    """As soon as it is called mute it asks for one ballot again and again, or for higher ones."""
    for step in (0, 1):
        world = world_of(3)
        joiner = newcomer(world, 1)
        view = world.members[0].view
        assert view is not None

        def arrives(one: Flying) -> bool:
            return idle(0)(one) and not (one.source == 0 and one.message.kind == "report")

        number = 1000
        for _ in range(2 * BOUND // TICK):
            if mute(world, 1) or mute(world, 2):
                number += step
                for node in (1, 2):
                    lie = Prepare(Ballot(number, 0), view.id, view.mask)
                    world.ports[0].control(node, lie)
            world.settle(arrives, ticks=1)
            world.lose(lambda one: not arrives(one))
            if joiner.view is not None:
                break
        assert joiner.view is not None
        marks = [world.members[node].marks["ballot of a mute leader"] for node in (1, 2)]
        assert sum(marks) > 0 or step == 0


def test_a_leader_asks_for_ballots_of_its_own_only() -> None:
    """Else it would make views in the name of another, and leave newcomers out unseen."""
    world = world_of(3)
    one, view = world.members[1], world.members[1].view
    assert view is not None
    lie = Prepare(Ballot(9, 2), view.id, view.mask)
    one.on_packet(lie, 0, world.members[0].seal(), world.now)
    assert one.marks["ballot of another's"] == 1
    assert one.marks["disbelieved"] == 1
    assert not world.flying, "as if it were lost"


# -- the watch by itself ---------------------------------------------------------------------------


def watch() -> LeaderWatch:
    return LeaderWatch(80, 5, 2)


def looks(one: LeaderWatch, start: int, until: int, due: str = "") -> list[Duty]:
    """What it says at each of its looks in this time."""
    one.begin(0, bool(due), start)
    return [
        one.look(0, due, 3, now)
        for now in range(start, until)
        if one.look_at is not None and one.look_at <= now
    ]


def test_it_asks_before_it_leaves() -> None:
    said = looks(watch(), 0, 300, KEEPS_DEAD)
    assert said[:8] == [Duty.WAIT] * 8
    asked = said.index(Duty.LEAVE) - said.index(Duty.ASK)
    assert asked >= 4
    assert Duty.WAIT not in said[8:][1 : asked + 1]


def test_a_pause_of_its_own_does_not_count() -> None:
    one = watch()
    looks(one, 0, 100, KEEPS_DEAD)
    before = one.waited(100)
    assert one.look(0, KEEPS_DEAD, 3, 1000) is not Duty.LEAVE
    assert one.waited(1000) <= before + 20


def until_left(one: LeaderWatch, start: int, due: str = "", leader: int = 0) -> int:
    """When it leaves the leader."""
    one.begin(leader, bool(due), start)
    for now in range(start, start + 100_000):
        if one.look_at is None:
            break
        if one.look_at <= now and one.look(leader, due, 3, now) is Duty.LEAVE:
            return now
    return -1


def test_a_ballot_that_is_repeated_excuses_once() -> None:
    once, again = watch(), watch()
    for one in (once, again):
        looks(one, 0, 100, KEEPS_DEAD)
        one.led(Ballot(5, 0), 100)
    again.led(Ballot(5, 0), 200)
    assert until_left(once, 200, KEEPS_DEAD) == until_left(again, 200, KEEPS_DEAD)


def test_ballots_without_a_view_excuse_for_so_long() -> None:
    one = watch()
    one.begin(0, True, 0)
    for now in range(2 * one.view_bound):
        one.led(Ballot(now, 0), now)
        due = one.look_at is not None and one.look_at <= now
        if due and one.look(0, KEEPS_DEAD, 3, now) is Duty.LEAVE:
            break
    assert one.view_bound <= now <= one.view_bound + 20


def test_another_leader_has_as_long_as_the_first() -> None:
    """The first one is suspected, and no view has come."""
    one = watch()
    looks(one, 0, one.bound - 20, KEEPS_DEAD)
    one.begin(1, True, one.bound)
    assert one.waited(one.bound) == 0
    assert until_left(one, one.bound, KEEPS_DEAD, leader=1) >= 2 * one.bound


def test_views_without_a_newcomer_count_for_the_leader_that_made_them() -> None:
    one = watch()
    for now in range(2 * one.bound):
        one.passed_on("a", now)
        one.begin(0, False, now)
    for step in range(MAX_SNUBS):
        leader = 0 if step < MAX_SNUBS - 1 else 1
        one.passed_on("a", now)
        one.new_view(View(ViewId(step, Ballot(step, leader)), {1: Who("x", "x", 0)}), leader, now)
        one.begin(1 if step >= MAX_SNUBS - 2 else 0, False, now)
    assert one.look(1, "", 3, now) is Duty.WAIT


def test_the_next_leader_is_waited_for_longer_than_any_member_for_the_first() -> None:
    """The next in line may have seen ballots that excuse the first one, up to `view_bound`."""
    one = watch()
    left = until_left(one, 0, KEEPS_DEAD)
    one.next_leader()
    again = until_left(one, left, KEEPS_DEAD, leader=1)
    assert again > one.bound + one.view_bound + one._rest // 2
    one.new_view(View(ViewId(1, Ballot(1, 2)), {2: Who("x", "x", 0)}), 1, again)
    assert until_left(one, again, KEEPS_DEAD, leader=2) <= again + one.bound + 100


def test_a_newcomer_that_no_longer_asks_is_forgotten_with_the_next_view() -> None:
    """Before, the leader has let no node in: it is asked to lead, and mute if it does not."""
    one = watch()
    one.passed_on("a", 0)
    assert Duty.LEAVE in looks(one, 0, 400)
    one = watch()
    one.passed_on("a", 0)
    looks(one, 0, 100)
    one.new_view(View(ViewId(1, Ballot(1, 0)), {0: Who("x", "x", 0)}), 0, 100)
    assert looks(one, 100, 400)[-1] is Duty.WAIT
    assert one.look_at is None
    assert not one.reason


def test_a_newcomer_of_a_large_cluster_is_not_remembered_for_long() -> None:
    one = watch()
    one.passed_on("a", 0)
    one.begin(0, False, 0)
    one.new_view(View(ViewId(1, Ballot(1, 0)), {0: Who("x", "x", 0)}), 0, 0)
    for now in range(10_000):
        if one.look_at is not None and one.look_at <= now:
            one.look(0, "", 4000, now)
    assert one.look_at is None


def test_it_remembers_so_many_newcomers() -> None:
    one = watch()
    for number in range(2 * MAX_WAITING):
        one.passed_on(str(number), number)
    assert len(one._newcomers) == MAX_WAITING


def test_it_remembers_so_many_newcomers_that_one_member_named() -> None:
    one = watch()
    for number in range(2 * MAX_WAITING):
        one.passed_on(str(number), number, "n1")
    assert len(one._newcomers) == SHARE
    one.passed_on("a", 0)
    assert "a" in one._newcomers


@pytest.mark.parametrize("first", [0, 600])
def test_invented_newcomers_push_out_none_that_asks_again_and_again(first: int) -> None:
    """A leader that lies makes views, and has a member flooded with newcomers that ask once."""
    one, step = watch(), 0
    for now in range(0, one.bound * 20, 5):
        if now % 40 == 0 and now >= first:
            one.passed_on("a", now)
        if now % 40 == 20:
            for ghost in range(MAX_WAITING):
                one.passed_on(f"{now}/{ghost}", now)
        one.begin(0, False, now)
        if now % (one.bound // 2) < 5:
            step += 1
            here = {0: Who("x", "x", 0)}
            one.new_view(View(ViewId(step, Ballot(step, 0)), here), 0, now)
        looks_now = one.look_at is not None and one.look_at <= now
        if looks_now and one.look(0, "", 3, now) is Duty.LEAVE:
            break
    else:
        pytest.fail("the leader is never called mute")
    assert one.reason == KEEPS_OUT


def test_a_leader_that_leaves_one_newcomer_out_of_view_after_view_is_mute() -> None:
    one, said = watch(), []
    for now in range(0, one.bound * 3, 2):
        one.passed_on("a", now)
        one.begin(0, False, now)
        if now % 50 == 0:
            one.new_view(View(ViewId(now, Ballot(now, 0)), {0: Who("x", "x", 0)}), 0, now)
        if one.look_at is not None and one.look_at <= now:
            said.append(one.look(0, "", 3, now))
        if Duty.LEAVE in said:
            break
    assert one.bound + MAX_SNUBS * 50 - 50 <= now <= one.bound + MAX_SNUBS * 50 + 60


def test_what_stays_due_is_asked_for_after_longer_and_longer() -> None:
    """The leader leads, and does not think that the node is dead."""
    one = watch()
    asked = []
    one.begin(0, True, 0)
    for now in range(5000):
        due = one.look_at is not None and one.look_at <= now
        if due and one.look(0, KEEPS_DEAD, 3, now) is Duty.ASK:
            asked.append(now)
            one.new_view(View(ViewId(now, Ballot(now, 0)), {0: Who("x", "x", 0)}), 0, now)
    gaps = [later - sooner for sooner, later in pairwise(asked)]
    assert gaps[0] >= 160
    assert gaps[-1] >= 16 * 80
