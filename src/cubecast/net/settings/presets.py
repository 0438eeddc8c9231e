"""Bounds and delays of a live node that follow by formula, each once, with reasons.

A preset is a round trip and a bandwidth; everything else follows by formula or is fixed.  `BOUNDS`
has every bound and delay once, in the order of evaluation: its unit, its formula as code, and the
same formula in words.  `cubecast config --explain` and the table of docs/configuration.md are made
from it, and `NodeConfig` takes its defaults from it.

A fixed value has no formula here: it is the default of the field that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from cubecast.protocol.cluster.detector import DetectorConfig

MS = 1_000
"""Microseconds."""
MIB = 1024 * 1024
LARGE_TREE_LEVELS = 10
TYPICAL_TREE_LEVELS = 4


class Surroundings(NamedTuple):
    """What a preset assumes: the round trip in microseconds, and bytes per second."""

    round_trip: int
    bandwidth: int


PRESETS = {
    "local": Surroundings(1 * MS, 500_000_000),
    "lan": Surroundings(5 * MS, 125_000_000),
    "wan": Surroundings(300 * MS, 12_500_000),
}

Formula = Callable[[Surroundings, Mapping[str, Any]], Any]


class Bound(NamedTuple):
    """A bound or delay: its unit, why it is what it is, and its value by what came before it."""

    unit: str
    words: str
    formula: Formula | None = None
    """None: fixed."""


def _at_least(factor: int, least: float) -> Formula:
    """So many round trips, in seconds."""
    return lambda around, _: max(factor * around.round_trip / 1_000_000, least)


def _window(around: Surroundings, known: Mapping[str, Any]) -> int:
    size = around.bandwidth * TYPICAL_TREE_LEVELS * _hop(around, known) // 1_000_000
    return 1 << (size - 1).bit_length()


def _hop(around: Surroundings, known: Mapping[str, Any]) -> int:
    ack_delay: int = known["ack_delay"]
    return around.round_trip + ack_delay


BOUNDS: dict[str, Bound] = {
    "ack_delay": Bound(
        "µs",
        "RTT / 10, at least 1 ms: gathering must not add much to a hop",
        lambda around, _: max(around.round_trip // 10, 1 * MS),
    ),
    "ack_pause": Bound(
        "µs",
        "5 x `ack_delay`, at least 10 ms: in light traffic credit is no concern, and ACKs are half "
        "the work",
        lambda _, known: max(5 * known["ack_delay"], 10 * MS),
    ),
    "window": Bound(
        "bytes",
        "bandwidth x 4 levels x (RTT + `ack_delay`), up to a power of two: what is on its way in a "
        "tree of 16 nodes",
        _window,
    ),
    "slack": Bound(
        "windows", "fixed; a receiver keeps at most so many of one publisher in one topic"
    ),
    "stable_delay": Bound(
        "µs",
        "RTT, at least 20 ms: an idle publisher waits for a next frame to carry the news",
        lambda around, _: max(around.round_trip, 20 * MS),
    ),
    "resend_after": Bound(
        "µs",
        "10 levels x (RTT + `ack_delay`), at least 100 ms: the round trip of a tree of 1,024 "
        "nodes, or a pause of the interpreter",
        lambda around, known: max(LARGE_TREE_LEVELS * _hop(around, known), 100 * MS),
    ),
    "resend_max": Bound(
        "µs",
        "16 x `resend_after`, at most 30 s",
        lambda _, known: min(16 * known["resend_after"], 30_000 * MS),
    ),
    "resend_burst": Bound("frames", "fixed; frames sent again to one node at a time"),
    "patience": Bound(
        "probes",
        "1: a node that leaves two probes unanswered, 3 x `resend_after`, is taken for stopped",
        lambda *_: 1,
    ),
    "leaf_for": Bound(
        "µs",
        "20 x `resend_after`: what stopped once may do so again",
        lambda _, known: 20 * known["resend_after"],
    ),
    "forget_after": Bound(
        "µs",
        "60 s: a node that publishes to a topic more seldom, and does not subscribe, asks again "
        "who does; 0: never",
        lambda *_: 60_000 * MS,
    ),
    "idle_topics": Bound(
        "topics", "fixed; topics that a node has left and still remembers, at most"
    ),
    "frame_bytes": Bound("bytes", "fixed; at most 4 MiB"),
    "frame_messages": Bound("messages", "fixed; at most 65,536"),
    "queue_bytes": Bound(
        "bytes", "`window`: a burst of one publisher fits", lambda _, known: known["window"]
    ),
    "unread_bytes": Bound(
        "bytes",
        "16 x `window`, at least 64 MiB: what a peer leaves unread before it is disconnected",
        lambda _, known: max(16 * known["window"], 64 * MIB),
    ),
    "max_strangers": Bound(
        "connections", "fixed; those of neither a member nor a light client, at a time"
    ),
    "join_timeout_s": Bound(
        "seconds",
        "100 x RTT, at least 10 s: how long seeds are asked for a place",
        _at_least(100, 10.0),
    ),
    "leave_timeout_s": Bound("seconds", "100 x RTT, at least 10 s", _at_least(100, 10.0)),
    "publish_timeout_s": Bound(
        "seconds", "200 x RTT, at least 30 s: a repair may come first", _at_least(200, 30.0)
    ),
    "suspect_min": Bound(
        "µs",
        "20 x RTT, at least 1 s: no node is taken for dead sooner; more than an interpreter or a "
        "busy machine pauses",
        lambda around, _: max(20 * around.round_trip, 1_000 * MS),
    ),
    "test_every": Bound(
        "µs",
        "`suspect_min` / 2: a node tests log2 n others this often",
        lambda _, known: known["suspect_min"] // 2,
    ),
    "suspect_max": Bound(
        "µs",
        "5 x `suspect_min`: every node that is silent so long is taken for dead; in between, by "
        "how long answers took",
        lambda _, known: 5 * known["suspect_min"],
    ),
    "deaf_after": Bound(
        "µs",
        "2 x `suspect_max`: so is a node that is heard and does not answer",
        lambda _, known: 2 * known["suspect_max"],
    ),
    "retries": Bound(
        "tests",
        "4: a silent node is asked again so often before others are; with one packet in ten lost, "
        "five tests in a row fail in 0.02 % of the cases",
        lambda *_: 4,
    ),
    "indirect": Bound(
        "nodes", "3: so many others are asked whether they reach a silent node", lambda *_: 3
    ),
    "push": Bound("True or False", "fixed; news of the dead are told on at once"),
    "mute_after": Bound(
        "µs",
        "`deaf_after`, at least 4 x `resend_max`: a member that answers tests, but leaves a wave "
        "unanswered so long, is excluded; a quarter more for each level of the tree below it; "
        "0: never",
        lambda _, known: max(known["deaf_after"], 4 * known["resend_max"]),
    ),
    "answer_after": Bound(
        "µs",
        "20 x RTT, at least 2 s: a node that does not answer in time when the members change is "
        "left out",
        lambda around, _: max(20 * around.round_trip, 2_000 * MS),
    ),
    "repeat_after": Bound(
        "µs",
        "`answer_after` / 8: no node is left out for a lost message",
        lambda _, known: known["answer_after"] // 8,
    ),
    "enter_every": Bound(
        "µs",
        "`answer_after` / 4: a node on its way in asks this often",
        lambda _, known: known["answer_after"] // 4,
    ),
    "beacon_every": Bound(
        "µs",
        "2 x `answer_after`: nodes that were left out are told this often where the cluster is",
        lambda _, known: 2 * known["answer_after"],
    ),
    "alone_after": Bound(
        "µs",
        "15 x `answer_after`: a node that was left out and is not taken back goes on by itself",
        lambda _, known: 15 * known["answer_after"],
    ),
    "absent_for": Bound(
        "µs",
        "120 x `alone_after`: a node that was left out is looked for, and history kept for its "
        "return, this long",
        lambda _, known: 120 * known["alone_after"],
    ),
    "max_clients": Bound("clients", "fixed; light clients attached at a time"),
    "client_subscriptions": Bound("subscriptions", "fixed; of one light client at a time"),
    "client_bytes": Bound(
        "bytes",
        "fixed; what one light client may make its node hold, of all its subscriptions together",
    ),
    "clients_bytes": Bound(
        "bytes",
        "fixed; the same of all light clients of a node; each may hold `clients_bytes` / "
        "`max_clients` besides",
    ),
    "clients_topics": Bound(
        "topics",
        "fixed; topics that light clients have used and the node has not forgotten; one client, by "
        "its name or else its host, may have half of them, and each `clients_topics` / "
        "`max_clients` besides",
    ),
    "client_silence_s": Bound(
        "seconds", "fixed; a light client that is silent for so long is gone"
    ),
    "permissions_grace_s": Bound(
        "seconds",
        "fixed; how much later than this node another one may have read "
        "[new permissions](permissions.md#new-rules-without-a-restart)",
    ),
    "trace_arrivals": Bound(
        "True or False",
        "fixed; also records in which order messages arrive, for traces",
    ),
}


def table(values: Callable[[str], Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Rows of key, unit, a value for each preset, words; `values` writes those of a preset."""
    written = [values(preset) for preset in PRESETS]
    return [
        (key, bound.unit, *(one[key] for one in written), bound.words)
        for key, bound in BOUNDS.items()
    ]


def preset_values(name: str) -> dict[str, Any]:
    """The values that a preset sets, of the node and of the core, by their formulas."""
    around = _surroundings(name)
    values: dict[str, Any] = {}
    for key, bound in BOUNDS.items():
        if bound.formula is not None:
            values[key] = bound.formula(around, values)
    return values


def detector_for(name: str) -> DetectorConfig:
    """The failure detector of a preset, in microseconds."""
    values = preset_values(name)
    names = {one.name for one in fields(DetectorConfig)}
    return DetectorConfig(**{key: values[key] for key in names & values.keys()})


def _surroundings(name: str) -> Surroundings:
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    return PRESETS[name]
