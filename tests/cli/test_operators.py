"""What operators meet: full disks, blocked pipes, closed terminals, stopped readers, odd clocks.

Real processes.  Each of these ended or froze a node, or held up its publishers.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cubecast import NodeConfig, connect, join
from cubecast.cli.app import app
from cubecast.ordering.codec import TEN_YEARS_MS, OrderingError, check_message
from cubecast.ordering.live import new_life
from cubecast.ordering.production.layout import next_epoch
from cubecast.ordering.production.messages import Source
from cubecast.ordering.production.notices import Beat
from cubecast.testing.operator_troubles import annoy, free_address, full_pipe
from support.commands import COMMAND
from support.terminal import in_front

GENEROUS_S = 60.0
STRANGERS = 2000


# -- helpers --------------------------------------------------------------------------------------


@contextmanager
def node(
    *options: str, command: list[str] = COMMAND, named: str = "node", **streams: Any
) -> Iterator[Node]:
    """A node whose streams are what the test says, once it listens; it is gone at the end."""
    address = free_address()
    with in_front():
        process = subprocess.Popen([*command, named, "--listen", address, *options], **streams)
    try:
        yield Node(process, address)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def to(stream: object) -> dict[str, object]:
    """Both streams of a process go there."""
    return {"stdout": stream, "stderr": stream}


class Node:
    """A process that is to be a node."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        self.address = address
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + GENEROUS_S
        while time.monotonic() < deadline:
            with suppress(OSError), self._dialled():
                return
            assert self.process.poll() is None, "the node ended"
            time.sleep(0.05)
        raise AssertionError("the node does not listen")

    def _dialled(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=GENEROUS_S)

    def annoy(self, strangers: int) -> None:
        """Dial, say nonsense, be refused; one after the other."""
        annoy(self.address, strangers)

    def answers(self) -> None:
        """It takes a message and hands it out."""
        asyncio.run(asyncio.wait_for(self._talk(), GENEROUS_S))
        assert self.process.poll() is None

    async def _talk(self) -> None:
        async with connect(self.address) as client, client.subscribe("still") as messages:
            await client.publish("still", b"here")
            assert (await anext(messages)).payload == b"here"


