"""The result of a run: metrics, histograms, per-message figures and, on request, the trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cubecast.kernel.shared.arrays import Longs
from cubecast.kernel.static import layout as at
from cubecast.kernel.static.layout import EXACT_BITS, StaticState
from cubecast.kernel.static.plan import Plan
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


_COLUMNS = {
    "source": at.SOURCE,
    "seq": at.SEQ,
    "published_at": at.AT,
    "receptions": at.RECEPTIONS,
    "reception_sum": at.RECEPTION_SUM,
    "deliveries": at.DELIVERIES,
    "latency_sum": at.LATENCY_SUM,
    "latency_max": at.LATENCY_MAX,
    "barrier": at.DIRECT,
    "barrier_unreduced": at.UNREDUCED,
}


@dataclass(slots=True)
class Result:
    """One run of the kernel."""

    protocol: str
    plan: Plan
    metrics: dict[str, float]
    """Named as `cubecast.sim.run.Outcome.metrics`."""
    histograms: dict[str, dict[int, int]]
    """{value: count}; values of 2^13 and more are rounded down by one part in 2^12 at most."""
    at_rest: bool
    state: StaticState

    def messages(self) -> dict[str, Longs]:
        """Per publication, in the order of publishing: columns of equal length."""
        table = message_table(self.state)
        return {name: table[:, column] for name, column in _COLUMNS.items()} | {
            "topic": (table[:, at.TOPIC] - self.state.m[at.TOPICS_AT]) // at.TOPIC_COLUMNS
        }

    def mean_queues(self) -> npt.NDArray[np.float64]:
        """Mean size of each node's sending queue ([J] Table 1); 0 for a node that sent nothing."""
        m = self.state.m
        nodes = _table(m, at.NODES_AT, self.plan.nodes, at.NODE_COLUMNS)
        means: npt.NDArray[np.float64] = nodes[:, at.QUEUED_SUM] / np.maximum(
            nodes[:, at.QUEUED], 1
        )
        return means

    def records(self) -> Iterator[Record]:
        """The trace as the reference writes it, if it was asked for."""
        yield from self._established()
        m = self.state.m
        answers = _Answers(self.plan)
        columns = {name: column.tolist() for name, column in self.messages().items()}
        replies = message_table(self.state)[:, at.REPLY].tolist()
        for code, time, node, msg, peer in self._lines():
            topic = self.plan.topics[columns["topic"][msg]]
            source, seq = columns["source"][msg], columns["seq"][msg]
            if code == at.T_PUBLISH:
                reply_to = answers.of(node, self._number(replies[msg]))
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
            yield Record("state", int(m[at.NOW]), node, held=int(held[node]))

    def _lines(self) -> Iterator[tuple[int, int, int, int, int]]:
        """The trace as it was written, messages numbered from 0."""
        m = self.state.m
        start = int(m[at.TRACE_AT])
        lines = self.state.rare[start : start + int(m[at.TRACED]) * at.TRACE_COLUMNS]
        for code, time, node, msg, peer in lines.reshape(-1, at.TRACE_COLUMNS).tolist():
            yield code, time, node, self._number(msg), peer

    def _number(self, msg: int) -> int:
        """The number of the message at a place; negative places stay as they are."""
        return msg if msg < 0 else (msg - int(self.state.m[at.MSGS_AT])) // at.MSG_COLUMNS

    def _established(self) -> Iterator[Record]:
        for topic, members in zip(self.plan.topics, self.plan.members, strict=True):
            for node in np.flatnonzero(members).tolist():
                yield Record("subscribe", 0, node, topic)
                yield Record("join", 0, node, topic)

    def kept(self) -> Longs:
        """Messages that each node still keeps: none, if the run came to rest."""
        return kept(self.protocol, self.plan, self.state)


class _Answers:
    """The messages that each node of a discussion had seen when it answered."""

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


