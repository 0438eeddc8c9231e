"""Packets of the agreement on views, and of failure detectors.

JSON of the structures in `cubecast.protocol.cluster.views` and
`cubecast.protocol.cluster.detector`, checked against their types and the bounds of their numbers on
the way in.  A `Forward` carries a packet for a member that its sender cannot reach.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeVar

import msgspec

from cubecast.net.links.address import parse_address
from cubecast.net.wire.hello import MAX_ADDRESS, is_uid
from cubecast.net.wire.packets import (
    ACK,
    CONTROL,
    DETECTOR,
    FORWARD,
    FRAME,
    MAX_NUMBER,
    MAX_SLOTS,
    MAX_TOPIC,
    PREFIX,
    VIEW,
    WireError,
)
from cubecast.net.wire.parts import MAX_WHOLE
from cubecast.protocol.cluster.absence import MAX_ABSENT
from cubecast.protocol.cluster.agreement import MAX_SLOTS as MAX_MEMBERS
from cubecast.protocol.cluster.belief import MAX_EPOCH
from cubecast.protocol.cluster.detector import (
    DetectorMessage,
    IndirectTest,
    Notice,
    Test,
    TestReply,
    Vouch,
)
from cubecast.protocol.cluster.knowledge import MAX_NEWS
from cubecast.protocol.cluster.views import (
    CHECK_BITS,
    Ballot,
    Beacon,
    Change,
    Clusterwide,
    Depart,
    Doubt,
    Ends,
    Enter,
    Final,
    HeldStream,
    Install,
    Installed,
    Outlived,
    Prepare,
    Report,
    Stuck,
    Unclear,
    UnreadFrame,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.errors import MAX_STREAMS
from cubecast.protocol.messages import Barrier
from cubecast.protocol.port import LIFE_BITS, NodeId, Stream
from cubecast.protocol.topic.holdings import MAX_UNREAD

MAX_STATED_VIEW = 1 << 160
"""The detector's number of a view is below this: an epoch, a round and a slot in one."""
MAX_VERSION = 1 << 100
"""The detector's versions are below this: an incarnation and a count in one."""

ROUTE = Struct("<HHQ")
"""destination, origin, epoch"""
OVERHEAD = 2 * PREFIX.size + ROUTE.size
"""What a packet and a `Forward` around it take beside the message."""

FORWARDED = frozenset((FRAME, ACK, CONTROL, VIEW))
"""What goes around a broken link; a test of the link does not."""

LARGE_BYTES = 1 << 20
"""Of a packet whose decoding takes long enough to notice."""

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_view_decoder: msgspec.json.Decoder[Clusterwide] = msgspec.json.Decoder(Clusterwide)
_detector_decoder: msgspec.json.Decoder[DetectorMessage] = msgspec.json.Decoder(DetectorMessage)


def encode_view(message: Clusterwide) -> bytes:
    """The packet of a message about views."""
    return _packet(VIEW, message)


def encode_detector(message: DetectorMessage) -> bytes:
    """The packet of a message of the failure detector."""
    return _packet(DETECTOR, message)


def _packet(kind: int, message: object) -> bytes:
    try:
        body = _encode(message)
    except (OverflowError, ValueError) as error:  # also text that is no text
        raise WireError(f"a {type(message).__name__} cannot be encoded: {error}") from error
    if len(body) > MAX_WHOLE - OVERHEAD:
        name = type(message).__name__
        raise WireError(f"a {name} of {len(body)} bytes is larger than {MAX_WHOLE}")
    return PREFIX.pack(1 + len(body), kind) + body


def decode_view(raw: bytes) -> Clusterwide:
    """The message about views in packet `raw`."""
    message = _decoded(raw, _view_decoder)
    if not _within_bounds(message):
        raise WireError(f"broken message: {type(message).__name__} out of bounds")
    return message


def decode_detector(raw: bytes) -> DetectorMessage:
    """The message of a failure detector in packet `raw`."""
    message = _decoded(raw, _detector_decoder)
    if not _is_sound(message):
        raise WireError(f"broken message: {type(message).__name__} out of bounds")
    return message


