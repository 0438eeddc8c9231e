"""Members that go on without a leader that is mute, moved by hand; newcomers that ask them."""

from __future__ import annotations

from dataclasses import replace

from cubecast.protocol.cluster.leader_watch import LeaderWatch
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.views import Who
from support.member_toys import CONFIG, EPOCHS, Hand, Members

MUTE_AFTER = 160
PATIENT = replace(CONFIG, mute_after=MUTE_AFTER)
WATCH = LeaderWatch(MUTE_AFTER, EPOCHS.answer_after, EPOCHS.enter_every)
BOUND, VIEW_BOUND = WATCH.bound, WATCH.view_bound
TICK = 5


def world_of(nodes: int, patient: bool = True) -> Members:
    return Members(nodes, config=PATIENT if patient else CONFIG)


def newcomer(world: Members, *seeds: int) -> Member:
    """One more node, which asks the `seeds` for a place."""
    node = len(world.members)
    port = Hand(world, node)
    world.ports.append(port)
    who, places = Who(f"n{node}", str(node), 1), [str(seed) for seed in seeds]
    member = Member(
        node, port, view=None, who=who, config=PATIENT, epochs=EPOCHS, seeds=places, now=world.now
    )
    world.members.append(member)
    return member


def mute(world: Members, node: int) -> list[tuple[int, str]]:
    """The leaders that a node called mute, each with the reason."""
    return [(said[0], said[-1]) for said in world.ports[node].of("mute")]
