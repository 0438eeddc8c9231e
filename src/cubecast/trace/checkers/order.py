"""Checkers of deliveries and their order. Each class docstring is the definition."""

from array import array

from cubecast.trace.checkers.replay import Checker, ReplayedTopic, Seat
from cubecast.trace.checkers.report import Tally
from cubecast.trace.records import MessageId, Record

__all__ = ["CausalOrder", "Fifo", "InsideSubscription", "NoCreation", "NoDuplication"]


class NoCreation(Checker):
    """A delivered message was published earlier in the trace, on that topic, by the stated source.

    A delivery need not state a source. A publication without an id, or with the id of an earlier
    one of its topic, is a violation, too: which message was delivered cannot be told.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def republish(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        why = "published without an id" if record.id is None else "published with the id of another"
        self.tally.add(record.node, topic.name, record.id, record.time, why)

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        if record.source != -1:
            self._check_source(record, topic, index)

    def redeliver(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        if record.source != -1:
            self._check_source(record, topic, index)

    def deliver_unknown(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        why = "delivered, but not published on this topic before"
        self.tally.add(record.node, topic.name, record.id, record.time, why)

    def _check_source(self, record: Record, topic: ReplayedTopic, index: int) -> None:
        publisher = topic.causality.publisher(index).node
        if record.source != publisher:
            why = f"delivered as node {record.source}'s, but published by node {publisher}"
            self.tally.add(record.node, topic.name, record.id, record.time, why)


class NoDuplication(Checker):
    """A node delivers a message at most once, ever: leaving and joining again is no excuse.

    A restart is one: the new life knows nothing of what the last one delivered.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.unknown: set[tuple[Seat, MessageId | None]] = set()
        """Seats and the messages delivered there that were not published."""

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        if self.unknown and (seat, record.id) in self.unknown:
            self._add(record)

    def redeliver(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        self._add(record)

    def deliver_unknown(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        key = (seat, record.id)
        if key in self.unknown:
            self._add(record)
        self.unknown.add(key)

    def _add(self, record: Record) -> None:
        self.tally.add(record.node, record.topic, record.id, record.time, "delivered again")


class Fifo(Checker):
    """A node delivers the messages of one publisher in the order in which they were published.

    The order is that of the ``publish`` records, not of anything the protocol claims (``seq``).
    Messages may be missing; that is completeness.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.newest: dict[Seat, array[int]] = {}
        """Per seat and lane: rank of the newest message delivered, 0 if none."""

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        causality = topic.causality
        lane, rank = causality.lane[index], causality.rank[index]
        newest = self.newest.get(seat)
        if newest is None:
            newest = self.newest[seat] = array("L")
        if lane >= len(newest):
            newest.extend([0] * (len(causality.publishers) - len(newest)))
        if newest[lane] < rank:
            newest[lane] = rank
        else:
            publisher = causality.publishers[lane].node
            why = f"delivered after a later message of the same publisher, node {publisher}"
            self.tally.add(seat.node, topic.name, record.id, record.time, why)


class CausalOrder(Checker):
    """No node delivers a message after one that the message happens before.

    m happens before m' if a node published or delivered m before it published m', or if m happens
    before some x that happens before m': on one topic, by the nodes' own records. It holds even if
    the delivering node never saw the messages between them (a newcomer that skips x must still not
    deliver m after m').
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        if late:
            why = "delivered too late"
            if len(self.tally.kept) < self.tally.limit:
                why = f"delivered after {self._witness(topic, seat, index)!r}, which it precedes"
            self.tally.add(seat.node, topic.name, record.id, record.time, why)

    def _witness(self, topic: ReplayedTopic, seat: Seat, index: int) -> MessageId:
        """A message delivered here that the late one precedes: the first in publication order."""
        later = seat.delivered.find(1, index)
        while not topic.causality.happens_before(index, later):
            later = seat.delivered.find(1, later + 1)
            assert later >= 0, "late, so there is one"
        return topic.ids[later]


class InsideSubscription(Checker):
    """A node delivers only inside a subscription: after a ``join``, before the next ``leave``.

    So a publisher that does not subscribe does not deliver its own publications either.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        if not seat.joined:
            self._add(record)

    def redeliver(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        if not seat.joined:
            self._add(record)

    def deliver_unknown(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        if not seat.joined:
            self._add(record)

    def _add(self, record: Record) -> None:
        why = "delivered outside a subscription"
        self.tally.add(record.node, record.topic, record.id, record.time, why)
