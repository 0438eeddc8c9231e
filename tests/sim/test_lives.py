"""Processes that crash and restart: which messages still arrive, and what the trace says."""

from __future__ import annotations

from random import Random

import pytest

from cubecast.baselines import Flood
from cubecast.baselines.flood import FloodPub
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.port import NodeId, Port, Stream, Time, Topic
from cubecast.sim.crashes.mortal_world import LedgerError, MortalWorld
from cubecast.sim.faults import Cut, Faults, Pause, Slow
from cubecast.sim.networks import SendingQueue, ServiceRate, Uniform
from cubecast.sim.world import NetworkModel
from cubecast.trace import check
from support.mortals import Listener

A, B, C = 0, 1, 2
TOPIC = "t"


def world_of(
    kind: type[Flood] = Flood,
    nodes: int = 3,
    network: NetworkModel | None = None,
    pauses: tuple[Pause, ...] = (),
    members: tuple[NodeId, ...] | None = None,
) -> MortalWorld:
    world = MortalWorld(
        nodes,
        lambda node, port, life: kind(node, port, life, nodes),
        network if network is not None else SendingQueue(hop=100, faults=Faults(Random(0))),
        trace=[],
        pauses=pauses,
    )
    world.establish(TOPIC, range(nodes) if members is None else members)
    return world


def at(world: MortalWorld, time: int, act: str, *args: object) -> None:
    world.post(time, lambda a, b, now: getattr(world, act)(*args))


def deliveries(world: MortalWorld) -> list[tuple[object, int]]:
    assert world.trace is not None
    return [(one.id, one.node) for one in world.trace if one.kind == "deliver"]


def kinds(world: MortalWorld, *wanted: str) -> list[tuple[str, int]]:
    assert world.trace is not None
    return [(one.kind, one.node) for one in world.trace if one.kind in wanted]


def test_messages_of_a_crashed_node_still_arrive_and_none_reaches_it() -> None:
    world = world_of()
    at(world, 0, "publish", A, TOPIC)
    at(world, 50, "publish", B, TOPIC)
    at(world, 60, "crash", A)
    world.run()
    assert deliveries(world) == [(0, A), (1, B), (0, B), (0, C), (1, C)]
    assert world.running() == [B, C]


class Restless(Flood):
    """Sends first, then delivers, and does all that a process can do before it refuses to publish.

    In a life that has ended no node may notice.
    """

    def publish(self, topic: Topic, body: tuple[object, ...], size: int, now: Time) -> bool:
        publication = FloodPub(topic, Stream(self.node, self.life), 0, body)
        self.port.relay(self._others, publication)
        self.port.relay(self._others, publication)
        for peer in self._others:
            self.port.control(peer, publication)
        self.take(publication)
        lost = {publication.stream: (0, 0)}
        self.port.gap(topic, lost)
        self.port.discard(topic, lost)
        self.port.joined(topic)
        self.port.view(1, 1)
        self.port.discovered("u")
        self.port.followed("#", True)
        self.port.wake(now + 1)
        return False


@pytest.mark.parametrize("copies", [0, 1, 2, 3])
def test_a_life_ends_between_two_copies_and_does_nothing_more(copies: int) -> None:
    world = world_of(Restless)
    at(world, 0, "crash_after", A, copies)
    at(world, 10, "publish", A, TOPIC)
    assert world.trace is not None
    before = len(world.trace)
    world.run()
    assert [(one.kind, one.time, one.node) for one in world.trace[before:]] == [
        ("publish", 10, A),
        ("crash", 10, A),
        *[("deliver", 110 + copy, [B, C][copy % 2]) for copy in range(copies)],
    ]
    assert world.unsent() == 0
    assert not world.views


def test_the_next_life_has_no_fuse() -> None:
    world = world_of()
    at(world, 0, "crash_after", A, 0)
    at(world, 10, "publish", A, TOPIC)
    at(world, 20, "restart", A)
    at(world, 30, "publish", A, TOPIC)
    world.run()
    assert deliveries(world) == [(0, A), (1, A), (1, B), (1, C)]


