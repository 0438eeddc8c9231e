"""Settings that the processes of a siege share: topics, payloads, rates, and the nodes' settings.

Only long-lived nodes publish to `STEADY`, `BURST` and `TALK`, so that missing messages can be
counted there.  Attackers that are members send invalid frames and ACKs in `LIES` only: a node that
takes part in a topic may spoil it, and the siege measures what they do to other topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from cubecast.net.settings.config import NodeConfig

STEADY = "siege/steady"
BURST = "siege/burst"
TALK = "siege/talk"
CHURN = "siege/churn"
LIES = "siege/lies"
GUESTS = "siege/guests"
JUDGED = (STEADY, BURST, TALK)

GROUPS = ("strangers", "clients", "outsiders", "members")
"""Attackers by what they hold: nothing, the clients' key, the members' key, and a slot."""

PADDING = b"x" * 60


@dataclass(frozen=True, slots=True)
class Terms:
    """One siege, as every process of it is told."""

    secret: str = field(repr=False)
    client_secret: str = field(repr=False)
    seed: int
    steady_per_s: float = 20.0
    """Messages of each long-lived node."""
    burst_every_s: float = 2.0
    burst_messages: int = 100
    """Published one after the other, unpaced."""
    ask_every_s: float = 0.5
    visit_every_s: float = 4.0
    """A long-lived node subscribes to a topic that it was not in, publishes there and leaves it."""
    join_timeout_s: float = 30.0

    def config(self) -> NodeConfig:
        """How honest nodes are set up."""
        return NodeConfig(
            secret=self.secret,
            client_secret=self.client_secret,
            join_timeout_s=self.join_timeout_s,
        )


class Said(NamedTuple):
    """One payload: its publisher, its number in the topic, its time, and its body."""

    publisher: int
    number: int
    at: float
    body: bytes


def payload_of(publisher: int, number: int, body: bytes = PADDING) -> bytes:
    """The bytes of a payload that is published now."""
    return b"%d:%d:%.6f:%b" % (publisher, number, time.monotonic(), body)


def read_payload(payload: bytes) -> Said | None:
    """What a payload says; None if it is none of ours."""
    try:
        publisher, number, at, body = payload.split(b":", 3)
        return Said(int(publisher), int(number), float(at), body)
    except ValueError:
        return None


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0 of none."""
    known = sorted(values)
    return known[min(len(known) - 1, int(share * len(known)))] if known else 0.0
