"""The benchmark harness: small real runs, and workloads that notice what they should."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cubecast.bench import harness, usage
from cubecast.bench.errors import BenchError
from cubecast.bench.harness import BenchPlan, measure
from cubecast.bench.peers import PEERS, missing
from cubecast.bench.peers.cubecast import delayed_edge
from cubecast.bench.relay import DelayedRoute, relaying
from cubecast.bench.workloads import (
    ANSWER,
    CHATTER,
    HEADER,
    HELLO,
    KINDS,
    QUESTION,
    Causal,
    Latency,
    Task,
    Throughput,
    make_workload,
)
from cubecast.cli import bench as command
from cubecast.processes.child import ChildError
from cubecast.processes.function import FunctionChild, closing_children
from cubecast.topology import dimension_for, tree
from support.paths import ROOT

TASK = Task(
    system="cubecast",
    scenario="all-to-all",
    mode="quiet",
    index=2,
    processes=3,
    ports=(1, 2, 3),
    more_ports=(),
    seconds=0.01,
    size=40,
    rate=1000,
    questions=5,
    delay_s=0.005,
)
app = typer.Typer()
app.add_typer(command.bench)


def message(source: int, number: int, sent_at: int = 0) -> bytes:
    return HEADER.pack(source, number, sent_at) + b"x" * 20


# -- workloads ------------------------------------------------------------------------------------


def test_throughput_counts_what_is_missing_and_what_is_late() -> None:
    workload = Throughput(TASK)
    for number in (0, 1, 3, 2, 4, 6):
        workload.receive(message(0, number))
    workload.receive(message(0, HELLO))
    result = workload.result([7, 0, 0])
    assert (result["received"], result["lost"], result["inversions"]) == (6, 1, 1)


def test_own_messages_do_not_count() -> None:
    workload = Throughput(TASK)
    workload.receive(message(TASK.index, 0))
    workload.receive(message(1, 0))
    assert workload.received() == workload.expected([0, 1, 1]) == 1


def test_a_publisher_numbers_without_holes_for_as_long_as_it_is_told() -> None:
    workload = Throughput(TASK)
    payloads = [item for item in workload.outgoing() if isinstance(item, bytes)]
    assert [HEADER.unpack_from(payload)[1] for payload in payloads] == list(range(workload.sent))
    assert workload.sent == len(payloads) > 0
    assert {len(payload) for payload in payloads} == {TASK.size}


def test_a_publisher_that_is_told_to_stop_stops() -> None:
    workload = Throughput(replace(TASK, seconds=1e6))
    workload.told_to_stop = lambda: True
    assert len(list(workload.outgoing())) == workload.sent > 0


def test_only_process_0_publishes_in_a_fan_out() -> None:
    parts = [Throughput(replace(TASK, scenario="fanout", index=index)) for index in range(3)]
    assert [part.publishes for part in parts] == [True, False, False]
    assert [part.subscribes for part in parts] == [False, True, True]
    assert list(parts[1].outgoing()) == []


def test_everyone_is_heard_before_it_begins() -> None:
    workload = Throughput(TASK)
    workload.receive(message(0, HELLO))
    assert not workload.hears_everyone
    workload.receive(message(1, HELLO))
    assert workload.hears_everyone


def test_latency_is_measured_from_the_stamp() -> None:
    workload = make_workload(replace(TASK, scenario="latency"))
    assert isinstance(workload, Latency)
    workload.receive(message(0, 0, sent_at=0))
    (delay,) = workload.result([1, 0, 0])["delays_us"]  # type: ignore[misc]
    assert delay > 0


def test_an_answer_before_its_question_is_an_inversion() -> None:
    workload = Causal(replace(TASK, scenario="causal"))
    workload.receive(message(0, KINDS * 0 + QUESTION))
    workload.receive(message(1, KINDS * 0 + ANSWER))
    workload.receive(message(1, KINDS * 1 + ANSWER))
    workload.receive(message(0, KINDS * 1 + QUESTION))
    workload.receive(message(0, KINDS * 7 + CHATTER))
    result = workload.result([3, 2, 0])
    assert (result["inversions"], result["watched"], result["received"]) == (1, 2, 5)


@pytest.mark.parametrize("mode", ["busy", "delayed"])
def test_where_one_is_late_that_one_alone_is_counted(mode: Any) -> None:
    parts = [
        Causal(replace(TASK, scenario="causal", mode=mode, processes=4, index=index))
        for index in (2, 3)
    ]
    for part in parts:
        part.receive(message(1, KINDS * 0 + ANSWER))
    assert [part.result([1, 1, 0, 0])["inversions"] for part in parts] == [0, 1]


def test_a_question_is_answered_once_by_one() -> None:
    question = message(0, KINDS * 4 + QUESTION)
    answers = [
        Causal(replace(TASK, scenario="causal", index=index)).receive(question)
        for index in range(3)
    ]
    assert answers[0] is None
    assert answers[2] is None
    assert answers[1] is not None
    assert HEADER.unpack_from(answers[1])[:2] == (1, KINDS * 4 + ANSWER)


# -- runs -----------------------------------------------------------------------------------------

SYSTEMS = [
    pytest.param(
        name, marks=pytest.mark.skipif(missing(name) is not None, reason=f"{name} is not installed")
    )
    for name in ("cubecast", *PEERS)
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_short_run_loses_nothing(system: str) -> None:
    metrics = measure(system, BenchPlan("all-to-all", processes=3, seconds=0.2))
    assert metrics["lost"] == metrics["inversions"] == 0
    assert metrics["deliveries_per_second"] > 100
    assert metrics["cpu_seconds_per_million"] > 0


@pytest.mark.parametrize("mode", ["busy", "loaded"])
def test_cubecast_never_shows_an_answer_before_its_question(mode: Any) -> None:
    plan = BenchPlan("causal", processes=4, questions=100, rate=500, mode=mode)
    metrics = measure("cubecast", plan)
    assert metrics["answers"] == (100 if mode == "busy" else 200)
    assert metrics["inversions"] == metrics["lost"] == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_where_questions_come_late_only_cubecast_keeps_the_order(system: str) -> None:
    """An inversion for every question shows that the delay is there, and no way around it."""
    plan = BenchPlan("causal", processes=3, questions=10, rate=1000, mode="delayed", delay_ms=700)
    metrics = measure(system, plan)
    assert metrics["answers"] == 10
    assert metrics["inversions"] == (0 if system in ("cubecast", "sealed", "tls") else 10)
    assert metrics["lost"] == 0


@pytest.mark.parametrize("processes", range(3, 65))
def test_the_delayed_edge_is_on_the_way_of_questions_only(processes: int) -> None:
    everyone, dimension = (1 << processes) - 1, dimension_for(processes)
    edge = delayed_edge(processes)
    assert edge[1] == processes - 1
    assert edge in tree(0, everyone, dimension).edges
    assert edge not in tree(1, everyone, dimension).edges


def test_a_delay_that_was_never_used_is_an_error() -> None:
    with pytest.raises(BenchError, match="link that is to be late"):
        harness._check_delay(BenchPlan("causal", questions=10, size=100, mode="delayed"), 999)


def test_a_relay_delays_one_direction_and_keeps_order() -> None:
    """The echo is late and complete; what it costs in time is not judged."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = harness._free_ports(1)[0]
        route = DelayedRoute(port, server.getsockname()[1], "dialler", 0.01)
        with relaying([route]) as relay, socket.create_connection(("127.0.0.1", port)) as dialler:
            target, _ = server.accept()
            with target:
                for number in range(50):
                    target.sendall(b"%04d" % number)
                    dialler.sendall(b"%04d" % number)
                expected = b"".join(b"%04d" % number for number in range(50))
                assert read_exactly(dialler, 200) == expected
                assert read_exactly(target, 200) == expected
            assert relay.delayed_bytes == 200


