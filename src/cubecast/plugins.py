"""Plugins, by name: workloads and protocols of a user that are not part of this package.

=============  ==================================================================================
``ring``       an entry point of an installed package, in the group of what is looked for
``mine:RING``  the object ``RING`` of the module ``mine``
=============  ==================================================================================

A `Registry` has both, and our own, which an entry point cannot replace.  A plugin is imported only
when it is looked up by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from cubecast.errors import CubecastError

T = TypeVar("T")


class PluginError(CubecastError, ValueError):
    """A plugin cannot be used; the text says what is wrong with which package."""


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one kind, by name: our own, entry points of `group`, "module:object"."""

    def __init__(
        self, group: str, built_in: Mapping[str, T], kind: type[Any] | None = None
    ) -> None:
        self.group = group
        self._built_in = built_in
        self._kind = kind
        """The class that an object must be an instance of; None: anything that can be called."""

    def __getitem__(self, name: str) -> T:
        if name in self._built_in:
            return self._built_in[name]
        if ":" in name:
            return self._checked(name, load_object(name))
        point = _points(self.group).get(name)
        if point is None:
            raise KeyError(name)
        return self._checked(name, _loaded(point))

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in _points(self.group) if name not in self._built_in)

    def __len__(self) -> int:
        return len(set(self._built_in) | set(_points(self.group)))

    def _checked(self, name: str, found: Any) -> T:
        fits = callable(found) if self._kind is None else isinstance(found, self._kind)
        if not fits:
            wanted = "something to call" if self._kind is None else f"a {self._kind.__name__}"
            raise PluginError(f"{name!r} must be {wanted}, not {found!r}")
        wanted_object: T = found
        return wanted_object


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name; one name belongs to one package."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        known = found.setdefault(point.name, point)
        if known.value != point.value:
            raise PluginError(
                f"{group}: packages {_package(known)} and {_package(point)} both have "
                f"an entry point {point.name!r}: uninstall one"
            )
    return found


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever a foreign module does when it is imported
        raise PluginError(
            f"{point.group} entry point {point.name!r} of package {_package(point)} does not load: "
            f"{_said(error)}"
        ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown)"


def load_object(name: str) -> Any:
    """The object that "module:object" names; the current folder is searched last."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise PluginError(f"{name!r} must be a module, a colon and the name of an object")
    look_in(Path())
    try:
        found: Any = import_module(module)
    except Exception as error:  # whatever a foreign module does when it is imported
        raise PluginError(
            f"{name!r}: cannot import {module}: {_said(error)}; it must be beside the experiment's "
            "file, in the current folder, installed, or on PYTHONPATH"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise PluginError(f"{name!r}: {module} has no {path!r}; it has: {_own_names(module)}")
        found = getattr(found, part)
    return found


def _own_names(module: str) -> str:
    """The names that a module defines itself, as far as that can be told."""
    names = [
        name
        for name, value in vars(import_module(module)).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (getattr(value, "__module__", module) == module or not callable(value))
    ]
    return ", ".join(sorted(names)) or "nothing"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def look_in(folder: Path) -> None:
    """Search `folder` for modules, after the installed ones."""
    place = str(folder.absolute())
    if place not in sys.path:
        sys.path.append(place)


def source_of(name: str) -> Path | None:
    """The file or the folder of the module in "module:object"; None if it is installed.

    A module that is not installed has to be sent to the machine that uses it.
    """
    spec = find_spec(name.partition(":")[0].partition(".")[0])
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    if "site-packages" in path.parts or "dist-packages" in path.parts:
        return None
    return path.parent if spec.submodule_search_locations else path
