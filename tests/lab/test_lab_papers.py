"""The table of printed numbers: it is whole, it is used, and tolerances are what it says."""

from __future__ import annotations

import csv
import math
import os
import re
from pathlib import Path

import pytest

from cubecast.lab.comparisons import UNKNOWN
from cubecast.lab.experiment import shipped
from cubecast.lab.papers import PaperError, Printed, papers, row, rows
from cubecast.lab.papers.table import _check
from support.paths import ROOT

SHIPPED = shipped()
COMPARED = {
    number.row: ident for ident, experiment in SHIPPED.items() for number in experiment.paper
}
TEXTS = os.environ.get("CUBECAST_PAPERS", "")
"""A folder with the papers' texts, which are not ours to give."""
KNOWN_BY = {
    "J": "4.6. Broker-based SRPT", "S": "DYNAMICS OF SUBSCRIPTIONS", "B": "VCube-PB: Uma",
    "T": "MIDLAB TECHNICAL REPORT", "N": "2 THE STAN PROTOCOL",
}  # fmt: skip


def test_every_row_is_compared_or_says_why_not() -> None:
    for one in rows().values():
        judged, said = one.id in COMPARED, bool(one.unjudged or one.same_as)
        if one.kind in ("setting", "cited"):
            assert not judged, one.id
        else:
            assert judged != said, one.id
        if one.same_as:
            other = row(one.same_as)
            assert other.id in COMPARED, one.id
            assert (other.printed, other.bins, other.unit) == (one.printed, one.bins, one.unit)


def test_a_row_is_compared_in_one_experiment_unless_it_is_of_all_values() -> None:
    found: dict[str, set[str]] = {}
    for ident, experiment in SHIPPED.items():
        for number in experiment.paper:
            found.setdefault(number.row, set()).add(ident)
    assert {name for name, where in found.items() if len(where) > 1} == {
        one.id for one in rows().values() if one.of_all
    }


NAMED = {
    "J.4.2-98": "98", "S.II-97.5": "97.5", "S.II-share": "7.6", "J.4.2-44": "44",
    "J.4.2-50": "50", "S.IV-1024": "1024", "J.4.5-1.1": "1.1", "B.F4-4": "4",
}  # fmt: skip
"""By row, as several rows print the same digits."""


def test_numbers_that_were_missing_are_compared() -> None:
    assert {ident: row(ident).printed for ident in NAMED if ident in COMPARED} == NAMED


def test_how_many_numbers_each_paper_prints() -> None:
    found = {letter: sum(one.counts for one in paper.number) for letter, paper in papers().items()}
    assert found == {"J": 40, "S": 39, "B": 3, "T": 9, "N": 40}


def test_how_many_numbers_follow_from_the_settings_alone() -> None:
    """The sizes of [N]'s universes are its Table 1; the others are arithmetic, as told."""
    found = {
        letter: [one.id for one in paper.number if one.follows_from]
        for letter, paper in papers().items()
    }
    assert len(found["N"]) == 36
    assert all(re.match(r"N\.T1-[LW]\d-", ident) for ident in found["N"])
    assert {letter: found[letter] for letter in "JSBT"} == {
        "J": ["J.T1-srpt", "J.4.2-44", "J.4.2-50", "J.4.2-9240", "J.4.5-46", "J.4.5-1.1"],
        "S": ["S.T1-srpt", "S.IV-44", "S.IV-50", "S.IV-9240", "S.IV-1024"],
        "B": [],
        "T": ["T.F9-50"],
    }
    replaced = math.log(2) / 60
    for ident, value in (("J.4.5-46", 4000 * replaced), ("J.4.5-1.1", 100 * replaced)):
        assert abs(row(ident).number - value) < row(ident).tolerance


def test_queues_of_a_single_tree_follow_from_its_shape() -> None:
    """In a cube of 1024 nodes 2^(9-k) nodes have k < 10 children, and the root has 10.

    Copies of one message queue behind each other: the mean over 1 ... k is (k + 1) / 2.
    """
    nodes = {k: 2 ** (9 - k) for k in range(10)} | {10: 1}
    assert sum(nodes.values()) == 1024
    ends = (0, 2, 4, 8, 16, 32, 4096, 8192)
    bins = [0] * len(ends)
    for children, count in nodes.items():
        mean = (children + 1) / 2 if children else 0
        if children == 10:  # all messages come to it, faster than it sends
            mean = (1024 * 10 - 1000) / 2
        bins[next(place for place, end in enumerate(ends) if mean <= end)] += count
    assert row("J.T1-srpt").bins == bins
    assert row("J.4.2-44").number == round(100 * sum(nodes[k] for k in (1, 2, 3)) / 1024)
    assert row("J.4.2-50").number == 100 * nodes[0] / 1024
    assert row("J.4.2-9240").number == 1024 * 10 - 1000


# -- tolerances ------------------------------------------------------------------------------------


def test_a_tolerance_is_what_its_source_gives() -> None:
    for one in rows().values():
        if one.counts:
            assert one.tolerance == pytest.approx(_expected(one)), one.id
            assert bool(one.place) == bool(one.place_from), one.id


