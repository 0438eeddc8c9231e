"""Waves: an operation goes down a tree of all nodes and the answers come up, merged.

[J] sends SUB over all nodes and gathers the membership with its ACKs (Algorithm 2, lines 24, 42
and 95-98).  A wave does the same for joins, leaves and registrations, and gathers besides the
membership a vector of sequence numbers: the elementwise maximum of what the nodes answered.

Invariants:

1. A node applies an operation and takes its own answer in one step (`Contribution`).
2. An answer goes to the parent only when every child has answered, so when the origin is
   answered, every node has applied the operation.
3. Links deliver exactly once and in order, so a wave is seen once by each node and no answer is
   counted twice.
4. `values_bytes` is the sum of the retained values of all gatherings that are open, also after an
   answer, an abort or a peer that is out of reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cubecast.protocol.errors import MAX_STREAMS, MAX_WAVES, ProtocolError
from cubecast.protocol.messages import Answer, Op, Wave
from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic
from cubecast.protocol.subscriptions.links import Links
from cubecast.protocol.subscriptions.topic_names import Listing
from cubecast.protocol.topic.retained_values import RetainedValue, newer
from cubecast.topology import MAX_DIMENSION, children, cluster, cluster_mask, members_of, parent

MAX_VALUES_BYTES = 64 * 1024 * 1024
"""Bytes of retained values in answers that are not complete; beyond, values are left out."""
WaveId = tuple[NodeId, Topic, int, int]
"""Origin, topic, number, and the view it began in: the next owner of a slot counts anew."""


class Contribution(NamedTuple):
    """One node's part of the answer to a wave."""

    vector: dict[Stream, Seq]
    member: bool
    lossy: bool = False
    over: tuple[tuple[Stream, int], ...] = ()
    """Streams of `vector` that ended, each with the view that ended it."""
    own: tuple[Stream, Seq] | None = None
    """The stream in which the node itself publishes to the topic, and its last message (-1: none).
    None: the node has no state of the topic, and never forgot a topic."""
    kept: RetainedValue | None = None
    """To a JOIN: the retained value of the topic that the node keeps."""


NOTHING = Contribution({}, False)


class Gathering:
    """A wave that passed here and whose answer is not complete."""

    __slots__ = (
        "awaited",
        "kept",
        "listing",
        "lossy",
        "members",
        "over",
        "own",
        "parent",
        "since",
        "told_by",
        "vector",
        "wave",
    )

    def __init__(self, wave: Wave, parent: NodeId | None, awaited: int, now: Time = 0) -> None:
        self.wave = wave
        self.parent = parent
        self.awaited = awaited
        self.since = now  # `cubecast.protocol.subscriptions.mute_members` puts it off
        self.vector: dict[Stream, Seq] = {}
        self.over: dict[Stream, int] = {}
        self.own: dict[NodeId, tuple[Stream, Seq]] = {}
        self.told_by: dict[Stream, NodeId] = {}  # of an own wave: the child that sent each entry
        self.members = 0
        self.lossy = 0
        self.listing: Listing | None = None  # of a TOPICS wave
        self.kept: RetainedValue | None = None  # of a JOIN

    def merge(
        self,
        vector: dict[Stream, Seq],
        members: int,
        lossy: int,
        over: Iterable[tuple[Stream, int]] = (),
        own: Iterable[tuple[Stream, Seq]] = (),
        child: NodeId | None = None,
    ) -> None:
        """Add the answer of one node, or of the subtree of `child`."""
        for stream, epoch in over:
            self.over[stream] = max(epoch, self.over.get(stream, epoch))
        for stream, seq in own:
            self.own[stream.source] = stream, seq
        self.members |= members
        self.lossy |= lossy
        mine = self.vector
        notes = self.told_by if self.parent is None and child is not None else None
        for stream, seq in vector.items():
            if mine.get(stream, -1) < seq:
                mine[stream] = seq
                if notes is not None and child is not None:
                    notes[stream] = child


def below(node: NodeId, child: NodeId, visited: int) -> int:
    """The part of the tree of a wave through `visited` that `child` answers for to `node`.

    It is the child's whole cluster c(node, s), whatever the origin of the wave.
    """
    return cluster_mask(node, cluster(node, child)) & visited


def _size(kept: RetainedValue | None) -> int:
    return 0 if kept is None else len(kept.blob)


