"""Workloads with changing subscribers."""

from __future__ import annotations

from math import log

from cubecast.lab.cells import Measurement, Settings
from cubecast.lab.simulated import REFERENCE_RATE, check_run, is_compiled, simulate
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.protocol.port import Time
from cubecast.sim.engines import ENGINES
from cubecast.sim.params import ParamError, Params
from cubecast.sim.run import Outcome
from cubecast.sim.scenarios import SCENARIOS

SESSIONS, EXCHANGE = SCENARIOS["sessions"], SCENARIOS["exchange"]
COMPILED_RATES = {"vcube-ps": 2_000_000.0, "srpt-told": 20_000_000.0}
"""About how many messages `cubecast.kernel.churn` sends a second: in VCube-PS the ACKs of a change
carry all subscribers."""
SECOND: Time = 1000
"""[J] 4.5: "each unit of time represents 1ms"."""
COUNTED = (
    "reception_mean", "pub_messages", "control_messages", "false_positives", "publications",
    "receptions", "wait_mean", "wait_worst", "joins",
)  # fmt: skip
"""Metrics that the engines give."""
CHURN_METRICS = (*COUNTED, "false_share", "joins_per_second")


def churn_metrics(outcome: Outcome) -> dict[str, float]:
    """The papers' numbers: messages sent and joins are counted from the beginning."""
    metrics = {name: outcome.metrics[name] for name in COUNTED}
    seen = metrics["receptions"] + metrics["false_positives"]
    metrics["false_share"] = 100 * metrics["false_positives"] / max(1, seen)
    metrics["joins_per_second"] = metrics["joins"] * SECOND / max(1, outcome.params.span)
    return metrics


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
            at_once=bool(settings["at_once"]),
            hop=whole(settings, "hop"),
            queue_acks=bool(settings["queue_acks"]),
            whole_views=bool(settings["whole_views"]),
        )
    except ParamError as error:
        raise WorkloadError("settings", str(error)) from None
    if params.every < 1:
        raise WorkloadError("every", f"must be at least 1, not {params.every}")
    return params, warmup


def measure_sessions(settings: Settings, seed: int) -> Measurement:
    params, warmup = sessions_params(settings)
    outcome = simulate(settings, SESSIONS, params, seed, "changing", warmup=warmup)
    return Measurement(churn_metrics(outcome))


def sessions_cost(settings: Settings) -> float:
    """Publications and changes each visit all nodes; VCube-PS acknowledges them as well."""
    params, _ = sessions_params(settings)
    members = whole(settings, "members")
    changes = 2 * members * params.span * log(2) / params.session if params.session else 0.0
    visits = members * (params.span / params.every + changes)
    acks = 2 if settings["protocol"] == "vcube-ps" else 1
    compiled = is_compiled(settings, SESSIONS, params, "changing")
    rate = COMPILED_RATES[str(settings["protocol"])] if compiled else REFERENCE_RATE
    return 0.1 + acks * visits / rate


def check_sessions(settings: Settings) -> None:
    params, _ = sessions_params(settings)
    check_run(settings, SESSIONS, params, "changing")


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
            whole_views=bool(settings["whole_views"]),
        )
    except ParamError as error:
        raise WorkloadError("settings", str(error)) from None
    members = round(params.subscribers * nodes)
    changes = round(share * members)
    if not 0 <= changes <= min(members - 1, nodes - members):
        raise WorkloadError("churn", f"a share of {share} leaves too few to leave or to join")
    return params.with_({"changes": changes})


def measure_exchange(settings: Settings, seed: int) -> Measurement:
    outcome = simulate(settings, EXCHANGE, exchange_params(settings), seed, "changing")
    counts = outcome.metrics
    deliveries = counts["deliveries"] + counts["own_deliveries"]
    return Measurement({**churn_metrics(outcome), "deliveries": deliveries})


def exchange_cost(settings: Settings) -> float:
    """Every node hears every publication and change; a whole view in each ACK is slow to read."""
    params = exchange_params(settings)
    slow = 1.5 if params.whole_views else 0.5
    return 0.1 + 2 * slow * params.nodes * (params.messages + 2 * params.changes) / REFERENCE_RATE


def check_exchange(settings: Settings) -> None:
    check_run(settings, EXCHANGE, exchange_params(settings), "changing")


PROTOCOLS = ("vcube-ps", "srpt", "srpt-told", "best-effort", "cubecast")

CHURN = (
    Workload(
        "sessions",
        SESSIONS.about,
        {
            "workload": "sessions", "engine": "auto", "protocol": "vcube-ps", "members": 100,
            "session_s": 0.0, "rate": 0.0, "minutes": 5.0, "warmup_s": 60.0,
            "every": 500, "hop": 100,
            "queue_acks": False, "at_once": False, "whole_views": False,
        },
        CHURN_METRICS,
        measure_sessions,
        sessions_cost,
        choices={"protocol": PROTOCOLS, "engine": ENGINES},
        check=check_sessions,
    ),
    Workload(
        "exchange",
        EXCHANGE.about,
        {
            "workload": "exchange", "protocol": "vcube-ps", "nodes": 64, "subscribers": 0.75,
            "churn": 0.125, "messages": 256, "hop": 100, "queue_acks": False, "whole_views": False,
        },
        (*CHURN_METRICS, "deliveries"),
        measure_exchange,
        exchange_cost,
        choices={"protocol": PROTOCOLS},
        check=check_exchange,
    ),
)  # fmt: skip
