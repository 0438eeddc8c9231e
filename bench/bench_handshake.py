"""What a handshake costs: the time of both ends, and how long a client takes to attach.

    python bench/bench_handshake.py --repeat 200

"both ends" is the CPU time of one whole handshake in one thread, without sockets.  With TLS that is
the handshake of TLS 1.3, in which both ends show a certificate (ECDSA on P-256) and verify the
other's against a CA and a list of revoked ones; our own handshake, without a secret, follows it.
"attach" is the time of `cubecast.connect` to a node in another process, over TCP on the loopback
interface, the attachment included; the first has the key stretched from the secret, the later ones
have it.  "attach, CPU" is the CPU time of the client's process for the same.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

import cubecast
from cubecast.net.security import keys
from cubecast.net.security.authority import create
from cubecast.net.security.handshake import Handshake
from cubecast.net.security.keys import Keys, Purpose, salt_of
from cubecast.net.security.tls import Tls
from cubecast.net.security.tls_files import load
from cubecast.net.wire.hello import decode_greeting

SECRET = "known to the processes of a benchmark"
SALT = salt_of("benchmark")
STEPS = 10
"""A handshake of TLS 1.3 takes fewer turns."""


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


def certificates(folder: Path) -> dict[str, Tls]:
    """The files of a node and of a client, made for this run."""
    authority = create(folder)
    authority.issue("node", "node")
    authority.issue("client", "client")
    names = {name: str(folder / name) for name in ("ca.pem", "crl.pem")}
    return {
        name: Tls(names["ca.pem"], str(folder / f"{name}.pem"), str(folder / f"{name}.key"),
                  names["crl.pem"])
        for name in ("node", "client")
    }  # fmt: skip


class TlsEnd:
    """One end of a TLS connection, without a socket."""

    def __init__(self, context: ssl.SSLContext, accepts: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self.incoming, self.outgoing, server_side=accepts)
        self.done = False

    def step(self) -> None:
        """Go on as far as what has come allows."""
        try:
            if self.done:
                self._end.read()  # the ticket that comes after the handshake
            else:
                self._end.do_handshake()
                self.done = True
        except ssl.SSLWantReadError:
            pass

    @property
    def shown(self) -> bool:
        """Whether the other end showed a certificate."""
        return bool(self._end.getpeercert())


def tls_handshake(accepting: ssl.SSLContext, dialling: ssl.SSLContext) -> None:
    """One handshake of TLS, what each end says handed over at once."""
    ends = TlsEnd(dialling, accepts=False), TlsEnd(accepting, accepts=True)
    for _ in range(STEPS):
        for one, other in (ends, ends[::-1]):
            one.step()
            other.incoming.write(one.outgoing.read())
    assert all(one.done and one.shown for one in ends)


def both_ends_of_tls(files: dict[str, Tls], repeat: int) -> list[float]:
    """Seconds of CPU for each handshake of TLS, the files read."""
    accepting, dialling = load(files["node"]).accepting, load(files["client"]).dialling
    tls_handshake(accepting, dialling)
    times = []
    for _ in range(repeat):
        began = time.process_time()
        tls_handshake(accepting, dialling)
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


class Attached(NamedTuple):
    """Seconds until clients were attached, and seconds of CPU that each took here."""

    times: list[float]
    cpu: list[float]


def serve(proof: dict[str, Any], pipe: Pipe) -> None:
    """A node in a process of its own, until it is told to end."""

    async def live() -> None:
        async with cubecast.start("127.0.0.1:0", **proof) as node:
            pipe.send(node.address)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(live())


async def attach(address: str, proof: dict[str, Any], repeat: int) -> Attached:
    """Attach clients, one after the other."""
    times, cpu = [], []
    for _ in range(repeat):
        began, worked = time.perf_counter(), time.process_time()
        async with cubecast.connect(address, **proof):
            times.append(time.perf_counter() - began)
            cpu.append(time.process_time() - worked)
    return Attached(times, cpu)


def attaching(node: dict[str, Any], client: dict[str, Any], repeat: int) -> Attached:
    """`attach` to a node in a process of its own; what each proves itself by."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(node, there))
    process.start()
    try:
        return asyncio.run(attach(here.recv(), client, repeat))
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
    with tempfile.TemporaryDirectory() as folder:
        files = certificates(Path(folder))
        print(row("both ends, TLS alone", both_ends_of_tls(files, repeat)))
        print(row("a key from a secret", stretching(max(3, repeat // 20))))
        plain = attaching({}, {}, repeat)
        print(row("attach, without a secret", plain.times))
        proof = {"secret": SECRET}
        (first, *others), cpu = attaching(proof, proof, repeat + 1)
        print(row("attach, with a secret, the first", [first]))
        print(row("attach, with a secret, the others", others))
        tls = attaching({"tls": files["node"]}, {"tls": files["client"]}, repeat)
    print(row("attach, with TLS", tls.times))
    print(row("attach, CPU, without a secret", plain.cpu))
    print(row("attach, CPU, with a secret", cpu[1:]))
    print(row("attach, CPU, with TLS", tls.cpu))


if __name__ == "__main__":
    main()
