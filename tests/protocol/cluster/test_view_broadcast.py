"""A view is told as a difference, down the tree; a relay that is slow or dead harms no node."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.net.wire.views import encode_view
from cubecast.protocol.cluster.view_broadcast import ViewBroadcast, difference, patience, restored
from cubecast.protocol.cluster.views import (
    Absent,
    Ballot,
    Change,
    Enter,
    Install,
    Installed,
    Prepare,
    Unclear,
    View,
    ViewId,
    Who,
)
from support.agreement_toys import CONFIG, Toys

NEXT = ViewId(2, Ballot(3, 0))


def who(slot: int, life: int = 0) -> Who:
    return Who(f"n{slot}.{life}", str(slot), life)


def view(number: int, lives: dict[int, int]) -> View:
    members = {slot: who(slot, life) for slot, life in lives.items()}
    return View(ViewId(number, Ballot(number, 0)), members, "home")


LIVES = st.dictionaries(st.integers(0, 9), st.integers(0, 2), min_size=1)
ABSENT = st.lists(st.builds(Absent, st.builds(who, st.integers(10, 14)), st.integers(0, 3)))


@given(LIVES, LIVES, ABSENT, ABSENT, st.data())
def test_a_difference_leads_to_the_very_view(
    before: dict[int, int],
    after: dict[int, int],
    was: list[Absent],
    came: list[Absent],
    data: st.DataObject,
) -> None:
    parent = view(1, before)
    absent = list({one.who.uid: one for one in was}.values())
    kept = data.draw(st.lists(st.sampled_from(absent), unique=True)) if absent else []
    kept = [one for one in absent if one in kept]
    added = list({one.who.uid: one for one in came}.values())
    added = [one for one in added if one.who.uid not in {old.who.uid for old in absent}]
    install = Install(Ballot(3, 0), parent.id, view(2, after), {}, {}, (*kept, *added))
    change = difference(install, parent, absent)
    assert restored(change, parent, absent) == install
    assert restored(change, view(1, {**before, 20: 0}), absent) is None  # other members, same id


def test_a_view_reads_the_same_after_a_change_as_from_scratch() -> None:
    parent = view(1, {0: 0, 1: 0, 2: 0})
    changed = parent.changed(NEXT, 0b110, {2: who(2, 1), 5: who(5)})
    fresh = View(NEXT, dict(changed.members), "home")
    assert changed == fresh
    assert changed.checksum == fresh.checksum
    assert changed.mask == fresh.mask == 0b100101
    assert changed.cluster == "home"
    assert [changed.slot_of(uid) for uid in ("n0.0", "n2.1", "n2.0")] == [0, 2, None]


@pytest.mark.parametrize(
    "lie",
    [
        {"parent": NEXT},
        {"gone": 1 << 7},
        {"came": {0: who(0, 1)}},  # in the place of a member that stays
        {"came": {5: who(0)}},  # a second place for a member that stays
        {"check": 1},
        {"gone": 0b11},  # no member is left
    ],
    ids=str,
)
def test_a_change_that_cannot_be_is_not_read(lie: dict[str, Any]) -> None:
    parent = view(1, {0: 0, 1: 0})
    install = Install(Ballot(3, 0), parent.id, view(2, {0: 0}), {}, {})
    change = difference(install, parent, ())
    assert restored(change, parent, ()) == install
    lying = msgspec.structs.replace(change, **lie)
    if "check" not in lie and "parent" not in lie:  # it lies about the checksum, too
        kept = {slot: one for slot, one in parent.members.items() if not lying.gone >> slot & 1}
        check = View(NEXT, {**kept, **lying.came}).checksum
        lying = msgspec.structs.replace(lying, check=check)
    assert restored(lying, parent, ()) is None


def crash(toys: Toys, node: int) -> None:
    toys.toys[node].crashed = True
    for toy in toys.alive():
        toys.suspect(toy.slot, node)


def said(toys: Toys, kind: type, source: int) -> list[int]:
    return [to for start, to, message in toys.flying if start == source and type(message) is kind]


def decide(toys: Toys) -> None:
    """Hand over messages until the leader has decided, and no node has heard of it."""
    while not said(toys, Change, 0):
        toys.hand_over(0)


def test_the_leader_tells_its_children_and_they_tell_theirs() -> None:
    toys = Toys(16)
    crash(toys, 5)
    decide(toys)
    assert said(toys, Change, 0) == [1, 2, 4, 8]
    toys.drain()
    assert toys.views() == {frozenset(range(16)) - {5}}
    assert sum(toy.marks["passed a view on"] for toy in toys.toys) == 14
    assert not any(toy.marks["view told again"] for toy in toys.toys)


class Post:
    """Carries what nodes tell each other, one hop a tick; `REPEAT_AFTER` is three round trips."""

    HOP, REPEAT_AFTER = 1, 6

    def __init__(self, nodes: int) -> None:
        parent = view(1, dict.fromkeys(range(nodes + 1), 0))
        self.install = Install(
            Ballot(3, 0), parent.id, view(2, dict.fromkeys(range(nodes), 0)), {}, {}
        )
        self.change = difference(self.install, parent, ())
        self.stay = (1 << nodes) - 1
        self.now = 0
        self.said: list[Any] = []
        self.flying: list[tuple[int, int, int, int, Any]] = []
        self.tellings: dict[int, ViewBroadcast] = {}

    def telling(self, slot: int) -> ViewBroadcast:
        clerk = Clerk(self, slot)
        self.tellings[slot] = ViewBroadcast(
            clerk, self.REPEAT_AFTER, slot, self.install, self.change, self.stay
        )
        return self.tellings[slot]

    def take(self, sender: int, to: int, message: Any) -> None:
        if isinstance(message, Installed):
            self.tellings[to].heard(message.there)
        elif to not in self.tellings and message.down:
            self.telling(to).pass_on(sender, str(sender), self.now)
        else:
            (self.tellings.get(to) or self.telling(to)).answer(str(sender))

    def run(self) -> None:
        """Run until everything was said; nodes send again what is due."""
        while self.flying or any(one.due is not None for one in self.tellings.values()):
            self.now += 1
            while self.flying and self.flying[0][0] <= self.now:
                self.take(*heappop(self.flying)[2:])
            for one in list(self.tellings.values()):
                one.on_wake(self.now)


class Clerk:
    """What one node says goes to the post."""

    def __init__(self, post: Post, slot: int) -> None:
        self.post = post
        self.slot = slot

    def send(self, slot: int, message: Any) -> None:
        post = self.post
        post.said.append(message)
        heappush(post.flying, (post.now + post.HOP, len(post.said), self.slot, slot, message))

    def reach(self, address: str, message: Any) -> None:
        self.send(int(address), message)

    def wake(self, at: int) -> None:
        """The post looks at every clock."""


@pytest.mark.parametrize("nodes", [2, 8, 32, 100, 128, 1000])
def test_a_teller_waits_for_a_high_tree_and_tells_everyone_once(nodes: int) -> None:
    post = Post(nodes)
    post.telling(0).tell(True, post.now)
    post.run()
    changes = [message for message in post.said if isinstance(message, Change)]
    assert len(changes) == nodes - 1
    assert all(change.down for change in changes)
    assert post.tellings[0].untold == 0
    assert len(post.said) - len(changes) <= 2 * (nodes - 1)  # answers gather


def test_answers_gather_on_the_way_up() -> None:
    toys = Toys(16)
    crash(toys, 5)
    decide(toys)
    answers = []
    while toys.flying:
        _, to, message = toys.flying[0]
        if to == 0 and isinstance(message, Installed):
            answers.append(message.there.bit_count())
        toys.hand_over(0)
    assert sorted(answers) == [1, 2, 3, 8]
    assert toys.toys[0].epochs._untold() == 0


def test_nodes_below_a_dead_relay_are_told_directly_and_none_is_excluded() -> None:
    toys = Toys(16)
    crash(toys, 5)
    decide(toys)
    toys.toys[8].crashed = True  # seven wait for it, and no node suspects it yet
    toys.drain()
    waiting = [toy.slot for toy in toys.alive() if toy.epochs.view.epoch == 0]
    assert waiting == [9, 10, 11, 12, 13, 14, 15]
    toys.tick(patience(CONFIG.repeat_after, 4))
    toys.drain()
    assert toys.views() == {frozenset(range(16)) - {5}}
    toys.come_to_rest()
    assert toys.views() == {frozenset(range(16)) - {5, 8}}
    assert all(len(toy.steps) == 2 for toy in toys.alive())


def test_those_below_a_relay_that_must_refuse_are_told_directly() -> None:
    """Node 4 follows a later ballot, and so does not go where node 0 decided."""
    toys = Toys(8)
    crash(toys, 7)
    decide(toys)
    toys.toys[4].epochs.promised = Ballot(9, 4)
    toys.drain()
    assert {toy.slot for toy in toys.alive() if toy.epochs.view.epoch == 0} >= {4}
    toys.come_to_rest()
    assert toys.views() == {frozenset(range(7))}
    assert not any(toy.strangers for toy in toys.alive())
    assert not toys.disagreements()


def test_a_slow_relay_answers_with_what_it_has() -> None:
    toys = Toys(8)
    crash(toys, 1)
    decide(toys)
    toys.flying = [one for one in toys.flying if one[1] == 4]
    toys.hand_over(0)  # node 4 tells 5 and 6, and 6 tells 7
    toys.flying = [one for one in toys.flying if one[1] == 5]
    toys.hand_over(0)
    toys.hand_over(0)  # 5 is there; what 6 was told is lost
    assert not toys.flying
    toys.tick(CONFIG.repeat_after // 2)
    (answer,) = [one for one in toys.flying if one[:2] == (4, 0)]
    assert isinstance(answer[2], Installed)
    assert answer[2].there == 0b00110000


def test_a_relay_that_leads_now_does_not_wait_for_nodes_below_it() -> None:
    """Node 0 left and told node 3 itself: node 2 hears no more of node 3 before the next view."""
    toys = Toys(4)
    crash(toys, 1)
    toys.come_to_rest(3)
    toys.depart(0)
    while not said(toys, Change, 2):
        toys.hand_over(0)
    toys.flying = [one for one in toys.flying if one[:2] != (2, 3)]
    toys.drain()
    toys.tick()
    toys.drain()
    assert toys.toys[0].let_go_at is not None
    assert toys.views() == {frozenset({2, 3})}
    toys.toys[2].epochs.on_enter(Enter(who(4), -1), toys.now)
    assert said(toys, Prepare, 2) == [3]


def test_a_node_that_cannot_apply_a_change_asks_for_the_whole_view() -> None:
    toys = Toys(3)
    crash(toys, 1)
    decide(toys)
    (index,) = [i for i, one in enumerate(toys.flying) if isinstance(one[2], Change)]
    _, to, change = toys.flying.pop(index)
    toys.flying = [(0, to, msgspec.structs.replace(change, check=7))]
    toys.hand_over(0)
    assert toys.toys[2].epochs.view.epoch == 0
    assert [type(one[2]) for one in toys.flying] == [Unclear]
    toys.drain()
    assert toys.views() == {frozenset({0, 2})}


def test_a_node_past_a_view_confirms_that_it_installed_it() -> None:
    """The leader did not hear node 2's answer, and then died; what it said is still on its way."""
    toys = Toys(4)
    crash(toys, 3)
    decide(toys)
    late = [one for one in toys.flying if one[1] == 2]
    toys.drain()
    crash(toys, 0)
    toys.drain()
    assert toys.toys[2].epochs.view.epoch == 2
    (told,) = late
    toys.toys[2].epochs.on_change(told[2], 1, toys.now)
    assert toys.flying == [(2, 1, Installed(told[2].view))]


