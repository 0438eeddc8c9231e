"""The ends of dead streams, as a function of the survivors' reports.

Every survivor stops delivering the dead streams before it reports (`HeldStream`), so the reports
still hold when the ends are decided from all of them.  The end of a stream is the longest prefix
that one survivor, the *heir*, holds together with its causes, or has read and others hold.

Invariants:

1. What a survivor has handed to its application is not above the end: the survivor holds it, or it
   is stable, and its causes were handed over before.
2. Nothing up to an end depends on a message of a dead stream above that stream's end.  Causes in
   streams of living publishers do not matter: the publishers have them.
3. The ends depend on the reports alone, so the next leader comes to a sound decision again.  An end
   that no survivor has reached may move down when its heir dies as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cubecast.protocol.cluster.views import Final, Finals, HeldStream, Reports
from cubecast.protocol.port import NodeId, Seq, Stream

Claims = dict[Stream, dict[NodeId, HeldStream]]
"""Of one topic: what each survivor holds of each dead stream."""


def decide(reports: Mapping[NodeId, Reports], is_live: Callable[[Stream], bool]) -> Finals:
    """The ends of all dead streams that a survivor reported."""
    topics: dict[str, Claims] = {}
    for slot in sorted(reports):
        for topic, held in reports[slot].items():
            claims = topics.setdefault(topic, {})
            for one in held:
                if not is_live(one.stream):
                    claims.setdefault(one.stream, {})[slot] = one
    return {topic: decide_topic(topics[topic], is_live) for topic in sorted(topics)}


def decide_topic(claims: Claims, is_live: Callable[[Stream], bool]) -> tuple[Final, ...]:
    """The ends of the dead streams of one topic."""
    limits: dict[Stream, Seq] = {}
    while True:
        reach = close(claims, is_live, limits)
        finals = tuple(
            _choose(stream, holders, {slot: reach[stream, slot] for slot in holders})
            for stream, holders in claims.items()
        )
        ends = {final.stream: final.seq for final in finals}
        if all(ends[stream] >= reached for (stream, _), reached in reach.items()):
            return tuple(_clipped(final, ends, is_live) for final in finals)
        limits = ends  # the chosen heir has less: what depends on the rest must go, too


def close(
    claims: Claims, is_live: Callable[[Stream], bool], limits: Mapping[Stream, Seq]
) -> dict[tuple[Stream, NodeId], Seq]:
    """How far each survivor holds a stream with all causes held by some survivor.

    Begins with everything, up to `limits`, and takes away messages whose causes no survivor has,
    until nothing changes.
    """
    reach = {
        (stream, slot): min(held.have, limits.get(stream, held.have))
        for stream, holders in claims.items()
        for slot, held in holders.items()
    }
    while True:
        ends = {
            stream: max(reach[stream, slot] for slot in holders)
            for stream, holders in claims.items()
        }
        changed = False
        for (stream, slot), limit in reach.items():
            allowed = _allowed(claims[stream][slot], limit, ends, is_live)
            if allowed < limit:
                reach[stream, slot] = allowed
                changed = True
        if not changed:
            return reach


def _allowed(
    held: HeldStream, limit: Seq, ends: Mapping[Stream, Seq], is_live: Callable[[Stream], bool]
) -> Seq:
    """How far a holder's frames go before one depends on a message that no survivor has."""
    for frame in held.unread:
        if frame.first > limit:
            break
        for stream, seq in frame.barrier:
            if not is_live(stream) and seq > ends.get(stream, -1):
                return frame.first - 1
    return limit


def _choose(
    stream: Stream, holders: Mapping[NodeId, HeldStream], reach: Mapping[NodeId, Seq]
) -> Final:
    """The end of a stream, with the heir.

    In this order: no survivor has read further than the heir goes, no survivor has to jump, and the
    heir goes far.  Survivors that lack everything may have reported nothing, so of equals the one
    that has the most inherits; one that left the topic inherits only if no other has as much.
    Others may hold what the heir lacks: they send it to the heir (`Inheritance.bequeath`), which
    feeds all of it.
    """
    must = max(held.read for held in holders.values())
    lowest = {slot: _lowest(slot, holders, reach) for slot in holders}

    def rank(slot: NodeId) -> tuple[bool, bool, Seq, Seq, bool, NodeId]:
        held, end = holders[slot], reach[slot]
        base = min(holders[lowest[slot]].base, end)
        jumps = any(other.takes and other.delivered < base for other in holders.values())
        return end >= must, not jumps, end, -held.base, held.takes, -slot

    heir = max(holders, key=rank)
    first = holders[lowest[heir]]
    base = min(first.base, reach[heir])
    return Final(stream, reach[heir], heir, base, first.cut)  # others may have nothing


def _lowest(
    slot: NodeId, holders: Mapping[NodeId, HeldStream], reach: Mapping[NodeId, Seq]
) -> NodeId:
    """The holder of the first message of what `slot` and others hold together without a hole."""
    while True:
        base = holders[slot].base
        below = [
            other
            for other, held in holders.items()
            if held.base < base <= min(held.have, reach[other])
        ]
        if not below:
            return slot
        slot = min(below, key=lambda other: (holders[other].base, other))


def _clipped(final: Final, ends: Mapping[Stream, Seq], is_live: Callable[[Stream], bool]) -> Final:
    """The end with `after` limited to the ends of dead streams: a skip waits for no more.

    A dead stream that no survivor reported: every survivor has as much of it as any other.
    """
    after = tuple(
        (stream, seq if is_live(stream) else min(seq, ends[stream]))
        for stream, seq in final.after
        if is_live(stream) or ends.get(stream, -1) >= 0
    )
    return Final(final.stream, final.seq, final.heir, final.base, after)
