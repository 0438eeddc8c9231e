"""What does one slow subscriber cost the others, and is anything lost in silence?

One process publishes to all others as fast as it may.  In the middle one subscriber, for some
seconds,

    a  stops reading, and drops its oldest messages     c  stops reading; its policy is to block
    b  is stopped by SIGSTOP, and drops its oldest      d  is stopped by SIGSTOP; block

The others read all the time, and block.  Printed are messages per second of the others (each) and
of the publisher before, during and after, by how much the others fell, the longest time in which
one of them got nothing, and of the slow one what it lost and what its subscription says it dropped.
Loss that was not reported is a failure, and so is any loss of the others or of a policy that
blocks.

    python bench/bench_slow.py --case abcd --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from cubecast.bench.errors import BenchError
from cubecast.errors import NotSent
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell
from cubecast.net.reading.subscription import Policy, Subscription
from cubecast.net.settings.config import NodeConfig
from cubecast.processes.child import ChildError
from cubecast.processes.function import FunctionChild, be_child, closing_children, gather, tell_all
from cubecast.processes.signals import unwinding

TOPIC = "slow"
TIMEOUT_S = 120.0
SAMPLE_S = 0.02
STALL_S = 15.0
"""Nothing received for this long after the last publication: what is missing is lost."""
BATCH = 32
NUMBER = struct.Struct("<Q")


class Case(NamedTuple):
    """What happens to the slow subscriber."""

    how: Literal["stops reading", "SIGSTOP"]
    policy: Policy


CASES = {
    "a": Case("stops reading", "drop-oldest"),
    "b": Case("SIGSTOP", "drop-oldest"),
    "c": Case("stops reading", "block"),
    "d": Case("SIGSTOP", "block"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One process's part."""

    index: int
    case: Case
    slow: int
    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Times:
    """Moments of the monotonic clock, which all processes of a machine share."""

    begin: float
    slow_from: float
    slow_until: float
    end: float


# -- one process ----------------------------------------------------------------------------------


class Count:
    """A count, and what it was at which time."""

    def __init__(self) -> None:
        self.value = 0
        self.samples: list[tuple[float, int]] = []

    async def sample(self) -> None:
        """Note it again and again, until cancelled."""
        while True:
            self.samples.append((time.monotonic(), self.value))
            await asyncio.sleep(SAMPLE_S)


class Reader:
    """Reads everything, checks the numbers, and pauses if told to."""

    def __init__(self, messages: Subscription) -> None:
        self.messages = messages
        self.count = Count()
        self.next = 0
        self.gaps = 0
        self.disorder = 0
        self._pause: asyncio.Event | None = None

    async def read(self) -> None:
        """Read until cancelled."""
        async for message in self.messages:
            if self._pause is not None:
                await self._pause.wait()
            (number,) = NUMBER.unpack_from(message.payload)
            if number != self.next:
                self.gaps += number > self.next
                self.disorder += number < self.next
            self.next = max(self.next, number + 1)
            self.count.value += 1

    async def pause(self, times: Times) -> None:
        """Stop reading for a while."""
        await _sleep_until(times.slow_from)
        self._pause = asyncio.Event()
        await _sleep_until(times.slow_until)
        pause, self._pause = self._pause, None
        pause.set()

    async def finish(self, total: int) -> None:
        """Wait for the last message, or until nothing comes any more."""
        seen, since = -1, time.monotonic()
        while self.next < total and time.monotonic() < since + STALL_S:
            if self.count.value != seen:
                seen, since = self.count.value, time.monotonic()
            await asyncio.sleep(SAMPLE_S)


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


def run_process(part: Part, pipe: Connection) -> None:
    """One process."""
    be_child(_live(part, pipe), pipe)


async def _live(part: Part, pipe: Connection) -> None:
    seed = await asyncio.to_thread(pipe.recv)
    shell = Shell(NodeConfig())
    await shell.start(seed)
    node = shell.node
    events: Counter[str] = Counter()
    listening = asyncio.create_task(_listen(node, events))
    act = _publish(node, part, pipe) if part.index == 0 else _subscribe(node, part, pipe)
    result = await act
    pipe.send(("result", {**result, "events": dict(events)}))
    await asyncio.to_thread(pipe.recv)
    await node.close()
    await listening


