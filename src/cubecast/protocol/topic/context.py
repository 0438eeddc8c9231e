"""The context that all parts of a topic share: names, settings, and the ways out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cubecast.protocol.branch_counts import BranchCounts
from cubecast.protocol.cluster.agenda import Agenda
from cubecast.protocol.cluster.current_view import CurrentView
from cubecast.protocol.config import Config
from cubecast.protocol.port import Denial, NodeId, Port, Stream, Time, Topic
from cubecast.protocol.subscriptions.links import Links


class Advisor(Protocol):
    """The node's membership in a topic, as far as the topic's parts use it."""

    def ask_members(self, silent: int, now: Time) -> None:
        """Ask nodes that do not acknowledge what we publish whether they subscribe at all."""

    def ask_publisher(self, stream: Stream, now: Time) -> None:
        """Ask a publisher how far it has published."""

    @property
    def is_lossy(self) -> bool:
        """Whether publishers may have suspended this node."""


class NoAdvisor:
    """A topic without a membership: no node is asked, and nothing is promised."""

    __slots__ = ()

    def ask_members(self, silent: int, now: Time) -> None: ...

    def ask_publisher(self, stream: Stream, now: Time) -> None: ...

    @property
    def is_lossy(self) -> bool:
        return True


def _ignore(denial: Denial) -> None:
    """Ignore a denial: there is no application to tell."""


class Context:
    """One topic at one node: the same object in all parts of the topic."""

    __slots__ = (
        "advisor",
        "agenda",
        "config",
        "links",
        "marks",
        "node",
        "on_denied",
        "port",
        "topic",
        "view",
    )

    def __init__(
        self,
        topic: Topic,
        node: NodeId,
        port: Port,
        links: Links,
        config: Config,
        agenda: Agenda,
        view: CurrentView,
        marks: BranchCounts,
        on_denied: Callable[[Denial], None] | None = None,
    ) -> None:
        self.topic = topic
        self.node = node
        self.port = port
        self.links = links
        self.config = config
        self.agenda = agenda
        self.view = view
        self.marks = marks
        self.on_denied = on_denied if on_denied is not None else _ignore
        self.advisor: Advisor = NoAdvisor()

    def consult(self, advisor: Advisor) -> None:
        """Ask this membership from now on."""
        self.advisor = advisor

    def plan(self, at: Time) -> None:
        """Have the topic woken at this time or before."""
        self.agenda.plan(self.topic, at)
