"""Subscriptions to many topics at once, with the wildcards of MQTT.

A topic is levels between slashes.  In a pattern, ``+`` stands for exactly one level, whatever it
is, and ``#``, as the last level, for the level above it and everything below ([MQTT] 4.7):
``sensors/+/temperature``, ``sensors/#`` (which matches ``sensors`` too), ``#``.  A topic that
begins with ``$`` is not matched by a pattern that begins with a wildcard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cubecast.protocol.port import Topic

ONE = "+"
REST = "#"


def is_pattern(text: str) -> bool:
    """Whether a text has a wildcard: it may be subscribed to, and not published to."""
    return ONE in text or REST in text


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern, checked and cut; call it to see whether it matches a topic."""

    text: str
    _levels: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _open: bool = field(init=False, repr=False, compare=False)
    """Ends with ``#``, which is not among the levels."""
    _wild: bool = field(init=False, repr=False, compare=False)
    """Begins with a wildcard."""

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("a pattern is not empty")
        levels = self.text.split("/")
        for place, level in enumerate(levels):
            if level not in (ONE, REST) and is_pattern(level):
                raise ValueError(
                    f"in {self.text!r}, {level!r} mixes a wildcard with text: "
                    f"+ and # stand for whole levels"
                )
            if level == REST and place < len(levels) - 1:
                raise ValueError(f"in {self.text!r}, # is not the last level")
        rest = levels[-1] == REST
        object.__setattr__(self, "_wild", levels[0] in (ONE, REST))
        object.__setattr__(self, "_open", rest)
        object.__setattr__(self, "_levels", tuple(levels[:-1] if rest else levels))

    def __call__(self, topic: Topic) -> bool:
        """Whether the pattern matches a topic."""
        if self._wild and topic.startswith("$"):
            return False
        theirs = topic.split("/")
        mine = self._levels
        if len(theirs) != len(mine) and not (self._open and len(theirs) > len(mine)):
            return False
        return all(level in (ONE, their) for level, their in zip(mine, theirs, strict=False))

    def contains(self, other: Pattern) -> bool:
        """Whether this pattern matches every topic that the other one matches."""
        mine, theirs = self._least(), other._least()
        if self._wild and theirs[0].startswith("$"):
            return False
        if other._open and not self._open:
            return False
        if len(theirs) < len(mine) or (len(theirs) > len(mine) and not self._open):
            return False
        return all(level in (ONE, their) for level, their in zip(mine, theirs, strict=False))

    def meets(self, other: Pattern) -> bool:
        """Whether some topic is matched by both patterns."""
        mine, theirs = self._least(), other._least()
        if (self._wild and theirs[0].startswith("$")) or (other._wild and mine[0].startswith("$")):
            return False
        if (len(mine) < len(theirs) and not self._open) or (
            len(theirs) < len(mine) and not other._open
        ):
            return False
        return all(
            level == their or ONE in (level, their)
            for level, their in zip(mine, theirs, strict=False)
        )

    def _least(self) -> tuple[str, ...]:
        """The levels that every matched topic has at least: ``#`` means ``+/#``."""
        return self._levels or (ONE,)
