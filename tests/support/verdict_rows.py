"""An experiment and its rows, made by hand, for tests of verdicts."""

from __future__ import annotations

from cubecast.lab.cells import Value
from cubecast.lab.experiment import parse
from cubecast.lab.verdicts import Row, Verdict, judge

HEAD = """
id = "x"
title = "A test"
source = "here"
workload = "single-publisher"
metrics = ["latency_mean", "pub_messages"]
[seeds]
full = 2
[grid]
protocol = ["vcube-ps", "srpt"]
nodes = [8, 16, 32, 64]
[[paper]]
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


def verdict(text: str, rows: list[Row] | None = None) -> Verdict:
    (found,) = judge(parse(HEAD + text, "x.toml"), ROWS if rows is None else rows)
    return found
