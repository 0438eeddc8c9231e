"""Clusters of several machines: each is a network namespace, joined by a bridge or behind a NAT.

They need root and iproute2; elsewhere they are skipped and say why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.paths import SUPPORT

WORKER = SUPPORT / "host_worker.py"
SECRET = "a secret for namespaces"
FORWARDER = """
import asyncio
async def copy(source, sink):
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    sink.close()
async def serve(reader, writer):
    there = await asyncio.open_connection(HOST, PORT)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", PORT)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def unavailable() -> str:
    """Why this machine cannot make namespaces; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    name = f"cubecast-{os.getpid()}-probe"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"this machine makes no network namespaces: {error.stderr.strip()}"
    return ""


class Host:
    """A node in a namespace."""

    def __init__(self, lan: Lan, name: str, **arguments: Any) -> None:
        words = ["ip", "netns", "exec", name, sys.executable, str(WORKER)]
        lan.children.append(
            process := subprocess.Popen(
                [*words, json.dumps({"secret": SECRET, **arguments})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        self._process = process

    def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the node ended without a word"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def up(self) -> str:
        answer = self.heard()
        assert "address" in answer, answer
        return str(answer["address"])

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self.heard()

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self.heard() == {"left": True}
        self._process.wait(30)


class Lan:
    """Namespaces on one bridge, 10.77.0.0/24; `private` ones are behind the bridge's machine."""

    def __init__(self) -> None:
        self._prefix = f"cc{os.getpid()}"
        self._names: list[str] = []
        self.children: list[subprocess.Popen[str]] = []
        self._router = self._namespace("r")
        self._inside("ip link add br0 type bridge")
        self._inside("ip addr add 10.77.0.254/24 dev br0")
        self._inside("ip link set br0 up")

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}{name}"
        ip("netns", "add", full)
        self._names.append(full)
        ip("-n", full, "link", "set", "lo", "up")
        return full

    def _inside(self, command: str) -> None:
        ip("netns", "exec", self._router, *command.split())

    def _cable(self, name: str, end: str, address: str) -> str:
        host = self._namespace(name)
        ip("link", "add", end, "netns", self._router, "type", "veth", "peer", "eth0", "netns", host)
        ip("-n", host, "addr", "add", address, "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")
        self._inside(f"ip link set {end} up")
        return host

    def host(self, number: int) -> str:
        """A machine with the address 10.77.0.`number`."""
        host = self._cable(f"h{number}", f"v{number}", f"10.77.0.{number}/24")
        self._inside(f"ip link set v{number} master br0")
        return host

    def private_host(self) -> str:
        """A machine at 192.168.77.2 that is reached at port 7400 of 10.77.0.254 alone.

        It cannot dial: it sends over connections that others opened.
        """
        host = self._cable("p", "vp", "192.168.77.2/24")
        self._inside("ip addr add 192.168.77.1/24 dev vp")
        text = FORWARDER.replace("HOST", repr("192.168.77.2")).replace("PORT", "7400")
        words = ["ip", "netns", "exec", self._router, sys.executable, "-c", text]
        forwarder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.children.append(forwarder)
        assert forwarder.stdout is not None
        assert forwarder.stdout.readline() == "ready\n"
        return host

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        for name in self._names:
            ip("netns", "del", name)


@pytest.fixture
def lan() -> Iterator[Lan]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    lan = Lan()
    try:
        yield lan
    finally:
        lan.close()


def test_two_machines_talk_with_no_address_but_the_seeds(lan: Lan) -> None:
    one, two = lan.host(1), lan.host(2)
    first = Host(lan, one, seed=None, listen="10.77.0.1:7400")
    assert first.up() == "10.77.0.1:7400"
    second = Host(lan, two, seed="10.77.0.1:7400")
    assert second.up().startswith("10.77.0.2:")
    second.ask("publish", text="hello")
    assert first.ask("read") == {"text": "hello"}


def test_three_machines_go_on_when_the_seed_leaves(lan: Lan) -> None:
    names = [lan.host(number) for number in (1, 2, 3)]
    seed = Host(lan, names[0], seed=None, listen="10.77.0.1:7400")
    seed.up()
    second = Host(lan, names[1], seed="10.77.0.1:7400")
    second.up()
    third = Host(lan, names[2], seed="10.77.0.1:7400")
    third.up()
    seed.leave()
    for node in (second, third):
        node.ask("alone", members=2)
    second.ask("publish", text="after the seed")
    assert third.ask("read") == {"text": "after the seed"}
    # The seed's machine is back, and finds the others by a list that names itself, too.
    own, there = "10.77.0.1:7400", second.ask("members")["members"]["1"]
    again = Host(lan, names[0], seed=f"{own},{there}", listen=own)
    assert again.up() == own
    third.ask("publish", text="welcome back")
    assert again.ask("read") == {"text": "welcome back"}


def test_a_seed_that_starts_later_is_waited_for(lan: Lan) -> None:
    names = [lan.host(number) for number in (1, 2)]
    early = Host(lan, names[1], seed="10.77.0.9:7400,10.77.0.1:7400", join_timeout_s=60)
    late = Host(lan, names[0], seed=None, listen="10.77.0.1:7400")
    late.up()
    assert early.up().startswith("10.77.0.2:")


def test_a_node_behind_forwarding_is_reached_at_what_it_advertises(lan: Lan) -> None:
    one, private = lan.host(1), lan.private_host()
    outside = "10.77.0.254:7400"
    hidden = Host(lan, private, seed=None, listen="192.168.77.2:7400", advertise=outside)
    assert hidden.up() == outside
    open_one = Host(lan, one, seed=outside)
    assert open_one.up().startswith("10.77.0.1:")
    third = Host(lan, lan.host(2), seed=outside)
    third.up()
    assert third.ask("members")["members"]["0"] == outside
    hidden.ask("publish", text="from behind")
    assert open_one.ask("read") == third.ask("read") == {"text": "from behind"}
    third.ask("publish", text="to behind")
    assert hidden.ask("read") == {"text": "from behind"}
    assert hidden.ask("read") == {"text": "to behind"}


def test_a_loopback_address_is_refused_towards_another_machine(lan: Lan) -> None:
    one, two = lan.host(1), lan.host(2)
    Host(lan, one, seed=None, listen="10.77.0.1:7400").up()
    deaf = Host(lan, two, seed="10.77.0.1:7400", listen="127.0.0.1:7400")
    assert "listen on 10.77.0.2:7400" in deaf.heard()["error"]
    deaf = Host(lan, two, seed="10.77.0.1:7400", advertise="127.0.0.1")
    assert "advertise" in deaf.heard()["error"]


def test_a_seed_that_advertises_loopback_refuses_other_machines_in_words(lan: Lan) -> None:
    private = lan.private_host()
    Host(lan, private, seed=None, listen="192.168.77.2:7400", advertise="127.0.0.1:7400").up()
    newcomer = Host(lan, lan.host(1), seed="10.77.0.254:7400")
    assert "start it with advertise" in newcomer.heard()["error"]
