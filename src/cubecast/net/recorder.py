"""What the application at a live node did, as trace records for the checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cubecast.protocol.port import NodeId, Publication, Seq, Stream, Time, Topic
from cubecast.trace import Record
from cubecast.trace.records import Kind

LOSSY = "lossy"
"""In a ``gap`` as `Record.message`: only subscriptions whose policy drops missed anything."""


class Recorded(Protocol):
    """What a recorder needs of its node."""

    slot: NodeId

    def now(self) -> Time: ...


class Recorder:
    """Appends to `trace`, if there is one; live message ids are text: slot, life, number."""

    def __init__(self, node: Recorded, trace: list[Record] | None, arrivals: bool = False) -> None:
        self._node = node
        self._trace = trace
        self.arrivals = arrivals and trace is not None
        """Whether to record in which order messages come off the network, copies included."""

    def position(self) -> int:
        """Where the next record goes."""
        return 0 if self._trace is None else len(self._trace)

    def membership(self, kind: Kind, topic: Topic) -> None:
        """The application subscribed, was told so, or unsubscribed."""
        if self._trace is not None:
            self._trace.append(Record(kind, self._node.now(), self._node.slot, topic))

    def gap(self, topic: Topic, count: int, lossy: bool) -> None:
        """So many messages of a topic were skipped; `lossy`: every subscriber takes gaps."""
        if self._trace is not None:
            note = LOSSY if lossy else ""
            now, slot = self._node.now(), self._node.slot
            self._trace.append(Record("gap", now, slot, topic, seq=count, message=note))

    def discard(self, topic: Topic, dropped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        """Messages of a topic were dropped by agreement; each is named."""
        if self._trace is not None:
            for stream, (first, last) in dropped.items():
                count = last - first + 1
                self._trace += self._messages("discard", topic, stream, first, count)

    def view(self, epoch: int, members: int) -> None:
        """The node installed a view of the cluster."""
        if self._trace is not None:
            now, slot = self._node.now(), self._node.slot
            self._trace.append(Record("view", now, slot, seq=epoch, members=members))

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
