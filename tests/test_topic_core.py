"""One topic at one node, driven by hand: what it delivers, keeps, and says to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cubecast.protocol.config import Config
from cubecast.protocol.messages import Barrier, Frame, Route
from cubecast.protocol.node import CubecastNode
from cubecast.protocol.port import Message, NodeId, Publication, Seq, Stream, Time, Topic
from cubecast.protocol.recovery import RecoveringTopic
from cubecast.protocol.views import Final

EVERYONE = 0b1111
ROUTE = Route(0, 0, EVERYONE)


class Page:
    """A port that writes down what its node says."""

    def __init__(self) -> None:
        self.delivered: list[Any] = []
        self.sent: list[tuple[NodeId, Any]] = []
        self.gaps: list[dict[Stream, tuple[Seq, Seq]]] = []

    def relay(self, peers: Sequence[NodeId], message: Message) -> None:
        self.sent += [(peer, message) for peer in peers]

    def control(self, peer: NodeId, message: Message) -> None:
        self.sent.append((peer, message))

    def deliver(self, publication: Publication) -> bool:
        self.delivered += publication.body
        return True

    def gap(self, topic: Topic, skipped: Mapping[Stream, tuple[Seq, Seq]]) -> None:
        self.gaps.append(dict(skipped))

    def joined(self, topic: Topic) -> None: ...
    def left(self, topic: Topic) -> None: ...
    def writable(self, topic: Topic) -> None: ...
    def wake(self, at: Time) -> None: ...


def stream(node: NodeId) -> Stream:
    return Stream(node, 0)


def frame(source: NodeId, first: Seq, *barrier: tuple[NodeId, Seq]) -> Frame:
    """One message of a node, called after its number; what it comes after."""
    causes: Barrier = tuple((stream(node), seq) for node, seq in barrier)
    return Frame("t", stream(source), first, causes, ROUTE, -1, (f"{source}:{first}",), 1)


def member_3() -> tuple[Page, RecoveringTopic]:
    """Node 3 of four, all of them subscribed; it is the last in every tree."""
    page = Page()
    config = Config(stable_delay=50, resend_after=200, resend_max=800)
    node = CubecastNode(3, page, cluster=EVERYONE, config=config)
    node.establish("t", EVERYONE)
    return page, node.membership_of("t").core


def parent_of_3(source: NodeId) -> NodeId:
    """Who passes the frames of `source` on to node 3."""
    return {0: 2, 1: 1, 2: 2}[source]


def take(core: RecoveringTopic, one: Frame) -> None:
    core.on_frame(one, parent_of_3(one.stream.source), 0)


# -- what was found satisfied is of one frame ------------------------------------------------------


def test_who_begins_again_looks_at_every_cause_of_what_comes_next() -> None:
    """The first frame of node 2 was found to wait for its second cause; it is below the new cut."""
    page, core = member_3()
    take(core, frame(0, 0))
    take(core, frame(2, 0, (0, 0), (1, 0)))
    core.pause()
    take(core, frame(2, 1, (0, 7)))
    core.begin({stream(1): 0, stream(2): 0}, 0)
    assert page.delivered == ["0:0"]


def test_who_begins_again_after_a_stream_was_frozen_looks_at_every_cause_too() -> None:
    """It was frozen, the node had to jump, and its publisher was not excluded after all."""
    page, core = member_3()
    take(core, frame(0, 0))
    take(core, frame(2, 0, (0, 0), (1, 0)))
    core.frozen.add(stream(2))
    core.freeze()
    core.pause()
    core.frozen.clear()
    core.thaw([stream(2)], 0)
    take(core, frame(2, 1, (0, 7)))
    core.begin({stream(1): 0, stream(2): 0}, 0)
    assert page.delivered == ["0:0"]


# -- when a stream ended ---------------------------------------------------------------------------


def test_it_stays_known_when_a_stream_ended_though_a_view_speaks_of_it_again() -> None:
    """The node came back and knows all of a life that others have not settled yet."""
    _, core = member_3()
    gone = Stream(0, 7)
    core.guard.is_live = lambda one: one != gone
    core.front.delivered[gone] = 2
    core.over[gone] = 3
    core.end_stream(Final(gone, seq=2, heir=1, base=0), 0)
    core.settle(gone, 2, 0)
    assert core.reached_since(3, 3)[gone] == 2
    assert gone not in core.reached_since(4, 4)
