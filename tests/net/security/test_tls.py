"""Mutual TLS on real sockets: which peers are let in, which not, and what both sides are told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

import cubecast
from cubecast.errors import AttachError, ConfigError, JoinError
from cubecast.net.links.address import parse_address
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.security import authority as authority_module
from cubecast.net.security import tls_connection as secured
from cubecast.net.security import tls_files, tls_network
from cubecast.net.security.tls import (
    Certificate,
    Tls,
    TlsError,
    begins_tls,
    peer_certificate,
    stated,
    tls_keys,
)
from cubecast.net.security.tls_network import TlsNetwork
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.hello import Hello, Refused, decode_greeting, encode_greeting, new_nonce
from cubecast.net.wire.packets import VERSION
from support.live import cluster, guarded, live, subscribed, take, until
from support.tls_toys import (
    Pki,
    bare_context,
    careless_network,
    issue_expired,
    issue_without_role,
    shifted,
)

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def both_loops(test: AsyncTest) -> Callable[..., None]:
    """Run a test on asyncio's loop and on uvloop."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    @wraps(test)
    def run(loop: str, **kwargs: Any) -> None:
        if loop == "asyncio":
            asyncio.run(guarded(test(**kwargs)))
        else:
            pytest.importorskip("uvloop").run(guarded(test(**kwargs)))

    run.__signature__ = _with_loop(test)  # type: ignore[attr-defined]
    return run


def _with_loop(test: AsyncTest) -> Any:
    import inspect

    known = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return known.replace(parameters=[loop, *known.parameters.values()])


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    made = Pki(tmp_path / "ours")
    made.issue("node", "node1", "node2", "node3")
    made.issue("client", "alice", "bob")
    return made


