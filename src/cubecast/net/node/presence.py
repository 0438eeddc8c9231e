"""A node's place in the cluster: joining, changes of the view, exclusion, leaving.

`Member` decides; this module applies its decisions to connections, the application and the trace.
Each message is checked against the identity that its connection has proved:

1. Data, tests and messages to agree on a view are accepted from the life that our view names for a
   slot.  Any other sender is answered with our view (`Beacon`).
2. Messages of newcomers and of nodes in other views (`TO_ANYONE`) are accepted from every node that
   has proved the cluster's secret.  They are handed on with the address where we reached the
   sender, if we did: belief in views depends on it (`cubecast.protocol.cluster.belief`).
3. A message that is not believed is logged with its sender: once for each of the last
   `MAX_DISBELIEVED` lives.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cubecast.errors import Closed, CubecastError, JoinError
from cubecast.net.events import Excluded, MemberJoined, MemberLeft, Returned
from cubecast.net.links.connection import NOBODY, REFUSED, SILENT, Connection
from cubecast.net.links.reach import FIRST_PAUSE_S, LONGEST_PAUSE_S, unfit
from cubecast.net.wire.hello import AttachRequest, Refused, decode_greeting
from cubecast.net.wire.packets import (
    CLIENT,
    CONTROL,
    DETECTOR,
    FORWARD,
    HELLO,
    PART,
    VIEW,
    WireError,
)
from cubecast.net.wire.views import (
    decode_detector,
    decode_forward,
    decode_view,
    encode_forward,
    encode_view,
)
from cubecast.protocol.cluster.agreement import MAX_SLOTS
from cubecast.protocol.cluster.detector import Detector
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import (
    TO_ANYONE,
    Beacon,
    Clusterwide,
    Enter,
    ToAnyone,
    View,
    Who,
    genesis,
)
from cubecast.protocol.port import NodeId, Time
from cubecast.topology import members_of

if TYPE_CHECKING:
    from cubecast.net.node.shell import Shell

log = logging.getLogger("cubecast")

MAX_OTHER_CLUSTERS = 64
"""Other clusters that are remembered as logged; one more, and the set is cleared."""
MAX_DISBELIEVED = 64
"""Lives not believed that are remembered as logged; one more, and the set is cleared."""


class Presence:
    """Runs the `Member` of one node and carries out its decisions."""

    def __init__(self, shell: Shell, incarnation: int) -> None:
        self._shell = shell
        self._first_incarnation = incarnation
        self._member: Member | None = None
        self.core: CubecastNode | None = None
        """The data core of this life; None while the node is in no view."""
        self.last_core: CubecastNode | None = None
        """The latest core, also of a life that is over."""
        self.detector: Detector | None = None
        self.members: Mapping[NodeId, Who] = {}
        self._last_view: View | None = None
        self._slot = NOBODY
        self._inside = asyncio.Event()
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: frozenset[str] = frozenset()  # the seeds; the tables below are of these
        self._refusers: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._pauses: dict[str, float] = {}
        self._silent_until: dict[str, Time] = {}
        self._departed = asyncio.Event()
        self._probe_at: Time = 0
        self._trouble = ""
        self._encoded: tuple[object, bytes] = (None, b"")
        self._other_clusters: set[str] = set()
        self._disbelieved: set[str] = set()
        self._speaker: Connection | None = None  # it sent the view message being handled

    # -- coming in -------------------------------------------------------------------------------

    @property
    def member(self) -> Member:
        """The protocol of this node, in all its lives."""
        if self._member is None:
            raise Closed("the node has not started")
        return self._member

    @property
    def begun(self) -> bool:
        return self._member is not None

    @property
    def who(self) -> Who | None:
        """This node's uid, address and incarnation in this life."""
        return None if self._member is None else self._member.who

    @property
    def slot(self) -> NodeId:
        """Our slot; while we are in no view, the last one."""
        return NOBODY if self._member is None else self._member.node

    @property
    def view(self) -> View | None:
        return None if self._member is None else self._member.view

    @property
    def cluster(self) -> str:
        """The cluster that this node is in, or was last; empty before the first."""
        return "" if self._member is None else self._member.cluster

    @property
    def epoch(self) -> int:
        """The number of this node's view; -1: none."""
        view = self.view
        return -1 if view is None else view.epoch

    @property
    def addresses(self) -> dict[NodeId, str]:
        """The nodes of the cluster, {slot: address}."""
        return {slot: who.address for slot, who in sorted(self.members.items())}

    @property
    def suspects(self) -> int:
        return 0 if self._member is None else self._member.suspects

    @property
    def suspected(self) -> list[NodeId]:
        """The slots of the members that this node takes for dead."""
        return list(members_of(self.suspects))

    def begin(self, uid: str, seeds: Sequence[str]) -> None:
        """Begin a cluster of one node, or ask at `seeds` for a place."""
        shell = self._shell
        who = Who(uid, shell.address, self._first_incarnation)
        view = genesis({0: who}, secrets.token_hex(16)) if not seeds else None
        self._member = Member(
            NOBODY if view is None else 0,
            shell,
            view=view,
            who=who,
            config=shell.config.protocol,
            epochs=shell.config.epochs,
            detector=shell.config.detector,
            seeds=seeds,
            key=secrets.token_hex(16),
            now=shell.now(),
            can_tell=self._can_tell,
            on_disbelief=self._on_disbelief,
        )
        if view is not None:
            self.view_changed()

    async def enter(self, seeds: Sequence[str], limit_s: float) -> None:
        """Wait for a place; `JoinError` if all seeds refuse us or none gives us one in time."""
        self._asked = frozenset(seeds)
        inside = asyncio.ensure_future(self._inside.wait())
        try:
            waits: list[asyncio.Future[Any]] = [inside, self._refused]
            await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            inside.cancel()
        if self.core is None:
            told = self._reasons
            whole_s = self._shell.config.join_timeout_s
            each = "; ".join(f"{one}: {why}" for one, why in told.items() if len(seeds) > 1)
            why = each or next(iter(told.values()), "")
            if not self._refused.done():
                silent = SILENT if self._shell.mesh.awaits_a_word() else ""
                why = f"no answer in {whole_s:g} s{silent}" + (f"; {why}" if why else self._trouble)
            raise JoinError(",".join(seeds), why)

    def no_answer(self, address: str, reason: str, passing: bool) -> None:
        """Note that a seed cannot be reached or refuses us; `passing`: ask again, less often."""
        if self._slot != NOBODY or address not in self._asked:
            return
        reason = reason.removeprefix(REFUSED)
        if passing:
            if address not in self._reasons:
                log.warning("cannot join at %s yet, trying again: %s", address, reason)
            pause_s = self._pauses.get(address, FIRST_PAUSE_S)
            self._pauses[address] = min(2 * pause_s, LONGEST_PAUSE_S)
            self._silent_until[address] = self._shell.now() + int(pause_s * 1e6)
        else:
            self._refusers.add(address)
        self._reasons[address] = reason
        if self._refusers >= self._asked and not self._refused.done():
            self._refused.set_result(None)

    def hung_up(self, address: str, reason: str) -> None:
        """Note the end of a connection; it may be one to a seed that refuses us."""
        if reason.startswith(REFUSED):
            self.no_answer(address, reason, passing=False)
        self._trouble = f"; the last connection ended: {reason}"

    async def inside(self, limit_s: float) -> CubecastNode:
        """Wait for the core; `CubecastError` if the node is in no cluster for `limit_s`."""
        if self.core is None:
            try:
                async with asyncio.timeout(limit_s):
                    await self._inside.wait()
            except TimeoutError:
                raise CubecastError(f"the node was in no cluster for {limit_s:g} s") from None
        if self.core is None or self._shell.closed:
            raise Closed("the node is closed")
        return self.core

    # -- going out -------------------------------------------------------------------------------

    async def depart(self) -> None:
        """Ask the others to leave this node out of the next view, and wait for that."""
        if self._member is not None and not self._departed.is_set():
            self._member.depart(self._shell.now())
            await self._departed.wait()

    def departed(self) -> None:
        """End `depart`: the others know that this node is gone."""
        self.core = self.detector = None
        self._departed.set()

    def close(self) -> None:
        """Wake the tasks that wait for a place; they fail."""
        self.core = self.detector = None
        self._inside.set()

    # -- views -----------------------------------------------------------------------------------

    def view_changed(self) -> None:
        """Install a new view: its members are this node's peers from now on."""
        if self._member is None:  # `begin` makes the member, and then calls this
            return
        shell, member = self._shell, self._member
        view = member.view
        assert view is not None
        self.core = self.last_core = member.core
        self.detector = member.detector
        shell.numbers.views += 1
        before, self._last_view, self.members = self._last_view, view, view.members
        was, self._slot = self._slot, member.node
        shell.mesh.set_view(view)
        shell.recorder.view(view, was)
        first = was == NOBODY
        if before is None:
            log.info("node %d is in cluster %s, epoch %d", self._slot, view.cluster, view.epoch)
        if not first and not self._inside.is_set():
            log.warning(
                "node %d is back in the cluster, with %d nodes", self._slot, len(self.members)
            )
            event = Returned(self._slot, view.epoch)
            shell.tell(event)
            shell.guests.moved(event)
        self._inside.set()
        if not first and before is not None:
            self._tell_changes(before, view, member)

    def _tell_changes(self, before: View, view: View, member: Member) -> None:
        """Report members that joined or left, compared by uid: a slot may have a new node."""
        absent = {one.who.uid for one in member.absent}
        mine = member.who.process
        for slot in before.lost_in(view):
            who = before.members[slot]
            if who.process != mine:
                crashed = who.uid in absent or who.address in view.places
                log.info("node %d %s", slot, "is gone" if crashed else "left")
                self._shell.tell(MemberLeft(slot, crashed))
        for slot in view.lost_in(before):
            who = view.members[slot]
            if who.process != mine:
                log.info("node %d joined from %s", slot, who.address)
                self._shell.tell(MemberJoined(slot, who.address))

    def excluded(self) -> None:
        """End this life: the others excluded this node.  The next life begins when it is back."""
        core, self.core, self.detector = self.core, None, None
        self._inside.clear()
        self._shell.mesh.begin_anew("the node begins a new life")
        if core is not None:  # else this life ends before it had a place
            log.warning("node %d was excluded from the cluster, and asks to be back", self._slot)
            self._shell.life_ended(core)
            self._shell.tell(Excluded(self._slot))

    # -- what others say -------------------------------------------------------------------------

    def from_outside(
        self, connection: Connection, packets: list[tuple[int, bytes]], now: Time
    ) -> None:
        """Handle packets of a sender that is no member, or that come while we are none."""
        spoke = False
        for kind, raw in packets:
            if connection.outlived and kind != HELLO and not connection.guest:
                connection.close("the node has begun a new life")  # a node: it dials us again
                return
            if connection.purpose == "client" and kind not in (CLIENT, HELLO):
                raise WireError(f"a packet of kind {kind} from a client")
            if kind == CLIENT:
                self._shell.guests.received(connection, raw)
            elif kind == VIEW and not connection.guest:
                spoke |= not self.on_view(raw, connection, now)
            elif kind == HELLO:
                self._on_greeting(raw, connection)
            elif kind == PART and not connection.guest:
                whole = self._shell.mesh.strange_parts.take(connection, raw)
                connection.asked = True
                if whole is not None:
                    self.from_outside(connection, [whole], now)
            elif connection.guest:
                raise WireError(f"a packet of kind {kind} from a client")
            else:
                self._check(kind, raw)
                spoke = True
        if spoke:
            self._say_where_we_are(connection, now)

    def _check(self, kind: int, raw: bytes) -> None:
        """`WireError` if a packet cannot be decoded, also if its sender is no member."""
        if kind == DETECTOR:
            decode_detector(raw)
        elif kind == FORWARD:
            decode_forward(raw)
        else:
            self._shell.vocabulary.decode(kind, raw)

    def _say_where_we_are(self, connection: Connection, now: Time) -> None:
        connection.asked = True
        beacon = self.member.beacon(connection.uid, now)
        if beacon is not None:
            connection.send(encode_view(beacon))

    def _on_greeting(self, raw: bytes, connection: Connection) -> None:
        message = decode_greeting(raw)
        if isinstance(message, Refused) and connection.dialled:
            connection.close(REFUSED + message.reason)
            return
        if (
            not isinstance(message, AttachRequest)
            or connection.purpose != "client"
            or connection.asked
        ):
            raise WireError(f"{type(message).__name__} after the handshake")
        if self.slot == NOBODY:
            connection.refuse("the node is in no cluster yet")
            return
        self._shell.guests.attach(connection, message.movable)
        if connection in self._shell.guests:
            self._shell.mesh.host(connection)

    def on_view(self, raw: bytes, connection: Connection, now: Time) -> bool:
        """Handle a message about views; False if only a member may send it and this is none."""
        message: Clusterwide = decode_view(raw)
        self._speaker = connection
        try:
            if isinstance(message, TO_ANYONE):
                self._on_anyone(message, connection, now)
            elif connection.slot == NOBODY:
                return False
            else:
                self.member.on_message(message, connection.slot, now)
        finally:
            self._speaker = None
        return True

    def _on_anyone(self, message: ToAnyone, connection: Connection, now: Time) -> None:
        connection.asked = True
        if connection.slot == NOBODY and not self._may_say(message, connection):
            return
        self._notice_cluster(message, connection)
        answer = self.member.hear(message, connection.uid, now, self._where(connection))
        if answer is not None:
            connection.send(encode_view(answer))

    def _where(self, connection: Connection) -> str:
        """The address where we reached the sender; in no view, also by another connection."""
        mesh = self._shell.mesh
        place = mesh.place_of(connection)
        if not place and self.view is None:
            place = mesh.place_of_uid(connection.uid)
        return place

    def _on_disbelief(self, uid: str, why: str) -> None:
        """Log that the member does not believe a message of a life; once per life."""
        if uid in self._disbelieved:
            return
        if len(self._disbelieved) >= MAX_DISBELIEVED:
            self._disbelieved.clear()
        self._disbelieved.add(uid)
        log.warning("not believing %s by %s: %s", uid, self._speaker or "another member", why)

    def _notice_cluster(self, message: ToAnyone, connection: Connection) -> None:
        """Log, once for each other cluster, that its messages are ignored."""
        cluster = self.member.foreign(message)
        if cluster and cluster not in self._other_clusters:
            if len(self._other_clusters) >= MAX_OTHER_CLUSTERS:
                self._other_clusters.clear()
            self._other_clusters.add(cluster)
            log.warning(
                "ignoring %s of another cluster (%s) by %s: its address, or ours, was used before",
                type(message).__name__, cluster, connection,
            )  # fmt: skip

    def _may_say(self, message: ToAnyone, connection: Connection) -> bool:
        """Whether to hear this from a node that is no member; it may only speak for itself."""
        match message:
            case Enter():
                if message.who.uid != connection.uid:
                    raise WireError("a request to enter for another node")
                refused = self._is_unfit(message, connection) or self._is_full(message, connection)
                return not refused
            case Beacon():
                if message.uid != connection.uid:
                    raise WireError("a beacon of another node")
        return True

    def _is_unfit(self, enter: Enter, connection: Connection) -> bool:
        """Refuse a newcomer from another machine that cannot be dialled, or cannot dial us."""
        try:
            why = unfit(enter.who.address, self._shell.address, *connection.ends())
        except ValueError as error:
            why = f"it tells others to dial {enter.who.address!r}: {error}"
        if why:
            connection.refuse(why)
        return bool(why)

    def _is_full(self, enter: Enter, connection: Connection) -> bool:
        """Refuse a newcomer if the cluster has no free slot."""
        view = self.view
        if view is None or len(view.members) < MAX_SLOTS or view.has(enter.who.uid):
            return False
        if enter.who.address in view.places:
            return False
        connection.refuse(f"the cluster has {MAX_SLOTS} nodes and room for no more")
        return True

    def from_member(self, kind: int, raw: bytes, connection: Connection, now: Time) -> None:
        """Handle a member's packet that is no frame, ACK or control message in one packet."""
        if kind == VIEW:
            self.on_view(raw, connection, now)
        elif kind == DETECTOR:
            self.member.on_message(decode_detector(raw), connection.slot, now)
            self.look_at_links()
        elif kind == FORWARD:
            self.on_forward(raw, connection, now)
        elif kind == PART:
            whole = self._shell.mesh.parts.take(connection, raw)
            if whole is not None:
                self.from_member(*whole, connection, now)
        elif kind == CONTROL:  # one that came in parts
            self._shell.take(kind, raw, connection.slot, now)
        else:
            raise WireError(f"a packet of kind {kind} from a member")

    # -- links that are broken -------------------------------------------------------------------

    def look_at_links(self) -> None:
        """Send around broken links, if the detector has found any; else directly."""
        broken = self.detector is not None and self.detector.broken
        self._shell.send = self._send_around if broken else self._shell.mesh.send

    def _send_around(self, peer: NodeId, packet: bytes) -> None:
        """Send to a member; through another member if the link to it is broken."""
        detector, view = self.detector, self.view
        if detector is None or view is None or not detector.broken >> peer & 1:
            self._shell.mesh.send(peer, packet)
            return
        now = self._shell.now()
        if now >= self._probe_at:  # is it still broken?
            self._probe_at = now + self._shell.config.detector.test_every
            for other in members_of(detector.broken):
                detector.probe(other, now)
        for relay in detector.relays(peer)[:1]:
            packet = encode_forward(peer, self.slot, view.epoch, packet)
            self._shell.mesh.send(relay, packet)

    def say(self, peer: NodeId, message: Clusterwide) -> None:
        """Send a message about views to a member."""
        packet = self._encode(message)
        if packet:
            self._shell.send(peer, packet)

    def _can_tell(self, message: Clusterwide) -> bool:
        """Whether a message can be encoded; the packet is kept for sending."""
        return bool(self._encode(message))

    def _encode(self, message: Clusterwide) -> bytes:
        """The packet of a message; the last one is kept, as one message often goes to many members.

        A message that is too large even for parts gives an empty packet, which is not sent: the
        members that wait for it go on without us.
        """
        if self._encoded[0] is not message:
            try:
                self._encoded = (message, encode_view(message))
            except WireError as error:
                log.error(
                    "node %d cannot take part in a change of the cluster: %s", self.slot, error
                )
                self._encoded = (message, b"")
        return self._encoded[1]

    def reach(self, address: str, message: Clusterwide) -> None:
        """Send to an address; around the broken link if it is the address of such a member.

        A seed that could not be reached is not tried again for a pause that doubles each time.
        """
        if self._slot == NOBODY and self._silent_until.get(address, 0) > self._shell.now():
            return
        packet = self._encode(message)
        if not packet:
            return
        broken = self.detector is not None and self.detector.broken
        for slot in members_of(broken or 0):
            if self.members[slot].address == address:
                self._send_around(slot, packet)
                return
        self._shell.mesh.reach(address, packet)

    def on_forward(self, raw: bytes, connection: Connection, now: Time) -> None:
        """Handle a packet sent around a broken link: it is for us, or we pass it on, once."""
        forward, view = decode_forward(raw), self.view
        if view is None:
            return
        if forward.destination != self.slot:
            if forward.origin != connection.slot:
                raise WireError("a forward of what was forwarded")
            self._shell.mesh.send(forward.destination, raw)
            return
        if forward.epoch != view.epoch or forward.origin not in view.members:
            return
        if forward.kind != VIEW:
            self._shell.take(forward.kind, forward.packet, forward.origin, now)
            return
        message = decode_view(forward.packet)
        if not isinstance(message, TO_ANYONE):
            self.member.on_message(message, forward.origin, now)
            return
        answer = self.member.hear(message, view.members[forward.origin].uid, now)
        if answer is not None:
            back = encode_forward(forward.origin, self.slot, view.epoch, encode_view(answer))
            connection.send(back)

    def probe(self, peer: NodeId) -> None:
        """Test a member now: it may be dead."""
        if self.detector is not None:
            self.detector.probe(peer, self._shell.now())
