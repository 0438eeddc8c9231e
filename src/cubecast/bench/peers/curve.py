"""ZeroMQ with CURVE: authenticated and encrypted, with its own handshake and cipher."""

from __future__ import annotations

from typing import Any

from cubecast.bench.peers import BlockingClient
from cubecast.bench.peers import zmq as plain
from cubecast.bench.peers.brokerless import servers
from cubecast.bench.workloads import Task

__all__ = ["client", "servers"]

PUBLIC = rb"?CEt*OV&h)m2:TG.ERgGI:12BsioSj:QBsF?*CO>"
PRIVATE = rb"aDz+m=!QMB8}ky5rHRH@C2w34h}*I>>-s^!pwFCX"
"""A pair of keys for benchmarks alone; every process has the same."""


class CurveClient(plain.ZmqClient):
    """A PUB socket that is a server of CURVE, and a SUB socket that is its client."""

    def secure(self, socket: Any, *, server: bool) -> None:
        socket.curve_publickey, socket.curve_secretkey = PUBLIC, PRIVATE
        if server:
            socket.curve_server = True
        else:
            socket.curve_serverkey = PUBLIC


def client(task: Task) -> BlockingClient:
    """A process's end."""
    return CurveClient(task)
