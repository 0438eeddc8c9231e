"""cubecast with a secret: every packet is sealed."""

from __future__ import annotations

from cubecast.bench.peers import AsyncClient
from cubecast.bench.peers import cubecast as plain
from cubecast.bench.peers.brokerless import nothing as servers
from cubecast.bench.workloads import Task
from cubecast.net.settings.config import NodeConfig

__all__ = ["client", "servers"]

SECRET = "known to the processes of a benchmark"


class SealedClient(plain.CubecastClient):
    """A node with a secret."""

    def config(self, listen: str) -> NodeConfig:
        return NodeConfig(listen=listen, secret=SECRET)


def client(task: Task) -> AsyncClient:
    """A process's end."""
    return SealedClient(task)
