"""What a handshake costs: the time of both ends, and how long a client takes to attach.

    python bench/bench_handshake.py --repeat 200

"both ends" is the CPU time of one whole handshake in one thread, without sockets.  "attach" is the
time of `cubecast.connect` to a node in another process, over TCP on the loopback interface, the
attachment included; the first has the key stretched from the secret, the later ones have it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

import cubecast
from cubecast.net.security import keys
from cubecast.net.security.handshake import Handshake
from cubecast.net.security.keys import Keys, Purpose, salt_of
from cubecast.net.wire.hello import decode_greeting

SECRET = "known to the processes of a benchmark"
SALT = salt_of("benchmark")


@dataclass
class Side:
    """One end of a handshake."""

    uid: str
    keys: Keys = field(default_factory=Keys)
    purpose: Purpose = "member"
    name: str = ""
    slot: int = 0
    salt: str = SALT

    def learn_salt(self, salt: str) -> None:
        pass


def shake(first: Side, second: Side) -> None:
    """One handshake, each greeting handed over at once."""
    ends = Handshake(first, True, second.uid), Handshake(second, False)
    packet: bytes | None = ends[0].begin()
    turn = 1
    while packet is not None:
        packet = ends[turn].take(decode_greeting(packet), packet)
        turn = 1 - turn
    for end in ends:
        end.ciphers()


def both_ends(secret: str, repeat: int) -> list[float]:
    """Seconds of CPU for each handshake, the key known."""
    first, second = Side("a", Keys(secret)), Side("b", Keys(secret))
    shake(first, second)
    times = []
    for _ in range(repeat):
        began = time.process_time()
        shake(first, second)
        times.append(time.process_time() - began)
    return times


def stretching(repeat: int) -> list[float]:
    """Seconds for a key from a secret."""
    times = []
    for number in range(repeat):
        began = time.perf_counter()
        Keys(SECRET).key("member", "", salt_of(f"benchmark {number}"))
        times.append(time.perf_counter() - began)
    keys._stretched.cache_clear()
    return times


def serve(secret: str, pipe: Pipe) -> None:
    """A node in a process of its own, until it is told to end."""

    async def live() -> None:
        async with cubecast.start("127.0.0.1:0", secret=secret) as node:
            pipe.send(node.address)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(live())


async def attach(address: str, secret: str, repeat: int) -> list[float]:
    """Seconds until a client is attached, one after the other."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        async with cubecast.connect(address, secret=secret):
            times.append(time.perf_counter() - began)
    return times


def attaching(secret: str, repeat: int) -> list[float]:
    """`attach` to a node in a process of its own."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(secret, there))
    process.start()
    try:
        return asyncio.run(attach(here.recv(), secret, repeat))
    finally:
        here.send(None)
        process.join()


def row(what: str, times: list[float]) -> str:
    """Median and extremes, in milliseconds."""
    least, most = min(times) * 1e3, max(times) * 1e3
    return f"{what:<34}{statistics.median(times) * 1e3:9.3f}{least:9.3f}{most:9.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=200, help="handshakes of each kind")
    repeat = parser.parse_args().repeat
    print(f"{'milliseconds':<34}{'median':>9}{'least':>9}{'most':>9}")
    print(row("both ends, without a secret", both_ends("", repeat)))
    print(row("both ends, with a secret", both_ends(SECRET, repeat)))
    print(row("a key from a secret", stretching(max(3, repeat // 20))))
    print(row("attach, without a secret", attaching("", repeat)))
    first, *others = attaching(SECRET, repeat)
    print(row("attach, with a secret, the first", [first]))
    print(row("attach, with a secret, the others", others))


if __name__ == "__main__":
    main()
