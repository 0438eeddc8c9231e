"""The compiled kernel against the reference: the same scenario and seed, the same trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("numba")

from cubecast import kernel
from cubecast.kernel import KernelError
from cubecast.kernel.static.layout import MOST_EARLY
from cubecast.sim.networks import SendingQueue
from cubecast.sim.params import Params
from cubecast.sim.protocols import ProtocolChoiceError, maker, roots
from cubecast.sim.run import Outcome, run
from cubecast.sim.scenarios import SCENARIOS, Scenario, multi_publisher, publish_at
from cubecast.sim.world import World
from cubecast.trace import Record, check

BATCHES = 24
PER_BATCH = 10
STATIC = ("single-publisher", "multi-publisher", "discussion", "question-answer")
PROTOCOLS = ("vcube-ps", "srpt", "fixed-tree", "srpt-b")


def draw(seed: int) -> tuple[str, str, dict[str, Any]]:
    """A scenario, a protocol and parameters: any option, any order of magnitude."""
    rng = Random(seed)
    scenario = rng.choice(STATIC)
    protocol = rng.choice((*PROTOCOLS, "vcube-ps", "fixed-tree"))
    few = rng.random() < 0.8
    nodes = rng.randint(1, 24) if few else rng.randint(25, 128)
    if protocol == "srpt":
        nodes = 1 << rng.randint(0, 4 if few else 7)
    low = rng.choice([0, 1, 10, rng.randint(0, 50)])
    share = rng.choice([1.0, rng.uniform(0.02, 1.0)])
    publishers = rng.choice([1.0, rng.uniform(0.02, 1.0)]) if few else rng.uniform(0.02, 0.4)
    return scenario, protocol, {
        "nodes": nodes,
        "subscribers": share,
        "publishers": publishers,
        "messages": rng.choice([1, 1, 2, rng.randint(1, 10 if few else 3)]),
        "span": rng.choice([0, 10, 1000, rng.randint(0, 500), rng.randint(0, 20_000)]),
        "wait": rng.choice([1, 1, 2, 5, 10]),
        "network": rng.choice(["queue", "queue", "uniform", "service"]),
        "hop": rng.choice([1, 2, 100, 100, 1000, rng.randint(1, 300), 20_000]),
        "queue_acks": rng.random() < 0.4,
        "low": low,
        "high": low + rng.choice([0, 1, 10, 90, rng.randint(0, 9000)]),
        "horizon": rng.choice([100_000_000] * 9 + [rng.randint(1, 500)]),
        "brokers": rng.choice([0, 1, rng.randint(1, nodes)]),
    }  # fmt: skip


def both(
    scenario: Scenario, protocol: str, params: Params, seed: int
) -> tuple[kernel.Result, Outcome]:
    ours = kernel.run(protocol, params, seed, scenario=scenario, trace_messages=True)
    theirs = run(
        scenario, protocol, params, seed, checked=False, keep_trace=True, trace_messages=True
    )
    return ours, theirs


def assert_same(ours: kernel.Result, theirs: Outcome) -> None:
    assert theirs.trace is not None
    records = list(ours.records())
    for number, (one, other) in enumerate(zip(records, theirs.trace, strict=False)):
        assert one == other, f"record {number} differs"
    assert len(records) == len(theirs.trace)
    expected = {k: v for k, v in theirs.metrics.items() if k != "events_per_second"}
    assert {name: ours.metrics[name] for name in expected} == expected


@pytest.mark.parametrize("batch", range(BATCHES))
def test_same_trace_as_the_reference(batch: int) -> None:
    """Every record, sends and receives included, and every metric, of ten random scenarios."""
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        scenario, protocol, changes = draw(seed)
        print(f"draw({seed}): {scenario} {protocol} {changes}")
        assert_same(*both(SCENARIOS[scenario], protocol, Params().with_(changes), seed))


def many_topics(world: World, params: Params, rng: Random) -> None:
    """Eight topics with subscribers of their own; every subscriber may publish."""
    names = [f"topic/{number}" for number in range(8)]
    members = {name: params.draw_members(rng) for name in names}
    for name in names:
        world.establish(name, members[name])
    for _ in range(params.messages):
        name = rng.choice(names)
        publish_at(world, rng.randint(0, params.span), rng.choice(members[name]), name)


@pytest.mark.parametrize("network", ["queue", "service", "uniform"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_several_topics(protocol: str, network: str) -> None:
    """One counter per node and one sending queue, but order, turns and roots per topic."""
    scenario = Scenario("many-topics", "", many_topics)
    params = Params(nodes=32, subscribers=0.6, messages=150, network=network)
    ours, theirs = both(scenario, protocol, params, 5)
    assert_same(ours, theirs)
    assert len({record.topic for record in ours.records()}) > 8


def draw_turns(seed: int) -> tuple[str, dict[str, Any]]:
    """A protocol and parameters of `topics`: from one at a time to waits behind every message."""
    rng = Random(f"turns/{seed}")
    protocol = rng.choice((*PROTOCOLS, "vcube-ps", "vcube-ps"))
    nodes = 1 << rng.randint(0, 5) if protocol == "srpt" else rng.randint(1, 40)
    low = rng.choice([0, 1, 10])
    return protocol, {
        "nodes": nodes,
        "subscribers": rng.choice([1.0, rng.uniform(0.1, 1.0)]),
        "messages": rng.choice([1, nodes, rng.randint(1, 200), rng.randint(100, 400)]),
        "topics": rng.choice([1, 2, 8, rng.randint(1, 40)]),
        "skew": rng.choice([0.0, 0.825, rng.uniform(0, 4)]),
        "every": rng.choice([0, 1, 20, 200, 500, 5000, 50_000]),
        "spread": rng.choice([0.0, 1.0, rng.random()]),
        "network": rng.choice(["queue", "queue", "uniform", "service"]),
        "hop": rng.choice([1, 100, rng.randint(1, 300)]),
        "queue_acks": rng.random() < 0.4,
        "low": low,
        "high": low + rng.choice([0, 10, rng.randint(0, 2000)]),
        "horizon": rng.choice([100_000_000] * 9 + [rng.randint(1, 500)]),
        "brokers": rng.choice([0, 1, rng.randint(1, nodes)]),
    }  # fmt: skip


@pytest.mark.parametrize("batch", range(8))
def test_nodes_that_publish_in_turn(batch: int) -> None:
    """Every record and metric of ten random runs of `topics`."""
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        protocol, changes = draw_turns(seed)
        print(f"draw_turns({seed}): {protocol} {changes}")
        assert_same(*both(SCENARIOS["topics"], protocol, Params().with_(changes), seed))


def test_one_that_lets_many_go() -> None:
    """In the fixed tree a late message holds up all later ones of its publisher, at the root."""
    changes = {"nodes": 16, "topics": 1, "every": 1, "network": "uniform", "low": 1, "high": 9000}
    params = Params(messages=800).with_(changes)
    ours, theirs = both(SCENARIOS["topics"], "fixed-tree", params, 1)
    assert_same(ours, theirs)
    assert ours.state.m[MOST_EARLY] > 20


def test_turns_beside_other_publications() -> None:
    """Whatever a node publishes, its next turn comes after it has left."""

    def plan(world: World, params: Params, rng: Random) -> None:
        many_topics(world, params, rng)
        world.establish("all", range(params.nodes))
        for node in range(0, params.nodes, 3):
            world.take_turns(node, [(rng.randint(0, 50), "all") for _ in range(10)])

    params = Params(nodes=32, messages=150)
    for protocol in PROTOCOLS:
        assert_same(*both(Scenario("turns", "", plan), protocol, params, 5))


# -- histograms and per-message figures ------------------------------------------------------------


def talk(wait: int, protocol: str = "vcube-ps") -> tuple[kernel.Result, list[Record]]:
    params = Params(nodes=48, wait=wait, span=300)
    result = kernel.run(protocol, params, 3, scenario="discussion", trace_messages=True)
    return result, list(result.records())


def barriers_by_hand(trace: list[Record]) -> tuple[Counter[int], Counter[int]]:
    """Sizes of barriers, and of what was delivered since the node's last own publication.

    A dumb oracle: the barrier of a message is the maximal elements, under the full causal past, of
    what its publisher has delivered when it sends, that is, when it delivers its own message.
    """
    past: dict[int, set[int]] = {}
    delivered: dict[int, list[int]] = {}
    direct: Counter[int] = Counter()
    since: Counter[int] = Counter()
    last: dict[int, int] = {}
    for record in trace:
        if record.kind != "deliver":
            continue
        assert isinstance(record.id, int)
        mine = delivered.setdefault(record.node, [])
        if record.node == record.source:
            known = set(mine)
            covered = set().union(*(past[message] for message in known))
            direct[len(known - covered)] += 1
            since[len(mine) - last.get(record.node, 0)] += 1
            past[record.id] = known
            last[record.node] = len(mine)
        mine.append(record.id)
    return direct, since


@pytest.mark.parametrize("wait", [1, 10])
def test_barriers_in_both_accountings(wait: int) -> None:
    result, trace = talk(wait)
    direct, since = barriers_by_hand(trace)
    assert result.histograms["barrier"] == direct
    assert result.histograms["barrier_unreduced"] == since
    assert direct != since


def test_latency_and_delay_histograms() -> None:
    """Delay is delivery minus arrival at the same node, over all pairs but the publisher's own."""
    result, trace = talk(1)
    published = {r.id: r.time for r in trace if r.kind == "publish"}
    arrived = {(r.id, r.node): r.time for r in trace if (r.kind, r.message) == ("receive", "pub")}
    theirs = [r for r in trace if r.kind == "deliver" and r.node != r.source]
    delays = Counter(r.time - arrived[r.id, r.node] for r in theirs)
    assert result.histograms["delay"] == delays
    assert len(delays) > 3
    assert result.histograms["latency"] == Counter(r.time - published[r.id] for r in theirs)


