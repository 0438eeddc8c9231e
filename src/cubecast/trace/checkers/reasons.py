"""The checker of losses: each must have a reason that the trace shows, and have been owed.

Theory of operation. Whether a publisher and a reader were ever apart
(`cubecast.trace.checkers.companions`) between the publication of a message and its loss, or until
it was ``stable``, is one comparison of places in the trace.

A subscription is *whole* from its ``join`` on. It is no longer whole when the node comes back in
another life (until the topic is joined again) or becomes lossy (until a ``join`` that is not).
"""

import re
from collections.abc import Iterable, Sequence
from math import inf

from cubecast.trace.checkers.companions import Companions
from cubecast.trace.checkers.crashes import Population
from cubecast.trace.checkers.patterns import matcher_of
from cubecast.trace.checkers.replay import ReplayedTopic, Seat
from cubecast.trace.checkers.report import Tally
from cubecast.trace.records import Record

__all__ = ["LOSSY", "LossReasons"]

LOSSY = "lossy"
"""As the ``message`` of a ``subscribe`` or ``gap``: the subscription would rather miss messages."""


class _Place:
    """The promises to a node in one subscription of a topic."""

    __slots__ = ("apart", "asked", "lossy", "matcher", "once_lossy", "over", "whole")

    def __init__(self, asked: int, matcher: re.Pattern[str] | None) -> None:
        self.asked = asked
        """When ``subscribe()`` was called."""
        self.matcher = matcher
        """The topics that a pattern matches; None for a plain topic."""
        self.apart: dict[int, float] | None = None
        """The nodes that were apart from this one, and when last, as of its ``join``."""
        self.over: dict[int, int] = {}
        """The time when each node's former life was over, as of the ``join``."""
        self.whole: float = inf
        """Since when the subscription is whole."""
        self.lossy = False
        self.once_lossy = False

    def was_lossy(self, taken: int) -> bool:
        """Whether publishers might suspend the node when a message was published."""
        return self.once_lossy and self.whole > taken

    def promises(self, publisher: int, taken: int) -> bool:
        """Whether a message was promised: not if it was published before, and the node could know.

        The cut of the subscription covers what a publisher sent before the node had asked all.  It
        cannot cover a publisher from which the node was apart then.
        """
        return taken > self.asked or self.apart is None or self.apart.get(publisher, -1) >= taken

    def may_not_know(self, publisher: int, taken: int, holders: Iterable[int]) -> bool:
        """Whether no node could be asked for a message when the ``join`` came.

        The life that published it was over, and the nodes that have it were apart from this one.
        """
        if self.apart is None or self.over.get(publisher, -1) < taken:
            return False
        return all(self.apart.get(holder, -1) == inf for holder in holders)


