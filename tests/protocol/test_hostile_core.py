"""Lies of a member against the sans-I/O core: well-typed messages that mean nothing.

Node 3 of a group of four runs the protocol like the others, and besides sends whatever the fuzzer
thinks of.  Required: nothing but `ProtocolError` comes out of a node, and only for what node 3
sent (an honest relay is never blamed for a liar); every container stays within its bound; another
topic of the honest three loses nothing, neither messages nor the retained value.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from cubecast.net.clock import wall_us
from cubecast.net.message import RETAIN
from cubecast.net.node import value_keeper
from cubecast.net.node.value_keeper import MAX_AHEAD_US, MAX_BYTES, Retained, is_value
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packets import WireError, decode_control, encode_control
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.errors import ProtocolError
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Direct,
    Frame,
    Op,
    Parcel,
    Release,
    Route,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import NodeId, Stream
from cubecast.protocol.subscriptions import links, waves
from cubecast.protocol.topic import guard
from cubecast.protocol.topic.retained_values import RetainedValue
from cubecast.topology import parent
from support.lies import ATTACKED, HONEST, LIAR, QUIET, WINDOW, Liar, check_bounds


class Desk:
    """A port that queues what its node sends and remembers what it delivers."""

    def __init__(self, node: NodeId, world: World) -> None:
        self.node = node
        self.world = world
        self.delivered: list[Any] = []
        self.keeper = Retained()
        self.next_wake = 0

    def relay(self, peers: Any, message: Any) -> None:
        for peer in peers:
            self.control(peer, message)

    def control(self, peer: NodeId, message: Any) -> None:
        if self.node == LIAR:
            message = self.world.change(message)
            self.world.heard.append(message)
        if peer in self.world.nodes:
            self.world.queue.append((self.node, peer, message))

    def deliver(self, publication: Any) -> bool:
        if publication.topic == QUIET:
            self.delivered += publication.body
        return True

    def joined(self, topic: str) -> None: ...
    def left(self, topic: str) -> None: ...
    def writable(self, topic: str) -> None: ...
    def wake(self, at: int) -> None: ...
    def gap(self, topic: str, skipped: Any) -> None: ...


class World:
    """Four nodes, a queue of messages, a clock."""

    def __init__(self) -> None:
        config = Config(window=WINDOW, stable_delay=50, resend_after=200, resend_max=800)
        self.queue: deque[tuple[NodeId, NodeId, Any]] = deque()
        self.heard: list[Any] = []
        self.now = 0
        self.refused = 0
        self.change: Callable[[Any], Any] = lambda message: message
        """What the liar makes of what its node says in earnest."""
        self.nodes: dict[NodeId, CubecastNode] = {}
        self.desks = {node: Desk(node, self) for node in range(4)}
        for node, desk in self.desks.items():
            self.nodes[node] = CubecastNode(
                node, desk, cluster=0b1111, config=config, incarnation=node
            )
        for one in self.nodes.values():
            one.establish(ATTACKED, 0b1111)
            one.establish(QUIET, 0b0111)

    def step(self, sender: NodeId, receiver: NodeId, message: Any) -> None:
        try:
            self.nodes[receiver].on_message(message, sender, self.now)
        except ProtocolError:
            assert LIAR in (sender, receiver), f"node {receiver} blames {sender}: {message!r}"
            self.refused += 1

    def run(self, time: int = 20) -> None:
        """Let everything that was sent arrive, and some time pass."""
        for _ in range(2):
            steps = 0
            while self.queue:
                self.step(*self.queue.popleft())
                steps += 1
                assert steps < 20_000, "messages beget messages without end"
            self.now += time
            for node in self.nodes.values():
                node.on_wake(self.now)
        del self.heard[:-200]

    def publish(self, sender: NodeId, topic: str, body: object) -> bool:
        return self.nodes[sender].publish(topic, (body,), 1, self.now)


def attack(seed: int, lies: int) -> World:
    random = Random(seed)
    world = World()
    liar = Liar(random, world.nodes, {node: node for node in range(4)}, world.heard)
    said: dict[NodeId, int] = dict.fromkeys(HONEST, 0)
    for number in range(lies):
        victim = random.choice(HONEST)
        world.step(LIAR, victim, liar.lie(victim))
        if number % 5 == 0:
            for sender in random.sample(range(4), 2):
                world.publish(sender, ATTACKED, number)
            sender = random.choice(HONEST)
            if world.publish(sender, QUIET, (sender, said[sender])):
                said[sender] += 1
            world.run()
        if number % 50 == 0:
            for node in HONEST:
                check_bounds(world.nodes[node])
    for _ in range(20):
        world.run(500)
    for reader in HONEST:
        check_bounds(world.nodes[reader])
        heard = world.desks[reader].delivered
        for sender in HONEST:
            mine = [seq for source, seq in heard if source == sender]
            assert mine == list(range(said[sender])), f"the quiet topic at {reader} from {sender}"
    assert sum(said.values()) > lies // 10
    return world


@pytest.mark.parametrize("seed", range(20))
def test_a_lying_member_breaks_no_node_and_no_other_topic(seed: int) -> None:
    world = attack(seed, 500)
    assert world.refused > 20


@pytest.mark.parametrize("seed", range(5))
def test_small_bounds_are_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with bounds so small that the liar runs into each."""
    monkeypatch.setattr(guard, "MAX_STREAMS", 12)
    monkeypatch.setattr(guard, "MAX_BRANCHES", 2)
    monkeypatch.setattr(links, "MAX_EARLY_PARCELS", 3)
    monkeypatch.setattr(links, "MAX_EARLY_WEIGHT", 5)
    monkeypatch.setattr(waves, "MAX_WAVES", 2)
    attack(1000 + seed, 600)


