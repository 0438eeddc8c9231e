"""Streams that are over, for nodes that may come back and ask.

A stream is over when nothing more of it will be delivered: its publisher is gone and everyone has
it, or its publisher forgot the topic and began anew in another generation (*superseded*).  Of such
streams a node remembers in which view that happened, as long as `Horizon` says.

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
"""The view with which a stream ended, if no node told us and we were not there: before all others.
We have nothing of such a stream, so no node asks us for it."""


class History:
    """When the streams of one topic were over."""

    __slots__ = ("_marks", "_view", "forgotten", "latest", "over", "superseded", "told_over")

    def __init__(self, context: Context) -> None:
        self._view = context.view
        self._marks = context.marks
        self.over: dict[Stream, int] = {}
        """Dead and settled streams that are remembered, and with which view they ended."""
        self.told_over: dict[Stream, int] = {}
        """The same as others say, of what our cuts cover."""
        self.superseded: dict[Stream, int] = {}
        """Streams whose publisher began anew, and in which view."""
        self.latest: dict[Stream, int] = {}
        """The last generation of those who began anew, by life."""
        self.forgotten = -1
        """What was over in this view or before may not be remembered."""

    def __bool__(self) -> bool:
        """Whether something is kept for those who may come back."""
        return bool(self.over or self.superseded)

    def is_superseded(self, stream: Stream) -> bool:
        """Whether the publisher of a stream has begun anew since: everyone had all of it then."""
        return self.latest.get(stream.life, 0) > stream.generation

    def is_settled(self, stream: Stream) -> bool:
        """Whether everyone is known to have a stream, or to have skipped it."""
        return stream in self.over or stream in self.superseded

    def since(self, reached: Mapping[Stream, Seq], since: int, apart: int) -> dict[Stream, Seq]:
        """Of what is `reached`, that which concerns a node that asks or is told; causally closed.

        Not in streams of lives that ended before view `since`, nor in those that were superseded
        while the other one was with us, before view `apart`: it had all of them or came later,
        nothing more of them will come, and it may not remember them.
        """
        over, superseded = self.over, self.superseded
        return {
            stream: seq
            for stream, seq in reached.items()
            if over.get(stream, since) >= since and superseded.get(stream, apart) >= apart - 1
        }

    def over_of(self, streams: Collection[Stream]) -> Barrier:
        """With which view those of some streams ended that did, for who does not know it.

        Who came later, and was not told yet, says nothing: a guess would pass for the latest word.
        """
        dead = [stream for stream in streams if not self._view.is_live(stream)]
        ended = [(stream, self._ended_with(stream)) for stream in dead]
        return tuple((stream, epoch) for stream, epoch in ended if epoch is not None)

    def _ended_with(self, stream: Stream) -> int | None:
        """The view with which a dead stream ended: as remembered, as seen, or as we were told."""
        for known, key in (
            (self.over, stream),
            (self._view.ended, stream.life),
            (self.told_over, stream),
        ):
            if key in known:
                return known[key]
        return None

    def hear_over(self, told: Mapping[Stream, int], cut: Collection[Stream]) -> None:
        """Everyone has answered our JOIN, and said with which views streams of the cut ended.

        Of an end that no node knows, all who did are gone: to returning nodes it is new.  Some
        may have been settled here meanwhile, when that was not known.
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
        """The cut covers all that was told but this."""
        self.told_over = {stream: self.told_over[stream] for stream in pending}

    def supersede(self, stream: Stream) -> bool:
        """A publisher begins anew; False if that was known."""
        if self.latest.get(stream.life, 0) >= stream.generation:
            return False
        self.latest[stream.life] = stream.generation
        return True

    def note_superseded(self, stream: Stream) -> None:
        """Everyone had all of a stream as its publisher began anew."""
        self.superseded[stream] = self._view.epoch

    def settle(self, stream: Stream) -> None:
        """No more of a dead stream will come: remember with which view it ended."""
        if not self.is_settled(stream):
            told = self.told_over.pop(stream, UNDATED)
            self.over[stream] = self._view.ended.get(stream.life, told)

    def reopen(self, stream: Stream) -> None:
        """A stream is not over for everyone yet; when it ended is known all the same."""
        if stream in self.over:
            self.told_over[stream] = self.over.pop(stream)

    def lift(self, stream: Stream) -> None:
        """How far a stream went is news: it is not over until it is settled again."""
        self.over.pop(stream, None)

    def date_anew(self, stream: Stream) -> None:
        """Since now it is known here how far a stream went, if it is over."""
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
        """Keep nothing of a stream; only a life that is over ends with its last generation."""
        self.told_over.pop(stream, None)
        if self.latest and self.latest.get(stream.life) == stream.generation:
            del self.latest[stream.life]

    def return_from(self, former: History, dead: Iterable[Stream], apart: int) -> None:
        """Take over what another life remembered, which has been apart since view `apart`.

        How far the `dead` streams went that ended since, the others learn as we come back.
        """
        self.latest = dict(former.latest)
        self.superseded = dict(former.superseded)
        for stream in dead:
            ended = former.over.get(stream, apart)
            self.over[stream] = ended if ended < apart else self._view.epoch
        self.forgotten = former.forgotten
