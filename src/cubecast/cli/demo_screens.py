"""The output of both demos: one person's screen both ways, counts in words, next commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree as Drawing

from cubecast.cli.demo_chat import answer, in_words, name_of, question, share_in_words
from cubecast.topology import Tree
from cubecast.trace import MessageId, Record

SCREEN_LINES, MOST_LINES = 8, 14
LINES_BEFORE = 1
WIDEST = 100
"""Prose is not printed wider, whatever the terminal is."""
EARLY = " < early"


def say(console: Console, text: str) -> None:
    """Print prose."""
    console.print(text, highlight=False, width=min(console.width, WIDEST))


class Window(NamedTuple):
    """Some lines of a member's screen in which an answer stands above `asked`, its question."""

    member: int
    asked: MessageId
    start: int
    lines: int


class Screens:
    """The messages shown to each member, in order, and those shown too early."""

    def __init__(self, trace: list[Record]) -> None:
        self._asked: dict[MessageId, tuple[MessageId, ...]] = {}
        self._author: dict[MessageId, int] = {}
        self._round: dict[MessageId, int] = {}
        self._shown: dict[int, list[tuple[MessageId, bool]]] = {}
        seen: set[tuple[int, MessageId]] = set()
        for record in trace:
            if record.id is None:
                continue
            if record.kind == "publish":
                self._asked[record.id] = record.reply_to
                self._author[record.id] = record.node
                if not record.reply_to:
                    self._round[record.id] = len(self._round)
            elif record.kind == "deliver":
                early = any((record.node, asked) not in seen for asked in self._asked[record.id])
                self._shown.setdefault(record.node, []).append((record.id, early))
                seen.add((record.node, record.id))

    def find_early(self) -> Window | None:
        """An answer above its question, with the question close by if possible."""
        found: list[tuple[bool, int, int, int, MessageId]] = []
        for member, shown in self._shown.items():
            lines = {message: line for line, (message, _) in enumerate(shown)}
            found += [
                (cause not in self._round, lines[cause] - line, line, member, cause)
                for message, line in lines.items()
                for cause in self._asked[message]
                if lines.get(cause, -1) > line
            ]
        if not found:
            return None
        _, distance, line, member, asked = min(found)
        start = max(0, line - LINES_BEFORE)
        lines_wanted = line - start + distance + 1
        return Window(member, asked, start, min(MOST_LINES, max(SCREEN_LINES, lines_wanted)))

    def of(self, window: Window) -> Text:
        """Some lines of a member's screen; an answer above its question is red, and marked."""
        shown = self._shown.get(window.member, [])
        asked = next((line for line, (one, _) in enumerate(shown) if one == window.asked), 0)
        start = min(window.start, asked)  # includes the question, wherever it stands
        return Text("\n").join(self._line(*one) for one in shown[start : start + window.lines])

    def _line(self, message: MessageId, early: bool) -> Text:
        author, asked = self._author[message], self._question_of(message)
        if message == asked:
            said = question(self._round[asked])
        else:
            said = answer(self._round[asked], self._author[asked], author)
        style = "bold red" if early else "bold" if message == asked else ""
        return Text(f"{name_of(author)}: {said}{EARLY if early else ''}", style=style)

    def _question_of(self, message: MessageId) -> MessageId:
        """The question itself, or the one that a message answers in the end."""
        while message not in self._round:
            message = self._asked[message][0]
        return message


def show_screens(console: Console, screens: dict[str, Screens], window: Window) -> None:
    """One person's screen under each protocol: side by side if there is room."""
    who = name_of(window.member)
    how = "red" if console.color_system and not console.no_color else "marked"
    say(console, f"\n[bold]What {who} sees.[/bold] An answer above its question is {how}.")
    texts = {name: one.of(window) for name, one in screens.items()}
    width = max(len(line) for text in texts.values() for line in text.plain.splitlines())
    panels = [
        Panel(text, title=f"{who}, {name}", width=min(width + 4, console.width))
        for name, text in texts.items()
    ]
    console.print(Columns(panels))


class InversionCounts(NamedTuple):
    """The counts of one protocol."""

    deliveries: int
    answers: int
    early: int
    violations: int


def tell_counts(console: Console, best: InversionCounts, ours: InversionCounts) -> None:
    """The numbers of both protocols, in words."""
    for name, counts in (("best effort", best), ("cubecast", ours)):
        colour = "red" if counts.early else "green"
        share = share_in_words(counts.early, counts.answers)
        say(
            console,
            f"\nWith {name} [{colour}]{share}[/] ({counts.early:,} of {counts.answers:,}). The "
            f"checkers count {_breaches(counts.violations)} in {counts.deliveries:,} messages.",
        )


def _breaches(count: int) -> str:
    shown = in_words(count) if count <= 12 else f"{count:,}"
    return f"{shown} {'breach' if count == 1 else 'breaches'} of order"


def show_tree(console: Console, taken: Tree) -> None:
    """Draw the tree that a question took, by name."""
    root = name_of(taken.root)
    hops = "one hop" if taken.height == 1 else f"{in_words(taken.height)} hops"
    count = in_words(len(taken.parent))
    say(
        console,
        f"\n[bold]How {root}'s question travels:[/bold] {count} messages, at most {hops}, no "
        "broker. Each of them passes it on to those below.",
    )
    drawing = Drawing(Text(root, style="bold"), guide_style="dim")
    below = {taken.root: drawing}
    layer = [taken.root]
    while layer:
        for node in layer:
            for child in taken.children[node]:
                below[child] = below[node].add(name_of(child))
        layer = [child for node in layer for child in taken.children[node]]
    console.print(drawing)


def tell_next(console: Console) -> None:
    """The three commands to try next."""
    command = command_name()
    say(console, "\n[bold]Try next,[/bold] each in a terminal of its own:")
    for line in ("up -n 3", "sub 'chat/#'", 'pub chat/room1 "is anybody there?"'):
        console.print(f"  {command} {line}", highlight=False, markup=False, soft_wrap=True)


def command_name() -> str:
    """How the user can call cubecast: by its name, or as it was called now."""
    typed = sys.argv[0]
    if shutil.which("cubecast") is None and Path(typed).name == "cubecast":
        return typed
    return "cubecast"
