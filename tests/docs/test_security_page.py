"""What the page on security says that peers can and cannot do has a test, line by line.

Only tables may say it, so that no claim stands beside them without a test.  The table in
docs/guarantees.md says the same in short, and names tests of the same lines.
"""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT, TESTS

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
HEAD = re.compile(r"\| (can|cannot)\b[^|]* \| test \|")
CLAIM = re.compile(r"\b(can|cannot|could)\b")
BULLET = re.compile(r"\s*([-*+]|\d+[.)])\s")
PARTIES = ["A stranger", "A client", "A key holder that is no member", "A member"]


def section(text: str, title: str) -> str:
    """What stands below a title, up to the next one of its level or above."""
    level = title.split(" ")[0]
    end = re.compile(rf"^#{{2,{len(level)}}} ", re.MULTILINE)
    below = text.split(f"\n{title}\n", 1)[1]
    return end.split(below, maxsplit=1)[0]


WHO = section(PAGE, "## Who can do what")


def rows(text: str) -> list[str]:
    """The rows of all tables, without their heads."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return [row for row in table if not row.startswith("|---") and not row.endswith("| test |")]


def named_for(party: str) -> dict[str, set[tuple[str, str]]]:
    """The tests of what a party can, and of what it cannot."""
    found: dict[str, set[tuple[str, str]]] = {"can": set(), "cannot": set()}
    what = ""
    for line in section(PAGE, f"### {party}").splitlines():
        if (head := HEAD.fullmatch(line)) is not None:
            what = head[1]
        elif line.startswith("| "):
            found[what].update(NAMED.findall(line))
    return found


def missing_test(file: str, test: str) -> str:
    """What is wrong with the name of a test, if anything is."""
    (path,) = TESTS.rglob(file)  # names of test files are unique
    found = re.search(rf"^(async )?def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    return "" if found else f"{file} has no {test}"


def test_there_are_lines_for_each_party() -> None:
    assert len(rows(PAGE)) > 40
    for party in PARTIES:
        assert all(named_for(party).values()), party


@pytest.mark.parametrize("line", rows(PAGE))
def test_every_line_has_a_test(line: str) -> None:
    assert NAMED.search(line), line


def test_every_test_that_is_named_exists() -> None:
    named = set(NAMED.findall(PAGE + section(GUARANTEES, "## Against hostile peers")))
    assert len(named) > 100
    assert [one for file, test in named if (one := missing_test(file, test))] == []


def test_only_tables_say_what_a_peer_can_do() -> None:
    """A list would do without tests; a paragraph that says so names one."""
    assert [line for line in WHO.splitlines() if BULLET.match(line)] == []
    for paragraph in WHO.split("\n\n"):
        if paragraph.lstrip().startswith("|"):
            assert HEAD.fullmatch(paragraph.strip().splitlines()[0]), paragraph.splitlines()[0]
        elif not paragraph.startswith("#") and CLAIM.search(paragraph):
            assert NAMED.search(paragraph), paragraph


def in_short() -> list[str]:
    return rows(section(GUARANTEES, "## Against hostile peers"))[1:]


def test_the_short_table_is_about_each_party() -> None:
    said = {tuple(cell.strip() for cell in row.split("|")[1:3]) for row in in_short()}
    assert said == {(party.lower(), what) for party in PARTIES for what in ("can", "cannot")}


@pytest.mark.parametrize("row", in_short())
def test_the_short_table_says_what_the_page_says(row: str) -> None:
    """It names tests of lines about the same party, in the same table."""
    who, what = (cell.strip() for cell in row.split("|")[1:3])
    named = NAMED.findall(row)
    assert named, row
    assert set(named) <= named_for(who.capitalize())[what]
