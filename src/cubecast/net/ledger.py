"""Who still owes the reading of what, where one topic has several subscriptions.

A frame counts as consumed when every subscription that was handed it has read it, or may be taken
to have; and not before the frames in front of it in its stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from cubecast.protocol.port import Seq, Stream, Topic


class Ledger:
    """Frames handed out and not consumed, in the order of their streams."""

    def __init__(self) -> None:
        self._owed: dict[tuple[Topic, Stream], deque[tuple[Seq, set[Hashable]]]] = {}

    def hand_out(self, topic: Topic, stream: Stream, last: Seq, owing: set[Hashable]) -> bool:
        """Note who owes a frame; True if nobody does, for it or for one before it."""
        entries = self._owed.get((topic, stream))
        if not owing and not entries:
            return True
        if entries is None:
            entries = self._owed[topic, stream] = deque()
        entries.append((last, owing))
        return False

    def settle(self, reader: Hashable, topic: Topic, stream: Stream, seq: Seq) -> Seq | None:
        """`reader` has read up to `seq`; how far all have, if that is news."""
        entries = self._owed.get((topic, stream), deque())
        for last, owing in entries:
            if last > seq:
                break
            owing.discard(reader)
        return self._pop_settled(topic, stream)

    def forgive(self, reader: Hashable) -> list[tuple[Topic, Stream, Seq]]:
        """`reader` is gone; what that settles."""
        settled = []
        for topic, stream in list(self._owed):
            for _, owing in self._owed[topic, stream]:
                owing.discard(reader)
            seq = self._pop_settled(topic, stream)
            if seq is not None:
                settled.append((topic, stream, seq))
        return settled

    def _pop_settled(self, topic: Topic, stream: Stream) -> Seq | None:
        entries = self._owed.get((topic, stream))
        seq = None
        while entries and not entries[0][1]:
            seq, _ = entries.popleft()
        if entries is not None and not entries:
            del self._owed[topic, stream]
        return seq