def test_a_process_that_takes_suspicions_is_told_of_a_crash() -> None:
    told = []

    class Credulous(Flood):
        def suspect(self, node: NodeId, now: int) -> None:
            told.append((self.node, node, now))

    world = world_of(Credulous)
    at(world, 5, "suspect", A, B)
    at(world, 6, "crash", A)
    at(world, 7, "suspect", A, C)  # the dead do not listen
    world.run()
    assert told == [(A, B, 5)]
    assert world.is_up(B)
    deaf = world_of()
    deaf.suspect(A, B)


def test_a_message_to_a_life_that_is_gone_does_not_reach_the_next() -> None:
    world = world_of()
    at(world, 0, "publish", A, TOPIC)
    at(world, 10, "crash", B)
    at(world, 15, "publish", A, TOPIC)
    at(world, 20, "restart", B)
    at(world, 25, "publish", A, TOPIC)
    world.run()
    assert [ident for ident, node in deliveries(world) if node == B] == [2]


def test_a_restart_makes_a_new_process_that_subscribes_again() -> None:
    world = world_of(members=(A, B))
    first = world.processes[B]
    at(world, 10, "crash", B)
    at(world, 20, "restart", B)
    world.run()
    assert world.processes[B] is not first
    assert (world.lives, world.is_up(B)) == ([0, 1, 0], True)
    assert world.wants(B, TOPIC)
    assert world.is_subscribed(B, TOPIC)
    assert kinds(world, "crash", "restart", "subscribe", "join")[-4:] == [
        ("crash", B),
        ("restart", B),
        ("subscribe", B),
        ("join", B),
    ]


def test_a_receiver_is_told_which_life_spoke() -> None:
    world = world_of(Listener)
    at(world, 0, "publish", A, TOPIC)
    at(world, 10, "crash", A)
    at(world, 20, "restart", A)
    at(world, 30, "publish", A, TOPIC)
    world.run()
    receiver = world.processes[B]
    assert isinstance(receiver, Listener)
    assert receiver.heard == [(A, 0), (A, 1)]


def test_an_incarnation_of_the_process_itself_goes_before_the_number_of_its_life() -> None:
    world = world_of(Listener)
    sender = world.processes[A]
    assert isinstance(sender, Flood)
    sender.incarnation = sender.life = 77  # type: ignore[attr-defined]
    at(world, 0, "publish", A, TOPIC)
    world.run()
    receiver = world.processes[B]
    assert isinstance(receiver, Listener)
    assert receiver.heard == [(A, 77)]
    world.lost("gap", B, TOPIC, {Stream(A, 77): (0, 0)})
    assert world.trace is not None
    assert world.trace[-1].id == 0


def test_timers_and_consumption_of_the_dead_do_not_happen() -> None:
    woken: list[int] = []

    class Sleeper(Flood):
        def __init__(self, node: NodeId, port: Port, life: int, nodes: int) -> None:
            super().__init__(node, port, life, nodes)
            port.wake(50)

        def on_wake(self, now: int) -> None:
            woken.append(self.node)

        def consumed(self, topic: str, stream: Stream, seq: int, now: int) -> None:
            woken.append(100 + self.node)

    world = world_of(Sleeper)
    world.consume_after = 30
    at(world, 0, "publish", A, TOPIC)
    at(world, 10, "crash", A)
    world.run()
    assert woken == [B, C, 100 + B, 100 + C]


def test_publications_a_node_had_not_handed_over_die_with_it() -> None:
    class Choosy(Flood):
        def publish(self, topic: str, body: tuple[object, ...], size: int, now: int) -> bool:
            return False

    world = world_of(Choosy)
    at(world, 0, "publish", A, TOPIC)
    world.run()
    assert world.unsent() == 1
    world.crash(A)
    assert world.unsent() == 0


def test_a_paused_node_answers_late_and_a_dead_one_never() -> None:
    world = world_of(pauses=(Pause(B, 50, 500), Pause(C, 50, 500)))
    at(world, 0, "publish", A, TOPIC)
    at(world, 300, "crash", C)
    world.run()
    assert world.trace is not None
    seen = [(one.node, one.time) for one in world.trace if one.kind == "deliver"]
    assert seen == [(A, 0), (B, 500)]


