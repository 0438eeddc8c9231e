"""Replay of real conversations: publications with reply links.

The file is CSV (or .csv.gz) with the columns ``second``, ``user``, ``line`` and ``reply_to`` (ids
of earlier lines joined by ``;``), and optionally ``channel`` and ``log``, each pair of which is a
conversation of its own.  Everyone who ever writes in a conversation is subscribed to it from the
start.  A line is published at its time, scaled, but never before the lines it replies to were
delivered at its writer, nor before the writer's own earlier lines: that is what makes it a reply.
"""

from __future__ import annotations

import csv
import gzip
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


class ReplayError(ValueError):
    """A conversation file cannot be read."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message of a conversation; `parents` are positions of earlier lines."""

    second: Time
    node: NodeId
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Lines in the order of the file, their times made to grow over midnight."""

    name: str
    nodes: int
    lines: tuple[Line, ...]

    @property
    def replies(self) -> int:
        """Reply links, counted."""
        return sum(len(line.parents) for line in self.lines)

    def scenario(self) -> Scenario:
        """This conversation as a scenario."""

        def plan(world: World, params: Params, rng: Random) -> None:
            Replay(world, self, params.scale).start()

        return Scenario(self.name, "a recorded conversation", plan, {"nodes": self.nodes})


def read_conversations(path: Path) -> list[Conversation]:
    """Every conversation of a file; `ReplayError` says in one line what is wrong."""
    try:
        with _open(path) as stream:
            return list(_conversations(path, csv.DictReader(stream)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ReplayError(f"cannot read {path}: {reason}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _conversations(path: Path, rows: csv.DictReader[str]) -> Iterator[Conversation]:
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ReplayError(f"{path}: no column {missing[0]!r}")
    groups: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for row in rows:
        name = "/".join(row[key] for key in ("channel", "log") if row.get(key))
        groups.setdefault(name or path.stem, []).append((rows.line_num, row))
    if not groups:
        raise ReplayError(f"{path}: no lines")
    for name, members in groups.items():
        yield _conversation(path, name, members)


def _conversation(path: Path, name: str, rows: list[tuple[int, dict[str, str]]]) -> Conversation:
    nodes: dict[str, NodeId] = {}
    position: dict[str, int] = {}
    lines: list[Line] = []
    days = 0
    last = 0
    for number, row in rows:
        try:
            second = int(row["second"])
        except (TypeError, ValueError):
            raise ReplayError(
                f"{path}, line {number}: second is not a number: {row['second']!r}"
            ) from None
        if second < last - DAY // 2:
            days += 1
        last = second
        node = nodes.setdefault(row["user"], len(nodes))
        named = (row["reply_to"] or "").split(";")
        parents = tuple(position[parent] for parent in named if parent in position)
        position[row["line"]] = len(lines)
        lines.append(Line(second + days * DAY, node, parents))
    return Conversation(name, len(nodes), tuple(lines))


class Replay:
    """Publishes a conversation, each line when it is due and its parents are there."""

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
        """Everyone is subscribed from the start."""
