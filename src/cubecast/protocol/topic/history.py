"""Streams that are over, for nodes that may come back and ask.

A stream is over when nothing more of it will be delivered: its publisher is gone and everyone has
it, or its publisher forgot the topic and began anew in another generation (*superseded*).  A node
remembers in which view that happened, as long as `Horizon` says.

Invariant: `forgotten` is at or above the view of every dead stream that was over and is no longer
remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cubecast.protocol.cluster.horizon import KEPT_STREAMS, Horizon
from cubecast.protocol.messages import Barrier
from cubecast.protocol.port import Seq, Stream
from cubecast.protocol.topic.context import Context

UNDATED = -1
"""The view that ended a stream, if no node told us and we were not in it: before all others.
We have nothing of such a stream, so no node asks us for it."""


class History:
    """The views in which the streams of one topic were over."""

    __slots__ = ("_marks", "_view", "forgotten", "latest", "over", "superseded", "told_over")

    def __init__(self, context: Context) -> None:
        self._view = context.view
        self._marks = context.marks
        self.over: dict[Stream, int] = {}
        """Dead and settled streams that are remembered, with the views that ended them."""
        self.told_over: dict[Stream, int] = {}
        """The same as others say it, for streams that our cuts cover."""
        self.superseded: dict[Stream, int] = {}
        """Streams whose publisher began anew, and in which view."""
        self.latest: dict[Stream, int] = {}
        """The last generation of publishers that began anew, by life."""
        self.forgotten = -1
        """Streams that were over in this view or before may not be remembered."""

    def __bool__(self) -> bool:
        """Whether something is kept for nodes that may come back."""
        return bool(self.over or self.superseded)

    def is_superseded(self, stream: Stream) -> bool:
        """Whether the publisher of a stream has begun anew since: everyone had all of it then."""
        return self.latest.get(stream.life, 0) > stream.generation

    def is_settled(self, stream: Stream) -> bool:
        """Whether everyone is known to have a stream, or to have skipped it."""
        return stream in self.over or stream in self.superseded

    def since(self, reached: Mapping[Stream, Seq], since: int, apart: int) -> dict[Stream, Seq]:
        """The part of `reached` that concerns a node that asks or is told; causally closed.

        Without streams of lives that ended before view `since`, and without streams superseded
        while that node was with us, before view `apart`: it had all of them or came later, nothing
        more of them will come, and it may not remember them.
        """
        over, superseded = self.over, self.superseded
        return {
            stream: seq
            for stream, seq in reached.items()
            if over.get(stream, since) >= since and superseded.get(stream, apart) >= apart - 1
        }

    def over_of(self, streams: Collection[Stream]) -> Barrier:
        """The dead ones of `streams`, each with the view that ended it, for a node that asks.

        A node that came later, and was not told yet, says nothing: a guess would pass for the
        latest news.
        """
        dead = [stream for stream in streams if not self._view.is_live(stream)]
        ended = [(stream, self._ended_with(stream)) for stream in dead]
        return tuple((stream, epoch) for stream, epoch in ended if epoch is not None)

    def _ended_with(self, stream: Stream) -> int | None:
        """The view that ended a dead stream: as remembered, as seen, or as we were told."""
        for known, key in (
            (self.over, stream),
            (self._view.ended, stream.life),
            (self.told_over, stream),
        ):
            if key in known:
                return known[key]
        return None

    def hear_over(self, told: Mapping[Stream, int], cut: Collection[Stream]) -> None:
        """Take over from the answers to our JOIN which views ended streams of the cut.

        If no node knows the view, all that did are gone: to returning nodes the end is new.  Some
        streams may have been settled here meanwhile, when the view was not known.
        """
        epoch = self._view.epoch
        unknown = [stream for stream in cut if not self._view.is_live(stream)]
        dated = {stream: min(ended, epoch) for stream, ended in told.items()}
        self.told_over = {**dict.fromkeys(unknown, epoch), **dated}  # no end is in the future
        for stream, ended in self.told_over.items():
            if self.over.get(stream) == UNDATED:
                self._marks["settled before it was dated"] += 1
                self.over[stream] = ended

    def keep_told(self, pending: Iterable[Stream]) -> None:
        """Keep what was told of `pending` streams; the cut covers the others."""
        self.told_over = {stream: self.told_over[stream] for stream in pending}

    def supersede(self, stream: Stream) -> bool:
        """Note that a publisher begins anew; False if that was known."""
        if self.latest.get(stream.life, 0) >= stream.generation:
            return False
        self.latest[stream.life] = stream.generation
        return True

    def note_superseded(self, stream: Stream) -> None:
        """Note a stream whose publisher began anew: everyone had all of it then."""
        self.superseded[stream] = self._view.epoch

    def settle(self, stream: Stream) -> None:
        """Remember which view ended a dead stream of which no more will come."""
        if not self.is_settled(stream):
            told = self.told_over.pop(stream, UNDATED)
            self.over[stream] = self._view.ended.get(stream.life, told)

    def reopen(self, stream: Stream) -> None:
        """Note that a stream is not over for everyone yet; keep the view that ended it."""
        if stream in self.over:
            self.told_over[stream] = self.over.pop(stream)

    def lift(self, stream: Stream) -> None:
        """Note that a stream went further than known: it is not over until settled again."""
        self.over.pop(stream, None)

    def date_anew(self, stream: Stream) -> None:
        """Date a stream that is over with the present view: its end is known here since now."""
        if stream in self.over:
            self.over[stream] = self._view.epoch

    def outdated(self, horizon: Horizon) -> Iterable[Stream]:
        """Forget, one by one, the streams that no node that may come back asks for."""
        needs_dead, needs_superseded = horizon.needs_dead, horizon.needs_superseded
        for kept, needed in ((self.over, needs_dead), (self.superseded, needs_superseded)):
            excess = len(kept) - KEPT_STREAMS
            for number, (stream, epoch) in enumerate(list(kept.items())):
                if number < excess or not needed(epoch):
                    del kept[stream]
                    yield stream
                    if number < excess or kept is self.over:
                        self.forgotten = max(self.forgotten, epoch)

    def forget(self, stream: Stream) -> None:
        """Keep nothing of a stream; with its last generation, forget the life, too."""
        self.told_over.pop(stream, None)
        if self.latest and self.latest.get(stream.life) == stream.generation:
            del self.latest[stream.life]

    def return_from(self, former: History, dead: Iterable[Stream], apart: int) -> None:
        """Take over what our former life remembered, which was apart since view `apart`.

        Of the `dead` streams that ended since, the other nodes learn the ends as we come back.
        """
        self.latest = dict(former.latest)
        self.superseded = dict(former.superseded)
        for stream in dead:
            ended = former.over.get(stream, apart)
            self.over[stream] = ended if ended < apart else self._view.epoch
        self.forgotten = former.forgotten
