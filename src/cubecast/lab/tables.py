"""Verdicts and measured points as files: Markdown for a documentation, CSV for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from io import StringIO

from cubecast.lab.results import Results
from cubecast.lab.verdicts import Row, Verdict
from cubecast.lab.words import difference_text, ours_text, paper_text

HEAD = ("experiment", "section", "what", "paper", "ours", "difference", "verdict", "why")


def markdown_of_verdicts(results: Results, verdicts: Sequence[Verdict]) -> str:
    """One table of all verdicts, and the command that made it."""
    lines = [_line(HEAD), _line(["---"] * 3 + ["---:"] * 3 + ["---"] * 2)]
    lines += [_line(_cells(verdict)) for verdict in verdicts]
    commands = list(dict.fromkeys(made.command for made in results.provenance if made.command))
    if commands:
        lines += ["", f"Made by {', '.join(map(_code, commands))}."]
    return "\n".join(lines) + "\n"


def _cells(verdict: Verdict) -> list[str]:
    what = f"{verdict.what} ({verdict.accounting})" if verdict.accounting else verdict.what
    return [
        verdict.experiment, verdict.section, what, paper_text(verdict), ours_text(verdict),
        difference_text(verdict), verdict.verdict, verdict.sentence,
    ]  # fmt: skip


def _line(cells: Iterable[str]) -> str:
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


def csv_of_verdicts(verdicts: Iterable[Verdict]) -> str:
    """All fields of all verdicts, numbers as they are."""
    names = (
        "experiment", "section", "what", "accounting", "unit", "paper", "ours", "ci", "difference",
        "verdict", "sentence", "n",
    )  # fmt: skip
    return _csv(names, ([getattr(verdict, name) for name in names] for verdict in verdicts))


def csv_of_rows(rows: Iterable[Row]) -> str:
    """Every mean with its confidence interval, in a fixed order; settings as JSON."""
    lines = [
        [row.experiment, json.dumps(dict(row.settings), sort_keys=True), row.metric,
         row.mean, row.ci, row.n]
        for row in rows
    ]  # fmt: skip
    lines.sort(key=lambda line: [str(cell) for cell in line[:3]])
    return _csv(("experiment", "settings", "metric", "mean", "ci", "n"), lines)


def _csv(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return buffer.getvalue()
