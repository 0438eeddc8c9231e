"""The walk of a publication in docs/design.md: a run calls what it names, in that order."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cubecast.testing import Cluster, on_virtual_time
from support.paths import ROOT

DESIGN = ROOT / "docs" / "design.md"


def named(begin: str, end: str) -> list[str]:
    """The methods that the walk names between two of its words, as Class.method."""
    text = DESIGN.read_text(encoding="utf-8").split("**The walk of a publication.**")[1]
    part = text[text.index(begin) : text.index(end)]
    return re.findall(r"`([A-Z]\w+\.\w+)`", part)


@contextmanager
def calls() -> Iterator[list[str]]:
    """The methods of cubecast that are called, in order."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "cubecast" in frame.f_code.co_filename:
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def follows(seen: list[str], walk: list[str]) -> list[str]:
    """What of a walk is left when the calls were followed as far as they go along it."""
    left = list(walk)
    for call in seen:
        if left and call == left[0]:
            left.pop(0)
    return left


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
        with calls() as seen:
            await cluster[0].publish("t", "walks")
            assert (await anext(messages)).payload == b"walks"
    # The subscription waits before the message is on its way.
    assert follows(seen, at_publisher) == []
    assert follows(seen, [one for one in at_member if one != "Subscription.__anext__"]) == []
    assert "Subscription.__anext__" in seen


def test_a_walk_that_is_not_taken_is_found() -> None:
    assert follows(["A.a", "B.b", "C.c"], ["A.a", "C.c", "B.b"]) == ["B.b"]
