"""Faults on the links of a live node, on purpose: delay, jitter, loss and cuts, packet by packet.

    node.faults.set(2, Rule(delay_s=0.02, loss=0.01))
    node.faults.clear()

A rule acts on what this node sends to a peer; `cut` also on what arrives from it, so that one
node can isolate itself.  TCP below loses nothing, so the packets are dropped before they are
written or after they were read: the protocol has to repair them, as it would on a bad network.

What is done to which packet:

1. What nodes say to each other (frames, ACKs, control messages, changes of the view, tests) the
   protocol sends again: it may be delayed, overtaken, lost.
2. The handshake, and what a light client and its node say, rely on their connection.  They are
   delayed but never lost while it lives, keep their place among all packets of the connection,
   and wait out a cut, as bytes in a TCP connection would.  What waits is bounded; at the bound the
   connection is closed.  With a connection that ends, it is dropped.
3. Dialling a peer that is cut fails like dialling a host that cannot be reached.
4. The end of a connection is seen at once, even through a cut.

With no rules a connection has no `Shaper`, and sending pays one test per tick.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from cubecast.net.wire.packets import ACK, CONTROL, DETECTOR, FORWARD, FRAME, PART, VIEW
from cubecast.protocol.cluster.views import process_of
from cubecast.protocol.port import NodeId

REPAIRED = frozenset((FRAME, ACK, CONTROL, VIEW, DETECTOR, FORWARD, PART))
"""The kinds of packets that the protocol sends again."""
DATA = frozenset((FRAME, ACK, CONTROL, FORWARD))
"""Those that are about topics."""
KIND_AT = 4
"""Where the kind stands in a packet: behind its length."""
MAX_HELD = 1024
"""Packets that wait out a cut on one connection, in each direction."""
MAX_DELAYED_BYTES = 64 * 1024 * 1024
"""What one connection delays; beyond it packets that are repaired are lost, as in a full queue."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the packets for one peer."""

    delay_s: float = 0.0
    """Every packet takes this much longer; without jitter none overtakes another."""
    jitter_s: float = 0.0
    """And up to this much more, drawn for each packet, so that packets overtake each other."""
    loss: float = 0.0
    """The probability that a packet is lost."""
    cut: bool = False
    """Nothing passes, neither way."""
    cut_outgoing: bool = False
    """Nothing is sent; what arrives is taken."""

    def __post_init__(self) -> None:
        for name in ("delay_s", "jitter_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a time of at least 0, not {value}")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be a probability from 0 to 1, not {self.loss}")

    @property
    def silent(self) -> bool:
        """Whether nothing is sent."""
        return self.cut or self.cut_outgoing

    def __str__(self) -> str:
        said = []
        for name, value in (("delay", self.delay_s), ("jitter", self.jitter_s)):
            if value:
                said.append(f"{name}={value * 1000:.12g}ms")
        if self.loss:
            said.append(f"loss={self.loss * 100:.12g}%")
        said += [
            name for name, on in (("cut", self.cut), ("cut-outgoing", self.cut_outgoing)) if on
        ]
        return " ".join(said) or "none"


CLEAR = Rule()


class LinkCut(OSError):
    """Dialling failed because of a rule; the peer may be well."""


class Shaped(Protocol):
    """What a shaper needs of its connection."""

    link: NodeId
    uid: str
    shaper: Shaper | None

    def write(self, packets: list[bytes]) -> None: ...
    def resume(self) -> None: ...
    def close(self, reason: str) -> None: ...
    def drained(self) -> None: ...


