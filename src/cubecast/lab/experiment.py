"""Experiments as declarative files: read, checked, and turned into cells.

An experiment is a TOML file (docs/lab.md describes it).  A shipped one and a user's own are read by
the same code.  Every error in a file is one line that names the file, the key and the allowed
values, before anything runs.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from cubecast.lab.cells import Cell, Settings, Value
from cubecast.lab.comparisons import Bound, Fold, Form, PaperNumber, PaperReading, Written, expanded
from cubecast.lab.workload import Workload, WorkloadError
from cubecast.lab.workloads import WORKLOADS
from cubecast.plugins import PluginError, look_in

PlotKind = Literal["lines", "bars", "dots", "histogram", "cumulative", "timeline"]
OF_HISTOGRAMS: tuple[PlotKind, ...] = ("histogram", "cumulative", "timeline")

__all__ = [
    "OF_HISTOGRAMS", "Block", "Bound", "Experiment", "ExperimentError", "Fold", "Form",
    "PaperNumber", "PaperReading", "Plot", "PlotKind", "Quick", "Seeds", "find", "load", "matches",
    "parse", "shipped",
]  # fmt: skip
NEEDED = ("id", "title", "source", "workload", "metrics", "grid", "seeds")
MAX_POINTS = 100_000


class ExperimentError(ValueError):
    """A file is no experiment, or there is no such experiment; the message is one line."""


class Seeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many seeds each point of the grid gets."""

    full: int
    quick: int = 1
    most: int = 0
    """Never more than this, whatever is asked for (0: no limit)."""


class Quick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The replacements of the quick form: values of some axes, and of some fixed settings."""

    grid: dict[str, list[Value]] = {}
    fixed: dict[str, Value] = {}


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the grid: every combination of the values of its axes."""

    axes: dict[str, list[Value]]
    seeds: int = 0
    """Here, never more than this many seeds, where one run takes long (0: no limit)."""

    def quick(self, replaced: Mapping[str, list[Value]]) -> dict[str, list[Value]]:
        """The axes of the quick form."""
        return {name: replaced.get(name, values) for name, values in self.axes.items()}


