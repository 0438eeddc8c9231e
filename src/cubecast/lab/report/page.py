"""The page: one HTML file that needs nothing else and loads nothing.

`page.html` is its template.  All texts from experiments and results are escaped by the template
engine where they enter the page; the figures are the only markup that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeAlias

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from cubecast.lab.cells import Settings, Value
from cubecast.lab.experiment import Experiment, Plot
from cubecast.lab.report.curves import Rank, identity, order_of
from cubecast.lab.report.data import Findings, Provenance
from cubecast.lab.report.figures import Drawing, figure_names, inline
from cubecast.lab.report.markdown_and_csv import CLAIMS, MOST_LISTED, TITLE, listed_cells
from cubecast.lab.report.papers import named_in
from cubecast.lab.report.verdict_tables import (
    MEANINGS,
    SIGNS,
    TOGETHER,
    Judged,
    printed_numbers,
)
from cubecast.lab.report.wording import (
    NONE,
    counted,
    measured,
    plain,
    seeds_text,
    setting_text,
    spaced,
    varying,
)
from cubecast.lab.verdicts import Row

MOST_POINTS = 200
"""More points than this are listed only in points.csv."""
Pictures: TypeAlias = dict[str, dict[str, Drawing | None]]
"""{experiment: {name: figure}}."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page."""

    name: str
    title: str
    svg: Markup | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class PointTable:
    """The measured points: one line per point, one column per metric."""

    settings: Sequence[str]
    metrics: Sequence[str]
    lines: Sequence[tuple[Sequence[str], Sequence[str]]]
    points: int

    @property
    def left(self) -> int:
        return self.points - len(self.lines)


@dataclass(frozen=True, slots=True)
class Section:
    """One experiment on the page."""

    experiment: Experiment
    about: Sequence[str]
    pictures: Sequence[Picture]
    judged: Judged
    parameters: Sequence[tuple[str, str]]
    fixed: Sequence[str]
    seeds: str
    table: PointTable


def page_of(
    findings: Findings,
    judged: Mapping[str, Judged],
    pictures: Pictures,
    formats: Sequence[str],
) -> str:
    """The page about some findings."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = files("cubecast.lab.report")
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    style = (folder / "report.css").read_text(encoding="utf-8")
    numbers = printed_numbers(list(judged.values()))
    return template.render(
        title=TITLE,
        claims=CLAIMS,
        style=Markup(style),
        findings=findings,
        made=list(map(_made, findings.provenance)),
        latest=findings.provenance[-1] if findings.provenance else Provenance(),
        quick=any(one.quick for one in findings.provenance),
        missing=listed_cells(findings),
        headline=numbers.sentences,
        counts=numbers.counts,
        compared=numbers.by_experiment,
        tables=numbers.tables,
        signs=SIGNS,
        meanings=MEANINGS,
        together=TOGETHER,
        counted=counted,
        papers=named_in(experiment.source for experiment in findings.experiments),
        sections=[
            _section(findings, one, judged[one.id], pictures[one.id])
            for one in findings.experiments
        ],
        ids={one.id for one in findings.experiments},
        formats=formats,
        most=MOST_LISTED,
    ) + "\n"  # fmt: skip


# -- one experiment -------------------------------------------------------------------------------


def _section(
    findings: Findings,
    experiment: Experiment,
    judged: Judged,
    drawn: Mapping[str, Drawing | None],
) -> Section:
    rows = findings.rows_of(experiment)
    points = _points_of(experiment, rows)
    changing = _in_grid_order(experiment, varying(points))
    return Section(
        experiment=experiment,
        about=[" ".join(part.split()) for part in experiment.about.split("\n\n")],
        pictures=[
            _picture(experiment, name, plot, drawn[name])
            for name, plot in figure_names(experiment).items()
        ],
        judged=judged,
        parameters=[(spaced(name), _values(experiment, points, name)) for name in changing],
        fixed=[
            f"{name} = {setting_text(value)}"
            for name, value in sorted((points or [{}])[0].items())
            if name not in (*changing, "workload")
        ],
        seeds=seeds_text([row.n for row in rows]),
        table=_point_table(experiment, rows, points, changing),
    )


def _picture(experiment: Experiment, name: str, plot: Plot, drawing: Drawing | None) -> Picture:
    title = f"{experiment.id} {plot.name}".strip() + f". {plot.title.rstrip('.')}."
    if drawing is None:
        return Picture(name, title, None, ())
    svg = inline(drawing.files["svg"], str(escape(name)), str(escape(plot.title)))
    return Picture(name, title, Markup(svg), drawing.notes)


def _values(experiment: Experiment, points: Sequence[Settings], name: str) -> str:
    values = {repr(point[name]): point[name] for point in points if name in point}
    ordered = sorted(values.values(), key=_rank(experiment, name))
    return ", ".join(map(setting_text, ordered))


def _in_grid_order(experiment: Experiment, names: Iterable[str]) -> list[str]:
    """The grid's axes in its order, then other varying settings."""
    axes = list(dict.fromkeys(name for block in experiment.grid for name in block.axes))
    return sorted(names, key=lambda name: axes.index(name) if name in axes else len(axes))


def _rank(experiment: Experiment, name: str) -> Callable[[Value], Rank]:
    return order_of(experiment, experiment.metrics)(name)


def _points_of(experiment: Experiment, rows: Sequence[Row]) -> list[Settings]:
    """The measured points, in the order of the grid."""
    points = list({identity(row.settings): row.settings for row in rows}.values())
    ranks = {name: _rank(experiment, name) for name in varying(points)}
    names = _in_grid_order(experiment, sorted(ranks))
    return sorted(points, key=lambda point: [ranks[name](point.get(name, "")) for name in names])


def _point_table(
    experiment: Experiment,
    rows: Sequence[Row],
    points: Sequence[Settings],
    changing: Sequence[str],
) -> PointTable:
    values = {(identity(row.settings), row.metric): row for row in rows}
    lines = []
    for point in points[:MOST_POINTS]:
        found = [values.get((identity(point), metric)) for metric in experiment.metrics]
        lines.append((
            [setting_text(point.get(name, "")) for name in changing],
            [measured(row.mean, row.ci) if row else NONE for row in found],
        ))  # fmt: skip
    return PointTable(
        [spaced(name) for name in changing],
        [spaced(metric) for metric in experiment.metrics],
        lines,
        len(points),
    )


# -- how it was made ------------------------------------------------------------------------------


def _made(made: Provenance) -> list[tuple[str, str, bool]]:
    """Facts about a sweep: what, its value, and whether it is code."""
    versions = ", ".join(f"{name} {number}" for name, number in made.versions.items())
    facts = [
        ("command", made.command, True),
        ("date", made.date, False),
        ("commit", made.commit or "not recorded", bool(made.commit)),
        ("versions", versions, False),
        ("form", "quick: fewer points and seeds" if made.quick else "full", False),
        ("seeds", "as each experiment says" if made.seeds is None else str(made.seeds), False),
        ("Spark master", made.master, True),
        ("cells", f"{made.cells:,}" if made.cells else "", False),
        ("time", _time(made), False),
    ]
    return [fact for fact in facts if fact[1]]


def _time(made: Provenance) -> str:
    parts = [] if made.seconds is None else [_duration(made.seconds)]
    if made.idle is not None:
        parts.append(f"the cores were without a cell {plain(round(100 * made.idle, 1))} % of it")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