# -- retained values -------------------------------------------------------------------------------


def crosses(message: Any) -> bool:
    """Whether a message is one that comes off the wire."""
    try:
        return decode_control(encode_control(message)) == message
    except (WireError, struct.error, OverflowError, ValueError):
        return False


def heard_by(joiner: NodeId) -> list[NodeId]:
    """The honest nodes whose answers come to a node by honest ones alone."""
    found = []
    for node in HONEST:
        way: NodeId | None = node
        while way not in (joiner, LIAR):
            assert way is not None
            way = parent(joiner, way, 0b1111)
        if way == joiner:
            found.append(node)
    return found


def lie_about_values(seed: int, rounds: int) -> int:
    """Honest nodes keep values and join again; how many lies the joiners heard."""
    random, world, lies = Random(seed), World(), 0
    liar = Liar(random, world.nodes, {node: node for node in range(4)}, world.heard)

    def change(message: Any) -> Any:
        nonlocal lies
        answer = getattr(message, "message", None)
        if not isinstance(message, Parcel) or not isinstance(answer, Answer):
            return message
        lie = Parcel(message.number, msgspec.structs.replace(answer, kept=liar.value()))
        if not crosses(lie):  # it would be hung up on
            return message
        lies += 1
        return lie

    world.change = change
    for number in range(rounds):
        publisher, joiner = random.choice(HONEST), random.choice(HONEST)
        time = max(random.randrange(100) + number, *(_time(world, node) + 1 for node in HONEST))
        value = RetainedValue(
            publisher, publisher, number, time, bytes(pack({RETAIN: ""}, b"%d" % number))
        )
        world.desks[publisher].keeper.learn(QUIET, value)
        world.nodes[joiner].unsubscribe(QUIET, world.now)
        world.run()
        stamps = [kept.stamp for node in heard_by(joiner) if (kept := _kept(world, node))]
        world.nodes[joiner].subscribe(QUIET, world.now)
        for _ in range(5):
            world.run(100)
        assert world.nodes[joiner].explain(QUIET, world.now)["standing"] == "in"
        found = _kept(world, joiner)
        best = max(stamps, default=())
        assert (() if found is None else found.stamp) >= best, f"node {joiner}: {found}, {best}"
        assert found is None or is_value(found.blob)
        assert found is None or found.time <= wall_us() + MAX_AHEAD_US
        check_bounds(world.nodes[joiner])
    for node in HONEST:
        assert len(world.desks[node].keeper) <= 1
        assert world.desks[node].keeper.size <= MAX_BYTES
    return lies


def _kept(world: World, node: NodeId) -> RetainedValue | None:
    return world.desks[node].keeper.kept(QUIET)


