"""``cubecast permissions check``, ``cubecast token``, and a cluster with permissions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cubecast.cli.app import app
from cubecast.net.security.permission_file import read_permissions
from support.commands import answer, background, cubecast, one_line, read_line
from support.files import written

RULES = """
[[rule]]
who = "client:alice"
publish = ["chat/+", "presence/{name}"]
subscribe = ["chat/#"]

[[rule]]
who = ["client:*", "client:"]
deny = ["chat/private/#"]
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    return str(written(tmp_path, RULES))


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["permissions", "check", *arguments])
    return done.exit_code, done.output.strip()


@pytest.mark.parametrize(
    ("question", "code", "said"),
    [
        (
            "--publish chat/1",
            0,
            "allowed: client:alice publishes to 'chat/1': rule 1 (client:alice)",
        ),
        ("--publish presence/alice", 0, "allows 'presence/alice'"),
        ("--publish presence/bob", 1, "refused: client:alice publishes to 'presence/bob': no rule"),
        ("--subscribe chat/room/+", 0, "allows 'chat/#'"),
        ("--subscribe chat/#", 1, "rule 2 (client:*, client:) denies 'chat/private/#'"),
        ("--publish chat/1 --subscribe x", 1, "refused: client:alice subscribes to 'x'"),
        ("--publish chat/+", 2, "is a pattern"),
        ("--subscribe a#", 2, "mixes a wildcard"),
    ],
)
def test_a_check_says_what_is_allowed_and_by_which_rule(
    rules: str, question: str, code: int, said: str
) -> None:
    got, output = check(rules, "--who", "client:alice", *question.split())
    assert got == code
    assert said in output


def test_a_check_without_a_question_lists_everything(rules: str) -> None:
    assert check(rules) == (0, f"{rules} is in order: 2 rules, 0 tokens")
    code, output = check(rules, "--who", "client:alice")
    assert code == 0
    assert output.splitlines() == [
        "client:alice may publish to 'chat/+': rule 1 (client:alice)",
        "client:alice may publish to 'presence/alice': rule 1 (client:alice)",
        "client:alice may subscribe to 'chat/#': rule 1 (client:alice)",
        "client:alice is denied 'chat/private/#': rule 2 (client:*, client:)",
    ]
    assert check(rules, "--who", "node:x")[1] == "node:x may do nothing: no rule is about it"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--publish", "x"], "--who is missing"),
        (["--who", "alice"], "--who must be client:NAME"),
    ],
)
def test_a_question_that_cannot_be_meant_takes_one_line(
    rules: str, arguments: list[str], said: str
) -> None:
    code, output = check(rules, *arguments)
    assert code == 2
    assert said in output
    assert output.count("\n") == 0


def test_a_token_is_a_line_of_the_file_of_tokens(tmp_path: Path) -> None:
    line = CliRunner().invoke(app, ["token", "alice"]).output
    assert re.fullmatch(r'alice = "[\w-]{43}"\n', line)
    assert list(read_permissions(written(tmp_path, RULES, line)).tokens) == ["alice"]
    done = CliRunner().invoke(app, ["token", "a/b"])
    assert (done.exit_code, "not 'a/b'" in done.output) == (2, True)


def test_a_cluster_keeps_to_the_permissions_of_its_nodes(tmp_path: Path) -> None:
    everyone = '[[rule]]\nwho = "node:"\npublish = ["#"]\nsubscribe = ["#"]\n'
    clients = '[[rule]]\nwho = "client:"\npublish = ["in"]\nsubscribe = ["out"]\n'
    path = written(tmp_path, everyone + clients)
    with background("node", "--listen", "127.0.0.1:0", "--permissions", str(path)) as node:
        address = read_line(node).rsplit(" ", 1)[1]
        assert answer("pub", "in", "hello", "--at", address) == ""
        said = one_line(cubecast("pub", "out", "hello", "--at", address))
        assert said == "cubecast pub: not allowed to publish to 'out': no rule allows it\n"
        said = one_line(cubecast("sub", "in", "--at", address))
        assert said == "cubecast sub: not allowed to subscribe to 'in': no rule allows it\n"


def test_a_command_has_a_name_and_its_token_from_flags_or_a_file(tmp_path: Path) -> None:
    token = "alice has a token of this many characters"
    everyone = '[[rule]]\nwho = "node:"\npublish = ["#"]\nsubscribe = ["#"]\n'
    path = written(tmp_path, everyone + RULES, f'alice = "{token}"\n')
    mine = tmp_path / "alice.toml"
    (tmp_path / "alice.token").write_text(f"{token}\n", encoding="utf-8")
    mine.write_text('client_name = "alice"\nsecret_file = "alice.token"\n', encoding="utf-8")
    with background("node", "--listen", "127.0.0.1:0", "--permissions", str(path)) as node:
        at = ("--at", read_line(node).rsplit(" ", 1)[1])
        assert answer("pub", "presence/alice", "1", *at, "--name", "alice", "--secret", token) == ""
        assert answer("pub", "presence/alice", "2", *at, "--config", str(mine)) == ""
        wrong = ("--name", "alice", "--secret", "x" * 32)
        said = one_line(cubecast("pub", "presence/alice", "3", *at, *wrong))
        assert "there is no client of this name with this token" in said


def test_a_name_without_a_token_takes_one_line() -> None:
    done = CliRunner().invoke(app, ["pub", "presence/alice", "1", "--name", "alice"])
    assert done.exit_code == 2
    assert "a client of the name 'alice' needs its token as secret" in done.output


def test_a_node_with_a_damaged_file_of_permissions_says_so_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, "[[rule]]\nwhom = 3\n")
    said = one_line(cubecast("node", "--listen", "127.0.0.1:0", "--permissions", str(path)))
    assert said.startswith(f"cubecast node: {path}: rule 1: whom is no key of permissions; did you")
