"""Which member is accused for a wave that waits; and numbers of a liar that must not stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cubecast.net.wire.packets import (
    MAX_NUMBER,
    FrameDecoder,
    OutgoingFrame,
    WireError,
    encode_frame,
    topic_id,
)
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.messages import (
    Answer,
    Frame,
    Mute,
    Op,
    Parcel,
    ParcelAck,
    Route,
    Stable,
    Wave,
)
from cubecast.protocol.port import Stream
from cubecast.topology import parent
from support.member_toys import CONFIG, Flying, Members, both, kind, link
from support.ports import Page

PATIENT = 400
ROOM = "room"
WAITING = replace(CONFIG, resend_max=100, mute_after=PATIENT)


def party(nodes: int, members: int = 0) -> Members:
    """Nodes that wait for answers for a while; `members` are in "t"."""
    return Members(nodes, members, config=WAITING)


def answers_of(*nodes: int) -> Any:
    """What these nodes answer to waves."""

    def chosen(one: Flying) -> bool:
        carried = getattr(one.message, "message", None)
        return one.source in nodes and isinstance(carried, Answer)

    return chosen


def but(condition: Any) -> Any:
    """Everything else is handed over; this is lost."""
    return lambda one: not condition(one)


def settle(world: Members, lost: Any, ticks: int) -> None:
    for _ in range(ticks):
        world.lose(lost)
        world.settle(but(lost), ticks=1)


def accusations(world: Members) -> set[tuple[int, int]]:
    """Pairs (accused, accuser) that any node was told of."""
    return {(one[0], one[1]) for port in world.ports for one in port.of("mute")}


def went_on_without(world: Members, mute: int) -> bool:
    """Whether all others were in a view without a node; it may be back since."""
    rest = (1 << len(world.ports)) - 1 & ~(1 << mute)
    others = [port for node, port in enumerate(world.ports) if node != mute]
    return all(rest in {mask for _, mask in port.of("view")} for port in others)


@pytest.mark.parametrize("mute", range(1, 8))
def test_the_mute_node_is_accused_by_its_parent_and_no_other_node_is(mute: int) -> None:
    """Eight nodes, so the tree of node 0 has three levels; relays wait for those below them."""
    world = party(8)
    world.members[0].subscribe(ROOM, world.now)
    settle(world, answers_of(mute), 3 * PATIENT // 5)
    assert {slot for slot, _ in accusations(world)} == {mute}
    assert ("joined", ROOM) in world.ports[0].said
    assert went_on_without(world, mute)


def test_two_mute_nodes_in_one_subtree_are_both_found() -> None:
    world = party(8)
    world.members[0].subscribe(ROOM, world.now)
    settle(world, answers_of(6, 7), 6 * PATIENT // 5)
    assert {slot for slot, _ in accusations(world)} == {6, 7}
    assert ("joined", ROOM) in world.ports[0].said


def test_a_member_that_answers_just_in_time_is_not_accused() -> None:
    world = party(8)
    world.members[0].subscribe(ROOM, world.now)
    settle(world, answers_of(7), PATIENT // 5 - 25)  # it says so again every 100 or before
    world.settle(ticks=100)
    assert not accusations(world)
    assert ("joined", ROOM) in world.ports[0].said


def test_a_node_that_was_paused_itself_accuses_no_other() -> None:
    """Its clock jumps; the answers lie unread, and are looked at after the timers."""
    world = party(2)
    world.members[0].subscribe(ROOM, world.now)
    settle(world, answers_of(1), 20)
    world.now += 10 * PATIENT
    world.members[0].on_wake(world.now)
    assert not accusations(world)
    world.settle()
    assert not accusations(world)
    assert ("joined", ROOM) in world.ports[0].said


def test_an_invalid_accusation_is_ignored() -> None:
    """The accuser itself, a node that is no member, another view."""
    world = party(4)
    core = world.members[0].core
    assert core is not None
    for number, words in enumerate(
        [Mute(ROOM, 3, 9, 0), Mute(ROOM, 9, 9, 0), Mute(ROOM, 0, 9, 0), Mute(ROOM, 2, 9, 7)]
    ):
        core.on_message(Parcel(number, words), 3, world.now)
    world.settle()
    assert not accusations(world)
    assert set(world.masks()) == {0b1111}


def test_a_mute_leader_is_succeeded() -> None:
    world = party(4)
    world.members[2].subscribe(ROOM, world.now)
    settle(world, answers_of(0), 3 * PATIENT // 5)
    assert ("joined", ROOM) in world.ports[2].said
    assert went_on_without(world, 0)


def test_the_last_of_all_goes_on_alone() -> None:
    """With one taken for dead already, the first accusation changes the view at once."""
    world = party(3)
    world.members[0].subscribe(ROOM, world.now)
    lost = answers_of(1, 2)
    core = world.members[0].core
    assert core is not None
    for slot in (1, 2):
        core.on_message(Parcel(0, Mute(ROOM, slot, PATIENT, 0)), 3 - slot, world.now)
    settle(world, lost, PATIENT // 20 - 1)  # both are asked, and do not answer
    world.suspect(2, 0)
    world.settle(lambda _: False, ticks=5)
    assert ("view", 1, 0b001) in world.ports[0].said
    assert ("joined", ROOM) in world.ports[0].said


def test_a_member_that_acknowledges_nothing_is_mute() -> None:
    world = party(4)
    world.members[0].subscribe(ROOM, world.now)

    def lost(one: Flying) -> bool:
        return one.source == 3 and isinstance(one.message, Parcel | ParcelAck)

    settle(world, lost, 3 * PATIENT // 5)
    assert {slot for slot, _ in accusations(world)} == {3}
    assert ("joined", ROOM) in world.ports[0].said


# -- lies ------------------------------------------------------------------------------------------


def changed(world: Members, node: int, **changes: Any) -> None:
    """Have the answers of a node that fly now say something else."""
    for index, one in enumerate(world.flying):
        if answers_of(node)(one):
            assert isinstance(one.message, Parcel)
            answer = msgspec.structs.replace(one.message.message, **changes)
            world.flying[index] = one._replace(message=Parcel(one.message.number, answer))


def lie(world: Members, node: int, ticks: int = 40, **changes: Any) -> None:
    """Let time pass while a node's answers are changed."""
    for _ in range(ticks):
        for _ in range(100):
            changed(world, node, **changes)
            if not world.hand_over():
                break
        world.settle(lambda _: False, ticks=1)