class LossReasons(Population):
    """Nothing is lost without need, and only what was owed is reported.

    A ``gap`` that names message m of publisher P at node W is needless if W's subscription was
    whole when m was published (``taken``, if the trace has that) and one of these holds:

    1. W and P were together from then until the gap;
    2. W and P were together from then until m was ``stable``;
    3. another node that has delivered m and W were together from then until the gap.

    It is undue if W was not subscribed, by itself or by a pattern; or called ``subscribe`` after m
    was published, and was together with P from then until the ``join``.  P is the life that
    published m: if that was over by the ``join``, W was together with another node that has m.

    A ``discard`` is needless in the cases 1 and 2; case 2 does not hold for a "lossy" subscription:
    publishers go on without it. Both are judged so if P and W ever installed a view that names
    lives. Other losses, and those without an id, are needless in a trace that has ``view`` records
    but no ``crash``, and in which no view leaves out a node that was seen before; gaps marked
    "lossy" are not judged.
    """

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.needed = False
        self.counted: list[Record] = []
        self.at = 0
        self.companions = Companions()
        self.taken_at: dict[tuple[str, int], int] = {}
        self.parted: dict[tuple[str, int], set[int]] = {}
        """A stable message -> the nodes that were apart from its publisher before it was stable."""
        self.places: dict[tuple[int, str], _Place] = {}
        """Node, and topic or pattern -> the subscription."""
        self.taken_back: dict[tuple[int, str], int] = {}
        """When ``subscribe()`` was called and taken back before it returned: the wave of that call
        may complete the next one."""

    # -- promises --------------------------------------------------------------------------------

    def publish(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        super().publish(record, topic, seat, index)
        self.taken_at[topic.name, index] = self._tick()

    def taken(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        self.taken_at[topic.name, index] = self._tick()

    def stable(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        start = self.taken_at[topic.name, index]
        apart = self.companions.apart_since
        nodes = self.companions.nodes()
        publisher = topic.causality.publisher(index).node
        parted = {node for node in nodes if apart(node, publisher, start)}
        self.parted.setdefault((topic.name, index), parted)

    def subscribe(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        place = self._place(record)
        place.lossy = record.message == LOSSY
        if place.lossy:
            place.whole = inf
            place.once_lossy = True

    def join(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        super().join(record, topic, seat)
        place = self._place(record)
        if place.apart is None:
            place.apart = self.companions.last_apart(record.node)
            place.over = dict(self.companions.returned)
        if place.whole == inf and not place.lossy:
            place.whole = self._tick()

    def _place(self, record: Record) -> _Place:
        """The subscription of a record; one without a ``subscribe`` begins with the record."""
        key = record.node, record.topic
        if key not in self.places:
            asked = self.taken_back.pop(key, self._tick())
            self.places[key] = _Place(asked, matcher_of(record.topic))
        return self.places[key]

    def leave(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        key = record.node, topic.name
        place = self.places.pop(key, None)
        if place is not None and place.apart is None:
            self.taken_back[key] = place.asked

    def _tick(self) -> int:
        self.at += 1
        return self.at

    # -- nodes together --------------------------------------------------------------------------

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        super().crash(record, seats)
        self.needed = True
        self.companions.end(record.node, self._tick())
        for table in (self.places, self.taken_back):
            for key in [key for key in table if key[0] == record.node]:
                del table[key]

    def view(self, record: Record) -> None:
        super().view(record)
        if any(node >= 0 and not record.members >> node & 1 for node in self.known):
            self.needed = True
        if self.companions.view(record, self._tick(), self.known):
            for (node, _), place in self.places.items():
                if node == record.node:
                    place.whole = inf

    # -- judgement -------------------------------------------------------------------------------

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        if record.message == LOSSY:
            return
        index = self._judged(record, topic)
        if index is not None:
            why = self._undue(record, topic, index)
            if not why and self._is_whole(record, topic, index):
                why = self._together(record, topic, index)
                why = why or self._had_by_another(record, topic, index)
            self._add(record, why)

    def discard(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        index = self._judged(record, topic)
        if index is not None:
            self._add(record, self._together(record, topic, index))

    def _judged(self, record: Record, topic: ReplayedTopic) -> int | None:
        """The message that is lost, if its loss can be judged by itself; else it is counted."""
        index = None if record.id is None else topic.index.get(record.id)
        if index is not None:
            publisher = topic.causality.publisher(index).node
            if self.companions.known(record.node, publisher):
                return index
        self.counted.append(record)
        return None

    def _undue(self, record: Record, topic: ReplayedTopic, index: int) -> str:
        places = [
            place
            for (node, name), place in self.places.items()
            if node == record.node
            and (name == topic.name or (place.matcher and place.matcher.match(topic.name)))
        ]
        if not places:
            return "a gap without a subscription"
        publisher = topic.causality.publisher(index).node
        taken = self.taken_at[topic.name, index]
        if any(place.promises(publisher, taken) for place in places):
            return ""
        holders = [seat.node for seat in topic.seats.values() if seat.has(index)]
        if any(place.may_not_know(publisher, taken, holders) for place in places):
            return ""
        return "a gap of what was published before the subscription"

    def _is_whole(self, record: Record, topic: ReplayedTopic, index: int) -> bool:
        place = self.places.get((record.node, topic.name))
        return place is not None and place.whole < self.taken_at[topic.name, index]

    def _together(self, record: Record, topic: ReplayedTopic, index: int) -> str:
        """Why a loss was needless, given the views; empty: it was not."""
        node, publisher = record.node, topic.causality.publisher(index).node
        companions, start = self.companions, self.taken_at[topic.name, index]
        place = self.places.get((node, topic.name))
        everyone = place is None or not place.was_lossy(start)
        if everyone and node not in self.parted.get((topic.name, index), (node,)):
            return f"a {record.kind} of what everyone had taken in, in one view with its publisher"
        if companions.apart_since(node, publisher, start):
            return ""
        return f"a {record.kind}, though in one view with its publisher all the time"

    def _had_by_another(self, record: Record, topic: ReplayedTopic, index: int) -> str:
        start = self.taken_at[topic.name, index]
        for other in topic.seats.values():
            if other.node == record.node or not (other.up and other.has(index)):
                continue
            known = self.companions.known(other.node)
            if known and not self.companions.apart_since(record.node, other.node, start):
                return f"a gap, though node {other.node} has it and was in one view all the time"
        return ""

    def _add(self, record: Record, why: str) -> None:
        if why:
            self.tally.add(record.node, record.topic, record.id, record.time, why)

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        if self.needed or not self.eventful:
            return
        for record in self.counted:
            self._add(record, f"a {record.kind}, though no node crashed or was excluded")
