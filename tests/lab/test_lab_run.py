"""`cubecast.lab.run`: experiments as a library call, on a Spark session of this process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cubecast import lab
from cubecast.lab import measuring
from cubecast.lab.cells import Measurement, measure
from cubecast.lab.experiment import Experiment, ExperimentError, Seeds, find, load
from cubecast.lab.request import ask, choose, own_sources, text_of
from cubecast.lab.running import Job
from cubecast.lab.verdicts import Row
from cubecast.spark.errors import LabError
from cubecast.spark.session import spark_session
from support.paths import ROOT
from support.walks import as_called, calls, functions, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RING = ROOT / "examples" / "ring.toml"
EXPERIMENT = """
id = "mine"
title = "Two sizes"
source = "ours"
workload = "single-publisher"
metrics = ["latency_mean", "pub_messages"]
seeds = { full = 3, quick = 2 }
fixed = { protocol = "vcube-ps", engine = "reference" }
grid = { nodes = [8, 16] }

[[plot]]
title = "Messages"
x = "nodes"
y = "pub_messages"

[[paper]]
section = "1"
what = "a message to each of the others"
value = 15.0
metric = "pub_messages"
at = { nodes = 16 }
tolerance = 0.0
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process, or one for all tests here: starting one takes seconds."""
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session("local[2]", log=log) as session:
        yield session


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


# -- on Spark --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_run_has_a_table_a_figure_and_verdicts(mine: Path, tmp_path: Path) -> None:
    ran = lab.run(mine, seeds=2, out=tmp_path / "out")
    assert (ran.ran, ran.kept, ran.failures) == (4, 0, ())
    rows = ran.table().to_pylist()
    assert list(rows[0]) == ["experiment", "nodes", "metric", "mean", "ci", "n"]
    found = {(row["nodes"], row["metric"]): (row["mean"], row["n"]) for row in rows}
    assert found[8, "pub_messages"] == (7.0, 2)
    assert found[16, "pub_messages"] == (15.0, 2)
    (axes,) = ran.figure().axes
    assert next(list(line.get_ydata()) for line in axes.get_lines()) == [7.0, 15.0]
    assert list(ran.figures()) == ["mine-1"]
    with pytest.raises(ExperimentError, match="no figure 'x'; there are: mine-1"):
        ran.figure("x")
    (verdict,) = ran.verdicts
    assert verdict.verdict == "reproduced"

    again = lab.run(mine, out=tmp_path / "out")  # three seeds, as its file says
    assert (again.ran, again.kept) == (2, 4)
    assert {row["n"] for row in again.table().to_pylist()} == {3}


@pytest.mark.usefixtures("spark")
def test_a_run_takes_the_walk_that_the_design_describes(mine: Path, tmp_path: Path) -> None:
    """In the driver; tests/docs/test_walk.py follows what an executor and a report do."""
    in_driver, before, _, after, _ = walk("The walk of a lab cell")
    with calls() as made:
        assert lab.run(mine, seeds=1, out=tmp_path / "out").ran == 2
    whole = [*in_driver, *before, *after]
    assert as_called(whole, functions(made)) == whole


@pytest.mark.usefixtures("spark")
def test_modules_of_the_users_own_reach_the_executors(tmp_path: Path) -> None:
    """Workload and protocol are in a module beside the file, which no executor could import."""
    ran = lab.run(RING, quick=True, seeds=1, out=tmp_path / "out")
    assert (ran.ran, ran.failures) == (4, ())
    means = {
        (row["protocol"], row["nodes"]): row["mean"]
        for row in ran.table().to_pylist()
        if row["metric"] == "latency_mean"
    }
    assert means["ring:ring", 16] == 800.0
    assert means["vcube-ps", 16] < 400


@pytest.mark.usefixtures("spark")
def test_seeds_are_added_until_nothing_is_undecided(mine: Path, tmp_path: Path) -> None:
    """The second point wants four seeds and then seven, of which the limit allows six."""
    looks: list[dict[int, int]] = []

    def more_seeds(experiment: Experiment, rows: Sequence[Row], limit: int) -> dict[int, int]:
        looks.append({int(str(row.settings["nodes"])): row.n for row in rows})
        has = looks[-1][16]
        return {1: has + 3} if has < 6 else {}

    asked = ask([mine], seeds=1, until_decided=6)
    job = Job(asked, tmp_path / "out", "local[2]", {}, more_seeds=more_seeds)
    ran = job.run()
    assert looks == [{8: 1, 16: 1}, {8: 1, 16: 4}, {8: 1, 16: 6}]
    assert [sweep.ran for sweep in ran.sweeps] == [2, 3, 2]
    assert (ran.ran, ran.kept) == (7, 0)


@pytest.mark.usefixtures("spark")
def test_a_wish_for_seeds_that_cannot_be_had_ends(mine: Path, tmp_path: Path) -> None:
    """A rule that always wants more seeds gets as many as the limit, and the run ends."""
    asked = ask([mine], seeds=1, until_decided=2)
    job = Job(
        asked, tmp_path / "out", "local[2]", {}, more_seeds=lambda experiment, rows, limit: {0: 99}
    )
    assert [sweep.ran for sweep in job.run().sweeps] == [2, 1]


# -- before Spark ----------------------------------------------------------------------------------


def test_the_lab_is_cheap_to_import() -> None:
    script = (
        "import sys, cubecast.lab\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'matplotlib', 'cubecast.lab.running'}\n"
        "print(sorted(heavy & sys.modules.keys()), callable(cubecast.lab.run))\n"
        "print(sorted({'pyspark', 'pyarrow', 'matplotlib'} & sys.modules.keys()))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n[]\n"


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ExperimentError, match=r"unknown experiment '9\.9'"):
        lab.run("9.9", out=out)
    with pytest.raises(ExperimentError, match=r"name an experiment; there are: 4\.1"):
        lab.run(out=out)
    with pytest.raises(ExperimentError, match="seeds: must be a whole number of at least 1, not 0"):
        lab.run("4.1", seeds=0, out=out)
    for wrong in ("4", 2.5, True):
        with pytest.raises(ExperimentError, match="seeds: must be a whole number of at least 1"):
            lab.run("4.1", seeds=wrong, out=out)  # type: ignore[arg-type]
    with pytest.raises(ExperimentError, match="cells are too many; at most 1,000,000"):
        lab.run("4.1", seeds=10**9, out=out)
    with pytest.raises(ExperimentError, match=r"keep, 4\.5: sessions keeps nothing"):
        lab.run("4.5", keep=["traces"], out=out)
    with pytest.raises(ExperimentError, match="until_decided: must be a whole number"):
        lab.run("4.1", until_decided=0, out=out)
    with pytest.raises(ExperimentError, match="until_decided: goes with the full grid"):
        lab.run("4.1", until_decided=9, quick=True, out=out)
    assert not out.exists()


def test_a_package_that_cannot_be_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``__init__.py`` it is no package of anybody's: its sources would not count."""
    (tmp_path / "loose").mkdir()
    shutil.copy(RING.with_suffix(".py"), tmp_path / "loose" / "work.py")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "loose.toml"
    text = EXPERIMENT.replace('protocol = "vcube-ps"', 'protocol = "loose.work:ring"')
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"loose is a folder without __init__\.py"):
        ask([file])


