"""Replay of real conversations: publications with reply links.

The file is CSV (or .csv.gz) with the columns ``second``, ``user``, ``line`` and ``reply_to`` (ids
of earlier lines joined by ``;``), and optionally ``channel`` and ``log``, each pair of which is a
conversation of its own.  Every writer of a conversation is subscribed to it from the start.  A line
is published at its time, scaled, but never before the lines it replies to were delivered at its
writer, nor before the writer's own earlier lines: that makes it a reply.

The order of the file is the order of a conversation: where the clock goes back, time stands still
(or a day has passed, if it goes back by more than half a day).  ``-`` in ``reply_to`` is the same
as nothing.  A link to a line that is not in the conversation is left out, as excerpts have them;
one to a later line or to the line itself is an error.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO

from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.scenarios import Scenario
from cubecast.sim.world import World

COLUMNS = ("second", "user", "line", "reply_to")
DAY = 86_400
MAX_SECOND = 4 * 10**9


class ReplayError(ValueError):
    """A conversation file cannot be read."""


@dataclass(frozen=True, slots=True)
class ConversationLine:
    """One message of a conversation; `parents` are positions of earlier lines."""

    second: Time
    node: NodeId
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Lines in the order of the file, their times made to grow over midnight."""

    name: str
    nodes: int
    lines: tuple[ConversationLine, ...]

    @property
    def replies(self) -> int:
        """Reply links, counted."""
        return sum(len(line.parents) for line in self.lines)

    def scenario(self) -> Scenario:
        """This conversation as a scenario."""

        def plan(world: World, params: Params, rng: Random) -> None:
            if params.nodes < self.nodes:
                raise ReplayError(
                    f"{self.name} has {self.nodes} writers: nodes must not be below that, "
                    f"but it is {params.nodes}"
                )
            Replay(world, self, params.scale).start()

        return Scenario(
            self.name,
            "a recorded conversation",
            plan,
            {"nodes": self.nodes},
            takes=("scale",),
        )


def read_conversations(path: Path) -> list[Conversation]:
    """Every conversation of a file; `ReplayError` says in one line what is wrong."""
    try:
        with _open(path) as stream:
            return list(_conversations(path, csv.DictReader(stream, strict=True)))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ReplayError(f"cannot read {path}: {reason}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _conversations(path: Path, rows: csv.DictReader[str]) -> Iterator[Conversation]:
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ReplayError(f"{path}: no column {missing[0]!r}")
    groups: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for row in rows:
        if None in row or None in row.values():
            raise ReplayError(f"{path}, line {rows.line_num}: not as many fields as columns")
        name = "/".join(row[key] for key in ("channel", "log") if row.get(key))
        groups.setdefault(name or path.stem, []).append((rows.line_num, row))
    if not groups:
        raise ReplayError(f"{path}: no lines")
    for name, members in groups.items():
        yield _conversation(path, name, members)


def _conversation(path: Path, name: str, rows: list[tuple[int, dict[str, str]]]) -> Conversation:
    nodes: dict[str, NodeId] = {}
    position: dict[str, int] = {}
    to_come = {row["line"] for _, row in rows}
    lines: list[ConversationLine] = []
    days, last, time = 0, 0, 0
    for number, row in rows:
        where = f"{path}, line {number}"
        second = _second(where, row["second"])
        if second < last - DAY // 2:
            days += 1
        last = second
        time = max(time, second + days * DAY)
        if not row["user"]:
            raise ReplayError(f"{where}: no user")
        if row["line"] in position:
            raise ReplayError(f"{where}: there is a line {row['line']!r} already")
        parents = _parents(where, row["reply_to"], position, to_come)
        position[row["line"]] = len(lines)
        to_come.discard(row["line"])
        lines.append(ConversationLine(time, nodes.setdefault(row["user"], len(nodes)), parents))
    return Conversation(name, len(nodes), tuple(lines))


def _second(where: str, text: str) -> Time:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ReplayError(f"{where}: second is not a whole number from 0 up: {text[:40]!r}")
    if len(digits) > 10 or int(digits) > MAX_SECOND:
        raise ReplayError(f"{where}: second goes up to {MAX_SECOND}; {text[:40]!r} is too large")
    return int(digits)


def _parents(where: str, text: str, position: dict[str, int], to_come: set[str]) -> tuple[int, ...]:
    """Positions of the lines named in a `reply_to`, each once."""
    named = dict.fromkeys(name.strip() for name in text.split(";"))
    for name in named:
        if name in to_come:
            raise ReplayError(f"{where}: reply_to names {name!r}, which is not an earlier line")
    return tuple(position[name] for name in named if name in position)


class Replay:
    """Publishes a conversation, each line when it is due and its parents are delivered."""

    def __init__(self, world: World, conversation: Conversation, scale: Time) -> None:
        self._world = world
        self._lines = conversation.lines
        self._topic: Topic = conversation.name
        self._scale = scale
        self._ident_of: dict[int, int] = {}
        self._line_of: dict[int, int] = {}
        self._seen: list[set[int]] = [set() for _ in range(conversation.nodes)]
        self._due: list[list[int]] = [[] for _ in range(conversation.nodes)]

    def start(self) -> None:
        """Subscribe everyone and plan every line."""
        world = self._world
        world.application = self
        world.establish(self._topic, range(len(self._seen)))
        start = min(line.second for line in self._lines)
        for index, line in enumerate(self._lines):
            world.post((line.second - start) * self._scale, self._fall_due, index)

    def _fall_due(self, index: int, _: None, now: Time) -> None:
        node = self._lines[index].node
        self._due[node].append(index)
        self._publish_due(node)

    def _publish_due(self, node: NodeId) -> None:
        """Publish the writer's lines in order, up to one whose parents it has not seen."""
        due = self._due[node]
        while due and all(parent in self._seen[node] for parent in self._lines[due[0]].parents):
            index = due.pop(0)
            parents = tuple(self._ident_of[parent] for parent in self._lines[index].parents)
            ident = self._world.publish(node, self._topic, reply_to=parents)
            self._ident_of[index] = ident
            self._line_of[ident] = index
            self._seen[node].add(index)

    def on_deliver(self, world: World, node: NodeId, topic: Topic, ident: int) -> None:
        self._seen[node].add(self._line_of[ident])
        if self._due[node]:
            self._publish_due(node)

    def on_joined(self, world: World, node: NodeId, topic: Topic) -> None:
        """Do nothing: all writers are subscribed from the start."""
