"""Checkers of a run's outcome: nothing lost, nothing left waiting, state within its bound."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cubecast.trace.checkers.companions import Companions
from cubecast.trace.checkers.patterns import PatternDebts
from cubecast.trace.checkers.replay import Checker, ReplayedTopic, Seat
from cubecast.trace.checkers.report import Tally
from cubecast.trace.records import Record

__all__ = ["BoundedState", "Completeness", "Excuses", "Losses", "Quiescence", "missing_at"]


HOLE: Final = "not delivered, though something that it precedes was"


class Losses(Checker):
    """Counts reported losses: a record with an id is one message, one without is ``seq``."""

    def __init__(self) -> None:
        self.gaps = 0
        self.discards = 0

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.gaps += 1 if record.id is not None else max(1, record.seq)

    def discard(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.discards += 1 if record.id is not None else max(1, record.seq)


class Excuses:
    """The losses that one seat reported: by id, or as a count of messages published before."""

    __slots__ = ("counted", "named")

    def __init__(self) -> None:
        self.named: set[int] = set()
        self.counted: list[tuple[int, int]] = []
        """(messages published when it was reported, how many it covers), in order."""

    def add(self, record: Record, topic: ReplayedTopic) -> None:
        """Add a report that names a message, or counts some."""
        if record.id is None:
            self.counted.append((len(topic.ids), max(1, record.seq)))
        elif record.id in topic.index:
            self.named.add(topic.index[record.id])

    def unexcused(self, missing: Iterable[int]) -> Iterator[int]:
        """The rest of ``missing`` (ascending) when each report has covered what it can.

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

    For a subscription that is open when the trace ends: all that was published after its ``join``,
    in lives that have not ended, was delivered in it, the node's own publications included. For
    every subscription, also one that ended with a ``leave`` or a ``crash``: of what was published
    after its ``join`` (in any life), all that happens before any message delivered in it was
    delivered in it too (whether before that message, causal order checks).

    A publisher that left the cluster for good left nothing behind: what it had published since an
    open subscription's ``join`` was delivered there, if the two were in one view all the time.

    For an open subscription to a pattern (a ``join`` whose topic has wildcards): all that was
    published after that ``join`` to any topic the pattern matches was delivered at the node.

    A message is excused at a node that reported its loss: by name (a ``gap`` with its id), or as
    one of the ``seq`` messages (at least 1) of a ``gap`` or ``discard`` without an id that comes
    after its publication. It is excused everywhere if its publisher reports, by name, that it was
    discarded. A discard by another node excuses nothing.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.excuses: dict[Seat, Excuses] = {}
        self.withdrawn: dict[ReplayedTopic, set[int]] = {}
        """The messages that their publishers reported as discarded."""
        self.suspect: list[tuple[ReplayedTopic, Seat, int, int]] = []
        """(topic, seat, message, time): holes in subscriptions that ended; publishers' discards are
        left out at the end."""
        self.debts = PatternDebts()
        self.at = 0
        self.companions = Companions()
        self.known: dict[int, None] = {}
        self.said: dict[int, dict[tuple[ReplayedTopic, int], int]] = {}
        """Node -> the messages it published in its present life, and when they were taken."""
        self.left: dict[tuple[ReplayedTopic, Seat], list[int]] = {}
        """The messages that nodes that left for good owed to a subscription."""

    def join(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.debts.join(seat.node, topic.name)

    def publish(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        self.debts.publish(topic.name, index)
        self.said.setdefault(record.node, {})[topic, index] = self._tick()

    def taken(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        self.said.setdefault(record.node, {})[topic, index] = self._tick()

    def _tick(self) -> int:
        self.at += 1
        return self.at

    def view(self, record: Record) -> None:
        self.known[record.node] = None
        if not record.members:
            for (topic, index), taken in self.said.pop(record.node, {}).items():
                self._leave_behind(record.node, topic, index, taken)
        self.companions.view(record, self._tick(), self.known)

    def _leave_behind(self, publisher: int, topic: ReplayedTopic, index: int, taken: int) -> None:
        for seat in topic.seats.values():
            owed = seat.up and seat.joined and seat.since <= index and not seat.has(index)
            if owed and not self.companions.apart_since(seat.node, publisher, taken):
                self.left.setdefault((topic, seat), []).append(index)

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.excuses.setdefault(seat, Excuses()).add(record, topic)

    def discard(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        if record.id is None:
            self.excuses.setdefault(seat, Excuses()).add(record, topic)
        elif record.id in topic.index:
            index = topic.index[record.id]
            if topic.causality.publisher(index) is seat:
                self.withdrawn.setdefault(topic, set()).add(index)

    def leave(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.debts.leave(seat.node, topic.name)
        if seat.joined:
            self._close(record, topic, seat)

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        self.companions.end(record.node, self._tick())
        self.said.pop(record.node, None)
        self.debts.crash(record.node)
        for topic, seat in seats:
            if seat.joined:
                self._close(record, topic, seat)

    def _close(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        shadow = topic.causality.in_shadow
        holes = (index for index in missing_at(topic, seat) if shadow(seat, index))
        for index in self._unexcused(seat, holes):
            self.suspect.append((topic, seat, index, record.time))

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        for topic, seat, index, when in self.suspect:
            self._add(topic, seat, index, when, HOLE)
        for topic in list(topics):
            owed = dict(self.debts.unpaid(topic))
            for seat in topic.seats.values():
                missing = set(missing_at(topic, seat)) if seat.joined else set()
                missing.update(owed.get(seat, ()))
                self._judge_open(topic, seat, sorted(missing), time)

    def _judge_open(self, topic: ReplayedTopic, seat: Seat, missing: list[int], time: int) -> None:
        causality = topic.causality
        left = set(self.left.get((topic, seat), ()))
        lasting = [
            index
            for index in missing
            if causality.publisher(index).up or causality.in_shadow(seat, index) or index in left
        ]
        for index in self._unexcused(seat, lasting):
            why = "published inside an open subscription and not delivered"
            if index in left:
                why = "not delivered, though its publisher was with us until it left"
            elif not causality.publisher(index).up:
                why = HOLE
            self._add(topic, seat, index, time, why)

    def _unexcused(self, seat: Seat, missing: Iterable[int]) -> Iterable[int]:
        excuses = self.excuses.pop(seat, None)
        return missing if excuses is None else excuses.unexcused(missing)

    def _add(self, topic: ReplayedTopic, seat: Seat, index: int, time: int, why: str) -> None:
        if index not in self.withdrawn.get(topic, ()):
            self.tally.add(seat.node, topic.name, topic.ids[index], time, why)


class Quiescence(Checker):
    """Nothing waits at the end.

    Every ``subscribe`` had its ``join``, unless a ``leave`` came first; and the last ``state`` of
    each node and topic holds no message back from delivery. A life that ended waits for nothing,
    by a crash or because it left: then its last view has no members.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.last: dict[tuple[int, str], Record] = {}

    def state(self, record: Record) -> None:
        self.last[record.node, record.topic] = record

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        self._end(record.node)

    def view(self, record: Record) -> None:
        if not record.members:
            self._end(record.node)

    def _end(self, node: int) -> None:
        for key in [key for key in self.last if key[0] == node]:
            del self.last[key]

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
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


def missing_at(topic: ReplayedTopic, seat: Seat) -> Iterator[int]:
    """Messages published since the seat's ``join`` and not delivered there, ascending.

    Those delivered were delivered inside that subscription, as they did not exist before it.
    """
    delivered = seat.delivered
    index = delivered.find(0, seat.since)
    while index >= 0:
        yield index
        index = delivered.find(0, index + 1)
    yield from range(max(seat.since, len(delivered)), len(topic.ids))
