"""What may be subscribed to and how: the same at a node and at its clients, and before anything."""

from __future__ import annotations

from typing import get_args

from cubecast.net.patterns import Pattern, is_pattern
from cubecast.net.subscription import Order, Policy
from cubecast.net.topics import check_name
from cubecast.protocol.port import Topic

POLICIES: tuple[str, ...] = get_args(Policy)
ORDERS: tuple[str, ...] = get_args(Order)
TOTAL = (
    'order="total" is for topics that are read together: '
    "async with cubecast.ordered(node, managers=[...]) as ordered, then ordered.subscribe(...)"
)


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


def check_order(order: str, policy: str) -> None:
    """ValueError, in one line with advice, unless a subscription may have this order."""
    if order == "total":
        raise ValueError(TOTAL)
    if order not in ORDERS:
        raise ValueError(f'order must be one of {", ".join(ORDERS)}, "total", not {order!r}')
    if order == "none" and policy == "block":
        raise ValueError(
            'order="none" needs a policy that holds up no publisher, as policy="drop-oldest"'
        )
