"""Read a trace once, in order, and call the checkers' hooks for each record.

The replay knows the ground truth of the topics (which node published what, which nodes delivered
it, which are subscribed) and judges nothing. A checker overrides the hooks it needs, and is only
called there; records of the network (``send``, ``receive``) concern no checker and cost next to
nothing.

A node has a seat in a topic for each of its *lives*: a ``crash`` ends one, a ``restart`` begins the
next with nothing. A life is judged as if it were a node of its own.

A delivery reaches one of three hooks. ``deliver``: the node's first delivery of a message that was
published on that topic earlier in the trace. ``redeliver``: a later delivery of the same.
``deliver_unknown``: the message was not published on that topic, or not yet. Only first deliveries
count for the order of messages; hooks see the topic as it was before the record, except that in
``publish`` and ``deliver`` the message is already in the topic's table and in the node's shadow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from cubecast.trace.checkers.happens_before import HappensBefore
from cubecast.trace.records import MessageId, Record

__all__ = ["Checker", "ReplayedTopic", "Seat", "replay"]


class Seat:
    """One node in one topic, in one of its lives."""

    __slots__ = ("delivered", "joined", "node", "since", "subscribing", "up")

    def __init__(self, node: int) -> None:
        self.node = node
        self.delivered = bytearray()
        """Per message number: 1 if it was delivered here, ever. May be shorter than the table."""
        self.joined = False
        """Inside a subscription: after its ``join``, before its ``leave``."""
        self.since = 0
        """The number of the first message published after the latest ``join``."""
        self.subscribing = False
        """After a ``subscribe`` without its ``join``."""
        self.up = True
        """Not ended by a ``crash``, nor by leaving the cluster for good."""

    def has(self, index: int) -> bool:
        return index < len(self.delivered) and self.delivered[index] == 1


class ReplayedTopic:
    """One topic: its messages, numbered in the order of publication, and the nodes seen in it."""

    __slots__ = ("causality", "ended", "ids", "index", "name", "seats")

    def __init__(self, name: str) -> None:
        self.name = name
        self.index: dict[MessageId, int] = {}
        """Message id -> message number."""
        self.ids: list[MessageId] = []
        self.seats: dict[int, Seat] = {}
        """Node -> its latest life."""
        self.ended: list[Seat] = []
        """Lives that were followed by another one."""
        self.causality: HappensBefore[Seat] = HappensBefore()

    def seat(self, node: int) -> Seat:
        seat = self.seats.get(node)
        if seat is None:
            seat = self.seats[node] = Seat(node)
        return seat

    def lives(self) -> Iterator[Seat]:
        """Every life of every node."""
        yield from self.ended
        yield from self.seats.values()


class Checker:
    """The hooks of a replay; none does anything here."""

    def publish(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        """Message ``index`` was published."""

    def republish(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """A publication without an id, or with one that the topic has already; it is left out."""

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        """First delivery of message ``index`` here; late: after one that it happens before."""

    def redeliver(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        """Message ``index`` was delivered again."""

    def deliver_unknown(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """A message was delivered that was not published on this topic."""

    def taken(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        """The protocol took message ``index`` for publication, perhaps long after the call."""

    def stable(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        """The publisher knows that every subscriber it addressed has consumed message ``index``."""

    def subscribe(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """``subscribe()`` was called."""

    def join(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """``subscribe()`` returned."""

    def leave(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """The seat's subscription, if there is one (``seat.joined``), ends after this."""

    def gap(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """The node reports that it skipped messages."""

    def discard(self, record: Record, topic: ReplayedTopic, seat: Seat) -> None:
        """The node reports that it dropped messages by agreement."""

    def state(self, record: Record) -> None:
        """The node says what it holds."""

    def crash(self, record: Record, seats: Sequence[tuple[ReplayedTopic, Seat]]) -> None:
        """The node's life ends after this, in every topic (``seats``: as they were)."""

    def restart(self, record: Record) -> None:
        """A new life of the node begins; the one before has ended."""

    def view(self, record: Record) -> None:
        """The node installed a view of the cluster."""

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        """The trace is over; ``time`` is that of its last record."""


Hook: TypeAlias = Callable[..., None]


def replay(records: Iterable[Record], checkers: Sequence[Checker]) -> None:
    """Drive the checkers through a trace, in one pass, keeping no record."""
    replayed = _Replay(checkers)
    handlers = replayed.handlers
    record = None
    for record in records:
        handler = handlers.get(record.kind)
        if handler is not None:
            handler(record)
    time = 0 if record is None else record.time
    for checker in checkers:
        checker.finish(time, replayed.topics.values())


class _Replay:
    """The state of one replay and a handler per kind of record."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self.topics: dict[str, ReplayedTopic] = {}
        self.handlers: dict[str, Callable[[Record], None]] = {
            "publish": self._publish,
            "taken": self._taken,
            "stable": self._stable,
            "deliver": self._deliver,
            "subscribe": self._subscribe,
            "join": self._join,
            "leave": self._leave,
            "gap": self._gap,
            "discard": self._discard,
            "state": self._state,
            "crash": self._crash,
            "restart": self._restart,
            "view": self._view,
        }
        self._down: set[int] = set()
        self._on_publish = _overridden(checkers, "publish")
        self._on_republish = _overridden(checkers, "republish")
        self._on_deliver = _overridden(checkers, "deliver")
        self._on_redeliver = _overridden(checkers, "redeliver")
        self._on_unknown = _overridden(checkers, "deliver_unknown")
        self._on_taken = _overridden(checkers, "taken")
        self._on_stable = _overridden(checkers, "stable")
        self._on_subscribe = _overridden(checkers, "subscribe")
        self._on_join = _overridden(checkers, "join")
        self._on_leave = _overridden(checkers, "leave")
        self._on_gap = _overridden(checkers, "gap")
        self._on_discard = _overridden(checkers, "discard")
        self._on_state = _overridden(checkers, "state")
        self._on_crash = _overridden(checkers, "crash")
        self._on_restart = _overridden(checkers, "restart")
        self._on_view = _overridden(checkers, "view")

    def _topic(self, name: str) -> ReplayedTopic:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = ReplayedTopic(name)
        return topic

    def _publish(self, record: Record) -> None:
        topic = self._topic(record.topic)
        seat = topic.seat(record.node)
        if record.id is None or record.id in topic.index:
            for republish in self._on_republish:
                republish(record, topic, seat)
            return
        index = topic.index[record.id] = len(topic.ids)
        topic.ids.append(record.id)
        topic.causality.publish(seat)
        for publish in self._on_publish:
            publish(record, topic, seat, index)

    def _taken(self, record: Record) -> None:
        self._tell(record, self._on_taken)

    def _stable(self, record: Record) -> None:
        self._tell(record, self._on_stable)

    def _tell(self, record: Record, hooks: list[Hook]) -> None:
        """Call hooks for a publisher's record about a message; ignore an unknown message."""
        topic = self._topic(record.topic)
        index = None if record.id is None else topic.index.get(record.id)
        if index is not None:
            for hook in hooks:
                hook(record, topic, topic.seat(record.node), index)

    def _deliver(self, record: Record) -> None:
        topic = self._topic(record.topic)
        seat = topic.seat(record.node)
        index = None if record.id is None else topic.index.get(record.id)
        if index is None:
            for unknown in self._on_unknown:
                unknown(record, topic, seat)
            return
        delivered = seat.delivered
        if index >= len(delivered):
            delivered.extend(bytes(len(topic.ids) - len(delivered)))
        if delivered[index]:
            for redeliver in self._on_redeliver:
                redeliver(record, topic, seat, index)
            return
        late = topic.causality.deliver(seat, index)
        for deliver in self._on_deliver:
            deliver(record, topic, seat, index, late)
        delivered[index] = 1

    def _subscribe(self, record: Record) -> None:
        topic = self._topic(record.topic)
        seat = topic.seat(record.node)
        for subscribe in self._on_subscribe:
            subscribe(record, topic, seat)
        seat.subscribing = True

    def _join(self, record: Record) -> None:
        topic = self._topic(record.topic)
        seat = topic.seat(record.node)
        seat.subscribing = False
        for join in self._on_join:
            join(record, topic, seat)
        if not seat.joined:
            seat.joined = True
            seat.since = len(topic.ids)

    def _leave(self, record: Record) -> None:
        topic = self._topic(record.topic)
        seat = topic.seat(record.node)
        for leave in self._on_leave:
            leave(record, topic, seat)
        seat.joined = seat.subscribing = False

    def _gap(self, record: Record) -> None:
        topic = self._topic(record.topic)
        for gap in self._on_gap:
            gap(record, topic, topic.seat(record.node))

    def _discard(self, record: Record) -> None:
        topic = self._topic(record.topic)
        for discard in self._on_discard:
            discard(record, topic, topic.seat(record.node))

    def _state(self, record: Record) -> None:
        for state in self._on_state:
            state(record)

    def _crash(self, record: Record) -> None:
        if record.node in self._down:
            return
        self._down.add(record.node)
        seats = [
            (topic, topic.seats[record.node])
            for topic in self.topics.values()
            if record.node in topic.seats
        ]
        for crash in self._on_crash:
            crash(record, seats)
        for _, seat in seats:
            seat.joined = seat.subscribing = seat.up = False

    def _restart(self, record: Record) -> None:
        """End the life before a restart as a crash, whether or not the trace has a ``crash``."""
        self._crash(record)
        self._down.discard(record.node)
        for topic in self.topics.values():
            seat = topic.seats.pop(record.node, None)
            if seat is not None:
                topic.ended.append(seat)
        for restart in self._on_restart:
            restart(record)

    def _view(self, record: Record) -> None:
        for view in self._on_view:
            view(record)
        if not record.members:  # it is out of the cluster for good
            for topic in self.topics.values():
                if record.node in topic.seats:
                    topic.seats[record.node].up = False


def _overridden(checkers: Sequence[Checker], name: str) -> list[Hook]:
    """The checkers' own versions of a hook; calling the empty one a million times is not free."""
    empty = getattr(Checker, name)
    return [getattr(c, name) for c in checkers if getattr(type(c), name) is not empty]
