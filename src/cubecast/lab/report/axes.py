"""Axes with plain numbers: scales, ticks and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import fill
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from cubecast.lab.cells import Value
from cubecast.lab.experiment import Plot
from cubecast.lab.report.curve_styles import Size
from cubecast.lab.report.curves import Curves, is_percentage, shows_shares
from cubecast.lab.report.wording import PROTOCOL_NAMES, plain, setting_text, spaced

POWERS_FROM = 65_536
"""Axes that reach this far in powers of two are labelled 2^k."""

LETTERS = 12
"""So many letters of ticks fit into an inch."""
LONGEST_LABEL = 36
"""The letters that fit beside the axes; a longer label has several lines."""
MOST_PER_CENT = 105
"""The end of an axis of shares: 100 % and a little room."""


def label_axes(axes: Any, plot: Plot) -> None:
    """Label the axes, by the experiment's texts or by the names of the code."""
    metrics = " and ".join(spaced(metric) for metric in plot.metrics())
    counts = "count per run" if plot.kind == "histogram" else metrics
    unit = " (%)" if shows_shares(plot) and "%" not in plot.y_label else ""
    axes.set_xlabel((plot.x_label or spaced(plot.x)).replace("$", r"\$"))
    axes.set_ylabel(fill((plot.y_label or counts) + unit, LONGEST_LABEL).replace("$", r"\$"))


def scale_y(axes: Any, plot: Plot, shown: Curves, printed: Iterable[float] = ()) -> None:
    """Scale from zero up, or in decades; all measured and printed values are inside."""
    values = [*(point.y for point in shown.points), *printed]
    # Ratios that are all about 1 need no decades.
    in_decades = plot.log_y and not (plot.ratio_to and max(values) < 2 * min(values))
    if in_decades and (min(values) == 0 or plot.zero):
        _from_zero_in_decades(axes, max(values))
        return
    if in_decades:
        axes.set_yscale("log", nonpositive="clip")
        _plain_decades(axes.yaxis, values)
        low, high = axes.get_ylim()
        # A confidence interval that reaches to zero must not stretch the axis for ever.
        bottom = min(max(low, min(values) / 2), min(values) / 1.2)
        axes.set_ylim(bottom, max(high, max(values) * 1.7))
        return
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    if plot.ratio_to:
        axes.axhline(1.0, color=axes.spines["left"].get_edgecolor(), linewidth=0.8, zorder=1)
        axes.margins(y=0.15)
    elif not plot.from_zero:
        axes.margins(y=0.12)
    elif min(values) >= 0:
        top = max(axes.get_ylim()[1], 1.1 * max(values))
        axes.set_ylim(0, min(top, MOST_PER_CENT) if is_percentage(plot, shown) else top)


def _from_zero_in_decades(axes: Any, most: float) -> None:
    """Linear up to 1, decades above: so zero is visible beside large values."""
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    top = math.ceil(math.log10(max(most, 10.0)))
    axes.yaxis.set_major_locator(FixedLocator([0.0, *(10.0**power for power in range(top + 1))]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.set_ylim(-0.25, most * 2.2)


def scale_x(axes: Any, plot: Plot, shown: Curves, size: Size) -> None:
    """Scale an axis of numbers or of words."""
    if not is_numeric(shown.xs):
        label_words(axes, plot.x, shown.xs, size)
        return
    numbers = [float(x) for x in shown.xs]
    if plot.log_x and all(is_power(x) for x in numbers):
        axes.set_xscale("log", base=2)
        step = math.ceil(len(numbers) / size.most_ticks)
        large = max(numbers) >= POWERS_FROM
        while not large and len("   ".join(map(plain, numbers[::-step]))) > LETTERS * size.width:
            step += 1
        axes.xaxis.set_major_locator(FixedLocator(numbers[::-step][::-1]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(
            FuncFormatter(
                lambda x, _: rf"$\mathdefault{{2^{{{math.log2(x):.0f}}}}}$" if large else plain(x)
            )
        )
    elif plot.log_x:
        axes.set_xscale("log")
        _plain_decades(axes.xaxis, numbers)
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: plain(x)))
        if len(numbers) <= size.most_ticks and _are_even(numbers):
            axes.xaxis.set_major_locator(FixedLocator(numbers))


def label_words(axes: Any, name: str, xs: Sequence[Value], size: Size) -> None:
    """One tick for each x, side by side; long words are wrapped or turned."""
    words = [_word(name, x) for x in xs]
    room = int(78 * size.width / 5.6 * 9 / size.font / max(1, len(words)))
    axes.set_xticks(range(len(words)))
    if max(len(word) for word in words) > 2 * room:
        axes.set_xticklabels(words, rotation=30, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticklabels([fill(word, max(room, 6)) for word in words])


def places_of(shown: Curves) -> dict[Value, float]:
    """Where each x is drawn: numbers by value, words one after the other."""
    if is_numeric(shown.xs):
        return {x: float(x) for x in shown.xs}
    return {x: float(index) for index, x in enumerate(shown.xs)}


def is_numeric(xs: Sequence[Value]) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)


def is_power(x: float) -> bool:
    """Whether it is 1, 2, 4, 8 and so on."""
    return x >= 1 and x == int(x) and int(x) & (int(x) - 1) == 0


def _are_even(numbers: Sequence[float]) -> bool:
    """Whether labels at the measured points themselves would not crowd each other."""
    gaps = [after - before for before, after in pairwise(numbers)]
    return not gaps or min(gaps) >= 0.06 * (numbers[-1] - numbers[0])


def _plain_decades(axis: Any, values: Sequence[float]) -> None:
    """1, 10, 100, 1,000, and between them 2 and 5 if there are few of them."""
    few = max(values) / min(values) < 300
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{plain(value / 1e6)} M" if value >= 1e6 else plain(value)


def _word(name: str, x: Value) -> str:
    text = PROTOCOL_NAMES.get(str(x), str(x)) if name == "protocol" else setting_text(x)
    return text.replace("$", r"\$")