def _time(world: World, node: NodeId) -> int:
    kept = _kept(world, node)
    return 0 if kept is None else kept.time


@pytest.mark.parametrize("seed", range(6))
def test_lies_about_retained_values_hide_none_and_break_no_keeper(seed: int) -> None:
    assert lie_about_values(seed, 40) > 10


def believes_the_future(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(value_keeper, "MAX_AHEAD_US", 1 << 61)


def relays_what_it_does_not_believe(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retained, "believes", lambda keeper, value: True)


def takes_what_it_hears_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waves, "newer", lambda one, other: other)


def takes_anything_for_a_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(value_keeper, "is_value", lambda blob: True)


@pytest.mark.parametrize(
    "mutant",
    [
        believes_the_future,
        relays_what_it_does_not_believe,
        takes_what_it_hears_last,
        takes_anything_for_a_value,
    ],
)
def test_a_node_that_believes_lies_about_values_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    def attacks() -> None:
        for seed in range(6):
            lie_about_values(seed, 40)

    with pytest.raises(AssertionError):
        attacks()


# -- one lie at a time ----------------------------------------------------------------------------


def lie(source: NodeId, first: int, **changes: Any) -> Frame:
    values: dict[str, Any] = {
        "topic": ATTACKED,
        "stream": Stream(source, source),
        "first": first,
        "barrier": (),
        "route": ROUTE,
        "stable": -1,
        "body": ("lie",),
        "size": 1,
    }
    return Frame(**(values | changes))


ROUTE = Route(0, 0, 0b1111)


def victim() -> tuple[World, CubecastNode]:
    """Node 1: in the trees of node 3, node 3 itself is its parent."""
    world = World()
    return world, world.nodes[1]


def feed(node: CubecastNode, messages: Iterable[Any]) -> None:
    for message in messages:
        node.on_message(message, LIAR, 0)


def test_a_publisher_that_never_lets_go_is_refused() -> None:
    _, node = victim()
    with pytest.raises(ProtocolError, match="beyond the window"):
        feed(node, (lie(LIAR, first) for first in range(10 * WINDOW)))
    assert node.load().held + node.load().retained == 4 * WINDOW


def test_frames_far_ahead_of_their_turn_are_bounded() -> None:
    _, node = victim()
    with pytest.raises(ProtocolError, match="beyond the window"):
        feed(node, (lie(LIAR, first) for first in range(1, 1_000_000, 1000)))
    assert node.load().held + node.load().retained == 4 * WINDOW


def test_one_frame_larger_than_all_room_is_taken_alone() -> None:
    _, node = victim()
    node.on_message(lie(LIAR, 0, size=100 * WINDOW), LIAR, 0)
    with pytest.raises(ProtocolError, match="beyond the window"):
        node.on_message(lie(LIAR, 1), LIAR, 0)
    node.on_message(lie(LIAR, 1, stable=0), LIAR, 0)
    assert node.load().held + node.load().retained == 1


def test_a_relay_that_was_told_more_than_we_is_not_blamed() -> None:
    """The liar tells node 1 alone that its messages are stable; node 1 relays to node 0."""
    world = World()
    for first in range(10 * WINDOW):
        world.step(LIAR, 1, lie(LIAR, first))
        world.run(1)
        news = Stable(ATTACKED, Stream(LIAR, LIAR), 0, 0, first, 0)
        world.step(LIAR, 1, Parcel(first, news))
    assert "beyond the window" in world.nodes[0].explain(ATTACKED, world.now)["dropped"]
    check_bounds(world.nodes[0])


@pytest.mark.parametrize(
    "frame",
    [
        lie(1, 0),  # our own
        lie(0, 0),  # node 0 sends to node 1 itself
        lie(LIAR, 0, route=Route(0, 0, 0b1101)),  # not to us
        lie(LIAR, 0, stream=Stream(8, 0)),  # its tree leads here by node 0
        lie(2, 0, route=Route(0, 0, 0b1111, 0b0010)),  # a leaf is fed by node 2 itself
    ],
)
def test_frames_by_another_way_than_their_tree_are_refused(frame: Frame) -> None:
    _, node = victim()
    with pytest.raises(ProtocolError, match="by another way than its tree"):
        node.on_message(frame, LIAR, 0)
    assert not any(node.load())


