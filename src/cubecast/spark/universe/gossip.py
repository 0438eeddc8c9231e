"""Gossip on a whole universe: its events over overlays before and after StaN, in one call.

Every variant sends the same events.  *Start* views are the overlays before StaN; *faithful* and
*repairing* are those after the last round of either mode.  Loss and death are drawn from the same
streams in all variants, so that differences between them are due to the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from cubecast.kernel.gossip import GossipConfig, GossipNetwork, made_events
from cubecast.overlay.rounds import MODES, RoundConfig
from cubecast.spark.universe.align import at_least
from cubecast.spark.universe.dissemination import (
    disseminate,
    lay_out,
    sample,
    survivors,
    totals,
    with_authors,
    with_topic,
    write_views,
)
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.overlays import overlays
from cubecast.spark.universe.schemas import PUBLICATIONS
from cubecast.spark.universe.store import Universe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], object]
ViewsOf = Literal["start", "faithful", "repairing"]
VIEWS_OF: tuple[ViewsOf, ...] = get_args(ViewsOf)
DeadIds = Literal["kept", "removed", "refilled"]
DEAD_IDS: tuple[DeadIds, ...] = get_args(DeadIds)
MADE_EVENTS = 1_000
"""The number of made events for universes without publications, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to send all events."""

    views: ViewsOf
    back: int = 0
    """How many ids of each view send to its owner, too (`cubecast.kernel.gossip.network`)."""
    loss: float = 0.0
    dead: float = 0.0
    dead_ids: DeadIds = "kept"
    """Kept or removed: in views that were made before nodes died.  Refilled: the overlays of the
    live nodes, made anew."""


@dataclass(frozen=True, slots=True)
class GossipPlan:
    """The variants to measure: all combinations; dead ids matter only where nodes are dead."""

    views: Sequence[ViewsOf] = VIEWS_OF
    losses: Sequence[float] = (0.0,)
    deads: Sequence[float] = (0.0,)
    dead_ids: Sequence[DeadIds] = ("kept",)
    backs: Sequence[int] = (0,)
    rounds: int = 8
    """Of StaN."""
    smallest: int = 30
    """Topics with fewer subscribers are left out."""
    events: int | None = None
    """A sample of so many; None: all publications."""
    run: int = 0
    overlay: RoundConfig = field(default_factory=RoundConfig)
    """How overlays are played; the mode is that of each variant."""

    def __post_init__(self) -> None:
        for name, values, known in (
            ("views", self.views, VIEWS_OF),
            ("dead ids", self.dead_ids, DEAD_IDS),
        ):
            for value in values:
                if value not in known:
                    raise UniverseError(f"{name} must be of {', '.join(known)}, not {value!r}")
        for name, shares in (("loss", self.losses), ("dead", self.deads)):
            for share in shares:
                if not 0 <= share <= 1:
                    raise UniverseError(f"{name} must be 0 to 1, not {share:g}")
        if self.rounds < 0 or any(back < 0 for back in self.backs):
            raise UniverseError("rounds and back links must be 0 or more")
        if self.events is not None and self.events < 1:
            raise UniverseError(f"at least one event is needed, not {self.events}")

    def variants(self) -> Iterator[Variant]:
        """All variants, those that share overlays one after the other."""
        for dead, ids in product(dict.fromkeys(self.deads), dict.fromkeys(self.dead_ids)):
            if not dead and ids != self.dead_ids[0]:
                continue
            for views, back, loss in product(self.views, self.backs, self.losses):
                yield Variant(views, back, loss, dead, ids if dead else "kept")


@dataclass(frozen=True, slots=True)
class GossipTotals:
    """Sums over all events of a variant (`dissemination.totals`).

    A share or a mean of nothing is None.
    """

    variant: Variant
    counts: dict[str, int]
    left_out: int = 0
    """Posts of the universe without a measured topic."""
    made: bool = False
    """Whether the events are made ones, as the universe has no publications."""

    @property
    def delivered(self) -> float | None:
        """The share of (event, live subscriber) pairs that were reached."""
        return _per(self.counts["reached"], self.counts["due"])

    @property
    def complete(self) -> float | None:
        """The share of events that missed no live subscriber; None if no event had one."""
        return _per(self.counts["complete"], self.counts["events"]) if self.counts["due"] else None

    @property
    def shared(self) -> float | None:
        """The share of messages that need not be sent because topics share links."""
        sent = _per(self.counts["messages"], self.counts["topic_messages"])
        return None if sent is None else 1 - sent

    def facts(self) -> dict[str, Any]:
        """For JSON: the counts, and the figures derived from them."""
        counts = self.counts
        return {
            **asdict(self.variant),
            **counts,
            "left_out": self.left_out,
            "made": self.made,
            "delivered_share": self.delivered,
            "complete_share": self.complete,
            "shared_share": self.shared,
            "duplicates_per_delivery": _per(counts["duplicates"], counts["reached"]),
            "mean_round": _per(counts["rounds"], counts["reached"]),
            "mean_last_round": _per(counts["last_rounds"], counts["events"]),
        }


def _per(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class EventsToSend:
    """The events to send, and the number of those left out."""

    events: DataFrame
    left_out: int
    made: bool


def gossip(
    session: SparkSession,
    universe: Universe,
    plan: GossipPlan,
    *,
    folder: Path | None = None,
    keep: Path | None = None,
    tell: Tell = lambda step: None,
) -> list[GossipTotals]:
    """Send the events of a universe in every variant of the plan.

    `folder` is for networks while the job runs: on a cluster one that all executors see.  `keep`
    gets the counts of every event, one table per variant, numbered from 0.
    """
    subscriptions = universe.read(session, "subscriptions")
    if plan.smallest > 1:
        subscriptions = at_least(subscriptions, plan.smallest)
    subscriptions = subscriptions.cache()
    if subscriptions.isEmpty():
        raise UniverseError(f"no topic has {plan.smallest} subscribers")
    with _scratch(folder) as scratch:
        fields = Fields(subscriptions, plan, scratch, tell)
        sent = published(session, universe, subscriptions, plan, fields)
        sent.events.cache()
        try:
            return [
                _outcome(fields, sent, variant, keep and keep / f"variant-{number}", tell)
                for number, variant in enumerate(plan.variants())
            ]
        finally:
            sent.events.unpersist()
            subscriptions.unpersist()


def published(
    session: SparkSession,
    universe: Universe,
    subscriptions: DataFrame,
    plan: GossipPlan,
    fields: Fields,
) -> EventsToSend:
    """The events of a universe, or made ones where it has none.

    Posts are counted before those without a topic go, and before a sample is taken.
    """
    if "publications" not in universe.tables:
        network = GossipNetwork.load(fields.network(Variant("start")))
        made = made_events(network, plan.events or MADE_EVENTS, run=plan.run)
        topics = pa.ListArray.from_arrays(
            pa.array(made.offsets.astype("int32")), pa.array(made.topics)
        )
        nothing = pa.nulls(len(made))
        columns = [made.ids, nothing, made.authors, topics, nothing]
        rows = pa.table(dict(zip(PUBLICATIONS.names, columns, strict=True))).to_pylist()
        return EventsToSend(session.createDataFrame(rows, PUBLICATIONS), left_out=0, made=True)
    publications = universe.read(session, "publications")
    events = with_topic(publications, subscriptions)
    left_out = publications.count() - events.count()
    if "participants" in universe.tables:
        events = with_authors(events, universe.read(session, "participants"))
    if plan.events is not None:
        events = sample(events, plan.events)
    return EventsToSend(events, left_out, made=False)


@dataclass(slots=True)
class Fields:
    """The networks of variants, each made when it is needed and then kept in the job's folder."""

    subscriptions: DataFrame
    plan: GossipPlan
    scratch: Path
    tell: Tell
    views: dict[tuple[str, float], Path] = field(default_factory=dict)
    networks: dict[tuple[str, float, int], Path] = field(default_factory=dict)

    def network(self, variant: Variant) -> Path:
        dead = variant.dead if variant.dead_ids == "refilled" else 0.0
        key = (variant.views, dead, variant.back)
        if key not in self.networks:
            round_ = 0 if variant.views == "start" else self.plan.rounds
            self.networks[key] = lay_out(self._views(variant.views, dead), round_, variant.back)
        return self.networks[key]

    def _views(self, views: ViewsOf, dead: float) -> Path:
        """Kept views; start views are the same in both modes, and taken from either."""
        wanted = [mode for mode in MODES if mode in self.plan.views] or [MODES[0]]
        mode = wanted[0] if views == "start" else views
        if (mode, dead) not in self.views:
            self.tell(f"playing overlays, {mode}" + (f", {dead:.0%} dead" if dead else ""))
            config = replace(self.plan.overlay, mode=mode)
            alive = survivors(self.subscriptions, dead, run=self.plan.run)
            played = overlays(alive, config, (0, self.plan.rounds), run=self.plan.run)
            self.views[mode, dead] = write_views(played, self.scratch)
        return self.views[mode, dead]


def _outcome(
    fields: Fields, sent: EventsToSend, variant: Variant, keep: Path | None, tell: Tell
) -> GossipTotals:
    network = fields.network(variant)
    refilled = variant.dead_ids == "refilled"
    config = GossipConfig(
        variant.loss,
        0.0 if refilled else variant.dead,
        "removed" if variant.dead_ids == "removed" else "kept",
        explain=variant.loss == 0,
    )
    tell(f"spreading events: {variant.views}, loss {variant.loss:g}, dead {variant.dead:g}")
    spreads = disseminate(sent.events, network, config, run=fields.plan.run)
    if keep is not None:
        spreads.write.parquet(str(keep))
        spreads = sent.events.sparkSession.read.parquet(str(keep))
    row = totals(spreads).first()
    assert row is not None
    counts = {name: int(count) for name, count in row.asDict().items()}
    return GossipTotals(variant, counts, sent.left_out, sent.made)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="cubecast-gossip-", dir=folder) as scratch:
        yield Path(scratch)
