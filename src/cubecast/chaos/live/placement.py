"""The network of a chaos run's processes: the machine's own, or a namespace for each process.

`Loopback` leaves cutting links to the fault-injecting transport of each node.  `Namespaces` gives
each process a network namespace, and cuts links in the kernel: packets do not arrive, and no
node is told.

    hub namespace:   bridge side0   bridge side1 ...     (one for each side of a partition)
                       |    |            |
    node namespaces:  eth0 eth0         eth0             10.83.0.1, 10.83.0.2, ...

A partition moves the hub's ends of the cables to other bridges; a one-way cut is a blackhole route
at the sender.  Nothing outside of these namespaces is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from cubecast.chaos.condition import Condition

COMMAND_S = 20.0
MOST_NODES = 200


class PlacementError(Exception):
    """The processes cannot be put there."""


class Placement(Protocol):
    """Where processes are; a context manager that leaves nothing behind."""

    cuts_links: bool
    """Whether links are cut here, and not by the nodes themselves."""

    def __enter__(self) -> Placement: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def command(self, number: int) -> Sequence[str]:
        """The words before the command of a process that run it in its place."""

    def listen(self, number: int) -> str:
        """The address where a process listens."""

    def links_changed(self, condition: Condition) -> None:
        """Cut and mend links."""


class Loopback:
    """All processes on the loopback interface."""

    cuts_links = False

    def __enter__(self) -> Loopback:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def command(self, number: int) -> Sequence[str]:
        return ()

    def listen(self, number: int) -> str:
        return "127.0.0.1:0"

    def links_changed(self, condition: Condition) -> None:
        pass


class Namespaces:
    """Each in a network namespace, all cabled to a hub; needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN).

    Names begin with ``cubecast-`` and the id of this process, so that two runs do not meet.
    """

    cuts_links = True

    def __init__(self, nodes: int) -> None:
        if nodes > MOST_NODES:
            raise PlacementError(f"at most {MOST_NODES} namespaces, not {nodes}")
        self._nodes = nodes
        self._prefix = f"cubecast-{os.getpid()}"
        self._hub = f"{self._prefix}-hub"
        self._made: list[str] = []
        self._blackholes: set[tuple[int, int]] = set()
        self._sides = [0] * nodes
        self._bridges = 0

    def __enter__(self) -> Namespaces:
        if shutil.which("ip") is None:
            raise PlacementError("network namespaces need the command ip (package iproute2)")
        try:
            self._add(self._hub)
            self._add_bridge()
            for number in range(self._nodes):
                self._cable(number)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _add(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _add_bridge(self) -> None:
        name = f"side{self._bridges}"
        ip("-n", self._hub, "link", "add", name, "type", "bridge")
        ip("-n", self._hub, "link", "set", name, "up")
        self._bridges += 1

    def _cable(self, number: int) -> None:
        space, end = self._space(number), f"n{number}"
        self._add(space)
        ip("-n", self._hub, "link", "add", end, "type", "veth", "peer", "eth0", "netns", space)
        ip("-n", self._hub, "link", "set", end, "master", "side0", "up")
        ip("-n", space, "address", "add", f"{_address(number)}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        """Remove the namespaces and their links; the processes in them have ended before."""
        while self._made:
            with contextlib.suppress(PlacementError):  # go on if one is gone already
                ip("netns", "delete", self._made.pop())

    def _space(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def command(self, number: int) -> Sequence[str]:
        return ("ip", "netns", "exec", self._space(number))

    def listen(self, number: int) -> str:
        return f"{_address(number)}:0"

    def links_changed(self, condition: Condition) -> None:
        sides = sides_of(condition)
        while self._bridges <= max(sides):
            self._add_bridge()
        for number, side in enumerate(sides):
            if side != self._sides[number]:
                ip("-n", self._hub, "link", "set", f"n{number}", "master", f"side{side}")
        self._sides = sides
        wanted = {
            (one, other)
            for one in range(self._nodes)
            for other in range(self._nodes)
            if sides[one] == sides[other] and condition.link(one, other).cut
        }
        for one, other in wanted - self._blackholes:
            ip("-n", self._space(one), "route", "add", "blackhole", f"{_address(other)}/32")
        for one, other in self._blackholes - wanted:
            ip("-n", self._space(one), "route", "delete", "blackhole", f"{_address(other)}/32")
        self._blackholes = wanted


def sides_of(condition: Condition) -> list[int]:
    """The side of each node: only a cut in both directions separates two nodes, or two groups."""
    sides = [-1] * condition.nodes
    for first in range(condition.nodes):
        if sides[first] >= 0:
            continue
        side = max(sides) + 1
        reached = [first]
        while reached:
            one = reached.pop()
            sides[one] = side
            reached += [
                other
                for other in range(condition.nodes)
                if sides[other] < 0
                and not (condition.link(one, other).cut and condition.link(other, one).cut)
            ]
    return sides


def permitted() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    try:
        with Namespaces(1):
            return ""
    except PlacementError as error:
        return str(error)


def ip(*words: str) -> None:
    """Run the command ip; raise `PlacementError` with its last line if it fails."""
    try:
        done = subprocess.run(
            ["ip", *words], capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlacementError(f"ip {' '.join(words)}: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        hint = ": network namespaces need root" if os.geteuid() != 0 else ""
        raise PlacementError(f"ip {' '.join(words)}: {said[-1]}{hint}")


def _address(number: int) -> str:
    return f"10.83.0.{number + 1}"
