"""A report as files.

=================  ==============================================================
``report.html``    figures, verdicts, parameters; no request leaves the page
``figures/``       every figure, in the formats asked for
``report.md``      figures and verdicts, for a documentation
``verdicts.csv``   the same, for a program
``points.csv``     every measured mean with its confidence interval
=================  ==============================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cubecast.lab.experiment import Experiment
from cubecast.lab.report.curve_styles import WidthName
from cubecast.lab.report.data import Findings
from cubecast.lab.report.figures import FORMATS, Drawing, draw_all, figure_names, save
from cubecast.lab.report.markdown_and_csv import Figure, csv_of_rows, csv_of_verdicts, markdown_of
from cubecast.lab.report.page import Pictures, page_of
from cubecast.lab.report.verdict_tables import judged


def write_report(
    findings: Findings,
    out: Path,
    formats: Sequence[str],
    width: WidthName,
    with_page: bool,
) -> Path:
    """Write all files.  The page comes last and at once: if it exists, so do all files it names."""
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _pictures(findings, folder, formats, width, with_page)
    verdicts = {one.id: judged(one, findings.rows_of(one)) for one in findings.experiments}
    shown = next((kind for kind in FORMATS if kind in formats), "")
    told = {one.id: _figures(one, pictures[one.id], shown) for one in findings.experiments}
    _put(out / "verdicts.csv", csv_of_verdicts(verdicts.values()))
    _put(out / "points.csv", csv_of_rows(findings.rows))
    _put(out / "report.md", markdown_of(findings, verdicts, told))
    if not with_page:
        return out / "report.md"
    _put(out / "report.html", page_of(findings, verdicts, pictures, formats))
    return out / "report.html"


def _figures(
    experiment: Experiment, drawn: Mapping[str, Drawing | None], kind: str
) -> list[Figure]:
    """The drawn figures, for documentation."""
    plots = figure_names(experiment)
    return [
        Figure(f"figures/{name}.{kind}", plots[name].title, drawing.notes)
        for name, drawing in drawn.items()
        if drawing is not None
    ]


def _pictures(
    findings: Findings, folder: Path, formats: Sequence[str], width: WidthName, with_page: bool
) -> Pictures:
    """Draw all figures and write their files; the page needs SVG whatever the files are."""
    drawn_as = [*formats, *(["svg"] if with_page and "svg" not in formats else [])]
    found: Pictures = {}
    for experiment in findings.experiments:
        drawn = draw_all(
            experiment, findings.rows_of(experiment), findings.histograms_of(experiment),
            formats=drawn_as, width=width,
        )  # fmt: skip
        for name, drawing in drawn.items():
            save(drawing, folder / name, formats)
        found[experiment.id] = drawn
    return found


def _put(path: Path, content: str) -> None:
    """Replace a file as a whole."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(content, encoding="utf-8", newline="")
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