async def _listen(node: Node, events: Counter[str]) -> None:
    async for event in node.events():
        events[type(event).__name__] += 1


async def _publish(node: Node, part: Part, pipe: Connection) -> dict[str, Any]:
    pipe.send(("open", node.address))
    times: Times = await asyncio.to_thread(pipe.recv)
    count = Count()
    sampling = asyncio.create_task(count.sample())
    filler = b"x" * (part.size - NUMBER.size)
    not_sent = 0
    await _sleep_until(times.begin)
    while time.monotonic() < times.end:
        for _ in range(BATCH):
            try:
                await node.publish(TOPIC, NUMBER.pack(count.value) + filler)
            except NotSent:
                not_sent += 1
                break
            count.value += 1
    sampling.cancel()
    pipe.send(("sent", count.value))
    await asyncio.to_thread(pipe.recv)
    return {"samples": count.samples, "not_sent": not_sent}


async def _subscribe(node: Node, part: Part, pipe: Connection) -> dict[str, Any]:
    slow = part.index == part.slow
    messages = node.subscribe(TOPIC, policy=part.case.policy if slow else "block")
    reader = Reader(await messages.__aenter__())
    pipe.send(("open", node.address))
    times: Times = await asyncio.to_thread(pipe.recv)
    work = [asyncio.create_task(reader.read()), asyncio.create_task(reader.count.sample())]
    if slow and part.case.how == "stops reading":
        work.append(asyncio.create_task(reader.pause(times)))
    pipe.send(("sent", 0))
    total: int = await asyncio.to_thread(pipe.recv)
    await reader.finish(total)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    return {
        "samples": reader.count.samples,
        "lost": total - reader.count.value,
        "dropped": messages.dropped,
        "gaps": reader.gaps,
        "disorder": reader.disorder,
    }


# -- the parent -----------------------------------------------------------------------------------


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run inside the block, and does after it, come what may."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def measure(case: Case, processes: int, slow: int, seconds: float, size: int) -> dict[str, Any]:
    """Run one case."""
    starts = [
        partial(FunctionChild, index, run_process, Part(index, case, slow, seconds, size))
        for index in range(processes)
    ]
    with closing_children(starts) as running:
        seed = None
        for one in running:  # in turn, so that slots, and with them the tree, are always the same
            one.tell(seed)
            (address,) = gather([one], "open", TIMEOUT_S)
            seed = seed or address
        begin = time.monotonic() + 0.2
        times = Times(begin, begin + seconds, begin + 2 * seconds, begin + 3 * seconds)
        tell_all(running, times)
        if case.how == "SIGSTOP":
            time.sleep(max(0.0, times.slow_from - time.monotonic()))
            with stopped(running[slow].pid):
                time.sleep(max(0.0, times.slow_until - time.monotonic()))
        total, *_ = gather(running, "sent", 3 * seconds + TIMEOUT_S)
        tell_all(running, total)
        results = gather(running, "result", TIMEOUT_S)
    return _figures(case, total, times, slow, results)


def _figures(
    case: Case, total: int, times: Times, slow: int, results: list[dict[str, Any]]
) -> dict[str, Any]:
    publisher = results[0]
    others = [one for index, one in enumerate(results) if index not in (0, slow)]
    rates = [_rates(one["samples"], times) for one in others]
    before, during, after = (statistics.fmean(rate[phase] for rate in rates) for phase in range(3))
    return {
        "case": case._asdict(),
        "published": total,
        "others_per_second": {"before": before, "during": during, "after": after},
        "fall_percent": 100 * (1 - during / before) if before else 0.0,
        "others_longest_silence_s": max(_silence(one["samples"], times) for one in others),
        "others_lost": sum(one["lost"] for one in others),
        "publisher_per_second": dict(
            zip(("before", "during", "after"), _rates(publisher["samples"], times), strict=True)
        ),
        "not_sent": publisher["not_sent"],
        "slow": {
            name: results[slow][name] for name in ("lost", "dropped", "gaps", "disorder", "events")
        },
        "disorder": sum(one.get("disorder", 0) for one in results),
    }