def test_a_claim_that_its_publisher_denies_is_ignored_and_told() -> None:
    world = party(4)
    assert not world.publish(1, "first", ROOM)  # it asks for subscribers
    world.settle(ticks=5)
    assert world.publish(1, "first", ROOM)
    stream = Stream(1, 0)
    world.members[0].subscribe(ROOM, world.now)
    lie(world, 3, vector=((stream, 10**9),))
    assert world.ports[0].of("denied") == [(ROOM, 1, 10**9, 0, 2)]
    assert world.publish(1, "second", ROOM)
    world.settle()
    assert world.ports[0].delivered(ROOM) == ["second"]


def test_a_claim_of_what_was_published_since_is_confirmed() -> None:
    """Node 3 has read what node 1 published after it had answered: that is in the cut."""
    world = party(4)
    world.members[3].subscribe(ROOM, world.now)
    world.settle(ticks=5)
    world.publish(1, "first", ROOM)
    world.settle(ticks=5)
    world.members[0].subscribe(ROOM, world.now)
    world.hand_over(link(0, 1))
    assert world.publish(1, "second", ROOM)
    to_newcomer = both(link(1, 0), kind("pub"))
    for _ in range(20):
        world.lose(to_newcomer)
        world.settle(but(to_newcomer), ticks=1)
    assert world.members[0].marks["asked publishers to confirm a cut"] == 1
    assert ("joined", ROOM) in world.ports[0].said
    assert not world.ports[0].of("denied")
    world.publish(1, "third", ROOM)
    world.settle()
    assert world.ports[0].delivered(ROOM) == ["third"]
    assert world.ports[3].delivered(ROOM)[-2:] == ["second", "third"]


