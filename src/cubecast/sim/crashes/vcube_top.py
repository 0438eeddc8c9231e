"""VCube-Top for simulated VCube-PB: an oracle that tells of members once per round of tests.

[B] 5.2: who subscribes or leaves is noted locally, and the others hear of it with the next round.
What the tests themselves cost is not simulated (the paper's evaluation counts no test either), so
all processes share this one object.  Crashes are announced by `cubecast.sim.crashes.crash_stop`.

A process is told, at each round, how what it was told last differs from what holds now.  So one
who comes back, or begins to publish, is told in one piece what it missed.
"""

from __future__ import annotations

from collections.abc import Iterator

from cubecast.protocol.paper.vcube_pb import SUBSCRIBER, News
from cubecast.protocol.port import NodeId, Port, Time, Topic
from cubecast.topology import members_of


class Group:
    """One topic: who subscribes and who publishes, and what each was told of it."""

    def __init__(self) -> None:
        self.members = {SUBSCRIBER: 0}
        """Per kind: the set of those who have joined, by the last round."""
        self.told: dict[NodeId, int] = {}
        """The subscribers as each node knows them: of every node that was ever told."""

    def interested(self) -> int:
        """Those who are told: subscribers and publishers."""
        everybody = 0
        for nodes in self.members.values():
            everybody |= nodes
        return everybody


class VCubeTop:
    """Membership of all topics, announced at multiples of `round_time`."""

    def __init__(self, round_time: Time) -> None:
        self._round = round_time
        self._ports: dict[NodeId, Port] = {}
        self._groups: dict[Topic, Group] = {}
        self._planned: list[tuple[Time, NodeId, Topic, str, bool]] = []
        """(when it is announced, who, where, as what, joins or leaves), in order."""

    def enter(self, node: NodeId, port: Port) -> None:
        self._ports[node] = port

    def establish(self, topic: Topic, members: int) -> None:
        """Idempotent: every process of the topic says so."""
        group = self._group(topic)
        if not group.told:
            group.members[SUBSCRIBER] = members
            group.told = dict.fromkeys(members_of(members), members)

    def join(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        self._plan(node, topic, kind, True, now)

    def leave(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        self._plan(node, topic, kind, False, now)

    def news(self, node: NodeId, now: Time) -> Iterator[News]:
        """What `node` is told in this round, topic by topic."""
        self._hold_round(now)
        if self._planned:
            self._ports[node].wake(self._planned[0][0])
        for topic, group in self._groups.items():
            known = group.told.get(node, 0)
            if not (group.interested() | known) >> node & 1:
                continue
            present = group.members[SUBSCRIBER]
            if present != known:
                group.told[node] = present
                yield topic, present & ~known, known & ~present

    def _plan(self, node: NodeId, topic: Topic, kind: str, joins: bool, now: Time) -> None:
        due = (now // self._round + 1) * self._round
        first = not self._planned or self._planned[-1][0] < due
        self._planned.append((due, node, topic, kind, joins))
        self._ports[node].wake(due)
        if first:
            self._wake_all(due)

    def _wake_all(self, due: Time) -> None:
        everybody = 0
        for group in self._groups.values():
            everybody |= group.interested()
        for node in members_of(everybody):
            self._ports[node].wake(due)

    def _hold_round(self, now: Time) -> None:
        while self._planned and self._planned[0][0] <= now:
            _, node, topic, kind, joins = self._planned.pop(0)
            group = self._group(topic)
            bit = 1 << node
            before = group.members.get(kind, 0)
            group.members[kind] = before | bit if joins else before & ~bit

    def _group(self, topic: Topic) -> Group:
        group = self._groups.get(topic)
        if group is None:
            group = self._groups[topic] = Group()
        return group