def read_exactly(connection: socket.socket, size: int) -> bytes:
    connection.settimeout(30)
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def test_publishers_are_stopped_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MEMORY_LIMIT", 1)
    plan = BenchPlan("fanout", processes=2, seconds=60)
    metrics = measure("cubecast", plan)
    assert metrics["ended_early"] == 1
    assert metrics["publishing_s"] < plan.seconds
    assert metrics["lost"] == 0


def test_memory_is_told_for_start_half_and_end() -> None:
    watch = usage.MemoryWatch([], lambda: None)
    watch.looks = [usage.MemorySample(at, 10**6 * int(10 + at), 10**6) for at in range(9)]
    assert watch.metrics(2.0) == {
        "rss_start_mb": 12,
        "rss_half_mb": 15,
        "rss_end_mb": 18,
        "rss_largest_mb": 1,
        "rss_growth_mb_per_s": 1,
    }


def test_a_process_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_free_ports", lambda count: (1,) * count)  # it cannot be bound
    with pytest.raises(ChildError, match="process"):
        measure("cubecast", BenchPlan("fanout", processes=2, seconds=0.1))


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BenchPlan]]:
    """`measure` replaced by made-up numbers; what it was asked for."""
    asked: list[tuple[str, BenchPlan]] = []

    def made_up(system: str, plan: BenchPlan) -> dict[str, float]:
        asked.append((system, plan))
        rate = 1000.0 if system == "cubecast" else 500.0
        return {"deliveries_per_second": rate, "lost": 0.0}

    monkeypatch.setattr(command, "measure", made_up)
    monkeypatch.setattr(command, "missing", lambda name: None)
    return asked


