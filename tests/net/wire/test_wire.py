"""Bytes between nodes: what is sent is read back, and nothing else is believed."""

from __future__ import annotations

import json
import struct
import tracemalloc
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.net.links.address import DEFAULT_PORT, format_address, parse_address
from cubecast.net.wire import hello, packet_buffer
from cubecast.net.wire import packets as wire
from cubecast.net.wire.headers import pack
from cubecast.net.wire.packet_buffer import PacketBuffer
from cubecast.net.wire.packets import (
    ACK,
    CONTROL,
    DETECTOR,
    FORWARD,
    FRAME,
    HELLO,
    MAX_NUMBER,
    MAX_SLOTS,
    PREFIX,
    VIEW,
    FrameDecoder,
    OutgoingFrame,
    Payloads,
    WireError,
    decode_ack,
    decode_control,
    encode_ack,
    encode_control,
    encode_frame,
    topic_id,
)
from cubecast.net.wire.views import (
    OVERHEAD,
    Forward,
    decode_detector,
    decode_forward,
    decode_view,
    encode_detector,
    encode_forward,
    encode_view,
)
from cubecast.protocol.cluster import detector, views
from cubecast.protocol.cluster.belief import MAX_EPOCH
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Direct,
    Frame,
    Mute,
    Op,
    Parcel,
    ParcelAck,
    Probe,
    Release,
    Route,
    Stable,
    Suspended,
    Wave,
)
from cubecast.protocol.port import Stream
from support.packets import EXAMPLES, TOPIC, TOPICS, VIEW_ID, example_frame, hostile_bytes, mutate

slots = st.integers(0, MAX_SLOTS - 1)
numbers = st.integers(0, MAX_NUMBER - 1)
routes = st.integers(0, (1 << 32) - 1)
sets = st.integers(0, (1 << 70) - 1) | slots.map(lambda slot: 1 << slot)
streams = st.builds(Stream, slots, st.integers(0, (1 << 64) - 1))
vectors = st.lists(st.tuples(streams, numbers), max_size=5).map(tuple)
topics = st.text(max_size=20)
payloads = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


@st.composite
def frames(draw: st.DrawFn, topic: str = TOPIC) -> Frame:
    bodies = draw(payloads)
    first = draw(st.integers(0, MAX_NUMBER - len(bodies)))
    start = draw(st.integers(0, first))
    stable = draw(st.integers(-1, first - 1))
    members = draw(sets)
    leaves = members & draw(sets)
    route = Route(draw(st.integers(0, (1 << 32) - 1)), start, members, leaves)
    headed = draw(st.sets(st.integers(0, len(bodies) - 1)))
    for place in headed:
        bodies[place] = bytes(pack({"name": draw(st.text(max_size=9))}, bodies[place]))
    body = OutgoingFrame(bodies, draw(numbers), sorted(headed))
    barrier = draw(vectors)
    size = wire.frame_cost(body.content, len(barrier))
    return Frame(topic, draw(streams), first, barrier, route, stable, body, size)


@st.composite
def acks(draw: st.DrawFn) -> Ack:
    have = draw(st.integers(-1, MAX_NUMBER - 1))
    covered = draw(st.integers(-1, have))
    route = draw(st.integers(0, (1 << 32) - 1))
    asked = draw(st.booleans())
    return Ack(TOPIC, draw(streams), route, have, covered, draw(sets), asked, draw(sets))