def read_until(descriptor: int, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        ready, _, _ = select.select([descriptor], [], [], GENEROUS_S)
        assert ready, f"{wanted!r} does not come, only {said!r}"
        more = os.read(descriptor, 65536)
        assert more, f"{wanted!r} does not come, only {said!r}"
        said += more
    return said


# -- a log that is not read -----------------------------------------------------------------------


def test_refused_connections_do_not_freeze_a_node_behind_an_unread_pipe() -> None:
    """Fewer than 120 did."""
    with node(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as frozen:
        frozen.annoy(STRANGERS)
        frozen.answers()
        frozen.process.send_signal(signal.SIGTERM)
        out, err = frozen.process.communicate(timeout=GENEROUS_S)
        assert out.splitlines()[-1] == b"node 0 leaves"
        assert len(err.splitlines()) < 200
        assert b" more like this in the last " in err


def test_a_pipe_that_is_full_from_the_start_stops_no_node() -> None:
    """Every write blocks; the lines that could not be written are counted when it is read again."""
    with full_pipe() as (reader, writer), node(**to(writer)) as blocked:
        blocked.annoy(20)
        blocked.answers()
        said = read_until(reader, b"WARNING").lstrip(b"x")
        assert f"node 0 on {blocked.address}".encode() in said


# -- full disks -----------------------------------------------------------------------------------


def test_a_full_disk_ends_no_node() -> None:
    with open("/dev/full", "wb") as full, node(**to(full)) as survivor:
        survivor.annoy(20)
        survivor.answers()
        survivor.process.send_signal(signal.SIGTERM)
        assert survivor.process.wait(GENEROUS_S) == 0


def test_a_full_disk_ends_no_cluster_of_this_machine() -> None:
    """`cubecast up` prints what its nodes say, which is no reason to end them."""
    with open("/dev/full", "wb") as full, node("-n", "1", named="up", **to(full)) as survivor:
        survivor.answers()
        survivor.process.send_signal(signal.SIGTERM)
        assert survivor.process.wait(GENEROUS_S) == 0


def test_a_node_goes_on_to_log_when_the_disk_has_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("needs root to mount a small disk")
    except OSError:
        pytest.skip("needs mount")
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
        hog = disk / "hog"
        fill(hog)
        log = stack.enter_context((disk / "log").open("ab"))
        survivor = stack.enter_context(node(**to(log)))
        deadline = time.monotonic() + GENEROUS_S
        while b"dropped: No space left on device" not in (said := (disk / "log").read_bytes()):
            assert time.monotonic() < deadline, said
            fill(hog)  # again: a busy machine may write the lines only when there is room
            survivor.annoy(3)
            survivor.answers()
            hog.unlink()
            survivor.annoy(1)


def fill(hog: Path) -> None:
    """Use up the disk that this file is on."""
    with suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_sub_says_in_one_line_that_the_disk_is_full(here: Node) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(open("/dev/full", "wb"))
        sub = start_sub(stack, here, "disk", stdout=full)
        publish_until_it_ends(here, "disk", sub)
        assert sub.stderr is not None
        said = sub.stderr.read().decode()
        assert said == "cubecast sub: cannot write to stdout: No space left on device\n"
        assert sub.returncode == 2


# -- terminals ------------------------------------------------------------------------------------


def test_a_closed_terminal_ends_no_node() -> None:
    """The kernel sends SIGHUP, and every write fails from then on."""
    master, slave = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
    with node(**streams, start_new_session=True, preexec_fn=take_terminal) as survivor:
        os.close(slave)
        read_until(master, b" on 127.0.0.1:")
        os.close(master)
        survivor.annoy(20)
        survivor.answers()
        survivor.process.send_signal(signal.SIGTERM)
        assert survivor.process.wait(GENEROUS_S) == 0


def test_a_node_without_streams_is_a_node() -> None:
    with in_front():
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND]
        with node(command=closed) as survivor:
            survivor.annoy(20)
            survivor.answers()


@pytest.fixture(scope="module")
def here() -> Iterator[Node]:
    """A node that several tests read from."""
    with node(**to(subprocess.DEVNULL)) as found:
        yield found


# -- slow readers ---------------------------------------------------------------------------------


def start_sub(
    stack: ExitStack, here: Node, topic: str, *options: str, **streams: Any
) -> subprocess.Popen[bytes]:
    """A `cubecast sub` that is subscribed; the rest of its stderr can be read."""
    with in_front():
        sub = subprocess.Popen(
            [*COMMAND, "sub", topic, "--at", here.address, *options],
            stderr=subprocess.PIPE,
            **streams,
        )
    for stream in (sub.stdout, sub.stderr):
        if stream is not None:
            stack.callback(stream.close)
    stack.callback(sub.wait)
    stack.callback(sub.kill)
    assert sub.stderr is not None
    assert sub.stderr.readline() == f"subscribed to {topic} through node 0\n".encode()
    return sub


async def subscribers(here: Node, topic: str) -> list[int]:
    async with connect(here.address) as client:
        return (await client.topics()).get(topic, [])


def publish_until_it_ends(here: Node, topic: str, sub: subprocess.Popen[bytes]) -> None:
    async def publish() -> None:
        async with connect(here.address) as client:
            while sub.poll() is None:
                await client.publish(topic, b"message")
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(publish(), GENEROUS_S))


async def publish_much(here: Node, topic: str) -> None:
    """Twelve times a queue, each piece taken in time."""
    async with connect(here.address) as client:
        for _ in range(200):
            await client.publish(topic, b"x" * 65536, timeout=10.0)
        await client.publish(topic, b"the last one", timeout=10.0)
        await asyncio.wait_for(client.flush(), 20.0)


def held_up(here: Node, topic: str) -> None:
    asyncio.run(asyncio.wait_for(publish_much(here, topic), GENEROUS_S))


QUEUE = ("--queue-bytes", "1MiB")


def test_a_stopped_sub_holds_up_no_publisher_and_says_what_it_missed(here: Node) -> None:
    """It held them up for 65 s, until its node took it for dead."""
    with ExitStack() as stack:
        sub = start_sub(stack, here, "much", stdout=subprocess.PIPE)
        sub.send_signal(signal.SIGSTOP)
        held_up(here, "much")
        sub.send_signal(signal.SIGCONT)
        assert sub.stdout is not None
        read_until(sub.stdout.fileno(), b"the last one\n")
        sub.send_signal(signal.SIGINT)
        assert sub.wait(GENEROUS_S) == 0
        assert sub.stderr is not None
        told = sub.stderr.read().decode().splitlines()
        assert told
        assert all(" dropped so far, as they were read too slowly; with --p" in one for one in told)


