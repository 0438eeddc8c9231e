"""The cluster that the pytest fixture `cubecast_cluster` gives to a test."""

from __future__ import annotations

from types import TracebackType

from cubecast.net.node.node import Node
from cubecast.net.settings.config import NodeConfig
from cubecast.testing.cluster import Cluster
from cubecast.testing.virtual import TEST_LIMIT_S, Given

NODES = 3
NOT_OPEN = (
    "cubecast_cluster is not open: make the test `async def`, and where another plugin runs such "
    "tests (pytest-asyncio in auto mode) decorate it with @cubecast.testing.on_virtual_time"
)


class GivenCluster(Cluster, Given):
    """A cluster that is judged when its test has passed.

    It then ends all faults, waits until nothing is in flight, and checks everything that the nodes
    did; with `check=False` it is only closed.
    """

    def __init__(
        self,
        nodes: int = NODES,
        *,
        seed: int = 0,
        check: bool = True,
        config: NodeConfig | None = None,
        secret: str = "",
        client_secret: str = "",
        limit_s: float = TEST_LIMIT_S,
    ) -> None:
        super().__init__(
            nodes, seed=seed, trace=check, config=config, secret=secret, client_secret=client_secret
        )
        self._is_open = False
        self.limit_s = limit_s
        """Seconds of virtual time that the test may take."""

    async def __aenter__(self) -> GivenCluster:
        if not self._is_open:  # a test may open it once more, as it would any cluster
            await super().__aenter__()
            self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            if error is None and self.trace is not None:
                self.heal()
                await self.settle()
                self.check()
        finally:
            await super().__aexit__(kind, error, trace)

    def __getitem__(self, slot: int) -> Node:
        if not (self._is_open or len(self)):
            raise RuntimeError(NOT_OPEN)
        return super().__getitem__(slot)
