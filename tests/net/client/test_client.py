"""Light clients on real sockets: attached to nodes of a live cluster, never members of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import cubecast
from cubecast.cli.why import explained
from cubecast.errors import AttachError, Closed, CubecastError, NotSent, Overflow, Unknown
from cubecast.net.client.client import Client
from cubecast.net.client.shell import client_shell_of
from cubecast.net.client.subscription import RemoteSubscription
from cubecast.net.events import MemberJoined, MemberLeft, SlowSubscriber
from cubecast.net.gateway import line as line_module
from cubecast.net.message import Message
from cubecast.net.node.node import Node
from cubecast.net.node.shell import shell_of
from cubecast.net.wire.clients import (
    PUBLISH_WINDOW,
    Deliver,
    FromClient,
    Publish,
    Read,
    Subscribe,
    Subscribed,
    Taken,
    encode,
    size_of,
)
from cubecast.net.wire.hello import AttachRequest, Refused
from cubecast.net.wire.packets import MESSAGE_OVERHEAD
from support.clients import RawClient, connected, raw_client, read_to_the_end, settle
from support.live import TOPIC, cluster, join, live, raw, small_window, until

UNDER_WAY = PUBLISH_WINDOW + 8 * 64 * 1024
"""More than fits between two clients with small queues, a few whole frames being the least."""


async def take(subscription: RemoteSubscription, count: int) -> list[Message]:
    return [await anext(subscription) for _ in range(count)]


async def nobody_subscribes(node: Node) -> None:
    while await node.subscribers(TOPIC):
        await asyncio.sleep(0.005)


# -- talking ---------------------------------------------------------------------------------------


@live
async def test_two_clients_on_two_nodes_talk_both_ways() -> None:
    async with (
        cluster(3) as nodes,
        connected(nodes[1:]) as (alice, bob),
        alice.subscribe(TOPIC) as to_alice,
        bob.subscribe(TOPIC) as to_bob,
    ):
        await alice.publish(TOPIC, "hello bob")
        (hello,) = await take(to_bob, 1)
        assert (hello.topic, hello.payload, hello.source, hello.seq) == (TOPIC, b"hello bob", 1, 0)
        await bob.publish(TOPIC, b"hello alice")
        first, answer = await take(to_alice, 2)
        assert first.payload == b"hello bob"
        assert (answer.payload, answer.source, answer.seq) == (b"hello alice", 2, 0)
        assert answer.dependencies == ((1, 0),)
        assert first.published_at == hello.published_at
        assert (alice.slot, bob.slot) == (1, 2)
        assert sorted(nodes[0].members) == [0, 1, 2]


@live
async def test_20000_messages_through_clients_arrive_once_and_in_order() -> None:
    count = 20_000
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC) as messages,
    ):

        async def write() -> None:
            for number in range(count):
                await writer.publish(TOPIC, b"%d" % number)
            await writer.flush()

        received, _ = await asyncio.gather(take(messages, count), write())
        assert [message.payload for message in received] == [b"%d" % n for n in range(count)]
        assert [message.seq for message in received] == list(range(count))


@live
async def test_many_publications_share_a_packet() -> None:
    """Counted at the node: a round trip each would be a packet each."""
    async with cluster(1) as nodes, raw_client(nodes[0]) as reader:
        reader.say(Subscribe(1, TOPIC, "block", 0))
        assert await reader.hear() == Subscribed(1, 256 * 1024)
        async with cubecast.connect(nodes[0].address) as writer:
            await writer.publish(TOPIC, b"first")
            for number in range(1000):
                await writer.publish(TOPIC, b"%d" % number)
        packets: list[Deliver] = []
        while sum(len(packet.payloads) for packet in packets) < 1001:
            packet = await reader.hear()
            assert isinstance(packet, Deliver)
            packets.append(packet)
        assert len(packets) <= 10


@live
async def test_a_large_message_an_empty_one_and_one_that_is_too_large() -> None:
    large = bytes(range(256)) * 32_768
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC) as messages,
    ):
        for payload in (b"small", large, b"", b"small again"):
            await writer.publish(TOPIC, payload)
        received = [message.payload for message in await take(messages, 4)]
        assert received == [b"small", large, b"", b"small again"]
        with pytest.raises(NotSent, match="more than"):
            await writer.publish(TOPIC, large + b"!")


@live
async def test_large_messages_of_several_topics_in_one_tick_stay_within_the_credit() -> None:
    async with (
        cluster(1) as nodes,
        connected(nodes) as (client,),
        client.subscribe("a") as to_a,
        client.subscribe("b") as to_b,
    ):
        await client.publish("a", b"known")
        await client.publish("b", b"known")
        sizes = (10, 60_000, 3_000_000, 70_000, 20, 5_000_000)
        publishing = [client.publish(topic, bytes(size)) for size in sizes for topic in ("b", "a")]
        await asyncio.gather(*publishing)
        for messages in (to_a, to_b):
            received = await take(messages, 1 + len(sizes))
            assert sorted(len(message.payload) for message in received) == sorted((5, *sizes))


@live
async def test_causal_order_through_clients() -> None:
    """A asks on node 1, B answers on node 2, C on node 0 reads both, busily and slowly."""
    rounds = 300
    async with (
        cluster(3, protocol=small_window()) as nodes,
        connected(nodes) as (c, a, b),
        b.subscribe(TOPIC) as to_b,
        c.subscribe(TOPIC, queue_bytes=2048) as to_c,
    ):

        async def ask() -> None:
            for number in range(rounds):
                await a.publish(TOPIC, f"?{number}")
                if number % 3 == 0:
                    await asyncio.sleep(0)

        async def answer() -> None:
            answered = 0
            while answered < rounds:
                question = (await anext(to_b)).payload.decode()
                if question.startswith("?"):
                    await b.publish(TOPIC, "!" + question[1:])
                    answered += 1

        async def watch() -> list[str]:
            seen = []
            for _ in range(2 * rounds):
                seen.append((await anext(to_c)).payload.decode())
                sum(range(2000))
                await asyncio.sleep(0)
            return seen

        seen, *_ = await asyncio.gather(watch(), ask(), answer())
        place = {said: index for index, said in enumerate(seen)}
        assert len(place) == 2 * rounds
        inversions = [n for n in range(rounds) if place[f"!{n}"] < place[f"?{n}"]]
        assert inversions == []


@live
async def test_a_receipt_is_stable_when_every_subscriber_has_consumed() -> None:
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC, queue_bytes=1) as messages,
    ):
        receipts = []
        for number in range(4):  # one is read, one at the client, one in the queue, one beyond
            receipt = await writer.publish(TOPIC, b"%d" % number, receipt=True)
            assert receipt is not None
            receipts.append(receipt)
            await writer.flush()
            await settle()
        assert not receipts[-1].is_stable
        assert len(await take(messages, 4)) == 4
        for receipt in receipts:
            await receipt.stable()
            assert receipt.is_stable


@live
async def test_a_receipt_that_is_late_says_unknown_and_may_be_asked_again() -> None:
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC, queue_bytes=1) as messages,
    ):
        receipt = None
        for number in range(4):
            receipt = await writer.publish(TOPIC, b"%d" % number, receipt=True)
            await writer.flush()
        assert receipt is not None
        with pytest.raises(Unknown, match=r"not confirmed in 0\.05 s"):
            await receipt.stable(timeout=0.05)
        await take(messages, 4)
        await receipt.stable(timeout=60)


@live
async def test_a_receipt_of_a_message_that_was_taken_says_unknown_when_the_client_closes() -> None:
    async with (
        cluster(1) as nodes,
        nodes[0].subscribe(TOPIC, queue_bytes=1),
        cubecast.connect(nodes[0].address) as client,
    ):
        receipt = None
        for _ in range(3):
            receipt = await client.publish(TOPIC, b"x", receipt=True)
            await client.flush()
        assert receipt is not None
        await client.close()
        with pytest.raises(Unknown, match="the client is closed"):
            await receipt.stable()


@live
async def test_a_publish_of_a_client_has_a_timeout_of_its_own() -> None:
    async with (
        cluster(2, protocol=small_window()) as nodes,
        cubecast.connect(nodes[0].address) as client,
        nodes[1].subscribe(TOPIC, queue_bytes=4096) as messages,
    ):
        accepted = 0

        async def publish_for_ever() -> None:
            nonlocal accepted
            while True:
                await client.publish(TOPIC, bytes(1000), timeout=0.05)
                accepted += 1

        with pytest.raises(NotSent, match=r"no credit for 0\.05 s"):
            await publish_for_ever()
        assert len(await take(messages, accepted)) == accepted
        await client.publish(TOPIC, b"last", timeout=60)
        assert (await anext(messages)).payload == b"last"


# -- slow readers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("same_node", [False, True])
@live
async def test_a_slow_client_that_blocks_slows_the_publisher_and_loses_nothing(
    same_node: bool,
) -> None:
    count, size = 8_000, 200
    accepted = 0
    async with cluster(2, protocol=small_window()) as nodes:
        places = [nodes[0], nodes[0] if same_node else nodes[1]]
        async with (
            connected(places) as (writer, reader),
            reader.subscribe(TOPIC, queue_bytes=4096) as messages,
        ):

            async def write() -> None:
                nonlocal accepted
                for number in range(count):
                    await writer.publish(TOPIC, b"%0*d" % (size, number))
                    accepted += 1
                await writer.flush()

            writing = asyncio.create_task(write())
            await until(lambda: shell_of(nodes[0]).publishing.blocked(TOPIC))
            await settle()
            assert accepted * size < UNDER_WAY
            assert not writing.done()
            received = await take(messages, count)
            await writing
            assert [int(message.payload) for message in received] == list(range(count))
            assert messages.dropped == 0


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
@live
async def test_a_slow_client_that_drops_drops_at_the_node_and_is_told(
    policy: cubecast.Policy,
) -> None:
    count, size = 5_000, 200
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC, policy=policy, queue_bytes=20_000) as messages,
    ):
        events = reader.events()
        receipt = None
        for number in range(count):
            receipt = await writer.publish(TOPIC, b"%0*d" % (size, number), receipt=True)
        assert receipt is not None
        await receipt.stable()  # not read, and yet: dropped counts as consumed
        event = await anext(events)
        assert isinstance(event, SlowSubscriber)
        assert (event.topic, event.policy) == (TOPIC, policy)
        assert event.dropped > 0
        received: list[int] = []

        async def read() -> None:
            async for message in messages:
                number = int(message.payload)
                received.append(number)

        reading = asyncio.create_task(read())
        await until(lambda: len(received) + messages.dropped >= count)
        assert len(received) + messages.dropped == count
        assert received == sorted(set(received))
        assert messages.dropped > 0
        if policy == "drop-oldest":
            assert received[-1] == count - 1
        else:
            assert received[0] == 0
        await messages.close()
        await reading


@live
async def test_a_slow_client_that_wants_to_be_cut_off_is() -> None:
    async with (
        cluster(2) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC, policy="disconnect", queue_bytes=10_000) as messages,
    ):
        for number in range(1000):
            await writer.publish(TOPIC, b"%0*d" % (1000, number))
        read, error = await read_to_the_end(messages)
        assert isinstance(error, Overflow)
        assert [int(payload) for payload in read] == list(range(len(read)))
        async with reader.subscribe(TOPIC) as again:  # the client itself goes on
            await writer.publish(TOPIC, b"hello")
            assert (await anext(again)).payload == b"hello"


@live
async def test_clients_that_publish_while_they_read_do_not_wait_for_each_other() -> None:
    each, size = 4_000, 200
    async with (
        cluster(2, protocol=small_window()) as nodes,
        connected(nodes) as clients,
        clients[0].subscribe(TOPIC, queue_bytes=256 * 1024) as first,
        clients[1].subscribe(TOPIC, queue_bytes=256 * 1024) as second,
    ):

        async def talk(client: Client, messages: RemoteSubscription) -> list[Message]:
            for number in range(each):
                await client.publish(TOPIC, b"%0*d" % (size, number))
            return await take(messages, 2 * each)

        for received in await asyncio.gather(talk(clients[0], first), talk(clients[1], second)):
            for source in (0, 1):
                mine = [int(message.payload) for message in received if message.source == source]
                assert mine == list(range(each))


@live
async def test_a_client_that_publishes_and_never_reads_is_held_up_not_hoarded_for() -> None:
    size = 1000
    async with (
        cluster(1, protocol=small_window(), publish_timeout_s=0.3) as nodes,
        connected(nodes) as (client,),
        client.subscribe(TOPIC, queue_bytes=4096) as messages,
    ):
        accepted = 0

        async def publish_for_ever() -> None:
            nonlocal accepted
            while True:
                await client.publish(TOPIC, b"%0*d" % (size, accepted))
                accepted += 1

        with pytest.raises(NotSent, match="no credit"):
            await publish_for_ever()
        assert accepted * size < UNDER_WAY
        received = await take(messages, accepted)
        assert [int(message.payload) for message in received] == list(range(accepted))


@live
async def test_a_client_that_reads_nothing_from_its_socket_costs_a_bounded_backlog() -> None:
    async with cluster(2) as nodes, raw_client(nodes[0]) as stuck:
        stuck.say(Subscribe(1, TOPIC, "drop-newest", 0))
        assert isinstance(await stuck.hear(), Subscribed)
        async with connected(nodes[1:]) as (writer,):
            for _ in range(20_000):
                receipt = await writer.publish(TOPIC, bytes(1000), receipt=True)
            assert receipt is not None
            await receipt.stable()
        heard = 0
        while heard < 256 * 1024:  # its window, and not more than a batch beyond it
            packet = await stuck.hear()
            if isinstance(packet, Deliver):
                heard += 1016 * len(packet.payloads)
        assert heard < 256 * 1024 + 70_000


@live
async def test_a_silent_client_is_taken_for_gone_and_stalls_no_publisher() -> None:
    async with (
        cluster(2, protocol=small_window(), client_silence_s=0.5) as nodes,
        raw_client(nodes[1]) as silent,
        connected(nodes[:1]) as (writer,),
    ):
        silent.say(Subscribe(1, TOPIC, "block", 1000))
        assert isinstance(await silent.hear(), Subscribed)
        for _ in range(2000):
            receipt = await writer.publish(TOPIC, bytes(500), receipt=True)
        assert receipt is not None
        await receipt.stable()  # it pings and lives; the silent one is dropped
        await silent.ended()
        await nobody_subscribes(nodes[0])


# -- ends ------------------------------------------------------------------------------------------


@live
async def test_a_node_that_leaves_tells_its_clients_after_the_last_message() -> None:
    async with cluster(2) as nodes, cubecast.connect(nodes[1].address) as client:
        events = client.events()
        async with client.subscribe(TOPIC) as messages:
            receipt = await nodes[0].publish(TOPIC, b"last words", receipt=True)
            assert receipt is not None
            await receipt.stable()
            await nodes.pop().close()
            read, error = await read_to_the_end(messages)
            assert read == [b"last words"]
            assert isinstance(error, Closed)
            assert "the node leaves the cluster" in str(error)
            with pytest.raises(Closed, match="left the cluster"):
                await anext(events)
            with pytest.raises(Closed, match="left the cluster"):
                await client.members()
            with pytest.raises(NotSent, match="left the cluster"):
                await client.publish(TOPIC, b"too late")
            with pytest.raises(Closed):
                async with client.subscribe(TOPIC):
                    pass


@live
async def test_a_node_that_leaves_sends_what_its_clients_had_handed_over() -> None:
    async with (
        cluster(2, protocol=small_window()) as nodes,
        connected(nodes) as (reader, writer),
        reader.subscribe(TOPIC) as messages,
    ):
        for number in range(1000):
            await writer.publish(TOPIC, b"%0*d" % (100, number))
        await writer.flush()
        leaving = asyncio.create_task(nodes.pop().close())
        received = await take(messages, 1000)
        assert [int(message.payload) for message in received] == list(range(1000))
        await leaving


def cut(client: Client) -> None:
    """Break the client's connection."""
    assert client_shell_of(client).connection is not None
    client_shell_of(client).connection.abort()


