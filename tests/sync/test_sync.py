"""cubecast.sync: calls that wait, on real sockets, with real signals."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import cubecast
from cubecast.errors import AttachError, Closed, NotSent
from cubecast.net.node.shell import shell_of
from cubecast.net.reading.subscription import Subscription as AsyncSubscription
from cubecast.net.settings.config import NodeConfig
from cubecast.sync import reading
from cubecast.sync.session import SessionThread
from support.live import small_window
from support.paths import ROOT
from support.terminal import in_front

TOPIC = "chat/room1"
PATIENCE_S = 30.0


@pytest.fixture
def node() -> Iterator[cubecast.sync.Node]:
    with cubecast.sync.start("127.0.0.1:0") as node:
        yield node


@pytest.fixture
def client(node: cubecast.sync.Node) -> Iterator[cubecast.sync.Client]:
    with cubecast.sync.connect(node.address) as client:
        yield client


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "cubecast-sync"]


def until(condition: object) -> None:
    """Wait for what another thread does; bounded by the test's own patience."""
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# -- calls -----------------------------------------------------------------------------------------


def test_a_node_and_a_client_talk_in_order(
    node: cubecast.sync.Node, client: cubecast.sync.Client
) -> None:
    with client.subscribe("chat/#") as here, node.subscribe(TOPIC) as there:
        for number in range(100):
            (client if number % 2 else node).publish(TOPIC, str(number))
        client.flush(PATIENCE_S)
        assert len(here.take(100, PATIENCE_S)) == 100
        odd = [int(one.payload) for one in there.take(100, PATIENCE_S) if int(one.payload) % 2]
        assert odd == list(range(1, 100, 2))
        assert (here.dropped, there.topic) == (0, TOPIC)


def test_a_member_joins_and_its_messages_arrive(node: cubecast.sync.Node) -> None:
    with node.events(timeout=PATIENCE_S) as events:
        with (
            cubecast.sync.join(node.address) as other,
            node.subscribe(TOPIC, timeout=PATIENCE_S) as messages,
        ):
            assert isinstance(events.get(PATIENCE_S), cubecast.MemberJoined)
            other.publish(TOPIC, b"hello")
            assert next(messages).source == other.slot == 1
            assert sorted(node.members()) == [0, 1]
        assert isinstance(next(events), cubecast.MemberLeft)


def test_questions_are_answered(node: cubecast.sync.Node, client: cubecast.sync.Client) -> None:
    with node.subscribe(TOPIC):
        for one in (node, client):
            assert one.members() == {0: node.address}
            assert one.subscribers(TOPIC) == [0]
            assert one.topics() == {TOPIC: [0]}
            assert one.explain(TOPIC)["standing"] == "in"
            assert (one.slot, one.address) == (0, node.address)
        assert client.tree(TOPIC).root == 0
        assert client.run(client.inner.view())[1] == []


def test_a_request_is_answered_and_numbers_are_read(
    node: cubecast.sync.Node, client: cubecast.sync.Client
) -> None:
    with node.subscribe("service/upper", timeout=PATIENCE_S) as requests:

        def serve() -> None:
            request = next(requests)
            node.reply(request, request.payload.upper())

        service = threading.Thread(target=serve)
        service.start()
        answer = client.request("service/upper", "hello", timeout=PATIENCE_S)
        service.join()
    assert answer.payload == b"HELLO"
    assert node.stats().clients == 1
    assert client.stats().published == node.stats().published > 0


def test_a_request_can_be_refused(node: cubecast.sync.Node, client: cubecast.sync.Client) -> None:
    with node.subscribe("service/upper", timeout=PATIENCE_S) as requests:
        service = threading.Thread(target=lambda: node.reply_error(next(requests), "not today"))
        service.start()
        with pytest.raises(cubecast.RequestFailed, match="not today"):
            client.request("service/upper", timeout=PATIENCE_S)
        service.join()


def test_an_answer_outside_the_loop_is_refused_and_says_what_to_call(
    node: cubecast.sync.Node, client: cubecast.sync.Client
) -> None:
    """A coroutine that is not awaited, or one in the loop of a notebook, would answer nothing."""

    async def in_another_loop(request: cubecast.Message) -> None:
        await request.reply("no")

    said: list[str] = []

    def serve(requests: cubecast.sync.Subscription) -> None:
        request = next(requests)
        for use in (
            lambda: request.reply("no"),
            lambda: request.reply_error("no"),
            lambda: asyncio.run(in_another_loop(request)),
        ):
            with pytest.raises(TypeError) as caught:
                use()
            said.append(str(caught.value))
        node.reply(request, "yes")

    with node.subscribe("service/upper", timeout=PATIENCE_S) as requests:
        service = threading.Thread(target=serve, args=(requests,))
        service.start()
        assert client.request("service/upper", timeout=PATIENCE_S).payload == b"yes"
        service.join()
    assert [text.partition("call ")[2] for text in said] == [
        "client.reply(message, payload)",
        "client.reply_error(message, text)",
        "client.reply(message, payload)",
    ]


