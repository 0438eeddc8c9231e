"""A protocol and a workload of one's own, for the simulator and the lab (docs/lab.md).

python examples/ring.py                         a cell of each protocol, measured here
cubecast lab run examples/ring.toml --quick     the experiment, on Spark
"""

from random import Random
from typing import ClassVar

from cubecast.baselines.flood import Flood, FloodPub
from cubecast.lab.cells import Measurement, Settings, measure
from cubecast.lab.experiment import find
from cubecast.lab.simulated import REFERENCE_RATE, simulate
from cubecast.lab.workload import Workload, number, whole
from cubecast.protocol.port import Message, NodeId, Time, Topic
from cubecast.sim.params import Params
from cubecast.sim.protocols import MAKERS, MakeProcess
from cubecast.sim.scenarios import Scenario, publish_at
from cubecast.sim.world import World

# -- the protocol: every node passes a message on to the next, until it is around ------------------


class Ring(Flood):
    label: ClassVar[str] = "ring"

    def __init__(self, node: NodeId, port: object, nodes: int) -> None:
        super().__init__(node, port, 0, nodes)  # type: ignore[arg-type]
        self._next = (node + 1) % nodes
        self._others = (self._next,)

    def on_message(self, message: Message, sender: NodeId, now: Time) -> None:
        assert isinstance(message, FloodPub)
        self.take(message)
        if self._next != message.stream.source:
            self.port.relay((self._next,), message)


def ring(params: Params, seed: str) -> MakeProcess:
    """How to make the process of each node: the object of `protocol = "ring:ring"`."""
    return lambda node, port: Ring(node, port, params.nodes)


# -- the workload: one speaks, and all clap --------------------------------------------------------


def plan_applause(world: World, params: Params, rng: Random) -> None:
    everybody = range(params.nodes)
    topic: Topic = "hall"
    world.establish(topic, everybody)
    publish_at(world, 0, rng.choice(everybody), topic)
    for node in everybody:
        publish_at(world, params.span + rng.randrange(10), node, topic)


SCENARIO = Scenario("applause", "one speaks, and all clap", plan_applause)
METRICS = ("latency_mean", "latency_max", "pub_messages")


def measure_applause(settings: Settings, seed: int) -> Measurement:
    """From settings to a run, and from the run to numbers."""
    params = Params(nodes=whole(settings, "nodes"), span=whole(settings, "after"))
    outcome = simulate(settings, SCENARIO, params, seed, "closely")
    metrics = {name: outcome.metrics[name] for name in METRICS}
    return Measurement(metrics, {"latency": outcome.histograms["latency"]})


APPLAUSE = Workload(
    name="applause",
    about="one speaks, and all clap",
    defaults={"protocol": "vcube-ps", "nodes": 16, "after": 1000},
    metrics=METRICS,
    measure=measure_applause,
    cost=lambda settings: number(settings, "nodes") ** 2 / REFERENCE_RATE,
    histograms=("latency",),
    choices={"protocol": MAKERS},
)
"""The object of `workload = "ring:APPLAUSE"`."""


if __name__ == "__main__":
    for cell in find("examples/ring.toml").cells(quick=True, seeds=1):
        found = measure(cell).metrics
        print(
            f"{cell.settings['protocol']!s:>11}, {cell.settings['nodes']:>2} nodes: "
            f"{found['latency_mean']:6.0f} u.t., {found['pub_messages']:.0f} messages"
        )
