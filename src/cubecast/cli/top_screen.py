"""The screen of ``cubecast top``: nodes, the topics that wait most, slow readers.

It has at most as many lines as the terminal: of each table the first rows are shown, and a line
says how many more there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import cubecast
from cubecast.cli.output import counted, size
from cubecast.logs import escaped
from cubecast.net.node.stats import SubscriptionStats, TopicStats
from cubecast.net.topics import is_reply_topic

if TYPE_CHECKING:
    from cubecast.cli.top import Round

T = TypeVar("T")

ROWS = 10
"""Rows of topics and of readers where the height is not limited."""
AROUND = 12
"""Lines of headings and gaps."""
WIDE = 115
"""Columns from which on the addresses fit."""


def screen(
    found: Round, only: int | None, width: int, height: int | None, replies: bool = False
) -> RenderableType:
    """All tables, in `width` columns and, unless it is None, `height` lines.

    Topics for replies to requests are shown only with `replies`.
    """
    rows = len(found.nodes) + len(found.silent)
    left = ROWS * 2 if height is None else max(4, height - AROUND - rows)
    topics = [
        row for row in merged_topics(found.nodes) if replies or not is_reply_topic(row[0].topic)
    ]
    readers = [
        row for row in slow_readers(found.nodes) if replies or not is_reply_topic(row[1].topic)
    ]
    some = min(len(topics), max(left // 2, left - len(readers)))
    parts: list[RenderableType] = [_title(found, only), _nodes(found, width >= WIDE)]
    if topics:
        parts += [Text(), _topics(topics, some)]
    if readers:
        parts += [Text(), _readers(readers, max(2, left - some), width >= WIDE)]
    return Group(*parts)


def _title(found: Round, only: int | None) -> Text:
    if not found.nodes:
        what = "no node answers" if only is None else f"node {only} does not answer"
        return Text(what, style="bold red")
    first = found.nodes[0]
    epochs = sorted({one.epoch for one in found.nodes})
    view = ", ".join(map(str, epochs))
    title = Text(f"cluster {first.cluster[:8]}", style="bold")
    title.append(f"  {counted(first.members, 'node')}", style="not bold")
    title.append(f"  epoch {view}", style="not bold" if len(epochs) == 1 else "not bold yellow")
    published = sum(one.rates.published for one in found.nodes)
    delivered = sum(one.rates.delivered for one in found.nodes)
    title.append(f"  {rate(published)} published, {rate(delivered)} delivered", style="not bold")
    return title


def _nodes(found: Round, wide: bool) -> Table:
    table = _table("node", ("published", "delivered", "unread", "in flight", "waiting", "behind"))
    for heading in ("dropped", "clients") if wide else ():
        table.add_column(heading, justify="right")
    table.add_column("state", no_wrap=True, overflow="ellipsis")
    if wide:
        table.add_column("address", overflow="ellipsis")
    for one in found.nodes:
        rates = one.rates
        more = alarm(rate(rates.dropped), rates.dropped > 0), Text(str(one.clients))
        table.add_row(
            Text(str(one.node)),
            Text(rate(rates.published)),
            Text(rate(rates.delivered)),
            Text(size(one.unread_bytes)),
            Text(size(one.in_flight_bytes)),
            alarm(str(one.waiting), one.waiting > 0),
            Text(f"{sum(link.behind for link in one.links):,}"),
            *(more if wide else ()),
            _state(one),
            *([Text(escaped(one.address))] if wide else []),
        )
    for silent in found.silent:
        reason = Text(escaped(silent.reason), style="red")
        rest = [Text(escaped(silent.address))] if wide else []
        slot = "?" if silent.node < 0 else str(silent.node)
        table.add_row(Text(slot), *[Text("-")] * (8 if wide else 6), reason, *rest)
    return table


def _state(one: cubecast.Stats) -> Text:
    """The problem of a node, the worst first."""
    if not one.inside:
        return Text("in no cluster", style="red")
    if one.suspects:
        return Text(f"suspects {', '.join(map(str, one.suspects))}", style="red")
    if one.blocked:
        return Text(f"{counted(one.blocked, 'topic')} blocked", style="yellow")
    return Text("ok", style="green")


def merged_topics(nodes: Sequence[cubecast.Stats]) -> list[tuple[TopicStats, list[int]]]:
    """Topics with the sums over all nodes, and where `publish` waits; the busiest first."""
    found: dict[str, list[tuple[int, TopicStats]]] = {}
    for one in nodes:
        for topic in one.topics:
            found.setdefault(topic.topic, []).append((one.node, topic))
    merged = [_merged(topic, rows) for topic, rows in found.items()]
    return sorted(
        merged,
        key=lambda row: (not row[1], -row[0].waiting, -row[0].in_flight_bytes, row[0].topic),
    )


def _merged(topic: str, rows: list[tuple[int, TopicStats]]) -> tuple[TopicStats, list[int]]:
    stats = [one for _, one in rows]
    behind: dict[int, int] = {}
    for one in stats:
        for slot, count in one.behind.items():
            behind[slot] = behind.get(slot, 0) + count
    whole = TopicStats(
        topic=topic,
        standing="",
        members=sum(one.standing == "in" for one in stats),
        published=sum(one.published for one in stats),
        accepted=sum(one.accepted for one in stats),
        blocked=any(one.blocked for one in stats),
        in_flight_bytes=sum(one.in_flight_bytes for one in stats),
        behind=behind,
        waiting=sum(one.waiting for one in stats),
        held_bytes=sum(one.held_bytes for one in stats),
    )
    return whole, [slot for slot, one in rows if one.blocked]


def _topics(topics: Sequence[tuple[TopicStats, list[int]]], most: int) -> Table:
    table = _table("topic", right=("nodes", "published", "in flight", "waiting"))
    table.add_column("behind")
    table.add_column("blocked at")
    shown = _first(topics, most)
    for one, blocked in shown:
        worst = sorted(one.behind.items(), key=lambda lag: -lag[1])[:3]
        lags = ", ".join(f"node {slot}: {count}" for slot, count in worst)
        table.add_row(
            Text(escaped(one.topic), overflow="ellipsis", no_wrap=True),
            Text(str(one.members)),
            Text(f"{one.published:,}"),
            Text(size(one.in_flight_bytes)),
            alarm(str(one.waiting), one.waiting > 0),
            Text(lags),
            Text(", ".join(map(str, blocked)), style="yellow"),
        )
    _rest(table, len(topics) - len(shown), "topic")
    return table


def slow_readers(nodes: Sequence[cubecast.Stats]) -> list[tuple[int, SubscriptionStats]]:
    """Subscriptions that have something unread or dropped, the slowest first."""
    readers = [(one.node, row) for one in nodes for row in one.subscriptions]
    slow = [(slot, row) for slot, row in readers if row.unread_bytes or row.dropped]
    return sorted(
        slow, key=lambda row: (not row[1].owes, -row[1].unread_bytes, -row[1].dropped, row[0])
    )


def _readers(readers: Sequence[tuple[int, SubscriptionStats]], most: int, wide: bool) -> Table:
    waits = ", publishers wait" if wide else ""
    table = _table("reader of", right=("node", "unread", "messages", "limit", "dropped"))
    table.add_column("policy")
    table.add_column("of")
    shown = _first(readers, most)
    for slot, one in shown:
        table.add_row(
            Text(escaped(one.topic), overflow="ellipsis", no_wrap=True),
            Text(str(slot)),
            alarm(size(one.unread_bytes), one.unread_bytes >= one.limit_bytes),
            Text(f"{one.unread_messages:,}"),
            Text(size(one.limit_bytes)),
            alarm(f"{one.dropped:,}", one.dropped > 0),
            alarm(f"{one.policy}{waits if one.owes else ''}", one.owes),
            Text("a client" if one.client else "the node"),
        )
    _rest(table, len(readers) - len(shown), "reader")
    return table


def _table(first: str, right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _first(rows: Sequence[T], most: int) -> Sequence[T]:
    """The first rows; all of them if a line that counts the rest would take as much room."""
    return rows if len(rows) <= most else rows[: most - 1]


def _rest(table: Table, count: int, noun: str) -> None:
    if count > 0:
        table.add_row(Text(f"and {counted(count, noun)} more", style="dim"))


def alarm(text: str, wrong: bool) -> Text:
    """A number, which is coloured if it is a problem."""
    return Text(text, style="yellow" if wrong else "")


def rate(value: float) -> str:
    """Messages a second: "0/s", "7.5/s", "1,250/s"."""
    return f"{value:.1f}/s" if 0 < value < 10 else f"{value:,.0f}/s"
