"""Live nodes on links that delay, lose and are cut on purpose: the protocol repairs it all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import cubecast
from cubecast.errors import JoinError
from cubecast.net.links.connection import Connection
from cubecast.net.links.faults import MAX_HELD, LinkFaults, Rule, Shaper
from cubecast.net.links.transport import Factory, Server, TcpNetwork
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.settings.config import NodeConfig
from cubecast.net.wire.hello import Hello, Refused, new_nonce
from cubecast.net.wire.packets import ACK, CONTROL, FRAME, HELLO, PREFIX, VERSION, encode_control
from cubecast.protocol.messages import ParcelAck
from cubecast.trace import Record
from support.live import (
    CUT,
    TOPIC,
    cluster,
    judge,
    live,
    quick_repair,
    raw,
    subscribed,
    take,
    talk,
    until,
)

A_WHILE_S = 0.3
"""How long something is watched that must not happen."""


def cut_between(first: Node, second: Node, rule: Rule = CUT) -> None:
    first.faults.set(second.slot, rule)
    second.faults.set(first.slot, rule)


def break_connections(node: Node, peer: int) -> None:
    """Reset every connection between two nodes."""
    for connection in list(shell_of(node).mesh._open):
        if connection.slot == peer:
            connection.abort()


def heal(*nodes: Node) -> None:
    for node in nodes:
        node.faults.clear()


def everything_in_order(heard: list[list[object]], sources: list[int], each: int) -> None:
    for messages in heard:
        for source in sources:
            mine = [one.seq for one in messages if one.source == source]  # type: ignore[attr-defined]
            assert mine == list(range(each))


# -- delay and loss --------------------------------------------------------------------------------


@live
async def test_an_answer_that_arrives_before_its_question_waits_for_it() -> None:
    trace: list[Record] = []
    async with (
        cluster(3, trace=trace, protocol=quick_repair(), trace_arrivals=True) as nodes,
        subscribed(nodes) as subscriptions,
    ):
        nodes[0].faults.set(2, Rule(delay_s=0.3))
        await nodes[0].publish(TOPIC, "question")
        assert (await anext(subscriptions[1])).payload == b"question"
        await nodes[1].publish(TOPIC, "answer")
        heard = await take(subscriptions[2], 2)
        assert [message.payload for message in heard] == [b"question", b"answer"]
        arrived = [one.source for one in trace if one.kind == "receive" and one.node == 2]
        assert arrived[:2] == [1, 0]
    judge(trace, 2)


@pytest.mark.parametrize(
    "rule",
    [Rule(loss=0.2), Rule(loss=0.2, delay_s=0.002, jitter_s=0.01)],
    ids=["loss", "loss and jitter"],
)
@live
async def test_a_fifth_lost_on_every_link_and_everything_arrives_once_in_order(rule: Rule) -> None:
    """Also while nodes join, subscribe and leave."""
    trace: list[Record] = []
    each, count = 60, 4
    nodes: list[Node] = []
    for index in range(count):
        faults = LinkFaults(default=rule, random=Random(index))
        config = NodeConfig(protocol=quick_repair())
        nodes.append(Shell(config, trace=trace, faults=faults).node)
        await shell_of(nodes[-1]).start(nodes[0].address if index else None)
    async with subscribed(nodes) as subscriptions:
        reading = asyncio.gather(*(take(one, each * count) for one in subscriptions))
        await asyncio.gather(*(talk(node, each) for node in nodes))
        everything_in_order(await reading, list(range(count)), each)
    assert all(node.faults.lost > 10 for node in nodes)
    for node in reversed(nodes):
        await node.close()
    judge(trace, each * count)


@live
async def test_a_leave_over_slow_links_loses_nothing() -> None:
    """The last words of a connection are delayed, not cut off by its end."""
    trace: list[Record] = []
    async with cluster(3, trace=trace) as nodes, subscribed(nodes[:2]) as subscriptions:
        for node in nodes:
            node.faults.set(None, Rule(delay_s=0.05))
        leaver = nodes.pop()
        await leaver.publish(TOPIC, "last words")
        await leaver.close()
        for one in subscriptions:
            assert (await anext(one)).payload == b"last words"
        assert {tuple(node.members) for node in nodes} == {(0, 1)}
    judge(trace, 1)


@live
async def test_a_refusal_over_a_slow_link_still_says_why() -> None:
    """What was said before the end of a connection arrives before it."""
    async with cluster(1) as nodes, raw(nodes[0]) as client:
        nodes[0].faults.set(None, Rule(delay_s=0.05))
        client.greet(Hello(VERSION + 1, new_nonce()))
        assert isinstance(await client.greeting(), Refused)
        await client.ended()


# -- cuts ------------------------------------------------------------------------------------------


@live
async def test_a_cut_in_the_middle_heals_without_loss() -> None:
    trace: list[Record] = []
    each = 50
    async with (
        cluster(3, trace=trace, protocol=quick_repair()) as nodes,
        subscribed(nodes) as subscriptions,
    ):
        await talk(nodes[0], each)
        assert len(await take(subscriptions[2], each)) == each
        cut_between(nodes[0], nodes[2])
        await talk(nodes[0], each)
        assert len(await take(subscriptions[1], 2 * each)) == 2 * each
        late = asyncio.create_task(take(subscriptions[2], each))
        done, _ = await asyncio.wait([late], timeout=1.0)
        assert not done
        assert nodes[0].faults.lost > 0
        heal(*nodes)
        assert [message.seq for message in await late] == list(range(each, 2 * each))
    judge(trace, 2 * each)


@live
async def test_one_node_can_isolate_itself() -> None:
    trace: list[Record] = []
    async with (
        cluster(3, trace=trace, protocol=quick_repair()) as nodes,
        subscribed(nodes) as subscriptions,
    ):
        nodes[2].faults.set(None, CUT)
        await nodes[0].publish(TOPIC, "is anybody there?")
        await nodes[2].publish(TOPIC, "no node is here")
        heard = asyncio.create_task(take(subscriptions[2], 2))
        assert (await anext(subscriptions[1])).source == 0
        others = asyncio.create_task(take(subscriptions[1], 1))
        done, _ = await asyncio.wait([heard, others], timeout=A_WHILE_S)
        assert not done
        heal(nodes[2])
        assert {message.source for message in await heard} == {0, 2}
        assert (await others)[0].source == 2
    judge(trace, 2)


@live
async def test_over_a_one_way_cut_what_arrives_is_taken() -> None:
    trace: list[Record] = []
    async with (
        cluster(2, trace=trace, protocol=quick_repair()) as nodes,
        subscribed(nodes) as subscriptions,
    ):
        nodes[0].faults.set(1, Rule(cut_outgoing=True))
        receipt = await nodes[1].publish(TOPIC, "heard, not acknowledged", receipt=True)
        assert receipt is not None
        assert (await anext(subscriptions[0])).source == 1
        await nodes[0].publish(TOPIC, "not heard")
        stable = asyncio.ensure_future(receipt.stable())
        assert (await anext(subscriptions[1])).source == 1
        answer = asyncio.create_task(take(subscriptions[1], 1))
        done, _ = await asyncio.wait([stable, answer], timeout=A_WHILE_S)
        assert not done
        heal(nodes[0])
        assert (await answer)[0].payload == b"not heard"
        await stable
    judge(trace, 2)


@live
async def test_a_subscribe_waits_out_a_cut() -> None:
    trace: list[Record] = []
    async with cluster(3, trace=trace, protocol=quick_repair()) as nodes:
        cut_between(nodes[0], nodes[2])
        messages = nodes[2].subscribe(TOPIC)
        entering = asyncio.ensure_future(messages.__aenter__())
        done, _ = await asyncio.wait([entering], timeout=A_WHILE_S)
        assert not done
        heal(*nodes)
        await entering
        await nodes[1].publish(TOPIC, "welcome")
        assert (await anext(messages)).payload == b"welcome"
        await messages.close()
    judge(trace, 1)


@live
async def test_a_join_waits_out_a_cut_between_members() -> None:
    """Every member that stays takes part in a change; one that cannot is waited for a while."""
    async with cluster(3) as nodes:
        cut_between(nodes[0], nodes[1])
        newcomer = Shell(NodeConfig()).node
        joining = asyncio.create_task(shell_of(newcomer).start(nodes[2].address))
        done, _ = await asyncio.wait([joining], timeout=A_WHILE_S)
        assert not done
        assert not any(3 in node.members for node in nodes)
        heal(*nodes)
        await joining
        nodes.append(newcomer)
        assert {tuple(node.members) for node in nodes} == {(0, 1, 2, 3)}


@live
async def test_a_newcomer_that_is_cut_off_cannot_join() -> None:
    async with cluster(1) as nodes:
        newcomer = Shell(NodeConfig(), faults=LinkFaults(default=CUT)).node
        with pytest.raises(JoinError, match="the link is cut"):
            await shell_of(newcomer).start(nodes[0].address)


@live
async def test_a_seed_that_is_cut_off_hears_a_newcomer_when_the_cut_is_over() -> None:
    async with cluster(1) as nodes:
        nodes[0].faults.set(None, CUT)
        newcomer = Shell(NodeConfig()).node
        joining = asyncio.create_task(shell_of(newcomer).start(nodes[0].address))
        done, _ = await asyncio.wait([joining], timeout=A_WHILE_S)
        assert not done
        heal(nodes[0])
        await joining
        nodes.append(newcomer)
        assert tuple(nodes[0].members) == (0, 1)


@live
async def test_dialling_over_a_cut_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cubecast")
    async with cluster(3) as nodes:
        cut_between(nodes[1], nodes[2])
        break_connections(nodes[1], 2)
        async with nodes[2].subscribe(TOPIC) as messages:
            await nodes[1].publish(TOPIC, "at last")
            await until(lambda: caplog.text.count("cannot reach node 2") > 2)
            heal(*nodes)
            assert (await anext(messages)).payload == b"at last"


class Rude(asyncio.Protocol):
    """Hangs up at once."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Rude.count += 1
        transport.close()


