"""VCube-PB with one printed line put back, or one idea removed: what the checkers must notice.

Each class names the property that breaks in `tests/support/crash_runs.py` (under the paper's own
assumptions), and within how many seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cubecast.protocol.paper.sets import BOTTOM, NEVER, Ident, Idents
from cubecast.protocol.paper.vcube_pb import Ack, Top, TopicState, TreeMessage, VCubePB
from cubecast.protocol.port import NodeId, Port, Process
from cubecast.topology import children, members_of


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken process, and the word by which it must be given away within so many runs."""

    process: type[VCubePB]
    symptom: str
    within: int

    @property
    def name(self) -> str:
        return self.process.__name__

    def make(self, node: NodeId, port: Port, nodes: int, top: Top) -> Process:
        return self.process(node, port, nodes=nodes, top=top)


BROKEN: list[Broken] = []


def broken(symptom: str, within: int = 100) -> Callable[[type[VCubePB]], type[VCubePB]]:
    def register(process: type[VCubePB]) -> type[VCubePB]:
        BROKEN.append(Broken(process, symptom, within))
        return process

    return register


# As printed


@broken("agreement")
class Line33(VCubePB):
    """5.3:33: q is bound to nothing, so nothing is sent round a crashed child."""

    def _send_round(
        self, state: TopicState, parent: NodeId, ident: Ident, node: NodeId, heir: NodeId | None
    ) -> None:
        pass


@broken("validity")
class Lines38(VCubePB):
    """5.3:38-39 inside the `if` of line 34, as indented: an ACK of the dead is awaited for ever.

    That is so where no node is left in its cluster, or the next one there has the message already.
    """

    def _send_round(
        self, state: TopicState, parent: NodeId, ident: Ident, node: NodeId, heir: NodeId | None
    ) -> None:
        if heir is not None and not state.acks[ident][parent] >> heir & 1:
            super()._send_round(state, parent, ident, node, heir)


@broken("agreement")
class Line44(VCubePB):
    """5.2:44: a receiver of a message returns, and no node beyond the first hop has it."""

    def _receive_tree(self, message: TreeMessage, sender: NodeId) -> None:
        state = self._state(message.topic)
        fresh = state.is_new(message)
        if not fresh or self._is_orphan(state, message):
            super()._receive_tree(message, sender)
            return
        state.received(message)
        self._receive_new(state, message)


@broken("agreement", 400)
class Line9(VCubePB):
    """5.2:9-10: the task of a topic begins with a message of counter 1, or never."""

    def co_broadcast(self, state: TopicState, message: TreeMessage) -> None:
        if message.first == 1 or state.counter > 1:
            super().co_broadcast(state, message)


@broken("delivered again")
class Lines20(VCubePB):
    """5.2:18-22 and 26 for whatever is broadcast: delivered again, with another's barrier."""

    def task(self, state: TopicState) -> None:
        if state.queue and state.queue[0].ident[0] != self._node:
            self._take_own(state, state.queue[0])
        super().task(state)

    def _take_own(self, state: TopicState, message: TreeMessage) -> None:
        source, counter = message.ident
        self._port.deliver(message)
        if state.delvs[source] < counter:
            state.delivered(source, counter)
        if source == self._node:
            state.keep(message)
            state.received(message)
        message.cb = state.barrier
        state.barrier = Idents({counter: 1 << source})


@broken("validity")
class Line16(VCubePB):
    """5.2:16 for whatever is broadcast: a rebroadcast waits for the ACKs of the one before."""

    def _must_wait(self, state: TopicState, message: TreeMessage) -> bool:
        source, counter = message.ident
        return BOTTOM in state.acks.get((source, counter - 1), ())


@broken("agreement", 400)
class Line23(VCubePB):
    """5.2:23: a dead publisher's message goes to the children of the dead publisher."""

    def _roots_children(self, state: TopicState, message: TreeMessage) -> tuple[NodeId, ...]:
        source = message.ident[0]
        found = children(source, state.members, self._dimension)
        return tuple(node for node in found if node != self._node)


@broken("validity")
class Line42(VCubePB):
    """5.2:42: a publisher outside the group is taken for dead, and never has its ACKs."""

    def _is_orphan(self, state: TopicState, message: TreeMessage) -> bool:
        return not state.members >> message.ident[0] & 1


