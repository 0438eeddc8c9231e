"""Merges the histories of all nodes into one trace, and judges the trace.

The explorer knows the nodes' own histories, not one order of everything.  `merge` finds an order
that every real run with these histories could have had as far as the checkers can tell: each
node's own order is kept, a delivery comes after the publication, and a `join` stands on the right
side of every publication (a publication's *stamp* counts the joins that each node had before it).
What the checkers decide depends on these three relations alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cubecast.protocol.port import Load, NodeId, Topic
from cubecast.testing.explorer.processes import Note
from cubecast.trace import Kind, Property, Record, Report, check

SHOWS_AT_ONCE: tuple[Property, ...] = (
    "no-creation",
    "no-duplication",
    "fifo",
    "causal-order",
    "membership",
    "bounded-state",
)
"""Properties that no continuation of a run can repair."""

_KINDS: dict[str, Kind] = {
    "publish": "publish",
    "deliver": "deliver",
    "subscribe": "subscribe",
    "follow": "subscribe",
    "join": "join",
    "unsubscribe": "leave",
    "state": "state",
    "gap": "gap",
    "discard": "discard",
    "view": "view",
    "crash": "crash",
    "restart": "restart",
    "departed": "view",  # without members: out of the cluster for good
}


class HistoryEntry(NamedTuple):
    """One line of a node's history: a note, and for a publication its stamp and questions."""

    note: Note
    stamp: tuple[int, ...] = ()
    reply_to: tuple[str, ...] = ()


class Past:
    """Facts derived from one node's history."""

    __slots__ = ("delivered", "departed", "entries", "joins", "leaving", "reborn", "subscribed")

    def __init__(self, entries: tuple[HistoryEntry, ...]) -> None:
        self.entries = entries
        self.delivered = frozenset(e.note.name for e in entries if e.note.kind == "deliver")
        self.joins = sum(e.note.kind == "join" for e in entries)
        self.departed = any(e.note.kind == "departed" for e in entries)
        self.reborn = any(e.note.kind == "restart" for e in entries)
        self.subscribed: frozenset[Topic] = frozenset()
        self.leaving: frozenset[Topic] = frozenset()
        """Topics whose ``unsubscribe`` has not come to its end."""
        for entry in entries:
            topic = frozenset({entry.note.topic})
            match entry.note.kind:
                case "join":
                    self.subscribed |= topic
                case "unsubscribe":
                    self.subscribed -= topic
                    self.leaving |= topic
                case "subscribe" | "left":
                    self.leaving -= topic
                case "restart":
                    self.subscribed = self.leaving = frozenset()


def present(entries: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """What a node did since its present process began."""
    begun = [place for place, entry in enumerate(entries) if entry.note.kind == "restart"]
    return entries[begun[-1] :] if begun else entries


def without_end(entries: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """The part of a crashing node's history that other nodes can depend on.

    No other node can know what it did after its last publication.  That is judged all the same:
    the runs in which this node does not crash here have it in their histories too, and no
    continuation can repair what is wrong with it.
    """
    last = max([i for i, entry in enumerate(entries) if entry.note.kind == "publish"], default=-1)
    kept = [
        e for e in entries[last + 1 :] if e.note.kind in ("subscribe", "join", "accept", "begin")
    ]
    return (*entries[: last + 1], *kept)


def merge(histories: Sequence[tuple[HistoryEntry, ...]]) -> list[Record]:
    """One trace of what the nodes did; see the module's docstring."""
    histories = _with_names(histories)
    trace: list[Record] = []
    position = [0] * len(histories)
    joins = [0] * len(histories)
    published: set[str] = set()
    stamps = {
        entry.note.name: entry.stamp
        for history in histories
        for entry in history
        if entry.note.kind == "publish"
    }

    def ready(node: NodeId, entry: HistoryEntry) -> bool:
        match entry.note.kind:
            case "deliver" | "gap" | "discard":
                return entry.note.name in published or entry.note.name not in stamps
            case "publish":
                return all(had >= needs for had, needs in zip(joins, entry.stamp, strict=True))
            case "join":
                return all(
                    name in published or stamp[node] > joins[node] for name, stamp in stamps.items()
                )
        return True

    def begun(node: NodeId) -> bool:
        return all(entry.note.kind != "begin" for entry in histories[node][position[node] :])

    def take(node: NodeId) -> bool:
        """Append what `node` did next, as far as it may come now; first all begin."""
        before = position[node]
        beginning = not begun(node)
        while position[node] < len(histories[node]):
            entry = histories[node][position[node]]
            if not ready(node, entry):
                break
            position[node] += 1
            joins[node] += entry.note.kind == "join"
            if entry.note.kind == "publish":
                published.add(entry.note.name)
            if entry.note.kind in _KINDS:
                trace.append(_record(node, len(trace), entry))
            if beginning and entry.note.kind == "begin":
                break
        return position[node] > before

    while sum([take(node) for node in range(len(histories))]):
        pass
    left = sum(len(history) for history in histories) - sum(position)
    assert not left, f"{left} records cannot be put in order"
    return trace


def _with_names(
    histories: Sequence[tuple[HistoryEntry, ...]],
) -> Sequence[tuple[HistoryEntry, ...]]:
    """Name the messages that are reported as lost; one never published gets a name of its own."""
    ledger: dict[tuple[NodeId, int, Topic], list[str]] = {}
    for node, history in enumerate(histories):
        for note in [entry.note for entry in history if entry.note.kind == "accept"]:
            ledger.setdefault((node, note.life, note.topic), []).append(note.name)
    if not ledger:
        return histories

    def named(entry: HistoryEntry) -> HistoryEntry:
        note = entry.note
        if note.kind not in ("gap", "discard"):
            return entry
        page = ledger.get((note.source, note.life, note.topic), [])
        unknown = f"{note.source}.{note.life}.{note.seq}"
        name = page[note.seq] if 0 <= note.seq < len(page) else unknown
        return entry._replace(note=note._replace(name=name))

    return [tuple([named(entry) for entry in history]) for history in histories]


def _record(node: NodeId, time: int, entry: HistoryEntry) -> Record:
    note = entry.note
    return Record(
        _KINDS[note.kind],
        time,
        node,
        note.topic,
        note.name or None,
        source=note.source,
        seq=note.seq,
        reply_to=entry.reply_to,
        held=note.held,
        retained=note.retained,
        limit=note.limit,
        members=note.members,
    )


def judge(trace: Sequence[Record], loads: Mapping[NodeId, Load]) -> Report:
    """Check a trace together with what each node that is up keeps at its end."""
    time = len(trace)
    ends = [
        Record("state", time, node, held=load.held, retained=load.retained, limit=load.limit)
        for node, load in loads.items()
    ]
    return check([*trace, *ends])
