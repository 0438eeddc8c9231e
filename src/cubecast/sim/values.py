"""Retained values in the simulator: which are published, kept, and handed to newcomers.

Every life has the keeper of a live node (`cubecast.net.node.value_keeper`), so a value crosses the
wire as a message with headers, its stamp is made as live nodes make it, and the answers to a JOIN
carry it.  Clocks of nodes are wrong by up to `SKEW`, differently each time.

A `ValueLog` records what happened; `judge` reads it beside the trace.  Properties, by topic:

1. *No cause after its effect.*  A message delivered to a subscription that was handed a value is
   neither the value nor one of its causes; and of two values that it gets one after the other, by
   delivery or by hand, the later one is no cause of the earlier one.
2. *Newest first.*  A node that joins is handed a value whose stamp is not below that of any value
   kept by a node that is in its view from when it subscribes until it has joined; or that value
   is delivered to it afterwards, or reported as lost.  A node that is in no view when it subscribes
   is held to the first view that it installs.
3. *Causal order implies the order of stamps.*  A value has a higher stamp than its causes.
4. *The same everywhere.*  When all is settled, every node that joins is handed the value with the
   highest stamp of all that running nodes keep (`same_everywhere`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from cubecast.net.message import RETAIN
from cubecast.net.wire.headers import pack, split
from cubecast.net.wire.packets import OutgoingFrame
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.protocol.topic.retained_values import RetainedValue
from cubecast.trace import Record

SKEW: Time = 1000
"""Bound of a clock's error: a node's clock is ahead by less than this, each time differently."""
Stamp = tuple[Time, NodeId, int, int]


class Value(tuple[int, ...]):
    """The body of a frame with one message, by its number, that is to be kept.

    With `removes` it has an empty payload: it says that there is no value.
    """

    body: OutgoingFrame

    @classmethod
    def of(cls, ident: int, removes: bool) -> Value:
        payload = b"" if removes else ident.to_bytes(8, "little")
        value = cls((ident,))
        value.body = OutgoingFrame([pack({RETAIN: ""}, payload)], 0, (0,))
        return value

    def set_time(self, node: NodeId, now: Time) -> None:
        """Set the time that the clock of its publisher shows."""
        self.body.time = now + crc32(f"{node}/{now}".encode()) % SKEW


def ident_of(kept: RetainedValue) -> int | None:
    """The number of a value; None if it says that there is none."""
    payload = split(kept.blob)[1]
    return int.from_bytes(payload, "little") if payload else None


class ValueKept(NamedTuple):
    """A record that a node keeps a value, after so many records of the trace."""

    position: int
    node: NodeId
    topic: Topic
    ident: int
    stamp: Stamp


class Handing(NamedTuple):
    """A record that a subscription begins, or begins anew: the value handed out and the one kept.

    `ident` is None if nothing is handed out, `stamp` is () if nothing is kept.
    """

    position: int
    node: NodeId
    topic: Topic
    ident: int | None
    stamp: Stamp | tuple[()]
    first: bool
    """Whether the application was not subscribed before."""


@dataclass(slots=True)
class ValueLog:
    """The handling of values in a run."""

    kept: list[ValueKept] = field(default_factory=list)
    handed: list[Handing] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """The counts for the metrics of a run."""
        return {
            "values": len({one.ident for one in self.kept}),
            "values_handed": sum(one.ident is not None for one in self.handed),
        }


# -- judgement -------------------------------------------------------------------------------------


def judge(trace: list[Record], log: ValueLog) -> list[str]:
    """The violations of properties 1, 2 and 3."""
    if not log.kept:
        return []
    return [*_Order(log).judge(trace), *_newest_first(trace, log)]


class _Reading:
    """The state of one subscription while the trace is read."""

    __slots__ = ("forbidden", "values")

    def __init__(self) -> None:
        self.forbidden = 0  # the value that it was handed, and the causes of that
        self.values = 0  # all values that it got, and their causes


class _Order:
    """Properties 1 and 3.

    Sets of messages are bit masks; a message's causes are taken from the trace.
    """

    def __init__(self, log: ValueLog) -> None:
        self._handed: dict[int, list[Handing]] = {}
        for one in log.handed:
            self._handed.setdefault(one.position, []).append(one)
        self._values = {one.ident: one for one in log.kept}
        self._past: dict[int, int] = {}  # a message, and its causes
        self._seen: dict[tuple[NodeId, Topic], int] = {}  # by a node in its present life
        self._reading: dict[tuple[NodeId, Topic], _Reading] = {}

    def judge(self, trace: list[Record]) -> Iterator[str]:
        for position, record in enumerate(trace):
            for one in self._handed.get(position, ()):
                yield from self._hand(one)
            yield from self._see(record)
        for one in self._handed.get(len(trace), ()):
            yield from self._hand(one)
        yield from self._stamps()

    def _stamps(self) -> Iterator[str]:
        for effect in self._values.values():
            past = self._past.get(effect.ident, 0)
            for ident, cause in self._values.items():
                is_cause = past >> ident & 1 and ident != effect.ident
                if is_cause and cause.topic == effect.topic and cause.stamp >= effect.stamp:
                    yield f"value {effect.ident} has a lower stamp than its cause {ident}"

    def _see(self, record: Record) -> Iterator[str]:
        key = record.node, record.topic
        match record.kind:
            case "publish":
                assert isinstance(record.id, int)
                seen = self._seen.get(key, 0) | 1 << record.id
                self._seen[key] = self._past[record.id] = seen
            case "deliver":
                yield from self._deliver(key, record)
            case "subscribe" | "leave":
                self._reading.pop(key, None)
            case "restart":
                for table in (self._seen, self._reading):
                    for other in [other for other in table if other[0] == record.node]:
                        del table[other]

    def _deliver(self, key: tuple[NodeId, Topic], record: Record) -> Iterator[str]:
        ident = record.id
        assert isinstance(ident, int)
        past = self._past.get(ident, 0)
        self._seen[key] = self._seen.get(key, 0) | past
        reading = self._reading.setdefault(key, _Reading())
        if reading.forbidden >> ident & 1:
            yield f"{ident} delivered at node {key[0]} after a value that depends on it, or is it"
        if ident in self._values:
            reading.values |= past

    def _hand(self, one: Handing) -> Iterator[str]:
        if one.ident is None:
            return
        key = one.node, one.topic
        reading = self._reading.setdefault(key, _Reading())
        past = self._past.get(one.ident, 0)
        if not past:
            yield f"node {one.node} was handed {one.ident}, which was never published"
        if reading.values >> one.ident & 1:
            yield f"node {one.node} was handed {one.ident} after a value that depends on it"
        reading.forbidden |= past
        reading.values |= past
        self._seen[key] = self._seen.get(key, 0) | past


class _Lives:
    """The life of a node, and its view, at each position of the trace."""

    def __init__(self, trace: list[Record]) -> None:
        self._ends: dict[NodeId, list[int]] = {}
        self._views: dict[NodeId, list[tuple[int, int]]] = {}
        self._subscribed: dict[tuple[NodeId, Topic], list[int]] = {}
        self._settled: dict[tuple[NodeId, Topic, object], list[int]] = {}
        for position, record in enumerate(trace):
            match record.kind:
                case "crash" | "restart":
                    self._ends.setdefault(record.node, []).append(position)
                case "view":
                    self._views.setdefault(record.node, []).append((position, record.members))
                    if not record.members:
                        self._ends.setdefault(record.node, []).append(position)
                case "subscribe":
                    self._subscribed.setdefault((record.node, record.topic), []).append(position)
                case "deliver" | "gap" | "discard":
                    about = record.node, record.topic, record.id
                    self._settled.setdefault(about, []).append(position)

    def lives_on(self, node: NodeId, start: int, end: int) -> bool:
        return not any(start <= position < end for position in self._ends.get(node, ()))

    def view(self, node: NodeId, position: int) -> int:
        """The members of its view; all nodes if it has installed no view."""
        before = [members for at, members in self._views.get(node, ()) if at < position]
        return before[-1] if before else -1

    def first_view(self, node: NodeId, position: int) -> int:
        """The members of the view that a wave begins in which is asked for at `position`.

        In a life that has no view yet, the wave waits for the first one.
        """
        views = self._views.get(node, [])
        before = [one for one in views if one[0] < position]
        if not before or (before[-1][1] and self.lives_on(node, before[-1][0], position)):
            return self.view(node, position)
        after = (members for at, members in views if at >= position and members)
        return next(after, 0)

    def throughout(self, node: NodeId, start: int, end: int) -> int:
        """The members of all its views between: when one is excluded, its waves begin anew."""
        mask = -1
        for at, members in self._views.get(node, ()):
            if start <= at < end and members:
                mask &= members
        return mask

    def subscribed(self, node: NodeId, topic: Topic, position: int) -> int:
        """The position where the subscription that stands at `position` was asked for."""
        return max(
            (at for at in self._subscribed.get((node, topic), ()) if at < position), default=0
        )

    def gets(self, node: NodeId, topic: Topic, ident: int, position: int) -> bool:
        """Whether a message is delivered, or reported as lost, from a position on."""
        return any(at >= position for at in self._settled.get((node, topic, ident), ()))


def _newest_first(trace: list[Record], log: ValueLog) -> Iterator[str]:
    lives = _Lives(trace)
    by_topic: dict[Topic, list[ValueKept]] = {}
    for kept in log.kept:
        by_topic.setdefault(kept.topic, []).append(kept)
    for one in log.handed:
        if not one.first:
            continue
        asked = lives.subscribed(one.node, one.topic, one.position)
        # A wave visits the view it began in: a member that comes back meanwhile is not asked.
        view = lives.first_view(one.node, asked) & lives.view(one.node, one.position)
        view &= lives.throughout(one.node, asked, one.position)
        for kept in by_topic.get(one.topic, ()):
            if (
                kept.position <= asked
                and kept.stamp > one.stamp
                and view >> kept.node & 1
                and lives.lives_on(kept.node, kept.position, one.position)
                and not lives.gets(one.node, one.topic, kept.ident, one.position)
            ):
                yield (
                    f"node {one.node} was handed {one.ident} of {one.topic!r}, "
                    f"and node {kept.node} kept {kept.ident}, which is newer"
                )


def same_everywhere(
    topic: Topic,
    kept: Mapping[NodeId, RetainedValue | None],
    handed: Mapping[NodeId, Stamp | tuple[()]],
) -> Iterator[str]:
    """Property 4: compares what nodes kept before others joined with what those then have."""
    stamps = [value.stamp for value in kept.values() if value is not None]
    newest: Stamp | tuple[()] = max(stamps, default=())
    for node, stamp in handed.items():
        if stamp != newest:
            yield f"node {node} has {stamp} of {topic!r} after it joined; the newest is {newest}"
