"""What came of a run: metrics, histograms, per-message figures and, on request, the trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cubecast.kernel import layout as at
from cubecast.kernel.layout import EXACT_BITS, Longs, State
from cubecast.kernel.plan import Plan
from cubecast.trace import Record
from cubecast.trace.records import Kind

_CODES: dict[int, tuple[Kind, str]] = {
    at.T_SEND_PUB: ("send", "pub"),
    at.T_RECEIVE_PUB: ("receive", "pub"),
    at.T_SEND_ACK: ("send", "ack"),
    at.T_RECEIVE_ACK: ("receive", "ack"),
    at.T_SEND_DELEGATE: ("send", "delegate"),
    at.T_RECEIVE_DELEGATE: ("receive", "delegate"),
}


@dataclass(slots=True)
class Result:
    """One run of the kernel."""

    protocol: str
    plan: Plan
    metrics: dict[str, float]
    """Named as `cubecast.sim.run.Outcome.metrics`."""
    histograms: dict[str, dict[int, int]]
    """{value: how often}; values of 2^13 and more are rounded down by one part in 2^12 at most."""
    at_rest: bool
    state: State

    def messages(self) -> dict[str, Longs]:
        """Per publication, in the order of publishing: columns of equal length."""
        w = self.state
        count = int(w.s[at.PUBLISHED])
        msgs, sums = w.msgs[:count], w.sums[:count]
        return {
            "source": msgs[:, at.SOURCE],
            "topic": msgs[:, at.TOPIC],
            "seq": msgs[:, at.SEQ],
            "published_at": msgs[:, at.AT],
            "receptions": sums[:, at.RECEPTIONS],
            "reception_sum": sums[:, at.RECEPTION_SUM],
            "deliveries": sums[:, at.DELIVERIES],
            "latency_sum": sums[:, at.LATENCY_SUM],
            "latency_max": sums[:, at.LATENCY_MAX],
            "barrier": sums[:, at.DIRECT],
            "barrier_unreduced": sums[:, at.UNREDUCED],
        }

    def mean_queues(self) -> npt.NDArray[np.float64]:
        """Mean size of each node's sending queue ([J] Table 1); 0 for a node that sent nothing."""
        nodes = self.state.nodes
        means: npt.NDArray[np.float64] = nodes[:, at.QUEUED_SUM] / np.maximum(
            nodes[:, at.QUEUED], 1
        )
        return means

    def records(self) -> Iterator[Record]:
        """The trace as the reference writes it, if it was asked for."""
        yield from self._established()
        w = self.state
        answers = _Answers(self.plan)
        for code, time, node, msg, peer in w.trace[: w.s[at.TRACED]].tolist():
            topic = self.plan.topics[w.msgs[msg, at.TOPIC]]
            source, seq = int(w.msgs[msg, at.SOURCE]), int(w.msgs[msg, at.SEQ])
            if code == at.T_PUBLISH:
                reply_to = answers.of(node, int(w.sums[msg, at.REPLY]))
                yield Record("publish", time, node, topic, msg, source=node, reply_to=reply_to)
            elif code == at.T_DELIVER:
                answers.seen(node, msg)
                yield Record("deliver", time, node, topic, msg, source=source, seq=seq)
            else:
                kind, message = _CODES[code]
                if message == "pub":
                    yield Record(
                        kind, time, node, topic, msg,
                        source=source, seq=seq, peer=peer, message=message,
                    )  # fmt: skip
                else:
                    yield Record(kind, time, node, topic, peer=peer, message=message)
        held = self.kept()
        for node in range(self.plan.nodes):
            yield Record("state", int(w.s[at.NOW]), node, held=int(held[node]))

    def _established(self) -> Iterator[Record]:
        for topic, members in zip(self.plan.topics, self.plan.members, strict=True):
            for node in np.flatnonzero(members).tolist():
                yield Record("subscribe", 0, node, topic)
                yield Record("join", 0, node, topic)

    def kept(self) -> Longs:
        """Messages that each node still keeps: none, if the run came to rest."""
        return kept(self.protocol, self.plan, self.state)


