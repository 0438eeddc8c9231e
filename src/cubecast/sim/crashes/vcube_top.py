"""VCube-Top for simulated VCube-PB: an oracle that tells of members once per round of tests.

[B] 5.2: a subscription or a leave is noted locally, and the others hear of it with the next round.
The cost of the tests themselves is not simulated (the paper's evaluation counts no test either), so
all processes share this one object.  Crashes are announced by `cubecast.sim.crashes.crash_stop`.

At each round a process is told how the present subscribers differ from those it was told last.  So
a node that comes back, or begins to publish, is told in one piece what it missed.
"""

from __future__ import annotations

from collections.abc import Iterator

from cubecast.protocol.paper.vcube_pb import SUBSCRIBER, News
from cubecast.protocol.port import NodeId, Port, Time, Topic
from cubecast.topology import members_of


class Group:
    """One topic: its subscribers and publishers, and what each was told of them."""

    def __init__(self) -> None:
        self.members = {SUBSCRIBER: 0}
        """Per kind: the nodes that have joined by the last round."""
        self.told: dict[NodeId, int] = {}
        """Node -> the subscribers as it knows them, for every node that was ever told."""

    def interested(self) -> int:
        """The nodes that are told: subscribers and publishers."""
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
        """(time of announcement, node, topic, kind, joins or leaves), in order."""

    def enter(self, node: NodeId, port: Port) -> None:
        self._ports[node] = port

    def establish(self, topic: Topic, members: int) -> None:
        """Begin a topic with these subscribers; idempotent: every process of the topic calls it."""
        group = self._group(topic)
        if not group.told:
            group.members[SUBSCRIBER] = members
            group.told = dict.fromkeys(members_of(members), members)

    def join(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        self._plan(node, topic, kind, True, now)

    def leave(self, node: NodeId, topic: Topic, kind: str, now: Time) -> None:
        self._plan(node, topic, kind, False, now)

    def news(self, node: NodeId, now: Time) -> Iterator[News]:
        """The changes that `node` is told in this round, topic by topic."""
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
