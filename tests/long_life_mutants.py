"""Broken members of the kinds that only long or eventful lives give away.

They are registered with those of `chaos_mutants`, whose format they follow.
"""

from __future__ import annotations

from typing import Any

from chaos_mutants import mutant, of_topics

from cubecast.protocol.member import Member
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import Port, Publication, Time
from cubecast.protocol.recovery import RecoveringTopic
from cubecast.protocol.views import Install

# -- gaps that nobody needs ------------------------------------------------------------------------


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
    """Jumps to a new cut in every topic whenever somebody was excluded, whoever it was."""

    core_class = Skittish


class PickyPort:
    """Hands every third message of others to nobody and calls it a gap, once a view has changed."""

    def __init__(self, topic: RecoveringTopic, port: Port) -> None:
        self._topic = topic
        self._port = port

    def deliver(self, publication: Publication) -> bool:
        stream, first = publication.stream, publication.first
        if self._topic.epoch and stream != self._topic.own and first % 3 == 2:
            last = first + len(publication.body) - 1
            self._port.gap(publication.topic, {stream: (first, last)})
            return True
        return self._port.deliver(publication)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class Picky(RecoveringTopic):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.port = PickyPort(self, self.port)  # type: ignore[assignment]


@mutant("loss-reasons", 1)
class SkipsEveryThird(Member):
    """Turns every third message of living publishers into a gap once a view has changed."""

    core_class = of_topics(Picky)
