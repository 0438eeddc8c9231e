"""Traces of several nodes, merged: own order kept, causes first, clocks not trusted."""

from __future__ import annotations

import random

from cubecast.trace import Record, check, merge


def record(kind: str, time: int, node: int, ident: str | None = None) -> Record:
    return Record(kind, time, node, "t", ident)  # type: ignore[arg-type]


def run(seed: int, nodes: int = 4, messages: int = 40) -> list[list[Record]]:
    """A correct run: everyone delivers everything in one order; every clock is wrong by itself."""
    dice = random.Random(seed)
    traces = [[record("join", 0, node)] for node in range(nodes)]
    published: list[str] = []
    delivered = [0] * nodes
    while min(delivered) < messages:
        node = dice.randrange(nodes)
        time = traces[node][-1].time + dice.choice((0, 0, 1, 50))
        if len(published) < messages and dice.random() < 0.3:
            published.append(f"m{len(published)}")
            traces[node].append(record("publish", time, node, published[-1]))
        elif delivered[node] < len(published):
            traces[node].append(record("deliver", time, node, published[delivered[node]]))
            delivered[node] += 1
    return traces


def test_every_node_keeps_its_order_whatever_the_clocks_say() -> None:
    for seed in range(20):
        traces = run(seed)
        merged = list(merge(traces))
        for node, trace in enumerate(traces):
            assert [one for one in merged if one.node == node] == trace
        report = check(merged, ["no-creation", "no-duplication", "fifo", "causal-order"])
        assert report.ok, f"seed {seed}: {report}"
        assert report.deliveries == 4 * 40


def test_two_deliveries_in_the_wrong_order_are_still_found() -> None:
    traces = [
        [record("join", 0, 0), record("publish", 9, 0, "question")],
        [record("join", 0, 1), record("deliver", 5, 1, "question"), record("publish", 6, 1, "ans")],
        [record("join", 0, 2), record("deliver", 1, 2, "ans"), record("deliver", 2, 2, "question")],
    ]
    merged = list(merge(traces))
    kinds = [(one.kind, one.node) for one in merged if one.kind != "join"]
    assert kinds.index(("publish", 0)) < kinds.index(("deliver", 1))
    assert check(merged, ["causal-order"]).counts == {"causal-order": 1}
    assert check(merged, ["no-creation"]).ok


def test_an_unpublished_delivery_is_kept_and_found() -> None:
    traces = [
        [record("join", 0, 0), record("deliver", 1, 0, "ghost"), record("publish", 2, 0, "after")],
        [record("join", 0, 1), record("deliver", 3, 1, "after")],
    ]
    merged = list(merge(traces))
    assert len(merged) == 5
    assert check(merged, ["no-creation"]).counts == {"no-creation": 1}


def test_by_time_where_nothing_else_decides() -> None:
    traces = [
        [record("join", time, node) for time in times]
        for node, times in enumerate(((1, 4, 4), (2, 4), ()))
    ]
    assert [(one.time, one.node) for one in merge(traces)] == [
        (1, 0),
        (2, 1),
        (4, 0),
        (4, 0),
        (4, 1),
    ]
