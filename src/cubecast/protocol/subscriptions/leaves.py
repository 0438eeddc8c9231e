"""Leaves that came through a relay: the leaver itself is asked, for the relay may lie.

Until the leaver has answered it is addressed as before, and passes on what it gets.  So a leave in
another's name has no node miss a message, and an honest leaver waits for one `Release` more.

Invariant: a leave is unconfirmed only while the question to the leaver is under way.
"""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.messages import Wave
from cubecast.protocol.port import NodeId, Seq, Stream, Time
from cubecast.protocol.subscriptions.questions import Question, Questions
from cubecast.protocol.subscriptions.waves import Gathering
from cubecast.protocol.topic.topic import TopicCore

LEFT_NOT = "a leave of a node that has not left"


class Leaves:
    """The leaves from one topic that one node was told of."""

    def __init__(
        self, core: TopicCore, questions: Questions, on_left: Callable[[NodeId], None]
    ) -> None:
        """`on_left` is called when a subscriber is addressed no more."""
        self._core = core
        self._questions = questions
        self._on_left = on_left
        self._unconfirmed: dict[NodeId, int] = {}  # the number of the last LEAVE

    def apply(self, leaver: NodeId, number: int) -> dict[Stream, Seq]:
        """Address the leaver no more; return how far it has to pass our stream on."""
        self._unconfirmed.pop(leaver, None)
        self._on_left(leaver)
        return self._core.outgoing.bid_farewell(leaver, number)

    def confirm(self, wave: Wave, now: Time) -> dict[Stream, Seq]:
        """Ask the leaver itself; return that it has to pass on all of our stream until then."""
        self._core.context.marks["leave to be confirmed"] += 1
        self._unconfirmed[wave.origin] = wave.number
        self._questions.ask(Question(wave.origin, leave=wave.number), now)
        return {self._core.outgoing.own: max(0, self._core.outgoing.last)}

    def overtake(self, peer: NodeId) -> None:
        """Apply a leave before the JOIN that has come since; one of both is a relay's lie."""
        if peer in self._unconfirmed:
            self._core.context.marks["join before a leave was confirmed"] += 1
            self.apply(peer, self._unconfirmed[peer])

    def hear(self, question: Question, result: Gathering, now: Time) -> None:
        """Take in whether a node has left: it said so itself."""
        peer, number = question.peer, self._unconfirmed.pop(question.peer, None)
        if number is None:
            return  # settled since: its LEAVE came from itself, too, or it is back
        if not result.members >> peer & 1:
            if not self.apply(peer, number):
                self._core.outgoing.release(peer, number, now)
        elif number != question.leave:  # it may have left since it answered
            self._unconfirmed[peer] = number
            self._questions.ask(Question(peer, leave=number), now)
        else:
            self._core.context.marks["leave denied"] += 1
            self._core.guard.drop(LEFT_NOT)

    def clear(self) -> None:
        """Forget all: members were excluded, and who leaves says so again."""
        self._unconfirmed.clear()
