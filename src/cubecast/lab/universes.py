"""Workload of [N] 3.1 and 3.2: generated universes and their shapes (Table 1, Figures 3 to 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.lab.stan import PRESET, UNIVERSES, check_universe, universe_of
from cubecast.lab.workload import Workload

if TYPE_CHECKING:
    from cubecast.overlay.universes.streams import Longs, Universe

METRICS = (
    "topics", "nodes", "pairs", "topics_per_node", "nodes_per_topic", "smallest_topic",
    "topic_exponent", "topic_distance", "node_exponent", "node_distance", "correlation_mean",
    "correlation_nearest", "correlated_share",
)  # fmt: skip
HISTOGRAMS = ("topic_sizes", "node_degrees")
COMPARED = 100
"""So many of the largest topics are compared with each other, as in a heat map."""
MILD = 0.1
"""Pearson's correlation of two topics from which on they count as correlated."""


def measure_universe(settings: Settings, seed: int) -> Measurement:
    """Sizes, power laws per topic and per node, and the correlation of the largest topics."""
    import numpy as np

    topics, offsets, members = universe = universe_of(settings, seed)
    sizes = np.diff(offsets)
    _, degrees = np.unique(members, return_counts=True)
    return Measurement(
        {
            "topics": float(len(topics)),
            "nodes": float(len(degrees)),
            "pairs": float(len(members)),
            "topics_per_node": float(degrees.mean()),
            "nodes_per_topic": float(sizes.mean()),
            "smallest_topic": float(sizes.min()),
            **_law("topic", sizes),
            **_law("node", degrees),
            **_correlation(universe),
        },
        {"topic_sizes": _log_binned(sizes), "node_degrees": _log_binned(degrees)},
    )


def _law(name: str, values: Longs) -> dict[str, float]:
    """The exponent of a power law with an end, and the distance of the law without one."""
    import numpy as np

    from cubecast.overlay.universes.powerlaw import bounded_exponent, fit

    distinct, counts = np.unique(values, return_counts=True)
    law = fit(distinct, counts, resamples=0)
    exponent = bounded_exponent(distinct, counts)
    return {
        # A metric is finite.  Where all values are equal there is no exponent: 0, no slope.
        f"{name}_exponent": 0.0 if np.isnan(exponent) else exponent,
        f"{name}_distance": 1.0 if law is None else law.distance,
    }


def _correlation(universe: Universe) -> dict[str, float]:
    """Pearson's correlation of each two of the largest topics ([N] Figure 5).

    Busy nodes correlate all topics with each other.  Communities lower that mean and raise the
    correlation of a topic with the one that is nearest to it.
    """
    import numpy as np

    _, offsets, members = universe
    users, place = np.unique(members, return_inverse=True)
    largest = np.argsort(-np.diff(offsets), kind="stable")[:COMPARED]
    table = np.zeros((len(largest), len(users)), np.float32)
    for row, topic in enumerate(largest.tolist()):
        table[row, place[offsets[topic] : offsets[topic + 1]]] = 1
    # Whole numbers up to here: their sums are the same in any order, on any number of threads.
    together = (table @ table.T).astype(np.float64)
    sizes = together.diagonal()
    spread = np.sqrt(sizes * (len(users) - sizes))
    with np.errstate(invalid="ignore"):
        matrix = (len(users) * together - np.outer(sizes, sizes)) / np.outer(spread, spread)
    matrix = np.nan_to_num(matrix)  # 0 for a topic of all nodes
    above = matrix[np.triu_indices(len(largest), 1)]
    np.fill_diagonal(matrix, -1.0)
    return {
        "correlation_mean": float(above.mean()),
        "correlation_nearest": float(matrix.max(axis=1).mean()),
        "correlated_share": 100 * float((above > MILD).mean()),
    }


def _log_binned(values: Longs) -> dict[int, int]:
    """How many there are from each power of two on, up to the next."""
    import numpy as np

    powers, counts = np.unique(np.log2(values).astype(np.int64), return_counts=True)
    return dict(zip((1 << powers).tolist(), counts.tolist(), strict=True))


def universe_cost(settings: Settings) -> float:
    from cubecast.overlay.universes.presets import PRESETS

    name = str(settings["universe"])
    return 0.2 + 2e-6 * (PRESETS[name].pairs if name != "grid" else 1000)


DEFAULTS: dict[str, Value] = {
    "workload": "universe", "universe": "L8", "nodes": 100, "topics": 16, "least_radius": 0.08,
    "correlation": PRESET,
}  # fmt: skip
UNIVERSE = (
    Workload(
        "universe",
        "generated universes of users and topics: sizes, power laws, correlation ([N] 3.1, 3.2)",
        DEFAULTS,
        METRICS,
        measure_universe,
        universe_cost,
        histograms=HISTOGRAMS,
        choices={"universe": UNIVERSES},
        check=check_universe,
    ),
)
