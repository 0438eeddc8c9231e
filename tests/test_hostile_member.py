"""A member that knows the secret and keeps to nothing, against live nodes on real sockets.

The mole has a slot and runs the protocol, so that the cluster works; besides, it opens connections
of its own and sends noise, broken packets, packets of its earnest traffic that are changed, repeated
or out of order, and lies that fit the state of its victim.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from test_hostile_core import ATTACKED, QUIET, Liar, check_bounds
from test_live import PATIENCE_S, Raw, cluster, guarded, join, live, raw, subscribed, take
from test_wire import mutate

from cubecast.errors import CubecastError, JoinError, NotSent
from cubecast.net import connection as connection_module
from cubecast.net.config import NodeConfig
from cubecast.net.hello import (
    Challenge,
    ClusterUpdate,
    Greeting,
    Hello,
    JoinRequest,
    LeaveRequest,
    Member,
    Proof,
    Redirect,
    Refused,
    Welcome,
    encode_greeting,
    new_nonce,
    prove,
    transcript,
)
from cubecast.net.node import Node
from cubecast.net.subscription import Subscription
from cubecast.net.wire import (
    MAX_TOPIC,
    PREFIX,
    VERSION,
    Outgoing,
    WireError,
    encode_ack,
    encode_control,
    encode_frame,
)
from cubecast.protocol.config import Config
from cubecast.protocol.messages import Ack, Frame, ParcelAck

SECRET = "open sesame"
HONEST = (0, 1, 2)


class Victim(Node):
    """A node that counts the packets it looks at."""

    looked_at = 0

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        for packet in packets:
            self.looked_at += 1
            super().received(connection, [packet])


class Mole(Node):
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


def packet_of(message: Any) -> bytes:
    """The bytes of an earnest message or of a lie; what cannot be encoded becomes noise."""
    if isinstance(message, Ack):
        return encode_ack(message)
    if not isinstance(message, Frame):
        return encode_control(message)
    if isinstance(message.body, tuple):
        message.body = Outgoing([b"lie"] * len(message.body), 0)
    return encode_frame(message)


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
        lives = {node.slot: node._incarnation for node in (*victims, mole)}
        self.liar = Liar(random, nodes, lives, mole.said)

    def packet(self, victim: Victim) -> bytes:
        random = self.random
        kind = random.randrange(20)
        if kind == 0:
            return random.randbytes(random.randint(1, 200))
        if kind == 1:
            body = random.randbytes(random.randint(0, 200))
            return PREFIX.pack(1 + len(body), random.randint(0, 5)) + body
        if kind == 2:
            return encode_greeting(self.greeting(victim))
        if kind < 9 and self.mole.said:
            earnest = packet_of(random.choice(self.mole.said))
            if kind < 6:
                return earnest  # again, or too late
            broken = mutate(earnest, random)
            return PREFIX.pack(len(broken) - 4, broken[4]) + broken[5:]
        return packet_of(self.liar.lie(victim.slot))

    def greeting(self, victim: Victim) -> Greeting:
        nobody = {3: Member(self.mole.uid, self.mole.address)}
        everyone = {slot: Member("x", "nowhere") for slot in range(4)}
        return self.random.choice(
            [
                ClusterUpdate(1 << 60, nobody),
                ClusterUpdate(1 << 60, everyone),
                ClusterUpdate(0, dict(victim._cluster.members)),
                JoinRequest("somebody", "127.0.0.1:1"),
                JoinRequest(self.mole.uid, "::::::]:x"),
                Welcome(0, 0, {}),
                Redirect("127.0.0.1:1"),
                Refused("no"),
            ]
        )

    async def once(self) -> None:
        """One connection: as many packets as the victim takes, or a burst."""
        victim = self.random.choice(self.victims)
        client = await Raw.dial(victim)
        stop_gently = self.random.random() < 0.5
        try:
            await client.authenticate(SECRET, self.mole.uid, self.mole.slot)
            for _ in range(self.random.choice([1, 3, 10, 40])):
                client.write(self.packet(victim))
            if stop_gently:
                client.finish()
                await client.ended()
            else:
                await asyncio.sleep(0)
        finally:
            hang_up(client)

    async def until(self, looked_at: int) -> None:
        """Go on until the victims have looked at so many packets more."""
        before = sum(victim.looked_at for victim in self.victims)
        while sum(victim.looked_at for victim in self.victims) - before < looked_at:
            await self.once()


def hang_up(client: Raw) -> None:
    """Reset the connection: one that is closed in order would keep its port for a minute."""
    sock = client._writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client._writer.transport.abort()


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
                await victim.publish(QUIET, str(self.said[victim.slot]))
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


async def besiege(seed: int, rounds: int, packets: int) -> tuple[Reasons, list[int]]:
    """Attack three nodes that talk; return why connections were closed, and RSS by round."""
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
    sizes = []
    async with reasons() as why:
        victims = [Victim(NodeConfig(**config)) for _ in HONEST]
        mole = Mole(NodeConfig(**config))
        nodes: list[Node] = [*victims, mole]
        for node in nodes:
            await node.start(None if node is nodes[0] else nodes[0].address)
        for node in nodes:
            await node.subscribe(ATTACKED, policy="drop-oldest").__aenter__()
        readers = [await victim.subscribe(QUIET).__aenter__() for victim in victims]
        conversation = Conversation(victims, mole, readers)
        listening = [asyncio.create_task(conversation.listen(index)) for index in HONEST]
        talking = [asyncio.create_task(conversation.talk())]
        talking += [asyncio.create_task(conversation.gossip(node)) for node in nodes]
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
        for node in nodes:
            await node.close()
    return why, sizes


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def test_a_hostile_member_hurts_only_its_own_connections() -> None:
    why, _ = asyncio.run(guarded_result(besiege(1, 4, 1000)))
    assert not why.errors, why.errors[0]
    assert sum(why.closed.values()) > 100
    assert len(why.closed) > 10


async def guarded_result(work: Any) -> Any:
    results: list[Any] = []

    async def run() -> None:
        results.append(await work)

    await guarded(run())
    return results[0]


@pytest.mark.soak
def test_a_million_packets_of_a_hostile_member() -> None:
    why, sizes = asyncio.run(besiege(2, 50, 20_000))
    assert not why.errors, why.errors[0]
    assert sizes[-1] - sizes[4] < 100_000_000, sizes
