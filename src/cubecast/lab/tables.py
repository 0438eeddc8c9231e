"""Verdicts and measured points as files: Markdown for a documentation, CSV for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from cubecast.lab.results import Results
from cubecast.lab.verdicts import Row, Verdict
from cubecast.lab.words import difference_text, ours_text, paper_text

TITLE = "The papers' experiments, redrawn"
HEAD = ("what", "paper", "ours", "difference", "verdict", "why")
NUMBERS = ("paper", "ours", "difference")


def markdown_of(
    results: Results, verdicts: Sequence[Verdict], figures: Mapping[str, Sequence[str]]
) -> str:
    """The report as a page of a documentation: figures, verdicts, the commands that made it.

    `figures` has the files of each experiment's figures, relative to the page, "" for none.
    """
    lines = [f"# {TITLE}", ""]
    for experiment in results.experiments:
        title, source = _escaped(experiment.title), _escaped(experiment.source)
        lines += [f"## {experiment.id} {title}", "", f"{source}.", ""]
        lines += [_escaped(" ".join(experiment.about.split())), ""]
        for name, plot in zip(figures[experiment.id], experiment.plot, strict=True):
            if name:
                lines += [f"![{_escaped(plot.title)}]({name})", ""]
        lines += _verdict_lines([one for one in verdicts if one.experiment == experiment.id])
    commands = list(dict.fromkeys(made.command for made in results.provenance if made.command))
    if commands:
        lines += [f"Made by {', '.join(map(_code, commands))}."]
    return "\n".join(lines).rstrip("\n") + "\n"


def _verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    rule = ["---:" if name in NUMBERS else "---" for name in HEAD]
    return [_line(HEAD), _line(rule), *(_line(_cells(verdict)) for verdict in verdicts), ""]


def _cells(verdict: Verdict) -> list[str]:
    origin = ", ".join(part for part in (verdict.section, verdict.accounting) if part)
    return [
        f"{verdict.what} ({origin})", paper_text(verdict), ours_text(verdict),
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
