"""Results belong to the code that made them: what the digest of the code covers, and what not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cubecast
from cubecast.lab.cells import Cell
from cubecast.lab.sources import FRONTS, code_digest, measuring_modules, own_modules
from cubecast.spark.session import packed_package

PACKAGE = Path(cubecast.__file__).parent
DIGEST = "from cubecast.lab.sources import FRONTS, code_digest; print(code_digest())"
IMPORTED = """
import sys, types
front = sys.modules["cubecast"] = types.ModuleType("cubecast")
front.__path__ = [sys.argv[1]]  # the package without its front, which imports everything
from cubecast.lab.cells import Cell, measure
from cubecast.lab.workloads import WORKLOADS
settings = WORKLOADS["single-publisher"].complete({"engine": "reference", "nodes": 8})
measure(Cell("x", 0, settings, 0))
print(*(name for name in sys.modules if name.startswith("cubecast.")))
"""


def said(script: str, path: Path | str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, PACKAGE],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_all_that_a_measurement_imports_is_in_the_digest() -> None:
    imported = set(said(IMPORTED, "").split()) - FRONTS
    assert "cubecast.lab.workloads" in imported
    assert imported <= measuring_modules().keys()


def test_commands_report_and_spark_are_not_in_the_digest() -> None:
    inside = {name.split(".")[1] for name in measuring_modules()}
    assert {"sim", "kernel", "protocol", "baselines", "ordering", "overlay"} <= inside
    assert not inside & {"cli", "spark", "bench", "chaos", "testing", "logs"}
    assert not any(name.startswith("cubecast.lab.report") for name in measuring_modules())


def test_a_change_of_a_protocol_is_a_new_key_and_a_change_of_a_command_is_none(
    tmp_path: Path,
) -> None:
    package = tmp_path / "cubecast"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__py*"))
    assert said(DIGEST, packed_package(tmp_path)) == code_digest()
    with (package / "cli" / "lab.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert said(DIGEST, tmp_path) == code_digest()
    with (package / "protocol" / "paper" / "vcube_ps.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert said(DIGEST, tmp_path) != code_digest()


def test_a_key_is_an_identity_and_the_code() -> None:
    one, other = Cell("x", 0, {"nodes": 8}, 1), Cell("x", 5, {"nodes": 8}, 1, cost=9.0)
    assert one.key == other.key == f"{one.identity}-{code_digest()}"
    assert one.identity != Cell("x", 0, {"nodes": 8}, 2).identity


def test_a_change_of_a_users_own_module_is_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    module = tmp_path / "own_module.py"
    module.write_text("WORK = 1\n", encoding="utf-8")
    settings = {"workload": "own_module:WORK", "protocol": "own_package.deep:Ring"}
    assert own_modules(settings) == ("own_module", "own_package")
    keys = {code_digest(), code_digest.__wrapped__(own_modules(settings))}
    module.write_text("WORK = 2\n", encoding="utf-8")
    keys.add(code_digest.__wrapped__(own_modules(settings)))
    (package / "deep.py").write_text("Ring = 3\n", encoding="utf-8")
    keys.add(code_digest.__wrapped__(own_modules(settings)))
    assert len(keys) == 4
    assert own_modules({"workload": "no_such_module:X"}) == ("no_such_module",)
    assert own_modules({"workload": "stan", "nodes": 8}) == ()
