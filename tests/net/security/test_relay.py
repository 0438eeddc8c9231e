"""A relay between two ends that trust each other: on real sockets, it reads and forges nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

import cubecast
from cubecast.errors import AttachError, JoinError
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.security.envelopes import LOCK_BYTES
from cubecast.net.security.handshake import Handshake
from cubecast.net.security.keys import Keys
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.hello import AttachRequest, Hello, Refused, decode_greeting, encode_greeting
from cubecast.net.wire.packets import (
    ENVELOPE,
    FRAME,
    HELLO,
    PREFIX,
    SEALED,
    VERSION,
    OutgoingFrame,
    encode_frame,
)
from cubecast.net.wire.views import encode_view
from cubecast.protocol.cluster.views import Enter, Who
from cubecast.protocol.messages import Frame
from cubecast.testing.dialler import Dialler, DiallerParty
from cubecast.testing.relay import Change, relay
from support.live import TOPIC, cluster, join, live, raw, subscribed, take, until

SECRET, CLIENTS = "open sesame, please", "not for members"


@live
async def test_a_relay_on_a_dead_nodes_port_connects_its_diallers_to_no_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They mean the dead node, and the node they reach says that it is another."""
    caplog.set_level(logging.INFO, "cubecast")
    async with cluster(3, secret=SECRET) as nodes:
        address, slot = nodes[2].address, nodes[2].slot
        shell_of(nodes[2]).kill()
        async with relay(nodes[1].address, int(address.rpartition(":")[2])) as (_, one):
            await until(lambda: one.packets >= 2)
            await until(lambda: all(slot not in node.members for node in nodes[:2]))
            async with subscribed(nodes[:2]) as subscriptions:
                await nodes[0].publish(TOPIC, "a private word")
                for subscription in subscriptions:
                    assert [m.payload for m in await take(subscription, 1)] == [b"a private word"]
        assert "another node is meant" in caplog.text
        assert b"private" not in one.heard


@live
async def test_a_newcomer_that_joins_through_a_relay_is_safe_all_the_same() -> None:
    """It gave the relay as an address, so the relay may carry; it sees seals and nothing else."""
    async with cluster(2, secret=SECRET) as nodes, relay(nodes[0].address) as (address, one):
        newcomer = Shell(NodeConfig(secret=SECRET)).node
        await shell_of(newcomer).start(address)
        nodes.append(newcomer)
        async with subscribed(nodes) as subscriptions:
            await newcomer.publish(TOPIC, "a private word")
            for subscription in subscriptions:
                assert [m.payload for m in await take(subscription, 1)] == [b"a private word"]
        for secret in (b"private", newcomer.uid.encode(), nodes[0].uid.encode(), b"Enter"):
            assert secret not in one.heard
        assert nodes[0].cluster.encode() not in one.heard


def forged(number: int, packet: bytes) -> list[bytes]:
    if packet[4] != SEALED:
        return [packet]
    return [packet[:-1] + bytes((packet[-1] ^ 1,))]


def repeated(number: int, packet: bytes) -> list[bytes]:
    return [packet, packet] if packet[4] == SEALED else [packet]


def left_out(number: int, packet: bytes) -> list[bytes]:
    return [] if packet[4] == SEALED and number % 3 == 0 else [packet]


def added(number: int, packet: bytes) -> list[bytes]:
    plain = encode_view(Enter(Who("mallory", "127.0.0.1:1", 1), -1))
    return [packet, plain] if packet[4] == SEALED else [packet]


