"""What the README prints runs, and the examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from cubecast import Event
from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
GENEROUS_S = 600
"""Against hanging: some programs compile the kernel first, minutes on a busy machine."""
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=GENEROUS_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fenced(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


PLAYED = (
    "README.md",
    "docs/index.md",
    "docs/simulator.md",
    "docs/clients.md",
    "docs/lab.md",
    "docs/live.md",
    "docs/permissions.md",
    "docs/sync.md",
    "docs/tls.md",
)


@pytest.mark.parametrize("name", PLAYED)
def test_the_lines_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    script = tmp_path / "snippet.py"
    for snippet, expected in zip(fenced("python", page), fenced("text", page), strict=True):
        script.write_text(snippet, encoding="utf-8")
        assert python(str(script)) == expected


def readme_commands() -> list[str]:
    """Those of the simulator; test_cli_live.py types those of a live cluster."""
    lines = "".join(fenced("console")).splitlines()
    commands = [line[2:].split("#")[0].strip() for line in lines if line.startswith("$ ")]
    return [command for command in commands if command.split()[:2][-1] in ("sim", "tree")]


@pytest.mark.parametrize("command", readme_commands())
def test_a_command_of_the_readme_runs(command: str) -> None:
    _, *arguments = shlex.split(command)
    assert python("-m", "cubecast.cli.main", *arguments)


def test_the_tree_of_the_readme_is_the_tree_drawn() -> None:
    drawn = python("-m", "cubecast.cli.main", *shlex.split("tree --root 2 --members 0,2,3,5,7"))
    ascii_guides = {"├── ": "+-- ", "└── ": "`-- ", "│   ": "|   "}
    shown = README
    if "+-- " in drawn:
        for line, plain in ascii_guides.items():
            shown = shown.replace(line, plain)
    assert drawn in shown


def run_tests_of(path: Path) -> str:
    plugins = ("-p", "no:cacheprovider", "-p", "cubecast.pytest_plugin")
    return python("-m", "pytest", "-q", "-n", "0", *plugins, str(path))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path) -> None:
    if path.stem.startswith("test_"):
        assert "passed" in run_tests_of(path)
    else:
        assert python(str(path))


def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    blocks = fenced("python", (ROOT / "docs/testing.md").read_text(encoding="utf-8"))
    script = tmp_path / "test_page.py"
    script.write_text("\n\n".join(blocks), encoding="utf-8")
    told = re.search(r"^(\d+) passed in", run_tests_of(script), re.MULTILINE)
    assert told is not None, "some were skipped, or failed"
    written = re.findall(r"^(?:async )?def test_\w+", "\n".join(blocks), re.MULTILINE)
    assert int(told[1]) >= len(written) == len(set(written)) >= 15


def test_every_event_is_documented_with_its_fields() -> None:
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+\([\w, ]*\))` \|", page, re.MULTILINE))
    events = {f"{one.__name__}({', '.join(one.__struct_fields__)})" for one in get_args(Event)}
    assert documented == events


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
