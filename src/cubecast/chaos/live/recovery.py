"""The cost of each fault: how far deliveries fell, and how long the recovery took.

Two nodes are *connected* at a moment if both run and talk, neither is stopped and nothing between
them is cut.  This follows from the driver's actions, not from the protocol.  Every node is
connected with itself.

- The *rate* of a tenth of a second is its deliveries, over the connected pairs at that time; so a
  dead publisher, or half a cluster that is cut off, is no dip by itself, only by its effect on the
  others.
- The *dip* of an action is the lowest rate until the next action (at most `DIP_S`), over the
  median rate of the `BEFORE_S` before it.
- It *recovered* when the mean rate of `STEADY_S` was back at `ENOUGH` of that median.
- It was *heard by all* when each node had delivered a message that each connected node published
  after the action.  Pairs that another action separates first are left out.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from cubecast.chaos.condition import Action, Condition
from cubecast.chaos.live.driver import DriverMark
from cubecast.chaos.schedule import Schedule
from cubecast.trace import MessageId, Record

BUCKET_S = 0.1
BEFORE_S = 5.0
DIP_S = 10.0
STEADY_S = 0.3
ENOUGH = 0.8

Pair = tuple[int, int]
"""(publisher, subscriber)"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one action; times in seconds after it, None: not until the end."""

    at: float
    """Seconds after the run began."""
    action: Action
    dip: float | None
    """The lowest rate after it, over the median before; None: there was no load before."""
    recovered_s: float | None
    heard_by_all_s: float | None
    never_heard: tuple[Pair, ...] = ()
    """Pairs that stayed connected without any delivery."""


@dataclass(slots=True)
class DeliveryCurve:
    """Deliveries over time."""

    bucket_s: float
    deliveries: list[int]
    pairs: list[float]
    """Connected pairs, on average, in each bucket."""
    costs: list[Cost] = field(default_factory=list)

    def rate(self, index: int) -> float:
        """Deliveries per connected pair and second."""
        if not 0 <= index < len(self.deliveries) or not self.pairs[index]:
            return math.nan
        return self.deliveries[index] / self.pairs[index] / self.bucket_s


class Connections:
    """Which pairs were connected when, from the marks of a run."""

    def __init__(
        self, audience: frozenset[Pair], marks: Sequence[DriverMark], began: float, end: float
    ) -> None:
        nodes = 1 + max((max(pair) for pair in audience), default=0)
        self._audience = audience
        self.times = [began]
        self.pairs = [self._everyone(Condition(nodes), set(range(nodes)))]
        self.meant: list[frozenset[Pair]] = [self.pairs[0]]
        """As `pairs`, with the nodes that run and have not joined yet."""
        condition, talking = Condition(nodes), set(range(nodes))
        for mark in marks:
            if mark.action is None:
                talking.add(mark.joined)
            else:
                condition.apply(mark.action)
                if mark.action.act in ("crash", "leave"):
                    talking.discard(mark.action.node)
            self.times.append(mark.at)
            self.pairs.append(self._everyone(condition, talking))
            self.meant.append(self._everyone(condition, set(range(nodes))))
        self.end = end
        self._breaks: dict[Pair, list[int]] = {}

    def _everyone(self, condition: Condition, talking: set[int]) -> frozenset[Pair]:
        return frozenset(
            (one, other)
            for one, other in self._audience
            if one in talking and other in talking and condition.connected(one, other)
        )

    def broken_at(self, pair: Pair, after: int) -> float:
        """When a pair that should be connected from mark `after` on no longer is."""
        breaks = self._breaks.get(pair)
        if breaks is None:
            breaks = [index for index, meant in enumerate(self.meant) if pair not in meant]
            self._breaks[pair] = breaks
        place = bisect_left(breaks, after)
        return self.times[breaks[place]] if place < len(breaks) else math.inf

    def average(self, begin: float, end: float) -> float:
        """The mean number of connected pairs between two moments."""
        total, index = 0.0, max(0, bisect_left(self.times, begin) - 1)
        while index < len(self.times) and self.times[index] < end:
            until = self.times[index + 1] if index + 1 < len(self.times) else math.inf
            share = min(until, end) - max(self.times[index], begin)
            total += max(0.0, share) * len(self.pairs[index])
            index += 1
        return total / (end - begin)


class Hearing:
    """The first delivery of each pair after each mark."""

    def __init__(self, times: Sequence[float]) -> None:
        self._times = [int(time * 1e6) for time in times]
        self._first: dict[Pair, list[float]] = {}
        """By the last mark before the publication."""
        self._ready = False

    def delivered(self, pair: Pair, published: int, delivered: int) -> None:
        """Note the delivery of a message of a pair; times in microseconds."""
        latest = bisect_left(self._times, published) - 1
        if latest >= 0:
            first = self._first.get(pair)
            if first is None:
                first = self._first[pair] = [math.inf] * len(self._times)
            first[latest] = min(first[latest], delivered)

    def first(self, pair: Pair, mark: int) -> float:
        """When `pair` first delivered a message published after `mark`; infinite: never."""
        if not self._ready:  # after a later mark is after this one, too
            for first in self._first.values():
                first.reverse()
                first[:] = accumulate(first, min)
                first.reverse()
            self._ready = True
        return self._first[pair][mark] / 1e6 if pair in self._first else math.inf


