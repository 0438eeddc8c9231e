"""Workloads whose membership changes; only the protocol objects can run them."""

from __future__ import annotations

from math import log
from random import Random

from cubecast.lab.cells import Measurement, Settings
from cubecast.lab.engine import REFERENCE_RATE
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.protocol.port import Time
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import ParamError, Params
from cubecast.sim.protocols import PROTOCOLS, maker, roots
from cubecast.sim.run import few_collections
from cubecast.sim.scenarios import SCENARIOS
from cubecast.sim.watching import LateMeter
from cubecast.sim.world import World

SECOND: Time = 1000
"""[J] 4.5: "each unit of time represents 1ms"."""
CHURN_METRICS = (
    "latency_mean", "reception_mean", "pub_messages", "control_messages", "false_positives",
    "false_share", "publications", "deliveries", "all_deliveries", "wait_mean", "wait_worst",
    "joins", "joins_per_second",
)  # fmt: skip


def run_changing(
    scenario: str, protocol: str, params: Params, seed: int, warmup: Time = 0
) -> dict[str, float]:
    """One run; what was published, and what was queued, before the end of the warm-up is left out."""
    name = f"{scenario}/{seed}"
    network = SendingQueue(params.hop, queue_acks=params.queue_acks)
    meter = LateMeter(warmup)
    root_of = roots(protocol, params, name)
    world = CountingWorld(params.nodes, maker(protocol, params, name), network, meter=meter,
                          root_of=root_of)  # fmt: skip
    SCENARIOS[scenario].plan(world, params, Random(name))
    if warmup:
        world.post(warmup, lambda a, b, now: network.forget_samples())
    with few_collections():
        world.run()
    metrics = meter.summary()
    seen = meter.receptions + meter.false_positives
    metrics["publications"] = float(sum(at >= warmup for at in meter.published_at))
    metrics["false_share"] = 100 * meter.false_positives / max(1, seen)
    metrics["all_deliveries"] = float(meter.deliveries + meter.own_deliveries)
    metrics["wait_mean"] = network.mean_wait()
    metrics["wait_worst"] = max(0.0, max(network.mean_queues()) - 1)
    metrics["joins"] = float(world.joins)
    metrics["joins_per_second"] = world.joins * SECOND / max(1, params.span)
    return {name: metrics[name] for name in CHURN_METRICS}


class CountingWorld(World):
    """Counts the subscriptions that were completed after the start."""

    joins = 0

    def joined(self, node: int, topic: str) -> None:
        self.joins += 1
        super().joined(node, topic)



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


def measure_sessions(settings: Settings, seed: int) -> Measurement:
    params, warmup = sessions_params(settings)
    return Measurement(run_changing("sessions", str(settings["protocol"]), params, seed, warmup))


def sessions_cost(settings: Settings) -> float:
    """Publications and changes each visit everybody; VCube-PS acknowledges them as well."""
    params, _ = sessions_params(settings)
    members = whole(settings, "members")
    changes = 2 * members * params.span * log(2) / params.session if params.session else 0.0
    visits = members * (params.span / params.every + changes)
    acks = 2 if settings["protocol"] == "vcube-ps" else 1
    return 0.1 + acks * visits / REFERENCE_RATE


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
    return Measurement(run_changing("exchange", str(settings["protocol"]), params, seed))


def exchange_cost(settings: Settings) -> float:
    params = exchange_params(settings)
    return 0.1 + 2 * params.nodes * (params.messages + 2 * params.changes) / REFERENCE_RATE


def _check_sessions(settings: Settings) -> None:
    sessions_params(settings)


def _check_exchange(settings: Settings) -> None:
    exchange_params(settings)


CHANGING = {"protocol": ("vcube-ps", "srpt", "srpt-told", "best-effort", "cubecast")}
assert set(CHANGING["protocol"]) <= set(PROTOCOLS)

CHURN = (
    Workload(
        "sessions",
        SCENARIOS["sessions"].about,
        {
            "workload": "sessions", "protocol": "vcube-ps", "members": 100, "session_s": 0.0,
            "rate": 0.0, "minutes": 5.0, "warmup_s": 60.0, "every": 500, "hop": 100,
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
        CHURN_METRICS,
        measure_exchange,
        exchange_cost,
        choices=CHANGING,
        check=_check_exchange,
    ),
)  # fmt: skip
