"""The commands of a live cluster, as a newcomer types them in two terminals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.commands import (
    COMMAND,
    addresses,
    answer,
    at,
    background,
    cubecast,
    one_line,
    read_line,
    seed,
    wait_for_subscriber,
)

__all__ = ["seed"]  # the fixture


def test_two_terminals_talk(seed: str) -> None:
    other = addresses(seed)[2]
    with background("sub", "chat/room1", "--json", "--count", "3", *at(other)) as sub:
        assert wait_for_subscriber("chat/room1", seed) == [2]
        done = cubecast("pub", "chat/room1", *at(seed), stdin="one\ntwo\nthree")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert sub.stdout is not None
        messages = [json.loads(line) for line in sub.stdout]
    assert sub.returncode == 0
    assert [message["payload"] for message in messages] == ["one", "two", "three"]
    assert [message["seq"] for message in messages] == [0, 1, 2]
    assert {(message["topic"], message["source"]) for message in messages} == {("chat/room1", 0)}


def test_a_file_is_published_line_by_line(seed: str, tmp_path: Path) -> None:
    lines = [str(number) for number in range(5000)]
    file = tmp_path / "numbers.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with background("sub", "file", "--count", "5000", *at(seed)) as sub:
        wait_for_subscriber("file", seed)
        assert cubecast("pub", "file", "--file", str(file), *at(seed)).returncode == 0
        assert sub.stdout is not None
        assert sub.stdout.read().splitlines() == lines


def test_ctrl_c_ends_sub_cleanly(seed: str) -> None:
    with background("sub", "endless", *at(seed)) as sub:
        wait_for_subscriber("endless", seed)
        assert cubecast("pub", "endless", "hello", *at(seed)).returncode == 0
        assert read_line(sub) == "hello"
        sub.send_signal(signal.SIGINT)
        assert sub.wait(timeout=30) == 0


def test_pub_says_that_a_subscriber_has_not_taken_it_in(seed: str) -> None:
    with background("sub", "stopped", "--policy", "block", *at(seed)) as sub:
        wait_for_subscriber("stopped", seed)
        sub.send_signal(signal.SIGSTOP)
        try:
            lines = ("x" * 1000 + "\n") * 6000
            done = cubecast("pub", "stopped", *at(seed), "--timeout", "1", stdin=lines)
        finally:
            sub.send_signal(signal.SIGCONT)
            sub.send_signal(signal.SIGINT)
        reason = one_line(done)
        assert "in 1 s" in reason
        assert "not known to be taken in" in reason or "unknown whether" in reason
        assert sub.stdout is not None
        sub.stdout.read()


def test_the_live_tree_of_a_topic(seed: str) -> None:
    nodes = addresses(seed)
    with background("sub", "tree", *at(nodes[1])), background("sub", "tree", *at(nodes[2])):
        while wait_for_subscriber("tree", seed) != [1, 2]:
            pass
        drawn = json.loads(answer("tree", "tree", "--json", *at(seed)))
        assert (drawn["root"], drawn["members"]) == (0, [1, 2])
        drawn = answer("tree", "tree", "--root", "2", *at(seed))
        assert drawn.splitlines()[0] == "2  root"
        assert drawn.splitlines()[-1].startswith("2 members")
        assert "no node 9" in one_line(cubecast("tree", "tree", "--root", "9", *at(seed)))
    assert "no node is subscribed" in one_line(cubecast("tree", "nothing", *at(seed)))
    assert "leave out" in one_line(cubecast("tree", "tree", "--nodes", "4", *at(seed)))


def test_why_says_what_a_node_knows(seed: str) -> None:
    with background("sub", "why", *at(addresses(seed)[1])):
        wait_for_subscriber("why", seed)
        assert cubecast("pub", "why", "hello", *at(seed)).returncode == 0
        here = answer("why", "why", *at(seed)).splitlines()
        assert here[0] == "why at node 0: not subscribed; others subscribed: 1"
        assert here[-1] == "nothing waits"
        there = answer("why", "why", "--node", "1", *at(seed)).splitlines()
        assert there[0].startswith("why at node 1: subscribed")
        facts = json.loads(answer("why", "why", "--node", "1", "--json", *at(seed)))
        assert (facts["topic"], facts["node"], facts["standing"]) == ("why", 1, "in")
        assert "no node 9" in one_line(cubecast("why", "why", "--node", "9", *at(seed)))


def test_topics_are_listed_for_people(seed: str) -> None:
    with background("sub", "listed", *at(addresses(seed)[1])):
        wait_for_subscriber("listed", seed)
        head, *rows = answer("topics", *at(seed)).splitlines()
        assert head.split() == ["TOPIC", "SUBSCRIBED", "NODES"]
        assert ["listed", "1"] in [row.split() for row in rows]


def test_topics_for_replies_are_listed_on_request_only(seed: str) -> None:
    reply = "$replies/~/" + "0" * 32
    with background("sub", reply, *at(seed)):
        wait_for_subscriber(reply, seed)
        told = cubecast("topics", *at(seed))
        assert reply not in told.stdout
        assert "1 topics for replies are left out; --all lists them" in told.stderr
        assert reply in answer("topics", "--all", *at(seed))


def test_nodes_are_listed_and_clients_are_none(seed: str) -> None:
    assert sorted(addresses(seed)) == [0, 1, 2]
    assert addresses(seed)[0] == seed
    listed = answer("nodes", "--join", seed, "--secret", "s3cret of twelve")  # the older name
    assert listed.splitlines()[0] == f"node 0  {seed}"
    name = json.loads(answer("nodes", "--json", *at(seed)))["cluster"]
    assert re.fullmatch("[0-9a-f]{32}", name)
    assert listed.splitlines()[-1].endswith(f"  cluster {name}")


def test_a_wrong_secret_is_refused_in_one_line(seed: str) -> None:
    refused = cubecast("pub", "chat", "hello", "--at", seed, "--secret", "not the right one")
    assert "the cluster secret is not the same" in one_line(refused)


def test_sub_says_in_one_line_that_no_node_listens() -> None:
    refused = cubecast("sub", "chat", "--at", "127.0.0.1:1,127.0.0.1:2")
    said = one_line(refused)
    assert said.startswith("cubecast sub: cannot attach to a node at 127.0.0.1:1 (")
    assert said.endswith("; start one with: cubecast up\n")


def test_a_node_that_stops_ends_its_clients_with_a_reason() -> None:
    with background("node", "--listen", "127.0.0.1:0") as node:
        address = read_line(node).rsplit(" ", 1)[1]
        sub = subprocess.Popen(
            [*COMMAND, "sub", "chat", "--at", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while "chat" not in answer("topics", "--at", address):
            assert sub.poll() is None
        node.send_signal(signal.SIGTERM)
        _, said = sub.communicate(timeout=30)
        assert sub.returncode == 2
        assert said.splitlines() == [
            "subscribed to chat through node 0",
            "cubecast sub: the node leaves the cluster",
        ]


def test_a_cluster_may_be_set_up_by_a_file(tmp_path: Path) -> None:
    """Its secret is read by every process; `join` is for `node`, while `up` begins a cluster."""
    (tmp_path / "hidden").write_text("from a file, surely", encoding="utf-8")
    path = tmp_path / "cubecast.toml"
    path.write_text(
        'preset = "lan"\nlisten = "0.0.0.0:0"\nadvertise = "127.0.0.1"\n'
        'secret_file = "hidden"\njoin = "127.0.0.1:1"\n',
        encoding="utf-8",
    )
    with background("up", "-n", "2", "--config", str(path)) as up:
        addresses = [read_line(up).rsplit(" ", 1)[1] for _ in range(2)]
        assert read_line(up).startswith("2 nodes up")
        joined = ("--join", addresses[1], "--secret", "from a file, surely")
        listed = json.loads(answer("nodes", "--json", *joined))
        assert [listed["nodes"][slot] for slot in "01"] == addresses
        with background("node", "--config", str(path), "--join", addresses[0]) as node:
            assert read_line(node).startswith("node 2 on 127.0.0.1:")


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "t", "m", "--rate", "-1"),
        ("pub", "t", "m", "--timeout", "0"),
        ("pub", "t", "m", "--file", "nowhere"),
        ("sub", "t", "--at", "host:port"),
        ("sub", "t", "--at", ","),
        ("sub", "t", "--count", "-1"),
        ("up", "--listen", "127.0.0.1:port"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: tuple[str, ...]) -> None:
    one_line(cubecast(*arguments))
