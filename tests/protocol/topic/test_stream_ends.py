"""Where dead streams end: generated histories, and oracles that try everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.protocol.cluster.views import Final, HeldStream, Reports, UnreadFrame
from cubecast.protocol.port import NodeId, Seq, Stream
from cubecast.protocol.topic.stream_ends import Claims, close, decide

DEAD = [Stream(5, 0), Stream(6, 0), Stream(7, 0)]
LIVE = Stream(0, 0)
Vector = dict[Stream, Seq]


def is_live(stream: Stream) -> bool:
    return stream == LIVE


@dataclass
class Sent:
    """A frame that was published, with its direct causes."""

    stream: Stream
    first: Seq
    last: Seq
    barrier: tuple[tuple[Stream, Seq], ...]


@dataclass
class Survivor:
    """What one survivor has taken in: up to its cut, read, and held beyond that."""

    takes: bool
    cut: Vector
    delivered: Vector = field(default_factory=dict)
    held: list[Sent] = field(default_factory=list)

    def may_read(self, frame: Sent) -> bool:
        at = self.delivered.get(frame.stream, -1)
        return frame.first == at + 1 and all(
            self.delivered.get(stream, -1) >= seq for stream, seq in frame.barrier
        )


@dataclass
class History:
    """All that was published, the survivors, and what each node is known to have."""

    frames: list[Sent]
    survivors: dict[NodeId, Survivor]
    stable: Vector

    def reports(self) -> dict[NodeId, Reports]:
        found = {slot: self._report(one) for slot, one in self.survivors.items()}
        return {slot: {"t": held} if held else {} for slot, held in found.items()}

    def _report(self, one: Survivor) -> tuple[HeldStream, ...]:
        kept = [frame for frame in one.held if frame.last > self.stable.get(frame.stream, -1)]
        read = [frame for frame in kept if frame.last <= one.delivered.get(frame.stream, -1)]
        needed: Vector = {}
        for stream, seq in (cause for frame in read for cause in frame.barrier):
            if not is_live(stream) and seq > self.stable.get(stream, -1):
                needed[stream] = max(seq, needed.get(stream, -1))
        found = []
        for stream in DEAD:
            mine = [frame for frame in kept if frame.stream == stream]
            if mine or stream in needed:
                found.append(self._held(one, stream, mine, needed.get(stream, -1)))
        return tuple(found)

    def _held(self, one: Survivor, stream: Stream, mine: list[Sent], needed: Seq) -> HeldStream:
        at = one.delivered.get(stream, -1)
        read = at if at > one.cut.get(stream, -1) else needed
        base = mine[0].first - 1 if mine else at
        have = max(at, mine[-1].last) if mine else at
        unread = tuple(
            UnreadFrame(
                frame.first,
                frame.last,
                tuple(c for c in frame.barrier if c[1] > self.stable.get(c[0], -1)),
            )
            for frame in mine
            if frame.first > at
        )
        return HeldStream(stream, at, read, base, have, one.takes, unread)


def past_of(frames: list[Sent]) -> list[Sent]:
    """What the living publisher has published, and what it had read before."""
    past: list[Sent] = []
    known: Vector = {LIVE: len(frames) * 2}
    for frame in reversed(frames):
        if frame.first <= known.get(frame.stream, -1):
            past.append(frame)
            for stream, seq in frame.barrier:
                known[stream] = max(seq, known.get(stream, -1))
    return past


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A few frames that depend on earlier ones; survivors that have a part of them."""
    flip = st.booleans()
    frames: list[Sent] = []
    sent: Vector = {}
    for _ in range(draw(st.integers(1, 8))):
        stream = draw(st.sampled_from([*DEAD, LIVE]))
        first = sent.get(stream, -1) + 1
        last = first + draw(st.integers(0, 1))
        ends = [(other.stream, other.last) for other in frames if other.stream != stream]
        causes = draw(st.lists(st.sampled_from(ends), max_size=2)) if ends else []
        barrier = {s: max(q for t, q in causes if t == s) for s, _ in causes}
        frames.append(Sent(stream, first, last, tuple(barrier.items())))
        sent[stream] = last
    survivors = {}
    for slot in range(draw(st.integers(1, 4))):
        # A publisher has read what its own messages depend on, and keeps it until it is stable:
        # so its cut is below all of that.
        surely = past_of(frames) if slot == LIVE.source else []
        latest = min((frames.index(frame) for frame in surely), default=len(frames))
        begins = draw(st.one_of(st.just(0), st.integers(0, latest)))
        cut: Vector = {}
        for frame in frames[:begins]:
            cut[frame.stream] = frame.last
        one = Survivor(draw(flip) or slot == LIVE.source, cut, dict(cut))
        broken: set[Stream] = set()
        for frame in frames[begins:]:
            if frame in surely:
                one.held.append(frame)
                one.delivered[frame.stream] = frame.last
                continue
            if frame.stream in broken or draw(st.integers(0, 3)) == 0:
                broken.add(frame.stream)  # it never came, and so nothing after it in turn
                continue
            one.held.append(frame)
            if one.may_read(frame) and draw(st.integers(0, 3)):
                one.delivered[frame.stream] = frame.last
        survivors[slot] = one
    takers = [one for one in survivors.values() if one.takes]
    stable: Vector = {}
    for stream in DEAD:
        ends_of = [-1, *(frame.last for frame in frames if frame.stream == stream)]
        everyone = min(one.delivered.get(stream, -1) for one in takers)
        stable[stream] = draw(st.sampled_from([end for end in ends_of if end <= everyone]))
    return History(frames, survivors, stable)


