"""Ctrl-C in every command that takes longer than a moment, at several moments of it.

The terminal sends SIGINT to all processes in front of it.  Whatever the moment: one line on stderr,
130 (or 0 from those that run until Ctrl-C), no traceback, no process that is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from terminal import in_front

from cubecast.bench.event_servers import free_ports

LIMIT_S = 60.0
POLL_S = 0.005
INTERRUPTED = "cubecast: interrupted"


@dataclass(frozen=True)
class Command:
    """A command that would run for long, and how it says that it is in the middle of it."""

    words: str
    until_ctrl_c: bool = False
    """Whether Ctrl-C is its proper end: then it ends with 0, and has nothing to say."""
    needs_node: bool = False
    children: int = 0
    """Processes of its own that it has in the middle of its work."""
    says: str = ""
    """What it has printed by then."""


COMMANDS = [
    Command("demo --nodes 3 --rounds 20 --trace demo.jsonl", children=3),
    Command("demo --simulated --seeds 1000"),
    Command("sim storm --seeds 5000"),
    Command("sim chaos --seeds 5000 --jobs 2 --counts counts.json", children=2),
    Command("up -n 2 --listen 127.0.0.1:0", until_ctrl_c=True, says="2 nodes up"),
    Command("node --listen 127.0.0.1:0", until_ctrl_c=True, says="node 0 on"),
    Command("sub t --at {node}", until_ctrl_c=True, needs_node=True, says="subscribed to t"),
    Command("pub t --at {node}", needs_node=True),  # until the end of stdin
    Command("top --at {node} --json", until_ctrl_c=True, needs_node=True, says='"node": 0'),
    Command("topics --at {mute}"),
    Command("nodes --at {mute}"),
    Command("why t --at {mute}"),
    Command("tree --topic t --at {mute}"),
    Command(
        "ordered manage cubecast://{node}", until_ctrl_c=True, needs_node=True, says="manager"
    ),
    Command("ordered sub cubecast://{node} t", needs_node=True),
    Command("bench fanout --processes 3 --seconds 30", children=3),
    Command("bench causal --processes 3 --questions 1000000", children=3),
    Command("chaos -n 3 --seconds 30", children=3),
]
