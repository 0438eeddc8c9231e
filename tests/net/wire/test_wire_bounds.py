"""Every number on the wire has a lowest and a highest value: both are read, their neighbours not.

The messages are changed as JSON, one field at a time, so that nothing but the decoder can refuse
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cubecast.net.gateway import line
from cubecast.net.links import mesh
from cubecast.net.links.address import parse_address
from cubecast.net.wire import clients as client_wire
from cubecast.net.wire import hello, parts
from cubecast.net.wire.packets import (
    MAX_MESSAGES,
    MAX_NUMBER,
    MAX_PACKET,
    MAX_PAYLOAD,
    MAX_ROUTES,
    MAX_SLOTS,
    MAX_TOPIC,
    PREFIX,
    WireError,
    decode_control,
    encode_control,
)
from cubecast.net.wire.views import (
    MAX_STATED_VIEW,
    MAX_VERSION,
    decode_detector,
    decode_view,
    encode_detector,
    encode_view,
)
from cubecast.protocol import port
from cubecast.protocol.cluster import detector
from cubecast.protocol.cluster.absence import MAX_ABSENT
from cubecast.protocol.cluster.agreement import MAX_SLOTS as MAX_MEMBERS
from cubecast.protocol.cluster.belief import MAX_EPOCH, MAX_LEAP
from cubecast.protocol.cluster.knowledge import MAX_NEWS
from cubecast.protocol.cluster.views import (
    Ballot,
    Beacon,
    Depart,
    Enter,
    Final,
    HeldStream,
    Install,
    Installed,
    Prepare,
    Report,
    Stuck,
    UnreadFrame,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.messages import (
    Answer,
    Direct,
    Op,
    Parcel,
    ParcelAck,
    Probe,
    Release,
    Settled,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import Stream
from cubecast.protocol.subscriptions.topic_names import ENTRY, MAX_LISTING
from cubecast.protocol.topic.holdings import MAX_UNREAD
from support.paths import ROOT

Path = tuple[str | int, ...]

NUMBER = (0, MAX_NUMBER - 1)
EPOCH = (0, MAX_EPOCH - 1)
OR_NONE = (-1, MAX_NUMBER - 1)
SLOT = (0, MAX_SLOTS - 1)
MEMBER = (0, MAX_MEMBERS - 1)
LIFE = (0, (1 << 64) - 1)
NODE_LIFE = (0, port.LIFE_MASK)
"""Of a node; that of a stream may have more bits, where it says which generation it is."""
SLOTS = (0, (1 << MAX_SLOTS) - 1)
MEMBERS = (0, (1 << MAX_MEMBERS) - 1)
VERSION = (0, MAX_VERSION - 1)
VIEW_NUMBER = (0, MAX_STATED_VIEW - 1)

S = Stream(3, 5)
STREAM: dict[Path, tuple[int, int]] = {("stream", 0): SLOT, ("stream", 1): LIFE}
ID = ViewId(4, Ballot(2, 1))
WHO = Who("abc", "127.0.0.1:7000", 9)
VIEW = View(ID, {1: WHO, 2: Who("def", "127.0.0.1:7001", 8)})


def id_bounds(*at: str | int) -> dict[Path, tuple[int, int]]:
    return {
        (*at, 0): EPOCH, (*at, 1, 0): NUMBER, (*at, 1, 1): MEMBER,
    }  # fmt: skip


def ballot_bounds(*at: str | int) -> dict[Path, tuple[int, int]]:
    return {(*at, 0): NUMBER, (*at, 1): MEMBER}


CONTROL: list[tuple[Any, dict[Path, tuple[int, int]]]] = [
    (Probe("t", S, 1), {**STREAM, ("route",): NUMBER}),
    (
        Direct("t", S, 1, 2, 3, 1),
        {**STREAM, ("route",): NUMBER, ("start",): NUMBER, ("last",): NUMBER,
         ("stable",): (-1, MAX_NUMBER - 2), ("epoch",): OR_NONE},
    ),
    (ParcelAck(1), {("expected",): NUMBER}),
    (Parcel(1, Release("t", S)), {("number",): NUMBER}),
]  # fmt: skip
CARRIED: list[tuple[Any, dict[Path, tuple[int, int]]]] = [
    (Release("t", S), STREAM),
    (Suspended("t", S, 1), {**STREAM, ("route",): NUMBER}),
    (Settled("t", S, 1, 2), {**STREAM, ("seq",): OR_NONE, ("epoch",): NUMBER}),
    (
        Stable("t", S, 1, 2, 3, 4),
        {**STREAM, ("route",): NUMBER, ("start",): NUMBER, ("seq",): NUMBER, ("members",): SLOTS},
    ),
    (
        Wave("t", 1, 2, Op.JOIN, 3, epoch=1),
        {("origin",): SLOT, ("number",): NUMBER, ("cluster",): SLOTS, ("epoch",): NUMBER},
    ),
    (
        Answer("t", 1, 2, ((S, 1),), 3, 4, (("u", 1),), epoch=1),
        {("origin",): SLOT, ("number",): NUMBER, ("members",): SLOTS, ("lossy",): SLOTS,
         ("epoch",): NUMBER, ("vector", 0, 0, 0): SLOT, ("vector", 0, 0, 1): LIFE,
         ("vector", 0, 1): NUMBER, ("topics", 0, 1): SLOTS},
    ),
]  # fmt: skip
HELD = HeldStream(S, 4, 4, 2, 6, True, (UnreadFrame(5, 6, ((S, 1),)),))
FINAL = Final(S, 5, 2, 1)
VIEWS: list[tuple[Any, dict[Path, tuple[int, int]]]] = [
    (
        Prepare(Ballot(1, 2), ID, 3),
        {**ballot_bounds("ballot"), **id_bounds("parent"), ("survivors",): MEMBERS},
    ),
    (
        Report(Ballot(1, 2), Ballot(1, 2), None, {"t": (HELD,)}),
        {**ballot_bounds("ballot"), **ballot_bounds("promised"),
         ("held", "t", 0, 0, 0): SLOT, ("held", "t", 0, 0, 1): LIFE,
         ("held", "t", 0, 1): OR_NONE, ("held", "t", 0, 2): OR_NONE, ("held", "t", 0, 3): OR_NONE,
         ("held", "t", 0, 4): OR_NONE, ("held", "t", 0, 6, 0, 0): (0, 6),
         ("held", "t", 0, 6, 0, 1): (5, MAX_NUMBER - 1),
         ("held", "t", 0, 6, 0, 2, 0, 0, 0): SLOT, ("held", "t", 0, 6, 0, 2, 0, 0, 1): LIFE},
    ),
    (
        Install(Ballot(1, 2), ID, VIEW, {"t": (FINAL,)}, {"t": ((S, 1),)}),
        {**ballot_bounds("ballot"), **id_bounds("parent"), **id_bounds("view", "id"),
         ("view", "members", "1", "incarnation"): NODE_LIFE,
         ("finals", "t", 0, 0, 0): SLOT, ("finals", "t", 0, 0, 1): LIFE,
         ("finals", "t", 0, 1): (1, MAX_NUMBER - 1), ("finals", "t", 0, 2): MEMBER,
         ("finals", "t", 0, 3): (-1, 5),
         ("ends", "t", 0, 0, 0): SLOT, ("ends", "t", 0, 0, 1): LIFE},
    ),
    (Installed(ID), id_bounds("view")),
    (Stuck(ID), id_bounds("view")),
    (
        Enter(WHO, 3, reached={"t": ((S, 1),)}),
        {("who", "incarnation"): NODE_LIFE, ("wish",): (-1, MAX_MEMBERS - 1),
         ("reached", "t", 0, 0, 0): SLOT, ("reached", "t", 0, 0, 1): LIFE},
    ),
    (Beacon("abc", VIEW), id_bounds("view", "id")),
]  # fmt: skip
DETECTOR: list[tuple[Any, dict[Path, tuple[int, int]]]] = [
    (detector.Test(1, 2, 3), {("number",): NUMBER, ("since",): VERSION, ("view",): VIEW_NUMBER}),
    (
        detector.TestReply(1, 2, 3, ((1, 2),), ((1, 2, ("word",)),)),
        {("number",): NUMBER, ("version",): VERSION, ("view",): VIEW_NUMBER,
         ("states", 0, 0): MEMBER, ("states", 0, 1): NUMBER,
         ("news", 0, 0): MEMBER, ("news", 0, 1): VERSION},
    ),
    (detector.IndirectTest(1, 2), {("number",): NUMBER, ("target",): MEMBER}),
    (detector.Vouch(1, 2), {("number",): NUMBER, ("target",): MEMBER}),
    (
        detector.Notice(3, ((1, 2),), ((1, 2, ("word",)),)),
        {("view",): VIEW_NUMBER, ("states", 0, 0): MEMBER, ("states", 0, 1): NUMBER,
         ("news", 0, 0): MEMBER, ("news", 0, 1): VERSION},
    ),
]  # fmt: skip
KINDS = {
    "control": (encode_control, decode_control),
    "view": (encode_view, decode_view),
    "detector": (encode_detector, decode_detector),
}


def cases() -> Iterator[Any]:
    parcels = [
        (Parcel(1, message), {("message", *path): span for path, span in bounds.items()})
        for message, bounds in CARRIED
    ]
    tables = {"control": CONTROL + parcels, "view": VIEWS, "detector": DETECTOR}
    for kind, table in tables.items():
        for message, bounds in table:
            inner = getattr(message, "message", message)
            for path, (low, high) in bounds.items():
                name = f"{type(inner).__name__}-{'.'.join(map(str, path))}"
                yield pytest.param(kind, message, path, low, high, id=name)


def changed(message: Any, path: Path, value: object) -> Any:
    """The message as JSON, with one field set."""
    encode = KINDS[kind_of(message)][0]
    whole: Any = json.loads(encode(message)[PREFIX.size :])
    place = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return whole


def kind_of(message: Any) -> str:
    if isinstance(message, Probe | Direct | Parcel | ParcelAck):
        return "control"
    return "detector" if isinstance(message, detector.DetectorMessage) else "view"


def is_read(message: Any, path: Path, value: object) -> bool:
    encode, decode = KINDS[kind_of(message)]
    prefix = encode(message)[: PREFIX.size]
    body = json.dumps(changed(message, path, value)).encode()
    try:
        decode(prefix + body)
    except WireError:
        return False
    return True


@pytest.mark.parametrize(("kind", "message", "path", "low", "high"), list(cases()))
def test_a_number_is_read_from_its_lowest_to_its_highest_and_not_beyond(
    kind: str, message: Any, path: Path, low: int, high: int
) -> None:
    assert kind_of(message) == kind
    readable = [is_read(message, path, value) for value in (low - 1, low, high, high + 1)]
    assert readable == [False, True, True, False]


NAMES: list[tuple[Any, Path]] = [
    (Probe("t", S, 1), ("topic",)),
    (Direct("t", S, 1, 2, 3, 1), ("topic",)),
    *[(Parcel(1, message), ("message", "topic")) for message, _ in CARRIED],
    (Parcel(1, Answer("t", 1, 2, (), 3, 4, (("u", 1),))), ("message", "topics", 0, 0)),
    (detector.Notice(3, (), ((1, 2, ("word",)),)), ("news", 0, 2, 0)),
]


@pytest.mark.parametrize(("message", "path"), NAMES)
def test_the_longest_name_is_read_and_a_longer_one_is_not(message: Any, path: Path) -> None:
    assert is_read(message, path, "x" * MAX_TOPIC)
    assert not is_read(message, path, "x" * (MAX_TOPIC + 1))


def test_a_name_of_a_topic_in_what_is_said_of_views_has_the_same_bound() -> None:
    for name, readable in (("x" * MAX_TOPIC, True), ("x" * (MAX_TOPIC + 1), False)):
        report = Report(Ballot(1, 2), Ballot(1, 2), None, {name: ()})
        enter = Enter(WHO, 3, reached={name: ()})
        install = Install(Ballot(1, 2), ID, VIEW, {name: ()}, {})
        ends = Install(Ballot(1, 2), ID, VIEW, {}, {name: ()})
        for message in (report, enter, install, ends):
            raw = encode_view(message)
            if readable:
                assert decode_view(raw) == message
            else:
                with pytest.raises(WireError):
                    decode_view(raw)


UIDS: list[tuple[Any, Path]] = [
    (Depart("abc"), ("uid",)),
    (Beacon("abc", VIEW), ("uid",)),
    (Beacon("abc", VIEW), ("view", "members", "1", "uid")),
    (Enter(WHO, 3), ("who", "uid")),
]


@pytest.mark.parametrize(("message", "path"), UIDS)
def test_a_uid_is_one_everywhere(message: Any, path: Path) -> None:
    assert is_read(message, path, "x" * 64)
    for wrong in ("", "x" * 65, "a b", "ä"):
        assert not is_read(message, path, wrong), wrong


def test_news_have_a_bounded_number_of_words() -> None:
    notice = detector.Notice(3, (), ((1, 2, ("word",)),))
    assert is_read(notice, ("news", 0, 2), ["word"] * MAX_NEWS)
    assert not is_read(notice, ("news", 0, 2), ["word"] * (MAX_NEWS + 1))


@pytest.mark.parametrize("field", ["states", "news"])
def test_a_detector_says_something_of_each_slot_at_most_once(field: str) -> None:
    one: dict[str, Any] = {"states": [1, 2], "news": [1, 2, []]}
    notice = detector.Notice(3, ((1, 2),), ((1, 2, ()),))
    assert is_read(notice, (field,), [one[field]] * MAX_MEMBERS)
    assert not is_read(notice, (field,), [one[field]] * (MAX_MEMBERS + 1))


# -- addresses -------------------------------------------------------------------------------------


def test_the_highest_port_is_one_and_zeros_do_not_make_it_longer() -> None:
    assert parse_address("host:65535") == ("host", 65535)
    for wrong in ("host:65536", "host:007000", "host:-1", "host:+1", "host:٣"):
        with pytest.raises(ValueError, match="not a port"):
            parse_address(wrong)


# -- what docs/wire.md says of them ----------------------------------------------------------------


def mib(size: int) -> str:
    return f"{size / 2**20:g} MiB"


def documented() -> dict[str, str]:
    """The table of limits, by what is limited."""
    text = (ROOT / "docs" / "wire.md").read_text()
    table = text.partition("\n## Limits\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) *\| (.+?) *\|$", table, re.MULTILINE))


LIMITS = [
    ("a packet", mib(MAX_PACKET)),
    ("a packet in parts", f"{mib(parts.MAX_WHOLE)}; a node keeps {mib(parts.MAX_HELD)} of "),
    ("a packet before the handshake is done", f"{hello.MAX_HELLO / 1024:g} KiB"),
    ("one message", f"{mib(MAX_PAYLOAD)}:"),
    ("slots", f"below {MAX_SLOTS:,} in frames and sets"),
    ("members of a view", f"{MAX_MEMBERS:,};"),
    ("nodes that were excluded, in an `Install`", f"{MAX_ABSENT}"),
    ("unread frames of a stream, in a `Report`", f"{MAX_UNREAD}"),
    ("sequence numbers", f"below 2^{MAX_NUMBER.bit_length() - 1}"),
    ("epochs in messages about views", f"below 2^{MAX_EPOCH.bit_length() - 1}:"),
    (
        "rounds of ballots",
        f"below 2^{MAX_NUMBER.bit_length() - 1}, and at most 2^{MAX_LEAP.bit_length() - 1} above",
    ),
    ("names and sets in an answer", f"{mib(MAX_LISTING)} before JSON (name + {ENTRY} + "),
    ("messages of a frame", f"{MAX_MESSAGES:,}"),
    ("a topic's name", f"{MAX_TOPIC:,} characters"),
    ("a topic's name, from a client", f"{client_wire.MAX_TOPIC:,} characters"),
    (
        "addresses outside the view dialled at a time",
        f"{mesh.MAX_OUTSIDE}, with {mesh.MAX_CALLS_WAITING} packets waiting for each",
    ),
    ("connections of one member", f"{mesh.MAX_SPARE + 1};"),
    ("address, reason", f"{hello.MAX_ADDRESS} and "),
    ("a packet from a client", mib(client_wire.MAX_CLIENT_PACKET)),
    (
        "topics a client publishes or subscribes to by name, questions it has open",
        f"{line.MAX_TOPICS:,} and {client_wire.MAX_REQUESTS}",
    ),
    ("routes remembered by a node's decoder", f"{MAX_ROUTES:,},"),
]


@pytest.mark.parametrize(("what", "limit"), LIMITS, ids=[what for what, _ in LIMITS])
def test_a_limit_is_the_one_that_is_documented(what: str, limit: str) -> None:
    assert documented()[what].startswith(limit)
