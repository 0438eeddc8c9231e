"""cubecast without async: for scripts, notebooks and programs of threads.

with cubecast.sync.connect() as client:
    client.publish("chat/room1", "hello")
    for message in client.subscribe("chat/#"):
        print(message.topic, message.payload)

Each node or client has a thread with an event loop of its own, so it works where a loop runs
already, as in a notebook.  `connect`, `join` and `start` take the arguments of their asynchronous
namesakes, and return when they are connected; what they return closes at the end of its ``with``
block, by `close`, or when it is collected.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import ParamSpec, TypeVar

import cubecast
from cubecast.net.client.client import Client as AsyncClient
from cubecast.net.node.node import Node as AsyncNode
from cubecast.sync.facade import Client, Node, Receipt, Subscription
from cubecast.sync.reading import Reader
from cubecast.sync.session import SessionThread

__all__ = ["Client", "Node", "Reader", "Receipt", "Subscription", "connect", "join", "start"]

P = ParamSpec("P")
A = TypeVar("A", bound=AsyncNode | AsyncClient)
F = TypeVar("F", bound=Client | Node)


def _opens(
    make: Callable[P, AbstractAsyncContextManager[A]],
    wrap: Callable[[SessionThread[A]], F],
    about: str,
) -> Callable[P, F]:
    """A function with the arguments of `make` that waits until the result is entered."""

    def open_and_wait(*args: P.args, **kwargs: P.kwargs) -> F:
        return wrap(SessionThread(partial(make, *args, **kwargs)))

    open_and_wait.__name__ = open_and_wait.__qualname__ = make.__name__
    open_and_wait.__doc__ = about
    open_and_wait.__wrapped__ = make  # type: ignore[attr-defined]  # its signature
    return open_and_wait


connect = _opens(
    cubecast.connect,
    Client,
    """Attach to a node as a light client: ``with cubecast.sync.connect() as client``.

    The arguments, and what it raises, are those of `cubecast.connect`.
    """,
)

join = _opens(
    cubecast.join,
    Node,
    """Join a cluster as a member: ``with cubecast.sync.join("127.0.0.1:7400") as node``.

    The arguments, and what it raises, are those of `cubecast.join`.
    """,
)

start = _opens(
    cubecast.start,
    Node,
    """Begin a cluster: ``with cubecast.sync.start() as node``.

    The arguments, and what it raises, are those of `cubecast.start`.
    """,
)
