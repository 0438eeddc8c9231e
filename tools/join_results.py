"""Renew published results (docs/results) from runs of some of the experiments.

    python tools/join_results.py                 judge and tell what is published anew
    python tools/join_results.py lab-results     with the experiments that lab-results has

An experiment of `lab-results` replaces its points and figures.  All others keep theirs: their
points are read back from points.csv, their figures stay as they are.  Verdicts and the page are
made by the present code from the present experiments, so they never lag behind either.  The page
says which code measured the points that replace others: its commit, and the digest of its sources
that is in the keys of the cells (`cubecast.lab.sources`).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cubecast.lab.cells import Settings
from cubecast.lab.experiment import Experiment, find, shipped
from cubecast.lab.report.data import Findings
from cubecast.lab.report.figures import draw_all, figure_names, save
from cubecast.lab.report.markdown_and_csv import Figure, csv_of_rows, csv_of_verdicts, markdown_of
from cubecast.lab.report.verdict_tables import judged
from cubecast.lab.sources import code_digest
from cubecast.lab.verdicts import Row
from cubecast.spark.plain_tables import gather
from cubecast.spark.results import Results

PUBLISHED = Path("docs/results")
MADE = "## How this was made"


class JoinError(Exception):
    """Points or pages that do not fit the experiments; one line."""


def points_of(experiment: Experiment, lines: Sequence[Mapping[str, str]]) -> list[Row]:
    """The rows of points.csv that belong to points of the experiment's grid.

    The file has the settings that differ between points; they single out one point each.  A line
    whose settings no point has any more is left out.
    """
    points = experiment.points()
    named: dict[str, Settings | None] = {}
    found = []
    for line in lines:
        text = line["settings"]
        if text not in named:
            named[text] = _point(experiment, points, json.loads(text))
        settings = named[text]
        if settings is not None:
            mean, ci, n = float(line["mean"]), float(line["ci"]), int(line["n"])
            found.append(Row(experiment.id, settings, line["metric"], mean, ci, n))
    return found


def _point(experiment: Experiment, points: Sequence[Settings], told: Settings) -> Settings | None:
    fits = [one for one in points if all(one.get(key) == value for key, value in told.items())]
    if len(fits) > 1:
        raise JoinError(f"{experiment.id}: {len(fits)} points have the settings {told}")
    return fits[0] if fits else None


def old_figures(page: str) -> dict[str, list[Figure]]:
    """The figures of each experiment, as the page has them."""
    found: dict[str, list[Figure]] = {}
    experiment = ""
    for line, after in zip(lines := page.split("\n"), [*lines[2:], "", ""], strict=True):
        if line.startswith("## "):
            experiment = line.split()[1]
        elif match := re.fullmatch(r"!\[(.*)\]\((.*)\)", line):
            notes = after.partition(".* ")[2]
            figure = Figure(match[2], _plain(match[1]), [_plain(notes)])
            found.setdefault(experiment, []).append(figure)
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\([|*_`\\])", r"\1", text).replace("&lt;", "<").replace("&amp;", "&")


def joined(published: Path, fresh: Findings) -> tuple[Findings, dict[str, list[Figure]]]:
    """The findings of both, and the figures that are published."""
    with (published / "points.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    figures = old_figures((published / "report.md").read_text(encoding="utf-8"))
    renewed = {experiment.id for experiment in fresh.experiments}
    rows: list[Row] = []
    experiments = []
    for experiment in map(find, shipped()):
        if experiment.id in renewed:
            settings = [dict(one) for one in experiment.points()]
            own = [row for row in fresh.rows_of(experiment) if dict(row.settings) in settings]
        else:
            told = [one for one in lines if one["experiment"] == experiment.id]
            own = points_of(experiment, told)
        if own:
            experiments.append(experiment)
            rows += own
    found = Findings(
        experiments, rows, fresh.histograms, fresh.provenance, fresh.missing, fresh.failures
    )
    return found, figures


def code_of(results: Results) -> dict[str, str]:
    """{experiment: the commit and the digest of the code that measured its points}."""
    commits = {str(one["sweep"]): str(one.get("commit") or "unknown") for one in results.sweeps()}
    cells = results.table("timings", ["experiment", "key", "sweep"]).to_pylist()
    found: dict[str, set[str]] = {}
    for cell in cells:
        commit, digest = commits.get(cell["sweep"], "unknown"), cell["key"].rpartition("-")[2]
        found.setdefault(cell["experiment"], set()).add(f"commit {commit}, code {digest}")
    return {experiment: " and ".join(sorted(codes)) for experiment, codes in found.items()}


def told_code(code: Mapping[str, str]) -> str:
    """One line about the code of experiments, those of one code together."""
    together: dict[str, list[str]] = {}
    for experiment, text in code.items():
        together.setdefault(text, []).append(experiment)
    parts = [f"{', '.join(sorted(ids))} by {text}" for text, ids in sorted(together.items())]
    return f"Points that replace earlier ones: {'; '.join(parts)}."


def redraw(
    findings: Findings,
    old: Mapping[str, Sequence[Figure]],
    folder: Path,
    only: Collection[str] | None = None,
) -> dict[str, list[Figure]]:
    """Draw figures, of all experiments or some; others stay, as those of distributions do."""
    found = {name: list(figures) for name, figures in old.items()}
    for experiment in findings.experiments:
        if only is not None and experiment.id not in only:
            continue
        found[experiment.id] = []
        histograms = findings.histograms_of(experiment)
        drawn = draw_all(
            experiment, findings.rows_of(experiment), histograms, formats=["png"], width="page"
        )
        plots = figure_names(experiment)
        before = {Path(figure.file).stem: figure for figure in old.get(experiment.id, ())}
        for name, drawing in drawn.items():
            figure = before.get(name)
            if drawing is not None:
                save(drawing, folder / name, ["png"])
                figure = Figure(f"figures/{name}.png", plots[name].title, drawing.notes)
            if figure is not None:
                found[experiment.id].append(figure)
    return found


def write(
    published: Path,
    findings: Findings,
    figures: Mapping[str, Sequence[Figure]],
    code: Mapping[str, str] | None = None,
) -> None:
    """Write points, verdicts and the page, and remove figures that the page does not show."""
    before = (published / "report.md").read_text(encoding="utf-8")
    made = before.partition(MADE)[2].strip("\n")
    verdicts = {one.id: judged(one, findings.rows_of(one)) for one in findings.experiments}
    shown = {one.id: figures.get(one.id, []) for one in findings.experiments}
    page = markdown_of(findings, verdicts, shown)
    head, _, new = page.partition(MADE)
    measured = f"- {told_code(code)}" if code else ""
    lines = [line for line in (made, new.strip("\n"), measured) if line]
    _put(published / "points.csv", csv_of_rows(findings.rows))
    _put(published / "verdicts.csv", csv_of_verdicts(verdicts.values()))
    _put(published / "report.md", f"{head}{MADE}\n\n" + "\n".join(lines) + "\n")
    used = {published / figure.file for drawn in shown.values() for figure in drawn}
    for path in (published / "figures").iterdir():
        if path not in used:
            path.unlink()


def _put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


def main() -> int:
    """Parse the command line and renew the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", help="a directory that `lab run --out` made")
    parser.add_argument("--to", type=Path, default=PUBLISHED, help="(default: docs/results)")
    options = parser.parse_args()
    results = Results(options.results) if options.results else None
    fresh, code = (gather(results), code_of(results)) if results else (Findings((), ()), {})
    try:
        findings, figures = joined(options.to, fresh)
    except (JoinError, OSError) as error:
        print(f"join_results: {error}", file=sys.stderr)
        return 1
    renewed = [experiment.id for experiment in fresh.experiments]
    write(options.to, findings, redraw(findings, figures, options.to / "figures"), code)
    print(f"{options.to}: {len(findings.rows):,} points, {len(renewed)} experiments renewed")
    if code:
        print(f"{told_code(code)} The present code is {code_digest()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
