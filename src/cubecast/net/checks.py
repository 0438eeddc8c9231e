"""What may be subscribed to and how: the same at a node and at its clients, and before anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from cubecast.net.reading.patterns import Pattern, is_pattern
from cubecast.net.reading.subscription import Order, Policy
from cubecast.net.topics import check_name
from cubecast.protocol.port import Topic

POLICIES: tuple[str, ...] = get_args(Policy)
ORDERS: tuple[str, ...] = get_args(Order)
MANAGERS = (
    'order="total" needs the members that number events: '
    "managers=[...], addresses of nodes, the same at every member (docs/ordering.md)"
)
NO_SUCH_OPTION = 'order="total" has no {}: cubecast.ordered takes a config that bounds what waits'


def check_subscription(topic: Topic, policy: str, queue_bytes: int) -> Pattern | None:
    """The pattern that `topic` is, if it is one; TypeError or ValueError if it cannot be meant."""
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
    """ValueError, in one line with advice, unless total order may be had with these."""
    if not managers:
        raise ValueError(MANAGERS)
    if policy != "block":
        raise ValueError(NO_SUCH_OPTION.format("policy"))
    if queue_bytes is not None:
        raise ValueError(NO_SUCH_OPTION.format("queue_bytes"))
    if codec is not None:
        raise ValueError('order="total" has no codec: decode event.payload with codec.decode')


def check_order(order: str, policy: str, managers: Sequence[str] | None = None) -> None:
    """ValueError, in one line with advice, unless a subscription may have this order."""
    if order not in ORDERS:
        raise ValueError(f'order must be one of {", ".join(ORDERS)}, "total", not {order!r}')
    if managers is not None:
        raise ValueError(f'managers are for order="total", not for {order!r}')
    if order == "none" and policy == "block":
        raise ValueError(
            'order="none" needs a policy that holds up no publisher, as policy="drop-oldest"'
        )
