"""Requests and answers: at nodes and light clients, one, many, late, failed, hostile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import cubecast
from cubecast import CallbackFailed, NoAnswer, NotAllowed, NotSent, RequestFailed, Unknown, codecs
from cubecast.net.gateway import line as line_module
from cubecast.net.message import ID, REPLY, Message
from cubecast.net.node.shell import shell_of
from cubecast.net.requests import answers as answers_module
from cubecast.net.requests import requests as requests_module
from cubecast.net.topics import is_reply_topic
from cubecast.net.wire.clients import (
    Declined,
    Ended,
    Publish,
    Subscribe,
    Subscribed,
    Taken,
    Unsubscribe,
)
from cubecast.net.wire.headers import pack
from cubecast.testing import Cluster, on_virtual_time
from support.clients import raw_client
from support.files import written
from support.live import cluster, live, until

TOPIC = "service/upper"


def upper(message: Message) -> bytes:
    return message.payload.upper()


async def upper_later(message: Message) -> str:
    await asyncio.sleep(0)
    return message.payload.decode().upper()


async def forever(_: Message) -> bytes:
    return await asyncio.get_running_loop().create_future()


@live
async def test_a_handlers_result_answers_nodes_and_clients_wherever_both_are() -> None:
    async with (
        cluster(3) as nodes,
        cubecast.connect(nodes[0].address) as near,
        cubecast.connect(nodes[2].address) as far,
    ):
        handlers: list[tuple[Any, Callable[[Message], object]]] = [
            (nodes[1], upper), (far, upper_later),
        ]  # fmt: skip
        for host, handler in handlers:
            async with host.on(TOPIC, handler):
                for asker in (nodes[0], nodes[1], near, far):
                    answer = await asker.request(TOPIC, "hello", timeout=20)
                    assert answer.payload == b"HELLO"
                    assert answer.topic == asker.requests.topic
                    assert len(asker.requests) == asker.requests.late == 0


@live
async def test_many_requests_at_once_get_their_own_answers() -> None:
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as client,
        nodes[1].on(TOPIC, upper),
    ):
        for asker in (nodes[0], client):
            asked = [f"word {number}" for number in range(300)]
            asking = [asker.request(TOPIC, word, timeout=20) for word in asked]
            given = await asyncio.gather(*asking)
            assert [one.payload.decode() for one in given] == [word.upper() for word in asked]


@live
async def test_a_handler_that_raises_sends_its_error_to_the_requester_and_goes_on() -> None:
    def divide(message: Message) -> str:
        return str(12 // int(message.payload))

    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as client,
        nodes[1].on("divide", divide),
    ):
        events = nodes[1].events()
        for asker in (nodes[0], client):
            with pytest.raises(RequestFailed) as caught:
                await asker.request("divide", "0", timeout=20)
            error = caught.value
            assert (error.topic, error.error, error.source) == ("divide", "ZeroDivisionError", 1)
            assert "by zero" in error.text
            assert error.text in str(error)
            assert (await asker.request("divide", "4", timeout=20)).payload == b"3"
        told = [event async for event in _until(events, CallbackFailed)]
        assert told[-1].topic == "divide"


async def _until(events: Any, kind: type) -> Any:
    async for event in events:
        yield event
        if isinstance(event, kind):
            return


@on_virtual_time
async def test_an_invalid_or_too_large_answer_is_an_error_of_the_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests_module, "MAX_PAYLOAD", requests_module.MAX_PREFIX + 10)
    results: dict[bytes, object] = {b"number": 7, b"large": b"x" * 11, b"fits": b"x" * 10}
    async with (
        Cluster(2) as nodes,
        nodes[1].on(TOPIC, lambda message: results[message.payload]),
    ):
        with pytest.raises(RequestFailed, match="TypeError: a payload must be bytes or str"):
            await nodes[0].request(TOPIC, "number")
        with pytest.raises(RequestFailed, match="ValueError: an answer of 11 bytes"):
            await nodes[0].request(TOPIC, "large")
        assert (await nodes[0].request(TOPIC, "fits")).payload == b"x" * 10


@on_virtual_time
async def test_none_answers_nothing_and_a_plain_message_is_never_answered() -> None:
    seen: list[bool] = []

    def silent(message: Message) -> None:
        seen.append(message.wants_reply)

    async with Cluster(3) as nodes, nodes[1].on(TOPIC, silent), nodes[2].on(TOPIC, upper):
        await nodes[0].publish(TOPIC, "plain")
        await nodes[0].publish(TOPIC, "headed", headers={"kind": "news"})
        answers = [one.source async for one in nodes[0].request_many(TOPIC, "?", timeout=1)]
        assert answers == [2]
        await nodes.settle()
        assert seen == [False, False, True]
        assert nodes[0].requests.late == 0


@live
async def test_a_reader_without_a_handler_answers_with_reply_also_several_times() -> None:
    async with (
        cluster(2) as nodes,
        cubecast.connect(nodes[0].address) as client,
        nodes[1].subscribe(TOPIC) as asked,
        client.subscribe("light") as light,
    ):
        asking = asyncio.create_task(_all(client.request_many(TOPIC, "?", timeout=20, count=3)))
        message = await anext(asked)
        assert message.wants_reply
        await message.reply("one", headers={"kind": "first"})
        await message.reply(b"two")
        await message.reply_error("that is all", error="Enough")
        first, second, third = await asking
        assert (first.payload, first.headers["kind"], second.payload) == (b"one", "first", b"two")
        assert isinstance(third, RequestFailed)
        assert (third.error, third.text) == ("Enough", "that is all")
        request = asyncio.create_task(nodes[1].request("light", "?", timeout=20))
        await (await anext(light)).reply("from a client")
        assert (await request).payload == b"from a client"
        await nodes[0].publish(TOPIC, "plain")
        with pytest.raises(ValueError, match="asks for no answer: it was published"):
            await (await anext(asked)).reply("?")


@live
async def test_an_answer_may_come_from_a_worker_thread_through_the_loop() -> None:
    loop = asyncio.get_running_loop()

    def work(message: Message) -> None:
        asyncio.run_coroutine_threadsafe(message.reply("done"), loop).result(20)
        asyncio.run_coroutine_threadsafe(message.reply_error("but late"), loop).result(20)

    async with cluster(2) as nodes, cubecast.connect(nodes[0].address) as client:
        for host in (nodes[1], client):
            async with host.subscribe(TOPIC) as asked:
                asking = asyncio.create_task(
                    _all(nodes[0].request_many(TOPIC, "?", timeout=20, count=2))
                )
                await asyncio.to_thread(work, await anext(asked))
                answer, error = await asking
                assert answer.payload == b"done"
                assert error.text == "but late"


@live
async def test_an_answer_awaited_in_another_loop_is_refused_and_says_what_to_call() -> None:
    def work(message: Message) -> None:
        async def in_another_loop() -> None:
            await message.reply("no")

        asyncio.run(in_another_loop())

    async with cluster(1) as nodes, nodes[0].subscribe(TOPIC) as asked:
        asking = asyncio.create_task(nodes[0].request(TOPIC, "?", timeout=20))
        message = await anext(asked)
        words = r"from another thread or loop, call asyncio\.run_coroutine_threadsafe\(message\."
        with pytest.raises(TypeError, match=words):
            await asyncio.to_thread(work, message)
        await message.reply("yes")
        assert (await asking).payload == b"yes"


async def _all(answers: Any) -> list[Any]:
    """The answers, and the errors among them."""
    found: list[Any] = []
    async with answers:
        while True:
            try:
                found.append(await anext(answers))
            except RequestFailed as error:
                found.append(error)
            except StopAsyncIteration:
                return found


@on_virtual_time
async def test_many_answers_end_with_their_count_their_time_or_when_closed() -> None:
    async with Cluster(5) as nodes, AsyncExitStack() as stack:
        for node in nodes.nodes[1:]:
            await stack.enter_async_context(node.on("who", lambda _: b"me"))
        asker = nodes[0]
        sources = [one.source async for one in asker.request_many("who", timeout=2)]
        assert sorted(sources) == [1, 2, 3, 4]
        began = nodes.time
        sources = [one.source async for one in asker.request_many("who", timeout=60, count=2)]
        assert len(sources) == 2
        assert nodes.time - began < 1  # of virtual time: it did not wait for the others
        assert [one async for one in asker.request_many("nobody", timeout=1)] == []
        async with asker.request_many("who", timeout=60) as answers:
            await anext(answers)
            assert len(asker.requests) == 1
        assert len(asker.requests) == 0
        assert [one async for one in answers] == []
        async for _ in asker.request_many("who", timeout=3):
            break
        await asyncio.sleep(4)  # virtual
        assert len(asker.requests) == 0


@on_virtual_time
async def test_unread_answers_are_bounded_and_dropped_ones_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers_module, "MAX_ANSWERS", 3)
    async with Cluster(2) as nodes, nodes[1].subscribe(TOPIC) as asked:
        async with nodes[0].request_many(TOPIC, "?", timeout=60) as answers:
            request = await anext(asked)
            for number in range(5):
                await request.reply(str(number))
            await nodes.settle()
            assert answers.dropped == 2
            assert [(await anext(answers)).payload for _ in range(3)] == [b"0", b"1", b"2"]
            await request.reply("again")
            assert (await anext(answers)).payload == b"again"
        monkeypatch.setattr(answers_module, "MAX_BYTES", 10)
        async with nodes[0].request_many(TOPIC, "?", timeout=60) as answers:
            request = await anext(asked)
            for _ in range(3):
                await request.reply(b"x" * 8)
            await nodes.settle()
            assert answers.dropped == 1
            for _ in range(2):  # what is read makes room
                await anext(answers)
                await request.reply(b"x" * 8)
                await nodes.settle()
            assert answers.dropped == 1


@on_virtual_time
async def test_no_answer_says_the_request_may_be_handled_and_late_answers_are_counted() -> None:
    async with Cluster(2) as nodes, nodes[1].subscribe(TOPIC) as asked:
        for topic, more in ((TOPIC, ""), ("nobody/there", "; no node was subscribed")):
            words = rf"\(none in 2 s{more}\): it may have been handled"
            with pytest.raises(NoAnswer, match=words) as caught:
                await nodes[0].request(topic, "?", timeout=2)
            assert isinstance(caught.value, Unknown)
            assert caught.value.topic == topic
        request = await anext(asked)
        await request.reply("too late")
        await nodes.settle()
        assert (nodes[0].requests.late, len(nodes[0].requests)) == (1, 0)
        again = asyncio.create_task(nodes[0].request(TOPIC, "?"))
        request = await anext(asked)
        for number in range(3):
            await request.reply(str(number))
        assert (await again).payload == b"0"  # the first; the others come in vain
        await nodes.settle()
        assert nodes[0].requests.late == 3


@on_virtual_time
async def test_no_answer_tells_of_the_subscribers_when_the_request_was_sent() -> None:
    """One that had the request and left may have handled it; one that came later has not."""
    async with Cluster(2) as nodes:
        for _ in range(2):  # the first asks who is subscribed, the second knows
            async with nodes[1].subscribe(TOPIC) as asked:
                asking = asyncio.create_task(nodes[0].request(TOPIC, "?", timeout=3))
                await anext(asked)
            await nodes.settle()
            assert await nodes[0].subscribers(TOPIC) == []
            with pytest.raises(NoAnswer, match=r"\(none in 3 s\)"):
                await asking
        for topic in (TOPIC, "new"):
            asking = asyncio.create_task(nodes[0].request(topic, "?", timeout=3))
            await asyncio.sleep(1)  # virtual
            async with nodes[1].subscribe(topic):
                with pytest.raises(NoAnswer, match=r"\(none in 3 s; no node was subscribed\)"):
                    await asking


@on_virtual_time
async def test_a_request_that_is_cancelled_waits_for_nothing() -> None:
    async with Cluster(2) as nodes, nodes[1].on(TOPIC, forever):
        request = asyncio.create_task(nodes[0].request(TOPIC, "?"))
        while not len(nodes[0].requests):
            await asyncio.sleep(0.001)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert len(nodes[0].requests) == 0


@on_virtual_time
async def test_a_request_without_credit_is_surely_not_sent() -> None:
    async with Cluster(2) as nodes, nodes[1].subscribe(TOPIC, queue_bytes=1) as stuck:
        sent = 0
        with suppress(NotSent):
            while True:
                await nodes[0].publish(TOPIC, b"x" * 100_000, timeout=1)
                sent += 1
        with pytest.raises(NotSent, match="no credit for 3 s"):
            await nodes[0].request(TOPIC, "never sent", timeout=3)
        for _ in range(sent):
            assert (await anext(stuck)).payload != b"never sent"
        await nodes[0].publish(TOPIC, "last")
        assert (await anext(stuck)).payload == b"last"


@on_virtual_time
async def test_a_request_that_ends_before_a_node_has_it_is_withdrawn() -> None:
    """A client without a node: what timed out or was cancelled is not handled after the outage."""
    handled: list[bytes] = []

    def handle(message: Message) -> bytes:
        handled.append(message.payload)
        return b"done"

    async with (
        Cluster(2) as nodes,
        nodes[1].on(TOPIC, handle),
        nodes[1].on("new", handle),
        nodes.connect(0, patience_s=600) as client,
    ):
        assert (await client.request(TOPIC, "before")).payload == b"done"
        nodes.kill(0)
        await asyncio.sleep(1)  # virtual: the client knows
        for topic in (TOPIC, "new"):  # for one that is new, a publish waits for the node's word
            asking = [client.request(topic, "expired", timeout=2) for _ in range(2)]
            ended = await asyncio.gather(*asking, return_exceptions=True)
            assert [str(one) for one in ended] == [
                str(NotSent(topic, "no node for 2 s")) for _ in range(2)
            ]
            cancelled = asyncio.create_task(client.request(topic, "cancelled"))
            await asyncio.sleep(1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(NotSent, match="no node for 2 s"):
                async for _ in client.request_many(topic, "expired", timeout=2):
                    pass
        async with client.request_many(TOPIC, "closed"):
            pass
        await client.publish(TOPIC, "stays")
        waits = asyncio.create_task(client.request(TOPIC, "waits", timeout=500))
        await asyncio.sleep(1)
        await nodes.restart(0)
        assert (await waits).payload == b"done"
        await client.flush()
        await nodes.settle()
        assert handled == [b"before", b"stays", b"waits"]
        assert (await client.request("new", "now", timeout=100)).payload == b"done"
        assert handled[3:] == [b"now"]


@on_virtual_time
async def test_a_request_of_a_client_that_waits_for_credit_is_surely_not_sent() -> None:
    async with (
        Cluster(2) as nodes,
        nodes[1].subscribe(TOPIC, queue_bytes=1) as stuck,
        nodes.connect(0) as client,
    ):
        sent = 0
        with suppress(NotSent):
            while True:
                await client.publish(TOPIC, b"x" * 10_000, timeout=1)
                sent += 1
        with pytest.raises(NotSent, match="no credit for 3 s"):
            await client.request(TOPIC, "never sent", timeout=3)
        for _ in range(sent):
            assert (await anext(stuck)).payload != b"never sent"
        await client.publish(TOPIC, "last")
        assert (await anext(stuck)).payload == b"last"


@on_virtual_time
async def test_one_request_too_many_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "MAX_PENDING", 3)
    async with Cluster(2) as nodes, nodes[1].on("slow", forever), nodes[1].on(TOPIC, upper):
        waiting = [asyncio.create_task(nodes[0].request("slow", timeout=5)) for _ in range(3)]
        await asyncio.sleep(1)  # virtual
        with pytest.raises(NotSent, match="3 requests wait for answers already"):
            await nodes[0].request(TOPIC, "?")
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [NoAnswer] * 3
        assert (await nodes[0].request(TOPIC, "now")).payload == b"NOW"


@pytest.mark.parametrize("how", ["close", "kill", "client", "client's node"])
@live
async def test_requests_under_way_are_told_when_their_node_or_client_ends(how: str) -> None:
    async with (
        AsyncExitStack() as stack,
        cluster(2) as nodes,
        nodes[1].subscribe(TOPIC) as asked,
    ):
        asker: Any = nodes[0]
        if how.startswith("client"):
            asker = await stack.enter_async_context(cubecast.connect(nodes[0].address))
        one = asyncio.create_task(asker.request(TOPIC, "1", timeout=25))
        many = asyncio.create_task(_all(asker.request_many(TOPIC, "2", timeout=25)))
        assert {(await anext(asked)).payload, (await anext(asked)).payload} == {b"1", b"2"}
        if how == "kill":
            shell_of(nodes[0]).kill()
        elif how == "client's node":
            await nodes[0].close()
        else:
            await asker.close()
        for task in (one, many):
            with pytest.raises(NoAnswer):
                await task
        assert len(asker.requests) == 0
        with pytest.raises(cubecast.CubecastError):
            await asker.request(TOPIC, "?", timeout=1)


@on_virtual_time
async def test_an_answer_may_have_a_codec_and_requests_may_have_headers() -> None:
    def total(message: Message[list[int]]) -> bytes:
        assert message.headers["unit"] == "m"
        return codecs.json().encode({"sum": sum(message.value)})

    lengths = codecs.json(list[int])
    async with Cluster(2) as nodes, nodes[1].on("sum", total, codec=lengths):
        payload, about = lengths.encode([1, 2]), {"unit": "m"}
        answer = await nodes[0].request(
            "sum", payload, headers=about, codec=codecs.json(dict[str, int])
        )
        assert answer.value == {"sum": 3}
        many = nodes[0].request_many("sum", payload, headers=about, count=1, codec=codecs.json())
        assert [one.value async for one in many] == [{"sum": 3}]


@on_virtual_time
async def test_a_request_takes_two_headers_fewer_and_arrives_with_so_many() -> None:
    async with Cluster(2) as nodes, nodes[1].on(TOPIC, upper):
        full = {f"h{number}": "x" for number in range(30)}
        assert (await nodes[0].request(TOPIC, "full", headers=full)).payload == b"FULL"
        with pytest.raises(ValueError, match="takes 30 headers, not 31"):
            await nodes[0].request(TOPIC, "?", headers={**full, "more": "x"})
        with pytest.raises(ValueError, match="names with ':' first are cubecast's"):
            await nodes[0].request(TOPIC, "?", headers={":id": "1"})


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"timeout": 0}, ValueError, "timeout must be more than 0 seconds, not 0"),
        ({"timeout": -1}, ValueError, "timeout must be more than 0 seconds, not -1"),
        ({"timeout": float("nan")}, ValueError, "timeout must be more than 0 seconds, not nan"),
        ({"timeout": float("inf")}, ValueError, "a request does not wait for ever"),
        ({"timeout": None}, ValueError, "a request does not wait for ever"),
        ({"timeout": "5"}, TypeError, "timeout must be seconds, as 2.5, not '5'"),
        ({"topic": "chat/+"}, ValueError, "is a pattern"),
        ({"topic": ["a"]}, TypeError, "a topic must be a str"),
        ({"payload": 7}, TypeError, "a payload must be bytes or str"),
        ({"codec": int}, TypeError, "codec must be a codec"),
        ({"count": 0}, ValueError, "count must be at least 1, not 0"),
        ({"count": "3"}, TypeError, "count must be a number of answers, not '3'"),
    ],
)
@on_virtual_time
async def test_a_wrong_request_says_what_to_do_and_is_not_sent(
    wrong: dict[str, Any], kind: type[Exception], words: str
) -> None:
    async with Cluster(1) as nodes:
        asked = {"topic": TOPIC, "payload": b"", **wrong}
        with pytest.raises(kind, match=words):
            await anext(nodes[0].request_many(**asked))
        if "count" not in wrong:
            with pytest.raises(kind, match=words):
                await nodes[0].request(**asked)
        assert len(nodes[0].requests) == 0
        assert await nodes[0].topics() == {}


# -- what others may do ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["chat/room1", "$replies/", "$replies/~/x", "$replies/a/b/" + 32 * "0",
     "$replies/+/" + 32 * "0", "$replies/~/" + 32 * "0" + "\n",
     "$replies/~/" + 33 * "0", "$ordered/x", ""],
)  # fmt: skip
@on_virtual_time
async def test_a_request_cannot_make_its_handler_publish_elsewhere(target: str) -> None:
    async with Cluster(2) as nodes, nodes[1].on(TOPIC, upper):
        await nodes[0].publish(TOPIC, pack({REPLY: target, ID: "1"}, b"x"))
        await nodes[0].publish(TOPIC, pack({REPLY: nodes[0].requests.topic}, b"no number"))
        assert (await nodes[0].request(TOPIC, "honest")).payload == b"HONEST"
        assert set(await nodes[0].topics()) == {TOPIC, nodes[0].requests.topic}


async def publish_and_flush(client: cubecast.Client, request: bytes) -> None:
    await client.publish(TOPIC, request)
    await client.flush()


def reply_topics_of(topics: Iterable[str]) -> int:
    return len([topic for topic in topics if is_reply_topic(topic)])


@live
async def test_a_client_asks_in_no_reply_topic_that_it_is_not_subscribed_to() -> None:
    """By ever new ones it had the service's node use topics that did not count as its own."""
    async with (
        cluster(2) as nodes,
        nodes[1].on(TOPIC, upper),
        cubecast.connect(nodes[0].address) as client,
    ):
        assert (await client.request(TOPIC, "honest", timeout=20)).payload == b"HONEST"
        for number in range(3):
            target = f"$replies/~/{number:032x}"
            request = pack({REPLY: target, ID: "1"}, b"x")
            with pytest.raises(NotSent, match="reply topic that its client is not subscribed to"):
                await publish_and_flush(client, request)
        assert (await client.request(TOPIC, "still", timeout=20)).payload == b"STILL"
        assert reply_topics_of(await nodes[1].topics()) == 1