def test_large_values_are_rounded_down_a_little() -> None:
    """Exact below 2^13, and to one part in 2^12 above."""
    params = kernel.Params(nodes=16, hop=70_001)
    result = kernel.run("vcube-ps", params, 0, scenario="single-publisher", trace=True)
    exact = Counter(r.time for r in result.records() if r.kind == "deliver" and r.node != r.source)
    assert sum(result.histograms["latency"].values()) == 15
    kept = Counter(result.histograms["latency"])
    for value, rounded in zip(sorted(exact.elements()), sorted(kept.elements()), strict=True):
        assert value * (1 - 2**-12) < rounded <= value


@pytest.mark.parametrize("queue_acks", [False, True])
def test_queues_are_the_reference_s(queue_acks: bool) -> None:
    """[J] Table 1 is made of the mean queue of each node."""
    params = Params(nodes=64, queue_acks=queue_acks)
    ours = kernel.run("vcube-ps", params, 2)
    network = SendingQueue(params.hop, queue_acks=queue_acks)
    world = World(64, maker("vcube-ps", params, "multi-publisher/2"), network)
    multi_publisher(world, params, Random("multi-publisher/2"))
    world.run()
    assert ours.mean_queues().tolist() == network.mean_queues()
    assert max(ours.histograms["queue"]) == network.longest_queue
    sends = ours.metrics["pub_messages"] + queue_acks * ours.metrics["control_messages"]
    assert sum(ours.histograms["queue"].values()) == sends


