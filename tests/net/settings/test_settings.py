"""Configuration: presets, files, environment, flags, which one wins, and what is refused how."""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cubecast
from cubecast.cli.app import app
from cubecast.cli.config import preset_written, shown
from cubecast.errors import ConfigError
from cubecast.net.node.node import Node
from cubecast.net.settings.config import PARTS, NodeConfig
from cubecast.net.settings.presets import BOUNDS, PRESETS, preset_values, table
from cubecast.net.settings.sources import KEYS, TLS_KEYS, load_config, load_settings
from cubecast.protocol.config import Config
from support.live import TOPIC, live
from support.paths import ROOT

PAGE = ROOT / "docs" / "configuration.md"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write cubecast.toml in an empty current directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("cubecast.toml").write_text(text, encoding="utf-8")
        return "cubecast.toml"

    return write


# -- presets --------------------------------------------------------------------------------------


def test_the_default_is_the_preset_local() -> None:
    assert NodeConfig() == NodeConfig.preset("local") == load_config(environ={})


def test_a_preset_takes_changes_of_the_node_and_of_the_core() -> None:
    config = NodeConfig.preset("wan", queue_bytes=5, ack_delay=7)
    assert (config.queue_bytes, config.protocol.ack_delay) == (5, 7)
    assert config.protocol.window == NodeConfig.preset("wan").protocol.window
    with pytest.raises(ValueError, match="one of local, lan, wan, not 'moon'"):
        NodeConfig.preset("moon")
    with pytest.raises(ValueError, match="exclude each other"):
        NodeConfig.preset("lan", protocol=Config(), ack_delay=7)


def test_a_preset_says_that_times_are_numbers() -> None:
    advice = "texts with units are for load_config"
    said = f"^suspect_min must be a number of microseconds, not '3s'; {advice}$"
    with pytest.raises(TypeError, match=said):
        NodeConfig.preset("local", suspect_min="3s")
    with pytest.raises(TypeError, match=f"^window must be a number, not '4MiB'; {advice}$"):
        NodeConfig.preset("local", window="4MiB")


OWNERS = (NodeConfig, *PARTS.values())


def test_names_of_the_node_and_of_the_core_do_not_collide() -> None:
    """They share one flat set of keys."""
    names = [one.name for owner in OWNERS for one in fields(owner)]
    assert len(names) == len(set(names))


def owner_of(config: NodeConfig, name: str) -> Any:
    """The configuration itself, or the part of it that has a field."""
    owners = (config, *(getattr(config, part) for part in PARTS))
    return next(owner for owner in owners if hasattr(owner, name))


def test_the_table_of_the_page_is_what_the_code_says() -> None:
    """The page has the table that `BOUNDS` makes, and a row for every other key."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == set(KEYS)
    made = ["| " + " | ".join((f"`{key}`", *rest)) + " |" for key, *rest in table(preset_written)]
    assert "\n".join(made) in page


def test_every_bound_and_delay_is_explained_and_formulas_come_before_their_use() -> None:
    files = {"permissions", "audit_log", *TLS_KEYS}
    no_bounds = {"secret", "client_secret", "listen", "advertise", "metrics", *files, *PARTS}
    names = {one.name for owner in OWNERS for one in fields(owner)}
    assert names - no_bounds == set(BOUNDS)
    seen: set[str] = set()
    for key, bound in BOUNDS.items():
        named = set(re.findall(r"`(\w+)`", bound.words.split(":")[0].split(";")[0]))
        assert named <= seen, f"{key} is explained by what comes after it"
        seen.add(key)


def test_a_fixed_bound_has_its_value_in_its_field_alone() -> None:
    fixed = {key for key, bound in BOUNDS.items() if bound.formula is None}
    assert all(BOUNDS[key].words.startswith("fixed") for key in fixed)
    for preset in PRESETS:
        assert not fixed & preset_values(preset).keys()


def test_the_command_explains_bounds_and_delays() -> None:
    shown = CliRunner().invoke(app, ["config", "--explain"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    (row,) = [line for line in shown.output.splitlines() if line.startswith("ack_delay ")]
    assert row.split()[:5] == ["ack_delay", "µs", "1ms", "1ms", "30ms"]
    assert "RTT / 10, at least 1 ms" in row


# -- which one wins -------------------------------------------------------------------------------


def test_flags_beat_environment_beats_file_beats_preset_beats_default(write: Any) -> None:
    path = write('preset = "lan"\nqueue_bytes = 1\nframe_bytes = 1\njoin_timeout_s = 1\n')
    environ = {"CUBECAST_FRAME_BYTES": "2", "CUBECAST_JOIN_TIMEOUT_S": "2"}
    settings = load_settings(path, environ, join_timeout_s=3)
    config, origins = settings.config, settings.origins
    assert (config.join_timeout_s, origins["join_timeout_s"]) == (3, "flag join_timeout_s")
    assert (config.frame_bytes, origins["frame_bytes"]) == (2, "environment CUBECAST_FRAME_BYTES")
    assert (config.queue_bytes, origins["queue_bytes"]) == (1, "cubecast.toml")
    assert config.protocol.window == NodeConfig.preset("lan").protocol.window
    assert origins["window"] == "preset lan"
    assert (config.frame_messages, origins["frame_messages"]) == (1024, "default")


def test_the_preset_has_a_precedence_like_any_key(write: Any) -> None:
    path = write('preset = "lan"')
    assert load_settings(path, {}).preset == "lan"
    assert load_settings(path, {"CUBECAST_PRESET": "wan"}).preset == "wan"
    assert load_settings(path, {"CUBECAST_PRESET": "wan"}, preset="local").preset == "local"


COUNT = itertools.count()


def another(value: object) -> object:
    """A value of the same type that is not the default."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"example{next(COUNT)}.org:1"