def test_a_plain_message_is_refused_an_answer_at_the_call(node: cubecast.sync.Node) -> None:
    """A coroutine that is not awaited would raise nothing."""
    with node.subscribe(TOPIC, timeout=PATIENCE_S) as messages:
        node.publish(TOPIC, "plain")
        message = next(messages)
        for use in (lambda: message.reply("no"), lambda: message.reply_error("no")):
            with pytest.raises(ValueError, match="asks for no answer: it was published"):
                use()


def test_an_answer_in_the_loop_of_a_facade_may_come_from_its_threads(
    node: cubecast.sync.Node, client: cubecast.sync.Client
) -> None:
    """What `run` runs is asynchronous code: messages that it reads are answered as anywhere."""
    ready = threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def work(message: cubecast.Message) -> None:
            asyncio.run_coroutine_threadsafe(message.reply("done"), loop).result(PATIENCE_S)

        async with node.inner.subscribe("service/upper") as requests:
            ready.set()
            await asyncio.to_thread(work, await anext(requests))

    service = threading.Thread(target=lambda: node.run(serve()))
    service.start()
    assert ready.wait(PATIENCE_S)
    assert client.request("service/upper", timeout=PATIENCE_S).payload == b"done"
    service.join()


def test_a_typed_topic_is_refused_before_anything_is_lost(client: cubecast.sync.Client) -> None:
    """A coroutine that is not awaited would send nothing."""
    topic = cubecast.TypedTopic("sensors/hall", cubecast.codecs.json(int))
    through: Any = client
    for use in (lambda: topic.publish(through, 1), lambda: topic.subscribe(through)):
        with pytest.raises(TypeError, match=r"with cubecast.sync, publish\(topic.name"):
            use()


def test_a_receipt_tells_when_everyone_has_the_message(
    node: cubecast.sync.Node, client: cubecast.sync.Client
) -> None:
    for one in (node, client):
        with one.subscribe(TOPIC) as messages:
            receipt = one.publish(TOPIC, "hello", receipt=True)
            assert messages.get(PATIENCE_S).payload == b"hello"
            receipt.stable(PATIENCE_S)
            assert receipt.is_stable
            assert receipt.topic == TOPIC


def test_it_works_where_a_loop_runs_already(node: cubecast.sync.Node) -> None:
    async def cell() -> bytes:
        with cubecast.sync.connect(node.address) as client, client.subscribe(TOPIC) as messages:
            client.publish(TOPIC, "from a notebook")
            return messages.get(PATIENCE_S).payload

    assert asyncio.run(cell()) == b"from a notebook"


def test_several_threads_share_a_subscription_and_each_message_goes_to_one(
    client: cubecast.sync.Client,
) -> None:
    with client.subscribe(TOPIC) as messages:
        taken: list[bytes] = []
        readers = [
            threading.Thread(target=lambda: taken.extend(one.payload for one in messages))
            for _ in range(3)
        ]
        for one in readers:
            one.start()
        for number in range(300):
            client.publish(TOPIC, str(number))
        until(lambda: len(taken) == 300)
        assert len(set(taken)) == 300
    for one in readers:  # closing the subscription ended their loops
        one.join(PATIENCE_S)
        assert not one.is_alive()


def test_the_arguments_are_those_of_the_asynchronous_calls() -> None:
    for name in ("connect", "join", "start"):
        ours, theirs = getattr(cubecast.sync, name), getattr(cubecast, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
        assert f"`cubecast.{name}`" in ours.__doc__


# -- waiting that ends -----------------------------------------------------------------------------


def test_waiting_ends_after_the_timeout(client: cubecast.sync.Client) -> None:
    with client.subscribe(TOPIC, timeout=0.01) as messages:
        with pytest.raises(TimeoutError, match=r"subscription to 'chat/room1': .* in 0.01 s"):
            next(messages)
        with pytest.raises(TimeoutError):
            messages.get(timeout=0)
        assert messages.take(3, timeout=0.01) == []
        client.publish(TOPIC, "late")
        assert messages.get(PATIENCE_S).payload == b"late"
    with pytest.raises(TimeoutError):
        client.run(asyncio.sleep(PATIENCE_S), timeout=0.01)


def test_an_error_in_the_loop_is_raised_to_the_caller(client: cubecast.sync.Client) -> None:
    with pytest.raises(TypeError, match="a topic must be a str"):
        client.publish(7, b"")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="policy"):
        client.subscribe(TOPIC, policy="hope")
    with pytest.raises(NotSent, match="are more than"):
        client.publish(TOPIC, bytes(20_000_000))


