"""The walks in docs/design.md: a run calls the functions that they name, in that order."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from cubecast import lab
from cubecast.lab.request import ask
from cubecast.net.events import ConnectionLost, Discarded, MemberLeft
from cubecast.testing import Cluster, on_virtual_time
from support.walks import DESIGN, as_called, at, calls, functions, walk

# -- a publication ---------------------------------------------------------------------------------


def named(begin: str, end: str) -> list[str]:
    """The methods that the walk names between two of its words, as Class.method."""
    text = DESIGN.read_text(encoding="utf-8").split("**The walk of a publication.**")[1]
    part = text[text.index(begin) : text.index(end)]
    return re.findall(r"`([A-Z]\w+\.\w+)`", part)


@on_virtual_time
async def test_a_publication_takes_the_walk_that_the_design_describes() -> None:
    at_publisher = named("At the publisher", "At every other member")
    at_member = named("At every other member", "ACKs go back")
    assert (at_publisher[0], at_member[-1]) == ("Node.publish", "Subscription.__anext__")
    async with (
        Cluster(2) as cluster,
        cluster[0].subscribe("t"),
        cluster[1].subscribe("t") as messages,
    ):
        with calls() as made:
            await cluster[0].publish("t", "walks")
            assert (await anext(messages)).payload == b"walks"
    seen = [call.function.partition(".")[2] for call in made]
    assert as_called(at_publisher, seen) == at_publisher
    *in_order, last = at_member
    assert as_called(in_order, seen) == in_order
    assert last in seen  # The subscription waits before the message is on its way.


# -- a crash ---------------------------------------------------------------------------------------

LEADER, HEIR, LACKING, DEAD = range(4)
LATER_S = 0.001
"""Longer than a packet takes, shorter than the pause before a repair."""


@on_virtual_time
async def test_a_crash_takes_the_walk_that_the_design_describes() -> None:
    """Of the dead node's messages the second is at the heir alone, and the third at no survivor;
    the fourth is at the heir, where it waits for the third."""
    at_tester, at_leader, at_survivor, at_heir, at_lacking = walk("The walk of a crash")
    async with (
        Cluster(4) as cluster,
        cluster[HEIR].subscribe("t") as at_hand,
        cluster[LACKING].subscribe("t") as inherited,
    ):
        events, dead = cluster[HEIR].events(), cluster[DEAD]
        await dead.publish("t", "first")
        await cluster.settle()
        cluster.cut(DEAD, LACKING, one_way=True)
        await dead.publish("t", "second")
        await asyncio.sleep(LATER_S)
        cluster.cut(DEAD, HEIR, one_way=True)
        await dead.publish("t", "third")
        await asyncio.sleep(LATER_S)
        cluster.hinder(DEAD, HEIR, cut=False)
        await dead.publish("t", "fourth")
        await asyncio.sleep(LATER_S)
        with calls() as made:
            cluster.kill(DEAD)
            await cluster.settle()
            await asyncio.sleep(1)  # the heir hears that all have the stream
        for messages in (at_hand, inherited):
            assert [(await anext(messages)).payload for _ in range(2)] == [b"first", b"second"]
        lost, left, discarded = [await anext(events) for _ in range(3)]
    assert isinstance(lost, ConnectionLost)
    assert left == MemberLeft(DEAD, crashed=True)
    assert discarded == Discarded("t", {DEAD: [(3, 3)]})
    for slot in (HEIR, LACKING):
        assert as_called(at_tester, at(slot, made)) == at_tester
        assert as_called(at_survivor, at(slot, made)) == at_survivor
    assert as_called(at_leader, at(LEADER, made)) == at_leader
    assert as_called(at_heir, at(HEIR, made)) == at_heir
    assert as_called(at_lacking, at(LACKING, made)) == at_lacking


# -- a lab cell ------------------------------------------------------------------------------------

EXPERIMENT = """
id = "mine"
title = "Two sizes"
source = "ours"
workload = "single-publisher"
metrics = ["pub_messages"]
seeds = { full = 2, quick = 2 }
fixed = { protocol = "vcube-ps", engine = "reference" }
grid = { nodes = [8, 16] }

[[plot]]
title = "Messages"
x = "nodes"
y = "pub_messages"

[[paper]]
section = "1"
what = "a message to each of the others"
value = 15.0
metric = "pub_messages"
at = { nodes = 16 }
tolerance = 0.0
"""


def test_a_lab_cell_takes_the_walk_that_the_design_describes(tmp_path: Path) -> None:
    """Cells that a plain loop measures are there for `lab.run`, which then needs no Spark; the two
    parts on Spark are followed in tests/lab/test_lab_run.py."""
    for extra in ("pyspark", "matplotlib"):
        pytest.importorskip(extra)
    from support.plain_sweep import sweep

    in_driver, _, on_executor, _, in_report = walk("The walk of a lab cell")
    mine, out = tmp_path / "mine.toml", tmp_path / "out"
    mine.write_text(EXPERIMENT, encoding="utf-8")
    with calls() as made:
        sweep(ask([mine]), out)
    seen = functions(made)
    in_task = seen[seen.index(on_executor[0]) :]
    assert as_called(on_executor, in_task) == on_executor
    with calls() as made:
        ran = lab.run(mine, out=out)
    assert (ran.ran, ran.kept) == (0, 4)
    assert as_called(in_driver, functions(made)) == in_driver
    with calls() as made:
        (verdict,) = ran.verdicts
        (axes,) = ran.figure().axes
    assert as_called(in_report, functions(made)) == in_report
    assert verdict.verdict == "reproduced"
    assert next(list(line.get_ydata()) for line in axes.get_lines()) == [7.0, 15.0]


# -- walks that are not taken ----------------------------------------------------------------------


@pytest.mark.parametrize("part", [["a", "c", "b"], ["a", "b", "renamed"], ["a", "b", "c", "d"]])
def test_a_walk_that_is_not_taken_is_found(part: list[str]) -> None:
    seen = ["a", "other", "b", "a", "c", "b", "c"]
    assert as_called(["a", "b", "c"], seen) == ["a", "b", "c"]
    assert as_called(part, seen) != part


PAGE = """
**Another walk.** Here:

1. `m.other` does something else.

**The walk.** Here:

1. `m.f` calls `m.x`.
2. `m.C.g` does the rest.

There:

3. `m.f` does the same.

### What is no walk

1. `m.g`
"""


def test_a_page_lists_the_parts_of_a_walk(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert walk("The walk", page) == [["m.f", "m.C.g"], ["m.f"]]
    page.write_text(PAGE.replace("2. `m.C.g`", "2. It"), encoding="utf-8")
    with pytest.raises(AssertionError, match="a line names none"):
        walk("The walk", page)
