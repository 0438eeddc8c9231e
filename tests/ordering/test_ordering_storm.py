"""Ordering under everything that may happen at once, by chance; and what broken parts do there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from cubecast.ordering.effects import Effect, ServiceNotified
from cubecast.ordering.production.coordinator import Coordinator
from cubecast.ordering.production.front import Front
from cubecast.ordering.production.local_managers import Office
from cubecast.ordering.production.notices import Open
from cubecast.ordering.production.registry import SubscriptionRegistry
from cubecast.ordering.production.subscriber import Subscriber
from cubecast.ordering.storm import Storm, Weather
from cubecast.ordering.timestamps import Stamp


def run(seeds: Iterable[int]) -> Counter[str]:
    """Run storms; what they had."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        storm = Storm(seed)
        wrong = storm.run()
        assert wrong == [], f"Storm({seed}).run(), {storm.weather}: {wrong}"
        counts += storm.world.counts
        counts["notified"] += sum(map(len, storm.world.seen.values()))
        counts["tagged"] += storm.tagged()
        counts["epochs"] += storm.epochs()
    return counts


@pytest.mark.parametrize("block", range(12))
def test_storms_leave_nothing_wrong(block: int) -> None:
    counts = run(range(25 * block, 25 * (block + 1)))
    for ingredient in ("published", "crashes", "returns", "left", "lost messages"):
        assert counts[ingredient] > 0, ingredient
    assert counts["epochs"] > 25, "managers and ranks changed"


@pytest.mark.soak
def test_ten_thousand_storms_leave_nothing_wrong() -> None:
    print(run(range(10_000)))


def test_without_faults_of_links_and_nodes_nothing_is_tagged() -> None:
    for seed in range(40):
        storm = Storm(seed, Weather(changes=0.1, reranks=True, leaves=0.02))
        assert storm.run() == [], seed
        assert storm.tagged() == 0, seed


# -- broken parts ----------------------------------------------------------------------------------


class MixesEpochs(Front):
    """Forgets that later epochs have overtaken an event."""

    def arrive_late(self, event: ServiceNotified, stamp: Stamp, overtaken: bool) -> list[Effect]:
        return super().arrive_late(event, stamp, overtaken=False)


class LosesSubscriptions(Office):
    """A new layout begins without what managers knew."""

    def on_open(self, message: Open, now: int) -> list[Effect]:
        effects = super().on_open(message, now)
        self.registry = SubscriptionRegistry(None)
        return effects


class GoesOnAtOnce(Subscriber):
    """Does not wait for the end of an epoch (hole T12)."""

    def _has_all(self) -> bool:
        return True


class KeepsTheDead(Coordinator):
    """Makes one layout, for ever."""

    def _look(self, now: int) -> list[Effect]:
        return super()._look(now) if self.opened is None else []


class DropsWhatIsLate(Front):
    """Loses events of epochs that are over, in silence."""

    def arrive_late(self, event: ServiceNotified, stamp: Stamp, overtaken: bool) -> list[Effect]:
        return []


class TagsNothing(Front):
    def is_in_order(self, stamp: Stamp) -> bool:
        super().is_in_order(stamp)
        return True


def storms_with(monkeypatch: pytest.MonkeyPatch, where: str, part: type, seeds: int) -> list[Storm]:
    monkeypatch.setattr(f"cubecast.ordering.production.{where}.{part.__base__.__name__}", part)
    storms = [Storm(seed) for seed in range(seeds)]
    for storm in storms:
        storm.verdict = storm.run()
    return storms


@pytest.mark.parametrize(
    ("where", "part", "says"),
    [
        ("subscriber", TagsNothing, "opposite orders"),
        ("subscriber", MixesEpochs, "opposite orders"),
        ("subscriber", DropsWhatIsLate, "not notified"),
        ("module", KeepsTheDead, "waits for stamps"),
    ],
)
def test_broken_parts_are_caught(
    where: str, part: type, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storms = storms_with(monkeypatch, where, part, 60)
    assert any(says in wrong for storm in storms for wrong in storm.verdict)


@pytest.mark.parametrize(
    ("where", "part"),
    [("module", GoesOnAtOnce), ("module", LosesSubscriptions)],
)
def test_parts_that_cost_tags_cost_no_order(
    where: str, part: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    storms = storms_with(monkeypatch, where, part, 60)
    assert not any("opposite" in wrong for storm in storms for wrong in storm.verdict)
    assert sum(storm.tagged() for storm in storms) > 5