@live
async def test_reply_topics_that_a_client_asks_in_are_of_its_share_of_topics() -> None:
    """As a service uses them, they count where the client is, if it is subscribed or was."""
    async with (
        cluster(2, clients_topics=20) as nodes,
        nodes[1].on(TOPIC, upper),
        raw_client(nodes[0]) as client,
    ):
        declined = 0
        for number in range(15):
            target = f"$replies/~/{number:032x}"
            client.say(Subscribe(number, target, "drop-oldest", 0))
            while not isinstance(await client.hear(), Subscribed | Ended):
                pass
            request = pack({REPLY: target, ID: "1"}, b"x")
            client.say(Publish(number, TOPIC, [bytes(request)], False, (0,)))
            while not isinstance(said := await client.hear(), Taken):
                declined += isinstance(said, Declined)
            client.say(Unsubscribe(number))
        assert declined == 15 - 9, "10 topics, of which one is the service's"
        await until(lambda: reply_topics_of(shell_of(nodes[1]).publishing.boxes) == 9)


@on_virtual_time
async def test_answers_that_fit_no_request_are_counted_and_nothing_else() -> None:
    async with Cluster(2) as nodes, nodes[1].on(TOPIC, upper):
        asker = nodes[0].requests
        await nodes[0].request(TOPIC, "first")
        for lie in (pack({ID: "99"}, b"x"), pack({ID: ""}, b"x"), pack({"kind": "x"}, b""), b"x"):
            await nodes[1].publish(asker.topic, lie)
        assert (await nodes[0].request(TOPIC, "second")).payload == b"SECOND"
        assert asker.late == 4


