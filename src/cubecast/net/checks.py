"""Checks of arguments of the public API: one-line errors that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from cubecast.net.links.address import DEFAULT_PORT
from cubecast.net.reading.subscription import Order, Policy
from cubecast.net.topics import check_name
from cubecast.protocol.port import Topic
from cubecast.protocol.subscriptions.patterns import Pattern, is_pattern

EXAMPLE = f'"127.0.0.1:{DEFAULT_PORT}"'
POLICIES: tuple[str, ...] = get_args(Policy)
ORDERS: tuple[str, ...] = get_args(Order)
MANAGERS = (
    'order="total" needs the members that number events: '
    "managers=[...], addresses of nodes, the same at every member (docs/ordering.md)"
)
NO_SUCH_OPTION = 'order="total" has no {}: cubecast.ordered takes a config that bounds what waits'


def check_subscription(topic: Topic, policy: str, queue_bytes: int) -> Pattern | None:
    """The pattern of `topic`, if it is one; TypeError or ValueError for invalid arguments."""
    check_name(topic)
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    if not isinstance(queue_bytes, int):
        raise TypeError(f"queue_bytes must be an int, not {type(queue_bytes).__name__}")
    if queue_bytes < 1:
        raise ValueError(f"queue_bytes must be at least 1, not {queue_bytes}")
    return Pattern(topic) if is_pattern(topic) else None


def check_total(
    policy: str, queue_bytes: int | None, managers: Sequence[str] | None, codec: object = None
) -> None:
    """ValueError, in one line with advice, if these arguments do not fit total order."""
    if not managers:
        raise ValueError(MANAGERS)
    if policy != "block":
        raise ValueError(NO_SUCH_OPTION.format("policy"))
    if queue_bytes is not None:
        raise ValueError(NO_SUCH_OPTION.format("queue_bytes"))
    if codec is not None:
        raise ValueError('order="total" has no codec: decode event.payload with codec.decode')


def check_order(order: str, policy: str, managers: Sequence[str] | None = None) -> None:
    """ValueError, in one line with advice, if a subscription cannot have this order."""
    if order not in ORDERS:
        raise ValueError(f'order must be one of {", ".join(ORDERS)}, "total", not {order!r}')
    if managers is not None:
        raise ValueError(f'managers are for order="total", not for {order!r}')
    if order == "none" and policy == "block":
        raise ValueError(
            'order="none" needs a policy that holds up no publisher, as policy="drop-oldest"'
        )


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
    """TypeError or ValueError unless `config` is a `kind`, and excludes the arguments `given`."""
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
    """TypeError or ValueError unless `addresses` is one text of addresses."""
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
    """TypeError or ValueError unless `seconds` is a time of at least `least`, or None."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be seconds, as 2.5, not {seconds!r:.80}")
    if not seconds >= 0 or (seconds == 0 and least != "0 or more"):
        raise ValueError(f"{name} must be {least} seconds, not {seconds}")
