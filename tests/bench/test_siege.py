"""The judge of sieges: what it must refuse and what it must let pass; and a short siege."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.live import cluster, live
from support.paths import ROOT

PROGRAMS = ROOT / "bench"
CALM = {"inversions": 0, "losses that were not told": 0}


@pytest.fixture(autouse=True)
def _programs_are_found() -> Iterator[None]:
    sys.path.insert(0, str(PROGRAMS))
    yield
    sys.path.remove(str(PROGRAMS))


def samples(change: Callable[[dict[str, Any], float], None] | None = None) -> list[dict[str, Any]]:
    """An hour of three nodes, with chance in it; `change` is called with the share that is over."""
    random = Random(1)
    made = []
    for number in range(360):
        sample: dict[str, Any] = {
            "at_s": 10.0 * (number + 1),
            "deliveries_per_s": random.uniform(2000, 3000),
            "rss_mb": [random.uniform(50, 54) for _ in range(3)],
            "descriptors": [random.randint(30, 60) for _ in range(3)],
            "tasks": [random.randint(10, 20) for _ in range(3)],
        }
        if number % 25 == 0:  # peaks are chance
            sample["rss_mb"][1] += 40
            sample["descriptors"][0] += 200
            sample["deliveries_per_s"] /= 10
        if change is not None:
            change(sample, number / 360)
        made.append(sample)
    return made


def failed(made: list[dict[str, Any]], counts: dict[str, int] | None = None) -> list[str]:
    """What the judge refuses."""
    from siege.verdict import Limits, judge

    verdict = judge(made, CALM if counts is None else counts, Limits())
    assert verdict.ok == (not [line for line in verdict.lines if not line.ok])
    return [line.name.partition(" (")[0] for line in verdict.lines if not line.ok]


def test_a_flat_hour_with_peaks_is_accepted() -> None:
    assert failed(samples()) == []


def leak_memory(sample: dict[str, Any], over: float) -> None:
    sample["rss_mb"][2] += 20 * over  # one node of three


def leak_descriptors(sample: dict[str, Any], over: float) -> None:
    sample["descriptors"][1] += int(40 * over)


def leak_tasks(sample: dict[str, Any], over: float) -> None:
    sample["tasks"][0] += int(40 * over)


def slow_down(sample: dict[str, Any], over: float) -> None:
    sample["deliveries_per_s"] *= 1 - 0.4 * over


def stand_still(sample: dict[str, Any], over: float) -> None:
    sample["deliveries_per_s"] = 0.0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (leak_memory, "memory, MB"),
        (leak_descriptors, "descriptors"),
        (leak_tasks, "tasks"),
        (slow_down, "deliveries per s"),
        (stand_still, "deliveries per s"),
    ],
)
def test_an_hour_that_is_not_flat_is_refused(
    change: Callable[[dict[str, Any], float], None], name: str
) -> None:
    assert failed(samples(change)) == [name]


def test_growth_in_the_warm_up_is_no_leak() -> None:
    def fill(sample: dict[str, Any], over: float) -> None:
        sample["rss_mb"] = [size - 40 * max(0.0, 0.08 - over) / 0.08 for size in sample["rss_mb"]]

    assert failed(samples(fill)) == []


@pytest.mark.parametrize("name", CALM)
def test_one_that_must_be_0_and_is_not_is_refused(name: str) -> None:
    assert failed(samples(), {**CALM, name: 1}) == [name]


def test_a_run_that_is_too_short_is_not_judged() -> None:
    assert failed(samples()[:5]) == ["samples after the warm-up"]
    assert failed([]) == ["samples after the warm-up"]


# -- what a reader checks -------------------------------------------------------------------------


def witness(*said: tuple[str, int, int, bytes]) -> Any:
    """A reader that got these, in this order: topic, publisher, number, body."""
    from siege.terms import payload_of
    from siege.witness import Witness

    reader = Witness(Random(0))
    for topic, publisher, number, body in said:
        reader.delivered(topic, payload_of(publisher, number, body), 0.0)
    return reader


def test_numbers_that_are_skipped_are_missing_and_those_that_come_again_are_disorder() -> None:
    steady = "siege/steady"
    reader = witness(*((steady, 1, number, b"") for number in (0, 1, 4, 4, 2, 5)))
    assert (reader.missing[steady], reader.disorder) == (2, 2)
    assert reader.reached() == {steady: {1: 6}}


def test_an_answer_before_its_question_is_an_inversion() -> None:
    talk = "siege/talk"
    question, answer = (talk, 0, 0, b"?0"), (talk, 1, 0, b"!0:0")
    assert witness(question, answer).inversions == 0
    assert witness(answer, question).inversions == 1
    later = (talk, 0, 1, b"?1")
    assert witness(answer, later).inversions == 0  # the question never came: it is missing
    assert witness(answer, later).missing[talk] == 1


def test_a_missing_message_that_is_not_told_is_a_silent_loss() -> None:
    from siege.witness import untold

    steady = "siege/steady"
    reader = witness((steady, 1, 5, b""))
    assert untold(reader.missing, reader.told, {}) == 5
    reader.skipped(steady, {3: [(0, 1)], 4: [(7, 7)]})
    assert untold(reader.missing, reader.told, {}) == 2
    assert untold(reader.missing, reader.told, {steady: 2}) == 0
    reader.skipped("another topic", {3: [(0, 9)]})
    assert untold(reader.missing, reader.told, {}) == 2


# -- breaches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("secret", "breaches"), [("", {"replay": 1}), ("open sesame, please", {})])
@live
async def test_a_replay_that_is_taken_is_a_breach(secret: str, breaches: dict[str, int]) -> None:
    """Without a secret a recording is as good as its client: so the attack can succeed."""
    from siege.grounds import Grounds
    from siege.strangers import overhear, replay
    from siege.terms import Terms

    async with cluster(1, secret=secret) as nodes:
        grounds = Grounds(Terms(secret, secret, 0), [nodes[0].address], Random(0))
        await overhear(grounds)
        while not grounds.recordings:  # the relay is told a moment later that all is over
            await asyncio.sleep(0.01)
        replaying = asyncio.create_task(replay(grounds))
        while not replaying.done() and not grounds.breaches:
            await asyncio.sleep(0.01)
        replaying.cancel()
        assert dict(grounds.breaches) == breaches


# -- the program ----------------------------------------------------------------------------------


def ends_with(monkeypatch: pytest.MonkeyPatch, *args: str) -> Any:
    """Run the program here; what it exits with."""
    import bench_siege

    monkeypatch.setattr(sys, "argv", ["bench_siege.py", *args])
    try:
        bench_siege.main()
    except SystemExit as end:
        return end.code
    return 0


def test_a_file_of_samples_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.jsonl"
    end = {"figures": {"must_be_0": CALM}}
    state.write_text("\n".join(map(json.dumps, [*samples(), end])))
    assert ends_with(monkeypatch, "--judge", str(state)) == 0
    assert "the cluster held" in capsys.readouterr().out
    state.write_text("\n".join(map(json.dumps, [*samples(leak_memory), end])))
    assert ends_with(monkeypatch, "--judge", str(state)) == 1
    assert "THE CLUSTER DID NOT HOLD" in capsys.readouterr().out
    state.write_text("\n".join(map(json.dumps, samples())))
    assert ends_with(monkeypatch, "--judge", str(state)) == 1
    assert "runs cut short" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--attacks", "strangers,ghosts"), "--attacks has ghosts"),
        (("--nodes", "1"), "at least 2 nodes"),
        (("--secret", "short"), "at least 12"),
        (("--state", __file__), "exists"),
        (("--judge", __file__), "line 1: no sample of a siege"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    args: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = ends_with(monkeypatch, *args)
    assert code != 0
    assert said in (code if isinstance(code, str) else capsys.readouterr().err.splitlines()[-1])


@pytest.mark.soak
def test_twenty_seconds_of_siege(tmp_path: Path) -> None:
    """Every part runs: too short for medians, so only what must be 0 is asserted."""
    out = tmp_path / "siege.json"
    args = ("--minutes", "0.34", "--every", "2", "--nodes", "4", "--visitors", "2")
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "bench_siege.py"), *args, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert out.exists(), done.stdout + done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert not any(figures["must_be_0"].values()), done.stdout + done.stderr
    assert figures["deliveries"] > 0
    assert figures["visitors"]["joined"] > 0
    assert figures["clients"]["attached"] > 0
    assert all(figures["attacks"][name] > 0 for name in ("garbage", "hoard", "outsider garbage"))