def _expected(one: Printed) -> float:
    """Half of the last place, counted by hand; nothing for what is exact or a threshold."""
    match one.tolerance_from:
        case "printed digits" if one.bins:
            return 100 * 0.5 / sum(one.bins)
        case "printed digits":
            return (one.place or 10.0 ** -len(one.printed.partition(".")[2])) / 2
        case "the word about":
            return 0.1 * one.number
        case source:
            assert source == "exact" or one.kind == "over"
            return 0.0


def test_no_experiment_has_a_tolerance_of_its_own_for_a_printed_number() -> None:
    for experiment in SHIPPED.values():
        for number in experiment.paper:
            printed = row(number.row)
            assert number.tolerance_from == printed.tolerance_from
            assert number.absolute
            if printed.tolerance_from != "limit of ours":
                assert (number.tolerance, number.value) == (printed.tolerance, printed.number)


def test_only_runs_that_the_paper_made_longer_are_said_to_be_longer() -> None:
    """[J] 4.5: "Each simulation corresponds to 120 minutes"."""
    for experiment in SHIPPED.values():
        for number in experiment.paper:
            paired = number.form in ("ratio", "more")  # of two means of ours; others have no spread
            if experiment.id in ("4.5", "4.5-rate") and number.counts and paired:
                assert number.longer * float(experiment.fixed["minutes"]) == 120, number.row
            elif number.row != "J.4.5-false":
                assert number.longer == 1, (experiment.id, number.row)


def test_claims_do_not_count_as_numbers() -> None:
    for experiment in SHIPPED.values():
        for number in experiment.paper:
            printed = row(number.row)
            assert number.counts == (printed.kind not in ("trend", "setting", "cited"))
            if printed.kind == "trend":
                assert not printed.printed


# -- reasons ---------------------------------------------------------------------------------------


def test_a_reason_is_shown_by_a_grid_or_says_that_it_is_not_known() -> None:
    """So is what was tried where it is not known."""
    for ident, experiment in SHIPPED.items():
        for number in experiment.paper:
            place = (ident, number.row, number.accounting)
            claim = row(number.row).kind == "trend"
            assert number.reason or claim, place
            if number.reason == UNKNOWN:
                assert not number.shown_by, place
            elif number.reason:
                assert number.shown_by in SHIPPED, place


VARIANT = re.compile(r"\b[A-Z\d]\.[A-Z\d]+(?:-[A-Za-z]\w*)+")
"""An id of an experiment beside another one: 4.6-load, 4.2-T1-hops."""


def test_what_shows_a_reason_has_published_points() -> None:
    with (ROOT / "docs" / "results" / "points.csv").open(encoding="utf-8", newline="") as file:
        published = {line["experiment"] for line in csv.DictReader(file)}
    named: dict[str, str] = {}
    for experiment in SHIPPED.values():
        for number in experiment.paper:
            named |= dict.fromkeys(filter(None, [number.shown_by]), number.row)
            named |= dict.fromkeys(_ids_in(number.reason), number.row)
    for one in rows().values():
        named |= dict.fromkeys(_ids_in(one.unjudged), one.id)
    assert {"4.6-load", "4.5-load", "T.16-length"} <= named.keys()
    assert not {ident: where for ident, where in named.items() if ident not in published}


def _ids_in(text: str) -> set[str]:
    """The experiments that a text names; a variant counts, whether there is one or not."""
    ids = {one for one in SHIPPED if re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w-]|\.\d)", text)}
    return ids | (set(VARIANT.findall(text)) - rows().keys())


def test_reasons_that_are_none_are_gone() -> None:
    reasons = {number.reason for one in SHIPPED.values() for number in one.paper}
    assert not [reason for reason in reasons if "the paper counts more" in reason]
    assert not [reason for reason in reasons if "rc of [J]" in reason]


@pytest.mark.parametrize(
    ("ident", "axis", "values"),
    [
        ("4.6-load", "every", {500, 100, 20, 15}),
        ("4.4-load", "every", {500, 460}),
        ("4.5-load", "session_s", {60.0, 72.0}),
        ("T.16-length", "events", {300, 600, 900}),
        ("4.2-T1-hops", "hop", {101, 102}),
        ("4.4-acks", "messages", {128, 4096}),
        ("4.5-rate", "at_once", {False, True}),
        ("B.4-load", "publishers", {0.0625}),
        ("T.18-topics", "topics", {100}),
    ],
)
def test_a_claim_in_a_reason_has_its_points_in_the_grid(
    ident: str, axis: str, values: set[float | bool]
) -> None:
    assert values <= {point[axis] for point in SHIPPED[ident].points()}


@pytest.mark.parametrize(
    ("ident", "stated"),
    [("4.6", {"every": 500}), ("T.16", {"topics": 1000, "subscriptions": 100})],
)
def test_a_reading_keeps_what_the_text_states(ident: str, stated: dict[str, int]) -> None:
    """Other settings stand in a grid beside it."""
    for point in SHIPPED[ident].points():
        assert {name: point[name] for name in stated} == stated


