"""A node in a process of its own that is attacked: ``python -m cubecast.testing.fuzz.victim``.

It talks with the other victims on a quiet topic that attackers leave alone, and on one that they
attack.  It takes orders as lines of JSON on stdin, and answers by lines on stdout.  It writes
errors to stderr: an honest run writes nothing there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cubecast.errors import CubecastError, NotSent, Unknown
from cubecast.net.events import Excluded
from cubecast.net.links.connection import Connection
from cubecast.net.loop import run_loop
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.testing.fuzz.scene import ATTACKED, END_OF_RECORD, HOSTILE, QUIET, config

TALK_S = 0.02
GOSSIP_S = 0.05
MAX_REASONS = 200


class Counted(list[tuple[int, bytes]]):
    """Packets that say how many of them were looked at."""

    looked_at = 0
    latest: tuple[int, bytes] = (0, b"")

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for self.latest in super().__iter__():
            self.looked_at += 1
            yield self.latest


class Victim(Shell):
    """A node that counts the packets it looks at on hostile connections, and times them."""

    def __init__(self, settings: NodeConfig) -> None:
        super().__init__(settings)
        self.looked_at = 0
        self.slowest_s = 0.0
        self.slowest: bytes = b""

    def received(self, connection: Connection, packets: list[tuple[int, bytes]]) -> None:
        if not connection.address.startswith(HOSTILE):
            super().received(connection, packets)
            return
        counted = Counted(packets)
        started = time.thread_time()
        try:
            super().received(connection, counted)
        finally:
            self.looked_at += counted.looked_at
            seconds = time.thread_time() - started
            if seconds > self.slowest_s:
                self.slowest_s, self.slowest = seconds, counted.latest[1]


class Reasons(logging.Handler):
    """Counts warnings by their reason; writes errors to stderr."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            print(self.format(record), END_OF_RECORD, sep="\n", file=sys.stderr, flush=True)
            return
        _, _, reason = record.getMessage().partition(": ")
        words = "".join(" " if one.isdigit() else one for one in reason)[:50]
        if words in self.said or len(self.said) < MAX_REASONS:
            self.said[words] += 1


class Talk:
    """What a victim says and hears on both topics."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.messages = 0
        self.exclusions = 0

    async def listen(self) -> None:
        async with self.node.subscribe(QUIET) as messages:
            say({"listening": True})
            async for message in messages:
                self.messages += 1
                text = message.payload.decode(errors="replace")
                if text.startswith("token "):
                    say({"heard": text.removeprefix("token ")})

    async def gossip(self) -> None:
        """Honest traffic in both topics; in the attacked one it may be held up."""
        async with self.node.subscribe(ATTACKED, policy="drop-oldest") as messages:
            reading = asyncio.ensure_future(self._read(messages))
            number = 0
            while not reading.done():
                number += 1
                for topic in (QUIET, ATTACKED):
                    with suppress(CubecastError):
                        await self.node.publish(topic, f"{number}")
                await asyncio.sleep(GOSSIP_S)

    async def _read(self, messages: Any) -> None:
        async for _ in messages:
            pass

    async def watch(self) -> None:
        async for event in self.node.events():
            self.exclusions += isinstance(event, Excluded)

    async def tell(self, token: str) -> None:
        """Publish a token, until it is taken."""
        while True:
            with suppress(NotSent, Unknown):
                await self.node.publish(QUIET, f"token {token}")
                return
            await asyncio.sleep(TALK_S)


def say(message: dict[str, Any]) -> None:
    """Write a line for the attacking process."""
    print(json.dumps(message), flush=True)


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def report(victim: Victim, talk: Talk, reasons: Reasons) -> dict[str, Any]:
    """How the node is."""
    view = victim.member.view
    return {
        "slot": victim.slot,
        "members": sorted(victim.node.members),
        "epoch": -1 if view is None else view.epoch,
        "looked_at": victim.looked_at,
        "messages": talk.messages,
        "exclusions": talk.exclusions,
        "resident": resident_bytes(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "slowest_s": victim.slowest_s,
        "slowest": victim.slowest[:4096].hex(),
        "reasons": dict(reasons.said.most_common(50)),
    }


async def serve(victim: Victim, reasons: Reasons, seed: str | None) -> None:
    """Be a victim until stdin ends or says so."""
    asyncio.get_running_loop().set_exception_handler(_callback_failed)
    await victim.start(seed)
    node = victim.node
    say({"address": node.address, "uid": node.uid, "pid": os.getpid()})
    talk = Talk(node)
    tasks = [asyncio.ensure_future(work()) for work in (talk.listen, talk.gossip, talk.watch)]
    for task in tasks:
        task.add_done_callback(_task_ended)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    telling: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        order = json.loads(line)
        match order["do"]:
            case "report":
                say({"report": report(victim, talk, reasons)})
            case "tell":
                task = asyncio.create_task(talk.tell(order["token"]))
                telling.add(task)
                task.add_done_callback(telling.discard)
            case "close":
                break
    for task in (*tasks, *telling):
        task.cancel()
    await asyncio.gather(*tasks, *telling, return_exceptions=True)
    with suppress(CubecastError):
        await node.close()


def _callback_failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    logging.getLogger("cubecast").error(
        "unhandled: %s", context.get("message"), exc_info=error if error is not None else False
    )


def _task_ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logging.getLogger("cubecast").error("the application was told of it", exc_info=error)


def main(kind: type[Victim] = Victim) -> None:
    """Run a victim; `kind` is for nodes that are broken on purpose."""
    parser = argparse.ArgumentParser(description="A node that a fuzzer attacks.")
    parser.add_argument("--join", default=None, help="the address of another victim")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    options = parser.parse_args()
    reasons = Reasons()
    log = logging.getLogger("cubecast")
    log.addHandler(reasons)
    log.propagate = False

    async def work() -> None:
        await serve(kind(config()), reasons, options.join)

    run = run_loop if options.loop == "uvloop" else asyncio.run
    run(work())


if __name__ == "__main__":
    main()
