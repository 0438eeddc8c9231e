"""The dead streams of one topic at one node, until they are settled.

The agreement on a view names an end and an heir for each (`end`).  A node that comes back from
another view says how far a stream went there (`hear_end`).

Invariants:

1. A stream with an heir has a final: how far the views of this node agreed that it goes.
2. `inherited` are streams whose heir is this node, and not everyone has them.
3. Every entry leaves: the heir's when the stream is settled, the ends' when what is delivered
   here has come so far (`pass_ends`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cubecast.protocol.messages import Barrier
from cubecast.protocol.port import NodeId, Seq, Stream


class Loss(NamedTuple):
    """Messages of a dead stream that no node has, from the next one up to `last`.

    `after`: the cut of a node that has what follows them; it covers all their causes.
    """

    last: Seq
    after: Barrier


class DeadStreams:
    """The ends, the heirs and the losses of one topic."""

    __slots__ = ("ends", "finals", "heirs", "inherited", "losses")

    def __init__(self) -> None:
        self.finals: dict[Stream, Seq] = {}
        """How far our views agreed that a stream goes."""
        self.heirs: dict[Stream, NodeId] = {}
        """The node that feeds a stream in its publisher's place."""
        self.inherited: dict[Stream, Seq] = {}
        """The streams whose heir we are, and their ends."""
        self.ends: dict[Stream, Seq] = {}
        """How far a stream went in views that we were not in."""
        self.losses: dict[Stream, Loss] = {}
        """The messages that we are to skip."""

    def __bool__(self) -> bool:
        """Whether the end of a stream is still under way here."""
        return bool(self.heirs or self.finals or self.ends)

    def names(self, stream: Stream, done: Seq) -> bool:
        """Whether more than `done` of a stream may be delivered here, or is to be skipped."""
        return (
            stream in self.heirs
            or stream in self.losses
            or self.finals.get(stream, -1) > done
            or self.ends.get(stream, -1) > done
        )

    def promised(self) -> Iterator[tuple[Stream, Seq]]:
        """How far streams will go here, reached or not."""
        yield from self.finals.items()
        yield from self.ends.items()

    def agreed(self, stream: Stream, seq: Seq) -> Seq:
        """The part of a stream up to `seq` that our views agreed on, if it has an heir.

        Messages above it were published in another view: every node was told of them (`hear_end`)
        and skips them, after what the heir feeds.
        """
        return min(seq, self.finals.get(stream, seq)) if stream in self.heirs else seq

    def end(self, stream: Stream, last: Seq, heir: NodeId) -> None:
        """Note the agreed end and the heir of a stream."""
        self.finals[stream] = last
        self.heirs[stream] = heir

    def end_without_heir(self, stream: Stream, last: Seq) -> None:
        """End a stream whose heir died with what we were to get: nothing more comes."""
        del self.heirs[stream]
        self.inherited.pop(stream, None)
        self.finals[stream] = last

    def hear_end(self, stream: Stream, last: Seq) -> None:
        """Note how far a stream went in a view that we were not in."""
        self.ends[stream] = max(last, self.ends.get(stream, -1))

    def inherit(self, stream: Stream, last: Seq) -> None:
        """Feed a stream from now on."""
        self.inherited[stream] = last

    def disinherit(self, stream: Stream) -> Seq | None:
        """Feed a stream no more; return its end if we did."""
        return self.inherited.pop(stream, None)

    def settle(self, stream: Stream) -> None:
        """Note that no node feeds a stream any more."""
        self.heirs.pop(stream, None)

    def lose(self, stream: Stream, loss: Loss) -> None:
        """Note messages that no node has: they are to be skipped."""
        self.losses[stream] = loss

    def skipped(self, stream: Stream) -> None:
        """Note that all lost messages of a stream are skipped."""
        del self.losses[stream]

    def skip_nothing(self) -> None:
        """Forget all losses: nothing is delivered here, so nothing is to be skipped."""
        self.losses.clear()

    def pass_ends(self, stream: Stream, done: Seq) -> list[Seq]:
        """Forget the ends up to `done`, which is delivered here, and return them."""
        known = self.finals, self.ends
        return [ends.pop(stream) for ends in known if stream in ends and ends[stream] <= done]

    def forget(self, stream: Stream) -> None:
        """Forget the ends of a stream."""
        self.finals.pop(stream, None)
        self.ends.pop(stream, None)
