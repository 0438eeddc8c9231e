"""Checkers of what a run comes to: nothing lost, nothing left waiting, state within its bound."""

from collections.abc import Iterable, Iterator

from cubecast.trace.checkers.patterns import Debts
from cubecast.trace.checkers.replay import Checker, Seat, Topic
from cubecast.trace.checkers.report import Tally
from cubecast.trace.records import Record

__all__ = ["BoundedState", "Completeness", "Losses", "Quiescence"]


class Losses(Checker):
    """Counts what nodes report as lost. A gap is ``seq`` messages; a discard with an id is one."""

    def __init__(self) -> None:
        self.gaps = 0
        self.discards = 0

    def gap(self, record: Record, topic: Topic, seat: Seat) -> None:
        self.gaps += max(1, record.seq)

    def discard(self, record: Record, topic: Topic, seat: Seat) -> None:
        self.discards += 1 if record.id is not None else max(1, record.seq)


class _Excuses:
    """The losses that one seat reported: by name, or so many of what was published until then."""

    __slots__ = ("counted", "named")

    def __init__(self) -> None:
        self.named: set[int] = set()
        self.counted: list[tuple[int, int]] = []
        """(messages published when it was reported, how many it covers), in order."""

    def unexcused(self, missing: Iterable[int]) -> Iterator[int]:
        """What is left of ``missing`` (ascending) when each report has covered what it can.

        A report covers messages published before it, so the oldest missing message goes with the
        oldest report that still has room.
        """
        reports = iter(self.counted)
        published, room = next(reports, (0, 0))
        for index in missing:
            if index in self.named:
                continue
            while room == 0 or index >= published:
                published, room = next(reports, (-1, -1))
                if room < 0:
                    break
            if room > 0:
                room -= 1
            else:
                yield index


class Completeness(Checker):
    """Nothing is lost in silence.

    For a subscription that is open when the trace ends: all that was published after its ``join``
    was delivered in it, the node's own publications included. For one that ended with a ``leave``:
    of what was published after its ``join``, all that happens before anything delivered in it was
    delivered in it too (before that thing: which is causal order's to check).

    For an open subscription to a pattern (a ``join`` whose topic has wildcards): all that was
    published after that ``join`` to any topic the pattern matches was delivered at the node.

    A message is excused at a node that reported its loss: by name (a ``discard`` with its id), or
    as one of the ``seq`` messages (at least 1) of a ``gap``, or of a ``discard`` without an id,
    that comes after its publication.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.excuses: dict[Seat, _Excuses] = {}
        self.debts = Debts()

    def join(self, record: Record, topic: Topic, seat: Seat) -> None:
        self.debts.join(seat.node, topic.name)

    def publish(self, record: Record, topic: Topic, seat: Seat, index: int) -> None:
        self.debts.publish(topic.name, index)

    def gap(self, record: Record, topic: Topic, seat: Seat) -> None:
        excuses = self.excuses.setdefault(seat, _Excuses())
        excuses.counted.append((len(topic.ids), max(1, record.seq)))

    def discard(self, record: Record, topic: Topic, seat: Seat) -> None:
        excuses = self.excuses.setdefault(seat, _Excuses())
        if record.id is None:
            excuses.counted.append((len(topic.ids), max(1, record.seq)))
        elif record.id in topic.index:
            excuses.named.add(topic.index[record.id])

    def leave(self, record: Record, topic: Topic, seat: Seat) -> None:
        self.debts.leave(seat.node, topic.name)
        if seat.joined:
            shadow = topic.causality.in_shadow
            holes = (index for index in _missing(topic, seat) if shadow(seat.node, index))
            why = "not delivered, though something that it precedes was"
            self._judge(topic, seat, holes, record.time, why)

    def finish(self, time: int, topics: Iterable[Topic]) -> None:
        why = "published inside an open subscription and not delivered"
        for topic in list(topics):
            owed = dict(self.debts.unpaid(topic))
            for seat in topic.seats.values():
                missing = set(_missing(topic, seat)) if seat.joined else set()
                missing.update(owed.get(seat, ()))
                self._judge(topic, seat, sorted(missing), time, why)

    def _judge(self, topic: Topic, seat: Seat, missing: Iterable[int], time: int, why: str) -> None:
        excuses = self.excuses.pop(seat, None)
        for index in missing if excuses is None else excuses.unexcused(missing):
            self.tally.add(seat.node, topic.name, topic.ids[index], time, why)


class Quiescence(Checker):
    """Nothing waits at the end.

    Every ``subscribe`` had its ``join``, unless a ``leave`` came first; and the last ``state`` of
    each node and topic holds no message back from delivery.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.last: dict[tuple[int, str], Record] = {}

    def state(self, record: Record) -> None:
        self.last[record.node, record.topic] = record

    def finish(self, time: int, topics: Iterable[Topic]) -> None:
        for topic in topics:
            for seat in topic.seats.values():
                if seat.subscribing:
                    self.tally.add(seat.node, topic.name, None, time, "subscribe() never returned")
        for (node, name), record in self.last.items():
            if record.held:
                why = f"{record.held} messages still wait for delivery"
                self.tally.add(node, name, None, record.time, why)


class BoundedState(Checker):
    """No ``state`` that states a limit has held + retained above it."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def state(self, record: Record) -> None:
        if 0 < record.limit < record.held + record.retained:
            why = f"{record.held} held + {record.retained} retained > {record.limit} allowed"
            self.tally.add(record.node, record.topic, None, record.time, why)


def _missing(topic: Topic, seat: Seat) -> Iterator[int]:
    """Messages published since the seat's ``join`` and not delivered there, ascending.

    Whatever was delivered of these was delivered inside that subscription, as it did not exist
    before it.
    """
    delivered = seat.delivered
    index = delivered.find(0, seat.since)
    while index >= 0:
        yield index
        index = delivered.find(0, index + 1)
    yield from range(max(seat.since, len(delivered)), len(topic.ids))
