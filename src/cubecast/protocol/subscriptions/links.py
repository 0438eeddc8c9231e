"""Reliable links for control messages: exactly once, in order, per pair of nodes.

Membership waves are simple because of this layer: a message is never lost, repeated or overtaken
by a later one on the same link, whatever the network does.  Frames and ACKs do not pass here;
they carry their own sequence numbers.

Invariants, per ordered pair of nodes:

1. `message` number n is handed up after n-1 and once.
2. A parcel is kept until acknowledged; it is sent again after `resend_after`, backing off.
   Acknowledgements gather for a quarter of that.
3. Parcels that came ahead of their turn are bounded; those beyond are left to be sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from cubecast.protocol.config import Config
from cubecast.protocol.errors import (
    MAX_EARLY_PARCELS,
    MAX_EARLY_WEIGHT,
    MAX_UNACKED_WEIGHT,
    ProtocolError,
)
from cubecast.protocol.messages import (
    Answer,
    CaughtUp,
    Mute,
    Parcel,
    ParcelAck,
    Release,
    Settled,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import NodeId, Port, Time

Carried: TypeAlias = Stable | Release | Suspended | Settled | CaughtUp | Mute | Wave | Answer


def weight(message: Carried) -> int:
    """The cost to keep a message: one, one for each entry of its vector, for 8 names, and for 64
    bytes of a retained value."""
    if type(message) is not Answer:
        return 1
    entries = len(message.vector) + len(message.over) + len(message.own)
    value = 0 if message.kept is None else len(message.kept.blob) // 64
    return 1 + entries + len(message.topics) // 8 + value


class Link:
    """Both directions of the control traffic with one peer."""

    __slots__ = (
        "ack_at",
        "early",
        "early_weight",
        "expected",
        "next_number",
        "pause",
        "resend_at",
        "unacked",
        "unacked_weight",
    )

    def __init__(self, pause: Time) -> None:
        self.next_number = 0
        self.unacked: deque[Parcel] = deque()
        self.unacked_weight = 0
        self.early_weight = 0
        self.expected = 0
        self.early: dict[int, Carried] = {}
        self.resend_at: Time | None = None
        self.pause = pause
        self.ack_at: Time | None = None


class Links:
    """The links of one node."""

    def __init__(self, port: Port, config: Config) -> None:
        self._port = port
        self._config = config
        self._links: dict[NodeId, Link] = {}
        self._due: Time | None = None  # no later than any link's deadline
        self.peers = -1
        """The members of the cluster: nothing is sent to other nodes."""

    def send(self, peer: NodeId, message: Carried, now: Time) -> None:
        """Send `message` to `peer`, behind everything sent to it before."""
        if not self.peers >> peer & 1:
            return  # the peer is gone: a node that needs its answer asks others
        link = self._link(peer)
        parcel = Parcel(link.next_number, message)
        link.next_number += 1
        link.unacked.append(parcel)
        link.unacked_weight += weight(message)
        if link.resend_at is None:
            link.pause = self._config.resend_after
            link.resend_at = now + link.pause
            self._arm(link.resend_at)
        self._port.control(peer, parcel)

    def on_parcel(self, parcel: Parcel, sender: NodeId, now: Time) -> Sequence[Carried]:
        """Take in a parcel; return the messages whose turn has come."""
        link = self._link(sender)
        if link.ack_at is None:
            link.ack_at = now + self._config.resend_after // 4
            self._arm(link.ack_at)
        if parcel.number == link.expected and not link.early:
            link.expected += 1
            return (parcel.message,)
        if parcel.number < link.expected:
            return ()
        if not self._keep_early(link, parcel):
            return ()
        ready: list[Carried] = []
        while link.expected in link.early:
            message = link.early.pop(link.expected)
            link.early_weight -= weight(message)
            ready.append(message)
            link.expected += 1
        return ready

    def _keep_early(self, link: Link, parcel: Parcel) -> bool:
        """Keep a parcel until its turn; the next one in turn is always taken."""
        heavy = weight(parcel.message)
        if parcel.number in link.early:
            return False
        if parcel.number > link.expected and (
            parcel.number - link.expected > MAX_EARLY_PARCELS
            or link.early_weight + heavy > MAX_EARLY_WEIGHT
        ):
            return False
        link.early[parcel.number] = parcel.message
        link.early_weight += heavy
        return True

    def check_may_ask(self, peer: NodeId) -> None:
        """Refuse questions of a peer that does not acknowledge our answers."""
        if self._link(peer).unacked_weight > MAX_UNACKED_WEIGHT:
            raise ProtocolError("it asks without acknowledging what it is told")

    def on_parcel_ack(self, ack: ParcelAck, sender: NodeId, now: Time) -> None:
        """Forget the parcels that arrived; the rest gets a fresh time-out."""
        link = self._link(sender)
        if ack.expected > link.next_number > 0:  # 0: we forgot this peer when it left
            raise ProtocolError("it acknowledges a control message that was never sent")
        progress = False
        while link.unacked and link.unacked[0].number < ack.expected:
            link.unacked_weight -= weight(link.unacked.popleft().message)
            progress = True
        if not link.unacked:
            link.resend_at = None
        elif progress:
            link.pause = self._config.resend_after
            link.resend_at = now + link.pause
            self._arm(link.resend_at)  # after a long pause it is earlier than before

    def on_wake(self, now: Time) -> None:
        """Acknowledge what is due, repeat what is overdue, ask for the next wake."""
        if self._due is None:
            return
        if self._due > now:
            self._port.wake(self._due)
            return
        self._due = None
        for peer, link in self._links.items():
            if link.ack_at is not None and link.ack_at <= now:
                link.ack_at = None
                self._port.control(peer, ParcelAck(link.expected))
            if link.resend_at is not None and link.resend_at <= now:
                self._resend(peer, link, now)
            for at in (link.ack_at, link.resend_at):
                if at is not None:
                    self._arm(at)

    def _arm(self, at: Time) -> None:
        if self._due is None or at < self._due:
            self._due = at
            self._port.wake(at)

    def _resend(self, peer: NodeId, link: Link, now: Time) -> None:
        for parcel in list(link.unacked)[: self._config.resend_burst]:
            self._port.control(peer, parcel)
        link.pause = min(2 * link.pause, self._config.resend_max)
        link.resend_at = now + link.pause

    def forget(self, peer: NodeId) -> None:
        """Forget a peer that is gone for good; the next owner of its slot begins anew."""
        self._links.pop(peer, None)

    def unacked(self, peer: NodeId | None = None) -> int:
        """Parcels on their way, to `peer` or to everyone."""
        if peer is not None:
            return len(self._links[peer].unacked) if peer in self._links else 0
        return sum(len(link.unacked) for link in self._links.values())

    def _link(self, peer: NodeId) -> Link:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link(self._config.resend_after)
        return link
