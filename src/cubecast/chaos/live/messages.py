"""Messages between the driver and its processes: one JSON object a line, on pipes.

Times are seconds of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import msgspec

from cubecast.net.links.faults import Rule


class ApplicationLoad(msgspec.Struct, frozen=True):
    """The load that an application makes."""

    rate: float = 10.0
    """Questions a second."""
    answers: float = 0.1
    """The share of other nodes' messages that it answers at once, answers included."""
    loss: float = 0.0
    """The share of packets that every link loses until the calm."""
    size: int = 64
    """The least size of a message, in bytes."""


class SetLinks(msgspec.Struct, tag=True, frozen=True):
    """Replace the faults of our links, by the uid of the peer."""

    rules: dict[str, Rule]
    loss: float = 0.0
    """The loss of all links that have no rule."""


class Live(msgspec.Struct, tag=True, frozen=True):
    """Begin a cluster (no `seeds`) or join one, subscribe, and begin to talk."""

    trace: str
    seeds: list[str]
    topics: list[str]
    """It subscribes to all of them, and publishes to one or another."""
    load: ApplicationLoad
    links: SetLinks
    listen: str = "127.0.0.1:0"
    """The address of its last life, if it had one."""
    preset: str = "local"
    seed: int = 0
    patience_s: float = 60.0
    """How long joining is retried."""


class PublishBatch(msgspec.Struct, tag="Publish", frozen=True):
    """Publish so many messages at once."""

    topic: str
    count: int = 1


class SubscribeTopic(msgspec.Struct, tag="Subscribe", frozen=True):
    """Subscribe to a topic, unless that is done already."""

    topic: str


class UnsubscribeTopic(msgspec.Struct, tag="Unsubscribe", frozen=True):
    """End the subscription to a topic, if there is one."""

    topic: str


class Quiet(msgspec.Struct, tag=True, frozen=True):
    """Publish nothing more."""


class TellStanding(msgspec.Struct, tag=True, frozen=True):
    """Report the standing."""


class Finish(msgspec.Struct, tag=True, frozen=True):
    """End the trace here, with everything still open."""


class LeaveCluster(msgspec.Struct, tag=True, frozen=True):
    """Leave the cluster gracefully."""


class Up(msgspec.Struct, tag=True, frozen=True):
    """Joined and subscribed."""

    at: float
    slot: int
    uid: str
    address: str


class NodeTold(msgspec.Struct, tag=True, frozen=True):
    """An event that the node told its application."""

    at: float
    what: str
    """ "left", "joined", "gap", "blocked" ..."""
    about: int = -1
    """The slot concerned."""
    count: int = 0
    """The messages of a gap."""
    detail: str = ""
    address: str = ""
    """Where the node in that slot listens, as far as the teller knows: slots change hands."""


class NodeStanding(msgspec.Struct, tag=True, frozen=True):
    """The standing of a node: whether it is at rest, and its members."""

    at: float
    slot: int
    members: list[int]
    at_rest: bool
    published: int
    delivered: int
    refused: int
    """Publications that were not taken in time."""
    why: str = ""
    """What it waits for, if not at rest."""


class TraceFinished(msgspec.Struct, tag=True, frozen=True):
    """The trace is complete, or the cluster was left."""

    at: float


class Failed(msgspec.Struct, tag=True, frozen=True):
    """This process cannot go on."""

    at: float
    reason: str


Order = (
    Live
    | SetLinks
    | PublishBatch
    | SubscribeTopic
    | UnsubscribeTopic
    | Quiet
    | TellStanding
    | Finish
    | LeaveCluster
)
Report = Up | NodeTold | NodeStanding | TraceFinished | Failed