class Detour(TcpNetwork):
    """Leads the first four dials of one of `ports` to another port."""

    def __init__(self, elsewhere: int) -> None:
        self.ports: set[int] = set()
        self._elsewhere = elsewhere
        self._left = 4

    async def dial(self, factory: Factory, host: str, port: int) -> None:
        if port in self.ports and self._left:
            self._left -= 1
            port = self._elsewhere
        await super().dial(factory, host, port)


@live
async def test_a_member_that_hangs_up_during_the_handshake_is_dialled_again() -> None:
    """Even if it did not say its slot."""
    Rude.count = 0
    rude = await asyncio.get_running_loop().create_server(Rude, "127.0.0.1", 0)
    detour = Detour(rude.sockets[0].getsockname()[1])
    async with cluster(1) as nodes:
        nodes += [
            Shell(NodeConfig(), network=detour).node,
            Shell(NodeConfig(), network=detour).node,
        ]
        for node in nodes[1:]:
            await shell_of(node).start(nodes[0].address)
        await until(lambda: 2 in nodes[1].members)
        shell_of(nodes[1]).mesh.send(2, encode_control(ParcelAck(0)))  # have them connect
        await until(lambda: 2 in shell_of(nodes[1]).mesh._connections)
        detour.ports = {int(node.address.rpartition(":")[2]) for node in nodes[1:]}
        break_connections(nodes[1], 2)
        async with nodes[2].subscribe(TOPIC) as messages:
            await nodes[1].publish(TOPIC, "got through")
            assert (await anext(messages)).payload == b"got through"
        assert Rude.count == 4
    rude.close()


