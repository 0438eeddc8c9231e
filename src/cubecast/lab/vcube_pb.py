"""Workloads of [B] 6: Figures 3, 4 and 5."""

from __future__ import annotations

from cubecast.lab.cells import Measurement, Settings
from cubecast.lab.workload import Workload, WorkloadError, number, whole
from cubecast.sim.workloads.vcube_pb_figures import LAYOUTS, figure_3, figure_4


def measure_hops(settings: Settings, seed: int) -> Measurement:
    """Figure 3: hops from the publisher to its subscribers."""
    hops = figure_3(str(settings["layout"]), whole(settings, "nodes"), seed).metrics
    return Measurement({"hops_mean": hops["latency_mean"], "hops_max": hops["latency_max"]})


def measure_turnover(settings: Settings, seed: int) -> Measurement:
    """Figures 4 and 5: latencies, and delayed messages, while subscribers change."""
    outcome = figure_4(
        str(settings["protocol"]),
        whole(settings, "nodes"),
        seed,
        publishers=number(settings, "publishers"),
        serve_acks=bool(settings["serve_acks"]),
        serve_members=bool(settings["serve_members"]),
        root_publishes=bool(settings["root_publishes"]),
    )
    taken = ("latency_mean", "reception_mean", "deliveries", "publications", "dependent",
             "delayed", "delayed_messages")  # fmt: skip
    found = {name: outcome.metrics[name] for name in taken}
    published, blocked = max(1, found["publications"]), outcome.metrics["held"]
    found["dependent_share"] = 100 * found["dependent"] / published
    found["delayed_share"] = 100 * found["delayed"] / max(1, found["deliveries"])
    found["delayed_messages_share"] = 100 * found["delayed_messages"] / published
    found["blocked_share"] = 100 * blocked / max(1, found["deliveries"] + blocked)
    return Measurement(found)


def _check_power(settings: Settings) -> None:
    nodes = whole(settings, "nodes")
    if not 2 <= nodes <= 1 << 16 or nodes & (nodes - 1):
        raise WorkloadError("nodes", f"must be a power of two from 2 to {1 << 16}, not {nodes}")


def _check_turnover(settings: Settings) -> None:
    _check_power(settings)
    if not 0 < number(settings, "publishers") <= 1:
        raise WorkloadError(
            "publishers", f"is a share above 0 and at most 1, not {settings['publishers']}"
        )


def turnover_cost(settings: Settings) -> float:
    """Every node delivers every message, and keeps views that all nodes change.

    Fitted to the medians of 40 runs each, of 256 to 2048 nodes: the views of many nodes leave the
    caches, so the time grows faster than the deliveries.  A fixed tree takes half as long.
    """
    cost: float = number(settings, "publishers") * (number(settings, "nodes") / 260) ** 2.5
    return 0.02 + (cost / 2 if settings["protocol"] == "fixed-tree" else cost)


VCUBE_PB = (
    Workload(
        "hops",
        "hops from one publisher to subscribers in five layouts ([B] Figure 3)",
        {"workload": "hops", "layout": "all", "nodes": 64},
        ("hops_mean", "hops_max"),
        measure_hops,
        lambda settings: 0.01 + number(settings, "nodes") * 1e-4,
        choices={"layout": LAYOUTS},
        check=_check_power,
    ),
    Workload(
        "turnover",
        "some publish once while up to 5 % of the nodes change every 100 u.t. ([B] 6)",
        {
            "workload": "turnover", "protocol": "vcube-pb", "nodes": 64, "publishers": 0.25,
            "serve_acks": False, "serve_members": False, "root_publishes": False,
        },
        (
            "latency_mean", "reception_mean", "deliveries", "publications", "dependent",
            "dependent_share", "delayed",
            "delayed_share", "delayed_messages", "delayed_messages_share", "blocked_share",
        ),
        measure_turnover,
        turnover_cost,
        choices={"protocol": ("vcube-pb", "fixed-tree", "vcube-ps")},
        check=_check_turnover,
    ),
)  # fmt: skip
