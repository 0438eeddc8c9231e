"""The mutation tool changes what it says it changes, and nothing that only people read."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from support.paths import ROOT
from support.tools import load_tool

mutations = load_tool("mutations")
mutate = load_tool("mutate")


def changes(source: str, tmp_path: Path) -> set[str]:
    """Every mutant of a module, as source; what is equal but for the layout is one."""
    path = tmp_path / "src" / "cubecast" / "toy.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    raw = path.read_bytes()
    return {
        ast.unparse(ast.parse(mutant.applied(raw)))
        for mutant in mutations.mutants_of(path, tmp_path)
    }


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = (a) == (b)", ["x = a != b"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a < b < c", ["x = a <= b < c", "x = a < b <= c"]),
        ("x = a + b", ["x = a - b"]),
        ("x = a << b", ["x = a >> b"]),
        ("x = -a", ["x = a"]),
        ("x = 3", ["x = 3 + 1"]),
        ("x = True", ["x = False"]),
        ("x = a and b", ["x = a or b", "x = a", "x = b"]),
        ("x = not a", ["x = bool(a)"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = a if b else c", ["x = a if not b else c"]),
        ("x += y", ["x -= y", "pass"]),
        ("x.y = z", ["pass"]),
        ("call(a)", ["pass"]),
        ("del x[0]", ["pass", "del x[0 + 1]"]),
    ],
)
def test_the_mutants_of_a_line(line: str, mutants: list[str], tmp_path: Path) -> None:
    assert changes(line, tmp_path) == set(mutants)


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "x: int | None = None",
        "assert 1 < 2",
        'log.info("%d of %d", 1, 2)',
        "self.marks['branch'] += 1",
        'x = f"{1}"',
        "def __repr__(self):\n    return 1",
        "def __init__(self, a):\n    self.a = a",
        "x = 'a' + 'b'",
    ],
)
def test_text_that_only_people_read_is_not_changed(source: str, tmp_path: Path) -> None:
    assert changes(source, tmp_path) == set()


def test_a_raise_is_left_out_but_its_words_are_not_changed(tmp_path: Path) -> None:
    source = "if a:\n    raise ValueError(1 + 2)"
    assert changes(source, tmp_path) == {
        "if not a:\n    raise ValueError(1 + 2)",
        "if a:\n    pass",
    }


def test_names_do_not_depend_on_the_lines_above(tmp_path: Path) -> None:
    def names(source: str) -> list[str]:
        path = tmp_path / "src" / "cubecast" / "toy.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return [mutant.name for mutant in mutations.mutants_of(path, tmp_path)]

    function = "def f(a, b=1):\n    return a < b\n"
    below = [name for name in names("import os\n\n\n" + function) if ":f:" in name]
    assert below == [name for name in names(function) if ":f:" in name]
    assert below == ["toy:f:return:1", "toy:f:boundary:1"]


def test_every_mutant_of_the_protocol_is_python_and_has_a_name_of_its_own() -> None:
    protocol = ROOT / "src" / "cubecast" / "protocol"
    found = list(
        mutations.all_mutants(
            [protocol / "subscriptions" / "links.py", protocol / "config.py"], ROOT
        )
    )
    assert len({mutant.name for mutant in found}) == len(found) > 100
    for mutant in found:
        ast.parse(mutant.applied((ROOT / mutant.path).read_bytes()))


def test_tests_of_a_bound_are_found_by_its_name_whatever_else_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code may name a source of ours, and lines that this has not."""
    coverage = pytest.importorskip("coverage", reason="only `collect` and `run` need it")
    path = tmp_path / "src" / "cubecast" / "toy.py"
    path.parent.mkdir(parents=True)
    path.write_text("LIMIT = 8\n\n\ndef fits(size):\n    return size < LIMIT\n")
    for name in ("ROOT", "COVERAGE", "TIMES"):
        monkeypatch.setattr(mutate, name, tmp_path / name if name != "ROOT" else tmp_path)
    data = coverage.CoverageData(basename=str(tmp_path / "COVERAGE"))
    for context, lines in (("", [1, 4]), ("test_fits", [5, 99])):
        data.set_context(context)
        data.add_lines({str(path): lines})
    data.write()
    (tmp_path / "TIMES").write_text(json.dumps({"test_fits": 0.1}))
    selection = mutate.Selection()
    (limit, *_) = mutations.mutants_of(path, tmp_path)
    assert str(limit).endswith("8 -> (8 + 1)")
    assert selection.tests(limit) == ["test_fits"]