@pytest.fixture
def foreign(tmp_path: Path) -> Pki:
    made = Pki(tmp_path / "foreign")
    made.issue("node", "stranger")
    made.issue("client", "mallory")
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at often."""
    monkeypatch.setattr(tls_files, "CHECK_S", 0.0)
    monkeypatch.setattr(tls_network, "LOOK_S", 0.02)


@asynccontextmanager
async def node_with(tls: Tls, **config: Any) -> AsyncIterator[Node]:
    async with cubecast.join(None, config=NodeConfig(**tls_keys(tls), **config)) as node:
        yield node


def told(caplog: pytest.LogCaptureFixture, *words: str) -> bool:
    """Whether one line of the log has all of these."""
    return any(all(word in line for word in words) for line in caplog.messages)


# -- let in ---------------------------------------------------------------------------------------


@both_loops
async def test_nodes_and_clients_with_certificates_talk(pki: Pki) -> None:
    large = b"x" * 3_000_000
    async with (
        node_with(pki.tls("node1")) as one,
        cubecast.join(one.address, tls=pki.tls("node2")) as two,
        cubecast.join(two.address, tls=pki.tls("node3")) as three,
        subscribed([one, two, three]) as subscriptions,
        cubecast.connect(two.address, tls=pki.tls("alice")) as alice,
    ):
        for number in range(200):
            await alice.publish("chat/room1", str(number))
        await three.publish("chat/room1", large)
        for subscription in subscriptions:
            payloads = [message.payload for message in await take(subscription, 201)]
            assert [one for one in payloads if one != large] == [b"%d" % n for n in range(200)]
            assert large in payloads


@live
async def test_a_node_may_attach_as_a_client_with_its_certificate(pki: Pki) -> None:
    async with (
        node_with(pki.tls("node1")) as node,
        cubecast.connect(node.address, tls=pki.tls("node2")) as client,
    ):
        assert await client.members() == {0: node.address}


@live
async def test_the_other_side_is_known_by_role_and_name(pki: Pki) -> None:
    async with (
        node_with(pki.tls("node1")) as one,
        cubecast.join(one.address, tls=pki.tls("node2")) as two,
        cubecast.connect(one.address, tls=pki.tls("alice")),
    ):
        assert {(each.identity, each.purpose) for each in shell_of(one).mesh._open} == {
            ("node2", "member"),
            ("alice", "client"),
        }
        assert {each.identity for each in shell_of(two).mesh._open} == {"node1"}
        assert isinstance(shell_of(one).network, TlsNetwork)
        for stream in shell_of(one).network._open:
            assert stream.get_extra_info("ssl_object").version() == "TLSv1.3"
        last = list(shell_of(one).network._open)[-1]
        assert peer_certificate(last) == Certificate("client", "alice")


# -- refused --------------------------------------------------------------------------------------

BAD = {
    "expired": ("its certificate has expired", "our certificate has expired"),
    "revoked": ("its certificate is revoked", "our certificate is revoked"),
    "foreign": ("of a CA that is not in tls_ca here", "of a CA that is not in its tls_ca"),
}
"""What is wrong; what who refuses says; what who is refused hears."""


def bad_files(what: str, role: Any, pki: Pki, foreign: Pki, patch: pytest.MonkeyPatch) -> Tls:
    """Files with a certificate that every node should refuse."""
    name = f"bad-{role}"
    if what == "foreign":
        foreign.issue(role, name)
        return foreign.tls(name, believes=pki)
    if what == "expired":
        issue_expired(pki, role, name, patch)
    else:
        pki.issue(role, name)
        pki.authority.revoke(name)
    return pki.tls(name)


@pytest.mark.parametrize("what", BAD)
@both_loops
async def test_a_bad_certificate_of_who_dials_is_refused_with_words_on_both_sides(
    what: str,
    pki: Pki,
    foreign: Pki,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    says, hears = BAD[what]
    as_node = careless_network(bad_files(what, "node", pki, foreign, monkeypatch), monkeypatch)
    as_client = careless_network(bad_files(what, "client", pki, foreign, monkeypatch), monkeypatch)
    async with node_with(pki.tls("node1")) as node:
        with pytest.raises(JoinError, match=hears):
            async with cubecast.join(node.address, network=as_node):
                pass
        assert told(caplog, "refusing the connection from 127.0.0.1", says)
        assert told(caplog, f"{node.address} refused us", hears)
        caplog.clear()
        with pytest.raises(AttachError, match=f"refused: .*{hears}"):
            async with cubecast.connect(node.address, network=as_client):
                pass
        assert told(caplog, "refusing the connection from 127.0.0.1", says)
        assert list(node.members) == [0]


@pytest.mark.parametrize("what", BAD)
@both_loops
async def test_a_bad_certificate_of_who_is_dialled_is_refused_with_words_on_both_sides(
    what: str,
    pki: Pki,
    foreign: Pki,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    says, hears = BAD[what]
    bad = careless_network(bad_files(what, "node", pki, foreign, monkeypatch), monkeypatch)
    async with cubecast.join(None, network=bad) as node:
        with pytest.raises(JoinError, match=says):
            async with cubecast.join(node.address, tls=pki.tls("node2")):
                pass
        await until(lambda: told(caplog, "127.0.0.1", "refused us", hears))
        assert told(caplog, f"giving up the connection to {node.address}", says)
        with pytest.raises(AttachError, match=says):
            async with cubecast.connect(node.address, tls=pki.tls("alice")):
                pass
        assert list(node.members) == [0]


@live
async def test_a_dialler_without_a_certificate_is_refused(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with(pki.tls("node1")) as node:
        bare = bare_context(pki.tls("alice"), shows=False)
        reader, writer = await asyncio.open_connection(
            *parse_address(node.address), ssl=bare, server_hostname=""
        )
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate required"):
            await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        assert told(caplog, "refusing", "it showed no certificate; set tls_cert and tls_key there")


@live
async def test_nothing_is_said_to_strangers_but_why_they_are_refused(pki: Pki) -> None:
    """A stranger sees the certificate of the node, by TLS, and no byte of the cluster's."""
    loop = asyncio.get_running_loop()
    async with node_with(pki.tls("node1")) as node:
        where = parse_address(node.address)
        bare = bare_context(pki.tls("alice"), shows=False)
        _, nameless = await loop.create_connection(Collect, *where, ssl=bare, server_hostname="")
        assert isinstance(await nameless.lost, ssl.SSLError)
        assert nameless.data == b""
        _, plain = await loop.create_connection(Collect, *where)
        plain.transport.write(encode_greeting(Hello(VERSION, nonce=new_nonce())))
        await plain.lost
        assert decode_greeting(bytes(plain.data)) == Refused(tls_network.PLAIN_REFUSAL)