def _table(m: Longs, where: int, lines: int, columns: int) -> Longs:
    start = int(m[where])
    return m[start : start + lines * columns].reshape(lines, columns)


def message_table(w: StaticState) -> Longs:
    """The messages that were published, a line each."""
    return _table(w.m, at.MSGS_AT, int(w.m[at.PUBLISHED]), at.MSG_COLUMNS)


def kept(protocol: str, plan: Plan, w: StaticState) -> Longs:
    """Messages that wait at each node: for predecessors, their turn, or earlier ones at a root."""
    m = w.m
    counts = np.zeros(plan.nodes, np.int64)
    if not (m[at.HOLDING] or m[at.WAITING]):
        return counts
    for line in _table(m, at.TOPICS_AT, len(plan.topics), at.TOPIC_COLUMNS):
        for node in range(plan.nodes):
            row = int(line[at.ROWS]) + node * at.ROW_COLUMNS
            counts[node] += m[row + at.HELD_COUNT]
            msg = int(m[row + at.QUEUE_HEAD])
            while msg >= 0:
                counts[node if protocol == "vcube-ps" else line[at.ROOT]] += 1
                msg = int(m[msg + at.NEXT])
    return counts


def metrics_of(
    protocol: str, plan: Plan, network: str, w: StaticState, seconds: float
) -> dict[str, float]:
    """The metrics of `cubecast.sim.run`, and those of brokers."""
    m = w.m
    table = message_table(w)
    receptions = int(table[:, at.RECEPTIONS].sum())
    deliveries = int(table[:, at.DELIVERIES].sum())
    latency = int(table[:, at.LATENCY_SUM].sum()) / max(deliveries, 1)
    reception = int(table[:, at.RECEPTION_SUM].sum()) / max(receptions, 1)
    control = int(m[at.ACKS] + m[at.DELEGATES])
    events = int(m[at.PUBS]) + control
    metrics = {
        "latency_mean": latency,
        "latency_max": float(np.max(table[:, at.LATENCY_MAX], initial=0)),
        "reception_mean": reception,
        "delay_mean": latency - reception,
        "pub_messages": float(m[at.PUBS]),
        "control_messages": float(control),
        "false_positives": float(m[at.FALSE_POSITIVES]),
        "publications": float(m[at.PUBLISHED]),
        "deliveries": float(deliveries),
    }
    if network == "queue":
        metrics["queue_max"] = float(m[at.LONGEST])
    if protocol == "srpt-b":
        metrics["tree_mean"] = int(m[at.TREE_SUM]) / max(receptions, 1)
        metrics["last_hop_mean"] = reception - metrics["tree_mean"]
    metrics["events"] = float(events)
    metrics["events_per_second"] = events / max(seconds, 1e-9)
    metrics["kept"] = float(kept(protocol, plan, w).sum())
    return metrics


def histograms_of(protocol: str, network: str, w: StaticState) -> dict[str, dict[int, int]]:
    """Latency, delay, queue lengths, and sizes of barriers in both accountings."""
    bins = _table(w.m, at.HIST_AT, at.HISTOGRAMS, at.HIST_BINS)
    found = {"latency": _unfold(bins[at.LATENCY]), "delay": _unfold(bins[at.DELAY])}
    if network == "queue":
        found["queue"] = _unfold(bins[at.QUEUE_LENGTH])
    if protocol in ("vcube-ps", "fixed-tree"):
        table = message_table(w)
        found["barrier"] = _counts(table[:, at.DIRECT])
        found["barrier_unreduced"] = _counts(table[:, at.UNREDUCED])
    return found


def _unfold(bins: Longs) -> dict[int, int]:
    """{lowest value of the bucket: count} (see `cubecast.kernel.static.network.tally`)."""
    half = EXACT_BITS - 1
    found = {}
    for index in np.flatnonzero(bins).tolist():
        octave = max((index >> half) - 1, 0)
        found[(index - (octave << half)) << octave] = int(bins[index])
    return found


def _counts(values: Longs) -> dict[int, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