class Plot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One figure.  `y` is a metric; of a histogram, `x` is its name and `y` is left out.

    A timeline is a histogram drawn as a curve: its buckets are times, its counts are values.
    Dots are bars without the bars: they stand on any axis, also on a logarithmic one.
    """

    name: str = ""
    """Distinguishes figures of one experiment: "a", "messages"."""
    title: str
    kind: PlotKind = "lines"
    x: str
    y: str | list[str] = ""
    """Several metrics are several curves, or the parts of a stacked bar."""
    series: list[str] = []
    """Settings that distinguish the curves."""
    where: dict[str, Value] = {}
    """Only the points with these settings."""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    error_bars: bool = True
    marks: bool = True
    """Whether the paper's numbers of this metric are marked."""
    marks_at: dict[str, int] = {}
    """Of a histogram: {metric: bucket that its paper's numbers are marked at}."""
    ratio_to: dict[str, Value] = {}
    """Values are shown as multiples of those at the points that have these settings instead."""
    level: dict[str, Value] = {}
    """Curves with these settings do not depend on x: each is drawn as a line from side to side."""
    order: list[Value] = []
    """The order of words on the axis and of the first series, where it is not that of the grid."""
    from_zero: bool = True
    """Whether a linear axis begins at zero."""
    zero: bool = False
    """Whether a logarithmic axis shows zero too: it is linear below 1.  Of dots it always does."""
    bin_width: float = 1.0
    """Of a timeline by sizes: a bin ends at so many times its bucket, and stands at its middle."""
    diagonal: str = ""
    """The name of the line y = x, if it is drawn."""

    def metrics(self) -> list[str]:
        return [self.y] if isinstance(self.y, str) else self.y


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One figure or table."""

    id: str
    title: str
    source: str
    about: str = ""
    workload: str
    metrics: list[str]
    fixed: dict[str, Value] = {}
    grid: list[Block]
    seeds: Seeds
    quick: Quick = Quick()
    plot: list[Plot] = []
    reading: list[PaperReading] = []
    """Consistent ways to read the points that the paper leaves open."""
    paper: list[PaperNumber] = []
    """Each comparison in each of its readings."""
    path: str = ""
    text: str = ""
    """The text of the file."""

    def points(self, *, quick: bool = False, changes: Settings | None = None) -> list[Settings]:
        """All points of the grid, in order; `changes` replaces settings at every point."""
        return [settings for settings, _ in self._points(quick, changes)]

    def cells(
        self, *, quick: bool = False, seeds: int | None = None, changes: Settings | None = None
    ) -> list[Cell]:
        """Every point with every seed, in the order of the grid."""
        work = WORKLOADS[self.workload]
        count = seeds if seeds is not None else self.seeds.quick if quick else self.seeds.full
        if self.seeds.most:
            count = min(count, self.seeds.most)
        return [
            Cell(self.id, number, settings, seed, work.cost(settings))
            for number, (settings, most) in enumerate(self._points(quick, changes))
            for seed in range(min(count, most) if most else count)
        ]

    def _points(self, quick: bool, changes: Settings | None) -> list[tuple[Settings, int]]:
        """The distinct points, each with the most seeds it gets."""
        work = WORKLOADS[self.workload]
        fixed: dict[str, Value] = {"workload": self.workload, **self.fixed}
        if quick:
            fixed |= self.quick.fixed
        found: dict[bytes, tuple[Settings, int]] = {}
        for block in self.grid:
            axes = block.quick(self.quick.grid) if quick else block.axes
            for values in product(*axes.values()):
                point = {**fixed, **dict(zip(axes, values, strict=True)), **(changes or {})}
                settings = work.complete(point)
                key = msgspec.json.encode(settings, order="sorted")
                found.setdefault(key, (settings, block.seeds))
        return list(found.values())


# -- finding --------------------------------------------------------------------------------------


def shipped() -> dict[str, Experiment]:
    """The experiments of this package, by id, in the order of the papers."""
    return dict(_shipped())


@cache
def _shipped() -> dict[str, Experiment]:
    """Read all experiments, once per process: parsing and checking takes a quarter of a second."""
    folder = files("cubecast.lab") / "experiments"
    stems = sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))
    found: dict[str, Experiment] = {}
    for name in (f"{stem}.toml" for stem in stems):
        experiment = parse((folder / name).read_text(encoding="utf-8"), name)
        if experiment.id in found:
            raise ExperimentError(f"{name}: id: {experiment.id!r} is taken already")
        found[experiment.id] = experiment
    return found


def find(name: str) -> Experiment:
    """An experiment by its id, or from a file (a name with a path or ending in .toml)."""
    if name.endswith(".toml") or "/" in name:
        return load(Path(name))
    known = shipped()
    if name not in known:
        raise ExperimentError(f"unknown experiment {name!r}; there are: {', '.join(known)}")
    return known[name]


def load(path: Path) -> Experiment:
    """Read an experiment's file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: is not text in UTF-8") from None
    look_in(path.parent)  # for workloads and protocols of the user's own
    return parse(text, str(path))


# -- reading --------------------------------------------------------------------------------------