# -- what a shaper does to packets -----------------------------------------------------------------


class Line:
    """The end of a connection that notes what is written."""

    def __init__(self, slot: int = 1) -> None:
        self.link = slot
        self.uid = "another"
        self.shaper: Shaper | None = None
        self.written: list[bytes] = []
        self.read = 0
        self.closed: list[str] = []

    def write(self, packets: list[bytes]) -> None:
        self.written += packets

    def resume(self) -> None:
        self.read += 1

    def close(self, reason: str) -> None:
        self.closed.append(reason)

    def drained(self) -> None:
        self.closed.append("drained")


def packets(*kinds: int) -> list[bytes]:
    """One packet of each kind, numbered."""
    return [
        PREFIX.pack(5, kind) + number.to_bytes(4, "little") for number, kind in enumerate(kinds)
    ]


def opened(faults: LinkFaults) -> tuple[Line, Shaper]:
    line = Line()
    faults.opened(line)
    assert line.shaper is not None
    return line, line.shaper


@contextmanager
def stopped_clock() -> Iterator[None]:
    """No time passes for the running loop, however long the machine takes over what is done."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", lambda: now)
        yield


@live
async def test_a_constant_delay_keeps_the_order() -> None:
    line, shaper = opened(LinkFaults({1: Rule(delay_s=0.01)}))
    sent = packets(*[FRAME, ACK, CONTROL, HELLO] * 50)
    with stopped_clock():
        for start in range(0, len(sent), 10):
            shaper.send(sent[start : start + 10])
        assert line.written == []
    await until(lambda: len(line.written) == len(sent))
    assert line.written == sent


@live
async def test_with_jitter_packets_overtake_each_other_but_never_a_greeting() -> None:
    faults = LinkFaults({1: Rule(jitter_s=0.05)}, random=Random(7))
    line, shaper = opened(faults)
    sent = packets(*[FRAME] * 20, HELLO, *[FRAME] * 20)
    shaper.send(sent)
    await until(lambda: len(line.written) == len(sent))
    assert line.written != sent
    assert set(line.written[:20]) == set(sent[:20])
    assert line.written[20] == sent[20]


@live
async def test_loss_takes_its_share_and_no_greeting() -> None:
    faults = LinkFaults({1: Rule(loss=0.25)}, random=Random(1))
    line, shaper = opened(faults)
    sent = packets(*[FRAME, HELLO] * 1000)
    shaper.send(sent)
    greetings = [packet for packet in sent if packet[4] == HELLO]
    assert [packet for packet in line.written if packet[4] == HELLO] == greetings
    assert faults.lost == len(sent) - len(line.written)
    assert 200 < faults.lost < 300


@live
async def test_greetings_wait_out_a_cut_in_both_directions() -> None:
    faults = LinkFaults({1: CUT})
    line, shaper = opened(faults)
    sent = packets(FRAME, HELLO, ACK, HELLO)
    shaper.send(sent)
    arriving = [(packet[4], packet) for packet in sent]
    assert shaper.packets_after_handshake(arriving) == []
    assert (line.written, faults.lost) == ([], 4)
    faults.clear()
    await until(lambda: line.read == 1 and len(line.written) == 2)
    assert line.written == [sent[1], sent[3]]
    late = (FRAME, packets(FRAME)[0])
    assert shaper.packets_after_handshake([late]) == [arriving[1], arriving[3], late]


@live
async def test_packets_that_wait_out_a_cut_are_bounded_by_the_connection() -> None:
    for way in ("out", "in"):
        line, shaper = opened(LinkFaults({1: CUT}))
        greeting = packets(HELLO)[0]
        for _ in range(MAX_HELD + 1):
            assert line.closed == []
            if way == "out":
                shaper.send([greeting])
            else:
                shaper.packets_after_handshake([(HELLO, greeting)])
        assert len(line.closed) == 1
        assert "cut" in line.closed[0]


@live
async def test_a_connection_has_a_shaper_only_while_there_is_something_to_do() -> None:
    faults, line = LinkFaults(), Line()
    faults.opened(line)
    assert line.shaper is None
    faults.set(3, Rule(loss=0.5))
    assert line.shaper is not None
    faults.clear()
    assert line.shaper is None
    faults.closed(line)


@live
async def test_a_shaper_that_holds_something_when_the_faults_end_goes_when_it_is_done() -> None:
    faults = LinkFaults({1: Rule(delay_s=0.01)})
    line, shaper = opened(faults)
    with stopped_clock():
        shaper.send(packets(FRAME))
        faults.clear()
        assert line.shaper is shaper
    await until(lambda: line.shaper is None)
    assert line.written == packets(FRAME)

    faults.set(1, CUT)
    late = line.shaper
    assert late is not None
    late.packets_after_handshake([(HELLO, packets(HELLO)[0])])
    faults.clear()
    assert line.shaper is late
    assert late.packets_after_handshake([]) == [(HELLO, packets(HELLO)[0])]
    assert line.shaper is None


@live
async def test_a_greeting_that_came_during_a_cut_is_read_when_that_is_over() -> None:
    faults = LinkFaults({1: CUT})
    line, shaper = opened(faults)
    assert not shaper.may_shake_hands()
    assert shaper.busy
    faults.clear()
    assert line.shaper is shaper
    await until(lambda: line.read == 1)
    assert shaper.may_shake_hands()
    assert not shaper.busy


@live
async def test_a_connection_that_ends_is_drained_when_what_was_delayed_is_written() -> None:
    line, shaper = opened(LinkFaults({1: Rule(delay_s=0.01)}))
    shaper.send(packets(FRAME))
    shaper.end()
    assert (line.written, line.closed) == ([], [])
    await until(lambda: line.closed == ["drained"])
    assert line.written == packets(FRAME)


@live
async def test_nothing_more_is_said_to_a_connection_that_is_gone() -> None:
    faults = LinkFaults({1: CUT})
    line, shaper = opened(faults)
    shaper.send(packets(HELLO))
    faults.clear()  # what waited goes out at the end of this tick
    faults.closed(line)
    await asyncio.sleep(0)
    assert (line.shaper, line.written, line.closed) == (None, [], [])


class Fragile(Line):
    """A connection that is lost as something is written to it."""

    def __init__(self, faults: LinkFaults) -> None:
        super().__init__()
        self.faults = faults

    def write(self, packets: list[bytes]) -> None:
        super().write(packets)
        self.faults.closed(self)


@live
async def test_a_connection_may_be_lost_as_a_shaper_writes() -> None:
    faults = LinkFaults({1: Rule(loss=0.0001)})
    line = Fragile(faults)
    faults.opened(line)
    assert line.shaper is not None
    line.shaper.send(packets(HELLO))
    assert (line.written, line.shaper) == (packets(HELLO), None)


class Visited(TcpNetwork):
    """Knows the connections that were accepted."""

    def __init__(self) -> None:
        self.accepted: list[Connection] = []

    async def listen(self, factory: Factory, host: str, port: int) -> Server:
        def accept() -> Any:
            self.accepted.append(connection := factory())
            return connection

        return await super().listen(accept, host, port)


@live
async def test_packets_that_a_fault_holds_back_count_as_backlog() -> None:
    """Or a node would go on sending to a client whose link is slow or cut."""
    network = Visited()
    async with (
        cubecast.start("127.0.0.1:0", network=network) as node,
        cubecast.connect(node.address) as client,
        client.subscribe(TOPIC) as messages,
    ):
        (connection,) = network.accepted
        for rule in (Rule(delay_s=0.2), CUT):
            node.faults.set(None, rule)
            await node.publish(TOPIC, bytes(5000))
            await until(lambda: connection.backlog() > 5000)
            node.faults.clear()
            assert len((await anext(messages)).payload) == 5000
            await until(lambda: connection.backlog() == 0)


# -- rules as text ---------------------------------------------------------------------------------


def test_rules_are_read_from_text_and_written_back() -> None:
    faults = LinkFaults.parse("2: delay=20ms loss=1%; 0,5: cut ;*: jitter=500us cut-outgoing")
    assert faults.rule(2) == Rule(delay_s=0.02, loss=0.01)
    assert faults.rule(0) == faults.rule(5) == CUT
    assert faults.rule(7) == Rule(jitter_s=0.0005, cut_outgoing=True)
    assert str(faults) == "0: cut; 2: delay=20ms loss=1%; 5: cut; *: jitter=0.5ms cut-outgoing"
    assert str(LinkFaults.parse(str(faults))) == str(faults)
    assert faults.longest_s() == 0.02
    assert not LinkFaults.parse("").active
    assert not LinkFaults.parse("3: none").active


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("delay=20ms", "names no peer"),
        ("x: cut", "'x' is no peer"),
        ("-1: cut", "'-1' is no peer"),
        ("1: delay=20", "needs a time with its unit"),
        ("1: delay=-2ms", "needs a time with its unit"),
        ("1: jitter", "needs a time with its unit"),
        ("1: loss=101%", "needs a share"),
        ("1: loss=2", "needs a share"),
        ("1: cut=yes", "'cut=yes' is no fault"),
        ("1: slow", "'slow' is no fault"),
        ("1: loss=1% loss=2%", "says loss twice"),
        ("1:", "says nothing"),
        ("1: cut; 1: cut", "peer 1 already have a rule"),
        ("*: cut; *: cut", "all others already have a rule"),
    ],
)
def test_unclear_rules_are_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        LinkFaults.parse(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "wrong", [{"delay_s": -1.0}, {"jitter_s": float("nan")}, {"loss": 1.5}], ids=str
)
def test_impossible_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be a"):
        Rule(**wrong)  # type: ignore[arg-type]


@live
async def test_a_rule_for_a_uid_goes_before_that_for_a_slot() -> None:
    faults = LinkFaults({1: CUT})
    faults.set("someone", Rule(delay_s=0.001))
    line, shaper = opened(faults)
    shaper.send(packets(FRAME))
    assert faults.lost == 1
    line.uid = "someone"
    shaper.send(packets(FRAME))
    await until(lambda: len(line.written) == 1)
    assert str(faults) == "1: cut; someone: delay=1ms"


@live
async def test_a_peer_that_is_cut_by_its_uid_is_reached_when_that_is_over() -> None:
    async with cluster(2) as (one, other), subscribed([other]) as (messages,):
        one.faults.set(other.uid, CUT)
        other.faults.set(one.uid, CUT)
        for connection in list(shell_of(one).mesh._open):
            connection.abort()
        await one.publish(TOPIC, "held back")
        await asyncio.sleep(A_WHILE_S)
        assert messages.unread == 0
        heal(one, other)
        assert [message.payload for message in await take(messages, 1)] == [b"held back"]