def test_no_session_is_resumed_past_the_check_of_certificates(pki: Pki) -> None:
    material = tls_files.load(pki.tls("node1"))
    assert material.accepting.num_tickets == 0
    for context in (material.accepting, material.dialling):
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF


@live
async def test_older_tls_is_refused(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    bare = bare_context(pki.tls("alice"))
    bare.maximum_version = ssl.TLSVersion.TLSv1_2
    async with node_with(pki.tls("node1")) as node:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(
                *parse_address(node.address), ssl=bare, server_hostname=""
            )
        await until(lambda: told(caplog, "refusing", "it does not speak TLS 1.3"))


@live
async def test_a_dialler_without_tls_is_refused_by_a_node_that_has_it(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    why = "this node speaks TLS; set tls_ca, tls_cert and tls_key to dial it"
    async with node_with(pki.tls("node1")) as node:
        with pytest.raises(JoinError, match=why):
            async with cubecast.join(node.address):
                pass
        with pytest.raises(AttachError, match=why):
            async with cubecast.connect(node.address):
                pass
        assert told(caplog, "refusing the connection from 127.0.0.1", "it does not speak TLS")


@live
async def test_a_dialler_with_tls_cannot_speak_with_a_node_that_has_none(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(1) as nodes:
        with pytest.raises(JoinError, match=r"does it use TLS|does not speak TLS"):
            async with cubecast.join(nodes[0].address, tls=pki.tls("node1")):
                pass
        with pytest.raises(AttachError, match=r"does it use TLS|does not speak TLS"):
            async with cubecast.connect(nodes[0].address, tls=pki.tls("alice")):
                pass
        assert told(caplog, "closing connection to 127.0.0.1", "TLS")


# -- roles ----------------------------------------------------------------------------------------


@live
async def test_a_client_cannot_be_a_member(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    as_member = TlsNetwork(pki.tls("alice"))
    async with node_with(pki.tls("node1")) as node:
        with pytest.raises(JoinError, match="a client's certificate is no member's"):
            async with cubecast.join(node.address, network=as_member):
                pass
        assert told(caplog, "refusing", "a client's certificate is no member's")
        assert list(node.members) == [0]


@live
async def test_a_client_cannot_be_dialled(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cubecast.join(None, network=TlsNetwork(pki.tls("bob"))) as false_node:
        for network in (None, TlsNetwork(pki.tls("alice"))):
            with pytest.raises(AttachError, match="of the wrong role, as a client's is for a node"):
                async with cubecast.connect(
                    false_node.address,
                    network=network,
                    tls=pki.tls("alice") if network is None else None,
                ):
                    pass
        with pytest.raises(JoinError, match="of the wrong role"):
            async with cubecast.join(false_node.address, tls=pki.tls("node1")):
                pass
        await until(lambda: told(caplog, "refused us", "our certificate is of the wrong role"))


@live
async def test_a_certificate_of_the_ca_without_a_role_opens_no_door(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A CA that also signs for web servers, say."""
    issue_without_role(pki, "web")
    nameless = careless_network(pki.tls("web"), monkeypatch)
    async with (
        node_with(pki.tls("node1")) as node,
        cubecast.join(None, network=nameless) as web,
    ):
        with pytest.raises(AttachError, match="states no role"):
            async with cubecast.connect(node.address, network=nameless):
                pass
        assert told(caplog, "refusing the connection", "states no role")
        with pytest.raises(AttachError, match="states no role"):
            async with cubecast.connect(web.address, tls=pki.tls("alice")):
                pass


@pytest.mark.parametrize(
    ("uris", "expected"),
    [
        (["cubecast://node/a"], Certificate("node", "a")),
        (["https://x/", "cubecast://client/a.b-c_1"], Certificate("client", "a.b-c_1")),
        ([], None),
        (["cubecast://admin/a"], None),
        (["cubecast://node/"], None),
        (["cubecast://node/a/b"], None),
        (["cubecast://node/a\n"], None),
        (["cubecast://node/ä"], None),
        (["cubecast://node/" + "a" * 65], None),
        (["cubecast://node/a", "cubecast://client/a"], None),
        (["cubecast://node/a", "cubecast://oops"], None),
    ],
)
def test_a_certificate_states_one_role_and_name(
    uris: list[str], expected: Certificate | None
) -> None:
    assert stated(uris) == expected


# -- strangers ------------------------------------------------------------------------------------


@both_loops
async def test_a_stranger_that_says_nothing_or_little_is_cut_off(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secured, "HANDSHAKE_S", 0.1)
    async with node_with(pki.tls("node1")) as node:
        for first in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
            reader, writer = await asyncio.open_connection(*parse_address(node.address))
            writer.write(first)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert told(caplog, "refusing the connection from 127.0.0.1", "no TLS handshake in 0.1 s")
        assert not shell_of(node).network._arrivals  # type: ignore[attr-defined]


@both_loops
async def test_half_open_handshakes_are_bounded_and_members_still_get_in(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with(pki.tls("node1"), max_strangers=4) as node:
        network = shell_of(node).network
        assert isinstance(network, TlsNetwork)
        strangers = [await asyncio.open_connection(*parse_address(node.address)) for _ in range(20)]
        await until(lambda: told(caplog, "more than 4 in the TLS handshake at a time"))
        for reader, _ in strangers[:16]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert len(network._arrivals) == 4
        async with cubecast.join(node.address, tls=pki.tls("node2")) as two:
            assert len(two.members) == 2
        for _, writer in strangers:
            writer.close()
        await until(lambda: not network._arrivals)


@live
async def test_silent_strangers_go_before_one_that_has_begun_and_when_descriptors_run_out(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with(pki.tls("node1"), max_strangers=4) as node:
        network = shell_of(node).network
        assert isinstance(network, TlsNetwork)
        slow = await asyncio.open_connection(*parse_address(node.address))
        slow[1].write(b"\x16\x03\x01")
        await until(lambda: any(one.begun for one in network._arrivals))
        (begun,) = network._arrivals
        silent = [await asyncio.open_connection(*parse_address(node.address)) for _ in range(20)]
        for reader, _ in silent[:17]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert next(iter(network._arrivals)) is begun
        assert len(network._arrivals) == 4
        network._tcp.exhausted()
        assert len(network._arrivals) == 3
        assert begun in network._arrivals
        assert told(caplog, "the process has no file descriptor left")
        for _, writer in (slow, *silent):
            writer.transport.abort()
        await until(lambda: not network._arrivals)


@live
async def test_garbage_and_a_forged_record_end_only_their_connection(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        node_with(pki.tls("node1")) as node,
        cubecast.connect(node.address, tls=pki.tls("alice")) as alice,
    ):
        for garbage in (b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x03\xff\xff" + b"\0" * 70_000):
            reader, writer = await asyncio.open_connection(*parse_address(node.address))
            writer.write(garbage)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        async with cubecast.connect(node.address, tls=pki.tls("bob")):
            network = shell_of(node).network
            assert isinstance(network, TlsNetwork)
            stream = next(
                one
                for one in network._open
                if peer_certificate(one) == Certificate("client", "bob")
            )
            stream.data_received(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
            await until(lambda: stream not in network._open)
        assert await alice.members() == {0: node.address}


def test_the_first_bytes_tell_tls_from_packets() -> None:
    assert begins_tls(b"\x16\x03\x01\x02\x00")
    assert begins_tls(b"\x16")
    assert not begins_tls(b"\x16\x03\x00\x00\x01{}")  # a packet of 790 bytes
    assert not begins_tls(b"GET / HTTP/1.1")


# -- the transport --------------------------------------------------------------------------------


class Collect(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.transport: Any = None
        self.made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@both_loops
async def test_data_written_before_closing_arrives(pki: Pki) -> None:
    network, there, here = TlsNetwork(pki.tls("node1")), Collect(), Collect()
    server = await network.listen(lambda: there, "127.0.0.1", 0)
    await network.dial(lambda: here, *server.bound)
    chunk = bytes(range(256)) * 20_000
    here.transport.writelines([chunk, chunk[:100]])
    here.transport.close()
    assert here.transport.is_closing()
    assert await there.lost is None
    assert bytes(there.data) == chunk + chunk[:100]
    assert await here.lost is None
    server.close()


@both_loops
async def test_data_that_a_peer_does_not_read_is_counted(pki: Pki) -> None:
    network, there = TlsNetwork(pki.tls("node1")), Collect()
    server = await network.listen(lambda: there, "127.0.0.1", 0)
    bare = bare_context(pki.tls("node2"))
    reader, writer = await asyncio.open_connection(*server.bound, ssl=bare, server_hostname="")
    await there.made
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(50):  # more than all buffers of the system below
        there.transport.write(b"x" * 1_000_000)
    before = there.transport.get_write_buffer_size()
    assert before > 1_000_000
    there.transport.write(b"x" * 1_000_000)
    assert there.transport.get_write_buffer_size() >= before + 1_000_000
    there.transport.abort()
    await there.lost
    writer.transport.abort()
    del reader
    server.close()


@live
async def test_dialling_is_bounded_in_time_and_cancelled_cleanly(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: asyncio.Queue[None] = asyncio.Queue()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1000):
                pass
        writer.transport.abort()
        gone.put_nowait(None)

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    network = TlsNetwork(pki.tls("node1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await network.dial(Collect, *address)
    await gone.get()
    monkeypatch.setattr(secured, "HANDSHAKE_S", 0.05)
    with pytest.raises(TlsError, match=r"no TLS handshake in 0\.05 s"):
        await network.dial(Collect, *address)
    await gone.get()
    server.close()


# -- changes without a restart --------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
@live
async def test_a_new_certificate_is_taken_up_and_a_damaged_one_is_not(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    cert = pki.folder / "node1.pem"
    async with (
        node_with(pki.tls("node1")) as node,
        cubecast.connect(node.address, tls=pki.tls("alice")) as old,
    ):

        async def shown() -> str:
            bare = bare_context(pki.tls("bob"))
            _, writer = await asyncio.open_connection(
                *parse_address(node.address), ssl=bare, server_hostname=""
            )
            serial: str = writer.get_extra_info("peercert")["serialNumber"]
            writer.transport.abort()
            return serial

        first = await shown()
        pki.authority.issue("node", "node1", replace=True)
        second = await shown()
        assert second != first
        whole = cert.read_bytes()
        cert.write_bytes(whole[:100])
        assert await shown() == second
        await until(lambda: told(caplog, "the old ones are", "tls_cert has no certificate in PEM"))
        assert sum("has no certificate in PEM" in line for line in caplog.messages) == 1
        cert.unlink()
        assert await shown() == second
        pki.authority.issue("node", "node1", replace=True)
        assert await shown() not in (first, second)
        assert await old.members() == {0: node.address}  # it was open all the while


@pytest.mark.usefixtures("quick")
@both_loops
async def test_a_revocation_ends_open_connections_and_no_others(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        node_with(pki.tls("node1")) as one,
        cubecast.join(one.address, tls=pki.tls("node2")) as two,
        cubecast.connect(one.address, tls=pki.tls("alice")) as alice,
    ):
        async with (
            cubecast.connect(one.address, tls=pki.tls("bob")) as bob,
            bob.subscribe("chat") as messages,
        ):
            pki.authority.revoke("bob")
            with pytest.raises(cubecast.Closed):
                await anext(messages)
        assert told(caplog, "closing connection to 127.0.0.1", "its certificate is revoked")
        with pytest.raises(AttachError, match="refused: our certificate is revoked"):
            async with cubecast.connect(one.address, tls=pki.tls("bob")):
                pass
        assert sorted(await alice.members()) == [0, 1]
        assert sorted(two.members) == [0, 1]
        pki.issue("client", "bob")  # a new key: welcome again
        async with cubecast.connect(one.address, tls=pki.tls("bob")):
            pass


@pytest.mark.usefixtures("quick")
@both_loops
async def test_a_connection_that_breaks_does_not_keep_revoked_ones_open(pki: Pki) -> None:
    """TLS that has failed tells nothing of its peer any more, and is there for a moment longer."""
    async with node_with(pki.tls("node1")) as node:
        network = shell_of(node).network
        assert isinstance(network, TlsNetwork)
        bare = bare_context(pki.tls("alice"))
        address = parse_address(node.address)
        _, alice = await asyncio.open_connection(*address, ssl=bare, server_hostname="")
        await until(lambda: network._open)
        (broken,) = network._open
        async with (
            cubecast.connect(node.address, tls=pki.tls("bob")) as bob,
            bob.subscribe("chat") as messages,
        ):
            broken._incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))  # a forged record
            with pytest.raises(ssl.SSLError):
                broken._tls.read(1)
            pki.authority.revoke("bob")
            with pytest.raises(cubecast.Closed):
                async with asyncio.timeout(10):
                    await anext(messages)
        alice.transport.abort()


@pytest.mark.usefixtures("quick")
@live
async def test_a_revocation_counts_for_a_handshake_that_began_before_it(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    async with node_with(pki.tls("node1")) as node:
        network = shell_of(node).network
        assert isinstance(network, TlsNetwork)
        raw, bob = await loop.create_connection(Collect, *parse_address(node.address))
        await until(lambda: network._arrivals)
        pki.authority.revoke("bob")
        await until(lambda: told(caplog, "the TLS files changed"))
        secure = await loop.start_tls(raw, bob, bare_context(pki.tls("bob")), server_hostname="")
        assert secure is not None
        await bob.lost
        assert bob.data == b""
        assert told(caplog, "refusing the connection from 127.0.0.1", "its certificate is revoked")
        secure.abort()


@pytest.mark.usefixtures("quick")
@live
async def test_a_revoked_member_is_taken_for_dead_and_does_not_come_back(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        node_with(pki.tls("node1")) as one,
        cubecast.join(one.address, tls=pki.tls("node2")) as two,
        cubecast.join(one.address, tls=pki.tls("node3")) as three,
    ):
        lists = pki.folder / "crl.pem"
        before = lists.read_bytes()
        events = one.events()
        pki.authority.revoke("node3")
        assert lists.read_bytes() != before
        async for event in events:
            if isinstance(event, cubecast.MemberLeft):
                assert (event.slot, event.crashed) == (2, True)
                break
        await until(lambda: sorted(two.members) == [0, 1])
        await until(lambda: told(caplog, "refused us: our certificate is revoked"))
        shell_of(three).kill()


@pytest.mark.usefixtures("quick")
@live
async def test_the_ca_changes_while_the_cluster_runs(
    pki: Pki, foreign: Pki, tmp_path: Path
) -> None:
    """Both are believed; then all certificates are the new one's; then only that is believed."""
    home, beside = tmp_path / "home", tmp_path / "beside"
    for folder in (home, beside):
        folder.mkdir()
        pki.both(foreign, folder)

    def give(source: Pki, *names: str) -> None:
        for name in names:
            (home / name).write_bytes((source.folder / name).read_bytes())
            (home / name).chmod(0o600)

    def files(name: str) -> Tls:
        return Tls(f"{home}/ca.pem", f"{home}/{name}.pem", f"{home}/{name}.key", f"{home}/crl.pem")

    def client(source: Pki, name: str) -> Tls:
        own = f"{source.folder}/{name}"
        return Tls(f"{beside}/ca.pem", f"{own}.pem", f"{own}.key", f"{beside}/crl.pem")

    pairs = ("node1.key", "node1.pem", "node2.key", "node2.pem")
    give(pki, *pairs)
    async with (
        node_with(files("node1")) as one,
        cubecast.join(one.address, tls=files("node2")) as two,
    ):
        for tls in (client(pki, "alice"), client(foreign, "mallory")):
            async with cubecast.connect(one.address, tls=tls):
                pass
        with pytest.raises(AttachError, match="of a CA that is not in tls_ca here"):
            async with cubecast.connect(two.address, tls=foreign.tls("mallory")):
                pass
        foreign.issue("node", "node1", "node2")
        give(foreign, *pairs)
        async with cubecast.connect(two.address, tls=foreign.tls("mallory")):
            pass
        async with cubecast.connect(two.address, tls=client(pki, "alice")):
            pass
        give(foreign, "ca.pem", "crl.pem")
        with pytest.raises(AttachError, match="of a CA that is not in its tls_ca"):
            async with cubecast.connect(one.address, tls=client(pki, "alice")):
                pass
        assert sorted(two.members) == [0, 1]


@live
async def test_the_end_of_our_certificate_is_told_days_before_and_once_a_day(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_files, "CHECK_S", 0.0)
    files = tls_files.TlsFiles(pki.tls("node1"))
    assert not caplog.messages
    for days, times in ((359, 1), (359.5, 1), (360.1, 2)):
        monkeypatch.setattr(tls_files, "datetime", shifted(days))
        files.current()
        assert sum("our certificate" in line for line in caplog.messages) == times
    assert told(caplog, "expires on", "make a new one: cubecast certs node node1 --replace")


# -- files and configuration ----------------------------------------------------------------------


def _garbage(tls: Tls, key: str) -> None:
    Path(getattr(tls, key)).write_bytes(b"\0garbage\xff")


def _missing(tls: Tls, key: str) -> None:
    Path(getattr(tls, key)).unlink()


def _folder(tls: Tls, key: str) -> None:
    _missing(tls, key)
    Path(getattr(tls, key)).mkdir()


@pytest.mark.parametrize(
    ("spoil", "key", "words"),
    [
        (_missing, "ca", "tls_ca cannot be read: .*ca.pem: No such file"),
        (_missing, "cert", "tls_cert cannot be read: .*node1.pem: No such file"),
        (_missing, "key", "tls_key cannot be read: .*node1.key: No such file"),
        (_missing, "crl", "tls_crl cannot be read: .*crl.pem: No such file"),
        (_folder, "key", "tls_key cannot be read: .*node1.key: Is a directory"),
        (_garbage, "ca", "tls_ca has no certificate in PEM: .*ca.pem"),
        (_garbage, "cert", "tls_cert has no certificate in PEM: .*node1.pem"),
        (_garbage, "key", "tls_key has no private key in PEM: .*node1.key"),
        (_garbage, "crl", "tls_crl has no list of revoked certificates in PEM: .*crl.pem"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(
    spoil: Any, key: str, words: str, pki: Pki
) -> None:
    tls = pki.tls("node1")
    spoil(tls, key)
    with pytest.raises(ConfigError, match=words) as raised:
        TlsNetwork(tls)
    assert "\n" not in str(raised.value)


def test_an_encrypted_key_is_refused_at_once(pki: Pki) -> None:
    from cryptography.hazmat.primitives import serialization

    path = pki.folder / "node1.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    with pytest.raises(ConfigError, match=r"tls_key is encrypted.*store it without one"):
        TlsNetwork(pki.tls("node1"))


def test_files_that_do_not_belong_together_are_refused(pki: Pki, foreign: Pki) -> None:
    own = pki.tls("node1")
    with pytest.raises(ConfigError, match=r"tls_key .*node2\.key is not the key of tls_cert"):
        TlsNetwork(Tls(own.ca, own.cert, pki.tls("node2").key))
    with pytest.raises(ConfigError, match="is not signed by a CA in tls_ca"):
        TlsNetwork(foreign.tls("stranger", believes=pki))
    with pytest.raises(ConfigError, match="tls_crl has no list signed by the CA CN=cubecast CA"):
        TlsNetwork(Tls(own.ca, own.cert, own.key, foreign.tls("stranger").crl))
    with pytest.raises(ConfigError, match="tls_cert is the client's certificate 'alice'"):
        asyncio.run(_make(NodeConfig(**tls_keys(pki.tls("alice")))))


async def _make(config: NodeConfig) -> None:
    Shell(config)


def test_a_certificate_before_or_after_its_time_says_so(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue_expired(pki, "node", "late", monkeypatch)
    again = "make a new one: cubecast certs node late --replace"
    with pytest.raises(ConfigError, match=f"tls_cert expired on 20.*late.pem; {again}"):
        TlsNetwork(pki.tls("late"))
    monkeypatch.setattr(tls_files, "datetime", shifted(-1))
    with pytest.raises(ConfigError, match=r"tls_cert is valid from 20.* on only.*check the clock"):
        TlsNetwork(pki.tls("node1"))


def test_a_ca_or_a_list_after_its_time_says_so(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(authority_module, "datetime", shifted(-3))
        old = Pki(tmp_path / "old", days=2)
        old.issue("node", "node1", days=1)
        patch.setattr(tls_files, "datetime", shifted(-2.5))
        TlsNetwork(old.tls("node1"))  # then it was sound
    monkeypatch.setattr(tls_files, "_ours", lambda *_: None)
    with pytest.raises(ConfigError, match=r"the CA of tls_cert expired on .*ca\.pem"):
        tls_files.load(old.tls("node1"))
    monkeypatch.setattr(tls_files, "_check_issuer", lambda *_: None)
    with pytest.raises(ConfigError, match=r"the list of the CA .* in tls_crl has expired"):
        tls_files.load(old.tls("node1"))


def test_whatever_is_odd_about_a_file_takes_one_line(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(*_: Any) -> None:
        raise x509.InvalidVersion("4 is not a valid X509 version", 4)

    monkeypatch.setattr(tls_files, "_ours", odd)
    with pytest.raises(ConfigError, match=r"the files of TLS cannot be used: InvalidVersion"):
        TlsNetwork(pki.tls("node1"))


def test_a_key_that_others_may_read_is_told(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    TlsNetwork(pki.tls("node1"))
    assert not caplog.messages
    (pki.folder / "node1.key").chmod(0o644)
    TlsNetwork(pki.tls("node1"))
    assert told(caplog, "others on this machine may read tls_key", "chmod 600")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"secret": "s" * 12, "tls_ca": "a"}, "secret and tls_ca exclude each other"),
        ({"tls_ca": "a"}, "tls_ca is set, so tls_cert and tls_key must be set, too"),
        ({"tls_cert": "a", "tls_key": "b"}, "tls_cert is set, so tls_ca must be set, too"),
        ({"tls_crl": "a"}, "tls_crl is set, so tls_ca and tls_cert and tls_key must be set, too"),
    ],
)
def test_files_of_tls_are_all_set_or_none_and_no_secret_beside_them(
    given: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"flag {next(iter(given))}: {words}"):
        cubecast.load_config(environ={}, **given)
    path = tmp_path / "cubecast.toml"
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in given.items()))
    with pytest.raises(ConfigError, match=words):
        cubecast.load_config(path, environ={})


def test_files_of_tls_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "cubecast.toml"
    path.write_text('tls_ca = "ca.pem"\ntls_cert = "/etc/n.pem"\ntls_key = "n.key"\n')
    config = cubecast.load_config(path, environ={"CUBECAST_TLS_KEY": "k"})
    assert config.tls == Tls(str(tmp_path / "ca.pem"), "/etc/n.pem", "k")
    assert cubecast.load_config(environ={}).tls is None


def test_a_client_takes_a_secret_or_files_but_not_both(pki: Pki) -> None:
    async def attach() -> None:
        async with cubecast.connect("127.0.0.1:1", secret="s" * 12, tls=pki.tls("alice")):
            pass

    with pytest.raises(ConfigError, match="secret and tls exclude each other"):
        asyncio.run(attach())


# -- doors that are open to all -------------------------------------------------------------------


@live
async def test_a_node_that_listens_for_all_without_a_lock_says_so(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    where = {"listen": "0.0.0.0:0", "advertise": "127.0.0.1"}
    for config in (
        NodeConfig(),
        NodeConfig(listen="localhost:0"),
        NodeConfig(secret="a secret that is long enough", **where),
        NodeConfig(**tls_keys(pki.tls("node1")), **where),
    ):
        async with cubecast.join(None, config=config):
            assert not told(caplog, "without a secret or TLS")
    async with cubecast.join(None, config=NodeConfig(**where)) as node:
        assert told(caplog, f"{node.address} listens on 0.0.0.0 without a secret or TLS")