def test_every_key_may_come_from_the_environment() -> None:
    default = NodeConfig()
    wanted = {
        one.name: another(getattr(owner, one.name))
        for owner in (default, default.protocol, default.detector, default.epochs)
        for one in fields(owner)
        if one.name not in PARTS
    }
    extra = {"preset", "join", "secret_file", "client_secret_file", "log_format", "log_level"}
    extra |= {"client_name"}
    assert wanted.keys() | extra == KEYS.keys()
    for key in TLS_KEYS:  # instead of a secret; they have a test of their own
        del wanted[key]
    environ = {f"CUBECAST_{key.upper()}": str(value) for key, value in wanted.items()}
    settings = load_settings(environ={**environ, "CUBECAST_JOIN": "c:3"})
    assert settings.join == "c:3"
    for key, value in wanted.items():
        assert getattr(owner_of(settings.config, key), key) == value
        assert settings.origins[key] == f"environment CUBECAST_{key.upper()}"


def test_the_log_is_set_up_by_flag_environment_or_file(write: Any) -> None:
    path = write('log_format = "json"\nlog_level = "info"\n')
    settings = load_settings(path, {"CUBECAST_LOG_LEVEL": "Error"})
    assert (settings.log_format, settings.log_level) == ("json", "ERROR")
    assert settings.origins["log_level"] == "environment CUBECAST_LOG_LEVEL"
    assert load_settings(path, {}, log_format="text").log_format == "text"
    assert load_settings(environ={}).log_level == "WARNING"


def test_a_file_is_read_if_it_is_named_and_only_then(write: Any) -> None:
    write("queue_bytes = 7")
    assert load_config(environ={}).queue_bytes != 7
    assert load_config(environ={"CUBECAST_CONFIG": "cubecast.toml"}).queue_bytes == 7


def test_variables_of_others_and_empty_ones_do_not_matter() -> None:
    environ = {"CUBECAST_PORT": "tcp://10.0.0.1:7400", "CUBECAST_SECRET": ""}
    assert load_config(environ=environ) == NodeConfig()


def test_units() -> None:
    config = load_config(
        environ={"CUBECAST_ACK_DELAY": "2.5ms", "CUBECAST_STABLE_DELAY": "70"},
        publish_timeout_s="2min",
        leave_timeout_s="20ms",
        join_timeout_s=1.5,
        window="4MiB",
        queue_bytes="1.5kB",
        frame_bytes=100,
    )
    assert (config.protocol.ack_delay, config.protocol.stable_delay) == (2_500, 70)
    assert (config.publish_timeout_s, config.leave_timeout_s) == (120.0, 0.02)
    assert (config.join_timeout_s, config.protocol.window) == (1.5, 4 * 2**20)
    assert (config.queue_bytes, config.frame_bytes) == (1500, 100)


