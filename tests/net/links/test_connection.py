"""Writing to peers that are gone or going: that concerns one connection, and no other."""

from __future__ import annotations

import asyncio

import pytest

from cubecast.net.links.connection import Connection
from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.net.links.writes import Writes
from cubecast.net.security.envelopes import ENVELOPE_BYTES, seal_envelope
from cubecast.net.security.keys import Keys, Purpose
from cubecast.net.wire.hello import NOBODY
from cubecast.protocol.port import NodeId
from support.live import guarded, live


class Owner:
    """A node as far as its connections need one."""

    keys = Keys()
    purpose: Purpose = "member"
    name = ""
    salt = "ab" * 16
    unread_bytes = 1 << 20
    uid = "me"
    slot: NodeId = NOBODY

    def __init__(self) -> None:
        self.faults = LinkFaults()
        self.writes = Writes()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def learn_salt(self, salt: str) -> None:
        pass

    def turned_away(self, connection: Connection, reason: str) -> None:
        pass

    def opened(self, connection: Connection) -> None:
        pass

    def connected(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        pass

    def disconnected(self, connection: Connection, reason: str) -> None:
        self.lost.set_result(reason)


class Talkative(Connection):
    """Says something between the peer's end of file and `connection_lost`."""

    def __init__(self, node: Owner) -> None:
        super().__init__(node, dialled=False)
        self.node = node

    def eof_received(self) -> None:
        asyncio.get_running_loop().call_soon(self._say)

    def _say(self) -> None:
        assert not self.closing  # it does not know yet
        self.send(b"are you there?")
        self.node.writes.flush()


@pytest.mark.parametrize("with_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_packet_for_a_peer_that_has_just_hung_up_goes_nowhere(with_uvloop: bool) -> None:
    async def story() -> None:
        owner = Owner()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Talkative(owner), "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            await writer.wait_closed()
            assert await owner.lost == "closed by peer"

    if with_uvloop:
        uvloop = pytest.importorskip("uvloop")
        uvloop.run(guarded(story()))
    else:
        asyncio.run(guarded(story()))


class Page:
    """Takes what is written, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.flushed = 0
        self.told: list[Exception] = []

    def flush(self) -> None:
        if self.error is not None:
            raise self.error
        self.flushed += 1

    def failed(self, error: Exception) -> None:
        self.told.append(error)


@live
async def test_a_connection_that_cannot_write_keeps_no_other_from_writing() -> None:
    writes = Writes()
    error = TypeError("the transport is not what it was")
    before, bad, after = Page(), Page(error), Page()
    for page in (before, bad, after):
        writes.add(page)
    writes.flush()
    assert (before.flushed, bad.told, after.flushed) == (1, [error], 1)


class Hopeless(Page):
    """A writer that cannot be told either that it cannot write."""

    def failed(self, error: Exception) -> None:
        raise error


@live
async def test_no_envelope_outlives_its_burst() -> None:
    """Read or written, sent on or not."""
    writes, envelope = Writes(), seal_envelope(bytes(ENVELOPE_BYTES))
    for writers in ([], [Page()], [Page(), Page()]):
        writes.begin()
        writes.envelopes.keep(envelope)
        writes.share(bytes(ENVELOPE_BYTES))
        for page in writers:
            writes.add(page)
        assert len(writes.envelopes) == 2
        writes.end()
        assert len(writes.envelopes) == 0


@live
async def test_no_envelope_outlives_the_tick_that_shared_it() -> None:
    """No connection has to write the packet: each may have closed."""
    writes = Writes()
    writes.share(bytes(ENVELOPE_BYTES))
    assert len(writes.envelopes) == 1
    await asyncio.sleep(0)
    assert len(writes.envelopes) == 0


@live
async def test_no_envelope_outlives_a_burst_that_raises() -> None:
    writes = Writes()
    writes.begin()
    writes.share(bytes(ENVELOPE_BYTES))
    writes.add(Hopeless(TypeError("the transport is not what it was")))
    with pytest.raises(TypeError, match="not what it was"):
        writes.end()
    assert len(writes.envelopes) == 0


class Stubborn(asyncio.Transport):
    """A transport that takes nothing."""

    aborted = False

    def writelines(self, list_of_data: object) -> None:
        raise TypeError("'NoneType' object is not callable")

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


@live
async def test_a_connection_that_cannot_write_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    connection = Connection(owner, dialled=True)  # it greets
    transport = Stubborn()
    connection.connection_made(transport)
    owner.writes.flush()
    assert transport.aborted
    assert connection.closing
    assert "cannot write: TypeError" in caplog.text


class Full(asyncio.Transport):
    """A transport of which the network has not yet taken everything."""

    def writelines(self, list_of_data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 300


@live
async def test_the_backlog_is_what_a_fault_holds_and_what_the_network_has_not_taken() -> None:
    owner = Owner()
    connection = Connection(owner, dialled=False)
    assert connection.backlog() == 0
    connection.connection_made(Full())
    assert connection.backlog() == 300
    owner.faults.set(None, Rule(delay_s=60))
    connection.send(bytes(500))
    owner.writes.flush()
    assert connection.backlog() == 800
    connection.connection_lost(None)
