"""Workload of [N] 3: StaN on a universe, in rounds or in virtual time (Figures 6 to 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.overlay.rounds import MODES, ORDERS, RoundConfig
from cubecast.overlay.view_sizes import ROUNDINGS
from cubecast.overlay.weights import HASHES

if TYPE_CHECKING:
    import numpy as np

    from cubecast.kernel.rounds import Played
    from cubecast.kernel.rounds.metrics import OverlayMetrics
    from cubecast.kernel.rounds.physical import ViewSizes
    from cubecast.overlay.universes.streams import Universe
    from cubecast.overlay.world import Snapshot

WORLDS = ("rounds", "events")
UNIVERSES = ("grid", *(f"{kind}{size}" for kind in "LW" for size in range(1, 9)))
MOST_NODES, MOST_TOPICS, MOST_ROUNDS = 10_000, 1_000, 1_000
PERCENT = 100.0
PRESET = -1.0
"""The correlation that a universe of Table 1 has by default."""
MUCH = 0.4
"""[N] 3.4: "the majority of Wikipedia's nodes have an improvement over 40%"."""
SIZES = (
    "nodes", "pairs", "logical_mean", "physical_start", "physical_mean", "physical_sd",
    "improvement_mean", "improvement_of_mean", "much_improved_share", "improved_share",
    "worse_share", "worse_initial_max",
)  # fmt: skip
EXPECTED = ("optimum_mean", "estimate_start", "estimate_mean")
SHAPES = (
    "clustering_start", "clustering_mean", "clustering_effect", "diameter_start", "diameter_mean",
    "diameter_effect", "distance_start", "distance_mean", "in_degree_sd_start", "in_degree_sd",
    "parts_most", "unknown_start_share", "unknown_share", "unknown_nodes", "outside_nodes",
)  # fmt: skip
HISTOGRAMS = ("initial_sizes", "final_sizes", "final_by_initial", "improvement_by_initial")
BIN = 5
"""Nodes with sizes of the same bin are counted together."""


def measure_sizes(settings: Settings, seed: int) -> Measurement:
    """Play StaN on a universe; the sizes of views before it and after the last round."""
    universe = universe_of(settings, seed)
    if settings["world"] == "events":
        before, after = _play_events(universe, settings, seed)
        return _measured(before, after, len(universe[2]))
    return _measured_rounds(_play_rounds(universe, settings, seed), {})


def measure_optimum(settings: Settings, seed: int) -> Measurement:
    """The same, with the omniscient optimum and the expectation of a formula."""
    played = _play_rounds(universe_of(settings, seed), settings, seed)
    return _measured_rounds(played, _expected(played, settings, seed))


def measure_shapes(settings: Settings, seed: int) -> Measurement:
    """The same, with the shapes of the overlays."""
    played = _play_rounds(universe_of(settings, seed), settings, seed)
    return _measured_rounds(played, _shapes(played, seed))


def _measured_rounds(played: Played, more: dict[str, float]) -> Measurement:
    from cubecast.kernel.rounds.physical import played_view_sizes

    before, after = (played_view_sizes(played, played.keep[at]) for at in (0, -1))
    return _measured(before, after, len(played.members), more)


def _measured(
    before: ViewSizes, after: ViewSizes, pairs: int, more: dict[str, float] | None = None
) -> Measurement:
    metrics = {"pairs": float(pairs), **size_metrics(before, after), **(more or {})}
    return Measurement(metrics, size_histograms(before, after))


def universe_of(settings: Settings, seed: int) -> Universe:
    """The universe of a seed, drawn anew for each."""
    import numpy as np

    from cubecast.overlay.universes.bipartite import bipartite
    from cubecast.overlay.universes.grid import GridParameters, grid
    from cubecast.overlay.universes.presets import preset

    name = str(settings["universe"])
    if name != "grid":
        parameters = preset(name)
        if number(settings, "correlation") != PRESET:
            parameters = replace(parameters, correlation=number(settings, "correlation"))
        return bipartite(seed, parameters)
    places = GridParameters(least_radius=number(settings, "least_radius"))
    found = grid(seed, whole(settings, "nodes"), whole(settings, "topics"), places)
    if len(found[0]) < 2 or np.diff(found[1]).max() < 2:
        raise WorkloadError("least_radius", "no two topics, or no two users of one, came about")
    return found


def config_of(settings: Settings) -> RoundConfig:
    """The configuration of the choices that [N] leaves open."""
    return RoundConfig(
        rounds=whole(settings, "rounds"),
        ttl=whole(settings, "ttl"),
        mode=settings["mode"],  # type: ignore[arg-type]  # it is one of the choices
        order=settings["order"],  # type: ignore[arg-type]
        hashing=settings["hashing"],  # type: ignore[arg-type]
        rounding=settings["rounding"],  # type: ignore[arg-type]
        loss=number(settings, "loss"),
    )


def _play_rounds(universe: Universe, settings: Settings, seed: int) -> Played:
    from cubecast.kernel.rounds import play_topics

    keep = (0, whole(settings, "rounds"))
    return play_topics(*universe, config_of(settings), keep=keep, run=seed)


def _play_events(universe: Universe, settings: Settings, seed: int) -> tuple[ViewSizes, ViewSizes]:
    """The same overlays at the start; periods of 30 s ([N] 3.3), each node at its own phase."""
    from cubecast.overlay.stan import StanConfig
    from cubecast.overlay.world import NetworkConditions, OverlayWorld

    config = config_of(settings)
    topics, offsets, members = (part.tolist() for part in universe)
    subscribers = {topic: members[offsets[at] : offsets[at + 1]] for at, topic in enumerate(topics)}
    stan = StanConfig(ttl=config.ttl, mode=config.mode, hashing=config.hashing)
    world = OverlayWorld(
        seed, subscribers, stan, NetworkConditions(loss=config.loss), config.rounding
    )
    snapshots = world.play(config.rounds)
    return _sizes_of(snapshots[0]), _sizes_of(snapshots[-1])


def _sizes_of(snapshot: Snapshot) -> ViewSizes:
    import numpy as np

    from cubecast.kernel.rounds.physical import physical_view_sizes

    views = [(node, view) for mine in snapshot.values() for node, view in mine.items()]
    return physical_view_sizes(
        np.array([node for node, _ in views], np.int64),
        np.zeros(len(views), np.int64),
        np.array([len(view) for _, view in views], np.int64),
        np.array([one for _, view in views for one in view], np.int64),
    )


# -- sizes of views --------------------------------------------------------------------------------


def size_metrics(before: ViewSizes, after: ViewSizes) -> dict[str, float]:
    """Means over nodes; shares in percent ([N] 3.4)."""
    initial, final = before.physical, after.physical
    shares = 1 - final / initial.clip(1)
    worse = final > initial
    return {
        "nodes": float(len(initial)),
        "logical_mean": float(after.logical.mean()),
        "physical_start": float(initial.mean()),
        "physical_mean": float(final.mean()),
        "physical_sd": float(final.std()),
        "improvement_mean": PERCENT * float(shares.mean()),
        "improvement_of_mean": PERCENT * (1 - float(final.mean() / initial.mean())),
        "much_improved_share": PERCENT * float((shares > MUCH).mean()),
        "improved_share": PERCENT * float((final < initial).mean()),
        "worse_share": PERCENT * float(worse.mean()),
        "worse_initial_max": float(initial[worse].max(initial=0)),
    }


def size_histograms(before: ViewSizes, after: ViewSizes) -> dict[str, dict[int, int]]:
    """Nodes by their sizes; by the initial size, the mean final size and improvement (percent)."""
    import numpy as np

    def counts(sizes: np.typing.NDArray[np.int64]) -> dict[int, int]:
        values, count = np.unique(sizes // BIN * BIN, return_counts=True)
        return dict(zip(values.tolist(), count.tolist(), strict=True))

    bins = _half_octave(before.physical)
    finals, improvements = {}, {}
    for value in np.unique(bins).tolist():
        initial, final = before.physical[bins == value], after.physical[bins == value]
        finals[value] = round(float(final.mean()))
        improvements[value] = round(PERCENT * float((1 - final / initial.clip(1)).mean()))
    return {
        "initial_sizes": counts(before.physical),
        "final_sizes": counts(after.physical),
        "final_by_initial": finals,
        "improvement_by_initial": improvements,
    }


def _half_octave(sizes: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.int64]:
    """The largest of 1, 1.4, 2, 2.8, 4, ... (rounded) that a size is not below.

    Wide bins at the top: a curve over seeds takes a bin that a run does not have for 0.
    """
    import numpy as np

    powers = np.floor(2 * np.log2(sizes.clip(1) + 0.5))
    edges: np.typing.NDArray[np.int64] = np.round(2 ** (powers / 2)).astype(np.int64)
    return edges


# -- what is measured beside -----------------------------------------------------------------------


def _expected(played: Played, settings: Settings, seed: int) -> dict[str, float]:
    """The omniscient optimum, and the expectation of the formula."""
    import numpy as np

    from cubecast.kernel.rounds.estimates import estimates
    from cubecast.kernel.rounds.optimum import optimal_views
    from cubecast.kernel.rounds.physical import physical_view_sizes
    from cubecast.kernel.rounds.play import Subscribers

    config = config_of(settings)
    subscribers = Subscribers(played.topics, played.offsets, played.members)
    best = optimal_views(subscribers, config, run=seed)
    rounds = np.zeros(len(best.users), np.int64)
    expected = estimates(subscribers, config, config.rounds, run=seed)
    return {
        "optimum_mean": float(
            physical_view_sizes(best.users, rounds, best.sizes, best.ids).physical.mean()
        ),
        "estimate_start": float(expected.start.mean()),
        "estimate_mean": float(expected.played.mean()),
    }


def _shapes(played: Played, seed: int) -> dict[str, float]:
    """[N] 3.5 and Figure 9: one value per overlay, paired; overlays that are complete are out."""
    from cubecast.kernel.rounds.metrics import overlay_metrics

    before, after = (overlay_metrics(played, round_, run=seed) for round_ in (0, played.keep[-1]))
    chosen = before.view_sizes < before.nodes - 1

    def mean(values: np.typing.NDArray[np.float64] | np.typing.NDArray[np.int64]) -> float:
        return float(values[chosen].mean()) if chosen.any() else 0.0

    return {
        **_paired("clustering", before.clustering[chosen], after.clustering[chosen]),
        **_paired("diameter", before.diameter[chosen], after.diameter[chosen]),
        "distance_start": mean(before.distance),
        "distance_mean": mean(after.distance),
        "in_degree_sd_start": mean(before.in_degree_sd),
        "in_degree_sd": mean(after.in_degree_sd),
        **_unknown(before, after),
    }


def _paired(
    name: str,
    before: np.typing.NDArray[np.float64] | np.typing.NDArray[np.int64],
    after: np.typing.NDArray[np.float64] | np.typing.NDArray[np.int64],
) -> dict[str, float]:
    """Both means, and the effect: the mean difference in standard deviations of the values."""
    if not len(before):
        return {f"{name}_start": 0.0, f"{name}_mean": 0.0, f"{name}_effect": 0.0}
    spread = float(((before.var() + after.var()) / 2) ** 0.5)
    difference = float((after - before).mean())
    return {
        f"{name}_start": float(before.mean()),
        f"{name}_mean": float(after.mean()),
        f"{name}_effect": difference / spread if spread else 0.0,
    }


def _unknown(before: OverlayMetrics, after: OverlayMetrics) -> dict[str, float]:
    """Overlays with a node that no view holds (percent), and such nodes; parts that are apart."""
    return {
        "parts_most": float(max(before.weak_components.max(), after.weak_components.max())),
        "unknown_start_share": PERCENT * float((before.unknown > 0).mean()),
        "unknown_share": PERCENT * float((after.unknown > 0).mean()),
        "unknown_nodes": float(after.unknown.sum()),
        "outside_nodes": float(after.outside.sum()),
    }


def check_stan(settings: Settings) -> None:
    """Refuse settings that cannot be run."""
    if not 0 <= whole(settings, "rounds") <= MOST_ROUNDS:
        raise WorkloadError("rounds", f"must be from 0 to {MOST_ROUNDS}, not {settings['rounds']}")
    if settings["world"] == "events":
        if settings["universe"] != "grid":
            raise WorkloadError("world", "events are for the grid: the others take too long")
        if settings["order"] != "lock step":
            raise WorkloadError("order", "is of rounds: in a world of events there is none")
    check_universe(settings)
    try:
        config_of(settings)
    except ValueError as error:
        raise WorkloadError("ttl or loss", str(error)) from None


def check_universe(settings: Settings) -> None:
    """Refuse settings that cannot be generated."""
    if not 0 < number(settings, "least_radius") <= 0.8:
        raise WorkloadError("least_radius", f"must be above 0, to 0.8: {settings['least_radius']}")
    correlation = number(settings, "correlation")
    if correlation != PRESET and not 0 <= correlation <= 1:
        raise WorkloadError("correlation", f"must be from 0 to 1, or -1: {correlation}")
    for name, most in (("nodes", MOST_NODES), ("topics", MOST_TOPICS)):
        if not 2 <= whole(settings, name) <= most:
            raise WorkloadError(name, f"must be from 2 to {most:,}, not {settings[name]}")


def stan_cost(settings: Settings) -> float:
    """Seconds: walks of every subscription in every round."""
    from cubecast.overlay.universes.presets import PRESETS

    name = str(settings["universe"])
    pairs = PRESETS[name].pairs if name != "grid" else 6 * whole(settings, "nodes")
    slow = 6.0 if settings["mode"] == "repairing" else 1.0
    if settings["world"] == "events":
        slow = 100.0
    return 0.2 + 1.5e-6 * slow * pairs * (1 + whole(settings, "rounds"))


def check_rounds(settings: Settings) -> None:
    """The same; a world of events has no such overlays."""
    check_stan(settings)
    if settings["world"] == "events":
        raise WorkloadError("world", "must be rounds where overlays themselves are measured")


def beside_cost(settings: Settings) -> float:
    """The optimum and distances; fitted: half of what `stan_cost` gives for walks, at most."""
    return stan_cost(settings) / 2


DEFAULTS: dict[str, Value] = {
    "workload": "stan", "universe": "grid", "nodes": 100, "topics": 16, "least_radius": 0.08,
    "correlation": PRESET,
    "world": "rounds", "mode": "faithful", "rounds": 8, "ttl": 5, "order": "lock step",
    "hashing": "mixed", "rounding": "up", "loss": 0.0,
}  # fmt: skip
CHOICES = {
    "universe": UNIVERSES, "world": WORLDS, "mode": MODES, "order": ORDERS, "hashing": HASHES,
    "rounding": ROUNDINGS,
}  # fmt: skip
STAN = (
    Workload(
        "stan",
        "one overlay per topic, aligned by StaN: sizes of views before and after ([N] 3.4)",
        DEFAULTS,
        SIZES,
        measure_sizes,
        stan_cost,
        histograms=HISTOGRAMS,
        choices=CHOICES,
        check=check_stan,
    ),
    Workload(
        "stan-optimum",
        "the same, beside the choice of omniscient nodes and what a formula expects",
        {**DEFAULTS, "workload": "stan-optimum"},
        (*SIZES, *EXPECTED),
        measure_optimum,
        beside_cost,
        histograms=HISTOGRAMS,
        choices=CHOICES,
        check=check_rounds,
    ),
    Workload(
        "stan-shapes",
        "the same, and what became of the overlays: clustering, distances, unknown nodes ([N] 3.5)",
        {**DEFAULTS, "workload": "stan-shapes"},
        (*SIZES, *SHAPES),
        measure_shapes,
        beside_cost,
        histograms=HISTOGRAMS,
        choices=CHOICES,
        check=check_rounds,
    ),
)
