"""Every bound of every configuration, on both sides."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.net.links.faults import CLEAR, LinkFaults, Rule, parse_rules
from cubecast.net.settings.config import LARGEST_FRAME_BYTES, NodeConfig
from cubecast.net.wire.packets import MAX_MESSAGES, MAX_PACKET
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.config import Config

LEAST: list[tuple[type, str, float, dict[str, Any]]] = [
    (NodeConfig, "max_strangers", 1, {}),
    (NodeConfig, "unread_bytes", 2 * MAX_PACKET, {}),
    (Config, "window", 1, {}),
    (Config, "slack", 1, {}),
    (Config, "resend_after", 1, {}),
    (Config, "resend_burst", 1, {}),
    (Config, "ack_delay", 0, {}),
    (Config, "ack_pause", 0, {}),
    (Config, "stable_delay", 0, {}),
    (Config, "patience", 0, {}),
    (Config, "leaf_for", 0, {}),
    (Config, "resend_max", 70, {"resend_after": 70}),
    (DetectorConfig, "test_every", 1, {}),
    (DetectorConfig, "suspect_min", 1, {}),
    (DetectorConfig, "retries", 0, {}),
    (DetectorConfig, "indirect", 0, {}),
    (DetectorConfig, "suspect_max", 70, {"suspect_min": 70}),
    (DetectorConfig, "deaf_after", 70, {"suspect_min": 70, "suspect_max": 70}),
    (AgreementConfig, "repeat_after", 1, {}),
    (AgreementConfig, "beacon_every", 1, {}),
    (AgreementConfig, "enter_every", 1, {}),
    (AgreementConfig, "answer_after", 30, {"repeat_after": 10}),
]


@pytest.mark.parametrize(("kind", "name", "least", "others"), LEAST)
def test_the_least_value_is_taken_and_one_less_is_not(
    kind: type, name: str, least: float, others: dict[str, Any]
) -> None:
    assert getattr(kind(**others, **{name: least}), name) == least
    with pytest.raises(ValueError, match=name):
        kind(**others, **{name: least - 1})


@pytest.mark.parametrize(
    ("name", "most"), [("frame_bytes", LARGEST_FRAME_BYTES), ("frame_messages", MAX_MESSAGES)]
)
def test_the_most_is_taken_and_one_more_is_not(name: str, most: int) -> None:
    changes: dict[str, Any] = {name: most}
    assert getattr(NodeConfig(**changes), name) == most
    with pytest.raises(ValueError, match=name):
        NodeConfig(**{name: most + 1})


@pytest.mark.parametrize(
    "name", ["queue_bytes", "join_timeout_s", "leave_timeout_s", "publish_timeout_s",
             "client_silence_s", "frame_bytes", "frame_messages"],
)  # fmt: skip
def test_times_and_sizes_are_above_nothing(name: str) -> None:
    assert getattr(NodeConfig(**{name: 1}), name) == 1
    with pytest.raises(ValueError, match=name):
        NodeConfig(**{name: 0})


# -- rules of faults -------------------------------------------------------------------------------


def test_a_rule_says_what_it_does() -> None:
    assert str(CLEAR) == "none"
    rule = Rule(delay_s=0.02, jitter_s=0.001, loss=0.5, cut_outgoing=True)
    assert str(rule) == "delay=20ms jitter=1ms loss=50% cut-outgoing"


@pytest.mark.parametrize(
    ("rule", "silent"),
    [
        (CLEAR, False),
        (Rule(cut=True), True),
        (Rule(cut_outgoing=True), True),
        (Rule(loss=1), False),
    ],
)
def test_a_link_is_silent_if_it_is_cut_either_way(rule: Rule, silent: bool) -> None:
    assert rule.silent is silent
    faults = LinkFaults(default=rule)
    assert faults.cuts is silent
    assert faults.active is (rule != CLEAR)


def test_rules_are_read_for_each_peer_and_for_all_others() -> None:
    rules, default = parse_rules("1,2: loss=0; 3: loss=100%; *: delay=1.5s")
    assert rules == {1: CLEAR, 2: CLEAR, 3: Rule(loss=1)}
    assert default == Rule(delay_s=1.5)
    assert parse_rules("1: cut") == ({1: Rule(cut=True)}, CLEAR)


@pytest.mark.parametrize(
    "text", ["1: loss=101%", "1: loss=1.01", "1: loss=", "1: loss=x", "1: loss=1 loss=1",
             "1: delay=1", "1:", "cut", "1: cut; 1: cut", "1: none cut", "x: cut", "1: cut=1"],
)  # fmt: skip
def test_an_invalid_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_rules(text)