def test_a_sub_behind_a_blocked_pipe_holds_up_no_publisher_and_stays_attached(
    tmp_path: Path,
) -> None:
    """Its node hears from it: it loses its connection only if it is silent for a second."""
    config = tmp_path / "cubecast.toml"
    config.write_text("client_silence_s = 1\n", encoding="utf-8")
    with node("--config", str(config), **to(subprocess.DEVNULL)) as here, ExitStack() as stack:
        reader, writer = stack.enter_context(full_pipe())
        sub = start_sub(stack, here, "much", *QUEUE, stdout=writer)
        held_up(here, "much")
        time.sleep(1.5)
        assert asyncio.run(subscribers(here, "much")) == [0]
        assert sub.poll() is None
        read_until(reader, b"the last one\n")


def test_a_sub_that_is_to_lose_nothing_holds_up_publishers(here: Node) -> None:
    with ExitStack() as stack:
        options = ("--policy", "block", "--count", "201", *QUEUE)
        sub = start_sub(stack, here, "all", *options, stdout=subprocess.DEVNULL)
        sub.send_signal(signal.SIGSTOP)

        async def publish() -> None:
            work = asyncio.create_task(publish_much(here, "all"))
            _, late = await asyncio.wait([work], timeout=1.0)
            assert late, "no publisher waits for it"
            sub.send_signal(signal.SIGCONT)
            await work

        asyncio.run(asyncio.wait_for(publish(), GENEROUS_S))
        assert sub.wait(GENEROUS_S) == 0, "it has not got all 201"


def test_sub_ends_in_silence_when_its_reader_has_gone(here: Node) -> None:
    with ExitStack() as stack:
        sub = start_sub(stack, here, "head", stdout=subprocess.PIPE)
        assert sub.stdout is not None
        sub.stdout.close()
        publish_until_it_ends(here, "head", sub)
        assert sub.stderr is not None
        assert (sub.returncode, sub.stderr.read()) == (1, b"")


def test_ctrl_c_ends_a_sub_whose_pipe_is_blocked(here: Node) -> None:
    with ExitStack() as stack:
        _, writer = stack.enter_context(full_pipe())
        sub = start_sub(stack, here, "blocked", stdout=writer)
        asyncio.run(_say(here, "blocked", b"x" * 1000))
        sub.send_signal(signal.SIGINT)
        assert sub.wait(GENEROUS_S) == 0


async def _say(here: Node, topic: str, payload: bytes) -> None:
    async with connect(here.address) as client:
        await client.publish(topic, payload)


@pytest.mark.parametrize("options", [("--policy", "wait"), ("--queue-bytes", "much")])
def test_a_policy_or_a_size_that_does_not_exist_is_refused(options: tuple[str, ...]) -> None:
    said = typed("sub", "chat", *options)
    assert said.startswith(f"cubecast sub: {options[0]} must be ")
    assert said.endswith(f", not {options[1]!r}\n")


# -- what a peer says -----------------------------------------------------------------------------

ESCAPE = b"\x1b[31mred\tone\xff"


def test_a_pipe_gets_bytes_as_they_are_and_a_topic_in_visible_characters(here: Node) -> None:
    with ExitStack() as stack:
        sub = start_sub(stack, here, "odd/#", "--count", "1", stdout=subprocess.PIPE)
        asyncio.run(_say(here, "odd/\x1b]0;x\x07\n", ESCAPE))
        assert sub.stdout is not None
        assert sub.stdout.read() == rb"odd/\x1b]0;x\x07\n: " + ESCAPE + b"\n"


def test_a_terminal_gets_no_control_characters(here: Node) -> None:
    with ExitStack() as stack:
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        start_sub(stack, here, "odd", stdout=slave)
        os.close(slave)
        asyncio.run(_say(here, "odd", ESCAPE))
        assert r"\x1b[31mred" in read_until(master, "\ufffd".encode()).decode()


