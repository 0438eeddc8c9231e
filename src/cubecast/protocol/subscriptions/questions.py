"""Questions to one node: waves that visit that node alone, so that no relay answers for it.

What a node knows of others came through relays, and a relay may lie: about the subscribers, about
what a publisher has published.  If something expected does not happen (a subscriber does not
acknowledge, a message that others name does not arrive, a relay has died), or if a relay says that
a subscriber leaves, the node concerned is asked itself.  The question is a REGISTER wave, which
changes nothing where it arrives.

Invariant: at most one question of each kind is under way, and all are forgotten when members are
excluded, with the waves that ask them.
"""

from __future__ import annotations

from typing import NamedTuple

from cubecast.protocol.messages import Op
from cubecast.protocol.port import NodeId, Seq, Stream, Time, Topic
from cubecast.protocol.subscriptions.waves import NOTHING, Gathering, Waves


class Question(NamedTuple):
    """Do you subscribe?  Or, with a stream: how far have you published it?

    With a leave: have you left, as a relay says?
    """

    peer: NodeId
    stream: Stream | None = None
    reached: Seq = -1
    """How far we had come in the stream as we asked."""
    asked: Time = 0
    leave: int | None = None
    """The number of the LEAVE."""

    @property
    def kind(self) -> tuple[NodeId, Stream | None, bool]:
        return self.peer, self.stream, self.leave is not None

    def published(self, result: Gathering) -> Seq:
        """How far the peer says that it has published the stream; -1 if it names another stream:
        then nothing more of this one comes."""
        said = result.own.get(self.peer)
        return said[1] if said is not None and said[0] == self.stream else -1

    def is_earlier(self, result: Gathering) -> bool:
        """Whether the stream is of an earlier generation: the peer has begun anew since."""
        said = result.own.get(self.peer)
        stream = self.stream
        return said is not None and stream is not None and said[0].generation > stream.generation


class Questions:
    """The questions of one node to others about one topic."""

    def __init__(self, topic: Topic, node: NodeId, waves: Waves) -> None:
        self._topic = topic
        self._node = node
        self._waves = waves
        self._asked: dict[int, Question] = {}  # by the number of the wave

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, question: Question, now: Time) -> None:
        """Ask, unless the same is under way."""
        if any(one.kind == question.kind for one in self._asked.values()):
            return
        self._asked[self._waves.next_number] = question
        visited = 1 << self._node | 1 << question.peer
        self._waves.start(self._topic, Op.REGISTER, NOTHING, now, visited=visited)

    def asked_by(self, result: Gathering) -> bool:
        """Whether a wave was a question."""
        return result.wave.number in self._asked

    def take(self, result: Gathering) -> Question:
        """The question that a wave has answered."""
        return self._asked.pop(result.wave.number)

    def overtake(self, peer: NodeId) -> None:
        """Ignore the answer whether a peer subscribes: a wave of the peer is newer."""
        for number, question in self._asked.items():
            if question.kind == (peer, None, False):
                self._asked[number] = question._replace(peer=-1)

    def clear(self) -> None:
        """Forget all questions: their waves were given up."""
        self._asked.clear()
