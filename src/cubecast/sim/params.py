"""The parameters of a simulated run, and how a network is made from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from math import exp
from random import Random
from typing import Any, ClassVar

from cubecast.protocol.config import Config
from cubecast.protocol.port import NodeId, Time
from cubecast.sim.faults import Faults, Hold, Partition, Pause
from cubecast.sim.networks import (
    LogNormal,
    Regions,
    SendingQueue,
    ServiceRate,
    ShuffledQueue,
    Uniform,
)
from cubecast.sim.world import NetworkModel
from cubecast.topology import MAX_DIMENSION

MAX_NODES = 1 << 16
MAX_TIME: Time = 10**9
"""Keeps times far below what a trace can hold, also when they are multiplied by a count."""
MAX_MESSAGES = 10**6
"""Publications that one run may plan."""
NETWORKS = ("queue", "shuffled", "service", "uniform", "lognormal", "regions")

_RANGES = (
    ("messages", 1, MAX_MESSAGES),
    ("wait", 1, MAX_NODES),
    ("changes", 0, MAX_MESSAGES),
    ("topics", 0, MAX_NODES),
    ("every", 0, MAX_TIME),
    ("session", 0, MAX_TIME),
    ("batch", 0, MAX_MESSAGES),
    ("window", 1, MAX_TIME),
    ("span", 0, MAX_TIME),
    ("hop", 1, MAX_TIME),
    ("low", 0, MAX_TIME),
    ("high", 0, MAX_TIME),
    ("scale", 1, MAX_TIME),
    ("ack_delay", 0, MAX_TIME),
    ("stable_delay", 0, MAX_TIME),
    ("resend_after", 0, MAX_TIME),
    ("patience", 0, MAX_TIME),
    ("horizon", 1, MAX_TIME),
    ("brokers", 0, MAX_NODES),
)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class ParamError(ValueError):
    """A parameter has a value that cannot be simulated."""


_CORE = Config()
"""The defaults of the production protocol, defined only there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The parameters of a run; scenarios choose their own defaults."""

    most_nodes: ClassVar[int] = MAX_NODES
    nodes: int = 8
    subscribers: float = 1.0
    """Share of the nodes that subscribe (at least one)."""
    publishers: float = 1.0
    """Share of the subscribers that publish (at least one)."""
    messages: int = 1
    """Messages per publisher, or questions, or publications in all: the scenario says which."""
    span: Time = 1000
    """Publications are spread over this long."""
    wait: int = 1
    """discussion: how many messages a node waits for before it answers ([J] 4.3)."""
    changes: int = 0
    """Joins and leaves in all."""
    topics: int = 0
    """topics: how many there are ([J] 4.4)."""
    skew: float = 0.0
    """topics: the exponent of Zipf's law by which messages choose their topic; 0: uniform."""
    every: Time = 0
    """topics, speakers, sessions: time between two messages, of each node (a mean) or of all."""
    spread: float = 1.0
    """topics: that time is uniform on `every` · [1 - spread, 1 + spread]; 0: always the same."""
    session: Time = 0
    """sessions: median time that a node stays subscribed ([J] 4.5); 0: for ever."""
    at_once: bool = False
    """sessions: a newcomer's time begins as it calls ``subscribe``, and it may publish from then
    on; else both begin when ``subscribe`` has returned."""
    batch: int = 0
    """stream: messages that are handed over together."""
    network: str = "queue"
    hop: Time = 100
    """Propagation in the `queue` and `shuffled` networks ([J] 4: t_pp)."""
    low: Time = 10
    high: Time = 20
    """Bounds of a hop in the `service` ([B] 6) and `uniform` networks."""
    free: tuple[str, ...] = ()
    """`service`: kinds of messages that a node handles beside its turns, at no cost."""
    sigma: float = 0.0
    """`lognormal`: a hop takes `hop` in the median; standard deviation of its logarithm."""
    latencies: str = ""
    """`regions`: u.t. from region to region, rows parted by ';': "1 40; 40 1"."""
    queue_acks: bool = False
    """Whether ACKs and control messages wait in the sending queue too."""
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    spike: float = 0.0
    partitions: tuple[Partition, ...] = ()
    holds: tuple[Hold, ...] = ()
    pauses: tuple[Pause, ...] = ()
    later: tuple[NodeId, ...] = ()
    """Nodes that are not there at the beginning, where nodes come and go."""
    window: int = _CORE.window
    """Production protocol: credit per publisher and topic, in messages."""
    ack_delay: Time = _CORE.ack_delay
    stable_delay: Time = _CORE.stable_delay
    resend_after: Time = 0
    """0: chosen from the network (four times the longest round trip to be expected)."""
    patience: int = _CORE.patience
    """Probes a child may leave unanswered before it is called slow; 0: any number."""
    scale: Time = 10
    """replay: u.t. per second of the trace."""
    consume_after: Time = 0
    """Applications take this long to consume a message (production protocol only)."""
    whole_views: bool = False
    """vcube-ps: ACKs carry whole views, as the text of [J] 3.3 says, and not only their sender."""
    horizon: Time = 100_000_000
    """A run that is not at rest this long after its last planned event has failed."""
    brokers: int = 0
    """srpt-b: how many of the nodes are brokers ([J] 4.6); 0: one of sixteen."""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= self.most_nodes:
            raise ParamError(f"nodes must be 1 to {self.most_nodes}, not {self.nodes}")
        for name in ("subscribers", "publishers"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ParamError(
                    f"{name} is a share above 0 and at most 1, not {getattr(self, name)}"
                )
        for name in ("loss", "duplicate", "reorder", "spike"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ParamError(
                    f"{name} is a probability from 0 to below 1, not {getattr(self, name)}"
                )
        for name, least, most in _RANGES:
            if not least <= getattr(self, name) <= most:
                raise ParamError(f"{name} must be {least} to {most}, not {getattr(self, name)}")
        if not 0.0 <= self.skew <= 10.0:
            raise ParamError(f"skew is an exponent from 0 to 10, not {self.skew}")
        if not 0.0 <= self.spread <= 1.0:
            raise ParamError(f"spread is a share from 0 to 1, not {self.spread}")
        if not 0.0 <= self.sigma <= 5.0:
            raise ParamError(f"sigma must be 0 to 5, not {self.sigma}")
        if self.network == "regions":
            read_latencies(self.latencies)
        if self.high < self.low:
            raise ParamError(f"high ({self.high}) must not be below low ({self.low})")
        if self.network not in NETWORKS:
            raise ParamError(f"unknown network {self.network!r}; there are: {', '.join(NETWORKS)}")

    def with_(self, changes: dict[str, Any]) -> Params:
        """These parameters with some replaced; unknown names and wrong types are refused."""
        known = [field.name for field in fields(self)]
        for name, value in changes.items():
            if name not in known:
                raise ParamError(f"unknown parameter {name!r}; there are: {', '.join(known)}")
            kind = type(getattr(self, name))
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise ParamError(f"{name} must be {_KINDS.get(kind, 'a tuple')}, not {value!r}")
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """The parameters that differ from a quiet network; the rest are defaults."""
        shown = asdict(self)
        return {name: value for name, value in shown.items() if value not in ((), 0.0)}

    def broker_count(self) -> int:
        """How many brokers srpt-b has."""
        return self.brokers or max(1, self.nodes // 16)

    def round_trip(self) -> Time:
        """The longest round trip of one hop that the network alone can cause.

        A log-normal hop has no longest time; all but one in a thousand are shorter than this.
        """
        match self.network:
            case "queue" | "shuffled":
                one_way = self.hop
            case "lognormal":
                one_way = round(self.hop * exp(3 * self.sigma))
            case "regions":
                one_way = max(map(max, read_latencies(self.latencies)))
            case _:
                one_way = self.high
        return 2 * max(one_way, 1)

    def config(self) -> Config:
        """The production protocol's bounds for this network."""
        depth = max(1, (self.nodes - 1).bit_length())
        resend = self.resend_after or 4 * depth * self.round_trip() + 2 * self.ack_delay
        return Config(
            window=self.window,
            ack_delay=self.ack_delay,
            stable_delay=self.stable_delay,
            resend_after=resend,
            resend_max=8 * resend,
            patience=self.patience,
            leaf_for=4 * resend,
        )

    def network_for(self, seed: str) -> NetworkModel:
        """A fresh network; all its chance comes from `seed`."""
        faults = None
        if self.faulty:
            faults = Faults(
                Random(f"{seed}/faults"),
                loss=self.loss,
                duplicate=self.duplicate,
                reorder=self.reorder,
                reorder_by=2 * self.round_trip(),
                spike=self.spike,
                spike_by=20 * self.round_trip(),
                partitions=self.partitions,
                holds=self.holds,
            )
        if self.network == "queue":
            return SendingQueue(self.hop, queue_acks=self.queue_acks, faults=faults)
        if self.network == "shuffled":
            order = Random(f"{seed}/order")
            return ShuffledQueue(order, self.hop, queue_acks=self.queue_acks, faults=faults)
        if self.network == "lognormal":
            return LogNormal(Random(f"{seed}/delays"), self.hop, self.sigma, faults=faults)
        if self.network == "regions":
            table = read_latencies(self.latencies)
            return Regions(table, self.nodes, faults=faults)
        delays = Random(f"{seed}/delays")
        if self.network == "service":
            return ServiceRate(delays, self.low, self.high, faults=faults, free=self.free)
        return Uniform(delays, self.low, self.high, faults=faults)

    @property
    def faulty(self) -> bool:
        """Whether links do anything but carry messages."""
        return bool(
            self.loss or self.duplicate or self.reorder or self.spike
            or self.partitions or self.holds or self.pauses
        )  # fmt: skip

    def draw_members(self, rng: Random) -> list[NodeId]:
        """The subscribers: a uniform choice of the stated share, in order."""
        count = max(1, round(self.subscribers * self.nodes))
        return sorted(rng.sample(range(self.nodes), count))

    def draw_publishers(self, rng: Random, members: list[NodeId]) -> list[NodeId]:
        """The publishers among the subscribers, in order."""
        count = max(1, round(self.publishers * len(members)))
        return sorted(rng.sample(members, count))


class WideParams(Params):
    """The same for as many nodes as the compiled kernel has room for; the reference has fewer."""

    __slots__ = ()
    most_nodes: ClassVar[int] = 1 << MAX_DIMENSION


def read_latencies(text: str) -> list[list[Time]]:
    """A square table of whole numbers: from each region (a row) to each region."""
    rows = [row.split() for row in text.split(";")]
    try:
        table = [[int(cell) for cell in row] for row in rows]
    except ValueError:
        raise ParamError(f"latencies must be whole numbers, not {text!r}") from None
    if not text.strip() or not all(len(row) == len(table) for row in table):
        raise ParamError(f"latencies must have as many columns as rows: {text!r}")
    if not all(1 <= cell <= MAX_TIME for row in table for cell in row):
        raise ParamError(f"latencies must be 1 to {MAX_TIME}: {text!r}")
    return table
