"""The permissions at work in one node: where requests are checked, and how the rules change.

A request is checked where it enters the cluster: that of a client in its session, that of the
application in `Node.publish` and `Node.subscribe`, that of another member at the first node that
hears of it (the *first hop*).  What members relay for others is not checked again: the relaying
member is trusted to have checked.

At the first hop:

1. A frame that comes from its publisher, which may not publish it, is dropped and counted in
   `Node.explain`, unless a message that is here depends on it.  Then a member with other or former
   rules has taken the frame, and dropping it would stop the topic here for all subscribers.
2. A JOIN of a node that may not subscribe becomes a REGISTER: all members answer it, so its origin
   does not wait in vain nor take live members for mute, and no member counts it as a subscriber.
   If it may not publish either, and for a REGISTER of a node that may not publish, the wave ends
   here.
3. A node that answers a wave is not counted as a subscriber of what it may not subscribe to.
4. A retained value goes only to members that may subscribe to its topic, also on its way to others;
   and it is taken only from members that may subscribe or publish to it.

Nodes read a new file one after the other, within `permissions_grace_s`.  For so long after it read
one, a node itself does only what the former rules allow as well, and other members may also do
what the former rules allowed.  So no node uses a right that another has not read yet.  Without this
a member that was granted a topic would join it and be no subscriber, and what was published before
a right was withdrawn would never arrive.  A node alone checks its clients: for them new rules hold
at once.

Bounds: `MAX_FORMER` former sets of rules; `MAX_VERDICTS` remembered verdicts of each kind, all
forgotten when there are more, and when the rules change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

import msgspec

from cubecast.errors import ConfigError, NotAllowed
from cubecast.net.links.connection import Connection
from cubecast.net.links.mesh import Mesh
from cubecast.net.security.audit import Audit
from cubecast.net.security.keys import Keys
from cubecast.net.security.permission_file import Signature, read_permissions, signature
from cubecast.net.security.permissions import Identity, Permissions, PermissionVerdict
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.packets import Control
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.messages import Ack, Answer, Frame, Op, Parcel, Wave
from cubecast.protocol.port import NodeId, Topic

log = logging.getLogger("cubecast")

LOOK_S = 0.5
"""How often to look whether the file has changed; it is read when it stays so."""
MAX_VERDICTS = 16_384
"""Each takes a topic and a line of reason, so they take 32 MiB at the very most."""
MAX_FORMER = 8
"""Files that are replaced faster than that within the grace are forgotten earlier."""
DROPPED = "its publisher may not publish here"


class AccessHost(Protocol):
    """What the permissions need of their node."""

    audit: Audit
    config: NodeConfig
    identity: str
    keys: Keys
    mesh: Mesh

    @property
    def core(self) -> CubecastNode: ...
    @property
    def slot(self) -> NodeId: ...
    def permissions_changed(self, withdrawn: set[str]) -> None:
        """There are new rules; `withdrawn` are names whose tokens are no longer valid."""


class Access:
    """Checks requests against one node's permissions; a node without permissions has none."""

    def __init__(self, node: AccessHost) -> None:
        self._node = node
        self._path = node.config.permissions
        first = read_permissions(self._path, warn=False)
        self._read_as: Signature = signature(first.files)
        self._seen = self._read_as
        self.permissions: Permissions = read_permissions(self._path)  # it may have changed just now
        self._publish: dict[tuple[Identity, Topic], PermissionVerdict] = {}
        self._frames: dict[tuple[str, Topic], bool] = {}  # by the name of the publisher
        self._former: deque[Permissions] = deque(maxlen=MAX_FORMER)
        self._timer: asyncio.TimerHandle | None = None
        node.keys.tokens = self.permissions.tokens

    @property
    def own(self) -> Identity:
        """The identity of this node."""
        return Identity("node", self._node.identity)

    # -- what enters here ------------------------------------------------------------------------

    def check(self, who: Identity, what: str, topic: str, address: str = "") -> None:
        """Raise `NotAllowed`, and note it in the audit, if `who` may not do `what`."""
        refusal = self.refusal(who, what, topic)
        if refusal is not None:
            self._node.audit.denied(str(who), what, topic, refusal.reason, address)
            raise refusal

    def refusal(self, who: Identity, what: str, topic: str) -> NotAllowed | None:
        """The error to raise if `who` may not do `what`: publish, subscribe or ask."""
        if what == "publish":
            verdict = self._may_publish(who, topic)
        else:
            verdict = self._may(who, what, topic)
        return None if verdict.allowed else NotAllowed(topic, what, verdict.why)

    def _may(self, who: Identity, what: str, topic: str) -> PermissionVerdict:
        """The verdict of the rules; for this node itself, also of the former rules."""
        verdict = self.permissions.verdict(who, what, topic)
        if not verdict.allowed or who != self.own:
            return verdict
        if all(one.verdict(who, what, topic).allowed for one in self._former):
            return verdict
        grace_s = self._node.config.permissions_grace_s
        return PermissionVerdict(False, f"{verdict.why}, but only {grace_s:g} s after it was read")

    def sees(self, who: Identity, topic: Topic) -> bool:
        """Whether an identity may know of a topic."""
        return self.permissions.sees(who, topic).allowed

    def _may_publish(self, who: Identity, topic: Topic) -> PermissionVerdict:
        known = self._publish.get((who, topic))
        if known is None:
            if len(self._publish) >= MAX_VERDICTS:
                self._publish.clear()
            known = self._publish[who, topic] = self._may(who, "publish", topic)
        return known

    # -- the first hop ---------------------------------------------------------------------------

    def drops(self, frame: Frame, connection: Connection | None, name: str) -> bool:
        """Whether to drop a frame that comes from its publisher, called `name` (1)."""
        allowed = self._frames.get((name, frame.topic))
        if allowed is None:
            if len(self._frames) >= MAX_VERDICTS:
                self._frames.clear()
            allowed = self._lets(name, "publish", frame.topic)
            self._frames[name, frame.topic] = allowed
        if allowed or not self._node.core.refuse(frame, DROPPED):
            return False
        self._note(frame.stream.source, name, "publish", frame.topic, connection)
        return True

    def _lets(self, name: str, what: str, topic: Topic) -> bool:
        """Whether a member may do that by the present or the former rules."""
        who = Identity("node", name)
        rules = (self.permissions, *self._former)
        return any(one.verdict(who, what, topic).allowed for one in rules)

    def control(
        self, message: Control, sender: NodeId, connection: Connection | None, name: str
    ) -> Control:
        """A control message without what its sender may not do (2 and 3)."""
        if type(message) is not Parcel:
            return message
        carried = message.message
        heard: Wave | Answer
        if type(carried) is Wave and carried.origin == sender:
            heard = self._wave(carried, connection, name)
        elif type(carried) is Answer and (carried.members >> sender & 1 or carried.kept):
            heard = self._answer(carried, sender, connection, name)
        else:
            return message
        return message if heard is carried else Parcel(message.number, heard)

    def outgoing(self, message: Control, peer: NodeId) -> Control:
        """A control message as `peer` may read it: a retained value is for subscribers (4)."""
        if type(message) is not Parcel or type(message.message) is not Answer:
            return message
        answer = message.message
        if answer.kept is None:
            return message
        if self._lets(name_of(self._node.mesh.connection_with(peer)), "subscribe", answer.topic):
            return message
        return Parcel(message.number, msgspec.structs.replace(answer, kept=None))

    def indirect(
        self, message: Frame | Ack | Control, sender: NodeId
    ) -> Frame | Ack | Control | None:
        """A message of a member that came around a broken link, or in parts; None: drop it.

        Its sender has the name that it proved on its connection with us; no connection, no name.
        """
        connection = self._node.mesh.connection_with(sender)
        name = name_of(connection)
        if isinstance(message, Frame):
            own = message.stream.source == sender
            return None if own and self.drops(message, connection, name) else message
        if isinstance(message, Ack):
            return message
        return self.control(message, sender, connection, name)

    def _wave(self, wave: Wave, connection: Connection | None, name: str) -> Wave:
        if wave.op not in (Op.JOIN, Op.REGISTER):
            return wave
        if wave.op is Op.JOIN:
            if self._lets(name, "subscribe", wave.topic):
                return wave
            self._note(wave.origin, name, "subscribe", wave.topic, connection)
        if self._lets(name, "publish", wave.topic):
            return msgspec.structs.replace(wave, op=Op.REGISTER)
        if wave.op is Op.REGISTER:
            self._note(wave.origin, name, "publish", wave.topic, connection)
        here = 1 << wave.origin | 1 << self._node.slot
        return msgspec.structs.replace(wave, op=Op.REGISTER, cluster=here)

    def _answer(
        self, answer: Answer, sender: NodeId, connection: Connection | None, name: str
    ) -> Answer:
        if self._lets(name, "subscribe", answer.topic):
            return answer
        if answer.kept is not None and not self._lets(name, "publish", answer.topic):
            answer = msgspec.structs.replace(answer, kept=None)
        if not answer.members >> sender & 1:
            return answer
        self._note(sender, name, "subscribe", answer.topic, connection)
        others = ~(1 << sender)
        return msgspec.structs.replace(
            answer, members=answer.members & others, lossy=answer.lossy & others
        )

    def _note(
        self, slot: NodeId, name: str, what: str, topic: Topic, connection: Connection | None
    ) -> None:
        who = Identity("node", name)
        why = f"node {slot}: {self.permissions.verdict(who, what, topic).why}"
        self._node.audit.denied(str(who), what, topic, why, address_of(connection))

    # -- new rules -------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look now and then whether the file has changed, until `close`."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Stop looking at the file."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.watch()
        before, self._seen = self._seen, signature(self.permissions.files)
        if self._seen == self._read_as or self._seen != before:
            return  # unchanged, or being written: the next look finds it complete
        self._read_as = self._seen
        try:
            permissions = read_permissions(self._path)
        except ConfigError as error:
            log.error("the permissions stay as they were: %s", error)
            return
        if permissions.files != self.permissions.files:
            self._read_as = ()  # we have not looked at these: read them once more
        self._change(permissions)

    def _change(self, permissions: Permissions) -> None:
        before, self.permissions = self.permissions, permissions
        self._former.append(before)
        grace_s = self._node.config.permissions_grace_s
        asyncio.get_running_loop().call_later(grace_s, self._forget, before)
        self._publish.clear()
        self._frames.clear()
        now = self._node.keys.tokens = permissions.tokens
        withdrawn = {name for name, token in before.tokens.items() if now.get(name) != token}
        log.info("read new permissions from %s: %s", self._path, permissions)
        self._node.permissions_changed(withdrawn)

    def _forget(self, former: Permissions) -> None:
        """Drop former rules: by now all nodes have read later ones."""
        if former in self._former:
            self._former.remove(former)
            self._publish.clear()
            self._frames.clear()


def address_of(connection: Connection | None) -> str:
    """The socket address of a connection's peer; empty if there is no connection."""
    return "" if connection is None else connection.address


def name_of(connection: Connection | None) -> str:
    """The name that the peer of a connection proved; empty if it proved none."""
    return "" if connection is None else connection.identity
