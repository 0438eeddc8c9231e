"""``cubecast lab`` where no Spark is needed: lists, refusals, Java, progress."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.lab.cells import Cell
from cubecast.spark import java as java_module
from cubecast.spark.errors import NoJavaError, ResultsError, SparkFailedError, lab_errors
from cubecast.spark.java import Java, find_java
from cubecast.spark.progress import CellTally, LineProgress, clock
from cubecast.spark.results import Failure, Results
from cubecast.spark.session import packed_package


def lab(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["lab", *map(str, arguments)])


def refused(*arguments: object) -> str:
    """The one line that a refusal is."""
    result = lab(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


# -- list and help ---------------------------------------------------------------------------------


def test_the_experiments_are_listed_with_their_size() -> None:
    listed = {one["id"]: one for one in json.loads(lab("list", "--json").stdout)}
    assert listed["4.1"]["title"] in lab("list").stdout.replace("\n", " ")
    assert all(0 < one["quick_cells"] <= one["cells"] for one in listed.values())


def test_the_list_explains_the_letters_of_the_papers() -> None:
    told = lab("list").stdout
    letters = set(re.findall(r"\[([A-Z])\]", told))
    assert letters == {"J", "S", "B", "T", "N"}
    for letter in letters:
        assert re.search(rf"^\[{letter}\] \w", told, re.MULTILINE), letter


@pytest.mark.parametrize("command", ["", "list", "run", "report", "compare"])
def test_help_fits_a_terminal_and_has_examples(command: str) -> None:
    result = lab(*command.split(), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 88
    if command in ("", "run", "compare"):
        assert result.stdout.count("  cubecast lab ") >= 3


def test_the_list_needs_neither_java_nor_spark() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None; sys.modules['pyarrow'] = None\n"
    script = hidden + "from cubecast.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", script, "lab", "list"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [sys.executable, "-c", script, "lab", "run", "4.1"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "cubecast lab run: the lab needs pyarrow: "
        "install the extra, pip install 'cubecast[spark]'\n"
    )


SCRIPT = """
import cubecast, cubecast.kernel.churn
from cubecast.lab.cells import measure
from cubecast.lab.experiment import find
(cell,) = find("scale").cells(quick=True, seeds=1)[:1]
print(cubecast.__file__, measure(cell).metrics["pub_messages"])
"""


def test_the_package_that_is_sent_to_a_cluster_measures_on_the_kernel(tmp_path: Path) -> None:
    packed = packed_package(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(packed), "NUMBA_DISABLE_JIT": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{packed}/cubecast/__init__.py 1.0\n"


# -- refusals --------------------------------------------------------------------------------------


def test_an_unknown_experiment(tmp_path: Path) -> None:
    line = refused("run", "9.9", "--out", tmp_path / "out")
    assert line.startswith("cubecast lab run: unknown experiment '9.9'; there are: 4.1, ")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_experiment(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("id = ", encoding="utf-8")
    line = refused("run", mine, "--out", tmp_path / "out")
    assert line.startswith(f"cubecast lab run: {mine}: not valid TOML: ")
    assert refused("run", tmp_path / "none.toml").endswith("none.toml: No such file or directory")
    assert not (tmp_path / "out").exists()


def test_two_experiments_of_one_id(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    text = 'id = "4.1"\ntitle = "x"\nsource = "x"\nworkload = "single-publisher"\n'
    rest = 'metrics = ["latency_mean"]\nseeds = { full = 1 }\ngrid = { nodes = [8] }\n'
    mine.write_text(text + rest, encoding="utf-8")
    line = refused("run", "4.1", mine)
    assert "have the same id '4.1'" in line


def test_an_output_directory_that_cannot_be_written(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file", encoding="utf-8")
    line = refused("run", "4.1", "--out", taken / "out")
    assert line == (
        f"cubecast lab run: cannot write to {taken / 'out'}: Not a directory; "
        "choose a directory with --out"
    )
    assert "cannot write to" in refused("run", "4.1", "--out", taken)
    assert taken.read_text(encoding="utf-8") == "a file"


def test_a_directory_without_results(tmp_path: Path) -> None:
    assert refused("report", tmp_path / "none").endswith(
        "is no directory; `cubecast lab run` makes one"
    )
    assert "has no finished tables" in refused("compare", tmp_path, tmp_path)


def test_a_setting_that_is_none_of_sparks(tmp_path: Path) -> None:
    line = refused("run", "4.1", "--conf", "memory=1g", "--out", tmp_path)
    assert line == "cubecast lab run: --conf memory=1g: must be spark.SOMETHING=VALUE"


def test_errors_of_spark_java_and_the_disk_are_one_line() -> None:
    from py4j.protocol import Py4JNetworkError
    from pyspark.errors import AnalysisException

    with pytest.raises(ResultsError, match=r"results: .*No space left"), lab_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(SparkFailedError, match="Java process is gone"), lab_errors():
        raise Py4JNetworkError
    with pytest.raises(ResultsError, match=r"results: .*reset"), lab_errors():
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by a store")
    told = "Job aborted.\nTraceback:\n  cubecast.spark.errors.ResultsError: not shared\nat java"
    with pytest.raises(SparkFailedError, match=r"^not shared$"), lab_errors():
        raise AnalysisException(told)

    class AsksJava(AnalysisException):
        _desc = "[DIVIDE_BY_ZERO] an Exception of a Java that has stopped"

        def __str__(self) -> str:
            raise AssertionError

    with pytest.raises(SparkFailedError, match=r"gave up: .DIVIDE_BY_ZERO"), lab_errors():
        raise AsksJava("")
    with pytest.raises(NoJavaError), lab_errors():
        raise NoJavaError("as it is")


# -- Java ------------------------------------------------------------------------------------------


def java_home(place: Path, version: str) -> Path:
    """A directory that looks like an installed Java."""
    (place / "bin").mkdir(parents=True)
    launcher = place / "bin" / "java"
    launcher.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    launcher.chmod(0o755)
    (place / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return place


def test_without_java_nothing_starts_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "USUAL_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "old", "11.0.2")))
    out = tmp_path / "out"
    with Results(out).opened():
        Results(out).place.write("cells/0123.parquet", b"kept")
    line = refused("run", "4.1", "--quick", "--out", out)
    assert line.startswith("cubecast lab run: Spark needs Java 17 or later, and there is none ")
    assert f"(JAVA_HOME={tmp_path / 'old'} is Java 11)" in line
    assert "apt-get install openjdk-17-jre-headless" in line
    assert "set JAVA_HOME" in line
    assert Results(out).listed() == {"0123"}


def test_java_home_wins_if_it_is_new_enough(tmp_path: Path) -> None:
    old, new = (java_home(tmp_path / v, f"{v}.0.1") for v in ("11", "21"))
    usual = java_home(tmp_path / "jvm" / "seventeen", "17.0.9")
    places = (str(tmp_path / "jvm" / "*"),)
    assert find_java({"JAVA_HOME": str(new)}, places) == Java(new, 21)
    assert find_java({"JAVA_HOME": str(old)}, places) == Java(usual, 17)
    assert find_java({"PATH": str(new / "bin")}, places) == Java(new, 21)
    assert find_java({"JAVA_HOME": str(tmp_path / "none")}, places) == Java(usual, 17)
    with pytest.raises(NoJavaError, match="is Java 8"):
        find_java({"JAVA_HOME": str(java_home(tmp_path / "eight", "1.8.0_392"))}, ())


def test_a_java_is_asked_where_no_note_is_beside_it(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "17.0.1")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho 'openjdk version \"21.0.4\"' >&2\n",
        encoding="utf-8",
    )
    wrapper = tmp_path / "shims" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    assert find_java({"PATH": f"{wrapper.parent}:/bin:/usr/bin"}, ()) == Java(home, 21)


# -- progress --------------------------------------------------------------------------------------


def test_time_left_goes_by_cost_and_not_by_number() -> None:
    now = [0.0]
    big, *small = [Cell("x", n, {}, 0, cost) for n, cost in enumerate((8.0, 1.0, 1.0))]
    tally = CellTally([big, *small], kept=5, cores=2, clock=lambda: now[0])
    assert tally.told() == "0 of 3 cells, 3 left, 5 kept from before, about 0:05 to go"
    now[0] = 6.0
    assert tally.told() == "0 of 3 cells, 3 left, 5 kept from before, time left not known yet"
    now[0] = 80.0
    tally.add(big)
    assert (tally.left, tally.share, tally.seconds_left()) == (2, 0.8, 20.0)
    tally.add(small[0], failed=True)
    tally.add(small[1])
    assert tally.told() == "3 of 3 cells, 0 left, 5 kept from before, 1 failed"
    assert (clock(65), clock(3665)) == ("1:05", "1:01:05")


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    text = StringIO()
    cells = [Cell("x", n, {}, 0) for n in range(3)]
    lines = LineProgress(Console(file=text, width=200), every_s=3600)
    with lines.shown(cells, kept=0, cores=2):
        for cell in cells[:2]:
            lines.finished(cell)
            lines.refresh()
        lines.failed(cells[2], Failure("k", "x () seed 0", "ValueError: [no]"))
    assert text.getvalue().splitlines() == [
        "failed: x () seed 0: ValueError: [no]",
        "3 of 3 cells, 0 left, 1 failed",
    ]