def run(*args: str) -> Any:
    return CliRunner().invoke(app, ["bench", *args])


def test_json_of_one_system_has_the_shape_of_every_command(
    measured: list[tuple[str, BenchPlan]],
) -> None:
    result = run("latency", "--json", "--repeat", "2", "--rate", "50")
    assert json.loads(result.stdout) == {
        "scenario": "latency",
        "protocol": "cubecast",
        "params": {"processes": 8, "size": 100, "seconds": 5.0, "rate": 50},
        "metrics": {
            "deliveries_per_second": {**same(1000.0), "sd": 0.0, "n": 2},
            "lost": {**same(0.0), "sd": 0.0, "n": 2},
        },
        "repetitions": [{"deliveries_per_second": 1000.0, "lost": 0.0}] * 2,
    }


def same(value: float) -> dict[str, float]:
    return dict.fromkeys(("mean", "median", "min", "max"), value)


def test_lists_give_a_row_each(measured: list[tuple[str, BenchPlan]]) -> None:
    args = ("causal", "--mode", "all", "--processes", "3,8", "--peers", "zmq", "--json")
    output = json.loads(run(*args).stdout)
    rows = [(one["protocol"], one["params"]["mode"]) for one in output["runs"]]
    assert len(rows) == 4 * 2 * 2
    assert set(rows) == set(product(("cubecast", "zmq"), command.MODES))
    assert [plan.processes for _, plan in measured[:4]] == [3, 3, 8, 8]


def test_systems_take_turns_at_being_first(measured: list[tuple[str, BenchPlan]]) -> None:
    result = run("fanout", "--peers", "zmq", "--repeat", "3")
    order = [system for system, _ in measured]
    assert order == ["cubecast", "zmq", "zmq", "cubecast", "cubecast", "zmq"]
    assert result.stderr.count(" s left\n") == 6


def test_json_with_peers_lists_runs_and_ratios(measured: list[tuple[str, BenchPlan]]) -> None:
    output = json.loads(run("fanout", "--peers", "zmq, nats,zmq", "--json").stdout)
    assert [one["protocol"] for one in output["runs"]] == ["cubecast", "zmq", "nats"]
    assert output["ratios"]["zmq"] == {"deliveries_per_second": 0.5}