def test_one_packet_of_a_change_has_one_size_however_large_the_view() -> None:
    sizes = []
    for nodes in (8, 64, 512):
        lives = {
            slot: Who(f"{slot:032x}", f"10.0.0.1:{7000 + slot}", 10**13) for slot in range(nodes)
        }
        parent = View(ViewId(7, Ballot(7, 0)), lives)
        rest = {slot: one for slot, one in lives.items() if slot != 1}
        gone = (Absent(lives[1], 8),)
        install = Install(Ballot(8, 0), parent.id, View(NEXT, rest), {}, {}, gone)
        sizes.append(len(encode_view(difference(install, parent, ()))))
    assert max(sizes) - min(sizes) < 8


class Wires:
    """A messenger that writes down."""

    def __init__(self) -> None:
        self.sent: list[tuple[object, Any]] = []

    def send(self, slot: int, message: Any) -> None:
        self.sent.append((slot, message))

    def reach(self, address: str, message: Any) -> None:
        self.sent.append((address, message))

    def wake(self, at: int) -> None:
        pass


def test_newcomers_get_the_whole_view_and_are_told_again_as_such() -> None:
    parent = view(1, {0: 0, 1: 0})
    install = Install(Ballot(3, 0), parent.id, view(2, {0: 0, 1: 0, 2: 0}), {}, {})
    wires = Wires()
    telling = ViewBroadcast(wires, 10, 0, install, difference(install, parent, ()), parent.mask)
    telling.tell(inside=True, now=0)
    assert [(to, type(one)) for to, one in wires.sent] == [("2", Install), (1, Change)]
    assert telling.untold == 0b110
    assert not telling.on_wake(9)
    assert telling.heard(0b010)
    wires.sent.clear()
    assert telling.on_wake(10)
    assert [(to, type(one)) for to, one in wires.sent] == [("2", Install)]
    assert telling.heard(0b100)
    assert telling.on_wake(20)
    assert telling.due is None
