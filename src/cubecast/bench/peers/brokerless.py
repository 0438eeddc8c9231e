"""Systems whose processes need no others; in mode `delayed` a relay stands before the asker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cubecast.bench.peers import Servers
from cubecast.bench.relay import DelayedRoute, DelayingRelay, relaying
from cubecast.bench.workloads import ASKER, Task


class _Nobody:
    def __init__(self, relay: DelayingRelay | None = None) -> None:
        self.pids: list[int] = []
        self._relay = relay

    @property
    def delayed_bytes(self) -> int:
        return 0 if self._relay is None else self._relay.delayed_bytes


@contextmanager
def nothing(task: Task) -> Iterator[Servers]:
    """No servers, and no relay."""
    yield _Nobody()


@contextmanager
def servers(task: Task) -> Iterator[Servers]:
    """No servers; a relay by which the last process gets the asker's messages late."""
    if task.mode != "delayed":
        yield _Nobody()
        return
    route = DelayedRoute(task.more_ports[0], task.ports[ASKER], "dialler", task.delay_s)
    with relaying([route]) as relay:
        yield _Nobody(relay)


def port_to_dial(task: Task, index: int) -> int:
    """Where this process reaches another; the last one reaches the asker through the relay."""
    if task.mode == "delayed" and task.index == task.last and index == ASKER:
        return task.more_ports[0]
    return task.ports[index]