carried = st.one_of(
    st.builds(Stable, topics, streams, routes, numbers, numbers, sets),
    st.builds(Release, topics, streams),
    st.builds(Suspended, topics, streams, routes),
    st.builds(Mute, topics, slots, numbers, numbers),
    st.builds(Wave, topics, slots, numbers, st.sampled_from(Op), sets, st.booleans()),
    st.builds(Answer, topics, slots, numbers, vectors, sets, sets),
)
controls = st.one_of(
    st.builds(Probe, topics, streams, routes),
    st.builds(Direct, topics, streams, routes, numbers, numbers, st.integers(-1, MAX_NUMBER - 2)),
    st.builds(Parcel, numbers, carried),
    st.builds(ParcelAck, numbers),
)
uids = st.text("0123456789abcdef", min_size=1, max_size=64)
nonces = st.text("0123456789abcdef", min_size=32, max_size=32)
maybe_slots = st.integers(-1, MAX_SLOTS - 1)
texts = st.text(max_size=60)
greetings = st.one_of(
    st.builds(
        hello.Hello,
        st.integers(0, 1 << 31),
        nonces,
        uids,
        maybe_slots,
        st.sampled_from(("member", "client")),
        st.booleans(),
        nonces | st.just(""),
        nonces | st.just(""),
        st.text("abc-_.@", max_size=64),
    ),
    st.builds(hello.Door, nonces, nonces),
    st.builds(hello.Opening, st.binary(max_size=1024)),
    st.builds(hello.Ready),
    st.builds(hello.Refused, texts),
    st.builds(hello.AttachRequest),
    st.builds(
        hello.Attached,
        slots,
        uids,
        texts,
        uids,
        st.integers(1, 1 << 40),
        st.floats(0.001, 1e6),
        st.floats(0.001, 1e6),
    ),
)
members = st.integers(0, 4095)
addresses = st.builds("10.0.0.{}:{}".format, st.integers(1, 254), st.integers(1, 65535))
whos = st.builds(views.Who, uids, addresses, st.integers(0, (1 << 40) - 1))
ballots = st.builds(views.Ballot, numbers, members)
epochs = st.integers(0, MAX_EPOCH - 1)
view_ids = st.builds(views.ViewId, epochs, ballots)
seqs = st.integers(-1, MAX_NUMBER - 1)
ends = st.dictionaries(topics, st.lists(st.tuples(streams, seqs), max_size=3).map(tuple))


@st.composite
def some_views(draw: st.DrawFn) -> views.View:
    found = draw(st.lists(whos, min_size=1, max_size=5, unique_by=lambda who: who.uid))
    places = draw(st.lists(members, min_size=len(found), max_size=len(found), unique=True))
    cluster = draw(st.just("") | uids)
    return views.View(draw(view_ids), dict(zip(places, found, strict=True)), cluster)


@st.composite
def finals(draw: st.DrawFn) -> views.Final:
    seq = draw(seqs)
    return views.Final(draw(streams), seq, draw(members), draw(st.integers(-1, seq)))


@st.composite
def unread(draw: st.DrawFn) -> views.UnreadFrame:
    first = draw(numbers)
    return views.UnreadFrame(first, draw(st.integers(first, MAX_NUMBER - 1)), draw(vectors))


held = st.builds(
    views.HeldStream,
    streams,
    seqs,
    seqs,
    seqs,
    seqs,
    st.booleans(),
    st.lists(unread(), max_size=2).map(tuple),
)
reports = st.dictionaries(topics, st.lists(held, max_size=2).map(tuple), max_size=2)
installs = st.builds(
    views.Install,
    ballots,
    view_ids,
    some_views(),
    st.dictionaries(topics, st.lists(finals(), max_size=2).map(tuple), max_size=2),
    ends,
    st.lists(st.builds(views.Absent, whos, numbers), max_size=2).map(tuple),
)
sets_of_members = st.integers(0, (1 << 4096) - 1)
clusterwide = st.one_of(
    st.builds(views.Prepare, ballots, view_ids, sets_of_members),
    st.builds(views.Report, ballots, ballots, st.none() | installs, reports),
    installs,
    st.builds(
        views.Change,
        ballots,
        view_ids,
        view_ids,
        sets_of_members,
        st.dictionaries(members, whos, max_size=2),
        st.dictionaries(topics, st.lists(finals(), max_size=2).map(tuple), max_size=2),
        ends,
        st.lists(uids, max_size=2).map(tuple),
        st.lists(st.builds(views.Absent, whos, numbers), max_size=2).map(tuple),
        st.integers(0, (1 << views.CHECK_BITS) - 1),
        numbers,
        st.booleans(),
    ),
    st.builds(views.Unclear, view_ids),
    st.builds(views.Installed, view_ids, sets_of_members),
    st.builds(views.Stuck, view_ids),
    st.builds(
        views.Enter,
        whos,
        st.integers(-1, 4095),
        ends,
        numbers,
        st.just("") | uids,
        st.just("") | uids,
    ),
    st.builds(views.Depart, uids, st.just("") | uids),
    st.builds(views.Doubt, uids, uids),
    st.builds(views.Outlived, uids),
    st.builds(views.Beacon, uids, some_views()),
)
versions = st.integers(0, (1 << 100) - 1)
states = st.lists(st.tuples(members, numbers), max_size=3).map(tuple)
news = st.lists(st.tuples(members, versions, st.lists(topics, max_size=2).map(tuple))).map(tuple)
tests_and_answers = st.one_of(
    st.builds(detector.Test, numbers, versions, st.integers(0, (1 << 160) - 1)),
    st.builds(detector.TestReply, numbers, versions, versions, states, news),
    st.builds(detector.IndirectTest, numbers, members),
    st.builds(detector.Vouch, numbers, members),
    st.builds(detector.Notice, versions, states, news),
)
packets = st.one_of(
    clusterwide.map(encode_view),
    tests_and_answers.map(encode_detector),
    st.builds(encode_forward, members, members, numbers, acks().map(encode_ack)),
    frames().map(encode_frame),
    acks().map(encode_ack),
    controls.map(encode_control),
    greetings.map(hello.encode_greeting),
)


