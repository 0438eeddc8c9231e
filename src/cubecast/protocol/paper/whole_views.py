"""VCube-PS whose ACKs carry whole views: what the text of [J] 3.3 says beside its listing.

Line 97 of Algorithm 2 adds ⟨i, SUB, c⟩ to an ACK: the sender alone.  The text to it says that a
subscriber "includes in the message its current view of t's membership (line 97) merged with the
partial membership information coming from its own children".  The two differ where a node leaves
while another joins.  UNS goes to the subscribers that the leaver knows, so a newcomer that it does
not know never hears of it; but the views that are in the newcomer's ACKs may still have the leaver.
Nothing takes such an entry out again: the newcomer serves the leaver to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, cast

from cubecast.protocol.paper.sets import NEVER, Ident
from cubecast.protocol.paper.state import SUB, Ack, Entry, Variables
from cubecast.protocol.paper.vcube_ps import VCubePS
from cubecast.protocol.port import NodeId, Port, Seq, Time, Topic
from cubecast.topology import members_of


class Entries:
    """A set of entries ⟨n, SUB, c⟩, as {c: bit mask of n}: m.data of an ACK, or a view."""

    __slots__ = ("masks",)

    def __init__(self, masks: dict[Seq, int]) -> None:
        self.masks = masks

    def __add__(self, other: Entries | tuple[Entry, ...]) -> Entries:
        """m.data ∪ mem: here entries may be in both."""
        if not isinstance(other, Entries):
            assert not other, "ACKs have entries of this kind, or none"
            return self
        if self.masks == other.masks:
            return self
        masks = self.masks.copy()
        for c, mask in other.masks.items():
            masks[c] = masks.get(c, 0) | mask
        return Entries(masks)

    __radd__ = __add__

    def beyond(self, other: Entries) -> Iterator[Entry]:
        """The entries that the other set lacks."""
        for c, mask in self.masks.items():
            fresh = mask & ~other.masks.get(c, 0)
            if fresh:
                for n in members_of(fresh):
                    yield n, SUB, c


class WholeViews(VCubePS):
    """One node of VCube-PS with another line 97: m.data ∪ {⟨n, SUB, c⟩ ∈ view[m.t]}."""

    __slots__ = ("_views",)
    label: ClassVar[str] = "vcube-ps"

    def __init__(self, node: NodeId, port: Port, *, nodes: int) -> None:
        super().__init__(node, port, nodes=nodes)
        self._views: dict[Topic, Entries] = {}
        """{⟨n, SUB, c⟩ ∈ view[t]}, until the view changes."""

    def subscribe(self, topic: Topic, now: Time) -> None:
        self._views.pop(topic, None)
        super().subscribe(topic, now)

    def unsubscribe(self, topic: Topic, now: Time) -> None:
        self._views.pop(topic, None)
        super().unsubscribe(topic, now)

    def send_acks(
        self, t: Variables, j: NodeId, ident: Ident, data: tuple[Entry, ...]
    ) -> None:  # 95
        if t.own and t.first_rec[ident[0]] == NEVER:  # 96
            data = cast(Any, self._view(t) + data)  # 97, as the text has it
        self.port.control(j, Ack(t.name, ident, data))  # 98

    def update(self, t: Variables, set_2: Iterable[Entry] | Entries) -> None:  # 75
        """Entries of an ACK that are in view[t] as they are change nothing, so they are left out.

        What changes the view is put into the set that is kept of it.
        """
        known = self._view(t)
        entries = set_2.beyond(known) if isinstance(set_2, Entries) else set_2
        view = t.view
        news = [one for one in entries if one[0] not in view or one[2] > view[one[0]][1]]
        if not news:
            return
        masks = known.masks.copy()
        for n, _, _ in news:
            if n in view:
                masks[view[n][1]] = masks.get(view[n][1], 0) & ~(1 << n)
        super().update(t, news)
        for n, _, _ in news:
            o, c = t.view[n]
            if o == SUB:
                masks[c] = masks.get(c, 0) | 1 << n
        self._views[t.name] = Entries(masks)

    def _view(self, t: Variables) -> Entries:
        found = self._views.get(t.name)
        if found is None:
            masks: dict[Seq, int] = {}
            for n, (o, c) in t.view.items():
                if o == SUB:
                    masks[c] = masks.get(c, 0) | 1 << n
            found = self._views[t.name] = Entries(masks)
        return found
