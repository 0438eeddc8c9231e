"""One name, one meaning: no two classes of src/ share a name, but those listed here."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from support.paths import ROOT

SRC = ROOT / "src" / "cubecast"
PAPERS = "the same message of [J] or [B], by the paper's name, in the protocols that have it"
BLOCKING = "the same without `async`: `cubecast.sync` has the names of `cubecast`"
SHARED = {
    "Ack": (PAPERS, {"protocol.messages", "protocol.paper.state", "protocol.paper.vcube_pb"}),
    "Pub": (PAPERS, {"baselines.best_effort", "baselines.single_root", "protocol.paper.state"}),
    "Sub": (PAPERS, {"baselines.best_effort", "protocol.paper.state"}),
    "Uns": (PAPERS, {"baselines.best_effort", "protocol.paper.state"}),
    "Client": (BLOCKING, {"net.client.client", "sync.facade"}),
    "Node": (BLOCKING, {"net.node.node", "sync.facade"}),
    "Receipt": (BLOCKING, {"net.publishing.receipt", "sync.facade"}),
    "Subscription": (BLOCKING, {"net.reading.subscription", "sync.facade"}),
    "Message": (
        "public twice: what applications read, and what protocols of users send by a port",
        {"net.message", "protocol.port"},
    ),
    "Report": (
        "public as the outcome of a check; on the wire the answer to a `Prepare`",
        {"protocol.cluster.views", "trace.checkers.report"},
    ),
}
"""Names of several classes: why, and where.  A class that is in no place named here needs another
name, by the words of docs/glossary.md."""


def shared_names(root: Path) -> dict[str, set[str]]:
    """The modules of each name that classes of several modules have."""
    found = defaultdict(set)
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].add(module.removesuffix(".__init__"))
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_classes_share_a_name() -> None:
    assert shared_names(SRC) == {name: modules for name, (_, modules) in SHARED.items()}


@pytest.mark.parametrize("name", ["World", "_Search", "Ack"])
def test_a_second_class_of_a_name_is_found(tmp_path: Path, name: str) -> None:
    for module in ("sim/world", "testing/explorer/search", "protocol/messages"):
        copy = tmp_path / f"{module}.py"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((SRC / f"{module}.py").read_bytes())
    assert shared_names(tmp_path) == {}
    (tmp_path / "planted.py").write_text(f"class {name}:\n    pass\n", encoding="utf-8")
    assert "planted" in shared_names(tmp_path)[name]