def test_a_total_order_is_refused_in_words(node: cubecast.sync.Node) -> None:
    with pytest.raises(ValueError, match="has no synchronous form"):
        node.subscribe(TOPIC, order="total", managers=["127.0.0.1:1"])


def test_a_refused_connection_leaves_no_thread() -> None:
    before = threads()
    with pytest.raises(AttachError):
        cubecast.sync.connect("127.0.0.1:1")
    assert threads() == before


def test_after_closing_every_call_says_so(node: cubecast.sync.Node) -> None:
    client = cubecast.sync.connect(node.address)
    messages = client.subscribe(TOPIC)
    client.close()
    client.close()
    assert client.closed
    with pytest.raises(Closed):
        client.publish(TOPIC, "too late")
    with pytest.raises(Closed):
        client.members()
    with pytest.raises(Closed):
        messages.get(PATIENCE_S)
    messages.close()
    assert list(messages) == []


def test_a_loop_over_messages_ends_with_the_reason_when_its_node_leaves() -> None:
    with cubecast.sync.start("127.0.0.1:0") as node:
        client = cubecast.sync.connect(node.address)
        messages = client.subscribe(TOPIC)
        client.publish(TOPIC, "the last one")
        client.flush(PATIENCE_S)
    with pytest.raises(Closed, match="the node leaves the cluster"):
        assert [next(messages).payload, next(messages).payload] == []
    client.close()


def test_a_call_from_the_thread_of_the_loop_is_refused(client: cubecast.sync.Client) -> None:
    async def careless() -> None:
        client.publish(TOPIC, "I wait for myself")

    with pytest.raises(RuntimeError, match="would wait for itself"):
        client.run(careless())


def test_a_call_that_waits_ends_when_another_thread_closes(node: cubecast.sync.Node) -> None:
    client = cubecast.sync.connect(node.address)
    caught: list[BaseException] = []
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            client.run(wait())
        except Closed as error:
            caught.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    assert begun.wait(PATIENCE_S)
    client.close()
    waiting.join(PATIENCE_S)
    assert len(caught) == 1


# -- what is not read ------------------------------------------------------------------------------


def test_breaking_out_of_a_loop_unsubscribes(node: cubecast.sync.Node) -> None:
    node.publish(TOPIC, "this is not heard")
    for number, _ in enumerate(_talking(node)):
        if number == 2:
            break
    gc.collect()
    until(lambda: node.subscribers(TOPIC) == [])


def _talking(node: cubecast.sync.Node) -> cubecast.sync.Subscription:
    messages = node.subscribe(TOPIC)
    for number in range(10):
        node.publish(TOPIC, str(number))
    return messages


def test_little_is_taken_ahead_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest waits at the node, where the policy applies."""
    monkeypatch.setattr(reading, "AHEAD", 8)
    config = NodeConfig(listen="127.0.0.1:0", queue_bytes=1000)
    with (
        cubecast.sync.start(config=config) as node,
        node.subscribe(TOPIC, policy="drop-newest") as messages,
    ):
        for _ in range(40):
            node.publish(TOPIC, bytes(500), receipt=True).stable(PATIENCE_S)
        kept = 40 - messages.dropped
        assert 8 <= kept <= 10
        assert len(messages.take(kept, PATIENCE_S)) == kept
        node.publish(TOPIC, "there is room again")
        assert messages.get(PATIENCE_S).payload == b"there is room again"


def test_large_messages_are_taken_ahead_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AHEAD_BYTES", 1000)
    with cubecast.sync.start("127.0.0.1:0") as node, node.subscribe(TOPIC) as messages:
        for number in range(5):
            node.publish(TOPIC, bytes([number]) * 2000)
        assert [one.payload[0] for one in messages.take(5, PATIENCE_S)] == list(range(5))


def test_a_thread_that_publishes_counts_as_the_reader_that_it_is() -> None:
    """So publishers do not wait for it: it reads on only when it has published."""
    config = NodeConfig(listen="127.0.0.1:0", protocol=small_window(), queue_bytes=500)
    with cubecast.sync.start(config=config) as node, node.subscribe(TOPIC) as messages:
        idle = node.run(_entered(node.inner.subscribe(TOPIC)))
        ended = threading.Event()

        def answer() -> None:
            messages.get(PATIENCE_S)
            with suppress(NotSent):
                while True:
                    node.publish(TOPIC, bytes(500), timeout=1)
            ended.set()

        answering = threading.Thread(target=answer)
        answering.start()
        node.publish(TOPIC, "a question")
        until(lambda: ended.is_set() or node.run(_holds_readers(node.inner)))
        assert not ended.is_set()
        answering.join(PATIENCE_S)  # `idle` is not read, so its publish fails in the end
        assert ended.is_set()
        node.run(idle.close())


async def _entered(subscription: AsyncSubscription) -> AsyncSubscription:
    return await subscription.__aenter__()


async def _holds_readers(node: cubecast.Node) -> bool:
    return shell_of(node).publishing.holds_readers()


# -- the end of a program --------------------------------------------------------------------------


def script(body: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of a user's, with every warning an error."""
    with in_front():
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(body), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, complaints = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, complaints


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Press Ctrl-C once the program says that it waits."""
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    return finished(process)


WAITS_FOR_A_MESSAGE = """
    import sys, cubecast
    try:
        with cubecast.sync.connect(sys.argv[1]) as client:
            messages = client.subscribe("chat/room1")
            print("waiting", flush=True)
            for message in messages:
                print(message)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_ends_a_loop_that_waits_for_a_message(node: cubecast.sync.Node) -> None:
    assert interrupted(script(WAITS_FOR_A_MESSAGE, node.address)) == (0, "interrupted\n", "")


