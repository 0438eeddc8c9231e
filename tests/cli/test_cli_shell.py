"""The command line itself: its list of commands, completion, and ``python -m cubecast``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cubecast.cli.app import COMMANDS, SUMMARIES, app
from support.paths import SOURCE

ENTRY = (
    "import sys; sys.argv = ['cubecast', *sys.argv[1:]]; from cubecast.cli.main import main; main()"
)
LIMIT_S = 60


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )  # fmt: skip


def completed(words: str) -> list[str]:
    """What bash offers for the last word."""
    count = str(len(words.split(" ")) - 1)
    return python(
        "-c", ENTRY,
        _CUBECAST_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count,
    ).stdout.split()  # fmt: skip


def test_python_m_cubecast_is_the_command() -> None:
    done = python("-m", "cubecast", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cubecast ")


def test_every_command_is_summed_up_in_a_line_that_is_not_cut_off() -> None:
    assert SUMMARIES.keys() == COMMANDS.keys()
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).stdout
    listed = shown[shown.index("Commands:") :]
    for name, summary in SUMMARIES.items():
        assert f"  {name:<11}  {summary}\n" in listed


def test_the_help_reads_no_command() -> None:
    program = (
        "import sys\n"
        "from cubecast.cli.app import app\n"
        "try:\n    app(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('cubecast.net')], file=sys.stderr)"
    )
    assert python("-c", program).stderr == "[]\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cubecast to", ["topics", "top", "token"]),
        ("cubecast top --no", ["--node"]),
        ("cubecast bench fan", ["fanout"]),
        ("cubecast --inst", ["--install-completion"]),
    ],
)
def test_bash_completes_commands_and_options(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


def test_the_script_of_completion_can_be_shown() -> None:
    done = python("-c", ENTRY, "--show-completion", "bash")
    assert "_CUBECAST_COMPLETE" in done.stdout


def test_a_node_whose_streams_are_one_tells_each_event_once(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    with log.open("w") as both:
        node = subprocess.Popen(
            [sys.executable, "-m", "cubecast", "node", "--listen", "127.0.0.1:0",
             "--log-level", "info"],
            stdout=both, stderr=both, env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
    try:
        while " on 127.0.0.1:" not in log.read_text():
            assert node.poll() is None
        seed = next(line for line in log.read_text().splitlines() if " on 127" in line).split()[-1]
        program = (
            "import asyncio, cubecast\n"
            "async def main():\n"
            f"    async with cubecast.join({seed!r}):\n"
            "        pass\n"
            "asyncio.run(main())\n"
        )
        assert python("-c", program).returncode == 0
        while "node 1 left" not in log.read_text():
            assert node.poll() is None
    finally:
        node.terminate()
        node.wait(LIMIT_S)
    told = log.read_text()
    assert told.count("node 1 joined") == told.count("node 1 left") == 1, told
