"""The report of a sweep: one HTML page that needs nothing else, and the files beside it.

=================  ==============================================================
``report.html``    figures, verdicts, parameters; no request leaves the page
``figures/``       every figure as PNG and SVG
``report.md``      figures and verdicts, for a documentation
``verdicts.csv``   the same, for a program
``points.csv``     every measured mean with its confidence interval
=================  ==============================================================

Text from experiments and results is escaped where it enters the page (`text`), nowhere else; what
the functions here return is markup.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import get_args

from cubecast.lab import figures
from cubecast.lab.cells import Settings, Value
from cubecast.lab.curves import Rank, order_of
from cubecast.lab.experiment import Experiment, Plot
from cubecast.lab.results import Provenance, Results
from cubecast.lab.tables import TITLE, csv_of_rows, csv_of_verdicts, markdown_of
from cubecast.lab.verdicts import Judgement, Row, Verdict, judge, nearest_readings
from cubecast.lab.words import (
    NONE,
    counted,
    difference_text,
    measured,
    ours_text,
    paper_text,
    plain,
    setting_text,
    spaced,
    varying,
)

JUDGEMENTS: tuple[Judgement, ...] = get_args(Judgement)
SEVERAL_READINGS = (
    " Where a paper leaves open how it counted, a number is compared in several readings, all of"
    " them below; here it counts once, with the reading that comes nearest."
)
SIGNS = {"reproduced": "✓", "differs": "≠", "undecided": "?", "not measured": NONE}
MEANINGS = {
    "reproduced": "ours is within the stated tolerance",
    "differs": "ours is outside the tolerance by more than our confidence interval",
    "undecided": "ours is outside the tolerance, but not by more than our confidence interval, or"
    " there is only one seed",
    "not measured": "this run left its points out",
}
MOST_FAILURES = 20
MOST_POINTS = 200
"""More than this are not listed on the page, only in points.csv."""


def write(results: Results, out: Path) -> Path:
    """Write the report into the folder `out` and return the path of its page.

    The page comes last and at once: if it is there, so is everything it points to.
    """
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    sections = [_section(results, experiment, folder) for experiment in results.experiments]
    verdicts = results.verdicts()
    drawn = {one.id: _figure_files(out, one) for one in results.experiments}
    _put(out / "report.md", markdown_of(results, verdicts, drawn))
    _put(out / "verdicts.csv", csv_of_verdicts(verdicts))
    _put(out / "points.csv", csv_of_rows(results.rows))
    path = out / "report.html"
    _put(path, _page(results, verdicts, sections))
    return path


def _figure_files(out: Path, experiment: Experiment) -> list[str]:
    """The pictures of an experiment beside the page; nothing for those without a point."""
    names = (f"figures/{name}.png" for name in figure_names(experiment))
    return [name if (out / name).exists() else "" for name in names]


def _put(path: Path, content: str) -> None:
    """Replace a file as a whole."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(content, encoding="utf-8", newline="")
    os.replace(fresh, path)


# -- markup ---------------------------------------------------------------------------------------


def text(value: object) -> str:
    """Anything as text of a page or of an attribute."""
    return escape(str(value), quote=True)


def tag(name: str, content: str, **attributes: str) -> str:
    """An element; `content` is markup.  A trailing underscore of a name is dropped (`class_`)."""
    return f"<{name}{_attributes(attributes)}>{content}</{name}>"


def _attributes(attributes: dict[str, str]) -> str:
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
    return "".join(f' {name}="{text(value)}"' for name, value in named if value)


def table(head: Sequence[tuple[str, str]], rows: Iterable[str], class_: str = "") -> str:
    """A table that scrolls by itself where it is too wide; `head` has titles and classes."""
    titles = "".join(tag("th", text(title), class_=kind, scope="col") for title, kind in head)
    body = tag("thead", tag("tr", titles)) + tag("tbody", "\n".join(rows))
    return tag("div", tag("table", body, class_=class_), class_="scroll")


def pairs(entries: Iterable[tuple[str, str]]) -> str:
    """A list of names and what they are; the second of each is markup."""
    content = "".join(tag("dt", text(name)) + tag("dd", what) for name, what in entries if what)
    return tag("dl", content)


def badge(judgement: str) -> str:
    """A verdict in its colour, with a sign for those who do not see it."""
    sign = tag("span", SIGNS[judgement], aria_hidden="true")
    return tag("span", f"{sign} {text(judgement)}", class_=f"badge {_class(judgement)}")


