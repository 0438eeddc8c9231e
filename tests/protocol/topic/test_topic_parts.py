"""The parts of a topic keep to themselves: nothing sets the attributes of another part."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cubecast import protocol
from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.topic import topic

PROTOCOL = Path(protocol.__file__).parent
CALLERS = ("cluster/node.py", "subscriptions/membership.py", "subscriptions/discovery.py")
LOOKED_AT = [
    *sorted((PROTOCOL / "topic").glob("*.py")),
    PROTOCOL / "explain.py",
    *(PROTOCOL / name for name in CALLERS),
]
RECORDS = {"inbox", "branch", "old"}
"""An `Inbox` and a `Branch` are what parts keep, and no parts."""
NEIGHBOURS = {"_waves", "_links"}
"""What a node has besides its topics."""


def foreign_settings(source: str) -> list[str]:
    """Assignments to the attribute of something that is neither the object itself nor a record."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        flat = [one for t in targets for one in (t.elts if isinstance(t, ast.Tuple) else [t])]
        found += [
            ast.unparse(one)
            for one in flat
            if isinstance(one, ast.Attribute) and not _is_own(one.value)
        ]
    return found


def _is_own(owner: ast.expr) -> bool:
    if isinstance(owner, ast.Attribute):
        return owner.attr in NEIGHBOURS | RECORDS
    return isinstance(owner, ast.Name) and owner.id in {"self", *RECORDS}


@pytest.mark.parametrize("path", LOOKED_AT, ids=lambda path: path.stem)
def test_nothing_sets_an_attribute_of_a_part_from_outside(path: Path) -> None:
    assert foreign_settings(path.read_text(encoding="utf-8")) == []


def test_the_rule_would_notice() -> None:
    planted = "core.outgoing.refused = True\nself._reading.taking, x = 1, 2\nview.epoch += 1"
    assert foreign_settings(planted) == [
        "core.outgoing.refused",
        "self._reading.taking",
        "view.epoch",
    ]
    assert foreign_settings("self.taking = True\ninbox.next = 3") == []


class Mute:
    """A port that goes nowhere."""

    def __getattr__(self, name: str) -> object:
        return lambda *args: None


def test_a_topic_is_made_of_the_parts_that_its_module_lists() -> None:
    """And each has slots, so that nothing can be added to it either."""
    node = CubecastNode(0, Mute(), cluster=1, marks=BranchCounts())  # type: ignore[arg-type]
    core = node.membership_of("t").core
    parts = {name: getattr(core, name) for name in type(core).__slots__ if name != "topic"}
    listed = topic.__doc__ or ""
    for part in parts.values():
        assert not hasattr(part, "__dict__"), part
        if type(part).__name__ != "CausalFront":  # it belongs to the table
            assert type(part).__name__ in listed, part
