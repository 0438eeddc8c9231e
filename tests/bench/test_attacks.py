"""The measured attacks: what is counted as harm, a short run of three, and the page on them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.paths import ROOT

PROGRAMS = ROOT / "bench"
PAGE = ROOT / "docs" / "security.md"
SECTION = "## How long others were affected"
CONTROLS = {"control", "death"}


@pytest.fixture(autouse=True)
def _programs_are_found() -> Iterator[None]:
    sys.path.insert(0, str(PROGRAMS))
    yield
    sys.path.remove(str(PROGRAMS))


# -- what is counted -------------------------------------------------------------------------------


def test_a_gap_is_that_of_one_publisher_also_if_it_lasts_still() -> None:
    from attacks.bystander import Gaps

    gaps = Gaps((0, 1), now=10.0)
    for at in (10.5, 11.0, 11.5):
        gaps.heard(0, at)
    assert gaps.longest(11.5) == 1.5, "publisher 1 has said nothing"
    gaps.heard(1, 11.6)
    assert gaps.longest(11.6) == pytest.approx(1.6)
    gaps.heard(7, 20.0)  # no node of ours
    assert gaps.longest(11.7) == pytest.approx(1.6)


def test_an_honest_node_that_is_in_no_view_is_out() -> None:
    from attacks.bystander import Absence

    absence = Absence({"a", "b"}, now=0.0)
    absence.look(["a", "b", "c"], excluded=False, now=1.0)
    assert (absence.longest(), absence.seen) == (0.0, {"a", "b", "c"})
    absence.look(["a"], excluded=False, now=3.0)
    absence.look(["a", "b"], excluded=False, now=4.0)
    assert absence.longest() == 2.0
    absence.look(["a", "b"], excluded=True, now=9.0)
    assert absence.longest() == 5.0


def test_lines_of_a_kind_are_counted_together_and_those_of_the_audit_apart() -> None:
    from attacks.bystander import Lines

    lines = Lines()

    def log(name: str, said: str) -> None:
        lines.emit(logging.LogRecord(name, logging.WARNING, "", 0, said, None, None))

    log("cubecast", "node 4 said 17")
    log("cubecast", "node 5 said 18")
    log("cubecast.audit", "refused 127.0.0.1:80")
    assert lines.log == {"node 4 said 17": 2}
    assert lines.audit == {"refused 127.0.0.1:80": 1}


def report(**changed: Any) -> dict[str, Any]:
    """What an honest node tells that saw nothing."""
    quiet: dict[str, Any] = {
        "seen": ["a", "b"], "cluster": "one", "foreign": 0, "disorder": 0, "lost": 0, "out_s": 0.0,
        "fresh": {}, "events": {}, "log": {}, "audit": {},
    }  # fmt: skip
    return {**quiet, **changed}


@pytest.mark.parametrize(
    ("changed", "got"),
    [
        ({}, {}),
        ({"foreign": 2}, {"forged messages": 2}),
        ({"disorder": 1}, {"messages out of order": 1}),
        ({"seen": ["a", "b", "mallory"]}, {"intruders": 1}),
        ({"cluster": "another"}, {"clusters too many": 1}),
    ],
)
def test_the_table_tells_what_an_attack_got(changed: dict[str, Any], got: dict[str, int]) -> None:
    from attacks.scene import Scene
    from attacks.table import table
    from attacks.trial import _row
    from siege.terms import Terms

    scene = Scene(Terms("", "", 0), ["a", "b"], [], Random(0))
    row = _row("try", 1.0, 0.5, None, scene, [report(), report(**changed)])
    assert row.got == got
    line = table([row]).splitlines()[1]
    assert all(name in line for name in got)
    assert "500 ms" in line
    assert "never" in line, "no node joined"


# -- the program -----------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAMS / "bench_attacks.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_three_attacks_get_nothing_and_are_told(tmp_path: Path) -> None:
    out = tmp_path / "attacks.json"
    names = ["relay of clients", "epoch", "beacon"]
    done = run("--only", ",".join(names), "--seconds", "0.5", "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = {row["attack"]: row for row in json.loads(out.read_text())}
    assert list(rows) == ["control", *names]
    for row in rows.values():
        assert (row["got"], row["lost"]) == ({}, 0), done.stdout
        times = [row[f"{what}_s"] for what in ("subscribe", "publish", "hear", "join")]
        assert None not in times, done.stdout
    said = {name: " ".join(rows[name]["log"]) for name in names}
    assert "secret is not the same" in said["relay of clients"]
    assert "closing connection to node 4" in said["epoch"]
    assert "none of which was here before" in said["beacon"]
    for name in rows:
        assert re.search(rf"^{name} .* ms", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--only", "epoch,ghosts"), "--only has ghosts"), (("--patience", "0"), "must be positive")],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]


# -- the page --------------------------------------------------------------------------------------


def section() -> str:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(SECTION)
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def test_every_attack_of_the_page_is_in_the_program_and_the_other_way_round() -> None:
    from attacks.table import ATTACKS

    told = re.findall(r"^\| `([^`]+)` \|", section(), re.MULTILINE)
    assert sorted(told) == sorted(set(ATTACKS) - CONTROLS)


def test_every_attack_of_the_page_has_its_figures() -> None:
    from attacks.table import ATTACKS

    for name in ATTACKS:
        assert re.search(rf"^ *{name} +[\d,]+ ms", section(), re.MULTILINE), name