def fields(thing: Any) -> list[Any]:
    """The slots of a frame, an ACK or a route, sets of slots and all."""
    values = [getattr(thing, name) for name in thing.__slots__]
    return [fields(value) if isinstance(value, Route) else value for value in values]


def decode(raw: bytes, decoder: FrameDecoder | None = None) -> object:
    """What a node makes of one whole packet."""
    kind = raw[4]
    if kind == FRAME:
        return (decoder or FrameDecoder()).decode(raw, TOPICS)
    if kind == ACK:
        return decode_ack(raw, TOPICS)
    if kind == CONTROL:
        return decode_control(raw)
    if kind == HELLO:
        return hello.decode_greeting(raw)
    if kind == VIEW:
        return decode_view(raw)
    if kind == DETECTOR:
        return decode_detector(raw)
    if kind == FORWARD:
        return decode_forward(raw)
    raise WireError("unknown kind")


# -- there and back ------------------------------------------------------------------------------


@given(frames())
def test_a_frame_is_read_back(frame: Frame) -> None:
    raw = encode_frame(frame)
    read = FrameDecoder().decode(raw, TOPICS)
    assert read is not None
    for name in ("topic", "stream", "first", "last", "barrier", "stable", "size"):
        assert getattr(read, name) == getattr(frame, name)
    assert fields(read.route) == fields(frame.route)
    assert isinstance(read.body, Payloads)
    assert isinstance(frame.body, OutgoingFrame)
    assert list(read.body) == frame.body.payloads
    assert list(read.body.headed) == list(frame.body.headed)
    assert read.body.time == frame.body.time


@given(st.integers(0, 70), st.integers(1, 100), st.lists(st.binary(max_size=3), max_size=2))
def test_payloads_of_one_size_are_cut_as_any_others(
    size: int, count: int, others: list[bytes]
) -> None:
    random = Random(size)
    bodies = [random.randbytes(size) for _ in range(count)] + others
    read = FrameDecoder().decode(encode_frame(example_frame(body=OutgoingFrame(bodies, 0))), TOPICS)
    assert read is not None
    assert list(read.body) == bodies


@given(frames())
def test_a_relay_sends_the_very_bytes_it_received(frame: Frame) -> None:
    raw = encode_frame(frame)
    read = FrameDecoder().decode(raw, TOPICS)
    assert read is not None
    assert encode_frame(read) is raw


@given(clusterwide)
def test_view_messages_are_read_back(message: views.Clusterwide) -> None:
    assert decode_view(encode_view(message)) == message


@given(tests_and_answers)
def test_detector_messages_are_read_back(message: detector.DetectorMessage) -> None:
    assert decode_detector(encode_detector(message)) == message


def test_a_view_of_4096_members_fits_a_packet() -> None:
    members = {
        slot: views.Who(f"{slot:064x}", f"{'h' * 60}.example.org:{slot}", 2**40 - 1)
        for slot in range(4096)
    }
    view = views.View(VIEW_ID, members)
    install = views.Install(VIEW_ID.ballot, VIEW_ID, view, {}, {})
    assert decode_view(encode_view(install)) == install
    more = views.View(VIEW_ID, {**members, 4096: views.Who("x", "h:1", 1)})
    with pytest.raises(WireError, match="Beacon out of bounds"):
        decode_view(encode_view(views.Beacon("x", more)))