def ends_of(history: History) -> dict[Stream, Final]:
    return {final.stream: final for final in decide(history.reports(), is_live).get("t", ())}


@settings(max_examples=150, deadline=None)
@given(histories())
def test_no_survivor_has_read_anything_above_an_end(history: History) -> None:
    ends = ends_of(history)
    for report in history.reports().values():
        for held in report.get("t", ()):
            assert held.read <= ends[held.stream].seq


@settings(max_examples=150, deadline=None)
@given(histories())
def test_an_heir_has_what_it_is_to_feed_in_whole_frames_or_others_leave_it_to_it(
    history: History,
) -> None:
    """What the heir has not, it has read: its cut covers it."""
    reports = history.reports()
    for stream, final in ends_of(history).items():
        claims = {slot: one for slot in reports for one in reports[slot].get("t", ())
                  if one.stream == stream}  # fmt: skip
        held = {
            (slot, frame.first): frame
            for slot, claim in claims.items()
            for frame in history.survivors[slot].held
            if frame.stream == stream and claim.base < frame.first <= claim.have
        }
        own = min(claims[final.heir].base, final.seq)
        assert own <= claims[final.heir].delivered or own == final.base
        seq = final.base + 1
        while seq <= final.seq:
            holders = [slot for slot in claims if (slot, seq) in held]
            assert final.heir in holders or (holders and seq <= own)
            seq = held[holders[0], seq].last + 1
        assert seq == final.seq + 1 or final.base >= final.seq


@settings(max_examples=400, deadline=None)
@given(histories())
def test_a_survivor_fed_up_to_the_ends_waits_for_nothing(history: History) -> None:
    """The oracle reads: whatever is up to an end and has its causes, until there is no more."""
    ends = ends_of(history)
    for one in history.survivors.values():
        at = dict(one.delivered)
        jumps = any(at.get(end.stream, -1) < min(end.base, end.seq) for end in ends.values())
        if not one.takes or jumps:
            continue
        reader = Survivor(True, {}, at)
        progress = True
        while progress:
            progress = False
            for frame in history.frames:
                end = ends.get(frame.stream)
                within = frame.stream == LIVE or (end is not None and frame.last <= end.seq)
                if within and reader.may_read(frame):
                    at[frame.stream] = frame.last
                    progress = True
        for stream, final in ends.items():
            assert at.get(stream, -1) >= final.seq, (stream, final)


@settings(max_examples=100, deadline=None)
@given(histories())
def test_the_order_of_reports_is_no_matter(history: History) -> None:
    reports = history.reports()
    turned = dict(reversed(list(reports.items())))
    assert decide(reports, is_live) == decide(turned, is_live)


def claims_of(history: History) -> Claims:
    claims: Claims = {}
    for slot, report in history.reports().items():
        for held in report.get("t", ()):
            claims.setdefault(held.stream, {})[slot] = held
    return claims


@settings(max_examples=100, deadline=None)
@given(histories())
def test_no_more_is_given_up_than_has_to_be(history: History) -> None:
    """Against all ways to cut what is held: the largest one in which nothing lacks a cause."""
    claims = claims_of(history)
    reach = close(claims, is_live, {})
    keys = list(reach)
    choices = []
    for stream, slot in keys:
        held = claims[stream][slot]
        cuts = {frame.first - 1 for frame in held.unread} | {held.have}
        choices.append(sorted(cuts))
    if len(list(product(*choices))) > 3000:
        return
    sound = [
        dict(zip(keys, choice, strict=True))
        for choice in product(*choices)
        if _is_closed(claims, dict(zip(keys, choice, strict=True)))
    ]
    largest = {key: max(choice[key] for choice in sound) for key in keys}
    assert reach == largest


def _is_closed(claims: Claims, reach: dict[tuple[Stream, NodeId], Seq]) -> bool:
    ends = {s: max(reach[s, slot] for slot in holders) for s, holders in claims.items()}
    return all(
        is_live(cause) or seq <= ends.get(cause, -1)
        for (stream, slot), limit in reach.items()
        for frame in claims[stream][slot].unread
        if frame.first <= limit
        for cause, seq in frame.barrier
    )


def test_a_message_that_the_heir_lacks_and_another_holds_is_not_skipped() -> None:
    """Node 2 joined after message 5 and alone has message 6; nodes 0 and 1 have message 5."""
    stream = DEAD[0]
    late = HeldStream(stream, 6, 6, 5, 6, True, (), ((stream, 5),))
    early = HeldStream(stream, 5, 5, 4, 5, True)
    reports: dict[NodeId, Reports] = {2: {"t": (late,)}, 1: {"t": (early,)}, 0: {"t": (early,)}}
    assert decide(reports, is_live) == {"t": (Final(stream, 6, heir=2, base=4, after=()),)}
    del reports[0], reports[1]
    alone = Final(stream, 6, heir=2, base=5, after=((stream, 5),))
    assert decide(reports, is_live) == {"t": (alone,)}
