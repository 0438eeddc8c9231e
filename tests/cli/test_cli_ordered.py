"""``cubecast ordered``, as a newcomer types it in three terminals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cubecast.bench.event_servers import NoServer, nats_servers, redis_server
from support.terminal import in_front

COMMAND = [sys.executable, "-m", "cubecast.cli.main"]
GENEROUS_S = 120


def cubecast(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=GENEROUS_S
    )


@contextmanager
def background(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that has said on stderr that it is ready."""
    with in_front():
        pipe = subprocess.PIPE
        process = subprocess.Popen([*COMMAND, *arguments], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stderr.readline(), "it ended early"
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=GENEROUS_S)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def node() -> Iterator[list[str]]:
    with in_front():
        options = ("node", "--listen", "127.0.0.1:0")
        process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield [process.stdout.readline().split()[-1]]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=GENEROUS_S)
        process.stdout.close()


@pytest.mark.parametrize("service", [nats_servers, redis_server, node])
def test_two_terminals_print_the_lines_of_two_topics_in_one_order(service: object) -> None:
    with ExitStack() as stack:
        try:
            (address,) = stack.enter_context(service())  # type: ignore[operator]
        except NoServer as reason:
            pytest.skip(str(reason))
        manager = stack.enter_context(background("ordered", "manage", address))
        options = ("ordered", "sub", address, "bids", "trades", "--count", "20")
        plain = stack.enter_context(background(*options))
        parsed = stack.enter_context(background(*options, "--json"))
        lines = "".join(f"{('bids', 'trades')[n % 2]} number {n}\n" for n in range(20))
        done = cubecast("ordered", "pub", address, stdin=lines)
        assert (done.returncode, done.stderr) == (0, "")
        assert plain.stdout is not None
        assert parsed.stdout is not None
        one = plain.stdout.read().splitlines()
        other = [json.loads(line) for line in parsed.stdout.read().splitlines()]
        assert sorted(one) == sorted(f"{('bids', 'trades')[n % 2]}: number {n}" for n in range(20))
        assert one == [f"{message['topic']}: {message['payload']}" for message in other]
        assert all(message["in_order"] for message in other)
    assert manager.returncode == 0


def refusal(*arguments: str) -> str:
    done = cubecast("ordered", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_wrong_use_is_refused_in_one_line() -> None:
    assert "no answer from redis://127.0.0.1:1" in refusal("pub", "redis://127.0.0.1:1", "a", "b")
    assert "nats://..., redis://... or host:port" in refusal("sub", "amqp://127.0.0.1", "a")
    assert "'me' is not among the managers, manager" in refusal("manage", "h:1", "--name", "me")
    assert "cannot join the cluster at 127.0.0.1:1" in refusal("sub", "127.0.0.1:1", "a")


def test_the_help_teaches_the_three_terminals() -> None:
    text = cubecast("ordered", "--help").stdout
    for command in ("manage", "sub", "pub"):
        assert f"cubecast ordered {command} nats://localhost:4222" in text
