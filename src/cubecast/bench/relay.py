"""A TCP relay that makes one direction of one link late: for systems without a hook of their own.

Bytes arrive in order, each chunk a constant time after it came in.  The relay runs on a thread of
the benchmark's parent, which has nothing else to do meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

CHUNK = 1 << 16
START_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class DelayedRoute:
    """Connects a dialler of `listen` to `target`; one of the two gets the other's bytes late."""

    listen: int
    target: int
    late: Literal["dialler", "target"]
    """The end that gets its bytes late."""
    delay_s: float


class DelayingRelay:
    """Relays connections of some routes; counts what it has delayed."""

    def __init__(self, routes: Sequence[DelayedRoute]) -> None:
        self._routes = routes
        self._tasks: set[asyncio.Task[None]] = set()
        self.delayed_bytes = 0

    async def run(self, up: threading.Event, stop: asyncio.Event) -> None:
        """Listen until told to stop."""
        servers = [await self._listen(route) for route in self._routes]
        up.set()
        await stop.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, route: DelayedRoute) -> asyncio.Server:
        async def accepted(
            from_dialler: asyncio.StreamReader, to_dialler: asyncio.StreamWriter
        ) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._connect(route, from_dialler, to_dialler)
            except (OSError, asyncio.CancelledError):
                pass  # the target is not up yet, or we are to stop: the dialler sees the end
            finally:
                self._tasks.discard(task)
                to_dialler.close()

        return await asyncio.start_server(accepted, "127.0.0.1", route.listen)

    async def _connect(
        self,
        route: DelayedRoute,
        from_dialler: asyncio.StreamReader,
        to_dialler: asyncio.StreamWriter,
    ) -> None:
        from_target, to_target = await asyncio.open_connection("127.0.0.1", route.target)
        to_late = {"dialler": 0.0, "target": 0.0, route.late: route.delay_s}
        try:
            pumps = [
                asyncio.create_task(self._pump(from_dialler, to_target, to_late["target"])),
                asyncio.create_task(self._pump(from_target, to_dialler, to_late["dialler"])),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            to_target.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
    ) -> None:
        """Pass on what is read, `delay_s` later, until either side ends."""
        if not delay_s:
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
            return
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send_late(late, writer))
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(CHUNK):
                late.put_nowait((loop.time() + delay_s, data))
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send_late(
        self, late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await late.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.delayed_bytes += len(data)
            writer.write(data)
            await writer.drain()


@contextmanager
def relaying(routes: Sequence[DelayedRoute]) -> Iterator[DelayingRelay]:
    """A relay on a thread of its own."""
    relay = DelayingRelay(routes)
    up, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(relay.run(up, stop))
        except OSError as error:
            failed.append(error)
            up.set()
        finally:
            loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if not up.wait(START_TIMEOUT_S) or failed:
            raise failed[0] if failed else TimeoutError("the relay did not start")
        yield relay
    finally:
        if not failed:
            loop.call_soon_threadsafe(stop.set)
        thread.join()