def test_ctrl_c_ends_a_member_that_waits_for_a_message(node: cubecast.sync.Node) -> None:
    member = WAITS_FOR_A_MESSAGE.replace("connect", "join")
    assert interrupted(script(member, node.address)) == (0, "interrupted\n", "")
    until(lambda: sorted(node.members()) == [0])


def test_ctrl_c_ends_an_attempt_to_connect() -> None:
    body = """
        import sys, cubecast
        try:
            cubecast.sync.connect(sys.argv[1], timeout_s=600)
        except KeyboardInterrupt:
            print("interrupted")
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        process = script(body, f"{host}:{port}")
        server.settimeout(PATIENCE_S)
        connection, _ = server.accept()
        with connection:  # and not a word
            assert connection.recv(1)
            process.send_signal(signal.SIGINT)
            assert finished(process) == (0, "interrupted\n", "")


def test_ctrl_c_ends_a_close_that_takes_too_long() -> None:
    body = """
        import asyncio
        from cubecast.sync.session import SessionThread

        class Slow:
            async def __aenter__(self):
                return self

            async def __aexit__(self, *_):
                print("waiting", flush=True)
                await asyncio.Event().wait()

        session = SessionThread(Slow)
        try:
            session.close()
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert interrupted(script(body)) == (0, "interrupted\n", "")


def test_a_program_that_forgets_to_close_loses_nothing_and_says_nothing(
    node: cubecast.sync.Node,
) -> None:
    body = """
        import sys, cubecast
        client = cubecast.sync.connect(sys.argv[1])
        messages = client.subscribe("chat/#")
        for number in range(100):
            client.publish("chat/room1", str(number))
    """
    with node.subscribe(TOPIC) as messages:
        assert finished(script(body, node.address)) == (0, "", "")
        heard = [int(one.payload) for one in messages.take(100, PATIENCE_S)]
        assert heard == list(range(100))


def test_an_object_that_is_collected_ends_its_thread(node: cubecast.sync.Node) -> None:
    before = len(threads())
    client = cubecast.sync.connect(node.address)
    messages = client.subscribe(TOPIC)
    assert len(threads()) == before + 1
    del client, messages
    gc.collect()
    until(lambda: len(threads()) == before)


def test_an_exception_in_the_block_is_let_through(node: cubecast.sync.Node) -> None:
    with pytest.raises(ZeroDivisionError), cubecast.sync.connect(node.address) as client:
        client.publish(TOPIC, str(1 // 0))
    assert client.closed


def test_an_error_of_leaving_is_raised_by_close_once() -> None:
    class Stubborn:
        async def __aenter__(self) -> str:
            return "value"

        async def __aexit__(self, *_: object) -> None:
            raise NotSent(TOPIC, "it was too late")

    session = SessionThread(Stubborn)
    assert session.value == "value"
    with pytest.raises(NotSent):
        session.close()
    session.close()
    assert session.over


def test_importing_cubecast_imports_neither_the_facade_nor_the_network() -> None:
    body = "import sys, cubecast; print([one for one in sys.modules if 'cubecast.' in one])"
    code, out, _ = finished(script(body))
    assert code == 0
    assert "cubecast.sync" not in out
    assert "cubecast.net" not in out


def test_the_example_prints_the_newest_reading_of_each_room() -> None:
    path = ROOT / "examples" / "sync_script.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("cellar: 8 degrees\nkitchen: 22 degrees\n", "")