class Waves:
    """The waves that pass through, or start at, one node."""

    def __init__(self, node: NodeId, links: Links, cluster_mask: int) -> None:
        self._node = node
        self._links = links
        self.cluster = cluster_mask
        self.epoch = 0
        self._number = 0
        self._aborted = False
        self._gatherings: dict[WaveId, Gathering] = {}
        self.values_bytes = 0
        """Bytes of retained values in answers that are not complete."""

    def start(
        self,
        topic: Topic,
        op: Op,
        own: Contribution,
        now: Time,
        topics: Mapping[Topic, int] | None = None,
        since: int = 0,
        apart: int = 0,
        visited: int = 0,
    ) -> Gathering | None:
        """Send a wave to every node; return its result at once if there is no other node.

        `topics` is what this node contributes to a TOPICS wave, here and in `on_wave`.  `visited`:
        the wave visits these nodes alone.
        """
        number, lossy, visited = self._number, own.lossy, visited or self.cluster
        wave = Wave(topic, self._node, number, op, visited, lossy, self.epoch, since, apart)
        self._number += 1
        return self._pass_on(wave, None, MAX_DIMENSION, own, now, topics)

    @property
    def next_number(self) -> int:
        """The number of the next wave of this node."""
        return self._number

    def admits(self, wave: Wave, sender: NodeId) -> bool:
        """Whether to apply a wave; `ProtocolError` if its sender cannot have got it honestly.

        Every relay checks the same, so a wave that does not lead here is the sender's own lie.
        """
        if wave.origin == self._node or not wave.cluster >> self._node & 1:
            raise ProtocolError(f"a wave of node {wave.origin} that does not lead here")
        if parent(wave.origin, self._node, wave.cluster) != sender:
            raise ProtocolError(f"a wave of node {wave.origin} by another way than its tree")
        if wave.cluster & ~self._links.peers:
            raise ProtocolError(f"a wave of node {wave.origin} through nodes that are gone")
        self._links.check_may_ask(sender)
        many = len(self._gatherings)
        if many >= MAX_WAVES and wave.origin == sender:
            raise ProtocolError(f"more than {MAX_WAVES} waves at a time")
        known = (wave.origin, wave.topic, wave.number, wave.epoch) in self._gatherings
        return not known and many < 2 * MAX_WAVES

    def on_wave(
        self,
        wave: Wave,
        sender: NodeId,
        own: Contribution,
        now: Time,
        topics: Mapping[Topic, int] | None = None,
    ) -> Gathering | None:
        """Pass on a wave and answer it; `own` is what this node contributes."""
        return self._pass_on(wave, sender, cluster(self._node, sender) - 1, own, now, topics)

    def _pass_on(
        self,
        wave: Wave,
        parent: NodeId | None,
        height: int,
        own: Contribution,
        now: Time,
        topics: Mapping[Topic, int] | None,
    ) -> Gathering | None:
        below = children(self._node, wave.cluster, height)
        gathering = Gathering(wave, parent, sum(1 << child for child in below), now)
        member = 1 << self._node if own.member else 0
        mine = () if own.own is None else (own.own,)
        gathering.merge(own.vector, member, member if own.lossy else 0, own.over, mine)
        self._hold(gathering, own.kept)
        if topics is not None:
            gathering.listing = Listing(topics)
        self._gatherings[wave.origin, wave.topic, wave.number, wave.epoch] = gathering
        for child in below:
            self._links.send(child, wave, now)
        return self._finish(gathering, now)

    def on_answer(self, answer: Answer, sender: NodeId, now: Time) -> Gathering | None:
        """Merge a child's answer; return the result of an own wave that is now complete."""
        gathering = self._gatherings.get((answer.origin, answer.topic, answer.number, answer.epoch))
        if gathering is None and self._aborted:
            return None  # perhaps to a wave that was started again since
        if gathering is None or not gathering.awaited >> sender & 1:
            raise ProtocolError(f"an answer to node {answer.origin} that is not awaited")
        many = len(gathering.vector) + len(answer.vector)
        if many > MAX_STREAMS and len({*gathering.vector, *dict(answer.vector)}) > MAX_STREAMS:
            raise ProtocolError(f"an answer with more than {MAX_STREAMS} streams")
        self._check_speaks_for_subtree(answer, gathering.wave, sender)
        gathering.awaited &= ~(1 << sender)
        vector = dict(answer.vector)
        gathering.merge(vector, answer.members, answer.lossy, answer.over, answer.own, sender)
        if gathering.listing is not None:
            gathering.listing.merge(answer.topics, answer.more)
        if answer.kept is not None and gathering.wave.op is Op.JOIN and self._has_room():
            self._hold(gathering, newer(gathering.kept, answer.kept))
        return self._finish(gathering, now)

    def _has_room(self) -> bool:
        """Whether one more retained value may wait here for the rest of its answer."""
        return self.values_bytes < MAX_VALUES_BYTES

    def _hold(self, gathering: Gathering, kept: RetainedValue | None) -> None:
        """Keep a value in an open gathering, instead of the one that is in it."""
        self.values_bytes += _size(kept) - _size(gathering.kept)
        gathering.kept = kept

    def _close(self, wave: WaveId) -> None:
        """Remove a gathering that is complete, or whose answer is no longer awaited."""
        self.values_bytes -= _size(self._gatherings.pop(wave).kept)

    def _check_speaks_for_subtree(self, answer: Answer, wave: Wave, sender: NodeId) -> None:
        """Check that what nodes say of themselves comes from the sender's subtree.

        Every relay checks the same, so an entry of a node outside it is the sender's lie.
        """
        subtree = below(self._node, sender, wave.cluster)
        spoken_for = [stream.source for stream, _ in answer.own]
        if wave.op is Op.LEAVE:  # each publisher says whether it needs the leaver
            spoken_for += [stream.source for stream, _ in answer.vector]
        strangers = (answer.members | answer.lossy) & ~subtree
        if strangers or any(not subtree >> source & 1 for source in spoken_for):
            raise ProtocolError(f"an answer to node {wave.origin} for nodes that are not below it")

    def _finish(self, gathering: Gathering, now: Time) -> Gathering | None:
        if gathering.awaited:
            return None
        wave = gathering.wave
        self._close((wave.origin, wave.topic, wave.number, wave.epoch))
        if gathering.parent is None:
            return gathering
        listed, more = gathering.listing.packed() if gathering.listing is not None else ((), False)
        answer = Answer(
            wave.topic,
            wave.origin,
            wave.number,
            tuple(gathering.vector.items()),
            gathering.members,
            gathering.lossy,
            listed,
            more,
            wave.epoch,
            tuple(gathering.over.items()),
            tuple(gathering.own.values()),
            gathering.kept,
        )
        self._links.send(gathering.parent, answer, now)
        return None

    def forget(self, peer: NodeId, now: Time) -> list[Gathering]:
        """Wait no more for a node that is out of reach; return own waves that are now complete."""
        bit = 1 << peer
        complete = []
        for gathering in [one for one in self._gatherings.values() if one.awaited & bit]:
            gathering.awaited &= ~bit
            done = self._finish(gathering, now)
            if done is not None:
                complete.append(done)
        return complete

    def abort(self, alive: int) -> int:
        """Give up all waves: the origins start their waves again in the new view.

        Questions to one node (`Op.PRESENT`) go on if that node is `alive`.  Returns the nodes whose
        answers were missing.
        """
        self._aborted = True
        missing = 0
        for key, gathering in list(self._gatherings.items()):
            missing |= gathering.awaited
            if gathering.wave.op is not Op.PRESENT or not gathering.awaited & alive:
                self._close(key)
        return missing

    def question(self, peer: NodeId) -> Gathering | None:
        """The question to one node (`Op.PRESENT`) that it has not answered."""
        for one in self._gatherings.values():
            if one.wave.op is Op.PRESENT and one.parent is None and one.awaited >> peer & 1:
                return one
        return None

    @property
    def waiting(self) -> Collection[Gathering]:
        """The waves whose answer this node waits for."""
        return self._gatherings.values()

    def awaited(self, topic: Topic) -> dict[NodeId, Time]:
        """The children that own waves of a topic wait for, and since when; each is silent, or waits
        for nodes below it."""
        return {
            child: one.since
            for one in self._gatherings.values()
            if one.parent is None and one.wave.topic == topic
            for child in members_of(one.awaited)
        }

    def pending(self) -> int:
        """The number of waves whose answer this node waits for."""
        return len(self._gatherings)

    def own_pending(self) -> int:
        """The number of those that started here."""
        return sum(1 for origin, _, _, _ in self._gatherings if origin == self._node)
