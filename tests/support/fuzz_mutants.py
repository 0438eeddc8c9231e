"""Victims that are broken on purpose, to see that the fuzzer finds it: ``fuzz_mutants.py NAME``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from cubecast.net.wire.packets import CLIENT
from cubecast.testing.fuzz.scene import HOSTILE
from cubecast.testing.fuzz.victim import Victim, main


class Clumsy(Victim):
    """Raises at a question, loses an error at a subscription, and is slow at a publication."""

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        super().received(connection, packets)
        if connection.address.startswith(HOSTILE):
            for kind, raw in packets:
                if kind == CLIENT:
                    self.stumble(raw)

    def stumble(self, raw: bytes) -> None:
        if b"\xa3Ask" in raw:
            raise KeyError("a question")
        if b"\xa9Subscribe" in raw:
            asyncio.get_running_loop().call_soon(self.fail)
        if b"\xa7Publish" in raw:
            self.slowest_s = 60.0

    def fail(self) -> None:
        raise LookupError("a subscription")


class Mortal(Victim):
    """Ends at a publication."""

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        if connection.guest and any(b"\xa7Publish" in raw for _, raw in packets):
            os._exit(7)
        super().received(connection, packets)


class Stuck(Victim):
    """Waits for nothing at a publication."""

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        if connection.guest and any(b"\xa7Publish" in raw for _, raw in packets):
            time.sleep(3600)
        super().received(connection, packets)


class Mute(Victim):
    """Publishes nothing more after a publication of a client."""

    def received(self, connection: Any, packets: list[tuple[int, bytes]]) -> None:
        if connection.guest and any(b"\xa7Publish" in raw for _, raw in packets):
            self.publishing.publish_frame = self.swallow  # type: ignore[method-assign]
        super().received(connection, packets)

    def swallow(self, *_: Any) -> bool:
        return True


MUTANTS = {one.__name__.lower(): one for one in (Clumsy, Mortal, Stuck, Mute)}

if __name__ == "__main__":
    main(MUTANTS[sys.argv.pop(1)])
