"""``cubecast tree``: what it draws, what it prints for a script, and how it refuses."""

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from cubecast.cli.tree import tree

app = typer.Typer()
app.command()(tree)


def run(command: str, columns: int = 80, charset: str = "utf-8") -> Result:
    environment = {"COLUMNS": str(columns), "FORCE_COLOR": None}
    return CliRunner(charset=charset, env=environment).invoke(app, command.split())


def drawing(command: str) -> list[str]:
    result = run(command)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


# Drawings


def test_figure_3_left() -> None:
    """[J] Figure 3, left: all eight subscribe, p0 publishes."""
    assert drawing("--members all --nodes 8") == [
        "0  root",
        "├── 1  s=1  hop 1",
        "├── 2  s=2  hop 1",
        "│   └── 3  s=1  hop 2",
        "└── 4  s=3  hop 1",
        "    ├── 5  s=1  hop 2",
        "    └── 6  s=2  hop 2",
        "        └── 7  s=1  hop 3",
        "8 members, dimension 3, height 3, 7 messages, 0 forwarders",
    ]


def test_figure_3_right() -> None:
    """[J] Figure 3, right: p2 publishes to 0, 2, 3, 5 and 7."""
    assert drawing("--root 2 --members 0,2,3,5,7") == [
        "2  root",
        "├── 3  s=1  hop 1",
        "├── 0  s=2  hop 1",
        "└── 7  s=3  hop 1",
        "    └── 5  s=2  hop 2",
        "5 members, dimension 3, height 2, 4 messages, 0 forwarders",
    ]


def test_ranges_and_ids_together() -> None:
    lines = drawing("--root 3 --members 0-7,12")
    assert lines[0] == "3  root"
    assert lines[-2] == "└── 12  s=4  hop 1"
    assert lines[-1] == "9 members, dimension 4, height 3, 8 messages, 0 forwarders"


def test_forwarders() -> None:
    """The SRPT-S tree of the same members goes through nodes that are none."""
    assert drawing("--root 2 --members 5,7 --forwarders") == [
        "2  root, not a member",
        "└── 6  s=3  hop 1  forwarder",
        "    ├── 7  s=1  hop 2",
        "    └── 4  s=2  hop 2  forwarder",
        "        └── 5  s=1  hop 3",
        "2 members, dimension 3, height 3, 4 messages, 2 forwarders",
    ]
    assert drawing("--root 2 --members 5,7")[-1] == (
        "2 members, dimension 3, height 2, 2 messages, 0 forwarders"
    )


def test_a_root_that_does_not_subscribe() -> None:
    assert drawing("--root 6 --members 1") == [
        "6  root, not a member",
        "└── 1  s=3  hop 1",
        "1 member, dimension 3, height 1, 1 message, 0 forwarders",
    ]


def test_a_root_on_its_own() -> None:
    assert drawing("--root 5 --members 5") == [
        "5  root",
        "1 member, dimension 3, height 0, 0 messages, 0 forwarders",
    ]


def test_one_node() -> None:
    assert drawing("--nodes 1")[-1] == "1 member, dimension 0, height 0, 0 messages, 0 forwarders"


def test_long_lines_are_neither_cut_nor_folded() -> None:
    result = run("--nodes 4096", columns=30)
    lines = result.stdout.splitlines()
    assert len(lines) == 4097
    assert lines[-2] == "    " * 11 + "└── 4095  s=1  hop 12"


def test_a_terminal_without_line_drawing() -> None:
    result = run("--nodes 4", charset="ascii")
    assert result.stdout.splitlines()[:4] == [
        "0  root",
        "+-- 1  s=1  hop 1",
        "`-- 2  s=2  hop 1",
        "    `-- 3  s=1  hop 2",
    ]


# How many nodes there are


@pytest.mark.parametrize(
    ("command", "dimension"),
    [
        ("--members 0-7", 3),
        ("--members 0-8", 4),
        ("--root 9 --members 0-3", 4),
        ("--members 0-3 --nodes 4", 2),
        ("--members 0-3 --nodes 100", 7),
        ("--members all --nodes 13", 4),
        ("--members 5 --forwarders", 3),
        ("--members 5 --nodes 16 --forwarders", 4),
    ],
)
def test_dimension(command: str, dimension: int) -> None:
    assert json.loads(run(f"{command} --json").stdout)["dimension"] == dimension


# JSON


def test_json() -> None:
    result = run("--root 2 --members 0,2,3,5,7 --json")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == {
        "root": 2,
        "members": [0, 2, 3, 5, 7],
        "dimension": 3,
        "height": 2,
        "edges": [[2, 3], [2, 0], [2, 7], [7, 5]],
    }