def test_messages_add_up() -> None:
    result = kernel.run("vcube-ps", Params(nodes=32, messages=3), 1)
    columns = result.messages()
    assert {len(column) for column in columns.values()} == {96}
    assert columns["deliveries"].tolist() == [31] * 96
    mean = columns["latency_sum"].sum() / columns["deliveries"].sum()
    assert mean == result.metrics["latency_mean"]
    assert columns["latency_max"].max() == result.metrics["latency_max"]


def test_the_two_parts_of_a_broker_s_latency() -> None:
    """[J] 4.6: until the broker has a message, and from there to its subscribers."""
    params = Params(nodes=64, brokers=8, subscribers=0.7)
    result = kernel.run("srpt-b", params, 4, trace_messages=True)
    trace = list(result.records())
    root = roots("srpt-b", params, "multi-publisher/4")
    assert root is not None
    members = {r.node for r in trace if r.kind == "join"}
    published = {r.id: r.time for r in trace if r.kind == "publish"}
    has = {(r.id, r.node): r.time for r in trace if (r.kind, r.message) == ("receive", "pub")}
    parts = []
    for (ident, node), arrived in has.items():
        broker = node // 8 * 8
        if node not in members:
            continue
        sends = (
            r.time
            for r in trace
            if (r.kind, r.message, r.id, r.peer) == ("send", "pub", ident, node)
        )
        came = arrived if broker == node else next(sends)
        parts.append((came - published[ident], arrived - came))
    assert result.metrics["tree_mean"] == pytest.approx(sum(t for t, _ in parts) / len(parts))
    assert result.metrics["last_hop_mean"] == pytest.approx(sum(b for _, b in parts) / len(parts))


# -- size ------------------------------------------------------------------------------------------


