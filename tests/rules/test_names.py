"""Names in prose lead somewhere: files on pages, modules and classes in docstrings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCE

PACKAGE = SOURCE / "cubecast"
FILE = re.compile(r"`([\w./-]+\.py)(?:::\w+)?`")
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\(\.*\))?`")
ENDINGS = {"csv", "html", "json", "log", "md", "parquet", "py"}
"""After a dot these make the name of a file."""
READERS_FILES = {"talk.py", "test_x.py"}
"""Files that a reader writes, or that stand for any."""
OTHERS = {
    "Class.attribute", "DataFrame.mapInArrow", "client.subscribe", "config.rounds",
    "nats.aio.client.Client", "node.on", "requests.late", "sieve.columns", "spark.executor.memory",
}  # fmt: skip
"""Variables, and names of other packages, that are spelt like ours."""


def docstrings(tree: ast.AST) -> Iterator[str]:
    """What stands in a module as text and not as a value."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


TREES = trees()
FILES = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for room in ("src", "tests", "tools", "bench", "examples", "docs")
    for path in (ROOT / room).rglob("*.py")
]


def missing_files(text: str) -> list[str]:
    """Files that `text` names and that are nowhere."""
    named = [name for name in FILE.findall(text) if name not in READERS_FILES]
    return [name for name in named if not any(file.endswith(f"/{name}") for file in FILES)]


def bound(statements: list[ast.stmt]) -> Iterator[str]:
    """What statements of a module or of a class define."""
    for node in statements:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    for part in ast.walk(target):
                        match part:
                            case ast.Name(id=name):
                                yield name
                            case ast.Constant(value=str(name)):
                                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.If(body=body, orelse=orelse):
                yield from bound(body + orelse)
            case ast.Try(body=body, handlers=handlers):
                yield from bound(body + [one for handler in handlers for one in handler.body])


def modules() -> dict[str, set[str]]:
    """The names of every module and package."""
    found = {}
    for path, tree in TREES.items():
        dotted = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        names = set(bound(tree.body))
        if path.name == "__init__.py":
            names |= {beside.stem for beside in path.parent.iterdir()}
        found[dotted.removesuffix(".__init__")] = names
    return found


def classes() -> dict[str, set[str]]:
    """The attributes of every class, those of its bases in this package included."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own[node.name].update(bound(node.body))
                for part in ast.walk(node):
                    match part:
                        case ast.Attribute(value=ast.Name(id="self"), attr=name):
                            own[node.name].add(name)
                        case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                            slots = (
                                one for one in ast.walk(value) if isinstance(one, ast.Constant)
                            )
                            own[node.name].update(str(slot.value) for slot in slots)
                for base in node.bases:
                    names = [part.id for part in ast.walk(base) if isinstance(part, ast.Name)]
                    names += [
                        part.attr for part in ast.walk(base) if isinstance(part, ast.Attribute)
                    ]
                    bases[node.name].update(names)

    def all_of(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        above = [all_of(base, seen | {name}) for base in bases[name] - seen if base in own]
        return own[name].union(*above)

    return {name: all_of(name) for name in list(own)}


MODULES = modules()
CLASSES = classes()


def homes(dotted: str) -> list[str]:
    """The modules that a name of a module, or its end, may mean."""
    return [module for module in MODULES if f".{module}".endswith(f".{dotted}")]


def leads_nowhere(name: str) -> bool:
    """Whether a dotted name begins with a module or looks like a class, and what follows is not
    there."""
    parts = name.split(".")
    if name in OTHERS or parts[-1] in ENDINGS or homes(name):
        return False
    for length in range(len(parts) - 1, 0, -1):
        if found := homes(".".join(parts[:length])):
            return not any(parts[length] in MODULES[module] for module in found)
    if parts[0][0].isupper():
        return parts[0] not in CLASSES or parts[1] not in CLASSES[parts[0]]
    return parts[0] == "cubecast"


def wrong_names(text: str) -> list[str]:
    return [name for name in DOTTED.findall(text) if leads_nowhere(name)]


def test_files_that_are_named_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {
        path: path.read_text(encoding="utf-8") for path in pages if path.name != "CHANGELOG.md"
    }
    texts |= {path: "\n".join(docstrings(tree)) for path, tree in TREES.items()}
    found = {str(path): names for path, text in texts.items() if (names := missing_files(text))}
    assert found == {}
    assert sum(len(FILE.findall(text)) for text in texts.values()) > 250


def test_names_in_docstrings_exist() -> None:
    texts = {path: "\n".join(docstrings(tree)) for path, tree in TREES.items()}
    found = {str(path): names for path, text in texts.items() if (names := wrong_names(text))}
    assert found == {}
    assert sum(len(DOTTED.findall(text)) for text in texts.values()) > 250


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("as in `mutes.py`", ["mutes.py"]),
        ("`net/wire/views.py`, `wire/view_wire.py` and `test_gone.py::test_it`",
         ["wire/view_wire.py", "test_gone.py"]),
        ("`protocol/topic/topic.py` and `test_rooms.py`", []),
    ],
)  # fmt: skip
def test_a_file_that_is_nowhere_is_found(text: str, wrong: list[str]) -> None:
    assert missing_files(text) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(`comparisons.gone`), `comparisons.papers_spread`", ["comparisons.gone"]),
        ("`cubecast.lab.gone`, `cubecast.lab.comparisons.papers_spread()`", ["cubecast.lab.gone"]),
        ("`RecoveringTopic.bequeath`, `Inheritance.bequeath`", ["RecoveringTopic.bequeath"]),
        ("`Inheritance.gone()` and `executor_task.DONE`", ["Inheritance.gone"]),
        ("`report.html` and `somebody.else`", []),
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_is_found(text: str, wrong: list[str]) -> None:
    assert wrong_names(text) == wrong


PARTS = re.compile(
    r"^\| part \| file in `(?P<room>[\w/]+)` \|.*\n\|[-|]+\n(?P<rows>(?:\|.*\n)+)", re.M
)
"""A table of parts in docs/design.md."""


def wrong_parts(page: str) -> list[str]:
    """Classes in a table of parts that are not in the file beside them."""
    found = []
    for table in PARTS.finditer(page):
        for row in table["rows"].splitlines():
            parts, file, *_ = row.strip("| ").split(" | ")
            path = PACKAGE / table["room"] / file.strip("`")
            names = set(bound(ast.parse(path.read_text(encoding="utf-8")).body))
            found += [
                f"{path.name}: {one}" for one in re.findall(r"`(\w+)`", parts) if one not in names
            ]
    return found


def test_the_parts_on_the_maps_are_in_the_files_beside_them() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert len(PARTS.findall(page)) == 3
    assert wrong_parts(page) == []
    planted = page.replace("| `AddressHistory` | `belief.py` |", "| `History` | `belief.py` |")
    assert wrong_parts(planted) == ["belief.py: History"]


def test_the_map_of_a_topic_names_every_file_of_its_room() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.split("## The parts of a topic", 1)[1].split("\n## ", 1)[0]
    files = {path.name for path in (PACKAGE / "protocol" / "topic").glob("*.py")} - {"__init__.py"}
    assert {name for name in files if name not in section} == set()
