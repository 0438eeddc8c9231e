"""Workloads whose membership changes."""

from __future__ import annotations

from importlib.util import find_spec
from math import log
from random import Random
from typing import Any

from cubecast.lab.cells import Measurement, Settings
from cubecast.lab.engine import ENGINES, REFERENCE_RATE
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.protocol.port import NodeId, Time, Topic
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import ParamError, Params
from cubecast.sim.protocols import maker, roots
from cubecast.sim.run import few_collections
from cubecast.sim.scenarios import SCENARIOS
from cubecast.sim.watching import LateMeter
from cubecast.sim.world import Handler, World

COMPILED_RATES = {"vcube-ps": 2_000_000.0, "srpt-told": 20_000_000.0}
"""The protocols that `cubecast.lab.sessions` has, and about how many messages it sends a second:
in VCube-PS the ACKs of a change tell of all members."""
SECOND: Time = 1000
"""[J] 4.5: "each unit of time represents 1ms"."""
CHURN_METRICS = (
    "reception_mean", "pub_messages", "control_messages", "false_positives", "false_share",
    "publications", "receptions", "wait_mean", "wait_worst", "joins", "joins_per_second",
)  # fmt: skip


class ChangingWorld(World):
    """A node subscribes from the call of ``subscribe`` on, for the meter: from then on VCube-PS
    delivers.  Completed subscriptions are counted."""

    joins = 0

    def joined(self, node: NodeId, topic: Topic) -> None:
        self.joins += 1
        super().joined(node, topic)

    def _receiver(self, node: NodeId) -> Handler:
        on_message = self.processes[node].on_message
        received = self.meter.received
        wanted = self._wanted[node]

        def receive(message: Any, sender: NodeId, now: Time) -> None:
            if message.kind == "pub":
                received(message.body, message.topic in wanted, now)
            on_message(message, sender, now)

        return receive


def run_changing(
    scenario: str, protocol: str, params: Params, seed: int, warmup: Time = 0
) -> tuple[dict[str, float], LateMeter]:
    """One run; what was published, and what was queued, during the warm-up is left out.

    Messages sent and joins are counted from the beginning, over the whole `span`.
    """
    name = f"{scenario}/{seed}"
    network = SendingQueue(params.hop, queue_acks=params.queue_acks)
    meter = LateMeter(warmup)
    root_of = roots(protocol, params, name)
    make = maker(protocol, params, name)
    world = ChangingWorld(params.nodes, make, network, meter=meter, root_of=root_of)
    SCENARIOS[scenario].plan(world, params, Random(name))
    if warmup:
        world.post(warmup, lambda a, b, now: network.forget_samples())
    with few_collections():
        world.run()
    summary = meter.summary()
    seen = meter.receptions + meter.false_positives
    metrics = {
        "reception_mean": summary["reception_mean"],
        "pub_messages": summary["pub_messages"],
        "control_messages": summary["control_messages"],
        "false_positives": float(meter.false_positives),
        "false_share": 100 * meter.false_positives / max(1, seen),
        "publications": float(sum(at >= warmup for at in meter.published_at)),
        "receptions": float(meter.receptions),
        "wait_mean": network.mean_wait(),
        "wait_worst": max(0.0, max(network.mean_queues()) - 1),
        "joins": float(world.joins),
        "joins_per_second": world.joins * SECOND / max(1, params.span),
    }
    return metrics, meter


# -- [J] 4.5 --------------------------------------------------------------------------------------


def sessions_params(settings: Settings) -> tuple[Params, Time]:
    """The simulator's parameters, and when the warm-up ends."""
    members = whole(settings, "members")
    if members < 2:
        raise WorkloadError("members", f"must be at least 2, not {members}")
    nodes = 1 << members.bit_length()
    rate, session = number(settings, "rate"), number(settings, "session_s")
    for name in ("rate", "session_s", "warmup_s"):
        if number(settings, name) < 0:
            raise WorkloadError(name, f"must be 0 or more, not {settings[name]}")
    if rate and session:
        raise WorkloadError("rate", "give rate or session_s, not both")
    if rate:
        session = 100 * log(2) / rate
    if number(settings, "minutes") <= 0:
        raise WorkloadError("minutes", f"must be above 0, not {settings['minutes']}")
    warmup = round(number(settings, "warmup_s") * SECOND)
    try:
        params = Params(
            nodes=nodes,
            subscribers=members / nodes,
            span=warmup + round(number(settings, "minutes") * 60 * SECOND),
            every=whole(settings, "every"),
            session=round(session * SECOND),
            hop=whole(settings, "hop"),
            queue_acks=bool(settings["queue_acks"]),
        )
    except ParamError as error:
        raise WorkloadError("settings", str(error)) from None
    if params.every < 1:
        raise WorkloadError("every", f"must be at least 1, not {params.every}")
    return params, warmup


