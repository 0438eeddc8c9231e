"""The checkers can fail: every broken version of the protocol is caught, by the right property.

Storms catch all of them within a stated number of seeds; the unbroken protocol goes through the
same storms unharmed.  Where a small case is enough the explorer catches them too, without chance.
"""

from __future__ import annotations

import pytest

from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.config import Config
from cubecast.protocol.port import NodeId, Port, Process
from cubecast.testing.explorer import Case, Rules, Step, explore
from support import mutants
from support.mutants import MUTANTS, Mutant, symptoms_of

MOST_STORMS = max(mutant.within for mutant in MUTANTS)
CALM = Rules(ordered=frozenset({"parcel"}), urgent=frozenset({"ack", "parcel-ack"}))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_storms_catch(mutant: Mutant) -> None:
    seen: set[str] = set()
    for seed in range(mutant.within):
        seen |= symptoms_of(mutant.node_class, seed)
        if mutant.symptom in seen:
            return
    pytest.fail(f"{mutant.about} No {mutant.symptom} in {mutant.within} storms, only {seen}")


@pytest.mark.parametrize("block", range(4))
def test_the_unbroken_protocol_survives_the_same_storms(block: int) -> None:
    for seed in range(block, MOST_STORMS, 4):
        assert not symptoms_of(CubecastNode, seed), f"storm {seed}"


def test_there_are_enough_mutants_and_they_break_every_property() -> None:
    assert len(MUTANTS) >= 20
    symptoms = {mutant.symptom for mutant in MUTANTS}
    assert symptoms >= {
        "causal-order", "completeness", "membership", "no-duplication", "bounded-state",
        "crash", "restless", "kept",
    }  # fmt: skip


def publish(node: NodeId, name: str, *after: str) -> Step:
    return Step(node, "publish", name, after)


def idle(process: Process) -> str | None:
    load = process.load()
    return f"keeps {load}" if any(load) else None


TALK = (publish(0, "a"), publish(1, "b", "a"), publish(2, "c"))
JOIN = (publish(0, "a"), Step(2, "subscribe"))
LEAVE = (publish(0, "a"), Step(2, "unsubscribe"))
OUTSIDER = (Step(0, "subscribe"), Step(2, "register"), publish(2, "a"))
BURST = (publish(0, "a"), publish(0, "b"), publish(0, "c"))
HOLE_8 = (publish(2, "a"), publish(0, "b", "a"), publish(1, "c", "b"), Step(3, "subscribe"))
COPY = Rules(ordered=CALM.ordered, urgent=CALM.urgent, duplicates=1)

SMALL_CASES = [
    (mutants.SkipsTheBarrier, TALK, 0b111, CALM, "causal-order"),
    (mutants.SendsNoBarrier, TALK, 0b111, CALM, "causal-order"),
    (mutants.DependsOnTheLastDeliveryOnly, TALK, 0b111, CALM, "causal-order"),
    (mutants.DropsABranch, TALK, 0b111, CALM, "completeness"),
    (mutants.ReusesANumber, (*BURST, publish(0, "d")), 0b111, CALM, "completeness"),
    (mutants.DeliversTwice, TALK[:1], 0b111, CALM, "no-duplication"),
    (mutants.IgnoresItsCredit, BURST, 0b111, CALM, "bounded-state"),
    (mutants.NeverForgets, BURST, 0b111, CALM, "bounded-state"),
    (mutants.CutsPerPublisher, HOLE_8, 0b0111, CALM, "causal-order"),
    (mutants.ReturnsBeforeTheWave, JOIN, 0b011, CALM, "completeness"),
    (mutants.DoesNotAddressTheNewcomer, JOIN, 0b011, CALM, "completeness"),
    (mutants.TrustsOldAnswers, OUTSIDER, 0, CALM, "completeness"),
    (mutants.DeliversAfterLeaving, LEAVE, 0b1111, CALM, "membership"),
    (mutants.StopsRelayingWhenItLeaves, LEAVE, 0b1111, CALM, "restless"),
    (mutants.ReleasesLeaversAtOnce, LEAVE, 0b1111, CALM, "restless"),
    (mutants.HandsParcelsUpTwice, LEAVE, 0b1111, COPY, "crash"),
]


@pytest.mark.parametrize(
    ("node_class", "steps", "members", "rules", "what"),
    SMALL_CASES,
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_the_explorer_catches(
    node_class: type[CubecastNode], steps: tuple[Step, ...], members: int, rules: Rules, what: str
) -> None:
    nodes = max(3, members.bit_length(), 1 + max(step.node for step in steps))
    window = 1 if what == "bounded-state" else 64

    def case(kind: type[CubecastNode]) -> Case:
        config = Config(window=window, ack_delay=0, stable_delay=0, resend_after=2, patience=0)

        def make(node: NodeId, port: Port) -> Process:
            return kind(node, port, cluster=(1 << nodes) - 1, config=config)

        return Case(nodes, make, steps, {"t": members} if members else {}, rules, idle)

    assert what in explore(case(node_class)).counts
    assert explore(case(CubecastNode)).ok
