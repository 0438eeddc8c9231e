"""ZeroMQ: every process binds a PUB socket and connects a SUB socket to all others.

pyzmq without an event loop, its fastest form.  No high-water mark: with the default one messages
are dropped, without it a publisher's memory grows as long as subscribers are behind.  There is
one topic, so it is left out of the messages.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cubecast.bench.peers import BlockingClient, Receive
from cubecast.bench.peers.brokerless import port_to_dial, servers
from cubecast.bench.workloads import Task

__all__ = ["client", "servers"]

MOST_AT_ONCE = 256
"""Messages read before a publisher gets its turn."""


class ZmqClient(BlockingClient):
    """A PUB and a SUB socket."""

    def open(self, publishes: bool, subscribes: bool, receive: Receive) -> None:
        self._zmq: Any = import_module("zmq")
        self._receive = receive
        self._context = self._zmq.Context()
        self._pub = self._context.socket(self._zmq.PUB)
        self.secure(self._pub, server=True)
        self._pub.setsockopt(self._zmq.SNDHWM, 0)
        self._pub.bind(f"tcp://127.0.0.1:{self.task.ports[self.task.index]}")
        self._sub = self._context.socket(self._zmq.SUB)
        self.secure(self._sub, server=False)
        self._sub.setsockopt(self._zmq.RCVHWM, 0)
        if subscribes:
            self._sub.setsockopt(self._zmq.SUBSCRIBE, b"")
            for index in range(self.task.processes):
                if index != self.task.index:
                    self._sub.connect(f"tcp://127.0.0.1:{port_to_dial(self.task, index)}")

    def secure(self, socket: Any, *, server: bool) -> None:
        """Set up keys, where there are any."""

    def publish(self, payload: bytes) -> None:
        self._pub.send(payload)

    def poll(self, timeout: float) -> None:
        if timeout and not self._sub.poll(timeout * 1000):
            return
        recv, noblock, receive = self._sub.recv, self._zmq.NOBLOCK, self._receive
        try:
            for _ in range(MOST_AT_ONCE):
                answer = receive(recv(noblock))
                if answer is not None:
                    self.publish(answer)
        except self._zmq.Again:
            pass

    def close(self) -> None:
        self._context.destroy(linger=0)


def client(task: Task) -> BlockingClient:
    """A process's end."""
    return ZmqClient(task)
