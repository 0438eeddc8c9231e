"""Nodes that stop for a while: no node below them starves, only lossy subscribers miss messages.

Simulated: storms in which nodes pause, judged by the checkers, and broken versions of the
handling that the same storms must catch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.messages import Answer, Direct, Parcel, Suspended
from cubecast.protocol.port import NodeId, Port, Process, Seq, Stream
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.protocol.topic.incoming import Incoming
from cubecast.protocol.topic.laggards import Laggards, PlaceChanges
from cubecast.protocol.topic.outgoing import Outgoing
from cubecast.protocol.topic.streams import Branch, Inbox
from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS
from cubecast.testing.explorer import Case, Rules, Step, explore
from support.mutants import AnswersForItself, of_parts, symptoms_of

LAGGARDS = SCENARIOS["laggards"]


@pytest.mark.parametrize("block", range(4))
def test_fifty_runs_with_pauses(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        assert not symptoms_of(CubecastNode, seed, LAGGARDS), f"laggards {seed}"


def test_the_runs_contain_what_they_are_meant_to() -> None:
    params = Params().with_(LAGGARDS.defaults)
    outcomes = [run(LAGGARDS, "cubecast", params, seed) for seed in range(40)]
    assert sum(outcome.metrics["gaps"] > 0 for outcome in outcomes) > 10
    assert any(outcome.params.loss for outcome in outcomes)
    assert sum(len(outcome.params.pauses) for outcome in outcomes) > 60


# -- leaves, and suspended subscribers -----------------------------------------------------------


def test_a_slow_member_becomes_a_leaf_and_returns() -> None:
    laggards = Laggards(Config(leaf_for=100))
    assert laggards.judge(0b0010, 0b1110, False, 50) == PlaceChanges(0b0010, 0)
    assert laggards.check_at == 150
    assert laggards.reconsider(0b0010, 150) == 0
    assert laggards.reconsider(0, 250) == 0b0010
    assert (laggards.leaves, laggards.check_at) == (0, None)


def test_only_a_lossy_member_is_suspended_and_only_without_credit() -> None:
    laggards = Laggards(Config())
    laggards.lossy = 0b0010
    assert laggards.judge(0b0010, 0b1110, False, 0) == PlaceChanges(0b0010, 0)
    assert laggards.judge(0b0110, 0b1110, True, 0) == PlaceChanges(0b0100, 0b0010)
    assert laggards.judge(0b0110, 0b1110, True, 0) == PlaceChanges(0, 0)


def test_at_most_a_quarter_are_leaves() -> None:
    laggards = Laggards(Config())
    everyone = (1 << 16) - 1
    demoted, _ = laggards.judge(everyone, everyone, False, 0)
    assert demoted.bit_count() == laggards.leaves.bit_count() == 4
    assert laggards.judge(everyone, everyone, False, 0) == PlaceChanges(0, 0)


def test_joining_clears_the_record() -> None:
    laggards = Laggards(Config())
    laggards.lossy = 0b0010
    laggards.judge(0b0010, 0b1110, True, 0)
    laggards.forget(1)
    assert (laggards.leaves, laggards.suspended, laggards.lossy) == (0, 0, 0)


class Tolerant(CubecastNode):
    """Would rather miss messages, whatever it subscribes to."""

    def subscribe(self, topic: str, now: int, lossy: bool = True) -> None:
        super().subscribe(topic, now, lossy)


def two_nodes(rules: Rules) -> Case:
    """Node 1 joins; node 0 has credit for one message, and its timers may fire at any time."""
    config = Config(window=1, ack_delay=0, stable_delay=0, resend_after=2, patience=1, leaf_for=2)

    def make(node: NodeId, port: Port) -> Process:
        kind = Tolerant if node == 1 else CubecastNode
        return kind(node, port, cluster=0b11, config=config)

    def at_rest(process: Process) -> str | None:
        return f"keeps {process.load()}" if any(process.load()) else None

    steps = (Step(1, "subscribe"), Step(0, "publish", "a"), Step(0, "publish", "b"))
    return Case(2, make, steps, {"t": 0b01}, rules, at_rest)


@pytest.mark.parametrize("urgent", [{"parcel-ack"}, {"parcel-ack", "ack"}])
def test_every_interleaving_of_a_suspension(urgent: set[str]) -> None:
    rules = Rules(ordered=frozenset({"parcel"}), urgent=frozenset(urgent), early_wakes=2)
    exploration = explore(two_nodes(rules))
    assert exploration.ok, exploration
    kinds = {
        entry.note.kind for outcome in exploration.outcomes for past in outcome for entry in past
    }
    assert "gap" in kinds, "no subscriber was ever suspended"


class Noting:
    """A port that notes gaps and forgets the rest."""

    def __init__(self) -> None:
        self.gaps: list[dict[Stream, tuple[Seq, Seq]]] = []

    def gap(self, topic: str, skipped: dict[Stream, tuple[Seq, Seq]]) -> None:
        self.gaps.append(skipped)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: True


def test_a_subscriber_that_becomes_strict_waits_for_the_jump_that_is_due() -> None:
    """Node 0 went on without node 1 just before it heard that node 1 is not lossy any more."""
    port, publisher = Noting(), Stream(0, 0)
    node = CubecastNode(1, port, cluster=0b11, config=Config())

    def say(number: int, message: Answer | Suspended) -> None:
        node.on_message(Parcel(number, message), 0, 10)

    def answer(wave: int, sent: int) -> Answer:
        return Answer("t", 1, wave, ((publisher, sent),), 0)

    node.subscribe("t", 0, True)
    say(0, answer(0, 3))
    node.subscribe("t", 5, False)
    say(1, Suspended("t", publisher, 0))
    say(2, answer(1, 6))
    assert node.is_lossy("t")
    assert port.gaps == []
    say(3, answer(2, 8))
    assert port.gaps == [{publisher: (4, 8)}]
    assert not node.is_lossy("t")


class Fickle(CubecastNode):
    """Changes its mind eight times about whether it would rather miss messages."""

    wakes = changes = 0

    def on_wake(self, now: int) -> None:
        super().on_wake(now)
        self.wakes += 1
        if self.wakes % 7 == 0 and self.changes < 8 and self.wants.get("t") is not None:
            self.changes += 1
            self.subscribe("t", now, not self.wants["t"])

    @property
    def wants(self) -> dict[str, bool]:
        return self.__dict__.setdefault("_wants", {})

    def subscribe(self, topic: str, now: int, lossy: bool = False) -> None:
        self.wants[topic] = lossy
        super().subscribe(topic, now, lossy)

    def unsubscribe(self, topic: str, now: int) -> None:
        self.wants.pop(topic, None)
        super().unsubscribe(topic, now)


def test_fifty_runs_with_pauses_and_changes_of_mind() -> None:
    for seed in range(50):
        # Any of them may be lossy for a while, so a gap is no wonder anywhere.
        assert symptoms_of(Fickle, seed, LAGGARDS) <= {"gap"}, f"laggards {seed}"


# -- broken versions -----------------------------------------------------------------------------


class Ruthless(Laggards):
    __slots__ = ()

    def judge(self, slow: int, members: int, out_of_credit: bool, now: int) -> PlaceChanges:
        self.lossy = members
        return super().judge(slow, members, out_of_credit, now)


class SuspendsAnyone(Outgoing):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.laggards = Ruthless(self._context.config)


class Secretive(Outgoing):
    """Goes on without a member and does not tell it."""

    def on_slow(self, inbox: Inbox, branch: Branch, slow: int, now: int) -> None:
        links = self._context.links
        send = links.send
        links.send = lambda peer, message, now: (  # type: ignore[method-assign]
            None if isinstance(message, Suspended) else send(peer, message, now)
        )
        super().on_slow(inbox, branch, slow, now)
        del links.send  # type: ignore[method-assign]


class Sentimental(Outgoing):
    """Suspends a member and still waits for it in the routes before."""

    def feed_directly(self, inbox: Inbox, branch: Branch, now: int) -> None:
        branch.without = 0
        super().feed_directly(inbox, branch, now)


class Credulous(Incoming):
    """Takes late frames of routes that it was suspended from."""

    def on_suspended(self, stream: Stream, route: int) -> bool:
        again = super().on_suspended(stream, route)
        self._streams.lost_routes.clear()
        return again


class Proud(Incoming):
    """Keeps its place in a tree that the publisher gave up."""

    def on_direct(self, news: Direct, sender: NodeId, now: int) -> None:
        inbox = self._inboxes.get(news.stream)
        branch = inbox.branches.get(news.route) if inbox is not None else None
        if branch is None:
            super().on_direct(news, sender, now)


class Unmoved(Membership):
    """Hears that it was suspended and does nothing about it."""

    def on_suspended(self, news: Suspended, now: int) -> None:
        self.core.incoming.on_suspended(news.stream, news.route)


class Silent(Membership):
    """Jumps and does not say so."""

    def _skipped(
        self, reached: Mapping[Stream, Seq], cut: dict[Stream, Seq]
    ) -> dict[Stream, tuple[Seq, Seq]]:
        self.core.front.raise_to(cut)
        return {}


def broken(**parts: Any) -> type[CubecastNode]:
    return type("Broken", (CubecastNode,), parts)


@pytest.mark.parametrize(
    ("node_class", "symptom"),
    [
        (broken(core_class=of_parts(outgoing_class=SuspendsAnyone)), "gap"),
        (broken(core_class=of_parts(outgoing_class=Secretive)), "restless"),
        (broken(core_class=of_parts(outgoing_class=Sentimental)), "restless"),
        (broken(core_class=of_parts(incoming_class=Credulous)), "kept"),
        (broken(core_class=of_parts(incoming_class=Proud)), "restless"),
        (broken(membership_class=Unmoved), "restless"),
        (broken(membership_class=Silent), "completeness"),
        (broken(membership_class=AnswersForItself), "causal-order"),
    ],
    ids=[
        "suspends anyone",
        "does not tell",
        "waits for the suspended",
        "takes late frames",
        "keeps its place",
        "does not join again",
        "does not report the gap",
        "a gap per publisher",
    ],
)
def test_storms_catch(node_class: type[CubecastNode], symptom: str) -> None:
    seen: set[str] = set()
    for seed in range(300):
        seen |= symptoms_of(node_class, seed, LAGGARDS)
        if symptom in seen:
            return
    pytest.fail(f"no {symptom} in 300 runs, only {seen}")
