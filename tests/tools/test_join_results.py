"""Published results are joined from runs: what was not run again stays, and all is told anew."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cubecast.lab.experiment import find
from cubecast.lab.report.data import Findings
from cubecast.spark.results import Results
from cubecast.spark.tables import TIMINGS
from support.paths import ROOT
from support.tools import load_tool

join = load_tool("join_results")
TEXTS = ("points.csv", "report.md", "verdicts.csv")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A copy of the published results."""
    return Path(shutil.copytree(ROOT / "docs" / "results", tmp_path / "results"))


def renew(published: Path, fresh: Findings) -> None:
    findings, figures = join.joined(published, fresh)
    ids = [experiment.id for experiment in fresh.experiments]
    join.write(published, findings, join.redraw(findings, figures, published / "figures", ids))


def lines(published: Path) -> list[dict[str, str]]:
    with (published / "points.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_published_is_what_the_present_code_says_of_its_points(published: Path) -> None:
    """If this fails after a change of reasons, verdicts or words: python tools/join_results.py."""
    figures = {path.name for path in (published / "figures").iterdir()}
    renew(published, Findings((), ()))
    for name in TEXTS:
        assert (published / name).read_text() == (ROOT / "docs/results" / name).read_text(), name
    assert {path.name for path in (published / "figures").iterdir()} == figures


def test_a_run_replaces_the_points_and_figures_of_its_experiments_only(published: Path) -> None:
    before = lines(published)
    experiment = find("window")
    own = join.points_of(experiment, [one for one in before if one["experiment"] == "window"])
    rows = [replace(row, mean=2 * row.mean, n=row.n + 1) for row in own]
    (published / "figures" / "window-1.png").write_bytes(b"old")
    (published / "figures" / "window-gone.png").write_bytes(b"of no figure")
    renew(published, Findings([experiment], rows))
    assert (published / "figures" / "window-1.png").read_bytes().startswith(b"\x89PNG")
    assert not (published / "figures" / "window-gone.png").exists()
    after = lines(published)
    for old, new in zip(before, after, strict=True):
        if old["experiment"] == "window":
            assert int(new["n"]) == int(old["n"]) + 1
            assert float(new["mean"]) == 2 * float(old["mean"])
        else:
            assert new == old


def test_the_page_says_which_code_measured_the_points_that_are_joined(
    published: Path, tmp_path: Path
) -> None:
    now = datetime(2026, 11, 19, tzinfo=UTC)
    measured = [("4.1", "a" * 12, "old"), ("wan", "a" * 12, "old"), ("window", "b" * 12, "new")]
    cells = [
        {
            "experiment": experiment, "cell": 0, "key": f"{'0' * 24}-{digest}", "seed": 0,
            "sweep": sweep, "executor": "e", "worker": 1, "started": now, "ended": now,
        }
        for experiment, digest, sweep in measured
    ]  # fmt: skip
    results = Results(tmp_path / "lab-results")
    results.write_table("timings", TIMINGS, [pa.Table.from_pylist(cells, schema=TIMINGS)])
    for number, (sweep, commit) in enumerate({"old": "c0ffee+", "new": ""}.items()):
        results.note_sweep(f"{number:012}", {"started": "2026", "sweep": sweep, "commit": commit})
    code = join.code_of(results)
    assert code == {
        "4.1": "commit c0ffee+, code aaaaaaaaaaaa",
        "wan": "commit c0ffee+, code aaaaaaaaaaaa",
        "window": "commit unknown, code bbbbbbbbbbbb",
    }
    findings, figures = join.joined(published, Findings((), ()))
    join.write(published, findings, figures, code)
    last = (published / "report.md").read_text(encoding="utf-8").splitlines()[-1]
    assert last == (
        "- Points that replace earlier ones: 4.1, wan by commit c0ffee+, code aaaaaaaaaaaa; "
        "window by commit unknown, code bbbbbbbbbbbb."
    )


def test_points_that_no_grid_has_any_more_are_left_out(published: Path) -> None:
    own = [one for one in lines(published) if one["experiment"] == "window"]
    gone = {**own[0], "settings": '{"nodes": -1}'}
    assert len(join.points_of(find("window"), [*own, gone])) == len(own)


def test_settings_of_several_points_are_refused(published: Path) -> None:
    own = [one for one in lines(published) if one["experiment"] == "window"]
    with pytest.raises(join.JoinError, match=r"window: .* points have the settings"):
        join.points_of(find("window"), [{**own[0], "settings": "{}"}])
