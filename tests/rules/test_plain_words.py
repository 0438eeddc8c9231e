"""Prose names its actors: no riddles of who, whom and nobody in sources and on pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from support.paths import ROOT

RIDDLES = re.compile(r"\b(whom|whoever|nobody|somebody)\b", re.IGNORECASE)
CONSTANT = "NOBODY"
"""The slot of a node that has none: a name of the code."""
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
"""Code and the output of programs."""
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")],
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def riddles(text: str) -> Iterator[str]:
    """The lines of `text` with a word that hides an actor."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word in RIDDLES.findall(line):
            if word != CONSTANT:
                yield f"{number}: {line.strip()}"


def on_page(text: str) -> Iterator[str]:
    return riddles(FENCE.sub(lambda block: "\n" * block.group().count("\n"), text))


def test_sources_name_their_actors() -> None:
    found = {str(path): list(riddles(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_pages_name_their_actors() -> None:
    found = {str(path): list(on_page(path.read_text(encoding="utf-8"))) for path in PAGES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_planted_riddle_is_found() -> None:
    assert list(riddles("# Those whom\n# nobody asked")) == ["1: # Those whom", "2: # nobody asked"]
    assert list(riddles("slot = NOBODY")) == []
    assert list(on_page("Whoever\n```\nnobody\n```\nasks somebody")) == [
        "1: Whoever", "5: asks somebody",
    ]  # fmt: skip
