"""Published results are joined from runs: what was not run again stays, and all is told anew."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cubecast.lab.experiment import find
from cubecast.lab.report.data import Findings
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
    drawn = join.redraw(findings, ids, published / "figures")
    join.write(published, findings, {**figures, **drawn})


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


def test_points_that_no_grid_has_any_more_are_left_out(published: Path) -> None:
    own = [one for one in lines(published) if one["experiment"] == "window"]
    gone = {**own[0], "settings": '{"nodes": -1}'}
    assert len(join.points_of(find("window"), [*own, gone])) == len(own)


def test_settings_of_several_points_are_refused(published: Path) -> None:
    own = [one for one in lines(published) if one["experiment"] == "window"]
    with pytest.raises(join.JoinError, match=r"window: .* points have the settings"):
        join.points_of(find("window"), [{**own[0], "settings": "{}"}])
