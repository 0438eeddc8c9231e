"""The chat in the browser: real servers, real nodes, real WebSocket clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from support.paths import ROOT
from support.terminal import in_front

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")
websockets = pytest.importorskip("websockets.asyncio.client")

from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402

from cubecast import Rule, SlowSubscriber  # noqa: E402

SERVER = ROOT / "examples" / "web_chat" / "server.py"
GENEROUS_S = 120
LONG = "\N{GRINNING FACE}" * 2000


def run(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(GENEROUS_S):
            await story()

    asyncio.run(bounded())


class Browser:
    """A person in a room: says lines, and reads what the room's page would show."""

    def __init__(self, connection: Any, name: str) -> None:
        self.connection = connection
        self.name = name

    async def say(self, text: str) -> None:
        await self.connection.send(json.dumps({"name": self.name, "text": text}))

    async def read(self) -> str:
        said = json.loads(await self.connection.recv())
        return f"{said['name']}: {said['text']}"

    async def read_on(self) -> None:
        while True:
            await self.read()


@asynccontextmanager
async def browser(
    port: int, name: str, room: str = "lobby", *, receive_bytes: int = 1 << 20
) -> AsyncIterator[Browser]:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.connect(("127.0.0.1", port))
    url = f"ws://127.0.0.1:{port}/rooms/{room}"
    async with websockets.connect(url, sock=sock, compression=None) as connection:
        assert json.loads(await connection.recv()) == {"entered": True}
        yield Browser(connection, name)


class Server(uvicorn.Server):  # type: ignore[misc]
    """One that says when it has started."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, port=0, ws="websockets-sansio", log_level="warning"))
        self.ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])


@asynccontextmanager
async def servers(count: int) -> AsyncIterator[list[Server]]:
    """As many servers of one cluster, in this process; the last is stopped first."""
    make_app = runpy.run_path(str(SERVER))["make_app"]
    async with AsyncExitStack() as stack:
        started: list[Server] = []
        for _ in range(count):
            seed = started[0].config.app.state.node.address if started else None
            started.append(await stack.enter_async_context(serving(Server(make_app(seed)))))
        yield started


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    task = asyncio.create_task(server.serve())
    await server.ready.wait()
    try:
        yield server
    finally:
        server.should_exit = True
        await task


def test_a_room_is_the_same_room_on_every_server_and_rooms_are_apart() -> None:
    async def story() -> None:
        async with (
            servers(2) as (one, two),
            browser(one.port, "ann") as ann,
            browser(two.port, "bob") as bob,
            browser(two.port, "cem", "music") as cem,
        ):
            await cem.say("la la")
            assert await cem.read() == "cem: la la"
            await ann.say("is anybody there?")
            assert await bob.read() == await ann.read() == "ann: is anybody there?"
            await bob.say("me")
            assert await ann.read() == await bob.read() == "bob: me"
            await ann.say("good")
            await cem.say("la")
            assert await cem.read() == "cem: la"

    run(story)


def test_a_browser_shows_a_question_above_its_answer_although_the_answer_is_faster() -> None:
    async def story() -> None:
        async with (
            servers(3) as (one, two, three),
            browser(one.port, "ann") as ann,
            browser(two.port, "bob") as bob,
            browser(three.port, "cem") as cem,
        ):
            slots = [server.config.app.state.node.slot for server in (one, two, three)]
            one.config.app.state.node.faults.set(slots[2], Rule(delay_s=0.2))
            for number in range(3):
                await ann.say(f"question {number}")
                assert await bob.read() == f"ann: question {number}"
                await bob.say(f"answer {number}")
                assert await bob.read() == f"bob: answer {number}"
            seen = [await cem.read() for _ in range(6)]
            for number in range(3):
                question, answer = f"ann: question {number}", f"bob: answer {number}"
                assert seen.index(question) < seen.index(answer)

    run(story)


def test_an_invalid_line_is_refused_in_words_and_the_room_goes_on() -> None:
    async def story() -> None:
        async with servers(1) as (server,), browser(server.port, "ann") as ann:
            for wrong in ("hello", "{}", json.dumps({"name": "", "text": "x" * 3000})):
                await ann.connection.send(wrong)
                assert "a name and a text" in json.loads(await ann.connection.recv())["error"]
            await ann.say("now")
            assert await ann.read() == "ann: now"
            with pytest.raises(InvalidStatus, match="403"):
                await browser(server.port, "ann", "chat%23").__aenter__()

    run(story)


def test_text_of_another_program_is_shown_with_its_node() -> None:
    async def story() -> None:
        async with servers(1) as (server,), browser(server.port, "ann") as ann:
            node = server.config.app.state.node
            await node.publish("chat/lobby", "from a terminal")
            assert await ann.read() == f"node {node.slot}: from a terminal"

    run(story)


def test_a_browser_that_does_not_read_is_disconnected_and_the_others_read_on() -> None:
    async def story() -> None:
        async with servers(1) as (server,), browser(server.port, "ann") as ann:
            node = server.config.app.state.node
            async with browser(server.port, "laggard", receive_bytes=4096) as laggard:
                slow = asyncio.create_task(first(node.events(), SlowSubscriber))
                for _ in range(10_000):
                    if slow.done():
                        break
                    await ann.say(LONG)
                    assert await ann.read() == f"ann: {LONG}"
                assert slow.done(), "the server holds what the laggard does not read"
                with pytest.raises(ConnectionClosed, match="too slowly"):
                    await laggard.read_on()
            await ann.say("still here")
            assert await ann.read() == "ann: still here"

    run(story)


async def first(news: Any, kind: type) -> Any:
    async for event in news:
        if isinstance(event, kind):
            return event


class Program:
    """The server as a user starts it, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    @classmethod
    async def start(cls, *arguments: str) -> Program:
        command = [sys.executable, str(SERVER), "--port", "0", *arguments]
        pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        with in_front():
            return cls(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=out))

    async def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        while not (found := re.search(pattern, self.said)):
            line = await self.process.stdout.readline()
            assert line, self.said
            self.said += line.decode()
        return found[1]

    async def interrupt(self) -> int:
        os.kill(self.process.pid, signal.SIGINT)
        return await self.process.wait()


def test_the_program_serves_its_page_and_one_of_two_servers_may_stop() -> None:
    async def story() -> None:
        one = await Program.start()
        address = await one.until(r"node 0 at (\S+)")
        two = await Program.start("--join", address)
        ports = [int(await each.until(r"http://127\.0\.0\.1:(\d+)")) for each in (one, two)]
        page = await asyncio.to_thread(fetch, f"http://127.0.0.1:{ports[1]}/")
        assert "<title>cubecast chat</title>" in page
        assert not re.search("https?://", page)  # it loads nothing from another host
        async with browser(ports[1], "bob") as bob:
            async with browser(ports[0], "ann") as ann:
                await ann.say("hello")
                assert await bob.read() == await ann.read() == "ann: hello"
                assert await one.interrupt() == 0
                with pytest.raises(ConnectionClosed):
                    await ann.read()
            await bob.say("where is everyone?")
            assert await bob.read() == "bob: where is everyone?"
        assert await two.interrupt() == 0

    run(story)


def fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=GENEROUS_S) as answer:
        return str(answer.read().decode())
