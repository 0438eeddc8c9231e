"""A chaos run as a picture: deliveries, which nodes were alive, and the cost of each fault.

Needs matplotlib (``pip install 'cubecast[lab]'``); everything else does without it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cubecast.chaos.live.driver import DriverMark
from cubecast.chaos.live.recovery import Cost, DeliveryCurve
from cubecast.chaos.live.story import shares
from cubecast.chaos.live.verdict import LiveVerdict

INK, PALE, GRID = "#22303c", "#b9c4cd", "#e6eaed"
CURVE = "#2a6f97"
ALIVE = "#dfe9e3"
COLOURS = {
    "crash": "#c1121f",
    "leave": "#8d6b94",
    "restart": "#588157",
    "pause": "#e09f3e",
    "resume": "#6c9a8b",
    "partition": "#5e548e",
    "one-way": "#9f86c0",
    "slow": "#be95c4",
    "heal": "#1b998b",
}
SIDES = ("#cddafd", "#fde2cd", "#d8f3dc", "#f9d5e5", "#e2e2df")
LANES = {"down": COLOURS["crash"], "joining": "#f2cc8f", "stopped": COLOURS["pause"]}
MOST_LINES = 60
"""With more actions than this, each is a dot, and their kinds are compared at the side."""


class NoPlot(Exception):
    """The picture cannot be drawn."""


def needs_matplotlib() -> None:
    """Raise `NoPlot` if matplotlib is missing; called before a long run."""
    if importlib.util.find_spec("matplotlib") is None:
        raise NoPlot("a plot needs matplotlib: pip install 'cubecast[lab]'")


class Span(NamedTuple):
    """A time during which a node was down, joining or stopped."""

    node: int
    state: str
    begin: float
    end: float


def spans_of(marks: Sequence[DriverMark], nodes: int, began: float, end: float) -> Iterator[Span]:
    """The times when each node was down, joining or stopped, in seconds of the run."""
    since: dict[tuple[int, str], float] = {}
    until = end - began

    def close(node: int, state: str, at: float) -> Iterator[Span]:
        if (node, state) in since:
            yield Span(node, state, since.pop((node, state)), at)

    for mark in sorted(marks, key=lambda mark: mark.at):
        at = mark.at - began
        if mark.action is None:
            yield from close(mark.joined, "joining", at)
            continue
        node = mark.action.node
        match mark.action.act:
            case "crash" | "leave":
                yield from close(node, "stopped", at)
                yield from close(node, "joining", at)
                since[node, "down"] = at
            case "restart":
                yield from close(node, "down", at)
                since[node, "joining"] = at
            case "pause":
                since[node, "stopped"] = at
            case "resume":
                yield from close(node, "stopped", at)
    for (node, state), begin in since.items():
        yield Span(node, state, begin, until)


class Split(NamedTuple):
    """The time of a partition."""

    sides: tuple[tuple[int, ...], ...]
    begin: float
    end: float


def splits_of(marks: Sequence[DriverMark], began: float, end: float) -> list[Split]:
    """The partitions, in seconds of the run."""
    open_: dict[int, tuple[tuple[tuple[int, ...], ...], float]] = {}
    found: list[Split] = []
    for mark in sorted(marks, key=lambda mark: mark.at):
        action, at = mark.action, mark.at - began
        if action is None:
            continue
        if action.act == "partition":
            open_[action.number] = (action.fault.sides, at)
        elif action.act == "heal":
            all_of_them = action.fault.act == "heal"
            ended = [one for one in open_ if all_of_them or one == action.number]
            found += [Split(*open_.pop(number), at) for number in ended]
    return found + [Split(*one, end - began) for one in open_.values()]


def draw_run(verdict: LiveVerdict, path: Path) -> None:
    """Draw a run into a PNG file."""
    needs_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    run = verdict.run
    lanes = max(1.6, 0.22 * run.schedule.nodes)
    many = len(verdict.curve.costs) > MOST_LINES
    rows = ("rate", "who", "dip", "cost")
    beside = ("table", "table", "dips", "costs")
    mosaic: list[Any] = [
        [row, side] if many else [row] for row, side in zip(rows, beside, strict=True)
    ]
    figure = Figure(
        figsize=(18 if many else 13, 6.4 + lanes), facecolor="white", layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic(
        mosaic,
        height_ratios=[3.0, lanes, 1.2, 1.8],
        width_ratios=[5, 1] if many else [1],
    )
    for one in axes.values():
        _plain(one)
    _draw_rate(axes["rate"], verdict)
    _draw_nodes(axes["who"], verdict)
    _draw_dips(axes["dip"], verdict.curve.costs)
    _draw_costs(axes["cost"], verdict.curve.costs)
    for name in ("rate", "who", "dip", "cost"):
        axes[name].set_xlim(0, max(1.0, run.silent - run.began))
        axes[name].tick_params(labelbottom=name == "cost")
    axes["cost"].set_xlabel("seconds", color=INK)
    if many:
        _draw_kinds(axes, verdict.curve.costs)
    _title(figure, verdict)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise NoPlot(f"cannot write {path}: {error.strerror}") from error


def _title(figure: Any, verdict: LiveVerdict) -> None:
    run, report = verdict.run, verdict.report
    outcome = "nothing wrong" if verdict.ok else "SOMETHING IS WRONG"
    figure.suptitle(
        f"cubecast chaos: {run.schedule.nodes} processes, {run.schedule.about or 'a schedule'}\n"
        f"{report.publications:,} publications, {report.deliveries:,} deliveries, "
        f"{sum(report.counts.values())} violations, "
        f"{report.gaps:,} gaps, {report.discards:,} discards: "
        f"{outcome}",
        x=0.01,
        ha="left",
        fontsize=12,
        color=INK if verdict.ok else COLOURS["crash"],
    )


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_rate(axes: Any, verdict: LiveVerdict) -> None:
    curve = verdict.curve
    per_second = [count / curve.bucket_s for count in curve.deliveries]
    times = [(index + 0.5) * curve.bucket_s for index in range(len(per_second))]
    axes.fill_between(times, per_second, color=CURVE, alpha=0.18, linewidth=0, step="mid")
    width = max(1, len(per_second) // 120)
    axes.plot(times, _smooth(per_second, width), color=CURVE, lw=1.8)
    normal = median(rates) if (rates := _known(curve)) else 0.0
    axes.step(
        times,
        _smooth([normal * pairs for pairs in curve.pairs], width if width > 5 else 1),
        where="mid",
        color=INK,
        lw=0.9,
        ls=(0, (4, 3)),
        alpha=0.6,
    )
    axes.set_ylim(0, _ceiling(per_second))
    seen: dict[str, Any] = {"connected pairs x usual rate": axes.lines[-1]}
    # Too many lines would hide the curve: then each is a mark at the bottom.
    height = 1.0 if len(curve.costs) <= MOST_LINES else 0.06
    for cost in curve.costs:
        act = cost.action.act
        seen[act] = axes.axvline(
            cost.at, 0, height, color=COLOURS[act], lw=1.0, alpha=0.6, zorder=3
        )
    axes.legend(
        list(seen.values()), list(seen), loc="lower left", bbox_to_anchor=(0, 1.0),
        ncols=len(seen), frameon=False, fontsize=9, handlelength=1.8, borderaxespad=0.1,
    )  # fmt: skip
    axes.set_ylabel("deliveries per second\n(all nodes)", color=INK)


def _ceiling(values: Sequence[float]) -> float:
    """The top of the picture: a node that catches up in a moment must not flatten the rest."""
    ordered = sorted(values)
    usual = ordered[int(0.9 * len(ordered))] if ordered else 0.0
    return min(1.12 * max(values, default=0.0), 2.5 * usual) or 1.0


def _known(curve: DeliveryCurve) -> list[float]:
    rates = (curve.rate(index) for index in range(len(curve.deliveries)))
    return [rate for rate in rates if not isnan(rate)]


def _smooth(values: Sequence[float], width: int) -> list[float]:
    """The mean around each place."""
    half = max(0, width // 2)
    return [
        sum(around) / len(around)
        for index in range(len(values))
        for around in [values[max(0, index - half) : index + half + 1]]
    ]


def _draw_nodes(axes: Any, verdict: LiveVerdict) -> None:
    run = verdict.run
    nodes, length = run.schedule.nodes, run.silent - run.began
    for node in range(nodes):
        axes.broken_barh([(0, length)], (node - 0.38, 0.76), color=ALIVE, lw=0)
    for split in splits_of(run.marks, run.began, run.silent):
        for node in range(nodes):
            side = next((i for i, one in enumerate(split.sides) if node in one), len(split.sides))
            colour = SIDES[side % len(SIDES)]
            width = split.end - split.begin
            axes.broken_barh([(split.begin, width)], (node - 0.38, 0.76), color=colour, lw=0)
    for span in spans_of(run.marks, nodes, run.began, run.silent):
        axes.broken_barh(
            [(span.begin, span.end - span.begin)],
            (span.node - 0.38, 0.76),
            color=LANES[span.state],
            lw=0,
        )
    axes.set_ylim(nodes - 0.4, -0.6)
    axes.set_yticks(range(0, nodes, 1 if nodes <= 16 else 4))
    axes.grid(visible=False)
    axes.set_ylabel("node", color=INK)
    handles = [
        axes.barh([0], [0], color=colour, label=name)
        for name, colour in {"alive": ALIVE, **LANES}.items()
    ]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1.0), ncols=len(handles),
        frameon=False, fontsize=8, handlelength=1.0, borderaxespad=0.1,
    )  # fmt: skip


def _draw_dips(axes: Any, costs: Sequence[Cost]) -> None:
    few = len(costs) <= MOST_LINES
    for cost in costs:
        if cost.dip is not None:
            colour, low = COLOURS[cost.action.act], 100 * min(1.0, cost.dip)
            if few:
                axes.vlines(cost.at, low, 100, color=colour, lw=1.6, alpha=0.7)
            axes.plot([cost.at], [low], "v" if few else ".", color=colour, ms=4.5, alpha=0.8)
    axes.axhline(80, color=PALE, lw=0.8, ls=(0, (4, 3)))
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("lowest 0.1 s\nin % of before", color=INK)


def _draw_costs(axes: Any, costs: Sequence[Cost]) -> None:
    size = 5.0 if len(costs) <= MOST_LINES else 3.0
    for cost in costs:
        colour = COLOURS[cost.action.act]
        if cost.recovered_s is not None:
            axes.plot([cost.at], [cost.recovered_s], "o", mfc="none", mec=colour, ms=size, mew=1.1)
        if cost.heard_by_all_s is not None:
            axes.plot([cost.at], [cost.heard_by_all_s], "o", color=colour, ms=size - 0.5)
        else:
            axes.plot([cost.at], [0], "x", color=colour, ms=size + 1, mew=1.6, clip_on=False)
    handles = [
        axes.plot([], [], "o", mfc="white", mec=INK, ms=5, label="deliveries back at 80 %")[0],
        axes.plot([], [], "o", color=INK, ms=4.5, label="everyone heard everyone")[0],
        axes.plot([], [], "x", color=INK, ms=6, label="not until the end")[0],
    ]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1.0), ncols=3, frameon=False,
        fontsize=8, borderaxespad=0.1,
    )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds\nto recover", color=INK)


def _draw_kinds(axes: Any, costs: Sequence[Cost]) -> None:
    """Beside the dots: each kind of action as a box (half of them) with its median."""
    kinds = shares(costs)
    _boxes(
        axes["dips"], [(kind, [100 * min(1.0, dip) for dip in dips]) for kind, _, dips, *_ in kinds]
    )
    _boxes(axes["costs"], [(kind, heard) for kind, *_, heard in kinds])
    axes["dips"].set_ylim(0, 105)
    axes["costs"].set_ylim(axes["cost"].get_ylim())
    axes["costs"].set_title("everyone heard everyone", fontsize=8, color=INK)
    table = axes["table"]
    table.set_axis_off()
    lines = ["median (worst)"]
    for kind, number, dips, recovered, heard in kinds:
        lines += ["", f"{number} x {kind}"]
        if dips:
            lines.append(f"  dip to {100 * median(dips):.0f} % ({100 * min(dips):.0f} %)")
        if recovered:
            lines.append(f"  80 % in {median(recovered):.1f} s ({max(recovered):.1f} s)")
        if heard:
            lines.append(f"  all heard in {median(heard):.1f} s ({max(heard):.1f} s)")
        if len(heard) < number:
            lines.append(f"  not all heard: {number - len(heard)}")
    table.text(0.0, 1.0, "\n".join(lines), va="top", fontsize=10, color=INK, linespacing=1.4)


def _boxes(axes: Any, kinds: Sequence[tuple[str, Sequence[float]]]) -> None:
    known = [(kind, values) for kind, values in kinds if values]
    drawn = axes.boxplot(
        [values for _, values in known],
        patch_artist=True,
        widths=0.6,
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": PALE},
        medianprops={"color": INK},
    )
    for (kind, _), box in zip(known, drawn["boxes"], strict=True):
        box.set_facecolor(COLOURS[kind])
        box.set_alpha(0.6)
    axes.set_xticks(range(1, len(known) + 1), [kind for kind, _ in known], fontsize=8)
