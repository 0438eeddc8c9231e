"""Arguments that cannot be meant, told before anything is done: one line, and what to do."""

from __future__ import annotations

from typing import Any

from cubecast.net.links.address import DEFAULT_PORT

EXAMPLE = f'"127.0.0.1:{DEFAULT_PORT}"'


def check_seed(seed: object) -> None:
    """TypeError or ValueError unless `seed` may be an address of another member, or None."""
    if seed is None:
        return
    if not isinstance(seed, str):
        raise TypeError(f'seed must be "host:port" of a member, or None, not {seed!r:.80}')
    if not seed.strip():
        raise ValueError(
            'seed is empty: give "host:port" of a member, or begin a cluster with cubecast.start()'
        )


def check_listen(listen: object) -> None:
    """TypeError or ValueError unless `listen` names where to listen."""
    if not isinstance(listen, str):
        raise TypeError(f'listen must be "host:port", as {EXAMPLE}, not {listen!r:.80}')
    if not listen.strip():
        raise ValueError(f'listen is empty: give "host:port", as {EXAMPLE}, or leave it out')


def check_config(config: object, kind: type, given: dict[str, Any]) -> None:
    """TypeError or ValueError unless `config` is one, and nothing else is given that it has."""
    if config is None:
        return
    if not isinstance(config, kind):
        advice = f": {kind.__name__}(**config)" if isinstance(config, dict) else ""
        raise TypeError(f"config must be a {kind.__name__}, not {type(config).__name__}{advice}")
    for name, value in given.items():
        if value:
            raise ValueError(
                f"{name} and config exclude each other: give {kind.__name__}({name}=...) alone"
            )


def check_addresses(addresses: object) -> None:
    """TypeError or ValueError unless these are addresses in one text."""
    if isinstance(addresses, list | tuple | set):
        raise TypeError(
            'addresses must be one text, as "host:port,host:port", not a '
            f'{type(addresses).__name__}: give ",".join(addresses)'
        )
    if not isinstance(addresses, str):
        raise TypeError(f'addresses must be "host:port", as {EXAMPLE}, not {addresses!r:.80}')
    if not addresses.replace(",", "").strip():
        raise ValueError(
            f'no address to attach to: give "host:port" of a node, as {EXAMPLE}, or leave it out'
        )


def check_timeout(name: str, seconds: object, least: str = "0 or more") -> None:
    """TypeError or ValueError unless this is a time to wait for, or None where that may be."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be seconds, as 2.5, not {seconds!r:.80}")
    if not seconds >= 0 or (seconds == 0 and least != "0 or more"):
        raise ValueError(f"{name} must be {least} seconds, not {seconds}")
