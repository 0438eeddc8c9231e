"""One trace of all lives, for the checkers.

Every process leaves a file of its own.  Records name slots, and slots change hands: so the trace
of a slot is the records of its holders, one after the other, with a ``crash`` where one of them was
killed and a ``restart`` where another one begins.  These two come from the driver's actions, never
from the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from cubecast.chaos.live.driver import ProcessLife
from cubecast.trace import Record, merge, read_jsonl


class Tenancy(NamedTuple):
    """One life in one slot, for as long as it stayed there."""

    slot: int
    first: int
    """When its first record was made, in microseconds."""
    last: int
    life: ProcessLife
    final: bool
    """Whether the life ended in this slot."""
    has_views: bool
    span: tuple[int, int]
    """The range of the life's records: from, and up to but not including."""


def trace_of(found: Iterable[Tenancy]) -> Iterator[Record]:
    """The records of all lives in one order."""
    by_slot: dict[int, list[Tenancy]] = {}
    for tenancy in found:
        by_slot.setdefault(tenancy.slot, []).append(tenancy)
    yield from merge([_slot(sorted(held, key=_begin)) for _, held in sorted(by_slot.items())])


def _begin(tenancy: Tenancy) -> int:
    return tenancy.first


def tenancies(lives: Iterable[ProcessLife]) -> list[Tenancy]:
    """The lives that held each slot, with their times."""
    by_slot: dict[int, list[_Stay]] = {}
    for life in lives:
        for stay in _stays_of(life):
            by_slot.setdefault(stay.slot, []).append(stay)
    return [stay.tenancy() for stays in by_slot.values() for stay in _parted(stays)]


@dataclass(slots=True)
class _Stay:
    """Consecutive records of one life that name one slot."""

    life: ProcessLife
    slot: int
    start: int
    """The first one's place in the life's trace."""
    times: list[int]
    views: list[int]
    """Positions of the records of views."""
    final: bool = True
    has_views: bool = False

    def tenancy(self) -> Tenancy:
        span = self.start, self.start + len(self.times)
        return Tenancy(
            self.slot, self.times[0], self.times[-1], self.life, self.final, self.has_views, span
        )

    def parted(self, at: int) -> tuple[_Stay, _Stay]:
        """Split at the record `at`: the records before it, and the rest."""
        first = replace(self, times=self.times[:at], views=[], final=False)
        views = [view - at for view in self.views if view >= at]
        return first, replace(self, start=self.start + at, times=self.times[at:], views=views)


def _stays_of(life: ProcessLife) -> list[_Stay]:
    """The slots that a life had, in turn.  Most have one.  An excluded node may return to another
    slot, and later to the first, which another node may have had meanwhile."""
    stays: list[_Stay] = []
    for index, record in enumerate(records_of(life.trace)):
        if not stays or stays[-1].slot != record.node:
            stays.append(_Stay(life, record.node, index, [], [], final=False))
        stay = stays[-1]
        if record.kind == "view":
            stay.views.append(len(stay.times))
        stay.times.append(record.time)
    for stay in stays:
        stay.final = stay is stays[-1]
        stay.has_views = any(one.views for one in stays)
    return stays


def _parted(stays: list[_Stay]) -> Iterator[_Stay]:
    """The stays in one slot; a life that returned to it after another had it gets two stays.

    A node never enters a view in another's slot: the first view after the other began marks the
    return.
    """
    begins = sorted(stay.times[0] for stay in stays)
    for stay in stays:
        rest = stay
        for other in begins:
            if rest.times[0] < other <= rest.times[-1]:
                returns = [at for at in rest.views if rest.times[at] > other]
                if returns:
                    first, rest = rest.parted(returns[0])
                    yield first
        yield rest


def records_of(trace: Path) -> Iterable[Record]:
    """The records of a life; none if the process ended before it wrote a header."""
    if not trace.exists() or not trace.stat().st_size:
        return ()
    return read_jsonl(trace)[1]


def _slot(held: list[Tenancy]) -> Iterator[Record]:
    """The records of a slot's holders, one after the other.

    A node that is excluded while stopped still delivers for a while when it wakes up, and another
    node may have its slot by then.  These deliveries are of messages sent before: they count as
    made before the other began.  Otherwise the other's records, and all that depends on them, would
    come after its own, and a node that joined in between would seem to owe them.
    """
    until = [tenancy.first for tenancy in held[1:]]
    for number, tenancy in enumerate(held):
        if number:
            yield Record("restart", tenancy.first, tenancy.slot)
        records = chain(islice(records_of(tenancy.life.trace), *tenancy.span), _end(tenancy))
        yield from _not_after(min(until[number:], default=None), records)


def _not_after(limit: int | None, records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        if limit is not None and record.time > limit:
            yield msgspec.structs.replace(record, time=limit)
        else:
            yield record


def _end(tenancy: Tenancy) -> Iterator[Record]:
    """The last record of a stay: ``crash`` if killed; a node that left is out for good."""
    life = tenancy.life
    if not tenancy.final:  # it went on in another slot
        yield Record("crash", tenancy.last, tenancy.slot)
        return
    ended = tenancy.last if life.ended_at is None else int(life.ended_at * 1e6)
    if life.ending == "crash":
        yield Record("crash", max(tenancy.last, ended), tenancy.slot)
    elif life.ending == "leave" and tenancy.has_views:
        yield Record("view", max(tenancy.last, ended), tenancy.slot)
