"""StaN on a whole universe: the job against the plain model, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, pstdev
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from cubecast.cli.app import app
from cubecast.overlay.rounds import RoundConfig, play
from cubecast.overlay.universes.grid import grid
from cubecast.spark.large import large_settings
from cubecast.spark.universe.align import align, at_least
from cubecast.spark.universe.errors import UniverseError
from cubecast.spark.universe.schemas import SUBSCRIPTIONS
from cubecast.spark.universe.store import new_universe
from support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Pairs = list[tuple[int, int]]
RUN = 3
FIVE: Pairs = [(1, 10), (2, 10), (3, 10), (1, 20), (2, 20)]
"""(user, topic): all overlays link everyone with everyone."""


def frame(spark: SparkSession, pairs: Pairs) -> DataFrame:
    return spark.createDataFrame(pairs, SUBSCRIPTIONS)


def gridded() -> Pairs:
    topics, offsets, members = grid(RUN, 60, 8)
    of = np.repeat(topics, np.diff(offsets))
    return list(zip(members.tolist(), of.tolist(), strict=True))


def physical(pairs: Pairs, config: RoundConfig, round_: int) -> dict[int, int]:
    """Physical view sizes by the plain model, with sets."""
    users: dict[int, set[int]] = {user: set() for user, _ in pairs}
    for topic in sorted({topic for _, topic in pairs}):
        members = [user for user, of in pairs if of == topic]
        for user, view in play(RUN, topic, members, config)[round_].items():
            users[user] |= set(view)
    return {user: len(view) for user, view in users.items() if view}


@pytest.mark.parametrize("mode", ["faithful", "repairing"])
def test_sizes_are_those_of_the_plain_model(spark: SparkSession, mode: str) -> None:
    pairs, config = gridded(), RoundConfig(mode=mode)  # type: ignore[arg-type]
    found = align(frame(spark, pairs), config, rounds=(0, 2, 8), run=RUN)
    assert [one.round for one in found.sizes] == [0, 2, 8]
    for one in found.sizes:
        expected = physical(pairs, config, one.round)
        assert one.users == len(expected)
        assert one.physical == pytest.approx(mean(expected.values()))
    initial, final = (physical(pairs, config, round_) for round_ in (0, 8))
    gains = [1 - final[user] / initial[user] for user in initial]
    assert found.improvement.mean == pytest.approx(mean(gains))
    assert found.improvement.much_share == pytest.approx(mean(gain > 0.4 for gain in gains))
    assert found.improvement.worse_share == pytest.approx(mean(gain < 0 for gain in gains))
    assert found.optimum is not None
    assert found.optimum <= found.sizes[-1].physical <= found.sizes[0].physical


def test_overlays_are_compared_in_pairs(spark: SparkSession) -> None:
    pairs, config = gridded(), RoundConfig()
    found = align(frame(spark, pairs), config, run=RUN, best=False).overlays
    assert found is not None
    degrees: dict[int, list[float]] = {0: [], 8: []}
    complete = unknown = 0
    for topic in sorted({topic for _, topic in pairs}):
        members = [user for user, of in pairs if of == topic]
        views = play(RUN, topic, members, config)
        sizes = {len(view) for view in views[0].values()}
        unknown += not set(members) <= set().union(*views[8].values())
        if sizes == {len(members) - 1}:
            complete += 1
            continue
        for round_, values in degrees.items():
            named = [one for view in views[round_].values() for one in view]
            values.append(pstdev(named.count(member) for member in members))
    assert (found.complete, found.unknown_after) == (complete, unknown)
    change = found.changes["in_degree_sd"]
    assert change.before == pytest.approx(mean(degrees[0]))
    assert change.after == pytest.approx(mean(degrees[8]))
    assert found.parts_most == 1


def test_overlays_that_link_everyone_cannot_change(spark: SparkSession) -> None:
    found = align(frame(spark, FIVE), RoundConfig())
    assert (found.users, found.topics, found.pairs) == (3, 2, 5)
    assert found.improvement.better_share == 0
    assert found.overlays is not None
    assert (found.overlays.overlays, found.overlays.complete) == (2, 2)
    assert found.overlays.changes == {}
    assert found.optimum == found.sizes[-1].physical == 2


def test_small_topics_are_left_out(spark: SparkSession) -> None:
    assert sorted((row.user, row.topic) for row in at_least(frame(spark, FIVE), 3).collect()) == [
        (1, 10), (2, 10), (3, 10),
    ]  # fmt: skip


def test_a_large_session_leaves_out_the_same_topics_with_a_broadcast(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = spark.newSession()
    for name, value in large_settings("local[1]", 1024, tmp_path / "log").items():
        if large.conf.isModifiable(name):
            large.conf.set(name, value)
    joins, kept = [], []
    for session in (spark, large):
        pairs = at_least(frame(session, FIVE), 3)
        kept.append(sorted((row.user, row.topic) for row in pairs.collect()))
        capsys.readouterr()
        pairs.explain()
        joins.append(re.findall(r"Final Plan.*?(\w+Join)", capsys.readouterr().out, re.DOTALL))
    assert joins == [["SortMergeJoin"], ["BroadcastHashJoin"]]
    assert kept[0] == kept[1]


def test_a_universe_without_subscriptions_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UniverseError, match="no subscriptions"):
        align(frame(spark, []), RoundConfig())
    with pytest.raises(UniverseError, match="at least one round"):
        align(frame(spark, FIVE), RoundConfig(), rounds=(0,))


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def universe(spark: SparkSession, tmp_path: Path) -> Path:
    with new_universe(tmp_path / "grid", "a test") as draft:
        draft.write("subscriptions", frame(spark, gridded()))
        draft.finish({"source": "a test"})
    return tmp_path / "grid"


def told(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["universe", "overlay", *arguments])
    return result.exit_code, result.output


def test_the_command_tells_sizes_and_overlays(universe: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    code, output = told(str(universe), "--rounds", "0,1,8", "--out", str(out))
    assert code == 0, output
    assert "physical links" in output
    assert "overlays with a node that no view names" in output
    assert {one.name for one in out.iterdir()} == {"sizes", "by_initial", "overlays"}


def test_the_command_prints_json(universe: Path) -> None:
    code, output = told(str(universe), "--json", "--no-optimum", "--no-shapes")
    assert code == 0, output
    found = json.loads(output.splitlines()[-1])
    assert (found["optimum"], found["overlays"]) == (None, None)
    assert [one["round"] for one in found["sizes"]] == [0, 8]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("nowhere",), "nowhere does not exist"),
        ((".", "--mode", "best"), "mode must be one of faithful, repairing, not 'best'"),
        ((".", "--rounds", "0,x"), "--rounds are numbers with commas"),
        ((".", "--rounds", "-1"), "--rounds start at 0"),
    ],
)
def test_arguments_that_cannot_be_played_are_refused_in_one_line(
    arguments: tuple[str, ...], reason: str
) -> None:
    code, output = told(*arguments)
    assert code != 0
    assert reason in output
    assert output.count("\n") == 1


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ cubecast (universe .*?) *#", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert [line.split()[1] for line in lines] == ["generate", "overlay"]
    for line in lines:
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == 0, result.output
    assert "1,381 users x 576 topics" in result.output


def test_tables_are_not_written_over(universe: Path, tmp_path: Path) -> None:
    code, output = told(str(universe), "--out", str(tmp_path))
    assert code != 0
    assert "exists already" in output