def test_a_secret_may_be_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "hidden").write_text("s3cret s3cret\n", encoding="utf-8")
    path = tmp_path / "cubecast.toml"
    path.write_text('secret_file = "hidden"', encoding="utf-8")
    assert load_config(path, {}).secret == "s3cret s3cret"
    assert load_config(path, {"CUBECAST_SECRET": "another secret"}).secret == "another secret"
    assert "s3cret s3cret" not in repr(load_config(path, {}))


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As editors of other systems write it: it is no part of the text."""
    (tmp_path / "hidden").write_text("s3cret s3cret\n", encoding="utf-8-sig")
    path = tmp_path / "cubecast.toml"
    path.write_text('secret_file = "hidden"', encoding="utf-8-sig")
    assert load_config(path, {}).secret == "s3cret s3cret"


def test_a_file_with_the_secret_that_others_can_read_is_known(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.write_text("s3cret s3cret", encoding="utf-8")
    path = tmp_path / "cubecast.toml"
    path.write_text('secret_file = "hidden"', encoding="utf-8")
    for mode, exposed in ((0o600, ()), (0o640, (hidden,)), (0o604, (hidden,))):
        hidden.chmod(mode)
        assert load_settings(path, {}).exposed == exposed
    assert load_settings(path, {"CUBECAST_SECRET": "another secret"}).exposed == ()


# -- what is refused ------------------------------------------------------------------------------

SECONDS = "a number of seconds or a text such as '20ms'"
BYTES = "a whole number of bytes or a text such as '4MiB'"

WRONG_FILES = {
    "publish_timeout_s = 'soon'": f"cubecast.toml: publish_timeout_s must be {SECONDS}, not 'soon'",
    "publish_timeout_s = true": f"cubecast.toml: publish_timeout_s must be {SECONDS}, not True",
    "publish_timeout_s = nan": f"cubecast.toml: publish_timeout_s must be {SECONDS}, not nan",
    "publish_timeout_s = -1": "cubecast.toml: publish_timeout_s must be above 0, not -1.0",
    "window = 1.5": f"cubecast.toml: window must be {BYTES}, not 1.5",
    "window = '3 apples'": f"cubecast.toml: window must be {BYTES}, not '3 apples'",
    "window = 0": "cubecast.toml: window must be at least 1, not 0",
    "listen = 7400": "cubecast.toml: listen must be a text, not 7400",
    "listen = 'host:port'": "cubecast.toml: listen must be an address, host:port: "
    "not a port: 'port' in 'host:port'; a port is 0 to 65535",
    "listen = '0.0.0.0:7400'": "cubecast.toml: listen is '0.0.0.0:7400', which others cannot "
    "dial: set advertise as well",
    "advertise = '[::]:1'": "cubecast.toml: advertise must be dialled by others; '[::]:1' cannot "
    "be",
    "preset = 'moon'": "cubecast.toml: preset must be one of local, lan, wan, not 'moon'",
    "publish_timeout = 1": "cubecast.toml: publish_timeout is no key of the configuration; "
    "did you mean 'publish_timeout_s'?",
    "[protocol]\nwindow = 1": "cubecast.toml: protocol is no key of the configuration",
    "resend_max = '1ms'": "cubecast.toml: resend_max (1000) must not be below "
    "resend_after (100000)",
    "frame_bytes = '5MiB'": "cubecast.toml: frame_bytes must be at most 4194304, not 5242880",
    "secret = 'a'\nsecret_file = 'b'": "cubecast.toml: secret_file and secret exclude each other",
    "advertise = ':::'": "cubecast.toml: advertise must be an address, host:port: "
    "not a host: ':::'",
    "join = '[node1]:7400:1'": "cubecast.toml: join must be an address, host:port: "
    "not a port: '7400:1' in '[node1]:7400:1'; a port is 0 to 65535",
    "push = 'perhaps'": "cubecast.toml: push must be true or false, not 'perhaps'",
    "client_name = 'a b'": "cubecast.toml: client_name cannot be this: a name has 1 to 64 letters, "
    "digits, dots, '@', '-' or '_' and begins with a letter or a digit, not 'a b'",
    "client_name = 'alice'\nsecret = 'short'": "cubecast.toml: secret has 5 characters; the token "
    "of 'alice' has at least 32: `cubecast token alice` makes one",
    "log_format = 'xml'": "cubecast.toml: log_format must be one of text, json, not 'xml'",
    "log_level = 3": "cubecast.toml: log_level must be one of debug, info, warning, error, not 3",
    "secret_file = 'b'": "cubecast.toml: secret_file cannot be read: b: No such file or directory",
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_line_with_its_key(text: str, write: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(write(text), {})
    assert str(refused.value) == WRONG_FILES[text]


def test_a_wrong_variable_and_a_wrong_flag_are_named_too(write: Any) -> None:
    with pytest.raises(ConfigError, match=r"^environment: CUBECAST_WINDOW must be a whole number"):
        load_config(environ={"CUBECAST_WINDOW": "big"})
    with pytest.raises(ConfigError, match=r"^window must be a whole number of bytes"):
        load_config(environ={}, window="big")
    with pytest.raises(ConfigError, match=r"^cubecast.toml: not TOML: .* line 1"):
        load_config(write("listen 7400"), {})
    with pytest.raises(ConfigError, match=r"^nowhere.toml: cannot be read: No such file"):
        load_config("nowhere.toml", {})


def test_an_error_names_the_setting_that_conflicts_and_not_the_preset(write: Any) -> None:
    with pytest.raises(ConfigError, match=r"^cubecast.toml: resend_max .* below resend_after"):
        load_config(write('preset = "lan"\nresend_after = "1h"'), {})


# -- the command ----------------------------------------------------------------------------------


def test_shown_settings_are_a_file_that_means_the_same(write: Any) -> None:
    secret = "s3cret s3cret"
    settings = load_settings(environ={}, preset="wan", ack_delay=1, secret=secret, join="a:1")
    lines = shown(settings)
    assert not any("s3cret s3cret" in line for line in lines)
    again = load_settings(write("\n".join(lines)), {}, secret="s3cret s3cret")
    assert (again.config, again.join, again.preset) == (settings.config, "a:1", "wan")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cubecast.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_prints_values_and_where_they_come_from(write: Any) -> None:
    path = write('publish_timeout_s = "2min"')
    said = command("config", "--config", path, "--preset", "lan").stdout
    assert re.search(r'^preset = "lan" +# flag preset$', said, re.MULTILINE)
    assert re.search(r"^publish_timeout_s = 120.0 +# cubecast.toml$", said, re.MULTILINE)
    assert re.search(r'^window = "4MiB" +# preset lan$', said, re.MULTILINE)
    assert re.search(r'^listen = "127.0.0.1:7400" +# default$', said, re.MULTILINE)


@pytest.mark.parametrize("name", ["config", "node", "up"])
def test_commands_refuse_a_wrong_file_in_one_line(name: str, write: Any) -> None:
    refused = command(name, "--config", write("publish_timeout_s = 'soon'"))
    assert (refused.returncode, refused.stdout) == (2, "")
    wrong = WRONG_FILES["publish_timeout_s = 'soon'"]
    assert refused.stderr == f"cubecast {name}: {wrong}\n"


# -- names and addresses --------------------------------------------------------------------------


async def talk(first: Node, second: Node) -> None:
    """Each reaches the other by the address it is told."""
    assert first.members == second.members == {0: first.address, 1: second.address}
    async with first.subscribe(TOPIC) as at_first, second.subscribe(TOPIC) as at_second:
        await first.publish(TOPIC, b"one")
        assert (await anext(at_second)).payload == b"one"
        await second.publish(TOPIC, b"two")
        assert (await anext(at_first)).payload == b"one"
        assert (await anext(at_first)).payload == b"two"


@live
async def test_a_cluster_may_be_joined_by_host_name() -> None:
    async with cubecast.start("127.0.0.1:0") as first:
        port = first.address.rsplit(":", 1)[1]
        async with cubecast.join(f"localhost:{port}") as second:
            await talk(first, second)


def ipv6_works() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not ipv6_works(), reason="there is no IPv6 here")
@live
async def test_a_cluster_may_speak_ipv6() -> None:
    async with cubecast.start("[::1]:0") as first:
        assert re.fullmatch(r"\[::1\]:[1-9]\d*", first.address)
        async with cubecast.join(first.address, listen="[::1]:0") as second:
            await talk(first, second)


@live
async def test_an_advertised_host_takes_the_bound_port() -> None:
    everywhere = NodeConfig(listen="0.0.0.0:0", advertise="127.0.0.1")
    by_name = NodeConfig(listen="0.0.0.0:0", advertise="localhost:0")
    async with cubecast.start(config=everywhere) as first:
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", first.address)
        async with cubecast.join(first.address, config=by_name) as second:
            assert re.fullmatch(r"localhost:[1-9]\d*", second.address)
            await talk(first, second)
            async with cubecast.join(second.address) as third:  # redirected, by what was advertised
                assert third.members[0] == first.address


@live
async def test_an_advertised_port_is_kept() -> None:
    """As behind a translator of addresses, where it is another one than the bound."""
    async with cubecast.start(config=NodeConfig(advertise="example.org:7")) as node:
        assert node.address == "example.org:7"