def test_a_cut_is_one_way() -> None:
    faults = Faults(Random(0), partitions=(Cut(0, 1000, sources=1 << A, peers=1 << B),))
    world = world_of(network=SendingQueue(hop=100, faults=faults))
    at(world, 0, "publish", A, TOPIC)
    at(world, 0, "publish", B, TOPIC)
    at(world, 1000, "publish", A, TOPIC)
    world.run()
    assert [ident for ident, node in deliveries(world) if node == B] == [1, 2]
    assert [ident for ident, node in deliveries(world) if node == A] == [0, 1, 2]


def test_a_slow_link_takes_a_multiple() -> None:
    faults = Faults(Random(0), slows=(Slow(0, 1000, sources=1 << A, peers=1 << B, factor=4),))
    world = world_of(network=SendingQueue(hop=100, faults=faults))
    at(world, 0, "publish", A, TOPIC)
    world.run()
    assert world.trace is not None
    assert {one.node: one.time for one in world.trace if one.kind == "deliver"} == {
        A: 0,
        B: 400,
        C: 101,
    }


def test_losses_are_named_by_what_each_life_published() -> None:
    world = world_of()
    for time in (0, 1, 2):
        at(world, time, "publish", A, TOPIC)
    at(world, 10, "crash", A)
    at(world, 20, "restart", A)
    at(world, 30, "publish", A, TOPIC)
    world.run()
    world.lost("gap", C, TOPIC, {Stream(A, 0): (1, 2), Stream(A, 1): (0, 1)})
    assert world.trace is not None
    named = [(one.kind, one.id, one.source, one.seq) for one in world.trace[-4:]]
    assert named[:3] == [("gap", 1, A, 1), ("gap", 2, A, 2), ("gap", 3, A, 0)]
    assert named[3][1] == "0.1.1", "that was not published"
    assert "loss-reports" in {one.property for one in check(world.trace).violations}


def test_a_message_under_the_wrong_number_is_noticed() -> None:
    class Liar(Flood):
        def take(self, publication: FloodPub) -> None:
            super().take(publication._replace(first=publication.first + 1))

    world = world_of(Liar)
    at(world, 0, "publish", A, TOPIC)
    with pytest.raises(LedgerError, match="numbers 1"):
        world.run()


def test_views_marks_and_states_are_those_of_the_living() -> None:
    world = world_of(Listener)
    at(world, 0, "publish", A, TOPIC)
    at(world, 200, "crash", C)
    world.run()
    assert world.marks["heard"] == 2, "the dead one's mark counts"
    for node in world.running():
        world.ports[node].view(1, 0b011)
    world.record_state()
    assert world.trace is not None
    assert [one.node for one in world.trace if one.kind == "state"] == [A, B]
    assert check(world.trace).ok


@pytest.mark.parametrize("network", [Uniform(Random(3)), ServiceRate(Random(3))])
def test_every_network_reaches_the_new_life(network: NetworkModel) -> None:
    world = world_of(network=network)
    at(world, 10, "crash", B)
    at(world, 20, "restart", B)
    at(world, 30, "publish", A, TOPIC)
    world.run()
    assert (0, B) in deliveries(world)


def test_a_crash_or_restart_that_makes_no_sense_is_refused() -> None:
    world = world_of()
    with pytest.raises(ValueError, match="up already"):
        world.restart(A)
    world.crash(A)
    with pytest.raises(ValueError, match="down already"):
        world.crash(A)


def test_the_production_core_runs_here_as_in_any_world() -> None:
    world = MortalWorld(
        4,
        lambda node, port, life: CubecastNode(node, port, cluster=0b1111, incarnation=life),
        SendingQueue(hop=100),
        trace=[],
    )
    world.establish(TOPIC, range(4))
    for time in range(0, 1000, 50):
        at(world, time, "publish", time // 50 % 4, TOPIC)
    world.run()
    assert world.trace is not None
    report = check(world.trace)
    assert (report.ok, report.deliveries) == (True, 80)