def _rates(samples: list[tuple[float, int]], times: Times) -> tuple[float, float, float]:
    """Per second before, during and after."""
    moments = (times.begin, times.slow_from, times.slow_until, times.end)
    counts = [_at(samples, moment) for moment in moments]
    before, during, after = (
        (counts[k + 1] - counts[k]) / (moments[k + 1] - moments[k]) for k in range(3)
    )
    return before, during, after


def _at(samples: list[tuple[float, int]], moment: float) -> float:
    """The count at a moment, in a straight line between the samples around it."""
    earlier = samples[0]
    for later in samples:
        if later[0] >= moment:
            gone = later[0] - earlier[0]
            share = (moment - earlier[0]) / gone if gone > 0 else 0.0
            return earlier[1] + max(0.0, share) * (later[1] - earlier[1])
        earlier = later
    return earlier[1]


def _silence(samples: list[tuple[float, int]], times: Times) -> float:
    """The longest time without a message while the publisher was to publish."""
    longest, since, last = 0.0, times.begin, -1
    for moment, count in samples:
        if not times.begin <= moment <= times.end:
            continue
        if count != last:
            since, last = moment, count
        longest = max(longest, moment - since)
    return longest


def problems(figures: dict[str, Any]) -> list[str]:
    """What must not be, however slow anything is."""
    slow = figures["slow"]
    found = []
    if figures["others_lost"]:
        found.append(f"others lost {figures['others_lost']}")
    if slow["lost"] != slow["dropped"]:
        found.append(f"the slow one lost {slow['lost']}, {slow['dropped']} of them reported")
    if figures["case"]["policy"] == "block" and slow["lost"]:
        found.append("a policy that blocks lost something")
    if figures["disorder"]:
        found.append(f"{figures['disorder']} messages out of order")
    return found


def _print(name: str, figures: dict[str, Any]) -> None:
    def three(rates: dict[str, float]) -> str:
        return " / ".join(f"{rates[phase]:,.0f}" for phase in ("before", "during", "after"))

    case, slow = figures["case"], figures["slow"]
    print(f"{name}: one subscriber {case['how']}, policy {case['policy']}")
    print(
        f"  others     {three(figures['others_per_second'])} messages per s each, "
        f"fall {figures['fall_percent']:.1f} %, longest silence "
        f"{figures['others_longest_silence_s']:.2f} s, lost {figures['others_lost']}"
    )
    print(f"  publisher  {three(figures['publisher_per_second'])}, not sent {figures['not_sent']}")
    print(
        f"  slow one   lost {slow['lost']:,} of {figures['published']:,}, "
        f"{slow['dropped']:,} reported, {slow['gaps']} gaps, events {slow['events'] or 'none'}"
    )
    for problem in problems(figures):
        print(f"  PROBLEM    {problem}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", default="abcd", help="which of a, b, c, d (default: all)")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--slow", type=int, help="which one is slow (default: the last)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each phase")
    parser.add_argument("--size", type=int, default=100, help="bytes per message")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    slow = options.processes - 1 if options.slow is None else options.slow
    if options.processes < 3 or not 0 < slow < options.processes:
        parser.error("there are at least 3 processes, and one of the subscribers is slow")
    if options.seconds <= 0 or options.size < NUMBER.size or set(options.case) - set(CASES):
        parser.error(f"seconds > 0, size >= {NUMBER.size}, cases are letters of {''.join(CASES)}")
    found = {}
    try:
        with unwinding():
            for name in options.case:
                found[name] = measure(
                    CASES[name], options.processes, slow, options.seconds, options.size
                )
                if not options.json:
                    _print(name, found[name])
    except (BenchError, ChildError) as error:
        sys.exit(f"bench_slow: {error}")
    if options.json:
        print(json.dumps(found))
    if any(problems(figures) for figures in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
