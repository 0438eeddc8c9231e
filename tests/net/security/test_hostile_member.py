"""A member that knows the secret and keeps to nothing, against live nodes on real sockets.

The mole has a slot and runs the protocol, so that the cluster works; besides, it opens connections
of its own and sends noise, broken packets, packets of its earnest traffic that are changed,
repeated or out of order, and lies that fit the state of its victim.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

import cubecast
from cubecast.errors import JoinError, NotSent, Unknown
from cubecast.net.links import connection as connection_module
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.reading.subscription import Subscription
from cubecast.net.security.handshake import Handshake
from cubecast.net.security.keys import Keys
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.hello import (
    AttachRequest,
    Hello,
    Opening,
    Ready,
    Refused,
    encode_greeting,
)
from cubecast.net.wire.packets import (
    MAX_TOPIC,
    PREFIX,
    VIEW,
    encode_control,
)
from cubecast.net.wire.views import decode_view, encode_detector, encode_forward, encode_view
from cubecast.protocol.cluster import detector
from cubecast.protocol.cluster.views import (
    Ballot,
    Beacon,
    Depart,
    Enter,
    Install,
    Installed,
    Prepare,
    Report,
    Stuck,
    View,
    ViewId,
    Who,
)
from cubecast.protocol.config import Config
from cubecast.protocol.messages import (
    Ack,
    Answer,
    Frame,
    Parcel,
    ParcelAck,
    Release,
    Stable,
    Wave,
)
from cubecast.testing.dialler import Dialler, DiallerParty
from cubecast.topology import parent
from support.insider import SECRET, packet_of
from support.lies import ATTACKED, QUIET, Liar, check_bounds
from support.live import PATIENCE_S, cluster, guarded, join, live, raw, take, until
from support.packets import mutate

HONEST = (0, 1, 2)


@pytest.fixture(autouse=True)
def _reasons_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cubecast")


class Victim(Shell):
    """A node that counts the packets it looks at on the connections of an attack."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self.hostile_ports: set[int] = set()
        self.looked_at = 0

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        port = connection._transport.get_extra_info("peername")[1]
        hostile = port in self.hostile_ports
        for packet in packets:
            self.looked_at += hostile
            super().received(connection, [packet])


class Mole(Shell):
    """A node that keeps what it says of the attacked topic, to be said again otherwise."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self.said: deque[Any] = deque(maxlen=200)

    def relay(self, peers: Any, message: Any) -> None:
        self._keep(message)
        super().relay(peers, message)

    def control(self, peer: int, message: Any) -> None:
        self._keep(message)
        super().control(peer, message)

    def _keep(self, message: Any) -> None:
        about = getattr(message, "message", message)
        if isinstance(message, ParcelAck) or getattr(about, "topic", "") == ATTACKED:
            self.said.append(message)


class Reasons(logging.Handler):
    """Counts why connections were closed, and keeps what must not happen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.closed: Counter[str] = Counter()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(self.format(record))
        elif record.getMessage().startswith("closing connection to"):
            reason = record.getMessage().partition(": ")[2]
            self.closed["".join(" " if one.isdigit() else one for one in reason)[:40]] += 1


@asynccontextmanager
async def reasons() -> AsyncIterator[Reasons]:
    log = logging.getLogger("cubecast")
    handler = Reasons()
    log.addHandler(handler)
    propagate, log.propagate = log.propagate, False
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
        log.setLevel(level)