def test_the_table_names_every_system(measured: list[tuple[str, BenchPlan]]) -> None:
    output = run("all-to-all", "--peers", "zenoh").stdout
    assert "Zenoh" in output
    assert "0.50x" in output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("fanout", "--peers", "kafka"), "no peer 'kafka'"),
        (("causal", "--mode", "odd"), "no mode 'odd'"),
        (("causal", "--mode", ","), "no mode"),
        (("causal", "--processes", "2"), "needs 3 processes"),
        (("fanout", "--processes", "8,many"), "takes numbers"),
        (("fanout", "--processes", "65"), "at most 64"),
        (("fanout", "--size", "100,19"), "at least 20 bytes"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused_in_one_line(
    measured: list[tuple[str, BenchPlan]], args: tuple[str, ...], said: str
) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert measured == []


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "missing", lambda name: "zmq")
    result = run("fanout", "--peers", "zmq")
    assert result.exit_code == 2
    assert "cubecast[bench]" in result.stderr


def test_a_failed_run_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(system: str, plan: BenchPlan) -> dict[str, float]:
        raise BenchError("process 3 ended early")

    monkeypatch.setattr(command, "measure", fail)
    result = run("fanout")
    assert result.exit_code == 1
    assert "process 3 ended early" in result.stderr


# -- the programs in bench/ -----------------------------------------------------------------------

PROGRAMS = ROOT / "bench"


def program(name: str, *args: str) -> Any:
    """Run one, and read the JSON it prints."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / name), *args, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_small_cluster_delivers_everything_in_order() -> None:
    figures = program("bench_cluster.py", "--nodes", "5", "--messages", "40")
    assert figures["deliveries"] == 5 * 5 * 40
    assert figures["violations"] == figures["missing"] == figures["gaps"] == 0


def test_a_small_cluster_grows_and_shrinks() -> None:
    figures = program("bench_growth.py", "--most", "4", "--least", "2", "--hold", "0.1")
    assert figures["deliveries"] > figures["publications"] > 0
    assert figures["violations"] == figures["gaps"] == 0


def test_a_slow_subscriber_loses_nothing_in_silence() -> None:
    found = program("bench_slow.py", "--processes", "3", "--seconds", "0.2", "--case", "ad")
    assert sorted(found) == ["a", "d"]
    for figures in found.values():
        assert figures["published"] > 0
        assert figures["others_lost"] == figures["disorder"] == 0
        assert figures["slow"]["lost"] == figures["slow"]["dropped"]
    assert found["d"]["slow"]["lost"] == 0


@pytest.fixture
def bench_slow() -> Any:
    spec = spec_from_file_location("bench_slow", PROGRAMS / "bench_slow.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["bench_slow"] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def test_loss_that_was_not_reported_is_a_problem(bench_slow: Any) -> None:
    figures = {
        "case": {"policy": "drop-oldest"},
        "others_lost": 0,
        "disorder": 0,
        "slow": {"lost": 5, "dropped": 5},
    }
    assert bench_slow.problems(figures) == []
    assert bench_slow.problems({**figures, "slow": {"lost": 5, "dropped": 4}})
    assert bench_slow.problems({**figures, "others_lost": 1})
    assert bench_slow.problems({**figures, "case": {"policy": "block"}})


def test_rates_before_during_and_after(bench_slow: Any) -> None:
    times = bench_slow.Times(10.0, 20.0, 30.0, 40.0)
    samples = [(9.0, 0), (10.0, 0), (20.0, 100), (24.0, 100), (32.0, 100), (40.0, 180)]
    assert bench_slow._rates(samples, times) == (10.0, 0.0, 8.0)
    assert bench_slow._silence(samples, times) == 12.0


def wait_for_ever(pipe: Any) -> None:
    pipe.recv()


def test_a_stopped_child_does_not_outlive_the_run() -> None:
    with (
        suppress(KeyboardInterrupt),
        closing_children([partial(FunctionChild, 0, wait_for_ever)]) as (child,),
    ):
        pid = child.pid
        os.kill(pid, signal.SIGSTOP)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