@pytest.mark.parametrize(
    "members",
    [
        {},
        {-1: views.Who("a", "h:1", 0)},
        {0: views.Who("a b", "h:1", 0)},
        {0: views.Who("a", "a..b:1", 0)},
        {0: views.Who("a", "h:1", -1)},
        {0: views.Who("a", "h:1", 2**40)},
        {0: views.Who("a", "h:1", 0), 1: views.Who("a", "h:2", 0)},
    ],
)
def test_a_view_that_cannot_be_is_refused(members: dict[int, views.Who]) -> None:
    view = views.View(VIEW_ID, members)
    for message in (views.Beacon("x", view), views.Install(VIEW_ID.ballot, VIEW_ID, view, {}, {})):
        with pytest.raises(WireError, match="out of bounds"):
            decode_view(encode_view(message))


def test_the_bytes_set_aside_for_forwarding_are_what_it_takes() -> None:
    """So the largest message about views may go in parts and around a broken link."""
    packet = encode_view(views.Outlived("ab"))
    message = len(packet) - PREFIX.size
    assert len(encode_forward(1, 2, 3, packet)) == message + OVERHEAD


def test_nothing_is_forwarded_twice_and_no_test_is() -> None:
    for packet in (
        encode_forward(1, 2, 3, encode_control(ParcelAck(7))),
        encode_detector(detector.Test(1)),
        hello.encode_greeting(hello.Ready()),
    ):
        with pytest.raises(WireError, match="broken forward of kind"):
            decode_forward(encode_forward(1, 2, 3, packet))
    with pytest.raises(WireError, match="bytes in"):
        decode_forward(encode_forward(1, 2, 3, encode_control(ParcelAck(7))[:-1]))


@given(acks())
def test_an_ack_is_read_back(ack: Ack) -> None:
    read = decode_ack(encode_ack(ack), TOPICS)
    assert read is not None
    assert fields(read) == fields(ack)


@given(controls)
def test_a_control_message_is_read_back(message: Any) -> None:
    assert decode_control(encode_control(message)) == message


@given(greetings)
def test_a_greeting_is_read_back(message: Any) -> None:
    assert hello.decode_greeting(hello.encode_greeting(message)) == message


def test_packets_of_unknown_topics_are_skipped() -> None:
    assert FrameDecoder().decode(encode_frame(example_frame(topic="strange")), TOPICS) is None
    assert decode_ack(encode_ack(Ack("strange", Stream(0, 0), 0, 0, 0, 0, False)), TOPICS) is None


def test_frames_of_one_route_share_it() -> None:
    decoder = FrameDecoder()
    one = decoder.decode(encode_frame(example_frame()), TOPICS)
    two = decoder.decode(encode_frame(example_frame(first=13)), TOPICS)
    assert one is not None
    assert two is not None
    assert one.route is two.route
    assert one.stream is two.stream


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "other", "route": Route(2, 8, 0b1)},  # one publisher, two topics
        {"route": Route(2, 8, 0b1111)},  # a liar's members for a number that is known
        {"route": Route(2, 9, 0b1011)},
        {"route": Route(3, 8, 0b1)},
        {"stream": Stream(3, 78), "route": Route(2, 8, 0b1)},
    ],
)
def test_no_frame_changes_the_route_of_another(other: dict[str, Any]) -> None:
    decoder = FrameDecoder()
    for changes in ({}, other, {}, other):
        frame = example_frame(**changes)
        read = decoder.decode(encode_frame(frame), TOPICS)
        assert read is not None
        assert fields(read.route) == fields(frame.route)


