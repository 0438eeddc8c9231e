"""Workloads and protocols of a user's own: by entry point, or as module:object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cubecast import plugins
from cubecast.lab.cells import measure
from cubecast.lab.experiment import ExperimentError, load
from cubecast.lab.workloads import WORKLOADS
from cubecast.plugins import PluginError, load_object, look_in, source_of
from cubecast.sim.params import Params
from cubecast.sim.protocols import MAKERS, PROTOCOLS, ProtocolChoiceError, maker
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS
from support.paths import ROOT

EXAMPLES = ROOT / "examples"
WORKLOAD = """
from cubecast.lab.cells import Measurement
from cubecast.lab.workload import Workload

MINE = Workload(
    "mine", "arithmetic", {"nodes": 2}, ("twice",),
    lambda settings, seed: Measurement({"twice": 2.0 * settings["nodes"] + seed}),
    lambda settings: 0.1,
)
NOT_ONE = "a text"
"""
PROTOCOL = """
from cubecast.sim.protocols import maker

def mine(params, seed):
    return maker("best-effort", params, seed)
"""
EXPERIMENT = """
id = "x"
title = "x"
source = "x"
workload = "{}"
metrics = ["twice"]
grid = {{ nodes = [3, 4] }}
seeds = {{ full = 1 }}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs packages with entry points: a module and the metadata that pip writes."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def install(name: str, source: str, points: str) -> None:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
        plugins._points.cache_clear()

    yield install
    plugins._points.cache_clear()
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[module.__name__]


def experiment(folder: Path, workload: str) -> Path:
    path = folder / "x.toml"
    path.write_text(EXPERIMENT.format(workload), encoding="utf-8")
    return path


# -- entry points ----------------------------------------------------------------------------------


def test_a_workload_comes_in_by_its_entry_point(
    package: Callable[..., None], tmp_path: Path
) -> None:
    package("pack_a", WORKLOAD, "[cubecast.workloads]\nmine = pack_a:MINE\n")
    assert "mine" in list(WORKLOADS)
    assert len(WORKLOADS) == len(list(WORKLOADS))
    assert "pack_a" not in sys.modules, "nothing is imported before it is asked for"
    cells = load(experiment(tmp_path, "mine")).cells()
    assert [measure(cell).metrics["twice"] for cell in cells] == [6.0, 8.0]


def test_a_protocol_comes_in_by_its_entry_point(package: Callable[..., None]) -> None:
    package("pack_b", PROTOCOL, "[cubecast.protocols]\nmine = pack_b:mine\n")
    params = Params(nodes=8)
    ours, theirs = (
        run(SCENARIOS["discussion"], name, params, 1).metrics for name in ("best-effort", "mine")
    )
    del ours["events_per_second"], theirs["events_per_second"]
    assert ours == theirs
    settings = WORKLOADS["discussion"].complete({"protocol": "mine", "nodes": 8})
    assert settings["protocol"] == "mine"


def test_an_entry_point_that_fails_names_its_package(
    package: Callable[..., None], tmp_path: Path
) -> None:
    package("pack_c", "import no_such_thing\n", "[cubecast.workloads]\nmine = pack_c:MINE\n")
    with pytest.raises(ExperimentError, match=r"workload: .*'mine' of package pack_c does"):
        load(experiment(tmp_path, "mine"))


def test_two_packages_with_one_name(package: Callable[..., None], tmp_path: Path) -> None:
    package("pack_d", WORKLOAD, "[cubecast.workloads]\nmine = pack_d:MINE\n")
    package("pack_e", WORKLOAD, "[cubecast.workloads]\nmine = pack_e:MINE\n")
    with pytest.raises(ExperimentError, match=r"pack_[de] and pack_[de] both have"):
        load(experiment(tmp_path, "mine"))


def test_an_entry_point_replaces_none_of_ours(package: Callable[..., None]) -> None:
    package("pack_f", WORKLOAD, "[cubecast.workloads]\ndiscussion = pack_f:MINE\n")
    assert WORKLOADS["discussion"].name == "discussion"
    assert list(WORKLOADS).count("discussion") == 1


# -- module:object ---------------------------------------------------------------------------------


def test_a_module_beside_the_file(
    package: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(tmp_path)])
    (tmp_path / "beside.py").write_text(WORKLOAD, encoding="utf-8")
    (cell, _) = load(experiment(tmp_path, "beside:MINE")).cells()
    assert cell.settings == {"workload": "beside:MINE", "nodes": 3}
    assert measure(cell).metrics["twice"] == 6.0
    assert source_of("beside:MINE") == tmp_path / "beside.py"
    assert source_of("pytest:main") is None, "what is installed is not sent"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent:MINE", "cannot import absent: ModuleNotFoundError.*on PYTHONPATH"),
        ("there:YOURS", "there has no 'YOURS'; it has: MINE, NOT_ONE"),
        ("there:NOT_ONE", "'there:NOT_ONE' must be a Workload, not 'a text'"),
        (":MINE", "must be a module, a colon and the name of an object"),
        ("nope", "unknown 'nope'; there are: single-publisher, .*, universe"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_in_one_line(
    package: Callable[..., None], tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "there.py").write_text(WORKLOAD, encoding="utf-8")
    with pytest.raises(ExperimentError, match=f"x.toml: workload: .*{said}") as told:
        load(experiment(tmp_path, name))
    assert "\n" not in str(told.value)


def test_protocols_that_cannot_be_had() -> None:
    with pytest.raises(ProtocolChoiceError, match=r"unknown protocol 'x'; there are: cubecast, .*"):
        maker("x", Params(), "")
    with pytest.raises(
        ProtocolChoiceError, match="protocol 'json:__name__' must be something to call"
    ):
        maker("json:__name__", Params(), "")
    assert set(MAKERS) == set(PROTOCOLS)
    with pytest.raises(PluginError, match="cannot import no_such"):
        load_object("no_such:thing")


def test_the_example_measures_a_ring_beside_a_tree() -> None:
    look_in(EXAMPLES)
    cells = load(EXAMPLES / "ring.toml").cells(quick=True, seeds=1)
    found = {
        (cell.settings["protocol"], cell.settings["nodes"]): measure(cell).metrics["latency_mean"]
        for cell in cells
    }
    assert found["ring:ring", 16] == 800.0, "half way around, hops of 100"
    assert found["vcube-ps", 16] < found["ring:ring", 16] / 2
