"""The tutorial, played: its files are written, its commands typed, its screens compared.

A block with a title that is a file's name is that file.  Every other block is a screen: a line
after `$ ` is a command, and what follows is printed or, in a conversation, typed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.paths import ROOT
from support.terminal import in_front

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
GENEROUS_S = 120
BANNER = ": you are in the lobby."
TYPED_BY_HAND = ["mkdir", "python3", "pip", "export"]
"""Commands that prepare a host, which no test runs; `python3` makes an environment."""


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(r'^```(\w+) title="([^"]+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == PAGE.count("```") / 2, "every block of the tutorial has a title"
    return [Block(*one) for one in found]


def screens() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page with the lines below it."""
    for block in blocks():
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *lines = part.splitlines()
                yield command, lines


def conversations() -> list[list[tuple[list[str], list[str]]]]:
    """The programs that run side by side, as (command, screen): on one host, and on two."""
    talks = [(shlex.split(c), s) for c, s in screens() if "talk.py" in c or " sub " in c]
    return [talks[:3], talks[3:]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for block in blocks():
        if block.language == "python":
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CUBECAST_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def program(command: list[str]) -> list[str]:
    """The command, run by this interpreter."""
    how = {
        "python": [],
        "cubecast": ["-m", "cubecast.cli.main"],
        "pytest": ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider"],
    }
    return [sys.executable, *how[command[0]], *command[1:]]


def test_every_command_of_the_tutorial_is_run_or_prepares_a_host() -> None:
    played = [command for group in conversations() for command, _ in group]
    assert [len(group) for group in conversations()] == [3, 2]
    rest = [c for c, _ in screens() if shlex.split(c) not in played]
    rest = [c for c in rest if c.split()[0] not in TYPED_BY_HAND]
    alone = ["cubecast --version", "python first.py", "cubecast secret", "pytest -q test_chat.py"]
    assert rest == alone


@pytest.mark.parametrize("command", ["cubecast --version", "python first.py", "cubecast secret"])
def test_a_command_prints_what_the_tutorial_shows(command: str, place: Path) -> None:
    shown = dict(screens())[command]
    printed = run(command, place)
    if command == "cubecast secret":  # a new one each time
        shown, printed = [str(len(line)) for line in shown], [str(len(line)) for line in printed]
    assert printed == shown


def test_the_tests_of_the_tutorial_pass(place: Path) -> None:
    assert re.match("3 passed in", run("pytest -q test_chat.py", place)[-1])


def run(command: str, place: Path) -> list[str]:
    done = subprocess.run(
        program(shlex.split(command)),
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


class Terminal:
    """A program whose screen is compared with the page, line by line."""

    def __init__(self, process: asyncio.subprocess.Process, screen: list[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.screen = screen
        self.keys, self.output = process.stdin, process.stdout

    async def line(self) -> str:
        line = (await self.output.readline()).decode()
        assert line, "the program ended"
        return line.rstrip("\n")

    async def play(self) -> None:
        """Type what is typed, and compare what is printed."""
        for line in self.screen[1:]:
            if is_printed(line):
                assert await self.line() == line
            else:
                self.keys.write(f"{line}\n".encode())

    async def end(self) -> None:
        self.keys.close()  # Ctrl-D
        assert await self.output.read() == b""
        assert await self.process.wait() == 0


class Watcher(Terminal):
    """`cubecast sub` with a pattern: each topic has its order, and two topics have none."""

    async def play(self) -> None:
        seen = [await self.line() for _ in self.screen[1:]]
        assert sorted(seen, key=topic_of) == sorted(self.screen[1:], key=topic_of)

    async def end(self) -> None:
        self.process.send_signal(signal.SIGINT)  # Ctrl-C
        assert await self.process.wait() == 0


def is_printed(line: str) -> bool:
    return line.startswith(("[", "a room's name"))


def topic_of(line: str) -> str:
    return line.split()[0]


class Cluster:
    """The programs of one conversation; the page's addresses become free ports of this host."""

    def __init__(self, place: Path, secret: str) -> None:
        self.place = place
        self.environment = environment(CUBECAST_SECRET=secret)
        self.addresses: dict[str, str] = {}
        self.terminals: list[Terminal] = []

    async def start(self, command: list[str], screen: list[str]) -> None:
        pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        with in_front():
            process = await asyncio.create_subprocess_exec(
                *program([self.here(word) for word in command]),
                cwd=self.place, env=self.environment, stdin=pipe, stdout=pipe, stderr=out,
            )  # fmt: skip
        terminal = (Watcher if "sub" in command else Terminal)(process, screen)
        self.terminals.append(terminal)
        first = await terminal.line()
        if BANNER in first:
            real, shown = first.split(BANNER), screen[0].split(BANNER)
            self.addresses[shown[0]], shown[0] = real[0], real[0]
            assert real == shown
        else:
            assert first == screen[0]

    def here(self, word: str) -> str:
        """An address that a program has taken, or a port that it may take."""
        if word in self.addresses:
            return self.addresses[word]
        return re.sub(r"^(?:10|127)\.0\.0\.(\d):7400$", r"127.0.0.\1:0", word)

    async def play(self) -> None:
        await asyncio.gather(*(terminal.play() for terminal in self.terminals))
        for terminal in reversed(self.terminals):
            await terminal.end()

    async def kill(self) -> None:
        for terminal in self.terminals:
            if terminal.process.returncode is None:
                terminal.process.kill()
                await terminal.process.wait()


@pytest.mark.parametrize(("which", "secret"), [(0, ""), (1, "not-so-secret")])
def test_the_terminals_show_what_the_tutorial_shows(which: int, secret: str, place: Path) -> None:
    async def story() -> None:
        cluster = Cluster(place, secret)
        try:
            async with asyncio.timeout(GENEROUS_S):
                for command, screen in conversations()[which]:
                    await cluster.start(command, screen)
                await cluster.play()
        finally:
            await cluster.kill()

    asyncio.run(story())
