"""A cluster in your own tests: real nodes, no sockets, time that does not pass by itself.

from cubecast.testing import Cluster, on_virtual_time

@on_virtual_time
async def test_an_answer_waits_for_its_question():
    async with Cluster(3) as cluster:
        ...
        cluster.check()
"""

from cubecast.net.links.faults import LinkFaults, Rule
from cubecast.testing.cluster import Cluster
from cubecast.testing.memory import MemoryNetwork
from cubecast.testing.virtual import Deadlock, VirtualLoop, on_virtual_time, run

__all__ = [
    "Cluster",
    "Deadlock",
    "LinkFaults",
    "MemoryNetwork",
    "Rule",
    "VirtualLoop",
    "on_virtual_time",
    "run",
]