def test_made_up_lives_are_bounded() -> None:
    _, node = victim()
    for life in range(10_000):
        node.on_message(lie(LIAR, 0, stream=Stream(LIAR, life)), LIAR, 0)
    core = node._cores[ATTACKED]
    assert len(core.streams.inboxes) == core.context.view.max_open == 2 * 4 + 16
    assert core.guard.dropped == {"too many streams at a time": 10_000 - core.context.view.max_open}


def test_made_up_lives_that_end_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_STREAMS", 100)
    _, node = victim()
    core = node._cores[ATTACKED]
    for life in range(1_000):
        stream = Stream(LIAR, life)
        node.on_message(lie(LIAR, 0, stream=stream), LIAR, 0)
        news = Stable(ATTACKED, stream, 0, 0, 0, 0b1111)
        node.on_message(Parcel(life, news), LIAR, 0)
    assert len(core.streams.floor) == len(core.front.delivered) == 100
    assert core.guard.dropped == {"too many streams": 900}


def test_suspensions_of_made_up_lives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_STREAMS", 100)
    _, node = victim()
    core = node._cores[ATTACKED]
    for life in range(1_000):
        node.on_message(Parcel(life, Suspended(ATTACKED, Stream(LIAR, life), 0)), LIAR, 0)
    assert len(core.streams.lost_routes) == 100
    assert core.guard.dropped == {"too many streams lost": 900}


def test_trees_of_made_up_lives_given_up_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_BRANCHES", 5)
    _, node = victim()
    core = node._cores[ATTACKED]
    for life in range(100):
        for route in range(10):
            node.on_message(Direct(ATTACKED, Stream(LIAR, life), route, 0, 9, -1), LIAR, 0)
    assert len(core.streams.inboxes) == core.context.view.max_open
    assert all(len(inbox.branches) == 5 for inbox in core.streams.inboxes.values())


def test_a_tree_that_was_given_up_leads_nowhere() -> None:
    """Node 0 feeds node 3 itself; what node 2, its parent before, still passes on comes late."""
    node = World().nodes[3]
    core = node._cores[ATTACKED]
    early, late = lie(0, 0), lie(0, 1)
    assert core.guard.by_tree(late, 2)
    node.on_message(Direct(ATTACKED, Stream(0, 0), 0, 0, 1, -1), 0, 0)
    node.on_message(late, 2, 0)
    assert not node.load().held
    assert core.guard.dropped == {guard.GIVEN_UP: 1}
    for frame in (early, late):
        node.on_message(frame, 0, 0)
    assert core.front.delivered[Stream(0, 0)] == 1
    node.on_message(late, 2, 0)
    assert core.guard.dropped == {guard.GIVEN_UP: 2}
    with pytest.raises(ProtocolError, match="by another way than its tree"):
        node.on_message(late, 1, 0)


def test_a_peer_that_calls_itself_slow_and_asks_for_more_gets_nothing() -> None:
    """It is suspended by its own word, so there is nothing to send again to it."""
    world, node = victim()
    node.on_message(Parcel(0, Wave(ATTACKED, LIAR, 0, Op.JOIN, 0b1010, True)), LIAR, 0)
    while world.publish(1, ATTACKED, "earnest"):
        pass
    world.queue.clear()
    node.on_message(Ack(ATTACKED, Stream(1, 1), 0, 0, 0, 0, True, 1 << LIAR), LIAR, 0)
    assert node.explain(ATTACKED, 0)["suspended"] == [LIAR]
    assert not [message for *_, to, message in world.queue if to == LIAR and type(message) is Frame]


def test_a_peer_that_asks_must_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_UNACKED_WEIGHT", 50)
    _, node = victim()
    waves = (Wave(ATTACKED, LIAR, number, Op.REGISTER, 0b1010) for number in range(1000))
    with pytest.raises(ProtocolError, match="without acknowledging"):
        feed(node, (Parcel(wave.number, wave) for wave in waves))
    assert node.unacked_parcels(LIAR) == 26  # with what the node says of itself, each weighs two


