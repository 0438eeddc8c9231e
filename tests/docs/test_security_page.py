"""The page on security names a test for each line of its tables: they exist."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT, TESTS

PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def lines() -> list[str]:
    """The rows of all tables, without their heads."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [row for row in rows if not row.startswith("|---") and not row.endswith("| test |")]


def test_there_are_lines_for_each_party() -> None:
    assert len(lines()) > 40


@pytest.mark.parametrize("line", lines())
def test_every_line_has_a_test_that_exists(line: str) -> None:
    named = NAMED.findall(line)
    assert named, line
    for file, test in named:
        (path,) = TESTS.rglob(file)  # names of test files are unique
        source = path.read_text(encoding="utf-8")
        found = re.search(rf"^(async )?def {test}\(", source, re.MULTILINE)
        assert found is not None, f"{file} has no {test}"