class Attack:
    """The mole's own connections to its victims."""

    def __init__(self, random: Random, mole: Mole, victims: list[Victim]) -> None:
        self.random = random
        self.mole = mole
        self.victims = victims
        nodes = {victim.slot: victim.core for victim in victims}
        lives = {node.slot: node.member.incarnation for node in (*victims, mole)}
        self.liar = Liar(random, nodes, lives, mole.said)

    def packet(self, victim: Victim) -> bytes:
        random = self.random
        kind = random.randrange(20)
        if kind == 0:
            return random.randbytes(random.randint(1, 200))
        if kind == 1:
            body = random.randbytes(random.randint(0, 200))
            return PREFIX.pack(1 + len(body), random.randint(0, 10)) + body
        if kind == 2:
            return self.about_the_cluster(victim)
        if kind < 9 and self.mole.said:
            earnest = packet_of(random.choice(self.mole.said))
            if kind < 6:
                return earnest  # again, or too late
            broken = mutate(earnest, random)
            return PREFIX.pack(len(broken) - 4, broken[4]) + broken[5:]
        return packet_of(self.liar.lie(victim.slot))

    def about_the_cluster(self, victim: Victim) -> bytes:
        """What contradicts itself, is old or cannot be; a view that fits is believed of members."""
        view = victim.member.view
        assert view is not None
        old, nobody = ViewId(0, Ballot(0, 0)), View(view.id, {})
        nowhere = View(view.id, {0: Who("x", "::::::]:x", 1)})
        mine = self.mole.member.who
        distant = ViewId(1 << self.random.randint(9, 61), view.id.ballot)
        far = View(distant, view.members, view.cluster)
        names = {slot: Who(f"nobody{slot}", f"127.0.0.1:{slot}", 1) for slot in range(1, 300)}
        crowd = View(ViewId(view.epoch + 1, Ballot(9, 9)), names, view.cluster)
        return self.random.choice(
            [
                encode_view(Install(Ballot(9, 9), view.id, far, {}, {})),
                encode_view(Install(Ballot(1 << 61, 9), view.id, view, {}, {})),
                encode_view(Report(Ballot(7, 7), Ballot(1 << 61, 8), None, {})),
                encode_view(Prepare(Ballot(1 << 61, 9), view.id, view.mask)),
                encode_view(Beacon(names[1].uid, crowd)),
                encode_view(Beacon(mine.uid, crowd)),
                encode_view(Enter(Who(mine.uid + ".9", "127.0.0.1:1", 1), 9)),
                encode_view(Install(Ballot(9, 9), view.id, nobody, {}, {})),
                encode_view(Install(Ballot(9, 9), view.id, nowhere, {}, {})),
                encode_view(Beacon(mine.uid, nobody)),
                encode_view(Enter(Who(mine.uid, "::::::]:x", 1), 9999)),
                encode_view(Prepare(Ballot(0, 0), view.id, 0)),
                encode_view(Report(Ballot(7, 7), Ballot(8, 8), None, {})),
                encode_view(Installed(old)),
                encode_view(Stuck(old)),
                encode_view(Depart("somebody")),
                encode_detector(detector.TestReply(12345, 1 << 90)),
                encode_detector(detector.Vouch(12345, 1)),
                encode_detector(detector.Test(1 << 61, 1 << 99)),
                encode_forward(victim.slot, 9, 0, encode_control(ParcelAck(1))),
                encode_forward(9, 9, 0, encode_control(ParcelAck(1))),
                encode_greeting(AttachRequest()),
                encode_greeting(Refused("no")),
            ]
        )

    async def once(self) -> None:
        """One connection: as many packets as the victim takes, or a burst."""
        victim = self.random.choice(self.victims)
        client = await Dialler.dial(victim.address)
        port = client.port
        victim.hostile_ports.add(port)
        try:
            await client.authenticate(SECRET, self.mole.uid, self.mole.slot)
            client.write(b"".join(self.burst(victim)))
            client.say_no_more()
            await client.ended()
        finally:
            client.hang_up()
            victim.hostile_ports.discard(port)

    def burst(self, victim: Victim) -> Iterator[bytes]:
        """Rude: a few of anything, soon refused.  Sly: many that a node may well take."""
        if self.random.random() < 0.4:
            for _ in range(self.random.choice([1, 3, 10])):
                yield self.packet(victim)
        else:
            for _ in range(100):
                message = self.liar.lie(victim.slot)
                if self.is_believable(message, victim):
                    yield packet_of(message)
                elif self.mole.said and self.random.random() < 0.2:
                    yield packet_of(self.random.choice(self.mole.said))

    def is_believable(self, message: Any, victim: Victim) -> bool:
        """Whether a lie fits at least the place that the mole has in the victim's trees."""
        said = message.message if isinstance(message, Parcel) else message
        me, node = self.mole.slot, victim.slot
        match said:
            case Frame():
                return parent(said.stream.source, node, said.route.members) == me
            case Stable():
                return parent(said.stream.source, node, said.members) == me
            case Wave():
                return parent(said.origin, node, said.cluster) == me
            case Release():
                return said.stream.source == me
            case Ack():
                return said.stream.source != node
            case ParcelAck():
                return said.expected <= victim.core._links._link(me).next_number
            case Answer():
                return False
        return True

    async def until(self, looked_at: int) -> None:
        """Go on until the victims have looked at so many packets more.

        Each connection is waited for with patience, not all of them together: how many the machine
        handles in a time is not what is tested.
        """
        before = sum(victim.looked_at for victim in self.victims)
        while sum(victim.looked_at for victim in self.victims) - before < looked_at:
            async with asyncio.timeout(PATIENCE_S):
                await self.once()