@pytest.mark.parametrize("change", [forged, repeated, left_out, added])
@live
async def test_a_packet_that_a_relay_changes_repeats_omits_or_adds_ends_the_connection(
    change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with cluster(1, secret=SECRET) as nodes:
        async with relay(nodes[0].address, change=change) as (address, _):
            newcomer = Shell(NodeConfig(secret=SECRET))
            joining = asyncio.create_task(newcomer.start(address))
            await until(lambda: "does not open" in caplog.text or "not sealed" in caplog.text)
            joining.cancel()
            with suppress(JoinError, asyncio.CancelledError):
                await joining
            await newcomer.shut_down()
        assert "mallory" not in str(shell_of(nodes[0]).member.view)
        assert (await join(nodes, secret=SECRET)).cluster == nodes[0].cluster


@live
async def test_a_frame_in_another_nodes_name_that_a_relay_adds_is_read_by_no_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is the next frame of node 0, as node 2 passes it on to node 3, but not sealed."""
    caplog.set_level(logging.WARNING, "cubecast")
    frame, second = b"", b"second" * 1000

    def with_frame(number: int, packet: bytes) -> list[bytes]:
        return [packet, frame] if frame and len(packet) > len(second) else [packet]

    async with (
        cluster(3, secret=SECRET) as nodes,
        relay(nodes[2].address, change=with_frame) as (address, _),
    ):
        newcomer = Shell(NodeConfig(secret=SECRET)).node
        await shell_of(newcomer).start(address)
        nodes.append(newcomer)
        async with subscribed(nodes) as subscriptions:
            await nodes[0].publish(TOPIC, "first")
            first = [(await take(one, 1))[0] for one in subscriptions][3].frame
            body = OutgoingFrame([b"mallory"], 0)
            frame = encode_frame(
                Frame(TOPIC, first.stream, first.last + 1, (), first.route, first.last, body, 0)
            )
            await nodes[2].publish(TOPIC, second)
            await until(lambda: "a packet of kind 1 that is not sealed" in caplog.text)
            frame = b""
            await nodes[0].publish(TOPIC, "third")
            for one in subscriptions:
                assert {m.payload for m in await take(one, 2)} == {second, b"third"}


class Tamper:
    """Does something to the fourth envelope that passes."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.envelopes: list[bytes] = []

    def __call__(self, number: int, packet: bytes) -> list[bytes]:
        if packet[4] != ENVELOPE:
            return [packet]
        self.envelopes.append(packet)
        if len(self.envelopes) != 4:
            return [packet]
        before, body = self.envelopes[-2], PREFIX.size + LOCK_BYTES
        return {
            "a bit of the key": [packet[:9] + bytes((packet[9] ^ 1,)) + packet[10:]],
            "a bit of the frame": [packet[:-99] + bytes((packet[-99] ^ 1,)) + packet[-98:]],
            "an older frame under this key": [packet[:body] + before[body:]],
            "an older key for this frame": [before[:body] + packet[body:]],
            "repeated": [before, packet],
            "left out": [],
        }[self.how]


@pytest.mark.parametrize(
    "how",
    [
        "a bit of the key", "a bit of the frame", "an older frame under this key",
        "an older key for this frame", "repeated", "left out",
    ],
)  # fmt: skip
@live
async def test_an_envelope_that_a_relay_tampers_with_ends_the_connection_and_nothing_else(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The two dial again, past the relay or through it; every node reads every message once."""
    caplog.set_level(logging.WARNING, "cubecast")
    tamper = Tamper(how)
    async with (
        cluster(2, secret=SECRET) as nodes,
        relay(nodes[0].address, change=tamper) as (address, one),
    ):
        newcomer = Shell(NodeConfig(secret=SECRET)).node
        await shell_of(newcomer).start(address)
        nodes.append(newcomer)
        async with subscribed(nodes) as subscriptions:
            sent = [bytes([index]) * 40_000 for index in range(12)]
            for payload in sent:
                receipt = await nodes[0].publish(TOPIC, payload, receipt=True)
                await receipt.stable()  # so that each has a frame of its own
            for subscription in subscriptions:
                assert [m.payload for m in await take(subscription, 12)] == sent
        assert len(tamper.envelopes) >= 4
        assert "does not open" in caplog.text
        assert bytes([5]) * 100 not in one.heard
        assert all(len(node.members) == 3 for node in nodes)


@live
async def test_a_clients_handshake_relayed_makes_no_member() -> None:
    """A relay asks for a member's place with what a client says."""
    member = encode_greeting(Hello(VERSION, "0" * 32, purpose="member", sealed=True))

    def as_a_member(number: int, packet: bytes) -> list[bytes]:
        return [member] if packet[4] == HELLO and b'"Hello"' in packet else [packet]

    async with (
        cluster(2, secret=SECRET) as nodes,
        relay(nodes[0].address, change=as_a_member) as (address, _),
    ):
        with pytest.raises(AttachError, match="secret is not the same"):
            async with cubecast.connect(address, secret=SECRET):
                pass
        assert len(nodes[0].members) == 2


@live
async def test_a_client_connection_is_never_a_members() -> None:
    """A peer that attached, or is about to, is a client, even with the secret of members."""
    async with cluster(2, secret=SECRET) as nodes:
        for first in (encode_greeting(AttachRequest()), b""):
            async with raw(nodes[0]) as client:
                await client.authenticate(SECRET, purpose="client")
                client.write(first + encode_view(Enter(Who("raw", "127.0.0.1:1", 1), -1)))
                await client.ended()
        async with raw(nodes[0]) as client:  # nor is a member a client
            await client.authenticate(SECRET)
            client.greet(AttachRequest())
            await client.ended()
        async with raw(nodes[0]) as client:  # nor is it one because it has a member's uid
            await client.authenticate(SECRET, nodes[1].uid, 1, purpose="client")
            client.write(PREFIX.pack(3, 3) + b"{}")
            await client.ended()
        assert all(len(node.members) == 2 for node in nodes)


@live
async def test_a_client_cannot_send_an_envelope(caplog: pytest.LogCaptureFixture) -> None:
    """Before it attached and afterwards; what it holds is a frame, which members alone send."""
    caplog.set_level(logging.WARNING, "cubecast")
    frame = PREFIX.pack(1 + 20_000, FRAME) + bytes(20_000)
    async with cluster(1, secret=SECRET) as nodes:
        for first in (b"", encode_greeting(AttachRequest())):
            caplog.clear()
            async with raw(nodes[0]) as client:
                await client.authenticate(SECRET, purpose="client")
                if first:
                    client.write(first)
                client.write_clear(client.envelop(frame))
                await client.ended()
            assert "a packet of kind 1 from a client" in caplog.text


@live
async def test_the_secret_of_clients_does_not_make_a_member() -> None:
    async with cluster(2, secret=SECRET, client_secret=CLIENTS) as nodes:
        newcomer = Shell(NodeConfig(secret=CLIENTS)).node
        with pytest.raises(JoinError, match="secret is not the same"):
            await shell_of(newcomer).start(nodes[0].address)
        with pytest.raises(AttachError, match="secret is not the same"):
            async with cubecast.connect(nodes[0].address, secret=SECRET):
                pass
        async with cubecast.connect(nodes[1].address, secret=CLIENTS) as client:
            await client.publish(TOPIC, "hello")
            assert client.cluster == nodes[0].cluster


@pytest.mark.parametrize(("client_secret", "told"), [("", 1), (CLIENTS, 0)])
@live
async def test_a_node_warns_once_of_clients_that_could_be_members(
    client_secret: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "cubecast")
    async with cluster(1, secret=SECRET, client_secret=client_secret) as nodes:
        for _ in range(2):
            async with cubecast.connect(nodes[0].address, secret=client_secret or SECRET):
                pass
    assert caplog.text.count("has the cluster's secret, so it can become a member") == told


@live
async def test_a_client_with_the_clients_secret_is_taken_for_a_node_by_other_clients() -> None:
    """It proves no more than that it knows what they know; tokens and certificates prove more."""
    async with (
        cluster(1, secret=SECRET, client_secret=CLIENTS) as nodes,
        cluster(1, secret=CLIENTS) as impostors,
        subscribed(impostors) as (heard,),
        cubecast.connect(impostors[0].address, secret=CLIENTS) as client,
    ):
        await client.publish(TOPIC, "for the others")
        assert [one.payload for one in await take(heard, 1)] == [b"for the others"]
        assert client.cluster != nodes[0].cluster


@live
async def test_an_old_conversation_played_again_gets_no_further() -> None:
    async with cluster(1, secret=SECRET) as nodes:
        said: list[bytes] = []

        def record(number: int, packet: bytes) -> list[bytes]:
            said.append(packet)
            return [packet]

        async with (
            relay(nodes[0].address, change=record) as (address, _),
            cubecast.connect(address, secret=SECRET) as client,
        ):
            await client.publish(TOPIC, "once")
        async with raw(nodes[0]) as replay:
            for packet in said[::2]:
                replay.write_clear(packet)
            await replay.ended()
        assert (await nodes[0].topics()).keys() == {TOPIC}


@live
async def test_before_the_secret_is_proved_a_stranger_learns_nothing_of_the_cluster() -> None:
    async with cluster(3, secret=SECRET) as nodes, raw(nodes[0]) as stranger:
        heard = b""
        handshake = Handshake(DiallerParty(Keys("not the right one")), dialled=True)
        stranger.write(handshake.begin())
        while (packet := await stranger.packet()) is not None:
            heard += packet[1]
            message = decode_greeting(packet[1])
            if isinstance(message, Refused):
                break
            answer = handshake.take(message, packet[1])
            if answer is not None:
                stranger.write(answer)
        for node in nodes:
            for known in (node.uid, node.address, node.cluster):
                assert known.encode() not in heard


@pytest.mark.parametrize("version", range(3, VERSION))
@live
async def test_a_node_of_a_version_before_is_refused_in_its_own_words(version: int) -> None:
    """What a node of version 3 or 4 says first, and what it understands."""
    async with cluster(1, secret=SECRET) as nodes, raw(nodes[0]) as old:
        body = b'{"type":"Hello","version":%d,"uid":"old","slot":-1,"nonce":"%s"}' % (
            version,
            b"0" * 32,
        )
        old.write_clear(PREFIX.pack(1 + len(body), HELLO) + body)
        packet = await old.packet()
        assert packet is not None
        assert packet[1][PREFIX.size :] == (
            b'{"type":"Refused","reason":"version %d is not spoken here, only %d"}'
            % (version, VERSION)
        )


@live
async def test_a_node_of_the_version_before_says_why_it_refuses_us() -> None:
    """It reads the fields that it knows of our `Hello`, and answers with its `Refused`."""

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Dialler(reader, writer)
        packet = await client.packet()
        assert packet is not None
        for wanted in (b'"version":5', b'"uid":"-"', b'"slot":-1', b'"nonce":"'):
            assert wanted in packet[1]
        client.greet(Refused("version 5 is not spoken here, only 4"))
        await client.ended()
        await client.close()

    server = await asyncio.start_server(old, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        node = Shell(NodeConfig(secret=SECRET)).node
        with pytest.raises(JoinError, match="version 5 is not spoken here, only 4"):
            await shell_of(node).start(f"{host}:{port}")


# -- what it can do all the same -------------------------------------------------------------------


@live
async def test_a_relay_sees_how_much_is_said_and_which_way_a_large_frame_takes() -> None:
    """The bytes of an envelope are the same on each connection, all but its key."""
    seen: list[list[bytes]] = [[], []]

    def watch(which: int) -> Change:
        def note(number: int, packet: bytes) -> list[bytes]:
            if packet[4] == ENVELOPE:
                seen[which].append(packet[PREFIX.size + LOCK_BYTES :])
            return [packet]

        return note

    async with (
        cluster(1, secret=SECRET) as nodes,
        relay(nodes[0].address, change=watch(0)) as (first, one),
        relay(nodes[0].address, change=watch(1)) as (second, other),
    ):
        for address in (first, second):
            shell = Shell(NodeConfig(secret=SECRET))
            await shell.start(address)
            nodes.append(shell.node)
        async with subscribed(nodes) as subscriptions:
            before = [len(way.heard) for way in (one, other)]
            payload = bytes(40_000)
            await nodes[0].publish(TOPIC, payload)
            for subscription in subscriptions:
                assert [m.payload for m in await take(subscription, 1)] == [payload]
            for way, length in zip((one, other), before, strict=True):
                assert 40_000 < len(way.heard) - length < 80_000
        assert len(seen[0]) == 1
        assert seen[0] == seen[1]
        assert payload[:100] not in one.heard