class _Answers:
    """What each node of a discussion had seen when it answered: the first messages it got."""

    def __init__(self, plan: Plan) -> None:
        self._most = plan.answer_after
        self._seen: dict[int, list[int]] = {}

    def seen(self, node: int, msg: int) -> None:
        seen = self._seen.setdefault(node, [])
        if len(seen) < self._most:
            seen.append(msg)

    def of(self, node: int, reply: int) -> tuple[int, ...]:
        if reply == -1:
            return ()
        return (reply,) if reply >= 0 else tuple(self._seen[node])


def kept(protocol: str, plan: Plan, w: State) -> Longs:
    """Messages that wait at each node: for predecessors, their turn, or earlier ones at a root."""
    counts = np.zeros(plan.nodes, np.int64)
    if not (w.s[at.HOLDING] or w.s[at.WAITING]):
        return counts
    for row in range(len(w.rows)):
        topic, node = divmod(row, plan.nodes)
        place = int(w.rows[row, at.HELD_HEAD])
        while place >= 0:
            counts[node] += 1
            place = int(w.held[place, at.HELD_NEXT])
        msg = int(w.rows[row, at.QUEUE_HEAD])
        while msg >= 0:
            counts[node if protocol == "vcube-ps" else w.topics[topic, at.ROOT]] += 1
            msg = int(w.msgs[msg, at.NEXT])
    return counts


def metrics_of(protocol: str, plan: Plan, network: str, w: State, seconds: float) -> dict[str, float]:
    """The metrics of `cubecast.sim.run`, and what brokers add."""
    s = w.s
    sums = w.sums[: s[at.PUBLISHED]]
    receptions = int(sums[:, at.RECEPTIONS].sum())
    deliveries = int(sums[:, at.DELIVERIES].sum())
    latency = int(sums[:, at.LATENCY_SUM].sum()) / max(deliveries, 1)
    reception = int(sums[:, at.RECEPTION_SUM].sum()) / max(receptions, 1)
    control = int(s[at.ACKS] + s[at.DELEGATES])
    events = int(s[at.PUBS]) + control
    metrics = {
        "latency_mean": latency,
        "latency_max": float(sums[:, at.LATENCY_MAX].max(initial=0)),
        "reception_mean": reception,
        "delay_mean": latency - reception,
        "pub_messages": float(s[at.PUBS]),
        "control_messages": float(control),
        "false_positives": float(s[at.FALSE_POSITIVES]),
        "publications": float(s[at.PUBLISHED]),
        "deliveries": float(deliveries),
    }
    if network == "queue":
        metrics["queue_max"] = float(s[at.LONGEST])
    if protocol == "srpt-b":
        metrics["tree_mean"] = int(s[at.TREE_SUM]) / max(receptions, 1)
        metrics["last_hop_mean"] = reception - metrics["tree_mean"]
    metrics["events"] = float(events)
    metrics["events_per_second"] = events / max(seconds, 1e-9)
    metrics["kept"] = float(kept(protocol, plan, w).sum())
    return metrics


def histograms_of(protocol: str, network: str, w: State) -> dict[str, dict[int, int]]:
    """Latency, delay, queue lengths, and sizes of barriers in both accountings."""
    sums = w.sums[: w.s[at.PUBLISHED]]
    found = {
        "latency": _unfold(w.hist[at.LATENCY]),
        "delay": _unfold(w.hist[at.DELAY]),
    }
    if network == "queue":
        found["queue"] = _unfold(w.hist[at.QUEUE_LENGTH])
    if protocol in ("vcube-ps", "fixed-tree"):
        found["barrier"] = _counts(sums[:, at.DIRECT])
        found["barrier_unreduced"] = _counts(sums[:, at.UNREDUCED])
    return found


def _unfold(bins: Longs) -> dict[int, int]:
    """{lowest value of the bucket: count} (see `cubecast.kernel.network.tally`)."""
    half = EXACT_BITS - 1
    found = {}
    for index in np.flatnonzero(bins).tolist():
        octave = max((index >> half) - 1, 0)
        found[(index - (octave << half)) << octave] = int(bins[index])
    return found


def _counts(values: Longs) -> dict[int, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
