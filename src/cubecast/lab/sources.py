"""The code that a cell runs, as a digest: results belong to the code that made them.

The digest is over the sources of every module of this package that a measurement imports, directly
or through others; so a change of the simulator, the kernel, a protocol or a workload gives every
cell a new key, and a change of the commands, the network or the report gives none.

A workload or a protocol of a user's own, by entry point or as "module:object" in the settings, adds
the sources of its module, or of the whole package that it is in.  Its imports from other packages
do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from typing import Any

_PACKAGE = "cubecast"
FRONTS = frozenset((_PACKAGE, "cubecast.lab"))
"""Packages for users that no measurement uses: they are left out."""
ROOTS = ("cubecast.lab.cells", "cubecast.lab.cell_details", "cubecast.lab.workloads")
"""The modules that `cubecast.lab.cells.measure` imports when it is called, and itself."""
GROUPS = {"workload": "cubecast.workloads", "protocol": "cubecast.protocols"}
"""Settings that may name an object of the user's own, and their groups of entry points."""
DIGITS = 12
_IMPORT = re.compile(
    r"^[ \t]*(?:import (?P<whole>cubecast[\w.]*)"
    r"|from (?P<module>cubecast[\w.]*) import (?P<names>\([^)]*\)|[^\n]*))",
    re.MULTILINE,
)
_WORD = re.compile(r"\w+")


@cache
def code_digest(own: tuple[str, ...] = ()) -> str:
    """A digest of the sources of all `measuring_modules`, and of modules of a user's own."""
    sources = measuring_modules()
    for module in own:
        sources |= _own_sources(module)
    digest = sha256()
    for name, source in sorted(sources.items()):
        digest.update(f"{name}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()[:DIGITS]


def own_modules(settings: Mapping[str, object]) -> tuple[str, ...]:
    """The modules and packages of a user's own that settings name."""
    found = set()
    for setting, group in GROUPS.items():
        name = str(settings.get(setting, ""))
        value = name if ":" in name or not name else _points(group).get(name, "")
        found.add(value.partition(":")[0].partition(".")[0])
    return tuple(sorted(found - {"", _PACKAGE}))


@cache
def _points(group: str) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=group)}


def _own_sources(name: str) -> dict[str, bytes]:
    """{file: source} of a module, or of all modules of a package; none if it is not there."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return {}
    if spec.submodule_search_locations is None:
        loader: Any = spec.loader
        return {name: loader.get_data(spec.origin)}
    found: dict[str, bytes] = {}
    fresh: list[tuple[str, Traversable]] = [(name, files(name))]
    while fresh:
        path, entry = fresh.pop()
        if entry.is_dir():
            fresh += [(f"{path}/{one.name}", one) for one in entry.iterdir()]
        elif path.endswith(".py"):
            found[path] = entry.read_bytes()
    return found


def measuring_modules() -> dict[str, bytes]:
    """{module: its source} of all modules that a measurement imports.

    Imports are followed wherever they stand, so that imports inside functions count, except those
    of `FRONTS`.
    """
    root = files(_PACKAGE)
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    fresh = set(ROOTS)
    while fresh:
        name = fresh.pop()
        seen.add(name)
        source = _source(root, name)
        if source is not None:
            found[name] = source
            fresh |= (_imported(source.decode()) | _parents(name)) - seen
    return found


def _imported(source: str) -> set[str]:
    """Possible modules of ours among the names that a source imports."""
    names: set[str] = set()
    for match in _IMPORT.finditer(source):
        if match["whole"]:
            names |= {match["whole"]} | _parents(match["whole"])
        else:
            module = match["module"]
            names |= {module, *(f"{module}.{name}" for name in _WORD.findall(match["names"]))}
    return names - FRONTS


def _parents(name: str) -> set[str]:
    """The packages that importing a module imports."""
    parts = name.split(".")
    return {".".join(parts[:k]) for k in range(2, len(parts))} - FRONTS


def _source(place: Traversable, name: str) -> bytes | None:
    """The source of a module, or None if there is no such module.

    It is read as a resource: the executors of a cluster have the package as a zip archive.
    """
    *folders, last = name.split(".")[1:]
    for folder in folders:
        place = place / folder
    for source in (place / f"{last}.py", place / last / "__init__.py"):
        if source.is_file():
            return source.read_bytes()
    return None