# -- the table itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"printed": ""}, "have a number printed"),
        ({"printed": "many"}, "'many' is no number"),
        ({"kind": "trend"}, "have a number printed"),
        ({"kind": "distribution"}, "has bins"),
        ({"place": 10.0}, "place needs place_from"),
        ({"same_as": "J.9"}, "no row 'J.9'"),
        ({"tolerance_from": "limit of ours"}, "no limit of ours"),
        ({"kind": "setting", "follows_from": "it"}, "is of a printed number"),
    ],
)
def test_a_wrong_row_is_refused(changes: dict[str, object], said: str) -> None:
    plain: dict[str, object] = {"id": "J.1", "section": "1", "says": "it", "printed": "5"}
    with pytest.raises(PaperError, match=said):
        _check([Printed(**{**plain, **changes})])  # type: ignore[arg-type]


def test_a_number_that_two_papers_print_follows_from_the_settings_in_both() -> None:
    first = Printed(id="J.1", section="1", says="it", printed="5", follows_from="5 nodes")
    other = Printed(id="S.1", section="1", says="it", printed="5", same_as="J.1")
    with pytest.raises(PaperError, match=r"S\.1: follows_from is not that of J\.1"):
        _check([first, other])


def test_ids_are_unique_and_unknown_ones_are_refused() -> None:
    twice = Printed(id="J.1", section="1", says="it", printed="5")
    with pytest.raises(PaperError, match=r"J\.1: is there twice"):
        _check([twice, twice])
    with pytest.raises(PaperError, match=r"no paper has a row 'J\.1'"):
        row("J.1")


# -- beside the texts ------------------------------------------------------------------------------

QUOTED = "JS"
"""The papers whose rows quote the words around their numbers."""
MOST_WORDS = 8
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
TABLE_LINES = 12
"""The lines of a table, its caption included, are no more."""


def has_number(text: str, digits: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(digits)}(?![\d])", text) is not None


@pytest.mark.parametrize("letter", QUOTED)
def test_a_row_quotes_a_few_words_with_its_number(letter: str) -> None:
    for one in papers()[letter].number:
        assert bool(one.quoted) == one.counts, one.id
        assert len(one.quoted.split()) <= MOST_WORDS, one.id
        for digits in filter(None, (one.printed, f"{one.sigma:g}" if one.sigma else "")):
            assert has_number(one.quoted, digits) or not one.counts, one.id


def paper_text(letter: str) -> str:
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(TEXTS).glob("*.txt"))]
    (text,) = [text for text in texts if KNOWN_BY[letter] in text]
    for mark, plain in (("\\sigma", SIGMA), ("\\%", "%"), ("$", ""), ("*", "")):
        text = text.replace(mark, plain)
    return text


def section_of(text: str, name: str) -> str:
    """A numbered section with its subsections, or a table."""
    if name.startswith("Table"):
        begin = re.search(rf"(?i)^{name}\b(?=:|$)", text, re.MULTILINE)
        assert begin, name
        lines = [line for line in text[begin.start() :].split("\n") if line]
        return "\n".join(lines[:TABLE_LINES])
    begin = re.search(rf"^{re.escape(name)}\. ", text, re.MULTILINE)
    assert begin, name
    heads = re.finditer(r"^(\d+(?:\.\d+)*|[IV]+)\. [A-Z]", text[begin.end() :], re.MULTILINE)
    ends = (head.start() for head in heads if not head[1].startswith(f"{name}."))
    return text[begin.start() : begin.end() + next(ends)]


def columns_of(table: str) -> dict[str, list[float]]:
    """{head: numbers} of a table whose lines end with numbers."""
    _, *heads = map(str.strip, re.findall(r"# of [^#\n]*", table))
    numbers = r"[ \t]+(\d+)" * len(heads)
    columns = zip(*re.findall(rf"^\S.*?{numbers}$", table, re.MULTILINE), strict=True)
    return {head: [float(n) for n in column] for head, column in zip(heads, columns, strict=True)}


@pytest.mark.skipif(not TEXTS, reason="CUBECAST_PAPERS names no folder of the papers' texts")
@pytest.mark.parametrize("letter", QUOTED)
def test_what_a_row_quotes_is_in_its_section(letter: str) -> None:
    text = paper_text(letter)
    for one in papers()[letter].number:
        section = section_of(text, one.section)
        assert " ".join(one.quoted.split()) in " ".join(section.split()), one.id
        assert all(has_number(section, digits) for digits in one.printed.split()), one.id
        if one.bins:
            assert columns_of(section)[one.quoted] == one.bins, one.id


@pytest.mark.skipif(not TEXTS, reason="CUBECAST_PAPERS names no folder of the papers' texts")
@pytest.mark.parametrize("letter", KNOWN_BY)
def test_every_printed_number_is_in_the_papers_text(letter: str) -> None:
    text = paper_text(letter)
    for one in papers()[letter].number:
        for digits in (*one.printed.split(), *(f"{count:g}" for count in one.bins if count)):
            assert has_number(text, digits), (one.id, digits)
