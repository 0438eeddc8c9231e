"""``cubecast chaos``: real processes, hurt on purpose.

The faults of the quick tests exclude no node; `make soak` runs those that do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cubecast.chaos.condition import Action, Condition
from cubecast.chaos.live.chaos_run import chaos_run
from cubecast.chaos.live.driver import ChaosFailed, Driver, LiveOptions
from cubecast.chaos.live.live_schedules import draw, split
from cubecast.chaos.live.messages import ApplicationLoad
from cubecast.chaos.live.node_process import NodeProcess
from cubecast.chaos.live.placement import Loopback, Namespaces, PlacementError, ip, permitted
from cubecast.chaos.live.plot import draw_run
from cubecast.chaos.live.tracelog import RecordedWrites, TraceLog
from cubecast.chaos.live.verdict import judge
from cubecast.chaos.schedule import Fault, Schedule, checked
from cubecast.cli.app import app
from cubecast.net.node.shell import Shell
from cubecast.net.settings.config import NodeConfig
from cubecast.testing.memory import MemoryNetwork
from cubecast.trace import Header, Record, read_jsonl
from support.live import live

BENIGN = """
about = "no node is excluded"
unit = "s"
nodes = 3
length = 4

[links]
loss = 0.01

[[fault]]
at = 0.5
act = "pause"
node = 1
for = 0.2

[[fault]]
at = 1
act = "leave"
node = 2
for = 0.2

[[do]]
at = 2
act = "burst"
node = 0
count = 30

[[fault]]
at = 2.5
act = "partition"
sides = [[0]]
for = 0.4

