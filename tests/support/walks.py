"""The walks of docs/design.md: the functions that a page lists, and the calls of a real run.

A walk has parts.  A part is a paragraph that says where its functions run, and below it a numbered
list: each line begins with one function, as `module.Class.function` without the packages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from cubecast.net.node.shell import Shell
from support.paths import ROOT

DESIGN = ROOT / "docs" / "design.md"
NO_NODE = -1

_LINE = re.compile(r"^\d+\. `(\w+(?:\.\w+)+)`", re.MULTILINE)
_ITEM = re.compile(r"^\d+\. ", re.MULTILINE)


class Call(NamedTuple):
    """A call of a function of cubecast."""

    function: str
    """As `module.Class.function`."""
    slot: int
    """The live node at which it runs; `NO_NODE` before any node has done anything."""


def walk(title: str, page: Path = DESIGN) -> list[list[str]]:
    """The functions of each part of a walk, in the order of the page."""
    paragraphs = page.read_text(encoding="utf-8").split(f"**{title}.**")[1].split("\n\n")
    parts = []
    for paragraph in paragraphs[1:]:
        if paragraph.startswith(("#", "**")):
            break
        functions = _LINE.findall(paragraph)
        assert len(functions) == len(_ITEM.findall(paragraph)), f"a line names none: {paragraph}"
        assert len(functions) == len(set(functions)), f"a part names one twice: {paragraph}"
        if functions:
            parts.append(functions)
    return parts


@contextmanager
def calls() -> Iterator[list[Call]]:
    """The functions of cubecast that this thread calls, in order.

    Whatever a node of a cluster in memory does begins in its shell, by a packet or by a timer.
    """
    seen: list[Call] = []
    slot = NO_NODE

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal slot
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("cubecast."):
            return
        name = frame.f_code.co_qualname
        if name.startswith("Shell.") and isinstance(shell := frame.f_locals.get("self"), Shell):
            slot = shell.slot
        seen.append(Call(f"{module.rpartition('.')[2]}.{name}", slot))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def functions(made: Iterable[Call]) -> list[str]:
    """The functions that are called, at any node."""
    return [call.function for call in made]


def at(slot: int, made: Iterable[Call]) -> list[str]:
    """The functions that one node calls."""
    return functions(call for call in made if call.slot == slot)


def as_called(part: Sequence[str], seen: Iterable[str]) -> list[str]:
    """The functions of a part in the order of their first calls, without those never called.

    It is equal to the part if the run takes the walk.  No two functions have their first call at
    the same time, so no other order of the part is.
    """
    return [function for function in dict.fromkeys(seen) if function in part]
