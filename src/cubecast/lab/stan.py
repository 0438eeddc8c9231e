"""Workload of [N] 3: StaN on a universe, in rounds or in virtual time (Figures 6 to 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubecast.lab.cells import Measurement, Settings, Value
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.overlay.rounds import MODES, ORDERS, RoundConfig
from cubecast.overlay.sizes import ROUNDINGS
from cubecast.overlay.weights import HASHES

if TYPE_CHECKING:
    from cubecast.overlay.physical import ViewSizes
    from cubecast.overlay.universes.streams import Universe
    from cubecast.overlay.world import Snapshot

WORLDS = ("rounds", "events")
UNIVERSES = ("grid", *(f"{kind}{size}" for kind in "LW" for size in range(1, 9)))
MOST_NODES, MOST_TOPICS, MOST_ROUNDS = 10_000, 1_000, 1_000
PERCENT = 100.0
MUCH = 0.4
"""[N] 3.4: "the majority of Wikipedia's nodes have an improvement over 40%"."""
METRICS = (
    "nodes", "pairs", "logical_mean", "physical_start", "physical_mean", "physical_sd",
    "improvement_mean", "improvement_of_mean", "much_improved_share", "improved_share",
    "worse_share", "worse_initial_max", "distance",
)  # fmt: skip
HISTOGRAMS = ("initial_sizes", "final_sizes", "final_by_initial")
BIN = 5
"""Nodes with initial sizes of the same bin share a point of Figure 7."""


def measure_stan(settings: Settings, seed: int) -> Measurement:
    """Play StaN on a universe; what views are like before it and after the last round."""
    universe = universe_of(settings, seed)
    play = _play_events if settings["world"] == "events" else _play_rounds
    before, after = play(universe, settings, seed)
    return Measurement(
        {"pairs": float(len(universe[2])), **_metrics(before, after)}, _histograms(before, after)
    )


def universe_of(settings: Settings, seed: int) -> Universe:
    """A universe is drawn anew for each seed."""
    from cubecast.overlay.universes.bipartite import universe
    from cubecast.overlay.universes.grid import GridParameters, grid

    name = str(settings["universe"])
    if name != "grid":
        return universe(name, seed)
    parameters = GridParameters(least_radius=number(settings, "least_radius"))
    return grid(seed, whole(settings, "nodes"), whole(settings, "topics"), parameters)


def config_of(settings: Settings) -> RoundConfig:
    """The choices that [N] leaves open."""
    return RoundConfig(
        rounds=whole(settings, "rounds"),
        ttl=whole(settings, "ttl"),
        mode=settings["mode"],  # type: ignore[arg-type]  # it is one of the choices
        order=settings["order"],  # type: ignore[arg-type]
        hashing=settings["hashing"],  # type: ignore[arg-type]
        rounding=settings["rounding"],  # type: ignore[arg-type]
        loss=number(settings, "loss"),
    )


def _play_rounds(universe: Universe, settings: Settings, seed: int) -> tuple[ViewSizes, ViewSizes]:
    from cubecast.kernel.rounds import play_topics
    from cubecast.overlay.physical import view_sizes

    last = whole(settings, "rounds")
    played = play_topics(*universe, config_of(settings), keep=(0, last), run=seed)
    lengths = played.subscription_sizes()
    before, after = (
        view_sizes(played.members, lengths, played.ids(round_)) for round_ in (0, last)
    )
    return before, after


def _play_events(universe: Universe, settings: Settings, seed: int) -> tuple[ViewSizes, ViewSizes]:
    """The same overlays at the start; periods of 30 s ([N] 3.3), each node at its own phase."""
    from cubecast.overlay.stan import StanConfig
    from cubecast.overlay.world import Network, World

    config = config_of(settings)
    topics, offsets, members = (part.tolist() for part in universe)
    subscribers = {topic: members[offsets[at] : offsets[at + 1]] for at, topic in enumerate(topics)}
    stan = StanConfig(ttl=config.ttl, mode=config.mode, hashing=config.hashing)
    network = Network(loss=config.loss)
    world = World(seed, subscribers, stan, network, config.rounding)
    snapshots = world.play(config.rounds)
    before, after = (_sizes_of(snapshots[at]) for at in (0, -1))
    return before, after


def _sizes_of(snapshot: Snapshot) -> ViewSizes:
    import numpy as np

    from cubecast.overlay.physical import view_sizes

    views = [(node, view) for mine in snapshot.values() for node, view in mine.items()]
    return view_sizes(
        np.array([node for node, _ in views], np.int64),
        np.array([len(view) for _, view in views], np.int64),
        np.array([one for _, view in views for one in view], np.int64),
    )


def _metrics(before: ViewSizes, after: ViewSizes) -> dict[str, float]:
    """Means over nodes; shares in percent.

    `distance` is that of Kolmogorov and Smirnov between the sizes before and after.
    """
    import numpy as np

    from cubecast.overlay.physical import improvement

    initial, final = before.physical, after.physical
    shares = improvement(initial, final)
    worse = final > initial
    grid = np.unique(np.concatenate((initial, final)))
    cumulated = [
        np.searchsorted(np.sort(sizes), grid, "right") / max(1, len(sizes))
        for sizes in (initial, final)
    ]
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
        "distance": float(np.abs(cumulated[0] - cumulated[1]).max()),
    }


def _histograms(before: ViewSizes, after: ViewSizes) -> dict[str, dict[int, int]]:
    import numpy as np

    def counts(sizes: np.typing.NDArray[np.int64]) -> dict[int, int]:
        values, count = np.unique(sizes // BIN * BIN, return_counts=True)
        return dict(zip(values.tolist(), count.tolist(), strict=True))

    bins = before.physical // BIN * BIN
    means = {
        int(value): round(float(after.physical[bins == value].mean())) for value in np.unique(bins)
    }
    return {
        "initial_sizes": counts(before.physical),
        "final_sizes": counts(after.physical),
        "final_by_initial": means,
    }


def check_stan(settings: Settings) -> None:
    """What cannot be run."""
    for name, most in (("nodes", MOST_NODES), ("topics", MOST_TOPICS)):
        if not 2 <= whole(settings, name) <= most:
            raise WorkloadError(name, f"must be from 2 to {most:,}, not {settings[name]}")
    if not 0 <= whole(settings, "rounds") <= MOST_ROUNDS:
        raise WorkloadError("rounds", f"must be from 0 to {MOST_ROUNDS}, not {settings['rounds']}")
    if settings["world"] == "events":
        if settings["universe"] != "grid":
            raise WorkloadError("world", "events are for the grid: the others take too long")
        if settings["order"] != "lock step":
            raise WorkloadError("order", "is of rounds: in a world of events there is none")
    if not 0 < number(settings, "least_radius") <= 0.8:
        raise WorkloadError("least_radius", f"must be above 0, to 0.8: {settings['least_radius']}")
    try:
        config_of(settings)
    except ValueError as error:
        raise WorkloadError("ttl or loss", str(error)) from None


def stan_cost(settings: Settings) -> float:
    """Seconds: walks of every subscription in every round."""
    from cubecast.overlay.universes.presets import PRESETS

    name = str(settings["universe"])
    pairs = PRESETS[name].pairs if name != "grid" else 6 * whole(settings, "nodes")
    slow = 6.0 if settings["mode"] == "repairing" else 1.0
    if settings["world"] == "events":
        slow = 100.0
    return 0.2 + 1.5e-6 * slow * pairs * (1 + whole(settings, "rounds"))


DEFAULTS: dict[str, Value] = {
    "workload": "stan", "universe": "grid", "nodes": 100, "topics": 16, "least_radius": 0.08,
    "world": "rounds", "mode": "faithful", "rounds": 8, "ttl": 5, "order": "lock step",
    "hashing": "mixed", "rounding": "up", "loss": 0.0,
}  # fmt: skip
STAN = (
    Workload(
        "stan",
        "one overlay per topic, aligned by StaN: sizes of views before and after ([N] 3)",
        DEFAULTS,
        METRICS,
        measure_stan,
        stan_cost,
        histograms=HISTOGRAMS,
        choices={
            "universe": UNIVERSES, "world": WORLDS, "mode": MODES, "order": ORDERS,
            "hashing": HASHES, "rounding": ROUNDINGS,
        },
        check=check_stan,
    ),
)  # fmt: skip