def test_a_decoder_remembers_a_bounded_number_of_routes() -> None:
    decoder = FrameDecoder()
    for incarnation in range(3 * wire.MAX_ROUTES // 2):
        frame = example_frame(stream=Stream(1, incarnation), barrier=())
        assert decoder.decode(encode_frame(frame), TOPICS) is not None
    assert len(decoder._routes) <= wire.MAX_ROUTES


# -- what does not add up ------------------------------------------------------------------------


@pytest.mark.parametrize("raw", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_truncation_is_an_error(raw: bytes) -> None:
    for length in range(5, len(raw)):
        with pytest.raises(WireError):
            decode(raw[:length])


@pytest.mark.parametrize("raw", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_extension_is_an_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode(raw + b"\x01")


@pytest.mark.parametrize("raw", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_change_of_one_byte_is_read_or_refused(raw: bytes) -> None:
    decoder = FrameDecoder()
    for position in range(5, len(raw)):
        for byte in (0, 1, 0x22, 0x2D, 0x39, 0x7F, 0x80, 0xFF, raw[position] ^ 1):
            survives(raw[:position] + bytes([byte]) + raw[position + 1 :], decoder)


@settings(max_examples=300)
@given(packets, st.integers(0, 1 << 32))
def test_mutated_packets_are_read_or_refused(raw: bytes, seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        survives(mutate(raw, random), FrameDecoder())


@given(st.sampled_from([FRAME, ACK, CONTROL, HELLO]), st.binary(max_size=300))
def test_random_packets_are_read_or_refused(kind: int, body: bytes) -> None:
    survives(PREFIX.pack(1 + len(body), kind) + body, FrameDecoder())


integers = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-1, 0, 1, 1 << 32, MAX_NUMBER])
near_json = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["Wave", "Answer", "Stable", "Release", "Probe", "ParcelAck", "Direct", "Suspended"]
        )
    },
    optional={
        "topic": topics,
        "origin": integers,
        "number": integers,
        "expected": integers,
        "op": st.sampled_from(["join", "leave", "register", "topics", "explode"]),
        "cluster": integers,
        "members": integers,
        "route": integers,
        "start": integers,
        "seq": integers,
        "last": integers,
        "stable": integers,
        "lossy": integers,
        "topics": st.lists(st.tuples(topics, integers), max_size=3),
        "stream": st.lists(integers, max_size=3),
        "vector": st.lists(st.tuples(st.lists(integers, max_size=3), integers), max_size=3),
    },
)


@st.composite
def near_frames(draw: st.DrawFn) -> bytes:
    """A frame's packet with a header of any numbers that fit, and something behind it."""
    small = st.integers(0, 5)
    u16, u32 = small | st.integers(0, (1 << 16) - 1), small | st.integers(0, (1 << 32) - 1)
    u64 = small | st.integers(0, (1 << 64) - 1)
    i64 = st.integers(-1, 5) | st.integers(-(1 << 63), (1 << 63) - 1)
    header = wire.HEADER.pack(
        draw(st.sampled_from([*TOPICS, 0])),
        *(draw(kind) for kind in (u32, u64, u64, u32, i64, u32, u64, u64, u16, u16, u16)),
    )
    body = header + draw(st.binary(max_size=120))
    return PREFIX.pack(1 + len(body), FRAME) + body


@given(near_frames())
def test_frames_that_are_nearly_right_are_read_or_refused(raw: bytes) -> None:
    survives(raw, FrameDecoder())


@given(near_json, st.booleans())
def test_control_messages_that_are_nearly_right_are_read_or_refused(
    message: dict[str, Any], wrapped: bool
) -> None:
    body = json.dumps({"type": "Parcel", "number": 0, "message": message} if wrapped else message)
    survives(PREFIX.pack(1 + len(body), CONTROL) + body.encode(), FrameDecoder())


def test_thirty_thousand_packets_through_the_buffer_and_the_decoders() -> None:
    fuzz_the_decoders(30_000, Random(17))


@pytest.mark.soak
def test_a_million_packets_through_the_buffer_and_the_decoders() -> None:
    fuzz_the_decoders(1_000_000, Random(11))


def fuzz_the_decoders(count: int, random: Random) -> None:
    """Mutated packets and noise, cut anywhere; a buffer that has refused is as good as closed."""
    decoder, buffer = FrameDecoder(), PacketBuffer(1 << 20)
    seen = 0
    while seen < count:
        data = b"".join(hostile_bytes(random) for _ in range(random.randint(1, 5)))
        try:
            for chunk in cut(data, [random.randrange(len(data)) for _ in range(3)]):
                for _, raw in buffer.feed(chunk):
                    seen += 1
                    survives(raw, decoder)
        except WireError:
            seen += 1
            buffer = PacketBuffer(1 << 20)


