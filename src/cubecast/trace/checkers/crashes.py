"""Checkers of runs in which nodes crash and restart. Each class docstring is the definition.

``publish``, ``deliver``, ``crash`` and ``restart`` are taken as true; the claims of the protocol
(``view``, ``gap``, ``discard``) are judged.
"""

from collections.abc import Iterable, Sequence

from cubecast.trace.checkers.outcome import Excuses, missing_at
from cubecast.trace.checkers.replay import Checker, ReplayedTopic, Seat
from cubecast.trace.checkers.report import Tally
from cubecast.trace.records import MessageId, Record

__all__ = ["Agreement", "Convergence", "LossReports", "Population"]


class Agreement(Checker):
    """A message that one node delivered, all deliver, though its publisher is gone.

    A message whose publisher's life has ended, and that was delivered in any life that is up at the
    end, was delivered in every subscription that is open at the end and whose ``join`` came before
    the publication; or that node reported it in a ``gap``. (Messages of lives that are up are owed
    to all anyway: that is completeness.)
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.excuses: dict[Seat, Excuses] = {}

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.excuses.setdefault(seat, Excuses()).add(record, topic)

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        for topic in topics:
            if all(seat.up for seat in topic.lives()):
                continue
            up = [seat for seat in topic.seats.values() if seat.up]
            for seat in up:
                if seat.joined:
                    self._judge(topic, seat, up, time)

    def _judge(self, topic: ReplayedTopic, seat: Seat, up: list[Seat], time: int) -> None:
        """Judge one seat; only what a life that is up delivered needs, and uses up, an excuse."""
        publisher = topic.causality.publisher
        witnesses: dict[int, int] = {}
        for index in missing_at(topic, seat):
            if not publisher(index).up:
                other = next((other for other in up if other.has(index)), None)
                if other is not None:
                    witnesses[index] = other.node
        excuses = self.excuses.get(seat)
        for index in witnesses if excuses is None else excuses.unexcused(witnesses):
            why = f"not delivered, but node {witnesses[index]} did before its publisher was gone"
            self.tally.add(seat.node, topic.name, topic.ids[index], time, why)


class LossReports(Checker):
    """A message reported as lost was published, and is not delivered.

    No life delivers a message that it names in a ``gap`` or ``discard``, before or after; but a
    publisher may have delivered its own message to itself before the others agreed to discard it.
    A message that a report names was published earlier on that topic.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.lost: dict[Seat, set[int]] = {}

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self._report(record, topic, seat)

    def discard(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self._report(record, topic, seat)

    def _report(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        if record.id is None:
            return
        index = topic.index.get(record.id)
        if index is None:
            self._add(record, f"a {record.kind} of what was not published on this topic before")
            return
        if record.kind == "discard" and topic.causality.publisher(index) is seat:
            return
        if seat.has(index):
            self._add(record, f"a {record.kind} of what was delivered")
        self.lost.setdefault(seat, set()).add(index)

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        if self.lost and index in self.lost.get(seat, ()):
            self._add(record, "delivered, though reported as lost")

    def _add(self, record: Record, why: str) -> None:
        self.tally.add(record.node, record.topic, record.id, record.time, why)


class Population(Checker):
    """Collects the nodes: those that published, joined, told their state or installed a view."""

    def __init__(self) -> None:
        self.known: dict[int, None] = {}
        self.eventful = False
        """There was a ``crash``, ``restart`` or ``view``: the trace is of a run that has views."""

    def publish(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        self.known[record.node] = None

    def join(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        self.known[record.node] = None

    def state(self, record: Record) -> None:
        self.known[record.node] = None

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        self.known[record.node] = None
        self.eventful = True

    def view(self, record: Record) -> None:
        self.known[record.node] = None
        self.eventful = True


class Convergence(Population):
    """In the end all nodes agree on the members.

    The last ``view`` of every node that is up has the same number and the same members: exactly the
    nodes that are up. A node that is out of the cluster for good says so by a view without members.
    Judged if the trace has a ``crash``, ``restart`` or ``view`` at all.
    """

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.down: set[int] = set()
        self.last: dict[int, Record] = {}

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        super().crash(record, seats)
        self.down.add(record.node)
        self.last.pop(record.node, None)

    def restart(self, record: Record) -> None:
        self.down.discard(record.node)

    def view(self, record: Record) -> None:
        super().view(record)
        self.last[record.node] = record

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        if not self.eventful:
            return
        gone = {node for node, view in self.last.items() if view.members == 0}
        up = sorted(node for node in self.known if node not in self.down and node not in gone)
        views = [self.last[node] for node in up if node in self.last]
        newest = max(views, key=lambda view: view.seq, default=None)
        for node in up:
            self._judge(node, self.last.get(node), newest, time)
        if newest is not None and newest.members != sum(1 << node for node in up if node >= 0):
            why = f"view {newest.seq} has {_nodes(newest.members)}, but up are {up}"
            self._add(newest.node, time, why)

    def _judge(self, node: int, view: Record | None, newest: Record | None, time: int) -> None:
        if view is None or newest is None:
            self._add(node, time, "no view was installed in this life")
        elif (view.seq, view.members) != (newest.seq, newest.members):
            mine = f"the last view is {view.seq} of {_nodes(view.members)}"
            theirs = f"at node {newest.node} it is {newest.seq} of {_nodes(newest.members)}"
            self._add(node, time, f"{mine}, but {theirs}")

    def _add(self, node: int, time: int, why: str, id: MessageId | None = None) -> None:
        self.tally.add(node, "", id, time, why)


def _nodes(members: int) -> list[int]:
    return [node for node in range(members.bit_length()) if members >> node & 1]
