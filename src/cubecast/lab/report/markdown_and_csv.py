"""The files beside the page: Markdown for documentation, CSV for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import NamedTuple

from cubecast.lab.report.data import Findings, Provenance
from cubecast.lab.report.papers import named_in
from cubecast.lab.report.verdict_tables import (
    CSV_COLUMNS,
    TOGETHER,
    Judged,
    NumberRow,
    VerdictRow,
    printed_numbers,
)
from cubecast.lab.report.wording import seeds_text, varying
from cubecast.lab.verdicts import Row

TITLE = "The papers' experiments, redrawn"
HEAD = ("what", "paper", "ours", "difference", "verdict", "why")
CLAIMS_HEAD = ("what", "limit of ours", *HEAD[2:])
NUMBERS_HEAD = (
    "number", "paper", "ours", "outcome", "judged in", "comes out in", "why", "shown by"
)  # fmt: skip
NUMBERS = ("paper", "limit of ours", "ours", "difference")
CLAIMS = "Claims without a number"
MOST_LISTED = 20
"""The most missing or failed cells that are listed."""


class Figure(NamedTuple):
    """A figure of the page: its file, relative to it, its title and its notes."""

    file: str
    title: str
    notes: Sequence[str]


def markdown_of(
    findings: Findings, judged: Mapping[str, Judged], figures: Mapping[str, Sequence[Figure]]
) -> str:
    """The report as a page of a documentation: figures, verdicts, the commands that made it."""
    found = printed_numbers(list(judged.values()))
    lines = [f"# {TITLE}", "", "", *(f"- {one}" for one in found.sentences), ""]
    papers = named_in(experiment.source for experiment in findings.experiments)
    lines += [f"- [{letter}] {_escaped(title)}" for letter, title in papers.items()]
    beside = "`points.csv` has every mean with its interval, `verdicts.csv` every verdict."
    lines += ["", beside, ""]
    lines += [TOGETHER, ""] if found.tables else []
    for letter, numbers in found.tables.items():
        lines += [f"## The numbers of [{letter}]", "", *_table(NUMBERS_HEAD, map(_told, numbers))]
    for experiment in findings.experiments:
        title, source = _escaped(experiment.title), _escaped(experiment.source)
        lines += [f"## {experiment.id} {title}", "", f"{source}.", ""]
        lines += [_escaped(" ".join(experiment.about.split())), ""]
        for figure in figures[experiment.id]:
            lines += [f"![{_escaped(figure.title)}]({figure.file})", ""]
            lines += [caption_of(figure), ""]
        own = judged[experiment.id]
        lines += _verdict_lines(HEAD, own.lines)
        if own.claims:
            lines += [
                f"### {CLAIMS} of {experiment.id}",
                "",
                *_verdict_lines(CLAIMS_HEAD, own.claims),
            ]
        lines += [f"- {_escaped(one)}" for one in own.readings] + [""]
        lines += [f"Seeds: {seeds_text([row.n for row in findings.rows_of(experiment)])}.", ""]
    lines += _missing_lines(findings)
    lines += ["## How this was made", "", *map(_made_line, findings.provenance)]
    return "\n".join(lines).rstrip("\n") + "\n"


def caption_of(figure: Figure) -> str:
    """The title in italics, as a reader of the page sees it, and the notes."""
    notes = _escaped(" ".join(figure.notes))
    return f"*{_escaped(figure.title.rstrip('.'))}.* {notes}".rstrip()


def _missing_lines(findings: Findings) -> list[str]:
    named = listed_cells(findings)
    if not named:
        return []
    more = len(named) - MOST_LISTED
    found = [f"- {_escaped(name)}" for name in named[:MOST_LISTED]]
    return ["## Not measured", "", *found, *([f"- and {more:,} more"] if more > 0 else []), ""]


def listed_cells(findings: Findings) -> list[str]:
    """The cells that are missing, by name."""
    return [f"{id}: {cell}" for id, cells in findings.missing.items() for cell in cells]


def _made_line(made: Provenance) -> str:
    version = made.versions.get("cubecast", "")
    parts = [
        made.date,
        f"cubecast {version}" if version else "",
        f"commit {made.commit}" if made.commit else "",
        "quick form" if made.quick else "full form",
        "seeds as each experiment says" if made.seeds is None else f"{made.seeds} seeds",
        f"{made.cells:,} cells" if made.cells else "",
    ]
    facts = ", ".join(_escaped(part) for part in parts if part)
    return f"- {_code(made.command)}: {facts}." if made.command else f"- {facts}."


def _verdict_lines(head: Sequence[str], lines: Sequence[VerdictRow]) -> list[str]:
    return _table(head, map(_cells, lines)) if lines else []


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---:" if name in NUMBERS else "---" for name in head]
    return [_row(head), _row(rule), *map(_row, lines), ""]


def _cells(line: VerdictRow) -> list[str]:
    return [
        f"{line.what} ({line.origin})", line.paper, line.ours, line.difference, line.verdict,
        line.sentence,
    ]  # fmt: skip


def _told(row: NumberRow) -> list[str]:
    return [
        f"{row.what} ({row.section})", row.paper, row.ours, row.outcome, row.place,
        row.reproduced_in, row.reason, row.shown_by,
    ]  # fmt: skip


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(cell: str) -> str:
    """One line that is neither markup nor the end of a cell."""
    cell = " ".join(cell.split(" ")).replace("\n", " ").replace("\\", "\\\\")
    for mark in "|*_`":
        cell = cell.replace(mark, f"\\{mark}")
    return cell.replace("&", "&amp;").replace("<", "&lt;")


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def csv_of_verdicts(judged: Iterable[Judged]) -> str:
    """All fields of all verdicts, numbers as they are."""
    return _csv(CSV_COLUMNS, (row for one in judged for row in one.table))


def csv_of_rows(rows: Iterable[Row]) -> str:
    """Every mean with its confidence interval, in a fixed order.

    Of the settings there are, as JSON, those that differ between the points of an experiment; the
    table `points` has all of them.
    """
    of_experiment: dict[str, list[Row]] = {}
    for row in rows:
        of_experiment.setdefault(row.experiment, []).append(row)
    lines: list[list[object]] = []
    for own in of_experiment.values():
        names = set(varying([row.settings for row in own]))
        for row in own:
            told = {name: value for name, value in row.settings.items() if name in names}
            text = json.dumps(told, sort_keys=True)
            lines.append([row.experiment, text, row.metric, row.mean, row.ci, row.n])
    lines.sort(key=lambda line: [str(cell) for cell in line[:3]])
    return _csv(("experiment", "settings", "metric", "mean", "ci", "n"), lines)


def _csv(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return buffer.getvalue()
