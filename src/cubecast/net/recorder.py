"""What the application at a live node did, as trace records for the checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cubecast.net.hello import NOBODY
from cubecast.protocol.port import NodeId, Publication, Seq, Stream, Time, Topic
from cubecast.trace import Record
from cubecast.trace.records import Kind

LOSSY = "lossy"
"""In a ``gap`` as `Record.message`: only subscriptions whose policy drops missed anything."""


class Recorded(Protocol):
    """What a recorder needs of its node."""

    @property
    def slot(self) -> NodeId: ...
    def now(self) -> Time: ...


class Recorder:
    """Appends to `trace`, if there is one; live message ids are text: slot, life, number."""

    def __init__(self, node: Recorded, trace: list[Record] | None, arrivals: bool = False) -> None:
        self._node = node
        self._trace = trace
        self._last_epoch = -1
        self.former_slots: set[NodeId] = set()
        """Slots of which this trace has a life already; nodes that share a trace share it."""
        self.arrivals = arrivals and trace is not None
        """Whether to record in which order messages come off the network, copies included."""

    def position(self) -> int:
        """Where the next record goes."""
        return 0 if self._trace is None else len(self._trace)

    def membership(self, kind: Kind, topic: Topic) -> None:
        """The application subscribed, was told so, or unsubscribed."""
        if self._trace is not None:
            self._trace.append(Record(kind, self._node.now(), self._node.slot, topic))

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]], lossy: bool) -> None:
        """Messages of a topic were skipped: each is named, or they are counted.

        Counted if every subscriber takes gaps (`lossy`): that may be any number.
        """
        if self._trace is None:
            return
        if lossy:
            count = sum(last - first + 1 for first, last in skipped.values())
            now, slot = self._node.now(), self._node.slot
            self._trace.append(Record("gap", now, slot, topic, seq=count, message=LOSSY))
        else:
            self._lost("gap", topic, skipped)

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Messages of a topic were dropped by agreement; each is named."""
        self._lost("discard", topic, dropped)

    def _lost(self, kind: Kind, topic: Topic, lost: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        if self._trace is not None:
            for stream, (first, last) in lost.items():
                self._trace += self._messages(kind, topic, stream, first, last - first + 1)

    def view(self, epoch: int, members: int, before: NodeId) -> None:
        """The node installed a view of the cluster.

        If it had another slot `before`, its life there is over and one in the new slot begins:
        records are about slots.  Who has the old slot now, if anybody, has said so.
        """
        if self._trace is None:
            return
        now, slot = self._node.now(), self._node.slot
        if before not in (slot, NOBODY) and not members >> before & 1:
            self._trace.append(Record("crash", now, before))
        if before != slot and (before != NOBODY or slot in self.former_slots):
            self._trace.append(Record("restart", now, slot))
        self.former_slots.add(slot)
        self._trace.append(Record("view", now, slot, seq=epoch, members=members))
        self._last_epoch = epoch

    def gone(self) -> None:
        """The node is out of the cluster for good, and says so by a view without members."""
        if self._trace is not None and self._last_epoch >= 0:
            now, slot = self._node.now(), self._node.slot
            self._trace.append(Record("view", now, slot, seq=self._last_epoch, members=0))

    def crashed(self) -> None:
        """The node ends at once."""
        if self._trace is not None and self._last_epoch >= 0:
            self._trace.append(Record("crash", self._node.now(), self._node.slot))

    def published(
        self, topic: Topic, stream: Stream, first: Seq, count: int, position: int
    ) -> None:
        """The application published; recorded at `position`, before its own deliveries."""
        if self._trace is not None:
            self._trace[position:position] = self._messages("publish", topic, stream, first, count)

    def delivered(self, publication: Publication) -> None:
        """Messages went to the application."""
        if self._trace is not None:
            self._trace += self._messages(
                "deliver",
                publication.topic,
                publication.stream,
                publication.first,
                len(publication.body),
            )

    def received(self, publication: Publication, peer: NodeId) -> None:
        """Messages came from a peer, whether or not their turn has come."""
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
        now, node = self._node.now(), self._node.slot
        source, incarnation = stream
        return [
            Record(
                kind,
                now,
                node,
                topic,
                f"{source}.{incarnation:x}.{seq}",
                source=source,
                seq=seq,
                peer=peer,
                message=message,
            )
            for seq in range(first, first + count)
        ]