[[fault]]
at = 3
act = "slow"
node = 1
delay = 0.01
for = 0.4
"""


# -- the trace of a process that may end at any moment --------------------------------------------


@live
async def test_a_publication_is_in_the_file_before_another_node_reads_it(tmp_path: Path) -> None:
    network, path = MemoryNetwork(), tmp_path / "a.jsonl"
    log = TraceLog(path, Header())
    first = Shell(NodeConfig(), trace=log, network=network, writes=RecordedWrites(log))
    await first.start(None)
    second = Shell(NodeConfig(), network=network)
    await second.start(first.address)
    publisher, reader = first.node, second.node
    async with reader.subscribe("t") as messages:
        for number in range(50):
            await publisher.publish("t", str(number))
            message = await anext(messages)
            named = {record.id for record in read_jsonl(path)[1] if record.kind == "publish"}
            stream = message.frame.stream
            assert f"{stream.source}.{stream.incarnation:x}.{message.seq}" in named
    await reader.close()
    await publisher.close()


def test_answers_name_their_question_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = TraceLog(path, Header())
    log.replies["t", 1] = "question"
    log += [Record("publish", 1, 0, "t", f"0.0.{seq}", 0, seq) for seq in range(3)]
    log.save()
    assert (list(log), log.replies) == ([], {})
    assert [record.reply_to for record in read_jsonl(path)[1]] == [(), ("question",), ()]
    log.close()
    log.append(Record("leave", 2, 0, "t"))
    log.save()  # the trace has ended: this is in it no more
    assert len(list(read_jsonl(path)[1])) == 3


# -- runs -----------------------------------------------------------------------------------------


def test_a_run_without_exclusions_loses_nothing(tmp_path: Path) -> None:
    plan, traces = tmp_path / "plan.toml", tmp_path / "traces"
    plan.write_text(BENIGN)
    done = CliRunner().invoke(
        app, ["chaos", "--schedule", str(plan), "--trace", str(traces), "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert set(found["properties"].values()) == {0}
    metrics = {name: figures["mean"] for name, figures in found["metrics"].items()}
    assert metrics["violations"] == metrics["gaps"] == metrics["discards"] == 0
    assert (metrics["pauses"], metrics["restarts"], metrics["partitions"]) == (1, 1, 1)
    assert metrics["deliveries"] > metrics["publications"] > 100
    assert [event["act"] for event in found["events"]] == [
        "pause", "resume", "leave", "restart", "partition", "heal", "slow", "heal",
    ]  # fmt: skip
    assert all(event["heard_by_all_s"] is not None for event in found["events"])
    names = {path.name for path in traces.iterdir()}
    lives = {"node-0-0.jsonl", "node-1-0.jsonl", "node-2-0.jsonl", "node-2-1.jsonl"}
    assert names == {"schedule.toml", "story.txt", *lives}


def test_a_process_that_ends_by_itself_is_a_problem_and_what_it_said_is_known(
    tmp_path: Path,
) -> None:
    plan = checked(Schedule(3, "nothing", "s", 0.5))
    options = LiveOptions(tmp_path, ApplicationLoad(rate=100), settle_s=0.5, talk_s=0.5)
    driver = Driver(plan, options, say=lambda line: kill_one(driver))
    killed: list[NodeProcess] = []

    def kill_one(driver: Driver) -> None:
        if not killed:
            killed.append(driver.processes[1])
            driver.processes[1].signal(signal.SIGKILL)

    run = driver.run()
    assert run.problems[0].startswith("node 1 ended by itself, killed by SIGKILL")
    assert [life.ending for life in run.lives] == ["", "crash", ""]
    verdict = judge(run)
    assert not verdict.ok
    # Whatever it published and others have seen, its trace has; that it was cut off is no excuse.
    for property in ("no-creation", "no-duplication", "fifo", "causal-order"):
        assert verdict.report.counts[property] == 0
    assert not any(process.alive for process in driver.processes)


def test_a_cluster_that_does_not_start_is_said_in_one_line(tmp_path: Path) -> None:
    class Nowhere(Loopback):
        def listen(self, number: int) -> str:
            return "192.0.2.1:0"

    plan = checked(Schedule(2, "nothing", "s", 0.5))
    driver = Driver(plan, LiveOptions(tmp_path), places=Nowhere())
    with pytest.raises(ChaosFailed, match="node 0 did not start: node 0 ended by itself"):
        driver.run()
    assert not any(process.alive for process in driver.processes)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--partition", "4,x"], "--partition takes sizes as in 4,4, not '4,x'"),
        (["--partition", "4,4", "-n", "9"], "9 nodes cannot be cut into 4,4"),
        (["--partition", "4,4", "--schedule", "x.toml"], "exclude each other"),
        (["--schedule", "none.toml"], "cannot read none.toml: No such file or directory"),
        (["--faults", "flood"], "no such fault: flood; there are crash, pause"),
        (["--every", "0"], "every so many seconds, above 0"),
        (["--rate", "0"], "--rate must be above 0"),
        (["--preset", "moon"], "--preset must be one of local, lan, wan"),
        (["--plot", "run.svg"], "--plot takes a .png"),
        (["--trace", __file__], "--trace takes a directory that is new or empty"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["chaos", *words])
    assert done.exit_code == 2
    assert reason in done.stderr
    assert done.stderr.startswith("cubecast chaos: ")
    assert done.stderr.count("\n") == 1


# -- network namespaces ---------------------------------------------------------------------------


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or bool(permitted()), reason="network namespaces need root"
)


def test_without_the_right_to_make_namespaces_one_line_says_so() -> None:
    with pytest.raises(PlacementError, match=r"ip netns add /nowhere/name: "):
        ip("netns", "add", "/nowhere/name")
    with pytest.raises(PlacementError, match="at most 200"):
        Namespaces(201)


def namespaces() -> set[str]:
    """Those of this process."""
    mine = f"cubecast-{os.getpid()}-"
    return {name for name in os.listdir("/run/netns") if name.startswith(mine)}


def reaches(places: Namespaces, source: int, to: int) -> bool:
    """Whether a packet to a closed port comes back as a refusal."""
    script = (
        "import socket, sys\n"
        "one = socket.socket()\n"
        "one.settimeout(0.5)\n"
        "try: one.connect((sys.argv[1], 9))\n"
        "except ConnectionRefusedError: sys.exit(0)\n"
        "except OSError: sys.exit(1)\n"
    )
    host = places.listen(to).removesuffix(":0")
    command = [*places.command(source), sys.executable, "-c", script, host]
    return subprocess.run(command, timeout=30, check=False).returncode == 0


@needs_namespaces
def test_namespaces_cut_links_in_the_kernel() -> None:
    condition = Condition(3)
    cut = Fault(0, "partition", sides=((0, 1),))
    one_way = Fault(0, "one-way", source=0, to=1)
    with Namespaces(3) as places:
        assert len(namespaces()) == 4
        assert reaches(places, 0, 1)
        assert reaches(places, 2, 1)
        condition.apply(Action(0, cut.act, cut, 0))
        places.links_changed(condition)
        assert reaches(places, 0, 1)
        assert not reaches(places, 2, 1)
        condition.links.clear()
        condition.apply(Action(0, one_way.act, one_way, 1))
        places.links_changed(condition)
        assert not reaches(places, 0, 1)
        assert reaches(places, 2, 1)
        condition.links.clear()
        places.links_changed(condition)
        assert reaches(places, 0, 1)
    assert namespaces() == set()


@needs_namespaces
def test_namespaces_go_however_a_run_ends() -> None:
    with pytest.raises(KeyError), Namespaces(1):
        raise KeyError(len(namespaces()))
    assert namespaces() == set()


# -- long runs ------------------------------------------------------------------------------------


@pytest.mark.soak
def test_sixteen_processes_ten_minutes_a_kill_or_a_stop_every_two_seconds(tmp_path: Path) -> None:
    plan = draw(16, 600, 2, seed=1)
    verdict = chaos_run(plan, LiveOptions(tmp_path, ApplicationLoad(rate=10, answers=0.03)))
    assert verdict.ok, f"{verdict.run.problems} {verdict.report}"
    figures = verdict.metrics
    assert figures["crashes"] + figures["pauses"] == len(plan.faults) > 250
    assert figures["crashes"] == figures["restarts"]
    picture = tmp_path / "chaos.png"
    draw_run(verdict, picture)
    assert picture.stat().st_size > 10_000


@pytest.mark.soak
@pytest.mark.parametrize("kernel", [False, pytest.param(True, marks=needs_namespaces)])
def test_both_sides_of_a_partition_go_on_and_find_together_again(
    kernel: bool, tmp_path: Path
) -> None:
    plan = split((4, 4), 20)
    places = Namespaces(8) if kernel else Loopback()
    verdict = chaos_run(
        plan, LiveOptions(tmp_path, ApplicationLoad(rate=20, answers=0.07)), places=places
    )
    assert verdict.ok, f"{verdict.run.problems} {verdict.report}"
    cut, heal = verdict.curve.costs
    # On each side everyone heard everyone during the cut, and all did after it.
    assert cut.heard_by_all_s is not None
    assert cut.heard_by_all_s < 20
    assert heal.heard_by_all_s is not None
    # What was missed is reported, and completeness says that nothing else was missed.
    assert verdict.report.gaps > 0