def runs_compiled(settings: Settings) -> bool:
    """Whether `cubecast.lab.sessions` does this run."""
    fast = settings["protocol"] in COMPILED_RATES and settings["engine"] != "reference"
    return fast and find_spec("numba") is not None


def measure_sessions(settings: Settings, seed: int) -> Measurement:
    params, warmup = sessions_params(settings)
    protocol = str(settings["protocol"])
    if runs_compiled(settings):
        from cubecast.lab.sessions import run_sessions

        return Measurement(run_sessions(protocol, params, seed, warmup))
    if settings["engine"] == "kernel":
        raise WorkloadError("engine", f"the kernel cannot do {protocol!r}, or needs numba")
    metrics, _ = run_changing("sessions", protocol, params, seed, warmup)
    return Measurement(metrics)


def sessions_cost(settings: Settings) -> float:
    """Publications and changes each visit everybody; VCube-PS acknowledges them as well."""
    params, _ = sessions_params(settings)
    members = whole(settings, "members")
    changes = 2 * members * params.span * log(2) / params.session if params.session else 0.0
    visits = members * (params.span / params.every + changes)
    acks = 2 if settings["protocol"] == "vcube-ps" else 1
    compiled = COMPILED_RATES.get(str(settings["protocol"]))
    rate = compiled if compiled and runs_compiled(settings) else REFERENCE_RATE
    return 0.1 + acks * visits / rate


# -- [S] Table II ---------------------------------------------------------------------------------


def exchange_params(settings: Settings) -> Params:
    nodes, share = whole(settings, "nodes"), number(settings, "churn")
    try:
        params = Params(
            nodes=nodes,
            subscribers=number(settings, "subscribers"),
            messages=whole(settings, "messages"),
            hop=whole(settings, "hop"),
            queue_acks=bool(settings["queue_acks"]),
        )
    except ParamError as error:
        raise WorkloadError("settings", str(error)) from None
    members = round(params.subscribers * nodes)
    changes = round(share * members)
    if not 0 <= changes <= min(members - 1, nodes - members):
        raise WorkloadError("churn", f"a share of {share} leaves too few to leave or to join")
    return params.with_({"changes": changes})


def measure_exchange(settings: Settings, seed: int) -> Measurement:
    params = exchange_params(settings)
    metrics, meter = run_changing("exchange", str(settings["protocol"]), params, seed)
    metrics["deliveries"] = float(meter.deliveries + meter.own_deliveries)
    return Measurement(metrics)


def exchange_cost(settings: Settings) -> float:
    params = exchange_params(settings)
    return 0.1 + 2 * params.nodes * (params.messages + 2 * params.changes) / REFERENCE_RATE


def _check_sessions(settings: Settings) -> None:
    sessions_params(settings)


def _check_exchange(settings: Settings) -> None:
    exchange_params(settings)


CHANGING = {
    "protocol": ("vcube-ps", "srpt", "srpt-told", "best-effort", "cubecast"),
    "engine": ENGINES,
}

CHURN = (
    Workload(
        "sessions",
        SCENARIOS["sessions"].about,
        {
            "workload": "sessions", "engine": "auto", "protocol": "vcube-ps", "members": 100,
            "session_s": 0.0, "rate": 0.0, "minutes": 5.0, "warmup_s": 60.0,
            "every": 500, "hop": 100,
            "queue_acks": False,
        },
        CHURN_METRICS,
        measure_sessions,
        sessions_cost,
        choices=CHANGING,
        check=_check_sessions,
    ),
    Workload(
        "exchange",
        SCENARIOS["exchange"].about,
        {
            "workload": "exchange", "protocol": "vcube-ps", "nodes": 64, "subscribers": 0.75,
            "churn": 0.125, "messages": 256, "hop": 100, "queue_acks": False,
        },
        (*CHURN_METRICS, "deliveries"),
        measure_exchange,
        exchange_cost,
        choices=CHANGING,
        check=_check_exchange,
    ),
)  # fmt: skip
