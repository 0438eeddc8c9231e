"""cubecast with certificates: every connection is mutual TLS 1.3."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cubecast.bench.peers import AsyncClient, Servers
from cubecast.bench.peers import cubecast as plain
from cubecast.bench.peers.brokerless import nothing
from cubecast.bench.workloads import Task
from cubecast.net.settings.config import NodeConfig

__all__ = ["client", "servers"]


def _folder(task: Task) -> Path:
    """The folder for a run's certificates, named after its ports, which no other run has."""
    return Path(tempfile.gettempdir()) / f"cubecast-bench-{'-'.join(map(str, task.ports))}"


@contextmanager
def servers(task: Task) -> Iterator[Servers]:
    """No servers; a CA and a certificate, for as long as the run takes."""
    from cubecast.net.security.authority import create

    folder = _folder(task)
    folder.mkdir(mode=0o700)
    try:
        create(folder).issue("node", "bench")
        with nothing(task) as nothing_started:
            yield nothing_started
    finally:
        shutil.rmtree(folder)


class TlsClient(plain.CubecastClient):
    """A node with a certificate."""

    def config(self, listen: str) -> NodeConfig:
        folder = _folder(self.task)
        return NodeConfig(
            listen=listen,
            tls_ca=str(folder / "ca.pem"),
            tls_cert=str(folder / "bench.pem"),
            tls_key=str(folder / "bench.key"),
        )


def client(task: Task) -> AsyncClient:
    """A process's end."""
    return TlsClient(task)
