"""``cubecast universe generate``, ``draw`` and ``describe``: what they write, print and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.spark.session import spark_session
from cubecast.spark.universe.schemas import SUBSCRIPTIONS
from cubecast.spark.universe.store import new_universe, open_universe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIPARTITE = ("bipartite", "--nodes", "60", "--topics", "12", "--pairs", "200", "--smallest", "5")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The commands use the session that there is."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session("local[2]", log=log) as session:
        yield session


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["universe", *map(str, arguments)])


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("universes") / "made"
    result = run("generate", *BIPARTITE, "--out", out)
    assert result.exit_code == 0, result.output
    assert "60 nodes x 12 topics, 200 subscriptions" in " ".join(result.stdout.split())
    return out


def test_a_generated_universe_says_how_it_was_made(spark: SparkSession, made: Path) -> None:
    universe = open_universe(made)
    assert universe.manifest["made_by"] == "generate"
    assert universe.manifest["generator"] == "bipartite"
    assert universe.manifest["parameters"]["pairs"] == 200
    assert universe.read(spark, "subscriptions").count() == 200


def test_the_same_again_replaces_it_and_another_does_not(made: Path) -> None:
    assert run("generate", *BIPARTITE, "--out", made).exit_code == 0
    other = run("generate", *BIPARTITE, "--run", 1, "--out", made)
    assert other.exit_code == 2
    assert "holds another universe" in other.stderr
    assert open_universe(made).manifest["run"] == 0


def test_a_grid_counts_the_nodes_that_have_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    result = run("generate", "grid", "--nodes", 30, "--topics", 4, "--out", out, "--json")
    facts = json.loads(result.stdout)
    table = open_universe(out).read(spark, "subscriptions")
    assert facts["nodes"] == table.select("user").distinct().count() < 30
    assert facts["topics"] == table.select("topic").distinct().count()
    assert facts["pairs"] == table.count()


def test_a_draw_is_kept_as_a_universe_with_the_sizes_of_all_draws(
    spark: SparkSession, made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "drawn"
    options = ("--draws", 5, "--smallest", 4, "--out", out)
    result = run("draw", made, "--seeds", 2, *options, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)[0]
    chosen = facts["chosen"]
    assert chosen == facts["draws"][chosen["draw"]]
    universe = open_universe(out)
    sizes = [chosen[name] for name in ("draw", "topics", "nodes", "pairs")]
    assert universe.manifest["sizes"][chosen["draw"]] == sizes
    assert len(universe.manifest["sizes"]) == len(facts["draws"]) == 5
    table = universe.read(spark, "subscriptions")
    assert (table.count(), table.select("user").distinct().count()) == (sizes[3], sizes[2])


def test_several_numbers_of_seeds_go_to_directories_of_their_own(
    made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "drawn"
    options = ("--draws", 3, "--smallest", 4, "--prune-first", "--out", out)
    result = run("draw", made, "--seeds", "1,3", *options)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == ["seeds-1", "seeds-3"]
    assert "topics/nodes" in result.stdout


def test_all_places_are_checked_before_the_first_draw(made: Path, tmp_path: Path) -> None:
    """The last of two places holds what is no universe; the first one stays empty."""
    out = tmp_path / "drawn"
    (out / "seeds-3").mkdir(parents=True)
    (out / "seeds-3" / "notes.txt").write_text("mine")
    options = ("--draws", 3, "--smallest", 4, "--out", out)
    result = run("draw", made, "--seeds", "1,3", *options)
    assert result.exit_code == 2
    assert "seeds-3 exists and is no universe" in " ".join(result.stderr.split())
    assert [path.name for path in out.iterdir()] == ["seeds-3"]
    assert (out / "seeds-3" / "notes.txt").read_text() == "mine"


def test_a_draw_without_a_place_keeps_nothing(made: Path) -> None:
    before = sorted(made.parent.iterdir())
    result = run("draw", made, "--seeds", "2,4", "--draws", 2, "--smallest", 50)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split()[:4] == ["2", "0", "0", "0"]
    assert result.stdout.splitlines()[2].split()[:4] == ["4", "0", "0", "0"]
    assert sorted(made.parent.iterdir()) == before


def test_a_description_is_printed_and_drawn(made: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    result = run("describe", made, "--plots", pictures, "--resamples", 2)
    assert result.exit_code == 0, result.output
    assert "60 nodes x 12 topics, 200 subscriptions" in result.stdout
    assert "subscribers per topic" in result.stdout
    assert "correlation of the 12 largest topics" in result.stdout
    assert len(list(pictures.glob("*.png"))) == 3


def test_a_universe_of_equal_sizes_has_no_exponent(spark: SparkSession, tmp_path: Path) -> None:
    pairs = [(user, topic) for user in range(3) for topic in (10, 20)]
    with new_universe(tmp_path / "equal", "toy") as draft:
        draft.write("subscriptions", spark.createDataFrame(pairs, SUBSCRIPTIONS))
        draft.finish({"made_by": "test"})
    told = run("describe", tmp_path / "equal", "--resamples", "0")
    assert told.exit_code == 0, told.output
    per_topic, per_node = (line.split() for line in told.stdout.splitlines()[2:4])
    assert per_topic == ["subscribers", "per", "topic", "3.0", "3", "3", "3", *"----"]
    assert per_node == ["topics", "per", "node", "2.0", "2", "2", "2", *"----"]
    done = run("describe", tmp_path / "equal", "--resamples", "0", "--json")
    facts = json.loads(done.stdout)
    assert facts["topics_per_node"]["bounded_exponent"] is None


def test_a_description_is_one_json_object(made: Path) -> None:
    facts = json.loads(run("describe", made, "--resamples", 0, "--topics", 5, "--json").stdout)
    assert (facts["topics"], facts["nodes"], facts["pairs"]) == (12, 60, 200)
    assert facts["correlation"]["topics"] == 5
    assert facts["plots"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("generate", "Q7"), "no universe 'Q7' in [N] Table 1: L0 to L8, W0 to W8"),
        (("generate", "L8", "--pairs", "7"), "L8 has no option --pairs; `bipartite` has all"),
        (("generate", "bipartite", "--nodes", "9"), "bipartite needs --topics, --pairs"),
        (("generate", "bipartite", "--nodes", "9", "--topics", "9", "--pairs", "5"), "too few"),
        (("generate", "W8", "--correlation", "2"), "between 0 and 1, not 2.0"),
    ],
)
def test_a_universe_that_cannot_be_generated_is_refused_in_one_line(
    arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    out = tmp_path / "none"
    result = run(*arguments, "--out", out)
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--seeds", "13"), "cannot draw 13 of 12 topics"),
        (("--seeds", "2,x"), "--seeds 2,x: numbers separated by commas are needed"),
        (("--seeds", "2,2"), "--seeds 2,2: a number is there twice"),
        (
            ("--seeds", "2", "--smallest", "50", "--out", "OUT"),
            "the median draw of 2 seeds is empty",
        ),
    ],
)
def test_an_impossible_draw_is_refused(
    made: Path, arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    out = tmp_path / "none"
    given = [str(out) if one == "OUT" else one for one in arguments]
    result = run("draw", made, *given, "--draws", 2)
    assert result.exit_code == 2
    assert told in result.stderr.splitlines()[-1]
    assert not out.exists()


@pytest.mark.parametrize("command", [("draw", "--seeds", "1"), ("describe",)])
def test_a_directory_that_is_no_universe_is_refused(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    result = run(command[0], tmp_path, *command[1:])
    assert result.exit_code == 2
    assert "is no universe" in result.stderr