def test_a_node_falsely_named_as_a_subscriber_is_left_out() -> None:
    world = party(4)
    world.members[1].subscribe(ROOM, world.now)
    world.settle(ticks=5)
    world.members[0].register(ROOM, world.now)
    lie(world, 2, members=1 << 3, ticks=5)
    assert world.publish(0, "first", ROOM)
    world.settle(ticks=100)
    core = world.members[0].core
    assert core is not None
    assert core.members(ROOM) == [1]
    assert core.unstable() == 0
    assert world.ports[1].delivered(ROOM) == ["first"]


# -- a relay that lies in its own topic ------------------------------------------------------------


def forged(first: int, stable: int, count: int = 1, size: int = 1) -> Frame:
    """What node 2 may send to node 3 as node 0's, as it is their relay."""
    return Frame("t", Stream(0, 0), first, (), Route(0, 0, 0b1111), stable, ("lie",) * count, size)


def fed_lies(*lies: Any) -> Members:
    """Four members of "t"; node 0 has published, node 2 has told node 3 lies, and dies of it."""
    world = party(4, 0b1111)
    world.publish(0, "first")
    world.settle()
    world.publish(0, "second")
    world.hand_over(link(0, 2))
    world.hand_over(both(link(2, 3), kind("pub")))
    for lie in lies:
        if not isinstance(lie, Frame):
            expected = world.members[3].core._links._link(2).expected  # type: ignore[union-attr]
            lie = Parcel(expected, lie)
        world.members[3].on_message(lie, 2, world.now)
    world.down.add(2)
    world.lose(lambda one: one.source == 2)
    world.suspect(2)
    world.settle(ticks=200)
    return world


@pytest.mark.parametrize(
    "lies",
    [
        [],
        [forged(2**61, 2**61 - 1)],
        [forged(100 * number, -1, size=85) for number in range(1, 4)],
        [Stable("t", Stream(0, 0), 0, 0, 2**61, 0b1111)],
        [forged(3, 2)],
        [forged(3, -1)],
    ],
    ids=[
        "nothing",
        "far ahead and stable",
        "no room is left",
        "all is stable",
        "stable ahead",
        "ahead",
    ],
)
def test_lies_of_a_relay_about_a_publisher_end_with_the_relay(lies: list[Any]) -> None:
    world = fed_lies(*lies)
    assert world.masks() == [0b1011] * 3
    for word in ("third", "fourth", "fifth"):
        assert world.publish(0, word)
        world.settle()
    true = [one for one in world.ports[3].delivered() if one != "lie"]
    assert true == ["first", "second", "third", "fourth", "fifth"]
    assert world.members[0].core.unstable() == 0  # type: ignore[union-attr]


def test_a_reader_of_messages_that_a_dead_relay_invented_reads_the_true_ones() -> None:
    """Node 3 has read four messages that node 0 never published, and has answered them."""
    world = party(4, 0b1111)
    world.publish(0, "first")
    world.settle()
    world.members[3].on_message(forged(1, 0, count=4), 2, world.now)
    assert world.ports[3].delivered() == ["first", *["lie"] * 4]
    world.publish(3, "answer to a lie")
    world.down.add(2)
    world.lose(lambda one: 2 in (one.source, one.to))
    world.suspect(2)
    world.settle(ticks=200)
    assert world.ports[3].of("denied") == [("t", 0, 4, 0, -1)]
    for word in ("second", "third"):
        assert world.publish(0, word)
        world.settle()
    assert world.ports[3].delivered()[-2:] == ["second", "third"]
    assert world.ports[1].delivered() == ["first", "answer to a lie", "second", "third"]
    assert world.members[0].core.unstable() == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("dies", [False, True])
