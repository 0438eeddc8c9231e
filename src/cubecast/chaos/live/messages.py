"""What the driver and its processes say to each other: one JSON object a line, on pipes.

Times are seconds of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import msgspec

from cubecast.net.links.faults import Rule


class ApplicationLoad(msgspec.Struct, frozen=True):
    """What an application does."""

    rate: float = 10.0
    """Questions a second."""
    answers: float = 0.1
    """The share of what it reads from others that it answers at once; answers, too."""
    loss: float = 0.0
    """The share of packets that every link loses until the calm."""
    size: int = 64
    """Bytes that a message has at least."""


class SetLinks(msgspec.Struct, tag=True, frozen=True):
    """From now on these are the faults of our links, by the uid of the peer; no others."""

    rules: dict[str, Rule]
    loss: float = 0.0
    """Of all links that have no rule."""


class Live(msgspec.Struct, tag=True, frozen=True):
    """Begin a cluster (no `seeds`) or join one, subscribe, and begin to talk."""

    trace: str
    seeds: list[str]
    topics: list[str]
    """It subscribes to all of them, and publishes to one or another."""
    load: ApplicationLoad
    links: SetLinks
    listen: str = "127.0.0.1:0"
    """Where it was in its last life, if it had one."""
    preset: str = "local"
    seed: int = 0
    patience_s: float = 60.0
    """Joining is tried again and again, for so long."""


class PublishBatch(msgspec.Struct, tag="Publish", frozen=True):
    """Publish so many messages at once."""

    topic: str
    count: int = 1


class SubscribeTopic(msgspec.Struct, tag="Subscribe", frozen=True):
    """Subscribe to a topic, if that is not so yet."""

    topic: str


class UnsubscribeTopic(msgspec.Struct, tag="Unsubscribe", frozen=True):
    """End the subscription to a topic, if there is one."""

    topic: str


class Quiet(msgspec.Struct, tag=True, frozen=True):
    """Publish nothing more."""


class TellStanding(msgspec.Struct, tag=True, frozen=True):
    """Say how things stand."""


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
    """The node told its application something besides messages."""

    at: float
    what: str
    """ "left", "joined", "gap", "blocked" ..."""
    about: int = -1
    """The slot concerned."""
    count: int = 0
    """In a gap: messages."""
    detail: str = ""
    address: str = ""
    """Where the node in that slot listens, as far as the teller knows: slots change hands."""


class NodeStanding(msgspec.Struct, tag=True, frozen=True):
    """How things stand."""

    at: float
    slot: int
    members: list[int]
    at_rest: bool
    published: int
    delivered: int
    refused: int
    """Publications that were not taken in time."""
    why: str = ""
    """What waits for what, if not at rest."""


class TraceFinished(msgspec.Struct, tag=True, frozen=True):
    """The trace is complete, or the cluster was left."""

    at: float


class Failed(msgspec.Struct, tag=True, frozen=True):
    """This process is of no use any more."""

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