def parse(text: str, name: str) -> Experiment:
    """An experiment from its text; errors call it `name`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(f"{name}: not valid TOML: {error}") from None
    for key in NEEDED:
        if key not in raw:
            raise ExperimentError(f"{name}: {key}: is missing; needed are: {', '.join(NEEDED)}")
    raw["grid"] = _blocks(name, raw["grid"])
    _refuse_unknown(name, raw)
    if "paper" in raw:
        raw["paper"] = _numbers(name, raw)
    try:
        experiment = msgspec.convert({**raw, "path": name, "text": text}, Experiment)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{name}: {_place(str(error))}") from None
    _check(experiment)
    return experiment


def _numbers(name: str, raw: dict[str, Any]) -> Any:
    """The comparisons in all readings; other types are left to the check of types."""

    def refuse(key: str, problem: str) -> ExperimentError:
        return ExperimentError(f"{name}: {key}: {problem}")

    entries = raw["paper"]
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        return entries
    try:
        readings = msgspec.convert(raw.get("reading", []), list[PaperReading])
    except msgspec.ValidationError as error:
        raise refuse("reading", str(error)) from None
    return expanded(entries, readings, refuse)


def _blocks(name: str, grid: Any) -> Any:
    """The grid is one table or several, of axes; `seeds` is no axis but a limit."""
    tables = [grid] if isinstance(grid, dict) else grid
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return tables
    for table in tables:
        for axis, values in table.items():
            if axis != "seeds" and not isinstance(values, list):
                raise ExperimentError(f"{name}: grid.{axis}: must be a list, not {values!r}")
    return [
        {"axes": {name: values for name, values in table.items() if name != "seeds"}}
        | ({"seeds": table["seeds"]} if "seeds" in table else {})
        for table in tables
    ]


_TABLES: dict[str, tuple[type[msgspec.Struct], bool]] = {
    "seeds": (Seeds, False), "quick": (Quick, False), "plot": (Plot, True),
    "paper": (Written, True), "reading": (PaperReading, True),
}  # fmt: skip
"""Tables with keys of their own, and whether they are repeated."""


def _refuse_unknown(name: str, raw: dict[str, Any]) -> None:
    """Refuse unknown keys, with a list of the known ones."""
    _refuse_keys(name, "", raw, [key for key in _keys(Experiment) if key not in ("path", "text")])
    for table, (kind, repeated) in _TABLES.items():
        entries = raw.get(table, [] if repeated else {})
        for index, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            if isinstance(entry, dict):
                place = f"{table}[{index + 1}]." if repeated else f"{table}."
                _refuse_keys(name, place, entry, _keys(kind))


def _refuse_keys(name: str, place: str, found: dict[str, Any], allowed: Sequence[str]) -> None:
    for key in found:
        if key not in allowed:
            raise ExperimentError(
                f"{name}: {place}{key}: unknown key; there are: {', '.join(allowed)}"
            )


@cache
def _keys(kind: type[msgspec.Struct]) -> list[str]:
    """The keys of a class, cached: msgspec evaluates all annotations each time it is asked."""
    return [field.name for field in msgspec.structs.fields(kind)]


_WORDS: dict[str, tuple[str, ...]] = {
    "kind": get_args(PlotKind), "form": get_args(Form), "fold": get_args(Fold),
    "bound": get_args(Bound),
}  # fmt: skip
"""The words that a key may have."""


def _place(message: str) -> str:
    """msgspec's message with the key first, tables counted from 1: "plot[1].kind: Invalid …"."""
    text, found, place = message.partition(" - at `$.")
    place = re.sub(r"\[(\d+)\]", lambda index: f"[{int(index[1]) + 1}]", place.rstrip("`"))
    allowed = _WORDS.get(place.rpartition(".")[2], ()) if "enum value" in text else ()
    text += f"; {_list(filter(None, allowed))}" if allowed else ""
    return f"{place}: {text}" if found else text


# -- checking -------------------------------------------------------------------------------------


def _check(experiment: Experiment) -> None:
    """Check the rules between the parts of a file."""
    name = experiment.path

    def refuse(key: str, problem: str) -> ExperimentError:
        return ExperimentError(f"{name}: {key}: {problem}")

    try:
        work = WORKLOADS.get(experiment.workload)
        if work is None:
            raise refuse("workload", f"unknown {experiment.workload!r}; {_list(WORKLOADS)}")
    except PluginError as error:
        raise refuse("workload", str(error)) from None
    for key in ("id", "title", "source"):
        if not getattr(experiment, key).strip():
            raise refuse(key, "must not be empty")
    if not set(experiment.id) <= _ID_CHARACTERS:
        raise refuse("id", "may have letters, digits, '.', '-' and '_'")
    _check_seeds(experiment.seeds, refuse)
    _check_axes(experiment, work, refuse)
    if not experiment.metrics:
        raise refuse("metrics", f"at least one is needed; {_list(work.metrics)}")
    for metric in experiment.metrics:
        if metric not in work.metrics:
            raise refuse("metrics", f"unknown metric {metric!r}; {_list(work.metrics)}")
    try:
        points = experiment.points()
        experiment.points(quick=True)
    except WorkloadError as error:
        raise refuse(f"fixed or grid: {error.key}", error.problem) from None
    for index, plot in enumerate(experiment.plot, 1):
        _check_plot(plot, f"plot[{index}]", experiment, work, refuse)
    for index, number in enumerate(experiment.paper, 1):
        place = f"paper {number.row}" if number.row else f"paper[{index}]"
        _check_paper(number, place, experiment, points, refuse)


_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")


def _list(names: Iterable[str]) -> str:
    return f"there are: {', '.join(names)}"


def _check_seeds(seeds: Seeds, refuse: Any) -> None:
    for key in ("full", "quick"):
        if getattr(seeds, key) < 1:
            raise refuse(f"seeds.{key}", f"must be at least 1, not {getattr(seeds, key)}")
    if seeds.most < 0:
        raise refuse("seeds.most", f"must be 0 (no limit) or more, not {seeds.most}")


