"""The glossary has one row per word, in order, and every word that the rooms are named by."""

from __future__ import annotations

import pytest

from support.paths import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]


def test_each_row_has_a_word_a_meaning_and_the_papers_word() -> None:
    assert ROWS
    assert [row for row in ROWS if len(row) != 3 or not all(row)] == []


def test_words_are_in_order_and_none_is_there_twice() -> None:
    words = [row[0].lower() for row in ROWS]
    assert words == sorted(set(words))


WORDS = [
    "ballot", "cell", "epoch", "gap", "heir", "leader", "life", "light client", "member", "route",
    "slot", "stream", "subscriber", "sweep", "view", "wave",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_the_word(word: str) -> None:
    assert [row for row in ROWS if row[0] == word]
