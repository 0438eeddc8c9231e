"""What both demos show: how many answers came too early, and one member's screen both ways."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cubecast.trace import MessageId, Record

SCREEN_LINES = 12


def counts_table(rows: dict[str, tuple[float, float, float, float]]) -> Table:
    """{protocol: deliveries, answers seen, before question, violations}"""
    table = Table(show_edge=False)
    table.add_column("protocol")
    for heading in ("deliveries", "answers seen", "before question", "violations"):
        table.add_column(heading, justify="right")
    for protocol, (deliveries, answers, inverted, violations) in rows.items():
        table.add_row(
            protocol,
            f"{deliveries:,.0f}",
            f"{answers:,.0f}",
            Text(f"{inverted:,.0f}", style="red" if inverted else "green"),
            f"{violations:,.0f}",
        )
    return table


class Screens:
    """What each member was shown, in order, and what it had not been shown before."""

    def __init__(self, trace: list[Record]) -> None:
        self._asked: dict[MessageId, tuple[MessageId, ...]] = {}
        self._author: dict[MessageId, int] = {}
        self._label: dict[MessageId, MessageId] = {}
        self._shown: dict[int, list[tuple[MessageId, bool]]] = {}
        seen: set[tuple[int, MessageId]] = set()
        for record in trace:
            if record.id is None:
                continue
            if record.kind == "publish":
                self._asked[record.id] = record.reply_to
                self._author[record.id] = record.node
                number = len(self._label) + 1
                self._label[record.id] = record.id if isinstance(record.id, int) else number
            elif record.kind == "deliver":
                early = any((record.node, asked) not in seen for asked in self._asked[record.id])
                self._shown.setdefault(record.node, []).append((record.id, early))
                seen.add((record.node, record.id))

    def first_early(self) -> tuple[int, int] | None:
        """A member that was shown an answer too early, and as how manieth line."""
        places = [
            (line, member)
            for member, shown in self._shown.items()
            for line, (_, early) in enumerate(shown)
            if early
        ]
        if not places:
            return None
        line, member = min(places)
        return member, line

    def of(self, member: int, start: int = 0) -> Text:
        """Some lines of a member's screen; an answer that came too early is marked."""
        shown = self._shown.get(member, [])
        lines = [self._line(*one) for one in shown[start : start + SCREEN_LINES]]
        if start:
            lines.insert(0, Text(f"after {start} others", style="dim"))
        left = len(shown) - start - SCREEN_LINES
        if left > 0:
            lines.append(Text(f"and {left} more", style="dim"))
        return Text("\n").join(lines)

    def _line(self, message: MessageId, early: bool) -> Text:
        asked = self._asked[message]
        said = f"answers #{self._label[asked[0]]}" if asked else "asks"
        mark = "  < early" if early else ""
        line = f"#{self._label[message]:<3} member {self._author[message]:<3} {said}{mark}"
        return Text(line, style="red" if early else "")


def show_side_by_side(
    console: Console, screens: dict[str, Screens], member: int, start: int = 0
) -> None:
    """One member's screen under each protocol."""
    console.print(
        Columns(
            [
                Panel(one.of(member, start), title=protocol, expand=False)
                for protocol, one in screens.items()
            ]
        )
    )
