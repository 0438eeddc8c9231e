"""Scenario files: what they make happen, and what is wrong with a bad one, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.workloads.scenario_file import KINDS, Script, ScriptError, read_script

TWO = 'about = "two"\n[params]\nnodes = 4\n[topics]\nt = [0, 1]\n'
PUBLISH = '[[do]]\nat = 5\nnode = 0\nact = "publish"\n'


def script(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "story.toml"
    path.write_text(text, encoding="utf-8")
    return read_script(path)


def perform(story: Script, protocol: str = "cubecast", nodes: int | None = None) -> Outcome:
    params = Params().with_(story.scenario.defaults)
    if nodes is not None:
        params = params.with_({"nodes": nodes})
    return run(story.scenario, protocol, params, 0, keep_trace=True)


def story_of(outcome: Outcome, *kinds: str) -> list[tuple[str, int, int]]:
    return [(r.kind, r.time, r.node) for r in outcome.trace or () if r.kind in kinds]


def test_a_story(tmp_path: Path) -> None:
    text = (
        TWO
        + PUBLISH
        + 'label = "question"\n'
        + '[[do]]\nafter = "question"\nnode = 1\nact = "publish"\n'
        + '[[do]]\nat = 1000\nnode = 1\nact = "unsubscribe"\n'
        + '[[do]]\nat = 2000\nnode = 3\nact = "subscribe"\n'
    )
    story = script(tmp_path, text)
    assert (story.scenario.name, story.scenario.about) == ("story", "two")
    outcome = perform(story)
    assert story_of(outcome, "publish") == [("publish", 5, 0), ("publish", 105, 1)]
    assert story_of(outcome, "leave") == [("leave", 1000, 1)]
    assert story_of(outcome, "subscribe")[2:] == [("subscribe", 2000, 3)]
    assert outcome.ok


def test_a_hold_makes_one_link_slow(tmp_path: Path) -> None:
    plain = script(tmp_path, TWO + PUBLISH)
    slow = script(tmp_path, TWO + PUBLISH + "[[hold]]\nfrom = 0\nto = 1\ndelay = 70\n")
    assert ("deliver", 105, 1) in story_of(perform(plain), "deliver")
    assert ("deliver", 175, 1) in story_of(perform(slow), "deliver")


def test_a_partition_cuts_its_side_off(tmp_path: Path) -> None:
    cut = "[[partition]]\nstart = 0\nend = 5000\nside = [1, 2]\n"
    outcome = perform(script(tmp_path, TWO + PUBLISH + cut))
    assert outcome.params.partitions[0].side == 0b0110
    arrival = max(time for _, time, node in story_of(outcome, "deliver") if node == 1)
    assert arrival >= 5000
    assert outcome.ok


def test_other_parameters_of_a_run(tmp_path: Path) -> None:
    text = TWO.replace("nodes = 4", 'nodes = 4\nnetwork = "uniform"\nlow = 3\nhigh = 3\nloss = 0')
    assert ("deliver", 8, 1) in story_of(perform(script(tmp_path, text + PUBLISH)), "deliver")


def test_kinds_of_every_protocol_can_be_held() -> None:
    assert {"pub", "ack", "sub", "uns", "parcel", "delegate", "prepare", "test"} <= KINDS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("about = ", "Invalid value"),
        ("", "missing required field `about`"),
        ("about = 7\n", "Expected `str`, got `int`"),
        ('about = "x"\n', "no topics"),
        ('about = "x"\nspeed = 3\n[topics]\nt = [0]\n', "unknown field `speed`"),
        (TWO + PUBLISH + "color = 3\n", "unknown field `color`"),
        (TWO.replace("4", '"4"'), "nodes must be a whole number, not '4'"),
        (TWO.replace("4", "4.5"), "nodes must be a whole number, not 4.5"),
        (TWO.replace("4", "true"), "nodes must be a whole number, not True"),
        (TWO.replace("4", "-4"), "nodes must be 1 to"),
        (TWO.replace("nodes", "nodez"), "unknown parameter 'nodez'"),
        (TWO.replace("nodes = 4", "partitions = []"), "write [[partition]] tables"),
        (TWO.replace("nodes = 4", "holds = []"), "write [[hold]] tables"),
        (TWO.replace("nodes = 4", "loss = nan"), "loss is a probability"),
        (TWO.replace("[0, 1]", "[0, 4]"), "no node 4 among 0 to 3"),
        (TWO.replace("[0, 1]", "[0, -1]"), "no node -1 among 0 to 3"),
        (TWO.replace("[0, 1]", "[0, 0]"), "topics.t: a node is listed twice"),
        (TWO.replace("[0, 1]", '"all"'), "Expected `array`"),
        (TWO + PUBLISH.replace("publish", "shout"), "Invalid enum value 'shout'"),
        (TWO + PUBLISH.replace("node = 0", "node = 9"), "no node 9"),
        (TWO + PUBLISH.replace("at = 5", "at = -5"), "at must be 0 to"),
        (TWO + PUBLISH.replace("at = 5", f"at = {10**12}"), "at must be 0 to"),
        (TWO + PUBLISH.replace("at = 5", "at = 5.5"), "Expected `int"),
        (TWO + PUBLISH.replace("at = 5\n", ""), "say either `at` or `after`"),
        (TWO + PUBLISH + 'after = "x"\n', "say either `at` or `after`"),
        (TWO + PUBLISH.replace("at = 5", 'after = "x"'), "nothing is labelled 'x'"),
        (TWO + PUBLISH + 'topic = "u"\n', "topic 'u' is not in [topics]"),
        (TWO + "u = [0]\n" + PUBLISH, "step 1 (publish at node 0): say which topic"),
        (TWO + 2 * (PUBLISH + 'label = "x"\n'), "labelled 'x' too"),
        (TWO + PUBLISH.replace("publish", "subscribe") + 'label = "x"\n', "only a publication"),
        (TWO + "[[hold]]\nfrom = 0\nto = 9\ndelay = 1\n", "no node 9"),
        (TWO + "[[hold]]\nfrom = 0\nto = 1\ndelay = -1\n", "delay must be 0 to"),
        (TWO + '[[hold]]\nfrom = 0\nto = 1\ndelay = 1\nkind = "pubb"\n', "unknown kind 'pubb'"),
        (TWO + "[[partition]]\nstart = 9\nend = 9\nside = [0]\n", "ends at 9 but starts at 9"),
        (TWO + "[[partition]]\nstart = 0\nend = 9\nside = [7]\n", "no node 7"),
        (TWO + "[[partition]]\nstart = 0\nend = 9\nside = [-1]\n", "no node -1"),
        (TWO + "[expect]\nvcube = []\n", "unknown protocol 'vcube'"),
        (TWO + '[expect]\ncubecast = ["speed"]\n', "unknown property 'speed'"),
    ],
)
def test_an_error_in_a_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ScriptError) as caught:
        script(tmp_path, text)
    assert reason in str(caught.value)
    assert "story.toml" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\x00\xff\xfe\x80")
    (tmp_path / "folder.toml").mkdir()
    for name in ("binary.toml", "folder.toml", "missing.toml"):
        with pytest.raises(ScriptError, match="cannot read"):
            read_script(tmp_path / name)


def test_ids_are_checked_against_the_nodes_of_the_run(tmp_path: Path) -> None:
    story = script(tmp_path, TWO + PUBLISH)
    assert perform(story, nodes=2).ok
    with pytest.raises(ScriptError, match="no node 1 among 0 to 0"):
        perform(story, nodes=1)


@pytest.mark.parametrize("act", ["publish", "register"])
def test_a_step_that_a_protocol_does_not_offer_is_named(tmp_path: Path, act: str) -> None:
    """Only subscribers publish in VCube-PS."""
    text = TWO + PUBLISH.replace("publish", act).replace("node = 0", "node = 3")
    story = script(tmp_path, text)
    with pytest.raises(ScriptError, match=rf"step 1 \({act} at node 3\) at time 5: node 3 cannot"):
        perform(story, "vcube-ps")
    assert perform(story).ok