def test_one_publication_to_more_nodes_than_the_reference_takes() -> None:
    """With everyone subscribed the k-th child is k u.t. later: latencies have a closed form."""
    dimension = 17
    result = kernel.run(
        "vcube-ps", kernel.Params(nodes=1 << dimension), 0, scenario="single-publisher"
    )
    others = (1 << dimension) - 1
    hops = sum(100 + k for k in range(dimension))
    assert result.metrics["deliveries"] == result.metrics["pub_messages"] == others
    assert result.metrics["control_messages"] == others
    assert result.metrics["latency_max"] == hops
    assert result.metrics["latency_mean"] == pytest.approx(hops * 2 ** (dimension - 1) / others)
    assert result.at_rest


def test_the_checkers_accept_what_the_kernel_writes() -> None:
    result = kernel.run("fixed-tree", Params(nodes=32, network="uniform"), 7, trace=True)
    report = check(list(result.records()))
    assert report.ok, report


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "scenario", "changes", "reason"),
    [
        ("cubecast", "multi-publisher", {}, "no protocol 'cubecast'"),
        ("vcube-ps", "churn", {}, "static membership only"),
        ("vcube-ps", "turnover", {}, "static membership only"),
        ("vcube-ps", "storm", {}, "static membership only"),
        ("vcube-ps", "multi-publisher", {"loss": 0.1}, "no faults"),
        ("vcube-ps", "multi-publisher", {"network": "lognormal"}, "no network 'lognormal'"),
        ("vcube-ps", "multi-publisher", {"network": "shuffled"}, "no network 'shuffled'"),
        ("vcube-ps", "multi-publisher", {"whole_views": True}, "no ACKs with whole views"),
        ("vcube-ps", "multi-publisher", {"network": "service", "free": ("ack",)}, "beside a node"),
    ],
)
def test_a_run_that_only_the_reference_supports_is_refused(
    protocol: str, scenario: str, changes: dict[str, Any], reason: str
) -> None:
    params = Params().with_(changes)
    assert reason in kernel.refusal(protocol, params, scenario)
    with pytest.raises(KernelError, match=reason):
        kernel.run(protocol, params, 0, scenario=scenario)


@pytest.mark.parametrize("scenario", [*STATIC, "topics", "speakers"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_that_the_kernel_supports_is_not_refused(protocol: str, scenario: str) -> None:
    assert kernel.refusal(protocol, Params(), scenario) == ""


def test_an_unknown_scenario() -> None:
    with pytest.raises(KernelError, match="unknown scenario 'chat'"):
        kernel.run("vcube-ps", Params(), 0, scenario="chat")


def test_srpt_needs_every_id() -> None:
    with pytest.raises(ProtocolChoiceError, match="power of two"):
        kernel.run("srpt", Params(nodes=12), 0)


def test_more_brokers_than_nodes() -> None:
    with pytest.raises(ProtocolChoiceError, match="at most 8"):
        kernel.run("srpt-b", Params(nodes=8, brokers=9), 0)


def test_an_application_that_is_not_known() -> None:
    def plan(world: World, params: Params, rng: Random) -> None:
        SCENARIOS["single-publisher"].plan(world, params, rng)
        world.application = object()  # type: ignore[assignment]

    with pytest.raises(KernelError, match="no application 'object'"):
        kernel.run("vcube-ps", Params(), 0, scenario=Scenario("odd", "", plan))


def test_a_publisher_that_does_not_subscribe() -> None:
    def plan(world: World, params: Params, rng: Random) -> None:
        world.establish("t", [0, 1])
        publish_at(world, 0, 5, "t")

    with pytest.raises(KernelError, match="node 5 cannot publish"):
        kernel.run("vcube-ps", Params(), 0, scenario=Scenario("outsider", "", plan))
    ours, theirs = both(Scenario("outsider", "", plan), "fixed-tree", Params(), 0)
    assert_same(ours, theirs)


def test_compiles_where_nothing_can_be_cached(tmp_path: Path) -> None:
    """No directory for compiled code, neither beside the module nor the user's: still it runs."""
    module = tmp_path / "lone.py"
    module.write_text(
        "from cubecast.kernel.shared.jit import entry\n"
        "@entry\n"
        "def twice(x):\n"
        "    return 2 * x\n"
        "print(twice(21))\n"
    )
    (tmp_path / "__pycache__").write_text("a file where numba wants a directory")
    environment = {**os.environ, "XDG_CACHE_HOME": str(module), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, str(module)], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
