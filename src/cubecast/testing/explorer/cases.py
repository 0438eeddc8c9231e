"""Cases to explore, and the results of an exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cubecast.protocol.port import NodeId, Process, Topic
from cubecast.testing.explorer.canonical_forms import PRODUCTION, Likeness
from cubecast.testing.explorer.histories import HistoryEntry
from cubecast.testing.explorer.processes import MakeProcess
from cubecast.trace import Record

Action: TypeAlias = Literal["publish", "subscribe", "unsubscribe", "register", "follow", "depart"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing an application does, once all `after` are delivered at its node.

    With `joined` it also waits until ``subscribe()`` has returned.  An `eager` step is taken in
    the moment its condition holds; any other may be put off for as long as something can happen.
    """

    node: NodeId
    action: Action
    name: str = ""
    after: tuple[str, ...] = ()
    joined: bool = False
    eager: bool = False
    topic: Topic = "t"

    def __str__(self) -> str:
        return f"node {self.node}: {self.action} {self.name or self.topic}"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the network may do, by kind of message; a parcel is also of the kind it carries.

    The last three leave out interleavings.  What each is worth for the production protocol on
    links that lose nothing:

    * `ordered` (parcels) loses no outcome.  A link buffers an early parcel and hands it up in the
      same step as the one it waited for, so an early arrival leads where an arrival in order
      leads that happens later.
    * `urgent` and `patient` (acknowledgements) keep every order of deliveries, but not every
      moment of forgetting.  Handling an acknowledgement delivers nothing and changes nothing on
      which the order of deliveries depends, as long as only what all subscribers have consumed
      is forgotten; it decides when frames are forgotten, leavers released and credit returned.
      Small cases explore those moments without either rule.
    """

    drops: int = 0
    """So many messages may be lost."""
    duplicates: int = 0
    """So many arrivals may leave a copy in flight."""
    early_wakes: int = 0
    """So many times the timers of one node may fire while something is in flight, or delivered
    and not taken in."""
    ordered: frozenset[str] = frozenset()
    """These have a `number` and arrive, per link, lowest first."""
    urgent: frozenset[str] = frozenset()
    """These arrive in the step that sends them, and are neither lost nor repeated."""
    patient: frozenset[str] = frozenset()
    """These arrive when nothing else is in flight, one by one in a fixed order."""
    crashes: int = 0
    """So many nodes may crash, at any moment.  Any part of the crashed node's messages in flight is
    lost: it may have been in the middle of sending, or its links broke.  Each survivor that has it
    in its view is told sooner or later (`Member.suspect`), in any order; no timer fires before."""
    mortal: int = -1
    """The nodes that may crash, as a bit mask."""
    restarts: int = 0
    """So many nodes that crashed may begin again, at any later moment (`Case.reborn`); their
    applications subscribe again to what they had at the beginning, and do nothing else."""
    doubts: int = 0
    """So many times a node may suspect another that is alive; it may trust it again later."""
    doubted: int = -1
    """The nodes that may be suspected so, as a bit mask."""


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario small enough to be explored."""

    nodes: int
    make: MakeProcess
    steps: tuple[Step, ...]
    members: Mapping[Topic, int] = field(default_factory=dict)
    """The subscribers of each topic from the beginning, as bit masks."""
    rules: Rules = Rules()
    at_rest: Callable[[Process], str | None] = lambda process: None
    """Says what is wrong with a process when nothing more can happen."""
    likeness: Likeness = PRODUCTION
    reborn: MakeProcess | None = None
    """Makes the process of a node that begins again."""
    slow: int = 0
    """Nodes whose applications do not take in at once what is delivered, as a bit mask.

    They take it in later, in order; their process needs the method `consumed`.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, and the schedule that leads to it."""

    what: str
    """The property violated, or

    ``crash``: a process raised; ``stuck``: a step of the script never became possible;
    ``unfinished``: a call of the application never came to its end; ``restless``: timers fire for
    ever; ``unclean``: `Case.at_rest` complains.
    """
    message: str
    schedule: tuple[str, ...]
    trace: tuple[Record, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.what}: {self.message}", *(f"  {line}" for line in self.schedule)])


@dataclass(slots=True, repr=False)
class Exploration:
    """The outcome of `explore`; `complete` only if every state was expanded."""

    states: int = 0
    transitions: int = 0
    finals: int = 0
    """States in which nothing more can happen."""
    outcomes: set[tuple[tuple[HistoryEntry, ...], ...]] = field(default_factory=set)
    """The distinct histories of all nodes at the final states."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each thing went wrong."""
    findings: list[Finding] = field(default_factory=list)
    """The first of each."""
    complete: bool = False

    @property
    def ok(self) -> bool:
        """Everything was seen and nothing is wrong."""
        return self.complete and not self.counts

    def finding(self, what: str) -> Finding:
        """The first finding of a kind."""
        return next(finding for finding in self.findings if finding.what == what)

    def __repr__(self) -> str:
        head = (
            f"{self.states} states, {self.transitions} transitions, {self.finals} finals, "
            f"{len(self.outcomes)} outcomes" + ("" if self.complete else "; INCOMPLETE")
        )
        return "\n".join([head, *map(str, self.findings)])