class LinkFaults:
    """The rules of one node, by the slot of the peer; `default` is for all others.

    A peer without a known slot (a newcomer, or a peer not yet introduced) is one of the others.
    A rule may also be for a uid, in all lives of that process, and then comes first: slots change
    hands, and on two sides of a partition one slot may have two holders.  For a peer that dials
    us, such a rule begins with its introduction; its handshake is then not answered.
    """

    def __init__(
        self,
        rules: Mapping[NodeId, Rule] | Mapping[str, Rule] | None = None,
        default: Rule = CLEAR,
        *,
        random: Random | None = None,
    ) -> None:
        self._rules: dict[NodeId | str, Rule] = dict((rules or {}).items())
        self._default = default
        self.random = Random(0) if random is None else random
        self._connections: dict[Shaped, None] = {}
        self.lost = 0
        """Packets dropped so far: by chance, by a cut, or because too much was delayed."""

    @classmethod
    def parse(cls, text: str, *, random: Random | None = None) -> LinkFaults:
        """Rules from text: ``2: delay=20ms loss=1%; *: jitter=2ms``; `ValueError` if unclear."""
        rules, default = parse_rules(text)
        return cls(rules, default, random=random)

    def __str__(self) -> str:
        said = [f"{peer}: {rule}" for peer, rule in sorted(self._rules.items(), key=_by_peer)]
        if self._default != CLEAR:
            said.append(f"*: {self._default}")
        return "; ".join(said)

    # -- the rules -------------------------------------------------------------------------------

    def set(self, peer: NodeId | str | None, rule: Rule) -> None:
        """Set the rule for `peer`, a slot or a uid; None: for all peers without a rule."""
        if peer is None:
            self._default = rule
        else:
            self._rules[peer] = rule
        self._rules_changed()

    def clear(self, peer: NodeId | str | None = None) -> None:
        """End the faults with `peer`; None: all of them.  Delayed packets still take their time."""
        if peer is None:
            self._rules.clear()
            self._default = CLEAR
        else:
            self._rules[peer] = CLEAR
        self._rules_changed()

    def rule(self, peer: NodeId, uid: str = "") -> Rule:
        """The rule for a peer, by its uid if there is one for that."""
        by_uid = self._rules.get(process_of(uid))
        return self._rules.get(peer, self._default) if by_uid is None else by_uid

    @property
    def active(self) -> bool:
        """Whether any rule does anything."""
        return self._default != CLEAR or any(rule != CLEAR for rule in self._rules.values())

    @property
    def cuts(self) -> bool:
        """Whether a rule cuts a link."""
        return any(rule.silent for rule in (self._default, *self._rules.values()))

    def longest_s(self) -> float:
        """No packet is delayed for longer by the present rules."""
        return max(rule.delay_s + rule.jitter_s for rule in (self._default, *self._rules.values()))

    def check_reachable(self, peer: NodeId, uid: str = "") -> None:
        """Fail as dialling an unreachable host fails, if nothing can be sent to `peer`."""
        if self.rule(peer, uid).silent:
            raise LinkCut(errno.EHOSTUNREACH, "the link is cut")

    # -- connections -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether packets wait, to be sent later or for the end of a cut."""
        return any(one.shaper is not None and one.shaper.busy for one in self._connections)

    @property
    def delays_data(self) -> bool:
        """Whether frames, ACKs or control messages wait; tests of members always may."""
        return any(one.shaper is not None and one.shaper.holds_data for one in self._connections)

    def opened(self, connection: Shaped) -> None:
        """A connection of this node exists; it gets a shaper if there is something to do."""
        self._connections[connection] = None
        if self.active:
            connection.shaper = Shaper(self, connection)

    def closed(self, connection: Shaped) -> None:
        """A connection ended, and with it what waited in it."""
        self._connections.pop(connection, None)
        if connection.shaper is not None:
            connection.shaper.stop()
            connection.shaper = None

    def done_with(self, connection: Shaped) -> None:
        """Take a connection's shaper away, if no rule needs it and nothing waits in it."""
        if connection.shaper is not None and not (connection.shaper.busy or self.active):
            connection.shaper = None

    def _rules_changed(self) -> None:
        active = self.active
        for connection in list(self._connections):
            if connection.shaper is not None:
                connection.shaper.rules_changed()
                self.done_with(connection)
            elif active:
                connection.shaper = Shaper(self, connection)


