"""Broken members of the kinds that only long or eventful lives give away.

They are registered with those of `chaos_mutants`, whose format they follow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cubecast.protocol.cluster.agreement import ViewAgreement
from cubecast.protocol.cluster.member import Member
from cubecast.protocol.cluster.node import CubecastNode
from cubecast.protocol.cluster.views import Depart, Install
from cubecast.protocol.messages import ROUTE_BITS, Stable
from cubecast.protocol.port import Publication, Time
from cubecast.protocol.subscriptions.discovery import Discovery
from cubecast.protocol.subscriptions.membership import Membership
from cubecast.protocol.subscriptions.waves import Gathering
from cubecast.protocol.topic.context import Context
from cubecast.protocol.topic.stream_table import StreamTable
from cubecast.protocol.topic.topic import TopicCore
from support.chaos_mutants import mutant, of_topics, with_parts

# -- needless gaps ---------------------------------------------------------------------------------


class Skittish(CubecastNode):
    def install(self, install: Install, now: Time) -> None:
        before = self.view
        super().install(install, now)
        assert before is not None
        if before.mask & ~install.view.mask:
            for membership in list(self.memberships.values()):
                membership.cut_off()
                membership.rejoin(now)


@mutant("loss-reasons", 1)
class JumpsAtEveryExclusion(Member):
    """Jumps to a new cut in every topic whenever any node was excluded."""

    core_class = Skittish


class PickyPort:
    """Drops every third message of others and calls it a gap, once a view has changed."""

    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._view = context.view
        self._port = context.port

    def deliver(self, publication: Publication) -> bool:
        stream, first = publication.stream, publication.first
        if self._view.epoch and stream.source != self._node and first % 3 == 2:
            last = first + len(publication.body) - 1
            self._port.gap(publication.topic, {stream: (first, last)})
            return True
        return self._port.deliver(publication)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class Picky(TopicCore):
    def __init__(self, context: Context, incarnation: int) -> None:
        context.port = PickyPort(context)  # type: ignore[assignment]
        super().__init__(context, incarnation)


@mutant("loss-reasons", 1)
class SkipsEveryThird(Member):
    """Turns every third message of living publishers into a gap once a view has changed."""

    core_class = of_topics(Picky)


# -- what is forgotten, and when -------------------------------------------------------------------


class Hoarder(CubecastNode):
    def _clean_up(self, now: Time) -> None:
        """Forget nothing."""


class KeepsTopicsForEver(Member):
    """Never forgets a topic, however long it has been unused."""

    core_class = Hoarder


class Amnesiac(CubecastNode):
    def _present_horizon(self, now: Time) -> Any:
        from cubecast.protocol.cluster.horizon import Horizon

        return Horizon(1 << 40)


class PrunesTooEarly(Member):
    """Forgets history as if no node were absent and all views had passed."""

    core_class = Amnesiac


# -- patterns ------------------------------------------------------------------------------------


class Cutless(Membership):
    by_pattern = False

    def _finish_joining(self, result: Gathering, now: Time) -> None:
        if self.by_pattern:
            result.vector.clear()
        super()._finish_joining(result, now)


class Careless(Discovery):
    def _join_existing(self, question: Any, wanted: Any, listed: Any, now: Time) -> None:
        before = set(self._owner.memberships)
        super()._join_existing(question, wanted, listed, now)
        for topic, membership in self._owner.memberships.items():
            if topic not in before:
                membership.by_pattern = True  # type: ignore[attr-defined]


class FollowsWithoutACut(Member):
    """Joins what a pattern finds, and begins at the first message instead of at the cut."""

    core_class = type(
        "Core", (CubecastNode,), {"membership_class": Cutless, "discovery_class": Careless}
    )


# -- views -----------------------------------------------------------------------------------------


class Unnumbered(StreamTable):
    def pass_on(self, news: Stable, height: int, now: Time) -> None:
        route = news.route & (1 << ROUTE_BITS) - 1
        super().pass_on(msgspec.structs.replace(news, route=route), height, now)


class TellsRoutesWithoutTheirView(Member):
    """Leaves the epoch out of the number of the route in what it says of stability."""

    core_class = with_parts(streams_class=Unnumbered)


class Credulous(ViewAgreement):
    def on_depart(self, depart: Depart, now: Time) -> None:
        if self.view.has(depart.uid) and self.leader == self.slot:
            self._admission.departing[depart.uid] = None  # type: ignore[attr-defined]
            self.consider(now)
        else:
            super().on_depart(depart, now)


class TrustsDepartures(Member):
    """Lets a member go because another one said that it wants to."""

    agreement_class = Credulous
