"""Broken recoveries, to see that chaos notices.

Each is the production protocol with one idea of its recovery removed.  `catch` says at which seed
and by which property it is given away; the properties are those of `cubecast.sim.chaos.Verdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from cubecast.protocol.member import TO_ANYONE, Member
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import Message, NodeId, Seq, Stream, Time
from cubecast.protocol.recovery import RecoveringTopic
from cubecast.protocol.streams import Inbox
from cubecast.protocol.views import Final, View
from cubecast.sim.chaos import Population, draw_schedule, run_schedule
from cubecast.sim.protocols import members

SEEDS = 500


class Caught(NamedTuple):
    """The first schedule that a mutant does not survive, and what it breaks there."""

    seed: int
    properties: frozenset[str]


def catch(
    mutant: Population | type[Member],
    seeds: int = SEEDS,
    first: int = 0,
    by: frozenset[str] = frozenset(),
) -> Caught | None:
    """Run seeds until one gives the mutant away, `by` one of these properties or by any.

    ``catch(lambda params: members(params, Broken))``, or ``catch(Broken)`` for a class of members.
    None if no seed does.
    """
    people = _people(mutant) if isinstance(mutant, type) else mutant
    for seed in range(first, first + seeds):
        verdict = run_schedule(draw_schedule(seed), people)
        if not verdict.ok and (not by or by & verdict.failures.keys()):
            return Caught(seed, frozenset(verdict.failures))
    return None


def _people(kind: type[Member]) -> Population:
    return lambda params: members(params, kind)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken member, and properties of which one must show."""

    kind: type[Member]
    symptoms: frozenset[str]

    @property
    def name(self) -> str:
        return self.kind.__name__


MUTANTS: list[Mutant] = []


def mutant(*symptoms: str) -> Callable[[type[Member]], type[Member]]:
    """Register a class of members that must break one of these properties."""

    def register(kind: type[Member]) -> type[Member]:
        MUTANTS.append(Mutant(kind, frozenset(symptoms)))
        return kind

    return register


def of_topics(topic_class: type[RecoveringTopic]) -> type[CubecastNode]:
    """A core whose topics are of this class."""
    return type("Core", (CubecastNode,), {"core_class": topic_class})


# -- suspicion and views ---------------------------------------------------------------------------


@mutant("liveness", "convergence")
class NeverSuspects(Member):
    """Waits for the dead for ever."""

    def _on_suspects(self, suspects: int, now: Time) -> None:
        pass


@mutant("liveness", "convergence", "completeness")
class NeverReturns(Member):
    """Learns that it was excluded and stays where it is."""

    def _return_to(self, view: View, now: Time) -> None:
        pass


@mutant("raised", "no-duplication", "completeness", "liveness", "kept", "convergence")
class HearsOldLives(Member):
    """Takes a message of an earlier life for one of the present life."""

    def on_packet(self, message: Message, sender: NodeId, seal: Any, now: Time) -> None:
        if isinstance(message, TO_ANYONE):
            super().on_packet(message, sender, seal, now)
        else:
            self.on_message(message, sender, now)


# -- the streams of the dead -----------------------------------------------------------------------


class Unfrozen(RecoveringTopic):
    def freeze(self, stream: Stream) -> None:
        pass


@mutant("agreement", "loss-reports", "completeness", "raised", "kept", "liveness")
class NeverFreezes(Member):
    """Goes on delivering a dead stream after it has reported what it has of it."""

    core_class = of_topics(Unfrozen)


class OwnEnd(RecoveringTopic):
    def end_stream(self, final: Final, now: Time) -> bool:
        reached = min(final.seq, self.front.delivered.get(final.stream, -1))
        return super().end_stream(msgspec.structs.replace(final, seq=reached), now)


@mutant("agreement", "raised")
class EndsWhereItIs(Member):
    """Discards locally: a dead stream ends at whatever was delivered here."""

    core_class = of_topics(OwnEnd)


class Hoarder(RecoveringTopic):
    def _drop_above(self, inbox: Inbox, end: Seq) -> None:
        pass


@mutant("agreement", "completeness", "kept", "liveness", "raised", "quiescence")
class KeepsOrphans(Member):
    """Never discards what lies above the end of a dead stream."""

    core_class = of_topics(Hoarder)


class Childless(RecoveringTopic):
    def _inherit(self, stream: Stream, end: Seq, now: Time) -> None:
        pass


@mutant("agreement", "kept", "liveness", "completeness", "raised")
class FeedsNobody(Member):
    """The heir of a dead stream keeps what the others lack to itself."""

    core_class = of_topics(Childless)
