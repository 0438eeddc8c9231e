"""The names of topics, as the answers of an `Op.TOPICS` wave gather them.

The bound: an answer names topics up to `MAX_LISTING` bytes, counted by `_cost`.  JSON may need six
bytes for one of a name, so the largest listing still fits a packet of 16 MiB.  Topics beyond it are
left out and `more` says so, from there up to the origin: a listing is complete or known not to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from cubecast.protocol.port import Topic

MAX_LISTING = 2 * 1024 * 1024
"""Bytes of names and sets in one answer: about 50,000 topics of 30 letters in a small cluster."""
ENTRY = 8
"""Bytes of a topic besides its name and its set."""

Listed: TypeAlias = tuple[tuple[Topic, int], ...]
"""Topics, each with the set of its subscribers."""


class Listing:
    """Topics known to some nodes, each with the subscribers among these nodes."""

    __slots__ = ("more", "topics")

    def __init__(self, topics: Mapping[Topic, int]) -> None:
        self.topics = dict(topics)
        self.more = False

    def merge(self, topics: Iterable[tuple[Topic, int]], more: bool) -> None:
        """Add a subtree's answer."""
        mine = self.topics
        for topic, members in topics:
            mine[topic] = mine.get(topic, 0) | members
        self.more |= more

    def packed(self) -> tuple[Listed, bool]:
        """The topics that fit an answer, in the order of names, and whether some did not fit."""
        room = MAX_LISTING
        listed: list[tuple[Topic, int]] = []
        for topic, members in sorted(self.topics.items()):
            room -= _cost(topic, members)
            if room < 0:
                return tuple(listed), True
            listed.append((topic, members))
        return tuple(listed), self.more


def _cost(topic: Topic, members: int) -> int:
    """Bytes a topic takes: its name, the digits of its set, and separators."""
    return ENTRY + len(topic.encode(errors="surrogatepass")) + members.bit_length() // 3
