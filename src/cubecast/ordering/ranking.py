"""The order of topics: which of two topics is the higher one, the same at every node.

Topics that are listed come first, in the order of the list; all others follow by their names.
Topics with the most events are best listed first: their stamps are short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cubecast.ordering.timestamps import Topic


class Ranking:
    """A total order of all topic names, known from the start."""

    def __init__(self, first: Sequence[Topic] = ()) -> None:
        self._listed = {topic: rank for rank, topic in enumerate(first)}

    def _key(self, topic: Topic) -> tuple[int, Topic]:
        return self._listed.get(topic, len(self._listed)), topic

    def precedes(self, one: Topic, other: Topic) -> bool:
        """Whether `one` is the higher topic."""
        return self._key(one) < self._key(other)

    def sort(self, topics: Iterable[Topic]) -> list[Topic]:
        """Sort topics, the highest first."""
        return sorted(topics, key=self._key)
