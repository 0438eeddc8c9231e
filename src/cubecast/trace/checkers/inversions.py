"""Answers that were seen before their questions: the visible effect of missing causal order."""

from collections.abc import Iterable
from typing import NamedTuple

from cubecast.trace.checkers.replay import Checker, ReplayedTopic, Seat, replay
from cubecast.trace.records import Record

__all__ = ["Inversions", "answers_before_questions"]


class Inversions(NamedTuple):
    """Counts of answers that nodes saw, and of those seen before their question or without it.

    `without` counts those of `inverted` whose question never came.
    """

    pairs: int
    inverted: int
    without: int = 0

    @property
    def rate(self) -> float:
        return self.inverted / self.pairs if self.pairs else 0.0


def answers_before_questions(records: Iterable[Record]) -> Inversions:
    """Count, over all nodes, the pairs of a question and an answer that came the wrong way round.

    A is an answer to Q if the ``publish`` of A names Q in ``reply_to`` and Q was published earlier
    on the same topic (other names are ignored). For each node that delivered A:

    - Q delivered before A: a pair;
    - Q delivered after A: a pair, inverted;
    - Q never delivered: a pair, inverted, if the subscription in which A was delivered was open
      when Q was published; otherwise nothing (a newcomer is not owed the question).

    Every node counts, the two authors included if they deliver. First deliveries count.
    """
    counter = _InversionCounter()
    replay(records, [counter])
    return Inversions(counter.pairs, counter.inverted, counter.without)


class _InversionCounter(Checker):
    def __init__(self) -> None:
        self.pairs = 0
        self.inverted = 0
        self.without = 0
        self.questions: dict[ReplayedTopic, dict[int, list[int]]] = {}
        """Answer -> the questions it answers."""
        self.waiting: dict[Seat, dict[int, list[bool]]] = {}
        """Question -> per answer delivered before it: does that count even if it never comes?"""

    def publish(self, record: Record, topic: ReplayedTopic, seat: Seat, index: int) -> None:
        if record.reply_to:
            known = [topic.index[id] for id in dict.fromkeys(record.reply_to) if id in topic.index]
            questions = self.questions.setdefault(topic, {})
            questions[index] = [question for question in known if question < index]

    def deliver(
        self, record: Record, topic: ReplayedTopic, seat: Seat, index: int, late: bool
    ) -> None:
        waiting = self.waiting.get(seat)
        if waiting and index in waiting:
            self._invert(len(waiting.pop(index)))
        questions = self.questions.get(topic)
        if questions and index in questions:
            self._answer(seat, questions[index])

    def finish(self, time: int, topics: Iterable[ReplayedTopic]) -> None:
        for waiting in self.waiting.values():
            never = sum(map(sum, waiting.values()))
            self._invert(never)
            self.without += never

    def _answer(self, seat: Seat, questions: list[int]) -> None:
        for question in questions:
            if seat.has(question):
                self.pairs += 1
            else:
                owed = seat.joined and question >= seat.since
                self.waiting.setdefault(seat, {}).setdefault(question, []).append(owed)

    def _invert(self, answers: int) -> None:
        self.pairs += answers
        self.inverted += answers
