"""Tables of the pages: none is broken in two, and that of the experiments is whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from cubecast.lab.experiment import shipped

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def tables(text: str) -> Iterator[list[str]]:
    """Runs of lines that begin with a bar, outside of code."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for is_table, lines in groupby(outside.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            yield list(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_blank_line_breaks_a_table(page: Path) -> None:
    for table in tables(page.read_text(encoding="utf-8")):
        assert len(table) > 1, table
        assert RULE.fullmatch(table[1].strip()), table[0]


def test_every_experiment_is_in_the_table_of_the_page() -> None:
    page = (DOCS / "lab.md").read_text(encoding="utf-8")
    (table,) = [one for one in tables(page) if one[0] == "| id | what | from |"]
    named = [name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert sorted(named) == sorted(shipped())