class Shaper:
    """What the rules do to the packets of one connection.

    `_queue` holds what is delayed, by the time it is due and then in order; `_floor` is when the
    last packet that must keep its place is due: nothing sent behind it is due earlier.
    """

    def __init__(self, faults: LinkFaults, connection: Shaped) -> None:
        self._faults = faults
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[float, int, bytes]] = []
        self._queued_bytes = 0
        self._number = 0
        self._floor = self._latest = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[bytes] = []
        self._arrived: list[tuple[int, bytes]] = []
        self._unread = False
        self._ending = False

    @property
    def busy(self) -> bool:
        """Whether something waits here that must not be forgotten."""
        return bool(self._queue or self._held or self._arrived or self._unread)

    @property
    def holds_data(self) -> bool:
        """Whether something of a topic waits to be sent."""
        return any(packet[KIND_AT] in DATA for _, _, packet in self._queue)

    @property
    def waiting_bytes(self) -> int:
        """What is to be written later."""
        return self._queued_bytes + sum(map(len, self._held))

    @property
    def _rule(self) -> Rule:
        return self._faults.rule(self._connection.link, self._connection.uid)

    # -- going out -------------------------------------------------------------------------------

    def send(self, packets: list[bytes]) -> None:
        """Write `packets` now, later or never."""
        rule, now = self._rule, self._loop.time()
        if self._held and not rule.silent:
            packets = self._held + packets
            self._held = []
        for packet in packets:
            repaired = packet[KIND_AT] in REPAIRED
            if rule.silent and not repaired:
                self._hold(packet)
            elif repaired and self._loses(rule, packet):
                self._faults.lost += 1
            else:
                self._delay(packet, rule, now, repaired)
        self._write_due()

    def _loses(self, rule: Rule, packet: bytes) -> bool:
        if rule.silent or self._queued_bytes + len(packet) > MAX_DELAYED_BYTES:
            return True
        return rule.loss > 0 and self._faults.random.random() < rule.loss

    def _hold(self, packet: bytes) -> None:
        if len(self._held) < MAX_HELD:
            self._held.append(packet)
        else:
            self._connection.close("too much waits for a link that is cut")

    def _delay(self, packet: bytes, rule: Rule, now: float, may_be_overtaken: bool) -> None:
        due = now + rule.delay_s
        if rule.jitter_s:
            due += self._faults.random.random() * rule.jitter_s
        due = max(due, self._floor)
        if not may_be_overtaken:
            due = self._floor = max(due, self._latest)
        self._latest = max(due, self._latest)
        self._number += 1
        self._queued_bytes += len(packet)
        heappush(self._queue, (due, self._number, packet))

    def _write_due(self) -> None:
        now, queue = self._loop.time(), self._queue
        packets: list[bytes] = []
        while queue and queue[0][0] <= now:
            packets.append(heappop(queue)[2])
        if packets:
            self._queued_bytes -= sum(map(len, packets))
            self._connection.write(packets)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if queue:
            self._timer = self._loop.call_at(queue[0][0], self._write_due)
        elif self._ending:
            self._connection.drained()
        else:
            self._faults.done_with(self._connection)

    def end(self) -> None:
        """The connection is to be closed once what is delayed is written."""
        self._ending = True
        self._write_due()

    def stop(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._ending = False
        self._queue.clear()
        self._held.clear()
        self._arrived.clear()
        self._unread = False

    # -- coming in -------------------------------------------------------------------------------

    def may_shake_hands(self) -> bool:
        """Whether to read what has come before the handshake is complete, or leave it for later."""
        self._unread = self._rule.cut
        return not self._unread

    def packets_after_handshake(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """What may be taken in of `packets`, and of what came while the link was cut."""
        if not self._rule.cut:
            if self._arrived:
                packets = self._arrived + packets
                self._arrived = []
                self._faults.done_with(self._connection)
            return packets
        kept = [(kind, raw) for kind, raw in packets if kind not in REPAIRED]
        self._faults.lost += len(packets) - len(kept)
        self._arrived += kept
        if len(self._arrived) > MAX_HELD:
            self._connection.close("too much came over a link that is cut")
        return []

    # -- both ------------------------------------------------------------------------------------

    def rules_changed(self) -> None:
        """Release what waited out a cut, if it is over; later, not inside the caller."""
        if not self._rule.silent and self._held:
            self._loop.call_soon(self.send, [])
        if not self._rule.cut and (self._arrived or self._unread):
            self._loop.call_soon(self._connection.resume)


def _by_peer(entry: tuple[NodeId | str, Rule]) -> tuple[bool, NodeId | str]:
    """Slots in order, then uids."""
    return isinstance(entry[0], str), entry[0]


# -- rules as text ---------------------------------------------------------------------------------

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
NUMBER = r"\d+(?:\.\d*)?|\.\d+"


def parse_rules(text: str) -> tuple[dict[NodeId, Rule], Rule]:
    """The rules by peer, and the default rule.

    ``PEERS: FAULT ...; PEERS: FAULT ...`` where PEERS are slots with commas, or ``*`` for all
    others, and a FAULT is ``delay=20ms``, ``jitter=500us``, ``loss=1%``, ``cut`` or
    ``cut-outgoing``.
    """
    rules: dict[NodeId | None, Rule] = {}
    for clause in filter(None, map(str.strip, text.split(";"))):
        peers, colon, faults = clause.partition(":")
        if not colon:
            raise ValueError(f"fault rule {clause!r} names no peer; write 2: {clause}")
        rule = _parse_rule(faults, clause)
        for peer in map(_parse_peer, peers.split(",")):
            if peer in rules:
                who = "all others" if peer is None else f"peer {peer}"
                raise ValueError(f"fault rule {clause!r}: {who} already have a rule")
            rules[peer] = rule
    default = rules.pop(None, CLEAR)
    return {peer: rule for peer, rule in rules.items() if peer is not None}, default


def _parse_peer(text: str) -> NodeId | None:
    text = text.strip()
    if text == "*":
        return None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is no peer; give a slot such as 2, or * for all others")
    return int(text)


def _parse_rule(text: str, clause: str) -> Rule:
    given: dict[str, float | bool] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        match name:
            case "delay" | "jitter":
                field, amount = f"{name}_s", _parse_time(word, value)
            case "loss":
                field, amount = "loss", _parse_share(word, value)
            case "cut" | "cut-outgoing" if word == name:
                field, amount = name.replace("-", "_"), True
            case "none" if word == name and len(text.split()) == 1:
                continue
            case _:
                raise ValueError(
                    f"{word!r} is no fault; "
                    "there are delay=20ms, jitter=2ms, loss=1%, cut and cut-outgoing"
                )
        if field in given:
            raise ValueError(f"fault rule {clause!r} says {name} twice")
        given[field] = amount
    if not text.split():
        raise ValueError(f"fault rule {clause!r} says nothing")
    return Rule(**given)  # type: ignore[arg-type]  # the names decide which are true or false


def _parse_time(word: str, value: str) -> float:
    found = re.fullmatch(rf"({NUMBER})(us|ms|s)", value, re.ASCII)
    if found is None:
        raise ValueError(f"{word!r} needs a time with its unit, as in 20ms, 500us or 1.5s")
    return float(found[1]) * UNITS[found[2]]


def _parse_share(word: str, value: str) -> float:
    found = re.fullmatch(rf"({NUMBER})(%?)", value, re.ASCII)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{word!r} needs a share from 0 to 1, or from 0% to 100%")
    return share