@on_virtual_time
async def test_an_error_of_any_bytes_is_a_text_of_bounded_length() -> None:
    async with Cluster(2) as nodes, nodes[1].subscribe(TOPIC) as asked:
        request = asyncio.create_task(nodes[0].request(TOPIC, "?"))
        headers = (await anext(asked)).headers
        lie = pack({ID: headers[ID], requests_module.ERROR: "x"}, b"\xff" * 5000)
        await nodes[1].publish(headers[REPLY], lie)
        with pytest.raises(RequestFailed) as caught:
            await request
        assert len(caught.value.text) == requests_module.MAX_ERROR


RULES = """
tokens_file = "tokens.toml"

[[rule]]
who = ["node:", "node:*"]
publish = ["*"]
subscribe = ["*"]

[[rule]]
who = "client:alice"
publish = ["service/+"]
subscribe = ["$replies/{name}/+"]

[[rule]]
who = "client:mallory"
publish = ["service/+"]

[[rule]]
who = "client:server"
subscribe = ["service/+"]
publish = ["$replies/#"]

[[rule]]
who = "client:dumb"
subscribe = ["service/+"]
"""


@live
async def test_permissions_say_who_may_ask_and_who_may_answer(tmp_path: Path) -> None:
    path = written(tmp_path, RULES)
    names = ("alice", "mallory", "server", "dumb")
    tokens = {name: name * 10 for name in names}
    lines = [f'{name} = "{token}"' for name, token in tokens.items()]
    (tmp_path / "tokens.toml").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "tokens.toml").chmod(0o600)
    async with cluster(1, permissions=str(path)) as nodes, AsyncExitStack() as stack:
        alice, mallory, server, dumb = [
            await stack.enter_async_context(
                cubecast.connect(nodes[0].address, name=name, secret=tokens[name])
            )
            for name in names
        ]
        assert alice.requests.topic.startswith("$replies/alice/")
        with pytest.raises(NotAllowed) as caught:
            await mallory.request(TOPIC, "?", timeout=20)
        assert (caught.value.what, caught.value.topic) == ("subscribe", mallory.requests.topic)
        with pytest.raises(NotAllowed):
            await mallory.subscribe(alice.requests.topic).__aenter__()
        async with dumb.on(TOPIC, upper), dumb.on("service/dumb", upper):
            with pytest.raises(NoAnswer):
                await alice.request("service/dumb", "?", timeout=0.5)
            async with server.on(TOPIC, upper):
                assert (await alice.request(TOPIC, "hello", timeout=20)).payload == b"HELLO"
        with pytest.raises(NotAllowed):
            await alice.request("elsewhere", "?", timeout=20)


