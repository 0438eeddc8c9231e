"""The experiment files: they load, they cost what they may, and their smallest cells run."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import pytest

from cubecast.lab.cells import Cell, measure
from cubecast.lab.experiment import Experiment, ExperimentError, find, load, parse, shipped
from cubecast.lab.report.paper_marks import marks
from cubecast.lab.verdicts import Row, judge
from cubecast.lab.workloads import WORKLOADS
from support.paths import ROOT

SHIPPED = shipped()
EXAMPLE = ROOT / "examples" / "busy-room.toml"
CORES = 2

SMALL = """
id = "x"
title = "A test"
source = "here"
workload = "single-publisher"
metrics = ["latency_mean"]
[seeds]
full = 2
[fixed]
hop = 50
[grid]
protocol = ["vcube-ps", "srpt"]
nodes = [8, 16]
"""


def small(old: str = "", new: str = "", more: str = "") -> Experiment:
    assert old in SMALL
    return parse(SMALL.replace(old, new) + more, "x.toml")


# -- the shipped files -----------------------------------------------------------------------------


def test_every_section_and_figure_has_its_file() -> None:
    assert list(SHIPPED) == [
        "4.1", "4.2", "4.2-T1", "4.2-T1-hops", "4.3", "4.4", "4.4-acks", "4.4-load", "4.5",
        "4.5-load", "4.5-rate", "4.6", "4.6-load", "B.3", "B.4", "B.4-load", "B.5",
        "N.3", "N.6", "N.7", "N.8", "N.9", "S.II", "T.9", "T.13", "T.15", "T.16", "T.16-length",
        "T.18", "T.18-topics", "T.21", "T.22", "T.23", "production", "scale", "wan", "window",
    ]  # fmt: skip


def test_an_irreproducible_experiment_has_several_readings() -> None:
    for ident, wanted in (
        ("4.1", 2), ("4.2-T1", 3), ("4.3", 14), ("S.II", 3), ("4.5", 2), ("4.5-rate", 6),
    ):  # fmt: skip
        experiment = SHIPPED[ident]
        assert len(experiment.reading) == wanted
        assert {number.accounting for number in experiment.paper} == {
            reading.name for reading in experiment.reading
        }


def test_costs_fit_the_machine() -> None:
    """All quick forms within 10 minutes and all full ones within 3 hours, on two cores."""
    quick = sum(cell.cost for x in SHIPPED.values() for cell in x.cells(quick=True))
    full = sum(cell.cost for x in SHIPPED.values() for cell in x.cells())
    assert quick < 8 * 60 * CORES
    assert full < 3 * 3600 * CORES


@pytest.mark.parametrize("ident", SHIPPED)
def test_the_quick_form_is_smaller(ident: str) -> None:
    experiment = SHIPPED[ident]
    quick, full = experiment.cells(quick=True), experiment.cells()
    assert sum(cell.cost for cell in quick) < 0.5 * sum(cell.cost for cell in full)
    assert max(cell.cost for cell in quick) < 60


@pytest.mark.parametrize("ident", SHIPPED)
def test_the_smallest_cell_gives_what_its_workload_declares(ident: str) -> None:
    experiment = SHIPPED[ident]
    cell = min(experiment.cells(quick=True, seeds=1), key=lambda cell: cell.cost)
    work = WORKLOADS[experiment.workload]
    measurement = measure(cell)
    assert set(experiment.metrics) <= set(measurement.metrics) == set(work.metrics)
    assert set(measurement.histograms) <= set(work.histograms)
    assert all(isfinite(value) for value in measurement.metrics.values())
    assert all(isinstance(value, float) for value in measurement.metrics.values())
    for plot in experiment.plot:
        of_vcube_ps = cell.settings.get("protocol", "vcube-ps") == "vcube-ps"
        if plot.kind in ("histogram", "timeline") and of_vcube_ps:
            assert measurement.histograms[plot.x]


# -- cells -----------------------------------------------------------------------------------------


def test_a_cell_is_a_point_and_a_seed() -> None:
    cells = small().cells()
    assert [(c.number, c.settings["protocol"], c.settings["nodes"], c.seed) for c in cells] == [
        (number, protocol, nodes, seed)
        for number, (protocol, nodes) in enumerate(
            [("vcube-ps", 8), ("vcube-ps", 16), ("srpt", 8), ("srpt", 16)]
        )
        for seed in (0, 1)
    ]
    assert all(cell.settings["hop"] == 50 for cell in cells)
    assert len({cell.key for cell in cells}) == len(cells)
    assert cells[2].cost > cells[0].cost > 0


def test_a_key_names_what_is_measured_and_nothing_else() -> None:
    cell = small().cells()[0]
    same = Cell("x", 7, dict(reversed(cell.settings.items())), 0, 99.0)
    assert same.key == cell.key
    for other in (
        Cell("y", 0, cell.settings, 0, cell.cost),
        Cell("x", 0, {**cell.settings, "hop": 51}, 0, cell.cost),
        Cell("x", 0, cell.settings, 1, cell.cost),
    ):
        assert other.key != cell.key


def test_measuring_is_a_pure_function_of_the_cell() -> None:
    first, *_, last = small().cells()
    assert measure(first) == measure(first)
    assert measure(first).metrics != measure(last).metrics


def test_seeds_and_their_limits() -> None:
    assert len(small().cells(seeds=5)) == 20
    assert len(small("full = 2", "full = 2\nmost = 3").cells(seeds=5)) == 12
    assert len(small("nodes = [8, 16]", "nodes = [8, 16]\nseeds = 1").cells(seeds=5)) == 4
    assert len(small().cells(quick=True)) == 4


def test_the_quick_form_replaces_axes_and_settings() -> None:
    experiment = small(more="[quick.grid]\nnodes = [4]\n[quick.fixed]\nhop = 7\n")
    assert {(c.settings["nodes"], c.settings["hop"]) for c in experiment.cells(quick=True)} == {
        (4, 7)
    }
    assert {(c.settings["nodes"], c.settings["hop"]) for c in experiment.cells()} == {
        (8, 50),
        (16, 50),
    }


def test_a_caller_may_change_settings() -> None:
    assert {cell.settings["hop"] for cell in small().cells(changes={"hop": 3})} == {3}


def test_several_grids_are_a_union() -> None:
    blocks = '[[grid]]\nprotocol = ["srpt"]\nnodes = [8]\n[[grid]]\nnodes = [8, 16]\n'
    experiment = small(SMALL[SMALL.index("[grid]") :], blocks)
    assert [(p["protocol"], p["nodes"]) for p in experiment.points()] == [
        ("srpt", 8),
        ("vcube-ps", 8),
        ("vcube-ps", 16),
    ]


def test_marks_are_where_the_paper_has_its_numbers() -> None:
    experiment = SHIPPED["4.1"]
    found = {(m.x, m.y, dict(m.series)["protocol"]) for m in marks(experiment, experiment.plot[0])}
    assert (4096, 533, "vcube-ps") in found
    assert (1024, 620, "srpt") in found
    assert not list(marks(experiment, experiment.plot[1]))


def test_only_what_a_paper_prints_in_the_metrics_own_unit_is_marked() -> None:
    shares = SHIPPED["S.II"]
    assert {mark.y for plot in shares.plot for mark in marks(shares, plot)} == {
        2433.1, 10525.7, 3475.9, 14590.4, 97445.5, 194506.8, 96193.9, 191706.3,
    }  # fmt: skip
    limits = SHIPPED["B.5"]
    assert not [mark for plot in limits.plot for mark in marks(limits, plot)]


# -- a user's own file -----------------------------------------------------------------------------


def test_the_example_runs_like_a_shipped_one() -> None:
    experiment = find(str(EXAMPLE))
    rows = []
    for cell in experiment.cells(quick=True, seeds=1):
        measurement = measure(cell)
        rows += [
            Row(experiment.id, cell.settings, metric, measurement.metrics[metric], 0.0, 2)
            for metric in experiment.metrics
        ]
    (verdict,) = judge(experiment, rows)
    assert verdict.verdict == "reproduced"
    assert verdict.ours is not None
    assert verdict.ours > 1.2


def test_an_unknown_experiment() -> None:
    with pytest.raises(ExperimentError, match=r"unknown experiment '4\.9'; there are: 4\.1, "):
        find("4.9")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ExperimentError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'")
    with pytest.raises(ExperimentError, match="is not text in UTF-8"):
        load(tmp_path / "latin.toml")


PAPER = """
[[paper]]
section = "s"
what = "w"
value = 1.0
metric = "latency_mean"
at = { protocol = "srpt", nodes = 8 }
tolerance = 0.1
"""
ALONG = PAPER.replace('protocol = "srpt", nodes = 8', "hop = 50") + 'along = "KEY"\nfold = "max"\n'
PLOT = '[[plot]]\ntitle = "t"\nx = "nodes"\ny = "latency_mean"\n'


@pytest.mark.parametrize(
    ("old", "new", "more", "said"),
    [
        ('id = "x"', "id = ", "", r"not valid TOML: Invalid value \(at line 2"),
        ('title = "A test"', "", "", "title: is missing; needed are: id, title, source"),
        ('id = "x"', 'id = "x y"', "", "id: may have letters, digits, '.', '-' and '_'"),
        ('id = "x"', 'id = "x"\ntitel = 1', "", "titel: unknown key; there are: id, title"),
        ("single-publisher", "single", "", "workload: unknown 'single'; there are: single-pub"),
        ('["latency_mean"]', '["speed"]', "", "metrics: unknown metric 'speed'; there are: lat"),
        ('["latency_mean"]', "[]", "", "metrics: at least one is needed"),
        ("full = 2", 'full = "2"', "", "seeds.full: Expected `int`, got `str`"),
        ("full = 2", "full = 0", "", "seeds.full: must be at least 1, not 0"),
        ("full = 2", "fast = 2", "", "seeds.fast: unknown key; there are: full, quick, most"),
        ("hop = 50", "hops = 50", "", "fixed.hops: unknown setting; there are: engine, protocol"),
        ("hop = 50", "hop = 1.5", "", "fixed or grid: hop: must be a whole number, not 1.5"),
        ("hop = 50", "hop = 0", "", "settings: hop must be 1 to "),
        ("nodes = [8, 16]", "nodes = [8, 12]", "", "nodes must be a power of two: 16, not 12"),
        ("nodes = [8, 16]", "nodes = []", "", "grid.nodes: at least one value is needed"),
        ("nodes = [8, 16]", "nodes = 8", "", "grid.nodes: must be a list, not 8"),
        ('"srpt"', '"gossip"', "", "protocol: must be one of cubecast, vcube-ps"),
        ("", "", "[quick.grid]\nhop = [1]\n", "quick.grid.hop: is no axis of the grid"),
        ("", "", PLOT.replace('"nodes"', '"size"'), r"plot\[1\].x: unknown setting 'size'"),
        ("", "", PLOT.replace("latency_mean", "hop"), r"plot\[1\].y: unknown metric 'hop'"),
        (
            "",
            "",
            PLOT + 'kind = "pie"\n',
            r"plot\[1\].kind: Invalid .* 'pie'; there are: lines",
        ),
        ("", "", PAPER.replace("= 8", "= 9"), r"paper\[1\].at: no point of the grid has protocol"),
        ("", "", PAPER.replace(", nodes = 8", ""), r"paper\[1\].at: 2 points of the grid have"),
        ("", "", PAPER + 'form = "ratio"\n', r"paper\[1\].form: value compares one point"),
        ("", "", PAPER + 'along = "nodes"\n', r"paper\[1\].fold: goes with along"),
        ("", "", PAPER + 'over = ["nodes"]\nfold = "log-fit"\n', r"paper\[1\].over: goes with max"),
        ("", "", PAPER + 'also = ["speed"]\n', r"paper\[1\].also: unknown metric 'speed'"),
        ("", "", PAPER + '[[reading]]\nname = ""\n', "reading.name: '' is empty or there twice"),
        ("", "", PAPER + '[[reading]]\nnome = "a"\n', r"reading\[1\].nome: unknown key; there are"),
        ("", "", ALONG.replace("KEY", "nodes"), r"paper\[1\].at: 4 points .* for each nodes"),
        ("", "", ALONG.replace("KEY", "size"), r"paper\[1\].along: 'size' is no setting with"),
        ("", "", ALONG.replace("KEY", "protocol"), r"paper\[1\].along: 'protocol' is no setting"),
        ("", "", PAPER.replace("0.1", "-1.0"), r"paper\[1\].tolerance: must be 0 or more"),
        ("", "", PAPER.replace("0.1", "nan"), r"paper\[1\].tolerance: must be a number, not nan"),
        ("", "", PAPER + "longer = 0\n", r"paper\[1\].longer: must be above 0"),
    ],
)
def test_a_malformed_file_is_told_in_one_line(old: str, new: str, more: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said) as caught:
        small(old, new, more)
    assert str(caught.value).startswith("x.toml: ")
    assert "\n" not in str(caught.value)


def test_too_many_points() -> None:
    many = ", ".join(map(str, range(1, 400)))
    with pytest.raises(ExperimentError, match="points are too many"):
        small("nodes = [8, 16]", f"nodes = [{many}]\nhop = [{many}]")
