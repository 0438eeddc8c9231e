"""An experiment and its rows, made by hand, for tests of verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from cubecast.lab.cells import Value
from cubecast.lab.experiment import parse
from cubecast.lab.verdicts import Row, Verdict, judge

GRID = """[grid]
protocol = ["vcube-ps", "srpt"]
nodes = [8, 16, 32, 64]
"""
HEAD = f"""
id = "x"
title = "A test"
source = "here"
workload = "single-publisher"
metrics = ["latency_mean", "pub_messages"]
[seeds]
full = 2
{GRID}[[paper]]
section = "[J] 4.1"
what = "something"
metric = "latency_mean"
reason = "Because."
"""


def row(protocol: str, nodes: int, mean: float, ci: float = 0.0, **more: Value) -> Row:
    metric = str(more.pop("metric", "latency_mean"))
    return Row("x", {"protocol": protocol, "nodes": nodes, **more}, metric, mean, ci, 5)


ROWS = [
    row("vcube-ps", 8, 100, 3.0),
    row("srpt", 8, 250, 10.0),
    row("vcube-ps", 16, 150),
    row("srpt", 16, 300),
    row("vcube-ps", 32, 200),
    row("srpt", 32, 500),
    row("srpt", 8, 40, metric="pub_messages"),
]
AT_8 = 'at = { protocol = "srpt", nodes = 8 }\n'
OVER = 'versus = { protocol = "vcube-ps" }\n'


def with_points(text: str, rows: Iterable[Row]) -> str:
    """The experiment with a grid of these points: a value that many points give needs them all."""
    points = {(one.settings["protocol"], one.settings["nodes"]) for one in rows}
    blocks = [f'[[grid]]\nprotocol = ["{name}"]\nnodes = [{nodes}]\n' for name, nodes in points]
    return text.replace(GRID, "".join(sorted(blocks))) if "fold =" in text and blocks else text


def verdict(text: str, rows: list[Row] | None = None) -> Verdict:
    rows = ROWS if rows is None else rows
    (found,) = judge(parse(with_points(HEAD + text, rows), "x.toml"), rows)
    return found