@broken("validity")
class Line21(VCubePB):
    """5.3:21: a publisher outside the group has no ACKs, so it publishes once."""

    def _takes_acks(self, state: TopicState, parent: NodeId, ident: Ident) -> bool:
        return state.members >> parent & 1 == 1


@broken("agreement")
class Line31(VCubePB):
    """5.3:31: the bottom is no member, so a root forgets what it waits for at any crash."""

    def _no_longer_awaited(self, state: TopicState, parent: NodeId, ident: Ident) -> bool:
        outside = parent == BOTTOM or not state.members >> parent & 1
        return outside or not state.members >> ident[0] & 1


@broken("agreement", 600)
class Line31ForTheDead(VCubePB):
    """5.3:31, mended for living publishers only: two crashes in a row leave a branch out."""

    def _no_longer_awaited(self, state: TopicState, parent: NodeId, ident: Ident) -> bool:
        if self._faulty >> ident[0] & 1:
            return True
        return super()._no_longer_awaited(state, parent, ident)


class Line28Of52(VCubePB):
    """5.2:28: an ACK answers one of the copies that were sent to that child.

    Too rare for random runs of 16 nodes: tests/papers/test_vcube_pb.py has the schedule.
    """

    def _answered(self, entry: dict[NodeId, int], sender: NodeId) -> list[NodeId]:
        return super()._answered(entry, sender)[:1]


class Line3(VCubePB):
    """5.2:3: a joining node is a member, even if it is known to have crashed.

    No node joins in the crash runs: tests/papers/test_vcube_pb.py has the story.
    """

    def _living(self, joined: int) -> int:
        return joined


class Line6(VCubePB):
    """5.2:5-6: leavers are taken out one by one.  Its story is there, too."""

    def _take_leave(self, state: TopicState, left: int) -> None:
        for node in members_of(left):
            super()._take_leave(state, 1 << node)


@broken("validity", 400)
class Line27(VCubePB):
    """5.3:25-27: when the last subscriber has crashed, its publishers wait for it for ever."""

    def check_leave(self, state: TopicState, node: NodeId) -> None:
        if state.members:
            super().check_leave(state, node)


@broken("causal-order", 400)
class Line28(VCubePB):
    """5.3:28: any crash empties first_rec, and later messages pass those that wait."""

    def _forget_first(self, state: TopicState, node: NodeId) -> None:
        state.first_rec = [NEVER] * self._nodes


@broken("agreement")
class Line40(VCubePB):
    """5.3:40: only messages that were *not* delivered are broadcast again."""

    def _last_of(self, state: TopicState, node: NodeId) -> TreeMessage | None:
        waiting = [m for m in state.recs.messages.values() if m.ident[0] == node]
        return max(waiting, key=lambda message: message.first, default=None)


# Ideas removed


@broken("agreement")
class NeverRebroadcasts(VCubePB):
    """What a dead publisher left half sent stays so."""

    def _inherit(self, state: TopicState, node: NodeId) -> None:
        pass

    def _is_orphan(self, state: TopicState, message: TreeMessage) -> bool:
        return False


@broken("agreement")
class ForgetsTheBranch(VCubePB):
    """A crashed child's ACK is no longer awaited, and its branch not served."""

    def _heir(self, state: TopicState, node: NodeId) -> NodeId | None:
        return None


@broken("delivered again")
class TakesCopies(VCubePB):
    """A copy is delivered like the first."""

    def _receive_tree(self, message: TreeMessage, sender: NodeId) -> None:
        state = self._state(message.topic)
        if state.delvs[message.ident[0]] >= message.first:
            self._port.deliver(message)
        super()._receive_tree(message, sender)


@broken("causal-order")
class DeliversAsItComes(VCubePB):
    """No message waits for its predecessors."""

    def check_cb(self, state: TopicState, barrier: Idents) -> NodeId:
        return BOTTOM


@broken("fifo", 800)
class AcksAtOnce(VCubePB):
    """An ACK says that one has the message, not that one's subtree has it."""

    def _receive_tree(self, message: TreeMessage, sender: NodeId) -> None:
        self._port.control(sender, Ack(message.topic, message.ident))
        super()._receive_tree(message, sender)