def test_json_with_forwarders() -> None:
    shown = json.loads(run("--members 7 --forwarders --json").stdout)
    assert shown["members"] == [7]
    assert shown["edges"] == [[0, 4], [4, 6], [6, 7]]


def test_json_of_many_nodes() -> None:
    shown = json.loads(run("--root 77 --nodes 3000 --json").stdout)
    assert shown["members"] == list(range(3000))
    assert sorted(child for _, child in shown["edges"]) == [k for k in range(3000) if k != 77]
    assert shown["height"] <= shown["dimension"] == 12


def members_of(text: str) -> list[int]:
    result = CliRunner().invoke(app, ["--members", text, "--json"])
    members: list[int] = json.loads(result.stdout)["members"]
    return members


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("4", [4]),
        ("3-3", [3]),
        ("0-2,7", [0, 1, 2, 7]),
        ("7,0-2,1-3,7", [0, 1, 2, 3, 7]),
        (" 0 - 2 , 7 ", [0, 1, 2, 7]),
        ("007", [7]),
    ],
)
def test_member_lists(text: str, members: list[int]) -> None:
    assert members_of(text) == members


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--members: all of how many? Add --nodes N, or list the members"),
        (["--members", ""], "--members: the list is empty; name at least one id"),
        (["--members", " "], "--members: the list is empty; name at least one id"),
        (["--members", "1,,2"], "--members: a comma too many in '1,,2'"),
        (["--members", "1,"], "--members: a comma too many in '1,'"),
        (["--members", "x"], "--members: 'x' is neither an id nor a range such as 0-7"),
        (["--members", "1.5"], "--members: '1.5' is neither an id nor a range such as 0-7"),
        (["--members", "1-"], "--members: '1-' is neither an id nor a range such as 0-7"),
        (["--members", "-3"], "--members: '-3' is neither an id nor a range such as 0-7"),
        (["--members", "1-2-3"], "--members: '1-2-3' is neither an id nor a range such as 0-7"),
        (["--members", "²"], "--members: '²' is neither an id nor a range such as 0-7"),
        (["--members", "1\n2"], "--members: '1\\n2' is neither an id nor a range such as 0-7"),
        (["--members", "5-1"], "--members: the range 5-1 is reversed; write 1-5"),
        (
            ["--members", "0-8", "--nodes", "8"],
            "--members: there is no node 8 among the 8 nodes 0-7",
        ),
        (["--members", "1", "--nodes", "1"], "--members: there is no node 1 among the one node 0"),
        (["--members", "1048576"], "--members: ids go up to 1048575; '1048576' is too large"),
        (
            ["--members", "0-99999999999"],
            "--members: ids go up to 1048575; '99999999999' is too large",
        ),
        (
            ["--members", "9" * 5000],
            f"--members: ids go up to 1048575; '{'9' * 37}...' is too large",
        ),
        (["--root", "8", "--nodes", "8"], "--root: there is no node 8 among the 8 nodes 0-7"),
        (["--root", "-1", "--nodes", "8"], "--root: '-1' is not a whole number from 0 up"),
        (["--root", "one", "--nodes", "8"], "--root: 'one' is not a whole number from 0 up"),
        (
            ["--root", "99999999", "--members", "1"],
            "--root: ids go up to 1048575; '99999999' is too large",
        ),
        (["--nodes", "0"], "--nodes: a cube holds 1 to 1048576 nodes, not '0'"),
        (["--nodes", "-4"], "--nodes: '-4' is not a whole number from 0 up"),
        (["--nodes", "1e3"], "--nodes: '1e3' is not a whole number from 0 up"),
        (["--nodes", "1048577"], "--nodes: a cube holds 1 to 1048576 nodes, not '1048577'"),
        (["--nodes", "9" * 30], f"--nodes: a cube holds 1 to 1048576 nodes, not '{'9' * 30}'"),
        (
            ["--nodes", "13", "--forwarders"],
            "--forwarders: any id may forward, so --nodes must be a power of two: 16, not 13",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["drawing", "json"])
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, extra: list[str]
) -> None:
    result = CliRunner().invoke(app, arguments + extra)
    assert result.stderr == f"cubecast tree: {message}\n"
    assert result.stdout == ""
    assert result.exit_code == 2


# Help


def test_help_teaches() -> None:
    text = run("--help").stdout
    for option in ("--root", "--members", "--nodes", "--forwarders", "--json"):
        assert option in text
    assert "cubecast tree --root 2 --members 0,2,3,5,7" in text


def test_the_examples_of_the_help_run() -> None:
    lines = (tree.__doc__ or "").splitlines()
    # Those with a topic need a live cluster: test_cli_live.py has one.
    examples = [line.split("cubecast tree ")[1] for line in lines if "cubecast tree --" in line]
    assert len(examples) >= 5
    for example in examples:
        assert run(example).exit_code == 0
