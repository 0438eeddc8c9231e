"""Systems whose processes need no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cubecast.bench.peers import Servers
from cubecast.bench.workloads import Scenario


class _Nobody:
    def __init__(self) -> None:
        self.pids: list[int] = []
        self.cpu_s = 0.0


@contextmanager
def servers(scenario: Scenario, ports: tuple[int, ...]) -> Iterator[Servers]:
    """No servers."""
    yield _Nobody()