def test_a_message_with_a_cause_that_does_not_exist_is_not_waited_for_for_ever(dies: bool) -> None:
    """Node 2 publishes what comes after message 10^6 of node 0."""
    world = party(4, 0b1111)
    world.publish(0, "first")
    world.settle()
    core = world.members[2].core
    assert core is not None
    core._cores["t"].front.frontier[Stream(0, 0)] = 10**6
    core._cores["t"].front.frontier[Stream(1, 0)] = 5
    core._cores["t"].front.frontier[Stream(3, 0)] = 7
    world.publish(2, "after that")
    if dies:
        world.settle(ticks=2)
        world.down.add(2)
        world.suspect(2)
    world.settle(ticks=400)
    assert world.ports[1].delivered() == ["first", "after that"]
    assert ("t", 0, 10**6, 0, 2) in world.ports[1].of("denied")
    world.members[1].unsubscribe("t", world.now)
    world.settle()
    world.members[1].subscribe("t", world.now)
    world.settle()
    assert world.publish(0, "second")
    world.settle()
    assert world.ports[1].delivered()[-1] == "second"


# -- what is still possible ------------------------------------------------------------------------


def accuse(world: Members, liar: int, victim: int) -> None:
    """Have a node tell the others that one of them is mute, in the view that they are in."""
    core = world.members[liar].core
    assert core is not None
    assert core.view is not None
    for node in range(len(world.members)):
        if node not in (liar, victim):
            core._links.send(node, Mute("t", victim, PATIENT, core.view.epoch), world.now)