@live
async def test_a_broken_connection_says_of_each_publication_what_is_known() -> None:
    async with cluster(1) as nodes:

        async def talk() -> None:
            async with cubecast.connect(nodes[0].address) as client:
                first = await client.publish(TOPIC, b"taken", receipt=True)
                assert first is not None
                await first.stable()
                second = await client.publish(TOPIC, b"on its way", receipt=True)
                assert second is not None
                await asyncio.sleep(0)  # the end of the tick: it is sent, not answered
                cut(client)
                with pytest.raises(Unknown):
                    await second.stable()
                with pytest.raises(NotSent):
                    await client.publish(TOPIC, b"too late")

        with pytest.raises(Unknown, match="not known whether everyone received it"):
            await talk()


@live
async def test_a_publish_to_a_new_topic_hears_that_its_fate_is_unknown() -> None:
    async with cluster(1) as nodes, cubecast.connect(nodes[0].address) as client:
        publishing = asyncio.create_task(client.publish(TOPIC, b"on its way"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cut(client)
        with pytest.raises(Unknown):
            await publishing  # and leaving the client does not say it again


@live
async def test_a_client_killed_in_the_middle_of_a_packet_leaves_nothing_half_done() -> None:
    async with cluster(2) as nodes, nodes[1].subscribe(TOPIC) as messages:
        async with raw_client(nodes[0]) as killed:
            killed.say(Subscribe(1, TOPIC, "block", 1000))
            assert isinstance(await killed.hear(), Subscribed)
            killed.say(Publish(0, TOPIC, [b"0", b"1", b"2"], False))
            half = encode(Publish(1, TOPIC, [b"3", b"4", b"5"], False))
            killed.write(half[: len(half) // 2])
            while await killed.hear() != Taken(0):
                pass
        await nodes[1].publish(TOPIC, b"end")
        said = [(await anext(messages)).payload for _ in range(4)]
        assert sorted(said) == [b"0", b"1", b"2", b"end"]
        while 0 in await nodes[1].subscribers(TOPIC):
            await asyncio.sleep(0.005)


@live
async def test_publications_the_node_has_got_are_published_although_the_client_is_gone() -> None:
    """Its packets are whole, the node has no credit, and the connection breaks."""
    async with (
        cluster(2, protocol=small_window(1000)) as nodes,
        nodes[1].subscribe(TOPIC, queue_bytes=1000) as messages,
    ):
        async with raw_client(nodes[0]) as killed:
            for number in range(100):
                killed.say(Publish(number, TOPIC, [b"%0*d" % (500, number)] * 4, False))
            await until(lambda: shell_of(nodes[0]).publishing.blocked(TOPIC))
        await settle()  # by now the node has seen the end
        received = [int((await anext(messages)).payload) for _ in range(400)]
        assert received == [number for number in range(100) for _ in range(4)]


@live
async def test_a_subscription_that_is_closed_gives_its_room_back() -> None:
    async with (
        cluster(2, client_subscriptions=2) as nodes,
        connected(nodes) as (client, other),
    ):
        async with client.subscribe("a"), client.subscribe("b"):
            with pytest.raises(CubecastError, match="2 subscriptions"):
                async with client.subscribe("c"):
                    pass
        async with client.subscribe(TOPIC) as messages:
            await other.publish(TOPIC, b"hello")
            assert (await anext(messages)).payload == b"hello"
        await nobody_subscribes(nodes[1])
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


@live
async def test_subscribing_may_be_cancelled() -> None:
    async with cluster(2) as nodes, connected(nodes) as (client, other):
        for _ in range(20):
            waiting = asyncio.create_task(client.subscribe(TOPIC).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await nobody_subscribes(nodes[1])
        async with client.subscribe(TOPIC) as messages:
            await other.publish(TOPIC, b"hello")
            assert (await anext(messages)).payload == b"hello"


# -- attaching -------------------------------------------------------------------------------------


@live
async def test_a_wrong_secret_is_refused_with_a_reason_on_both_sides() -> None:
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("cubecast")
    logger.addHandler(handler)
    try:
        async with cluster(1, secret="the right one") as nodes:
            with pytest.raises(AttachError, match="the cluster secret is not the same"):
                async with cubecast.connect(nodes[0].address, secret="not the right one"):
                    pass
            await until(lambda: any("refusing the connection" in warning for warning in warnings))
    finally:
        logger.removeHandler(handler)
    assert any("the cluster secret is not the same" in warning for warning in warnings)


@live
async def test_addresses_are_tried_in_turn() -> None:
    async with cluster(1) as nodes:
        good = nodes[0].address
        async with cubecast.connect(f"127.0.0.1:1, {good}") as client:
            assert client.address == good
            assert await client.members() == {0: good}
        with pytest.raises(AttachError, match=r"127\.0\.0\.1:1 .*, 127\.0\.0\.1:2 "):
            async with cubecast.connect("127.0.0.1:1,127.0.0.1:2"):
                pass
        with pytest.raises(ValueError, match="no address"):
            async with cubecast.connect(""):
                pass


@live
async def test_a_node_that_does_not_answer_is_given_up() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(
        lambda reader, writer: writers.append(writer), "127.0.0.1", 0
    )
    host, port = server.sockets[0].getsockname()
    with pytest.raises(AttachError, match=r"no answer in 0\.2 s"):
        async with cubecast.connect(f"{host}:{port}", timeout_s=0.2):
            pass
    for writer in writers:
        writer.close()
    server.close()


@live
async def test_one_client_too_many_is_refused_until_another_leaves() -> None:
    async with cluster(1, max_clients=2) as nodes:
        address = nodes[0].address
        async with cubecast.connect(address), cubecast.connect(address):
            with pytest.raises(AttachError, match="2 clients already"):
                async with cubecast.connect(address):
                    pass
        async with cubecast.connect(address), cubecast.connect(address) as client:
            assert await client.members() == {0: address}


@live
async def test_a_node_that_leaves_takes_no_clients() -> None:
    async with (
        cluster(2, protocol=small_window(1000)) as nodes,
        nodes[0].subscribe(TOPIC, queue_bytes=1000) as messages,
    ):
        for _ in range(3):  # one counts as read, one is owed, one waits for credit
            await nodes[1].publish(TOPIC, bytes(500))
            await asyncio.sleep(0)
        leaver = nodes.pop()
        leaving = asyncio.create_task(leaver.close())
        async with raw(leaver) as late:
            await late.authenticate("", purpose="client")
            late.greet(AttachRequest())
            answer = await late.greeting()
            assert isinstance(answer, Refused)
            assert "leaves" in answer.reason
        for _ in range(3):
            await anext(messages)
        await leaving


# -- questions and events --------------------------------------------------------------------------


@live
async def test_a_client_may_ask_what_a_node_knows() -> None:
    async with (
        cluster(4) as nodes,
        connected(nodes) as clients,
        clients[1].subscribe(TOPIC),
        clients[2].subscribe(TOPIC),
        nodes[3].subscribe(TOPIC),
    ):
        assert await clients[0].members() == nodes[0].members
        assert await clients[0].subscribers(TOPIC) == [1, 2, 3]
        assert (await clients[1].topics())[TOPIC] == [1, 2, 3]
        tree = await clients[0].tree(TOPIC)
        assert (tree.root, tree.members, tree.nodes) == (0, 0b1110, (0, 1, 2, 3))
        assert (await clients[0].tree(TOPIC, 3)).root == 3
        with pytest.raises(ValueError, match="there is no node 9"):
            await clients[0].tree(TOPIC, 9)
        facts = await clients[1].explain(TOPIC)
        assert facts["standing"] == "in"
        assert facts["waiting"] == []
        assert (await clients[1].explain("nothing"))["standing"] == "out"
        answers = await asyncio.gather(*(clients[0].members() for _ in range(500)))
        assert all(answer == nodes[0].members for answer in answers)
        assert not client_shell_of(
            clients[0]
        ).questions._answers  # nothing is kept of questions that were answered


@live
async def test_a_tree_has_room_for_who_came_between_two_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def subscribers(topic: str) -> list[int]:
        return [0, 4]  # `members` did not name node 4

    async with cluster(1) as nodes, connected(nodes) as (client,):
        monkeypatch.setattr(client, "subscribers", subscribers)
        assert (await client.tree(TOPIC)).nodes == (0, 4)


@live
async def test_explain_names_the_subscriber_that_holds_a_publisher_up() -> None:
    """A publisher may be out of credit for a moment only, before all that was consumed is counted;
    no subscriber is behind then.  So this waits until a reader holds the publisher up."""
    async with (
        cluster(2, protocol=small_window()) as nodes,
        connected(nodes) as (writer, reader),
        reader.subscribe(TOPIC, queue_bytes=1000) as messages,
    ):

        async def write() -> None:
            for _ in range(20):
                await writer.publish(TOPIC, bytes(1000))
                await writer.flush()  # a frame each

        writing = asyncio.create_task(write())
        facts = await writer.explain(TOPIC)
        while not (facts["blocked"] and facts.get("behind")):
            await asyncio.sleep(0.005)
            facts = await writer.explain(TOPIC)
        assert facts["in_flight"]
        assert facts["accepted"] == 1
        assert list(facts["behind"]) == [1]  # type: ignore[call-overload]
        assert facts["readers"] == []
        (load,) = (await reader.explain(TOPIC))["readers"]  # the node of the slow reader
        assert (load["policy"], load["client"], load["limit_bytes"]) == ("block", True, 1000)
        assert (load["owes"], load["unread_bytes"] > 1000) == (True, True)
        assert load["unread_messages"] >= 1
        await take(messages, 20)
        await writing


@live
async def test_events_of_the_cluster_reach_a_client() -> None:
    async with cluster(1) as nodes, connected(nodes) as (client,):
        events = client.events()
        await client.members()  # by now the node has heard that we listen
        newcomer = await join(nodes)
        assert await anext(events) == MemberJoined(1, newcomer.address)
        await nodes.pop().close()
        assert await anext(events) == MemberLeft(1)


@live
async def test_a_topic_too_many_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "MAX_TOPICS", 2)
    async with cluster(1) as nodes, connected(nodes) as (client,):
        await client.publish("a", b"")
        await client.publish("b", b"")
        with pytest.raises(NotSent, match="2 topics"):
            await client.publish("c", b"")
        await client.publish("a", b"")


def test_explained_says_in_sentences_what_a_topic_waits_for() -> None:
    facts = {
        "standing": "in",
        "informed": True,
        "members": [0, 1, 2],
        "next": 9,
        "in_flight": 300,
        "held": 40,
        "waiting": [
            {
                "stream": "2.ab",
                "seq": 17,
                "for_stream": "1.cd",
                "for_seq": 9,
                "delivered": 7,
                "waited": 1_500_000,
            }
        ],
        "missing": {"1.cd": 8},
        "behind": {0: 5, 2: 3},
        "readers": [
            {
                "policy": "block",
                "client": True,
                "unread_messages": 2093,
                "unread_bytes": 200_000,
                "limit_bytes": 50_000,
                "owes": True,
            },
            {
                "policy": "drop-oldest",
                "client": False,
                "unread_messages": 1,
                "unread_bytes": 40,
                "limit_bytes": 50_000,
                "owes": False,
            },
        ],
    }
    assert list(explained("chat", 0, facts)) == [
        "chat at node 0: subscribed; others subscribed: 1, 2",
        "published here: 9 messages, 300 bytes not taken in by all",
        "  readers at this node are 5 messages behind",
        "  node 2 or those below it are 3 messages behind",
        "waits: message 17 of node 2 for message 9 of node 1 (here up to 7), for 1.500 s",
        "missing: message 8 of node 1; later ones are here",
        "held back: 40 bytes",
        "a reader here (a light client, policy block) has 2093 messages unread, limit 49 KiB: "
        "publishers wait for it",
        "a reader here (the application, policy drop-oldest) has 1 message unread, limit 49 KiB",
        "subscribers are behind; publishers wait for a reader here; "
        "messages wait for others that come before them",
    ]
    assert list(explained("chat", 0, {"standing": "out", "informed": False})) == [
        "chat at node 0: not subscribed; it does not know who else is",
        "nothing waits",
    ]


# -- hostile clients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [[Read(1, 1_000_000)], [Subscribe(1, TOPIC, "block", 0)]],
    ids=["more read than sent", "a number twice"],
)
@live
async def test_a_client_that_breaks_the_rules_is_cut_off(messages: list[FromClient]) -> None:
    async with rude_client() as (client, other):
        for message in messages:
            client.say(message)
        await client.ended()
        await nobody_subscribes(other)


@pytest.mark.parametrize("pause_s", [0, 0.02], ids=["at once", "slowly"])
@live
async def test_a_client_that_publishes_more_than_its_credit_is_cut_off(pause_s: float) -> None:
    """However slowly its publications come.

    The node takes some in while others arrive, and for a client that subscribes it puts debts off:
    about 20 of these messages, and no more.  The window and one packet hold seven others.
    """
    async with rude_client() as (client, other):
        for number in range(100):
            client.say(Publish(number, TOPIC, [bytes(50_000)], False))
            await asyncio.sleep(pause_s)
            if client.is_closing():
                break
        await client.ended()
        await nobody_subscribes(other)


@asynccontextmanager
async def rude_client() -> AsyncIterator[tuple[RawClient, Node]]:
    """A client that subscribes and reads nothing, and a node that it is not attached to."""
    async with (
        cluster(2, protocol=small_window(1000)) as nodes,
        nodes[1].subscribe("other", queue_bytes=1000),
        raw_client(nodes[0]) as client,
    ):
        client.say(Subscribe(1, TOPIC, "block", 1000))
        assert isinstance(await client.hear(), Subscribed)
        yield client, nodes[1]


@live
async def test_a_peer_must_attach_before_it_speaks_as_a_client_and_only_once() -> None:
    async with cluster(1) as nodes:
        async with raw(nodes[0]) as stranger:
            await stranger.authenticate("")
            stranger.write(encode(Subscribe(1, TOPIC, "block", 0)))
            await stranger.ended()
        async with raw_client(nodes[0]) as client:
            client.greet(AttachRequest())
            await client.ended()


def test_every_message_counts_for_its_bytes_and_what_it_costs_beside_them() -> None:
    assert size_of([b"abc", b"", b"de"]) == 5 + 3 * MESSAGE_OVERHEAD
    assert size_of([]) == 0


@live
async def test_reading_ends_without_an_error_when_the_application_closes_the_client() -> None:
    seen: list[bytes] = []
    async with cluster(1) as nodes, cubecast.connect(nodes[0].address) as client:
        async with client.subscribe("chat") as messages:

            async def read() -> None:
                async for message in messages:
                    seen.append(message.payload)  # noqa: PERF401 - it is looked at meanwhile

            reading = asyncio.create_task(read())
            await nodes[0].publish("chat", "the last one")
            while not seen:
                await asyncio.sleep(0.001)
            await client.close()
            await reading
            assert seen == [b"the last one"]
        with pytest.raises(Closed):  # to begin something is another matter
            await client.subscribe("chat").__aenter__()