class Conversation:
    """Honest nodes talk on two topics; what they say on the quiet one is numbered and checked."""

    def __init__(self, victims: list[Victim], mole: Mole, readers: list[Subscription]) -> None:
        self.victims = victims
        self.mole = mole
        self.readers = readers
        self.said = dict.fromkeys(HONEST, 0)
        self.heard: list[Counter[int]] = [Counter() for _ in readers]
        self.over = False

    async def talk(self) -> None:
        while not self.over:
            for victim in self.victims:
                await victim.node.publish(QUIET, str(self.said[victim.slot]))
                self.said[victim.slot] += 1
            await asyncio.sleep(0.002)

    async def gossip(self, node: Node) -> None:
        """What the mole is after: it may be held up, and that is all."""
        while not self.over:
            with suppress(NotSent):
                await node.publish(ATTACKED, b"gossip")
            await asyncio.sleep(0.01)

    async def listen(self, index: int) -> None:
        heard = self.heard[index]
        async for message in self.readers[index]:
            assert int(message.payload) == heard[message.source], f"lost or out of order: {message}"
            heard[message.source] += 1

    async def everything_is_heard(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while any(dict(heard) != self.said for heard in self.heard):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def besieged() -> AsyncIterator[tuple[list[Victim], Mole]]:
    """Three nodes and a mole, all in the attacked topic; closed also if the test fails."""
    config: dict[str, Any] = {
        "secret": SECRET,
        "publish_timeout_s": 0.2,
        "leave_timeout_s": 0.2,
        "protocol": Config(
            window=64 * 1024,
            ack_delay=1_000,
            stable_delay=20_000,
            resend_after=100_000,
            resend_max=1_000_000,
        ),
    }
    victims = [Victim(NodeConfig(**config)) for _ in HONEST]
    mole = Mole(NodeConfig(**config))
    shells: list[Shell] = [*victims, mole]
    try:
        for shell in shells:
            await shell.start(None if shell is shells[0] else shells[0].address)
        for shell in shells:
            await shell.node.subscribe(ATTACKED, policy="drop-oldest").__aenter__()
        yield victims, mole
    finally:
        for shell in shells:
            with suppress(NotSent, Unknown):  # in the attacked topic something may be left
                await shell.node.close()


async def besiege(seed: int, rounds: int, packets: int) -> tuple[Reasons, list[int]]:
    """Attack three nodes that talk; return why connections were closed, and RSS by round."""
    sizes = []
    async with reasons() as why, besieged() as (victims, mole):
        readers = [await victim.node.subscribe(QUIET).__aenter__() for victim in victims]
        conversation = Conversation(victims, mole, readers)
        listening = [asyncio.create_task(conversation.listen(index)) for index in HONEST]
        talking = [asyncio.create_task(conversation.talk())]
        talking += [asyncio.create_task(conversation.gossip(one.node)) for one in (*victims, mole)]
        attack = Attack(Random(seed), mole, victims)
        for _ in range(rounds):
            await attack.until(packets)
            for victim in victims:
                check_bounds(victim.core)
            sizes.append(resident_bytes())
        conversation.over = True
        await asyncio.wait_for(asyncio.gather(*talking), PATIENCE_S)
        await conversation.everything_is_heard()
        assert min(conversation.said.values()) > 0
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    return why, sizes


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_hostile_member_hurts_only_its_own_connections() -> None:
    why, _ = asyncio.run(guarded_result(besiege(1, 4, 2000)))
    assert not why.errors, why.errors[0]
    assert sum(why.closed.values()) > 50
    assert len(why.closed) > 10


async def guarded_result(work: Any) -> Any:
    results: list[Any] = []

    async def run() -> None:
        results.append(await work)

    await guarded(run(), 20 * PATIENCE_S)
    return results[0]


@pytest.mark.soak
def test_a_million_packets_of_a_hostile_member() -> None:
    why, sizes = asyncio.run(besiege(2, 50, 20_000))
    assert not why.errors, why.errors[0]
    assert sizes[-1] - sizes[4] < 100_000_000, sizes


# -- one trick at a time ---------------------------------------------------------------------------


@live
async def test_a_peer_that_does_not_read_is_cut_off_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit, payload, count = 32 * 1024 * 1024, bytes(1024 * 1024), 60
    window = Config(
        window=1 << 27,
        ack_delay=1_000,
        stable_delay=20_000,
        resend_after=100_000,
        resend_max=1_000_000,
    )
    async with (
        cluster(2, secret=SECRET, unread_bytes=limit, protocol=window) as nodes,
        nodes[1].subscribe(ATTACKED, queue_bytes=1 << 30) as reader,
    ):
        await nodes[0].publish(ATTACKED, b"first")
        assert (await anext(reader)).payload == b"first"
        for connection in shell_of(nodes[1]).mesh._open:
            connection._transport.pause_reading()
        largest = 0
        for number in range(count):
            await nodes[0].publish(ATTACKED, number.to_bytes(2, "big") + payload)
            await asyncio.sleep(0)
            for connection in shell_of(nodes[0]).mesh._open:
                if connection._transport is not None:
                    largest = max(largest, connection._transport.get_write_buffer_size())
        messages = await take(reader, count)
        assert [int.from_bytes(one.payload[:2], "big") for one in messages] == list(range(count))
        assert "bytes unread" in caplog.text
        assert largest < limit + 4 * len(payload)


@live
async def test_strangers_are_bounded_and_keep_no_newcomer_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(2, secret=SECRET, max_strangers=8) as nodes:
        flood = [await Dialler.dial(nodes[0].address) for _ in range(50)]
        await until(lambda: "more than 8 strangers at a time" in caplog.text)
        assert (await join(nodes, secret=SECRET)).slot == 2
        assert len(shell_of(nodes[0]).mesh._strangers) <= 8
        await asyncio.gather(*(client.ended() for client in flood[:40]))
        for client in flood:
            await client.close()


@live
async def test_a_key_holder_that_asks_for_nothing_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_S", 0.3)
    async with cluster(1, secret=SECRET) as nodes, raw(nodes[0]) as client:
        await client.authenticate(SECRET)
        await client.ended()
        assert "no request in" in caplog.text


@live
async def test_light_clients_are_no_strangers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They have asked for something, and `max_clients` bounds them: no stranger pushes them out."""
    monkeypatch.setattr(connection_module, "REQUEST_S", 1.0)
    async with cluster(1, secret=SECRET, max_strangers=2) as nodes, AsyncExitStack() as stack:
        address = nodes[0].address
        clients = [
            await stack.enter_async_context(cubecast.connect(address, secret=SECRET))
            for _ in range(4)
        ]
        flood = [await Dialler.dial(nodes[0].address) for _ in range(10)]
        await until(lambda: "more than 2 strangers at a time" in caplog.text)
        await asyncio.gather(*(client.close() for client in flood))
        async with raw(nodes[0]) as silent:
            await silent.authenticate(SECRET)
            await silent.ended()  # so the time of those before it is over as well
        for client in clients:
            await client.publish(QUIET, b"still here")
            await client.flush()


@live
async def test_a_member_has_few_connections() -> None:
    async with cluster(2, secret=SECRET) as nodes:
        clients = []
        for _ in range(20):
            client = await Dialler.dial(nodes[0].address)
            await client.authenticate(SECRET, nodes[1].uid, 1)
            clients.append(client)
        await asyncio.gather(*(client.ended() for client in clients[:15]))
        assert len(shell_of(nodes[0]).mesh._open) <= 5
        for client in clients:
            await client.close()


REQUESTS = {
    "for another node": encode_view(Enter(Who("somebody", "127.0.0.1:1", 1), -1)),
    "beacon of another node": encode_view(
        Beacon("somebody", View(ViewId(1, Ballot(1, 0)), {0: Who("somebody", "127.0.0.1:1", 1)}))
    ),
    "Enter out of bounds": encode_view(Enter(Who("raw", "nowhere:70000", 1), -1)),
    "Refused after the handshake": encode_greeting(Refused("")),
    "kind 10": PREFIX.pack(1, 10),
    "broken part": PREFIX.pack(1, 9),
}


@pytest.mark.parametrize("reason", REQUESTS)
@live
async def test_requests_that_make_no_sense(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(1, secret=SECRET, leave_timeout_s=0.1) as nodes, raw(nodes[0]) as client:
        await client.authenticate(SECRET)
        client.write(REQUESTS[reason])
        await client.ended()
        assert reason in caplog.text


@live
async def test_a_key_holder_that_is_no_member_hears_where_the_cluster_is() -> None:
    """It may have been one; nothing that it says as a member is taken."""
    async with cluster(2, secret=SECRET) as nodes, raw(nodes[0]) as client:
        view = shell_of(nodes[0]).member.view
        assert view is not None
        await client.authenticate(SECRET, "raw", 1)
        client.write(encode_view(Prepare(Ballot(99, 1), view.id, 0b11)))
        client.write(encode_control(ParcelAck(5)))
        packet = await client.packet()
        assert packet is not None
        assert packet[0] == VIEW
        assert decode_view(packet[1]) == Beacon(nodes[0].uid, view)
        assert shell_of(nodes[0]).member.view == view


@live
async def test_a_key_holder_outside_cannot_change_the_view() -> None:
    async with cluster(3, secret=SECRET) as nodes:
        view = shell_of(nodes[1]).member.view
        assert view is not None
        changed = View(ViewId(99, Ballot(99, 0)), {1: shell_of(nodes[1]).member.who})
        async with raw(nodes[1]) as client:
            await client.authenticate(SECRET)
            client.write(encode_view(Install(Ballot(99, 0), view.id, changed, {}, {})))
            client.write(encode_control(ParcelAck(0)))
            assert await client.packet() is not None  # it has been looked at
        assert nodes[1].epoch < 99


@asynccontextmanager
async def impostor(*answers: bytes) -> AsyncIterator[str]:
    """A server that knows the secret and answers each request for a place with `answers`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Dialler(reader, writer)
        with suppress(AssertionError, ConnectionError):
            hello = await client.greeting()
            assert isinstance(hello, Hello)
            party = DiallerParty(Keys(SECRET), "impostor", 0, salt="ab" * 16)
            handshake = Handshake(party, dialled=False)
            answer = handshake.take(hello, encode_greeting(hello))
            assert answer is not None
            client.write(answer)
            await client.shake(handshake)
            assert isinstance(await client.greeting(), Ready)
            packet = await client.packet()
            assert packet is not None
            assert isinstance(decode_view(packet[1]), Enter)
            for answer in answers:
                client.write(answer)
            await client.ended()
        await client.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    address = f"{host}:{port}"
    try:
        yield address
    finally:
        server.close()


NOT_US = View(ViewId(1, Ballot(1, 0)), {0: Who("x", "127.0.0.1:1", 1)})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (encode_view(Install(Ballot(1, 0), NOT_US.id, NOT_US, {}, {})), "no answer in 0.5 s"),
        (encode_view(Beacon("x", NOT_US)), "a beacon of another node"),
        (encode_greeting(Refused("you do not please us")), "you do not please us"),
        (encode_greeting(Opening(b"")), "Opening after the handshake"),
    ],
)
@live
async def test_a_seed_that_lies_is_named_in_the_error(answer: bytes, reason: str) -> None:
    async with impostor(answer) as address:
        node = Shell(NodeConfig(secret=SECRET, join_timeout_s=0.5))
        with pytest.raises(JoinError, match=reason):
            await node.start(address)