def audience_of(schedule: Schedule) -> frozenset[Pair]:
    """(publisher, subscriber) pairs that share a topic which the subscriber never leaves."""
    left = {(step.node, step.topic) for step in schedule.steps if step.act == "unsubscribe"}
    left |= {(node, next(iter(schedule.members()))) for node, topic in left if not topic}
    return frozenset(
        (one, other)
        for topic, members in schedule.members().items()
        for one in members
        for other in members
        if (other, topic) not in left
    )


def measure(
    traces: Iterable[tuple[int, Iterable[Record]]],
    audience: frozenset[Pair],
    marks: Sequence[DriverMark],
    began: float,
    end: float,
) -> DeliveryCurve:
    """The curve of a run, from the records of each life and the number of its node.

    `traces` is read twice; `audience` is the pairs of publisher and subscriber.
    """
    lives = list(traces)
    marks = sorted((mark for mark in marks if not mark.note), key=lambda mark: mark.at)
    connections = Connections(audience, marks, began, end)
    hearing = Hearing(connections.times)
    published = _publications(lives)
    buckets = [0] * max(1, math.ceil((end - began) / BUCKET_S))
    for number, records in lives:
        for record in records:
            if record.kind != "deliver":
                continue
            index = int((record.time / 1e6 - began) / BUCKET_S)
            if 0 <= index < len(buckets):
                buckets[index] += 1
            source = published.get((record.topic, record.id))
            if source is not None:
                hearing.delivered((source[0], number), source[1], record.time)
    pairs = [
        connections.average(began + index * BUCKET_S, began + (index + 1) * BUCKET_S)
        for index in range(len(buckets))
    ]
    curve = DeliveryCurve(BUCKET_S, buckets, pairs)
    curve.costs = _costs(curve, connections, hearing, marks, began)
    return curve


def _publications(
    lives: Sequence[tuple[int, Iterable[Record]]],
) -> dict[tuple[str, MessageId | None], tuple[int, int]]:
    return {
        (record.topic, record.id): (number, record.time)
        for number, records in lives
        for record in records
        if record.kind == "publish"
    }


def _costs(
    curve: DeliveryCurve,
    connections: Connections,
    hearing: Hearing,
    marks: Sequence[DriverMark],
    began: float,
) -> list[Cost]:
    costs: list[Cost] = []
    for number, mark in enumerate(marks, 1):
        if mark.action is None:
            continue
        following = next((one.at for one in marks[number:] if one.action), connections.end)
        dip, recovered = _dip(curve, mark.at - began, following - began)
        heard, never = _heard(connections, hearing, number)
        heard_s = None if never else heard
        costs.append(Cost(mark.at - began, mark.action, dip, recovered, heard_s, never))
    return costs


def _dip(curve: DeliveryCurve, at: float, following: float) -> tuple[float | None, float | None]:
    index = int(at / BUCKET_S)
    before = _rates(curve, index - round(BEFORE_S / BUCKET_S), index)
    normal = statistics.median(before) if before else 0.0
    if not normal:
        return None, None
    # The bucket of the action is half before and half after it: the next one is the first.
    until = max(index + 2, min(int(following / BUCKET_S), index + round(DIP_S / BUCKET_S)))
    after = _rates(curve, index + 1, until)
    if not after:
        return None, None
    dip = min(after) / normal
    if dip >= ENOUGH:
        return dip, 0.0
    steady = round(STEADY_S / BUCKET_S)
    lowest = next(place for place in range(index + 1, until) if curve.rate(place) == min(after))
    for place in range(lowest + 1, len(curve.deliveries) - steady + 1):
        rates = _rates(curve, place, place + steady)
        if rates and statistics.fmean(rates) >= ENOUGH * normal:
            return dip, max(0.0, place * BUCKET_S - at)
    return dip, None


def _rates(curve: DeliveryCurve, begin: int, end: int) -> list[float]:
    rates = (curve.rate(index) for index in range(max(0, begin), end))
    return [rate for rate in rates if not math.isnan(rate)]


def _heard(connections: Connections, hearing: Hearing, mark: int) -> tuple[float, tuple[Pair, ...]]:
    """How long it took until every pair that stayed connected had a delivery."""
    longest, never = 0.0, []
    at = connections.times[mark]
    for pair in connections.meant[mark]:
        first = hearing.first(pair, mark)
        if first < connections.broken_at(pair, mark):
            longest = max(longest, first - at)
        elif connections.broken_at(pair, mark) == math.inf:
            never.append(pair)
    return longest, tuple(sorted(never))
