"""The core owns no clock, socket, thread, file or random source ([STYLE] "one pure core")."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from support.purity import PURE, SRC, called_builtins, imported_modules

CORE = [*sorted((SRC / "protocol").rglob("*.py")), SRC / "topology.py"]


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_core_imports_nothing_of_the_world(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    foreign = {
        name
        for name in imported_modules(tree)
        if name not in PURE and not name.startswith("cubecast.protocol")
    }
    assert not foreign
    assert not called_builtins(tree)


def test_the_rule_would_notice_a_clock() -> None:
    tree = ast.parse("import time\nfrom random import random\nopen('x')")
    assert imported_modules(tree) - PURE == {"time", "random"}
    assert called_builtins(tree) == {"open"}


def test_the_whole_core_is_looked_at() -> None:
    assert {"topic", "node", "causal", "vcube_ps", "topology"} <= {path.stem for path in CORE}
    assert sys.version_info >= (3, 11)
