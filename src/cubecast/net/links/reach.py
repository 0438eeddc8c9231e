"""Which address of this machine others can dial: seeds, and the way from here to them.

1. A node that joins a cluster on another machine listens on, and tells others, the address from
   which this machine reaches its seed, unless the configuration names one.
2. A loopback address is never told to a cluster on another machine: a node that dials it reaches
   itself.  The joining node refuses to start, and a seed refuses such a node with a reason.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple

from cubecast.errors import JoinError
from cubecast.net.links.address import format_address, is_loopback, parse_address
from cubecast.net.settings.config import NodeConfig

ANYWHERE = "127.0.0.1:0"
"""The default of `NodeConfig.listen`: a free port, on this machine or towards the seed."""
MAX_SEEDS = 256
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""How long a seed that cannot be reached is left alone, at first and at most."""


class Way(NamedTuple):
    """How a seed is reached: from the address `local` of this machine to the address `remote`."""

    seed: str
    local: str
    remote: str

    @property
    def leads_elsewhere(self) -> bool:
        """Whether the seed is on another machine."""
        return not is_loopback(self.remote) and self.local != self.remote


def parse_seeds(text: str) -> tuple[str, ...]:
    """The addresses of a list such as "a:7400,b:7400"; `ValueError` if there is none."""
    seeds = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not seeds:
        raise ValueError("no address to join: give host:port of a member, or several with commas")
    if len(seeds) > MAX_SEEDS:
        raise ValueError(f"{len(seeds)} seeds are more than {MAX_SEEDS}")
    for seed in seeds:
        parse_address(seed)
    return seeds


async def find_way(seeds: Sequence[str]) -> Way | None:
    """The way to the first seed that has an address; None if none has at present."""
    for seed in seeds:
        way = await _way_to(seed)
        if way is not None:
            return way
    return None


async def _way_to(seed: str) -> Way | None:
    """Ask the system which of our addresses it would use; nothing is sent."""
    host, port = parse_address(seed)
    if is_loopback(host):
        return Way(seed, host, host)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return Way(seed, str(probe.getsockname()[0]), str(address[0]))
        except OSError:  # no route, or no such family here
            continue
    return None


async def wait_for_way(seeds: Sequence[str], limit_s: float) -> Way:
    """The way to a seed, as soon as one has an address; `JoinError` after `limit_s`."""
    pause_s = FIRST_PAUSE_S
    try:
        async with asyncio.timeout(limit_s):
            while (way := await find_way(seeds)) is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    except TimeoutError:
        reason = f"no such host, or no way to it, for {limit_s:g} s"
        raise JoinError(",".join(seeds), reason) from None
    return way


async def choose_listen(config: NodeConfig, seeds: Sequence[str]) -> tuple[str, int]:
    """Where a node that joins listens; `JoinError` if its seeds could not dial it there."""
    host, port = parse_address(config.listen)
    told = parse_address(config.advertise)[0] if config.advertise else host
    if not seeds or not _is_local(told):
        return host, port
    way = await wait_for_way(seeds, config.join_timeout_s)
    if is_loopback(way.remote):
        return host, port
    if not config.advertise and config.listen == ANYWHERE:
        return way.local, port
    if not way.leads_elsewhere:
        return host, port
    key, value = ("advertise", config.advertise) if config.advertise else ("listen", config.listen)
    better = format_address(way.local, port or parse_address(ANYWHERE)[1])
    raise JoinError(
        way.seed,
        f"{key} is {value!r}, which a cluster on another machine cannot dial: "
        f"{'advertise' if config.advertise else 'listen on'} {better}, or set advertise to the "
        "address where others reach this node",
    )


async def without_self(seeds: Sequence[str], bound: tuple[str, int], told: str) -> tuple[str, ...]:
    """The seeds that are not this node; `JoinError` if there is no other."""
    others = []
    for seed in seeds:
        same_port = parse_address(seed)[1] == bound[1]
        way = await _way_to(seed) if same_port else None
        here = way is not None and not way.leads_elsewhere
        ours = way is not None and bound[0] in (way.remote, "0.0.0.0", "::")
        if seed != told and not (here and ours):
            others.append(seed)
    if seeds and not others:
        raise JoinError(
            ",".join(seeds),
            "that is this node's own address: name another member, or begin a cluster with "
            "cubecast.start (in a terminal: cubecast node without --join)",
        )
    return tuple(others)


def _is_local(host: str) -> bool:
    return is_loopback(host) or host == "localhost"


def unfit(theirs: str, ours: str, peer: str, local: str) -> str:
    """Why a newcomer that tells others to dial `theirs` cannot be taken; empty: it can.

    `ours` is the address we tell others, `peer` and `local` are the two ends of the connection.
    A newcomer from another machine must not name a loopback address, and must not be told ours.
    """
    if not _is_address(peer) or is_loopback(peer) or peer == local:
        return ""
    if _is_local(parse_address(theirs)[0]):
        return (
            f"it tells others to dial {theirs}, where they would reach themselves: set advertise, "
            "or listen on an address of its own"
        )
    if _is_local(parse_address(ours)[0]):
        return (
            f"this node tells others to dial {ours}, which is of no use on another machine: start "
            "it with advertise"
        )
    return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