def _decoded(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        with without_collections(len(raw)):
            return decoder.decode(raw[PREFIX.size :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"broken message: {error}") from error


@contextmanager
def without_collections(size: int) -> Iterator[None]:
    """Suspend garbage collection while something large is decoded: it makes no garbage.

    The collector looks at every object again and again while half a million are made: it took
    three quarters of the time of a request of 17 MB.
    """
    if size < LARGE_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- packets that go a longer way ------------------------------------------------------------------


class Forward(NamedTuple):
    """A packet of the member `origin` for the member `destination`, which it cannot reach.

    Only nodes in the same view as `origin` use it: in another view the slots may be other nodes'.
    """

    destination: NodeId
    origin: NodeId
    epoch: int
    kind: int
    packet: bytes


def encode_forward(destination: NodeId, origin: NodeId, epoch: int, packet: bytes) -> bytes:
    """The packet around a packet."""
    route = ROUTE.pack(destination, origin, epoch)
    return PREFIX.pack(1 + len(route) + len(packet), FORWARD) + route + packet


def decode_forward(raw: bytes) -> Forward:
    """What is in packet `raw`: one whole packet, and no other `Forward`."""
    start = PREFIX.size + ROUTE.size
    try:
        destination, origin, epoch = ROUTE.unpack_from(raw, PREFIX.size)
        length, kind = PREFIX.unpack_from(raw, start)
    except StructError as error:
        raise WireError(f"broken forward: {error}") from error
    if 4 + length != len(raw) - start:
        raise WireError(f"broken forward: {length} bytes in {len(raw) - start}")
    if kind not in FORWARDED or max(destination, origin) >= MAX_MEMBERS:
        raise WireError(f"broken forward of kind {kind} from {origin} to {destination}")
    return Forward(destination, origin, epoch, kind, raw[start:])


# -- bounds ----------------------------------------------------------------------------------------


def _within_bounds(message: Clusterwide) -> bool:
    """Whether every slot, number and set in a message about views is within its bounds."""
    match message:
        case Prepare():
            return _ballot(message.ballot) and _view_id(message.parent) and _set(message.survivors)
        case Report():
            return (
                _ballot(message.ballot)
                and _ballot(message.promised)
                and (message.installed is None or _install(message.installed))
                and all(
                    _topic(topic) and len(held) <= MAX_STREAMS and all(map(_held, held))
                    for topic, held in message.held.items()
                )
            )
        case Install():
            return _install(message)
        case Change():
            return _change(message)
        case Installed():
            return _view_id(message.view) and _set(message.there)
        case Stuck() | Unclear():
            return _view_id(message.view)
        case Enter():
            return (
                _who(message.who)
                and -1 <= message.wish < MAX_MEMBERS
                and _ends(message.reached)
                and _number(message.apart)
                and (not message.cluster or is_uid(message.cluster))
                and (not message.proof or is_uid(message.proof))
            )
        case Depart():
            return is_uid(message.uid) and (not message.proof or is_uid(message.proof))
        case Doubt():
            return is_uid(message.uid) and is_uid(message.nonce)
        case Outlived():
            return is_uid(message.uid)
        case Beacon():
            return is_uid(message.uid) and _view(message.view)


def _install(install: Install) -> bool:
    return _view(install.view) and _decision(install)


def _change(change: Change) -> bool:
    return (
        _view_id(change.view)
        and _set(change.gone)
        and len(change.came) <= MAX_MEMBERS
        and all(0 <= slot < MAX_MEMBERS and _who(who) for slot, who in change.came.items())
        and len(change.forgotten) <= MAX_ABSENT
        and all(map(is_uid, change.forgotten))
        and 0 <= change.check < 1 << CHECK_BITS
        and _decision(change)
    )


def _decision(message: Install | Change) -> bool:
    """What a whole view and a difference have in common."""
    return (
        _ballot(message.ballot)
        and _view_id(message.parent)
        and all(
            _topic(topic) and len(finals) <= MAX_STREAMS and all(map(_final, finals))
            for topic, finals in message.finals.items()
        )
        and _ends(message.ends)
        and len(message.absent) <= MAX_ABSENT
        and all(_who(one.who) and _number(one.epoch) for one in message.absent)
        and _number(message.apart)
    )


def _view(view: View) -> bool:
    """A view has members, each of them once."""
    members = view.members
    return (
        _view_id(view.id)
        and 0 < len(members) <= MAX_MEMBERS
        and all(0 <= slot < MAX_MEMBERS for slot in members)
        and all(map(_who, members.values()))
        and len({who.uid for who in members.values()}) == len(members)
        and (not view.cluster or is_uid(view.cluster))
    )


def _who(who: Who) -> bool:
    if not (is_uid(who.uid) and 0 <= who.incarnation < 1 << LIFE_BITS):
        return False
    try:
        parse_address(who.address)
    except ValueError:
        return False
    return len(who.address) <= MAX_ADDRESS


def _held(held: HeldStream) -> bool:
    numbers = held.delivered, held.read, held.base, held.have
    return (
        _stream(held.stream)
        and all(-1 <= number < MAX_NUMBER for number in numbers)
        and len(held.unread) <= MAX_UNREAD
        and all(map(_unread, held.unread))
        and _barrier(held.cut)
    )


def _unread(unread: UnreadFrame) -> bool:
    return 0 <= unread.first <= unread.last < MAX_NUMBER and _barrier(unread.barrier)


def _final(final: Final) -> bool:
    return (
        _stream(final.stream)
        and -1 <= final.base <= final.seq < MAX_NUMBER
        and 0 <= final.heir < MAX_MEMBERS
        and _barrier(final.after)
    )


def _ends(ends: Ends) -> bool:
    return all(_topic(topic) and _barrier(reached) for topic, reached in ends.items())


def _barrier(barrier: Barrier) -> bool:
    return len(barrier) <= MAX_STREAMS and all(
        _stream(stream) and -1 <= seq < MAX_NUMBER for stream, seq in barrier
    )


def _stream(stream: Stream) -> bool:
    return 0 <= stream.source < MAX_SLOTS and 0 <= stream.incarnation < 1 << 64


def _view_id(view: ViewId) -> bool:
    return 0 <= view.epoch < MAX_EPOCH and _ballot(view.ballot)


def _ballot(ballot: Ballot) -> bool:
    return 0 <= ballot.round < MAX_NUMBER and 0 <= ballot.slot < MAX_MEMBERS


def _number(number: int) -> bool:
    return 0 <= number < MAX_NUMBER


def _topic(topic: str) -> bool:
    return len(topic) <= MAX_TOPIC


def _set(members: int) -> bool:
    return members >= 0 and members.bit_length() <= MAX_MEMBERS


def _is_sound(message: DetectorMessage) -> bool:
    """Whether every slot and number in a message of a detector is within its bounds."""
    match message:
        case Test():
            return _numbers(message.number) and _stated(message.since, message.view)
        case TestReply():
            return (
                _numbers(message.number)
                and _stated(message.version, message.view)
                and _states(message.states)
                and _news(message.news)
            )
        case IndirectTest() | Vouch():
            return _numbers(message.number) and 0 <= message.target < MAX_MEMBERS
        case Notice():
            return _stated(0, message.view) and _states(message.states) and _news(message.news)


def _numbers(*numbers: int) -> bool:
    return all(0 <= number < MAX_NUMBER for number in numbers)


def _stated(version: int, view: int) -> bool:
    return 0 <= version < MAX_VERSION and 0 <= view < MAX_STATED_VIEW


def _states(states: Collection[tuple[NodeId, int]]) -> bool:
    return len(states) <= MAX_MEMBERS and all(
        0 <= slot < MAX_MEMBERS and 0 <= stamp < MAX_NUMBER for slot, stamp in states
    )


def _news(news: Collection[tuple[NodeId, int, Iterable[str]]]) -> bool:
    return len(news) <= MAX_MEMBERS and all(
        0 <= slot < MAX_MEMBERS
        and 0 <= serial < MAX_VERSION
        and len(words := list(said)) <= MAX_NEWS
        and all(map(_topic, words))
        for slot, serial, said in news
    )
