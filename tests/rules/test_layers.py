"""The layers of the house: which room may import which (docs/design.md, "Rooms").

The simulator is above the live nodes: it puts their wire and their keeper of retained values on the
simulated path.

Every import counts, wherever it stands in a module: one inside a function hides a cycle as well as
it delays it.  Imports for type checkers alone (``if TYPE_CHECKING``) do not count: nothing runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

SRC = ROOT / "src" / "cubecast"
LAYERS = (
    {"errors", "interrupts", "topology", "version"},
    {"codecs", "logs", "opening", "plugins", "protocol", "trace"},
    {"baselines", "net", "overlay"},
    {"ordering", "processes", "sim", "sync"},
    {"bench", "chaos", "kernel"},
    {"lab", "testing"},
    {"spark"},
    {"cli", "pytest_plugin"},
)
"""From the lowest on; a room imports itself and rooms of lower layers."""
PARTS = {"tracing": "net", "typed": "net", "__main__": "cli"}
"""Modules beside the rooms that belong to one of them."""
FRONT = "cubecast"
"""The public names: it may name every room, and rooms that act as applications import it."""
APPLICATIONS = {"bench", "cli", "lab", "spark", "sync", "testing"}
KNOWN = {
    ("cubecast.sim.run", "kernel"): "a run takes the compiled engine where there is one",
    ("cubecast.net.node.node", "ordering"): "`subscribe(order='total')` of a node",
    ("cubecast.lab.running", "spark"): "`cubecast.lab.run` is the door of the lab",
    ("cubecast.lab.finished_run", "spark"): "the same: it reads what was run",
}
"""Imports upwards that are left, all inside functions; this list may only become shorter."""


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(("cubecast", *(part for part in parts if part != "__init__")))


def room_of(module: str) -> str:
    first = (*module.split("."), "")[1]
    return PARTS.get(first, first) if first else FRONT


def imports_of(source: str, modules: set[str]) -> Iterator[str]:
    tree = ast.parse(source)
    only_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module


def layer_of(room: str) -> int:
    found = [number for number, rooms in enumerate(LAYERS) if room in rooms]
    assert found, f"{room} is in no layer: put it in LAYERS, and in the map of docs/design.md"
    return found[0]


def may_import(room: str, other: str) -> bool:
    return room in APPLICATIONS if other == FRONT else layer_of(other) < layer_of(room)


def upwards(root: Path) -> list[tuple[str, str]]:
    """Every (module, room) where a module imports a room that it must not know."""
    sources = {module_of(path, root): path for path in root.rglob("*.py")}
    found = set()
    for module, path in sources.items():
        room = room_of(module)
        if room == FRONT:
            continue
        for name in imports_of(path.read_text(encoding="utf-8"), set(sources)):
            other = room_of(name)
            if name.split(".")[0] != "cubecast" or other == room:
                continue
            if not may_import(room, other):
                found.add((module, other))
    return sorted(found)


def test_no_room_imports_one_of_its_own_layer_or_above() -> None:
    assert set(upwards(SRC)) == set(KNOWN)


@pytest.mark.parametrize(
    ("place", "planted"),
    [
        ("protocol/topic/planted.py", "from cubecast.net.node.node import Node"),
        ("trace/planted.py", "from cubecast.protocol.port import Seq"),
        ("net/wire/planted.py", "from cubecast.sim.world import World"),
        ("sim/planted.py", "def late():\n    from cubecast.lab.cells import Cell"),
        ("net/planted.py", "import cubecast.chaos.schedule"),
        ("net/planted.py", "from cubecast import connect"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, place: str, planted: str) -> None:
    for path in SRC.rglob("*.py"):
        copy = tmp_path / path.relative_to(SRC)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / place).write_text(planted + "\n", encoding="utf-8")
    (found,) = set(upwards(tmp_path)) - set(KNOWN)
    assert found[0] == module_of(tmp_path / place, tmp_path)


def test_types_alone_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "protocol"
    folder.mkdir()
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cubecast.net import x\n"
    (folder / "planted.py").write_text(text, encoding="utf-8")
    assert upwards(tmp_path) == []


def rooms() -> list[str]:
    return sorted(
        f"{path.parent.relative_to(SRC)}/"
        for path in SRC.rglob("__init__.py")
        if path.parent != SRC and len(path.relative_to(SRC).parts) <= 3
    )


def test_the_map_names_every_room() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    tree = page.split("src/cubecast/\n")[1].split("```")[0]
    named = {line.split()[0] for line in tree.splitlines() if line.strip()}
    named |= {word.rstrip(",") for line in tree.splitlines() for word in line.split()}
    missing = [room for room in rooms() if f"{Path(room).name}/" not in named]
    assert not missing


def test_contributing_names_every_room_of_the_first_floor() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [
        room for room in rooms() if "/" not in room[:-1] and f"`src/cubecast/{room}`" not in page
    ]
    assert not missing