# -- what remains ----------------------------------------------------------------------------------


@live
async def test_a_service_at_a_client_answers_more_clients_than_it_may_have_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "MAX_TOPICS", 6)
    monkeypatch.setattr(line_module, "MAX_REPLY_TOPICS", 3)
    async with (
        cluster(1) as nodes,
        cubecast.connect(nodes[0].address) as server,
        server.on(TOPIC, upper),
    ):
        for number in range(12):
            async with cubecast.connect(nodes[0].address) as asker:
                answer = await asker.request(TOPIC, f"client {number}", timeout=20)
                assert answer.payload == f"CLIENT {number}".encode()


@on_virtual_time
async def test_requests_that_a_listener_leaves_in_its_queue_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def slowly(message: Message) -> bytes:
        begun.set()
        await asyncio.sleep(1)
        return message.payload

    async with Cluster(2) as nodes:
        listener = await nodes[1].on(TOPIC, slowly).__aenter__()
        asked = [asyncio.create_task(nodes[0].request(TOPIC, str(n), timeout=5)) for n in range(4)]
        await begun.wait()
        await asyncio.sleep(0.5)
        await nodes[0].publish(TOPIC, "wants no answer")
        await asyncio.sleep(0.1)
        await listener.close()
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in ended[1:]] == [NoAnswer] * 3
    assert "3 queued requests of 'service/upper' stay without an answer" in caplog.text