def survives(raw: bytes, decoder: FrameDecoder) -> None:
    """A packet is refused with `WireError`, or what was read can be sent again and is sane."""
    try:
        message = decode(raw, decoder)
    except WireError:
        return
    match message:
        case Frame():
            assert encode_frame(message) is raw
            payload = sum(map(len, message.body))  # type: ignore[arg-type]
            cost = payload + wire.MESSAGE_OVERHEAD * len(message.body)
            assert wire.content_size(message) == cost
            assert message.size == max(cost, wire.frame_overhead(len(message.barrier)))
            assert -1 <= message.stable < message.first
        case Ack():
            again = decode_ack(encode_ack(message), TOPICS)
            assert again is not None
            assert fields(again) == fields(message)
        case None:
            pass
        case Probe() | Direct() | Parcel() | ParcelAck():
            assert decode_control(encode_control(message)) == message
        case Forward():
            route = message.destination, message.origin, message.epoch
            assert decode_forward(encode_forward(*route, message.packet)) == message
        case _ if isinstance(message, views.Clusterwide):
            assert decode_view(encode_view(message)) == message
        case _ if isinstance(message, detector.DetectorMessage):
            assert decode_detector(encode_detector(message)) == message
        case _:
            assert hello.decode_greeting(hello.encode_greeting(message)) == message  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"first": MAX_NUMBER},
        {"stable": 10},
        {"stable": -2},
        {"route": Route(0, 11, 1)},
        {"route": Route(0, 0, 1 << MAX_SLOTS)},
        {"stream": Stream(MAX_SLOTS, 0)},
        {"barrier": ((Stream(MAX_SLOTS, 0), 0),)},
        {"barrier": ((Stream(0, 0), MAX_NUMBER),)},
        {"body": OutgoingFrame([], 0)},
        {"body": OutgoingFrame([b""] * (wire.MAX_MESSAGES + 1), 0)},
    ],
)
def test_frames_beyond_the_bounds_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        FrameDecoder().decode(encode_frame(example_frame(**changes)), TOPICS)


@pytest.mark.parametrize(
    ("have", "covered", "source", "absent"),
    [
        (-2, -2, 0, 0),
        (3, 4, 0, 0),
        (MAX_NUMBER, 0, 0, 0),
        (0, 0, MAX_SLOTS, 0),
        (0, 0, 0, 1 << 9000),
    ],
)
def test_acks_beyond_the_bounds_are_refused(
    have: int, covered: int, source: int, absent: int
) -> None:
    with pytest.raises(WireError):
        decode_ack(
            encode_ack(Ack(TOPIC, Stream(source, 0), 0, have, covered, absent, False)), TOPICS
        )


@pytest.mark.parametrize(
    "message",
    [
        ParcelAck(-1),
        ParcelAck(MAX_NUMBER),
        Probe(TOPIC, Stream(-1, 0), 0),
        Probe(TOPIC, Stream(0, 1 << 64), 0),
        Probe(TOPIC, Stream(0, 0), MAX_NUMBER),
        Probe("x" * (wire.MAX_TOPIC + 1), Stream(0, 0), 0),
        Parcel(0, Stable(TOPIC, Stream(0, 0), MAX_NUMBER, 0, 0, 1)),
        Parcel(0, Answer(TOPIC, 0, 0, ((Stream(0, 0), 1),) * (1 << 16), 0)),
        Parcel(0, Release(TOPIC, Stream(MAX_SLOTS, 0))),
        Parcel(0, Wave(TOPIC, -1, 0, Op.JOIN, 1)),
        Parcel(0, Wave(TOPIC, 0, 0, Op.JOIN, -1)),
        Parcel(0, Wave(TOPIC, 0, 0, Op.JOIN, 1 << MAX_SLOTS)),
        Parcel(0, Answer(TOPIC, 0, 0, ((Stream(0, 0), -1),), 0)),
        Parcel(0, Stable(TOPIC, Stream(0, 0), 0, 0, 0, -1)),
        Parcel(-1, Release(TOPIC, Stream(0, 0))),
    ],
)
def test_control_messages_beyond_the_bounds_are_refused(message: Any) -> None:
    with pytest.raises(WireError, match="out of bounds"):
        decode_control(encode_control(message))


