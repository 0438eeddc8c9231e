"""What the live commands say: when they are ready, when they cannot, when they are stopped."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cubecast.cli.app import app
from cubecast.cli.output import refuse
from cubecast.cli.why import explained
from cubecast.logs import install
from cubecast.logs.sink import Sink
from cubecast.net.links.address import parse_address
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


def lines(text: str) -> str:
    """A help text, however it was broken into lines."""
    return " ".join(text.split())


# -- subscribing and publishing -------------------------------------------------------------------


def test_sub_says_when_it_is_subscribed_unless_quiet(seed: str) -> None:
    for options, said in (((), "subscribed to chat/# through node 0\n"), (("--quiet",), "")):
        sub = subprocess.Popen(
            [*COMMAND, "sub", "chat/#", "--count", "1", *options, *at(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert sub.stderr is not None
        if said:
            assert sub.stderr.readline() == said
            assert cubecast("pub", "chat/ready", "hello", *at(seed)).returncode == 0
        for _ in range(100):  # the quiet one: until it has got one
            if sub.poll() is not None:
                break
            assert cubecast("pub", "chat/ready", "hello", *at(seed)).returncode == 0
        out, rest = sub.communicate(timeout=30)
        assert (sub.returncode, out, rest) == (0, "chat/ready: hello\n", "")


def test_sub_is_silent_when_its_reader_goes_away(seed: str) -> None:
    sub = subprocess.Popen(
        [*COMMAND, "sub", "piped", *at(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert sub.stdout is not None
    assert sub.stderr is not None
    assert sub.stderr.readline().startswith("subscribed")
    sub.stdout.close()
    assert cubecast("pub", "piped", *at(seed), stdin="one\ntwo").returncode == 0
    assert sub.stderr.read() == ""
    assert sub.wait(timeout=30) == 1
    sub.stderr.close()


def test_help_says_what_patterns_are_and_what_pub_waits_for() -> None:
    sub = lines(cubecast("sub", "--help").stdout)
    assert "cubecast sub 'chat/#'" in sub
    assert "Quote it" in sub
    assert "has read it, or holds it in its bounded queue" in lines(
        cubecast("pub", "--help").stdout
    )


def test_pub_says_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    said = one_line(cubecast("pub", "t", "--file", str(tmp_path)))
    assert said == f"cubecast pub: cannot read {tmp_path}: Is a directory\n"
    said = one_line(cubecast("pub", "t", "--file", str(tmp_path / "none")))
    assert said.endswith("none: No such file or directory\n")
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "pub", "t"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert one_line(closed) == "cubecast pub: cannot read stdin: Bad file descriptor\n"


def test_clients_have_the_secret_from_where_nodes_have_it(seed: str, tmp_path: Path) -> None:
    (tmp_path / "hidden").write_text("s3cret of twelve\n", encoding="utf-8")
    path = tmp_path / "cubecast.toml"
    path.write_text('secret_file = "hidden"\n', encoding="utf-8")
    from_file = ("--at", seed, "--config", str(path))
    with background("sub", "secretly", "--count", "1", *from_file) as sub:
        wait_for_subscriber("secretly", seed)
        assert "secretly" in answer("topics", *from_file)
        assert cubecast("why", "secretly", *from_file).returncode == 0
        assert cubecast("tree", "secretly", *from_file).returncode == 0
        assert cubecast("pub", "secretly", "hello", *from_file).returncode == 0
        assert read_line(sub) == "hello"
    environment = {**os.environ, "CUBECAST_SECRET_FILE": str(tmp_path / "hidden")}
    listed = subprocess.run(
        [*COMMAND, "nodes", "--at", seed],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert listed.stdout.startswith("node 0 ")
    wrong = one_line(cubecast("nodes", *from_file, "--secret", "not the right one"))
    assert "the cluster secret is not the same" in wrong


# -- why ------------------------------------------------------------------------------------------


def test_why_of_an_unknown_topic_says_so(seed: str) -> None:
    said = answer("why", "nowhere", *at(seed))
    assert said == "nowhere: no node has published to it or subscribed to it\n"
    assert "nowhere" not in answer("topics", *at(seed))


def test_why_asks_for_subscribers_where_a_node_knows_none(seed: str) -> None:
    with background("sub", "elsewhere", *at(addresses(seed)[1])):
        wait_for_subscriber("elsewhere", seed)
        said = answer("why", "elsewhere", *at(seed)).splitlines()
    assert said[0] == "elsewhere at node 0: not subscribed; others subscribed: 1"


def test_why_says_that_a_publisher_waits(seed: str, tmp_path: Path) -> None:
    file = tmp_path / "much.txt"
    file.write_bytes((b"x" * 1000 + b"\n") * 10_000)
    with background("sub", "full", "--policy", "block", *at(addresses(seed)[1])) as sub:
        wait_for_subscriber("full", seed)
        sub.send_signal(signal.SIGSTOP)
        with background("pub", "full", "--file", str(file), *at(seed)) as pub:
            said = ""
            while "publishers here wait" not in said:
                assert pub.poll() is None  # it gives up after 30 s
                said = answer("why", "full", *at(seed))
            pub.kill()
        sub.kill()
    assert "accepted here and not sent yet: " in said
    assert "publishers wait for credit" in said.splitlines()[-1]


def test_why_counts_in_english_and_names_who_is_treated_apart() -> None:
    facts = {"standing": "out", "informed": True, "members": [1, 2], "next": 1, "behind": {1: 1}}
    said = list(explained("t", 0, {**facts, "leaves": [1, 2], "suspended": [2]}))
    assert "published here: 1 message, 0 bytes not taken in by all" in said
    assert "  node 1 or those below it are 1 message behind" in said
    assert any(line.startswith("  node 2 is left out") for line in said)
    assert said[-1] == "subscribers are behind; node 2 is left out; node 1 is slow"
    accepted = {"standing": "in", "informed": True, "accepted": 2}
    assert list(explained("t", 0, accepted))[1:] == [
        "accepted here and not sent yet: 2 messages",
        "messages wait to be sent",
    ]


# -- nodes ----------------------------------------------------------------------------------------


def test_the_error_that_ends_a_command_is_json_if_the_log_is(seed: str) -> None:
    in_use = f"cannot listen on {seed}: the address is in use; choose another with --listen"
    for command, said in (("node", in_use), ("up", f"node 0 did not start: {in_use}")):
        line = json.loads(one_line(cubecast(command, "--listen", seed, "--log-format", "json")))
        assert line["message"] == f"cubecast {command}: {said}"
        assert (line["level"], line["logger"]) == ("ERROR", "cubecast")
    wrong = cubecast("node", "--config", "/nowhere.toml", "--log-format", "json")
    assert "nowhere.toml" in json.loads(one_line(wrong))["message"]


def test_an_address_one_cannot_listen_on_is_named(seed: str) -> None:
    in_use = f"cannot listen on {seed}: the address is in use; choose another with --listen\n"
    assert one_line(cubecast("node", "--listen", seed)) == f"cubecast node: {in_use}"
    said = one_line(cubecast("up", "--listen", seed))
    assert said == f"cubecast up: node 0 did not start: {in_use}"
    said = one_line(cubecast("node", "--listen", "nowhere.invalid"))
    assert said.startswith("cubecast node: cannot listen on nowhere.invalid: ")
    elsewhere = "192.0.2.1:7400"  # of no machine
    said = one_line(cubecast("node", "--listen", elsewhere))
    assert said.count("cannot listen on") == 1
    assert said.startswith(f"cubecast node: cannot listen on {elsewhere}: ")


@pytest.mark.parametrize("flag", ["--secret", "--join", "--listen", "--advertise", "--tls-cert"])
def test_an_empty_flag_is_refused(flag: str) -> None:
    """As a shell gives it that knows no such variable: it would open the cluster, or part it."""
    for value in ("", " "):
        done = CliRunner().invoke(app, ["config", flag, value])
        assert done.exit_code == 2
        assert f"Invalid value for '{flag}': it is empty; leave the flag out" in done.output
        assert done.output.count("\n") == 1


def test_a_secret_that_others_can_read_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret of twelve", encoding="utf-8")
    secret.chmod(0o644)
    path = tmp_path / "cubecast.toml"
    path.write_text('secret_file = "secret"', encoding="utf-8")
    options = ("--config", str(path), "--listen", "192.0.2.1:7400")
    for command in (("node",), ("up", "-n", "1")):
        told = cubecast(*command, *options).stderr
        assert f"{secret}: others on this machine can read the secret: chmod 600 {secret}" in told


def test_up_begins_a_cluster_whatever_the_configuration_says_to_join(tmp_path: Path) -> None:
    path = tmp_path / "cubecast.toml"
    path.write_text('join = "192.0.2.1:7400"\nlisten = "127.0.0.1:0"', encoding="utf-8")
    with background("up", "-n", "1", "--config", str(path)) as up:
        assert read_line(up).startswith("node 0 on 127.0.0.1:")


def test_a_join_that_is_refused_names_the_address(
    seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBECAST_JOIN_TIMEOUT_S", "100")  # on a busy machine, too, it is answered
    flags = ("--listen", "127.0.0.1:0", "--join", seed, "--secret", "not the right one")
    done = cubecast("node", *flags)
    assert done.returncode == 2
    *logged, said = done.stderr.splitlines()
    reason = "the cluster secret is not the same"
    assert said == f"cubecast node: cannot join the cluster at {seed}: {reason}"
    assert [line.endswith(f"{seed} refused us: {reason}") for line in logged] == [True]


def test_a_refusal_comes_after_what_the_log_has(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the thread that writes the log takes for its lines."""
    write = Sink._write_or_drop

    def write_slowly(self: Sink, line: bytes) -> None:
        time.sleep(0.05)
        write(self, line)

    monkeypatch.setattr(Sink, "_write_or_drop", write_slowly)
    install(2, logger="")
    for number in range(3):
        logging.getLogger("cubecast.test").warning("warning %d", number)
    with pytest.raises(typer.Exit):
        refuse("node", "the reason")
    *logged, said = capfd.readouterr().err.splitlines()
    assert [line[-9:] for line in logged] == ["warning 0", "warning 1", "warning 2"]
    assert said == "cubecast node: the reason"


def test_an_address_is_a_text() -> None:
    with pytest.raises(TypeError, match=r"a text such as '127\.0\.0\.1:7400', not 7400"):
        parse_address(7400)  # type: ignore[arg-type]


# -- before anything has begun --------------------------------------------------------------------

INTERRUPTED_WHILE_READING = """
import signal, sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
from cubecast.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["cubecast.cli.app", "typer", "cubecast.cli.nodes"])
def test_an_interrupt_while_modules_are_read_takes_one_line(module: str) -> None:
    program = INTERRUPTED_WHILE_READING.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program, "nodes"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "cubecast: interrupted\n"


def test_a_command_reads_only_what_it_needs() -> None:
    program = (
        "import sys\n"
        "from cubecast.cli.main import main\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name.startswith('cubecast.')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True, timeout=60
    )
    assert "'cubecast.cli.app'" in done.stdout
    for other in ("cubecast.sim", "cubecast.bench", "cubecast.cli.nodes"):
        assert f"'{other}" not in done.stdout