def test_the_log_is_json_on_request_and_names_its_node() -> None:
    with node("--log-format", "json", stderr=subprocess.PIPE) as here:
        here.annoy(12)
        here.process.send_signal(signal.SIGTERM)
        _, err = here.process.communicate(timeout=GENEROUS_S)
    lines = [json.loads(line) for line in err.splitlines()]
    refused = [line for line in lines if "closing connection" in line["message"]]
    assert refused
    assert {line["level"] for line in refused} == {"WARNING"}
    assert {line["logger"] for line in refused} == {"cubecast"}
    assert {line["node"] for line in refused} == {0}
    assert refused[0]["time"].endswith("Z")


# -- clocks ---------------------------------------------------------------------------------------

CLOCK = """
import sys, time
shown = {seconds}
time.time = lambda: shown
time.time_ns = lambda: int(shown * 1e9)
from cubecast.cli.main import main
main()
"""


@pytest.mark.parametrize("seconds", [-86400.0, 4e9])
def test_a_clock_before_1970_or_far_ahead_wedges_nothing(seconds: float) -> None:
    command = [sys.executable, "-c", CLOCK.format(seconds=seconds)]
    with node(command=command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as odd:
        odd.annoy(3)
        odd.answers()


def test_a_clock_that_jumps_wedges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: shown[0])
    monkeypatch.setattr(time, "time_ns", lambda: int(shown[0] * 1e9))

    async def talk() -> list[int]:
        times = []
        async with (
            join(None) as one,
            join(one.address) as other,
            other.subscribe("time") as messages,
        ):
            for now in (1_800_000_000.0, -5.0, 9e9, 0.0, 1_800_000_000.0):
                shown[0] = now
                await one.publish("time", b"now")
                times.append((await anext(messages)).published_at)
        return times

    times = asyncio.run(asyncio.wait_for(talk(), GENEROUS_S))
    assert [int(one) for one in times] == [1_800_000_000, 0, 9_000_000_000, 0, 1_800_000_000]


@pytest.mark.parametrize("shown_ms", [-86_400_000, 0, 5_000])
def test_an_ordering_member_whose_clock_was_never_set_takes_the_epochs_of_the_others(
    shown_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their epochs begin with the time; those of the far future are refused."""
    monkeypatch.setattr(time, "time_ns", lambda: shown_ms * 1_000_000)
    life = new_life()
    assert life >= 0
    today = Source("m", 1_800_000_000_000)
    check_message(Beat(today, next_epoch(-1, today), -1, leaving=False), life)
    ahead = Source("m", today.life + 2 * TEN_YEARS_MS)
    with pytest.raises(OrderingError, match="beat of epoch"):
        check_message(Beat(ahead, next_epoch(-1, ahead), -1, leaving=False), life)


# -- secrets that are no text ---------------------------------------------------------------------


def typed(*arguments: str, **environment: str) -> str:
    """What a command says that refuses what was typed: one line on stderr."""
    done = CliRunner().invoke(app, list(arguments), env=environment)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    return done.stderr


NODE = ("node", "--listen", "127.0.0.1:0")
NOT_UTF8 = "must be text in UTF-8, and has bytes that are not\n"


def test_a_secret_that_is_not_utf8_takes_one_line(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.write_bytes(b"s\xff\xfe")
    words = [os.fsencode(word) for word in (*COMMAND, *NODE, "--secret", b"s\xff")]
    done = subprocess.run(words, capture_output=True, timeout=GENEROUS_S, check=False)
    assert done.stderr.decode() == f"cubecast node: secret {NOT_UTF8}"
    assert done.returncode == 2
    assert typed("pub", "t", "m", CUBECAST_SECRET="s\udcff") == (
        f"cubecast pub: environment: CUBECAST_SECRET {NOT_UTF8}"
    )
    assert typed("pub", "t", "m", CUBECAST_SECRET_FILE=str(hidden)).endswith(
        f"cannot be read: {hidden}: not text in UTF-8\n"
    )
    with pytest.raises(ValueError, match="secret is not text"):
        NodeConfig(secret="s\udcff")


def test_hooks_run_when_a_node_gets_sighup() -> None:
    from cubecast.cli import node

    ran: list[str] = []
    hook: Callable[[], None] = lambda: ran.append("read again")  # noqa: E731
    node.on_hangup.append(hook)
    try:
        node._hung_up()
    finally:
        node.on_hangup.remove(hook)
    assert ran == ["read again"]
