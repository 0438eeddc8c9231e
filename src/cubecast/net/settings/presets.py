"""Presets: what a node's delays and bounds are where round trips are short, or long.

Each preset is a round trip and a bandwidth; everything else follows by formula.

| value | formula |
|---|---|
| `ack_delay` | RTT / 10, at least 1 ms: gathering must not add much to a hop |
| `ack_pause` | 5 x `ack_delay`, at least 10 ms: in light traffic credit is no concern, and \
ACKs are half the work |
| `stable_delay` | RTT, at least 20 ms: an idle publisher waits for a next frame to carry the news |
| `resend_after` | 10 levels x (RTT + `ack_delay`), at least 100 ms: the round trip of a tree of \
1,024 nodes, or a pause of the interpreter |
| `patience` | 1: who leaves two probes unanswered, 3 x `resend_after`, is taken for stopped |
| `leaf_for` | 20 x `resend_after`: what stopped once may do so again |
| `forget_after` | 60 s: who publishes to a topic more seldom asks again who subscribes |
| `mute_after` | `deaf_after`, at least 4 x `resend_max`: who answers tests was neither stopped \
nor cut off by then, and a wave, or its answer, may be lost twice in a row |
| `resend_max` | 16 x `resend_after`, at most 30 s |
| `window` | bandwidth x 4 levels x (RTT + `ack_delay`), up to a power of two: what is on its way \
in a tree of 16 nodes |
| `queue_bytes` | `window`: a burst of one publisher fits |
| `unread_bytes` | 16 x `window`, at least 64 MiB: a peer is sent several streams at a time |
| `join_timeout_s`, `leave_timeout_s` | 100 x RTT, at least 10 s |
| `publish_timeout_s` | 200 x RTT, at least 30 s: a repair may come first |

Those of the failure detector (`detector_for`):

| value | formula |
|---|---|
| `suspect_min` | 20 x RTT, at least 1 s: a pause of the interpreter, or of a machine with more \
processes than cores |
| `test_every` | `suspect_min` / 2: the wait for the next round does not dominate |
| `suspect_max` | 5 x `suspect_min` |
| `deaf_after` | 2 x `suspect_max` |
| `retries`, `indirect` | 4 and 3: with one packet in ten lost, five tests in a row are not \
answered in 0.02 % of the cases, and in 4 % of those three detours fail as well |

Those of the agreement on who is in the cluster:

| value | formula |
|---|---|
| `answer_after` | 20 x RTT, at least 2 s: a report may be large, and its node busy |
| `repeat_after` | `answer_after` / 8: nobody is excluded for a lost message |
| `enter_every` | `answer_after` / 4 |
| `beacon_every` | 2 x `answer_after` |
| `alone_after` | 15 x `answer_after` |
| `absent_for` | 120 x `alone_after`: an hour or more, in which an operator mends a network |
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from cubecast.protocol.cluster.detector import DetectorConfig

MS = 1_000
"""Microseconds."""
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


def preset_values(name: str) -> dict[str, Any]:
    """The values a preset sets, of the node and of the core, by the formulas above."""
    round_trip, bandwidth = _surroundings(name)
    ack_delay = max(round_trip // 10, 1 * MS)
    hop = round_trip + ack_delay
    resend_after = max(LARGE_TREE_LEVELS * hop, 100 * MS)
    resend_max = min(16 * resend_after, 30_000 * MS)
    window = _power_of_two(bandwidth * TYPICAL_TREE_LEVELS * hop // 1_000_000)
    seconds = round_trip / 1_000_000
    return {
        "window": window,
        "ack_delay": ack_delay,
        "ack_pause": max(5 * ack_delay, 10 * MS),
        "stable_delay": max(round_trip, 20 * MS),
        "resend_after": resend_after,
        "patience": 1,
        "leaf_for": 20 * resend_after,
        "forget_after": 60_000 * MS,
        "resend_max": resend_max,
        "mute_after": max(detector_for(name).deaf_after, 4 * resend_max),
        "queue_bytes": window,
        "unread_bytes": max(16 * window, 64 * 1024 * 1024),
        "join_timeout_s": max(100 * seconds, 10.0),
        "leave_timeout_s": max(100 * seconds, 10.0),
        "publish_timeout_s": max(200 * seconds, 30.0),
        **asdict(detector_for(name)),
        **_agreement(round_trip),
    }


def _agreement(round_trip: int) -> dict[str, int]:
    """How long a change of the view waits for answers."""
    answer_after = max(20 * round_trip, 2_000 * MS)
    alone_after = 15 * answer_after
    return {
        "answer_after": answer_after,
        "repeat_after": answer_after // 8,
        "enter_every": answer_after // 4,
        "beacon_every": 2 * answer_after,
        "alone_after": alone_after,
        "absent_for": 120 * alone_after,
    }


def detector_for(name: str) -> DetectorConfig:
    """The failure detector of a preset, in microseconds, by the formulas above."""
    round_trip = _surroundings(name).round_trip
    suspect_min = max(20 * round_trip, 1_000 * MS)
    return DetectorConfig(
        test_every=suspect_min // 2,
        suspect_min=suspect_min,
        suspect_max=5 * suspect_min,
        deaf_after=10 * suspect_min,
        retries=4,
        indirect=3,
    )


def _surroundings(name: str) -> Surroundings:
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    return PRESETS[name]


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
