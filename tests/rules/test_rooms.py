"""The rooms of tests/: no test file imports another one, and tests that are named exist."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT, SUPPORT, TESTS

NAMED = re.compile(r"\btests/[\w/]+\.(?:py|json)\b")
READ = (
    "*.md",
    "Makefile",
    "docs/**/*.md",
    "src/**/*.py",
    "tests/**/*.py",
    "tools/*",
    "bench/**/*.py",
)


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports, in dotted names, also by a call with its name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module or ''}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[
                ast.Constant(value=str(module)), *_
            ]) if name in ("import_module", "importorskip", "__import__"):  # fmt: skip
                yield module


def imports_between_tests(folder: Path) -> list[str]:
    """Each import of a test file by another file below `folder`."""
    files = sorted(folder.rglob("*.py"))
    tests = {path.stem for path in files if path.stem.startswith("test_")}
    return [
        f"{path.relative_to(folder)} imports {name}"
        for path in files
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if tests & set(name.split("."))
    ]


def test_no_test_file_is_imported() -> None:
    assert imports_between_tests(TESTS) == []


@pytest.mark.parametrize(
    "line",
    [
        "import test_other",
        "import test_other as other",
        "from test_other import helper",
        "from net.node.test_other import helper",
        "from tests.net.node import test_other",
        "from . import test_other",
        "def late():\n    from test_other import helper",
        "importlib.import_module('net.node.test_other')",
        "other = pytest.importorskip('test_other')",
    ],
)
def test_an_import_of_a_test_file_is_found(line: str, tmp_path: Path) -> None:
    for name in ("net/node/test_other.py", "sim/test_one.py", "support/helpers.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("from support.live import cluster\nimport test_it_is_not\n")
    assert imports_between_tests(tmp_path) == []
    for place in ("sim/test_one.py", "support/helpers.py"):
        (tmp_path / place).write_text(line)
        assert len(imports_between_tests(tmp_path)) == 1, place
        (tmp_path / place).write_text("")


def test_every_test_file_is_in_a_room_and_has_a_name_of_its_own() -> None:
    files = list(TESTS.rglob("test_*.py"))
    assert [path for path in files if path.parent in (TESTS, SUPPORT)] == []
    assert [name for name, count in Counter(path.name for path in files).items() if count > 1] == []
    assert len(files) > 200


def test_the_map_of_the_tests_names_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/*.py")}
    assert [room for room in sorted(rooms) if f"`{room}/`" not in page] == []


def test_no_module_of_support_hides_one_of_python() -> None:
    """Programs there are run by their path, and find the modules beside them first."""
    assert {path.stem for path in SUPPORT.glob("*.py")}.isdisjoint(sys.stdlib_module_names)


def missing(text: str) -> list[str]:
    return [name for name in NAMED.findall(text) if not (ROOT / name).exists()]


def test_tests_that_are_named_by_their_path_exist() -> None:
    pages = [path for pattern in READ for path in ROOT.glob(pattern) if path.is_file()]
    texts = {
        path: path.read_text(encoding="utf-8") for path in pages if path.name != "CHANGELOG.md"
    }
    named = sum(len(NAMED.findall(text)) for text in texts.values())
    found = {str(path): missing(text) for path, text in texts.items() if missing(text)}
    assert found == {}
    assert named > 60


def test_a_name_that_leads_nowhere_is_found() -> None:
    assert missing("`tests/rules/" + "test_gone.py` and `tests/conftest.py`") == [
        "tests/rules/" + "test_gone.py"
    ]