def _class(judgement: str) -> str:
    return judgement.replace(" ", "-")


def _anchor(experiment: Experiment) -> str:
    return f"e-{experiment.id}"


# -- the page -------------------------------------------------------------------------------------


def _page(results: Results, verdicts: Sequence[Verdict], sections: Sequence[str]) -> str:
    style = (files("cubecast.lab") / "report.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"{tag('title', text(TITLE))}\n<style>\n{style}</style>"
    )
    main = "\n".join([
        _summary(verdicts), _contents(results, verdicts), *sections,
        _all_verdicts(results, verdicts), _provenance(results),
    ])  # fmt: skip
    body = f"{_top(results)}\n{tag('main', main)}\n{_footer()}"
    page = tag("html", f"\n<head>\n{head}\n</head>\n{tag('body', body)}\n", lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _top(results: Results) -> str:
    made = results.provenance
    lead = (
        "Each figure and table of the papers that the lab repeats, drawn again from our own runs, "
        "with the numbers the papers print beside ours."
    )
    facts = [made[-1].date, _version(made[-1])] if made else []
    if any(one.quick for one in made):
        facts.append("Quick run: fewer points and seeds than the papers'.")
    content = [
        tag("h1", text(TITLE)),
        tag("p", text(lead)),
        tag("p", text(" · ".join(fact for fact in facts if fact)), class_="soft"),
        _warning(results),
    ]
    return tag("header", "\n".join(content), class_="top")


def _version(made: Provenance) -> str:
    return f"cubecast {made.versions['cubecast']}" if "cubecast" in made.versions else ""


def _warning(results: Results) -> str:
    """What is not on the page although it should be."""
    missing = sum(results.missing.values())
    parts = []
    if missing:
        parts.append(tag("p", text(f"{_cells(missing)} not finished: run the same command again.")))
    if results.failures:
        shown = "".join(tag("li", text(failure)) for failure in results.failures[:MOST_FAILURES])
        title = f"{_cells(len(results.failures))} not measured for an error."
        parts.append(tag("p", text(title)) + tag("ul", shown))
    return tag("div", "".join(parts), class_="card warning", role="note") if parts else ""


def _cells(count: int) -> str:
    return "1 cell was" if count == 1 else f"{count:,} cells were"


def _footer() -> str:
    words = (
        "[J] VCube-PS, JPDC 2018. [S] VCube-PS, short version. [B] VCube-PB, SBRC 2017. "
        "[T] Dynamic message ordering for topic-based publish/subscribe, MIDLAB 9/2011. "
        "u.t.: units of time of the simulator."
    )
    return tag("footer", tag("p", text(words)))


def _counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    found = Counter(verdict.verdict for verdict in nearest_readings(verdicts))
    return {judgement: found[judgement] for judgement in JUDGEMENTS}


def _summary(verdicts: Sequence[Verdict]) -> str:
    counts = _counts(verdicts)
    tiles = "".join(
        tag(
            "div",
            tag("b", str(count)) + text(name),
            class_=f"tile {_class(name)}",
            title=MEANINGS[name],
        )
        for name, count in counts.items()
    )
    shares = "".join(
        tag("i", "", class_=_class(name), style=f"flex: {count}")
        for name, count in counts.items()
        if count
    )
    total = sum(counts.values())
    sentence = (
        f"{counts['reproduced']} of the {total} numbers compared here are reproduced."
        + SEVERAL_READINGS * (total < len(verdicts))
        if total
        else "These experiments name no number of a paper."
    )
    terms = " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in MEANINGS.items())
    content = [
        tag("h2", "Summary"),
        tag("p", text(sentence)),
        tag("div", tiles, class_="tiles"),
        tag("div", shares, class_="share", aria_hidden="true"),
        tag("p", text(terms), class_="soft"),
    ]
    return tag("section", "\n".join(content), class_="card", id="summary")


def _contents(results: Results, verdicts: Sequence[Verdict]) -> str:
    rows = []
    for experiment in results.experiments:
        counts = _counts(one for one in verdicts if one.experiment == experiment.id)
        link = tag("a", text(experiment.title), href=f"#{_anchor(experiment)}")
        cells = [
            tag("td", text(experiment.id), class_="number"),
            tag("td", link),
            tag("td", text(experiment.source), class_="soft"),
            tag("td", text(counted(counts) or "no numbers")),
        ]
        rows.append(tag("tr", "".join(cells)))
    ends = [("verdicts", "All verdicts"), ("provenance", "How this was made")]
    rows += [
        tag("tr", tag("td", "") + tag("td", tag("a", title, href=f"#{name}"), colspan="3"))
        for name, title in ends
    ]
    head = [("", ""), ("experiment", ""), ("source", ""), ("numbers", "")]
    return tag("nav", tag("h2", "Contents") + table(head, rows), class_="card", id="contents")


# -- one experiment -------------------------------------------------------------------------------


def _section(results: Results, experiment: Experiment, folder: Path) -> str:
    rows = results.rows_of(experiment)
    verdicts = judge(experiment, rows)
    number = tag("span", text(experiment.id), class_="number")
    content = [
        tag("h2", number + text(experiment.title)),
        tag("p", text(experiment.source), class_="source"),
        *(tag("p", text(" ".join(part.split()))) for part in experiment.about.split("\n\n")),
        _figures(results, experiment, folder),
    ]
    if verdicts:
        content += [tag("h3", "The paper and ours"), _verdict_table(map(_verdict_row, verdicts))]
    content += [tag("h3", "Parameters and seeds"), _parameters(experiment, rows)]
    content.append(_points(experiment, rows))
    return tag("section", "\n".join(content), class_="card", id=_anchor(experiment))


def _figures(results: Results, experiment: Experiment, folder: Path) -> str:
    rows, histograms = results.rows_of(experiment), results.histograms_of(experiment)
    found = []
    for name, plot in figure_names(experiment).items():
        drawing = figures.draw(experiment, plot, rows, histograms)
        if drawing is None:
            for kind in ("png", "svg"):  # of an earlier report, which would not belong to this page
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
            picture = tag("div", "None of its points was measured in this run.", class_="missing")
        else:
            figures.save(drawing, folder / name)
            picture = figures.inline(drawing, text(name), text(plot.title))
        found.append(tag("figure", picture + _caption(experiment, plot, name, drawing)))
    return tag("div", "\n".join(found), class_="figures") if found else ""


def figure_names(experiment: Experiment) -> dict[str, Plot]:
    """The plots by the names of their files, all different."""
    named: dict[str, Plot] = {}
    for index, plot in enumerate(experiment.plot, 1):
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", plot.name) or str(index)
        name = f"{experiment.id}-{short}"
        named[f"{name}-{index}" if name in named else name] = plot
    return named


def _caption(experiment: Experiment, plot: Plot, name: str, drawing: figures.Drawing | None) -> str:
    short = f"{experiment.id} {plot.name}".strip()
    words = [
        tag("b", text(f"{short}. {plot.title.rstrip('.')}.")),
        *map(text, drawing.notes if drawing else ()),
    ]
    if drawing:
        links = [
            tag("a", kind.upper(), href=f"figures/{name}.{kind}", download=f"{name}.{kind}")
            for kind in ("png", "svg")
        ]
        words.append(tag("span", " ".join(links), class_="files"))
    return tag("figcaption", " ".join(words))


def _verdict_table(rows: Iterable[str]) -> str:
    numbers = [(name, "n") for name in ("paper", "ours", "difference")]
    head = [("what", ""), *numbers, ("verdict", ""), ("remark", "")]
    return table(head, rows, "verdicts")


def _verdict_row(verdict: Verdict) -> str:
    accounting = f", {verdict.accounting}" if verdict.accounting else ""
    origin = tag("span", text(f"{verdict.section}{accounting}"), class_="soft")
    seeds = f"{verdict.n} seed{'' if verdict.n == 1 else 's'}" if verdict.n else ""
    cells = [
        tag("td", f"{text(verdict.what)} {origin}", class_="what"),
        tag("td", text(paper_text(verdict)), class_="n", data_name="paper"),
        tag("td", text(ours_text(verdict)), class_="n", data_name="ours", title=seeds),
        tag("td", text(difference_text(verdict)), class_="n", data_name="difference"),
        tag("td", badge(verdict.verdict), data_name="verdict"),
        tag("td", text(verdict.sentence), class_="says", data_name="remark"),
    ]
    return tag("tr", "".join(cells))


def _parameters(experiment: Experiment, rows: Sequence[Row]) -> str:
    points = _points_of(experiment, rows)
    if not points:
        return tag("p", "Not measured in this run.", class_="soft")
    changing = varying(points)
    entries = [("workload", tag("code", text(experiment.workload)))]
    for name in _in_grid_order(experiment, changing):
        values = {repr(point[name]): point[name] for point in points if name in point}
        ordered = sorted(values.values(), key=_rank(experiment, name))
        entries.append((spaced(name), text(", ".join(map(setting_text, ordered)))))
    fixed = [
        tag("code", text(f"{name} = {setting_text(value)}"))
        for name, value in sorted(points[0].items())
        if name not in (*changing, "workload")
    ]
    return pairs([*entries, ("fixed", " ".join(fixed)), ("seeds", text(_seeds(rows)))])


def _seeds(rows: Sequence[Row]) -> str:
    counts = {row.n for row in rows}
    if len(counts) == 1:
        (n,) = counts
        return "0" if n == 1 else f"0 to {n - 1}, {n} per point"
    return f"from {min(counts)} to {max(counts)} per point, beginning with 0"


def _in_grid_order(experiment: Experiment, names: Iterable[str]) -> list[str]:
    """The grid's axes as it lists them, then whatever else varies with them."""
    axes = list(dict.fromkeys(name for block in experiment.grid for name in block.axes))
    return sorted(names, key=lambda name: axes.index(name) if name in axes else len(axes))


def _rank(experiment: Experiment, name: str) -> Callable[[Value], Rank]:
    return order_of(experiment, experiment.metrics)(name)


def _identity(settings: Settings) -> str:
    return repr(sorted(settings.items()))


def _points_of(experiment: Experiment, rows: Sequence[Row]) -> list[Settings]:
    """The measured points, in the order of the grid."""
    points = list({_identity(row.settings): row.settings for row in rows}.values())
    ranks = {name: _rank(experiment, name) for name in varying(points)}
    names = _in_grid_order(experiment, sorted(ranks))
    return sorted(points, key=lambda point: [ranks[name](point.get(name, "")) for name in names])


def _points(experiment: Experiment, rows: Sequence[Row]) -> str:
    """All measured points, folded away: one line per point, one column per metric."""
    points = _points_of(experiment, rows)
    if not points:
        return ""
    axes = _in_grid_order(experiment, varying(points))
    values = {(_identity(row.settings), row.metric): row for row in rows}
    lines = []
    for point in points[:MOST_POINTS]:
        cells = [tag("td", text(setting_text(point.get(name, "")))) for name in axes]
        for metric in experiment.metrics:
            row = values.get((_identity(point), metric))
            cells.append(tag("td", text(measured(row.mean, row.ci)) if row else NONE, class_="n"))
        lines.append(tag("tr", "".join(cells)))
    head = [(spaced(name), "") for name in axes]
    head += [(spaced(metric), "n") for metric in experiment.metrics]
    left = len(points) - MOST_POINTS
    note = tag("p", f"{left} more are in points.csv.", class_="soft") if left > 0 else ""
    title = f"The {len(points)} measured points"
    return tag("details", tag("summary", title) + table(head, lines) + note)


# -- the end --------------------------------------------------------------------------------------


def _all_verdicts(results: Results, verdicts: Sequence[Verdict]) -> str:
    rows = []
    for experiment in results.experiments:
        own = [verdict for verdict in verdicts if verdict.experiment == experiment.id]
        link = tag(
            "a", text(f"{experiment.id}  {experiment.title}"), href=f"#{_anchor(experiment)}"
        )
        if own:
            rows.append(tag("tr", tag("th", link, colspan="6"), class_="part"))
            rows += map(_verdict_row, own)
    links = " ".join(tag("a", name, href=name) for name in ("verdicts.csv", "report.md"))
    content = tag("h2", "All verdicts") + _verdict_table(rows) + tag("p", links, class_="files")
    return tag("section", content, class_="card", id="verdicts")


def _provenance(results: Results) -> str:
    ids = ", ".join(one.id for one in results.experiments)
    content = [tag("h2", "How this was made"), pairs([("experiments", text(ids))])]
    content += [_sweep(made) for made in results.provenance]
    return tag("section", "\n".join(content), class_="card", id="provenance")


def _sweep(made: Provenance) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in made.versions.items())
    return pairs([
        ("command", tag("code", text(made.command)) if made.command else ""),
        ("date", text(made.date)),
        ("versions", text(versions)),
        ("form", "quick: fewer points and seeds" if made.quick else "full"),
        ("seeds", text("as each experiment says" if made.seeds is None else made.seeds)),
        ("Spark master", tag("code", text(made.master)) if made.master else ""),
        ("cells", f"{made.cells:,}" if made.cells else ""),
        ("time", text(_time(made))),
    ])  # fmt: skip


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