@pytest.mark.parametrize(
    "message",
    [
        hello.Hello(1, "cd" * 16, "ab", -2),
        hello.Hello(1, "cd" * 16, "ab", MAX_SLOTS),
        hello.Hello(1, "cd" * 16, ""),
        hello.Hello(1, "cd" * 16, "a/b"),
        hello.Hello(1, ""),
        hello.Hello(1, "cd" * 16, salt="ab"),
        hello.Hello(1, "cd" * 16, peer="x" * 32),
        hello.Hello(1, "cd" * 16, name="x" * 65),
        hello.Hello(1, "cd" * 16, name="two words"),
        hello.Door("", "cd" * 16),
        hello.Opening(bytes(1025)),
        hello.Refused("x" * 1025),
    ],
)
def test_greetings_beyond_the_bounds_are_refused(message: Any) -> None:
    with pytest.raises(WireError):
        hello.decode_greeting(hello.encode_greeting(message))


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"type":' * 50_000, b'{"type":"\xff"}', b""])
def test_deep_and_broken_json_is_refused(text: bytes) -> None:
    packet = PREFIX.pack(1 + len(text), CONTROL) + text
    for read in (decode_control, hello.decode_greeting, decode_view, decode_detector):
        with pytest.raises(WireError):
            read(packet)


def test_a_frame_too_large_for_a_packet_is_never_made() -> None:
    body = OutgoingFrame([bytes(wire.MAX_PACKET)], 0)
    with pytest.raises(WireError, match="larger than"):
        encode_frame(example_frame(body=body))


def test_the_largest_message_fits_with_the_longest_barrier() -> None:
    barrier = tuple((Stream(0, number), 0) for number in range((1 << 16) - 1))
    route = Route(0, 0, (1 << MAX_SLOTS) - 1)
    body = OutgoingFrame([bytes(wire.MAX_PAYLOAD)], 0)
    raw = encode_frame(example_frame(body=body, barrier=barrier, route=route))
    read = FrameDecoder().decode(raw, TOPICS)
    assert read is not None
    assert read.barrier == barrier


# -- packets out of a stream of bytes --------------------------------------------------------------


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def write(buffer: PacketBuffer, data: bytes) -> None:
    """As a transport does: into the room there is, again and again."""
    while data:
        room = buffer.room()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        buffer.filled(len(piece))


@given(st.lists(packets, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=20))
def test_packets_come_out_whole_however_the_bytes_are_cut(
    sent: list[bytes], places: list[int]
) -> None:
    buffer = PacketBuffer()
    received = [packet for chunk in cut(b"".join(sent), places) for packet in buffer.feed(chunk)]
    assert received == [(raw[4], raw) for raw in sent]


@given(
    st.lists(packets, min_size=1, max_size=6),
    st.lists(st.integers(0, 1 << 20), max_size=20),
    st.integers(1, 6),
)
def test_packets_come_out_one_by_one_before_the_rest(
    sent: list[bytes], places: list[int], single: int
) -> None:
    """A handshake takes `single` packets with `first`, the traffic after it goes to `feed`."""
    buffer = PacketBuffer()
    received: list[tuple[int, bytes]] = []
    for data in cut(b"".join(sent), places):
        write(buffer, data)
        while len(received) < single:
            packet = buffer.first()
            if packet is None:
                break
            received.append(packet)
        else:
            received += buffer.packets()
    assert received == [(raw[4], raw) for raw in sent]


@pytest.mark.parametrize("length", [0, 4097, 0xFFFFFFFF])
def test_a_length_beyond_the_limit_is_refused_at_once(length: int) -> None:
    for take in ("packets", "first"):
        buffer = PacketBuffer(4096)
        write(buffer, PREFIX.pack(length, FRAME))
        with pytest.raises(WireError, match=f"a packet of {length} bytes"):
            getattr(buffer, take)()


def test_the_limit_applies_to_the_packet_it_was_set_for() -> None:
    """A large packet right behind the end of the handshake is none of the handshake's."""
    small = hello.encode_greeting(hello.Ready())
    large = PREFIX.pack(100_001, CONTROL) + bytes(100_000)
    buffer = PacketBuffer(hello.MAX_HELLO)
    write(buffer, small + large)
    assert buffer.first() == (HELLO, small)
    buffer.limit = wire.MAX_PACKET
    assert buffer.packets() == [(CONTROL, large)]


def test_a_claimed_length_reserves_nothing() -> None:
    tracemalloc.start()
    try:
        buffers = [PacketBuffer() for _ in range(100)]
        for buffer in buffers:
            assert buffer.feed(PREFIX.pack(wire.MAX_PACKET, FRAME) + bytes(10)) == []
        header = wire.HEADER.pack(
            topic_id(TOPIC), 0, 0, 0, 0xFFFFFFFF, -1, 0, 0, 0, 0xFFFF, 0, 0xFFFF
        )
        with pytest.raises(WireError):
            FrameDecoder().decode(PREFIX.pack(1 + len(header), FRAME) + header, TOPICS)
        assert tracemalloc.get_traced_memory()[1] < 100 * packet_buffer.FIRST_ROOM + 500_000
    finally:
        tracemalloc.stop()


