"""Pictures of a universe: the distributions of [N] Figures 3 and 4, the heat map of Figure 5."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cubecast.overlay.universes.powerlaw import zeta

if TYPE_CHECKING:
    from cubecast.spark.universe.correlation import Correlation
    from cubecast.spark.universe.describe import Description, Distribution

INK, LINE, BINS = "#31688e", "#d1495b", "#222222"
FEW_DECADES = 1_000
DARKEST = 0.5
"""Correlations from here on are black: few are stronger, and all of them would be pale else."""


def draw_plots(description: Description, folder: Path, title: str) -> list[Path]:
    """Write all pictures as PNG files; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        plot_distribution(
            description.per_topic, folder / "per-topic.png", f"{title}: subscribers per topic",
            "subscribers", "topics",
        ),
        plot_distribution(
            description.per_node, folder / "per-node.png", f"{title}: topics per node",
            "topics", "nodes",
        ),
        plot_correlation(description.correlation, folder / "correlation.png", title),
    ]  # fmt: skip


def plot_distribution(
    distribution: Distribution, path: Path, title: str, of: str, what: str
) -> Path:
    """Exact counts, means of bins of powers of two, and the fitted law, log-log."""
    figure, axes = _figure(5.2, 3.9)
    axes.plot(distribution.sizes, distribution.counts, ".", color=INK, ms=4, alpha=0.6)
    middles, densities = _binned(distribution)
    axes.plot(middles, densities, "s-", color=BINS, ms=4, lw=0.8, label="mean of powers of two")
    law = distribution.law
    if law is not None:
        reach = np.geomspace(law.least, max(distribution.sizes[-1], law.least + 1), 50)
        expected = law.tail * reach**-law.exponent / zeta(law.exponent, law.least)
        goodness = "" if law.goodness is None else f", p = {law.goodness:.2f}"
        label = f"exponent {law.exponent:.2f} from {law.least:,}{goodness}"
        axes.plot(reach, expected, "--", color=LINE, lw=1.4, label=label)
    axes.set(xscale="log", yscale="log", xlabel=of, ylabel=f"{what} with so many", title=title)
    axes.set_ylim(bottom=min(densities.min(), 1.0) / 2)
    _label_few(axes.xaxis)
    axes.legend(frameon=False, fontsize=8)
    return _saved(figure, path)


def _binned(distribution: Distribution) -> tuple[Any, Any]:
    """Geometric middle and mean count of the sizes from a power of two to below the next.

    The first and the last bin have only the sizes from the smallest to the largest that occurs.
    """
    sizes = distribution.sizes
    exponents = np.array([int(size).bit_length() - 1 for size in sizes])
    bins = np.unique(exponents)
    counts = np.array([distribution.counts[exponents == one].sum() for one in bins])
    least = np.maximum(2.0**bins, sizes[0])
    most = np.minimum(2.0 ** (bins + 1) - 1, sizes[-1])
    return np.sqrt(least * most), counts / (most - least + 1)


def _label_few(axis: Any) -> None:
    """Ticks at 1, 2 and 5 of each decade, or at 1 only where there are many decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < FEW_DECADES * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def plot_correlation(correlation: Correlation, path: Path, title: str) -> Path:
    """White is no correlation, black a strong one; topics are in the order of their ids."""
    figure, axes = _figure(4.8, 4.2)
    shown = axes.imshow(correlation.matrix, cmap="Greys", vmin=0, vmax=DARKEST, aspect="equal")
    axes.set(xlabel="topics", ylabel="topics", title=f"{title}: Pearson correlation")
    bar = figure.colorbar(shown, ax=axes, shrink=0.85, extend="max")
    bar.outline.set_visible(False)
    return _saved(figure, path)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set_fontsize(10)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    return path
