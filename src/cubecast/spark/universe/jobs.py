"""Generated and drawn universes on disk: the steps with their directories and manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.overlay.universes.presets import BipartiteParameters, preset
from cubecast.spark.universe.draw import DRAWS, SMALLEST, Draws, draw_each, pruned
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.generate import Grid, Shape, generate
from cubecast.spark.universe.ingest import identity_of
from cubecast.spark.universe.store import Universe, new_universe, refuse_place
from cubecast.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Made:
    """A universe that was written."""

    out: Path
    topics: int
    nodes: int
    pairs: int


def generate_universe(
    session: SparkSession,
    shape: Shape,
    out: Path,
    *,
    run: int = 0,
    replace: bool = False,
    tell: Tell = lambda step: None,
) -> Made:
    """Generate a universe and put it at `out`, in place of the same one or, if told so, another."""
    known = preset(shape) if isinstance(shape, str) else shape
    generator = "grid" if isinstance(known, Grid) else "bipartite"
    facts = {"generator": generator, "parameters": asdict(known), "run": run}
    if isinstance(shape, str):
        facts["name"] = shape.upper()
    with new_universe(out, identity_of(facts), replace=replace) as draft:
        tell("generating")
        pairs = draft.write("subscriptions", generate(session, known, run))
        if isinstance(known, BipartiteParameters):
            topics, nodes = known.topics, known.nodes  # each has a pair
        else:
            tell("counting topics and nodes")
            topics, nodes = _sizes(session.read.parquet(str(draft.scratch / "subscriptions")))
        draft.finish(_manifest("generate", facts, topics, nodes))
    return Made(out, topics, nodes, pairs)


def draw_universes(
    session: SparkSession,
    source: Universe,
    seeds: Sequence[int],
    out: Callable[[int], Path | None],
    *,
    draws: int = DRAWS,
    smallest: int = SMALLEST,
    run: int = 0,
    prune_first: bool = False,
    replace: bool = False,
    tell: Tell = lambda step: None,
) -> Iterator[Draws]:
    """Draw universes for each number of seeds, and put the chosen one where `out` says, if it does.

    `prune_first` takes seeds only from topics that have enough subscribers in the whole universe.
    All places are checked before anything is drawn.
    """
    facts = {
        "of": source.manifest.get("identity"),
        "draws": draws,
        "smallest": smallest,
        "run": run,
        "prune_first": prune_first,
    }
    facts_of = {number: {**facts, "seeds": number} for number in seeds}
    places = {number: out(number) for number in seeds}
    for number, place in places.items():
        if place is not None:
            refuse_place(place, identity_of(facts_of[number]), replace)
    subscriptions = source.read(session, "subscriptions")
    if prune_first:
        subscriptions = pruned(subscriptions, smallest)
    for found in draw_each(subscriptions, list(seeds), draws, smallest, run, tell=tell):
        place = places[found.seeds]
        if place is not None:
            _keep(found, place, facts_of[found.seeds], replace, tell)
        yield found


def _keep(found: Draws, out: Path, facts: dict[str, Any], replace: bool, tell: Tell) -> None:
    chosen = found.chosen
    if not chosen.pairs:
        raise UniverseError(
            f"the median draw of {found.seeds:,} seeds is empty: no topic keeps "
            f"{facts['smallest']} subscribers; draw more seeds, or prune first"
        )
    sizes = [[one.number, one.topics, one.nodes, one.pairs] for one in found.sizes]
    with new_universe(out, identity_of(facts), replace=replace) as draft:
        tell(f"{found.seeds:,} seeds: writing draw {chosen.number}")
        pairs = draft.write("subscriptions", found.subscriptions)
        assert pairs == chosen.pairs, f"{pairs} pairs written, {chosen.pairs} counted"
        told = {**facts, "chosen": chosen.number, "sizes": sizes}
        draft.finish(_manifest("draw", told, chosen.topics, chosen.nodes))


def _manifest(made_by: str, facts: dict[str, Any], topics: int, nodes: int) -> dict[str, Any]:
    return {
        "made_by": made_by,
        "cubecast": __version__,
        "sound": True,
        "users": nodes,
        "topics": topics,
        **facts,
    }


def _sizes(subscriptions: DataFrame) -> tuple[int, int]:
    """Topics and nodes."""
    from pyspark.sql import functions as F

    row: Any = subscriptions.agg(F.countDistinct("topic"), F.countDistinct("user")).first()
    return int(row[0]), int(row[1])