def test_a_large_packet_in_small_pieces_takes_linear_work() -> None:
    """Quadratic copying would move half a terabyte here."""
    raw = PREFIX.pack(1 + 8_000_000, CONTROL) + bytes(8_000_000)
    buffer = PacketBuffer()
    received = []
    for start in range(0, len(raw), 64):
        received += buffer.feed(raw[start : start + 64])
    assert received == [(CONTROL, raw)]


def test_the_room_grows_with_what_arrives_and_shrinks_when_it_is_read() -> None:
    """It shrinks with the packet that is cut, not with the next byte of the peer."""
    tracemalloc.start()
    buffer = PacketBuffer()
    largest = PREFIX.pack(wire.MAX_PACKET, CONTROL) + bytes(wire.MAX_PACKET - 1)
    assert len(buffer.room()) == packet_buffer.FIRST_ROOM
    arrived = 0
    received = []
    while arrived < len(largest):
        room = len(buffer.room())
        assert room <= max(arrived, packet_buffer.FIRST_ROOM)
        received += buffer.feed(largest[arrived : arrived + room])
        arrived += room
    assert received == [(CONTROL, largest)]
    received.clear()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(largest) + 2 * packet_buffer.STEADY_ROOM
    assert len(buffer.room()) == packet_buffer.STEADY_ROOM


def test_small_packets_never_need_more_than_the_steady_room() -> None:
    buffer = PacketBuffer()
    raw = PREFIX.pack(1 + 1000, CONTROL) + bytes(1000)
    stream = raw * 2000
    received = 0
    while stream:
        room = len(buffer.room())
        assert room <= packet_buffer.STEADY_ROOM
        received += len(buffer.feed(stream[:room]))
        stream = stream[room:]
    assert received == 2000
    assert packet_buffer.STEADY_ROOM - len(raw) < len(buffer.room()) <= packet_buffer.STEADY_ROOM


# -- the document ----------------------------------------------------------------------------------


def test_headers_have_the_documented_sizes() -> None:
    assert (PREFIX.size, wire.HEADER.size) == (5, 70)
    assert (wire.DEPENDENCY.size, wire.ACK_HEADER.size) == (20, 49)
    assert all(s.format.startswith("<") for s in (PREFIX, wire.HEADER, wire.ACK_HEADER))
    assert struct.calcsize("<I") == 4


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7401", "127.0.0.1", 7401),
        ("[::1]:7401", "::1", 7401),
        ("[::1]", "::1", DEFAULT_PORT),
        ("::1", "::1", DEFAULT_PORT),
        ("example.org", "example.org", DEFAULT_PORT),
        (":7401", "127.0.0.1", 7401),
        (" host:0 ", "host", 0),
    ],
)
def test_addresses_as_people_write_them(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert parse_address(format_address(host, port)) == (host, port)


@pytest.mark.parametrize(
    "text", ["host:x", "host:65536", "[::1", "[::1]7401", "host:-1", "host:²", "host:" + "9" * 5000]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_address(text)


CHANGE = views.Change(
    VIEW_ID.ballot, VIEW_ID, VIEW_ID, 0b10, {3: views.Who("a", "h:1", 0)}, {}, {}, ("b",), (), 7
)


@pytest.mark.parametrize(
    "lie",
    [
        {"gone": 1 << 4096},
        {"gone": -1},
        {"came": {4096: views.Who("a", "h:1", 0)}},
        {"came": {3: views.Who("a", "nowhere:70000", 0)}},
        {"forgotten": ("not a uid",)},
        {"forgotten": ("b",) * 257},
        {"check": 1 << views.CHECK_BITS},
        {"check": -1},
        {"absent": (views.Absent(views.Who("a", "h:1", 0), -1),)},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_a_change_out_of_bounds_is_refused(lie: dict[str, Any]) -> None:
    assert decode_view(encode_view(CHANGE)) == CHANGE
    with pytest.raises(WireError, match="Change out of bounds"):
        decode_view(encode_view(msgspec.structs.replace(CHANGE, **lie)))