def test_a_member_that_accuses_a_member_that_answers_is_excluded_with_it() -> None:
    world = party(4, 0b0111)
    accuse(world, liar=3, victim=2)
    world.settle(ticks=2)
    said = 2, 3, "t", PATIENT
    assert world.ports[0].of("mute") == [(*said, False, ""), (*said, True, "")]
    assert ("view", 1, 0b0011) in world.ports[0].said
    world.settle(ticks=PATIENT // 20)
    assert world.masks() == [0b1111] * 4  # a first dispute keeps neither out
    assert world.publish(0, "all again")
    world.settle()
    assert world.ports[2].delivered() == ["all again"]


def test_a_member_that_accuses_again_and_again_is_kept_out_longer_each_time() -> None:
    world = party(4)
    out: list[int] = []
    for victim in (1, 2, 1, 2):
        accuse(world, liar=3, victim=victim)
        world.settle(ticks=2)
        begin = world.now
        while world.masks() != [0b1111] * 4:
            world.settle(ticks=1)
        out.append((world.now - begin) // PATIENT)
        world.settle()
    assert out == [0, 1, 2, 2]


def test_a_member_that_accuses_all_others_is_excluded_with_one_of_them() -> None:
    """All of them answer all of them; the first answer ends what the liar's word is worth."""
    world = party(6)
    for victim in range(5):
        accuse(world, liar=5, victim=victim)
    world.settle(ticks=3)
    smallest = min(mask.bit_count() for port in world.ports[:5] for _, mask in port.of("view"))
    assert smallest == 4
    assert all(member.marks["disputed mute member"] == 1 for member in world.members[:5])


def test_an_accuser_that_was_denied_is_not_heard_again_in_that_view() -> None:
    """Nor does silence on its other questions count; what another says does."""
    world = party(4)
    core = world.members[0].core
    assert core is not None
    silent = answers_of(2)
    for number, slot in enumerate((1, 2)):
        core.on_message(Parcel(number, Mute("t", slot, PATIENT, 0)), 3, world.now)
    world.hand_over(but(silent))
    world.hand_over(but(silent))
    assert core._mute_members.accused == [(1, 3, "t", PATIENT, False, "")]
    core.on_message(Parcel(2, Mute("t", 2, PATIENT, 0)), 3, world.now)
    assert len(core._mute_members.accused) == 1
    core.on_message(Parcel(1, Mute("t", 2, PATIENT, 0)), 1, world.now)
    assert [one.by for one in core._mute_members.accused] == [3, 1]


def test_a_member_mute_to_one_node_is_excluded_with_it_and_blocks_no_wave() -> None:
    """It answers the nodes that ask it for that reason: both go, and all waves are complete."""
    world = party(4)

    def lost(one: Flying) -> bool:
        carried = getattr(one.message, "message", None)
        return (one.source, one.to) == (3, 2) and isinstance(carried, Answer)

    world.members[2].subscribe(ROOM, world.now)
    settle(world, lost, 3 * PATIENT // 5)
    assert ("view", 1, 0b0011) in world.ports[0].said
    assert {one[4] for port in world.ports for one in port.of("mute")} == {False, True}
    world.settle(ticks=PATIENT)
    assert ("joined", ROOM) in world.ports[2].said
    assert world.masks() == [0b1111] * 4


@pytest.mark.parametrize("pause", [1, 3, 10, 3 * PATIENT // 20])
def test_a_mute_member_is_found_though_its_companion_comes_and_goes(pause: int) -> None:
    """Every exclusion begins all waves anew, but not the time that is waited for one node."""
    world = party(5)
    world.members[0].subscribe(ROOM, world.now)
    ticks = 0
    while ticks < 5 * PATIENT // 5:
        settle(world, answers_of(3), pause)
        world.suspect(4)
        ticks += pause
    assert len(world.ports[0].of("view")) > 6
    assert {slot for slot, _ in accusations(world)} == {3}
    settle(world, answers_of(3), 3 * PATIENT // 5)
    assert ("joined", ROOM) in world.ports[0].said


def forge_leave(world: Members) -> None:
    """Node 1 relays the waves of node 3 to node 0, and says that node 3 leaves."""
    liar = world.members[1].core
    assert liar is not None
    forgery = Wave("t", 3, 9, Op.LEAVE, 0b1111)
    assert parent(3, 0, forgery.cluster) == 1  # it is taken from node 1
    liar._links.send(0, forgery, world.now)
    liar._waves._aborted = True  # it ignores the answer


def test_a_leave_in_another_s_name_is_not_believed() -> None:
    """The node itself is asked, and has what is published meanwhile: nothing is missed."""
    world = party(4, 0b1001)
    forge_leave(world)
    world.hand_over()
    assert world.publish(0, "at once")
    world.settle()
    assert world.publish(0, "later")
    world.settle()
    assert world.ports[3].delivered() == ["at once", "later"]
    assert world.members[0].marks["leave denied"] == 1
    core = world.members[0].core
    assert core is not None
    assert core.membership_of("t").core.guard.dropped == {"a leave of a node that has not left": 1}


def test_a_node_leaves_though_a_leave_in_its_name_came_before() -> None:
    """It answers that it is in, then leaves; so it is asked a second time."""
    world = party(4, 0b1001)
    forge_leave(world)
    world.settle(but(answers_of(3)), ticks=1)
    world.members[3].unsubscribe("t", world.now)
    world.settle(but(answers_of(3)), ticks=1)
    world.settle()
    assert ("left", "t") in world.ports[3].said
    assert world.publish(0, "after")
    assert not [one for one in world.flying if isinstance(one.message, Frame)]


def test_a_join_after_a_leave_that_is_not_confirmed_counts() -> None:
    """An honest node leaves before it joins again; here the relay forged both."""
    world = party(4, 0b1001)
    forge_leave(world)
    world.hand_over()
    assert world.publish(0, "one")
    liar = world.members[1].core
    assert liar is not None
    liar._links.send(0, Wave("t", 3, 10, Op.JOIN, 0b1111), world.now)
    world.hand_over(link(1, 0))
    assert world.publish(0, "two")
    world.settle()
    assert world.ports[3].delivered() == ["one", "two"]
    assert world.members[0].core is not None
    assert world.members[0].core.unstable() == 0


def test_an_honest_leaver_passes_on_what_is_published_before_it_confirms() -> None:
    world = party(4, 0b1111)
    world.members[3].unsubscribe("t", world.now)
    world.settle(but(answers_of(3)), ticks=2)
    assert world.members[0].marks["leave to be confirmed"] == 1
    assert world.publish(0, "meanwhile")
    world.settle()
    assert [port.delivered() for port in world.ports] == [["meanwhile"]] * 3 + [[]]
    assert ("left", "t") in world.ports[3].said
    core = world.members[0].core
    assert core is not None
    assert core.membership_of("t").members == 0b0110
    assert core.unstable() == 0


@pytest.mark.parametrize("dead", [1, 2])
def test_a_leave_is_complete_though_a_node_dies_before_it_is_confirmed(dead: int) -> None:
    world = party(4, 0b1111)
    world.members[3].unsubscribe("t", world.now)
    world.settle(but(answers_of(3)), ticks=2)
    world.down.add(dead)
    world.suspect(dead)
    world.settle()
    assert ("left", "t") in world.ports[3].said
    assert world.publish(0, "after")
    world.settle()
    assert world.ports[3].delivered() == []
    assert world.members[0].core is not None
    assert world.members[0].core.unstable() == 0


def test_a_subscriber_left_out_of_an_answer_is_missed_until_it_subscribes_anew() -> None:
    """Node 2 relays the wave of node 0 to node 3, and answers that nobody subscribes there."""
    world = party(4)
    world.members[3].subscribe(ROOM, world.now)
    world.settle()
    world.publish(0, "first", ROOM)
    world.settle(but(link(2, 0)), ticks=1)
    (lie,) = [one for one in world.flying if both(answers_of(2), link(2, 0))(one)]
    world.lose(link(2, 0))
    answer = msgspec.structs.replace(lie.message.message, members=0)
    parcel = msgspec.structs.replace(lie.message, message=answer)
    world.flying.append(lie._replace(message=parcel))
    world.settle()
    assert world.publish(0, "missed", ROOM)
    world.settle()
    world.down.add(2)
    world.suspect(2)
    world.settle()
    assert world.publish(0, "missed, too", ROOM)
    world.settle()
    assert world.ports[3].delivered(ROOM) == []
    world.members[3].unsubscribe(ROOM, world.now)
    world.settle()
    world.members[3].subscribe(ROOM, world.now)
    world.settle()
    assert world.publish(0, "heard", ROOM)
    world.settle()
    assert world.ports[3].delivered(ROOM) == ["heard"]


# -- numbers ---------------------------------------------------------------------------------------


def packet(first: int, count: int, route: int = 0) -> bytes:
    body = OutgoingFrame([b""] * count, 0)
    frame = Frame("t", Stream(3, 3), first, (), Route(route, first, 0b1111), first - 1, body, 1)
    return encode_frame(frame)


@pytest.mark.parametrize(
    ("first", "count", "route"),
    [(MAX_NUMBER - 1, 2, 0), (MAX_NUMBER - 65_535, 65_536, 0), (0, 1, MAX_NUMBER)],
)
def test_a_frame_that_ends_above_the_largest_number_is_refused(
    first: int, count: int, route: int
) -> None:
    """A subscriber that read it could answer no wave any more."""
    with pytest.raises(WireError):
        FrameDecoder().decode(packet(first, count, route), {topic_id("t"): "t"})


def test_the_largest_numbers_are_read() -> None:
    frame = FrameDecoder().decode(packet(MAX_NUMBER - 2, 2, MAX_NUMBER - 1), {topic_id("t"): "t"})
    assert frame is not None
    assert frame.last == MAX_NUMBER - 1


class Strict(Page):
    """A port that cannot encode what it is to send."""

    broken = True

    def relay(self, peers: Any, message: Any) -> None:
        if self.broken:
            raise WireError("too large")
        super().relay(peers, message)


def test_a_publication_that_cannot_be_encoded_changes_nothing() -> None:
    port = Strict()
    node = CubecastNode(0, port, cluster=0b11)  # type: ignore[arg-type]
    node.establish("t", 0b11)
    with pytest.raises(WireError):
        node.publish("t", ("lost",), 1, 0)
    assert node.next_seq("t") == 0
    assert node.unstable() == 0
    assert not port.delivered
    port.broken = False
    assert node.publish("t", ("first",), 1, 0)
    assert [message.first for _, message in port.sent] == [0]
    assert port.delivered == ["first"]


def test_no_stream_ended_in_a_view_to_come() -> None:
    """Else a liar has us forget, and say that we forgot, what is still to come."""
    world = party(2, 0b11)
    core = world.members[0].core
    assert core is not None
    topic = core.membership_of("t").core
    dead = Stream(9, 9)
    topic.history.hear_over({dead: MAX_NUMBER - 2}, [dead])
    assert topic.history.told_over == {dead: 0}