def test_the_results_keep_the_experiment_as_it_was_read(mine: Path) -> None:
    own = load(mine)
    mine.write_text("something else")
    assert text_of(own) == EXPERIMENT
    with pytest.raises(ExperimentError, match="changed after it was read"):
        text_of(msgspec.structs.replace(own, seeds=Seeds(9)))


def test_a_request_that_spark_refuses_leaves_no_trace(mine: Path, tmp_path: Path) -> None:
    """The cells of the grid are then not asked for, and no report misses them."""
    out = tmp_path / "out"
    with pytest.raises(LabError, match="Spark Connect"):
        lab.run(mine, master="sc://nowhere", out=out)
    assert [one.name for one in out.iterdir()] == [".lock"]


def test_a_measurement_has_what_its_workload_declares(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, found = load(mine).cells()[0], {"value": measure(load(mine).cells()[0])}
    monkeypatch.setattr(measuring, "measure", lambda cell, keep: found["value"])
    whole = found["value"]
    assert measuring.measured(cell) is whole
    lacking = {name: value for name, value in whole.metrics.items() if name != "latency_mean"}
    for wrong, said in (
        (Measurement(lacking), "did not give latency_mean, which `metrics` declares"),
        (Measurement({**whole.metrics, "latency_mean": nan}), "gave latency_mean = nan"),
        (None, "returned NoneType, not a Measurement"),
    ):
        found["value"] = wrong  # type: ignore[assignment]
        with pytest.raises(ValueError, match=said):
            measuring.measured(cell)


def test_experiments_are_chosen_by_id_file_workload_and_object(mine: Path) -> None:
    own = load(mine)
    assert choose(["4.1", mine, own, "4.1"]) == [find("4.1"), own]
    assert {one.workload for one in choose(["sessions"])} == {"sessions"}
    assert len(choose(["all"])) > 20


def test_only_modules_that_are_not_installed_are_sent() -> None:
    cells = load(RING).cells(quick=True, seeds=1)
    assert own_sources(cells) == [RING.with_name("ring.py")]
    assert own_sources(find("4.1").cells(quick=True, seeds=1)) == []
