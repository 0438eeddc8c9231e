"""Replay of recorded conversations: what is read, what is refused, what is published when."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from cubecast.sim.params import Params
from cubecast.sim.run import Outcome, run
from cubecast.sim.workloads.replay import (
    Conversation,
    ConversationLine,
    ReplayError,
    read_conversations,
)
from cubecast.trace import Record
from support.paths import ROOT

TALK = ROOT / "examples" / "talk.csv"
HEADER = "second,user,line,reply_to\n"


def read(tmp_path: Path, text: str) -> list[Conversation]:
    path = tmp_path / "talk.csv"
    path.write_text(text, encoding="utf-8")
    return read_conversations(path)


def replay(conversation: Conversation, protocol: str = "cubecast", **params: Any) -> Outcome:
    scenario = conversation.scenario()
    wanted = Params().with_(scenario.defaults).with_(params)
    return run(scenario, protocol, wanted, 0, keep_trace=True)


def published(outcome: Outcome) -> list[Record]:
    return [record for record in outcome.trace or () if record.kind == "publish"]


# Reading


def test_lines_users_and_links(tmp_path: Path) -> None:
    text = HEADER + "10,ada,a,-\n12,ben,b,a\n15,ada,c,\n20,cleo,d,c;a;c\n"
    (talk,) = read(tmp_path, text)
    assert (talk.name, talk.nodes, talk.replies) == ("talk", 3, 3)
    assert talk.lines == (
        ConversationLine(10, 0, ()),
        ConversationLine(12, 1, (0,)),
        ConversationLine(15, 0, ()),
        ConversationLine(20, 2, (2, 0)),
    )


def test_each_channel_and_log_is_a_conversation(tmp_path: Path) -> None:
    text = (
        "channel,log,line,second,user,reply_to\na,x,0,1,u,\nb,x,0,1,u,\na,x,1,2,v,0\na,y,0,1,v,\n"
    )
    talks = read(tmp_path, text)
    assert [(talk.name, len(talk.lines)) for talk in talks] == [("a/x", 2), ("b/x", 1), ("a/y", 1)]


def test_gzip_a_byte_order_mark_and_other_line_ends(tmp_path: Path) -> None:
    plain = read(tmp_path, HEADER + "1,u,0,\n2,v,1,0\n")
    packed = tmp_path / "talk.csv.gz"
    packed.write_bytes(gzip.compress((HEADER + "1,u,0,\n2,v,1,0\n").encode()))
    assert [talk.lines for talk in read_conversations(packed)] == [plain[0].lines]
    assert read(tmp_path, "\ufeff" + HEADER + "1,u,0,\n2,v,1,0\n") == plain
    assert read(tmp_path, HEADER + "1,u,0,\r\n2,v,1,0\r\n") == plain


def test_midnight_is_a_new_day(tmp_path: Path) -> None:
    (talk,) = read(tmp_path, HEADER + "86390,u,0,\n5,v,1,0\n9,u,2,1\n")
    assert [line.second for line in talk.lines] == [86390, 86405, 86409]


def test_time_stands_still_where_the_clock_goes_back(tmp_path: Path) -> None:
    (talk,) = read(tmp_path, HEADER + "100,u,0,\n40,u,1,0\n90,v,2,1\n120,v,3,\n")
    assert [line.second for line in talk.lines] == [100, 100, 100, 120]


def test_links_out_of_an_excerpt_are_left_out(tmp_path: Path) -> None:
    (talk,) = read(tmp_path, HEADER + "1,u,7,3\n2,v,8,7;2\n")
    assert [line.parents for line in talk.lines] == [(), (0,)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column 'second'"),
        ("second,user,line\n1,u,0\n", "no column 'reply_to'"),
        (HEADER, "no lines"),
        (HEADER + "1,u\n", "line 2: not as many fields as columns"),
        (HEADER + "1,u,0,\n1,u,0,,,\n", "line 3: not as many fields as columns"),
        (HEADER + "1.5,u,0,\n", "line 2: second is not a whole number"),
        (HEADER + "-1,u,0,\n", "line 2: second is not a whole number"),
        (HEADER + ",u,0,\n", "line 2: second is not a whole number"),
        (HEADER + "nan,u,0,\n", "line 2: second is not a whole number"),
        (HEADER + f"{10**30},u,0,\n", "line 2: second goes up to"),
        (HEADER + "1,,0,\n", "line 2: no user"),
        (HEADER + "1,u,0,\n2,v,0,\n", "line 3: there is a line '0' already"),
        (HEADER + "1,u,0,1\n2,v,1,\n", "line 2: reply_to names '1', which is not an earlier line"),
        (HEADER + "1,u,0,0\n", "line 2: reply_to names '0', which is not an earlier line"),
        (HEADER + '1,"u,0,\n', "unexpected end of data"),
    ],
)
def test_an_error_in_a_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ReplayError) as caught:
        read(tmp_path, text)
    assert reason in str(caught.value)
    assert "talk.csv" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + "".join(f"{n},u{n * n},{n},\n" for n in range(5000))).encode())
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 20] = b"\xff" * 20
    contents = {
        "binary.csv": b"\x00\xff\xfe\x80",
        "not.csv.gz": b"second,user",
        "cut.csv.gz": packed[: len(packed) // 2],
        "damaged.csv.gz": bytes(damaged),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.csv").mkdir()
    for name in [*contents, "folder.csv", "missing.csv"]:
        with pytest.raises(ReplayError, match="cannot read"):
            read_conversations(tmp_path / name)


# Publishing


def test_a_line_is_published_at_its_time_scaled(tmp_path: Path) -> None:
    (talk,) = read(tmp_path, HEADER + "50,u,0,\n53,v,1,\n60,u,2,\n")
    assert [(r.node, r.time) for r in published(replay(talk, scale=7))] == [
        (0, 0),
        (1, 21),
        (0, 70),
    ]


def test_an_answer_waits_for_its_question_and_holds_up_its_writer(tmp_path: Path) -> None:
    """The hop takes 100: the answer due at 10 and the line after it are published at 100."""
    (talk,) = read(tmp_path, HEADER + "0,u,0,\n1,v,1,0\n2,v,2,\n3,u,3,\n")
    lines = published(replay(talk, scale=10, hop=100))
    assert [(r.node, r.time, r.reply_to) for r in lines] == [
        (0, 0, ()),
        (0, 30, ()),
        (1, 100, (0,)),
        (1, 100, ()),
    ]


def test_a_clock_that_goes_back_does_not_stop_a_conversation(tmp_path: Path) -> None:
    """The writer's second line answers its first, but its clock says it came before."""
    (talk,) = read(tmp_path, HEADER + "100,u,0,\n40,u,1,0\n90,v,2,1\n")
    assert len(published(replay(talk))) == 3


def test_fewer_nodes_than_writers_are_refused(tmp_path: Path) -> None:
    (talk,) = read(tmp_path, HEADER + "0,u,0,\n1,v,1,0\n")
    assert replay(talk, nodes=5).ok
    with pytest.raises(ReplayError, match="talk has 2 writers"):
        replay(talk, nodes=1)


def test_the_example_shows_answers_before_questions_under_best_effort_only() -> None:
    (talk,) = read_conversations(TALK)
    assert (talk.name, talk.nodes, len(talk.lines)) == ("garden/monday", 7, 32)
    network = {"network": "uniform", "low": 20, "high": 180}
    pairs = talk.replies * talk.nodes
    loose, causal = (replay(talk, name, **network) for name in ("best-effort", "cubecast"))
    assert len(published(loose)) == len(published(causal)) == 32
    assert loose.metrics["answers_seen"] == causal.metrics["answers_seen"] == pairs
    assert loose.metrics["answers_before_questions"] > 5
    assert causal.metrics["answers_before_questions"] == 0
    assert causal.ok