@live
async def test_packets_before_the_welcome_are_bounded() -> None:
    """Members may speak before the welcome arrives, but not for ever."""
    async with impostor() as address:
        node = Shell(NodeConfig(secret=SECRET, join_timeout_s=PATIENCE_S))
        joining = asyncio.create_task(node.start(address))
        await until(lambda: node.salt)  # of the node it asks: before, it accepts no peer
        client = await Dialler.dial(node.address)
        await client.authenticate(SECRET, "early", 5)
        noise = PREFIX.pack(1 + (1 << 20), 3) + bytes(1 << 20)
        for _ in range(40):
            client.write(noise)
        await client.ended()
        await client.close()
        joining.cancel()
        with suppress(asyncio.CancelledError):
            await joining


@live
async def test_a_name_too_long_for_a_topic() -> None:
    async with cluster(1) as nodes:
        with pytest.raises(ValueError, match="at most"):
            await nodes[0].publish("x" * (MAX_TOPIC + 1), b"")
        with pytest.raises(ValueError, match="at most"):
            await nodes[0].subscribers("x" * (MAX_TOPIC + 1))


@live
async def test_a_member_gone_while_it_was_admitted_does_not_stay() -> None:
    async with cluster(2, secret=SECRET, leave_timeout_s=0.1) as nodes:
        async with raw(nodes[0]) as client:
            await client.authenticate(SECRET)
            client.write(encode_view(Enter(Who("raw", "127.0.0.1:1", 1), -1)))
            await until(lambda: 2 in nodes[0].members)
            client.hang_up()
        await until(lambda: all(2 not in node.members for node in nodes))
