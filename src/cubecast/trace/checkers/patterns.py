"""The messages that a subscription to a pattern is owed, from the trace alone.

A pattern stands in a trace like a topic: ``subscribe``, ``join`` and ``leave`` name it, and nothing
is published to it. A message published to a topic it matches, between its ``join`` and its
``leave``, is owed to the node, whether or not the node had joined that topic by then. Wildcards are
those of MQTT; the checkers have their own code for them.
"""

import re
from collections.abc import Iterator

from cubecast.trace.checkers.replay import ReplayedTopic, Seat

__all__ = ["PatternDebts", "matcher_of"]


class PatternDebts:
    """The messages that nodes are owed, by topic, because of open patterns."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], re.Pattern[str]] = {}
        self._since: dict[tuple[int, str, str], int] = {}
        """Node, pattern and topic: the first message owed. The rest follow without a hole."""
        self._readers: dict[str, list[tuple[int, str]]] = {}
        """Topic: the open patterns that match it; forgotten when one opens or closes."""

    def join(self, node: int, name: str) -> None:
        """``subscribe`` returned, for a topic or a pattern."""
        matcher = matcher_of(name)
        if matcher is not None:
            self._open[node, name] = matcher
            self._readers.clear()

    def leave(self, node: int, name: str) -> None:
        """Close a pattern: it is owed nothing more, nor messages on their way."""
        if self._open.pop((node, name), None) is not None:
            self._readers.clear()
            for key in [key for key in self._since if key[:2] == (node, name)]:
                del self._since[key]

    def crash(self, node: int) -> None:
        """Close the patterns of a process that is gone."""
        for reader, name in [key for key in self._open if key[0] == node]:
            self.leave(reader, name)

    def publish(self, name: str, index: int) -> None:
        """Note that message ``index`` of topic ``name`` was published."""
        if not self._open:
            return
        readers = self._readers.get(name)
        if readers is None:
            readers = [key for key, matcher in self._open.items() if matcher.match(name)]
            self._readers[name] = readers
        for node, pattern in readers:
            self._since.setdefault((node, pattern, name), index)

    def unpaid(self, topic: ReplayedTopic) -> Iterator[tuple[Seat, list[int]]]:
        """Per node: the messages of a topic it is owed and has not delivered, ascending."""
        since: dict[int, int] = {}
        for (node, _, name), index in self._since.items():
            if name == topic.name:
                since[node] = min(index, since.get(node, index))
        for node, index in sorted(since.items()):
            seat = topic.seat(node)
            yield seat, [number for number in range(index, len(topic.ids)) if not seat.has(number)]


def matcher_of(name: str) -> re.Pattern[str] | None:
    """The topics that a pattern matches, as a regular expression; None for a plain topic."""
    levels = name.split("/")
    if not {"+", "#"} & set(levels) or "#" in levels[:-1]:
        return None
    if any("+" in level or "#" in level for level in levels if level not in ("+", "#")):
        return None
    text = ""
    for place, level in enumerate(levels):
        slash = "/" if place else ""
        if level == "#":
            text += f"({slash}.*)?" if place else ".*"
        else:
            text += slash + ("[^/]*" if level == "+" else re.escape(level))
    guard = r"(?!\$)" if levels[0] in ("+", "#") else ""
    return re.compile(f"{guard}{text}\\Z", re.DOTALL)