def _check_axes(experiment: Experiment, work: Workload, refuse: Any) -> None:
    if not experiment.grid:
        raise refuse("grid", "at least one table is needed")
    quick = experiment.quick
    places: list[tuple[str, Iterable[str]]] = [("fixed", experiment.fixed)]
    places += [("grid", block.axes) for block in experiment.grid]
    places += [("quick.fixed", quick.fixed), ("quick.grid", quick.grid)]
    for place, names in places:
        for key in names:
            if key not in work.defaults or key == "workload":
                raise refuse(f"{place}.{key}", f"unknown setting; {_list(work.settings())}")
    for block in experiment.grid:
        size = 1
        for key, values in block.axes.items():
            if not values:
                raise refuse(f"grid.{key}", "at least one value is needed")
            size *= len(values)
        if size > MAX_POINTS:
            raise refuse("grid", f"{size} points are too many; at most {MAX_POINTS}")
        if block.seeds < 0:
            raise refuse("grid.seeds", f"must be 0 (no limit) or more, not {block.seeds}")
    for key, values in quick.grid.items():
        if not any(key in block.axes for block in experiment.grid):
            raise refuse(f"quick.grid.{key}", "is no axis of the grid")
        if not values:
            raise refuse(f"quick.grid.{key}", "at least one value is needed")


def _check_plot(
    plot: Plot, place: str, experiment: Experiment, work: Workload, refuse: Any
) -> None:
    if plot.kind in OF_HISTOGRAMS:
        if plot.x not in work.histograms:
            raise refuse(f"{place}.x", f"no histogram {plot.x!r}; {_list(work.histograms)}")
    else:
        if plot.x not in work.defaults:
            raise refuse(f"{place}.x", f"unknown setting {plot.x!r}; {_list(work.settings())}")
        for metric in plot.metrics():
            if metric not in experiment.metrics:
                raise refuse(
                    f"{place}.y", f"unknown metric {metric!r}; {_list(experiment.metrics)}"
                )
    for key in (*plot.series, *plot.where, *plot.ratio_to, *plot.level):
        if key not in work.defaults:
            raise refuse(f"{place}", f"unknown setting {key!r}; {_list(work.settings())}")
    for metric in plot.marks_at:
        if metric not in experiment.metrics:
            raise refuse(
                f"{place}.marks_at", f"unknown metric {metric!r}; {_list(experiment.metrics)}"
            )


def _check_paper(
    number: PaperNumber, place: str, experiment: Experiment, points: list[Settings], refuse: Any
) -> None:
    named = [("metric", number.metric), ("versus_metric", number.versus_metric)]
    for key, metric in named + [("also", metric) for metric in number.also]:
        if metric and metric not in experiment.metrics:
            raise refuse(
                f"{place}.{key}", f"unknown metric {metric!r}; {_list(experiment.metrics)}"
            )
    alone = number.form in ("value", "interval", "deviation")
    if alone == bool(number.versus or number.versus_metric):
        raise refuse(
            f"{place}.form",
            "value compares one point (no versus), any other form but interval and deviation two "
            f"(versus or versus_metric); {_list(get_args(Form))}",
        )
    if bool(number.along or number.over) != bool(number.fold) or (number.along and number.over):
        raise refuse(f"{place}.fold", "goes with along or over, and these with fold")
    if number.over and number.fold not in ("max", "min", "mean"):
        raise refuse(f"{place}.over", f"goes with max, min or mean, not {number.fold!r}")
    if number.along and not all(isinstance(p.get(number.along), int | float) for p in points):
        raise refuse(f"{place}.along", f"{number.along!r} is no setting with numbers")
    for key in ("value", "tolerance", "scale", "offset", "since", "until", "longer"):
        if not math.isfinite(getattr(number, key)):
            raise refuse(f"{place}.{key}", f"must be a number, not {getattr(number, key)}")
    if number.tolerance < 0:
        raise refuse(f"{place}.tolerance", f"must be 0 or more, not {number.tolerance}")
    if number.longer <= 0:
        raise refuse(f"{place}.longer", f"must be above 0, not {number.longer}")
    for key, chosen in (("at", number.at), ("versus", {**number.at, **number.versus})):
        matching = [point for point in points if matches(point, chosen)]
        if not matching:
            raise refuse(f"{place}.{key}", f"no point of the grid has {_show(chosen)}")
        axes = number.over or [number.along]
        if len(matching) > len({tuple(point.get(axis) for axis in axes) for point in matching}):
            each = f" for each {', '.join(axes)}" if number.fold else ""
            raise refuse(
                f"{place}.{key}",
                f"{len(matching)} points of the grid have {_show(chosen)}, not one{each}",
            )


def matches(settings: Settings, wanted: Settings) -> bool:
    """Whether a point has all the wanted settings."""
    return all(name in settings and settings[name] == value for name, value in wanted.items())


def _show(settings: Settings) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in settings.items()) or "these settings"
