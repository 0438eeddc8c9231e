"""The checks of a reader of the judged topics: numbers, order, questions before their answers.

1. A publisher numbers its messages in a topic from 0.  A number that is not above the last one is
   *disorder*; numbers that were skipped are *missing*.
2. An answer that comes before its question, which comes later, is an *inversion*.  A question that
   never comes is missing, and no inversion.
3. Gaps and discards that the node reported are counted beside it: a missing message that was not
   reported is a silent loss.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from random import Random

from siege.terms import JUDGED, STEADY, TALK, Said, read_payload

QUESTION, ANSWER = b"?", b"!"
MAX_EARLY = 1000
"""Answers whose questions have not come, per asker; the oldest is forgotten first."""
KEPT = 400
"""Latencies of one interval that are kept, drawn evenly."""


class Latencies:
    """An even draw from the latencies of one interval."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: list[float] = []
        self._seen = 0

    def add(self, seconds: float) -> None:
        """One more."""
        self._seen += 1
        if len(self._kept) < KEPT:
            self._kept.append(seconds)
        elif (place := self._random.randrange(self._seen)) < KEPT:
            self._kept[place] = seconds

    def take(self) -> list[float]:
        """The latencies of the interval that ends now."""
        kept, self._kept, self._seen = self._kept, [], 0
        return kept


class Witness:
    """Checks what one reader gets; `lossless` readers began before the first message."""

    def __init__(self, random: Random, lossless: bool = True) -> None:
        self._lossless = lossless
        self._next: dict[tuple[str, int], int] = {}
        self._asked: dict[int, int] = {}
        self._early: dict[int, deque[int]] = {}
        self.latencies = Latencies(random)
        self.deliveries = 0
        self.disorder = 0
        self.inversions = 0
        self.foreign = 0
        """Messages that no honest publisher sent."""
        self.missing: Counter[str] = Counter()
        self.told: Counter[str] = Counter()

    def delivered(self, topic: str, payload: bytes, now: float) -> Said | None:
        """A message has come; what it says."""
        self.deliveries += 1
        said = read_payload(payload)
        if said is None:
            self.foreign += 1
            return None
        key = topic, said.publisher
        expected = self._next.get(key, 0 if self._lossless else said.number)
        if said.number < expected:
            self.disorder += 1
        else:
            self.missing[topic] += said.number - expected
            self._next[key] = said.number + 1
        if topic == STEADY:
            self.latencies.add(now - said.at)
        elif topic == TALK:
            self._heard(said)
        return said

    def skipped(self, topic: str, spans: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        """The node reported that these messages will not come."""
        if topic in JUDGED:
            pairs = [span for some in spans.values() for span in some]
            self.told[topic] += sum(last - first + 1 for first, last in pairs)

    def reached(self) -> dict[str, dict[int, int]]:
        """{topic: {publisher: the next number}}."""
        reached: dict[str, dict[int, int]] = {}
        for (topic, publisher), number in self._next.items():
            reached.setdefault(topic, {})[publisher] = number
        return reached

    def _heard(self, said: Said) -> None:
        kind, body = said.body[:1], said.body[1:]
        if kind == QUESTION:
            early = self._early.get(said.publisher)
            number = int(body)
            if early and number in early:
                self.inversions += 1
            self._asked[said.publisher] = number
        elif kind == ANSWER:
            asker, number = map(int, body.split(b":"))
            if number > self._asked.get(asker, -1):
                self._early.setdefault(asker, deque(maxlen=MAX_EARLY)).append(number)


def untold(
    missing: Mapping[str, int], told: Mapping[str, int], withdrawn: Mapping[str, int]
) -> int:
    """Messages that a reader lacks although neither it nor their publishers were told.

    `withdrawn` counts messages whose publishers were told that they will not be delivered.
    """
    return sum(
        max(0, count - told.get(topic, 0) - withdrawn.get(topic, 0))
        for topic, count in missing.items()
    )