def test_made_up_topics_leave_nothing_behind() -> None:
    _, node = victim()
    for number, name in enumerate("abc"):
        stream = Stream(LIAR, LIAR)
        node.on_message(Parcel(3 * number, Stable(name, stream, 0, 0, 0, 0b1010)), LIAR, 0)
        node.on_message(Parcel(3 * number + 1, Release(name, stream)), LIAR, 0)
        node.on_message(Parcel(3 * number + 2, Wave(name, LIAR, 0, Op.JOIN, 0b1010)), LIAR, 0)
    assert set(node._cores) == {ATTACKED, QUIET}
    assert node.pending_waves() == 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Parcel(0, Answer(ATTACKED, 1, 0, (), 0)), "not awaited"),
        (Parcel(0, Wave(ATTACKED, 1, 0, Op.LEAVE, 0b1111)), "does not lead here"),
        (Parcel(0, Wave(ATTACKED, 0, 0, Op.LEAVE, 0b1111)), "another way than its tree"),
        (Parcel(0, Wave(ATTACKED, LIAR, 0, Op.JOIN, 0b1101)), "does not lead here"),
        (Parcel(0, Release(ATTACKED, Stream(0, 0))), "another node"),
        (Parcel(0, Suspended(ATTACKED, Stream(0, 0), 0)), "another node"),
        (Parcel(0, Wave("", 0, 0, Op.TOPICS, 0b1111)), "another way than its tree"),
        (Parcel(0, Stable(ATTACKED, Stream(0, 0), 0, 0, 5, 0)), "another way than its tree"),
        (Direct(ATTACKED, Stream(0, 0), 0, 0, 5, -1), "another node"),
        (Direct(ATTACKED, Stream(LIAR, LIAR), 0, 0, 5, 5), "after its end"),
        (Parcel(0, Stable(ATTACKED, Stream(1, 1), 0, 0, 5, 0b1111)), "another way than its tree"),
        (Ack(ATTACKED, Stream(1, 1), 0, 7, 7, 0, False), "never sent"),
    ],
)
def test_control_messages_that_cannot_be_are_refused(message: Any, reason: str) -> None:
    _, node = victim()
    node.publish(ATTACKED, ("earnest",), 1, 0)
    before = node.explain(ATTACKED, 0)
    with pytest.raises(ProtocolError, match=reason):
        node.on_message(message, LIAR, 0)
    assert node.explain(ATTACKED, 0) == before


def test_a_wave_to_a_node_we_have_not_heard_of_waits_until_we_have() -> None:
    """Its origin may know of a newcomer before we do; the parcel is sent again."""
    world, node = victim()
    parcel = Parcel(0, Wave("new", LIAR, 0, Op.JOIN, 0b1_0000_1010))
    node.on_message(parcel, LIAR, 0)
    assert node._links._link(LIAR).expected == 0
    node.set_cluster(0b1_0000_1111)
    node.on_message(parcel, LIAR, 0)
    assert node._links._link(LIAR).expected == 1
    assert not world.queue or world.queue[-1][1] == LIAR


def test_a_wave_of_a_view_that_we_have_not_heard_of_waits_until_we_have() -> None:
    """A node may be gone in it, and our answer would name that node."""
    _, node = victim()
    node.on_message(Parcel(0, Wave("new", LIAR, 0, Op.JOIN, 0b1111, epoch=1)), LIAR, 0)
    assert node._links._link(LIAR).expected == 0
    node.on_message(Parcel(0, Wave("new", LIAR, 0, Op.JOIN, 0b1111, epoch=0)), LIAR, 0)
    assert node._links._link(LIAR).expected == 1


def test_a_subscribe_does_not_wait_for_the_answer_of_a_node_that_is_gone() -> None:
    world = World()
    node = world.nodes[2]
    node.subscribe("new", 0)
    assert node.own_waves() == 1
    while world.queue:
        sender, receiver, message = world.queue.popleft()
        if LIAR not in (sender, receiver):
            world.step(sender, receiver, message)
    assert node.own_waves() == 1
    node.forget_peer(LIAR, 0)
    assert node.own_waves() == 0
    assert node.explain("new", 0)["standing"] == "in"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_million_lies(seed: int) -> None:
    for part in range(50):
        attack(10_000 + 50 * seed + part, 1_000)
