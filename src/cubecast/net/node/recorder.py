"""Records what the application at a live node did, as trace records for the checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from cubecast.net.wire.hello import NOBODY
from cubecast.protocol.cluster.views import View, process_of
from cubecast.protocol.port import NodeId, Publication, Seq, Stream, Time, Topic
from cubecast.trace import Record
from cubecast.trace.records import Kind

LOSSY = "lossy"
"""In a ``gap`` as `Record.message`: only subscriptions whose policy drops missed anything."""


class Recorded(Protocol):
    """What a recorder needs of its node."""

    @property
    def slot(self) -> NodeId: ...
    @property
    def uid(self) -> str: ...
    def now(self) -> Time: ...


class Recorder:
    """Appends to `trace`, if there is one; live message ids are text: slot, life, number."""

    def __init__(self, node: Recorded, trace: list[Record] | None, arrivals: bool = False) -> None:
        self._node = node
        self._trace = trace
        self._last_epoch = -1
        self.former_slots: set[NodeId] = set()
        """Slots of which this trace has a life already; nodes that share a trace share the set."""
        self.places: Callable[[str, NodeId], int] | None = None
        """If several nodes share a trace: gives the number of a process in it, which does not
        change with its slot.  Two sides of a partition may give one slot to two nodes."""
        self.owners: dict[Stream, int] = {}
        """The publisher of each stream, as numbered by `places`; shared like `former_slots`."""
        self._begun = False
        self.arrivals = arrivals and trace is not None
        """Whether to record in which order messages come off the network, copies included."""

    @property
    def _place(self) -> int:
        """The number of this node in the trace."""
        if self.places is None:
            return self._node.slot
        return self.places(process_of(self._node.uid), self._node.slot)

    def position(self) -> int:
        """The position of the next record."""
        return 0 if self._trace is None else len(self._trace)

    def membership(self, kind: Kind, topic: Topic) -> None:
        """Record that the application subscribed, was told so, or unsubscribed."""
        if self._trace is not None:
            self._trace.append(Record(kind, self._node.now(), self._place, topic))

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]], lossy: bool) -> None:
        """Record that messages of a topic were skipped: by name, or only their count.

        They are counted if all subscriptions accept gaps (`lossy`): there may be any number.
        """
        if self._trace is None:
            return
        if lossy:
            count = sum(last - first + 1 for first, last in skipped.values())
            now, place = self._node.now(), self._place
            self._trace.append(Record("gap", now, place, topic, seq=count, message=LOSSY))
        else:
            self._lost("gap", topic, skipped)

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Record, by name, messages of a topic that were dropped by agreement."""
        self._lost("discard", topic, dropped)

    def _lost(self, kind: Kind, topic: Topic, lost: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        if self._trace is not None:
            for stream, (first, last) in lost.items():
                self._trace += self._messages(kind, topic, stream, first, last - first + 1)

    def view(self, view: View, before: NodeId) -> None:
        """Record that the node installed a view; until then it had the slot `before`."""
        if self._trace is None:
            return
        self._last_epoch = view.epoch
        lives = {slot: who.uid for slot, who in view.members.items()}
        if self.places is None:
            self._moved(view.mask, before)
        else:
            name = self.places
            lives = {name(process_of(uid), slot): uid for slot, uid in lives.items()}
            if not self._begun and self._place in self.former_slots:
                self._trace.append(Record("restart", self._node.now(), self._place))
        self._begun = True
        self.former_slots.add(self._place)
        self._trace.append(
            Record(
                "view",
                self._node.now(),
                self._place,
                seq=view.epoch,
                members=sum(1 << place for place in lives),
                lives=tuple(lives[place] for place in sorted(lives)),
            )
        )

    def _moved(self, members: int, before: NodeId) -> None:
        """Record a change of slot, in a trace whose records are about slots, as a change of life.

        The life in the slot `before` ends and one in the new slot begins.  If another node has the
        old slot now, it has recorded that itself.
        """
        assert self._trace is not None
        now, slot = self._node.now(), self._node.slot
        if before not in (slot, NOBODY) and not members >> before & 1:
            self._trace.append(Record("crash", now, before))
        if before != slot and (before != NOBODY or slot in self.former_slots):
            self._trace.append(Record("restart", now, slot))

    def gone(self) -> None:
        """Record that the node has left the cluster for good, as a view without members."""
        if self._trace is not None and self._last_epoch >= 0:
            now, place = self._node.now(), self._place
            self._trace.append(Record("view", now, place, seq=self._last_epoch, members=0))

    def crashed(self) -> None:
        """Record that the node ends at once."""
        if self._trace is not None and self._last_epoch >= 0:
            self._trace.append(Record("crash", self._node.now(), self._place))

    def published(
        self, topic: Topic, stream: Stream, first: Seq, count: int, position: int
    ) -> None:
        """Record what the application published, at `position`: before its own deliveries."""
        if self._trace is not None:
            self.owners[stream] = self._place
            self._trace[position:position] = self._messages("publish", topic, stream, first, count)

    def delivered(self, publication: Publication) -> None:
        """Record messages that went to the application."""
        if self._trace is not None:
            self._trace += self._messages(
                "deliver",
                publication.topic,
                publication.stream,
                publication.first,
                len(publication.body),
            )

    def received(self, publication: Publication, peer: NodeId) -> None:
        """Record messages that came from a peer, whether or not their turn has come."""
        if self._trace is not None:
            self._trace += self._messages(
                "receive",
                publication.topic,
                publication.stream,
                publication.first,
                len(publication.body),
                peer=peer,
                message="pub",
            )

    def _messages(
        self,
        kind: Kind,
        topic: Topic,
        stream: Stream,
        first: Seq,
        count: int,
        *,
        peer: NodeId = -1,
        message: str = "",
    ) -> list[Record]:
        now, node = self._node.now(), self._place
        source, incarnation = stream
        known = source if self.places is None else self.owners.get(stream, -1)
        return [
            Record(
                kind,
                now,
                node,
                topic,
                f"{source}.{incarnation:x}.{seq}",
                source=known,
                seq=seq,
                peer=peer,
                message=message,
            )
            for seq in range(first, first + count)
        ]
