"""Text from a peer, made safe for a log and for a terminal.

A reason, a topic, an address or a uid of a peer may hold anything: a newline that begins a forged
line, a sequence that moves the cursor or sets the title of a window, a mark that turns the rest of
a line around.  `escaped` leaves no such character; it is applied once, where a line is made.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: newlines, ESC, CSI
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of direction
    "\u2028\u2029"  # separators that count as ends of lines
    "\u200b\ufeff"  # characters of no width
    "\ud800-\udfff"  # halves of characters: they cannot be written
    "]"
)
_UNSAFE_BUT_LAYOUT = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def _shown(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def escaped(text: str) -> str:
    r"""The text in one line of visible characters: ``ESC`` becomes ``\x1b``, a newline ``\n``."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_shown, text)


def escaped_but_layout(text: str) -> str:
    """Like `escaped`, but tabs and newlines stay: for a payload on a terminal."""
    return _UNSAFE_BUT_LAYOUT.sub(_shown, text)
